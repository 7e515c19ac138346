//! Names that are none, and bytes that lie.

use super::common::encode::{Batch, Codec, Record, indexes};
use super::common::partition::PartitionDir;
use super::errno;
use super::mounted::Mounted;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// 2023-11-14T22:13:20Z, in ms.
const T0: i64 = 1_700_000_000_000;
const LOG: &str = "00000000000000000000.log";

#[test]
fn names_that_are_none_are_refused_in_words() {
    let dir = PartitionDir::new("demo-0");
    let log = Batch::plain(0, 5, T0).encode();
    dir.segment(0, &log, &[], &[]);
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    let long = format!("by-offset/{}", "1".repeat(256));
    for (path, number, reason) in [
        ("by-offset/+5", libc::ENOENT, "no sign"),
        ("by-offset/005", libc::ENOENT, "no leading zero"),
        ("by-offset/9223372036854775808", libc::ENOENT, "at most 9223372036854775807"),
        ("by-offset/18446744073709551616", libc::ENOENT, "at most 9223372036854775807"),
        ("by-offset/9223372036854775807", libc::ENOENT, "the log ends at 5"),
        (&long, libc::ENOENT, "at most"),
        ("by-offset/\u{0661}", libc::ENOENT, "decimal"),
        ("by-offset/5", libc::ENOENT, "the log ends at 5"),
        ("by-offset/-6", libc::ENOENT, "no such record"),
        ("by-offset/-0", libc::ENOENT, "-k"),
        ("by-offset/1..x", libc::ENOENT, "offset"),
        ("by-offset/1..=", libc::ENOENT, "needs an offset"),
        ("by-offset/3.yaml", libc::ENOENT, ".json"),
        ("by-time/yesterdayish", libc::EINVAL, "2h-ago"),
        ("by-time/12345678901", libc::EINVAL, "10 (seconds) or 13"),
        ("by-time/99999999999d-ago", libc::EINVAL, "years"),
        ("by-time/2026-02-30", libc::EINVAL, "2h-ago"),
        ("by-time/2h-ago..soon", libc::EINVAL, "2h-ago"),
        ("by-time/2099-01-01", libc::ENOENT, "at or after"),
        ("segments/none.log", libc::ENOENT, "none.log"),
        ("decoded/7.txt", libc::ENOENT, "decoded/"),
        ("nothing", libc::ENOENT, "README"),
    ] {
        assert_eq!(errno(fs::read(m.at(path))), number, "{path}");
        let errors = m.text("errors");
        let line = errors.lines().find(|line| line.contains(&format!(" {path} "))).unwrap_or_else(|| panic!("{path} is not in\n{errors}"));
        assert!(line.contains(if number == libc::EINVAL { " EINVAL " } else { " ENOENT " }) && line.contains(reason), "{line}");
    }
    for bytes in [&b"\xff"[..], b"a\nb", b"\x1b[31mred", b" ", b"...", b"....", b"-", b"--1"] {
        for folder in ["", "by-offset", "segments", "decoded"] {
            assert_eq!(errno(fs::read(m.at(folder).join(OsStr::from_bytes(bytes)))), libc::ENOENT, "{folder} {bytes:?}");
        }
        assert_eq!(errno(fs::read(m.at("by-time").join(OsStr::from_bytes(bytes)))), libc::EINVAL, "{bytes:?}");
    }
    let errors = m.text("errors");
    assert!(!errors.contains('\u{1b}') && errors.lines().all(|line| line.split(' ').count() >= 5), "{errors}");
    m.sh("cat by-offset/4");
}

#[test]
fn a_flipped_bit_costs_its_own_batch_only() {
    let dir = PartitionDir::new("demo-0");
    let batches = [0, 5, 10].map(|base| Batch::plain(base, 5, T0 + base * 1000).encode());
    let mut log = batches.concat();
    let position = batches[0].len();
    log[position + 70] ^= 1;
    let (index, timeindex) = indexes(0, &batches.concat(), 10);
    dir.segment(0, &log, &index, &timeindex);
    for options in ["ro", "rw"] {
        let m = Mounted::new(dir.path(), &["-o", options]);
        for n in (0..5).chain(10..15) {
            assert_eq!(m.text(&format!("by-offset/{n}")), format!("v{n}"));
        }
        for n in 5..10 {
            assert_eq!(errno(fs::read(m.at(&format!("by-offset/{n}")))), libc::EIO, "{n}");
            assert_eq!(errno(fs::read(m.at(&format!("by-offset/{n}.json")))), libc::EIO, "{n}");
        }
        let errors = m.text("errors");
        assert!(errors.contains(&format!("by-offset/7 EIO {LOG}:{position} ")), "{errors}");
        let before = m.sh("cat by-offset/earliest..latest 2>/dev/null || echo stopped");
        assert_eq!(before, "v0\nv1\nv2\nv3\nv4\nstopped\n", "a range gives what lies before the damage, then EIO");
        assert_eq!(m.text("by-offset/10.."), "v10\nv11\nv12\nv13\nv14\n");
    }
    assert_eq!(fs::read(dir.path().join(LOG)).expect("the log"), log, "nothing was written into it");
}

