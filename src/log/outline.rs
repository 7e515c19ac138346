//! The shape of a log for a picture: where segments lie in offsets and time, how large they are, how full of records, from few headers.
//!
//! Nothing is decoded, no CRC is computed and no segment is passed over whole: what is large is sampled, through its index, and where there are very
//! many segments several are told as one piece. What look-ups or a check have found damaged is told; nothing searches for damage here.

use crate::error::{Error, Result};
use crate::log::batch::{BatchHeader, Step};
use crate::log::index::OffsetIndex;
use crate::log::partition::{Layout, Partition};
use crate::log::scan::Tail;
use crate::log::segment::OpenSegment;
use crate::log::transactions::OpenTransaction;
use crate::types::Patience::{AtOnce, MayBlock};
use crate::types::{Offset, TimestampMs};
use std::sync::Arc;

/// So many headers are looked at in one place at most, before samples are taken; as many again for all samples together.
const HEADERS_MOST: usize = 4096;
/// So many places of the log are sampled.
const SAMPLES_MOST: usize = 512;
/// Of the damage that is known of a piece so many stretches are told.
const DAMAGE_MOST: usize = 64;
/// Open transactions that nobody has asked for yet are looked for in a log of at most so many bytes.
const SEARCHED_MOST: u64 = 1 << 30;

/// The shape of a log.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// The log start offset.
    pub log_start: Offset,
    /// The log end offset.
    pub log_end: Offset,
    /// All segments.
    pub segments: u64,
    /// The bytes of all segments.
    pub bytes: u64,
    /// The segments in order, some in one piece where there are many.
    pub pieces: Vec<Piece>,
    /// Offsets with the largest time of their batch, in order of the offsets.
    pub points: Vec<(Offset, TimestampMs)>,
    /// Transactions without a marker; `None` where finding them would take a walk over a large log.
    pub open_transactions: Option<Vec<OpenTransaction>>,
    /// What stands behind the last good batch, with its file.
    pub torn_tail: Option<(String, Tail)>,
}

/// A segment, or several that follow one another.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The base offset of the first.
    pub base: Offset,
    /// The offset behind the last.
    pub until: Offset,
    /// How many there are.
    pub segments: u64,
    /// The bytes of their `.log` files.
    pub bytes: u64,
    /// The time that the first one begins with; `None` where its first batch has none or cannot be read.
    pub first_time: Option<TimestampMs>,
    /// The largest time that was seen in the last one.
    pub last_time: Option<TimestampMs>,
    /// Of so many offsets that were looked at ...
    pub offsets_seen: u64,
    /// ... so many hold a record, markers of transactions included.
    pub records_seen: u64,
    /// Whether all offsets were looked at.
    pub whole: bool,
    /// Stretches of offsets that are known to be damaged.
    pub damage: Vec<(Offset, Offset)>,
    /// Where a header that cannot be was met: the offset behind the last good one.
    pub stopped_at: Option<Offset>,
}

impl Piece {
    /// The share of the offsets that hold a record; `None` where none was looked at.
    pub fn fill(&self) -> Option<f64> {
        (self.offsets_seen > 0).then(|| (self.records_seen as f64 / self.offsets_seen as f64).min(1.0))
    }
}

/// What headers in a row told.
struct Run {
    /// Where the next header stands.
    at: u64,
    /// The offset behind the last header; `None` before the first one and behind damage.
    next: Option<Offset>,
    offsets: u64,
    records: u64,
    largest: TimestampMs,
    /// The last header, as a point.
    last: Option<(Offset, TimestampMs)>,
    stopped: bool,
}

impl Run {
    fn at(position: u64, next: Option<Offset>) -> Run {
        Run { at: position, next, offsets: 0, records: 0, largest: TimestampMs::NONE, last: None, stopped: false }
    }

    /// Goes over at most `most` headers that begin below `end`, and passes over damage that is known.
    fn go(&mut self, open: &OpenSegment, log: &[u8], most: usize, end: u64, points: &mut Vec<(Offset, TimestampMs)>, each: usize) {
        for nth in 0..most {
            if self.at >= end {
                return;
            }
            if let Some(damage) = open.scan.as_ref().and_then(|s| s.damage_over(self.at)) {
                (self.at, self.next) = (damage.to.get(), None);
                continue;
            }
            let Ok(Step::Batch(header)) = BatchHeader::read(log, self.at as usize) else {
                self.stopped = true;
                return;
            };
            let first = self.next.unwrap_or(header.base_offset);
            let covered = header.next_offset().delta_from(first);
            // A wrapper does not say how many records it holds; all that it may hold count.
            let held = if header.is_wrapper() { covered } else { i64::from(header.records_count) };
            if covered <= 0 || !(0..=covered).contains(&held) {
                self.stopped = true;
                return;
            }
            self.offsets += covered.unsigned_abs();
            self.records += held.unsigned_abs();
            self.largest = self.largest.max(header.max_timestamp);
            self.next = Some(header.next_offset());
            self.at += u64::from(header.size);
            self.last = Some((header.last_offset, header.max_timestamp));
            if nth % each == 0 {
                points.extend(self.last);
            }
        }
    }
}

