//! The explicit repair of a partition directory: what `offsetfs recover` does beyond the recovery that a first append makes by itself.
//!
//! It plans first, from what the check examines, and says the plan in words; then it carries the plan out. The caller holds the locks of a writer.
//! Only a torn tail is cut unasked; damage in the middle goes when that is asked for, and whatever can be read around and in it stays. Bytes
//! that leave a `.log` are kept beside it unless they are to be discarded. Each group of steps is durable before the next begins, and
//! each can be done again: an interrupted repair is simply repeated.

mod rewrite;
mod salvage;

use crate::error::{Error, Result};
use crate::io::{Directory, Open};
use crate::log::check::Report;
use crate::log::check::files::{self, Layout};
use crate::log::check::segment::{Examined, Running, Scene, examine};
use crate::log::check::transactions::Entry;
use crate::log::checkpoint::{self, EpochEntry};
pub use crate::log::leftovers::FileStep;
use crate::log::leftovers::{self, Names};
use crate::log::listing::{self, Listing};
use crate::log::names;
use crate::log::transactions::read_snapshot;
use crate::types::{Offset, Position, TopicPartition};
use std::ffi::OsStr;
use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;

/// What a repair may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Take damage in the middle out of a log. Default: it is left as it is.
    pub drop_damaged: bool,
    /// Keep no copy of bytes that leave a log. Default: they are kept in `<name>.cut-<position>`.
    pub discard: bool,
    /// `index.interval.bytes` for indexes that are made anew, in bytes.
    pub index_interval_bytes: u64,
}

/// A stretch that leaves a `.log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    from: Position,
    to: Position,
    /// Zeros need no copy of their bytes, only of their number.
    zeros: bool,
    /// Whether a batch with the records that can be read takes its place.
    salvaged: bool,
    what: String,
}

impl Cut {
    fn bytes(&self) -> u64 {
        self.to.get().saturating_sub(self.from.get())
    }
}

/// One thing that a repair does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A file goes or gets another name.
    File(FileStep),
    /// Stretches leave the log of a segment, and its indexes are made anew.
    Segment {
        /// The base offset of the segment.
        base: Offset,
        /// The base offset of the segment behind it.
        limit: Option<Offset>,
        /// What leaves the log, in order; nothing where only the indexes are made.
        cuts: Vec<Cut>,
        /// Whether the cut bytes are kept beside the log.
        kept: bool,
    },
    /// The aborted transactions of a segment are written anew.
    TxnIndex {
        /// The base offset of the segment.
        base: Offset,
        /// The whole content of the file.
        bytes: Vec<u8>,
    },
    /// The leader epochs are written anew.
    LeaderEpochs(Vec<EpochEntry>),
}

/// In words, a line for each stretch.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::File(step) => step.fmt(f),
            Step::Segment { base, cuts, kept, .. } => {
                let log = names::of(*base, names::LOG);
                for cut in cuts {
                    let verb = if cut.salvaged { "write anew" } else { "cut" };
                    write!(f, "{verb} {} bytes at position {} of {log}: {}; ", cut.bytes(), cut.from, cut.what)?;
                    if *kept {
                        writeln!(f, "they are kept in {log}.cut-{}", cut.from)?;
                    } else {
                        writeln!(f, "they are not kept")?;
                    }
                }
                let (index, timeindex) = (names::of(*base, names::INDEX), names::of(*base, names::TIME_INDEX));
                write!(f, "make {index} and {timeindex} anew from the log")
            }
            Step::TxnIndex { base, bytes } => {
                let file = names::of(*base, names::TXN_INDEX);
                write!(f, "make {file} anew from the markers in the log: {} bytes", bytes.len())
            }
            Step::LeaderEpochs(entries) => write!(f, "make {} anew from the batches: {} epochs", names::LEADER_EPOCHS, entries.len()),
        }
    }
}

/// What a repair will do, and what it will leave.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In order; each group is durable before the next begins.
    groups: Vec<Vec<Step>>,
    /// Damage that stays, in words, a line each.
    pub left: Vec<String>,
}

impl Plan {
    /// All steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.groups.iter().flatten()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(Vec::is_empty)
    }

    fn group(&mut self, steps: Vec<Step>) {
        if !steps.is_empty() {
            self.groups.push(steps);
        }
    }
}

/// After an unclean stop the page cache may hold what never reached the disk: syncs the logs concerned and forgets their cached pages, so that the
/// plan is made of what is really there. To be called before [`plan`] by who holds the locks.
///
/// # Errors
/// What the system says.
pub fn settle(dir: &dyn Directory, parent: Option<&Arc<dyn Directory>>, name: &TopicPartition) -> Result<()> {
    let found = listing::list(dir)?;
    let Some(from) = listing::unclean_from(dir, parent.map(|p| &**p), &found.logs, name)? else { return Ok(()) };
    for file in found.logs.iter().filter(|l| l.base_offset >= from) {
        let name = file.name();
        let log = dir.open(OsStr::new(&name), Open::Write).map_err(|e| Error::io("open", &name, e))?;
        log.sync_data().map_err(|e| Error::io("sync", &name, e))?;
        log.drop_cached(0).map_err(|e| Error::io("drop the cached pages of", &name, e))?;
    }
    Ok(())
}

