//! P13 to P24: what is read.

use super::common::encode::{Batch, Record, indexes};
use super::common::partition::PartitionDir;
use super::mounted::Mounted;
use super::{LOG, T0, errno, fresh, soon};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::getxattr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

/// A read-only mount of a log with these batches in one segment.
fn of(batches: &[Batch]) -> (PartitionDir, Mounted) {
    let dir = PartitionDir::new("demo-0");
    let log = batches.iter().map(Batch::encode).collect::<Vec<_>>().concat();
    let (index, timeindex) = indexes(0, &log, 100);
    dir.segment(0, &log, &index, &timeindex);
    let mounted = Mounted::new(dir.path(), &["-o", "ro,tz=UTC"]);
    (dir, mounted)
}

/// Offsets 0 to 4 and 10 to 12.
fn with_a_gap() -> [Batch; 2] {
    [Batch::plain(0, 5, T0), Batch::plain(10, 3, T0 + 10_000)]
}

#[test]
fn p13_a_record_file_is_the_value() {
    let value = b"bytes\0\n\xff without a newline at the end";
    let (_dir, m) = of(&[Batch::new(0, vec![Record::new(0, T0 + 123, Some(b"key"), Some(value))])]);
    assert_eq!(fs::read(m.at("by-offset/0")).expect("a record"), value);
    let metadata = fs::metadata(m.at("by-offset/0")).expect("a record");
    assert_eq!(metadata.len(), value.len() as u64);
    assert_eq!(metadata.modified().expect("its time"), UNIX_EPOCH + Duration::from_millis(T0 as u64 + 123));
    assert_eq!(m.text("by-offset/0.key"), "key");
}

#[test]
fn p14_what_is_not_there_is_not_there() {
    let (dir, m) = of(&with_a_gap());
    for n in [5, 9, 13, 99] {
        assert_eq!(errno(fs::read(m.at(&format!("by-offset/{n}")))), libc::ENOENT);
    }
    let errors = m.text("errors");
    assert!(errors.contains("by-offset/5 ENOENT - there is no record at offset 5: a gap"), "{errors}");
    assert!(errors.contains("by-offset/99 ENOENT - offset 99 was not written yet; the log ends at 13"), "{errors}");
    drop(m);
    fs::write(dir.parent().join("log-start-offset-checkpoint"), "0\n1\ndemo 0 3\n").expect("a checkpoint");
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    assert_eq!((errno(fs::read(m.at("by-offset/2"))), m.text("by-offset/first")), (libc::ENOENT, "v3".to_owned()));
    assert!(m.text("errors").contains("by-offset/2 ENOENT - offset 2 lies before the log start"), "{}", m.text("errors"));
}

#[test]
fn p15_damage_costs_its_own_offsets() {
    let batches = [0, 5, 10].map(|base| Batch::plain(base, 5, T0).encode());
    let position = batches[0].len();
    let mut log = batches.concat();
    log[position + batches[1].len() - 1] ^= 0x10;
    let dir = PartitionDir::new("demo-0");
    dir.segment(0, &log, &[], &[]);
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    assert_eq!((m.text("by-offset/4"), m.text("by-offset/10")), ("v4".to_owned(), "v10".to_owned()));
    assert_eq!(errno(fs::read(m.at("by-offset/5"))), libc::EIO);
    assert!(m.text("errors").contains(&format!("by-offset/5 EIO {LOG}:{position} ")), "{}", m.text("errors"));
    let (mut range, mut text) = (File::open(m.at("by-offset/3..12")).expect("a range"), Vec::new());
    assert_eq!(errno(range.read_to_end(&mut text)), libc::EIO);
    assert_eq!(text, b"v3\nv4\n");
}

#[test]
fn p16_null_is_not_empty() {
    let records = vec![Record::new(0, T0, None, Some(b"")), Record::new(1, T0, Some(b""), None)];
    let (_dir, m) = of(&[Batch::new(0, records)]);
    let is_null = |path: &str| getxattr(m.at(path), "user.kafka.null", &mut [0; 8][..]).is_ok();
    assert_eq!(["0", "0.key", "1", "1.key"].map(|name| is_null(&format!("by-offset/{name}"))), [false, true, true, false]);
    assert!(m.text("by-offset/0.json").ends_with("\"key\":null,\"payload\":\"\"}\n"));
    assert!(m.text("by-offset/1.json").ends_with("\"key\":\"\",\"payload\":null}\n"));
}

