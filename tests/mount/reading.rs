//! What is read: records, ranges, times, segments, decoded segments, a data directory.

use super::common::encode::{Batch, Record, indexes};
use super::common::partition::PartitionDir;
use super::mounted::Mounted;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

/// 2023-11-14T22:13:20Z, in ms.
const T0: i64 = 1_700_000_000_000;

/// Offsets 0 to 4 and 10 to 12 (compaction took those between), a second apart.
fn with_a_gap() -> PartitionDir {
    let dir = PartitionDir::new("demo-0");
    let log = [Batch::plain(0, 5, T0).encode(), Batch::plain(10, 3, T0 + 10_000).encode()].concat();
    let (index, timeindex) = indexes(0, &log, 4096);
    dir.segment(0, &log, &index, &timeindex);
    dir
}

#[test]
fn ranges_skip_gaps_and_count_records() {
    let dir = with_a_gap();
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    for (range, values) in [
        ("0..2", "v0\nv1\n"),
        ("1..=2", "v1\nv2\n"),
        ("4..11", "v4\nv10\n"),
        ("5..10", ""),
        ("3..3", ""),
        ("4..2", ""),
        ("..2", "v0\nv1\n"),
        ("..=0", "v0\n"),
        ("11..", "v11\nv12\n"),
        ("-4..", "v4\nv10\nv11\nv12\n"),
        ("-4..-2", "v4\nv10\n"),
        ("-100..1", "v0\n"),
        ("earliest..2", "v0\nv1\n"),
        ("oldest..2", "v0\nv1\n"),
        ("beginning..start", ""),
        ("first..=first", "v0\n"),
        ("last..latest", "v12\n"),
        ("last..end", "v12\n"),
        ("12..newest", "v12\n"),
        ("13..99", ""),
        ("100..", ""),
    ] {
        assert_eq!(m.text(&format!("by-offset/{range}")), values, "{range}");
        assert_eq!(fs::metadata(m.at(&format!("by-offset/{range}"))).expect(range).len(), values.len() as u64, "size of {range}");
    }
    let json = [10, 11, 12].map(|n| m.text(&format!("by-offset/{n}.json"))).concat();
    for range in ["-3..jsonl", "-3...jsonl", "-3..latest.jsonl", "10..13.jsonl", "10..=12.jsonl", "5..jsonl"] {
        assert_eq!(m.text(&format!("by-offset/{range}")), json, "{range}");
    }
    for (name, value) in [("first", "v0"), ("last", "v12"), ("-1", "v12"), ("-4", "v4"), ("first.key", "k0"), ("-3.key", "k0")] {
        assert_eq!(m.text(&format!("by-offset/{name}")), value, "{name}");
    }
    assert_eq!(fs::read_link(m.at("by-offset/-4.json")).expect("a link").to_str(), Some("4.json"));
    assert_eq!(m.sh("ls by-offset | sort | tr '\\n' ' '"), "0 1 10 11 12 2 3 4 first last ");
    for missing in ["5", "9", "13", "-9", "5.json", "7.key"] {
        assert!(!m.at(&format!("by-offset/{missing}")).exists(), "{missing}");
    }
}

#[test]
fn a_time_leads_to_the_first_record_at_or_after_it() {
    let dir = with_a_gap();
    let m = Mounted::new(dir.path(), &["-o", "ro,tz=+01:00"]);
    for (time, offset) in [
        ("2023-11-14T22:13:20Z", "0"),
        ("2023-11-14_22-13-22Z", "2"),
        ("2023-11-14T22:13:21.001Z", "2"),
        ("2023-11-14T23:13:23", "3"),
        ("2023-11-14T23:13", "0"),
        ("2023-11-15T03:43:24+05:30", "4"),
        ("2023-11-14", "0"),
        ("@1700000004", "4"),
        ("1700000004", "4"),
        ("1700000004001", "10"),
        ("9999d-ago", "0"),
        ("P9999D-ago", "0"),
    ] {
        let link = fs::read_link(m.at(&format!("by-time/{time}"))).unwrap_or_else(|error| panic!("{time}: {error}"));
        assert_eq!(link.to_str(), Some(format!("../by-offset/{offset}").as_str()), "{time}");
        assert_eq!(m.text(&format!("by-time/{time}")), format!("v{offset}"), "{time}");
    }
    for (range, values) in [
        ("@1700000002..@1700000004", "v2\nv3\n"),
        ("@1700000011..", "v11\nv12\n"),
        ("..2023-11-14T22:13:21Z", "v0\n"),
        ("@1700000005..@1700000010", ""),
        ("now..", ""),
        ("2023-11-14..2023-11-16", "v0\nv1\nv2\nv3\nv4\nv10\nv11\nv12\n"),
    ] {
        assert_eq!(m.text(&format!("by-time/{range}")), values, "{range}");
    }
    assert_eq!(m.sh("wc -l < by-time/@1700000002..now.jsonl"), "6\n");
    assert!(!m.at("by-time/now").exists() && !m.at("by-time/today").exists());
    assert_eq!(m.sh("ls by-time"), "2023-11-14\n", "the days that have records in the mount's zone");
}

