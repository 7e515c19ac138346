//! Power cuts of a real file system: ext4 on a loop device is shut down in the middle of appends, its journal as it stands, and mounted again.
//!
//! What an fsync acknowledged is there and right; what it did not acknowledge may be there or not, but is never wrong; the next opening works at once. Two
//! writers that leave out the fsync of files show that the suite would notice. `OFFSETFS_POWER_CYCLES` asks for more cycles than the usual number.
//!
//! This file is its own harness, since it starts itself again as the process that writes.

#[path = "power/disk.rs"]
mod disk;
#[path = "common/ledger.rs"]
mod ledger;
#[path = "crash/lies.rs"]
mod lies;
#[path = "common/on_request.rs"]
mod on_request;

use disk::Disk;
use ledger::{Ledger, Random, THREADS, WRITER, Writing, asked};
use lies::{Lie, LyingFileSystem};
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use std::ops::Range;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// So many cycles where nobody asks for more.
const CYCLES: u64 = 50;
/// After so many a new file system is made.
const CYCLES_A_DISK: u64 = 25;
/// A missing fsync has to be noticed within so many cycles.
const CYCLES_OF_A_LIE: u64 = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first().filter(|(first, _)| *first == WRITER) {
        let honest: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
        let (lie, rest) = rest.split_first().unwrap_or_else(|| panic!("{first} takes a lie, a directory and a number"));
        match lie.as_str() {
            "none" => ledger::write(&honest, rest),
            "data" => ledger::write(&(Arc::new(LyingFileSystem::new(honest, Lie::Data)) as Arc<dyn FileSystem>), rest),
            "names" => ledger::write(&(Arc::new(LyingFileSystem::new(honest, Lie::Names)) as Arc<dyn FileSystem>), rest),
            other => panic!("{other} is no lie"),
        }
    }
    on_request::run(
        "OFFSETFS_TEST_ROOT",
        "root, loop devices, mkfs.ext4",
        &[
            ("what_was_synced_survives_a_power_cut", what_was_synced_survives_a_power_cut),
            ("a_missing_fsync_is_noticed", a_missing_fsync_is_noticed),
        ],
    )
}

/// Cuts the power so many times, on one disk; how many synced records there were, and how many of all records were found.
fn cut(cycles: Range<u64>, lie: &str, random: &mut Random) -> Result<(usize, usize), String> {
    let mut disk = Disk::new();
    let directory = disk.point().join("topic-0");
    let (mut ledger, mut synced) = (Ledger::default(), 0);
    for cycle in cycles {
        // It complains when its disk goes, as it should.
        let mut writing = Writing::engine(&[WRITER, lie], &directory, cycle * THREADS, Stdio::null());
        // One in four is struck while it opens the log and recovers it.
        if random.below(4) > 0 {
            writing.wait_for_first();
        }
        thread::sleep(Duration::from_micros(random.below(40_000)));
        writing.still_writes();
        // What is told later does not count: an fsync that is under way while ext4 is shut down may return without an error.
        let told = writing.told();
        disk.cut_power();
        writing.kill();
        disk.power_on();
        synced += told.iter().filter(|told| told.synced).count();
        if let Err(reason) = ledger.look(&directory, &told, true) {
            return Err(if lie == "none" { format!("cycle {cycle}: {reason}; the disk is {}", disk.keep().display()) } else { reason });
        }
    }
    Ok((synced, ledger.len()))
}

fn what_was_synced_survives_a_power_cut() {
    let cycles = asked("OFFSETFS_POWER_CYCLES", CYCLES);
    let mut random = Random(cycles);
    let (mut synced, mut found) = (0, 0);
    for first in (0..cycles).step_by(CYCLES_A_DISK as usize) {
        match cut(first..cycles.min(first + CYCLES_A_DISK), "none", &mut random) {
            Ok((more_synced, more_found)) => (synced, found) = (synced + more_synced, found + more_found),
            Err(reason) => panic!("{reason}"),
        }
    }
    println!("{cycles} power cuts, {synced} synced of {found} records");
    assert!(synced > 0, "the writers got somewhere");
}

fn a_missing_fsync_is_noticed() {
    let verdict = cut(0..CYCLES_OF_A_LIE, "data", &mut Random(1));
    assert!(verdict.is_err(), "{verdict:?} records were called synced");
    println!("{verdict:?}");
}
