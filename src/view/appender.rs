//! One look-up of `append`, `append.jsonl` or `append.bin`: written bytes become records of the log, in order, and errors go to their writer.
//!
//! All handles that were opened from one look-up share its tail. At most one write is under way for it at a time (the kernel sees to that, and
//! a lock here keeps fsync and close behind it); the answer may come later, from another thread.

use crate::source::{Appended, NewRecord, Source};
use crate::types::TimestampMs;
use crate::view::envelope::ParsedRecord;
use crate::view::error::{Error, ErrorKind};
use crate::view::journal::Journal;
use crate::view::lines::{Feed, Framing, Limits, Offered, RefusedKind, Rejection};
use crate::view::metrics::AppendCounters;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::sync::Arc;

/// So many offsets are kept for a reader that never comes.
const UNREAD_MOST: usize = 65_536;

/// Called when a write, an fsync or a close is done.
pub type Finished = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// A look-up of an append file.
#[derive(Clone)]
pub struct Appender {
    shared: Arc<Shared>,
}

struct Shared {
    source: Arc<dyn Source>,
    journal: Arc<Journal>,
    path: &'static str,
    state: Mutex<State>,
    idle: Condvar,
}

struct State {
    feed: Feed,
    counters: Arc<AppendCounters>,
    /// The bytes of the write that is being offered.
    offered_bytes: u64,
    /// Whether records were offered to the log and its answer is not here yet.
    under_way: bool,
    /// Whether a handle that can read is open, so that offsets are worth keeping.
    readable: bool,
    unread: VecDeque<u8>,
    unread_offsets: usize,
    last_offset: Option<i64>,
}

impl fmt::Debug for Appender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appender").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

/// What became of an offer.
enum Offer {
    /// There was no record in it.
    Nothing,
    /// The log answers later.
    Sent,
    /// The log has answered, or refused it before anything was written.
    Settled(crate::source::Result<Appended>),
}

/// Where the answer of the log and the one who waits for it meet.
enum Meeting {
    /// The request is being handed over; an answer that comes now is left here.
    Sending,
    Answered(crate::source::Result<Appended>),
    Waiting(Finished),
    Over,
}

impl Appender {
    pub(crate) fn new(source: Arc<dyn Source>, journal: Arc<Journal>, counters: Arc<AppendCounters>, framing: Framing) -> Appender {
        let path = match framing {
            Framing::Lines => "append",
            Framing::Json => "append.jsonl",
            Framing::Binary => "append.bin",
        };
        let feed = Feed::new(framing, Limits { max_record_bytes: source.largest_value() });
        let state = State {
            feed,
            counters,
            offered_bytes: 0,
            under_way: false,
            readable: false,
            unread: VecDeque::new(),
            unread_offsets: 0,
            last_offset: None,
        };
        Appender { shared: Arc::new(Shared { source, journal, path, state: Mutex::new(state), idle: Condvar::new() }) }
    }

    /// Takes a write: its complete lines are appended together, what stands behind the last newline stays as the tail. `finished` is called when they
    /// are in the log, with `durable` when they are on disk; on this thread or another one.
    pub fn write(&self, data: &[u8], durable: bool, finished: Finished) {
        self.offer(Some(data), durable, finished);
    }

    /// Appends the tail as a record, if there is one: at an fsync or at the last close.
    pub fn commit_tail(&self, durable: bool, finished: Finished) {
        self.offer(None, durable, finished);
    }

    /// Appends the tail and makes everything durable.
    pub fn sync(&self, finished: Finished) {
        let this = self.clone();
        self.commit_tail(
            false,
            Box::new(move |result| match result {
                Ok(()) => this.shared.source.sync(Box::new(move |result| finished(result.map_err(Error::from)))),
                Err(error) => finished(Err(error)),
            }),
        );
    }

    /// Whether bytes wait for the end of their line, or may do so once the write under way is answered.
    pub fn tail_pending(&self) -> bool {
        let state = self.shared.state.lock();
        state.under_way || state.feed.tail_pending()
    }

    /// Begins to keep the offsets that are given, for a handle that can read.
    pub fn make_readable(&self) {
        self.shared.state.lock().readable = true;
    }

    /// Takes offsets that were given, one a line; 0 where none waits.
    pub fn read_back(&self, out: &mut [u8]) -> usize {
        let mut state = self.shared.state.lock();
        let n = out.len().min(state.unread.len());
        for (place, byte) in out.iter_mut().zip(state.unread.drain(..n)) {
            *place = byte;
        }
        if state.unread.is_empty() {
            state.unread_offsets = 0;
        }
        n
    }

    /// After the last close: what is left of a line is dropped, and said.
    pub fn last_close(&self) {
        let mut state = self.shared.state.lock();
        self.wait(&mut state);
        let dropped = state.feed.close();
        state.unread.clear();
        drop(state);
        if dropped > 0 {
            let error = Error::new(
                ErrorKind::Damaged,
                format!("{dropped} bytes without a newline could not be appended at the last close; they are gone"),
            );
            self.shared.journal.note_write(self.shared.source.now(), self.shared.path, &error);
        }
    }

    fn wait(&self, state: &mut parking_lot::MutexGuard<'_, State>) {
        while state.under_way {
            self.shared.idle.wait(state);
        }
    }

