//! What happens to the source while it is mounted, or keeps it from being mounted.

use crate::mounted::Mounted;
use crate::{batch, demo, offsetfs, said};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::panic;
use std::process::Command;

/// Whether a daemon still serves.
fn lives(m: &mut Mounted) {
    assert!(m.daemon.try_wait().expect("the child can be asked").is_none(), "the daemon has ended");
    m.text("status");
}

pub(crate) fn a_source_that_is_replaced() {
    let source = demo();
    let mut m = Mounted::new(source.path(), &[]);
    m.sh("echo first >> append");
    let away = source.parent().join("away");
    fs::rename(source.path(), &away).expect("it can be moved");
    let decoy = demo();
    fs::write(decoy.path().join("00000000000000000000.log"), batch(0, &["decoy", "decoy", "decoy"])).expect("a file");
    let before: Vec<_> = decoy.names();
    symlink(decoy.path(), source.path()).expect("a link in its place");
    // The mount goes on with the directory that it was given.
    m.sh("echo second >> append; echo roll > ctl; echo third >> append; echo sync > ctl");
    assert_eq!(m.text("by-offset/earliest..latest"), "a\nb\nc\nfirst\nsecond\nthird\n");
    assert!(m.sh("cat segments/*.log").contains("third"));
    assert!(!m.sh("cat segments/* decoded/* status check | tr -d '\\0'").contains("decoy"));
    lives(&mut m);
    drop(m);
    assert_eq!(decoy.names(), before, "nothing was made in the other one");
    let m = Mounted::new(&away, &[]);
    assert_eq!(m.text("by-offset/earliest..latest").lines().count(), 6);
}

pub(crate) fn a_live_brokers_lock() {
    let source = demo();
    fs::write(source.parent().join("meta.properties"), "version=1\n").expect("a file");
    let names = source.names();
    let lock = File::create(source.parent().join(".lock")).expect("a file");
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).expect("the broker's kind of lock");
    let point = source.parent().join("mnt");
    fs::create_dir(&point).expect("a new folder");
    for arguments in [vec!["mount", "-f"], vec!["mount", "-f", "--take-over"]] {
        let arguments: Vec<_> = arguments.iter().map(AsRef::as_ref).chain([source.path(), point.as_path()]).collect();
        let output = offsetfs(&arguments);
        let words = said(&output);
        assert!(output.status.code() == Some(1) && words.contains(".lock") && words.contains(&std::process::id().to_string()), "{words}");
    }
    for command in ["append", "recover"] {
        let output = offsetfs(&[command.as_ref(), source.path()]);
        assert!(!output.status.success(), "{command}: {}", said(&output));
    }
    let m = Mounted::new(source.path(), &["-o", "ro"]);
    assert_eq!(m.text("by-offset/earliest..latest"), "a\nb\nc\n");
    drop(m);
    fcntl_lock(&lock, FlockOperation::Unlock).expect("the broker has gone");
    fs::remove_file(source.parent().join("meta.properties")).expect("no data directory any more");
    // A broker that starts between the mount and the first append.
    let m = Mounted::new(source.path(), &[]);
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).expect("the broker is back");
    assert!(!m.sh("echo x 2>&1 >> append || true").is_empty(), "the append is refused");
    assert!(m.text("errors").contains(".lock"), "{}", m.text("errors"));
    drop(m);
    assert_eq!(source.names(), names, "nothing was written");
}

pub(crate) fn a_mountpoint_inside_the_source() {
    let source = demo();
    let inside = source.path().join("inside");
    fs::create_dir(&inside).expect("a new folder");
    let link = source.parent().join("link");
    symlink(&inside, &link).expect("a link");
    for point in [&inside, source.path(), source.parent(), &link] {
        let output = offsetfs(&["mount".as_ref(), source.path(), point]);
        assert!(
            output.status.code() == Some(1) && said(&output).contains("lie one in the other"),
            "{}: {}",
            point.display(),
            said(&output)
        );
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("a list of mounts");
    assert!(!mounts.contains(source.parent().to_str().expect("a plain path")));
}

pub(crate) fn a_full_disk_under_the_index_map() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a new folder");
    let run = |program: &str, arguments: &[&str]| {
        assert!(Command::new(program).args(arguments).arg(&disk).status().expect("util-linux is installed").success(), "{program}");
    };
    run("mount", &["-t", "tmpfs", "-o", "size=1536k", "none"]);
    let outcome = panic::catch_unwind(|| {
        // An entry for each batch, and an index that is a hole for the most part: storing into it without asking for room first is a SIGBUS.
        let options = "segment.index.bytes=8000000,index.interval.bytes=0,batch.size=1";
        let mut m = Mounted::new(&disk.join("demo-0"), &["--create", "-o", options]);
        let mut append = OpenOptions::new().append(true).open(m.at("append")).expect("append");
        append.write_all(b"first\n").expect("there is room");
        let mut stored = 1;
        // Each line is a batch with an entry in both indexes; ballast takes what is left, so that the next step of room for an index fails.
        let lines: String = "x\n".repeat(500);
        let refused = loop {
            let _ = fs::write(disk.join(format!("ballast-{stored}")), vec![1; 16 << 10]);
            match append.write_all(lines.as_bytes()) {
                Ok(()) => stored += 500,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC), "after {stored} records");
        lives(&mut m);
        assert_eq!(m.text("by-offset/earliest..latest").lines().count(), stored, "what was stored is there, and no more");
        for entry in fs::read_dir(&disk).expect("the disk") {
            let path = entry.expect("an entry").path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ballast")) {
                fs::remove_file(path).expect("room again");
            }
        }
        append.write_all(b"last\n").expect("appending goes on");
        assert_eq!(m.text("by-offset/last"), "last");
        lives(&mut m);
    });
    run("umount", &["-l"]);
    outcome.unwrap_or_else(|cause| panic::resume_unwind(cause));
}

