//! What is done to a log between appends: retention, compaction, the unlinking of what they took, and when each is due.
//!
//! Nothing is deleted here that nobody asked for: without the setting `maintenance` only an explicit call acts, and a thread exists only while files
//! wait to be unlinked. All is timed by the clock of the file system, so that a week can pass in a test.

use crate::error::{Error, Result};
use crate::log::commit::Committer;
use crate::log::compaction::{self, Mode, Outcome};
use crate::log::partition::Partition;
use crate::log::retention::{self, Plan};
use crate::source::held::Held;
use crate::types::{Offset, TimestampMs};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The first look comes so many milliseconds after the opening, or earlier where the interval is shorter; Kafka's.
const INITIAL_DELAY_MS: u64 = 30_000;
/// The thread looks at the clock at least so often: clocks jump.
const WAIT_MOST: Duration = Duration::from_secs(60);
const WAIT_LEAST: Duration = Duration::from_millis(10);
/// So many failures are kept until somebody asks.
const EVENTS_MOST: usize = 100;

#[derive(Debug)]
struct State {
    next_retention: TimestampMs,
    next_compaction: TimestampMs,
    /// Why nothing can be done any more: an exchange of files was interrupted, which the next opening finishes.
    interrupted: Option<String>,
    running: bool,
    stopping: bool,
    events: Vec<String>,
}

