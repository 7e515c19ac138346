//! The entries of `.index` and `.timeindex`, compared with the `.log` beside them as Kafka's tool compares them.

use super::Failure;
use super::file::Source;
use super::lines::{Lines, Pair, Value};
use super::selection::{DECODED_MOST, Selection};
use crate::error::Fault;
use crate::log::batch::{BatchHeader, Step};
use crate::log::index::{OFFSET_ENTRY_LEN, OffsetIndex, TIME_ENTRY_LEN, used_offset_bytes};
use crate::log::names;
use crate::log::record::{self, Records};
use crate::types::Offset;
use std::io;

/// The numbers of an entry as they stand in the file; a part of an entry is none.
fn entries<const LEN: usize>(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8; LEN])> {
    bytes.as_chunks::<LEN>().0.iter().enumerate()
}

fn i32_at(entry: &[u8], at: usize) -> i32 {
    entry.get(at..).and_then(|rest| rest.first_chunk().copied()).map_or(0, i32::from_be_bytes)
}

fn i64_at(entry: &[u8], at: usize) -> i64 {
    entry.get(at..).and_then(|rest| rest.first_chunk().copied()).map_or(0, i64::from_be_bytes)
}

/// Whether an entry is the first zero of a preallocated file: no entry at all, though Kafka's tool shows it as one and finds it wrong.
fn is_preallocated(at: usize, entry: &[u8], bytes: &[u8]) -> bool {
    let next = bytes.get(entry.len()..).and_then(|rest| rest.get(..entry.len()));
    at == 0 && entry.iter().all(|byte| *byte == 0) && next.is_some_and(|next| next.iter().all(|byte| *byte == 0))
}

/// The log beside an index, if it is to be had; says so if not.
fn log_of(source: &Source, lines: &mut Lines<'_>) -> io::Result<Option<Source>> {
    let log = source.sibling(names::LOG);
    if log.is_none() {
        lines.complain(&[format!("{}: there is no .log beside it, so its entries are not compared with one", source.path().display())])?;
    }
    Ok(log)
}

/// The base offset that relative offsets count from; says so where the name has none.
fn base_of(source: &Source, lines: &mut Lines<'_>) -> io::Result<i64> {
    let base = source.base_offset();
    if base.is_none() {
        lines.complain(&[format!("{}: the name begins with no base offset, so offsets count from 0", source.path().display())])?;
    }
    Ok(base.map_or(0, Offset::get))
}

/// Shows an offset index.
pub(super) fn dump_offsets(source: &Source, selection: &Selection, lines: &mut Lines<'_>) -> Result<(), Failure> {
    let bytes = source.bytes();
    if bytes.is_empty() {
        return Ok(lines.heading(&[source.path().as_os_str().as_encoded_bytes(), b" is empty."])?);
    }
    let base = base_of(source, lines)?;
    let log = log_of(source, lines)?;
    let window = selection.window(log.as_ref());
    let mut mismatches = Vec::new();
    for (at, entry) in entries::<OFFSET_ENTRY_LEN>(bytes) {
        let (relative, position) = (i32_at(entry, 0), i32_at(entry, 4));
        if at > 0 && relative == 0 {
            break;
        }
        let offset = base.wrapping_add(i64::from(relative));
        if !window.has_offsets(offset, offset) {
            continue;
        }
        lines.pairs("index", &[("offset", Value::Number(offset)), ("position", Value::Number(i64::from(position)))])?;
        let Some(log) = log.as_ref().filter(|_| !is_preallocated(at, entry, bytes)) else { continue };
        let step = usize::try_from(position).ok().map(|position| BatchHeader::read(log.bytes(), position));
        match step {
            Some(Ok(Step::Batch(header))) if header.last_offset.get() == offset => {}
            Some(Ok(Step::Batch(header))) => mismatches.push((offset, header.last_offset.get())),
            _ => {
                let found = format!("no whole batch at position {position} of {}", log.name());
                let fault = Fault::new((at * OFFSET_ENTRY_LEN) as u64, "the position of a batch", found);
                lines.damage(false, None, &fault, None)?;
            }
        }
    }
    source.still_there()?;
    // Newest first, and an offset once.
    mismatches.sort_by_key(|(offset, _)| std::cmp::Reverse(*offset));
    mismatches.dedup_by_key(|(offset, _)| *offset);
    let pairs = told(lines, &mismatches, "indexOffset", "logOffset");
    Ok(lines.complaints("mismatch", "Mismatches in :", source.path(), &pairs, |[index, log]| {
        format!("  Index offset: {}, log offset: {}", index.1, log.1)
    })?)
}

/// What was found wrong as pairs of these names.
fn told<'a>(lines: &mut Lines<'_>, found: &[(i64, i64)], first: &'a str, second: &'a str) -> Vec<[Pair<'a>; 2]> {
    if !found.is_empty() {
        lines.note_damage();
    }
    found.iter().map(|(a, b)| [(first, Value::Number(*a)), (second, Value::Number(*b))]).collect()
}

