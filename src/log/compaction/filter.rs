//! What becomes of one batch: it goes, stays as it is, is written anew with the records that stay, or stays as a header without records.
//!
//! The rules are Kafka's (format reference 11). Offsets never change, nor does what a producer's state hangs on.

use super::history::{History, Passing, control_of};
use super::map::OffsetMap;
use crate::error::{Error, Fault, Result};
use crate::log::batch::{
    ATTRIBUTES, Attributes, BASE_OFFSET, BASE_TIMESTAMP, BATCH_LENGTH, BatchHeader, CRC, HEADER_SIZE, LAST_OFFSET_DELTA, MAGIC,
    MAX_TIMESTAMP, PARTITION_LEADER_EPOCH, PRODUCER_ID, RECORDS_COUNT,
};
use crate::log::compaction::history::Aborted;
use crate::log::compression::{self, Codec, DecodeError};
use crate::log::legacy::PREFIX_SIZE;
use crate::log::record::{RecordRef, Records, decode, write_varint};
use crate::types::{Offset, Position, TimestampMs, TimestampType};
use std::fmt;

/// What is known before the first batch is judged.
#[derive(Debug)]
pub(super) struct Rules<'a> {
    pub(super) map: &'a OffsetMap,
    /// The last offset that the map has seen; records behind it stay.
    pub(super) map_end: Option<Offset>,
    /// The offset behind the last that this compaction may touch: a batch that ends there stays, if only as a header.
    pub(super) upper: Offset,
    pub(super) history: &'a History,
    pub(super) now: TimestampMs,
    pub(super) delete_retention_ms: u64,
    pub(super) producer_id_expiration_ms: u64,
    pub(super) decoded_bytes_most: u64,
}

/// What becomes of a batch.
#[derive(Debug)]
pub(super) enum Fate {
    Goes,
    Stays,
    /// These bytes take its place.
    Becomes(Vec<u8>),
}

/// What a batch came to, in numbers, and the aborted transaction that it still ends.
#[derive(Debug)]
pub(super) struct Judged<'h> {
    pub(super) fate: Fate,
    pub(super) kept: u64,
    pub(super) gone: Gone,
    pub(super) ends: Option<&'h Aborted>,
}

/// How many records go, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// A later record has the same key.
    pub outdated: u64,
    /// They have no key.
    pub keyless: u64,
    /// Tombstones that have stood for `delete.retention.ms`.
    pub tombstones: u64,
    /// Records of transactions that were aborted.
    pub aborted: u64,
    /// Markers of transactions of which nothing is left.
    pub markers: u64,
}

impl Gone {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.outdated + self.keyless + self.tombstones + self.aborted + self.markers
    }

    pub(super) fn add(&mut self, other: &Gone) {
        self.outdated += other.outdated;
        self.keyless += other.keyless;
        self.tombstones += other.tombstones;
        self.aborted += other.aborted;
        self.markers += other.markers;
    }
}

/// As the end of a sentence about records that go.
impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            (self.outdated, "outdated by a later one of the same key"),
            (self.keyless, "without a key"),
            (self.tombstones, "tombstones that have stood for delete.retention.ms"),
            (self.aborted, "of aborted transactions"),
            (self.markers, "markers of transactions of which nothing is left"),
        ];
        let mut said = kinds.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}"));
        let first = said.next().unwrap_or_else(|| "none".to_owned());
        f.write_str(&said.fold(first, |all, next| all + ", " + &next))
    }
}

