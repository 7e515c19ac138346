//! The engine next to what plain memory and one `write(2)` cost, in one run: both sides do the same work on the same bytes.
//!
//! ```text
//! cargo bench --bench engine                 all rows, 5 rounds
//! cargo bench --bench engine -- ROUNDS       more or fewer
//! OFFSETFS_BENCH_MIB=256                     how much log a set has
//! ```
//! Pin it (`taskset -c 1 cargo bench --bench engine`). Every figure follows a warm pass; ratios are taken within a round, and the median is
//! printed with both ends. Sets: `1k` values of 1 KiB, 64 a batch; `100` values of 100 bytes, 600 a batch; `single` values of 1 KiB, one a batch.

use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::batch::{BatchHeader, Step};
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::NewRecord;
use offsetfs::log::prepare::prepare;
use offsetfs::log::record::Records;
use offsetfs::log::scan::{Scope, scan};
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Found, Source};
use offsetfs::types::{Offset, Patience, TimestampMs};
use offsetfs::view::{self, View, time::Zone};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const BASE_MS: i64 = 1_700_000_000_000;
const LOG: &str = "00000000000000000000.log";

struct Set {
    name: &'static str,
    value_bytes: usize,
    per_batch: usize,
}

const SETS: [Set; 3] = [
    Set { name: "1k", value_bytes: 1024, per_batch: 64 },
    Set { name: "100", value_bytes: 100, per_batch: 600 },
    Set { name: "single", value_bytes: 1024, per_batch: 1 },
];

#[derive(Default)]
struct Row {
    what: String,
    unit: &'static str,
    ours: Vec<f64>,
    other: Vec<f64>,
    /// The ratio that is to be reached, and whether more is better.
    bound: f64,
    more_is_better: bool,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let rounds: usize = std::env::args().skip(1).filter(|a| a != "--bench").find_map(|a| a.parse().ok()).unwrap_or(5);
    let mib: u64 = std::env::var("OFFSETFS_BENCH_MIB").ok().and_then(|n| n.parse().ok()).unwrap_or(256);
    let folder = std::env::temp_dir().join(format!("offsetfs-engine-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let mut rows: Vec<Row> = Vec::new();
    for set in &SETS {
        let source = folder.join(format!("{}-0", set.name));
        fill(&source, set, mib << 20);
        for _ in 0..rounds {
            run(set, &source, &folder, &mut rows);
        }
    }
    println!("{:34} {:>10} {:>10} {:6} {:>7}", "figure", "ours", "other", "", "ratio");
    for row in &rows {
        let ratios: Vec<f64> = row.ours.iter().zip(&row.other).map(|(a, b)| a / b).collect();
        let (low, high) = ratios.iter().fold((f64::MAX, 0f64), |(l, h), r| (l.min(*r), h.max(*r)));
        let middle = median(&ratios);
        let held = if row.more_is_better { middle >= row.bound } else { middle <= row.bound };
        let sign = if row.more_is_better { ">=" } else { "<=" };
        println!(
            "{:34} {:>10.1} {:>10.1} {:6} {middle:>7.3} ({low:.3} - {high:.3})  {sign} {:.2} {}",
            row.what,
            median(&row.ours),
            median(&row.other),
            row.unit,
            row.bound,
            if held { "held" } else { "NOT held" }
        );
    }
    let _ = fs::remove_dir_all(&folder);
}

fn config(set: &Set) -> LogConfig {
    // As many records a batch as the set says: the header and the numbers of a record come on top of the values.
    let batch_size = if set.per_batch == 1 { 1 } else { (set.per_batch * (set.value_bytes + 10) + 61) as u64 };
    LogConfig { batch_size, ..LogConfig::default() }
}

fn local(source: &Path, set: &Set, wish: Wish) -> Local {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    Local::open(&fs, source, Options { wish, create: true, config: config(set) }).expect("a partition")
}

fn values(set: &Set) -> Vec<Vec<u8>> {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    (0..set.per_batch.max(64))
        .map(|_| {
            (0..set.value_bytes)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[seed as usize & 63]
                })
                .collect()
        })
        .collect()
}

fn records<'a>(values: &'a [Vec<u8>], from: i64, count: usize) -> impl Iterator<Item = NewRecord<'a>> {
    values.iter().cycle().take(count).enumerate().map(move |(i, value)| NewRecord {
        timestamp: TimestampMs::new(BASE_MS + from + i as i64),
        key: None,
        value: Some(value),
        headers: &[],
    })
}

fn fill(source: &Path, set: &Set, bytes: u64) {
    let log = local(source, set, Wish::Writable);
    let values = values(set);
    let each = 64 * set.per_batch;
    let mut from = 0i64;
    while from as u64 * set.value_bytes as u64 + ((each * set.value_bytes) as u64) < bytes {
        append(&log, &values, from, each);
        from += each as i64;
    }
    log.close().expect("closed");
}