/// Makes the plan; writes nothing. `progress` is told the bytes done and all of them.
///
/// # Errors
/// What the system says.
pub fn plan(dir: &dyn Directory, options: &Options, progress: &mut dyn FnMut(u64, u64)) -> Result<Plan> {
    let found = files::list_all(dir)?;
    let layout = files::layout(dir, &found)?;
    let mut plan = Plan::default();
    let names_there = Names::of(dir)?;
    for steps in [leftovers::cleaning(&names_there, &found, &layout), leftovers::orphans(&names_there, &found, &layout)].concat() {
        plan.group(steps.into_iter().map(Step::File).collect());
    }
    let (epochs, epochs_readable) = match checkpoint::read_leader_epochs(dir) {
        Ok(epochs) => (epochs, true),
        Err(Error::Corrupt(_)) => (Vec::new(), false),
        Err(error) => return Err(error),
    };
    let scene = Scene { dir, interval_bytes: options.index_interval_bytes, epochs: &epochs };
    let mut running = Running::default();
    let total: u64 = layout.logs.iter().map(|l| l.metadata.len).sum();
    let mut done = 0;
    for at in 0..layout.logs.len() {
        let mut within = |bytes: u64| progress((done + bytes).min(total), total);
        if let Some(examined) = examine(&scene, &layout, at, &mut running, &mut Report::default(), &mut within)? {
            plan_segment(dir, &layout, at, &examined, options, &mut plan)?;
        }
        done += layout.logs[at].metadata.len;
    }
    if !epochs_readable || (running.epochs_differ && running.epochs != epochs) {
        plan.group(vec![Step::LeaderEpochs(running.epochs)]);
    }
    plan_snapshots(dir, &found, &mut plan)?;
    Ok(plan)
}

fn plan_segment(dir: &dyn Directory, layout: &Layout, at: usize, examined: &Examined, options: &Options, plan: &mut Plan) -> Result<()> {
    let file = &layout.logs[at];
    let base = file.base_offset;
    let mut cuts = Vec::new();
    let mut damaged = |cut: Cut, plan: &mut Plan| {
        if options.drop_damaged {
            cuts.push(cut);
        } else {
            plan.left.push(format!("{} at position {}: {} bytes, {}", file.name(), cut.from, cut.bytes(), cut.what));
        }
    };
    for damage in &examined.scan.damage {
        let lost = match damage.offsets {
            Some((first, last)) if first == last => format!("offset {first} is unreadable"),
            Some((first, last)) => format!("offsets {first} to {last} are unreadable"),
            None => "no offset is lost".to_owned(),
        };
        let what = format!("damaged ({}); {lost}", damage.fault);
        damaged(Cut { from: damage.from, to: damage.to, zeros: false, salvaged: false, what }, plan);
    }
    if !examined.unreadable.is_empty()
        && let Some(log) = files::map(dir, &file.name())?
    {
        for batch in &examined.unreadable {
            let to = batch.position + u64::from(batch.header.size);
            let bytes = log.bytes().get(batch.position as usize..to as usize).unwrap_or_default();
            let saved = salvage::salvage(&batch.header, bytes).map_or(0, |s| s.records);
            let (first, last) = (batch.header.base_offset, batch.header.last_offset);
            let what = format!("a batch of offsets {first} to {last} whose records cannot all be read; {saved} of them can");
            damaged(Cut { from: Position::new(batch.position), to: Position::new(to), zeros: false, salvaged: saved > 0, what }, plan);
        }
        log.still_whole()?;
    }
    if let Some(tail) = &examined.scan.tail {
        let kind = tail.kind();
        let what = format!("{kind} behind the last good batch ({})", tail.fault);
        cuts.push(Cut { from: tail.from, to: tail.from.plus(tail.bytes), zeros: tail.zeros, salvaged: false, what });
    }
    cuts.sort_by_key(|c| c.from);
    if !cuts.is_empty() || !examined.indexes_sound {
        plan.group(vec![Step::Segment { base, limit: layout.limit(at), cuts, kept: !options.discard }]);
    }
    if let Some(entries) = &examined.txnindex {
        plan.group(vec![Step::TxnIndex { base, bytes: entries.iter().flat_map(Entry::encode).collect() }]);
    }
    Ok(())
}

/// Snapshots that cannot be read go, as a broker would have it.
fn plan_snapshots(dir: &dyn Directory, found: &Listing, plan: &mut Plan) -> Result<()> {
    let mut steps = Vec::new();
    for offset in &found.snapshots {
        match read_snapshot(dir, *offset) {
            Err(Error::Corrupt(corruption)) => {
                let why = format!("it cannot be read ({}); a broker makes it anew", corruption.fault);
                steps.push(Step::File(FileStep::Remove { file: corruption.file, why }));
            }
            Err(Error::Io { source, .. }) if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    plan.group(steps);
    Ok(())
}

/// Carries a plan out; `done` is told each step behind it.
///
/// # Errors
/// What the system says; the directory is then as far as the steps told, and the repair can be repeated.
pub fn apply(dir: &dyn Directory, plan: &Plan, options: &Options, done: &mut dyn FnMut(&Step)) -> Result<()> {
    for group in &plan.groups {
        for step in group {
            match step {
                Step::File(step) => step.run(dir)?,
                Step::Segment { base, limit, cuts, .. } => rewrite::segment(dir, *base, *limit, cuts, options)?,
                Step::TxnIndex { base, bytes } => rewrite::replace(dir, &names::of(*base, names::TXN_INDEX), bytes)?,
                Step::LeaderEpochs(entries) => checkpoint::write_leader_epochs(dir, entries)?,
            }
            done(step);
        }
        dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))?;
    }
    Ok(())
}
