//! What is being written to keys: from opening to closing a file of `by-key` is a draft, and what it holds at the end becomes one record.
//!
//! A draft belongs to the one opening that made it. It begins with the value of its key, or empty where the opening truncates; nobody else sees
//! it. Committing waits for the log, so it is asked of threads that may wait.

use crate::source::{Latest, NewRecord, Source};
use crate::types::{Offset, Patience};
use crate::view::error::{Error, ErrorKind};
use crate::view::journal::Journal;
use crate::view::path::{ByKey, KeyFace};
use parking_lot::{Mutex, MutexGuard};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak, mpsc};

type Result<T> = std::result::Result<T, Error>;

/// Changes of keys go one by one, but only those of keys that share one of so many locks.
const ORDERS: usize = 64;

/// How a key is opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// It begins empty.
    pub truncate: bool,
    /// The key may be missing; closing the file then makes it.
    pub create: bool,
    /// With `create`: the key must be missing.
    pub exclusive: bool,
}

/// The drafts of a partition, and the order of changes to its keys.
#[derive(Debug)]
pub(crate) struct Drafts {
    source: Arc<dyn Source>,
    journal: Arc<Journal>,
    open: Mutex<Vec<Weak<Draft>>>,
    orders: [Mutex<()>; ORDERS],
}

/// What one opening writes.
#[derive(Debug)]
pub struct Draft {
    drafts: Arc<Drafts>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    key: Arc<[u8]>,
    bytes: Vec<u8>,
    /// While all that was written was appended: the record that it was appended to, and where that one's value ends.
    appended_to: Option<(Option<Offset>, usize)>,
    /// Whether a record is due.
    is_changed: bool,
    /// Whether the key is nowhere but here.
    is_new: bool,
    /// Whether the key was removed or replaced, so that nothing is to be stored any more.
    is_detached: bool,
    /// Why nothing of it can be stored.
    refused: Option<Error>,
    /// Whether a close was told that it could not be stored: the release does not try again.
    given_up: bool,
}

impl Drafts {
    pub(crate) fn new(source: Arc<dyn Source>, journal: Arc<Journal>) -> Arc<Drafts> {
        Arc::new(Drafts { source, journal, open: Mutex::default(), orders: [const { Mutex::new(()) }; ORDERS] })
    }

    fn latest(&self, key: &[u8]) -> Result<Latest> {
        let keys = self.source.keys().ok_or_else(|| Error::new(ErrorKind::NotSupported, "this source knows no keys"))?;
        Ok(keys.latest(key, Patience::MayBlock)?)
    }

    fn order_of(key: &[u8]) -> usize {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        (hasher.finish() % ORDERS as u64) as usize
    }

