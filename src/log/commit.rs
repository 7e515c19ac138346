//! Who calls the writer, and when: appends of many threads become groups, fsyncs of many threads become one.
//!
//! A thread that finds no commit under way commits its own request at once. What comes while a commit is under way waits and is written as
//! one group by the committer thread. Fsyncs are done by the syncer thread, one `fdatasync` for all that wait, beside the appends; it
//! also seals rolled segments, and acknowledges an fsync only when every segment below its end is synced. Readers take no lock of this file.

use crate::error::{Error, Result};
use crate::io::File;
use crate::io::sync::thread::JoinHandle;
use crate::io::sync::{Condvar, Mutex, mpsc, thread};
use crate::log::partition::Partition;
use crate::log::prepare::Prepared;
use crate::log::writer::{Sealing, Writer};
use crate::types::Offset;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an append got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset of its first record.
    pub first: Offset,
    /// The number of its records.
    pub records: u64,
}

/// What is called when an append is in the log, or durable if that was asked for, or was refused. It may run on the calling thread.
pub type Done<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// What is done once, just before the partition is made ready for appends.
pub type Before = Box<dyn FnOnce() -> Result<()> + Send>;

struct Job {
    prepared: Prepared,
    durable: bool,
    done: Done<Appended>,
}

/// A request that is in the log, and was not answered yet.
struct Stored {
    appended: Appended,
    durable: bool,
    done: Done<Appended>,
}

struct State {
    writer: Option<Writer>,
    /// Whether a thread has taken the writer.
    busy: bool,
    /// Whether the partition was made ready for appends once.
    opened: bool,
    waiting: VecDeque<Job>,
    /// Those who wait for an fsync.
    syncs: Vec<Done<()>>,
    sealing: VecDeque<Sealing>,
    /// The `.log` that is appended to, if bytes were written since its last sync.
    unsynced: Option<Arc<dyn File>>,
    /// Records since the last sync, and when the first of them came.
    unsynced_records: u64,
    unsynced_since: Option<Instant>,
    syncing: bool,
    /// How often the active segment was synced.
    synced: u64,
    poisoned: Option<String>,
    closing: bool,
    said: Vec<String>,
}

struct Shared {
    partition: Arc<Partition>,
    state: Mutex<State>,
    commit: Condvar,
    sync: Condvar,
    idle: Condvar,
    /// Gets the partition ready before the writer is opened for the first time; takes what must be undone at a clean close.
    before: Mutex<Option<Before>>,
}

/// The appending side of a partition.
pub struct Committer {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committer").field("partition", self.shared.partition.name()).finish_non_exhaustive()
    }
}

impl Committer {
    /// The appending side of a partition whose lock the caller holds. Nothing is touched before the first append; `before` runs just before it.
    ///
    /// # Errors
    /// What the system says of new threads.
    pub fn new(partition: Arc<Partition>, before: Option<Before>) -> Result<Committer> {
        let state = State {
            writer: None,
            busy: false,
            opened: false,
            waiting: VecDeque::new(),
            syncs: Vec::new(),
            sealing: VecDeque::new(),
            unsynced: None,
            unsynced_records: 0,
            unsynced_since: None,
            syncing: false,
            synced: 0,
            poisoned: None,
            closing: false,
            said: Vec::new(),
        };
        let shared = Arc::new(Shared {
            partition,
            state: Mutex::new(state),
            commit: Condvar::new(),
            sync: Condvar::new(),
            idle: Condvar::new(),
            before: Mutex::new(before),
        });
        let mut threads = Vec::new();
        for (name, run) in [("committer", Shared::run_committer as fn(&Shared)), ("syncer", Shared::run_syncer)] {
            let shared = shared.clone();
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
            threads.push(thread.map_err(|e| Error::io("start", name, e))?);
        }
        Ok(Committer { shared, threads: Mutex::new(threads) })
    }

    /// Appends a prepared request. `durable` asks for an fsync before `done` is called.
    pub fn append(&self, prepared: Prepared, durable: bool, done: Done<Appended>) {
        let job = Job { prepared, durable, done };
        let mut state = self.shared.state.lock();
        if state.closing {
            drop(state);
            return (job.done)(Err(Error::Closed));
        }
        if state.busy || !state.opened {
            state.waiting.push_back(job);
            self.shared.commit.notify_one();
            return;
        }
        state.busy = true;
        let writer = state.writer.take();
        drop(state);
        self.shared.commit_group(writer, vec![job]);
    }

