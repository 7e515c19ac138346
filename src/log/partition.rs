//! A partition for readers: the published layout of segments and its bounds.
//!
//! Readers never wait for a writer: they load the layout and the log end offset, both published after the bytes they promise. How they follow
//! a directory that somebody else writes to is in `following`, searching in `seek`, walking over batches in `walk`, times in `times`,
//! transactions in `transactions`; the single writer is `writer`.

mod following;

pub(crate) use following::End;

use crate::error::{Error, Result};
use crate::io::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use crate::io::sync::{ArcSwap, Mutex};
use crate::io::{Clock, Directory};
use crate::log::checkpoint;
use crate::log::config::LogConfig;
use crate::log::decoded::DecodedBatches;
use crate::log::listing;
use crate::log::names;
use crate::log::removal::Waste;
use crate::log::scan::{Scan, Scope, Tail, scan};
use crate::log::segment::{OpenSegment, OpenSegments, Role, Segment};
use crate::log::transactions::Transactions;
use crate::types::{Offset, Patience, TimestampMs, TopicPartition};
use following::{Looked, Watch};
use std::sync::Arc;

/// The segments in order.
#[derive(Debug, Default)]
pub struct Layout {
    /// By rising base offset.
    pub segments: Vec<Arc<Segment>>,
    /// The base offsets once more, for a search that touches nothing else.
    bases: Vec<i64>,
    /// The read bits that every `.log` grants.
    pub readable: u32,
    /// For each of the leading segments that look-ups by time have come to, the greatest time that it or one before it reaches, in milliseconds. The
    /// last segment, which still grows, is never among them.
    reached_ms: Vec<AtomicI64>,
    /// How many of these are known.
    reached: AtomicUsize,
}

impl Layout {
    /// A layout of segments that are in order.
    pub fn new(segments: Vec<Arc<Segment>>) -> Layout {
        let readable = segments.iter().fold(0o444, |bits, segment| bits & segment.mode());
        let bases = segments.iter().map(|s| s.base_offset().get()).collect();
        let reached_ms = segments.iter().skip(1).map(|_| AtomicI64::new(i64::MIN)).collect();
        Layout { segments, bases, readable, reached_ms, reached: AtomicUsize::new(0) }
    }

    /// The place of the first segment that reaches a time, if it is known; else that of the first segment of which it has to be found out.
    pub(crate) fn first_known_to_reach(&self, time: TimestampMs) -> usize {
        let known = self.reached_ms.get(..self.reached.load(Ordering::Acquire)).unwrap_or_default();
        known.partition_point(|ms| ms.load(Ordering::Relaxed) < time.get())
    }

    /// Remembers the time that a segment reaches, where it is the next one to be known.
    pub(crate) fn reaches(&self, at: usize, time: TimestampMs) {
        let Some(ms) = self.reached_ms.get(at) else { return };
        if at == self.reached.load(Ordering::Acquire) {
            let before = at.checked_sub(1).and_then(|before| self.reached_ms.get(before)).map_or(i64::MIN, |ms| ms.load(Ordering::Relaxed));
            // Threads that come here at once store the same.
            ms.store(before.max(time.get()), Ordering::Relaxed);
            self.reached.fetch_max(at + 1, Ordering::Release);
        }
    }

    /// The base offset of the last segment, the one that is appended to; 0 where there is none.
    pub fn active_base(&self) -> Offset {
        self.segments.last().map_or(Offset::ZERO, |active| active.base_offset())
    }

    /// The place of the segment with the greatest base offset at or below an offset.
    #[inline]
    pub fn floor(&self, offset: Offset) -> Option<usize> {
        self.bases.partition_point(|b| *b <= offset.get()).checked_sub(1)
    }

    /// The base offset of the segment behind a place.
    pub fn limit(&self, at: usize) -> Option<Offset> {
        self.segments.get(at + 1).map(|s| s.base_offset())
    }
}

/// The offsets of a partition at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that may be read.
    pub log_start: Offset,
    /// The offset that the next record gets.
    pub log_end: Offset,
    /// Rises when the log was cut, replaced or recreated, so that what was remembered of it does not count any more.
    pub generation: u64,
}

/// A question that is asked before writing.
pub struct MayWrite(pub Box<dyn Fn() -> Result<()> + Send + Sync>);

impl std::fmt::Debug for MayWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MayWrite")
    }
}