    fn in_order(&self, key: &[u8]) -> Option<MutexGuard<'_, ()>> {
        self.orders.get(Drafts::order_of(key)).map(|order| order.lock())
    }

    /// The drafts of a key that still count.
    fn of(&self, key: &[u8]) -> Vec<Arc<Draft>> {
        let mut open = self.open.lock();
        open.retain(|draft| draft.strong_count() > 0);
        let drafts: Vec<Arc<Draft>> = open.iter().filter_map(Weak::upgrade).collect();
        drop(open);
        drafts.into_iter().filter(|draft| draft.state.lock().is_of(key)).collect()
    }

    /// The size of a key that was created and is not closed yet.
    pub(crate) fn size_of_new(&self, key: &[u8], patience: Patience) -> Result<Option<u64>> {
        let drafts: Vec<Arc<Draft>> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        for draft in drafts {
            // One that is being committed is held until the log has answered.
            let state = match patience {
                Patience::AtOnce => draft.state.try_lock().ok_or_else(|| Error::new(ErrorKind::WouldBlock, "it is being stored"))?,
                Patience::MayBlock => draft.state.lock(),
            };
            if state.is_of(key) && state.is_new {
                return Ok(Some(state.bytes.len() as u64));
            }
        }
        Ok(None)
    }

    /// Opens a key for writing.
    pub(crate) fn open(self: &Arc<Drafts>, key: Arc<[u8]>, opening: Opening) -> Result<Arc<Draft>> {
        let (bytes, at) = match self.latest(&key)? {
            Latest::Live(_) if opening.exclusive => return Err(Error::new(ErrorKind::Exists, "the key is there already")),
            Latest::Live(record) => {
                let bytes = if opening.truncate { Vec::new() } else { record.value().unwrap_or_default().to_vec() };
                if record.is_broken() {
                    return Err(Error::new(ErrorKind::Damaged, "a segment became shorter while it was read; read again"));
                }
                (bytes, Some(record.offset()))
            }
            Latest::Deleted(_) | Latest::Never if opening.create || self.size_of_new(&key, Patience::MayBlock)?.is_some() => {
                (Vec::new(), None)
            }
            Latest::Deleted(_) | Latest::Never => return Err(Error::not_found("no live record has that key")),
        };
        let state = State {
            key,
            appended_to: if opening.truncate { None } else { Some((at, bytes.len())) },
            bytes,
            is_changed: opening.truncate || at.is_none(),
            is_new: at.is_none(),
            is_detached: false,
            refused: None,
            given_up: false,
        };
        let draft = Arc::new(Draft { drafts: self.clone(), state: Mutex::new(state) });
        self.open.lock().push(Arc::downgrade(&draft));
        Ok(draft)
    }

    /// Removes a key.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<()> {
        let _order = self.in_order(key);
        let drafts = self.of(key);
        match self.latest(key)? {
            Latest::Live(_) => {
                let record = NewRecord { timestamp: self.source.now(), key: Some(key), value: None, headers: &[] };
                self.append(&mut std::iter::once(record))?;
            }
            Latest::Deleted(_) | Latest::Never if drafts.is_empty() => return Err(Error::not_found("no live record has that key")),
            Latest::Deleted(_) | Latest::Never => {}
        }
        for draft in drafts {
            draft.state.lock().is_detached = true;
        }
        Ok(())
    }

    /// Gives what a key has to another one, in one batch: both changes are in the log, or none. What the other one had is replaced.
    pub(crate) fn rename(&self, from: &[u8], to: &Arc<[u8]>, no_replace: bool) -> Result<()> {
        if from == &to[..] {
            return Ok(());
        }
        let (first, second) = (Drafts::order_of(from), Drafts::order_of(to));
        let orders = [first.min(second), first.max(second)];
        let _first = self.orders.get(orders[0]).map(|order| order.lock());
        let _second = (orders[0] != orders[1]).then(|| self.orders.get(orders[1]).map(|order| order.lock()));
        let (moved, replaced) = (self.of(from), self.of(to));
        if no_replace && (!replaced.is_empty() || matches!(self.latest(to)?, Latest::Live(_))) {
            return Err(Error::new(ErrorKind::Exists, "the key is there already"));
        }
        match self.latest(from)? {
            Latest::Live(record) => {
                let headers: Vec<_> = record.headers().collect();
                let timestamp = self.source.now();
                let records = [
                    NewRecord { timestamp, key: Some(to), value: record.value(), headers: &headers },
                    NewRecord { timestamp, key: Some(from), value: None, headers: &[] },
                ];
                self.append(&mut records.into_iter())?;
            }
            Latest::Deleted(_) | Latest::Never if moved.is_empty() => return Err(Error::not_found("no live record has that key")),
            Latest::Deleted(_) | Latest::Never => {}
        }
        for draft in replaced {
            draft.state.lock().is_detached = true;
        }
        for draft in moved {
            let mut state = draft.state.lock();
            state.key = to.clone();
            // What it was appended to is another key's record now.
            state.appended_to = None;
        }
        Ok(())
    }

    /// Appends records as one batch and waits until they are in the log; returns the offset of the first.
    fn append(&self, records: &mut dyn Iterator<Item = NewRecord<'_>>) -> Result<Offset> {
        let keys = self.source.keys().ok_or_else(|| Error::new(ErrorKind::NotSupported, "this source knows no keys"))?;
        let (sender, receiver) = mpsc::sync_channel(1);
        // The receiver waits right below.
        keys.append_as_one(records, Box::new(move |result| drop(sender.send(result))))?;
        let appended = receiver.recv().map_err(|_| Error::new(ErrorKind::Closed, "the log did not answer"))?;
        Ok(appended?.first)
    }

    fn sync(&self) -> Result<()> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.source.sync(Box::new(move |result| drop(sender.send(result))));
        Ok(receiver.recv().map_err(|_| Error::new(ErrorKind::Closed, "the log did not answer"))??)
    }
}

impl State {
    fn is_of(&self, key: &[u8]) -> bool {
        !self.is_detached && self.key[..] == *key
    }
}

