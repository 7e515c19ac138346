//! How large the records and batches of a log are, and what an interval of the offset index costs and gains on it: one pass over the log, in
//! memory that does not grow with it.
//!
//! What a look-up costs is counted, not timed: the headers between the floor entry and the batch that is looked for. Entries follow
//! [`IndexRule`], as if the log had been written with the interval.

use crate::error::{Error, Result};
use crate::log::batch::BatchHeader;
use crate::log::handle::Body;
use crate::log::index::{IndexRule, OFFSET_ENTRY_LEN, TIME_ENTRY_LEN};
use crate::log::names;
use crate::log::partition::Partition;
use crate::log::record::Headers;
use crate::log::walk::{Item, Look};
use crate::types::{Offset, Patience, Position};
use std::sync::Arc;

/// Numbers below twice this have a bucket of their own; beyond, each power of two has so many buckets.
const BUCKETS: u64 = 64;
const BUCKET_BITS: u32 = BUCKETS.ilog2();

/// Numbers of one kind, and how they are spread. Count, mean, least and largest are exact, quantiles to a 64th.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// How many numbers lie in each bucket.
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    least: u64,
    largest: u64,
}

/// The bucket of a number.
fn bucket_of(number: u64) -> usize {
    let Some(shift) = number.checked_ilog2().and_then(|log| log.checked_sub(BUCKET_BITS)) else { return number as usize };
    (u64::from(shift) * BUCKETS + (number >> shift)) as usize
}

/// The least number of a bucket.
fn least_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / BUCKETS).saturating_sub(1);
    (bucket - shift * BUCKETS) << shift
}

impl Distribution {
    fn add(&mut self, number: u64) {
        let bucket = bucket_of(number);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.least = if self.count == 0 { number } else { self.least.min(number) };
        self.largest = self.largest.max(number);
        self.count += 1;
        self.sum += u128::from(number);
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least; 0 where there is none.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// The largest; 0 where there is none.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The mean; 0 where there is none.
    pub fn mean(&self) -> f64 {
        share(self.sum as f64, self.count)
    }

    /// The number that this share (above 0, to 1) of all do not exceed: at most a 64th too large.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        reached.map_or(self.largest, |bucket| least_of(bucket + 1).wrapping_sub(1)).clamp(self.least, self.largest)
    }

    /// How many numbers lie from each power of two to before the next, as far as there are numbers: from, to, count. The first may be 0 alone.
    pub fn powers(&self) -> Vec<(u64, u64, u64)> {
        let mut powers = vec![0; u64::BITS as usize + 1];
        let power_of = |number: u64| (u64::BITS - number.leading_zeros()) as usize;
        for (bucket, count) in self.buckets.iter().enumerate() {
            powers[power_of(least_of(bucket))] += count;
        }
        let all =
            powers.into_iter().enumerate().map(|(power, count)| (((1u128 << power) / 2) as u64, ((1u128 << power) - 1) as u64, count));
        all.skip_while(|(_, _, count)| *count == 0).take_while(|(from, _, _)| *from <= self.largest).collect()
    }
}

fn share(sum: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// What an interval of the offset index costs, and what look-ups by offset cost with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalCost {
    /// `index.interval.bytes`.
    pub interval_bytes: u64,
    /// Entries of the offset indexes.
    pub offset_entries: u64,
    /// Entries of the time indexes.
    pub time_entries: u64,
    /// Headers that a look-up of a record reads, the one of its own batch included, as a mean over all records.
    pub headers_mean: f64,
    /// The most that one look-up reads.
    pub headers_most: u64,
    /// Bytes that a look-up passes over before the batch, as a mean over all records.
    pub passed_mean: f64,
    /// The most that one look-up passes over.
    pub passed_most: u64,
}

impl IntervalCost {
    /// The bytes of both indexes.
    pub fn index_bytes(&self) -> u64 {
        self.offset_entries * OFFSET_ENTRY_LEN as u64 + self.time_entries * TIME_ENTRY_LEN as u64
    }
}

/// What a pass over a log has counted.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Segments.
    pub segments: u64,
    /// The bytes of the batches that could be read.
    pub bytes: u64,
    /// Batches without records of their own: markers of transactions.
    pub control_batches: u64,
    /// Batches and stretches that cannot be read; they count nowhere else.
    pub unreadable: u64,
    /// Of each record, its key, value, header names and header values, uncompressed, in bytes.
    pub record_bytes: Distribution,
    /// Of each batch, control batches included, its bytes as they are stored.
    pub batch_bytes: Distribution,
    /// The records of each batch that holds any.
    pub batch_records: Distribution,
    /// The intervals that were asked for, in that order.
    pub intervals: Vec<IntervalCost>,
}

