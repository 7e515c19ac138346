//! `offsetfs dump`: ranges, JSON, decoded topics, and damage in its place. That the lines equal Kafka's is the matter of `tests/kafka`.

use clap::Parser;
use offsetfs::cli::dump::{self, DumpArgs};
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

mod common;

use common::encode::{Batch, Codec, indexes, message, wrapper};
use common::fixtures::fixtures;
use common::partition::PartitionDir;

const T0: i64 = 1_700_000_000_000;

#[derive(Parser)]
struct Dump {
    #[command(flatten)]
    args: DumpArgs,
}

fn parsed(words: &[&str]) -> Result<DumpArgs, clap::Error> {
    Dump::try_parse_from([&["dump"], words].concat()).map(|dump| dump.args)
}

/// What is shown and said, and the exit code.
fn shown(words: &[&str]) -> (String, String, u8) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = dump::run(&parsed(words).expect("the words are right"), &mut out, &mut err).expect("a buffer can be written to");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(out), text(err), code)
}

/// The offsets of the records in a text.
fn offsets(text: &str) -> Vec<i64> {
    let records = text.lines().filter_map(|line| line.strip_prefix("| offset: "));
    records.map(|line| line.split(' ').next().and_then(|number| number.parse().ok()).expect("an offset")).collect()
}

