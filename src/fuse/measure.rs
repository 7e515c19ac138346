//! How long each request takes and how it is answered, for `metrics`.
//!
//! A request that is answered where it is taken up is measured by its guard: the errors that it was answered with leave a mark on the thread.
//! One that is answered elsewhere takes a [`Ticket`] along, and its guard counts nothing.

use super::reply::errno;
use crate::view::{ErrorKind, Outcome, Request, RequestCounters};
use fuser::Errno;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// What the guard at work on this thread knows.
#[derive(Clone, Copy)]
struct Current {
    request: Request,
    started: Instant,
    outcome: Outcome,
    /// Whether the answer comes from elsewhere.
    deferred: bool,
}

thread_local! {
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
}

/// A request that is being worked on by this thread. Dropping it counts the request, unless its answer was deferred.
pub(super) struct Measured<'c> {
    counters: &'c RequestCounters,
    outer: Option<Current>,
}

impl Measured<'_> {
    /// Begins with a request that came at `started`; within another one where the pool's queue is full.
    pub(super) fn begin(counters: &RequestCounters, request: Request, started: Instant) -> Measured<'_> {
        let current = Current { request, started, outcome: Outcome::Done, deferred: false };
        Measured { counters, outer: CURRENT.replace(Some(current)) }
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        if let Some(current) = CURRENT.replace(self.outer).filter(|current| !current.deferred) {
            self.counters.answered(current.request, current.outcome, nanoseconds(current.started));
        }
    }
}

/// Notes that the request at hand is answered with an error.
pub(super) fn failed(error: Errno) {
    if let Some(current) = CURRENT.get() {
        CURRENT.set(Some(Current { outcome: outcome(error), ..current }));
    }
}

/// Says that the request at hand is answered elsewhere; returns when it came.
pub(super) fn defer() -> Instant {
    match CURRENT.get() {
        Some(current) => {
            CURRENT.set(Some(Current { deferred: true, ..current }));
            current.started
        }
        None => Instant::now(),
    }
}

/// A request whose answer may come from another thread.
#[derive(Debug)]
pub(super) struct Ticket {
    counters: Arc<RequestCounters>,
    request: Request,
    started: Instant,
}

impl Ticket {
    /// Takes the request at hand along.
    pub(super) fn take(counters: &Arc<RequestCounters>, request: Request) -> Ticket {
        Ticket { counters: Arc::clone(counters), request, started: defer() }
    }

    /// Counts the request once it is answered.
    pub(super) fn answered(self, outcome: Outcome) {
        self.counters.answered(self.request, outcome, nanoseconds(self.started));
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The kind of a refusal by its number.
fn outcome(error: Errno) -> Outcome {
    let kind = ErrorKind::ALL.into_iter().find(|kind| errno(*kind).code() == error.code());
    kind.map_or(Outcome::Other, Outcome::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(counters: &Arc<RequestCounters>) -> Vec<String> {
        let text = counters.text();
        let shown = text.lines().filter(|line| line.starts_with("offsetfs_requests_total") && !line.ends_with(" 0"));
        shown.map(|line| line.replace("offsetfs_requests_total", "")).collect()
    }

    #[test]
    fn a_request_counts_once_with_its_last_word_wherever_it_is_answered() {
        let counters: Arc<RequestCounters> = Arc::default();
        drop(Measured::begin(&counters, Request::Lookup, Instant::now()));
        {
            let _outer = Measured::begin(&counters, Request::Open, Instant::now());
            let started = defer();
            // The pool's queue is full: the second question is asked on this thread.
            let _inner = Measured::begin(&counters, Request::Open, started);
            failed(Errno::ENOENT);
        }
        {
            let _measured = Measured::begin(&counters, Request::Write, Instant::now());
            let ticket = Ticket::take(&counters, Request::Write);
            failed(Errno::EIO);
            std::thread::spawn(move || ticket.answered(Outcome::Refused(ErrorKind::NoSpace))).join().unwrap();
        }
        {
            let _measured = Measured::begin(&counters, Request::Read, Instant::now());
            failed(Errno::ESTALE);
        }
        failed(Errno::EIO);
        assert_eq!(
            series(&counters),
            [
                "{request=\"lookup\",result=\"ok\"} 1",
                "{request=\"open\",result=\"ENOENT\"} 1",
                "{request=\"read\",result=\"other\"} 1",
                "{request=\"write\",result=\"ENOSPC\"} 1",
            ]
        );
    }
}
