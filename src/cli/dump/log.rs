//! The batches and records of a `.log` or `.checkpoint`.

use super::Failure;
use super::file::{Kind, Source};
use super::lines::{Lines, RecordLine, Value};
use super::selection::{DECODED_MOST, Selection, Window};
use super::walk::{Item, Walk};
use crate::error::Fault;
use crate::log::batch::{BatchHeader, verify_crc};
use crate::log::compression::DecodeError;
use crate::log::decoders::Topic;
use crate::log::legacy;
use crate::log::record::{self, Records};
use crate::types::{Offset, Position};
use std::io;

/// So many gaps in the offsets are gathered before they are told.
const GAPS_MOST: usize = 65_536;

/// Shows a file of batches.
pub(super) fn dump(source: &Source, kind: Kind, topic: Option<Topic>, selection: &Selection, lines: &mut Lines<'_>) -> Result<(), Failure> {
    heading(source, kind, lines)?;
    let window = selection.window(Some(source));
    let mut dump = LogDump { source, topic, window, last: None, gaps: Vec::new(), lines };
    let mut walk = Walk::new(source);
    while let Some(item) = walk.next() {
        match item {
            Item::Batch(header, position) => dump.batch(&header, position)?,
            Item::Damage { from, bytes, fault, offsets } => {
                dump.last = None;
                dump.lines.damage(false, Some(bytes), &fault.at(Position::new(from)), offsets)?;
            }
            Item::Tail { from, bytes, fault } => {
                if let Some(fault) = fault {
                    dump.lines.damage(false, Some(bytes), &fault, None)?;
                } else if source.is_sealed() {
                    // Nothing is written to this segment any more, so nobody will complete the batch.
                    dump.lines.note_damage();
                }
                dump.lines.tail(source.name(), from, bytes)?;
            }
        }
        source.still_there()?;
    }
    dump.tell_gaps()?;
    Ok(())
}

fn heading(source: &Source, kind: Kind, lines: &mut Lines<'_>) -> io::Result<()> {
    let name = source.name();
    if kind == Kind::Log {
        return match source.base_offset() {
            Some(base) => lines.heading(&[b"Log starting offset: ", base.to_string().as_bytes()]),
            None => Ok(()),
        };
    }
    if name == "bootstrap.checkpoint" {
        return lines.heading(&[b"KRaft bootstrap snapshot"]);
    }
    // <end offset>-<epoch>.checkpoint
    let numbers = name.strip_suffix(".checkpoint").and_then(|stem| stem.split_once('-'));
    match numbers.and_then(|(offset, epoch)| Some((offset.parse::<i64>().ok()?, epoch.parse::<i32>().ok()?))) {
        Some((offset, epoch)) => {
            lines.heading(&[b"Snapshot end offset: ", offset.to_string().as_bytes(), b", epoch: ", epoch.to_string().as_bytes()])
        }
        None => Ok(()),
    }
}

struct LogDump<'a, 'w> {
    source: &'a Source,
    topic: Option<Topic>,
    window: Window,
    /// The offset of the record before, where no record between was passed over.
    last: Option<Offset>,
    gaps: Vec<(Offset, Offset)>,
    lines: &'a mut Lines<'w>,
}

impl LogDump<'_, '_> {
    fn batch(&mut self, header: &BatchHeader, position: u64) -> Result<(), Failure> {
        if !self.window.may_meet(header) {
            self.last = None;
            return Ok(());
        }
        let batch = self.source.bytes().get(position as usize..).and_then(|rest| rest.get(..header.size as usize)).unwrap_or_default();
        let is_valid = verify_crc(header, batch).is_ok();
        let mark = self.lines.mark();
        self.lines.batch(header, position, is_valid);
        let shown = if header.is_compressed() {
            match record::decode(header, batch, DECODED_MOST) {
                Ok(body) => {
                    let records = Records::in_decoded(header, &body);
                    // A place in what was decoded is no place in the file.
                    self.records(header, records, &body, |fault| fault.at(Position::new(position)))?
                }
                Err(error) => {
                    let fault = match error {
                        DecodeError::Damaged(fault) => fault.moved(position),
                        DecodeError::TooLarge { limit } => Fault::new(position, format!("at most {limit} bytes once decoded"), "more"),
                    };
                    self.damaged_records(header, &fault)?
                }
            }
        } else {
            let plain = (header.magic < 2).then_some((header.crc, is_valid));
            self.plain_records(header, batch, plain, position)?
        };
        // An emptied batch has no record that could be chosen.
        let is_empty = header.magic == 2 && header.records_count == 0 && self.window.has_time(header.max_timestamp);
        if !shown && !is_empty {
            self.lines.take_back(mark);
        }
        self.write()
    }

