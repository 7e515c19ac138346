//! What the same work costs with no verification, no segments and no locks: the limit that the engine is measured by.

use crate::inside::over_fresh_map;
use crate::table::{Side, Work};
use offsetfs::log::batch::{BatchHeader, Step};
use offsetfs::log::record::Records;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// A segment with its indexes, as Kafka lays them out.
pub(crate) struct Bare<'a> {
    pub(crate) log: &'a [u8],
    pub(crate) index: &'a [u8],
    pub(crate) times: &'a [u8],
}

pub(crate) fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The number of leading entries for which `holds`.
fn lower(entries: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

impl Bare<'_> {
    fn position(&self, target: i64) -> usize {
        let after = lower(self.index.len() / 8, |i| i64::from(i32_at(self.index, i * 8)) <= target);
        after.checked_sub(1).map_or(0, |i| i32_at(self.index, i * 8 + 4) as usize)
    }

    fn next(&self, at: usize) -> usize {
        at + 12 + i32_at(self.log, at + 8) as usize
    }

    /// The position of the batch that holds an offset.
    pub(crate) fn batch(&self, target: i64) -> usize {
        let mut at = self.position(target);
        while i64_at(self.log, at) + i64::from(i32_at(self.log, at + 23)) < target {
            at = self.next(at);
        }
        at
    }

    /// Length and first byte of a value, added.
    pub(crate) fn value(&self, target: i64) -> u64 {
        let at = self.batch(target);
        let batch = &self.log[at..self.next(at)];
        let delta = target - i64_at(batch, 0);
        let mut place = 61;
        loop {
            let (length, body) = varint(batch, place);
            let (_, after_time) = varint(batch, body + 1);
            let (offset, after_offset) = varint(batch, after_time);
            if offset == delta {
                let (key, after_key) = varint(batch, after_offset);
                let (value, start) = varint(batch, after_key + key.max(0) as usize);
                let value = &batch[start..start + value as usize];
                return value.len() as u64 + u64::from(value[0]);
            }
            place = body + length as usize;
        }
    }

    /// The first offset at or after a time, in offset order.
    pub(crate) fn offset_at(&self, target: i64) -> i64 {
        let after = lower(self.times.len() / 12, |i| i64_at(self.times, i * 12) <= target);
        let hint = after.checked_sub(1).map_or(0, |i| i64::from(i32_at(self.times, i * 12 + 8)));
        let mut at = self.position(hint);
        while i64_at(self.log, at + 35) < target {
            at = self.next(at);
        }
        let batch = &self.log[at..self.next(at)];
        let delta = target - i64_at(batch, 27);
        let mut place = 61;
        loop {
            let (length, body) = varint(batch, place);
            let (time, after_time) = varint(batch, body + 1);
            if time >= delta {
                return i64_at(batch, 0) + varint(batch, after_time).0;
            }
            place = body + length as usize;
        }
    }
}

fn varint(bytes: &[u8], mut at: usize) -> (i64, usize) {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let byte = bytes[at];
        at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return ((number >> 1) as i64 ^ -((number & 1) as i64), at);
        }
        shift += 7;
    }
}

/// The batches of a log, as bytes.
pub(crate) fn batches(log: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut place = 0;
    std::iter::from_fn(move || match BatchHeader::read(log, place) {
        Ok(Step::Batch(header)) => {
            let batch = log.get(place..place + header.size as usize);
            place += header.size as usize;
            batch
        }
        _ => None,
    })
}

/// The CRC of each batch of a log.
pub(crate) fn crc_pass(source: &Path) -> Side {
    over_fresh_map(source, |log| {
        let (mut place, mut count) = (0, 0);
        while let Ok(Step::Batch(header)) = BatchHeader::read(log, place) {
            assert_eq!(crc32c::crc32c(&log[place + 21..place + header.size as usize]), header.crc);
            place += header.size as usize;
            count += 1;
        }
        count
    })
}

/// CRC of each batch, then its values and newlines into a buffer: the bare pass.
pub(crate) fn range(log: &[u8]) -> Side {
    let mut out = vec![0u8; 128 << 10];
    let mut pass = |sums: bool| {
        let (mut values, mut bytes, mut sum, mut filled) = (0u64, 0u64, 0u32, 0);
        let begin = Instant::now();
        for batch in batches(log) {
            let Ok(Step::Batch(header)) = BatchHeader::read(batch, 0) else { break };
            assert_eq!(crc32c::crc32c(&batch[21..]), header.crc);
            for record in Records::in_batch(&header, batch) {
                let record = record.expect("a record");
                let value = record.value.map(|r| &batch[r.start as usize..r.end as usize]).unwrap_or_default();
                if filled + value.len() + 1 > out.len() {
                    if sums {
                        sum = crc32c::crc32c_append(sum, &out[..filled]);
                    }
                    filled = 0;
                }
                out[filled..filled + value.len()].copy_from_slice(value);
                out[filled + value.len()] = b'\n';
                filled += value.len() + 1;
                (values, bytes) = (values + 1, bytes + value.len() as u64);
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        if sums {
            sum = crc32c::crc32c_append(sum, &out[..filled]);
        }
        black_box(&out);
        (seconds, values, bytes, sum)
    };
    let sum = pass(true).3;
    let (seconds, values, bytes, _) = pass(false);
    Side { value: bytes as f64 / 1e6 / seconds, work: Work::new(values, bytes + values, u64::from(sum)) }
}