/// A partition that is open for reading.
#[derive(Debug)]
pub struct Partition {
    pub(crate) dir: Arc<dyn Directory>,
    pub(crate) parent: Option<Arc<dyn Directory>>,
    name: TopicPartition,
    config: LogConfig,
    clock: Arc<dyn Clock>,
    layout: ArcSwap<Layout>,
    log_start: AtomicI64,
    log_end: AtomicI64,
    generation: AtomicU64,
    /// How often compaction exchanged segments.
    exchanges: AtomicU64,
    /// How often it took records of aborted transactions, so that older ones of their keys are the last again for readers of all records.
    uncovered: AtomicU64,
    /// Whether others may write to the directory, because we hold no lock on it.
    foreign: AtomicBool,
    /// Whether this process has made the partition ready for appends.
    written: AtomicBool,
    looked: Looked,
    watch: Mutex<Watch>,
    unclean_from: Option<Offset>,
    /// Asked before the first append and at each roll: whether a broker has come.
    may_write: Option<MayWrite>,
    pub(crate) opened: Arc<OpenSegments>,
    pub(crate) decoded: DecodedBatches,
    pub(crate) transactions: Mutex<Transactions>,
    /// Files that retention or compaction took, until they are unlinked.
    pub(crate) waste: Waste,
    strange: Mutex<Vec<String>>,
}

impl Partition {
    /// Opens the partition in a directory. Nothing is written. `foreign` says that we hold no lock, so that the directory may change.
    ///
    /// # Errors
    /// What the system says; a checkpoint of log start offsets that cannot be read.
    pub fn open(
        dir: Arc<dyn Directory>,
        parent: Option<Arc<dyn Directory>>,
        name: TopicPartition,
        config: LogConfig,
        clock: Arc<dyn Clock>,
        opened: Arc<OpenSegments>,
        foreign: bool,
    ) -> Result<Partition> {
        // Looked at before the listing: what changes behind it is then noticed.
        let directory = dir.own_metadata().ok();
        let found = listing::list(&*dir)?;
        let log_start = listing::checkpointed_log_start(&*dir, parent.as_deref(), &name)?;
        let unclean_from = listing::unclean_from(&*dir, parent.as_deref(), &found.logs, &name)?;
        let end = End::empty(Offset::ZERO, 0);
        let watch = Watch { directory_mtime_ns: 0, parent_mtime_ns: 0, end, stuck_len: None };
        let partition = Partition {
            dir,
            parent,
            name,
            config,
            clock,
            layout: ArcSwap::default(),
            log_start: AtomicI64::new(log_start.get()),
            log_end: AtomicI64::new(log_start.get()),
            generation: AtomicU64::new(0),
            exchanges: AtomicU64::new(0),
            uncovered: AtomicU64::new(0),
            foreign: AtomicBool::new(foreign),
            written: AtomicBool::new(false),
            looked: Looked::now(),
            watch: Mutex::new(watch),
            unclean_from,
            may_write: None,
            opened,
            decoded: DecodedBatches::default(),
            transactions: Mutex::new(Transactions::default()),
            waste: Waste::default(),
            strange: Mutex::new(found.strange.clone()),
        };
        {
            let mut watch = partition.watch.lock();
            watch.directory_mtime_ns = directory.map_or(0, |directory| partition.settled(&directory));
            watch.parent_mtime_ns = partition.parent_mtime();
            partition.lay_out(&found, log_start, &Layout::default(), &mut watch)?;
        }
        Ok(partition)
    }

    /// Has a question asked before the first append and at each roll; an error refuses the append.
    pub fn ask_before_writing(&mut self, question: MayWrite) {
        self.may_write = Some(question);
    }

    pub(crate) fn may_write(&self) -> Result<()> {
        self.may_write.as_ref().map_or(Ok(()), |question| (question.0)())
    }

    /// Topic and number.
    pub fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// The settings in force.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The directory.
    pub fn directory(&self) -> &Arc<dyn Directory> {
        &self.dir
    }

    /// Whether others may write to the directory.
    pub fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Whether this process has made the partition ready for appends, so that it may write beside the log.
    pub(crate) fn was_written(&self) -> bool {
        self.written.load(Ordering::Relaxed)
    }

    /// The base offset of the first segment that was not closed well before this opening; `None` after a clean stop.
    pub fn unclean_from(&self) -> Option<Offset> {
        self.unclean_from
    }

