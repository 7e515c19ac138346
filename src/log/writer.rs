//! The single writer of a partition: groups of prepared requests become bytes, index entries and a published end, or nothing.
//!
//! It runs on one thread at a time and knows no threads itself; `commit` decides who calls it. What it promises: a request is stored whole
//! or not at all while the process lives, in the order given, and readers see it only when it is whole. When a write fails, the log is cut
//! back to the start of the first request that is not whole, over a roll, too. A failed fsync poisons it: nobody knows any more what is on disk.

use crate::error::{Error, Result};
use crate::io::File;
use crate::log::active::{Active, Mark};
use crate::log::batch;
use crate::log::checkpoint::{self, EpochEntry};
use crate::log::config::LogConfig;
use crate::log::partition::Partition;
use crate::log::prepare::Prepared;
use crate::log::recovery;
use crate::types::{Offset, TimestampMs};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// No more parts than this go into one `pwritev` (Linux' IOV_MAX).
const PARTS_MOST: usize = 1024;

/// A segment that was rolled and has to be synced and trimmed; any thread may do it.
#[derive(Debug)]
pub struct Sealing(Active);

impl Sealing {
    /// Syncs the `.log`, then trims and syncs its indexes.
    ///
    /// # Errors
    /// What the system says; the writer must then be poisoned.
    pub fn run(&self) -> Result<()> {
        self.0.seal()
    }

    /// The first offset that it holds.
    pub fn base_offset(&self) -> Offset {
        self.0.segment.base_offset()
    }
}

/// The writer.
#[derive(Debug)]
pub struct Writer {
    partition: Arc<Partition>,
    active: Active,
    /// Segments rolled by the group at hand, oldest first; sealed once the group is over.
    rolled: Vec<Active>,
    next_offset: Offset,
    epoch: i32,
    poisoned: Option<String>,
}

/// A state to go back to when a request fails.
struct Undo {
    rolled: usize,
    active: Mark,
    next_offset: Offset,
}

/// What is planned but not written: parts of requests, in order, for the active segment.
#[derive(Default)]
struct Pending {
    parts: Vec<(usize, Range<usize>)>,
    /// Where the first part goes.
    at: u64,
    bytes: u64,
}

