//! The oracle: what a disk holds after a crash, before and after recovery, against the ledger.

use crate::case::{Case, End, Life};
use crate::lies::Lie;
use crate::process::{Found, Ledger, Machine, Verdict, key, read_all, request, run};
use offsetfs::io::sim::Fault;
use offsetfs::log::partition::Partition;
use offsetfs::log::seek;
use offsetfs::log::writer::Writer;
use offsetfs::types::{Offset, Patience};

/// Lives a life on a new machine.
pub(crate) fn live(life: &Life, lie: Option<Lie>) -> Verdict<(Machine, Ledger)> {
    let machine = Machine::new(&life.shape, lie);
    if let Some((at, fault)) = life.fault {
        machine.disk.fail_at(at, fault);
    }
    let mut ledger = Ledger::default();
    run(&machine, &mut ledger, &life.steps, life.fault.map(|(_, fault)| fault))?;
    Ok((machine, ledger))
}

/// Whether a whole case goes well.
pub(crate) fn case(case: &Case, lie: Option<Lie>) -> Verdict<()> {
    let (machine, ledger) = live(&case.life, lie)?;
    judge(&machine, &ledger, &case.end)
}

/// Recovers what a crash leaves of the machine and looks at what it holds, perhaps after failures in the middle of that.
pub(crate) fn judge(machine: &Machine, ledger: &Ledger, end: &End) -> Verdict<()> {
    let mut machine = machine.crash(&end.survives);
    for struck in &end.recoveries {
        machine.disk.fail_at(struck.at, struck.fault);
        if let Ok(partition) = machine.open() {
            // What it did does not count; what it left behind does.
            let _ = Writer::open(partition);
        }
        if struck.fault == Fault::Crash {
            machine = machine.crash(&struck.survives);
        } else {
            // It may not have come that far: the next one is not struck.
            machine.disk.fail_at(u64::MAX, struck.fault);
        }
    }
    let partition = machine.open().map_err(|e| format!("it cannot be opened: {e}"))?;
    let before = holds(&machine, &partition, ledger).map_err(|reason| format!("before recovery: {reason}"))?;
    let (mut writer, _) = Writer::open(partition.clone()).map_err(|e| format!("it cannot be recovered: {e}"))?;
    let recovered = holds(&machine, &partition, ledger).map_err(|reason| format!("after recovery: {reason}"))?;
    if recovered != before {
        let offsets = |found: &[(i64, Vec<u8>)]| found.iter().map(|(offset, _)| *offset).collect::<Vec<_>>();
        return Err(format!("readers saw {:?}, and after recovery {:?}", offsets(&before), offsets(&recovered)));
    }
    // It can be appended to, and one sync then keeps all that was found.
    let next = writer.next_offset();
    let mut group = [request(&machine.config, 1_700_000_000_000, &[b"new".to_vec()])];
    if let (_, Some(error)) = writer.append(&mut group) {
        return Err(format!("it cannot be appended to: {error}"));
    }
    for sealing in writer.take_rolled() {
        sealing.run().map_err(|e| format!("it cannot be sealed: {e}"))?;
    }
    writer.active_log().sync_data().map_err(|e| format!("it cannot be synced: {e}"))?;
    let mut ledger = ledger.clone();
    ledger.try_at(next.get(), b"new");
    let after = match &end.last {
        None => {
            writer.close().map_err(|e| format!("it cannot be closed: {e}"))?;
            machine.with(machine.disk.clone())
        }
        Some(survives) => machine.crash(survives),
    };
    let partition = after.open().map_err(|e| format!("it cannot be opened again: {e}"))?;
    let found = holds(&after, &partition, &ledger).map_err(|reason| format!("once more: {reason}"))?;
    let wanted: Vec<_> = recovered.into_iter().chain([(next.get(), b"new".to_vec())]).collect();
    if found != wanted {
        return Err(format!("{} records were there and one was acknowledged, now there are {}", wanted.len() - 1, found.len()));
    }
    Ok(())
}

/// Every acknowledged record that was not deleted is there, by both ways of reading, or a later one of its key where it was compacted away; every record that is there was given to the log for that
/// offset, and the log starts where it was told to.
fn holds(machine: &Machine, partition: &Partition, ledger: &Ledger) -> Verdict<Found> {
    let start = partition.bounds().log_start.get();
    if start < ledger.start_least || start > ledger.start_most {
        return Err(format!("the log starts at {start}, not between {} and {}", ledger.start_least, ledger.start_most));
    }
    let by_offset = |offset: i64| partition.record(Offset::new(offset).expect("not negative"), Patience::MayBlock);
    if start > 0 && !matches!(by_offset(start - 1), Ok(seek::Found::Absent(_))) {
        return Err(format!("offset {} was deleted and can be read", start - 1));
    }
    let (found, _) = read_all(partition)?;
    if !found.is_sorted_by(|a, b| a.0 < b.0) {
        return Err("the offsets do not rise".to_owned());
    }
    for (offset, value) in &found {
        if !ledger.tried.get(offset).is_some_and(|tried| tried.contains(value)) {
            return Err(format!("offset {offset} holds what nobody gave to it: {}", value.escape_ascii()));
        }
    }
    for (offset, want) in (0..).zip(&ledger.stored[..ledger.acknowledged]).skip(start as usize) {
        if ledger.doubtful.contains(&offset) {
            continue;
        }
        let by_walk = found.binary_search_by_key(&offset, |f| f.0).map(|at| &found[at].1);
        let by_offset = by_offset(offset);
        if ledger.outdated.contains(&offset) && by_walk.is_err() && matches!(by_offset, Ok(seek::Found::Absent(_))) {
            let of = key(&machine.config, want);
            if !found.iter().any(|(later, value)| *later > offset && key(&machine.config, value) == of) {
                return Err(format!(
                    "acknowledged offset {offset} of {} was compacted away, and the later record of its key is lost",
                    ledger.acknowledged
                ));
            }
            continue;
        }
        let by_offset = match &by_offset {
            Ok(seek::Found::Record(record)) => record.value(),
            Ok(seek::Found::Absent(absent)) => return Err(format!("acknowledged offset {offset} of {}: {absent:?}", ledger.acknowledged)),
            Err(error) => return Err(format!("acknowledged offset {offset} of {}: {error}", ledger.acknowledged)),
        };
        if by_walk != Ok(want) || by_offset != Some(want.as_slice()) {
            return Err(format!("acknowledged offset {offset} of {} is lost or another", ledger.acknowledged));
        }
    }
    Ok(found)
}