    /// Appends a prepared request and waits until it is in the log.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn append_and_wait(&self, prepared: Prepared, durable: bool) -> Result<Appended> {
        answer(|done| self.append(prepared, durable, done))
    }

    /// Makes everything appended so far durable.
    pub fn sync(&self, done: Done<()>) {
        let mut state = self.shared.state.lock();
        if let Some(reason) = &state.poisoned {
            let reason = reason.clone();
            drop(state);
            return done(Err(Error::Poisoned { reason }));
        }
        if state.unsynced.is_none() && state.sealing.is_empty() && !state.syncing {
            drop(state);
            return done(Ok(()));
        }
        state.syncs.push(done);
        self.shared.sync.notify_one();
    }

    /// Rolls the active segment; `false` where it is empty.
    ///
    /// # Errors
    /// As [`Writer::roll_now`].
    pub fn roll(&self) -> Result<bool> {
        self.with_writer(Writer::roll_now)
    }

    /// Does what must not meet an append: the writer is the work's while it lasts, and appends wait.
    ///
    /// # Errors
    /// Those of the work; [`Error::Closed`], [`Error::Poisoned`]; what the system says where the log is made ready for writing.
    pub(crate) fn with_writer<T>(&self, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let Some(mut writer) = self.shared.take_writer()? else { return Err(Error::Closed) };
        let done = work(&mut writer);
        self.shared.put_writer(writer, Vec::new());
        done
    }

    /// Makes the log durable up to the active segment, with what that holds, and waits for it. Returns the base offset of that segment, and with it the
    /// offset below which nothing can be lost any more.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`]; what the system says where the log is made ready for writing, or of the fsync.
    pub fn make_durable(&self) -> Result<Offset> {
        let active = self.with_writer(|_| Ok(self.shared.partition.layout().active_base()))?;
        answer(|done| self.sync(done))?;
        Ok(active)
    }

    /// Why appends are refused, after a failed fsync.
    pub fn poisoned(&self) -> Option<String> {
        self.shared.state.lock().poisoned.clone()
    }

    /// How often the active segment was synced, with success.
    pub fn syncs(&self) -> u64 {
        self.shared.state.lock().synced
    }

    /// What was done before the first append, in words, since the last call.
    pub fn take_said(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state.lock().said)
    }

    /// Ends the threads and closes the log well: what waits is appended, everything is synced, indexes are trimmed.
    ///
    /// # Errors
    /// What the system says; the log then counts as not closed well.
    pub fn close(&self) -> Result<()> {
        {
            let mut state = self.shared.state.lock();
            state.closing = true;
            self.shared.commit.notify_all();
            self.shared.sync.notify_all();
        }
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has left its state poisoned or busy; closing goes on without it.
            let _ = thread.join();
        }
        let (writer, poisoned) = {
            let mut state = self.shared.state.lock();
            (state.writer.take(), state.poisoned.clone())
        };
        let closed = match writer {
            Some(mut writer) => {
                if let Some(reason) = poisoned {
                    writer.poison(reason);
                }
                writer.close()
            }
            None => Ok(()),
        };
        // Who asked for an fsync when the syncer had ended is answered by the close, and so is everybody who asks later.
        let late = {
            let mut state = self.shared.state.lock();
            match &closed {
                Ok(()) => state.unsynced = None,
                Err(error) => {
                    state.poisoned.get_or_insert(error.to_string());
                }
            }
            std::mem::take(&mut state.syncs)
        };
        for done in late {
            done(closed.as_ref().copied().map_err(again));
        }
        closed
    }
}

/// Asks for something and waits for its answer; [`Error::Closed`] where none comes.
fn answer<T: Send + 'static>(ask: impl FnOnce(Done<T>)) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    ask(Box::new(move |result| {
        // Nobody waits any more only where the waiting thread is gone.
        let _ = sender.send(result);
    }));
    receiver.recv().unwrap_or(Err(Error::Closed))
}