    /// Offers what the feed makes of new bytes, or of its tail alone, to the log.
    fn offer(&self, data: Option<&[u8]>, durable: bool, finished: Finished) {
        let mut guard = self.shared.state.lock();
        self.wait(&mut guard);
        let state = &mut *guard;
        let mut finished = Some(finished);
        state.offered_bytes = data.map_or(0, |data| data.len() as u64);
        let offered = match data {
            Some(data) => state.feed.offer(data),
            None => state.feed.offer_tail(),
        };
        let answer = match offered.map(|offered| self.send(&offered, durable, &mut finished)) {
            // The feed has settled a refusal of its own; there is nothing to accept or reject.
            Err(refused) => Err(refusal(refused.kind, refused.reason, state)),
            Ok(Offer::Nothing) => {
                state.feed.accept();
                state.counters.appended(0, state.offered_bytes);
                Ok(())
            }
            Ok(Offer::Settled(result)) => state.settle(result),
            Ok(Offer::Sent) => {
                state.under_way = true;
                return;
            }
        };
        drop(guard);
        self.answer(finished, answer);
    }

    /// Hands complete records to the source. Takes `finished` where the answer comes later.
    fn send(&self, offered: &Offered<'_>, durable: bool, finished: &mut Option<Finished>) -> Offer {
        if offered.is_empty() {
            return Offer::Nothing;
        }
        let now = self.shared.source.now();
        let meeting = Arc::new(Mutex::new(Meeting::Sending));
        let (this, place) = (self.clone(), meeting.clone());
        // The answer may come before `append` returns, while this thread holds the state: then it is only left.
        let done = Box::new(move |result: crate::source::Result<Appended>| {
            let mut meeting = place.lock();
            match std::mem::replace(&mut *meeting, Meeting::Over) {
                Meeting::Waiting(finished) => {
                    drop(meeting);
                    this.settle_later(result, finished);
                }
                _ => *meeting = Meeting::Answered(result),
            }
        });
        let sent = match offered {
            Offered::Values(values) => {
                let mut records = values.clone().map(|value| NewRecord { timestamp: now, key: None, value: Some(value), headers: &[] });
                self.shared.source.append(&mut records, durable, done)
            }
            Offered::Records(parsed) => {
                let headers: Vec<Vec<HeaderRef<'_>>> =
                    parsed.iter().map(|r| r.headers.iter().map(|(n, v)| (n.as_slice(), v.as_deref())).collect()).collect();
                let mut records = parsed.iter().zip(&headers).map(|(record, headers)| new_record(record, headers, now));
                self.shared.source.append(&mut records, durable, done)
            }
        };
        if let Err(error) = sent {
            return Offer::Settled(Err(error));
        }
        let mut meeting = meeting.lock();
        match std::mem::replace(&mut *meeting, Meeting::Over) {
            Meeting::Answered(result) => Offer::Settled(result),
            _ => {
                if let Some(finished) = finished.take() {
                    *meeting = Meeting::Waiting(finished);
                }
                Offer::Sent
            }
        }
    }

    /// Takes an answer that came later.
    fn settle_later(&self, result: crate::source::Result<Appended>, finished: Finished) {
        let mut state = self.shared.state.lock();
        let answer = state.settle(result);
        state.under_way = false;
        drop(state);
        self.answer(Some(finished), answer);
    }

    fn answer(&self, finished: Option<Finished>, result: Result<(), Error>) {
        self.shared.idle.notify_all();
        if let Err(error) = &result {
            self.shared.journal.note_write(self.shared.source.now(), self.shared.path, error);
        }
        if let Some(finished) = finished {
            finished(result);
        }
    }
}

fn refusal(kind: RefusedKind, reason: String, state: &State) -> Error {
    let kind = match kind {
        RefusedKind::TooLarge => ErrorKind::TooLarge,
        RefusedKind::BadLine => ErrorKind::Invalid,
    };
    let stored = match (state.feed.framing(), state.last_offset) {
        (Framing::Json, Some(last)) => format!("; stored up to line {}, the last offset is {last}", state.feed.lines_stored()),
        (Framing::Json, None) => "; nothing of this opening is stored".to_owned(),
        _ => String::new(),
    };
    Error::new(kind, format!("{reason}{stored}"))
}

type HeaderRef<'a> = (&'a [u8], Option<&'a [u8]>);

fn new_record<'a>(record: &'a ParsedRecord, headers: &'a [HeaderRef<'a>], now: TimestampMs) -> NewRecord<'a> {
    NewRecord { timestamp: record.timestamp.unwrap_or(now), key: record.key.as_deref(), value: record.value.as_deref(), headers }
}

impl State {
    /// Takes the log's answer into the feed.
    fn settle(&mut self, result: crate::source::Result<Appended>) -> Result<(), Error> {
        match result {
            Ok(appended) => {
                self.feed.accept();
                self.counters.appended(appended.records, self.offered_bytes);
                self.keep_offsets(appended);
                Ok(())
            }
            Err(error) => {
                let error = Error::from(error);
                self.feed.reject(match error.kind() {
                    ErrorKind::TooLarge => Rejection::Refused(RefusedKind::TooLarge),
                    ErrorKind::Invalid => Rejection::Refused(RefusedKind::BadLine),
                    _ => Rejection::Failed,
                });
                Err(error)
            }
        }
    }

    fn keep_offsets(&mut self, appended: Appended) {
        let first = appended.first.get();
        self.last_offset = Some(first + appended.records as i64 - 1);
        if !self.readable {
            return;
        }
        for i in 0..appended.records as i64 {
            if self.unread_offsets == UNREAD_MOST {
                // The oldest line goes: a reader that comes late sees the latest offsets.
                while self.unread.pop_front().is_some_and(|b| b != b'\n') {}
                self.unread_offsets -= 1;
            }
            let _ = writeln!(self.unread, "{}", first + i);
            self.unread_offsets += 1;
        }
    }
}