/// Shows a time index.
pub(super) fn dump_times(source: &Source, selection: &Selection, lines: &mut Lines<'_>) -> Result<(), Failure> {
    let bytes = source.bytes();
    if bytes.is_empty() {
        return Ok(());
    }
    let base = base_of(source, lines)?;
    let log = log_of(source, lines)?;
    let index = source.sibling(names::INDEX);
    let window = selection.window(log.as_ref());
    let mut finder = log.as_ref().map(|log| Finder::new(log, index.as_ref(), base));
    let (mut wrong_times, mut out_of_order, mut not_found) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = -1;
    for (at, entry) in entries::<TIME_ENTRY_LEN>(bytes) {
        let (timestamp, relative) = (i64_at(entry, 0), i32_at(entry, 8));
        if at > 0 && relative == 0 {
            break;
        }
        let offset = base.wrapping_add(i64::from(relative));
        if window.has_offsets(offset, offset) && window.has_time(crate::types::TimestampMs::new(timestamp)) {
            if let Some(finder) = finder.as_mut().filter(|_| !is_preallocated(at, entry, bytes)) {
                match finder.batch_up_to(offset) {
                    Some((header, position)) if header.last_offset.get() == offset => {
                        let found = finder.largest_time(&header, position);
                        if found != timestamp {
                            wrong_times.push((timestamp, found));
                        }
                        if before >= timestamp {
                            out_of_order.push((timestamp, before));
                        }
                    }
                    Some((header, _)) => not_found.push((offset, header.last_offset.get())),
                    None => not_found.push((offset, -1)),
                }
            }
            lines.pairs("timeindex", &[("timestamp", Value::Number(timestamp)), ("offset", Value::Number(offset))])?;
        }
        before = timestamp;
    }
    source.still_there()?;
    let path = source.path();
    let pairs = told(lines, &wrong_times, "indexTimestamp", "logTimestamp");
    lines.complaints("mismatch", "Found timestamp mismatch in :", path, &pairs, |[index, log]| {
        format!("  Index timestamp: {}, log timestamp: {}", index.1, log.1)
    })?;
    let pairs = told(lines, &out_of_order, "indexTimestamp", "previousTimestamp");
    lines.complaints("disorder", "Found out of order timestamp in :", path, &pairs, |[index, previous]| {
        format!("  Index timestamp: {}, Previously indexed timestamp: {}", index.1, previous.1)
    })?;
    let pairs = told(lines, &not_found, "indexOffset", "logOffset");
    Ok(lines.complaints("mismatch", "The following indexed offsets are not found in :", path, &pairs, |[index, log]| {
        format!("Indexed offset: {}, found log offset: {}", index.1, log.1)
    })?)
}

/// Finds batches by their last offsets. Time entries rise, so it goes through the log once, and the offset index lets it jump.
struct Finder<'a> {
    log: &'a Source,
    index: OffsetIndex<'a>,
    at: u64,
}

impl<'a> Finder<'a> {
    fn new(log: &'a Source, index: Option<&'a Source>, base: i64) -> Finder<'a> {
        let bytes = index.map_or(&[][..], Source::bytes);
        let used = bytes.get(..used_offset_bytes(bytes)).unwrap_or_default();
        Finder { log, index: OffsetIndex::new(used, Offset::new(base).unwrap_or(Offset::ZERO)), at: 0 }
    }

    fn header(&self, position: u64) -> Option<BatchHeader> {
        match BatchHeader::read(self.log.bytes(), usize::try_from(position).ok()?) {
            Ok(Step::Batch(header)) => Some(header),
            _ => None,
        }
    }

    /// The first batch whose last offset is at or behind this one, and its position.
    fn batch_up_to(&mut self, offset: i64) -> Option<(BatchHeader, u64)> {
        let wanted = Offset::new(offset)?;
        let entry = self.index.floor(wanted).and_then(|at| self.index.entry(at));
        // An entry is followed only to a batch that it names rightly.
        if let Some(entry) = entry
            && entry.position.get() > self.at
            && self.header(entry.position.get()).is_some_and(|header| header.last_offset == entry.offset)
        {
            self.at = entry.position.get();
        }
        while let Some(header) = self.header(self.at) {
            if header.last_offset >= wanted {
                return Some((header, self.at));
            }
            self.at += u64::from(header.size);
        }
        None
    }

    /// The greatest time of a batch's records; -1 where they cannot be read.
    fn largest_time(&self, header: &BatchHeader, position: u64) -> i64 {
        let batch = self.log.bytes().get(position as usize..).and_then(|rest| rest.get(..header.size as usize)).unwrap_or_default();
        let decoded;
        let records = if header.is_compressed() {
            let Ok(body) = record::decode(header, batch, DECODED_MOST) else { return -1 };
            decoded = body;
            Records::in_decoded(header, &decoded)
        } else {
            Records::in_batch(header, batch)
        };
        records.map_while(Result::ok).map(|record| record.timestamp.get()).fold(-1, i64::max)
    }
}
