//! The process under test: a writer over a simulated disk, driven on one thread as `commit` drives it, and the ledger of what it was told.

use crate::case::{Shape, Step, Survives};
use crate::lies::{Lie, LyingFileSystem};
use offsetfs::error::Error;
use offsetfs::io::sim::{Fault, SimDisk};
use offsetfs::io::{Directory, FileSystem};
use offsetfs::log::compaction::{self, Mode};
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::NewRecord;
use offsetfs::log::partition::Partition;
use offsetfs::log::prepare::{Prepared, prepare};
use offsetfs::log::repair;
use offsetfs::log::retention;
use offsetfs::log::segment::OpenSegments;
use offsetfs::log::walk::{Item, Look};
use offsetfs::log::writer::{Sealing, Writer};
use offsetfs::types::{Offset, Patience, TimestampMs, TopicPartition};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

pub(crate) const DIRECTORY: &str = "/topic-0";

/// What went wrong when a machine was looked at, for the reader of a failed test.
pub(crate) type Verdict<T> = Result<T, String>;

/// Offsets and values, in order.
pub(crate) type Found = Vec<(i64, Vec<u8>)>;

/// What the log may hold and must hold.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    /// Every value that a request ever tried to store at an offset.
    pub(crate) tried: BTreeMap<i64, BTreeSet<Vec<u8>>>,
    /// What was appended whole, by offset: what readers see while the process lives.
    pub(crate) stored: Vec<Vec<u8>>,
    /// The offsets below this were acknowledged by a finished sync.
    pub(crate) acknowledged: usize,
    /// Offsets that a process left in the page cache when it died and that the fsync of the recovery behind it may have lost: no sync that came later
    /// speaks for them.
    pub(crate) doubtful: BTreeSet<i64>,
    /// The log starts at or behind this: so far a `delete-before` was acknowledged.
    pub(crate) start_least: i64,
    /// The log starts at or before this: so far one was tried.
    pub(crate) start_most: i64,
    /// Where it starts for readers while the process lives.
    pub(crate) start_shown: i64,
    /// Offsets that a compaction was to take, since a later record has their key.
    pub(crate) outdated: BTreeSet<i64>,
    /// Whether they are gone for readers: the last compaction that did something went well.
    pub(crate) compacted: bool,
}

impl Ledger {
    pub(crate) fn try_at(&mut self, offset: i64, value: &[u8]) {
        self.tried.entry(offset).or_default().insert(value.to_vec());
    }
}

/// A disk with a partition on it.
pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) lie: Option<Lie>,
    pub(crate) config: LogConfig,
}

impl Machine {
    /// A new one with an empty partition.
    pub(crate) fn new(shape: &Shape, lie: Option<Lie>) -> Machine {
        let disk = SimDisk::new();
        disk.filesystem().create_dir(Path::new(DIRECTORY)).expect("a new directory");
        Machine { disk, lie, config: shape.config() }
    }

    /// The same machine with another disk.
    pub(crate) fn with(&self, disk: SimDisk) -> Machine {
        Machine { disk, lie: self.lie, config: self.config.clone() }
    }

    /// Another machine with the disk that a crash leaves.
    pub(crate) fn crash(&self, survives: &Survives) -> Machine {
        self.disk.reorder_names(survives.reorder);
        self.with(self.disk.crash(&mut survives.chooser()))
    }

    fn filesystem(&self) -> Arc<dyn FileSystem> {
        match self.lie {
            None => self.disk.filesystem(),
            Some(lie) => Arc::new(LyingFileSystem::new(self.disk.filesystem(), lie)),
        }
    }

    fn directory(&self) -> Result<Arc<dyn Directory>, Error> {
        self.filesystem().open_dir(Path::new(DIRECTORY)).map_err(|e| Error::io("open", DIRECTORY, e))
    }

    pub(crate) fn open(&self) -> Result<Arc<Partition>, Error> {
        let opened = Arc::new(OpenSegments::new(100));
        Partition::open(self.directory()?, None, name(), self.config.clone(), self.disk.clock(), opened, false).map(Arc::new)
    }

    /// What `offsetfs recover` does.
    pub(crate) fn repair(&self) -> Result<(), Error> {
        let directory = self.directory()?;
        let options = repair::Options { drop_damaged: false, discard: false, index_interval_bytes: self.config.index_interval_bytes };
        repair::settle(&*directory, None, &name())?;
        let plan = repair::plan(&*directory, &options, &mut |_, _| {})?;
        repair::apply(&*directory, &plan, &options, &mut |_| {})
    }
}

