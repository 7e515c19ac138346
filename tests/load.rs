//! What only root can try: a full disk, system calls counted and slowed by strace, mount(8), and what a mount does under thousands of
//! opens and hundreds of signals.
//!
//! Runs under `OFFSETFS_TEST_ROOT=1` only. It prints the figures that it measures; what it demands of them is generous, because the machine may be busy.

#[path = "load/failing.rs"]
mod failing;
#[path = "load/growth.rs"]
mod growth;
#[path = "load/mount_8.rs"]
mod mount_8;
#[path = "common/mounted.rs"]
mod mounted;
#[path = "common/on_request.rs"]
mod on_request;
#[path = "common/program.rs"]
mod program;
#[path = "load/signals.rs"]
mod signals;
#[path = "common/traced.rs"]
mod traced;

use mounted::Mounted;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};
use traced::traced;

fn main() -> ExitCode {
    on_request::run(
        "OFFSETFS_TEST_ROOT",
        "root, /dev/fuse, strace, util-linux, fuse3",
        &[
            ("p31_an_fsync_is_shared_by_those_who_wait", p31_an_fsync_is_shared_by_those_who_wait),
            ("failing::a_failed_fsync_reaches_all_who_wait", failing::a_failed_fsync_reaches_all_who_wait),
            ("p32_a_full_disk_is_told_and_forgotten", p32_a_full_disk_is_told_and_forgotten),
            ("mount_8::mount_8_finds_it", mount_8::mount_8_finds_it),
            ("signals::a_reader_of_follow_can_be_ended", signals::a_reader_of_follow_can_be_ended),
            ("signals::head_ends_with_its_line", signals::head_ends_with_its_line),
            ("growth::opens_leave_nothing", growth::opens_leave_nothing),
        ],
    )
}

/// A mount of a new partition.
fn fresh(options: &str) -> (tempfile::TempDir, Mounted) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mounted = Mounted::new(&folder.path().join("demo-0"), &["--create", "-o", options]);
    (folder, mounted)
}

/// A child that is over in time, whose output is thrown away.
fn wait_for(what: &str, child: &mut Child) -> Duration {
    let begin = Instant::now();
    while child.try_wait().expect("the child can be asked").is_none() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what} does not end");
        thread::sleep(Duration::from_millis(1));
    }
    begin.elapsed()
}

/// So many fdatasync calls happen while `writers` append and sync `rounds` times each, on a disk that takes 2 ms for one.
fn syncs(m: &Mounted, writers: usize, rounds: usize) -> usize {
    let lines = traced(m.daemon.id(), &["-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync:delay_enter=2000"], || {
        thread::scope(|scope| {
            for writer in 0..writers {
                let mut append = OpenOptions::new().append(true).open(m.at("append")).expect("append");
                scope.spawn(move || {
                    for n in 0..rounds {
                        // Without its newline: the fsync makes it a record.
                        write!(append, "{writer} {n}").expect("a write");
                        append.sync_all().expect("an fsync");
                    }
                });
            }
        });
    });
    lines.iter().filter(|line| line.contains("fdatasync(") || line.contains("fsync(")).count()
}

fn p31_an_fsync_is_shared_by_those_who_wait() {
    const ROUNDS: usize = 50;
    let (_folder, m) = fresh("tz=UTC");
    m.sh("echo first > append");
    let one = syncs(&m, 1, ROUNDS);
    let eight = syncs(&m, 8, ROUNDS);
    println!("one writer: {ROUNDS} fsyncs, {one} fdatasyncs; eight writers: {} fsyncs, {eight} fdatasyncs", 8 * ROUNDS);
    assert!(one >= ROUNDS, "each fsync of a lone writer reaches the disk");
    assert!(eight * 2 <= 8 * ROUNDS, "those who wait share one");
    assert_eq!(m.text("by-offset/earliest..latest").lines().count(), 1 + 9 * ROUNDS);
    let lines = traced(m.daemon.id(), &["-e", "trace=fdatasync"], || {
        m.sh("echo a | dd of=append oflag=dsync conv=notrunc status=none; echo b | dd of=append oflag=sync conv=notrunc status=none; echo c > append");
    });
    assert_eq!(lines.len(), 2, "O_DSYNC and O_SYNC sync at the write, others do not: {lines:?}");
}

fn p32_a_full_disk_is_told_and_forgotten() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a new folder");
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).arg(&disk).status().expect("util-linux is installed");
        assert!(status.success(), "{program}");
    };
    run("mount", &["-t", "tmpfs", "-o", "size=4m", "none"]);
    // Nothing may stay mounted, whatever fails below.
    let outcome = std::panic::catch_unwind(|| {
        let m = Mounted::new(&disk.join("demo-0"), &["--create", "-o", "segment.bytes=500000"]);
        let block: String = (0..1000).map(|n| format!("{n:099}\n")).collect();
        let mut append = OpenOptions::new().append(true).open(m.at("append")).expect("append");
        append.write_all(block.as_bytes()).expect("there is room");
        fs::write(disk.join("ballast"), vec![1; 1 << 20]).expect("there is room");
        let refused = (0..100).find_map(|_| append.write_all(block.as_bytes()).err()).expect("4 MiB are full");
        assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
        let text = m.text("by-offset/earliest..latest");
        assert!(
            text.lines().count().is_multiple_of(1000) && text.starts_with(&block) && text.ends_with(&block),
            "requests are stored whole or not at all"
        );
        assert!(m.text("errors").contains("append ENOSPC "), "{}", m.text("errors"));
        fs::remove_file(disk.join("ballast")).expect("room again");
        append.write_all(block.as_bytes()).expect("appending goes on");
        assert_eq!(m.text("by-offset/earliest..latest"), format!("{text}{block}"));
    });
    run("umount", &["-l"]);
    outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
}