#[test]
fn a_record_file_has_the_size_and_the_time_of_its_record() {
    let dir = with_a_gap();
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    let metadata = fs::metadata(m.at("by-offset/10")).expect("a record");
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (3, 0o444));
    assert_eq!(metadata.modified().expect("a time"), UNIX_EPOCH + Duration::from_millis((T0 + 10_000) as u64));
    assert_eq!(
        m.sh("find by-offset -type f -newermt '2023-11-14 22:13:23Z' | sort -V | xargs"),
        "by-offset/4 by-offset/10 by-offset/11 by-offset/12\n"
    );
    assert_eq!(fs::read(m.at("by-offset/11.batch")).expect("its batch"), Batch::plain(10, 3, T0 + 10_000).encode());
    let original = fs::metadata(dir.path()).expect("the source");
    assert_eq!((metadata.uid(), metadata.gid()), (original.uid(), original.gid()));
}

#[test]
fn segments_are_the_real_files() {
    let dir = with_a_gap();
    dir.file("partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n");
    dir.file("leader-epoch-checkpoint", b"0\n1\n0 0\n");
    for options in ["ro", "ro,passthrough=off"] {
        let m = Mounted::new(dir.path(), &["-o", options]);
        m.sh(&format!("diff -r segments '{}'", dir.path().display()));
        m.sh("dd if=segments/00000000000000000000.log bs=1 skip=16 count=1 status=none | od -An -tu1 | grep -qx '   2'");
    }
}

#[test]
fn decoded_segments_are_followed_over_a_roll() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let m = Mounted::new(&dir.path().join("demo-0"), &["--create", "-o", "segment.bytes=3000"]);
    m.sh("seq 10 > append");
    let mut tail = Command::new("tail");
    tail.args(["-n", "2", "-s", "0.05", "-F"]).arg(m.at("decoded/active.txt")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tail = tail.spawn().expect("tail can be started");
    let mut lines = BufReader::new(tail.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("tail goes on").expect("a line");
    assert_eq!((next(), next()), ("9".to_owned(), "10".to_owned()));
    for n in 11..=60 {
        m.sh(&format!("echo {n} > append"));
        assert_eq!(next(), n.to_string());
    }
    tail.kill().expect("tail is there");
    tail.wait().expect("tail ends");
    assert!(m.sh("ls decoded/*.txt | wc -l").trim() > "1", "it rolled");
    assert_eq!(m.sh("cat decoded/0*.txt | md5sum"), m.sh("cat by-offset/earliest..latest | md5sum"));
    assert_eq!(m.sh("cat decoded/0*.jsonl | md5sum"), m.sh("cat by-offset/earliest..latest.jsonl | md5sum"));
    for active in ["decoded/active.txt", "decoded/active.jsonl"] {
        assert_eq!(fs::metadata(m.at(active)).expect(active).len(), m.text(active).len() as u64, "{active} has its true size");
    }
}

#[test]
fn a_follower_gets_what_comes_and_nothing_older() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let m = Mounted::new(&dir.path().join("demo-0"), &["--create", "-o", "segment.bytes=500"]);
    m.sh("seq 10 > append");
    let mut follow = BufReader::new(File::open(m.at("follow")).expect("follow"));
    let mut json = BufReader::new(File::open(m.at("follow.jsonl")).expect("follow.jsonl"));
    let mut append = File::options().append(true).open(m.at("append")).expect("append");
    for n in 11..200 {
        writeln!(append, "{n}").expect("a write");
        let mut line = String::new();
        follow.read_line(&mut line).expect("a record");
        assert_eq!(line, format!("{n}\n"));
    }
    let mut line = String::new();
    json.read_line(&mut line).expect("a record");
    assert!(line.contains("\"offset\":10,") && line.ends_with("\"payload\":\"11\"}\n"), "{line}");
    assert!(!m.sh("ls").contains("follow"), "it is not listed, or grep -r would hang");
    assert_eq!(
        m.sh("grep -rl '^199$' by-offset by-time decoded"),
        "by-offset/198\ndecoded/LAST\n".replace("LAST", m.sh("readlink decoded/active.txt").trim())
    );
}