    /// The records of an uncompressed batch; whether a line was shown.
    #[inline]
    fn plain_records(&mut self, header: &BatchHeader, batch: &[u8], crc: Option<(u32, bool)>, position: u64) -> Result<bool, Failure> {
        let mut shown = false;
        for record in Records::in_batch(header, batch) {
            let record = match record {
                Ok(record) => record,
                Err(fault) => return self.damaged_records(header, &fault.moved(position)),
            };
            let line = RecordLine { header, record: &record, body: batch, crc, topic: self.topic };
            shown |= self.record(&line, |fault| fault.at(Position::new(position)))?;
        }
        Ok(shown)
    }

    /// The records of a decoded batch; whether a line was shown.
    fn records(
        &mut self,
        header: &BatchHeader,
        records: Records<'_>,
        body: &[u8],
        place: impl Fn(Fault) -> Fault + Copy,
    ) -> Result<bool, Failure> {
        let (mut shown, mut at) = (false, 0);
        for record in records {
            let record = match record {
                Ok(record) => record,
                Err(fault) => return self.damaged_records(header, &place(fault)),
            };
            // The inner entries of a wrapper lie one behind the other, each with its own checksum, which was right or it would be a fault.
            let end = record.headers.end as usize;
            let crc = header
                .is_wrapper()
                .then(|| (body.get(at..end).and_then(|entry| legacy::Entry::read(entry).ok()).map_or(0, |entry| entry.crc), true));
            at = end;
            let line = RecordLine { header, record: &record, body, crc, topic: self.topic };
            shown |= self.record(&line, place)?;
        }
        Ok(shown)
    }

    /// The records of a batch from here on cannot be read.
    #[cold]
    fn damaged_records(&mut self, header: &BatchHeader, fault: &Fault) -> Result<bool, Failure> {
        // The first offset of a wrapper is known only once it is decoded.
        let base = Some(header.base_offset).filter(|_| !header.is_wrapper());
        let read = self.last.filter(|last| base.is_some_and(|base| *last >= base) && *last < header.last_offset);
        let offsets = read.map(Offset::next).or(base).map(|first| (first, header.last_offset));
        self.last = None;
        self.lines.damage(true, None, fault, offsets)?;
        Ok(true)
    }

    #[inline]
    fn record(&mut self, line: &RecordLine<'_>, place: impl Fn(Fault) -> Fault) -> Result<bool, Failure> {
        let offset = line.record.offset;
        if self.last.is_some_and(|last| last.next() != offset) {
            self.gap(offset)?;
        }
        self.last = Some(offset);
        if !self.window.has(offset, line.record.timestamp) {
            return Ok(false);
        }
        if let Err(fault) = self.lines.record(line) {
            self.lines.damage(true, None, &place(fault), None)?;
        }
        self.write()?;
        Ok(true)
    }

    /// Writes what is there if it is enough, unless the file was cut meanwhile and zeros stand for what it held.
    #[inline]
    fn write(&mut self) -> Result<(), Failure> {
        if self.lines.is_full() {
            self.source.still_there()?;
            self.lines.line_done()?;
        }
        Ok(())
    }

    #[cold]
    fn gap(&mut self, next: Offset) -> io::Result<()> {
        if let Some(last) = self.last {
            if next <= last {
                self.lines.note_damage();
            }
            self.gaps.push((last, next));
        }
        if self.gaps.len() < GAPS_MOST { Ok(()) } else { self.tell_gaps() }
    }

    /// Tells the gaps, which a compacted log has by rights.
    fn tell_gaps(&mut self) -> io::Result<()> {
        let gaps = std::mem::take(&mut self.gaps);
        let pairs: Vec<_> =
            gaps.iter().map(|(last, next)| [("offset", Value::Number(last.get())), ("nextOffset", Value::Number(next.get()))]).collect();
        self.lines.complaints("gap", "Non-consecutive offsets in ", self.source.path(), &pairs, |[last, next]| {
            format!("  {} is followed by {}", last.1, next.1)
        })
    }
}