impl<'a> Rules<'a> {
    /// Judges a batch. `passing` is the pass that it is met in; `keeps_old_tombstones` says whether tombstones of magic 0 and 1 stay.
    ///
    /// # Errors
    /// Records that cannot be read; [`Error::DecodedTooLarge`]; [`Error::NotCompacted`].
    pub(super) fn judge(
        &self,
        (header, batch, position): (&BatchHeader, &[u8], u64),
        file: &str,
        passing: &mut Passing<'a>,
        keeps_old_tombstones: bool,
    ) -> Result<Judged<'a>> {
        let control = header.magic >= 2 && header.attributes.is_control();
        let (can_go, ends) =
            if control { passing.control(header, control_of(header, batch, file, position)?) } else { (passing.data(header), None) };
        // A marker is kept for a while behind the records that it ended.
        let all_go = can_go && (!control || header.delete_horizon().is_some_and(|horizon| horizon <= self.now));
        let forgotten_before = self.now.earlier_by(self.producer_id_expiration_ms);
        let stays_empty = header.next_offset() == self.upper || self.history.needs(header, forgotten_before);
        let judged = |fate, kept, gone| Ok(Judged { fate, kept, gone, ends });
        let mut gone = Gone::default();
        if all_go {
            let count = u64::try_from(header.records_count).unwrap_or(0);
            *if control { &mut gone.markers } else { &mut gone.aborted } = count;
            return judged(if stays_empty { Fate::Becomes(emptied(header, batch)) } else { Fate::Goes }, 0, gone);
        }
        let decoded;
        let (body, records) = if header.is_compressed() && (header.magic < 2 || header.records_count != 0) {
            decoded = decode(header, batch, self.decoded_bytes_most).map_err(|error| of_decode(error, file, position))?;
            (decoded.as_slice(), Records::in_decoded(header, &decoded))
        } else if header.is_compressed() {
            (batch, Records::in_decoded(header, &[]))
        } else {
            (batch, Records::in_batch(header, batch))
        };
        let (mut kept, mut tombstones) = (Vec::new(), false);
        for record in records {
            let record = record.map_err(|fault| Error::corrupt(file, fault.at(Position::new(position))))?;
            if control || self.keeps(header, body, &record, keeps_old_tombstones, &mut gone) {
                tombstones |= record.value.is_none();
                kept.push(record);
            }
        }
        let count = kept.len() as u64;
        if count > 0 {
            let sets_horizon = (tombstones || (can_go && control)) && header.delete_horizon().is_none();
            if gone.total() == 0 && header.magic == 2 && !sets_horizon {
                return judged(Fate::Stays, count, gone);
            }
            let horizon = if sets_horizon { Some(self.now.later_by(self.delete_retention_ms)) } else { header.delete_horizon() };
            let anew = write_anew(header, batch, body, &kept, horizon);
            let anew = anew.map_err(|e| Error::io("compress a batch of", file, e))?;
            return judged(Fate::Becomes(anew), count, gone);
        }
        if !stays_empty {
            return judged(Fate::Goes, 0, gone);
        }
        if header.magic < 2 {
            let reason = format!(
                "the entry of magic {} at position {position} of {file} would stay as a header without records, which only magic 2 has; append a record and roll, so that it is not the last",
                header.magic
            );
            return Err(Error::NotCompacted { reason });
        }
        judged(Fate::Becomes(emptied(header, batch)), 0, gone)
    }

    /// Whether a record of data stays; else it is counted among those that go.
    fn keeps(&self, header: &BatchHeader, body: &[u8], record: &RecordRef, keeps_old_tombstones: bool, gone: &mut Gone) -> bool {
        if self.map_end.is_none_or(|end| record.offset > end) {
            return true;
        }
        let keeps_tombstones =
            || if header.magic < 2 { keeps_old_tombstones } else { header.delete_horizon().is_none_or(|horizon| self.now < horizon) };
        let why = match record.key.as_ref().and_then(|key| body.get(key.start as usize..key.end as usize)) {
            None => &mut gone.keyless,
            Some(key) if self.map.get(key).is_some_and(|latest| record.offset.get() < latest) => &mut gone.outdated,
            Some(_) if record.value.is_none() && !keeps_tombstones() => &mut gone.tombstones,
            Some(_) => return true,
        };
        *why += 1;
        false
    }
}

/// Why a batch at a position of a file could not be decoded.
pub(super) fn of_decode(error: DecodeError, file: &str, position: u64) -> Error {
    match error {
        DecodeError::Damaged(fault) => Error::corrupt(file, fault.moved(position)),
        DecodeError::TooLarge { limit } => Error::DecodedTooLarge { file: file.to_owned(), position: Position::new(position), limit },
    }
}

/// The fields of a header that are not the original's.
struct Fields {
    base_offset: Offset,
    last_offset: Offset,
    attributes: Attributes,
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
    records_count: u32,
}