/// The key of a value, where records have keys: few, so that most records are outdated soon.
pub(crate) fn key(config: &LogConfig, value: &[u8]) -> Option<Vec<u8>> {
    let number = value.split(|&byte| byte == b':').next().and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
    config.cleanup_policy.compact.then(|| number.map_or(b"new".to_vec(), |number| (number % 3).to_string().into_bytes()))
}

fn name() -> TopicPartition {
    TopicPartition { topic: "topic".to_owned(), partition: 0 }
}

/// One request of a record with each of these values.
pub(crate) fn request(config: &LogConfig, timestamp_ms: i64, values: &[Vec<u8>]) -> Prepared {
    let timestamp = TimestampMs::new(timestamp_ms);
    let keys: Vec<_> = values.iter().map(|value| key(config, value)).collect();
    let mut records =
        values.iter().zip(&keys).map(|(value, key)| NewRecord { timestamp, key: key.as_deref(), value: Some(value), headers: &[] });
    prepare(config, timestamp, &mut records).expect("small records")
}

/// All that a walk finds: offsets and values, and whether it met damage.
pub(crate) fn read_all(partition: &Partition) -> Verdict<(Found, bool)> {
    let bounds = partition.bounds();
    let mut walk = partition.walk(bounds.log_start, bounds.log_end, Look::Batches, Patience::MayBlock);
    let (mut found, mut damaged) = (Vec::new(), false);
    loop {
        match walk.next(partition).map_err(|e| format!("a walk fails: {e}"))? {
            None => return Ok((found, damaged)),
            Some(Item::Damaged(_)) => damaged = true,
            Some(Item::Batch(batch, file)) => {
                let body = partition.body(&batch, &file, Patience::MayBlock).map_err(|e| format!("a body fails: {e}"))?;
                for record in body.records() {
                    let record = body.record(record.map_err(|e| format!("a record fails: {e}"))?);
                    // A batch that the log start lies in is there whole; its first records are not.
                    if record.offset() >= bounds.log_start {
                        found.push((record.offset().get(), record.value().unwrap_or_default().to_vec()));
                    }
                }
            }
        }
    }
}

/// The process: a writer, the segments that wait to be sealed, and the ledger.
pub(crate) struct Process<'m> {
    machine: &'m Machine,
    partition: Arc<Partition>,
    writer: Option<Writer>,
    sealing: VecDeque<Sealing>,
    poisoned: bool,
    next_value: u64,
    /// Whether an fsync may fail.
    may_lose: bool,
    /// Whether an exchange of segments failed halfway, which the next opening finishes: until then there is neither retention nor compaction.
    interrupted: bool,
}

