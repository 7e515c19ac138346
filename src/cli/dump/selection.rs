//! Which records are shown: the ranges of offsets and times of the command line, and what they mean in one file.

use super::file::Source;
use super::walk::{Item, Walk};
use crate::log::batch::BatchHeader;
use crate::log::record::{self, Records};
use crate::types::{Offset, TimestampMs};
use crate::view::path::{Endpoint, OffsetRange};

/// A compressed batch that is larger than this once decoded is not shown, in bytes.
pub(super) const DECODED_MOST: u64 = 1 << 30;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    offsets: Option<OffsetRange>,
    times: Option<(Option<TimestampMs>, Option<TimestampMs>)>,
}

/// What that means in one file: the least and the greatest offset and time that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    first: i64,
    last: i64,
    earliest: i64,
    latest: i64,
}

const ALL: Window = Window { first: i64::MIN, last: i64::MAX, earliest: i64::MIN, latest: i64::MAX };

impl Selection {
    /// The offsets and the times, each `None` for all. A time range holds its first moment and not its last.
    pub(super) fn new(offsets: Option<OffsetRange>, times: Option<(Option<TimestampMs>, Option<TimestampMs>)>) -> Selection {
        Selection { offsets, times }
    }

    /// The window in a file; `log` has the records that `first`, `last` and `-k` count, and is asked for these only.
    pub(super) fn window(&self, log: Option<&Source>) -> Window {
        let mut window = ALL;
        if let Some((from, to)) = self.times {
            window.earliest = from.map_or(i64::MIN, TimestampMs::get);
            window.latest = to.map_or(i64::MAX, |to| to.get().saturating_sub(1));
        }
        if let Some(range) = &self.offsets {
            window.first = range.from.as_ref().map_or(i64::MIN, |end| offset_of(end, log));
            window.last = match &range.to {
                None | Some(Endpoint::Latest) => i64::MAX,
                Some(end) if range.inclusive => offset_of(end, log),
                Some(end) => offset_of(end, log).saturating_sub(1),
            };
        }
        window
    }
}

/// The offset that an end of a range names in a file.
fn offset_of(end: &Endpoint, log: Option<&Source>) -> i64 {
    let found = match end {
        Endpoint::Number(offset) => return offset.get(),
        Endpoint::Earliest => return i64::MIN,
        Endpoint::Latest => return i64::MAX,
        Endpoint::First => log.and_then(first_offset),
        Endpoint::Last => log.and_then(|log| from_end(log, 1)),
        Endpoint::FromEnd(k) => log.and_then(|log| from_end(log, *k)),
    };
    // A file without records has none to show, whatever the range.
    found.map_or(i64::MAX, Offset::get)
}

/// Calls `take` with each record of a batch that can be read, until it answers `false`.
fn each_record(header: &BatchHeader, batch: &[u8], mut take: impl FnMut(Offset) -> bool) {
    let decoded;
    let records = if header.is_compressed() {
        let Ok(body) = record::decode(header, batch, DECODED_MOST) else { return };
        decoded = body;
        Records::in_decoded(header, &decoded)
    } else {
        Records::in_batch(header, batch)
    };
    let _ = records.map_while(Result::ok).all(|record| take(record.offset));
}

fn batch_of<'a>(source: &'a Source, header: &BatchHeader, position: u64) -> &'a [u8] {
    source.bytes().get(position as usize..).and_then(|rest| rest.get(..header.size as usize)).unwrap_or_default()
}

fn first_offset(log: &Source) -> Option<Offset> {
    let (mut walk, mut first) = (Walk::new(log), None);
    while first.is_none()
        && let Some(item) = walk.next()
    {
        if let Item::Batch(header, position) = item {
            each_record(&header, batch_of(log, &header, position), |offset| {
                first = Some(offset);
                false
            });
        }
    }
    first
}

/// How many records a batch holds.
fn count(header: &BatchHeader, batch: &[u8]) -> u64 {
    if !header.is_wrapper() {
        return u64::try_from(header.records_count).unwrap_or(0);
    }
    let mut count = 0;
    each_record(header, batch, |_| {
        count += 1;
        true
    });
    count
}

/// The offset of the k-th last record, or of the first one where there are fewer. Two walks over the headers, and no memory.
fn from_end(log: &Source, k: u64) -> Option<Offset> {
    let mut total = 0;
    let mut walk = Walk::new(log);
    while let Some(item) = walk.next() {
        if let Item::Batch(header, position) = item {
            total += count(&header, batch_of(log, &header, position));
        }
    }
    let (mut skip, mut found) = (total.saturating_sub(k), None);
    let mut walk = Walk::new(log);
    while found.is_none()
        && let Some(item) = walk.next()
    {
        let Item::Batch(header, position) = item else { continue };
        let batch = batch_of(log, &header, position);
        let records = count(&header, batch);
        if skip >= records {
            skip -= records;
            continue;
        }
        each_record(&header, batch, |offset| {
            found = (skip == 0).then_some(offset);
            skip = skip.saturating_sub(1);
            found.is_none()
        });
    }
    found
}

impl Window {
    /// Whether a record is shown.
    pub(super) fn has(&self, offset: Offset, timestamp: TimestampMs) -> bool {
        self.has_offsets(offset.get(), offset.get()) && self.has_time(timestamp)
    }

    /// Whether some offset from `first` to `last` is shown.
    pub(super) fn has_offsets(&self, first: i64, last: i64) -> bool {
        first <= self.last && last >= self.first
    }

    /// Whether a time is shown.
    pub(super) fn has_time(&self, timestamp: TimestampMs) -> bool {
        (self.earliest..=self.latest).contains(&timestamp.get())
    }

    /// Whether a batch may hold records that are shown, as far as its header tells.
    pub(super) fn may_meet(&self, header: &BatchHeader) -> bool {
        // The first offset of a wrapper is known only once it is decoded.
        let first = if header.is_wrapper() { 0 } else { header.base_offset.get() };
        self.has_offsets(first, header.last_offset.get()) && header.max_timestamp.get() >= self.earliest
    }
}