#[test]
fn p17_a_range_is_a_snapshot() {
    let (_folder, m) = fresh("segment.bytes=1000");
    m.sh("seq 100 > append");
    let mut range = BufReader::with_capacity(10, File::open(m.at("by-offset/earliest..")).expect("a range"));
    let mut line = String::new();
    range.read_line(&mut line).expect("the first line");
    m.sh("seq 101 200 > append");
    let mut rest = String::new();
    range.read_to_string(&mut rest).expect("the rest");
    assert_eq!(format!("{line}{rest}").lines().count(), 100);
    assert_eq!(m.text("by-offset/earliest..").lines().count(), 200);
}

#[test]
fn p18_gaps_are_passed_over() {
    let (_dir, m) = of(&with_a_gap());
    assert_eq!(m.text("by-offset/3..12"), "v3\nv4\nv10\nv11\n");
    assert_eq!(m.text("by-offset/5..10"), "");
    assert_eq!(m.text("by-offset/-5..=-3"), "v3\nv4\nv10\n");
    assert_eq!((m.text("by-offset/-4"), m.text("by-offset/-3")), ("v4".to_owned(), "v10".to_owned()));
}

#[test]
fn p19_a_time_leads_to_the_first_record_at_or_after_it() {
    let times = [5000, 1000, 3000, 9000];
    let record = |(n, time): (usize, &i64)| Record::new(n as i32, T0 + time, None, Some(format!("v{n}").as_bytes()));
    let (_dir, m) = of(&[Batch::new(0, times.iter().enumerate().map(record).collect())]);
    let at = |ms: i64| fs::read_link(m.at(&format!("by-time/{}", T0 + ms))).ok().and_then(|link| Some(link.to_str()?.to_owned()));
    let to = |n: i64| Some(format!("../by-offset/{n}"));
    // The first in offset order, although the record behind it is older.
    assert_eq!([0, 1000, 5000, 5001, 9000].map(at), [to(0), to(0), to(0), to(3), to(3)]);
    assert_eq!(at(9001), None);
    assert_eq!(errno(fs::metadata(m.at("by-time/@1800000000"))), libc::ENOENT);
    assert_eq!(m.text(&format!("by-time/{}..{}", T0 + 1000, T0 + 5001)), "v0\nv1\nv2\n");
    assert_eq!(m.text("by-time/2023-11-14T22:13:29Z.."), "v3\n");
}

#[test]
fn p20_an_index_is_a_hint() {
    let batches: Vec<Batch> = (0..50).map(|n| Batch::plain(n * 5, 5, T0 + n * 5000)).collect();
    let (dir, m) = of(&batches);
    let offsets = [0, 4, 5, 123, 249];
    let expected: String = offsets.iter().map(|n| format!("v{n}@{n} ")).collect();
    let answers = |m: &Mounted| {
        let one = |n: &i64| {
            let time = fs::read_link(m.at(&format!("by-time/{}", T0 + n * 1000))).expect("a time");
            format!("{}@{} ", m.text(&format!("by-offset/{n}")), time.file_name().and_then(|name| name.to_str()).expect("a number"))
        };
        offsets.iter().map(one).collect::<String>()
    };
    assert_eq!(answers(&m), expected);
    drop(m);
    let index = dir.path().join("00000000000000000000.index");
    let timeindex = dir.path().join("00000000000000000000.timeindex");
    let (good, good_times) = (fs::read(&index).expect("the index"), fs::read(&timeindex).expect("the time index"));
    assert!(good.len() > 100);
    let lies = |bytes: &[u8], place: usize| -> Vec<u8> {
        bytes.iter().enumerate().map(|(at, byte)| if at % 8 == place { byte.wrapping_add(1) } else { *byte }).collect()
    };
    for (what, index_bytes, time_bytes) in [
        ("missing", None, None),
        ("empty", Some(Vec::new()), Some(Vec::new())),
        ("other positions", Some(lies(&good, 7)), Some(lies(&good_times, 7))),
        ("other offsets", Some(lies(&good, 3)), Some(good_times.iter().rev().copied().collect())),
        ("beyond the end", Some(vec![0x7F; 160]), Some(vec![0x7F; 240])),
        ("torn", Some(good[..good.len() - 3].to_vec()), Some(good_times[..good_times.len() - 5].to_vec())),
    ] {
        for (path, bytes) in [(&index, index_bytes), (&timeindex, time_bytes)] {
            match bytes {
                Some(bytes) => fs::write(path, bytes).expect("an index"),
                None => fs::remove_file(path).expect("it was there"),
            }
        }
        assert_eq!(answers(&Mounted::new(dir.path(), &["-o", "ro"])), expected, "{what}");
    }
}

