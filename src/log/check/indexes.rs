//! The two indexes of a segment against its batches: each walk goes along the log once and keeps one entry in hand.
//!
//! What makes an entry wrong is a wrong or missed answer of a look-up that believes it. Entries of older brokers and cleaners name the last
//! offset of several batches; they lead to right answers and are no finding.

use crate::log::batch::BatchHeader;
use crate::log::check::{Finding, Report, Severity};
use crate::log::index::{OFFSET_ENTRY_LEN, OffsetEntry, OffsetIndex, TIME_ENTRY_LEN, TimeEntry, TimeIndex};
use crate::types::{Offset, TimestampMs};

/// So many wrong entries of an index are told one by one.
const TOLD_MOST: u64 = 8;

const REBUILD: &str = "offsetfs recover makes the index anew";

/// How an index file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trim {
    /// With its last entry.
    Trimmed,
    /// With zeros behind its last entry, as it was made.
    Zeros,
    /// With something else: a part of an entry, or bytes behind zeros.
    Strange,
}

/// How an index file of these bytes ends, of which `used` are entries.
pub(super) fn trim_of(bytes: &[u8], used: usize, entry_len: usize) -> Trim {
    let rest = bytes.get(used..).unwrap_or_default();
    if rest.is_empty() {
        Trim::Trimmed
    } else if rest.len() >= entry_len && bytes.len().is_multiple_of(entry_len) && rest.iter().all(|b| *b == 0) {
        Trim::Zeros
    } else {
        Trim::Strange
    }
}

/// Tells how an index file ends. Returns whether it can stay so. `open_ended` says that it belongs to the last segment.
pub(super) fn look_at_trim(file: &str, bytes: &[u8], used: usize, trim: Trim, open_ended: bool, report: &mut Report) -> bool {
    let left = bytes.len() - used;
    match trim {
        Trim::Trimmed => return true,
        Trim::Zeros if open_ended => report.add(
            Finding::note(file, "an index that ends with its last entry", format!("{left} bytes of zeros behind it"))
                .at(used as u64)
                .means("the partition is open in a broker, or was not closed well"),
        ),
        Trim::Zeros => report.add(
            Finding::wrong(file, "an index that ends with its last entry", format!("{left} bytes of zeros behind it"))
                .at(used as u64)
                .means("a broker takes the zeros of a sealed segment for entries, and its look-ups go wrong")
                .advice(REBUILD),
        ),
        Trim::Strange => report.add(
            Finding::wrong(file, "whole entries, then nothing or zeros", format!("{left} other bytes"))
                .at(used as u64)
                .means("the file was cut or written over; look-ups stop before these bytes")
                .advice(REBUILD),
        ),
    }
    false
}

/// What both walks share: how many entries are wrong, and the first few of them in words.
#[derive(Debug)]
struct Wrong {
    file: String,
    count: u64,
    entry_len: usize,
}

impl Wrong {
    /// Tells of the entry at a place.
    fn tell(&mut self, at: usize, mut finding: Finding, report: &mut Report) {
        self.count += 1;
        if self.count <= TOLD_MOST {
            finding.file.clone_from(&self.file);
            report.add(finding.at((at * self.entry_len) as u64).advice(REBUILD));
        }
    }

    fn sum_up(&self, report: &mut Report) {
        if self.count > TOLD_MOST {
            let more = format!("{} more that are wrong", self.count - TOLD_MOST);
            report.add(Finding::wrong(self.file.clone(), "entries that tell the truth", more).means("as above").advice(REBUILD));
        }
    }
}

/// The walk along an offset index.
#[derive(Debug)]
pub(super) struct OffsetWalk<'a> {
    index: OffsetIndex<'a>,
    at: usize,
    /// The entry in hand, which rises over those before it.
    entry: Option<OffsetEntry>,
    before: Option<OffsetEntry>,
    wrong: Wrong,
}

