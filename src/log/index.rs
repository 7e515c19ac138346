//! Offset index and time index: pure look-up over their bytes, and the rule by which entries are made.
//!
//! Relative offsets live in this file only; outside it an entry has its absolute [`Offset`]. Nothing here decides whether an entry can
//! be believed: an index is a hint, and who uses it checks the batch that it names.
//!
//! ```text
//! .index      i32 relative offset | i32 position                 8 bytes   offset = the last one of the batch at position
//! .timeindex  i64 timestamp       | i32 relative offset          12 bytes  the largest time so far, and the last offset of the batch that reached it
//! ```
//! No header, no checksum, big endian (Kafka's own files decide). A preallocated index has a tail of zeros.

use crate::types::{Offset, Position, TimestampMs};

/// The size of an offset index entry in bytes.
pub const OFFSET_ENTRY_LEN: usize = 4 + 4;
/// The size of a time index entry in bytes.
pub const TIME_ENTRY_LEN: usize = 8 + 4;
const _: () = assert!(OFFSET_ENTRY_LEN == 8 && TIME_ENTRY_LEN == 12);

/// An entry of an offset index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// The last offset of the batch.
    pub offset: Offset,
    /// Where the batch begins in the `.log`.
    pub position: Position,
}

/// An entry of a time index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    /// The largest time up to and with the batch named.
    pub timestamp: TimestampMs,
    /// The last offset of the earliest batch that reached it.
    pub offset: Offset,
}

/// Whether an offset can stand in an index of a segment with this base offset.
#[inline]
pub fn fits(base: Offset, offset: Offset) -> bool {
    (0..=i64::from(i32::MAX)).contains(&offset.delta_from(base))
}

#[inline]
fn be_i32(bytes: &[u8], at: usize) -> i32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, i32::from_be_bytes)
}

#[inline]
fn be_i64(bytes: &[u8], at: usize) -> i64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, i64::from_be_bytes)
}

/// The entries of an offset index.
#[derive(Clone, Copy, Debug)]
pub struct OffsetIndex<'a> {
    bytes: &'a [u8],
    base: Offset,
}