    /// What stands behind the last good batch of the last segment, and its file's name: it is cut at the first append.
    pub fn torn_tail(&self) -> Option<(String, Tail)> {
        let tail = self.watch.lock().end.tail.clone()?;
        let layout = self.layout();
        Some((layout.segments.last()?.log_name().to_owned(), tail))
    }

    /// The leader epoch of the last v2 batch; `None` where there is none.
    pub fn last_epoch(&self) -> Option<i32> {
        self.watch.lock().end.last_epoch
    }

    /// Entries of the directory that were left out, in words, since the last call.
    pub fn take_strange(&self) -> Vec<String> {
        std::mem::take(&mut self.strange.lock())
    }

    /// The segments as published.
    #[inline]
    pub fn layout(&self) -> arc_swap::Guard<Arc<Layout>> {
        self.layout.load()
    }

    /// The segments as published, to keep.
    pub fn layout_full(&self) -> Arc<Layout> {
        self.layout.load_full()
    }

    /// The offsets as published.
    #[inline]
    pub fn bounds(&self) -> Bounds {
        // The end is read first: the start only grows, and an end that is older than the start shows as an empty log.
        let log_end = self.log_end.load(Ordering::Acquire);
        let log_start = self.log_start.load(Ordering::Acquire);
        let offset = |n| Offset::new(n).unwrap_or(Offset::ZERO);
        Bounds {
            log_start: offset(log_start),
            log_end: offset(log_end.max(log_start)),
            generation: self.generation.load(Ordering::Acquire),
        }
    }

    /// Publishes a longer log: the bytes, the index entries and the layout for it must be there.
    pub(crate) fn publish_end(&self, log_end: Offset) {
        self.log_end.store(log_end.get(), Ordering::Release);
    }

    pub(crate) fn publish_layout(&self, segments: Vec<Arc<Segment>>) {
        self.layout.store(Arc::new(Layout::new(segments)));
    }

    /// Publishes the segments from a base offset on; those before it are not the log's any more. Readers who have them keep them. The caller has the
    /// writer, so that no other layout is published meanwhile.
    pub(crate) fn publish_without(&self, first: Offset) {
        let kept = self.layout_full().segments.iter().filter(|s| s.base_offset() >= first).cloned().collect();
        self.publish_layout(kept);
    }

    /// Publishes one segment in the place of those with the given base offsets; whether what it lacks makes older records the last of their keys. The
    /// caller has the writer.
    pub(crate) fn publish_exchanged(&self, bases: &[Offset], made: &Arc<Segment>, uncovers: bool) {
        let mut segments: Vec<Arc<Segment>> =
            self.layout_full().segments.iter().filter(|s| !bases.contains(&s.base_offset())).cloned().collect();
        let at = segments.partition_point(|s| s.base_offset() < made.base_offset());
        segments.insert(at, made.clone());
        self.publish_layout(segments);
        // Behind the layout: who reads the log again because of these reads the new one.
        self.exchanges.fetch_add(1, Ordering::AcqRel);
        self.uncovered.fetch_add(u64::from(uncovers), Ordering::AcqRel);
    }

    /// How often compaction exchanged segments in this process.
    pub(crate) fn exchanges(&self) -> u64 {
        self.exchanges.load(Ordering::Acquire)
    }

    /// How often it made older records the last of their keys, for readers of all records.
    pub(crate) fn uncovered(&self) -> u64 {
        self.uncovered.load(Ordering::Acquire)
    }

    /// The files that were taken from the log and wait to be unlinked.
    pub fn waste(&self) -> &Waste {
        &self.waste
    }

    /// Raises the log start offset, durably, and lets readers see it at once: what lies before it does not exist any more. No byte moves.
    /// It is kept in the checkpoint of the data directory around, or where there is none, in the partition's own. The caller holds the lock of
    /// the partition. Returns the log start offset, which an offset below it leaves as it is.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for an offset beyond the log end; as [`checkpoint::raise_offset`].
    pub fn delete_before(&self, offset: Offset) -> Result<Offset> {
        let _watch = self.watch.lock();
        let bounds = self.bounds();
        if offset > bounds.log_end {
            return Err(Error::OutOfRange { offset, log_end: bounds.log_end });
        }
        if offset <= bounds.log_start {
            return Ok(bounds.log_start);
        }
        let place = checkpoint::place(&*self.dir, self.parent.as_deref(), names::LOG_START);
        checkpoint::raise_offset(place, names::LOG_START, &self.name, offset)?;
        self.log_start.fetch_max(offset.get(), Ordering::AcqRel);
        Ok(offset)
    }

