//! A partition for readers: the published layout of segments, its bounds, and how it follows a directory that somebody else writes to.
//!
//! Readers never wait for a writer: they load the layout and the log end offset, both published after the bytes they promise. Searching is in
//! `seek`, walking over batches in `walk`, times in `times`, transactions in `transactions`; the single writer is `writer`.

use crate::error::{Error, Result};
use crate::io::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::io::sync::{ArcSwap, Mutex};
use crate::io::{Clock, Directory};
use crate::log::batch::{BatchHeader, Step, verify_crc};
use crate::log::checkpoint;
use crate::log::config::LogConfig;
use crate::log::decoded::DecodedBatches;
use crate::log::index::{OffsetIndex, used_offset_bytes};
use crate::log::listing::{self, Listing, LogFile};
use crate::log::names;
use crate::log::removal::Waste;
use crate::log::scan::{Scan, Scope, Tail, scan};
use crate::log::segment::{OpenSegment, OpenSegments, Role, Segment};
use crate::log::transactions::Transactions;
use crate::types::{Offset, Patience, Position, TimestampMs, TopicPartition};
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A directory whose lock we do not hold is looked at again when this has passed since the last look.
const REFRESH_INTERVAL: Duration = Duration::from_millis(20);

/// Times of files are coarse: two changes this close to each other, in milliseconds, may have the same.
const SETTLED_MS: i64 = 1000;

/// The segments in order.
#[derive(Debug, Default)]
pub struct Layout {
    /// By rising base offset.
    pub segments: Vec<Arc<Segment>>,
    /// The base offsets once more, for a search that touches nothing else.
    bases: Vec<i64>,
}

