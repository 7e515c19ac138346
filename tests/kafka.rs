//! A real Kafka judges: the bytes of the tests' own encoder, what `offsetfs` appends, and what it reads of generated directories.
//!
//! Runs under `OFFSETFS_TEST_KAFKA=1` only. `tests/kafka/kafka.sh` fetches Apache Kafka 4.3.1 and runs its dump tool, which checks each
//! batch's CRC, decodes each record, and compares the indexes with the log; a JVM with its log layer (`Judge.java`); and a whole broker.
//! `OFFSETFS_DIFFERENTIAL` says how many generated directories are tried (300), `OFFSETFS_CLEANING` how many generated logs are compacted (25),
//! `OFFSETFS_TEST_SEED` with which seed it begins (the time).

#[path = "kafka/broker.rs"]
mod broker;
#[path = "kafka/build.rs"]
mod build;
#[path = "kafka/cleaning.rs"]
mod cleaning;
#[path = "kafka/differences.rs"]
mod differences;
#[path = "kafka/differential.rs"]
mod differential;
#[path = "kafka/dump.rs"]
mod dump;
#[path = "common/encode.rs"]
mod encode;
#[path = "kafka/fidelity.rs"]
mod fidelity;
#[path = "kafka/folder.rs"]
mod folder;
#[path = "kafka/judge.rs"]
mod judge;
#[path = "kafka/keyed.rs"]
mod keyed;
#[path = "common/on_request.rs"]
mod on_request;
#[path = "kafka/ours.rs"]
mod ours;
#[path = "kafka/plans.rs"]
mod plans;
#[path = "kafka/seeds.rs"]
mod seeds;

use encode::{Batch, Codec, Record, indexes, message, offset_index, time_index, wrapper};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    on_request::run(
        "OFFSETFS_TEST_KAFKA",
        "a JDK 17, and for the first run Maven and the network",
        &[
            ("kafka_accepts_every_batch_of_the_encoder", kafka_accepts_every_batch_of_the_encoder),
            ("kafka_accepts_every_message_of_the_encoder", kafka_accepts_every_message_of_the_encoder),
            ("kafka_complains_of_damage", kafka_complains_of_damage),
            ("kafka_accepts_what_offsetfs_appends", kafka_accepts_what_offsetfs_appends),
            ("each_listed_difference_is_there", differences::each_listed_difference_is_there),
            ("we_read_what_kafka_reads", differential::we_read_what_kafka_reads),
            ("we_clean_as_kafka_does", cleaning::we_clean_as_kafka_does),
            ("a_broker_serves_what_we_wrote", broker::a_broker_serves_what_we_wrote),
            ("what_we_append_is_kafkas_to_the_byte", fidelity::what_we_append_is_kafkas_to_the_byte),
            ("dump_shows_what_kafkas_own_tool_shows", dump::dump_shows_what_kafkas_own_tool_shows),
            ("dump_decodes_kafkas_own_topics_as_kafka_does", dump::dump_decodes_kafkas_own_topics_as_kafka_does),
        ],
    )
}

/// Dumps files with Kafka's own tool; gives its output, its errors and its exit status.
///
/// # Panics
/// Where Kafka cannot be run at all.
fn kafka_dump(files: &[PathBuf]) -> (String, String, i32) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/kafka.sh");
    let output = Command::new(script).arg("dump").args(files).output().expect("kafka.sh can be started");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let status = output.status.code().unwrap_or(-1);
    assert!(!stderr.contains("kafka.sh:") && status != 127, "Kafka was asked for and cannot run: {stderr}");
    (stdout, stderr, status)
}

/// All files of a partition directory that the dump tool knows, in order.
fn dumpable(partition: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(partition).expect("the directory can be listed");
    let known = |path: &PathBuf| {
        path.extension().is_some_and(|suffix| ["log", "index", "timeindex", "txnindex"].iter().any(|known| suffix == *known))
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).filter(known).collect();
    files.sort();
    files
}