fn append(log: &Local, values: &[Vec<u8>], from: i64, count: usize) {
    let prepared = prepare(log.partition().config(), TimestampMs::new(BASE_MS), &mut records(values, from, count)).expect("prepared");
    log.committer().expect("writable").append_and_wait(prepared, false).expect("appended");
}

fn run(set: &Set, source: &Path, folder: &Path, rows: &mut Vec<Row>) {
    let mut note = |what: &str, unit, bound, more_is_better, ours: f64, other: f64| {
        let what = format!("{}: {what}", set.name);
        let at = rows.iter().position(|r| r.what == what).unwrap_or_else(|| {
            rows.push(Row { what, unit, bound, more_is_better, ..Row::default() });
            rows.len() - 1
        });
        rows[at].ours.push(ours);
        rows[at].other.push(other);
    };
    let log = local(source, set, Wish::ReadOnly);
    let bytes = fs::read(source.join(LOG)).expect("its bytes");
    let end = log.partition().bounds().log_end.get();

    if set.per_batch > 1 {
        let bound = if set.value_bytes == 1024 { 1.0 } else { 0.8 };
        let (ours, other) = appends(set, folder, &bytes);
        note("append, 64 batches a call", "MB/s", bound, true, ours, other);
    }
    let index = fs::read(source.join(LOG).with_extension("index")).expect("an index");
    let bare = Bare { log: &bytes, index: &index };
    let offsets = offsets(end);
    let time = |f: &mut dyn FnMut(i64) -> usize| {
        for offset in &offsets {
            black_box(f(*offset));
        }
        let begin = Instant::now();
        for offset in &offsets {
            black_box(f(*offset));
        }
        begin.elapsed().as_nanos() as f64 / offsets.len() as f64
    };
    let at = |n: i64| Offset::new(n).expect("an offset");
    let ours = time(&mut |n| match log.partition().batch_at(at(n), Patience::AtOnce) {
        Ok(Ok((batch, _))) => batch.position as usize,
        Ok(Err(absent)) => panic!("{absent:?}"),
        Err(_) => log.partition().batch_at(at(n), Patience::MayBlock).map_or(0, |_| 1),
    });
    note("offset -> batch", "ns", 1.5, false, ours, time(&mut |n| bare.batch(n)));
    let ours = time(&mut |n| match log.record(at(n), Patience::MayBlock) {
        Ok(Found::Record(record)) => record.value().map_or(0, <[u8]>::len),
        other => panic!("{other:?}"),
    });
    note("offset -> value", "ns", 1.2, false, ours, time(&mut |n| bare.value(n)));
    let ours =
        time(&mut |n| log.offset_at(TimestampMs::new(BASE_MS + n), Patience::MayBlock).expect("found").expect("there").get() as usize);
    note("time -> offset", "ns", 1.2, false, ours, time(&mut |n| bare.value(n)));

    let (ours, other) = (range(&log, false), bare_range(&bytes));
    note("range of values, CRC verified", "MB/s", 0.7, true, ours, other);
    note("JSON lines (500 MB/s of values)", "MB/s", 1.0, true, range(&log, true), 500.0);
    let scope = Scope { base: Offset::ZERO, limit: None, interval_bytes: 4096, disk_index: &index };
    let mut scanned = 0;
    let ours = rate(bytes.len(), || scanned = scan(&bytes, scope).batches);
    let other = rate(bytes.len(), || {
        let mut place = 0;
        while let Ok(Step::Batch(header)) = BatchHeader::read(&bytes, place) {
            black_box(crc32c::crc32c(&bytes[place + 21..place + header.size as usize]));
            place += header.size as usize;
        }
    });
    assert!(scanned > 0);
    note("recovery scan / CRC pass", "MB/s", 0.9, true, ours, other);
}

fn offsets(end: i64) -> Vec<i64> {
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    (0..20_000)
        .map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % end as u64) as i64
        })
        .collect()
}

fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    work();
    let begin = Instant::now();
    work();
    bytes as f64 / 1e6 / begin.elapsed().as_secs_f64()
}

/// Both sides leave the same bytes in a new file: ours through the engine, the other by copy, CRC-32C and one write a batch.
fn appends(set: &Set, folder: &Path, log: &[u8]) -> (f64, f64) {
    let total = 128usize << 20;
    let values = values(set);
    let each = 64 * set.per_batch;
    let calls = total / (each * set.value_bytes);
    let new = folder.join("append-0");
    let ours = |from: &PathBuf| {
        let _ = fs::remove_dir_all(from);
        let log = local(from, set, Wish::Writable);
        append(&log, &values, 0, each);
        let begin = Instant::now();
        for call in 0..calls {
            append(&log, &values, (call * each) as i64, each);
        }
        let elapsed = begin.elapsed();
        log.close().expect("closed");
        elapsed.as_secs_f64()
    };
    let templates: Vec<&[u8]> = batches(log).take(64).collect();
    let plain = folder.join("plain");
    let other = || {
        let mut file = File::create(&plain).expect("a file");
        let mut scratch = vec![0u8; templates.iter().map(|b| b.len()).max().unwrap_or(0)];
        let begin = Instant::now();
        for _ in 0..calls {
            for batch in &templates {
                let copy = &mut scratch[..batch.len()];
                copy.copy_from_slice(batch);
                let crc = crc32c::crc32c(&copy[21..]);
                copy[17..21].copy_from_slice(&crc.to_be_bytes());
                file.write_all(copy).expect("written");
            }
        }
        begin.elapsed().as_secs_f64()
    };
    ours(&new);
    other();
    let written = (calls * each * set.value_bytes) as f64 / 1e6;
    (written / ours(&new), written / other())
}

