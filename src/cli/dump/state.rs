//! The entries of `.txnindex`, `.snapshot` and the checkpoint files.

use super::Failure;
use super::file::Source;
use super::lines::{Lines, Value};
use super::selection::Selection;
use crate::error::Fault;
use std::io;

// An aborted transaction:
//   version 2 | producer id 8 | first offset 8 | last offset 8 | last stable offset 8
const ABORTED_LEN: usize = 2 + 4 * 8;
// A snapshot's head, and one producer in it:
//   version 2 | CRC-32C of what follows 4 | count 4
//   producer id 8 | epoch 2 | last sequence 4 | last offset 8 | offset delta 4 | timestamp 8 | coordinator epoch 4 | first offset of the transaction 8
const HEAD_LEN: usize = 2 + 4 + 4;
const PRODUCER_LEN: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;
const _: () = assert!(ABORTED_LEN == 34 && HEAD_LEN == 10 && PRODUCER_LEN == 46);

/// No checkpoint file has a longer line, in bytes; the rest of one is not shown.
const LINE_MOST: usize = 4096;

fn number<const LEN: usize>(bytes: &[u8], at: usize, read: impl Fn([u8; LEN]) -> i64) -> i64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk().copied()).map_or(0, read)
}

fn i16_at(bytes: &[u8], at: usize) -> i64 {
    number(bytes, at, |found| i64::from(i16::from_be_bytes(found)))
}

fn i32_at(bytes: &[u8], at: usize) -> i64 {
    number(bytes, at, |found| i64::from(i32::from_be_bytes(found)))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    number(bytes, at, i64::from_be_bytes)
}

/// Shows an index of aborted transactions.
pub(super) fn dump_transactions(source: &Source, selection: &Selection, lines: &mut Lines<'_>) -> Result<(), Failure> {
    let window = selection.window(source.sibling(crate::log::names::LOG).as_ref());
    let (entries, rest) = source.bytes().as_chunks::<ABORTED_LEN>();
    for (index, entry) in entries.iter().enumerate() {
        let (version, first, last) = (i16_at(entry, 0), i64_at(entry, 10), i64_at(entry, 18));
        if window.has_offsets(first, last) {
            let pairs = [
                ("version", Value::Number(version)),
                ("producerId", Value::Number(i64_at(entry, 2))),
                ("firstOffset", Value::Number(first)),
                ("lastOffset", Value::Number(last)),
                ("lastStableOffset", Value::Number(i64_at(entry, 26))),
            ];
            lines.pairs("txnindex", &pairs)?;
        }
        if version != 0 {
            lines.damage(false, None, &Fault::new((index * ABORTED_LEN) as u64, "version 0", version.to_string()), None)?;
        }
    }
    if !rest.is_empty() {
        lines.tail(source.name(), (entries.len() * ABORTED_LEN) as u64, rest.len() as u64)?;
    }
    Ok(source.still_there()?)
}

/// Shows a snapshot of the state of producers.
pub(super) fn dump_producers(source: &Source, lines: &mut Lines<'_>) -> Result<(), Failure> {
    let bytes = source.bytes();
    if bytes.len() < HEAD_LEN {
        let fault = Fault::new(0, format!("a snapshot of at least {HEAD_LEN} bytes"), format!("{} bytes", bytes.len()));
        return Ok(lines.damage(false, None, &fault, None)?);
    }
    let (entries, rest) = bytes.get(HEAD_LEN..).unwrap_or_default().as_chunks::<PRODUCER_LEN>();
    for fault in faults_of_snapshot(bytes, entries.len(), rest.len()) {
        lines.damage(false, None, &fault, None)?;
    }
    for entry in entries {
        let (last_sequence, last_offset, offset_delta, timestamp) =
            (i32_at(entry, 10), i64_at(entry, 14), i32_at(entry, 22), i64_at(entry, 26));
        let first_of_transaction = Some(i64_at(entry, 38)).filter(|offset| *offset >= 0);
        let pairs = [
            ("producerId", Value::Number(i64_at(entry, 0))),
            ("producerEpoch", Value::Number(i16_at(entry, 8))),
            ("coordinatorEpoch", Value::Number(i32_at(entry, 34))),
            ("currentTxnFirstOffset", Value::Optional(first_of_transaction)),
            ("lastTimestamp", Value::Number(timestamp)),
            ("firstSequence", Value::Number(first_sequence(last_sequence, offset_delta))),
            ("lastSequence", Value::Number(last_sequence)),
            ("lastOffset", Value::Number(last_offset)),
            ("offsetDelta", Value::Number(offset_delta)),
            ("timestamp", Value::Number(timestamp)),
        ];
        // Without a last batch nothing is known of one.
        let known = if last_offset < 0 { 5 } else { pairs.len() };
        lines.pairs("producer", pairs.get(..known).unwrap_or_default())?;
    }
    Ok(source.still_there()?)
}

