//! How long a decoded segment is, and where in it a record begins: counted once, kept up as the log grows.
//!
//! `tail` and `less` need a true size and read at its end, so the active segment is counted off the threads that may not wait; a sealed one has its
//! size once somebody has counted it. A size that was told never shrinks: readers take that for a truncation.

use crate::source::{Control, Source};
use crate::types::{Offset, Patience};
use crate::view::error::{Error, ErrorKind};
use crate::view::node::Span;
use crate::view::path::Lines;
use crate::view::render;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// A mark is left every so many bytes of output.
const MARK_BYTES: u64 = 1 << 20;
/// The counts of so many segments are remembered.
const COUNTS_MOST: usize = 4096;
/// So many bytes of log are counted without waiting.
const AT_ONCE_MOST: u64 = 64 << 10;

/// What is known of the output of one segment in one form.
#[derive(Debug)]
pub(crate) struct Count {
    /// Positions of the output at which records begin, and their offsets; rising.
    marks: Vec<(u64, Offset)>,
    bytes: u64,
    /// The first offset that was not counted.
    next: Offset,
    /// Whether a record could not be read: the size is then not known.
    broken: bool,
    control: Control,
}

impl Count {
    fn new(base: Offset, control: Control) -> Count {
        Count { marks: vec![(0, base)], bytes: 0, next: base, broken: false, control }
    }

    /// The last mark at or before a position.
    pub(crate) fn mark(&self, at: u64) -> (u64, Offset) {
        let i = self.marks.partition_point(|(bytes, _)| *bytes <= at);
        self.marks.get(i.saturating_sub(1)).copied().unwrap_or((0, self.next))
    }

    /// Counts up to an offset.
    fn count(&mut self, source: &Arc<dyn Source>, until: Offset, lines: Lines, patience: Patience) -> Result<(), Error> {
        if self.next >= until || self.broken {
            return Ok(());
        }
        if patience == Patience::AtOnce && source.log_bytes(self.next, until, AT_ONCE_MOST, patience)? > AT_ONCE_MOST {
            return Err(Error::new(ErrorKind::WouldBlock, "not counted yet"));
        }
        let mut batches = source.batches_with(self.next, until, self.control);
        let mut json = Vec::new();
        loop {
            let body = match batches.next(patience) {
                Ok(Some(body)) => body,
                Ok(None) => break,
                Err(crate::source::Error::WouldBlock) => return Err(Error::new(ErrorKind::WouldBlock, "not counted yet")),
                Err(_) => {
                    self.broken = true;
                    return Ok(());
                }
            };
            for record in body.records() {
                let Ok(record) = record else {
                    self.broken = true;
                    return Ok(());
                };
                if record.offset < self.next || record.offset >= until {
                    continue;
                }
                if self.marks.last().is_none_or(|(at, _)| self.bytes >= at + MARK_BYTES) {
                    self.marks.push((self.bytes, record.offset));
                }
                self.next = record.offset.next();
                self.bytes += match lines {
                    Lines::Values => record.value.as_ref().map_or(0, |r| u64::from(r.end - r.start)) + 1,
                    Lines::Json => {
                        json.clear();
                        render::json_line(&mut json, source.name(), &body.record(record));
                        json.len() as u64
                    }
                };
            }
        }
        self.next = self.next.max(until);
        Ok(())
    }
}

/// A count that readers and counters share.
type Shared = Arc<Mutex<Count>>;

/// The counts of a partition.
#[derive(Debug)]
pub(crate) struct Counts {
    kept: Mutex<LruCache<(Offset, Lines), Shared>>,
    control: Control,
}

impl Counts {
    /// Nothing is counted yet. `control` says whether envelopes of control records count.
    pub(crate) fn new(control: Control) -> Counts {
        Counts { kept: Mutex::new(LruCache::new(NonZeroUsize::new(COUNTS_MOST).unwrap_or(NonZeroUsize::MIN))), control }
    }

    /// Whether a form shows control records: they have no value that a line could show.
    pub(crate) fn control(&self, lines: Lines) -> Control {
        if lines == Lines::Json { self.control } else { Control::Hide }
    }

    /// What is known of a segment's output, to be filled in by counting.
    pub(crate) fn of(&self, base: Offset, lines: Lines) -> Shared {
        self.kept.lock().get_or_insert((base, lines), || Arc::new(Mutex::new(Count::new(base, self.control(lines))))).clone()
    }

    /// The size of a segment's output. The active one is counted; a sealed one has a size only where it was counted to its end before.
    pub(crate) fn size(&self, source: &Arc<dyn Source>, span: Span, active: bool, patience: Patience) -> Result<Option<u64>, Error> {
        let count = self.of(span.from, span.lines);
        let mut count = match patience {
            Patience::AtOnce => count.try_lock_arc().ok_or_else(|| Error::new(ErrorKind::WouldBlock, "being counted"))?,
            Patience::MayBlock => count.lock_arc(),
        };
        // One that was counted while it was active is counted to its end: a size that was told never shrinks.
        if active || count.next > span.from {
            count.count(source, span.until, span.lines, patience)?;
        }
        Ok((!count.broken && count.next >= span.until).then_some(count.bytes))
    }
}
