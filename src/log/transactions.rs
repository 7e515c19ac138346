//! Which transactions were aborted and which are open: what read_committed hides, and the last stable offset.
//!
//! The log itself tells: data batches of a producer open its transaction, a marker ends it. A walk over the headers therefore needs no
//! `.txnindex`, and what one says is not believed where the log is there. For the last stable offset alone the newest producer
//! snapshot saves the walk over everything before it. This is the state alone; `isolation` walks the log for it.

use crate::error::{Error, Fault, Result};
use crate::io::{Directory, Open, read_up_to};
use crate::log::batch::BatchHeader;
use crate::log::handle::Body;
use crate::log::names;
use crate::log::record::{ControlType, control_type};
use crate::types::{Offset, TimestampMs};
use std::collections::HashMap;
use std::ffi::OsStr;

const SNAPSHOT_HEADER_LEN: usize = 2 + 4 + 4;
const SNAPSHOT_ENTRY_LEN: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;
const _: () = assert!(SNAPSHOT_ENTRY_LEN == 46);
/// A snapshot of more producers than this is not read; the log is walked instead.
const SNAPSHOT_LEN_MOST: u64 = 64 << 20;

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    /// Its producer.
    pub producer_id: i64,
    /// The first offset of its first batch.
    pub first: Offset,
    /// The offset of the marker.
    pub last: Offset,
}

/// A transaction that has no marker yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Its producer.
    pub producer_id: i64,
    /// The first offset of its first batch.
    pub first: Offset,
}

/// What is known up to an offset.
#[derive(Debug, Default)]
pub struct Transactions {
    /// Whether the walk began at the start of the log, so that all aborted transactions are known.
    pub(crate) whole: bool,
    pub(crate) started: bool,
    pub(crate) up_to: Offset,
    pub(crate) open: HashMap<i64, Offset>,
    /// By rising marker offset.
    pub(crate) aborted: Vec<Aborted>,
    /// The longest aborted transaction in offsets: bounds how far behind an offset its marker can lie.
    pub(crate) longest: i64,
}

impl Transactions {
    /// Takes a batch into account, in the order of the log; `body` reads its records, which only a control batch needs.
    pub(crate) fn add(&mut self, header: &BatchHeader, body: impl FnOnce() -> Result<Body>) -> Result<()> {
        if header.magic < 2 || !header.attributes.is_transactional() {
            return Ok(());
        }
        if !header.attributes.is_control() {
            if header.records_count > 0 {
                self.open.entry(header.producer_id).or_insert(header.base_offset);
            }
            return Ok(());
        }
        let body = body()?;
        for record in body.records() {
            let Ok(record) = record else { break };
            let key = record.key.as_ref().map(|r| body.bytes.part(r)).unwrap_or_default();
            match control_type(key) {
                Ok(ControlType::Commit) => {
                    self.open.remove(&header.producer_id);
                }
                Ok(ControlType::Abort) => {
                    if let Some(first) = self.open.remove(&header.producer_id) {
                        self.longest = self.longest.max(record.offset.delta_from(first));
                        self.aborted.push(Aborted { producer_id: header.producer_id, first, last: record.offset });
                    }
                }
                Ok(ControlType::Other(_)) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether a record of a producer belongs to a transaction that was aborted.
    pub(crate) fn is_aborted(&self, producer_id: i64, offset: Offset) -> bool {
        let from = self.aborted.partition_point(|a| a.last < offset);
        let reach = offset.get().saturating_add(self.longest);
        self.aborted[from..].iter().take_while(|a| a.last.get() <= reach).any(|a| a.producer_id == producer_id && a.first <= offset)
    }

    pub(crate) fn last_stable_offset(&self, log_end: Offset) -> Offset {
        self.open.values().min().copied().unwrap_or(log_end).min(log_end)
    }
}

/// A producer as a snapshot has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotEntry {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// The last offset of its last batch of data in this epoch.
    pub(crate) last_data: Option<Offset>,
    /// The largest time of its last batch when that was written.
    pub(crate) timestamp: TimestampMs,
    /// The first offset of its open transaction.
    pub(crate) open_since: Option<Offset>,
}

/// The open transactions of a producer snapshot (format reference 7).
///
/// # Errors
/// What the system says; a version, a length or a CRC that is not right.
pub fn read_snapshot(dir: &dyn Directory, offset: Offset) -> Result<Vec<OpenTransaction>> {
    let open = |entry: SnapshotEntry| Some(OpenTransaction { producer_id: entry.producer_id, first: entry.open_since? });
    Ok(read_producers(dir, offset)?.into_iter().filter_map(open).collect())
}

/// All producers of a snapshot.
///
/// # Errors
/// As [`read_snapshot`].
pub(crate) fn read_producers(dir: &dyn Directory, offset: Offset) -> Result<Vec<SnapshotEntry>> {
    let name = names::of(offset, names::SNAPSHOT);
    let file = dir.open(OsStr::new(&name), Open::Read).map_err(|e| Error::io("open", &name, e))?;
    let len = file.metadata().map_err(|e| Error::io("read", &name, e))?.len.min(SNAPSHOT_LEN_MOST);
    let bytes = read_up_to(&*file, 0, len as usize).map_err(|e| Error::io("read", &name, e))?;
    parse_snapshot(&bytes).map_err(|fault| Error::corrupt(name, fault))
}

fn parse_snapshot(bytes: &[u8]) -> Result<Vec<SnapshotEntry>, Fault> {
    let field = |at: usize, len: usize| bytes.get(at..at + len);
    let i64_at = |at: usize| field(at, 8).and_then(|b| b.try_into().ok()).map_or(-1, i64::from_be_bytes);
    let version = field(0, 2).map(|b| [b[0], b[1]]);
    if version != Some([0, 1]) {
        return Err(Fault::new(0, "snapshot version 1", format!("{version:?}")));
    }
    let stored = field(2, 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
    let crc = crc32c::crc32c(bytes.get(6..).unwrap_or_default());
    if stored != crc {
        return Err(Fault::new(2, format!("CRC-32C {crc:#010x}"), format!("{stored:#010x}")));
    }
    let count = field(6, 4).and_then(|b| b.try_into().ok()).map_or(-1, i32::from_be_bytes);
    let entries = bytes.get(SNAPSHOT_HEADER_LEN..).unwrap_or_default();
    if usize::try_from(count).ok().and_then(|n| n.checked_mul(SNAPSHOT_ENTRY_LEN)) != Some(entries.len()) {
        return Err(Fault::new(6, format!("a count for {} bytes of entries", entries.len()), count.to_string()));
    }
    let entry = |at: usize| SnapshotEntry {
        producer_id: i64_at(at),
        epoch: field(at + 8, 2).and_then(|b| b.try_into().ok()).map_or(-1, i16::from_be_bytes),
        last_data: Offset::new(i64_at(at + 14)),
        timestamp: TimestampMs::new(i64_at(at + 26)),
        open_since: Offset::new(i64_at(at + 38)),
    };
    Ok((0..entries.len() / SNAPSHOT_ENTRY_LEN).map(|i| entry(SNAPSHOT_HEADER_LEN + i * SNAPSHOT_ENTRY_LEN)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_snapshot_is_what_kafka_writes() {
        assert_eq!(parse_snapshot(&[0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]), Ok(Vec::new()));
        assert!(parse_snapshot(&[0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0, 0]).is_err(), "a byte too many");
        assert!(parse_snapshot(&[]).is_err());
    }
}
