//! What the headers of the whole log tell a compaction: which transactions were aborted, which are open, and the last batch of each producer.
//!
//! The log itself is asked, not `.txnindex` and not the snapshots of producers: what they say wrongly would cost records. Entries of a `.txnindex` are
//! only carried over, for a broker to read, where the log agrees. A snapshot counts for one thing: which producers are remembered. It knows those of whom
//! compaction left nothing but empty headers, when they wrote last, and who was forgotten, so that headers stay as long as they do in a broker.

use super::batches::Batches;
use crate::error::{Error, Result};
use crate::io::Directory;
use crate::log::batch::BatchHeader;
use crate::log::partition::Bounds;
use crate::log::record::{ControlType, Records, control_type};
use crate::log::transactions::{SnapshotEntry, read_producers};
use crate::types::{Offset, TimestampMs};
use std::collections::{BTreeMap, HashMap, HashSet};

/// With more producers than this a log is not compacted.
const PRODUCERS_MOST: usize = 1 << 22;

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aborted {
    pub(super) producer_id: i64,
    /// The base offset of its first batch that is there, emptied ones among them.
    pub(super) first: Offset,
    /// The offset of its marker.
    pub(super) last: Offset,
    /// The last stable offset when the marker was written.
    pub(super) last_stable: Offset,
}

/// What is known of a producer at the log end.
#[derive(Clone, Copy, Debug)]
struct Producer {
    epoch: i16,
    /// The last offset of its last batch of data in this epoch.
    last_data: Option<Offset>,
    timestamp: TimestampMs,
    in_transaction: bool,
}

/// The state at the log end.
#[derive(Debug, Default)]
pub(super) struct History {
    producers: HashMap<i64, Producer>,
    /// Where the batches begin that were not in the snapshot that was begun with.
    from: Offset,
    open: HashMap<i64, Offset>,
    open_firsts: BTreeMap<Offset, usize>,
    /// By rising marker offset.
    pub(super) aborted: Vec<Aborted>,
}

/// The kind of a batch of control records: that of its first record, `None` for one that was emptied.
///
/// # Errors
/// A record or key that cannot be read.
pub(super) fn control_of(header: &BatchHeader, batch: &[u8], file: &str, position: u64) -> Result<Option<ControlType>> {
    let Some(record) = Records::in_batch(header, batch).next() else { return Ok(None) };
    let read = record.and_then(|record| {
        let key = record.key.and_then(|key| batch.get(key.start as usize..key.end as usize)).unwrap_or_default();
        control_type(key)
    });
    read.map(Some).map_err(|fault| Error::corrupt(file, fault.moved(position)))
}

impl Producer {
    /// Whether its state hangs on a batch.
    fn needs(&self, header: &BatchHeader, forgotten_before: TimestampMs) -> bool {
        if !self.in_transaction && self.timestamp <= forgotten_before {
            return false;
        }
        match self.last_data {
            Some(last) => header.last_offset == last,
            None => header.attributes.is_control() && header.producer_epoch == self.epoch,
        }
    }
}

impl History {
    /// What is known before the first batch: the producers of the newest snapshot within bounds that can be read.
    pub(super) fn new(dir: &dyn Directory, snapshots: &[Offset], bounds: Bounds) -> History {
        let mut history = History::default();
        for offset in snapshots.iter().rev().filter(|o| **o > bounds.log_start && **o <= bounds.log_end) {
            let Ok(entries) = read_producers(dir, *offset) else { continue };
            let producer = |e: SnapshotEntry| {
                let in_transaction = e.open_since.is_some();
                (e.producer_id, Producer { epoch: e.epoch, last_data: e.last_data, timestamp: e.timestamp, in_transaction })
            };
            (history.producers, history.from) = (entries.into_iter().map(producer).collect(), *offset);
            break;
        }
        history
    }

    /// Takes all batches of a segment into account.
    ///
    /// # Errors
    /// Damage; too many producers.
    pub(super) fn add(&mut self, mut batches: Batches<'_>) -> Result<()> {
        while let Some((header, batch, position)) = batches.next_header()? {
            if header.producer_id < 0 || header.magic < 2 {
                continue;
            }
            if self.producers.len().max(self.open.len()) >= PRODUCERS_MOST {
                return Err(Error::NotCompacted { reason: format!("it has more than {PRODUCERS_MOST} producers") });
            }
            if !header.attributes.is_control() {
                self.data(&header);
                continue;
            }
            match control_of(&header, batch, batches.file(), position)? {
                Some(kind @ (ControlType::Commit | ControlType::Abort)) => self.marker(&header, kind == ControlType::Abort),
                Some(ControlType::Other(_)) | None => {}
            }
        }
        Ok(())
    }