    /// From now on the directory changes only through our writer; its torn tail is gone.
    pub(crate) fn owned_by_writer(&self) {
        self.foreign.store(false, Ordering::Relaxed);
        self.written.store(true, Ordering::Relaxed);
        self.watch.lock().end.tail = None;
    }

    pub(crate) fn end(&self) -> End {
        self.watch.lock().end.clone()
    }

    /// The opened files of a segment.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where they are not open yet and the caller cannot wait; what the system says.
    #[inline]
    pub(crate) fn open_segment(&self, layout: &Layout, at: usize, patience: Patience) -> Result<Arc<OpenSegment>> {
        let Some(segment) = layout.segments.get(at) else { return Err(Error::WouldBlock) };
        if let Some(open) = segment.opened()
            && let Some(open) = open.as_ref().filter(|o| !o.is_broken())
        {
            return Ok(open.clone());
        }
        if patience == Patience::AtOnce {
            return Err(Error::WouldBlock);
        }
        let role = if at + 1 == layout.segments.len() { Role::Last } else { Role::Sealed };
        segment.open(&*self.dir, role, self.map_len(), &self.opened)
    }

    /// How far the last segment is mapped: a foreign one may grow by settings that we do not know.
    fn map_len(&self) -> u64 {
        if self.is_foreign() { crate::log::segment::LOG_LEN_MAX } else { self.config.segment_bytes }
    }

    /// A thorough pass over a segment, kept with its files: its indexes then stand for those on disk.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where it was not made yet and the caller cannot wait; what the system says.
    pub(crate) fn scanned(&self, layout: &Layout, at: usize, patience: Patience) -> Result<Arc<OpenSegment>> {
        let open = self.open_segment(layout, at, patience)?;
        if open.scan.is_some() {
            return Ok(open);
        }
        if patience == Patience::AtOnce {
            return Err(Error::WouldBlock);
        }
        let Some(segment) = layout.segments.get(at) else { return Err(Error::WouldBlock) };
        let limit = layout.limit(at);
        let scan = self.scan_segment(segment, &open, limit, limit.is_none())?;
        Ok(segment.set_scan(&open, Arc::new(scan), &self.opened))
    }

    /// A thorough pass over a segment up to its published end. Only where it `is_end` of all batches may something in it be a torn tail.
    pub(crate) fn scan_segment(&self, segment: &Arc<Segment>, open: &OpenSegment, limit: Option<Offset>, is_end: bool) -> Result<Scan> {
        let log = open.log.slice(0..segment.end()).unwrap_or_default();
        let scope = Scope {
            base: segment.base_offset(),
            limit,
            interval_bytes: self.config.index_interval_bytes,
            disk_index: open.index.entries(),
        };
        let mut found = scan(log, scope);
        if open.log.is_broken() {
            return Err(Error::Truncated { file: segment.log_name().to_owned() });
        }
        if !is_end {
            found.seal_tail(limit.map_or(Offset::MAX, Offset::previous));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Kind, Metadata};

    #[test]
    fn what_segments_reach_is_remembered_but_for_the_last() {
        let metadata = Metadata { kind: Kind::File, len: 0, mtime_ns: 0, inode: 1, device: 1, mode: 0o644, uid: 0, gid: 0, links: 1 };
        let segment = |n| Arc::new(Segment::new(Offset::new(n).expect("an offset"), "", &metadata));
        let layout = Layout::new((0..5).map(segment).collect());
        let first = |ms| layout.first_known_to_reach(TimestampMs::new(ms));
        assert_eq!(first(0), 0, "nothing is known");
        layout.reaches(1, TimestampMs::new(50));
        assert_eq!(first(50), 0, "the first one is not known yet");
        for (at, ms) in [(0, 10), (1, 5), (2, 30), (1, 90), (3, 20), (4, 99)] {
            layout.reaches(at, TimestampMs::new(ms));
        }
        assert_eq!([first(-1), first(10), first(11), first(30), first(31), first(99)], [0, 0, 2, 2, 4, 4]);
    }
}