/// The look-ups of one interval, while the pass runs.
#[derive(Debug)]
struct Lookups {
    interval_bytes: u64,
    rule: IndexRule,
    /// Headers from the floor entry to before the batch at hand, and their bytes.
    headers: u64,
    passed: u64,
    headers_sum: u128,
    passed_sum: u128,
    cost: IntervalCost,
}

impl Lookups {
    fn new(interval_bytes: u64) -> Lookups {
        let cost = IntervalCost {
            interval_bytes,
            offset_entries: 0,
            time_entries: 0,
            headers_mean: 0.0,
            headers_most: 0,
            passed_mean: 0.0,
            passed_most: 0,
        };
        let rule = IndexRule::new(Offset::ZERO, interval_bytes);
        Lookups { interval_bytes, rule, headers: 0, passed: 0, headers_sum: 0, passed_sum: 0, cost }
    }

    fn end_segment(&mut self) {
        self.cost.time_entries += u64::from(self.rule.time_entry().is_some());
    }

    fn begin_segment(&mut self, base: Offset) {
        self.end_segment();
        self.rule = IndexRule::new(base, self.interval_bytes);
        (self.headers, self.passed) = (0, 0);
    }

    /// `holds_last`: whether the last of its records has the last offset, which is the one that an entry names.
    fn batch(&mut self, header: &BatchHeader, position: u64, records: u64, holds_last: bool) {
        let size = u64::from(header.size);
        let due = self.rule.batch(header.last_offset, Position::new(position), size, header.max_timestamp);
        // The record that an entry names is found at once; the others of its batch lie behind the entry before.
        let named = u64::from(due.is_some() && holds_last);
        self.found(named, 1, 0);
        self.found(records.saturating_sub(named), self.headers + 1, self.passed);
        if let Some((_, time)) = due {
            self.cost.offset_entries += 1;
            self.cost.time_entries += u64::from(time.is_some());
            (self.headers, self.passed) = (0, 0);
        }
        self.headers += 1;
        self.passed += size;
    }

    fn found(&mut self, records: u64, headers: u64, passed: u64) {
        if records > 0 {
            self.headers_sum += u128::from(records) * u128::from(headers);
            self.passed_sum += u128::from(records) * u128::from(passed);
            self.cost.headers_most = self.cost.headers_most.max(headers);
            self.cost.passed_most = self.cost.passed_most.max(passed);
        }
    }

    fn cost(mut self, records: u64) -> IntervalCost {
        self.end_segment();
        let (headers_mean, passed_mean) = (share(self.headers_sum as f64, records), share(self.passed_sum as f64, records));
        IntervalCost { headers_mean, passed_mean, ..self.cost }
    }
}

impl Partition {
    /// Reads the whole log and counts. `intervals` are the values of `index.interval.bytes` that are of interest; `progress` is told the bytes
    /// done and all of them.
    ///
    /// # Errors
    /// What the system says; what cannot be read of the log is no error but counted.
    pub fn sizes(&self, intervals: &[u64], progress: &mut dyn FnMut(u64, u64)) -> Result<Sizes> {
        let layout = self.layout_full();
        let mut sizes = Sizes {
            segments: layout.segments.len() as u64,
            bytes: 0,
            control_batches: 0,
            unreadable: 0,
            record_bytes: Distribution::default(),
            batch_bytes: Distribution::default(),
            batch_records: Distribution::default(),
            intervals: Vec::new(),
        };
        let mut lookups: Vec<Lookups> = intervals.iter().map(|bytes| Lookups::new(*bytes)).collect();
        let total = layout.segments.iter().map(|s| s.end()).sum();
        let first = layout.segments.first().map_or(Offset::ZERO, |s| s.base_offset());
        let mut walk = self.walk(first, self.bounds().log_end, Look::Batches, Patience::MayBlock);
        let mut in_file: Option<Arc<str>> = None;
        while let Some(item) = walk.next(self)? {
            progress(sizes.bytes, total);
            let Item::Batch(batch, file) = item else {
                sizes.damaged(&mut lookups);
                continue;
            };
            if in_file.as_ref() != Some(&file) {
                let base = names::parse(&file).map_or(first, |(base, _)| base);
                lookups.iter_mut().for_each(|l| l.begin_segment(base));
                in_file = Some(file.clone());
            }
            let counted = match self.body(&batch, &file, Patience::MayBlock) {
                Ok(body) if !body.header.attributes.is_control() => sizes.records(&body),
                Ok(_) => {
                    sizes.control_batches += 1;
                    Some((0, false))
                }
                Err(Error::Corrupt(_) | Error::DecodedTooLarge { .. }) => None,
                Err(error) => return Err(error),
            };
            if batch.stored.is_broken() {
                return Err(Error::Truncated { file: file.to_string() });
            }
            let Some((records, holds_last)) = counted else {
                sizes.damaged(&mut lookups);
                continue;
            };
            sizes.bytes += u64::from(batch.header.size);
            sizes.batch_bytes.add(u64::from(batch.header.size));
            if records > 0 {
                sizes.batch_records.add(records);
            }
            lookups.iter_mut().for_each(|l| l.batch(&batch.header, batch.position, records, holds_last));
        }
        progress(total, total);
        let records = sizes.record_bytes.count();
        sizes.intervals = lookups.into_iter().map(|l| l.cost(records)).collect();
        Ok(sizes)
    }
}

