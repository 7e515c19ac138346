//! Power cuts of a real file system: ext4 on a loop device is shut down in the middle of appends, its journal as it stands, and mounted again; and ext4 on
//! a disk that records its blocks is mounted as any part of the blocks behind the last flush leaves it.
//!
//! What an fsync acknowledged is there and right; what it did not acknowledge may be there or not, but is never wrong; the next opening works at once. Two
//! writers that leave out the fsync of files show that the suite would notice. `OFFSETFS_POWER_CYCLES` asks for more cycles than the usual number,
//! `OFFSETFS_POWER_IMAGES` for more images.
//!
//! This file is its own harness, since it starts itself again as the process that writes.

#[path = "power/blocks.rs"]
mod blocks;
#[path = "power/disk.rs"]
mod disk;
#[path = "common/ledger.rs"]
mod ledger;
#[path = "crash/lies.rs"]
mod lies;
#[path = "common/on_request.rs"]
mod on_request;

use blocks::RecordedDisk;
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
/// So many images are mounted where nobody asks for more, and so many of them come from one record of blocks.
const IMAGES: u64 = 30;
const IMAGES_A_RECORD: u64 = 15;
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
        "root, loop devices, /dev/fuse, mkfs.ext4",
        &[
            ("what_was_synced_survives_a_power_cut", what_was_synced_survives_a_power_cut),
            ("a_missing_fsync_is_noticed", a_missing_fsync_is_noticed),
            ("what_was_synced_survives_any_loss_behind_the_last_flush", what_was_synced_survives_any_loss_behind_the_last_flush),
            ("a_missing_fsync_is_noticed_in_the_blocks", a_missing_fsync_is_noticed_in_the_blocks),
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

/// Records the blocks of one run of a writer and mounts so many images of what a cut in it may leave; how many synced records they had to hold.
fn replay(images: u64, lie: &str, random: &mut Random) -> Result<usize, String> {
    let disk = RecordedDisk::new();
    let mut writing = Writing::engine(&[WRITER, lie], &disk.point().join("topic-0"), 0, Stdio::null());
    writing.wait_for_first();
    let mut cuts = Vec::new();
    for _ in 0..images {
        thread::sleep(Duration::from_micros(random.below(20_000)));
        // First what was told, then what was written: what is flushed for it comes before.
        let told = writing.told().len();
        cuts.push((told, disk.events()));
    }
    writing.still_writes();
    let told = writing.kill();
    let mut synced = 0;
    for (number, (told_then, events)) in cuts.into_iter().enumerate() {
        let cut = disk.cut(events, random);
        let directory = cut.point().join("topic-0");
        let mut ledger = Ledger::default();
        let before: Vec<_> = told[..told_then].to_vec();
        let whole = ledger.look(&directory, &before, true);
        whole.map_err(|reason| format!("image {number}, {events} events: {reason}"))?;
        synced += before.iter().filter(|told| told.synced).count();
        // One in five is written to, which recovers it first: all that was found stays.
        if number % 5 == 0 && !before.is_empty() {
            let again = Writing::engine(&[WRITER, "none"], &directory, THREADS, Stdio::null());
            again.wait_for_first();
            let after = again.kill();
            ledger.look(&directory, &after, true).map_err(|reason| format!("image {number}, recovered: {reason}"))?;
        }
    }
    Ok(synced)
}

fn what_was_synced_survives_any_loss_behind_the_last_flush() {
    let images = asked("OFFSETFS_POWER_IMAGES", IMAGES);
    let mut random = Random(images);
    let mut synced = 0;
    for first in (0..images).step_by(IMAGES_A_RECORD as usize) {
        match replay(IMAGES_A_RECORD.min(images - first), "none", &mut random) {
            Ok(more) => synced += more,
            Err(reason) => panic!("behind {first} images: {reason}"),
        }
    }
    println!("{images} images, {synced} synced records in them");
    assert!(synced > 0, "the writers got somewhere");
}

fn a_missing_fsync_is_noticed_in_the_blocks() {
    let verdict = replay(IMAGES_A_RECORD, "data", &mut Random(1));
    assert!(verdict.is_err(), "{verdict:?} records were called synced");
    println!("{verdict:?}");
}
