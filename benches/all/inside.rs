//! The engine next to plain memory and write(2): what the same work costs with no verification, no segments and no locks.
//!
//! Sets: `1k` values of 1 KiB, 64 a batch; `100` values of 100 bytes, 600 a batch; `single` values of 1 KiB, one a batch.

use crate::bare::{self, Bare, batches, i32_at, i64_at};
use crate::places::{BASE_MS, LOG, Random, append, letters, local, number};
use crate::table::{Bound, Side, Table, Work};
use offsetfs::io::os::OsFileSystem;
use offsetfs::io::{FileSystem, Open};
use offsetfs::log::config::LogConfig;
use offsetfs::log::scan::{Scope, scan};
use offsetfs::source::access::Wish;
use offsetfs::source::local::Local;
use offsetfs::source::{Found, Source};
use offsetfs::types::{Offset, Patience, TimestampMs};
use offsetfs::view::{self, View, time::Zone};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) value_bytes: usize,
    pub(crate) per_batch: usize,
}

pub(crate) const SETS: [Set; 3] = [
    Set { name: "1k", value_bytes: 1024, per_batch: 64 },
    Set { name: "100", value_bytes: 100, per_batch: 600 },
    Set { name: "single", value_bytes: 1024, per_batch: 1 },
];
/// So many batches are given to the engine in one call.
pub(crate) const BATCHES_A_CALL: usize = 64;
/// How much an append writes, in bytes of values.
const APPENDED: usize = 128 << 20;

impl Set {
    pub(crate) fn config(&self) -> LogConfig {
        // As many records a batch as the set says: the header and the numbers of a record come on top of the values.
        let batch_size = if self.per_batch == 1 { 1 } else { (self.per_batch * (self.value_bytes + 10) + 61) as u64 };
        LogConfig { batch_size, ..LogConfig::default() }
    }

    pub(crate) fn values(&self) -> Vec<Vec<u8>> {
        letters(self.per_batch.max(BATCHES_A_CALL), self.value_bytes)
    }
}

pub(crate) fn run(table: &mut Table, folder: &Path) {
    pin();
    let bytes = number("OFFSETFS_BENCH_MIB", 256) << 20;
    for set in &SETS {
        let source = folder.join(format!("{}-0", set.name));
        fill(&source, set, bytes);
        for _ in 0..table.rounds {
            round(table, set, &source, folder);
        }
        let _ = fs::remove_dir_all(&source);
    }
}

/// Stays on one CPU, as the other side does, which is this thread, too.
pub(crate) fn pin() {
    let pid = std::process::id().to_string();
    let pinned = std::process::Command::new("taskset").args(["-cp", "1", &pid]).output();
    assert!(pinned.is_ok_and(|output| output.status.success()), "taskset pins this process to CPU 1");
}

pub(crate) fn fill(source: &Path, set: &Set, bytes: u64) {
    let log = local(source, &set.config(), Wish::Writable);
    let values = set.values();
    let each = BATCHES_A_CALL * set.per_batch;
    let mut from = 0i64;
    while (from as u64 + each as u64) * (set.value_bytes as u64) < bytes {
        append(&log, &values, from, each);
        from += each as i64;
    }
    log.close().expect("closed");
}

