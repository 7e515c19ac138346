//! Every short workload: all sequences of few steps, struck by every fault at every operation, and every disk that a crash there may leave.
//!
//! Where a crash leaves so few uncertain changes that all their combinations are at most [`COMBINATIONS`], all are tried; where it leaves more, both
//! extremes (all lost, all kept) and every single change that differs from them, in every way in which it can. Disks that hold the same bytes under the
//! same ledger are one state.

use crate::case::{Case, End, Life, Shape, Step, Struck, Survives};
use crate::judge::{judge, live};
use crate::lies::Lie;
use crate::process::{DIRECTORY, Ledger, Machine, Verdict};
use offsetfs::io::sim::{Choices, Fault, SimDisk};
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};

/// More combinations than this are not tried all.
const COMBINATIONS: usize = 64;

/// How large a space was, all of which was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Space {
    pub(crate) sequences: u64,
    /// A sequence, a fault and the operation that it strikes.
    pub(crate) points: u64,
    /// Crashes at those points.
    pub(crate) images: u64,
    /// Different states among them.
    pub(crate) states: u64,
    /// Of these, states of recoveries that were struck once more.
    pub(crate) recoveries: u64,
}

impl Space {
    pub(crate) fn add(&mut self, other: Space) {
        self.sequences += other.sequences;
        self.points += other.points;
        self.images += other.images;
        self.states += other.states;
        self.recoveries += other.recoveries;
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Space { sequences, points, images, states, recoveries } = self;
        write!(
            f,
            "{sequences} sequences, {points} persistence points, {images} images, {states} different states, {recoveries} of them behind a second fault"
        )
    }
}

/// Small segments and indexes, an entry for each batch: two appends roll.
const SHAPE: Shape = Shape {
    segment_bytes: 240,
    segment_index_bytes: 48,
    index_interval_bytes: 0,
    batch_size: 100,
    lz4: false,
    retention_bytes: 300,
    keyed: true,
};

/// The kinds of steps.
fn kinds() -> Vec<Step> {
    vec![
        Step::Append(vec![vec![10, 30], vec![20]]),
        Step::Sync,
        Step::Roll,
        Step::Close,
        Step::Die,
        Step::Repair,
        Step::DeleteBefore(2),
        Step::Retain,
        Step::Compact,
    ]
}

/// All sequences of so many steps.
pub(crate) fn sequences(len: usize) -> Vec<Vec<Step>> {
    (0..len).fold(vec![Vec::new()], |all, _| {
        all.into_iter().flat_map(|steps: Vec<Step>| kinds().into_iter().map(move |kind| [&steps[..], &[kind]].concat())).collect()
    })
}

/// Looks at all states of one sequence; those of a second fault in each recovery, too, where that is asked for.
pub(crate) fn look(steps: &[Step], twice: bool, lie: Option<Lie>) -> Verdict<Space> {
    // All sequences begin with a log that holds something, or most of them would do nothing.
    let first = Step::Append(vec![vec![5]]);
    let steps: Vec<Step> = [first].into_iter().chain(steps.iter().cloned()).collect();
    let mut life = Life { shape: SHAPE, steps, fault: None };
    let (machine, _) = live(&life, lie)?;
    let operations = machine.disk.operations();
    let mut space = Space { sequences: 1, ..Space::default() };
    let mut seen = HashSet::new();
    for fault in [Fault::Crash, Fault::Io, Fault::NoSpace, Fault::ShortWrite] {
        // One beyond the last: nothing strikes.
        for at in 1..=operations + u64::from(fault == Fault::Crash) {
            life.fault = Some((at, fault));
            let (machine, ledger) = live(&life, lie).map_err(|reason| told(&life, &End::clean(Survives::default()), &reason))?;
            space.points += 1;
            for survives in images(&machine.disk) {
                space.images += 1;
                if !seen.insert(digest(&machine.crash(&survives).disk, &ledger)) {
                    continue;
                }
                space.states += 1;
                let end = End::clean(survives);
                judge(&machine, &ledger, &end).map_err(|reason| told(&life, &end, &reason))?;
                if twice {
                    strike_again(&life, &machine, &ledger, &end, &mut space, &mut seen)?;
                }
            }
        }
    }
    Ok(space)
}

