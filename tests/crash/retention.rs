//! Crashes and failures in the middle of a retention: what is left is the log from some segment on, and what was once gone stays gone.

use crate::asked;
use crate::case::Survives;
use crate::process::{DIRECTORY, Found, Machine, Verdict, read_all};
use crate::random::Random;
use offsetfs::error::Error;
use offsetfs::io::Clock;
use offsetfs::io::sim::{Fault, SimDisk};
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::NewRecord;
use offsetfs::log::partition::Partition;
use offsetfs::log::prepare::prepare;
use offsetfs::log::retention::{self, Plan};
use offsetfs::log::writer::Writer;
use offsetfs::types::{Patience, TimestampMs};
use std::path::Path;
use std::sync::Arc;

const T0: i64 = 1_700_000_000_000;
/// So many disks are drawn after each struck operation.
const CRASHES_EACH: u64 = 5;

/// A log of several segments, closed well; a record a millisecond. `keep` of its last segments are young enough to stay.
fn machine(keep: i64) -> Machine {
    let retention_ms = if keep == 0 { 0 } else { keep * 3 };
    let config = LogConfig { segment_bytes: 300, batch_size: 1, retention_ms, ..LogConfig::default() };
    let machine = Machine { disk: SimDisk::new(), lie: None, config };
    machine.disk.filesystem().create_dir(Path::new(DIRECTORY)).expect("a new directory");
    let partition = machine.open().expect("an empty partition");
    let (mut writer, _) = Writer::open(partition).expect("a writer");
    for n in 0..15 {
        let value = format!("{n:030}");
        let record = NewRecord { timestamp: TimestampMs::new(T0 + n), key: None, value: Some(value.as_bytes()), headers: &[] };
        let prepared = prepare(&machine.config, record.timestamp, &mut std::iter::once(record)).expect("a small record");
        assert!(writer.append(&mut [prepared]).1.is_none());
    }
    for sealing in writer.take_rolled() {
        sealing.run().expect("a seal");
    }
    writer.close().expect("a clean close");
    machine.disk.clock().set(TimestampMs::new(T0 + 15));
    machine
}

/// Nothing is appended meanwhile, so that all was synced before.
fn carry_out(partition: &Arc<Partition>, writer: &mut Writer) -> Result<Plan, Error> {
    let plan = retention::plan(partition, Patience::MayBlock)?;
    retention::carry_out(partition, writer, &plan)
}

/// Takes what is old and closes the log. What readers see while it lives, if it does; and whether the retention was acknowledged.
fn retain(machine: &Machine) -> (Option<Arc<Partition>>, bool) {
    let Ok(partition) = machine.open() else { return (None, false) };
    let Ok((mut writer, _)) = Writer::open(partition.clone()) else { return (None, false) };
    let done = carry_out(&partition, &mut writer).is_ok();
    let sealed = writer.take_rolled().into_iter().all(|rolled| rolled.run().is_ok());
    let closed = sealed && writer.close().is_ok();
    (Some(partition).filter(|_| closed), done)
}

/// What is there is the end of what was there, beginning with a segment.
fn is_a_tail(found: &[(i64, Vec<u8>)], all: &Found, bases: &[i64]) -> Verdict<i64> {
    let from = found.first().map_or(all.len() as i64, |(offset, _)| *offset);
    if all[from as usize..] != *found {
        return Err(format!("{} records from {from} on are no end of the log", found.len()));
    }
    if bases.contains(&from) { Ok(from) } else { Err(format!("the log begins with {from}, within a segment")) }
}