impl Layout {
    /// A layout of segments that are in order.
    pub fn new(segments: Vec<Arc<Segment>>) -> Layout {
        let bases = segments.iter().map(|s| s.base_offset().get()).collect();
        Layout { segments, bases }
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

/// What is known of the end of the last segment.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The byte behind the last good batch, or behind the damage that follows it.
    pub(crate) valid_end: u64,
    /// Whether damage stands before it, so that nothing can be appended to this segment.
    pub(crate) damaged: bool,
    /// The length of the file when it was looked at.
    pub(crate) file_len: u64,
    pub(crate) next_offset: Offset,
    pub(crate) largest: TimestampMs,
    pub(crate) last_epoch: Option<i32>,
    pub(crate) tail: Option<Tail>,
}

impl End {
    /// Of a segment of which no batch is known yet, or of no segment.
    fn empty(next_offset: Offset, file_len: u64) -> End {
        End { valid_end: 0, damaged: false, file_len, next_offset, largest: TimestampMs::NONE, last_epoch: None, tail: None }
    }
}

#[derive(Debug)]
struct Watch {
    looked: Instant,
    directory_mtime_ns: i64,
    parent_mtime_ns: i64,
    end: End,
    /// The length at which a thorough pass found nothing to go on with.
    stuck_len: Option<u64>,
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
    /// Whether others may write to the directory, because we hold no lock on it.
    foreign: AtomicBool,
    /// Whether this process has made the partition ready for appends.
    written: AtomicBool,
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
        let directory_mtime_ns = dir.own_metadata().map_or(0, |m| m.mtime_ns);
        let found = listing::list(&*dir)?;
        let log_start = listing::checkpointed_log_start(&*dir, parent.as_deref(), &name)?;
        let unclean_from = listing::unclean_from(&*dir, parent.as_deref(), &found.logs, &name)?;
        let end = End::empty(Offset::ZERO, 0);
        let watch = Watch { looked: Instant::now(), directory_mtime_ns: 0, parent_mtime_ns: 0, end, stuck_len: None };
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
            foreign: AtomicBool::new(foreign),
            written: AtomicBool::new(false),
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
            watch.directory_mtime_ns = partition.settled(directory_mtime_ns);
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
    pub(crate) fn delete_before(&self, offset: Offset) -> Result<Offset> {
        let _watch = self.watch.lock();
        let bounds = self.bounds();
        if offset > bounds.log_end {
            return Err(Error::OutOfRange { offset, log_end: bounds.log_end });
        }
        if offset <= bounds.log_start {
            return Ok(bounds.log_start);
        }
        let around =
            self.parent.as_ref().filter(|p| [names::META_PROPERTIES, names::LOG_START].iter().any(|n| p.metadata(OsStr::new(n)).is_ok()));
        checkpoint::raise_offset(&**around.unwrap_or(&self.dir), names::LOG_START, &self.name, offset)?;
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

    /// A directory's time as it may be compared with later: 0, which none has, while another change could still get the same time.
    fn settled(&self, mtime_ns: i64) -> i64 {
        let age_ms = self.clock.now().get().saturating_sub(mtime_ns.div_euclid(1_000_000));
        if age_ms > SETTLED_MS { mtime_ns } else { 0 }
    }

    fn parent_mtime(&self) -> i64 {
        let Some(parent) = &self.parent else { return 0 };
        parent.metadata(OsStr::new(names::LOG_START)).map_or(0, |m| m.mtime_ns)
    }

    /// Looks at the directory again where others may write to it: new batches, new segments, segments that went.
    ///
    /// # Errors
    /// What the system says.
    pub fn refresh(&self) -> Result<()> {
        if !self.is_foreign() {
            return Ok(());
        }
        let mut watch = self.watch.lock();
        if watch.looked.elapsed() < REFRESH_INTERVAL {
            return Ok(());
        }
        watch.looked = Instant::now();
        let directory_mtime_ns = self.dir.own_metadata().map_err(|e| Error::io("look at", self.dir.path().display(), e))?.mtime_ns;
        let parent_mtime_ns = self.parent_mtime();
        if directory_mtime_ns != watch.directory_mtime_ns || parent_mtime_ns != watch.parent_mtime_ns {
            let found = listing::list(&*self.dir)?;
            let log_start = listing::checkpointed_log_start(&*self.dir, self.parent.as_deref(), &self.name)?;
            watch.directory_mtime_ns = self.settled(directory_mtime_ns);
            watch.parent_mtime_ns = parent_mtime_ns;
            return self.lay_out(&found, log_start, &self.layout_full(), &mut watch);
        }
        let layout = self.layout_full();
        let Some(last) = layout.segments.last() else { return Ok(()) };
        let metadata = match self.dir.metadata(OsStr::new(last.log_name())) {
            Ok(metadata) => metadata,
            Err(e) => return Err(Error::io("look at", last.log_name(), e)),
        };
        if metadata.inode != last.inode() || metadata.len < watch.end.valid_end {
            watch.directory_mtime_ns = 0;
            let found = listing::list(&*self.dir)?;
            let log_start = Offset::new(self.log_start.load(Ordering::Relaxed)).unwrap_or(Offset::ZERO);
            return self.lay_out(&found, log_start, &layout, &mut watch);
        }
        if metadata.len != watch.end.file_len || watch.end.tail.is_some() {
            let mtime = TimestampMs::new(metadata.mtime_ns.div_euclid(1_000_000));
            self.grow(&layout, metadata.len, mtime, &mut watch)?;
        }
        Ok(())
    }

    /// Lays out the directory anew after it was recovered.
    pub(crate) fn look_again(&self) -> Result<()> {
        // Held while the checkpoint is read, so that a log start offset that is set meanwhile is not lost.
        let mut watch = self.watch.lock();
        let found = listing::list(&*self.dir)?;
        let log_start = listing::checkpointed_log_start(&*self.dir, self.parent.as_deref(), &self.name)?;
        for segment in &self.layout().segments {
            segment.close();
        }
        // Readers keep the layout of before until the new one is there.
        self.lay_out(&found, log_start, &Layout::default(), &mut watch)
    }

    /// Publishes what a listing shows. Segments that are the same files as in the layout of before stay the same objects.
    fn lay_out(&self, found: &Listing, log_start: Offset, before: &Layout, watch: &mut Watch) -> Result<()> {
        self.strange.lock().extend(found.strange.iter().cloned());
        let mut replaced = None;
        let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(found.logs.len() + found.swaps.len());
        let keep = |file: &LogFile| -> Arc<Segment> {
            let known = before.floor(file.base_offset).and_then(|i| before.segments.get(i));
            let same =
                known.filter(|s| s.base_offset() == file.base_offset && s.inode() == file.metadata.inode && s.end() <= file.metadata.len);
            same.cloned().unwrap_or_else(|| Arc::new(Segment::new(file.base_offset, file.suffix, &file.metadata)))
        };
        if let (Some(first), Some(last)) = (found.swaps.first(), found.swaps.last()) {
            // The last batch of the last swap says how far the replacement reaches.
            let segment = keep(last);
            let end = self.read_end(&segment, None)?;
            replaced = Some((first.base_offset, end.next_offset));
        }
        for file in &found.logs {
            if !found.is_replaced(file.base_offset, replaced) {
                segments.push(keep(file));
            }
        }
        segments.extend(found.swaps.iter().map(keep));
        segments.sort_by_key(|s| s.base_offset());
        segments.dedup_by_key(|s| s.base_offset());
        let same_last = match (before.segments.last(), segments.last()) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            _ => false,
        };
        for (i, segment) in segments.iter().enumerate().rev().skip(1) {
            // What was the last segment is sealed now, at the length the file has.
            let len = found
                .logs
                .iter()
                .chain(&found.swaps)
                .find(|f| f.base_offset == segment.base_offset() && f.name() == segment.log_name())
                .map_or(0, |f| f.metadata.len);
            if segment.end() != len && i + 1 < segments.len() {
                segment.publish(len, None);
                segment.forget_largest();
                segment.close();
            }
        }
        let end = match segments.last() {
            None => End::empty(log_start, 0),
            Some(_) if same_last => watch.end.clone(),
            Some(last) => self.read_end(last, Some(&mut watch.stuck_len))?,
        };
        let file_len = found.logs.iter().chain(&found.swaps).max_by_key(|f| f.base_offset).map_or(0, |f| f.metadata.len);
        if let Some(last) = segments.last() {
            last.publish(end.valid_end, None);
        }
        let log_end = end.next_offset.max(log_start);
        let shrank = log_end.get() < self.log_end.load(Ordering::Relaxed);
        let first_base = segments.first().map_or(log_start, |s| s.base_offset());
        watch.end = end;
        let layout = Layout::new(segments);
        if shrank && !before.segments.is_empty() {
            self.generation.fetch_add(1, Ordering::AcqRel);
            *self.transactions.lock() = Transactions::default();
        }
        self.layout.store(Arc::new(layout));
        self.log_start.store(log_start.max(first_base).get(), Ordering::Release);
        self.log_end.store(log_end.get(), Ordering::Release);
        if same_last && file_len != watch.end.file_len {
            let layout = self.layout_full();
            let mtime = found.logs.last().map_or(TimestampMs::NONE, |f| TimestampMs::new(f.metadata.mtime_ns.div_euclid(1_000_000)));
            self.grow(&layout, file_len, mtime, watch)?;
        }
        Ok(())
    }

