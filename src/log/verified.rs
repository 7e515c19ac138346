//! What this process has verified already: batches whose CRC was right, index entries that told the truth.
//!
//! A table of fixed size for the whole process, without locks: each slot holds one exact key, a newer key takes the slot of an older one,
//! and a lost key only costs verifying again. A key names an opened segment by a number that is never used twice, so that forgetting a
//! segment is opening it anew.

use crate::log::counters::Counters;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// 2^20 slots, 8 MiB, touched as they are used.
const SLOTS_LOG2: u32 = 20;

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Subject {
    /// The batch at a position.
    Batch = 1,
    /// The offset index entry with a number.
    OffsetEntry = 2,
    /// The time index entry with a number.
    TimeEntry = 3,
}

/// The number of an opened segment, unique in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instance(u32);

impl Instance {
    /// A number that was not used before.
    pub fn next() -> Instance {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Instance(NEXT.fetch_add(1, Ordering::Relaxed) & 0x3fff_ffff)
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

#[inline]
fn key(instance: Instance, subject: Subject, at: u64) -> (u64, usize) {
    // 30 bits of instance, 2 of subject, 32 of position: positions in a segment are below 2^31.
    let whose = u64::from(instance.0) << 2 | subject as u64;
    // Neighbours lie side by side, so that a walk goes through the table in order, too. Two batches of magic 2 never begin within the same 64 bytes.
    let place = match subject {
        Subject::Batch => at >> 6,
        Subject::OffsetEntry | Subject::TimeEntry => at,
    };
    let first = whose.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS_LOG2);
    (whose << 32 | (at & 0xffff_ffff), (first.wrapping_add(place) & ((1 << SLOTS_LOG2) - 1)) as usize)
}

/// Whether it was verified and is still remembered.
#[inline(always)]
pub fn contains(instance: Instance, subject: Subject, at: u64) -> bool {
    let (key, slot) = key(instance, subject, at);
    table().get(slot).is_some_and(|s| s.load(Ordering::Relaxed) == key)
}

/// Remembers it.
#[inline]
pub fn remember(instance: Instance, subject: Subject, at: u64) {
    let (key, slot) = key(instance, subject, at);
    if let Some(slot) = table().get(slot) {
        slot.store(key, Ordering::Relaxed);
    }
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
    fn keys_are_exact() {
        let (a, b) = (Instance::next(), Instance::next());
        remember(a, Subject::Batch, 61);
        assert!(contains(a, Subject::Batch, 61));
        assert!(!contains(b, Subject::Batch, 61), "another opening of the segment");
        assert!(!contains(a, Subject::OffsetEntry, 61));
        assert!(!contains(a, Subject::Batch, 62));
    }

    #[test]
    fn the_batches_of_a_stretch_do_not_push_one_another_out() {
        let instance = Instance::next();
        // As small as batches get, through as much of a log as the table has room for.
        let batches = || (0..(64u64 << SLOTS_LOG2) / 68).map(|n| n * 68);
        batches().for_each(|at| remember(instance, Subject::Batch, at));
        // Another test may have taken a slot or two meanwhile.
        let lost = batches().filter(|at| !contains(instance, Subject::Batch, *at)).count();
        assert!(lost < 1000, "{lost}");
    }
}
