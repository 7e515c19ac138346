//! Walking over batches in order, segment by segment, from an offset on; and backwards, for the last records of a log.
//!
//! A walk keeps the layout that it began with: a snapshot taken at opening. Each batch's CRC is verified just before the batch is handed out,
//! which also brings it into the cache of the CPU for whoever decodes it.

use crate::error::{Corruption, Error, Fault, Result};
use crate::io::{CACHE_LINE, prefetch};
use crate::log::batch::{BatchHeader, Step};
use crate::log::handle::{Batch, Body};
use crate::log::index::OffsetIndex;
use crate::log::partition::{Layout, Partition};
use crate::log::seek::{Place, Trouble, batch, corrupt_at, seek, verify};
use crate::log::segment::OpenSegment;
use crate::log::verified::{self, Subject};
use crate::types::{Offset, Patience, TimestampMs};
use std::sync::Arc;

/// So much of the next batch is fetched ahead, in bytes; the processor follows by itself through what is longer.
const FETCHED_MOST: usize = 2048;

/// How much a walk looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Headers only; no CRC is checked.
    Headers,
    /// Whole batches, each with its CRC verified.
    Batches,
}

/// A step of a walk.
#[derive(Clone, Debug)]
pub enum Item {
    /// A batch, and the name of its file.
    Batch(Batch, Arc<str>),
    /// A stretch that cannot be read. The walk can go on behind it.
    Damaged(Corruption),
}

/// Takes the headers of a group in rising order, and the name of their file; says whether to go on.
pub type Group<'g> = dyn FnMut(&[Batch], &Arc<str>) -> Result<bool> + 'g;

/// A walk. It is asked with the partition that it was made by.
#[derive(Debug)]
pub struct Walk {
    layout: Arc<Layout>,
    /// The place of the segment.
    segment: usize,
    open: Option<Arc<OpenSegment>>,
    /// The position in it; `None` is the first batch that reaches `from`.
    at: Option<u64>,
    /// The position at which the walk came into it.
    entered: u64,
    from: Offset,
    /// The first offset that is not asked for.
    until: Offset,
    look: Look,
    patience: Patience,
    /// Segments whose largest time is known to lie before this are passed over.
    not_before: Option<TimestampMs>,
    /// Whether the last batch handed out reaches the end.
    ended: bool,
}

impl Partition {
    /// A walk over the batches that hold offsets from `from` to below `until`, within the log as published now.
    pub fn walk(&self, from: Offset, until: Offset, look: Look, patience: Patience) -> Walk {
        let layout = self.layout_full();
        let segment = layout.floor(from).unwrap_or(0);
        Walk { layout, segment, open: None, at: None, entered: 0, from, until, look, patience, not_before: None, ended: false }
    }
}

impl Walk {
    /// Lets the walk wait for the disk from now on, or not.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Passes over segments that are known to hold no record at or after a time.
    pub(crate) fn not_before(mut self, time: TimestampMs) -> Walk {
        self.not_before = Some(time);
        self
    }

    /// The next batch or damaged stretch; `None` at the end.
    ///
    /// # Errors
    /// What the system says; [`Error::WouldBlock`], after which the same step can be tried again.
    pub fn next(&mut self, partition: &Partition) -> Result<Option<Item>> {
        if let Some(item) = self.next_known() {
            return Ok(Some(item));
        }
        loop {
            let Some(segment) = self.layout.segments.get(self.segment).cloned() else { return Ok(None) };
            if self.ended || segment.base_offset() >= self.until {
                return Ok(None);
            }
            if self.at.is_none() && self.not_before.is_some_and(|t| segment.largest().is_some_and(|l| l < t && l >= TimestampMs::new(0))) {
                self.next_segment();
                continue;
            }
            let open = match &self.open {
                Some(open) => open.clone(),
                None => {
                    let open = partition.open_segment(&self.layout, self.segment, self.patience)?;
                    self.open = Some(open.clone());
                    open
                }
            };
            let log = open.log.slice(0..segment.end()).unwrap_or_default();
            match self.step(&open, log, segment.base_offset()) {
                Ok(Some((header, at))) => {
                    // A wrapper's header tells its last offset only: earlier ones may be asked for.
                    if header.base_offset >= self.until && !header.is_wrapper() {
                        return Ok(None);
                    }
                    self.ended = header.next_offset() >= self.until;
                    self.at = Some(at + u64::from(header.size));
                    return Ok(Some(Item::Batch(batch(&open, header, at), segment.log_name_shared())));
                }
                Ok(None) => self.next_segment(),
                Err(Trouble::Cold) => return Err(Error::WouldBlock),
                Err(Trouble::Fault(_) | Trouble::Index) if open.scan.is_none() => {
                    let open = partition.scanned(&self.layout, self.segment, self.patience)?;
                    // Headers that were handed out were not verified: the length of the first wrong one may have led astray.
                    let astray = open.scan.as_ref().and_then(|s| s.damage_behind(self.entered)).map(|d| d.from.get());
                    self.at = self.at.map(|at| astray.map_or(at, |from| from.min(at)));
                    self.open = Some(open);
                }
                Err(trouble) => {
                    let fault = match trouble {
                        Trouble::Fault(fault) => fault,
                        _ => Fault::new(self.at.unwrap_or(0), "batches as they stood a moment ago", "others"),
                    };
                    if open.is_broken() {
                        return Err(Error::Truncated { file: segment.log_name().to_owned() });
                    }
                    let at = fault.position;
                    let damage = open.scan.as_ref().and_then(|s| s.damage_from(at.get())).cloned();
                    match damage {
                        Some(damage) => {
                            self.at = Some(damage.to.get());
                            if let Some(item) = self.damaged(&damage, &segment.log_name_shared()) {
                                return Ok(Some(item));
                            }
                        }
                        None => {
                            self.next_segment();
                            return Err(corrupt_at(segment.log_name(), fault, self.from));
                        }
                    }
                }
            }
        }
    }