    /// Follows the last segment over what was appended to it: whole batches whose CRC is right.
    fn grow(&self, layout: &Layout, file_len: u64, mtime: TimestampMs, watch: &mut Watch) -> Result<()> {
        let Some(at) = layout.segments.len().checked_sub(1) else { return Ok(()) };
        let Some(segment) = layout.segments.get(at) else { return Ok(()) };
        let open = self.open_segment(layout, at, Patience::MayBlock)?;
        let unchanged = file_len == watch.end.file_len;
        watch.end.file_len = file_len;
        let (before, fault) = (watch.end.valid_end, follow(&open, file_len, segment.base_offset(), &mut watch.end));
        if open.log.is_broken() {
            segment.close();
            return Err(Error::Truncated { file: segment.log_name().to_owned() });
        }
        match fault {
            None => watch.stuck_len = None,
            // A writer may be in the middle of a batch: only bytes that stay as they are get the thorough look.
            Some(_) if unchanged && watch.stuck_len != Some(file_len) => {
                watch.stuck_len = Some(file_len);
                let published = segment.end();
                segment.publish(file_len, None);
                let found = self.scan_segment(segment, &open, None, true);
                segment.publish(published, None);
                let found = found?;
                let end = end_of(&found, file_len);
                if end.valid_end > watch.end.valid_end {
                    watch.end = end;
                    segment.set_scan(&open, Arc::new(found), &self.opened);
                }
            }
            Some(_) => {}
        }
        if watch.end.valid_end != before {
            if let Some(known) = segment.largest() {
                segment.set_largest(known.max(watch.end.largest));
            }
            segment.publish(watch.end.valid_end, Some(mtime));
            self.log_end.store(watch.end.next_offset.get().max(self.log_start.load(Ordering::Relaxed)), Ordering::Release);
        }
        Ok(())
    }

