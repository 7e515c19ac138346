//! How a partition follows its directory: the end of its last segment, and the layout anew when somebody else has changed the directory.
//!
//! Nothing is searched here, nothing is written. A reader that finds another one looking does not wait for it: what is published counts.

use crate::error::{Error, Result};
use crate::io::Metadata;
use crate::io::os::ticks;
use crate::io::sync::atomic::{AtomicU64, Ordering};
use crate::log::batch::{BatchHeader, Step, verify_crc};
use crate::log::index::{OffsetIndex, used_offset_bytes};
use crate::log::listing::{self, Listing, LogFile};
use crate::log::names;
use crate::log::partition::{Layout, Partition};
use crate::log::scan::{Scan, Tail};
use crate::log::segment::{OpenSegment, Role, Segment};
use crate::log::transactions::Transactions;
use crate::types::{Offset, Patience, Position, TimestampMs};
use std::ffi::OsStr;
use std::sync::Arc;

/// A directory whose lock we do not hold is looked at again when so much has passed since the last look.
const REFRESH_INTERVAL_MS: u64 = 20;

/// Times of files are coarse: two changes this close to each other, in milliseconds, may have the same.
const SETTLED_MS: i64 = 1000;

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
    pub(super) fn empty(next_offset: Offset, file_len: u64) -> End {
        End { valid_end: 0, damaged: false, file_len, next_offset, largest: TimestampMs::NONE, last_epoch: None, tail: None }
    }
}

/// What was seen of the directory at the last look.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) directory_mtime_ns: i64,
    pub(super) parent_mtime_ns: i64,
    pub(super) end: End,
    /// The length at which a thorough pass found nothing to go on with.
    pub(super) stuck_len: Option<u64>,
}

/// When the directory was looked at last, in milliseconds of [`ticks`].
#[derive(Debug)]
pub(super) struct Looked(AtomicU64);

impl Looked {
    /// Just now.
    pub(super) fn now() -> Looked {
        Looked(AtomicU64::new(now_ms()))
    }

    #[inline]
    fn is_due(&self) -> bool {
        now_ms().saturating_sub(self.0.load(Ordering::Relaxed)) >= REFRESH_INTERVAL_MS
    }

    fn note(&self) {
        self.0.store(now_ms(), Ordering::Relaxed);
    }
}

#[inline]
fn now_ms() -> u64 {
    ticks().as_millis() as u64
}

impl Partition {
    /// A directory's time as it may be compared with later: 0, which none has, while another change could still get the same time.
    pub(super) fn settled(&self, directory: &Metadata) -> i64 {
        let age_ms = self.clock.now().get().saturating_sub(directory.mtime().get());
        if age_ms > SETTLED_MS { directory.mtime_ns } else { 0 }
    }

    pub(super) fn parent_mtime(&self) -> i64 {
        let Some(parent) = &self.parent else { return 0 };
        parent.metadata(OsStr::new(names::LOG_START)).map_or(0, |m| m.mtime_ns)
    }

    /// Looks at the directory again where others may write to it: new batches, new segments, segments that went. Looks that follow each other
    /// closely are one, and a reader does not wait for another one's look.
    ///
    /// # Errors
    /// What the system says.
    #[inline]
    pub fn refresh(&self) -> Result<()> {
        if !self.is_foreign() || !self.looked.is_due() {
            return Ok(());
        }
        match self.watch.try_lock() {
            Some(mut watch) => self.look(&mut watch),
            None => Ok(()),
        }
    }

    /// The same at once, however short ago the last look was: what was found there has turned out to be gone.
    ///
    /// # Errors
    /// What the system says.
    pub fn refresh_now(&self) -> Result<()> {
        if self.is_foreign() { self.look(&mut self.watch.lock()) } else { Ok(()) }
    }

    fn look(&self, watch: &mut Watch) -> Result<()> {
        self.looked.note();
        let directory = self.dir.own_metadata().map_err(|e| Error::io("look at", self.dir.path().display(), e))?;
        let parent_mtime_ns = self.parent_mtime();
        if directory.mtime_ns != watch.directory_mtime_ns || parent_mtime_ns != watch.parent_mtime_ns {
            let found = listing::list(&*self.dir)?;
            let log_start = listing::checkpointed_log_start(&*self.dir, self.parent.as_deref(), &self.name)?;
            watch.directory_mtime_ns = self.settled(&directory);
            watch.parent_mtime_ns = parent_mtime_ns;
            return self.lay_out(&found, log_start, &self.layout_full(), watch);
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
            return self.lay_out(&found, log_start, &layout, watch);
        }
        if metadata.len != watch.end.file_len || watch.end.tail.is_some() {
            self.grow(&layout, metadata.len, metadata.mtime(), watch)?;
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
    pub(super) fn lay_out(&self, found: &Listing, log_start: Offset, before: &Layout, watch: &mut Watch) -> Result<()> {
        self.strange.lock().extend(found.strange.iter().cloned());
        let mut replaced = None;
        let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(found.logs.len() + found.swaps.len());
        let keep = |file: &LogFile| -> Arc<Segment> {
            let known = before.floor(file.base_offset).and_then(|i| before.segments.get(i));
            let same = known.filter(|s| {
                s.base_offset() == file.base_offset
                    && s.suffix() == file.suffix
                    && s.inode() == file.metadata.inode
                    && s.end() <= file.metadata.len
            });
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
            let len = found.file_of(segment.base_offset(), segment.suffix()).map_or(0, |f| f.metadata.len);
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
            let mtime = found.logs.last().map_or(TimestampMs::NONE, |f| f.metadata.mtime());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::FileSystem;
    use crate::io::os::OsFileSystem;
    use crate::log::config::LogConfig;
    use crate::log::segment::OpenSegments;
    use crate::types::TopicPartition;
    use std::sync::mpsc;

    #[test]
    fn a_reader_does_not_wait_for_another_ones_look() {
        let folder = tempfile::tempdir().unwrap();
        let dir = OsFileSystem.open_dir(folder.path()).unwrap();
        let name = TopicPartition { topic: "t".to_owned(), partition: 0 };
        let (config, clock, opened) = (LogConfig::default(), OsFileSystem.clock(), Arc::new(OpenSegments::new(1)));
        let partition = Partition::open(dir, None, name, config, clock, opened, true).unwrap();
        let looking = partition.watch.lock();
        while !partition.looked.is_due() {
            std::thread::yield_now();
        }
        std::thread::scope(|scope| {
            let (sender, done) = mpsc::channel();
            let partition = &partition;
            scope.spawn(move || sender.send(partition.refresh()).unwrap());
            let outcome = done.recv_timeout(std::time::Duration::from_secs(20));
            drop(looking);
            outcome.expect("the reader went on").unwrap();
        });
    }
}
