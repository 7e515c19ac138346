//! P25 to P29: what the kernel and the daemon may remember.

use super::common::encode::{Batch, Record, indexes};
use super::common::partition::PartitionDir;
use super::mounted::Mounted;
use super::{LOG, T0, errno, fresh, soon};
use std::fs::{self, File};
use std::io::Read;

/// Writes the files of a segment with one batch of ten records.
fn segment(dir: &PartitionDir, base: i64) {
    let log = Batch::plain(base, 10, T0 + base * 1000).encode();
    let (index, timeindex) = indexes(base, &log, 4096);
    dir.segment(base, &log, &index, &timeindex);
}

#[test]
fn p25_a_missing_record_that_comes_later_is_found() {
    let (_folder, m) = fresh("tz=UTC");
    for n in 0..100 {
        let (name, json) = (format!("by-offset/{n}"), format!("by-offset/{n}.json"));
        assert_eq!(errno(fs::metadata(m.at(&name))), libc::ENOENT);
        assert_eq!(errno(File::open(m.at(&json))), libc::ENOENT);
        m.sh(&format!("test ! -e {name}; echo {n} > append; test $(cat {name}) = {n}"));
        assert_eq!(m.text(&name), n.to_string());
        assert!(m.text(&json).contains(&format!("\"offset\":{n},")));
    }
    assert_eq!(errno(fs::metadata(m.at("by-time/2999-01-01"))), libc::ENOENT);
    m.sh(r#"echo '{"ts":32503680000000,"payload":"late"}' > append.jsonl"#);
    assert_eq!(m.text("by-time/2999-01-01"), "late");
}

#[test]
fn p26_what_another_process_writes_appears() {
    let (folder, writer) = fresh("segment.bytes=1500");
    writer.sh("echo 0 > append");
    let reader = Mounted::new(&folder.path().join("demo-0"), &["-o", "ro"]);
    let mut follow = File::open(reader.at("follow")).expect("follow");
    for n in 1..=60 {
        let name = format!("by-offset/{n}");
        assert!(!reader.at(&name).exists());
        writer.sh(&format!("echo {n} > append"));
        soon(&name, || reader.at(&name).exists());
        assert_eq!(reader.text(&name), n.to_string());
    }
    assert!(fs::read_dir(reader.at("decoded")).expect("decoded").count() > 6, "new segments appear, too");
    let (mut followed, expected) = (String::new(), (1..=60).map(|n| format!("{n}\n")).collect::<String>());
    let mut buffer = [0; 1000];
    while followed.len() < expected.len() {
        let n = follow.read(&mut buffer).expect("records");
        followed.push_str(std::str::from_utf8(&buffer[..n]).expect("text"));
    }
    assert_eq!(followed, expected);
}

#[test]
fn p27_retention_behind_a_name_that_is_known() {
    let dir = PartitionDir::new("demo-0");
    segment(&dir, 0);
    segment(&dir, 10);
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    assert_eq!((m.text("by-offset/3"), m.text("by-offset/first")), ("v3".to_owned(), "v0".to_owned()));
    let mut open = [
        (File::open(m.at("by-offset/3")).expect("a record"), b"v3".to_vec()),
        (File::open(m.at("by-offset/..12")).expect("a range"), (0..12).flat_map(|n| format!("v{n}\n").into_bytes()).collect()),
        (File::open(m.at("segments").join(LOG)).expect("a segment"), fs::read(dir.path().join(LOG)).expect("the log")),
        (File::open(m.at(&format!("decoded/{}.txt", &LOG[..20]))).expect("a text"), m.text("by-offset/..10").into_bytes()),
    ];
    for suffix in ["log", "index", "timeindex"] {
        let path = dir.path().join(LOG).with_extension(suffix);
        fs::rename(&path, format!("{}.deleted", path.display())).expect("as a broker does it");
    }
    soon("the name goes", || errno(fs::metadata(m.at("by-offset/3"))) == libc::ENOENT);
    for suffix in ["log", "index", "timeindex"] {
        fs::remove_file(dir.path().join(format!("{}.{suffix}.deleted", &LOG[..20]))).expect("a minute later");
    }
    for (file, old) in &mut open {
        let mut read = Vec::new();
        let _ = file.read_to_end(&mut read);
        assert!(old.starts_with(&read), "other bytes than the old ones");
    }
    soon("first moves", || fs::read_link(m.at("by-offset/first")).is_ok_and(|link| link.to_str() == Some("10")));
    assert_eq!(m.text("by-offset/earliest..latest").lines().next(), Some("v10"));
    assert_eq!(errno(fs::metadata(m.at("segments").join(LOG))), libc::ENOENT);
}

#[test]
fn p28_a_record_that_is_replaced_is_shown_as_it_now_is() {
    let dir = PartitionDir::new("demo-0");
    segment(&dir, 0);
    let before = fs::metadata(dir.path().join(LOG)).expect("the log").len();
    let second = |value: &[u8]| Batch::new(10, vec![Record::new(0, T0, None, Some(value))]).encode();
    let append = |bytes: &[u8]| {
        let mut log = fs::OpenOptions::new().append(true).open(dir.path().join(LOG)).expect("the log");
        std::io::Write::write_all(&mut log, bytes).expect("a batch");
    };
    append(&second(b"of the old leader"));
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    assert_eq!(m.text("by-offset/10"), "of the old leader");
    let log = fs::OpenOptions::new().write(true).open(dir.path().join(LOG)).expect("the log");
    log.set_len(before).expect("the broker cuts its log");
    append(&second(b"of the new leader"));
    soon("the new record", || fs::read(m.at("by-offset/10")).is_ok_and(|value| value == b"of the new leader"));
    assert_eq!(fs::metadata(m.at("by-offset/10")).expect("a record").len(), 17);
    assert_eq!(m.text("by-offset/9"), "v9");
}

#[test]
fn p29_moving_names_are_looked_up_each_time() {
    let (_folder, m) = fresh("tz=UTC");
    for n in 0..50 {
        m.sh(&format!("echo {n} > append"));
        assert_eq!(fs::read_link(m.at("by-offset/last")).expect("a link").to_str(), Some(n.to_string().as_str()));
        assert_eq!(m.text("by-offset/-1"), n.to_string());
        assert_eq!(m.text("by-offset/-2.."), if n == 0 { "0\n".to_owned() } else { format!("{}\n{n}\n", n - 1) });
        let size = m.text("by-offset/earliest..latest").len() as u64;
        assert_eq!(fs::metadata(m.at("by-offset/earliest..latest")).expect("a range").len(), size);
        assert_eq!(m.text("by-time/1h-ago..").lines().count(), n + 1);
        assert_eq!(m.text("status").lines().find(|line| line.starts_with("log_end")), Some(format!("log_end_offset: {}", n + 1).as_str()));
    }
}