impl<'a> OffsetWalk<'a> {
    /// The walk over the entries of a file of this name.
    pub(super) fn new(file: &str, entries: &'a [u8], base: Offset, report: &mut Report) -> OffsetWalk<'a> {
        let wrong = Wrong { file: file.to_owned(), count: 0, entry_len: OFFSET_ENTRY_LEN };
        let mut walk = OffsetWalk { index: OffsetIndex::new(entries, base), at: 0, entry: None, before: None, wrong };
        walk.take(report);
        walk
    }

    /// Takes the next entry that can be one into the hand.
    fn take(&mut self, report: &mut Report) {
        self.entry = None;
        while self.at < self.index.len() {
            let Some(entry) = self.index.entry(self.at) else {
                self.tell(
                    None,
                    "an offset and a position of 0 or more".to_owned(),
                    "a negative number".to_owned(),
                    "no look-up can use the entry",
                    report,
                );
                self.at += 1;
                continue;
            };
            let rises = self.before.is_none_or(|b| b.offset < entry.offset && b.position < entry.position);
            if rises {
                self.entry = Some(entry);
                return;
            }
            if let Some(before) = self.before {
                let expected = format!("more than offset {} and position {}", before.offset, before.position);
                let found = format!("offset {} at position {}", entry.offset, entry.position);
                self.tell(Some(entry.offset), expected, found, "a search over entries that do not rise goes wrong", report);
            }
            self.at += 1;
        }
    }

    fn tell(&mut self, offset: Option<Offset>, expected: String, found: String, means: &'static str, report: &mut Report) {
        let finding = Finding::wrong("", expected, found).of(offset.map(|o| (o, o))).means(means);
        self.wrong.tell(self.at, finding, report);
    }

    fn next(&mut self, report: &mut Report) {
        self.before = self.entry;
        self.at += 1;
        self.take(report);
    }

    /// Takes a good batch into account.
    pub(super) fn batch(&mut self, header: &BatchHeader, position: u64, report: &mut Report) {
        while let Some(entry) = self.entry.filter(|e| e.position.get() <= position) {
            if entry.position.get() < position {
                let found = format!("position {}, inside the one before {position}", entry.position);
                self.tell(
                    Some(entry.offset),
                    "the position of a batch".to_owned(),
                    found,
                    "a broker that believes the entry reads garbage",
                    report,
                );
            } else if !header.is_wrapper() && header.base_offset > entry.offset {
                let expected = format!("offset {}, the last one of the batch at position {position}", header.last_offset);
                let found = format!("offset {}", entry.offset);
                self.tell(Some(entry.offset), expected, found, "a look-up that believes the entry misses records", report);
            }
            self.next(report);
        }
    }

    /// Passes over entries that name bytes which are damaged: the log is wrong there.
    pub(super) fn skip_to(&mut self, position: u64, report: &mut Report) {
        while self.entry.is_some_and(|e| e.position.get() < position) {
            self.next(report);
        }
    }

    /// The end of the log. Returns whether the index can stay. With `unclean` an index may be ahead of its log.
    pub(super) fn finish(mut self, end: u64, unclean: bool, report: &mut Report) -> bool {
        let severity = if unclean { Severity::Note } else { Severity::Finding };
        while let Some(entry) = self.entry {
            let found = format!("position {}, and the log has {end} good bytes", entry.position);
            let means = if unclean {
                "the index was ahead of its log when the writer stopped"
            } else {
                "a broker that believes the entry reads beyond the log"
            };
            let finding = Finding::new(severity, "", "the position of a batch", found).of(Some((entry.offset, entry.offset))).means(means);
            self.wrong.tell(self.at, finding, report);
            self.next(report);
        }
        self.wrong.sum_up(report);
        self.wrong.count == 0
    }
}

/// The walk along a time index.
#[derive(Debug)]
pub(super) struct TimeWalk<'a> {
    index: TimeIndex<'a>,
    at: usize,
    entry: Option<TimeEntry>,
    before: Option<TimeEntry>,
    /// The largest time of the batches so far.
    largest: TimestampMs,
    wrong: Wrong,
}

