//! Crashes and failures of the disk: whatever operation is struck and whatever subset of the unsynced changes survives, nothing acknowledged is lost
//! and nothing is invented.
//!
//! The writer is driven on one thread over the simulated disk, as `commit` drives it: a sync is acknowledged when every rolled segment is sealed
//! and the active one is synced. A state is one disk after a crash (or after crashes in a row, the later ones in the middle of recovery), looked at
//! by the oracle. `OFFSETFS_CRASH_STATES` asks for more states than the usual number, `OFFSETFS_CRASH_SEED` for others.
//!
//! Records that were not acknowledged may be there or not, each for itself: behind bytes that were lost whole batches may have survived, and no reader
//! can tell them from good neighbours of a damaged stretch, so they stay.

#[path = "crash/compaction.rs"]
mod compaction;
#[path = "crash/lies.rs"]
mod lies;
#[path = "common/random.rs"]
mod random;
#[path = "crash/retention.rs"]
mod retention;

use lies::{Lie, LyingFileSystem};
use offsetfs::error::Error;
use offsetfs::io::FileSystem;
use offsetfs::io::sim::{Fault, SimDisk};
use offsetfs::log::compression::Codec;
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::NewRecord;
use offsetfs::log::partition::Partition;
use offsetfs::log::prepare::{Prepared, prepare};
use offsetfs::log::seek;
use offsetfs::log::segment::OpenSegments;
use offsetfs::log::walk::{Item, Look};
use offsetfs::log::writer::{Sealing, Writer};
use offsetfs::types::{Offset, Patience, TimestampMs, TopicPartition};
use random::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

/// So many states are looked at where nobody asks for more.
const STATES: u64 = 20_000;
const SEED: u64 = 0x0FF5_E7F5;
const DIRECTORY: &str = "/topic-0";
/// After one run of a script so many crashed disks are drawn.
const CRASHES_A_RUN: u64 = 10;

impl Random {
    fn within(&mut self, from: u64, end: u64) -> u64 {
        from + self.below(end - from)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Offsets and values, in order.
type Found = Vec<(i64, Vec<u8>)>;

/// What the log may hold and must hold.
#[derive(Clone, Default)]
struct Ledger {
    /// Every value that a request ever tried to store at an offset.
    tried: BTreeMap<i64, BTreeSet<Vec<u8>>>,
    /// What was appended whole, by offset: what readers see while the process lives.
    stored: Vec<Vec<u8>>,
    /// The offsets below this were acknowledged by a finished sync.
    acknowledged: usize,
}

impl Ledger {
    fn try_at(&mut self, offset: i64, value: &[u8]) {
        self.tried.entry(offset).or_default().insert(value.to_vec());
    }
}

/// A disk with a partition on it.
struct Machine {
    disk: SimDisk,
    lie: Option<Lie>,
    config: LogConfig,
}

/// What went on when a machine was looked at: the reason is for the reader of a failed test.
type Verdict<T> = Result<T, String>;

impl Machine {
    fn open(&self) -> Result<Arc<Partition>, Error> {
        let filesystem: Arc<dyn FileSystem> = match self.lie {
            None => self.disk.filesystem(),
            Some(lie) => Arc::new(LyingFileSystem::new(self.disk.filesystem(), lie)),
        };
        let directory = filesystem.open_dir(Path::new(DIRECTORY)).map_err(|e| Error::io("open", DIRECTORY, e))?;
        let name = TopicPartition { topic: "topic".to_owned(), partition: 0 };
        let opened = Arc::new(OpenSegments::new(100));
        Partition::open(directory, None, name, self.config.clone(), filesystem.clock(), opened, false).map(Arc::new)
    }

    /// Another machine with the disk that a crash leaves.
    fn crash(&self, random: &mut Random) -> Machine {
        self.disk.reorder_names(random.once_in(3));
        // Mostly lost, mostly kept, or anything.
        let bias = random.below(4);
        let mut choice = |options: usize| match bias {
            0 if !random.once_in(5) => 0,
            1 if !random.once_in(5) => 1.min(options - 1),
            _ => random.below(options as u64) as usize,
        };
        Machine { disk: self.disk.crash(&mut choice), lie: self.lie, config: self.config.clone() }
    }
}

/// All that a walk finds: offsets and values, and whether it met damage.
fn read_all(partition: &Partition) -> Verdict<(Found, bool)> {
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
                    found.push((record.offset().get(), record.value().unwrap_or_default().to_vec()));
                }
            }
        }
    }
}

/// The process: a writer, the segments that wait to be sealed, and the ledger.
struct Process<'m> {
    machine: &'m Machine,
    partition: Arc<Partition>,
    writer: Option<Writer>,
    sealing: VecDeque<Sealing>,
    poisoned: bool,
    next_value: u64,
}