/// What Kafka finds wrong, a line each. That a file does not begin at offset 0 is not wrong: the tool says so of every other one.
fn complaints((stdout, stderr, status): &(String, String, i32)) -> Vec<String> {
    let harmless = |line: &&str| line.trim_start().starts_with("-1 is followed by ") || line.starts_with("Non-consecutive offsets in ");
    let invalid = |line: &&str| line.to_lowercase().contains("isvalid: false") || line.contains("invalid bytes");
    let mut found: Vec<String> = stderr.lines().filter(|line| !harmless(line)).map(str::to_owned).collect();
    found.extend(stdout.lines().filter(invalid).map(str::to_owned));
    if *status != 0 {
        found.push(format!("exit status {status}"));
    }
    found
}

/// How many records the dump shows.
fn records((stdout, _, _): &(String, String, i32)) -> usize {
    stdout.lines().filter(|line| line.starts_with("| offset: ")).count()
}

/// Writes one segment and lets Kafka judge it.
fn judged(base_offset: i64, log: &[u8], index: &[u8], timeindex: &[u8]) -> (String, String, i32) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (suffix, bytes) in [("log", log), ("index", index), ("timeindex", timeindex)] {
        fs::write(folder.path().join(format!("{base_offset:020}.{suffix}")), bytes).expect("the file can be written");
    }
    kafka_dump(&dumpable(folder.path()))
}

const T0: i64 = 1_700_000_000_000;

/// A log with a batch of every kind, from offset 100 on.
fn every_batch() -> Vec<u8> {
    let mut log = Vec::new();
    let mut offset = 100;
    let mut put = |batch: Batch, count: i64| {
        log.extend(batch.encode());
        offset += count;
        offset
    };
    let mut next = put(Batch::plain(100, 5, T0), 5);
    for codec in Codec::ALL.into_iter().filter(|codec| *codec != Codec::Lz4OfMagic0) {
        next = put(Batch { codec, ..Batch::plain(next, 4, T0 + next * 1000) }, 4);
    }
    let odd = vec![
        Record::new(0, T0, None, None).header(b"h", None).header(b"h", Some(b"")).header(b"", Some(b"x")),
        Record::new(1, T0 - 5, Some(b""), Some(b"")),
        Record::new(2, T0, Some(b"key"), Some(b"a\nb\xFF")),
    ];
    next = put(Batch::new(next, odd), 3);
    let append_time = Batch { attributes: Batch::LOG_APPEND_TIME, max_timestamp: Some(T0 + 1), ..Batch::plain(next, 1, T0) };
    next = put(append_time, 1);
    let horizon = Batch { attributes: Batch::DELETE_HORIZON, base_timestamp: Some(T0 + 86_400_000), ..Batch::plain(next, 1, T0) };
    next = put(horizon, 1);
    let transaction =
        Batch { attributes: Batch::TRANSACTIONAL, producer_id: 7, producer_epoch: 0, base_sequence: 0, ..Batch::plain(next, 2, T0) };
    next = put(transaction, 2);
    next = put(Batch::end_of_transaction(next, 7, 0, T0, true), 1);
    assert_eq!(put(Batch::end_of_transaction(next, 8, 0, T0, false), 1) - 100, RECORDS as i64);
    log
}

/// How many records [`every_batch`] has.
const RECORDS: usize = 46;

fn kafka_accepts_every_batch_of_the_encoder() {
    let log = every_batch();
    let (index, timeindex) = indexes(100, &log, 200);
    assert!(index.len() >= 40, "{} bytes are too few entries to tell", index.len());
    let dump = judged(100, &log, &index, &timeindex);
    assert_eq!(complaints(&dump), Vec::<String>::new());
    assert_eq!(records(&dump), RECORDS);
    for word in ["gzip", "snappy", "lz4", "zstd", "LogAppendTime", "endTxnMarker: COMMIT", "endTxnMarker: ABORT", "headerKeys: [h,h,]"] {
        assert!(dump.0.contains(word), "{word} is not in\n{}", dump.0);
    }
}

