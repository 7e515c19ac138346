//! The look-up of a record by its offset: floor segment, floor entry of the index, a scan of at most one interval, the record in its batch.
//!
//! This is the hot path: once a segment is open and its batch was touched, it makes no system call and no allocation. An index is a hint:
//! an entry counts only when it was verified, at its first use, against the batches around it. Whatever cannot be is not answered
//! here but by a thorough pass over the segment, so a fault costs time and never gives a wrong record.

use crate::error::{Corruption, Error, Fault, Result};
use crate::log::batch::{BatchHeader, MAGIC, Step, verify_crc};
use crate::log::bytes::Shared;
use crate::log::compression::DecodeError;
use crate::log::handle::{Batch, Body, Record};
use crate::log::index::{OffsetEntry, OffsetIndex};
use crate::log::partition::{Layout, Partition};
use crate::log::record;
use crate::log::scan::{Damage, ends_within, offsets_in};
use crate::log::segment::{OpenSegment, Segment};
use crate::log::verified::{self, Subject};
use crate::types::{Offset, Patience, Position};
use std::ops::Range;
use std::sync::Arc;

/// A compressed batch larger than this, in bytes as stored, is decoded only where waiting is allowed.
const DECODE_AT_ONCE_MOST: u32 = 64 << 10;
/// Walking further than this from an index entry, in bytes, means that the index has holes; the segment is then passed over once.
pub(crate) const WALK_MOST: u64 = 1 << 20;

/// Stands for the start of a segment among the numbers of index entries, of which none gets as high.
const NO_ENTRY: u64 = (1 << 28) - 1;

/// Why there is no record at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It lies before the log start offset.
    BeforeLogStart(Offset),
    /// It was not written yet.
    BeyondLogEnd(Offset),
    /// Compaction or an aborted write left a gap.
    Gap,
    /// A control record stands there: a transaction's marker, never a value.
    Control,
    /// Its transaction was aborted, or is still open, and only committed records are shown.
    NotCommitted,
}

/// The answer to a look-up.
#[derive(Clone, Debug)]
pub enum Found {
    /// The record.
    Record(Record),
    /// There is none, and why.
    Absent(Absent),
}

/// What stopped a walk over headers that nothing vouches for.
pub(crate) enum Trouble {
    /// The bytes cannot be.
    Fault(Fault),
    /// The index has an entry that lies, or too few.
    Index,
    /// Pages are not in memory, and the caller cannot wait.
    Cold,
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Trouble {
        Trouble::Fault(fault)
    }
}

/// The offsets that a segment may hold: from its base offset to below the next one's; of the last segment any behind its base offset.
pub(crate) type SegmentBounds = (Offset, Option<Offset>);

/// Where a walk over the headers of a segment came to.
pub(crate) enum Place {
    /// At the first batch whose last offset is at or behind the target, at a position; and the position of the batch before it that was
    /// passed over, if any.
    At(BatchHeader, u64, Option<u64>),
    /// Every batch lies before the target; the position of the last one passed over.
    Behind(Option<u64>),
}

/// A batch that was verified before, with the segment that it lies in.
struct Known<'a> {
    segment: &'a Segment,
    open: &'a Arc<OpenSegment>,
    log: &'a [u8],
    position: u64,
}

impl Known<'_> {
    #[inline(always)]
    fn header(&self) -> Option<BatchHeader> {
        match BatchHeader::read(self.log, self.position as usize) {
            Ok(Step::Batch(header)) => Some(header),
            _ => None,
        }
    }
}