/// Completes a batch of magic 2 whose records stand behind the room for its header. Leader epoch and producer are the original's, if it has any.
fn complete(mut out: Vec<u8>, original: &BatchHeader, bytes: &[u8], fields: &Fields) -> Vec<u8> {
    let length = (out.len() - PREFIX_SIZE) as u32;
    let delta = fields.last_offset.delta_from(fields.base_offset) as i32;
    let mut set = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    set(BASE_OFFSET, &fields.base_offset.get().to_be_bytes());
    set(BATCH_LENGTH, &length.to_be_bytes());
    set(MAGIC, &[2]);
    set(ATTRIBUTES, &fields.attributes.raw().to_be_bytes());
    set(LAST_OFFSET_DELTA, &delta.to_be_bytes());
    set(BASE_TIMESTAMP, &fields.base_timestamp.get().to_be_bytes());
    set(MAX_TIMESTAMP, &fields.max_timestamp.get().to_be_bytes());
    set(RECORDS_COUNT, &fields.records_count.to_be_bytes());
    match bytes.get(..HEADER_SIZE).filter(|_| original.magic >= 2) {
        Some(header) => {
            set(PARTITION_LEADER_EPOCH, &header[PARTITION_LEADER_EPOCH..MAGIC]);
            set(PRODUCER_ID, &header[PRODUCER_ID..RECORDS_COUNT]);
        }
        None => {
            set(PARTITION_LEADER_EPOCH, &[0xff; MAGIC - PARTITION_LEADER_EPOCH]);
            set(PRODUCER_ID, &[0xff; RECORDS_COUNT - PRODUCER_ID]);
        }
    }
    let crc = crc32c::crc32c(&out[ATTRIBUTES..]);
    out[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    out
}

/// The header of a batch without its records.
fn emptied(header: &BatchHeader, batch: &[u8]) -> Vec<u8> {
    let fields = Fields {
        base_offset: header.base_offset,
        last_offset: header.last_offset,
        attributes: header.rewritten_attributes(Codec::None, false),
        base_timestamp: TimestampMs::NONE,
        max_timestamp: header.max_timestamp,
        records_count: 0,
    };
    complete(vec![0; HEADER_SIZE], header, batch, &fields)
}

/// A batch of magic 2 with the records that stay, of which there is one at least.
fn write_anew(
    header: &BatchHeader,
    batch: &[u8],
    body: &[u8],
    kept: &[RecordRef],
    horizon: Option<TimestampMs>,
) -> std::io::Result<Vec<u8>> {
    let too_large = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "a record batch is at most 2147483647 bytes long");
    let (Some(first), Some(last)) = (kept.first(), kept.last()) else { return Ok(Vec::new()) };
    let v2 = header.magic >= 2;
    let (base_offset, last_offset) = if v2 { (header.base_offset, header.last_offset) } else { (first.offset, last.offset) };
    let base_timestamp = horizon.unwrap_or(first.timestamp);
    let of_records = kept.iter().map(|r| r.timestamp).fold(TimestampMs::NONE, TimestampMs::max);
    let append_time = header.timestamp_type() == TimestampType::LogAppendTime;
    let codec = header.attributes.codec().unwrap_or_default();
    let mut out = vec![0; HEADER_SIZE];
    let mut plain = Vec::new();
    let records = if codec == Codec::None { &mut out } else { &mut plain };
    let mut record = Vec::new();
    for kept in kept {
        record.clear();
        record.push(0);
        write_varint(&mut record, kept.timestamp.get().wrapping_sub(base_timestamp.get()));
        write_varint(&mut record, kept.offset.delta_from(base_offset));
        for part in [&kept.key, &kept.value] {
            let bytes = part.as_ref().map(|part| body.get(part.start as usize..part.end as usize).unwrap_or_default());
            write_varint(&mut record, bytes.map_or(-1, |bytes| bytes.len() as i64));
            record.extend_from_slice(bytes.unwrap_or_default());
        }
        write_varint(&mut record, i64::from(kept.headers_count));
        if kept.headers_count > 0 {
            record.extend_from_slice(body.get(kept.headers.start as usize..kept.headers.end as usize).unwrap_or_default());
        }
        write_varint(records, record.len() as i64);
        records.extend_from_slice(&record);
    }
    if codec != Codec::None {
        compression::compress(codec, None, &plain, &mut out)?;
    }
    if i32::try_from(out.len()).is_err() {
        return Err(too_large());
    }
    let fields = Fields {
        base_offset,
        last_offset,
        attributes: header.rewritten_attributes(codec, horizon.is_some()),
        base_timestamp,
        max_timestamp: if append_time { header.max_timestamp } else { of_records },
        records_count: kept.len() as u32,
    };
    Ok(complete(out, header, batch, &fields))
}

/// The header of a batch that was just written.
///
/// # Errors
/// Never, unless this file is wrong.
pub(super) fn header_of(batch: &[u8]) -> Result<BatchHeader, Fault> {
    match BatchHeader::read(batch, 0)? {
        crate::log::batch::Step::Batch(header) => Ok(header),
        crate::log::batch::Step::End { left } => Err(Fault::new(0, "a whole batch", format!("{left} bytes"))),
    }
}
