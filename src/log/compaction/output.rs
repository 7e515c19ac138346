//! The files of a segment that compaction writes: under `.cleaned` until they are whole and durable, under `.swap` while they take the place of what they
//! were made of.
//!
//! A crash before the first `.swap` is durable leaves the old segments; from there on recovery, ours or a broker's, finishes the exchange.

use crate::error::{Error, Result};
use crate::io::{Directory, File, Metadata, Open, write_all_at};
use crate::log::batch::BatchHeader;
use crate::log::index::{IndexRule, encode_offset_entry, encode_time_entry};
use crate::log::names;
use crate::log::removal::Waste;
use crate::types::{Offset, Position, TimestampMs};
use std::ffi::OsStr;
use std::sync::Arc;

/// Bytes are written in pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;
/// The files, the log first.
const SUFFIXES: [&str; 4] = [names::LOG, names::INDEX, names::TIME_INDEX, names::TXN_INDEX];

/// A segment that is written, or only measured.
#[derive(Debug)]
pub(super) struct Output {
    base: Offset,
    /// `None`: nothing is written, only its size counts.
    log: Option<Arc<dyn File>>,
    buffer: Vec<u8>,
    written: u64,
    pub(super) size: u64,
    rule: IndexRule,
    index: Vec<u8>,
    timeindex: Vec<u8>,
    txnindex: Vec<u8>,
}

impl Output {
    /// Begins one at a base offset; without a directory it is only measured.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn begin(dir: Option<&dyn Directory>, base: Offset, interval_bytes: u64) -> Result<Output> {
        let name = cleaned(base, names::LOG);
        let create = |dir: &dyn Directory| -> std::io::Result<Arc<dyn File>> {
            let file = dir.open(OsStr::new(&name), Open::Create)?;
            file.set_len(0)?;
            Ok(file)
        };
        let log = dir.map(create).transpose().map_err(|e| Error::io("create", &name, e))?;
        Ok(Output {
            base,
            log,
            buffer: Vec::new(),
            written: 0,
            size: 0,
            rule: IndexRule::new(base, interval_bytes),
            index: Vec::new(),
            timeindex: Vec::new(),
            txnindex: Vec::new(),
        })
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// What the system says; [`Error::NotCompacted`] where it does not fit the segment.
    pub(super) fn add(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<()> {
        let due = self.rule.batch(header.last_offset, Position::new(self.size), u64::from(header.size), header.max_timestamp);
        if let Some((offset, time)) = due {
            self.index.extend(encode_offset_entry(self.base, offset).into_iter().flatten());
            self.timeindex.extend(time.and_then(|time| encode_time_entry(self.base, time)).into_iter().flatten());
        }
        self.size += batch.len() as u64;
        if self.size > crate::log::segment::LOG_LEN_MAX {
            return Err(Error::NotCompacted { reason: format!("the segment at {} would be larger than 2147483647 bytes", self.base) });
        }
        if self.log.is_some() {
            self.buffer.extend_from_slice(batch);
            if self.buffer.len() >= PIECE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Adds an entry to the index of aborted transactions.
    pub(super) fn aborted(&mut self, entry: &[u8]) {
        self.txnindex.extend_from_slice(entry);
    }

    fn flush(&mut self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        write_all_at(&**log, &self.buffer, self.written).map_err(|e| Error::io("write", cleaned(self.base, names::LOG), e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Completes the files, durably, with the time of the newest source. Returns the largest time in the segment.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn finish(&mut self, dir: &dyn Directory, modified: TimestampMs) -> Result<TimestampMs> {
        if let Some(entry) = self.rule.time_entry() {
            self.timeindex.extend(encode_time_entry(self.base, entry).into_iter().flatten());
        }
        self.flush()?;
        let name = cleaned(self.base, names::LOG);
        if let Some(log) = &self.log {
            let close = || log.set_modified(modified).and_then(|()| log.sync_data());
            close().map_err(|e| Error::io("sync", &name, e))?;
        }
        for (suffix, bytes) in [(names::INDEX, &self.index), (names::TIME_INDEX, &self.timeindex), (names::TXN_INDEX, &self.txnindex)] {
            if suffix == names::TXN_INDEX && bytes.is_empty() {
                continue;
            }
            let name = cleaned(self.base, suffix);
            let write = || -> std::io::Result<()> {
                let file = dir.open(OsStr::new(&name), Open::Create)?;
                file.set_len(0)?;
                write_all_at(&*file, bytes, 0)?;
                file.set_modified(modified)?;
                file.sync_data()
            };
            write().map_err(|e| Error::io("write", &name, e))?;
        }
        sync(dir)?;
        Ok(self.rule.largest().timestamp)
    }

    /// Puts the files into the place of the segments that they were made of; those get the names of files that wait to be unlinked. Returns what the
    /// system says of the new `.log`.
    ///
    /// # Errors
    /// What the system says. Recovery then finishes it, or takes it back.
    pub(super) fn swap(&self, dir: &dyn Directory, sources: &[Offset], waste: &Waste, due: TimestampMs) -> Result<Metadata> {
        // While one `.cleaned` is left the exchange does not count as begun; so all are renamed and durable before anything goes.
        for suffix in self.suffixes().rev() {
            rename(dir, &cleaned(self.base, suffix), &swapped(self.base, suffix))?;
        }
        sync(dir)?;
        for source in sources {
            // The state of producers at the first base stays true.
            waste.take_segment(dir, *source, *source != self.base, due)?;
        }
        sync(dir)?;
        // The log first: while its `.swap` is there, recovery takes everything else of its offsets for old.
        for suffix in self.suffixes() {
            rename(dir, &swapped(self.base, suffix), &names::of(self.base, suffix))?;
            if suffix == names::LOG {
                sync(dir)?;
            }
        }
        sync(dir)?;
        let name = names::of(self.base, names::LOG);
        dir.metadata(OsStr::new(&name)).map_err(|e| Error::io("look at", &name, e))
    }

    fn suffixes(&self) -> impl DoubleEndedIterator<Item = &'static str> {
        let all = if self.txnindex.is_empty() { 3 } else { 4 };
        SUFFIXES[..all].iter().copied()
    }

    /// Removes what was written, as far as that can be done; what cannot be is no part of the log and removed before the next
    /// compaction, or at the next opening for writing.
    pub(super) fn discard(self, dir: &dyn Directory) {
        for suffix in SUFFIXES {
            // There may be no such file, and a failing disk is told by what failed before.
            let _ = dir.remove(OsStr::new(&cleaned(self.base, suffix)));
        }
    }
}

fn cleaned(base: Offset, suffix: &str) -> String {
    format!("{}{}", names::of(base, suffix), names::CLEANED)
}

fn swapped(base: Offset, suffix: &str) -> String {
    format!("{}{}", names::of(base, suffix), names::SWAP)
}

fn rename(dir: &dyn Directory, from: &str, to: &str) -> Result<()> {
    dir.rename(OsStr::new(from), OsStr::new(to)).map_err(|e| Error::io("rename", from, e))
}

fn sync(dir: &dyn Directory) -> Result<()> {
    dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))
}
