//! Open append files: which handles share a look-up, and what flush, fsync and release do with its tail.
//!
//! A look-up has its own inode number, and all handles that were opened from it share one [`Appender`]. It lives from the first open for
//! writing to the last release.

use super::follow::Bell;
use super::holders::{self, Others, SEARCH_MOST};
use super::measure::Ticket;
use super::reply::errno;
use crate::view::{Appender, Error, Outcome};
use fuser::{Errno, ReplyEmpty, ReplyWrite};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Look-ups of append files that are open for writing, by inode number.
#[derive(Debug)]
pub(super) struct Appends {
    open: Mutex<HashMap<u64, Open>>,
    bell: Bell,
}

#[derive(Debug)]
struct Open {
    lookup: Arc<Lookup>,
    /// How many opens for writing were answered and not released.
    handles: usize,
}

/// What the handles of a look-up share.
#[derive(Debug)]
pub(super) struct Lookup {
    /// Where its bytes go.
    pub(super) appender: Appender,
    /// Rung when records are stored.
    bell: Bell,
    /// Whether the last close could not commit the tail, and told its writer so: the release does not try again.
    given_up: AtomicBool,
}

impl Appends {
    /// None is open. The bell is rung when records are stored.
    pub(super) fn new(bell: Bell) -> Appends {
        Appends { open: Mutex::default(), bell }
    }

    /// One open for writing more. `readable` where the handle can read, too; `appender` is called if no other open is left.
    ///
    /// # Errors
    /// What `appender` says.
    pub(super) fn open(&self, inode: u64, readable: bool, appender: impl FnOnce() -> Result<Appender, Errno>) -> Result<(), Errno> {
        let mut all = self.open.lock();
        let open = match all.entry(inode) {
            std::collections::hash_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let lookup = Lookup { appender: appender()?, bell: self.bell.clone(), given_up: AtomicBool::new(false) };
                place.insert(Open { lookup: Arc::new(lookup), handles: 0 })
            }
        };
        open.handles = open.handles.saturating_add(1);
        if readable {
            open.lookup.appender.make_readable();
        }
        Ok(())
    }

    /// A look-up that is open for writing.
    pub(super) fn get(&self, inode: u64) -> Option<Arc<Lookup>> {
        self.open.lock().get(&inode).map(|open| Arc::clone(&open.lookup))
    }

    /// One open for writing less. The look-up comes back with the last one: [`Lookup::finish`] it.
    pub(super) fn release(&self, inode: u64) -> Option<Arc<Lookup>> {
        let mut all = self.open.lock();
        let open = all.get_mut(&inode)?;
        open.handles = open.handles.saturating_sub(1);
        if open.handles > 0 {
            return None;
        }
        all.remove(&inode).map(|open| open.lookup)
    }

    /// Commits every tail that is left, for at most `limit`: the mount ends, and nobody will close these handles in time.
    pub(super) fn commit_tails(&self, limit: Duration) {
        let lookups: Vec<Arc<Lookup>> = self.open.lock().values().map(|open| Arc::clone(&open.lookup)).collect();
        let (sender, done) = mpsc::channel::<()>();
        for lookup in lookups.iter().filter(|lookup| lookup.appender.tail_pending()) {
            let sender = sender.clone();
            // The view notes what fails; here only the end of it counts.
            lookup.appender.commit_tail(false, Box::new(move |_| drop(sender)));
        }
        drop(sender);
        let deadline = Instant::now() + limit;
        // Nothing is ever sent: the channel hangs up when the last answer has come.
        let _ = done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Lookup {
    /// Takes a write; it is answered once its complete lines are in the log.
    pub(super) fn write(&self, data: &[u8], durable: bool, ticket: Ticket, reply: ReplyWrite) {
        // No request carries more than 32 bits can count.
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.given_up.store(false, Ordering::Relaxed);
        let bell = self.bell.clone();
        let answer = move |result: Result<(), Error>| {
            ticket.answered(outcome(&result));
            match result {
                Ok(()) => {
                    reply.written(len);
                    bell.ring();
                }
                Err(error) => reply.error(errno(error.kind())),
            }
        };
        self.appender.write(data, durable, Box::new(answer));
    }

    /// Makes everything durable, the tail included.
    pub(super) fn sync(&self, ticket: Ticket, reply: ReplyEmpty) {
        let bell = self.bell.clone();
        self.appender.sync(Box::new(move |result| {
            answer(result, ticket, reply);
            bell.ring();
        }));
    }

    /// Answers a close while a tail waits: if no other descriptor of the look-up is left, the tail becomes a record now, so that
    /// its error reaches close(2). Else, and where that cannot be known, the tail waits for the next write, close or release. This
    /// may take [`SEARCH_MOST`].
    pub(super) fn flush(this: &Arc<Lookup>, inode: u64, closer: u32, ticket: Ticket, reply: ReplyEmpty) {
        match holders::others(inode, closer, SEARCH_MOST) {
            Others::None => {
                let lookup = Arc::clone(this);
                let answered = move |result: Result<(), Error>| {
                    lookup.given_up.store(result.is_err(), Ordering::Relaxed);
                    answer(result, ticket, reply);
                    lookup.bell.ring();
                };
                this.appender.commit_tail(false, Box::new(answered));
            }
            Others::Some | Others::Unknown => answer(Ok(()), ticket, reply),
        }
    }

    /// Ends a look-up after its last release: a tail that no close has tried to commit becomes a record, and what cannot is
    /// dropped. This may wait for a write that is under way.
    pub(super) fn finish(&self) {
        if self.appender.tail_pending() && !self.given_up.load(Ordering::Relaxed) {
            let (closed, bell) = (self.appender.clone(), self.bell.clone());
            let ended = move |_| {
                closed.last_close();
                bell.ring();
            };
            self.appender.commit_tail(false, Box::new(ended));
        } else {
            self.appender.last_close();
        }
    }
}

/// Answers an fsync or a flush.
pub(super) fn answer(result: Result<(), Error>, ticket: Ticket, reply: ReplyEmpty) {
    ticket.answered(outcome(&result));
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error.kind())),
    }
}

fn outcome(result: &Result<(), Error>) -> Outcome {
    result.as_ref().map_or_else(|error| Outcome::Refused(error.kind()), |()| Outcome::Done)
}
