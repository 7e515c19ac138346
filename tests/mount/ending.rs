//! How a mount ends: signals, unmounting a busy one, a daemon that was killed.

use super::mounted::Mounted;
use super::{errno, offsetfs, said};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn source() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("demo-0");
    (folder, source)
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the process lives");
}

/// The exit status of a child, which must end soon.
fn ended(child: &mut Child) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the child can be asked") {
            return status.code();
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_mounted(point: &Path) -> bool {
    let point = point.to_str().expect("a plain path").trim_end_matches('/').to_owned();
    fs::read_to_string("/proc/self/mounts").expect("the mounts").lines().any(|line| line.split(' ').nth(1) == Some(&point))
}

#[test]
fn who_unmounts_finds_the_log_closed() {
    let (_folder, source) = source();
    for round in 0..10 {
        let m = Mounted::new(&source, &["--create"]);
        m.sh("seq 100 > append");
        let done = offsetfs(&["umount".as_ref(), m.at("").as_os_str()]);
        assert!(done.status.success(), "{}", said(&done));
        let index = fs::metadata(source.join("00000000000000000000.index")).expect("the index").len();
        assert!(index < 4096, "round {round}: its indexes are trimmed");
        let appended = offsetfs(&["append".as_ref(), source.as_os_str()]);
        assert!(appended.status.success(), "round {round}: its lock is free: {}", said(&appended));
    }
}

#[test]
fn a_signal_ends_it_cleanly_whatever_is_open() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (_folder, source) = source();
        let mut m = Mounted::new(&source, &["--create"]);
        m.sh("seq 1000 > append");
        let mut tail = File::options().append(true).open(m.at("append")).expect("append");
        tail.write_all(b"a tail").expect("a write");
        let mut record = File::open(m.at("by-offset/3")).expect("a record");
        let follower = Command::new("cat").arg(m.at("follow")).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut follower = follower.expect("cat can be started");
        thread::sleep(Duration::from_millis(50));
        send(&m.daemon, signal);
        assert_eq!(ended(&mut m.daemon), Some(0), "{signal:?}");
        assert!(!is_mounted(&m.at("")), "{signal:?}");
        ended(&mut follower);
        assert_ne!(errno(tail.write_all(b"more")), 0, "a handle that is left gets errors");
        assert_ne!(errno(record.read_to_end(&mut Vec::new())), 0, "a handle that is left gets errors");
        let index = fs::metadata(source.join("00000000000000000000.index")).expect("the index").len();
        assert!(index < 4096, "{signal:?}: the indexes are trimmed");
        let again = Mounted::new(&source, &[]);
        assert_eq!(again.text("by-offset/last"), "a tail", "{signal:?}: the tail was committed");
        assert!(again.text("status").contains("recovery: -\n"), "{signal:?}: nothing to recover");
    }
}

#[test]
fn a_busy_mount_is_not_taken_away_and_its_users_are_named() {
    let (_folder, source) = source();
    let mut m = Mounted::new(&source, &["--create"]);
    m.sh("echo x > append");
    let point = m.at("");
    let mut user = Command::new("sleep").arg("1000").current_dir(&point).spawn().expect("sleep can be started");
    let record = File::open(m.at("by-offset/0")).expect("a record");
    let output = offsetfs(&["umount".as_ref(), point.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    let words = said(&output);
    for part in [format!("{} (sleep: cwd", user.id()), format!("{} (", std::process::id()), "is in use by".to_owned()] {
        assert!(words.contains(&part), "{part} is not in {words}");
    }
    assert_eq!(m.text("by-offset/0"), "x", "it goes on");
    let output = offsetfs(&["umount".as_ref(), "-l".as_ref(), point.as_os_str()]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!is_mounted(&point));
    assert_eq!(ended(&mut m.daemon), Some(0));
    user.kill().expect("it lives");
    user.wait().expect("it ends");
    drop(record);
}

#[test]
fn an_unmount_from_outside_ends_the_daemon() {
    let (_folder, source) = source();
    let mut m = Mounted::new(&source, &["--create"]);
    m.sh("echo x > append");
    let output = offsetfs(&["umount".as_ref(), m.at("").as_os_str()]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(ended(&mut m.daemon), Some(0));
    assert_eq!(errno(File::open(m.at("append"))), libc::ENOENT);
    assert_eq!(Mounted::new(&source, &["-o", "ro"]).text("by-offset/0"), "x");
}

#[test]
fn a_killed_daemon_loses_no_acknowledged_record_and_its_mount_is_cleaned() {
    let (folder, source) = source();
    let point = folder.path().join("mnt");
    fs::create_dir(&point).expect("a new folder");
    let start = || {
        let output = offsetfs(&["mount".as_ref(), "--create".as_ref(), source.as_os_str(), point.as_os_str()]);
        assert!(output.status.success(), "{}", said(&output));
        let words = said(&offsetfs(&["append".as_ref(), "--create".as_ref(), source.as_os_str()]));
        let pid: i32 =
            words.split("process ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{words}"));
        Pid::from_raw(pid).expect("a pid")
    };
    for round in 0..5 {
        let pid = start();
        fs::write(point.join("append"), format!("round {round}\n")).expect("a write");
        kill_process(pid, Signal::KILL).expect("it lives");
        let begin = Instant::now();
        while errno(fs::metadata(point.join("status"))) != libc::ENOTCONN {
            assert!(begin.elapsed() < Duration::from_secs(20), "the mount does not die");
            thread::sleep(Duration::from_millis(5));
        }
    }
    start();
    let text = fs::read_to_string(point.join("by-offset/earliest..latest")).expect("all rounds");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
    let at_point = mounts.lines().filter(|line| line.split(' ').nth(1) == point.to_str()).count();
    offsetfs(&["umount".as_ref(), "-l".as_ref(), point.as_os_str()]);
    assert_eq!(text, (0..5).map(|round| format!("round {round}\n")).collect::<String>());
    assert_eq!(at_point, 1, "no dead mount is left below");
}