fn json(words: &[&str]) -> Vec<Value> {
    let (out, err, _) = shown(&[&["--json"], words].concat());
    assert_eq!(err, "");
    out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The first segment of one of the broker's partitions.
fn log(partition: &str) -> String {
    path(&fixtures().join("data").join(partition).join("00000000000000000000.log")).to_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A segment of six batches of five records each, from offset 100, in each with times a second apart.
fn six_batches(change: impl FnOnce(&mut Vec<u8>, &[usize])) -> (PartitionDir, PathBuf) {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for n in 0..6 {
        places.push(bytes.len());
        bytes.extend(Batch::plain(100 + n * 5, 5, T0 + n * 5).encode());
    }
    let (index, timeindex) = indexes(100, &bytes, 10);
    change(&mut bytes, &places);
    let dir = PartitionDir::new("six-0");
    dir.segment(100, &bytes, &index, &timeindex);
    let log = dir.path().join("00000000000000000100.log");
    (dir, log)
}

#[test]
fn ranges_choose_records_and_the_batches_that_have_some() {
    for (range, first, last) in
        [("3..5", 3, 4), ("3..=5", 3, 5), ("7", 7, 7), ("last", 99, 99), ("-3..", 97, 99), ("first..=1", 0, 1), ("earliest..2", 0, 1)]
    {
        for partition in ["codec-gzip-0", "codec-none-0"] {
            let end = offsets(&shown(&[&log(partition)]).0).last().copied().expect("records");
            let from_end = |offset: i64| if range.contains("last") || range.starts_with('-') { offset - 99 + end } else { offset };
            let (out, err, code) = shown(&["--offsets", range, &log(partition)]);
            assert_eq!((err.as_str(), code), ("", dump::EXIT_SOUND));
            assert_eq!(offsets(&out), (from_end(first)..=from_end(last)).collect::<Vec<_>>(), "{range} {partition}");
            assert_eq!(out.matches("baseOffset: ").count(), 1, "{range} {partition}");
        }
    }
    for nonsense in ["", "..", "x..", "5..9.jsonl", "5.key", "05.."] {
        assert!(parsed(&["--offsets", nonsense, "f.log"]).is_err(), "{nonsense}");
    }
}

#[test]
fn the_records_of_wrappers_are_counted_from_the_end_too() {
    let inner: Vec<u8> = (0..3).flat_map(|n| message(n, 1, 0, T0 + n, Some(b"k"), Some(b"v"))).collect();
    let bytes = [message(0, 1, 0, T0, None, Some(b"v")), wrapper(3, 1, Codec::Gzip, T0 + 2, &inner)].concat();
    let dir = PartitionDir::new("old-0");
    dir.file("00000000000000000000.log", &bytes);
    let log = dir.path().join("00000000000000000000.log");
    for (range, expected) in [("-2..", vec![2, 3]), ("-4..", vec![0, 1, 2, 3]), ("-9..", vec![0, 1, 2, 3]), ("last", vec![3])] {
        assert_eq!(offsets(&shown(&["--offsets", range, path(&log)]).0), expected, "{range}");
    }
}

#[test]
fn times_choose_records_and_time_index_entries() {
    let (_dir, log) = six_batches(|_, _| ());
    let range = "2023-11-14T22:13:23Z..2023-11-14T22:13:24.010Z";
    assert_eq!(offsets(&shown(&["--times", range, path(&log)]).0), [103, 104, 108, 109, 113, 118, 123, 128]);
    let timeindex = log.with_extension("timeindex");
    let all = shown(&[path(&timeindex)]).0.lines().count();
    let (out, _, code) = shown(&["--times", range, path(&timeindex)]);
    assert!(code == dump::EXIT_SOUND && out.lines().count() < all, "{out}");
    for nonsense in ["", "..", "now", "1h-ago", "soon..", "now...jsonl"] {
        assert!(parsed(&["--times", nonsense, "f.log"]).is_err(), "{nonsense}");
    }
}

#[test]
fn damage_stands_in_its_place_and_the_rest_follows() {
    let (_dir, sound) = six_batches(|_, _| ());
    let (whole, err, code) = shown(&[path(&sound)]);
    assert_eq!((err.as_str(), code, offsets(&whole).len()), ("", dump::EXIT_SOUND, 30));
    type Change = fn(&mut Vec<u8>, &[usize]);
    let cases: [(&str, Change, &str); 6] = [
        ("a negative size", |log, at| log[at[2] + 8] = 0xFF, "damage: position: "),
        ("a size beyond the file", |log, at| log[at[2] + 8] = 0x7F, "damage: position: "),
        ("a size that is a little wrong", |log, at| log[at[2] + 11] ^= 4, "isvalid: false"),
        ("a length in a record", |log, at| log[at[2] + 61] = 0x7F, "| damage: position: "),
        ("a magic that does not exist", |log, at| log[at[2] + 16] = 9, "damage: position: "),
        ("two sizes", |log, at| (log[at[1] + 8], log[at[3] + 8]) = (0xFF, 0xFF), "damage: position: "),
    ];
    for (what, change, line) in cases {
        let (_dir, log) = six_batches(change);
        let (out, _, code) = shown(&[path(&log)]);
        assert_eq!(code, dump::EXIT_DAMAGED, "{what}");
        assert!(out.contains(line), "{what}: {out}");
        let found = offsets(&out);
        let lost: Vec<i64> = (100..130).filter(|offset| !found.contains(offset)).collect();
        assert!(lost.iter().all(|offset| (105..120).contains(offset)) && found.is_sorted(), "{what}: {lost:?} are lost\n{out}");
        assert!(found.contains(&129) && found.contains(&104), "{what}");
    }
}

#[test]
fn a_flipped_bit_is_shown_as_kafka_shows_it() {
    let (_dir, log) = six_batches(|log, at| log[at[3] - 2] ^= 1);
    let (out, _, code) = shown(&[path(&log)]);
    assert_eq!((code, out.matches("isvalid: false").count(), offsets(&out).len()), (dump::EXIT_DAMAGED, 1, 30));
}

#[test]
fn what_a_stopped_writer_leaves_is_no_damage() {
    type Change = fn(&mut Vec<u8>, &[usize]);
    for (what, change) in [("a torn batch", (|log, at| log.truncate(at[5] + 40)) as Change), ("zeros", |log, _| log.extend([0; 5000]))] {
        let (dir, log) = six_batches(change);
        let (out, _, code) = shown(&[path(&log)]);
        assert!(out.contains("invalid bytes at the end of 00000000000000000100.log"), "{what}");
        assert_eq!(code, dump::EXIT_SOUND, "{what}");
        dir.file("00000000000000000200.log", b"");
        assert_eq!(shown(&[path(&log)]).2, dump::EXIT_DAMAGED, "{what} in a segment that is not the last");
    }
}

#[test]
fn indexes_are_compared_with_their_log() {
    let (dir, log) = six_batches(|_, _| ());
    let index = log.with_extension("index");
    assert_eq!(shown(&[path(&index), path(&log.with_extension("timeindex"))]).2, dump::EXIT_SOUND);
    let mut bytes = fs::read(&index).expect("the index");
    bytes[3] ^= 1;
    dir.file("00000000000000000100.index", &bytes);
    let (out, err, code) = shown(&[path(&index)]);
    assert!(err.starts_with("Mismatches in :/") && err.contains("\n  Index offset: ") && out.lines().count() > 2, "{err}");
    assert_eq!(code, dump::EXIT_DAMAGED);
    bytes[7] ^= 1;
    dir.file("00000000000000000100.index", &bytes);
    let (out, _, code) = shown(&[path(&index)]);
    assert!(out.contains("\ndamage: position: 0 expected: the position of a batch found: no whole batch at"), "{out}");
    assert_eq!(code, dump::EXIT_DAMAGED);
}

#[test]
fn snapshots_and_checkpoints_tell_their_damage() {
    let dir = PartitionDir::new("state-0");
    for (name, bytes, expected, code) in [
        ("leader-epoch-checkpoint", &b"0\n2\n0 0\n3 17\n"[..], "epoch: 0 startOffset: 0\nepoch: 3 startOffset: 17\n", dump::EXIT_SOUND),
        ("leader-epoch-checkpoint", b"0\n3\n0 0\nx 1\n2 2\n", "damage: position: 8 expected: an entry found: `x 1`\n", dump::EXIT_DAMAGED),
        ("leader-epoch-checkpoint", b"0\n5\n0 0\n", "expected: 5 entries found: 1\n", dump::EXIT_DAMAGED),
        ("recovery-point-offset-checkpoint", b"0\n1\na-b 7 12\n", "topic: a-b partition: 7 offset: 12\n", dump::EXIT_SOUND),
        ("00000000000000000009.snapshot", b"\0\x01\x48\x67\x4B\xC7\0\0\0\0", "", dump::EXIT_SOUND),
        ("00000000000000000009.snapshot", b"\0\x01\x48\x67\x4B\xC8\0\0\0\0", "expected: CRC-32C 0x48674bc7", dump::EXIT_DAMAGED),
        ("00000000000000000009.snapshot", b"\0\x01", "expected: a snapshot of at least 10 bytes", dump::EXIT_DAMAGED),
        ("00000000000000000009.txnindex", &[0; 35], "Found 1 invalid bytes at the end of", dump::EXIT_SOUND),
    ] {
        dir.file(name, bytes);
        let (out, _, found) = shown(&[path(&dir.path().join(name))]);
        assert!(out.contains(expected), "{name}: {out}");
        assert_eq!(found, code, "{name} {out}");
    }
}

#[test]
fn json_has_a_line_for_each_thing() {
    let lines = json(&[&log("txn-0"), &log("orders-0")]);
    let of_kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!(of_kind("file"), 2);
    let (text, _, _) = shown(&[&log("txn-0"), &log("orders-0")]);
    assert_eq!((of_kind("batch"), of_kind("record")), (text.matches("\nbaseOffset: ").count(), offsets(&text).len()));
    let order = lines.iter().rfind(|line| line["kind"] == "record").expect("a record");
    assert_eq!((order["topic"].as_str(), order["partition"].as_i64()), (Some("orders"), Some(0)));
    assert!(order["payload"].as_str().is_some_and(|payload| payload.starts_with('{')) && order["sequence"].is_i64(), "{order}");
    let (_dir, damaged) = six_batches(|log, at| log[at[2] + 8] = 0xFF);
    let damage = json(&[path(&damaged)]).into_iter().find(|line| line["kind"] == "damage").expect("damage");
    assert_eq!((damage["firstOffset"].as_i64(), damage["lastOffset"].as_i64()), (Some(110), Some(114)), "{damage}");
}

#[test]
fn kafkas_own_topics_are_decoded() {
    let lines = json(&[&log("__consumer_offsets-1")]);
    let commit = lines.iter().find(|line| line["decoded_key"]["type"] == 1).expect("a commit");
    assert_eq!(commit["decoded_key"]["data"]["topic"], "orders");
    assert_eq!(commit["decoded_payload"]["data"]["offset"], 100);
    let (text, _, _) = shown(&["--decode", "offsets", &log("orders-0")]);
    assert!(text.contains("data_b64") && text.contains("\"type\":"), "records of another topic are shown in base64");
    assert_eq!(shown(&["--decode", "auto", &log("orders-0")]), shown(&[&log("orders-0")]));
}

#[test]
fn the_exit_code_tells_a_file_that_cannot_be_read() {
    let (out, err, code) = shown(&["/nowhere/00000000000000000000.log", &log("orders-0")]);
    assert!(err.starts_with("offsetfs: open /nowhere/") && offsets(&out).len() > 10, "{err}");
    assert_eq!(code, dump::EXIT_UNREADABLE);
}

/// Takes so many bytes in pieces, then is closed like a pipe.
struct Closing {
    pieces: Vec<usize>,
    left: usize,
}

impl Write for Closing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        self.pieces.push(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn output_goes_in_whole_pages_the_first_one_early_and_a_closed_pipe_ends_it_quietly() {
    let args = parsed(&[&log("segments-0"), &log("codec-none-0")]).expect("the words are right");
    let mut out = Closing { pieces: Vec::new(), left: usize::MAX };
    let mut err = Vec::new();
    assert_eq!(dump::run(&args, &mut out, &mut err).expect("it ends"), dump::EXIT_SOUND);
    let (last, pages) = out.pieces.split_last().expect("output");
    assert!(pages.iter().all(|piece| piece % 4096 == 0) && pages[0] == 4096 && *last > 0, "{:?}", out.pieces);
    let mut closing = Closing { pieces: Vec::new(), left: 5000 };
    assert_eq!(dump::run(&args, &mut closing, &mut err).expect("it ends"), dump::EXIT_SOUND);
    assert_eq!((closing.pieces.as_slice(), err.as_slice()), (&[4096][..], &b""[..]));
}