fn batches(log: &[u8]) -> impl Iterator<Item = &[u8]> {
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

/// What a look-up costs with no verification, no segments, no locks: the limit.
struct Bare<'a> {
    log: &'a [u8],
    index: &'a [u8],
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Bare<'_> {
    fn batch(&self, target: i64) -> usize {
        let (mut low, mut high) = (0, self.index.len() / 8);
        while low < high {
            let middle = low + (high - low) / 2;
            if i64::from(i32_at(self.index, middle * 8)) <= target { low = middle + 1 } else { high = middle }
        }
        let mut at = low.checked_sub(1).map_or(0, |i| i32_at(self.index, i * 8 + 4) as usize);
        while i64_at(self.log, at) + i64::from(i32_at(self.log, at + 23)) < target {
            at += 12 + i32_at(self.log, at + 8) as usize;
        }
        at
    }

    fn value(&self, target: i64) -> usize {
        let at = self.batch(target);
        let size = 12 + i32_at(self.log, at + 8) as usize;
        let batch = &self.log[at..at + size];
        let delta = target - i64_at(batch, 0);
        let mut place = 61;
        loop {
            let (length, body) = varint(batch, place);
            let (_, after_time) = varint(batch, body + 1);
            let (offset, after_offset) = varint(batch, after_time);
            if offset == delta {
                let (key, after_key) = varint(batch, after_offset);
                let (value, start) = varint(batch, after_key + key.max(0) as usize);
                return black_box(&batch[start..start + value as usize]).len();
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

/// The whole range through the view, in value bytes.
fn range(log: &Local, json: bool) -> f64 {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let path = log.partition().directory().path().to_owned();
    let options = Options { wish: Wish::ReadOnly, create: false, config: log.partition().config().clone() };
    let view = View::new(
        Arc::new(Local::open(&fs, &path, options).expect("a partition")),
        view::Options { zone: Zone::utc(), ..view::Options::default() },
    );
    let name: &[u8] = if json { b"by-offset/earliest..latest.jsonl" } else { b"by-offset/earliest.." };
    let node = view.resolve(name, Patience::MayBlock).expect("a range");
    let values = log.partition().bounds().log_end.get() as f64;
    let mut piece = vec![0; 128 << 10];
    let mut pass = || {
        let reader = view.open(&node, Patience::MayBlock).expect("opened");
        let (begin, mut at) = (Instant::now(), 0u64);
        loop {
            match reader.read(at, &mut piece, Patience::MayBlock).expect("bytes") {
                0 => break,
                n => at += n as u64,
            }
        }
        (at, begin.elapsed().as_secs_f64())
    };
    pass();
    let (bytes, seconds) = pass();
    let value_bytes = if json { values * value_len(log) } else { bytes as f64 - values };
    value_bytes / 1e6 / seconds
}

fn value_len(log: &Local) -> f64 {
    match log.record(Offset::ZERO, Patience::MayBlock) {
        Ok(Found::Record(record)) => record.value().map_or(0.0, |v| v.len() as f64),
        _ => f64::NAN,
    }
}

/// CRC of each batch, then its values and newlines into a buffer: the bare pass.
fn bare_range(log: &[u8]) -> f64 {
    let mut out = vec![0u8; 128 << 10];
    let mut total = 0usize;
    let mut pass = || {
        total = 0;
        let mut filled = 0;
        for batch in batches(log) {
            let Ok(Step::Batch(header)) = BatchHeader::read(batch, 0) else { break };
            assert_eq!(crc32c::crc32c(&batch[21..]), header.crc);
            for record in Records::in_batch(&header, batch) {
                let record = record.expect("a record");
                let value = record.value.map(|r| &batch[r.start as usize..r.end as usize]).unwrap_or_default();
                if filled + value.len() + 1 > out.len() {
                    filled = 0;
                }
                out[filled..filled + value.len()].copy_from_slice(value);
                out[filled + value.len()] = b'\n';
                filled += value.len() + 1;
                total += value.len();
            }
        }
        black_box(&out);
        total
    };
    let bytes = pass();
    let begin = Instant::now();
    pass();
    bytes as f64 / 1e6 / begin.elapsed().as_secs_f64()
}