/// The upkeep of a partition that we may write to.
#[derive(Debug)]
pub struct Upkeep {
    partition: Arc<Partition>,
    committer: Arc<Committer>,
    /// Held by whoever changes what lies before the active segment.
    at_work: Mutex<()>,
    /// The records that are open, which keep their bytes.
    held: Held,
    state: Mutex<State>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Upkeep {
    /// The upkeep of a partition. With the setting `maintenance` its thread begins now.
    ///
    /// # Errors
    /// What the system says of a new thread.
    pub(crate) fn new(partition: Arc<Partition>, committer: Arc<Committer>) -> Result<Arc<Upkeep>> {
        let config = partition.config();
        let now = partition.clock().now();
        let state = State {
            next_retention: now.later_by(config.retention_check_interval_ms.min(INITIAL_DELAY_MS)),
            next_compaction: now.later_by(config.cleaner_backoff_ms.min(INITIAL_DELAY_MS)),
            interrupted: None,
            running: false,
            stopping: false,
            events: Vec::new(),
        };
        let maintenance = config.maintenance;
        let upkeep = Upkeep {
            partition,
            committer,
            at_work: Mutex::new(()),
            held: Held::default(),
            state: Mutex::new(state),
            wake: Condvar::new(),
            thread: Mutex::new(None),
        };
        let upkeep = Arc::new(upkeep);
        if maintenance {
            upkeep.start()?;
        }
        Ok(upkeep)
    }

    /// Takes the segments that retention names. What went is told.
    ///
    /// # Errors
    /// As [`Committer`]'s; what the system says.
    pub(crate) fn retain(self: &Arc<Upkeep>) -> Result<Plan> {
        let taken = self.take_old()?;
        self.start_if_needed()?;
        Ok(taken)
    }

    /// Compacts the log, where that is due. `progress` is told the bytes done and all of them; `false` ends it.
    ///
    /// # Errors
    /// As [`compaction::run`].
    pub(crate) fn compact(self: &Arc<Upkeep>, progress: &mut compaction::Progress<'_>) -> Result<Outcome> {
        let outcome = self.rewrite(progress);
        self.start_if_needed()?;
        outcome
    }

    fn rewrite(&self, progress: &mut compaction::Progress<'_>) -> Result<Outcome> {
        let _at_work = self.at_work.lock();
        self.may_go_on()?;
        // The log is not made ready for writing where there is nothing to do.
        let measured = compaction::plan(&self.partition)?;
        if !measured.due {
            return Ok(Outcome::nothing(measured));
        }
        let durable = self.committer.make_durable()?;
        let mut exclusively = |work: &mut dyn FnMut()| {
            self.committer.with_writer(|_| {
                self.held.keep(&self.partition, Offset::ZERO..self.partition.layout().active_base());
                work();
                Ok(())
            })
        };
        let outcome = compaction::run(&self.partition, Mode::Real { durable, exclusively: &mut exclusively }, &mut |done, all| {
            progress(done, all) && !self.state.lock().stopping
        });
        if let Err(Error::HalfCompacted { reason }) = &outcome {
            self.state.lock().interrupted = Some(reason.clone());
        }
        if let Ok(Outcome { compacted_to: Some(end), segments, bytes, .. }) = &outcome {
            let (name, before, after) = (self.partition.name(), bytes.0, bytes.1);
            log::info!("{name}: compacted up to offset {end}: {} segments of {before} bytes became {} of {after}", segments.0, segments.1);
        }
        outcome
    }

    fn may_go_on(&self) -> Result<()> {
        match &self.state.lock().interrupted {
            Some(reason) => Err(Error::HalfCompacted { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn take_old(&self) -> Result<Plan> {
        let _at_work = self.at_work.lock();
        self.may_go_on()?;
        // The log is not made ready for writing where there is nothing to do.
        let plan = retention::plan(&self.partition, crate::types::Patience::MayBlock)?;
        if plan.removals.is_empty() {
            return Ok(plan);
        }
        // What was counted must not be lost: the log would keep less than it has to.
        self.committer.make_durable()?;
        let plan = self.committer.with_writer(|writer| {
            self.held.keep(&self.partition, Offset::ZERO..plan.first_kept().unwrap_or_default());
            retention::carry_out(&self.partition, writer, &plan)
        })?;
        for removal in &plan.removals {
            log::info!(
                "{}: the segment of offsets {} to below {} went: {}",
                self.partition.name(),
                removal.base,
                removal.until,
                removal.why
            );
        }
        Ok(plan)
    }

    /// Raises the log start offset.
    ///
    /// # Errors
    /// As [`crate::source::Maintenance::delete_before`].
    pub(crate) fn delete_before(&self, offset: Offset) -> Result<Offset> {
        let _at_work = self.at_work.lock();
        self.partition.may_write()?;
        // A command that takes nothing, or is refused, keeps nothing.
        let bounds = self.partition.bounds();
        if offset > bounds.log_start && offset <= bounds.log_end {
            self.held.keep(&self.partition, Offset::ZERO..offset);
        }
        self.partition.delete_before(offset)
    }

    /// The records that are open.
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Does all that is due by the clock: unlinks what has waited long enough and, with the setting `maintenance`, compacts and looks for segments that
    /// may go.
    /// What fails is told among the events of the source, and tried again the next time.
    pub fn look(&self) {
        let now = self.partition.clock().now();
        let config = self.partition.config();
        let compacts = config.maintenance && config.cleanup_policy.compact;
        if compacts && self.is_due(now, config.cleaner_backoff_ms, |state| &mut state.next_compaction) {
            let outcome = self.rewrite(&mut |_, _| true);
            if outcome.is_err() {
                // What fails now fails in a moment, too.
                self.state.lock().next_compaction = now.later_by(config.retention_check_interval_ms.max(config.cleaner_backoff_ms));
            }
            self.note("compaction", outcome.map(|_| ()));
        }
        if config.maintenance && self.is_due(now, config.retention_check_interval_ms, |state| &mut state.next_retention) {
            self.note("retention", self.take_old().map(|_| ()));
        }
        self.note("unlinking", self.partition.waste().unlink_due(&**self.partition.directory(), now).map(|_| ()));
    }

    /// Whether something is due, which is then put off by the interval. A clock that was set back does not put it off longer.
    fn is_due(&self, now: TimestampMs, interval_ms: u64, of: impl Fn(&mut State) -> &mut TimestampMs) -> bool {
        let mut state = self.state.lock();
        let (next, planned) = (now.later_by(interval_ms), of(&mut state));
        let due = now >= *planned;
        if due || *planned > next {
            *planned = next;
        }
        due
    }

    fn note(&self, what: &str, result: Result<()>) {
        let Err(error) = result else { return };
        if matches!(error, Error::Closed) {
            return;
        }
        log::warn!("{}: {what}: {error}", self.partition.name());
        let mut state = self.state.lock();
        if state.events.len() < EVENTS_MOST {
            state.events.push(format!("{what}: {error}"));
        }
    }

    /// What failed since the last call, in words.
    pub(crate) fn take_events(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().events)
    }

    fn start_if_needed(self: &Arc<Upkeep>) -> Result<()> {
        if self.partition.waste().next_due().is_some() { self.start() } else { Ok(()) }
    }

    fn start(self: &Arc<Upkeep>) -> Result<()> {
        let mut state = self.state.lock();
        if state.running || state.stopping {
            self.wake.notify_all();
            return Ok(());
        }
        let upkeep = self.clone();
        let thread = std::thread::Builder::new().name("upkeep".to_owned()).spawn(move || upkeep.run());
        *self.thread.lock() = Some(thread.map_err(|e| Error::io("start", "upkeep", e))?);
        state.running = true;
        Ok(())
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.stopping {
            MutexGuard::unlocked(&mut state, || self.look());
            let now = self.partition.clock().now();
            let config = self.partition.config();
            let retention = config.maintenance.then_some(state.next_retention);
            let compaction = (config.maintenance && config.cleanup_policy.compact).then_some(state.next_compaction);
            let next = [self.partition.waste().next_due(), retention, compaction].into_iter().flatten().min();
            // Whoever stops while this thread looks has woken nobody.
            let Some(next) = next.filter(|_| !state.stopping) else { break };
            let left = Duration::from_millis(u64::try_from(next.get().saturating_sub(now.get())).unwrap_or(0));
            self.wake.wait_for(&mut state, left.clamp(WAIT_LEAST, WAIT_MOST));
        }
        state.running = false;
    }

    /// Ends the thread, and unlinks now what waits: nobody would do it later.
    ///
    /// # Errors
    /// What the system says; opening for writing the next time removes the rest.
    pub(crate) fn stop(&self) -> Result<()> {
        self.state.lock().stopping = true;
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
        self.partition.waste().unlink_all(&**self.partition.directory()).map(|_| ())
    }
}