impl<'m> Process<'m> {
    fn start(machine: &'m Machine, next_value: u64) -> Result<Process<'m>, Error> {
        let partition = machine.open()?;
        Ok(Process { machine, partition, writer: None, sealing: VecDeque::new(), poisoned: false, next_value })
    }

    /// The writer, opened at its first use; an opening that fails is tried again at the next use.
    fn writer(&mut self) -> Option<&mut Writer> {
        if self.writer.is_none() {
            self.writer = Writer::open(self.partition.clone()).ok().map(|(writer, _)| writer);
        }
        self.writer.as_mut()
    }

    fn request(&mut self, random: &mut Random) -> (Prepared, Vec<Vec<u8>>) {
        let values: Vec<Vec<u8>> = (0..random.within(1, 5))
            .map(|_| {
                self.next_value += 1;
                let padding = if random.once_in(3) { random.below(500) } else { random.below(40) };
                format!("{}:{}", self.next_value, "p".repeat(padding as usize)).into_bytes()
            })
            .collect();
        let timestamp = TimestampMs::new(1_700_000_000_000 + random.below(100) as i64);
        let mut records = values.iter().map(|value| NewRecord { timestamp, key: None, value: Some(value), headers: &[] });
        let prepared = prepare(&self.machine.config, timestamp, &mut records).expect("small records");
        (prepared, values)
    }

    fn append(&mut self, ledger: &mut Ledger, random: &mut Random) -> Verdict<()> {
        let (mut group, values): (Vec<_>, Vec<_>) = (0..random.within(1, 4)).map(|_| self.request(random)).unzip();
        let stored = ledger.stored.len() as i64;
        let Some(writer) = self.writer() else { return Ok(()) };
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

    fn roll(&mut self) {
        if let Some(writer) = self.writer() {
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
            if !self.poisoned {
                ledger.acknowledged = ledger.stored.len();
            }
        }
        match Process::start(self.machine, self.next_value) {
            Ok(new) => *self = new,
            Err(_) => return false,
        }
        true
    }

    /// While the process lives, readers see just what was appended whole.
    fn check(&self, ledger: &Ledger) -> Verdict<()> {
        let (found, damaged) = read_all(&self.partition)?;
        let wanted = (0..).zip(ledger.stored.iter().cloned());
        if damaged || !found.iter().cloned().eq(wanted) {
            let found: Vec<i64> = found.iter().map(|(offset, _)| *offset).collect();
            return Err(format!("readers see {found:?} (damage: {damaged}), {} records are stored", ledger.stored.len()));
        }
        Ok(())
    }
}

/// Runs a script of operations. False where the machine stopped in it.
fn run(machine: &Machine, ledger: &mut Ledger, random: &mut Random, may_fail: bool) -> Verdict<()> {
    let Ok(mut process) = Process::start(machine, 0) else { return Ok(()) };
    for _ in 0..random.within(2, 14) {
        match random.below(12) {
            0..6 => process.append(ledger, random)?,
            6..8 => process.sync(ledger, None),
            8 => process.sync(ledger, Some(1)),
            9 => process.roll(),
            10 => {
                if !process.reopen(ledger) {
                    return Ok(());
                }
            }
            _ => {
                if !may_fail {
                    process.check(ledger)?;
                }
            }
        }
    }
    Ok(())
}

/// Recovers the machine and looks at what it holds, perhaps after crashes in the middle of that.
fn judge(machine: Machine, ledger: &Ledger, random: &mut Random) -> Verdict<()> {
    let mut machine = machine;
    while random.once_in(3) {
        machine.disk.fail_at(random.within(1, 60), Fault::Crash);
        if let Ok(partition) = machine.open() {
            let _ = Writer::open(partition);
        }
        machine = machine.crash(random);
    }
    let partition = machine.open().map_err(|e| format!("it cannot be opened: {e}"))?;
    let before = holds(&partition, ledger).map_err(|reason| format!("before recovery: {reason}"))?;
    let (mut writer, _) = Writer::open(partition.clone()).map_err(|e| format!("it cannot be recovered: {e}"))?;
    let recovered = holds(&partition, ledger).map_err(|reason| format!("after recovery: {reason}"))?;
    if recovered != before {
        let offsets = |found: &[(i64, Vec<u8>)]| found.iter().map(|(offset, _)| *offset).collect::<Vec<_>>();
        return Err(format!("readers saw {:?}, and after recovery {:?}", offsets(&before), offsets(&recovered)));
    }
    // It can be appended to, and one sync then keeps all that was found.
    let end = writer.next_offset();
    let record = NewRecord { timestamp: TimestampMs::new(1_700_000_000_000), key: None, value: Some(b"new"), headers: &[] };
    let mut group = [prepare(&machine.config, record.timestamp, &mut std::iter::once(record)).expect("a small record")];
    if let (_, Some(error)) = writer.append(&mut group) {
        return Err(format!("it cannot be appended to: {error}"));
    }
    for sealing in writer.take_rolled() {
        sealing.run().map_err(|e| format!("it cannot be sealed: {e}"))?;
    }
    writer.active_log().sync_data().map_err(|e| format!("it cannot be synced: {e}"))?;
    let mut ledger = ledger.clone();
    ledger.try_at(end.get(), b"new");
    let after = if random.once_in(4) {
        writer.close().map_err(|e| format!("it cannot be closed: {e}"))?;
        Machine { disk: machine.disk.clone(), lie: machine.lie, config: machine.config.clone() }
    } else {
        machine.crash(random)
    };
    let partition = after.open().map_err(|e| format!("it cannot be opened again: {e}"))?;
    let found = holds(&partition, &ledger).map_err(|reason| format!("once more: {reason}"))?;
    let wanted: Vec<_> = recovered.into_iter().chain([(end.get(), b"new".to_vec())]).collect();
    if found != wanted {
        return Err(format!("{} records were there and one was acknowledged, now there are {}", wanted.len() - 1, found.len()));
    }
    Ok(())
}

/// Every acknowledged record is there, by both ways of reading, and every record that is there was given to the log for that offset.
fn holds(partition: &Partition, ledger: &Ledger) -> Verdict<Found> {
    let (found, _) = read_all(partition)?;
    if !found.is_sorted_by(|a, b| a.0 < b.0) {
        return Err("the offsets do not rise".to_owned());
    }
    for (offset, value) in &found {
        if !ledger.tried.get(offset).is_some_and(|tried| tried.contains(value)) {
            return Err(format!("offset {offset} holds what nobody gave to it: {}", value.escape_ascii()));
        }
    }
    for (offset, want) in (0..).zip(&ledger.stored[..ledger.acknowledged]) {
        let by_walk = found.binary_search_by_key(&offset, |f| f.0).map(|at| &found[at].1);
        let by_offset = partition.record(Offset::new(offset).expect("not negative"), Patience::MayBlock);
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

fn config(random: &mut Random) -> LogConfig {
    LogConfig {
        segment_bytes: random.within(150, 1500),
        segment_index_bytes: if random.once_in(4) { random.within(4, 40) } else { 256 },
        index_interval_bytes: random.below(200),
        batch_size: random.within(1, 600),
        compression_type: if random.once_in(5) { Codec::Lz4 } else { Codec::None },
        max_message_bytes: 1000,
        ..LogConfig::default()
    }
}

/// One script on one machine with at most one fault, and the states that it leads to. Returns how many they were.
fn one(seed: u64, lie: Option<Lie>) -> Verdict<u64> {
    let mut random = Random(seed);
    let config = LogConfig { segment_bytes: 1500, ..config(&mut random) };
    let config = if random.once_in(2) { LogConfig { segment_bytes: random.within(700, 1500), ..config } } else { config };
    let machine = Machine { disk: SimDisk::new(), lie, config };
    machine.disk.filesystem().create_dir(Path::new(DIRECTORY)).expect("a new directory");
    let mut ledger = Ledger::default();
    let fault = match random.below(6) {
        0..3 => Some(Fault::Crash),
        3 => Some(Fault::Io),
        4 => Some([Fault::NoSpace, Fault::ShortWrite][random.below(2) as usize]),
        _ => None,
    };
    if let Some(fault) = fault {
        machine.disk.fail_at(random.within(1, 150), fault);
    }
    run(&machine, &mut ledger, &mut random, matches!(fault, Some(Fault::Crash | Fault::Io)))?;
    for _ in 0..CRASHES_A_RUN {
        judge(machine.crash(&mut random), &ledger, &mut random)?;
    }
    Ok(CRASHES_A_RUN)
}

/// As many states as are asked for; the first verdict that is not good ends it.
fn states(most: u64, seed: u64, lie: Option<Lie>) -> Verdict<u64> {
    let mut random = Random(seed);
    let mut seen = 0;
    while seen < most {
        let seed = random.next();
        seen += one(seed, lie).map_err(|reason| format!("seed {seed:#x}, after {seen} states: {reason}"))?;
    }
    Ok(seen)
}

fn asked(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable} takes a number")))
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_invented() {
    let (most, seed) = (asked("OFFSETFS_CRASH_STATES", STATES), asked("OFFSETFS_CRASH_SEED", SEED));
    println!("seed {seed:#x}");
    match states(most, seed, None) {
        Ok(seen) => println!("{seen} states"),
        Err(reason) => panic!("{reason}"),
    }
}

#[test]
fn a_missing_fsync_is_found() {
    for lie in [Lie::Data, Lie::Names] {
        let verdict = states(5_000, SEED, Some(lie));
        assert!(verdict.is_err(), "{lie:?}: {verdict:?}");
    }
}
