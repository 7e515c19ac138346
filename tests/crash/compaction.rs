//! Crashes and failures in the middle of a compaction: the latest record of every key stays what it was, and no record comes back.

use crate::asked;
use crate::case::Survives;
use crate::process::{DIRECTORY, Found, Machine, Verdict, read_all};
use crate::random::Random;
use offsetfs::io::Clock;
use offsetfs::io::sim::{Fault, SimDisk};
use offsetfs::log::compaction::{self, Mode};
use offsetfs::log::config::{CleanupPolicy, LogConfig};
use offsetfs::log::encode::NewRecord;
use offsetfs::log::partition::Partition;
use offsetfs::log::prepare::prepare;
use offsetfs::log::writer::Writer;
use offsetfs::types::{Offset, TimestampMs};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const T0: i64 = 1_700_000_000_000;
const RECORDS: i64 = 24;
/// So many disks are drawn after each struck operation.
const CRASHES_EACH: u64 = 2;

/// The key of an offset; some have one value only, and the tombstone of key 2 is its last record.
fn key(offset: i64) -> i64 {
    if offset % 6 == 5 { 100 + offset } else { offset % 5 }
}

fn is_tombstone(offset: i64) -> bool {
    key(offset) == 2 && offset > 16
}

/// A log of several segments, closed well, whose tombstones may go at once.
fn machine(segment_bytes: u64) -> Machine {
    let config = LogConfig {
        segment_bytes,
        batch_size: 100,
        cleanup_policy: CleanupPolicy { delete: false, compact: true },
        min_cleanable_dirty_ratio: 0.0,
        delete_retention_ms: 0,
        ..LogConfig::default()
    };
    let machine = Machine { disk: SimDisk::new(), lie: None, config };
    machine.disk.filesystem().create_dir(Path::new(DIRECTORY)).expect("a new directory");
    let partition = machine.open().expect("an empty partition");
    let (mut writer, _) = Writer::open(partition).expect("a writer");
    for n in 0..RECORDS {
        let (key, value) = (key(n).to_string(), format!("{n:020}"));
        let value = Some(value.as_bytes()).filter(|_| !is_tombstone(n));
        let record = NewRecord { timestamp: TimestampMs::new(T0 + n), key: Some(key.as_bytes()), value, headers: &[] };
        let prepared = prepare(&machine.config, record.timestamp, &mut std::iter::once(record)).expect("a small record");
        assert!(writer.append(&mut [prepared]).1.is_none());
    }
    for sealing in writer.take_rolled() {
        sealing.run().expect("a seal");
    }
    writer.close().expect("a clean close");
    machine.disk.clock().set(TimestampMs::new(T0 + 1000));
    machine
}

fn copy(machine: &Machine) -> Machine {
    let copy = Machine { disk: machine.disk.crash(&mut |_| 0), lie: None, config: machine.config.clone() };
    copy.disk.clock().set(machine.disk.clock().now());
    copy
}

/// Recovers, compacts and closes. What readers see while it lives, if it does; and the offset that the compaction was acknowledged with.
fn compact(machine: &Machine) -> (Option<Arc<Partition>>, Option<Offset>) {
    let Ok(partition) = machine.open() else { return (None, None) };
    let Ok((writer, _)) = Writer::open(partition.clone()) else { return (None, None) };
    let mut exclusively = |work: &mut dyn FnMut()| {
        work();
        Ok(())
    };
    let done = compaction::run(&partition, Mode::Real { durable: Offset::MAX, exclusively: &mut exclusively }, &mut |_, _| true);
    let closed = writer.close().is_ok();
    (Some(partition).filter(|_| closed), done.ok().and_then(|outcome| outcome.compacted_to))
}