impl Sizes {
    fn damaged(&mut self, lookups: &mut [Lookups]) {
        self.unreadable += 1;
        lookups.iter_mut().for_each(|l| l.rule.make_due());
    }

    /// Takes the records of a batch: how many, and whether one has the last offset; `None`, and nothing is taken, where one cannot be read.
    fn records(&mut self, body: &Body) -> Option<(u64, bool)> {
        if body.records().any(|record| record.is_err()) {
            return None;
        }
        let bytes = body.bytes.as_slice();
        let (mut count, mut last) = (0, None);
        for record in body.records().flatten() {
            let len = |range: &Option<std::ops::Range<u32>>| range.as_ref().map_or(0, |r| u64::from(r.end - r.start));
            let headers = Headers::new(bytes, &record).map(|(name, value)| (name.len() + value.map_or(0, <[u8]>::len)) as u64);
            self.record_bytes.add(len(&record.key) + len(&record.value) + headers.sum::<u64>());
            (count, last) = (count + 1, Some(record.offset));
        }
        Some((count, last == Some(body.header.last_offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_in_powers_of_two() {
        let mut numbers = Distribution::default();
        assert_eq!(
            (numbers.count(), numbers.least(), numbers.largest(), numbers.quantile(0.5), numbers.powers()),
            (0, 0, 0, 0, Vec::new())
        );
        for number in [0, 1, 2, 3, 4, 7, 8, 1 << 31] {
            numbers.add(number);
        }
        let powers = numbers.powers();
        assert_eq!(powers[..5], [(0, 0, 1), (1, 1, 1), (2, 3, 2), (4, 7, 2), (8, 15, 1)]);
        assert_eq!((powers.len(), powers[32]), (33, (1 << 31, (1 << 32) - 1, 1)));
        assert_eq!((numbers.quantile(0.5), numbers.quantile(1.0), numbers.least()), (3, 1 << 31, 0));
        assert_eq!(numbers.mean(), (25 + (1u64 << 31)) as f64 / 8.0);
        numbers.add(u64::MAX);
        assert_eq!(numbers.powers().last(), Some(&(1 << 63, u64::MAX, 1)));
    }

    #[test]
    fn quantiles_are_right_to_a_64th() {
        for scale in [1, 1000, 1 << 40] {
            let mut numbers = Distribution::default();
            (1..=1000).for_each(|n| numbers.add(n * scale));
            for (share, exact) in [(0.001, scale), (0.5, 500 * scale), (0.99, 990 * scale), (1.0, 1000 * scale)] {
                let said = numbers.quantile(share);
                assert!(said >= exact && said - exact <= exact / 64, "{said} for {exact}");
            }
        }
    }

    #[test]
    fn every_number_has_its_bucket() {
        for number in (0..5000).chain((0..64).map(|n| 1 << n)).chain((0..64).map(|n| u64::MAX >> n)) {
            let bucket = bucket_of(number);
            assert!(least_of(bucket) <= number, "{number}");
            assert!(bucket == bucket_of(u64::MAX) || number < least_of(bucket + 1), "{number}");
        }
    }
}