impl Writer {
    /// Gets the partition ready for appends: recovers what an unclean stop left, cuts the torn tail, takes up the last segment or makes a first one.
    /// The caller holds the partition's lock. What was done is told in words.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(partition: Arc<Partition>) -> Result<(Writer, Vec<String>)> {
        partition.may_write()?;
        let mut said = recovery::recover(&partition)?;
        let dir = partition.directory().clone();
        let config = partition.config().clone();
        let now = partition.clock().now();
        let bounds = partition.bounds();
        let end = partition.end();
        let layout = partition.layout_full();
        let active = match layout.segments.last() {
            // A log start beyond the last record: what follows begins a segment there, as Kafka begins the log anew. So it does behind damage that
            // stays at the end: what is appended to it would depend on how much of it can be told from a torn write.
            Some(last) if end.next_offset == bounds.log_end && !end.damaged => {
                Active::resume(&*dir, last.clone(), end.valid_end, &config, now, &partition.opened)?
            }
            _ => {
                let active = Active::create(&*dir, bounds.log_end, &config, now, &partition.opened)?;
                let mut segments = layout.segments.clone();
                segments.push(active.segment.clone());
                partition.publish_layout(segments);
                active
            }
        };
        partition.owned_by_writer();
        let (epochs, readable) = match checkpoint::read_leader_epochs(&*dir) {
            Ok(epochs) => (epochs, true),
            Err(Error::Corrupt(corruption)) => {
                said.push(format!("{corruption}; the epoch of the last batch is gone on with, and the file stays as it is"));
                (Vec::new(), false)
            }
            Err(error) => return Err(error),
        };
        let epoch = match (epochs.last(), partition.last_epoch().filter(|e| *e >= 0)) {
            (Some(last), _) => last.epoch,
            (None, Some(last)) => last,
            (None, None) if readable => {
                checkpoint::write_leader_epochs(&*dir, &[EpochEntry { epoch: 0, start: bounds.log_end }])?;
                0
            }
            (None, None) => 0,
        };
        let writer = Writer { next_offset: bounds.log_end, partition, active, rolled: Vec::new(), epoch, poisoned: None };
        writer.active.publish();
        Ok((writer, said))
    }

    /// The offset that the next record gets.
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Why every append is refused; `None` where none is.
    pub fn poisoned(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }

    /// Refuses every append from now on.
    pub fn poison(&mut self, reason: String) {
        self.poisoned.get_or_insert(reason);
    }

    /// The `.log` that is appended to.
    pub fn active_log(&self) -> Arc<dyn File> {
        self.active.log.clone()
    }

    /// Appends requests in order. Each that is stored has its `first_offset` set; returns how many were, and what stopped the next one.
    /// When this returns the records are in the page cache and readers see them.
    ///
    /// # Errors
    /// Beside the count: what the system said; [`Error::Poisoned`]; [`Error::OffsetsExhausted`].
    pub fn append(&mut self, group: &mut [Prepared]) -> (usize, Option<Error>) {
        if let Some(reason) = &self.poisoned {
            return (0, Some(Error::Poisoned { reason: reason.clone() }));
        }
        let config = self.partition.config().clone();
        let now = self.partition.clock().now();
        let mut undo = Vec::with_capacity(group.len());
        let mut whole = 0;
        let result = self.store(group, &config, now, &mut undo, &mut whole);
        let stopped = match result {
            Ok(()) => None,
            Err(error) => {
                if let Some(undo) = undo.into_iter().nth(whole)
                    && let Err(failed) = self.take_back(undo)
                {
                    self.poison(failed.to_string());
                }
                Some(error)
            }
        };
        for request in &mut group[whole..] {
            request.first_offset = None;
        }
        self.publish();
        (whole, stopped)
    }

    fn store(
        &mut self,
        group: &mut [Prepared],
        config: &LogConfig,
        now: TimestampMs,
        undo: &mut Vec<Undo>,
        whole: &mut usize,
    ) -> Result<()> {
        let mut pending = Pending { at: self.active.size, ..Pending::default() };
        for request in 0..group.len() {
            undo.push(Undo { rolled: self.rolled.len(), active: self.active.mark(), next_offset: self.next_offset });
            group[request].first_offset = Some(self.next_offset);
            for i in 0..group[request].batches.len() {
                let encoded = group[request].batches[i].clone();
                let bytes = encoded.range.len() as u64;
                let last = self.next_offset.checked_add(i64::from(encoded.records_count) - 1).filter(|l| *l < Offset::MAX);
                let last = last.ok_or(Error::OffsetsExhausted(self.next_offset))?;
                if self.active.must_roll(config, bytes, encoded.max_timestamp, last, now) {
                    self.write(group, &mut pending, whole)?;
                    self.roll(config, now)?;
                    pending.at = 0;
                }
                if pending.parts.len() == PARTS_MOST {
                    self.write(group, &mut pending, whole)?;
                }
                self.active.reserve()?;
                if let Some(stored) = group[request].bytes.get_mut(encoded.range.clone()) {
                    batch::assign(stored, self.next_offset, self.epoch);
                }
                self.active.add(last, bytes, encoded.max_timestamp);
                self.next_offset = last.next();
                pending.bytes += bytes;
                match pending.parts.last_mut() {
                    Some((of, range)) if *of == request && range.end == encoded.range.start => range.end = encoded.range.end,
                    _ => pending.parts.push((request, encoded.range)),
                }
            }
        }
        self.write(group, &mut pending, whole)?;
        *whole = group.len();
        Ok(())
    }

    /// Writes what is pending; `whole` becomes the number of requests that are on the file whole, as far as is known.
    fn write(&mut self, group: &[Prepared], pending: &mut Pending, whole: &mut usize) -> Result<()> {
        let mut written = 0;
        while written < pending.bytes {
            let mut skip = written;
            let mut slices = Vec::with_capacity(pending.parts.len());
            for (request, range) in &pending.parts {
                let part = group.get(*request).and_then(|r| r.bytes.get(range.clone())).unwrap_or_default();
                let from = skip.min(part.len() as u64) as usize;
                skip -= from as u64;
                if from < part.len() {
                    slices.push(IoSlice::new(&part[from..]));
                }
            }
            let failed = match self.active.log.write_at(&slices, pending.at + written) {
                Ok(0) => std::io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    written += n as u64;
                    continue;
                }
                Err(e) => e,
            };
            let mut end = 0;
            let cut = pending.parts.iter().find(|(_, range)| {
                end += range.len() as u64;
                end > written
            });
            *whole = cut.map_or(*whole, |(request, _)| *request);
            return Err(Error::io("write", self.active.segment.log_name(), failed));
        }
        if let Some((request, _)) = pending.parts.last() {
            // The last request may go on in the next segment; it counts when the group is over.
            *whole = *request;
        }
        *pending = Pending { at: pending.at + pending.bytes, ..Pending::default() };
        Ok(())
    }

    /// Ends the active segment and begins the next one at the next offset.
    fn roll(&mut self, config: &LogConfig, now: TimestampMs) -> Result<()> {
        self.partition.may_write()?;
        self.active.finish()?;
        let next = match Active::create(&*self.partition.dir, self.next_offset, config, now, &self.partition.opened) {
            Ok(next) => next,
            Err(error) => {
                // Half a segment may be there; with it, what is appended here would lie beyond the end of its segment.
                if let Err(failed) = Active::remove_files(&*self.partition.dir, self.next_offset) {
                    self.poison(failed.to_string());
                }
                return Err(error);
            }
        };
        self.rolled.push(std::mem::replace(&mut self.active, next));
        Ok(())
    }

    /// Ends the active segment now, if it holds anything.
    ///
    /// # Errors
    /// What the system says.
    pub fn roll_now(&mut self) -> Result<bool> {
        if self.active.size == 0 {
            return Ok(false);
        }
        let (config, now) = (self.partition.config().clone(), self.partition.clock().now());
        let mark = self.active.mark();
        if let Err(error) = self.roll(&config, now) {
            if let Err(failed) = self.active.restore(mark) {
                self.poison(failed.to_string());
            }
            return Err(error);
        }
        self.publish();
        Ok(true)
    }

    /// Goes back to a state. What is known here goes back in any case: readers must not be shown what a failing disk may have kept.
    fn take_back(&mut self, undo: Undo) -> Result<()> {
        let mut removed = Ok(());
        while self.rolled.len() > undo.rolled {
            let Some(before) = self.rolled.pop() else { break };
            let made = std::mem::replace(&mut self.active, before);
            removed = removed.and(made.remove(&*self.partition.dir));
        }
        self.next_offset = undo.next_offset;
        let restored = self.active.restore(undo.active);
        removed.and(restored)
    }

    fn publish(&mut self) {
        let layout = self.partition.layout_full();
        let known = |active: &Active| layout.segments.last().is_some_and(|s| s.base_offset() >= active.segment.base_offset());
        for rolled in &self.rolled {
            rolled.publish();
        }
        self.active.publish();
        if !known(&self.active) {
            let mut segments = layout.segments.clone();
            segments.extend(self.rolled.iter().filter(|r| !known(r)).map(|r| r.segment.clone()));
            segments.push(self.active.segment.clone());
            self.partition.publish_layout(segments);
        }
        self.partition.publish_end(self.next_offset);
    }

    /// The segments that were rolled since the last call; each has to be sealed, in order.
    pub fn take_rolled(&mut self) -> Vec<Sealing> {
        std::mem::take(&mut self.rolled).into_iter().map(Sealing).collect()
    }

    /// Closes the log well: everything synced, the last time entry stored, indexes trimmed. A poisoned writer leaves its indexes untrimmed, so that
    /// the next opening does not trust what the page cache says.
    ///
    /// # Errors
    /// What the system says; [`Error::Poisoned`]. The log then counts as not closed well.
    pub fn close(mut self) -> Result<()> {
        if let Some(reason) = self.poisoned {
            return Err(Error::Poisoned { reason });
        }
        for rolled in self.take_rolled() {
            rolled.run()?;
        }
        self.active.finish()?;
        self.active.publish();
        self.active.seal()
    }
}

#[cfg(test)]
mod tests;