impl Partition {
    /// The record at an offset.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the offset is damaged, with file and position; [`Error::WouldBlock`]; what the system says.
    pub fn record(&self, offset: Offset, patience: Patience) -> Result<Found> {
        let known = self.known(offset, |known| {
            let header = known.header()?;
            if header.is_compressed() || header.attributes.is_control() {
                return None;
            }
            let bytes = known.log.get(known.position as usize..)?.get(..header.size as usize)?;
            let reference = record::find_in_batch(&header, bytes, offset).ok()??;
            let bytes = Shared::Mapped { map: known.open.log.clone(), start: known.position, len: u64::from(header.size) };
            Some(Found::Record(Record { header, reference, bytes }))
        });
        if let Some(found) = known {
            return Ok(found);
        }
        let (batch, file) = match self.batch_at(offset, patience)? {
            Ok(found) => found,
            Err(absent) => return Ok(Found::Absent(absent)),
        };
        let body = self.body(&batch, &file, patience)?;
        let answer = match body.find(offset).map_err(|fault| record_fault(&file, &batch, &fault, offset))? {
            Some(_) if body.header.attributes.is_control() => Found::Absent(Absent::Control),
            Some(reference) => Found::Record(body.record(reference)),
            None if body.header.records_count < 0 => {
                let fault = Fault::new(batch.position, "a count of records", body.header.records_count.to_string());
                return Err(corrupt_at(&file, fault, offset));
            }
            // A wrapper tells its last offset only: the record may lie before it, in a damaged stretch.
            None if body.header.is_wrapper() => self.gap_or_damage(offset, patience)?,
            None => Found::Absent(Absent::Gap),
        };
        if body.bytes.is_broken() || batch.stored.is_broken() {
            return Err(Error::Truncated { file: file.to_string() });
        }
        Ok(answer)
    }

    /// The record at an offset. Where a file has gone since the directory was looked at, that is done again, once.
    ///
    /// # Errors
    /// As [`Partition::record`] and [`Partition::refresh_now`].
    pub fn current_record(&self, offset: Offset, patience: Patience) -> Result<Found> {
        match self.record(offset, patience) {
            Err(error) if self.may_be_gone(&error) => {
                self.refresh_now()?;
                self.record(offset, patience)
            }
            found => found,
        }
    }

    fn may_be_gone(&self, error: &Error) -> bool {
        let is_missing = matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        is_missing || (self.is_foreign() && matches!(error, Error::Io { .. } | Error::Truncated { .. }))
    }