/// One struck operation, and disks that may come of it. False where the retention was over before it.
fn struck(machine: &Machine, at: u64, fault: Fault, goal: i64, random: &mut Random) -> Verdict<bool> {
    let whole = machine.open().map_err(|e| e.to_string())?;
    let (all, _) = read_all(&whole)?;
    let mut bases: Vec<i64> = whole.layout().segments.iter().map(|s| s.base_offset().get()).collect();
    bases.push(all.len() as i64);
    let victim = Machine { disk: machine.disk.crash(&mut |_| 0), lie: None, config: machine.config.clone() };
    victim.disk.clock().set(machine.disk.clock().now());
    victim.disk.fail_at(at, fault);
    let before = victim.disk.operations();
    let (alive, done) = retain(&victim);
    if victim.disk.operations() - before < at {
        return Ok(false);
    }
    if let Some(partition) = alive.filter(|_| fault != Fault::Crash) {
        let (seen, _) = read_all(&partition)?;
        is_a_tail(&seen, &all, &bases).map_err(|reason| format!("while it lived: {reason}"))?;
    }
    for _ in 0..CRASHES_EACH {
        let after = victim.crash(&Survives::draw(random));
        let partition = after.open().map_err(|e| format!("it cannot be opened: {e}"))?;
        let (found, damaged) = read_all(&partition)?;
        let from = is_a_tail(&found, &all, &bases)?;
        if damaged || from > goal || (done && from != goal) {
            return Err(format!("the log begins with {from} (done: {done}, damage: {damaged}), not with {goal}"));
        }
        let (mut writer, _) = Writer::open(partition.clone()).map_err(|e| format!("it cannot be recovered: {e}"))?;
        if writer.next_offset().get() != all.len() as i64 {
            return Err(format!("the next offset is {}, not {}", writer.next_offset(), all.len()));
        }
        let again = carry_out(&partition, &mut writer).map_err(|e| format!("it cannot be done again: {e}"))?;
        let (found, _) = read_all(&partition)?;
        if is_a_tail(&found, &all, &bases)? != goal {
            return Err(format!("done again, it took {again:?}"));
        }
    }
    Ok(true)
}

#[test]
fn a_retention_struck_at_any_operation_leaves_the_end_of_the_log_and_nothing_comes_back() {
    let mut random = Random(asked("OFFSETFS_CRASH_SEED", crate::SEED));
    let mut states = 0;
    for keep in [0, 1, 3] {
        let machine = machine(keep);
        // The goal is what happens where nothing is struck.
        let calm = Machine { disk: machine.disk.crash(&mut |_| 0), lie: None, config: machine.config.clone() };
        calm.disk.clock().set(machine.disk.clock().now());
        let (partition, done) = retain(&calm);
        let (found, _) = read_all(&partition.expect("nothing is struck")).expect("it can be read");
        let goal = found.first().map_or(15, |(offset, _)| *offset);
        assert!(done && goal > 0 && (goal == 15) == (keep == 0), "{goal} with {keep}");
        for fault in [Fault::Crash, Fault::Io, Fault::NoSpace] {
            for at in 1.. {
                match struck(&machine, at, fault, goal, &mut random) {
                    Ok(true) => states += CRASHES_EACH,
                    Ok(false) => break,
                    Err(reason) => panic!("keep {keep}, {fault:?} at operation {at}: {reason}"),
                }
            }
        }
    }
    println!("{states} states");
    assert!(states > 2000, "{states} are too few");
}

/// What was appended behind the plan was not synced yet: counted as kept, it would cost records that were.
#[test]
fn what_came_behind_the_plan_takes_nothing() {
    let mut machine = machine(0);
    machine.config = LogConfig { retention_ms: -1, retention_bytes: 1, ..machine.config };
    let log_bytes = |partition: &Partition| partition.layout().segments.iter().map(|segment| segment.end()).sum::<u64>();
    let bytes = log_bytes(&machine.open().expect("it can be opened"));
    machine.config.retention_bytes = bytes as i64;
    let partition = machine.open().expect("it can be opened");
    let (mut writer, _) = Writer::open(partition.clone()).expect("a writer");
    let earlier = retention::plan(&partition, Patience::MayBlock).expect("a plan");
    let record = NewRecord { timestamp: TimestampMs::new(T0), key: None, value: Some(&[b'v'; 200]), headers: &[] };
    for _ in 0..5 {
        let prepared = prepare(&machine.config, record.timestamp, &mut std::iter::once(record)).expect("a small record");
        assert!(writer.append(&mut [prepared]).1.is_none());
    }
    let now = retention::plan(&partition, Patience::MayBlock).expect("a plan");
    assert_eq!((earlier.removals.len(), now.removals.is_empty()), (0, false));
    let taken = retention::carry_out(&partition, &mut writer, &earlier).expect("nothing fails");
    assert_eq!((taken.removals.len(), partition.bounds().log_start.get()), (0, 0));
    let taken = retention::carry_out(&partition, &mut writer, &now).expect("nothing fails");
    assert_eq!(taken, now);
    assert!(log_bytes(&partition) >= bytes && partition.bounds().log_start.get() > 0);
}