    /// Finds the end of a segment: from its last index entry that tells the truth, batch by batch; where something is wrong, thoroughly.
    fn read_end(&self, segment: &Arc<Segment>, stuck: Option<&mut Option<u64>>) -> Result<End> {
        let file_len = segment.end();
        let open = segment.open(&*self.dir, Role::Last, self.map_len(), &self.opened)?;
        let base = segment.base_offset();
        let mut end = End::empty(base, file_len);
        let log = open.log.slice(0..file_len).unwrap_or_default();
        let entries = open.index.entries();
        let index = OffsetIndex::new(&entries[..used_offset_bytes(entries)], base);
        for (i, entry) in (0..index.len()).rev().filter_map(|i| Some((i, index.entry(i)?))) {
            let at = entry.position.get();
            let Ok(Step::Batch(header)) = BatchHeader::read(log, at as usize) else { continue };
            let bytes = log.get(at as usize..at as usize + header.size as usize).unwrap_or_default();
            if header.base_offset <= entry.offset && index.lies_behind(i, header.base_offset, at) && verify_crc(&header, bytes).is_ok() {
                (end.valid_end, end.next_offset) = (at, header.base_offset);
                break;
            }
        }
        let started = end.valid_end;
        let fault = follow(&open, file_len, base, &mut end);
        if fault.is_some() {
            let found = self.scan_segment(segment, &open, None, true)?;
            end = end_of(&found, file_len);
            if !found.damage.is_empty() {
                segment.set_scan(&open, Arc::new(found), &self.opened);
            }
            if let Some(stuck) = stuck {
                *stuck = Some(file_len);
            }
        } else if started == 0 {
            segment.set_largest(end.largest);
        }
        if open.log.is_broken() {
            segment.close();
            return Err(Error::Truncated { file: segment.log_name().to_owned() });
        }
        Ok(end)
    }
}

fn end_of(found: &Scan, file_len: u64) -> End {
    let damage = found.damage_at_end();
    End {
        valid_end: damage.map_or(found.valid_end, |d| d.to).get(),
        damaged: damage.is_some(),
        file_len,
        next_offset: found.end_offset(),
        largest: found.largest.timestamp,
        last_epoch: found.last_epoch,
        tail: found.tail.clone(),
    }
}

/// Walks from the end that is known over whole, right batches in order. Returns what stopped it, other than the end of the file.
fn follow(open: &OpenSegment, file_len: u64, base: Offset, end: &mut End) -> Option<crate::error::Fault> {
    let log = open.log.slice(0..file_len.min(open.log.len())).unwrap_or_default();
    end.tail = None;
    loop {
        let at = end.valid_end;
        let fault = match BatchHeader::read(log, at as usize) {
            Ok(Step::End { left: 0 }) => return None,
            Ok(Step::End { left }) => crate::error::Fault::new(at, "a whole batch", format!("{left} bytes of one, or of something else")),
            Err(fault) => fault,
            Ok(Step::Batch(header)) => {
                let bytes = log.get(at as usize..at as usize + header.size as usize).unwrap_or_default();
                match verify_crc(&header, bytes) {
                    Err(fault) => fault.moved(at),
                    Ok(()) if header.base_offset < end.next_offset || !crate::log::index::fits(base, header.last_offset) => {
                        let found = format!("{} to {}", header.base_offset, header.last_offset);
                        crate::error::Fault::new(at, format!("offsets from {} on", end.next_offset), found)
                    }
                    Ok(()) => {
                        end.valid_end = at + u64::from(header.size);
                        (end.next_offset, end.damaged) = (header.next_offset(), false);
                        end.largest = end.largest.max(header.max_timestamp);
                        if header.magic >= 2 {
                            end.last_epoch = Some(header.partition_leader_epoch);
                        }
                        continue;
                    }
                }
            }
        };
        let rest = log.get(at as usize..).unwrap_or_default();
        let zeros = rest.iter().all(|b| *b == 0);
        end.tail = Some(Tail { from: Position::new(at), bytes: rest.len() as u64, zeros, fault: fault.clone() });
        return Some(fault);
    }
}
