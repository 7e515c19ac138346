//! The records of a batch: varints, a walk over the records as places in the batch's bytes, headers, control records.
//!
//! No record is copied: a [`RecordRef`] names ranges of the bytes that were walked. Checksums of whole batches are `batch`'s matter,
//! writing is `encode`'s. Facts: kafka-format, sections 1 and 2.

use crate::error::Fault;
use crate::io::{CACHE_LINE, prefetch};
use crate::log::batch::{BatchHeader, HEADER_SIZE};
use crate::log::compression::{self, DecodeError};
use crate::log::legacy::{self, InnerEntry};
use crate::types::{Offset, TimestampMs, TimestampType};
use std::ops::Range;

mod varint;

pub use varint::{Packed, read_varint, read_varlong, varint_len, write_varint, write_zigzagged, zigzag, zigzagged_len};

// A record of magic 2. All lengths are varints; a negative length means null.
//
//   length | attributes 1 | timestamp delta (varlong) | offset delta (varint) | key length, key | value length, value |
//   headers count (varint) | per header: name length, name | value length, value

/// One record, as places in the bytes that were walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRef {
    /// The record's offset.
    pub offset: Offset,
    /// The record's time; of a batch with the log's append time, that one.
    pub timestamp: TimestampMs,
    /// Who gave the record its time.
    pub timestamp_type: TimestampType,
    /// The producer's sequence number; -1 is none.
    pub sequence: i32,
    /// The place of the key; `None` is null.
    pub key: Option<Range<u32>>,
    /// The place of the value; `None` is null, a tombstone.
    pub value: Option<Range<u32>>,
    /// The place of the headers, behind their count.
    pub headers: Range<u32>,
    /// The number of headers.
    pub headers_count: u32,
}

/// The bytes of a batch that are compressed: of magic 2 all behind the header, of a wrapper its value.
///
/// # Errors
/// A wrapper whose fields do not fit it, or whose value is null. Positions count from the start of `batch`.
pub fn compressed_range(header: &BatchHeader, batch: &[u8]) -> Result<Range<usize>, Fault> {
    if header.magic == 2 {
        return Ok(HEADER_SIZE.min(batch.len())..batch.len());
    }
    match legacy::Entry::read(batch)?.key_and_value(batch)? {
        (_, Some(value)) => Ok(value.start as usize..value.end as usize),
        (_, None) => Err(Fault::new(0, "a wrapper with a value", "a null value")),
    }
}

/// Decodes the records of a compressed batch, to at most `limit` bytes: the body for [`Records::in_decoded`].
///
/// # Errors
/// Those of [`compressed_range`] and [`compression::decompress`], and a codec that does not exist. Positions count from the start of
/// `batch`.
pub fn decode(header: &BatchHeader, batch: &[u8], limit: u64) -> Result<Vec<u8>, DecodeError> {
    let Some(codec) = header.attributes.codec() else {
        return Err(Fault::new(0, "a codec of 0 to 4", format!("attributes {:#06x}", header.attributes.raw())).into());
    };
    let range = compressed_range(header, batch)?;
    let begin = range.start as u64;
    compression::decompress(codec, header.magic, batch.get(range).unwrap_or_default(), limit).map_err(|error| match error {
        DecodeError::Damaged(fault) => DecodeError::Damaged(fault.moved(begin)),
        too_large => too_large,
    })
}

/// The records of one batch in offset order. After an error there is nothing more; the records before it were sound.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    header: BatchHeader,
    body: &'a [u8],
    at: usize,
    /// The least offset that the next record may have.
    least: i64,
    rest: Rest,
}

/// What is still to come.
#[derive(Clone, Debug)]
enum Rest {
    /// So many records of magic 2.
    Records(i32),
    /// One plain entry of magic 0 or 1.
    Entry,
    /// The entries of a wrapper.
    Wrapper,
    /// The entries of a wrapper, whose stored offsets count from this base.
    Inner(i64),
    /// A fault that was found before the first record.
    Fault(Fault),
    /// Nothing.
    Nothing,
}

