//! Reads that wait for records: `follow` and `follow.jsonl`.
//!
//! A read that finds nothing is parked, with its reply, until there is something. The kernel cannot call it back: fuser does not take its
//! interrupts, and a reader whose read is never answered cannot even be killed. So one thread looks every [`TICK`] at what came,
//! and at whether a signal waits for the reader, which is then told EINTR and acts on it. An append through the same mount rings a
//! [`Bell`], and its records are there at once.

use super::reply::{self, Fail, Failure};
use crate::io::sync::atomic::{AtomicBool, Ordering};
use crate::io::sync::{Condvar, Mutex, MutexGuard, thread};
use crate::types::Patience;
use crate::view::Reader;
use fuser::{Errno, PollNotifier, ReplyData};
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often parked reads are looked at. A reader notices a signal that much later.
const TICK: Duration = Duration::from_millis(50);
/// How long a read may be parked whose reader cannot be looked at: it lives in another pid namespace.
const FOREIGN_MOST: Duration = Duration::from_secs(30);
/// How much a poll reads ahead to learn whether there is something, in bytes.
const AHEAD_BYTES: usize = 4096;
/// Where an administrator can limit how long a request may go unanswered, in seconds; 0 is no limit. The kernel ends the whole
/// mount where one is exceeded.
const REQUEST_LIMITS: [&str; 2] = ["/proc/sys/fs/fuse/default_request_timeout", "/proc/sys/fs/fuse/max_request_timeout"];

/// An open `follow` file: a stream, whose position is where its last read ended.
#[derive(Debug)]
pub(super) struct Follower {
    handle: u64,
    reader: Reader,
    place: Mutex<Place>,
}

#[derive(Debug, Default)]
struct Place {
    position: u64,
    /// What a poll has read and no read has taken yet.
    ahead: Vec<u8>,
}

impl Follower {
    /// A follower at the place where its reader begins.
    pub(super) fn new(handle: u64, reader: Reader) -> Follower {
        Follower { handle, reader, place: Mutex::default() }
    }

    /// Takes what there is; 0 for nothing yet.
    ///
    /// # Errors
    /// [`Failure::WouldBlock`], also where another thread is reading; what the view says.
    pub(super) fn read(&self, buffer: &mut [u8], patience: Patience) -> Result<usize, Failure> {
        let mut place = match patience {
            Patience::AtOnce => self.place.try_lock().ok_or(Failure::WouldBlock)?,
            Patience::MayBlock => self.place.lock(),
        };
        let place = &mut *place;
        if place.ahead.is_empty() {
            let n = self.reader.read(place.position, buffer, patience)?;
            place.position = place.position.saturating_add(n as u64);
            return Ok(n);
        }
        let n = place.ahead.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(place.ahead.drain(..n)) {
            *to = from;
        }
        Ok(n)
    }

    /// Whether a read would be answered now, by bytes or by an error. What would have to wait is taken for nothing.
    pub(super) fn is_ready(&self, patience: Patience) -> bool {
        let Some(mut place) = self.place.try_lock() else { return false };
        let place = &mut *place;
        if !place.ahead.is_empty() {
            return true;
        }
        let mut ahead = [0; AHEAD_BYTES];
        match self.reader.read(place.position, &mut ahead, patience).map_err(Failure::from) {
            Ok(n) => {
                place.position = place.position.saturating_add(n as u64);
                place.ahead.extend_from_slice(ahead.get(..n).unwrap_or_default());
                n > 0
            }
            Err(Failure::WouldBlock) => false,
            Err(Failure::Errno(_)) => true,
        }
    }
}

/// What a read is answered through.
pub(super) trait Answer: Fail + fmt::Debug {
    /// Sends bytes.
    fn bytes(self, bytes: &[u8]);
    /// Sends an error on another thread than the request's, where nothing is to be noted of the request at hand.
    fn late(self, errno: Errno);
}

impl Answer for ReplyData {
    fn bytes(self, bytes: &[u8]) {
        self.data(bytes);
    }

    fn late(self, errno: Errno) {
        self.error(errno);
    }
}

/// A read that waits.
#[derive(Debug)]
struct Parked<A> {
    follower: Arc<Follower>,
    size: usize,
    /// The thread that reads, in this process's pid namespace; 0 for one outside of it.
    thread: u32,
    since: Instant,
    reply: A,
}