    /// The next batch with its records readable, where nothing about it has to be verified any more, it is not compressed and `wanted` takes it; `None` is
    /// no answer, and the walk stays where it is.
    #[inline]
    pub(crate) fn next_plain(&mut self, wanted: impl FnOnce(&BatchHeader) -> bool) -> Option<Body> {
        let (header, at) = self.known().filter(|(header, _)| !header.is_compressed() && wanted(header))?;
        let (open, segment) = (self.open.as_ref()?, self.layout.segments.get(self.segment)?);
        fetch_next(open.log.slice(0..segment.end())?, at as usize, header.size as usize);
        let stored = batch(open, header, at).stored;
        self.pass(&header, at);
        Some(Body { header, bytes: stored })
    }

    /// The next batch of the segment that the walk is in, where nothing about it has to be verified any more; `None` is no answer.
    #[inline]
    fn next_known(&mut self) -> Option<Item> {
        let (header, at) = self.known()?;
        let item = Item::Batch(batch(self.open.as_ref()?, header, at), self.layout.segments.get(self.segment)?.log_name_shared());
        self.pass(&header, at);
        Some(item)
    }

    /// Goes on behind a batch.
    #[inline]
    fn pass(&mut self, header: &BatchHeader, at: u64) {
        self.at = Some(at + u64::from(header.size));
        self.ended = header.next_offset() >= self.until;
    }

    /// The header of that batch, and its position.
    #[inline]
    fn known(&self) -> Option<(BatchHeader, u64)> {
        let (at, open, segment) = (self.at?, self.open.as_ref()?, self.layout.segments.get(self.segment)?);
        if self.ended || open.scan.is_some() {
            return None;
        }
        let log = open.log.slice(0..segment.end())?;
        let Ok(Step::Batch(header)) = BatchHeader::read(log, at as usize) else { return None };
        if header.base_offset >= self.until || segment.base_offset() >= self.until {
            return None;
        }
        match self.look {
            Look::Headers if header.base_offset >= segment.base_offset() => {}
            Look::Batches if verified::contains(open.instance, Subject::of_magic(header.magic), at) => verified::count_known(),
            Look::Headers | Look::Batches => return None,
        }
        Some((header, at))
    }

    fn next_segment(&mut self) {
        self.segment += 1;
        self.open = None;
        self.at = None;
    }

    /// A damaged stretch as a step, unless it costs no offset that was asked for.
    fn damaged(&self, damage: &crate::log::scan::Damage, file: &str) -> Option<Item> {
        let (first, last) = damage.offsets?;
        if last < self.from || first >= self.until {
            return None;
        }
        let fault = damage.fault.clone().at(damage.from);
        Some(Item::Damaged(Corruption { file: file.to_owned(), fault, offsets: damage.offsets }))
    }

    /// The batch at the present position; `None` at the end of the segment. A damaged stretch is a fault at its first byte.
    fn step(&mut self, open: &Arc<OpenSegment>, log: &[u8], base: Offset) -> Result<Option<(BatchHeader, u64)>, Trouble> {
        let bounds = (base, self.layout.limit(self.segment));
        let at = match self.at {
            Some(at) => at,
            None if self.from <= base => 0,
            None => match seek(open, log, bounds, self.from, self.patience)? {
                Place::At(_, at, _) => open.scan.as_ref().and_then(|s| s.damage_at(self.from)).map_or(at, |damage| damage.from.get()),
                Place::Behind(_) => match open.scan.as_ref().and_then(|s| s.damage_at(self.from)) {
                    Some(damage) => damage.from.get(),
                    None => {
                        self.at = Some(log.len() as u64);
                        return Ok(None);
                    }
                },
            },
        };
        if self.at.is_none() {
            self.entered = at;
        }
        self.at = Some(at);
        // A walk that began before the pass may stand within a stretch that the pass told apart.
        if let Some(damage) = open.scan.as_ref().and_then(|s| s.damage_over(at)) {
            return Err(damage.fault.clone().at(damage.from).into());
        }
        match BatchHeader::read(log, at as usize)? {
            Step::End { left: 0 } => Ok(None),
            Step::End { left } => Err(Fault::new(at, "a whole batch", format!("{left} bytes of one, or of something else")).into()),
            Step::Batch(header) => {
                if self.look == Look::Batches {
                    verify(open, log, at, bounds, self.patience)?;
                } else if header.base_offset < base {
                    return Err(Fault::new(at, format!("offsets from {base} on"), header.base_offset.to_string()).into());
                }
                Ok(Some((header, at)))
            }
        }
    }
}