#[test]
fn p21_segments_are_the_files_themselves() {
    let (dir, m) = of(&with_a_gap());
    m.sh(&format!("diff -r '{}' segments", dir.path().display()));
    assert_eq!(
        fs::metadata(m.at("segments").join(LOG)).expect("the log").len(),
        fs::metadata(dir.path().join(LOG)).expect("the log").len()
    );
}

#[test]
fn p22_decoded_segments_can_be_followed() {
    let (_folder, m) = fresh("segment.bytes=2000");
    let mut tail = Command::new("tail");
    tail.args(["-n", "+1", "-s", "0.05", "-F"]).arg(m.at("decoded/active.txt")).stdout(Stdio::piped()).stderr(Stdio::null());
    m.sh("echo 0 > append");
    let mut tail = tail.spawn().expect("tail can be started");
    let mut lines = BufReader::new(tail.stdout.take().expect("a pipe")).lines();
    let mut last = (String::new(), 0);
    for n in 0..80 {
        assert_eq!(lines.next().expect("tail goes on").expect("a line"), n.to_string());
        m.sh(&format!("echo {} > append", n + 1));
        let (name, size) = (m.sh("readlink decoded/active.txt"), fs::metadata(m.at("decoded/active.txt")).expect("its size").len());
        assert!(name != last.0 || size > last.1, "{name} shrank");
        assert_eq!(size, m.text("decoded/active.txt").len() as u64);
        last = (name, size);
    }
    tail.kill().expect("tail is there");
    tail.wait().expect("tail ends");
    assert!(fs::read_dir(m.at("segments")).expect("segments").count() > 6, "it rolled");
}

#[test]
fn p23_a_follower_waits_for_what_comes() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("echo old > append");
    // A shell that starts the tests in its background lets them, and whom they start, ignore Ctrl-C.
    let mut follow = Command::new("env");
    let mut follow =
        follow.args(["--default-signal=INT", "cat"]).arg(m.at("follow")).stdout(Stdio::piped()).spawn().expect("cat can be started");
    let opened = |id: u32| {
        let descriptors = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path.ends_with("follow"))
    };
    soon("cat opens it", || opened(follow.id()));
    m.sh("echo new > append");
    let mut line = String::new();
    let mut out = BufReader::new(follow.stdout.take().expect("a pipe"));
    out.read_line(&mut line).expect("a record");
    assert_eq!(line, "new\n");
    let pid = rustix::process::Pid::from_child(&follow);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("cat waits");
    soon("a signal ends it", || follow.try_wait().expect("the child").is_some());
    assert_eq!(m.sh("ls | grep -c follow || true"), "0\n");
    assert_eq!(
        m.sh("grep -rl '^new$' by-offset decoded"),
        "by-offset/1\nby-offset/last\ndecoded/00000000000000000000.txt\n".replace("by-offset/last\n", "")
    );
}

#[test]
fn p24_poll_tells_when_there_is_something() {
    let (_folder, m) = fresh("tz=UTC");
    let mut follow = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(m.at("follow")).expect("follow");
    let mut buffer = [0; 100];
    assert_eq!(errno(follow.read(&mut buffer)), libc::EAGAIN);
    let is_ready = |file: &File, wait: Duration| {
        let mut asked = [PollFd::new(file, PollFlags::IN)];
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        poll(&mut asked, Some(&wait)).expect("poll") == 1
    };
    assert!(!is_ready(&follow, Duration::from_millis(200)));
    m.sh("echo x > append");
    assert!(is_ready(&follow, Duration::from_secs(20)));
    let n = follow.read(&mut buffer).expect("a record");
    assert_eq!(&buffer[..n], b"x\n");
    assert!(!is_ready(&follow, Duration::from_millis(0)));
    let append = OpenOptions::new().append(true).open(m.at("append"));
    assert_eq!(append.expect("append").write(b"y\n").expect("a write"), 2);
    assert!(is_ready(&follow, Duration::from_secs(20)));
}