/// Everybody who waits, and the thread that looks after them. Dropping it answers all.
#[derive(Debug)]
pub(super) struct Waiters<A: Answer = ReplyData> {
    shared: Arc<Shared<A>>,
}

/// Tells those who wait that there are new records.
#[derive(Debug)]
pub(super) struct Bell<A = ReplyData> {
    shared: Arc<Shared<A>>,
}

impl<A> Clone for Bell<A> {
    fn clone(&self) -> Bell<A> {
        Bell { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<A> {
    waiting: Mutex<Waiting<A>>,
    changed: Condvar,
    /// Whether somebody waits, so that an append takes no lock where nobody does.
    anybody: AtomicBool,
    /// How long a read may be parked; `None` for ever.
    limit: Option<Duration>,
}

#[derive(Debug)]
struct Waiting<A> {
    reads: Vec<Parked<A>>,
    /// Who asked to be told, by handle.
    polls: HashMap<u64, (Arc<Follower>, PollNotifier)>,
    /// Records came since the thread last looked.
    news: bool,
    closed: bool,
}

impl<A: Answer> Waiters<A> {
    /// Nobody waits yet.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub(super) fn new() -> io::Result<Waiters<A>> {
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Waiting { reads: Vec::new(), polls: HashMap::new(), news: false, closed: false }),
            changed: Condvar::new(),
            anybody: AtomicBool::new(false),
            limit: request_limit(),
        });
        let this = Arc::clone(&shared);
        thread::Builder::new().name("offsetfs-follow".to_owned()).spawn(move || this.look_after())?;
        Ok(Waiters { shared })
    }

    /// Keeps a read until there is something for it. `thread` is the reader's.
    pub(super) fn park(&self, follower: Arc<Follower>, size: usize, thread: u32, reply: A) {
        let mut waiting = self.shared.waiting.lock();
        if waiting.closed {
            return reply.late(Errno::ENOTCONN);
        }
        waiting.reads.push(Parked { follower, size, thread, since: Instant::now(), reply });
        self.shared.look(waiting);
    }

    /// Keeps a poll until there is something to read.
    pub(super) fn tell(&self, follower: Arc<Follower>, notifier: PollNotifier) {
        let mut waiting = self.shared.waiting.lock();
        waiting.polls.insert(follower.handle, (follower, notifier));
        self.shared.look(waiting);
    }

    /// What an append rings.
    pub(super) fn bell(&self) -> Bell<A> {
        Bell { shared: Arc::clone(&self.shared) }
    }

    /// Nobody is told any more that this handle has something to read.
    pub(super) fn forget(&self, handle: u64) {
        self.shared.waiting.lock().polls.remove(&handle);
    }

    /// Answers everybody, now and from now on: the mount ends.
    pub(super) fn close(&self) {
        self.shared.waiting.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl<A: Answer> Drop for Waiters<A> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<A: Answer> Bell<A> {
    /// Records were stored. Costs a load where nobody waits.
    pub(super) fn ring(&self) {
        if self.shared.anybody.load(Ordering::SeqCst) {
            self.shared.look(self.shared.waiting.lock());
        }
    }
}

impl<A: Answer> Shared<A> {
    /// Lets the thread look (again) at those who wait.
    fn look(&self, mut waiting: MutexGuard<'_, Waiting<A>>) {
        waiting.news = true;
        self.anybody.store(true, Ordering::SeqCst);
        drop(waiting);
        self.changed.notify_one();
    }

    fn look_after(&self) {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.closed {
                return waiting.reads.drain(..).for_each(|parked| parked.reply.fail(Errno::ENOTCONN));
            }
            if waiting.reads.is_empty() && waiting.polls.is_empty() {
                self.anybody.store(false, Ordering::SeqCst);
                self.changed.wait(&mut waiting);
                continue;
            }
            waiting.news = false;
            let reads = std::mem::take(&mut waiting.reads);
            let polls: Vec<Arc<Follower>> = waiting.polls.values().map(|(follower, _)| Arc::clone(follower)).collect();
            drop(waiting);
            let left: Vec<Parked<A>> = reads.into_iter().filter_map(|parked| self.try_read(parked)).collect();
            let ready: Vec<u64> = polls.iter().filter(|f| f.is_ready(Patience::MayBlock)).map(|f| f.handle).collect();
            waiting = self.waiting.lock();
            waiting.reads.extend(left);
            let told: Vec<PollNotifier> = ready.iter().filter_map(|handle| waiting.polls.remove(handle)).map(|(_, n)| n).collect();
            drop(waiting);
            for notifier in told {
                if let Err(error) = notifier.notify() {
                    log::debug!("a poll could not be told: {error}");
                }
            }
            waiting = self.waiting.lock();
            if !waiting.closed && !waiting.news {
                self.changed.wait_for(&mut waiting, TICK);
            }
        }
    }

    /// Answers a read if there is an answer now.
    fn try_read(&self, parked: Parked<A>) -> Option<Parked<A>> {
        reply::with_buffer(parked.size, |buffer| {
            match parked.follower.read(buffer, Patience::MayBlock) {
                Ok(0) | Err(Failure::WouldBlock) => {
                    let limit = if parked.thread == 0 { Some(self.limit.unwrap_or(FOREIGN_MOST).min(FOREIGN_MOST)) } else { self.limit };
                    if limit.is_none_or(|limit| parked.since.elapsed() < limit) && !is_interrupted(parked.thread) {
                        return Some(parked);
                    }
                    parked.reply.late(Errno::EINTR);
                }
                Ok(n) => parked.reply.bytes(buffer.get(..n).unwrap_or_default()),
                Err(Failure::Errno(errno)) => parked.reply.late(errno),
            }
            None
        })
    }
}

