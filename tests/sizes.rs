//! `offsetfs stat --sizes` against figures that were not counted by the engine: what Kafka's consumer got, what Kafka's own index files hold, and
//! look-ups counted one by one through them.

mod common;

use common::encode::{Batch, Record, indexes};
use common::fixtures::{answers, facts, fixtures, partitions};
use common::partition::PartitionDir;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// 2023-11-14T22:13:20Z, in ms.
const T0: i64 = 1_700_000_000_000;

fn stat(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    command.args(["stat", "--sizes"]).args(arguments).arg(path).stdin(Stdio::null()).output().expect("offsetfs can be started")
}

fn printed(arguments: &[&str], path: &Path) -> String {
    let output = stat(arguments, path);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn object(arguments: &[&str], path: &Path) -> Value {
    serde_json::from_str(&printed(&[&["--json"], arguments].concat(), path)).expect("one object")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn be<const N: usize>(bytes: &[u8], at: usize) -> i64 {
    let field: [u8; N] = bytes[at..at + N].try_into().expect("so many bytes");
    field.iter().fold(if field[0] < 0x80 { 0 } else { -1 }, |number, byte| number << 8 | i64::from(*byte))
}

/// A batch as its header tells it, read here.
#[derive(Clone, Copy, Debug)]
struct Stored {
    position: u64,
    size: u64,
    base: i64,
    last: i64,
    records: i64,
    is_control: bool,
}

/// The segments of a directory in order: base offset and batches. Only of magic 2.
fn segments(path: &Path) -> Vec<(i64, Vec<Stored>)> {
    let names = fs::read_dir(path).expect("a folder").map(|e| e.expect("an entry").file_name().into_string().expect("a plain name"));
    let mut bases: Vec<String> = names.filter_map(|n| n.strip_suffix(".log").map(str::to_owned)).collect();
    bases.sort();
    let batches = |base: &String| {
        let log = fs::read(path.join(format!("{base}.log"))).expect("a log");
        let mut batches = Vec::new();
        let mut at = 0;
        while at < log.len() {
            assert_eq!(log[at + 16], 2, "of magic 2");
            let (first, size) = (be::<8>(&log, at), be::<4>(&log, at + 8) as u64 + 12);
            let (last, records) = (first + be::<4>(&log, at + 23), be::<4>(&log, at + 57));
            let is_control = log[at + 22] & 0x20 != 0;
            batches.push(Stored { position: at as u64, size, base: first, last, records, is_control });
            at += size as usize;
        }
        batches
    };
    bases.iter().map(|base| (base.parse().expect("digits"), batches(base))).collect()
}

#[test]
fn records_and_batches_are_those_that_kafka_has() {
    let mut seen = 0;
    for name in partitions() {
        let path = fixtures().join("data").join(&name);
        // Of the others there are records that no consumer gets any more.
        if !path.is_dir() || name.starts_with("old-") || facts(&name).is_some_and(|f| f.log_start_offset > 0) {
            continue;
        }
        let told = object(&[], &path);
        let sizes: Vec<u64> = answers(&name)
            .iter()
            .map(|a| {
                let len = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
                (len(&a.key) + len(&a.value) + a.headers.iter().map(|(name, value)| name.len() + len(value)).sum::<usize>()) as u64
            })
            .collect();
        let of_records = &told["record_bytes"];
        assert_eq!(number(&told["records"]), sizes.len() as u64, "{name}");
        for (member, exact) in [("least", sizes.iter().min()), ("largest", sizes.iter().max())] {
            assert_eq!(number(&of_records[member]), *exact.unwrap_or(&0), "{name}: {member}");
        }
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len().max(1) as f64;
        assert!((of_records["mean"].as_f64().expect("a number") - mean).abs() < 1e-6, "{name}: {mean}");
        for power in of_records["distribution"].as_array().expect("a list") {
            let within = |size: &&u64| (number(&power["from"])..=number(&power["to"])).contains(*size);
            assert_eq!(number(&power["count"]), sizes.iter().filter(within).count() as u64, "{name}: {power}");
        }
        let batches: Vec<Stored> = segments(&path).into_iter().flat_map(|(_, batches)| batches).collect();
        assert_eq!(number(&told["batches"]), batches.len() as u64, "{name}");
        assert_eq!(number(&told["control_batches"]), batches.iter().filter(|b| b.is_control).count() as u64, "{name}");
        assert_eq!(number(&told["bytes"]), batches.iter().map(|b| b.size).sum::<u64>(), "{name}");
        assert_eq!(number(&told["batch_bytes"]["largest"]), batches.iter().map(|b| b.size).max().unwrap_or(0), "{name}");
        assert_eq!(number(&told["unreadable"]), 0, "{name}");
        seen += 1;
    }
    assert!(seen > 15, "{seen} fixtures");
}

/// A look-up as Kafka does it: the floor entry of the index, then header by header. What it reads and passes over, for each record.
fn look_ups(path: &Path) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for (base, batches) in segments(path) {
        let index = fs::read(path.join(format!("{base:020}.index"))).expect("an index");
        let entries: Vec<(i64, i64)> = index.chunks(8).map(|e| (base + be::<4>(e, 0), be::<4>(e, 4))).collect();
        for batch in batches.iter().filter(|b| !b.is_control) {
            assert_eq!(batch.last - batch.base + 1, batch.records, "no gaps");
            for offset in batch.base..=batch.last {
                let from = entries.iter().rfind(|(entry, _)| *entry <= offset).map_or(0, |(_, position)| *position as u64);
                let walked: Vec<&Stored> = batches.iter().filter(|b| b.position >= from && b.position <= batch.position).collect();
                found.push((walked.len() as u64, batch.position - from));
            }
        }
    }
    found
}

#[test]
fn an_interval_costs_what_kafkas_own_files_cost() {
    let path = fixtures().join("data/segments-0");
    let told = object(&["-o", "index.interval.bytes=256"], &path);
    let len = |suffix: &str| {
        let files = fs::read_dir(&path).expect("a folder").map(|e| e.expect("an entry"));
        files.filter(|e| e.file_name().to_string_lossy().ends_with(suffix)).map(|e| e.metadata().expect("a file").len()).sum::<u64>()
    };
    let (offset_entries, time_entries) = (len(".index") / 8, len(".timeindex") / 12);
    assert!(offset_entries >= 100, "{offset_entries} entries");
    let intervals = told["intervals"].as_array().expect("a list");
    assert_eq!(intervals.iter().map(|i| number(&i["interval_bytes"])).collect::<Vec<_>>(), [128, 256, 512]);
    let now = &intervals[1];
    assert_eq!((number(&now["offset_entries"]), number(&now["time_entries"])), (offset_entries, time_entries));
    assert_eq!(number(&now["index_bytes"]), len(".index") + len(".timeindex"));
    assert_eq!((number(&told["index"]["offset_entries"]), number(&told["index"]["time_entries"])), (offset_entries, time_entries));
    let found = look_ups(&path);
    let mean = |of: fn(&(u64, u64)) -> u64| found.iter().map(of).sum::<u64>() as f64 / found.len() as f64;
    let most = |of: fn(&(u64, u64)) -> u64| found.iter().map(of).max().expect("records");
    for (kind, of) in [("headers_read", (|f| f.0) as fn(&(u64, u64)) -> u64), ("bytes_passed", |f| f.1)] {
        let said = now[format!("{kind}_mean")].as_f64().expect("a number");
        assert!((said - mean(of)).abs() < 1e-9, "{kind}: {said}, counted {}", mean(of));
        assert_eq!(number(&now[format!("{kind}_most")]), most(of), "{kind}");
    }
    // Half costs entries and saves headers; twice the other way round.
    let entries = |i: &Value| number(&i["offset_entries"]);
    let headers = |i: &Value| i["headers_read_mean"].as_f64().expect("a number");
    assert!(entries(&intervals[0]) >= entries(now) && entries(now) > entries(&intervals[2]));
    assert!(headers(&intervals[0]) <= headers(now) && headers(now) < headers(&intervals[2]));
}

/// Batches of one size and one record each: every figure can be told beforehand.
#[test]
fn the_text_says_what_another_interval_would_change() {
    let dir = PartitionDir::new("even-0");
    let batch = |n| Batch::new(n, vec![Record::new(0, T0 + n, None, Some(b"value"))]).encode();
    let log: Vec<u8> = (0..100).flat_map(batch).collect();
    let size = log.len() as u64 / 100;
    let (index, timeindex) = indexes(0, &log, 4096);
    dir.segment(0, &log, &index, &timeindex);
    // An entry at every batch but the first, at every second one, at every fourth.
    let interval = 2 * size - 1;
    let told = object(&["-o", &format!("index.interval.bytes={interval}")], dir.path());
    let of = |at: usize, member: &str| told["intervals"][at][member].clone();
    assert_eq!([0, 1, 2].map(|at| number(&of(at, "offset_entries"))), [99, 49, 24]);
    assert_eq!([0, 1, 2].map(|at| number(&of(at, "headers_read_most"))), [1, 2, 4]);
    assert_eq!([0, 1, 2].map(|at| of(at, "headers_read_mean").as_f64().expect("a number")), [1.0, 1.5, 2.5]);
    let text = printed(&["-o", &format!("index.interval.bytes={interval}")], dir.path());
    let said = |words: &str| assert!(text.contains(words), "{words}: {text}");
    said("even-0\nsegments: 1\nbatches: 100, 0 of them control batches; ");
    said(&format!("half the interval ({})", interval / 2));
    said("-0.50 headers a look-up (-33 %)");
    said("+1.00 headers a look-up (+67 %)");
    said("record, bytes");
    // Where every batch is larger than the interval, a smaller one gains nothing.
    let text = printed(&["-o", "index.interval.bytes=10"], dir.path());
    assert!(text.contains("half the interval (5) changes nothing on this log"), "{text}");
}

#[test]
fn damage_is_left_out_and_told() {
    let dir = PartitionDir::new("demo-0");
    let batches = [Batch::plain(0, 5, T0).encode(), Batch::plain(5, 5, T0 + 1).encode(), Batch::plain(10, 5, T0 + 2).encode()];
    let mut log = batches.concat();
    log[batches[0].len() + 70] ^= 1;
    dir.segment(0, &log, &[], &[]);
    dir.segment(15, &Batch::plain(15, 5, T0 + 3).encode(), &[], &[]);
    let told = object(&[], dir.path());
    assert_eq!(["batches", "records", "unreadable"].map(|m| number(&told[m])), [3, 15, 1]);
    assert!(printed(&[], dir.path()).contains("because they cannot be read: 1 (offsetfs check tells which)"), "it is said");
    let output = stat(&[], &dir.path().join("none"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    // A path of the tree has no sizes.
    assert_eq!(stat(&["--json"], dir.path()).status.code(), Some(0));
    let with_a_path = Command::new(env!("CARGO_BIN_EXE_offsetfs")).args(["stat", "--sizes"]).arg(dir.path()).arg("status").output();
    assert_eq!(with_a_path.expect("offsetfs can be started").status.code(), Some(2));
}
