//! What is resident: anonymous memory of a daemon, or of a child that opened a log, after what could make it grow.

use crate::client::{Mounted, ask, resident_kib};
use crate::growth::fill_segments;
use crate::places::{append, local, number};
use crate::table::Table;
use offsetfs::log::compression::Codec;
use offsetfs::log::config::LogConfig;
use offsetfs::source::access::Wish;
use offsetfs::source::{Found, Source};
use offsetfs::types::{Offset, Patience};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A gigabyte, but for the last byte that a position can name.
const SEGMENT: u64 = (1 << 30) - 1;

pub(crate) fn run(table: &mut Table, folder: &Path) {
    look_ups(table, folder);
    long_range(table, folder);
    many_segments(table, folder);
    a_tebibyte(table, folder);
}

fn look_ups(table: &mut Table, folder: &Path) {
    let (source, point) = (folder.join("looked-0"), folder.join("ours"));
    let count = number("OFFSETFS_BENCH_LOOKUPS", 1_000_000);
    crate::mount::fill(&source, count);
    let ours = Mounted::ours(&source, &point, "tz=UTC", true);
    let stat = |count: u64| ask("stat", &[&point.join("by-offset").display(), &count]);
    stat(100);
    let before = ours.resident_kib();
    stat(count);
    let grown = ours.resident_kib().saturating_sub(before);
    table.fact(
        "memory",
        format!("the daemon, after {count} look-ups of different names"),
        format!("+{grown} KiB"),
        Some(grown <= 32 << 10),
    );
    drop(ours);
    let _ = fs::remove_dir_all(&source);
}

fn long_range(table: &mut Table, folder: &Path) {
    let (source, point) = (folder.join("long-0"), folder.join("ours"));
    let config = LogConfig { compression_type: Codec::Zstd, batch_size: 1 << 20, ..LogConfig::default() };
    let log = local(&source, &config, Wish::Writable);
    let values = [vec![b'z'; 16 << 10]];
    let mut records = 0;
    while (records as u64) << 14 < 10 << 30 {
        append(&log, &values, records, 4096);
        records += 4096;
    }
    log.close().expect("closed");
    // Its lock goes with it.
    drop(log);
    let ours = Mounted::ours(&source, &point, "tz=UTC", false);
    let before = ours.resident_kib();
    let begin = Instant::now();
    let bytes =
        File::open(point.join("by-offset/earliest..")).and_then(|mut f| std::io::copy(&mut f, &mut std::io::sink())).expect("a range");
    let seconds = begin.elapsed().as_secs_f64();
    let grown = ours.resident_kib().saturating_sub(before);
    let name = format!(
        "the daemon, after a range of {:.1} GiB (zstd, {:.1} GB/s)",
        bytes as f64 / f64::from(1 << 30),
        bytes as f64 / 1e9 / seconds
    );
    table.fact("memory", name, format!("+{grown} KiB"), Some(grown <= 64 << 10));
    drop(ours);
    let _ = fs::remove_dir_all(&source);
}

fn many_segments(table: &mut Table, folder: &Path) {
    let source = folder.join("many-0");
    fill_segments(&source, 10_000, 10);
    let program = std::env::current_exe().expect("this program");
    let command = format!("ulimit -n 256; exec '{}' child '{}' 10000 10", program.display(), source.display());
    let output = Command::new("sh").args(["-c", &command]).output().expect("sh");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let value = if output.status.success() { said } else { String::from_utf8_lossy(&output.stderr).trim().to_owned() };
    table.fact("memory", "10,000 segments, a record of each, ulimit -n 256", value, Some(output.status.success()));
    let _ = fs::remove_dir_all(&source);
}

/// Reads a record of each segment: SOURCE SEGMENTS RECORDS_EACH.
pub(crate) fn child(arguments: &[String]) {
    let number = |i: usize| arguments[i].parse::<i64>().expect("a number");
    let log = local(Path::new(&arguments[0]), &LogConfig::default(), Wish::ReadOnly);
    let opened = resident_kib("/proc/self/status");
    for n in 0..number(1) {
        let found = log.record(Offset::new(n * number(2)).expect("an offset"), Patience::MayBlock);
        assert!(matches!(found, Ok(Found::Record(_))), "{n}: {found:?}");
    }
    println!("opened {opened} KiB, then {} KiB", resident_kib("/proc/self/status"));
}

/// A thousand segments of a gigabyte each, closed well; sparse but for their first batch.
fn a_tebibyte(table: &mut Table, folder: &Path) {
    let (source, point) = (folder.join("tebibyte-0"), folder.join("ours"));
    fill_segments(&source, 1000, 10);
    let mut logs: Vec<_> = fs::read_dir(&source).expect("the log").map(|e| e.expect("an entry").path()).collect();
    logs.retain(|path| path.extension().is_some_and(|e| e == "log"));
    logs.sort();
    for log in &logs[..logs.len() - 1] {
        File::options().write(true).open(log).and_then(|f| f.set_len(SEGMENT)).expect("a sparse file");
    }
    let mut took = Vec::new();
    for _ in 0..5 {
        let ours = Mounted::ours(&source, &point, "tz=UTC", false);
        took.push((ours.took.as_secs_f64() * 1e3, ours.resident_kib()));
    }
    took.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ms, kib) = took[took.len() / 2];
    let held = Some(ms <= 100.0 && kib <= 64 << 10);
    table.fact("memory", "1 TiB in 1,000 segments mounted", format!("{ms:.0} ms, {kib} KiB"), held);
    let _ = fs::remove_dir_all(&source);
}