    /// What `found` makes of the batch that holds an offset, where everything on the way to it was verified before: no lock, no system call, and
    /// of what threads share only the count of the map is touched. `None` is no answer: the long way has to be gone.
    ///
    /// A batch is remembered as right only once it was reached over verified entries or from the start of its segment, so that it does not matter
    /// which index entry leads to it now.
    #[inline]
    fn known<T>(&self, offset: Offset, found: impl FnOnce(Known<'_>) -> Option<T>) -> Option<T> {
        let bounds = self.bounds();
        if offset < bounds.log_start || offset >= bounds.log_end {
            return None;
        }
        let layout = self.layout();
        let segment = layout.segments.get(layout.floor(offset)?)?;
        let open = segment.opened()?;
        let open = open.as_ref().filter(|open| open.scan.is_none())?;
        let log = open.log.slice(0..segment.end())?;
        let index = OffsetIndex::new(open.index.entries(), segment.base_offset());
        let mut at = match index.floor(offset) {
            Some(i) => index.entry(i)?.position.get(),
            None => 0,
        };
        let end = at.saturating_add(WALK_MOST);
        while at < end {
            let extent = BatchHeader::extent(log, at as usize)?;
            if extent.last < offset.get() {
                at += u64::from(extent.size);
                continue;
            }
            if extent.base > offset.get() || !verified::contains(open.instance, Subject::Batch, at) {
                return None;
            }
            verified::count_known();
            return found(Known { segment, open, log, position: at }).filter(|_| !open.log.is_broken());
        }
        None
    }

    fn gap_or_damage(&self, offset: Offset, patience: Patience) -> Result<Found> {
        let layout = self.layout();
        let Some(at) = layout.floor(offset) else { return Ok(Found::Absent(Absent::Gap)) };
        let open = self.open_segment(&layout, at, patience)?;
        match open.scan.as_ref().and_then(|scan| scan.damage_at(offset)) {
            Some(damage) => Err(damaged(layout.segments[at].log_name(), damage)),
            None => Ok(Found::Absent(Absent::Gap)),
        }
    }

    /// The batch that holds an offset, its CRC verified, and the name of its file.
    ///
    /// # Errors
    /// As [`Partition::record`].
    pub fn batch_at(&self, offset: Offset, patience: Patience) -> Result<Result<(Batch, Arc<str>), Absent>> {
        let known = self.known(offset, |k| Some((batch(k.open, k.header()?, k.position), k.segment.log_name_shared())));
        if let Some(known) = known {
            return Ok(Ok(known));
        }
        let bounds = self.bounds();
        if offset < bounds.log_start {
            return Ok(Err(Absent::BeforeLogStart(bounds.log_start)));
        }
        if offset >= bounds.log_end {
            return Ok(Err(Absent::BeyondLogEnd(bounds.log_end)));
        }
        let layout = self.layout();
        let Some(at) = layout.floor(offset) else { return Ok(Err(Absent::Gap)) };
        let open = self.open_segment(&layout, at, patience)?;
        if open.scan.is_some() {
            return self.seek_in_scan(&layout, at, &open, offset, patience);
        }
        match self.seek_verified(&layout, at, &open, offset, patience) {
            Ok(found) => Ok(found.map(|batch| (batch, layout.segments[at].log_name_shared())).ok_or(Absent::Gap)),
            Err(Trouble::Cold) => Err(Error::WouldBlock),
            Err(Trouble::Fault(_) | Trouble::Index) => {
                let open = self.scanned(&layout, at, patience)?;
                self.seek_in_scan(&layout, at, &open, offset, patience)
            }
        }
    }

    /// The position of the batch that holds an offset, its CRC verified. Holds nothing open, and so costs less than [`Partition::batch_at`].
    ///
    /// # Errors
    /// As [`Partition::record`].
    pub fn position_at(&self, offset: Offset, patience: Patience) -> Result<Result<Position, Absent>> {
        if let Some(position) = self.known(offset, |k| Some(k.position)) {
            return Ok(Ok(Position::new(position)));
        }
        Ok(self.batch_at(offset, patience)?.map(|(batch, _)| Position::new(batch.position)))
    }

    /// The same in a segment that was passed over thoroughly: what is damaged is known.
    fn seek_in_scan(
        &self,
        layout: &Layout,
        at: usize,
        open: &Arc<OpenSegment>,
        offset: Offset,
        patience: Patience,
    ) -> Result<Result<(Batch, Arc<str>), Absent>> {
        let file = layout.segments[at].log_name_shared();
        let fault = match self.seek_verified(layout, at, open, offset, patience) {
            Ok(Some(batch)) => return Ok(Ok((batch, file))),
            Ok(None) => None,
            Err(Trouble::Cold) => return Err(Error::WouldBlock),
            Err(Trouble::Fault(fault)) => Some(fault),
            Err(Trouble::Index) => Some(Fault::new(0, "batches as they stood a moment ago", "others")),
        };
        match (open.scan.as_ref().and_then(|s| s.damage_at(offset)), fault) {
            (Some(damage), _) => Err(damaged(&file, damage)),
            (None, Some(fault)) => Err(corrupt_at(&file, fault, offset)),
            (None, None) => Ok(Err(Absent::Gap)),
        }
    }

    /// The batch of a segment that holds an offset, verified; `None` where the batches around it, verified, leave a gap there.
    fn seek_verified(
        &self,
        layout: &Layout,
        at: usize,
        open: &Arc<OpenSegment>,
        offset: Offset,
        patience: Patience,
    ) -> Result<Option<Batch>, Trouble> {
        let segment = &layout.segments[at];
        let end = segment.end();
        let log = open.log.slice(0..end).unwrap_or_default();
        let bounds = (segment.base_offset(), layout.limit(at));
        let place = seek(open, log, bounds, offset, patience)?;
        let (header, position, passed) = match place {
            Place::At(header, position, passed) => (header, position, passed),
            Place::Behind(passed) => {
                if let Some(passed) = passed {
                    verify(open, log, passed, bounds, patience)?;
                }
                return Ok(None);
            }
        };
        verify(open, log, position, bounds, patience)?;
        // A gap is one only if the batch before it is right; and a wrapper, whose header hides its first offset, only behind a right one.
        let in_gap = header.base_offset > offset && !header.is_wrapper();
        if let Some(passed) = passed.filter(|_| in_gap || header.is_wrapper()) {
            verify(open, log, passed, bounds, patience)?;
        }
        if in_gap {
            return Ok(None);
        }
        Ok(Some(batch(open, header, position)))
    }

    /// The records of a batch: the stored bytes, or decoded ones from the cache.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::DecodedTooLarge`] where it cannot be decoded; [`Error::WouldBlock`].
    pub fn body(&self, batch: &Batch, file: &str, patience: Patience) -> Result<Body> {
        if !batch.header.is_compressed() {
            return Ok(Body { header: batch.header, bytes: batch.stored.clone() });
        }
        if let Some(bytes) = self.decoded.get(batch.instance, batch.position) {
            return Ok(Body { header: batch.header, bytes: Shared::Buffer(bytes) });
        }
        if patience == Patience::AtOnce && batch.header.size > DECODE_AT_ONCE_MOST {
            return Err(Error::WouldBlock);
        }
        let limit = self.config().batch_decoded_max_bytes;
        let decoded = record::decode(&batch.header, batch.stored.as_slice(), limit);
        if batch.stored.is_broken() {
            return Err(Error::Truncated { file: file.to_owned() });
        }
        let bytes = Arc::new(decoded.map_err(|e| match e {
            DecodeError::TooLarge { limit } => {
                Error::DecodedTooLarge { file: file.to_owned(), position: Position::new(batch.position), limit }
            }
            DecodeError::Damaged(fault) => {
                let fault = Fault { found: format!("{} (byte {} of the batch)", fault.found, fault.position).into(), ..fault }
                    .at(Position::new(batch.position));
                Error::Corrupt(Corruption {
                    file: file.to_owned(),
                    fault,
                    offsets: Some((batch.header.base_offset, batch.header.last_offset)),
                })
            }
        })?);
        self.decoded.put(batch.instance, batch.position, bytes.clone());
        Ok(Body { header: batch.header, bytes: Shared::Buffer(bytes) })
    }
}

/// A handle on the batch at a position.
pub(crate) fn batch(open: &Arc<OpenSegment>, header: BatchHeader, position: u64) -> Batch {
    let stored = Shared::Mapped { map: open.log.clone(), start: position, len: u64::from(header.size) };
    Batch { header, position, instance: open.instance, stored }
}

fn damaged(file: &str, damage: &Damage) -> Error {
    Error::Corrupt(Corruption { file: file.to_owned(), fault: damage.fault.clone().at(damage.from), offsets: damage.offsets })
}

pub(crate) fn corrupt_at(file: &str, fault: Fault, offset: Offset) -> Error {
    Error::Corrupt(Corruption { file: file.to_owned(), fault, offsets: Some((offset, offset)) })
}

/// A fault inside the records of a batch, told at the batch's position.
pub(crate) fn record_fault(file: &str, batch: &Batch, fault: &Fault, offset: Offset) -> Error {
    let found = format!("{} (byte {} of the records)", fault.found, fault.position);
    corrupt_at(file, Fault::new(batch.position, fault.expected.clone(), found), offset)
}

/// Finds the first batch whose last offset is at or behind the target, from the floor entry of the index on. The bounds are the base offsets of the
/// segment and of the next one.
pub(crate) fn seek(open: &OpenSegment, log: &[u8], bounds: SegmentBounds, target: Offset, patience: Patience) -> Result<Place, Trouble> {
    let (base, limit) = bounds;
    let index = OffsetIndex::new(open.index.entries(), base);
    let mut at = 0;
    if let Some(i) = index.floor(target) {
        if open.scan.is_none() && !verified::contains(open.instance, Subject::OffsetEntry, i as u64) {
            verify_entry(open, log, &index, i, limit, patience)?;
        }
        at = index.entry(i).ok_or(Trouble::Index)?.position.get();
    } else if open.scan.is_none() && !verified::contains(open.instance, Subject::OffsetEntry, NO_ENTRY) {
        verify_start(open, log, &index, limit, patience)?;
    }
    let started = at;
    let mut passed = None;
    let mut expected = base;
    loop {
        if let Some(damage) = open.scan.as_ref().and_then(|s| s.damage_from(at)) {
            at = damage.to.get();
            continue;
        }
        let header = match BatchHeader::read(log, at as usize)? {
            Step::Batch(header) => header,
            Step::End { left: 0 } => return Ok(Place::Behind(passed)),
            Step::End { left } => return Err(Fault::new(at, "a whole batch", format!("{left} bytes")).into()),
        };
        if header.base_offset < expected {
            return Err(Fault::new(at, format!("offsets from {expected} on"), header.base_offset.to_string()).into());
        }
        if header.last_offset >= target {
            return Ok(Place::At(header, at, passed));
        }
        expected = header.next_offset();
        passed = Some(at);
        at += u64::from(header.size);
        if at - started > WALK_MOST && open.scan.is_none() && u64::from(header.size) < WALK_MOST / 4 {
            return Err(Trouble::Index);
        }
    }
}

/// Verifies that an index entry names a batch: right CRC, and a chain of batches from it to the next entry's, of which one holds the offset of the
/// entry. That is the batch itself in what Kafka 4 writes, and perhaps a later one of the same append in what older brokers wrote.
#[cold]
fn verify_entry(
    open: &OpenSegment,
    log: &[u8],
    index: &OffsetIndex<'_>,
    i: usize,
    limit: Option<Offset>,
    patience: Patience,
) -> Result<(), Trouble> {
    let entry = index.entry(i).ok_or(Trouble::Index)?;
    let next = entry_within(log, index, i + 1)?;
    if next.is_some_and(|n| n.offset <= entry.offset || n.position <= entry.position) {
        return Err(Trouble::Index);
    }
    let at = entry.position.get();
    let until = next.map_or(log.len() as u64, |n| n.position.get());
    must_be_resident(open, at..until.max(at), patience)?;
    let Ok(Step::Batch(header)) = BatchHeader::read(log, at as usize) else { return Err(Trouble::Index) };
    if header.base_offset > entry.offset || !index.lies_behind(i, header.base_offset, at) {
        return Err(Trouble::Index);
    }
    // A value may hold a copy of a segment: only the chain of batches that the log itself makes leads from one entry to the next. And no CRC covers
    // a base offset: that one of these batches holds the offset of the entry tells that they stand where they say.
    let mut is_held = false;
    let last = pass_over(log, at..until, (index.base(), limit), |header, last| {
        if header.last_offset >= entry.offset && last.is_none_or(|last| last < entry.offset) {
            is_held = header.is_wrapper() || header.base_offset <= entry.offset;
        }
        true
    })?;
    if !is_held || next.is_some_and(|n| last >= Some(n.offset)) {
        return Err(Trouble::Index);
    }
    // Not before: a batch that counts as verified is served to whoever an entry leads there.
    verify(open, log, at, (index.base(), limit), patience).map_err(|trouble| match trouble {
        Trouble::Cold => Trouble::Cold,
        _ => Trouble::Index,
    })?;
    verified::remember(open.instance, Subject::OffsetEntry, i as u64);
    Ok(())
}

/// Verifies what stands before the first entry as if there were one for the start of the segment: a chain of batches leads from there to the first entry's,
/// or to the end. Without it a look-up would pass over damage there by headers that nothing vouches for, and find what a thorough pass does not.
#[cold]
fn verify_start(open: &OpenSegment, log: &[u8], index: &OffsetIndex<'_>, limit: Option<Offset>, patience: Patience) -> Result<(), Trouble> {
    let next = entry_within(log, index, 0)?;
    let until = next.map_or(log.len() as u64, |n| n.position.get());
    must_be_resident(open, 0..until, patience)?;
    let last = pass_over(log, 0..until, (index.base(), limit), |header, last| {
        // Small batches make entries: an index that has none was lost.
        next.is_some() || until <= WALK_MOST || last.is_none() || u64::from(header.size) >= WALK_MOST / 4
    })?;
    if next.is_some_and(|n| last >= Some(n.offset)) {
        return Err(Trouble::Index);
    }
    verified::remember(open.instance, Subject::OffsetEntry, NO_ENTRY);
    Ok(())
}

/// An index entry; `None` where there is none, or where its batch lies behind the published end: entries are published first.
fn entry_within(log: &[u8], index: &OffsetIndex<'_>, i: usize) -> Result<Option<OffsetEntry>, Trouble> {
    if i >= index.len() {
        return Ok(None);
    }
    index.entry(i).ok_or(Trouble::Index).map(|entry| Some(entry).filter(|entry| entry.position.get() < log.len() as u64))
}

/// Whoever cannot wait does not go over headers that are not in memory, or so many that asking for them takes long.
fn must_be_resident(open: &OpenSegment, range: Range<u64>, patience: Patience) -> Result<(), Trouble> {
    if patience == Patience::AtOnce && (range.end - range.start > WALK_MOST || !open.log.is_resident(range)) {
        return Err(Trouble::Cold);
    }
    Ok(())
}

/// Goes from batch to batch by their headers, whose offsets must rise and lie within the bounds, and the last of which must end where the range ends. Each is
/// shown with the last offset before it, and may be refused. Returns the last offset.
fn pass_over(
    log: &[u8],
    range: Range<u64>,
    (base, limit): SegmentBounds,
    mut show: impl FnMut(&BatchHeader, Option<Offset>) -> bool,
) -> Result<Option<Offset>, Trouble> {
    let (mut place, mut last) = (range.start, None);
    while place < range.end {
        let Ok(Step::Batch(header)) = BatchHeader::read(log, place as usize) else { return Err(Trouble::Index) };
        if !ends_within(&header, base, limit) || last.is_some_and(|last| header.base_offset <= last) || !show(&header, last) {
            return Err(Trouble::Index);
        }
        last = Some(header.last_offset);
        place += u64::from(header.size);
    }
    if place == range.end { Ok(last) } else { Err(Trouble::Index) }
}

/// Verifies a batch at its first touch in this process: its CRC, and that its offsets lie within the segment's base offset and the next one's, and
/// before those of the batch behind it (no CRC covers a base offset).
#[inline]
pub(crate) fn verify(open: &OpenSegment, log: &[u8], at: u64, bounds: SegmentBounds, patience: Patience) -> Result<(), Trouble> {
    let subject = Subject::of_magic(log.get(at as usize + MAGIC).copied().unwrap_or_default());
    if verified::contains(open.instance, subject, at) {
        verified::count_known();
        return Ok(());
    }
    verify_new(open, log, at, bounds, patience)
}

#[cold]
fn verify_new(open: &OpenSegment, log: &[u8], at: u64, (base, limit): SegmentBounds, patience: Patience) -> Result<(), Trouble> {
    let Step::Batch(header) = BatchHeader::read(log, at as usize)? else {
        return Err(Fault::new(at, "a whole batch", "fewer bytes").into());
    };
    let end = at + u64::from(header.size);
    if patience == Patience::AtOnce && (header.is_wrapper() || !open.log.is_resident(at..end)) {
        return Err(Trouble::Cold);
    }
    verified::count_computed();
    verify_crc(&header, log.get(at as usize..end as usize).unwrap_or_default()).map_err(|fault| fault.moved(at))?;
    if limit.is_some_and(|limit| header.last_offset >= limit) {
        return Err(Fault::new(at, "offsets below those of the next segment", header.last_offset.to_string()).into());
    }
    // A thorough pass has looked at the order already.
    if open.scan.is_none() {
        let held = offsets_in(log, &header, at);
        if held.0 < base || held.1 != header.last_offset {
            let expected = format!("offsets from {base} to {}", header.last_offset);
            return Err(Fault::new(at, expected, format!("{} to {}", held.0, held.1)).into());
        }
        if let Step::Batch(next) = BatchHeader::read(log, end as usize)? {
            let first = offsets_in(log, &next, end).0;
            if first <= header.last_offset {
                return Err(Fault::new(end, format!("offsets from {} on", header.next_offset()), first.to_string()).into());
            }
        }
    }
    verified::remember(open.instance, Subject::of_magic(header.magic), at);
    Ok(())
}
