//! The look-up of an offset by a time, by Kafka's rule: the first segment whose largest time reaches it, in it the first record in offset order.
//!
//! A time index entry counts only if the batch that it names has that largest time; else the headers of the segment are walked once. Headers
//! behind the last entry are walked once a segment. Maxima that are true but incomplete are believed, as Kafka believes them.

use crate::error::{Error, Result};
use crate::log::batch::{BatchHeader, Step};
use crate::log::index::{OffsetIndex, TimeIndex};
use crate::log::partition::{Layout, Partition};
use crate::log::record::{RecordRef, Records};
use crate::log::seek::{Place, Trouble, WALK_MOST, seek};
use crate::log::segment::OpenSegment;
use crate::log::verified::{self, Subject};
use crate::log::walk::{Item, Look};
use crate::types::{Offset, Patience, TimestampMs};
use std::sync::Arc;

impl Partition {
    /// Where the search for the first record at or after a time begins: the first segment whose largest time reaches it, and in it an offset of
    /// the batch that the time index names. `None` where no segment reaches it. No batch before that one counts.
    ///
    /// # Errors
    /// What the system says; [`Error::WouldBlock`].
    fn time_floor(&self, time: TimestampMs, patience: Patience) -> Result<Option<Offset>> {
        let layout = self.layout();
        for at in layout.first_known_to_reach(time)..layout.segments.len() {
            let largest = self.largest_time(&layout, at, patience)?;
            let segment = &layout.segments[at];
            // Kafka takes the time of the file where no record has one.
            let reaches = if largest.get() >= 0 { largest } else { segment.mtime() };
            layout.reaches(at, reaches);
            if reaches < time {
                continue;
            }
            let open = self.open_segment(&layout, at, patience)?;
            let index = TimeIndex::new(open.timeindex.entries(), segment.base_offset());
            let Some(i) = index.floor(time) else { return Ok(Some(segment.base_offset())) };
            if self.time_entry_holds(&layout, at, &open, i, patience)? {
                return Ok(Some(index.entry(i).map_or(segment.base_offset(), |e| e.offset)));
            }
            let open = self.scanned(&layout, at, patience)?;
            let index = TimeIndex::new(open.timeindex.entries(), segment.base_offset());
            return Ok(Some(index.floor(time).and_then(|i| index.entry(i)).map_or(segment.base_offset(), |e| e.offset)));
        }
        Ok(None)
    }

    /// The first record at or after a time, in offset order from the first segment on whose largest time reaches it, that `wanted` takes.
    ///
    /// # Errors
    /// What the system says; [`Error::WouldBlock`]. Damage on the way is passed over, since what it held cannot be known.
    pub fn first_at(
        &self,
        time: TimestampMs,
        patience: Patience,
        wanted: &mut dyn FnMut(&BatchHeader, &RecordRef) -> bool,
    ) -> Result<Option<Offset>> {
        if let Some(offset) = self.first_known(time, wanted) {
            return Ok(Some(offset));
        }
        match self.time_floor(time, patience)? {
            Some(floor) => self.first_from(floor, time, patience, wanted),
            None => Ok(None),
        }
    }

    /// The same where all on the way was verified before and the record lies in the first batch that reaches the time: no lock, no allocation, no
    /// system call, and no count that threads share. `None` is no answer: the long way has to be gone.
    #[inline]
    fn first_known(&self, time: TimestampMs, wanted: &mut dyn FnMut(&BatchHeader, &RecordRef) -> bool) -> Option<Offset> {
        let bounds = self.bounds();
        let layout = self.layout();
        let segment = layout.segments.get(layout.first_known_to_reach(time))?;
        segment.largest().filter(|largest| *largest >= time && largest.get() >= 0)?;
        let open = segment.opened()?;
        let open = open.as_ref().filter(|open| open.scan.is_none())?;
        let log = open.log.slice(0..segment.end())?;
        let is_known = |subject, at| verified::contains(open.instance, subject, at);
        let times = TimeIndex::new(open.timeindex.entries(), segment.base_offset());
        let floor = match times.floor(time) {
            Some(i) => times.entry(i).filter(|_| is_known(Subject::TimeEntry, i as u64))?.offset,
            None => segment.base_offset(),
        };
        let from = floor.max(bounds.log_start);
        let index = OffsetIndex::new(open.index.entries(), segment.base_offset());
        let mut at = match index.floor(from) {
            Some(i) => index.entry(i).filter(|_| is_known(Subject::OffsetEntry, i as u64))?.position.get(),
            None => 0,
        };
        let end = at.saturating_add(WALK_MOST);
        while at < end {
            let extent = BatchHeader::extent(log, at as usize)?;
            if extent.last < from.get() || extent.max_timestamp < time.get() {
                at += u64::from(extent.size);
                continue;
            }
            let Ok(Step::Batch(header)) = BatchHeader::read(log, at as usize) else { return None };
            if header.is_compressed() || header.attributes.is_control() || !is_known(Subject::Batch, at) {
                return None;
            }
            verified::count_known();
            let batch = log.get(at as usize..)?.get(..header.size as usize)?;
            let found = first_in(Records::in_batch(&header, batch), &header, time, (bounds.log_start, bounds.log_end), wanted);
            return found.filter(|_| !open.log.is_broken());
        }
        None
    }