fn kafka_accepts_every_message_of_the_encoder() {
    let mut log = [message(0, 0, 0, -1, Some(b"k"), Some(b"zero")), message(1, 0, 0, -1, None, None)].concat();
    let mut offset = 2;
    for (magic, codecs) in
        [(0, [Codec::Gzip, Codec::SnappyStream, Codec::Lz4OfMagic0]), (1, [Codec::Gzip, Codec::SnappyStream, Codec::Lz4])]
    {
        for codec in codecs {
            let first = if magic == 0 { offset } else { 0 };
            let inner: Vec<u8> = (0..3).flat_map(|n| message(first + n, magic, 0, T0 + n, Some(b"k"), Some(b"inner"))).collect();
            log.extend(wrapper(offset + 2, magic, codec, T0 + 2, &inner));
            offset += 3;
        }
    }
    log.extend(message(offset, 1, 8, T0, None, Some(b"one")));
    let dump = judged(0, &log, &offset_index(0, &[]), &time_index(0, &[(T0 + 2, 13)]));
    assert_eq!(complaints(&dump), Vec::<String>::new());
    assert_eq!(dump.0.matches("inner").count(), 18, "{}", dump.0);
}

fn kafka_complains_of_damage() {
    let log = every_batch();
    let (index, timeindex) = indexes(100, &log, 200);
    assert!(complaints(&judged(100, &log, &index, &timeindex)).is_empty());
    let mut flipped = log.clone();
    flipped[75] ^= 1;
    let torn = &log[..log.len() - 1];
    let (other_index, other_timeindex) = indexes(100, &log[..2 * log.len() / 3], 100);
    let moved: Vec<u8> = index.chunks(8).flat_map(|entry| [&entry[..7], &[entry[7] ^ 1]].concat()).collect();
    let later: Vec<u8> = timeindex.chunks(12).flat_map(|entry| [&entry[..7], &[entry[7] ^ 1], &entry[8..]].concat()).collect();
    for (what, log, index, timeindex) in [
        ("a flipped bit in a value", &flipped[..], &index, &timeindex),
        ("a torn tail", torn, &other_index, &other_timeindex),
        ("positions inside batches", &log, &moved, &timeindex),
        ("times that no record has", &log, &index, &later),
    ] {
        assert!(!complaints(&judged(100, log, index, timeindex)).is_empty(), "{what} was accepted");
    }
}

fn kafka_accepts_what_offsetfs_appends() {
    let lines: String = (1..=20_000).map(|n| format!("line {n}\n")).collect();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let partition = folder.path().join("appended-0");
        let mut child = Command::new(env!("CARGO_BIN_EXE_offsetfs"))
            .args(["append", "--create", "-o"])
            .arg(format!("compression.type={codec},segment.bytes=100000,index.interval.bytes=4096"))
            .arg(&partition)
            .stdin(Stdio::piped())
            .spawn()
            .expect("offsetfs can be started");
        child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("offsetfs reads all lines");
        assert!(child.wait().expect("offsetfs ends").success(), "{codec}");
        let files = dumpable(&partition);
        let dump = kafka_dump(&files);
        assert_eq!(complaints(&dump), Vec::<String>::new(), "{codec}");
        assert_eq!(records(&dump), 20_000, "{codec}");
        assert!(dump.0.contains(&format!("compresscodec: {codec}")) && dump.0.contains("payload: line 20000\n"), "{codec}");
        let indexed = files.iter().filter(|path| path.extension().is_some_and(|suffix| suffix == "index"));
        assert!(indexed.map(|path| fs::metadata(path).expect("the index").len()).sum::<u64>() > 0, "{codec}: no index entry was judged");
    }
}
