//! Processes that append without a mount.

use crate::ledger::{Ledger, PATIENCE, Random, SEGMENT_BYTES, THREADS, WRITER, Writing, asked, value};
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::check::check;
use offsetfs::types::TopicPartition;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// So many cycles where nobody asks for more.
const CYCLES: u64 = 100;
/// After so many the log is checked and a new one begun.
const CYCLES_A_LOG: u64 = 100;

pub(crate) fn a_killed_writer_loses_nothing() {
    let cycles = asked("OFFSETFS_KILL_CYCLES", CYCLES);
    let mut random = Random(cycles);
    let (mut records, mut acknowledged) = (0, 0);
    for first in (0..cycles).step_by(CYCLES_A_LOG as usize) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = folder.path().join("topic-0");
        let mut ledger = Ledger::default();
        for cycle in first..cycles.min(first + CYCLES_A_LOG) {
            let writer = cycle * THREADS;
            let told = if random.below(4) == 0 {
                kill_command_line(&directory, writer, &mut random);
                Vec::new()
            } else {
                let mut writing = Writing::engine(&[WRITER], &directory, writer, Stdio::inherit());
                // One in three is struck while it opens the log and recovers it.
                if random.below(3) > 0 {
                    writing.wait_for_first();
                }
                thread::sleep(Duration::from_micros(random.below(20_000)));
                writing.still_writes();
                writing.kill()
            };
            acknowledged += told.len();
            if let Err(reason) = ledger.look(&directory, &told, false) {
                panic!("cycle {cycle}: {reason}; the log is in {}", folder.keep().display());
            }
        }
        records += ledger.len();
        finish(&directory, &mut ledger, (cycles + first) * THREADS);
    }
    println!("{cycles} cycles, {acknowledged} of {records} records acknowledged");
    assert!(acknowledged > 0, "the writers got somewhere");
}

/// `offsetfs append`, fed through a pipe and killed in the middle of it.
fn kill_command_line(directory: &Path, writer: u64, random: &mut Random) {
    let settings = format!("segment.bytes={SEGMENT_BYTES},segment.index.bytes=240,index.interval.bytes=500");
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    command.args(["append", "--create", "-o", &settings]).arg(directory);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("offsetfs can be started");
    let mut input = child.stdin.take().expect("a pipe");
    let feeder = thread::spawn(move || {
        for number in 0.. {
            let mut line = value((writer, number));
            line.push(b'\n');
            // The pipe breaks when the reader is killed.
            if input.write_all(&line).is_err() {
                return;
            }
        }
    });
    let begin = Instant::now();
    while random.below(4) > 0 && !directory.join("00000000000000000000.log").exists() && begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_micros(random.below(30_000)));
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    feeder.join().expect("the feeder ends with its reader");
}

/// A log that was killed so often can be appended to and closed well, and the check finds nothing in it.
fn finish(directory: &Path, ledger: &mut Ledger, writer: u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    command.args(["append", "--create"]).arg(directory);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("offsetfs can be started");
    let lines: Vec<u8> = (0..3).flat_map(|number| [value((writer, number)), b"\n".to_vec()].concat()).collect();
    child.stdin.take().expect("a pipe").write_all(&lines).expect("the pipe takes it");
    assert!(child.wait().expect("it ends").success(), "a clean end");
    let before = ledger.len();
    ledger.look(directory, &[], false).unwrap_or_else(|reason| panic!("after a clean end: {reason}"));
    assert_eq!(ledger.len(), before + 3);
    let name = TopicPartition { topic: "topic".to_owned(), partition: 0 };
    let report = check(&OsFileSystem.open_dir(directory).expect("the directory"), None, &name, &mut |_, _| {}).expect("a report");
    assert!(report.is_clean(), "{report}");
}
