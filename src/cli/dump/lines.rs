//! The lines of a dump, in text or in JSON, and what is said beside them.
//!
//! Most lines are a list of names and values, which both forms are made from; records have a form of their own in each.

use super::output::Output;
use super::{json, text};
use crate::error::Fault;
use crate::log::batch::BatchHeader;
use crate::log::decoders::Topic;
use crate::log::record::RecordRef;
use crate::types::{Offset, TopicPartition};
use std::io::{self, Write};
use std::path::Path;

/// A value of a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// A number.
    Number(i64),
    /// A truth value.
    Truth(bool),
    /// A number that may be missing. Kafka's text for it is that of Java's class.
    Optional(Option<i64>),
    /// A word.
    Word(&'a str),
}

impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Truth(truth) => truth.fmt(f),
            Value::Optional(None) => f.write_str("OptionalLong.empty"),
            Value::Optional(Some(number)) => write!(f, "OptionalLong[{number}]"),
            Value::Word(word) => f.write_str(word),
        }
    }
}

/// A name and its value.
pub(super) type Pair<'a> = (&'a str, Value<'a>);

/// A record and all that its line tells.
#[derive(Clone, Copy)]
pub(super) struct RecordLine<'a> {
    /// Its batch.
    pub(super) header: &'a BatchHeader,
    /// The record.
    pub(super) record: &'a RecordRef,
    /// The bytes that its places count in.
    pub(super) body: &'a [u8],
    /// Of a record of magic 0 or 1, its own checksum and whether that is right.
    pub(super) crc: Option<(u32, bool)>,
    /// As what its key and value are shown; `None` as they are.
    pub(super) topic: Option<Topic>,
}

impl<'a> RecordLine<'a> {
    /// The key.
    pub(super) fn key(&self) -> Option<&'a [u8]> {
        self.part(self.record.key.as_ref())
    }

    /// The value.
    pub(super) fn value(&self) -> Option<&'a [u8]> {
        self.part(self.record.value.as_ref())
    }

    fn part(&self, range: Option<&std::ops::Range<u32>>) -> Option<&'a [u8]> {
        range.map(|range| self.body.get(range.start as usize..range.end as usize).unwrap_or_default())
    }
}

/// Where the lines go.
pub(super) struct Lines<'w> {
    out: Output<'w>,
    err: &'w mut dyn Write,
    json: bool,
    damaged: bool,
    partition: TopicPartition,
}

