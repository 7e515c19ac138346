//! What this process has verified already: batches whose CRC was right, index entries that told the truth.
//!
//! A table of fixed size for the whole process, without locks: each slot holds a mark for each of some neighbouring places of one opened segment, newer
//! neighbours take the slot of older ones, and what is lost so only costs verifying again. Marks are exact to the byte: a lying index may lead next to a batch
//! that is right. An opened segment has a number that is never used twice, so that forgetting a segment is opening it anew.

use crate::log::batch::HEADER_SIZE;
use crate::log::counters::Counters;
use crate::log::legacy::{self, PREFIX_SIZE};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// 2^20 slots, 8 MiB, touched as they are used: enough for the batches of 244 MiB of log, however small they are.
const SLOTS_LOG2: u32 = 20;
/// A slot holds the marks of four neighbours in its low bits, and above them whose they are.
const NEIGHBOURS_LOG2: u32 = 2;
/// A mark tells at which byte of its place something begins, counted from 1; 0 is nothing.
const MARK_LEN: u32 = 6;
const MARK_MASK: u64 = (1 << MARK_LEN) - 1;
const MARKS_LEN: u32 = MARK_LEN << NEIGHBOURS_LOG2;
const _: () = assert!(BATCH_SIZE_MIN < 1 << MARK_LEN && ENTRY_SIZE_MIN < 1 << MARK_LEN);
/// A batch of magic 2 is its header at least.
const BATCH_SIZE_MIN: u64 = HEADER_SIZE as u64;
/// An entry of magic 0 or 1 is at least offset, size, CRC, magic, attributes and two lengths.
const ENTRY_SIZE_MIN: u64 = (PREFIX_SIZE + legacy::MESSAGE_SIZE_MIN as usize) as u64;

/// What was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Subject {
    /// The batch of magic 2 at a position. It has at least 61 bytes, so that each has a place of its own among multiples of that.
    Batch = 0,
    /// The entry of magic 0 or 1 at a position. It has at least 26 bytes.
    LegacyEntry = 1,
    /// The offset index entry with a number.
    OffsetEntry = 2,
    /// The time index entry with a number.
    TimeEntry = 3,
}

impl Subject {
    /// The batch or entry of a magic.
    #[inline(always)]
    pub const fn of_magic(magic: u8) -> Subject {
        if magic >= 2 { Subject::Batch } else { Subject::LegacyEntry }
    }
}

/// The number of an opened segment, unique in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instance(u32);

impl Instance {
    /// A number that was not used before.
    pub fn next() -> Instance {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Instance(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

fn table() -> &'static [AtomicU64] {
    static TABLE: OnceLock<Box<[AtomicU64]>> = OnceLock::new();
    TABLE.get_or_init(|| (0..1usize << SLOTS_LOG2).map(|_| AtomicU64::new(0)).collect())
}

/// Where the mark of something is, and what it has to be.
struct Mark {
    slot: usize,
    /// Whose the marks of the slot have to be.
    owner: u64,
    /// How far from the low end of the slot it stands.
    shift: u32,
    value: u64,
}

#[inline(always)]
fn mark(instance: Instance, subject: Subject, at: u64) -> Mark {
    let (place, byte) = match subject {
        Subject::Batch => (at / BATCH_SIZE_MIN, at % BATCH_SIZE_MIN),
        Subject::LegacyEntry => (at / ENTRY_SIZE_MIN, at % ENTRY_SIZE_MIN),
        Subject::OffsetEntry | Subject::TimeEntry => (at, 0),
    };
    let stretch = place >> NEIGHBOURS_LOG2;
    let whose = u64::from(instance.0) << 2 | subject as u64;
    // Neighbouring stretches lie side by side, so that a walk goes through the table in order, too.
    let first = whose.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS_LOG2);
    let slot = first.wrapping_add(stretch) & ((1 << SLOTS_LOG2) - 1);
    // 34 bits say whose, and 6 the part of the stretch that the slot does not tell: positions lie below 2^31, so that all places do below 2^28.
    let owner = whose << 6 | (stretch >> SLOTS_LOG2 & 0x3f);
    let shift = (place as u32 & ((1 << NEIGHBOURS_LOG2) - 1)) * MARK_LEN;
    Mark { slot: slot as usize, owner: owner << MARKS_LEN, shift, value: byte + 1 }
}

/// Whether it was verified and is still remembered.
#[inline(always)]
pub fn contains(instance: Instance, subject: Subject, at: u64) -> bool {
    let Mark { slot, owner, shift, value } = mark(instance, subject, at);
    let marks = table().get(slot).map_or(0, |slot| slot.load(Ordering::Relaxed) ^ owner);
    // Of another owner, some bit above the marks is left.
    marks >> MARKS_LEN == 0 && marks >> shift & MARK_MASK == value
}

/// Remembers it.
#[inline]
pub fn remember(instance: Instance, subject: Subject, at: u64) {
    let Mark { slot, owner, shift, value } = mark(instance, subject, at);
    let Some(slot) = table().get(slot) else { return };
    // Owner and marks change as one, so that no mark is ever set for another owner.
    let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
        let marks = if (old ^ owner) >> MARKS_LEN == 0 { old } else { owner };
        Some(marks & !(MARK_MASK << shift) | value << shift)
    });
}