impl<'a> Records<'a> {
    /// The records of an uncompressed batch; `batch` is the whole batch, and the body that places count in.
    #[inline]
    pub fn in_batch(header: &BatchHeader, batch: &'a [u8]) -> Records<'a> {
        let rest = match header {
            _ if header.is_compressed() => Rest::Fault(Fault::new(0, "an uncompressed batch", "a compressed one")),
            _ if header.magic == 2 => Rest::Records(header.records_count),
            _ => Rest::Entry,
        };
        Records::new(header, batch, HEADER_SIZE, rest)
    }

    /// The records of a compressed batch or of a wrapper; `body` is what its bytes decode to, and places count in it.
    #[inline]
    pub fn in_decoded(header: &BatchHeader, body: &'a [u8]) -> Records<'a> {
        let rest = if header.magic == 2 { Rest::Records(header.records_count) } else { Rest::Wrapper };
        Records::new(header, body, 0, rest)
    }

    #[inline]
    fn new(header: &BatchHeader, body: &'a [u8], at: usize, rest: Rest) -> Records<'a> {
        let rest = if u32::try_from(body.len()).is_ok() { rest } else { Rest::Fault(too_long(body.len())) };
        // The first offset of a wrapper is known only from its entries.
        let least = if header.is_wrapper() { 0 } else { header.base_offset.get() };
        Records { header: *header, body, at, least, rest }
    }

    /// Passes over the records before the first one at or after a time, of which nothing but their times is looked at.
    #[inline]
    pub fn not_before(mut self, time: TimestampMs) -> Records<'a> {
        let Rest::Records(mut left) = self.rest else { return self };
        if self.header.attributes.timestamp_type() == TimestampType::LogAppendTime {
            return self;
        }
        let mut ahead = Ahead::default();
        // What cannot be read is left to whoever asks for the next record.
        while left > 0
            && let Ok((begin, end)) = frame(self.body, self.at)
            && let Some((delta, _)) = read_varlong(self.body.get(..end).unwrap_or_default(), begin + 1)
            && self.header.base_timestamp.get().wrapping_add(delta) < time.get()
        {
            ahead.passed(self.body, self.at, end);
            (self.at, left) = (end, left - 1);
        }
        self.rest = Rest::Records(left);
        self
    }

    #[inline]
    fn record(&mut self, left: i32) -> Option<Result<RecordRef, Fault>> {
        if left <= 0 {
            self.rest = Rest::Nothing;
            return end_of_records(left, self.at, self.body.len()).err().map(Err);
        }
        match read_record(&self.header, self.body, self.at, self.least) {
            Ok((record, end)) => {
                self.at = end;
                self.least = record.offset.get().saturating_add(1);
                self.rest = Rest::Records(left - 1);
                Some(Ok(record))
            }
            Err(fault) => {
                self.rest = Rest::Nothing;
                Some(Err(fault))
            }
        }
    }

    /// The one record of a plain entry.
    fn entry(&self) -> Result<RecordRef, Fault> {
        let entry = legacy::Entry::read(self.body)?;
        let (key, value) = entry.key_and_value(self.body)?;
        Ok(self.of_legacy(self.header.base_offset, &entry, key, value, self.body.len()))
    }

    /// The next record of a wrapper.
    fn inner(&mut self, base: i64) -> Result<RecordRef, Fault> {
        let at = self.at;
        let InnerEntry { entry, key, value, end } = InnerEntry::read(self.body, at, self.header.magic)?;
        // A wrapper of magic 1 with offset 0 was never assigned one, so it bounds nothing.
        let bound = if self.header.magic == 1 && self.header.last_offset == Offset::ZERO { Offset::MAX } else { self.header.last_offset };
        let offset = base.checked_add(entry.offset).filter(|offset| (self.least..=bound.get()).contains(offset)).and_then(Offset::new);
        let Some(offset) = offset else {
            return Err(Fault::new(
                at as u64,
                format!("an offset of {} to {bound}", self.least),
                format!("{} behind {base}", entry.offset),
            ));
        };
        self.at = end;
        self.least = offset.get().saturating_add(1);
        Ok(self.of_legacy(offset, &entry, key, value, end))
    }

    fn of_legacy(
        &self,
        offset: Offset,
        entry: &legacy::Entry,
        key: Option<Range<u32>>,
        value: Option<Range<u32>>,
        end: usize,
    ) -> RecordRef {
        let (timestamp, timestamp_type) = match self.header.timestamp_type() {
            TimestampType::LogAppendTime => (self.header.max_timestamp, TimestampType::LogAppendTime),
            _ => (entry.timestamp, entry.timestamp_type()),
        };
        let end = end as u32;
        RecordRef { offset, timestamp, timestamp_type, sequence: -1, key, value, headers: end..end, headers_count: 0 }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<RecordRef, Fault>;

    #[inline]
    fn next(&mut self) -> Option<Result<RecordRef, Fault>> {
        if let Rest::Records(left) = self.rest {
            return self.record(left);
        }
        let next = match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Entry => return Some(self.entry()),
            Rest::Wrapper => match legacy::base_of_inner(self.body, self.header.magic, self.header.last_offset.get()) {
                Ok(base) => (base, self.inner(base)),
                Err(fault) => return Some(Err(fault)),
            },
            Rest::Inner(base) if self.at < self.body.len() => (base, self.inner(base)),
            Rest::Fault(fault) => return Some(Err(fault)),
            Rest::Inner(_) | Rest::Records(_) | Rest::Nothing => return None,
        };
        let (base, record) = next;
        if record.is_ok() {
            self.rest = Rest::Inner(base);
        }
        Some(record)
    }
}

impl std::iter::FusedIterator for Records<'_> {}

#[cold]
fn too_long(length: usize) -> Fault {
    Fault::new(0, "a batch below 4 GiB", format!("{length} bytes"))
}

/// What must hold where `left` records of the declared count are still to come and none is read any more.
fn end_of_records(left: i32, at: usize, end: usize) -> Result<(), Fault> {
    if left < 0 {
        return Err(Fault::new(0, "a records count of 0 or more", left.to_string()));
    }
    if at < end {
        return Err(Fault::new(at as u64, "the end of the batch behind its last record", format!("{} more bytes", end - at)));
    }
    Ok(())
}

/// Reads the record at `at`, with an offset of at least `least`; the place behind it. `body` is shorter than 4 GiB.
#[inline]
fn read_record(header: &BatchHeader, body: &[u8], at: usize, least: i64) -> Result<(RecordRef, usize), Fault> {
    let (begin, end) = frame(body, at)?;
    // Nothing of the record is read beyond its length.
    let bytes = body.get(..end).unwrap_or_default();
    let attributes_end = begin + 1;
    let (timestamp_delta, next) = read_varlong(bytes, attributes_end).ok_or_else(|| broken(at, "a timestamp delta"))?;
    let (offset_delta, next) = read_varint(bytes, next).ok_or_else(|| broken(at, "an offset delta"))?;
    let offset = offset_of(header, offset_delta, least).ok_or_else(|| wrong_offset(header, at, offset_delta, least))?;
    let (key, next) = sized(bytes, next).ok_or_else(|| broken(at, "a key that fits the record"))?;
    let (value, next) = sized(bytes, next).ok_or_else(|| broken(at, "a value that fits the record"))?;
    let (headers_count, headers) = read_varint(bytes, next).ok_or_else(|| broken(at, "a headers count"))?;
    if headers_count != 0 || headers != end {
        check_headers(bytes, at, headers, headers_count)?;
    }
    let (timestamp, timestamp_type) = match header.attributes.timestamp_type() {
        TimestampType::LogAppendTime => (header.max_timestamp, TimestampType::LogAppendTime),
        // Wraps where Kafka's does, so that no stored delta is refused.
        _ => (TimestampMs::new(header.base_timestamp.get().wrapping_add(timestamp_delta)), TimestampType::CreateTime),
    };
    let sequence = if header.base_sequence < 0 { -1 } else { header.base_sequence.wrapping_add(offset_delta) & i32::MAX };
    let record = RecordRef {
        offset,
        timestamp,
        timestamp_type,
        sequence,
        key,
        value,
        headers: headers as u32..end as u32,
        headers_count: headers_count as u32,
    };
    Ok((record, end))
}

/// The places behind the length of the record at `at`, and behind the record.
#[inline]
fn frame(body: &[u8], at: usize) -> Result<(usize, usize), Fault> {
    let (length, begin) = read_varint(body, at).ok_or_else(|| broken(at, "a record's length"))?;
    match usize::try_from(length) {
        Ok(size) if size <= body.len() - begin => Ok((begin, begin + size)),
        _ => Err(wrong_length(at, length, body.len() - begin)),
    }
}

#[inline]
fn offset_of(header: &BatchHeader, offset_delta: i32, least: i64) -> Option<Offset> {
    header.base_offset.checked_add(i64::from(offset_delta)).filter(|offset| offset.get() >= least && *offset <= header.last_offset)
}

/// A varint length and as many bytes as it says; the place behind them.
#[inline]
fn sized(bytes: &[u8], at: usize) -> Option<(Option<Range<u32>>, usize)> {
    let (length, begin) = read_varint(bytes, at)?;
    let Ok(length) = usize::try_from(length) else { return Some((None, begin)) };
    if length > bytes.len() - begin {
        return None;
    }
    let end = begin + length;
    Some((Some(begin as u32..end as u32), end))
}

/// Walks the headers from `next` to the end of the record that begins at `at`.
#[inline(never)]
fn check_headers(bytes: &[u8], at: usize, mut next: usize, count: i32) -> Result<(), Fault> {
    let left = bytes.len() - next;
    let Some(count) = usize::try_from(count).ok().filter(|count| *count <= left) else {
        return Err(Fault::new(at as u64, format!("a headers count of 0 to {left}"), count.to_string()));
    };
    for _ in 0..count {
        let (name, behind) = sized(bytes, next).ok_or_else(|| broken(at, "a header's name that fits the record"))?;
        if name.is_none() {
            return Err(Fault::new(at as u64, "a header's name", "null"));
        }
        (_, next) = sized(bytes, behind).ok_or_else(|| broken(at, "a header's value that fits the record"))?;
    }
    if next != bytes.len() {
        let found = format!("{} more bytes", bytes.len() - next);
        return Err(Fault::new(at as u64, "the end of the record behind its last header", found));
    }
    Ok(())
}

#[cold]
fn broken(at: usize, expected: &'static str) -> Fault {
    Fault::new(at as u64, expected, "a varint without an end, or a length beyond the record")
}

#[cold]
fn wrong_length(at: usize, length: i32, left: usize) -> Fault {
    Fault::new(at as u64, format!("a record's length of 0 to {left}"), length.to_string())
}

#[cold]
fn wrong_offset(header: &BatchHeader, at: usize, offset_delta: i32, least: i64) -> Fault {
    let expected = format!("an offset of {least} to {}", header.last_offset);
    Fault::new(at as u64, expected, format!("base offset {} and offset delta {offset_delta}", header.base_offset))
}

/// Finds the record at exactly `offset` in an uncompressed batch; `batch` is the whole batch. `None` where the batch has none.
///
/// # Errors
/// A fault in the way to the record or in the record; what lies behind it is not looked at.
#[inline]
pub fn find_in_batch(header: &BatchHeader, batch: &[u8], offset: Offset) -> Result<Option<RecordRef>, Fault> {
    if header.magic == 2 && !header.is_compressed() {
        return find(header, batch, HEADER_SIZE, offset);
    }
    find_by_walk(Records::in_batch(header, batch), offset)
}

/// Finds the record at exactly `offset` in what a compressed batch or a wrapper decodes to. `None` where the batch has none.
///
/// # Errors
/// A fault in the way to the record or in the record; what lies behind it is not looked at.
#[inline]
pub fn find_in_decoded(header: &BatchHeader, body: &[u8], offset: Offset) -> Result<Option<RecordRef>, Fault> {
    if header.magic == 2 {
        return find(header, body, 0, offset);
    }
    find_by_walk(Records::in_decoded(header, body), offset)
}

fn find_by_walk(records: Records<'_>, offset: Offset) -> Result<Option<RecordRef>, Fault> {
    for record in records {
        let record = record?;
        if record.offset >= offset {
            return Ok((record.offset == offset).then_some(record));
        }
    }
    Ok(None)
}

/// Goes from record to record by their lengths, reading no more than the offset deltas.
fn find(header: &BatchHeader, body: &[u8], mut at: usize, offset: Offset) -> Result<Option<RecordRef>, Fault> {
    if u32::try_from(body.len()).is_err() {
        return Err(too_long(body.len()));
    }
    if offset < header.base_offset || offset > header.last_offset {
        return Ok(None);
    }
    if header.records_count < 0 {
        return end_of_records(header.records_count, at, at).map(|()| None);
    }
    let mut ahead = Ahead::default();
    for _ in 0..header.records_count {
        let (begin, end) = frame(body, at)?;
        let bytes = body.get(..end).unwrap_or_default();
        let (_, next) = read_varlong(bytes, begin + 1).ok_or_else(|| broken(at, "a timestamp delta"))?;
        let (offset_delta, _) = read_varint(bytes, next).ok_or_else(|| broken(at, "an offset delta"))?;
        let here = header.base_offset.get().saturating_add(i64::from(offset_delta));
        if here >= offset.get() {
            return if here > offset.get() { Ok(None) } else { read_record(header, body, at, here).map(|(record, _)| Some(record)) };
        }
        ahead.passed(body, at, end);
        at = end;
    }
    Ok(None)
}

/// Has records fetched ahead of a search that goes from one to the next: their lengths form a chain, in which each has to arrive before it tells where
/// the next one is. Where they will be is guessed: they are mostly about as long as the one at hand.
#[derive(Default)]
struct Ahead {
    /// Up to here the body was asked for.
    fetched: usize,
}

impl Ahead {
    /// So many of them. Measured with records of 100 bytes and 1 KiB, more bring nothing.
    const COUNT: usize = 12;

    /// The search goes on behind the record from `at` to `end`.
    #[inline(always)]
    fn passed(&mut self, body: &[u8], at: usize, end: usize) {
        let size = (end - at).max(CACHE_LINE);
        self.fetched = self.fetched.max(end);
        while self.fetched < body.len().min(end + Ahead::COUNT * size) {
            self.fetched += size;
            prefetch(body, self.fetched);
        }
    }
}

/// The headers of a record, in order: name and value, `None` is null. Names may repeat.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    left: u32,
}

impl<'a> Headers<'a> {
    /// The headers of `record`, which was read from `body`. (Of another body's record: whatever can be read.)
    pub fn new(body: &'a [u8], record: &RecordRef) -> Headers<'a> {
        let bytes = body.get(record.headers.start as usize..record.headers.end as usize).unwrap_or_default();
        Headers { bytes, left: record.headers_count }
    }

    fn part(&mut self) -> Option<Option<&'a [u8]>> {
        let (range, next) = sized(self.bytes, 0)?;
        let part = range.map(|range| self.bytes.get(range.start as usize..range.end as usize).unwrap_or_default());
        self.bytes = self.bytes.get(next..).unwrap_or_default();
        Some(part)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = self.part()??;
        Some((name, self.part()?))
    }
}

/// What a control record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlType {
    /// The producer's open transaction was aborted.
    Abort,
    /// The producer's open transaction was committed.
    Commit,
    /// Another type, by its number.
    Other(i16),
}

/// Reads the type of a control record from its key.
///
/// # Errors
/// Fewer than four bytes, or a negative version. The position counts from the start of `key`.
pub fn control_type(key: &[u8]) -> Result<ControlType, Fault> {
    let Some([version_high, version_low, type_high, type_low]) = key.first_chunk::<4>() else {
        return Err(Fault::new(0, "a control record's key of at least 4 bytes", format!("{} bytes", key.len())));
    };
    let version = i16::from_be_bytes([*version_high, *version_low]);
    if version < 0 {
        return Err(Fault::new(0, "a control record's version of 0 or more", version.to_string()));
    }
    Ok(match i16::from_be_bytes([*type_high, *type_low]) {
        0 => ControlType::Abort,
        1 => ControlType::Commit,
        other => ControlType::Other(other),
    })
}

#[cfg(test)]
mod tests;