    /// Searches batches, from the one that holds an offset on, for the first record that `wanted` takes, passing over batches whose largest time lies before `time`.
    ///
    /// # Errors
    /// As [`crate::log::walk::Walk::next`]; damage on the way is passed over, since what it held cannot be known.
    fn first_from(
        &self,
        from: Offset,
        time: TimestampMs,
        patience: Patience,
        wanted: &mut dyn FnMut(&BatchHeader, &RecordRef) -> bool,
    ) -> Result<Option<Offset>> {
        let bounds = self.bounds();
        let mut walk = self.walk(from.max(bounds.log_start), bounds.log_end, Look::Headers, patience).not_before(time);
        while let Some(item) = walk.next(self)? {
            let Item::Batch(batch, file) = item else { continue };
            if batch.header.max_timestamp < time || batch.header.attributes.is_control() {
                continue;
            }
            // Only a batch that may hold the answer is read whole.
            if batch.header.is_wrapper() || !verified::contains(batch.instance, Subject::of_magic(batch.header.magic), batch.position) {
                match self.position_at(batch.header.last_offset.max(bounds.log_start), patience) {
                    Ok(Ok(position)) if position.get() == batch.position => {}
                    Ok(_) | Err(Error::Corrupt(_)) => continue,
                    Err(error) => return Err(error),
                }
            }
            let body = match self.body(&batch, &file, patience) {
                Ok(body) => body,
                Err(Error::Corrupt(_) | Error::DecodedTooLarge { .. }) => continue,
                Err(error) => return Err(error),
            };
            if let Some(offset) = first_in(body.records(), &body.header, time, (bounds.log_start, bounds.log_end), wanted) {
                return Ok(Some(offset));
            }
            if body.bytes.is_broken() {
                return Err(Error::Truncated { file: file.to_string() });
            }
        }
        Ok(None)
    }

    /// The largest time of a segment's records; [`TimestampMs::NONE`] where none has one. Found once, then remembered.
    ///
    /// # Errors
    /// What the system says; [`Error::WouldBlock`].
    pub fn largest_time(&self, layout: &Layout, at: usize, patience: Patience) -> Result<TimestampMs> {
        let Some(segment) = layout.segments.get(at) else { return Ok(TimestampMs::NONE) };
        if let Some(known) = segment.largest() {
            return Ok(known);
        }
        let mut open = self.open_segment(layout, at, patience)?;
        if patience == Patience::AtOnce {
            return Err(Error::WouldBlock);
        }
        let largest = loop {
            if let Some(scan) = &open.scan {
                break scan.largest.timestamp;
            }
            match self.largest_by_index(layout, at, &open)? {
                Some(largest) => break largest,
                None => open = self.scanned(layout, at, patience)?,
            }
        };
        segment.set_largest(largest);
        Ok(largest)
    }

    /// The last entry's time, if it holds, or a larger one among the headers behind it; `None` where the segment has to be passed over.
    fn largest_by_index(&self, layout: &Layout, at: usize, open: &Arc<OpenSegment>) -> Result<Option<TimestampMs>> {
        let segment = &layout.segments[at];
        let log = open.log.slice(0..segment.end()).unwrap_or_default();
        let times = TimeIndex::new(open.timeindex.entries(), segment.base_offset());
        let (mut largest, mut place) = (TimestampMs::NONE, 0);
        if let Some(i) = times.len().checked_sub(1) {
            if !self.time_entry_holds(layout, at, open, i, Patience::MayBlock)? {
                return Ok(None);
            }
            let Some(entry) = times.entry(i) else { return Ok(None) };
            largest = entry.timestamp;
            let Ok(Place::At(header, position, _)) =
                seek(open, log, (segment.base_offset(), layout.limit(at)), entry.offset, Patience::MayBlock)
            else {
                return Ok(None);
            };
            place = position + u64::from(header.size);
        }
        loop {
            match BatchHeader::read(log, place as usize) {
                Ok(Step::Batch(header)) => {
                    largest = largest.max(header.max_timestamp);
                    place += u64::from(header.size);
                }
                Ok(Step::End { left: 0 }) => return Ok(Some(largest)),
                _ => return Ok(None),
            }
        }
    }

    /// Whether the batch that a time index entry names has that largest time.
    fn time_entry_holds(&self, layout: &Layout, at: usize, open: &Arc<OpenSegment>, i: usize, patience: Patience) -> Result<bool> {
        if open.scan.is_some() || verified::contains(open.instance, Subject::TimeEntry, i as u64) {
            return Ok(true);
        }
        let segment = &layout.segments[at];
        let log = open.log.slice(0..segment.end()).unwrap_or_default();
        let times = TimeIndex::new(open.timeindex.entries(), segment.base_offset());
        let Some(entry) = times.entry(i) else { return Ok(false) };
        let rises = i == 0 || times.entry(i - 1).is_some_and(|before| before.timestamp < entry.timestamp && before.offset <= entry.offset);
        let holds = match seek(open, log, (segment.base_offset(), layout.limit(at)), entry.offset, patience) {
            Ok(Place::At(header, ..)) => header.max_timestamp == entry.timestamp && header.base_offset <= entry.offset,
            Ok(Place::Behind(_)) | Err(Trouble::Fault(_) | Trouble::Index) => false,
            Err(Trouble::Cold) => return Err(Error::WouldBlock),
        };
        let holds = holds && rises && OffsetIndex::new(open.index.entries(), segment.base_offset()).len() <= log.len();
        if holds {
            verified::remember(open.instance, Subject::TimeEntry, i as u64);
        }
        Ok(holds)
    }
}

/// The first record of a batch at or after a time, between two offsets, that `wanted` takes. One that cannot be read ends the search.
#[inline]
fn first_in(
    records: Records<'_>,
    header: &BatchHeader,
    time: TimestampMs,
    (start, end): (Offset, Offset),
    wanted: &mut dyn FnMut(&BatchHeader, &RecordRef) -> bool,
) -> Option<Offset> {
    for record in records.not_before(time) {
        let Ok(record) = record else { break };
        if record.timestamp >= time && record.offset >= start && record.offset < end && wanted(header, &record) {
            return Some(record.offset);
        }
    }
    None
}