impl<'m> Process<'m> {
    fn start(machine: &'m Machine, next_value: u64, may_lose: bool) -> Result<Process<'m>, Error> {
        let partition = machine.open()?;
        Ok(Process {
            machine,
            partition,
            writer: None,
            sealing: VecDeque::new(),
            poisoned: false,
            next_value,
            may_lose,
            interrupted: false,
        })
    }

    /// The writer, opened at its first use; an opening that fails is tried again at the next use.
    fn writer(&mut self, ledger: &mut Ledger) -> Option<&mut Writer> {
        if self.writer.is_none() {
            let (writer, _) = Writer::open(self.partition.clone()).ok()?;
            let next = writer.next_offset().get() as usize;
            if self.may_lose && (ledger.acknowledged..ledger.stored.len()).contains(&next) {
                // The fsync of a recovery failed, and the next one found at its end what the disk really had.
                ledger.stored.truncate(next);
                ledger.outdated.split_off(&(next as i64));
            }
            self.writer = Some(writer);
        }
        self.writer.as_mut()
    }

    fn append(&mut self, ledger: &mut Ledger, requests: &[Vec<u16>]) -> Verdict<()> {
        let mut values = Vec::new();
        for sizes in requests {
            let of = |(n, size): (usize, &u16)| format!("{}:{}", self.next_value + n as u64, "p".repeat(usize::from(*size))).into_bytes();
            values.push(sizes.iter().enumerate().map(of).collect::<Vec<_>>());
            self.next_value += sizes.len() as u64;
        }
        let timestamp_ms = 1_700_000_000_000 + (self.next_value * 37 % 100) as i64;
        let mut group: Vec<_> = values.iter().map(|values| request(&self.machine.config, timestamp_ms, values)).collect();
        let Some(writer) = self.writer(ledger) else { return Ok(()) };
        let stored = ledger.stored.len() as i64;
        if writer.next_offset().get() != stored {
            return Err(format!("the next offset is {}, not {stored}", writer.next_offset()));
        }
        for (offset, value) in (stored..).zip(values.iter().flatten()) {
            ledger.try_at(offset, value);
        }
        let (whole, stopped) = writer.append(&mut group);
        if stopped.is_none() != (whole == group.len()) {
            return Err(format!("{whole} of {} requests and {stopped:?}", group.len()));
        }
        let rolled = writer.take_rolled();
        let next = writer.next_offset().get();
        self.sealing.extend(rolled);
        ledger.stored.extend(values.into_iter().take(whole).flatten());
        if next != ledger.stored.len() as i64 {
            return Err(format!("the next offset is {next} behind {} records; it stopped for {stopped:?}", ledger.stored.len()));
        }
        Ok(())
    }

    /// Seals so many of the rolled segments, or all of them and syncs the active one, too.
    fn sync(&mut self, ledger: &mut Ledger, most: Option<usize>) {
        if self.poisoned || self.writer.is_none() {
            return;
        }
        let mut sealed = Ok(());
        for _ in 0..most.unwrap_or(usize::MAX) {
            let Some(segment) = self.sealing.pop_front() else { break };
            sealed = sealed.and_then(|()| segment.run());
        }
        let Some(writer) = &mut self.writer else { return };
        if sealed.is_ok() && most.is_none() {
            sealed = writer.active_log().sync_data().map_err(|e| Error::io("sync", "the active segment", e));
        }
        match sealed {
            Ok(()) if most.is_none() => ledger.acknowledged = ledger.stored.len(),
            Ok(()) => {}
            Err(error) => {
                writer.poison(error.to_string());
                self.poisoned = true;
            }
        }
    }

    fn roll(&mut self, ledger: &mut Ledger) {
        if let Some(writer) = self.writer(ledger) {
            // A roll that fails leaves the log as it was; the ledger is checked all the same.
            let _ = writer.roll_now();
            let rolled = writer.take_rolled();
            self.sealing.extend(rolled);
        }
    }

    /// Closes well and starts anew. False where that failed: the process is then gone.
    fn reopen(&mut self, ledger: &mut Ledger) -> bool {
        self.sync(ledger, Some(usize::MAX));
        if let Some(writer) = self.writer.take() {
            if writer.close().is_err() {
                return false;
            }
            // What could not be unlinked is removed at the next opening.
            let _ = self.partition.waste().unlink_all(&**self.partition.directory());
            if !self.poisoned {
                ledger.acknowledged = ledger.stored.len();
            }
        }
        self.start_anew()
    }

    /// Dies with all that is in the page cache still there, and starts anew, after `offsetfs recover` or by itself. False where it cannot go on:
    /// after a failed fsync nobody knows what the next process finds.
    fn die(&mut self, ledger: &mut Ledger, repair: bool) -> bool {
        if self.poisoned || self.writer.take().is_some_and(|writer| writer.poisoned().is_some()) {
            return false;
        }
        self.sealing.clear();
        if self.may_lose {
            ledger.doubtful.extend(ledger.acknowledged as i64..ledger.stored.len() as i64);
        }
        if repair && self.machine.repair().is_err() {
            return false;
        }
        self.start_anew()
    }

    fn start_anew(&mut self) -> bool {
        match Process::start(self.machine, self.next_value, self.may_lose) {
            Ok(new) => {
                *self = new;
                true
            }
            Err(_) => false,
        }
    }

    /// Deletes so many more records from the front, or all.
    fn delete_before(&mut self, ledger: &mut Ledger, records: i64) {
        if self.writer(ledger).is_none() {
            return;
        }
        let bounds = self.partition.bounds();
        let before = (bounds.log_start.get() + records).min(bounds.log_end.get());
        ledger.start_most = ledger.start_most.max(before);
        if self.partition.delete_before(Offset::new(before).expect("not negative")).is_ok() {
            ledger.start_least = ledger.start_least.max(before);
            ledger.start_shown = ledger.start_least;
        }
    }

    /// Takes the segments that are too many, once all is synced that is counted as kept.
    fn retain(&mut self, ledger: &mut Ledger) -> Verdict<()> {
        if self.poisoned || self.interrupted || self.writer(ledger).is_none() {
            return Ok(());
        }
        let Ok(plan) = retention::plan(&self.partition, Patience::MayBlock) else { return Ok(()) };
        self.sync(ledger, None);
        let Some(writer) = self.writer.as_mut().filter(|_| !self.poisoned) else { return Ok(()) };
        let before = self.partition.bounds().log_start.get();
        let first_kept = plan.first_kept().map_or(0, Offset::get);
        let goal = first_kept.max(before);
        ledger.start_most = ledger.start_most.max(goal);
        let done = retention::carry_out(&self.partition, writer, &plan);
        self.sealing.extend(writer.take_rolled());
        if done.is_ok() {
            ledger.start_least = ledger.start_least.max(first_kept);
        }
        ledger.start_shown = self.partition.bounds().log_start.get();
        if ledger.start_shown != goal && (done.is_ok() || ledger.start_shown != before) {
            return Err(format!("retention was to raise the log start from {before} to {goal}, and it is {}", ledger.start_shown));
        }
        let left: u64 = self.partition.layout().segments.iter().map(|segment| segment.end()).sum();
        let least = u64::try_from(self.machine.config.retention_bytes).unwrap_or(0);
        if first_kept > before && left < least {
            return Err(format!("retention was to leave {least} bytes, and left {left}"));
        }
        Ok(())
    }

    /// Leaves the latest record of each key, of the segments that are sealed.
    fn compact(&mut self, ledger: &mut Ledger) -> Verdict<()> {
        if self.poisoned || self.interrupted || !self.machine.config.cleanup_policy.compact || self.writer(ledger).is_none() {
            return Ok(());
        }
        let durable = self.sealing.front().map_or_else(|| self.partition.layout().active_base(), Sealing::base_offset);
        let mut latest = BTreeSet::new();
        let of_later = |(_, value): &(usize, &Vec<u8>)| !latest.insert(key(&self.machine.config, value));
        let stored = ledger.stored.iter().enumerate().take(durable.get() as usize);
        let outdated: Vec<i64> = stored.rev().filter(of_later).map(|(offset, _)| offset as i64).collect();
        let mut exchanged = false;
        let mut exclusively = |work: &mut dyn FnMut()| {
            exchanged = true;
            work();
            Ok(())
        };
        let done = compaction::run(&self.partition, Mode::Real { durable, exclusively: &mut exclusively }, &mut |_, _| true);
        self.interrupted = matches!(done, Err(Error::HalfCompacted { .. }));
        if exchanged || self.interrupted {
            ledger.outdated.extend(outdated);
        }
        match done {
            // One that had nothing to do leaves what the one before it came to.
            Ok(outcome) => ledger.compacted |= outcome.compacted_to == Some(durable),
            Err(_) => ledger.compacted = false,
        }
        Ok(())
    }

    /// While the process lives, readers see just what was appended whole and neither deleted nor outdated.
    fn check(&self, ledger: &Ledger) -> Verdict<()> {
        let (found, damaged) = read_all(&self.partition)?;
        let start = self.partition.bounds().log_start.get();
        let is_there = |offset: i64| found.binary_search_by_key(&offset, |f| f.0).is_ok();
        let goes = |offset: &i64| ledger.outdated.contains(offset) && (ledger.compacted || !is_there(*offset));
        let wanted = (0..).zip(ledger.stored.iter().cloned()).skip(start as usize).filter(|(offset, _)| !goes(offset));
        if damaged || start != ledger.start_shown || !found.iter().cloned().eq(wanted) {
            let found: Vec<i64> = found.iter().map(|(offset, _)| *offset).collect();
            return Err(format!(
                "readers see {found:?} (damage: {damaged}) from {start}; {} records are stored from {} without {:?} (compacted: {})",
                ledger.stored.len(),
                ledger.start_shown,
                ledger.outdated,
                ledger.compacted
            ));
        }
        Ok(())
    }
}

/// Runs the steps under a fault that may strike; it ends early where the machine stopped in one.
pub(crate) fn run(machine: &Machine, ledger: &mut Ledger, steps: &[Step], fault: Option<Fault>) -> Verdict<()> {
    // Whether what readers see is certain while the process lives.
    let certain = !matches!(fault, Some(Fault::Crash | Fault::Io));
    let Ok(mut process) = Process::start(machine, 0, fault == Some(Fault::Io)) else { return Ok(()) };
    for step in steps {
        let goes_on = match step {
            Step::Append(requests) => process.append(ledger, requests).map(|()| true)?,
            Step::Sync => {
                process.sync(ledger, None);
                true
            }
            Step::Seal => {
                process.sync(ledger, Some(1));
                true
            }
            Step::Roll => {
                process.roll(ledger);
                true
            }
            Step::Close => process.reopen(ledger),
            Step::Die => process.die(ledger, false),
            Step::Repair => process.die(ledger, true),
            Step::DeleteBefore(records) => {
                process.delete_before(ledger, i64::from(*records));
                true
            }
            Step::Retain => process.retain(ledger).map(|()| true)?,
            Step::Compact => process.compact(ledger).map(|()| true)?,
            Step::Look => {
                if certain {
                    process.check(ledger)?;
                }
                true
            }
        };
        if !goes_on {
            return Ok(());
        }
    }
    Ok(())
}
