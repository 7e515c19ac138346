//! How cost grows: with the records of a log, its segments, the size of its batches, its codec, the readers beside a writer, and a cold cache.

use crate::client::Mounted;
use crate::places::{BASE_MS, Random, append, letters, local, number, offset, value_of};
use crate::table::{Table, median};
use offsetfs::log::config::LogConfig;
use offsetfs::source::Source;
use offsetfs::source::access::Wish;
use offsetfs::source::local::Local;
use offsetfs::types::{Offset, Patience, TimestampMs};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn run(table: &mut Table, folder: &Path) {
    records(table, folder);
    segments(table, folder);
    batches(table, folder);
    codecs(table, folder);
    readers(table, folder);
    cold(table, folder);
}

/// Nanoseconds a look-up of random records, of the second of two passes; the median of three.
fn look_ups(log: &Local, end: u64, mut look_up: impl FnMut(&Local, u64)) -> f64 {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let targets: Vec<u64> = (0..20_000).map(|_| random.next() % end).collect();
    let mut pass = || {
        let begin = Instant::now();
        targets.iter().for_each(|n| look_up(log, *n));
        begin.elapsed().as_nanos() as f64 / targets.len() as f64
    };
    pass();
    median(&[pass(), pass(), pass()])
}

fn by_offset_and_time(log: &Local, end: u64) -> (f64, f64) {
    let by_offset = look_ups(log, end, |log, n| {
        black_box(value_of(log, n));
    });
    let by_time = look_ups(log, end, |log, n| {
        black_box(log.offset_at(TimestampMs::new(BASE_MS + n as i64), Patience::MayBlock).expect("readable"));
    });
    (by_offset, by_time)
}

fn records(table: &mut Table, folder: &Path) {
    let source = folder.join("growing-0");
    let values = letters(64, 8);
    let mut from = 0u64;
    for power in 4..=number("OFFSETFS_BENCH_GROWTH", 8) {
        let end = 10u64.pow(power as u32);
        let log = local(&source, &LogConfig::default(), Wish::Writable);
        while from < end {
            let count = (end - from).min(200_000);
            append(&log, &values, from as i64, count as usize);
            from += count;
        }
        log.close().expect("closed");
        let log = local(&source, &LogConfig::default(), Wish::ReadOnly);
        let (by_offset, by_time) = by_offset_and_time(&log, end);
        table.fact(
            "records of 8 bytes, default batches: a look-up",
            format!("10^{power}"),
            format!("by offset {by_offset:.0} ns, by time {by_time:.0} ns"),
            None,
        );
    }
    let _ = fs::remove_dir_all(&source);
}

/// A log of so many segments, of one batch each.
pub(crate) fn fill_segments(source: &Path, segments: u64, records_each: usize) {
    let log = local(source, &LogConfig::default(), Wish::Writable);
    let values = letters(64, 100);
    for n in 0..segments {
        append(&log, &values, n as i64 * records_each as i64, records_each);
        if n + 1 < segments {
            log.committer().expect("writable").roll().expect("rolled");
        }
    }
    log.close().expect("closed");
}

fn segments(table: &mut Table, folder: &Path) {
    let source = folder.join("segments-0");
    for count in [1, 10, 100, 1000, 10_000] {
        let _ = fs::remove_dir_all(&source);
        fill_segments(&source, count, 10);
        let begin = Instant::now();
        let log = local(&source, &LogConfig::default(), Wish::ReadOnly);
        let opened = begin.elapsed().as_secs_f64() * 1e3;
        let (by_offset, by_time) = by_offset_and_time(&log, count * 10);
        drop(log);
        let mounted = Mounted::ours(&source, &folder.join("ours"), "tz=UTC", false);
        let value = format!(
            "opened in {opened:.1} ms, mounted in {:.0} ms, daemon {} KiB; by offset {by_offset:.0} ns, by time {by_time:.0} ns",
            mounted.took.as_secs_f64() * 1e3,
            mounted.resident_kib()
        );
        table.fact("segments of ten records", format!("{count}"), value, None);
    }
    let _ = fs::remove_dir_all(&source);
}

fn batches(table: &mut Table, folder: &Path) {
    let source = folder.join("batches-0");
    let values = letters(64, 100);
    for records in [1u64, 10, 100, 1000] {
        let _ = fs::remove_dir_all(&source);
        let config = LogConfig { batch_size: if records == 1 { 1 } else { 61 + records * 110 }, ..LogConfig::default() };
        let log = local(&source, &config, Wish::Writable);
        let end = 200_000;
        (0..10).for_each(|n| append(&log, &values, n * 20_000, 20_000));
        log.close().expect("closed");
        let log = local(&source, &config, Wish::ReadOnly);
        let (by_offset, by_time) = by_offset_and_time(&log, end);
        let found = log.partition().batch_at(offset(1), Patience::MayBlock).expect("readable");
        let stored = found.map_or(0, |(batch, _)| batch.header.records_count);
        let value = format!("by offset {by_offset:.0} ns, by time {by_time:.0} ns");
        table.fact("records of 100 bytes a batch: a look-up", format!("{stored}"), value, None);
    }
    let _ = fs::remove_dir_all(&source);
}

