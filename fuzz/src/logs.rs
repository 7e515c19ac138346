//! Small logs that the engine wrote onto the simulated disk, and what every reader of them must answer, found by going over all records.

use offsetfs::io::sim::SimDisk;
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::NewRecord;
use offsetfs::log::names;
use offsetfs::log::partition::Partition;
use offsetfs::log::prepare::{Prepared, prepare};
use offsetfs::log::seek::{Absent, Found};
use offsetfs::log::segment::OpenSegments;
use offsetfs::log::walk::{Item, Look};
use offsetfs::log::writer::Writer;
use offsetfs::types::{Offset, Patience, TimestampMs, TopicPartition};
use std::path::Path;
use std::sync::Arc;

/// Where a log lies on its disk.
pub(crate) const DIRECTORY: &str = "/t-0";

/// A record as every reader must show it: its time and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) timestamp: i64,
    pub(crate) value: Vec<u8>,
}

/// A batch as its header has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The base offset of its segment.
    pub(crate) segment: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) largest: i64,
}

/// A log and its files.
pub(crate) struct Log {
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// The records, by offset from 0 on.
    pub(crate) records: Vec<Known>,
    pub(crate) batches: Vec<Span>,
    /// The base offsets of the segments.
    pub(crate) bases: Vec<i64>,
}

pub(crate) fn config() -> LogConfig {
    LogConfig { segment_bytes: 900, index_interval_bytes: 100, segment_index_bytes: 4096, batch_size: 200, ..LogConfig::default() }
}

pub(crate) fn offset(number: i64) -> Offset {
    Offset::new(number).expect("an offset is not negative")
}

pub(crate) fn open(disk: &SimDisk, config: &LogConfig) -> offsetfs::error::Result<Partition> {
    let directory = disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory is there");
    let name = TopicPartition { topic: "t".to_owned(), partition: 0 };
    Partition::open(directory, None, name, config.clone(), disk.clock(), Arc::new(OpenSegments::new(8)), false)
}

fn request(partition: &Partition, records: &[Known]) -> Prepared {
    let mut records = records.iter().map(|known| NewRecord {
        timestamp: TimestampMs::new(known.timestamp),
        key: None,
        value: Some(&known.value),
        headers: &[],
    });
    prepare(partition.config(), TimestampMs::new(0), &mut records).expect("small records")
}

/// A log of batches whose records have these times.
pub(crate) fn write(batches: &[&[i64]]) -> Log {
    let disk = SimDisk::new();
    disk.filesystem().create_dir(Path::new(DIRECTORY)).expect("a new directory");
    let partition = Arc::new(open(&disk, &config()).expect("an empty partition"));
    let (mut writer, _) = Writer::open(partition.clone()).expect("a writer");
    let (mut all, mut spans) = (Vec::new(), Vec::new());
    for times in batches {
        let first = all.len() as i64;
        let records: Vec<Known> =
            (first..).zip(*times).map(|(n, &timestamp)| Known { timestamp, value: format!("value {n}").into_bytes() }).collect();
        let (whole, stopped) = writer.append(&mut [request(&partition, &records)]);
        assert_eq!((whole, stopped.is_none()), (1, true));
        for sealing in writer.take_rolled() {
            sealing.run().expect("a seal");
        }
        all.extend(records);
        let segment = partition.layout_full().segments.last().map_or(0, |last| last.base_offset().get());
        spans.push(Span { segment, first, last: all.len() as i64 - 1, largest: times.iter().copied().max().unwrap_or(-1) });
    }
    writer.close().expect("a clean close");
    let bases = partition.layout_full().segments.iter().map(|segment| segment.base_offset().get()).collect();
    let file = |name: String| disk.read_file(format!("{DIRECTORY}/{name}")).map(|bytes| (name, bytes));
    Log { files: disk.list(DIRECTORY).into_iter().filter_map(file).collect(), records: all, batches: spans, bases }
}