    /// Takes a batch of a producer into account, unless the snapshot did.
    fn meet(&mut self, header: &BatchHeader, change: impl FnOnce(&mut Producer)) {
        if header.base_offset < self.from {
            return;
        }
        let new = Producer { epoch: header.producer_epoch, last_data: None, timestamp: header.max_timestamp, in_transaction: false };
        let producer = self.producers.entry(header.producer_id).or_insert(new);
        if producer.epoch != header.producer_epoch {
            (producer.epoch, producer.last_data) = (header.producer_epoch, None);
        }
        producer.timestamp = header.max_timestamp;
        change(producer);
    }

    fn data(&mut self, header: &BatchHeader) {
        let transactional = header.attributes.is_transactional();
        self.meet(header, |producer| {
            producer.last_data = Some(header.last_offset);
            producer.in_transaction |= transactional;
        });
        if transactional && !self.open.contains_key(&header.producer_id) {
            self.open.insert(header.producer_id, header.base_offset);
            *self.open_firsts.entry(header.base_offset).or_default() += 1;
        }
    }

    fn marker(&mut self, header: &BatchHeader, aborts: bool) {
        self.meet(header, |producer| producer.in_transaction = false);
        let Some(first) = self.open.remove(&header.producer_id) else { return };
        if let Some(count) = self.open_firsts.get_mut(&first) {
            *count -= 1;
            if *count == 0 {
                self.open_firsts.remove(&first);
            }
        }
        if aborts {
            let last = header.last_offset;
            let last_stable = self.first_open().unwrap_or(last.next());
            self.aborted.push(Aborted { producer_id: header.producer_id, first, last, last_stable });
        }
    }

    /// The first offset of the oldest transaction that has no marker.
    pub(super) fn first_open(&self) -> Option<Offset> {
        self.open_firsts.keys().next().copied()
    }

    /// Whether the state of a producer who may still write hangs on this batch: it is the last one with data or, where the producer has none, a marker
    /// of its epoch.
    pub(super) fn needs(&self, header: &BatchHeader, forgotten_before: TimestampMs) -> bool {
        header.producer_id >= 0 && self.producers.get(&header.producer_id).is_some_and(|producer| producer.needs(header, forgotten_before))
    }
}

/// Which transaction a pass over the log is in, and whether what it meets can go.
#[derive(Debug)]
pub(super) struct Passing<'h> {
    /// By rising first offset.
    to_come: std::vec::IntoIter<&'h Aborted>,
    next: Option<&'h Aborted>,
    /// Aborted transactions that were met, and whether a batch of them was.
    aborted: HashMap<i64, (&'h Aborted, bool)>,
    /// Producers of whom a batch was met that is not aborted, since their last marker.
    committed: HashSet<i64>,
}

impl<'h> Passing<'h> {
    /// A pass from an offset on.
    pub(super) fn new(history: &'h History, from: Offset) -> Passing<'h> {
        let mut all: Vec<&Aborted> = history.aborted.iter().filter(|a| a.last >= from).collect();
        all.sort_by_key(|a| a.first);
        let mut to_come = all.into_iter();
        let next = to_come.next();
        Passing { to_come, next, aborted: HashMap::new(), committed: HashSet::new() }
    }

    fn come_to(&mut self, offset: Offset) {
        while let Some(aborted) = self.next.filter(|a| a.first <= offset) {
            self.aborted.entry(aborted.producer_id).or_insert((aborted, false));
            self.next = self.to_come.next();
        }
    }

    /// Passes a batch of data; whether it belongs to an aborted transaction.
    pub(super) fn data(&mut self, header: &BatchHeader) -> bool {
        self.come_to(header.last_offset);
        if header.magic < 2 || !header.attributes.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some((_, met)) => {
                *met = true;
                true
            }
            None => {
                self.committed.insert(header.producer_id);
                false
            }
        }
    }

    /// Passes a batch of control records; whether no batch of the transaction that it ends was met, so that it can go, and the aborted transaction
    /// that it still ends.
    pub(super) fn control(&mut self, header: &BatchHeader, kind: Option<ControlType>) -> (bool, Option<&'h Aborted>) {
        self.come_to(header.last_offset);
        match kind {
            Some(ControlType::Abort) => match self.aborted.remove(&header.producer_id) {
                Some((aborted, true)) => (false, Some(aborted)),
                _ => (true, None),
            },
            Some(ControlType::Commit) => (!self.committed.remove(&header.producer_id), None),
            Some(ControlType::Other(_)) => (false, None),
            None => (true, None),
        }
    }
}