fn codecs(table: &mut Table, folder: &Path) {
    use offsetfs::log::compression::Codec;
    let source = folder.join("codec-0");
    // A quarter of each value repeats, as fields of real records do.
    let values: Vec<Vec<u8>> = letters(256, 96).into_iter().map(|v| [&v[..], b"{\"kind\":\"a field that repeats\"}"].concat()).collect();
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let _ = fs::remove_dir_all(&source);
        let config = LogConfig { compression_type: codec, ..LogConfig::default() };
        let log = local(&source, &config, Wish::Writable);
        let bytes = 400_000.0 * values[0].len() as f64 / 1e6;
        let begin = Instant::now();
        (0..20).for_each(|n| append(&log, &values, n * 20_000, 20_000));
        let written = bytes / begin.elapsed().as_secs_f64();
        log.close().expect("closed");
        let log = local(&source, &config, Wish::ReadOnly);
        let stored = log.partition().layout().segments.iter().map(|s| s.end()).sum::<u64>() as f64 / 1e6;
        let by_offset = look_ups(&log, 400_000, |log, n| {
            black_box(value_of(log, n));
        });
        let begin = Instant::now();
        let (mut batches, mut read) = (log.batches(Offset::ZERO, offset(400_000)), 0usize);
        while let Some(body) = batches.next(Patience::MayBlock).expect("a batch") {
            read += body.records().map(|r| r.expect("a record").value.map_or(0, |v| (v.end - v.start) as usize)).sum::<usize>();
        }
        let range = read as f64 / 1e6 / begin.elapsed().as_secs_f64();
        let value = format!(
            "stored {:.2} of the values; append {written:.0} MB/s, range {range:.0} MB/s, a random look-up {by_offset:.0} ns",
            stored / bytes
        );
        table.fact("codecs", codec.name(), value, None);
    }
    let _ = fs::remove_dir_all(&source);
}

/// Readers of random touched records, for half a second, while one writer appends.
fn readers(table: &mut Table, folder: &Path) {
    let source = folder.join("readers-0");
    let values = letters(64, 100);
    let log = local(&source, &LogConfig::default(), Wish::Writable);
    let end = 1_000_000;
    (0..10).for_each(|n| append(&log, &values, n * 100_000, 100_000));
    for n in (0..end).step_by(100) {
        black_box(value_of(&log, n));
    }
    for count in [1, 2, 4, 8, 16] {
        let (over, looked_up) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut appended = 0;
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for reader in 0..count {
                let (log, over, looked_up) = (&log, &over, &looked_up);
                scope.spawn(move || {
                    let (mut random, mut done) = (Random(reader + 77), 0);
                    while !over.load(Ordering::Relaxed) {
                        black_box(value_of(log, random.next() % end));
                        done += 1;
                    }
                    looked_up.fetch_add(done, Ordering::Relaxed);
                });
            }
            while begin.elapsed() < Duration::from_millis(500) {
                append(&log, &values, 0, 160);
                appended += 160;
            }
            over.store(true, Ordering::Relaxed);
        });
        let seconds = begin.elapsed().as_secs_f64();
        let value = format!(
            "{:.2} million look-ups/s, {:.2} million appended records/s",
            looked_up.into_inner() as f64 / seconds / 1e6,
            f64::from(appended) / seconds / 1e6
        );
        table.fact("readers beside a writer (two CPUs)", format!("{count}"), value, None);
    }
    log.close().expect("closed");
    let _ = fs::remove_dir_all(&source);
}

/// The first look-up and a whole range when nothing of the log is in memory.
fn cold(table: &mut Table, folder: &Path) {
    let source = folder.join("cold-0");
    crate::mount::fill(&source, 2_000_000);
    let forget = || {
        let _ = Command::new("sync").status();
        fs::write("/proc/sys/vm/drop_caches", "1")
    };
    if forget().is_err() {
        return table.fact("cold cache", "not measured", "drop_caches takes root", None);
    }
    let log = local(&source, &LogConfig::default(), Wish::ReadOnly);
    forget().expect("once more");
    let begin = Instant::now();
    black_box(value_of(&log, 1_234_567));
    let first = begin.elapsed().as_secs_f64() * 1e6;
    table.fact("cold cache", "the first look-up", format!("{first:.0} us"), None);
    forget().expect("once more");
    let begin = Instant::now();
    let (mut batches, mut read) = (log.batches(Offset::ZERO, offset(2_000_000)), 0u64);
    while let Some(body) = batches.next(Patience::MayBlock).expect("a batch") {
        read += u64::from(body.header.size);
    }
    table.fact("cold cache", "a range, CRC verified", format!("{:.0} MB/s", read as f64 / 1e6 / begin.elapsed().as_secs_f64()), None);
    let _ = fs::remove_dir_all(&source);
}