#[test]
fn appends_go_on_behind_damage_and_a_torn_tail_is_kept_aside() {
    let dir = PartitionDir::new("demo-0");
    let whole = Batch::plain(0, 5, T0).encode();
    let torn = &Batch::plain(5, 5, T0).encode()[..80];
    dir.segment(0, &[&whole, torn].concat(), &[], &[]);
    let m = Mounted::new(dir.path(), &[]);
    assert_eq!(m.text("by-offset/earliest..latest"), "v0\nv1\nv2\nv3\nv4\n");
    let status = m.text("status");
    let recovery = status.lines().find(|line| line.starts_with("recovery:")).expect("a line");
    assert!(recovery.contains(LOG) && recovery.contains(&whole.len().to_string()) && recovery.contains("80"), "{recovery}");
    assert_eq!(fs::metadata(dir.path().join(LOG)).expect("the log").len(), whole.len() as u64 + 80, "reading cuts nothing");
    m.sh("echo next > append");
    assert_eq!(m.text("by-offset/5"), "next");
    let kept = fs::read(dir.path().join(format!("{LOG}.cut-{}", whole.len()))).expect("the cut bytes are kept");
    assert_eq!(kept, torn);
    assert!(m.text("errors").contains("cut"), "{}", m.text("errors"));
}

#[test]
fn hostile_numbers_and_bombs_are_answered_with_an_error() {
    let good = Batch::plain(0, 2, T0).encode();
    let record = || vec![Record::new(0, T0, None, Some(b"x"))];
    let zeros = vec![0; 9 << 20];
    let bomb = Batch { codec: Codec::Gzip, ..Batch::new(2, vec![Record::new(0, T0, None, Some(&zeros))]) };
    for (name, bad) in [
        ("a negative count", Batch { records_count: Some(-1), ..Batch::new(2, record()) }.encode()),
        ("more than it may become", bomb.encode()),
    ] {
        let dir = PartitionDir::new("demo-0");
        dir.segment(0, &[&good[..], &bad, &Batch::plain(3, 2, T0).encode()].concat(), &[], &[]);
        let m = Mounted::new(dir.path(), &["-o", "ro,batch.decoded.max.bytes=8388608"]);
        assert_eq!(errno(fs::read(m.at("by-offset/2"))), libc::EIO, "{name}");
        assert!(m.text("errors").contains(&format!("by-offset/2 EIO {LOG}:{} ", good.len())), "{name}: {}", m.text("errors"));
        assert_eq!((m.text("by-offset/1"), m.text("by-offset/3")), ("v1".to_owned(), "v3".to_owned()), "{name}");
    }
    for count in [1000, i32::MAX] {
        let dir = PartitionDir::new("demo-0");
        let bad = Batch { records_count: Some(count), ..Batch::new(2, record()) }.encode();
        dir.segment(0, &[&good[..], &bad, &Batch::plain(3, 2, T0).encode()].concat(), &[], &[]);
        let m = Mounted::new(dir.path(), &["-o", "ro"]);
        match fs::read(m.at("by-offset/2")) {
            Ok(value) => assert_eq!(value, b"x", "the one record that is there"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO)),
        }
        assert_eq!((m.text("by-offset/1"), m.text("by-offset/3")), ("v1".to_owned(), "v3".to_owned()), "{count}");
    }
    let dir = PartitionDir::new("demo-0");
    let mut long = Batch::new(2, record()).encode();
    long[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    dir.segment(0, &[good, long].concat(), &[], &[]);
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    assert_eq!(m.text("by-offset/1"), "v1");
    assert!([libc::EIO, libc::ENOENT].contains(&errno(fs::read(m.at("by-offset/2")))));
}