#[test]
fn a_data_directory_is_a_tree_of_topics() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let partition = |name: &str, base: i64| {
        let dir = data.path().join(name);
        fs::create_dir(&dir).expect("a new folder");
        let log = Batch::plain(base, 3, T0 + base * 1000).encode();
        fs::write(dir.join(format!("{base:020}.log")), log).expect("a file");
    };
    for (name, base) in [("orders-0", 0), ("orders-1", 100), ("a-b-7", 7), ("status-0", 0), ("gone-0.abc-delete", 0)] {
        partition(name, base);
    }
    fs::create_dir(data.path().join("empty-3")).expect("a new folder");
    fs::write(data.path().join("meta.properties"), "version=1\n").expect("a file");
    let m = Mounted::new(data.path(), &[]);
    assert_eq!(m.text("orders/1/by-offset/101"), "v101");
    assert_eq!(m.text("a-b/7/by-offset/earliest.."), "v7\nv8\nv9\n");
    assert_eq!(m.sh("ls orders"), "0\n1\nby-time\n");
    assert!(m.sh("ls empty/3").contains("by-offset"));
    assert_eq!(m.sh("ls .other"), "gone-0.abc-delete\n");
    assert!(m.at("status/0/by-offset").is_dir() && m.at("+status").is_file() && m.at("+files/meta.properties").is_file());
    let merged = m.text("orders/by-time/@1700000000..now.jsonl");
    let order: Vec<&str> =
        merged.lines().map(|line| line.split("\"offset\":").nth(1).and_then(|rest| rest.split(',').next()).expect("an offset")).collect();
    assert_eq!(order, ["0", "1", "2", "100", "101", "102"]);
    partition("late-0", 5);
    m.sh("for n in $(seq 100); do test -e late && break; sleep 0.05; done; test $(cat late/0/by-offset/first) = v5");
    fs::remove_dir_all(data.path().join("late-0")).expect("it goes");
    m.sh("for n in $(seq 100); do test -e late || break; sleep 0.05; done; test ! -e late");
}

#[test]
fn no_log_is_begun_between_the_files_of_a_folder_that_is_only_called_like_a_partition() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let notes = data.path().join("notes-2");
    for folder in [&notes, &data.path().join("empty-3")] {
        fs::create_dir(folder).expect("a new folder");
    }
    fs::write(notes.join("todo.txt"), "none of ours\n").expect("a file");
    let m = Mounted::new(data.path(), &[]);
    let status = m.sh("cat notes/2/status");
    assert!(status.contains("mode_reason: it holds files but no .log"), "{status}");
    m.sh("! echo x >> notes/2/append");
    assert_eq!(fs::read_dir(&notes).expect("the folder").count(), 1);
    m.sh("echo x >> empty/3/append && test $(cat empty/3/by-offset/first) = x");
}

#[test]
fn transactions_are_hidden_when_asked() {
    let dir = PartitionDir::new("demo-0");
    let part =
        |base| Batch { attributes: Batch::TRANSACTIONAL, producer_id: 7, producer_epoch: 0, base_sequence: 0, ..Batch::plain(base, 2, T0) };
    let log = [
        part(0).encode(),
        Batch::end_of_transaction(2, 7, 0, T0, false).encode(),
        part(3).encode(),
        Batch::end_of_transaction(5, 7, 0, T0, true).encode(),
        Batch::new(6, vec![Record::new(0, T0, None, Some(b"plain"))]).encode(),
        part(7).encode(),
    ]
    .concat();
    let (index, timeindex) = indexes(0, &log, 4096);
    dir.segment(0, &log, &index, &timeindex);
    let all = Mounted::new(dir.path(), &["-o", "ro"]);
    assert_eq!(all.text("by-offset/earliest..latest"), "v0\nv1\nv3\nv4\nplain\nv7\nv8\n");
    let committed = Mounted::new(dir.path(), &["-o", "ro,isolation=read_committed"]);
    assert_eq!(committed.text("by-offset/earliest..latest"), "v3\nv4\nplain\n");
    assert!(!committed.at("by-offset/0").exists() && !committed.at("by-offset/7").exists());
    assert!(committed.text("status").contains("last_stable_offset: 7\n"));
}