impl Partition {
    /// The shape of the log in at most `pieces_most` pieces. It may wait for the disk.
    ///
    /// # Errors
    /// [`Error::Truncated`] where a file lost bytes meanwhile; what the system says.
    pub fn outline(&self, pieces_most: usize) -> Result<Outline> {
        let layout = self.layout_full();
        let bounds = self.bounds();
        let together = layout.segments.len().div_ceil(pieces_most.max(1)).max(1);
        let pieces = layout.segments.len().div_ceil(together);
        let mut outline = Outline {
            log_start: bounds.log_start,
            log_end: bounds.log_end,
            segments: layout.segments.len() as u64,
            bytes: layout.segments.iter().map(|s| s.end()).sum(),
            torn_tail: self.torn_tail(),
            ..Outline::default()
        };
        for first in (0..layout.segments.len()).step_by(together) {
            let last = (first + together).min(layout.segments.len()) - 1;
            let piece = self.piece(&layout, first, last, pieces, &mut outline.points)?;
            outline.pieces.push(piece);
        }
        outline.points.retain(|(_, time)| time.get() >= 0);
        outline.points.sort_unstable();
        outline.points.dedup();
        let patience = if outline.bytes <= SEARCHED_MOST { MayBlock } else { AtOnce };
        outline.open_transactions = match self.open_transactions(patience) {
            Ok(open) => Some(open),
            Err(Error::WouldBlock) => None,
            Err(error) => return Err(error),
        };
        Ok(outline)
    }

    fn piece(
        &self,
        layout: &Arc<Layout>,
        first: usize,
        last: usize,
        pieces: usize,
        points: &mut Vec<(Offset, TimestampMs)>,
    ) -> Result<Piece> {
        let segment = &layout.segments[first];
        let base = segment.base_offset();
        let end_of = |at| layout.limit(at).unwrap_or(self.bounds().log_end).max(base);
        let mut piece = Piece {
            base,
            until: end_of(last),
            segments: (last - first + 1) as u64,
            bytes: layout.segments[first..=last].iter().map(|s| s.end()).sum(),
            first_time: None,
            last_time: None,
            offsets_seen: 0,
            records_seen: 0,
            whole: false,
            damage: Vec::new(),
            stopped_at: None,
        };
        for at in [first, last] {
            let segment = &layout.segments[at];
            let open = self.open_segment(layout, at, MayBlock)?;
            let log = open.log.slice(0..segment.end()).unwrap_or_default();
            if at == first {
                piece.first_time = match BatchHeader::read(log, 0) {
                    Ok(Step::Batch(header)) if header.attributes.has_delete_horizon() => Some(header.max_timestamp),
                    Ok(Step::Batch(header)) => Some(header.base_timestamp),
                    _ => None,
                }
                .filter(|t| t.get() >= 0);
                piece.look(&open, log, end_of(first), pieces, points);
            } else {
                // Of the last of several only the end is looked at.
                let mut run = Run::at(last_entry(&open, segment.base_offset()).unwrap_or(0), None);
                run.go(&open, log, HEADERS_MOST / pieces + 1, log.len() as u64, points, usize::MAX);
                points.extend(run.last);
                piece.last_time = piece.last_time.max(Some(run.largest));
            }
            piece.last_time = piece.last_time.max(segment.largest()).filter(|t| t.get() >= 0);
            if open.is_broken() {
                return Err(Error::Truncated { file: segment.log_name().to_owned() });
            }
            if first == last {
                break;
            }
        }
        for segment in &layout.segments[first..=last] {
            let Some(open) = segment.opened() else { continue };
            let known = open.iter().filter_map(|o| o.scan.as_ref()).flat_map(|s| &s.damage).filter_map(|d| d.offsets);
            piece.damage.extend(known.take(DAMAGE_MOST.saturating_sub(piece.damage.len())));
        }
        Ok(piece)
    }
}

impl Piece {
    /// Looks at the headers of a segment: at all of them if they are few, else at those in front and at samples.
    fn look(&mut self, open: &OpenSegment, log: &[u8], until: Offset, pieces: usize, points: &mut Vec<(Offset, TimestampMs)>) {
        let end = log.len() as u64;
        let (headers, samples) = ((HEADERS_MOST / pieces).max(16), (SAMPLES_MOST / pieces).max(2));
        let mut front = Run::at(0, Some(self.base));
        front.go(open, log, headers, end, points, (headers / samples).max(1));
        if front.stopped {
            self.stopped_at = front.next;
        } else if front.at >= end {
            // What lies behind the last batch up to the next segment is a gap, too.
            front.offsets += front.next.map_or(0, |next| until.delta_from(next).max(0).unsigned_abs());
            self.whole = front.next.is_some();
        }
        self.take(&front);
        points.extend(front.last);
        if front.at >= end {
            return;
        }
        let index = OffsetIndex::new(open.index.entries(), self.base);
        let step = index.len().div_ceil(samples).max(1);
        for at in (0..index.len()).step_by(step).chain(index.len().checked_sub(1)) {
            let Some(entry) = index.entry(at).filter(|e| e.position.get() >= front.at) else { continue };
            let position = entry.position.get();
            // An index is a hint: an entry whose batch is another is passed over.
            match BatchHeader::read(log, position as usize) {
                Ok(Step::Batch(header)) if header.last_offset == entry.offset && header.next_offset() <= until => {}
                _ => continue,
            }
            let mut run = Run::at(position, None);
            run.go(open, log, (headers / samples).max(2), end, points, usize::MAX);
            points.extend(run.last);
            self.take(&run);
        }
    }

    fn take(&mut self, run: &Run) {
        self.offsets_seen += run.offsets;
        self.records_seen += run.records;
        self.last_time = self.last_time.max(Some(run.largest));
    }
}

/// The position that the last entry of a segment's index names.
fn last_entry(open: &OpenSegment, base: Offset) -> Option<u64> {
    let index = OffsetIndex::new(open.index.entries(), base);
    Some(index.entry(index.len().checked_sub(1)?)?.position.get())
}