/// What is wrong with a snapshot as a whole.
fn faults_of_snapshot(bytes: &[u8], entries: usize, rest: usize) -> Vec<Fault> {
    let mut faults = Vec::new();
    let version = i16_at(bytes, 0);
    if version != 1 {
        faults.push(Fault::new(0, "version 1", version.to_string()));
    }
    let stored = number(bytes, 2, |found| i64::from(u32::from_be_bytes(found)));
    let computed = crc32c::crc32c(bytes.get(6..).unwrap_or_default());
    if stored != i64::from(computed) {
        faults.push(Fault::new(2, format!("CRC-32C {computed:#010x}"), format!("{stored:#010x}")));
    }
    let count = i32_at(bytes, 6);
    if usize::try_from(count).ok() != Some(entries) || rest > 0 {
        faults.push(Fault::new(6, format!("a count for {} bytes of entries", entries * PRODUCER_LEN + rest), count.to_string()));
    }
    faults
}

/// The sequence number of the first record of a batch; before 0 comes the greatest number.
fn first_sequence(last: i64, delta: i64) -> i64 {
    if last >= delta { last - delta } else { i64::from(i32::MAX) - (delta - last) + 1 }
}

/// Shows a checkpoint file: a version, a count, and as many lines of the fields `names`, of which the first may be a topic.
pub(super) fn dump_entries(source: &Source, names: &[&str], lines: &mut Lines<'_>) -> Result<(), Failure> {
    let kind = if names.len() == 2 { "leaderEpoch" } else { "checkpoint" };
    let bytes = source.bytes();
    let (mut at, mut count, mut entries) = (0_u64, None, 0);
    for (index, raw) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let (line, position) = (trimmed(raw), at);
        at += raw.len() as u64;
        match index {
            0 if line == b"0" => {}
            0 => wrong(lines, position, "version 0", line)?,
            1 => {
                count = std::str::from_utf8(line).ok().and_then(|text| text.parse::<u64>().ok());
                if count.is_none() {
                    wrong(lines, position, "the number of entries", line)?;
                }
            }
            _ => {
                entries += 1;
                if !entry(lines, kind, names, line)? {
                    wrong(lines, position, "an entry", line)?;
                }
            }
        }
    }
    if let Some(count) = count.filter(|count| *count != entries) {
        let fault = Fault::new(0, format!("{count} entries"), entries.to_string());
        lines.damage(false, None, &fault, None)?;
    }
    Ok(source.still_there()?)
}

/// A line without its end.
fn trimmed(raw: &[u8]) -> &[u8] {
    let line = raw.strip_suffix(b"\n").unwrap_or(raw);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn wrong(lines: &mut Lines<'_>, position: u64, expected: &'static str, line: &[u8]) -> io::Result<()> {
    let shown = line.get(..line.len().min(LINE_MOST)).unwrap_or_default();
    let found = format!("`{}`", String::from_utf8_lossy(shown).escape_debug());
    lines.damage(false, None, &Fault::new(position, expected, found), None)
}

/// Shows one entry; `false` where the line is none.
fn entry(lines: &mut Lines<'_>, kind: &str, names: &[&str], line: &[u8]) -> io::Result<bool> {
    let Ok(text) = std::str::from_utf8(line) else { return Ok(false) };
    let mut pairs = [("", Value::Number(0)); 3];
    let mut fields = text.split_ascii_whitespace();
    if text.starts_with(|first: char| first.is_ascii_whitespace()) {
        return Ok(false);
    }
    for (pair, name) in pairs.iter_mut().zip(names) {
        let Some(field) = fields.next() else { return Ok(false) };
        let value = if *name == "topic" { Some(Value::Word(field)) } else { field.parse().ok().map(Value::Number) };
        let Some(value) = value else { return Ok(false) };
        *pair = (name, value);
    }
    if fields.next().is_some() {
        return Ok(false);
    }
    lines.pairs(kind, pairs.get(..names.len()).unwrap_or_default())?;
    Ok(true)
}