/// Batches that were known to be right, and batches whose CRC was computed, in the order of these counters.
static BATCHES: Counters<2> = Counters::new();
const KNOWN: usize = 0;
const COMPUTED: usize = 1;

/// Counts a batch that was known to be right.
#[inline]
pub(crate) fn count_known() {
    BATCHES.add(KNOWN, 1);
}

/// Counts a batch whose CRC was computed.
pub(crate) fn count_computed() {
    BATCHES.add(COMPUTED, 1);
}

/// How often a batch was known to be right in this process, and how often its CRC had to be computed.
pub fn batches_known_and_computed() -> (u64, u64) {
    (BATCHES.get(KNOWN), BATCHES.get(COMPUTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_exact() {
        let (a, b) = (Instance::next(), Instance::next());
        remember(a, Subject::Batch, 61);
        assert!(contains(a, Subject::Batch, 61));
        assert!(!contains(b, Subject::Batch, 61), "another opening of the segment");
        assert!(!contains(a, Subject::LegacyEntry, 61) && !contains(a, Subject::OffsetEntry, 61) && !contains(a, Subject::TimeEntry, 61));
        assert!(!contains(a, Subject::Batch, 0) && !contains(a, Subject::Batch, 61 + 61));
        assert!((62..61 + 61).all(|beside| !contains(a, Subject::Batch, beside)), "beside a batch that is right");
        remember(a, Subject::LegacyEntry, 100);
        assert!((74..=126).all(|at| contains(a, Subject::LegacyEntry, at) == (at == 100)));
        // As far apart as the table is long, both in the same slot.
        let far = BATCH_SIZE_MIN << (NEIGHBOURS_LOG2 + SLOTS_LOG2);
        assert!(!contains(a, Subject::Batch, 61 + far));
        remember(a, Subject::Batch, 61 + far);
        assert!(contains(a, Subject::Batch, 61 + far) && !contains(a, Subject::Batch, 61));
    }

    #[test]
    fn the_batches_of_a_stretch_do_not_push_one_another_out() {
        let instance = Instance::next();
        // As small as batches with a record get, behind the place where the slots begin again.
        let from = BATCH_SIZE_MIN << (NEIGHBOURS_LOG2 + SLOTS_LOG2 - 1);
        let batches = || (0..1 << 20).map(|n| from + n * 68);
        batches().for_each(|at| remember(instance, Subject::Batch, at));
        // Another test may have taken a slot or two meanwhile.
        let lost = batches().filter(|at| !contains(instance, Subject::Batch, *at)).count();
        assert!(lost < 1000, "{lost}");
    }
}