/// Nothing is there that was not before, all that must stay is, in order, and no key has another latest record.
fn between(found: &Found, most: &Found, least: &Found) -> Verdict<()> {
    if !found.is_sorted_by(|a, b| a.0 < b.0) {
        return Err("the offsets do not rise".to_owned());
    }
    if let Some(strange) = found.iter().find(|record| !most.contains(record)) {
        return Err(format!("{} was not there before", strange.0));
    }
    if let Some(lost) = least.iter().find(|record| !found.contains(record)) {
        return Err(format!("{} is lost", lost.0));
    }
    let latest = |records: &Found| -> BTreeMap<i64, i64> {
        let all: BTreeMap<i64, i64> = records.iter().map(|(offset, _)| (key(*offset), *offset)).collect();
        all.into_iter().filter(|(_, offset)| !is_tombstone(*offset)).collect()
    };
    if latest(found) == latest(most) { Ok(()) } else { Err(format!("the latest are {:?}, not {:?}", latest(found), latest(most))) }
}

/// One struck operation, and disks that may come of it. False where the compaction was over before it.
fn struck(machine: &Machine, goal: &Found, at: u64, fault: Fault, random: &mut Random) -> Verdict<bool> {
    let whole = machine.open().map_err(|e| e.to_string())?;
    let (all, _) = read_all(&whole)?;
    let victim = copy(machine);
    victim.disk.fail_at(at, fault);
    let before = victim.disk.operations();
    let (alive, done) = compact(&victim);
    if victim.disk.operations() - before < at {
        return Ok(false);
    }
    if let Some(partition) = alive.filter(|_| fault != Fault::Crash) {
        between(&read_all(&partition)?.0, &all, goal).map_err(|reason| format!("while it lived: {reason}"))?;
    }
    for _ in 0..CRASHES_EACH {
        let after = victim.crash(&Survives::draw(random));
        after.disk.clock().set(machine.disk.clock().now());
        let partition = after.open().map_err(|e| format!("it cannot be opened: {e}"))?;
        let (found, damaged) = read_all(&partition)?;
        between(&found, &all, goal)?;
        if damaged || (done.is_some() && found != *goal) {
            return Err(format!("{} records and not {} (done: {done:?}, damage: {damaged})", found.len(), goal.len()));
        }
        let (writer, _) = Writer::open(partition.clone()).map_err(|e| format!("it cannot be recovered: {e}"))?;
        if writer.next_offset().get() != RECORDS || read_all(&partition)?.0 != found {
            return Err(format!("recovery changes what is read; the next offset is {}", writer.next_offset()));
        }
        drop((writer, partition));
        let (again, _) = compact(&after);
        let again = again.ok_or("it cannot be compacted again")?;
        between(&read_all(&again)?.0, &found, goal).map_err(|reason| format!("done again: {reason}"))?;
    }
    Ok(true)
}

#[test]
fn a_compaction_struck_at_any_operation_loses_nothing_and_brings_nothing_back() {
    let mut random = Random(asked("OFFSETFS_CRASH_SEED", crate::SEED));
    let mut states = 0;
    // Many segments that become few, and few of several batches.
    for segment_bytes in [420, 1000] {
        let mut machine = machine(segment_bytes);
        // A second round, which believes all to be dirty, finds horizons that have passed and batches without all their records.
        for round in 0..2 {
            let calm = copy(&machine);
            let (partition, done) = compact(&calm);
            let (goal, _) = read_all(&partition.expect("nothing is struck")).expect("it can be read");
            let before = read_all(&machine.open().expect("it can be opened")).expect("it can be read").0.len();
            assert!(done.is_some() && (round == 1 || goal.len() < before), "{done:?} {} of {before}", goal.len());
            for fault in [Fault::Crash, Fault::Io, Fault::NoSpace] {
                for at in 1.. {
                    match struck(&machine, &goal, at, fault, &mut random) {
                        Ok(true) => states += CRASHES_EACH,
                        Ok(false) => break,
                        Err(reason) => panic!("segments of {segment_bytes}, round {round}, {fault:?} at operation {at}: {reason}"),
                    }
                }
            }
            calm.disk.clock().advance(1000);
            let directory = calm.disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory");
            directory.remove("cleaner-offset-checkpoint".as_ref()).and_then(|()| directory.sync()).expect("a checkpoint");
            machine = Machine { disk: calm.disk, lie: None, config: LogConfig { segment_bytes: 4000, ..machine.config } };
        }
    }
    println!("{states} states");
    assert!(states > 1000, "{states} are too few");
}
