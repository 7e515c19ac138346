//! Offsets that have no record: compaction leaves them, and so does a batch that it emptied.

use crate::log::check::{Finding, Report};
use crate::types::Offset;

/// So many gaps of a segment are told one by one.
const TOLD_MOST: usize = 8;

/// The gaps of one segment.
#[derive(Debug)]
pub(super) struct Gaps {
    /// The offset that the next record has where nothing is missing.
    expected: Offset,
    told: Vec<(Offset, Offset, bool)>,
    count: u64,
    offsets: u64,
    last: Offset,
}

impl Gaps {
    /// None so far; the first record should have this offset.
    pub(super) fn new(base: Offset) -> Gaps {
        Gaps { expected: base, told: Vec::new(), count: 0, offsets: 0, last: base }
    }

    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// Takes a record into account.
    pub(super) fn record(&mut self, offset: Offset) {
        if offset > self.expected {
            self.missing(self.expected, offset.previous(), false);
        }
        self.expected = self.expected.max(offset.next());
    }

    /// Takes the end of a batch into account, and whether it had no record at all.
    pub(super) fn end_of_batch(&mut self, last: Offset, emptied: bool) {
        if last >= self.expected {
            self.missing(self.expected, last, emptied);
        }
        self.expected = self.expected.max(last.next());
    }

    /// Goes on behind offsets that are told elsewhere.
    pub(super) fn skip_to(&mut self, next: Offset) {
        self.expected = self.expected.max(next);
    }

    fn missing(&mut self, first: Offset, last: Offset, emptied: bool) {
        self.offsets += last.delta_from(first).unsigned_abs() + 1;
        let goes_on = self.count > 0 && self.last.next() == first;
        self.last = last;
        match self.told.last_mut() {
            Some(before) if goes_on && before.1.next() == first => {
                before.1 = last;
                before.2 |= emptied;
            }
            _ if goes_on => {}
            _ => {
                self.count += 1;
                if self.told.len() < TOLD_MOST {
                    self.told.push((first, last, emptied));
                }
            }
        }
    }

    /// One note for all of them.
    pub(super) fn tell(&self, file: &str, report: &mut Report) {
        let Some((first, ..)) = self.told.first() else { return };
        let mut ranges: Vec<String> = Vec::new();
        for (first, last, emptied) in &self.told {
            let why = if *emptied { " (empty batch)" } else { "" };
            ranges.push(if first == last { format!("{first}{why}") } else { format!("{first} to {last}{why}") });
        }
        if self.count > self.told.len() as u64 {
            ranges.push(format!("{} more gaps", self.count - self.told.len() as u64));
        }
        let offsets = if self.offsets == 1 { "offset" } else { "offsets" };
        report.add(
            Finding::note(file, "a record at each offset", format!("{} {offsets} without one: {}", self.offsets, ranges.join(", ")))
                .of(Some((*first, self.last)))
                .means("compaction leaves such gaps; readers pass over them"),
        );
    }
}