impl<'a> TimeWalk<'a> {
    /// The walk over the entries of a file of this name.
    pub(super) fn new(file: &str, entries: &'a [u8], base: Offset, report: &mut Report) -> TimeWalk<'a> {
        let wrong = Wrong { file: file.to_owned(), count: 0, entry_len: TIME_ENTRY_LEN };
        let mut walk =
            TimeWalk { index: TimeIndex::new(entries, base), at: 0, entry: None, before: None, largest: TimestampMs::NONE, wrong };
        walk.take(report);
        walk
    }

    fn take(&mut self, report: &mut Report) {
        self.entry = None;
        while self.at < self.index.len() {
            let Some(entry) = self.index.entry(self.at) else {
                self.tell(
                    None,
                    "an offset of 0 or more".to_owned(),
                    "a negative number".to_owned(),
                    "no look-up can use the entry",
                    report,
                );
                self.at += 1;
                continue;
            };
            let rises = self.before.is_none_or(|b| b.timestamp < entry.timestamp && b.offset <= entry.offset);
            if rises {
                self.entry = Some(entry);
                return;
            }
            if let Some(before) = self.before {
                let expected = format!("more than time {} and no less than offset {}", before.timestamp, before.offset);
                let found = format!("time {} at offset {}", entry.timestamp, entry.offset);
                self.tell(Some(entry.offset), expected, found, "a search over entries that do not rise goes wrong", report);
            }
            self.at += 1;
        }
    }

    fn tell(&mut self, offset: Option<Offset>, expected: String, found: String, means: &'static str, report: &mut Report) {
        let finding = Finding::wrong("", expected, found).of(offset.map(|o| (o, o))).means(means);
        self.wrong.tell(self.at, finding, report);
    }

    fn next(&mut self, report: &mut Report) {
        self.before = self.entry;
        self.at += 1;
        self.take(report);
    }

    /// Takes a good batch into account.
    pub(super) fn batch(&mut self, header: &BatchHeader, report: &mut Report) {
        while let Some(entry) = self.entry.filter(|e| e.offset <= header.last_offset) {
            let offset = Some(entry.offset);
            if entry.offset < header.base_offset {
                let found = format!("offset {}", entry.offset);
                self.tell(
                    offset,
                    "the last offset of a batch".to_owned(),
                    found,
                    "a look-up by time begins at a place that the entry does not mean",
                    report,
                );
            } else if entry.timestamp != header.max_timestamp {
                let expected =
                    format!("time {}, the largest one of the batch that ends with offset {}", header.max_timestamp, header.last_offset);
                let found = format!("time {}", entry.timestamp);
                self.tell(offset, expected, found, "a look-up by time may miss records", report);
            } else if self.largest >= entry.timestamp {
                let expected = "the first batch that reaches a time".to_owned();
                let found = format!("time {}, and a batch before reached {}", entry.timestamp, self.largest);
                self.tell(offset, expected, found, "a look-up by time misses the batches before", report);
            }
            self.next(report);
        }
        self.largest = self.largest.max(header.max_timestamp);
    }

    /// Passes over entries that name offsets which are damaged.
    pub(super) fn skip_to(&mut self, next: Offset, report: &mut Report) {
        while self.entry.is_some_and(|e| e.offset < next) {
            self.next(report);
        }
    }

    /// The end of the log. Returns whether the index can stay.
    pub(super) fn finish(mut self, end: &TimeEnd, report: &mut Report) -> bool {
        let severity = if end.unclean { Severity::Note } else { Severity::Finding };
        while let Some(entry) = self.entry {
            let found = format!("offset {}, and the log ends at {}", entry.offset, end.next_offset);
            let finding = Finding::new(severity, "", "the offset of a batch", found)
                .of(Some((entry.offset, entry.offset)))
                .means("the index is ahead of its log");
            self.wrong.tell(self.at, finding, report);
            self.next(report);
        }
        self.wrong.sum_up(report);
        let mut sound = self.wrong.count == 0;
        let reached = self.before.map_or(TimestampMs::NONE, |e| e.timestamp);
        if self.largest.get() >= 0 && reached < self.largest && self.wrong.count == 0 && !end.unclean {
            let is_finding = !end.open_ended || (self.index.is_empty() && end.has_offset_entries);
            let severity = if is_finding { Severity::Finding } else { Severity::Note };
            let found = if self.index.is_empty() { "no entry".to_owned() } else { format!("time {reached}") };
            report.add(
                Finding::new(
                    severity,
                    self.wrong.file.clone(),
                    format!("a last entry with time {}, the largest of the segment", self.largest),
                    found,
                )
                .means("a broker's look-up by time passes over the records of this segment behind that time")
                .advice(REBUILD),
            );
            sound = false;
        }
        sound
    }
}

/// What a time index is judged by at its end.
#[derive(Debug)]
pub(super) struct TimeEnd {
    /// The offset behind the last good batch.
    pub(super) next_offset: Offset,
    /// Whether the segment is the last one.
    pub(super) open_ended: bool,
    /// Whether the offset index has entries.
    pub(super) has_offset_entries: bool,
    /// Whether the writer stopped without closing, so that the index may be ahead of the log or behind it.
    pub(super) unclean: bool,
}