impl Drop for Committer {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty()
            && let Err(error) = self.close()
        {
            log::error!("closing {}: {error}", self.shared.partition.name());
        }
    }
}

impl Shared {
    fn run_committer(&self) {
        loop {
            let mut state = self.state.lock();
            while state.busy || state.waiting.is_empty() {
                if state.closing && !state.busy && state.waiting.is_empty() {
                    self.sync.notify_all();
                    return;
                }
                self.commit.wait(&mut state);
            }
            state.busy = true;
            let group: Vec<Job> = state.waiting.drain(..).collect();
            let writer = state.writer.take();
            let opened = state.opened;
            drop(state);
            let writer = if opened { Ok(writer) } else { self.open_writer().map(Some) };
            match writer {
                Ok(writer) => self.commit_group(writer, group),
                Err(error) => {
                    self.release(None);
                    fail(group, error);
                }
            }
        }
    }

    fn open_writer(&self) -> Result<Writer> {
        let before = self.before.lock().take();
        if let Some(before) = before {
            before()?;
        }
        let (writer, said) = Writer::open(self.partition.clone())?;
        for line in &said {
            log::warn!("{}: {line}", self.partition.name());
        }
        let mut state = self.state.lock();
        state.said.extend(said);
        state.opened = true;
        Ok(writer)
    }

    /// Writes a group with the writer that the caller has taken, answers, and gives the writer back.
    fn commit_group(&self, writer: Option<Writer>, group: Vec<Job>) {
        let Some(mut writer) = writer else {
            self.release(None);
            return fail(group, Error::Closed);
        };
        if let Some(reason) = self.state.lock().poisoned.clone() {
            writer.poison(reason);
        }
        let mut answers = Vec::with_capacity(group.len());
        let mut prepared: Vec<Prepared> = Vec::with_capacity(group.len());
        for job in group {
            prepared.push(job.prepared);
            answers.push((job.durable, job.done));
        }
        let (whole, stopped) = writer.append(&mut prepared);
        let refused = answers.split_off(whole.min(answers.len()));
        let stored = answers.into_iter().zip(prepared).map(|((durable, done), prepared)| {
            let appended = Appended { first: prepared.first_offset.unwrap_or_default(), records: prepared.records };
            Stored { appended, durable, done }
        });
        for Stored { appended, done, .. } in self.put_writer(writer, stored.collect()) {
            done(Ok(appended));
        }
        let mut stopped = stopped;
        for (_, done) in refused {
            let error = stopped.take().unwrap_or(Error::Closed);
            stopped = Some(again(&error));
            done(Err(error));
        }
    }

    fn take_writer(&self) -> Result<Option<Writer>> {
        let mut state = self.state.lock();
        while state.busy {
            self.idle.wait(&mut state);
        }
        if state.closing {
            return Err(Error::Closed);
        }
        if let Some(reason) = &state.poisoned {
            return Err(Error::Poisoned { reason: reason.clone() });
        }
        state.busy = true;
        if !state.opened {
            drop(state);
            return match self.open_writer() {
                Ok(writer) => Ok(Some(writer)),
                Err(error) => {
                    self.release(None);
                    Err(error)
                }
            };
        }
        Ok(state.writer.take())
    }

    /// Gives the writer back after requests were stored. Those that must wait for an fsync, be it that `flush.messages` asks for one now, are handed
    /// to the syncer while the writer still counts as taken: a syncer that ends leaves nobody behind. Returns the others.
    fn put_writer(&self, mut writer: Writer, stored: Vec<Stored>) -> Vec<Stored> {
        let records: u64 = stored.iter().map(|s| s.appended.records).sum();
        let rolled = writer.take_rolled();
        let log = writer.active_log();
        let mut state = self.state.lock();
        if let Some(reason) = writer.poisoned()
            && state.poisoned.is_none()
        {
            log::error!("{}: {reason}; appends are refused from now on", self.partition.name());
            state.said.push(format!("{reason}; appends are refused until the partition is mounted again"));
            state.poisoned = Some(reason.to_owned());
        }
        let sealed = !rolled.is_empty();
        state.sealing.extend(rolled);
        if records > 0 || sealed {
            state.unsynced = Some(log);
            state.unsynced_records += records;
            state.unsynced_since.get_or_insert_with(Instant::now);
        }
        let flush = state.unsynced_records >= self.partition.config().flush_messages;
        let (waiting, answered): (Vec<_>, Vec<_>) = stored.into_iter().partition(|s| s.durable || flush);
        let waits = !waiting.is_empty();
        for Stored { appended, done, .. } in waiting {
            state.syncs.push(Box::new(move |result| done(result.map(|()| appended))));
        }
        if waits || sealed || self.flush_interval().is_some() {
            self.sync.notify_one();
        }
        drop(state);
        self.release(Some(writer));
        answered
    }

