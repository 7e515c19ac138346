//! The files of the segment that is appended to: its `.log`, and its two indexes as maps of files of full length.
//!
//! An index file is made with Kafka's full length as a hole and gets room in steps, before an entry is stored: storing into a hole of a full
//! disk is a SIGBUS. Its zero tail is also the mark of an unclean stop, so it is durable before the first byte goes into the `.log`, and it
//! is trimmed only after the `.log` was synced.

use crate::error::{Error, Result};
use crate::io::sync::atomic::{AtomicU64, Ordering};
use crate::io::{Directory, File, IndexMap, Open};
use crate::log::batch::{BatchHeader, Step};
use crate::log::config::LogConfig;
use crate::log::index::{
    IndexRule, OFFSET_ENTRY_LEN, OffsetEntry, TIME_ENTRY_LEN, TimeEntry, TimeIndex, encode_offset_entry, encode_time_entry, fits,
    used_offset_bytes, used_time_bytes,
};
use crate::log::names;
use crate::log::segment::{IndexBytes, OpenSegment, OpenSegments, Segment};
use crate::log::verified::Instance;
use crate::types::{Offset, Position, TimestampMs};
use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Room for entries is made in steps of so many bytes.
const ALLOCATION_STEP: u64 = 64 << 10;

/// An index file that is appended to.
#[derive(Debug)]
struct IndexFile {
    name: String,
    file: Arc<dyn File>,
    map: Box<dyn IndexMap>,
    entry_len: u64,
    /// The length of the file, a whole number of entries.
    len: u64,
    /// Bytes that have room on the disk.
    allocated: u64,
    /// Bytes of entries stored.
    stored: u64,
    /// Bytes of entries that readers see.
    published: Arc<AtomicU64>,
}

impl IndexFile {
    fn open(dir: &dyn Directory, name: String, entry_len: usize, full_len: u64, used: fn(&[u8]) -> usize) -> Result<IndexFile> {
        let entry_len = entry_len as u64;
        let run = || -> std::io::Result<IndexFile> {
            let file = dir.open(OsStr::new(&name), Open::Create)?;
            let before = file.metadata()?.len;
            let stored = if before == 0 { 0 } else { used(&crate::io::read_up_to(&*file, 0, before as usize)?) as u64 };
            // At least one place, whatever the setting: its zeros are the mark of an unclean stop.
            let len = (full_len / entry_len * entry_len).max(entry_len).max(stored);
            file.set_len(len)?;
            let allocated = (stored + ALLOCATION_STEP).min(len);
            if allocated > 0 {
                file.allocate(0, allocated)?;
            }
            file.sync_data()?;
            let map = file.map_index(len)?;
            Ok(IndexFile { name: name.clone(), file, map, entry_len, len, allocated, stored, published: Arc::new(AtomicU64::new(stored)) })
        };
        run().map_err(|e| Error::io("open", &name, e))
    }

    fn entries(&self) -> u64 {
        self.stored / self.entry_len
    }

    /// Makes sure that another entry has room on the disk.
    fn reserve(&mut self) -> Result<()> {
        if self.stored + self.entry_len > self.allocated && self.allocated < self.len {
            let step = ALLOCATION_STEP.min(self.len - self.allocated);
            self.file.allocate(self.allocated, step).map_err(|e| Error::io("allocate", &self.name, e))?;
            self.allocated += step;
        }
        Ok(())
    }

    /// Stores an entry, if the file has a place for it.
    fn store(&mut self, entry: &[u8]) {
        if self.stored + self.entry_len <= self.allocated {
            self.map.put(self.stored, entry);
            self.stored += self.entry_len;
        }
    }

    /// Takes entries back that nobody saw.
    fn cut(&mut self, stored: u64) {
        if stored < self.stored {
            self.map.put(stored, &vec![0; (self.stored - stored) as usize]);
            self.stored = stored;
        }
    }

    fn publish(&self) {
        self.published.store(self.stored, Ordering::Release);
    }

    fn bytes(&self) -> IndexBytes {
        IndexBytes::Mapped(self.map.map().clone(), self.published.clone())
    }

    /// Gives the file the length of its entries, durably.
    fn trim(&self) -> Result<()> {
        let run = || {
            self.map.sync()?;
            self.file.set_len(self.stored)?;
            self.file.sync_data()
        };
        run().map_err(|e| Error::io("trim", &self.name, e))
    }
}