/// The bytes of a file of the log.
pub(crate) fn file<'l>(log: &'l Log, base: i64, suffix: &str) -> &'l [u8] {
    let name = names::of(offset(base), suffix);
    log.files.iter().find(|(known, _)| *known == name).map_or(&[], |(_, bytes)| bytes)
}

/// A disk with the log, some of its files replaced or added; `None` takes one away.
pub(crate) fn disk(log: &Log, others: &[(String, Option<&[u8]>)]) -> SimDisk {
    let disk = SimDisk::new();
    for (name, bytes) in &log.files {
        if others.iter().all(|(other, _)| other != name) {
            disk.write_file(format!("{DIRECTORY}/{name}"), bytes);
        }
    }
    for (name, bytes) in others {
        if let Some(bytes) = bytes {
            disk.write_file(format!("{DIRECTORY}/{name}"), bytes);
        }
    }
    disk
}

/// Every look-up by offset, and a walk, answer what the records say. `ask` is the patience of the first question; one that must wait is asked again.
pub(crate) fn same_records(partition: &Partition, records: &[Known]) {
    let end = records.len() as i64;
    assert_eq!(partition.bounds().log_end.get(), end, "the log ends behind its last record");
    // From the end to the beginning: what was verified for one answer is then not what the next one needs.
    for number in (0..end + 2).rev() {
        let found = partition.record(offset(number), Patience::AtOnce).or_else(|_| partition.record(offset(number), Patience::MayBlock));
        match (found.expect("no file is damaged"), records.get(number as usize)) {
            (Found::Record(record), Some(known)) => {
                let shown = Known { timestamp: record.timestamp().get(), value: record.value().unwrap_or_default().to_vec() };
                assert_eq!((record.offset().get(), &shown), (number, known));
            }
            (Found::Absent(Absent::BeyondLogEnd(_)), None) => {}
            (found, known) => panic!("at offset {number}: {found:?} instead of {known:?}"),
        }
    }
    let mut walk = partition.walk(Offset::ZERO, offset(end), Look::Batches, Patience::MayBlock);
    let mut shown = Vec::new();
    while let Some(item) = walk.next(partition).expect("no file is damaged") {
        let Item::Batch(batch, file) = item else { panic!("no file is damaged: {item:?}") };
        let body = partition.body(&batch, &file, Patience::MayBlock).expect("a sound batch");
        for record in body.records() {
            let record = body.record(record.expect("a sound record"));
            shown.push(Known { timestamp: record.timestamp().get(), value: record.value().unwrap_or_default().to_vec() });
        }
    }
    assert_eq!(shown, records, "a walk shows every record once");
}

/// The offset of the first record at or after a time, as the engine finds it.
pub(crate) fn first_at(partition: &Partition, time: i64) -> Option<i64> {
    let time = TimestampMs::new(time);
    let look_up = || partition.first_at(time, Patience::MayBlock, &mut |_, _| true).expect("no file is damaged");
    let found = look_up();
    assert_eq!(look_up(), found, "what was verified leads to the same");
    found.map(Offset::get)
}

/// Appends a record behind a log, as a process does that found it so, and closes it well or not at all; then all records are there.
pub(crate) fn append_one(disk: &SimDisk, config: &LogConfig, records: &[Known], close: bool) {
    let partition = Arc::new(open(disk, config).expect("nothing that is needed is damaged"));
    let (mut writer, _) = Writer::open(partition.clone()).expect("an index is a hint for recovery, too");
    let mut all = records.to_vec();
    let timestamp = records.iter().map(|known| known.timestamp).max().unwrap_or(0) + 1;
    all.push(Known { timestamp, value: b"behind".to_vec() });
    let (whole, stopped) = writer.append(&mut [request(&partition, &all[records.len()..])]);
    assert_eq!(whole, 1, "{stopped:?}");
    same_records(&partition, &all);
    for sealing in writer.take_rolled() {
        sealing.run().expect("a seal");
    }
    if close {
        writer.close().expect("a clean close");
    } else {
        drop(writer);
    }
    same_records(&open(disk, config).expect("what was written can be opened"), &all);
}