pub(crate) fn files_truncated_under_the_mount() {
    for options in ["ro", "rw"] {
        let source = demo();
        let second = (0..400).flat_map(|n| batch(3 + n, &[&"y".repeat(100)])).collect::<Vec<_>>();
        let (index, timeindex) = crate::encode::indexes(3, &second, 4096);
        source.segment(3, &second, &index, &timeindex);
        let third = batch(403, &["z"]);
        source.segment(403, &third, &[], &[]);
        let mut m = Mounted::new(source.path(), &["-o", options]);
        assert_eq!(m.text("by-offset/earliest..latest").lines().count(), 404, "everything is mapped and read");
        let cut = |name: &str, len: u64| {
            let file = OpenOptions::new().write(true).open(source.path().join(name)).expect("the file");
            file.set_len(len).expect("it can be cut");
        };
        // In the middle of a batch, and on the first page: what was mapped behind it is gone.
        cut("00000000000000000003.log", 1000);
        cut("00000000000000000003.index", 0);
        cut("00000000000000000003.timeindex", 0);
        for offset in [10, 200, 402] {
            let value = fs::read(m.at(&format!("by-offset/{offset}")));
            match value {
                // What the kernel kept of an earlier read of the record itself is right.
                Ok(value) => assert_eq!(value, "y".repeat(100).as_bytes()),
                Err(error) => {
                    assert!([libc::EIO, libc::ENOENT].map(Some).contains(&error.raw_os_error()), "{error}");
                }
            }
        }
        assert_eq!(fs::read(m.at("by-offset/3..403")).expect_err("a range over it").raw_os_error(), Some(libc::EIO));
        assert!(fs::read(m.at("by-time/1700000000100..1700000000200")).is_err() || !m.text("errors").is_empty());
        lives(&mut m);
        assert_eq!((m.text("by-offset/0..3"), m.text("by-offset/403")), ("a\nb\nc\n".to_owned(), "z".to_owned()), "its neighbours stay");
        assert!(m.text("errors").contains("EIO"), "{}", m.text("errors"));
    }
}

pub(crate) fn the_mount_of_a_killed_daemon() {
    let source = demo();
    let point = source.parent().join("mnt");
    fs::create_dir(&point).expect("a new folder");
    for round in 0..3 {
        // In the background, over what the round before left.
        let output = offsetfs(&["mount".as_ref(), source.path(), &point]);
        assert!(output.status.success(), "round {round}: {}", said(&output));
        assert_eq!(fs::read(point.join("by-offset/0")).expect("a record"), b"a");
        let second = offsetfs(&["append".as_ref(), source.path()]);
        let words = said(&second);
        let pid = words.split("process ").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|pid| pid.parse().ok());
        let pid = rustix::process::Pid::from_raw(pid.unwrap_or_else(|| panic!("no holder in {words}"))).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
        let dead = || fs::read(point.join("status")).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
        while !dead() {
            std::thread::yield_now();
        }
    }
    // A mount of another kind that is in the way is named and stays.
    assert!(Command::new("umount").arg("-l").arg(&point).status().expect("util-linux is installed").success());
    assert!(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&point).status().expect("util-linux is installed").success());
    let output = offsetfs(&["mount".as_ref(), source.path(), &point]);
    assert!(Command::new("umount").arg(&point).status().expect("util-linux is installed").success(), "it is still there");
    assert!(output.status.code() == Some(1) && said(&output).contains("tmpfs"), "{}", said(&output));
}
