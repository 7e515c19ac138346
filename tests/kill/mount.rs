//! The daemon of a mount that shells and programs write through.

use crate::ledger::{Acknowledged, Ledger, PATIENCE, Random, SEGMENT_BYTES, Writing, asked, value};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// So many cycles where nobody asks for more.
const CYCLES: u64 = 25;
/// After so many a new log is begun.
const CYCLES_A_LOG: u64 = 50;
/// Writers of one cycle: two shells and a program.
const WRITERS: u64 = 3;
/// More lines than a shell can write in a cycle.
const LINES: u64 = 3000;

/// What a shell does with each of its lines.
const ECHO: &str = "printf '%s\\n' \"$line\" >>\"$1\"";
const SYNC: &str = "printf '%s\\n' \"$line\" | dd of=\"$1\" bs=1M iflag=fullblock oflag=append conv=notrunc,fsync status=none";

pub(crate) fn a_killed_daemon_loses_nothing() {
    let cycles = asked("OFFSETFS_KILL_CYCLES", CYCLES);
    let mut random = Random(cycles);
    let (mut records, mut acknowledged) = (0, 0);
    for first in (0..cycles).step_by(CYCLES_A_LOG as usize) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (source, point) = (folder.path().join("topic-0"), folder.path().join("mnt"));
        fs::create_dir(&point).expect("a new folder");
        let mut ledger = Ledger::default();
        for cycle in first..cycles.min(first + CYCLES_A_LOG) {
            let told = one(&source, &point, cycle * WRITERS, &mut random);
            acknowledged += told.len();
            if let Err(reason) = ledger.look(&source, &told, false) {
                panic!("cycle {cycle}: {reason}; the log is in {}", folder.keep().display());
            }
        }
        records += ledger.len();
        unmount(&point);
    }
    println!("{cycles} cycles, {acknowledged} of {records} records acknowledged");
    assert!(acknowledged > 0, "the writers got somewhere");
}

/// Mounts over what the cycle before left there, writes and kills the daemon; what the writers were told.
fn one(source: &Path, point: &Path, first: u64, random: &mut Random) -> Vec<Acknowledged> {
    let settings = format!("segment.bytes={SEGMENT_BYTES},segment.index.bytes=240,index.interval.bytes=500");
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    command.args(["mount", "-f", "--create", "-o", &settings]).arg(source).arg(point);
    // What it says stays in the folder of a log that failed.
    let said = fs::OpenOptions::new().create(true).append(true).open(source.with_file_name("daemon.log")).expect("a file");
    let mut daemon = command.stdin(Stdio::null()).stderr(said).spawn().expect("offsetfs can be started");
    if random.below(6) == 0 {
        // Struck while it mounts.
        thread::sleep(Duration::from_micros(random.below(40_000)));
        kill(&mut daemon);
        return Vec::new();
    }
    let begin = Instant::now();
    while fs::metadata(point.join("status")).is_err() {
        assert!(daemon.try_wait().expect("the child can be asked").is_none(), "the next mount works at once");
        assert!(begin.elapsed() < PATIENCE, "the mount does not answer");
        thread::sleep(Duration::from_millis(2));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let append = point.join("append");
    let shells = [(first, ECHO, "appended"), (first + 1, SYNC, "synced")].map(|(writer, how, word)| {
        let lines: Vec<u8> = (0..LINES).flat_map(|number| [value((writer, number)), b"\n".to_vec()].concat()).collect();
        let path = folder.path().join(word);
        fs::write(&path, lines).expect("a file");
        let script = format!(
            "n=0; while IFS= read -r line <&3; do {{ {how}; }} 2>/dev/null || exit 0; echo \"{word} {writer} $n\"; n=$((n + 1)); done 3<\"$2\""
        );
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-c", &script, "bash"]).arg(&append).arg(&path).stdin(Stdio::null()).stderr(Stdio::null());
        Writing::start(&mut command)
    });
    let program = write(&append, first + 2);
    if random.below(4) > 0 {
        shells.iter().for_each(Writing::wait_for_first);
    }
    thread::sleep(Duration::from_micros(random.below(50_000)));
    kill(&mut daemon);
    let mut told = program.join().expect("the program ends with the mount");
    for shell in shells {
        told.extend(shell.end());
    }
    told
}

/// A program that keeps the file open and syncs now and then; it ends when the mount is gone.
fn write(append: &Path, writer: u64) -> JoinHandle<Vec<Acknowledged>> {
    let path = append.to_owned();
    thread::spawn(move || {
        let mut told = Vec::new();
        let Ok(mut file) = fs::OpenOptions::new().append(true).open(path) else { return told };
        for number in 0.. {
            let mut line = value((writer, number));
            line.push(b'\n');
            let synced = number % 4 == 0;
            if file.write_all(&line).is_err() || (synced && file.sync_all().is_err()) {
                return told;
            }
            told.push(Acknowledged { id: (writer, number), offset: None, synced });
        }
        told
    })
}

fn kill(daemon: &mut Child) {
    daemon.kill().expect("it can be killed");
    daemon.wait().expect("it ends");
}

/// Takes away the dead mount that the last cycle left.
fn unmount(point: &Path) {
    let status = Command::new("umount").arg("-l").arg(point).stderr(Stdio::null()).status().expect("umount can be started");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("a list of mounts");
    let shown = point.to_str().expect("a plain path");
    assert!(!mounts.contains(shown), "{shown} is still mounted: {status}");
}