impl Draft {
    /// Writes at a position, or at the end; a gap is filled with zeros.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`], after which nothing of the draft is stored.
    pub fn write(&self, at: Option<u64>, data: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let begin = at.unwrap_or(state.bytes.len() as u64);
        let end = self.fits(&mut state, begin.saturating_add(data.len() as u64))?;
        if at.is_some() {
            state.appended_to = None;
        }
        let begin = end - data.len();
        if state.bytes.len() < end {
            state.bytes.resize(end, 0);
        }
        state.bytes[begin..end].copy_from_slice(data);
        (state.is_changed, state.given_up) = (true, false);
        Ok(())
    }

    /// Cuts the draft, or fills it with zeros, to a length.
    ///
    /// # Errors
    /// As [`Draft::write`].
    pub fn set_len(&self, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        if len == 0 {
            state.refused = None;
        }
        let len = self.fits(&mut state, len)?;
        if len != state.bytes.len() || state.is_new {
            state.bytes.resize(len, 0);
            state.appended_to = None;
            (state.is_changed, state.given_up) = (true, false);
        }
        Ok(())
    }

    /// That the value may have a length; a draft that would be too long is refused whole.
    fn fits(&self, state: &mut State, len: u64) -> Result<usize> {
        if let Some(error) = &state.refused {
            return Err(error.clone());
        }
        let most = self.drafts.source.largest_value();
        match usize::try_from(len) {
            Ok(fits) if len <= most => Ok(fits),
            _ => {
                let reason =
                    format!("a value of {len} bytes is larger than a record may be ({most} bytes, max.message.bytes and segment.bytes)");
                let error = Error::new(ErrorKind::TooLarge, reason);
                state.refused = Some(error.clone());
                self.note(&state.key, &error);
                Err(error)
            }
        }
    }

    /// Reads what was written so far; returns how many bytes.
    pub fn read(&self, at: u64, out: &mut [u8]) -> usize {
        crate::view::render::copy_from(&self.state.lock().bytes, at, out)
    }

    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.state.lock().bytes.len() as u64
    }

    /// Whether something is to be stored at the close.
    pub fn is_due(&self) -> bool {
        let state = self.state.lock();
        state.is_changed && !state.is_detached && !state.given_up
    }

    /// Stores what was written as one record, if anything is to be stored, and waits until it is in the log; with `durable`, on the disk.
    ///
    /// # Errors
    /// What the log says, which is noted in `errors`. The key then has its old value.
    pub fn commit(&self, durable: bool) -> Result<()> {
        let mut key = self.key();
        loop {
            // Whoever removes or renames the key has this lock first, too.
            let order = self.drafts.in_order(&key);
            let mut state = self.state.lock();
            if state.key != key {
                key = state.key.clone();
                drop((state, order));
                continue;
            }
            if state.is_changed && !state.is_detached {
                let stored = self.store(&mut state);
                state.given_up = stored.is_err();
                stored.inspect_err(|error| self.note(&key, error))?;
            }
            break;
        }
        if durable { self.drafts.sync().inspect_err(|error| self.note(&key, error)) } else { Ok(()) }
    }

    fn key(&self) -> Arc<[u8]> {
        self.state.lock().key.clone()
    }

    /// Stores the draft; the caller holds the order of its key.
    fn store(&self, state: &mut State) -> Result<()> {
        if let Some(error) = &state.refused {
            return Err(error.clone());
        }
        let (drafts, key) = (&self.drafts, state.key.clone());
        if let Some((base, len)) = state.appended_to {
            // Who appends adds to what the key has now, whoever wrote it.
            let (now, value) = match drafts.latest(&key)? {
                Latest::Live(record) => (Some(record.offset()), record.value().unwrap_or_default().to_vec()),
                Latest::Deleted(_) | Latest::Never => (None, Vec::new()),
            };
            if now != base {
                let added = state.bytes.split_off(len.min(state.bytes.len()));
                state.bytes = [value, added].concat();
            }
        }
        let record = NewRecord { timestamp: drafts.source.now(), key: Some(&key), value: Some(&state.bytes), headers: &[] };
        let offset = drafts.append(&mut std::iter::once(record))?;
        (state.is_changed, state.is_new) = (false, false);
        state.appended_to = Some((Some(offset), state.bytes.len()));
        Ok(())
    }

    fn note(&self, key: &[u8], error: &Error) {
        let name = ByKey::Key(key.to_vec(), KeyFace::Value);
        self.drafts.journal.note_write(self.drafts.source.now(), &format!("by-key/{name}"), error);
    }
}