/// Half of the shortest limit that is set for requests.
fn request_limit() -> Option<Duration> {
    let seconds = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok().filter(|seconds| *seconds > 0);
    REQUEST_LIMITS.iter().filter_map(|path| seconds(path)).min().map(|seconds| Duration::from_millis(seconds.saturating_mul(500)))
}

/// Whether a signal waits for a thread that its read keeps from being delivered, or the thread is gone.
fn is_interrupted(thread: u32) -> bool {
    // The name of the process, which stands in it, may be any bytes.
    let waits = |status: Vec<u8>| has_signal(&String::from_utf8_lossy(&status));
    thread != 0 && fs::read(format!("/proc/{thread}/status")).map_or(true, waits)
}

/// Whether `/proc/<pid>/status` names a pending signal that is neither blocked nor ignored. Those that stop a process do not count,
/// unless it catches them: a read that they interrupt would fail when the process goes on.
fn has_signal(status: &str) -> bool {
    const STOPS: u64 = 1 << (libc::SIGSTOP - 1) | 1 << (libc::SIGTSTP - 1) | 1 << (libc::SIGTTIN - 1) | 1 << (libc::SIGTTOU - 1);
    let set = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)).map(|value| u64::from_str_radix(value.trim(), 16));
        value.and_then(Result::ok).unwrap_or(0)
    };
    let caught = set("SigCgt:");
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & !set("SigIgn:") & !(STOPS & !caught) != 0
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, shared: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tcat\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn a_waiting_signal_interrupts_and_a_blocked_ignored_or_stopping_one_does_not() {
        let (int, kill, stop) = (1 << (libc::SIGINT - 1), 1 << (libc::SIGKILL - 1), 1 << (libc::SIGTSTP - 1));
        for (text, interrupts) in [
            (status(0, 0, 0, 0, 0), false),
            (status(int, 0, 0, 0, 0), true),
            (status(0, kill, 0, 0, 0), true),
            (status(0, int, int, 0, 0), false),
            (status(0, int, 0, int, 0), false),
            (status(0, int | kill, int, 0, 0), true),
            (status(0, stop, 0, 0, 0), false),
            (status(0, stop, 0, 0, stop), true),
        ] {
            assert_eq!(has_signal(&text), interrupts, "{text}");
        }
    }

    #[test]
    fn a_living_thread_is_not_interrupted_and_a_vanished_one_is() {
        assert!(!is_interrupted(std::process::id()));
        assert!(is_interrupted(u32::MAX));
        assert!(!is_interrupted(0));
    }
}