fn round(table: &mut Table, set: &Set, source: &Path, folder: &Path) {
    let figure = |what: &str| format!("{}: {what}", set.name);
    let log = local(source, &set.config(), Wish::ReadOnly);
    let bytes = fs::read(source.join(LOG)).expect("its bytes");
    let end = log.partition().bounds().log_end.get();
    if set.per_batch > 1 {
        let least = if set.value_bytes == 1024 { 1.0 } else { 0.8 };
        let ours = ours_appends(set, folder);
        let (single, many) = (plain_appends(set, folder, &bytes, 1), plain_appends(set, folder, &bytes, 16));
        table.row(&figure("append, 64 batches a write / a write each"), "MB/s", Bound::AtLeast(least), ours, single, 0.0);
        table.row(&figure("append, 64 batches a write / 16 a write"), "MB/s", Bound::AtLeast(0.75), ours, many, 0.0);
    }
    let beside = |suffix| fs::read(source.join(LOG).with_extension(suffix)).expect("an index");
    let (index, times) = (beside("index"), beside("timeindex"));
    let file = OsFileSystem.open_dir(source).and_then(|dir| dir.open(OsStr::new(LOG), Open::Read)).expect("the log");
    let map = file.map(bytes.len() as u64).expect("a map");
    let mapped = map.slice(0..bytes.len() as u64).expect("its bytes");
    let bare = Bare { log: mapped, index: &index, times: &times };
    let look_ups = LookUps::new(end, 20_000);
    let first = look_ups.pass(&mut |n| to_value(&log, n));
    let mut row = |what: &str, bound, ours: &mut dyn FnMut(i64) -> u64, other: &mut dyn FnMut(i64) -> u64| {
        table.row(&figure(what), "ns", bound, look_ups.time(ours), look_ups.time(other), 0.0);
    };
    row("offset -> batch", Bound::AtMost(1.5), &mut |n| to_batch(&log, n), &mut |n| bare.batch(n) as u64);
    row("offset -> value", Bound::AtMost(1.2), &mut |n| to_value(&log, n), &mut |n| bare.value(n));
    row("time -> offset", Bound::AtMost(1.2), &mut |n| to_offset(&log, n), &mut |n| bare.offset_at(BASE_MS + n) as u64);
    let other = look_ups.time(&mut |n| bare.value(n));
    table.row(&figure("offset -> value, batches not touched before"), "ns", Bound::Beside, first, other, 0.0);

    let ours = range(&log, false);
    table.row(&figure("range of values, CRC verified"), "MB/s", Bound::AtLeast(0.7), ours, bare::range(&bytes), 0.0);
    let json = range(&log, true);
    table.row(&figure("JSON lines / 500 MB/s"), "MB/s", Bound::AtLeast(1.0), json, Side { value: 500.0, work: json.work }, 0.0);
    let (ours, other) = (recovery(source, &index), bare::crc_pass(source));
    table.row(&figure("recovery scan / CRC pass, fresh maps"), "MB/s", Bound::AtLeast(0.9), ours, other, 0.0);
}

/// The same look-ups for all sides, in no order.
pub(crate) struct LookUps(Vec<i64>);

impl LookUps {
    pub(crate) fn new(end: i64, count: usize) -> LookUps {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        LookUps((0..count).map(|_| (random.next() % end as u64) as i64).collect())
    }

    /// Nanoseconds for one of them.
    fn pass(&self, look_up: &mut dyn FnMut(i64) -> u64) -> Side {
        let begin = Instant::now();
        let sum = self.0.iter().fold(0u64, |sum, n| sum.wrapping_add(black_box(look_up(*n))));
        let value = begin.elapsed().as_nanos() as f64 / self.0.len() as f64;
        Side { value, work: Work::new(self.0.len() as u64, 0, sum) }
    }

    /// The second pass counts: the first one touches.
    pub(crate) fn time(&self, look_up: &mut dyn FnMut(i64) -> u64) -> Side {
        self.pass(look_up);
        self.pass(look_up)
    }
}

fn at(n: i64) -> Offset {
    Offset::new(n).expect("an offset")
}

/// The position of the batch that holds an offset.
pub(crate) fn to_batch(log: &Local, n: i64) -> u64 {
    match log.partition().position_at(at(n), Patience::MayBlock) {
        Ok(Ok(position)) => position.get(),
        other => panic!("{other:?}"),
    }
}

/// Length and first byte of a value, added.
pub(crate) fn to_value(log: &Local, n: i64) -> u64 {
    match log.record(at(n), Patience::MayBlock) {
        Ok(Found::Record(record)) => record.value().map_or(0, |v| v.len() as u64 + u64::from(v[0])),
        other => panic!("{other:?}"),
    }
}

/// The first offset at or after the time of a record.
pub(crate) fn to_offset(log: &Local, n: i64) -> u64 {
    let found = log.offset_at(TimestampMs::new(BASE_MS + n), Patience::MayBlock);
    found.expect("readable").expect("there").get() as u64
}

/// A pass over a new map of the log: its value is in MB/s.
pub(crate) fn over_fresh_map(source: &Path, pass: impl Fn(&[u8]) -> u64) -> Side {
    let file = OsFileSystem.open_dir(source).and_then(|dir| dir.open(OsStr::new(LOG), Open::Read)).expect("the log");
    let len = file.metadata().expect("its length").len;
    let run = || {
        let map = file.map(len).expect("a map");
        let begin = Instant::now();
        let batches = pass(map.slice(0..len).expect("its bytes"));
        Side { value: len as f64 / 1e6 / begin.elapsed().as_secs_f64(), work: Work::new(batches, len, 0) }
    };
    run();
    run()
}

pub(crate) fn recovery(source: &Path, index: &[u8]) -> Side {
    let scope = Scope { base: Offset::ZERO, limit: None, interval_bytes: 4096, disk_index: index };
    over_fresh_map(source, |log| scan(log, scope).batches)
}