    fn release(&self, writer: Option<Writer>) {
        let mut state = self.state.lock();
        if writer.is_some() {
            state.writer = writer;
        }
        state.busy = false;
        if !state.waiting.is_empty() || state.closing {
            self.commit.notify_one();
        }
        self.idle.notify_all();
    }

    fn flush_interval(&self) -> Option<Duration> {
        let ms = self.partition.config().flush_ms;
        (ms < i64::MAX as u64).then(|| Duration::from_millis(ms))
    }

    fn run_syncer(&self) {
        loop {
            let mut state = self.state.lock();
            loop {
                let due = match (self.flush_interval(), state.unsynced_since) {
                    (Some(interval), Some(since)) => Some(since + interval),
                    _ => None,
                };
                if !state.syncs.is_empty() || !state.sealing.is_empty() || due.is_some_and(|d| d <= Instant::now()) {
                    break;
                }
                if state.closing && !state.busy && state.waiting.is_empty() {
                    return;
                }
                match due {
                    Some(due) => {
                        self.sync.wait_until(&mut state, due);
                    }
                    None => self.sync.wait(&mut state),
                }
            }
            let waiting = std::mem::take(&mut state.syncs);
            let sealing = std::mem::take(&mut state.sealing);
            let due = state.unsynced_since.is_some_and(|s| self.flush_interval().is_some_and(|i| s + i <= Instant::now()));
            // A seal alone does not sync the active segment.
            let log = if waiting.is_empty() && !due { None } else { state.unsynced.take() };
            if log.is_some() {
                state.unsynced_records = 0;
                state.unsynced_since = None;
            }
            state.syncing = true;
            let poisoned = state.poisoned.clone();
            drop(state);
            let result = match poisoned {
                Some(reason) => Err(Error::Poisoned { reason }),
                None => sync_all(&sealing, log.as_deref()),
            };
            let mut state = self.state.lock();
            state.syncing = false;
            state.synced += u64::from(result.is_ok() && log.is_some());
            if let Err(error) = &result {
                let reason = error.to_string();
                if state.poisoned.is_none() {
                    log::error!("{}: {reason}; appends are refused from now on", self.partition.name());
                    state.said.push(format!("{reason}; appends are refused until the partition is mounted again"));
                }
                state.poisoned.get_or_insert(reason);
            }
            drop(state);
            for done in waiting {
                done(result.as_ref().copied().map_err(again));
            }
        }
    }
}

fn sync_all(sealing: &VecDeque<Sealing>, log: Option<&dyn File>) -> Result<()> {
    for segment in sealing {
        segment.run()?;
    }
    match log {
        Some(log) => log.sync_data().map_err(|e| Error::io("sync", "the active segment", e)),
        None => Ok(()),
    }
}

fn fail(group: Vec<Job>, error: Error) {
    let mut error = error;
    for job in group {
        let next = again(&error);
        (job.done)(Err(error));
        error = next;
    }
}

/// The same refusal for the next request behind the one that was stopped.
fn again(error: &Error) -> Error {
    match error {
        Error::Io { action, file, source } => {
            let copy = source.raw_os_error().map_or_else(|| std::io::Error::from(source.kind()), std::io::Error::from_raw_os_error);
            Error::io(action, file, copy)
        }
        Error::Poisoned { reason } => Error::Poisoned { reason: reason.clone() },
        Error::ReadOnly { reason } => Error::ReadOnly { reason: reason.clone() },
        Error::OffsetsExhausted(offset) => Error::OffsetsExhausted(*offset),
        other => Error::Poisoned { reason: other.to_string() },
    }
}

#[cfg(test)]
mod tests;