/// Strikes the recovery from one state at each of its operations, and looks at what is left with all lost and all kept.
fn strike_again(life: &Life, machine: &Machine, ledger: &Ledger, end: &End, space: &mut Space, seen: &mut HashSet<u64>) -> Verdict<()> {
    for fault in [Fault::Crash, Fault::Io, Fault::NoSpace] {
        for at in 1.. {
            let again = machine.crash(&end.survives);
            again.disk.fail_at(at, fault);
            if let Ok(partition) = again.open() {
                // What it did does not count; what it left behind does.
                let _ = offsetfs::log::writer::Writer::open(partition);
            }
            if again.disk.operations() < at {
                break;
            }
            for choice in [0, 1] {
                let survives = Survives { reorder: false, choices: vec![choice; 100] };
                if !seen.insert(digest(&again.crash(&survives).disk, ledger)) {
                    continue;
                }
                space.states += 1;
                space.recoveries += 1;
                let end = End { recoveries: vec![Struck { at, fault, survives }], ..end.clone() };
                judge(machine, ledger, &end).map_err(|reason| told(life, &end, &reason))?;
            }
        }
    }
    Ok(())
}

fn told(life: &Life, end: &End, reason: &str) -> String {
    format!("{reason}\n\n{}", Case { life: life.clone(), end: end.clone() })
}

impl End {
    /// A crash, one recovery, and a crash that loses what it can.
    fn clean(survives: Survives) -> End {
        End { survives, recoveries: Vec::new(), last: Some(Survives::default()) }
    }
}

/// What may survive a crash of a disk.
fn images(disk: &SimDisk) -> Vec<Survives> {
    let mut all = Vec::new();
    for reorder in [false, true] {
        disk.reorder_names(reorder);
        let mut choices = Choices::default();
        let mut few = Vec::new();
        loop {
            let mut made = Vec::new();
            disk.crash(&mut |options| {
                let choice = choices.choose(options);
                made.push(choice as u8);
                choice
            });
            few.push(Survives { reorder, choices: made });
            if few.len() > COMBINATIONS {
                few = deviations(disk, reorder);
                break;
            }
            if !choices.advance() {
                break;
            }
        }
        all.extend(few);
    }
    all
}

/// Both extremes, and each change alone in every other way.
fn deviations(disk: &SimDisk, reorder: bool) -> Vec<Survives> {
    let mut all = Vec::new();
    for extreme in [0_u8, 1] {
        let mut options = Vec::new();
        disk.crash(&mut |n| {
            options.push(n);
            usize::from(extreme) % n
        });
        let base = Survives { reorder, choices: vec![extreme; options.len()] };
        for (at, &n) in options.iter().enumerate() {
            for other in (0..n as u8).filter(|&other| other != extreme) {
                let mut survives = base.clone();
                survives.choices[at] = other;
                // What a choice is followed by may change with it; what is kept stays kept.
                survives.choices.extend(vec![extreme; 8]);
                all.push(survives);
            }
        }
        all.push(base);
    }
    all
}

/// What tells two states apart.
fn digest(disk: &SimDisk, ledger: &Ledger) -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in disk.list(DIRECTORY) {
        disk.read_file(format!("{DIRECTORY}/{name}")).hash(&mut hasher);
        name.hash(&mut hasher);
    }
    (&ledger.stored, ledger.acknowledged, ledger.start_least, ledger.start_most, &ledger.tried, &ledger.doubtful, &ledger.outdated)
        .hash(&mut hasher);
    hasher.finish()
}