/// The segment that is appended to.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) segment: Arc<Segment>,
    pub(crate) log: Arc<dyn File>,
    /// Bytes in the `.log`, published or not.
    pub(crate) size: u64,
    index: IndexFile,
    timeindex: IndexFile,
    rule: IndexRule,
    created: TimestampMs,
    first_batch: Option<TimestampMs>,
    segment_ms: u64,
}

/// A state of the active segment to go back to.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) size: u64,
    index: u64,
    timeindex: u64,
    rule: IndexRule,
    first_batch: Option<TimestampMs>,
}

impl Active {
    /// Makes the files of a new segment; files that have its names are removed before. All of it is durable when this returns.
    pub(crate) fn create(dir: &dyn Directory, base: Offset, config: &LogConfig, now: TimestampMs, opened: &OpenSegments) -> Result<Active> {
        Active::unlink(dir, base)?;
        let name = names::of(base, names::LOG);
        let log = dir.open(OsStr::new(&name), Open::Create).map_err(|e| Error::io("create", &name, e))?;
        let metadata = log.metadata().map_err(|e| Error::io("look at", &name, e))?;
        let segment = Arc::new(Segment::new(base, "", &metadata));
        let active = Active::assemble(dir, segment, log, 0, None, config, now, opened)?;
        dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))?;
        Ok(active)
    }

    /// Takes up a segment that is there, whose bytes are good up to `size`; its indexes must be sound or missing.
    pub(crate) fn resume(
        dir: &dyn Directory,
        segment: Arc<Segment>,
        size: u64,
        config: &LogConfig,
        now: TimestampMs,
        opened: &OpenSegments,
    ) -> Result<Active> {
        let log = dir.open(OsStr::new(segment.log_name()), Open::Write).map_err(|e| Error::io("open", segment.log_name(), e))?;
        let head = crate::io::read_up_to(&*log, 0, 128).map_err(|e| Error::io("read", segment.log_name(), e))?;
        let first_batch = match BatchHeader::read(&head, 0) {
            Ok(Step::Batch(header)) => Some(header.max_timestamp),
            // A batch longer than what was read: its fields stand in the first 61 bytes all the same.
            _ => head
                .get(35..43)
                .filter(|_| size > 0 && head.get(16) == Some(&2))
                .and_then(|b| b.try_into().ok())
                .map(|b| TimestampMs::new(i64::from_be_bytes(b))),
        };
        let active = Active::assemble(dir, segment, log, size, first_batch, config, now, opened)?;
        dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))?;
        Ok(active)
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where the parts of an active segment come together")]
    fn assemble(
        dir: &dyn Directory,
        segment: Arc<Segment>,
        log: Arc<dyn File>,
        size: u64,
        first_batch: Option<TimestampMs>,
        config: &LogConfig,
        now: TimestampMs,
        opened: &OpenSegments,
    ) -> Result<Active> {
        let base = segment.base_offset();
        let full = config.segment_index_bytes;
        let index = IndexFile::open(dir, names::of(base, names::INDEX), OFFSET_ENTRY_LEN, full, used_offset_bytes)?;
        let timeindex = IndexFile::open(dir, names::of(base, names::TIME_INDEX), TIME_ENTRY_LEN, full, used_time_bytes)?;
        let last = timeindex.map.map().slice(0..timeindex.stored).and_then(|entries| TimeIndex::new(entries, base).last());
        let rule = IndexRule::resume(base, config.index_interval_bytes, last, None);
        let map_len = config.segment_bytes.max(size).min(crate::log::segment::LOG_LEN_MAX);
        let map = log.map(map_len).map_err(|e| Error::io("map", segment.log_name(), e))?;
        segment.pin(true);
        let open = OpenSegment { instance: Instance::next(), log: map, index: index.bytes(), timeindex: timeindex.bytes(), scan: None };
        segment.set_open(Arc::new(open), opened);
        // A compacted log must not keep a record from the cleaner for longer than it may wait.
        let longest_ms =
            if config.cleanup_policy.compact { config.segment_ms.min(config.max_compaction_lag_ms) } else { config.segment_ms };
        let jitter = match config.segment_jitter_ms.min(config.segment_ms) {
            0 => 0,
            most => RandomState::new().hash_one(base) % most,
        };
        let segment_ms = longest_ms.saturating_sub(jitter);
        Ok(Active { segment, log, size, index, timeindex, rule, created: now, first_batch, segment_ms })
    }

    /// Whether a batch belongs into a new segment (format reference 6.1).
    pub(crate) fn must_roll(
        &self,
        config: &LogConfig,
        bytes: u64,
        max_timestamp: TimestampMs,
        last_offset: Offset,
        now: TimestampMs,
    ) -> bool {
        if !fits(self.segment.base_offset(), last_offset) {
            return true;
        }
        if self.size == 0 {
            return false;
        }
        let waited = match self.first_batch.filter(|f| f.get() >= 0) {
            Some(first) => max_timestamp.get().saturating_sub(first.get()),
            None => now.get().saturating_sub(self.created.get()),
        };
        self.size + bytes > config.segment_bytes
            || waited > i64::try_from(self.segment_ms).unwrap_or(i64::MAX)
            || self.index.entries() >= self.index.len / self.index.entry_len
            // The last place is kept for the entry that a segment ends with.
            || self.timeindex.entries() + 1 >= self.timeindex.len / self.timeindex.entry_len
    }

    /// Makes room for the entries that a batch may get.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        self.index.reserve()?;
        self.timeindex.reserve()
    }

    /// Takes a batch into the indexes, which readers do not see yet. The bytes are the caller's to write at the old size.
    pub(crate) fn add(&mut self, last_offset: Offset, bytes: u64, max_timestamp: TimestampMs) {
        if self.first_batch.is_none() {
            self.first_batch = Some(max_timestamp);
        }
        let base = self.segment.base_offset();
        if let Some((offset, time)) = self.rule.batch(last_offset, Position::new(self.size), bytes, max_timestamp) {
            self.store_offset(base, offset);
            if let Some(time) = time {
                self.store_time(base, time);
            }
        }
        self.size += bytes;
    }

    fn store_offset(&mut self, base: Offset, entry: OffsetEntry) {
        if let Some(bytes) = encode_offset_entry(base, entry) {
            self.index.store(&bytes);
        }
    }

    fn store_time(&mut self, base: Offset, entry: TimeEntry) {
        if let Some(bytes) = encode_time_entry(base, entry) {
            self.timeindex.store(&bytes);
        }
    }

    /// Stores the time entry that a segment ends with.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.timeindex.reserve()?;
        if let Some(entry) = self.rule.time_entry() {
            self.store_time(self.segment.base_offset(), entry);
        }
        Ok(())
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            size: self.size,
            index: self.index.stored,
            timeindex: self.timeindex.stored,
            rule: self.rule.clone(),
            first_batch: self.first_batch,
        }
    }

    /// Goes back to a mark and cuts the `.log` there.
    pub(crate) fn restore(&mut self, mark: Mark) -> Result<()> {
        self.index.cut(mark.index);
        self.timeindex.cut(mark.timeindex);
        (self.size, self.rule, self.first_batch) = (mark.size, mark.rule, mark.first_batch);
        self.log.set_len(self.size).map_err(|e| Error::io("cut", self.segment.log_name(), e))
    }

    /// Lets readers see what was added: entries first, then the bytes that they name.
    pub(crate) fn publish(&self) {
        self.index.publish();
        self.timeindex.publish();
        self.segment.set_largest(self.rule.largest().timestamp);
        self.segment.publish(self.size, None);
    }

    /// Makes a segment that is not appended to any more durable: its `.log` first, then its indexes at their right length.
    pub(crate) fn seal(&self) -> Result<()> {
        self.log.sync_data().map_err(|e| Error::io("sync", self.segment.log_name(), e))?;
        self.index.trim()?;
        self.timeindex.trim()?;
        self.segment.pin(false);
        Ok(())
    }

    /// Removes the files of a segment that was made for a request that failed.
    pub(crate) fn remove(self, dir: &dyn Directory) -> Result<()> {
        self.segment.close();
        self.segment.pin(false);
        Active::remove_files(dir, self.segment.base_offset())
    }

    /// Removes what there is of the files of a segment, durably: an empty `.log` that came back would end the log before it.
    pub(crate) fn remove_files(dir: &dyn Directory, base: Offset) -> Result<()> {
        Active::unlink(dir, base)?;
        dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))
    }

    fn unlink(dir: &dyn Directory, base: Offset) -> Result<()> {
        for suffix in [names::LOG, names::INDEX, names::TIME_INDEX, names::TXN_INDEX] {
            let name = names::of(base, suffix);
            match dir.remove(OsStr::new(&name)) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io("remove", name, e)),
            }
        }
        Ok(())
    }
}