pub(crate) fn calls(set: &Set) -> usize {
    APPENDED / (BATCHES_A_CALL * set.per_batch * set.value_bytes)
}

fn appended(set: &Set, seconds: f64, file: &Path) -> Side {
    let each = BATCHES_A_CALL * set.per_batch;
    let bytes = fs::read(file).expect("what was written");
    let value = (calls(set) * each * set.value_bytes) as f64 / 1e6 / seconds;
    Side { value, work: Work::new((calls(set) * each) as u64, bytes.len() as u64, u64::from(crc32c::crc32c(&bytes))) }
}

/// Through the engine into a new log.
pub(crate) fn ours_appends(set: &Set, folder: &Path) -> Side {
    let (new, values, each) = (folder.join("append-0"), set.values(), BATCHES_A_CALL * set.per_batch);
    let run = || {
        let _ = fs::remove_dir_all(&new);
        let log = local(&new, &set.config(), Wish::Writable);
        // The first append makes the files; it is timed by neither side.
        append(&log, &values, 0, each);
        let begin = Instant::now();
        (1..calls(set)).for_each(|_| append(&log, &values, 0, each));
        let seconds = begin.elapsed().as_secs_f64() * calls(set) as f64 / (calls(set) - 1) as f64;
        log.close().expect("closed");
        seconds
    };
    run();
    let seconds = run();
    appended(set, seconds, &new.join(LOG))
}

/// The same bytes by copy, CRC-32C and a write(2) for so many batches. Offsets are given as the engine gives them.
fn plain_appends(set: &Set, folder: &Path, log: &[u8], batches_a_write: usize) -> Side {
    let plain = folder.join("plain");
    // The batches of the engine's first call.
    let each = (BATCHES_A_CALL * set.per_batch) as i64;
    let templates: Vec<&[u8]> = batches(log).take_while(|batch| i64_at(batch, 0) < each).collect();
    let run = || {
        let _ = fs::remove_file(&plain);
        let mut file = File::create(&plain).expect("a file");
        let mut scratch = vec![0u8; batches_a_write * templates.iter().map(|b| b.len()).max().unwrap_or(0)];
        let (mut offset, mut filled, mut held) = (0i64, 0, 0);
        let begin = Instant::now();
        for batch in (0..calls(set)).flat_map(|_| &templates) {
            let copy = &mut scratch[filled..filled + batch.len()];
            copy.copy_from_slice(batch);
            copy[..8].copy_from_slice(&offset.to_be_bytes());
            let crc = crc32c::crc32c(&copy[21..]);
            copy[17..21].copy_from_slice(&crc.to_be_bytes());
            (offset, filled, held) = (offset + i64::from(i32_at(batch, 23)) + 1, filled + batch.len(), held + 1);
            if held == batches_a_write {
                file.write_all(&scratch[..filled]).expect("written");
                (filled, held) = (0, 0);
            }
        }
        file.write_all(&scratch[..filled]).expect("written");
        begin.elapsed().as_secs_f64()
    };
    run();
    let seconds = run();
    appended(set, seconds, &plain)
}

/// The whole range through the view; its value is in bytes of values.
pub(crate) fn range(log: &Local, json: bool) -> Side {
    let values = log.partition().bounds().log_end.get() as u64;
    let value_len = match log.record(Offset::ZERO, Patience::MayBlock) {
        Ok(Found::Record(record)) => record.value().map_or(0, |v| v.len() as u64),
        other => panic!("{other:?}"),
    };
    let source = local(log.partition().directory().path(), log.partition().config(), Wish::ReadOnly);
    let view = View::new(Arc::new(source), view::Options { zone: Zone::utc(), ..view::Options::default() });
    let name: &[u8] = if json { b"by-offset/earliest..latest.jsonl" } else { b"by-offset/earliest.." };
    let node = view.resolve(name, Patience::MayBlock).expect("a range");
    let mut piece = vec![0; 128 << 10];
    let mut pass = |sums: bool| {
        let reader = view.open(&node, Patience::MayBlock).expect("opened");
        let (begin, mut at, mut sum) = (Instant::now(), 0u64, 0u32);
        loop {
            match reader.read(at, &mut piece, Patience::MayBlock).expect("bytes") {
                0 => break,
                n => {
                    at += n as u64;
                    if sums {
                        sum = crc32c::crc32c_append(sum, &piece[..n]);
                    }
                }
            }
        }
        (begin.elapsed().as_secs_f64(), at, sum)
    };
    let sum = pass(true).2;
    let (seconds, bytes, _) = pass(false);
    Side { value: (values * value_len) as f64 / 1e6 / seconds, work: Work::new(values, bytes, u64::from(sum)) }
}