impl<'a> OffsetIndex<'a> {
    /// The index of a segment with this base offset; a part of an entry at the end is left out.
    #[inline]
    pub fn new(bytes: &'a [u8], base: Offset) -> OffsetIndex<'a> {
        OffsetIndex { bytes, base }
    }

    /// The base offset of the segment.
    pub fn base(&self) -> Offset {
        self.base
    }

    /// The number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / OFFSET_ENTRY_LEN
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at a place; `None` beyond the end or where its numbers are negative.
    #[inline]
    pub fn entry(&self, at: usize) -> Option<OffsetEntry> {
        let bytes = self.bytes.get(at * OFFSET_ENTRY_LEN..(at + 1) * OFFSET_ENTRY_LEN)?;
        let relative = be_i32(bytes, 0);
        let position = u64::try_from(be_i32(bytes, 4)).ok()?;
        if relative < 0 {
            return None;
        }
        Some(OffsetEntry { offset: self.base.checked_add(i64::from(relative))?, position: Position::new(position) })
    }

    /// Whether a batch that the entry at a place names, by its base offset and its position, begins behind the batch that the entry before it names.
    /// No entry names the first batch of a segment, so that there is always one before it.
    pub fn lies_behind(&self, at: usize, base_offset: Offset, position: u64) -> bool {
        match at.checked_sub(1) {
            Some(before) => self.entry(before).is_some_and(|before| before.offset < base_offset),
            None => position == 0 || self.base < base_offset,
        }
    }

    /// The place of the greatest entry at or below an offset, by binary search with the upper middle; any bytes give some answer.
    #[inline]
    pub fn floor(&self, target: Offset) -> Option<usize> {
        let relative = target.delta_from(self.base);
        let (mut low, mut high) = (0, self.len());
        // The entries before `low` are at or below the target, those from `high` on are not.
        while low < high {
            let middle = low + (high - low) / 2;
            if i64::from(be_i32(self.bytes, middle * OFFSET_ENTRY_LEN)) <= relative {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }
}

/// The entries of a time index.
#[derive(Clone, Copy, Debug)]
pub struct TimeIndex<'a> {
    bytes: &'a [u8],
    base: Offset,
}

impl<'a> TimeIndex<'a> {
    /// The index of a segment with this base offset; a part of an entry at the end is left out.
    #[inline]
    pub fn new(bytes: &'a [u8], base: Offset) -> TimeIndex<'a> {
        TimeIndex { bytes, base }
    }

    /// The number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / TIME_ENTRY_LEN
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at a place; `None` beyond the end or where its relative offset is negative.
    #[inline]
    pub fn entry(&self, at: usize) -> Option<TimeEntry> {
        let bytes = self.bytes.get(at * TIME_ENTRY_LEN..(at + 1) * TIME_ENTRY_LEN)?;
        let relative = be_i32(bytes, 8);
        if relative < 0 {
            return None;
        }
        Some(TimeEntry { timestamp: TimestampMs::new(be_i64(bytes, 0)), offset: self.base.checked_add(i64::from(relative))? })
    }

    /// The last entry.
    pub fn last(&self) -> Option<TimeEntry> {
        self.entry(self.len().checked_sub(1)?)
    }

    /// The place of the greatest entry at or before a time; any bytes give some answer.
    #[inline]
    pub fn floor(&self, target: TimestampMs) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if be_i64(self.bytes, middle * TIME_ENTRY_LEN) <= target.get() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }
}

/// The bytes of an offset index entry; `None` where the numbers do not fit.
pub fn encode_offset_entry(base: Offset, entry: OffsetEntry) -> Option<[u8; OFFSET_ENTRY_LEN]> {
    let mut bytes = [0; OFFSET_ENTRY_LEN];
    bytes[..4].copy_from_slice(&i32::try_from(entry.offset.delta_from(base)).ok().filter(|r| *r >= 0)?.to_be_bytes());
    bytes[4..].copy_from_slice(&i32::try_from(entry.position.get()).ok()?.to_be_bytes());
    Some(bytes)
}

/// The bytes of a time index entry; `None` where the offset does not fit.
pub fn encode_time_entry(base: Offset, entry: TimeEntry) -> Option<[u8; TIME_ENTRY_LEN]> {
    let mut bytes = [0; TIME_ENTRY_LEN];
    bytes[..8].copy_from_slice(&entry.timestamp.get().to_be_bytes());
    bytes[8..].copy_from_slice(&i32::try_from(entry.offset.delta_from(base)).ok().filter(|r| *r >= 0)?.to_be_bytes());
    Some(bytes)
}

/// How many bytes of a whole offset index file are entries: a tail of zeros, as a preallocated one has, is cut. Entry 0 may not be all zero.
pub fn used_offset_bytes(bytes: &[u8]) -> usize {
    let entries = bytes.len() / OFFSET_ENTRY_LEN;
    let is_zero = |i: usize| be_i32(bytes, i * OFFSET_ENTRY_LEN) == 0 && (i > 0 || be_i32(bytes, 4) == 0);
    partition_point(entries, |i| !is_zero(i)) * OFFSET_ENTRY_LEN
}

/// How many bytes of a whole time index file are entries. An entry behind the first whose relative offset is 0 ends it; the first may have
/// relative offset 0 (a segment of one record), but not time 0 with it where zeros follow.
pub fn used_time_bytes(bytes: &[u8]) -> usize {
    let entries = bytes.len() / TIME_ENTRY_LEN;
    let relative = |i: usize| be_i32(bytes, i * TIME_ENTRY_LEN + 8);
    if entries > 1 && be_i64(bytes, 0) == 0 && relative(0) == 0 && relative(1) == 0 {
        return 0;
    }
    // The first entry may have relative offset 0, the others not: the search runs behind it.
    entries.min(1 + partition_point(entries.saturating_sub(1), |i| relative(i + 1) != 0)) * TIME_ENTRY_LEN
}

/// The number of leading places for which a predicate holds, by binary search.
fn partition_point(len: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The rule by which both indexes get their entries, batch by batch, as Kafka 4.3.1 appends and rebuilds them.
///
/// An offset entry is due when strictly more than `index.interval.bytes` were appended since the start of the last indexed batch (or since the
/// start of the segment, or its opening); a time entry is tried right after it and once more when the segment ends.
#[derive(Clone, Debug)]
pub struct IndexRule {
    interval_bytes: u64,
    bytes_since_entry: u64,
    largest: TimeEntry,
    last_time_entry: TimestampMs,
}

impl IndexRule {
    /// A rule for an empty segment.
    pub fn new(base: Offset, interval_bytes: u64) -> IndexRule {
        IndexRule {
            interval_bytes,
            bytes_since_entry: 0,
            largest: TimeEntry { timestamp: TimestampMs::NONE, offset: base },
            last_time_entry: TimestampMs::NONE,
        }
    }

    /// A rule for a segment that has batches already: what its time index ends with and the largest time it holds.
    pub fn resume(base: Offset, interval_bytes: u64, last_time_entry: Option<TimeEntry>, largest: Option<TimeEntry>) -> IndexRule {
        let mut rule = IndexRule::new(base, interval_bytes);
        if let Some(entry) = last_time_entry {
            rule.last_time_entry = entry.timestamp;
            rule.largest = entry;
        }
        if let Some(entry) = largest.filter(|l| l.timestamp > rule.largest.timestamp) {
            rule.largest = entry;
        }
        rule
    }

    /// Makes an offset entry due for the next batch, whatever lies before it: behind a damaged stretch only an entry tells where to go on.
    pub fn make_due(&mut self) {
        self.bytes_since_entry = self.interval_bytes.saturating_add(1);
    }

    /// Takes a batch into account; returns the entries that are due for it: none, or an offset entry with perhaps a time entry.
    #[inline]
    pub fn batch(
        &mut self,
        last_offset: Offset,
        position: Position,
        size: u64,
        max_timestamp: TimestampMs,
    ) -> Option<(OffsetEntry, Option<TimeEntry>)> {
        if max_timestamp > self.largest.timestamp {
            self.largest = TimeEntry { timestamp: max_timestamp, offset: last_offset };
        }
        // Strictly more: a batch that lands exactly on the interval gets no entry, and so never does the first one of a segment.
        let due = if self.bytes_since_entry > self.interval_bytes {
            self.bytes_since_entry = 0;
            Some((OffsetEntry { offset: last_offset, position }, self.time_entry()))
        } else {
            None
        };
        self.bytes_since_entry = self.bytes_since_entry.saturating_add(size);
        due
    }

    /// The time entry that is due now, at the end of the segment, or behind an offset entry: only a larger time than the last one makes one.
    pub fn time_entry(&mut self) -> Option<TimeEntry> {
        if self.largest.timestamp > self.last_time_entry {
            self.last_time_entry = self.largest.timestamp;
            return Some(self.largest);
        }
        None
    }

    /// The largest time so far and the last offset of the batch that reached it first; [`TimestampMs::NONE`] where no batch has one.
    pub fn largest(&self) -> TimeEntry {
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offset(n: i64) -> Offset {
        Offset::new(n).expect("not negative")
    }

    #[test]
    fn the_interval_is_exceeded_strictly() {
        let mut rule = IndexRule::new(offset(0), 100);
        let due = |rule: &mut IndexRule, last, position, size| {
            rule.batch(offset(last), Position::new(position), size, TimestampMs::new(last)).map(|(o, _)| (o.offset.get(), o.position.get()))
        };
        assert_eq!(due(&mut rule, 0, 0, 100), None, "the first batch never gets an entry");
        assert_eq!(due(&mut rule, 1, 100, 1), None, "exactly the interval is not enough");
        assert_eq!(due(&mut rule, 2, 101, 50), Some((2, 101)), "one byte more is");
        assert_eq!(due(&mut rule, 3, 151, 51), None);
        assert_eq!(due(&mut rule, 4, 202, 10), Some((4, 202)));
        let mut rule = IndexRule::new(offset(0), u64::MAX);
        rule.make_due();
        assert_eq!(due(&mut rule, 0, 0, 100), None, "no interval is exceeded where there is none");
        let mut rule = IndexRule::new(offset(0), 0);
        assert_eq!(due(&mut rule, 0, 0, 10), None, "not even with interval 0");
        assert_eq!(due(&mut rule, 1, 10, 10), Some((1, 10)));
    }

    #[test]
    fn time_entries_only_rise() {
        let mut rule = IndexRule::new(offset(0), 0);
        let mut entries = Vec::new();
        for (i, ts) in [5, 9, 9, 3, 12].into_iter().enumerate() {
            let i = i as i64;
            if let Some((_, Some(entry))) = rule.batch(offset(i), Position::new(i as u64 * 10), 10, TimestampMs::new(ts)) {
                entries.push((entry.timestamp.get(), entry.offset.get()));
            }
        }
        assert_eq!(entries, [(9, 1), (12, 4)]);
        assert_eq!(rule.time_entry(), None, "the last one stands already");
        assert_eq!(rule.largest().offset, offset(4));
    }

    #[test]
    fn zero_tails_are_cut() {
        let entry = |o, p| encode_offset_entry(offset(0), OffsetEntry { offset: offset(o), position: Position::new(p) }).expect("fits");
        let mut bytes = [entry(3, 50), entry(9, 100)].concat();
        assert_eq!(used_offset_bytes(&bytes), 16);
        bytes.extend([0; 8000]);
        assert_eq!(used_offset_bytes(&bytes), 16);
        assert_eq!(used_offset_bytes(&[0; 800]), 0);
        let time = |t, o| encode_time_entry(offset(0), TimeEntry { timestamp: TimestampMs::new(t), offset: offset(o) }).expect("fits");
        let mut bytes = [time(70, 0), time(90, 4)].concat();
        assert_eq!(used_time_bytes(&bytes), 24);
        bytes.extend([0; 1200]);
        assert_eq!(used_time_bytes(&bytes), 24);
        assert_eq!(used_time_bytes(&[0; 1200]), 0);
        assert_eq!(used_time_bytes(&time(70, 0)), 12);
        assert_eq!(used_time_bytes(&[]), 0);
    }

    proptest! {
        #[test]
        fn floor_equals_a_plain_search(mut keys in prop::collection::vec(0i32..1000, 0..60), target in -5i64..1010) {
            keys.sort_unstable();
            keys.dedup();
            let bytes: Vec<u8> = keys.iter().flat_map(|k| [k.to_be_bytes(), 7i32.to_be_bytes()].concat()).collect();
            let want = keys.iter().rposition(|k| i64::from(*k) <= target);
            let base = offset(100);
            if let Some(t) = base.checked_add(target) {
                prop_assert_eq!(OffsetIndex::new(&bytes, base).floor(t), want);
            }
            let bytes: Vec<u8> = keys.iter().flat_map(|k| [&i64::from(*k).to_be_bytes()[..], &7i32.to_be_bytes()].concat()).collect();
            prop_assert_eq!(TimeIndex::new(&bytes, base).floor(TimestampMs::new(target)), want);
        }

        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..200), target in 0i64..i64::MAX, at in 0usize..40) {
            let index = OffsetIndex::new(&bytes, offset(5));
            let _ = index.floor(offset(target)).and_then(|i| index.entry(i));
            let _ = index.entry(at);
            let times = TimeIndex::new(&bytes, offset(5));
            let _ = times.floor(TimestampMs::new(target)).and_then(|i| times.entry(i));
            let _ = (used_offset_bytes(&bytes), used_time_bytes(&bytes));
        }
    }
}
