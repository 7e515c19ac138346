//! What offsetfs says of a directory, in the words in which Kafka says it.

use crate::build::{headers, hex};
use crate::judge::Seen;
use offsetfs::error::Error;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::{Isolation, LogConfig};
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Found, NewRecord, Record, Source};
use offsetfs::types::{Offset, Patience, TimestampMs, TimestampType};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// Beyond so many offsets single ones are no more looked up: a flipped bit can make a log end anywhere.
const LOOK_UPS_MOST: i64 = 3000;

/// What offsetfs says of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ours {
    /// The log start offset.
    pub(crate) start: i64,
    /// The log end offset.
    pub(crate) end: i64,
    /// The last stable offset.
    pub(crate) last_stable: i64,
    /// The latest leader epoch.
    pub(crate) leader_epoch: Option<i32>,
    /// Its records in order.
    pub(crate) records: Vec<Seen>,
    /// The offsets of those that a reader of committed records sees.
    pub(crate) committed: Vec<i64>,
    /// The offsets that are damaged, of those that were looked up singly.
    pub(crate) damaged: Vec<i64>,
    /// For each time asked: the offset.
    pub(crate) times: Vec<(i64, Option<i64>)>,
}

fn open(directory: &Path, wish: Wish, interval: u32, isolation: Isolation) -> Result<Local, String> {
    let filesystem: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let config = LogConfig {
        isolation,
        index_interval_bytes: u64::from(interval),
        segment_index_bytes: crate::build::INDEX_BYTES as u64,
        ..LogConfig::default()
    };
    Local::open(&filesystem, directory, Options { wish, create: false, config }).map_err(|error| format!("offsetfs cannot open: {error}"))
}

fn seen(record: &Record) -> Seen {
    let timestamp_type = match record.reference.timestamp_type {
        TimestampType::None => "NoTimestampType",
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    };
    let names: Vec<(&[u8], Option<&[u8]>)> = record.headers().collect();
    Seen {
        offset: record.offset().get(),
        timestamp_type: timestamp_type.to_owned(),
        control: false,
        transactional: record.header.attributes.is_transactional(),
        producer_id: record.header.producer_id,
        timestamp: record.timestamp().get(),
        content: [hex(record.key()), hex(record.value()), headers(&names)],
    }
}

/// All records from the log start on; damaged stretches are passed over.
fn records(log: &Local, start: i64, end: i64) -> Result<Vec<Seen>, String> {
    let mut records = Vec::new();
    let mut batches = log.batches(offset(start), offset(end));
    loop {
        match batches.next(Patience::MayBlock) {
            Ok(None) => return Ok(records),
            Ok(Some(body)) => {
                let within = body.records().map_while(Result::ok).map(|record| body.record(record));
                records.extend(within.map(|record| seen(&record)).filter(|record| (start..end).contains(&record.offset)));
            }
            Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(format!("a range: {error}")),
        }
    }
}

fn offset(number: i64) -> Offset {
    Offset::new(number).expect("an offset is not negative")
}

/// Reads a directory without changing it. `Err` says where offsetfs contradicts itself, or fails.
pub(crate) fn read(directory: &Path, interval: u32, times: &[i64]) -> Result<Ours, String> {
    let log = open(directory, Wish::ReadOnly, interval, Isolation::ReadUncommitted)?;
    let said = |error: Error| error.to_string();
    let bounds = log.bounds(Patience::MayBlock).map_err(said)?;
    let (start, end) = (bounds.log_start.get(), bounds.log_end.get());
    let status = log.status(Patience::MayBlock).map_err(said)?;
    let mut ours = Ours { start, end, last_stable: status.last_stable_offset, leader_epoch: status.leader_epoch, ..Ours::default() };
    ours.records = records(&log, start, end)?;
    let committed = open(directory, Wish::ReadOnly, interval, Isolation::ReadCommitted)?;
    let until = committed.bounds(Patience::MayBlock).map_err(said)?.log_end.get();
    ours.committed = records(&committed, start.min(until), until)?.iter().map(|record| record.offset).collect();
    for time in times {
        let found =
            log.offset_at(TimestampMs::new(*time), Patience::MayBlock).map_err(|error| format!("the look-up of {time}: {error}"))?;
        ours.times.push((*time, found.map(Offset::get)));
    }
    let mut listed = Vec::new();
    let mut sink = |found: Offset| {
        listed.push(found.get());
        true
    };
    if end - start <= LOOK_UPS_MOST {
        log.offsets(offset(start), Patience::MayBlock, &mut sink).map_err(|error| format!("the listing: {error}"))?;
        let mut at = 0;
        for number in start.max(1) - 1..end + 2 {
            let in_range = ours.records.get(at).filter(|record| record.offset == number);
            let found = log.record(offset(number), Patience::MayBlock);
            match (found, in_range) {
                (Ok(Found::Record(record)), Some(expected)) if seen(&record) == *expected => at += 1,
                (Ok(Found::Absent(_)), None) => {}
                (Err(Error::Corrupt(_)), None) => ours.damaged.push(number),
                (found, expected) => return Err(format!("the look-up of {number} gives {found:?}, a range {expected:?}")),
            }
        }
        if let Some(missing) = ours.records.iter().find(|record| !listed.contains(&record.offset)) {
            return Err(format!("{} is not listed", missing.offset));
        }
    }
    let last = log.nth_last(1, Patience::MayBlock).map_err(|error| format!("the last record: {error}"))?.map(Offset::get);
    if ours.damaged.is_empty() && last != ours.records.last().map(|record| record.offset) {
        return Err(format!("the last record is {last:?} when asked for singly"));
    }
    Ok(ours)
}

/// Appends a record, whatever has to be done for that first, and closes the log. Gives its offset.
pub(crate) fn append(directory: &Path, interval: u32, timestamp: i64) -> Result<i64, String> {
    let log = open(directory, Wish::Writable, interval, Isolation::ReadUncommitted)?;
    let mut record = [NewRecord { timestamp: TimestampMs::new(timestamp), key: None, value: Some(b"appended"), headers: &[] }].into_iter();
    let (sender, receiver) = sync_channel(1);
    log.append(&mut record, false, Box::new(move |result| sender.send(result).expect("somebody waits")))
        .map_err(|error| error.to_string())?;
    let appended = receiver.recv().expect("an answer").map_err(|error| format!("the append: {error}"))?;
    log.close().map_err(|error| format!("the close: {error}"))?;
    Ok(appended.first.get())
}