impl<'w> Lines<'w> {
    /// Lines to `out`, complaints to `err`.
    pub(super) fn new(out: Output<'w>, err: &'w mut dyn Write, json: bool) -> Lines<'w> {
        Lines { out, err, json, damaged: false, partition: TopicPartition { topic: String::new(), partition: 0 } }
    }

    /// Whether anything damaged was shown so far.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Remembers that something is damaged, where the line itself says so.
    pub(super) fn note_damage(&mut self) {
        self.damaged = true;
    }

    /// The line before all others of a file.
    pub(super) fn begin_file(&mut self, path: &Path) -> io::Result<()> {
        self.partition = super::file::partition_of(path);
        let name = path.as_os_str().as_encoded_bytes();
        if self.json {
            json::file(self.out.buffer(), &String::from_utf8_lossy(name));
        } else {
            text::words(self.out.buffer(), &[b"Dumping ", name, b"\n"]);
        }
        self.line_done()
    }

    /// A line of text that JSON does without.
    pub(super) fn heading(&mut self, line: &[&[u8]]) -> io::Result<()> {
        if !self.json {
            text::words(self.out.buffer(), line);
            self.out.buffer().push(b'\n');
        }
        self.line_done()
    }

    /// A line of names and values; `kind` names it in JSON.
    pub(super) fn pairs(&mut self, kind: &str, pairs: &[Pair<'_>]) -> io::Result<()> {
        if self.json {
            json::pairs(self.out.buffer(), kind, pairs);
        } else {
            text::pairs(self.out.buffer(), pairs);
        }
        self.line_done()
    }

    /// A batch that begins at a position.
    pub(super) fn batch(&mut self, header: &BatchHeader, position: u64, is_valid: bool) {
        self.damaged |= !is_valid;
        if self.json {
            json::batch(self.out.buffer(), header, position, is_valid);
        } else {
            text::batch(self.out.buffer(), header, position, is_valid);
        }
    }

    /// A record.
    ///
    /// # Errors
    /// A control record that does not say what it is; its line then tells no more than its place.
    pub(super) fn record(&mut self, line: &RecordLine<'_>) -> Result<(), Fault> {
        if self.json { json::record(self.out.buffer(), line, &self.partition) } else { text::record(self.out.buffer(), line) }
    }

    /// How much is put together and not written; for [`Lines::take_back`].
    pub(super) fn mark(&mut self) -> usize {
        self.out.buffer().len()
    }

    /// Takes all back that was put behind a mark. Nothing may have been written since.
    pub(super) fn take_back(&mut self, mark: usize) {
        self.out.buffer().truncate(mark);
    }

    /// Bytes that are not what they should be. Inside a batch the line stands among those of the records.
    pub(super) fn damage(&mut self, inside: bool, bytes: Option<u64>, fault: &Fault, offsets: Option<(Offset, Offset)>) -> io::Result<()> {
        self.damaged = true;
        if self.json {
            json::damage(self.out.buffer(), bytes, fault, offsets);
        } else {
            text::damage(self.out.buffer(), inside, bytes, fault, offsets);
        }
        self.line_done()
    }

    /// Bytes at the end of a file of which nothing can be made.
    pub(super) fn tail(&mut self, name: &str, position: u64, bytes: u64) -> io::Result<()> {
        if self.json {
            self.pairs("tail", &[("position", Value::Number(position as i64)), ("bytes", Value::Number(bytes as i64))])
        } else {
            let count = bytes.to_string();
            self.heading(&[b"Found ", count.as_bytes(), b" invalid bytes at the end of ", name.as_bytes()])
        }
    }

    /// What is found wrong by comparing: in text a title and lines of their own on the error output, in JSON a line of `pairs` each.
    pub(super) fn complaints<const N: usize>(
        &mut self,
        kind: &str,
        title: &str,
        path: &Path,
        found: &[[Pair<'_>; N]],
        say: impl Fn(&[Pair<'_>; N]) -> String,
    ) -> io::Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        if self.json {
            return found.iter().try_for_each(|pairs| self.pairs(kind, pairs));
        }
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut said = vec![format!("{title}{}", path.display())];
        said.extend(found.iter().map(say));
        self.complain(&said)
    }

    /// A file of a kind that no dump shows.
    pub(super) fn ignore(&mut self, path: &Path) -> io::Result<()> {
        self.complain(&[format!("Ignoring unknown file {}", path.display())])
    }

    /// Lines on the error output, behind all that was shown before.
    pub(super) fn complain(&mut self, said: &[String]) -> io::Result<()> {
        self.out.write_all()?;
        for line in said {
            // Where even this cannot be said, the exit code is left.
            let _ = writeln!(self.err, "{line}");
        }
        Ok(())
    }

    /// Whether it is time to write.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.out.is_full()
    }

    /// Writes what is there, in whole pages, if it is enough.
    pub(super) fn line_done(&mut self) -> io::Result<()> {
        if self.out.is_full() { self.out.write_pages() } else { Ok(()) }
    }

    /// Writes the rest.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.out.write_all()
    }
}

/// The pairs of a batch, in Kafka's order and under its names; magic 0 and 1 have fewer. `time` names the greatest time.
pub(super) fn batch_pairs<'a>(header: &BatchHeader, position: u64, is_valid: bool, time: &'a str, with: impl FnOnce(&[Pair<'a>])) {
    use Value::{Number, Optional, Truth, Word};
    let codec = header.attributes.codec().map_or("unknown", crate::log::compression::Codec::name);
    let behind = [
        ("position", Number(position as i64)),
        (time, Number(header.max_timestamp.get())),
        ("size", Number(i64::from(header.size))),
        ("magic", Number(i64::from(header.magic))),
        ("compresscodec", Word(codec)),
        ("crc", Number(i64::from(header.crc))),
        ("isvalid", Truth(is_valid)),
    ];
    if header.magic < 2 {
        let mut pairs = [("offset", Number(header.last_offset.get())); 8];
        pairs[1..].copy_from_slice(&behind);
        return with(&pairs);
    }
    let before = [
        ("baseOffset", Number(header.base_offset.get())),
        ("lastOffset", Number(header.last_offset.get())),
        ("count", Number(i64::from(header.records_count))),
        ("baseSequence", Number(i64::from(header.base_sequence))),
        ("lastSequence", Number(i64::from(last_sequence(header)))),
        ("producerId", Number(header.producer_id)),
        ("producerEpoch", Number(i64::from(header.producer_epoch))),
        ("partitionLeaderEpoch", Number(i64::from(header.partition_leader_epoch))),
        ("isTransactional", Truth(header.attributes.is_transactional())),
        ("isControl", Truth(header.attributes.is_control())),
        ("deleteHorizonMs", Optional(header.delete_horizon().map(|time| time.get()))),
    ];
    let mut pairs = [before[0]; 18];
    pairs[..11].copy_from_slice(&before);
    pairs[11..].copy_from_slice(&behind);
    with(&pairs);
}

/// The sequence number of the last record; behind the greatest number comes 0. -1 stays -1.
fn last_sequence(header: &BatchHeader) -> i32 {
    if header.base_sequence == -1 {
        return -1;
    }
    // The delta of a header that was read is 0 or more.
    let delta = header.last_offset.delta_from(header.base_offset) as i32;
    if header.base_sequence < 0 { header.base_sequence.wrapping_add(delta) } else { header.base_sequence.wrapping_add(delta) & i32::MAX }
}

/// What `record` tells of a control record: its number and, where it ends a transaction, the epoch of the coordinator.
pub(super) struct Control {
    /// The number of its type.
    pub(super) number: i16,
    /// Of a marker, the epoch of the coordinator.
    pub(super) coordinator_epoch: Option<i32>,
}

impl Control {
    /// Reads the key and the value of a control record.
    ///
    /// # Errors
    /// A key that is none, or the value of a marker that is too short.
    pub(super) fn read(line: &RecordLine<'_>) -> Result<Control, Fault> {
        use crate::log::record::{ControlType, control_type};
        let number = match control_type(line.key().unwrap_or_default())? {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::Other(number) => return Ok(Control { number, coordinator_epoch: None }),
        };
        let value = line.value().unwrap_or_default();
        let epoch = value.get(2..).and_then(|rest| rest.first_chunk().copied()).map(i32::from_be_bytes);
        let Some(epoch) = epoch else {
            return Err(Fault::new(0, "a marker's value of at least 6 bytes", format!("{} bytes", value.len())));
        };
        Ok(Control { number, coordinator_epoch: Some(epoch) })
    }
}