/// Has the beginning of the batch fetched that stands behind one, as much as that one has, while that one is made use of: nothing else reads ahead from
/// one small batch into the next.
#[inline]
fn fetch_next(log: &[u8], at: usize, size: usize) {
    (0..size.min(FETCHED_MOST)).step_by(CACHE_LINE).for_each(|line| prefetch(log, at + size + line));
}

impl Partition {
    /// Headers with their positions, from the end of the log backwards, in groups of one index interval: each call of `group` gets the headers of a
    /// group in rising order, and says whether to go on. What it gets is verified, the order against the batch before the group included.
    ///
    /// # Errors
    /// As [`Walk::next`].
    pub fn walk_back(&self, patience: Patience, group: &mut Group<'_>) -> Result<()> {
        let layout = self.layout_full();
        for (at, segment) in layout.segments.iter().enumerate().rev() {
            let mut open = self.open_segment(&layout, at, patience)?;
            // Kept over a thorough pass: what was handed out before it is not handed out again.
            let mut until = segment.end();
            loop {
                match self.walk_segment_back(&layout, at, &open, &mut until, patience, group) {
                    Ok(true) => break,
                    Ok(false) => return Ok(()),
                    Err(Stopped::Failed(error)) => return Err(error),
                    Err(Stopped::By(Trouble::Cold)) => return Err(Error::WouldBlock),
                    Err(Stopped::By(_)) if open.scan.is_none() => open = self.scanned(&layout, at, patience)?,
                    Err(Stopped::By(_)) => return Err(Error::Truncated { file: segment.log_name().to_owned() }),
                }
            }
        }
        Ok(())
    }

    /// The groups of a segment that end at or before `until`, which becomes the start of the last one handed out.
    fn walk_segment_back(
        &self,
        layout: &Layout,
        at: usize,
        open: &Arc<OpenSegment>,
        until: &mut u64,
        patience: Patience,
        group: &mut Group<'_>,
    ) -> Result<bool, Stopped> {
        let segment = &layout.segments[at];
        let file = segment.log_name_shared();
        let log = open.log.slice(0..segment.end()).unwrap_or_default();
        let bounds = (segment.base_offset(), layout.limit(at));
        let index = OffsetIndex::new(open.index.entries(), segment.base_offset());
        let mut entry = index.len();
        // A group is held until the one before it was read: only the batch before a batch tells that its offsets, which no CRC covers, can be.
        let (mut held, mut before) = (Vec::new(), Vec::new());
        let (mut held_start, mut end) = (*until, *until);
        while end > 0 {
            let start = loop {
                let Some(i) = entry.checked_sub(1) else { break 0 };
                entry = i;
                let position = index.entry(i).ok_or(Trouble::Index)?.position.get();
                if position < end {
                    break position;
                }
            };
            before.clear();
            let mut place = start;
            while place < end {
                if let Some(damage) = open.scan.as_ref().and_then(|s| s.damage_from(place)) {
                    place = damage.to.get();
                    continue;
                }
                match BatchHeader::read(log, place as usize).map_err(Trouble::from)? {
                    Step::Batch(header) => {
                        before.push(batch(open, header, place));
                        place += u64::from(header.size);
                    }
                    Step::End { .. } if open.scan.is_some() => break,
                    Step::End { .. } => return Err(Trouble::Index.into()),
                }
            }
            if place != end && open.scan.is_none() {
                return Err(Trouble::Index.into());
            }
            // Not before they have led to where the group ends: a batch that counts as verified is served to whoever an entry leads there.
            for batch in &before {
                verify(open, log, batch.position, bounds, patience)?;
            }
            if !held.is_empty() {
                *until = held_start;
                if !group(&held, &file).map_err(Stopped::Failed)? {
                    return Ok(false);
                }
            }
            std::mem::swap(&mut held, &mut before);
            (held_start, end) = (start, start);
        }
        *until = 0;
        Ok(held.is_empty() || group(&held, &file).map_err(Stopped::Failed)?)
    }
}

/// Why a walk backwards stopped.
enum Stopped {
    By(Trouble),
    Failed(Error),
}

impl From<Trouble> for Stopped {
    fn from(trouble: Trouble) -> Stopped {
        Stopped::By(trouble)
    }
}
