//! What written bytes become: the state machine behind `append`, `append.jsonl` and `append.bin`.
//!
//! A [`Feed`] belongs to one look-up of such a file. Each write request is offered to it; it answers with the complete records of what is left
//! from before (the tail) and the request, or refuses the request whole. The caller stores the records and then says how that went:
//!
//! ```text
//! offer(data) --> Offered --stored--> accept()         the tail is what stands behind the last newline
//!        |              \--refused--> reject(Refused)  the tail is dropped, the rest of the refused line will be skipped
//!        |               \--failed--> reject(Failed)   the tail is what it was before the request, for a retry
//!        \--> Refused                                  as after reject(Refused)
//! ```
//!
//! [`Feed::offer_tail`] does the same with the tail, for fsync and the last close. Nothing here writes to a log or knows an errno; which handles
//! share a look-up, and when the last one is closed, is found out elsewhere.

use super::envelope::{ParsedRecord, parse_line};
use std::fmt;
use std::io::BufRead;

/// How many times as long as the longest record a line of `append.jsonl` may be: an envelope can spell a byte in six.
const JSON_LINE_FACTOR: u64 = 8;

/// The tail's buffer is given back at an accept or reject when it is larger than this, in bytes.
const KEPT_CAPACITY: usize = 64 * 1024;

/// How bytes are divided into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// `append`: each line is a value, without its newline.
    Lines,
    /// `append.jsonl`: each line is an envelope; blank lines are none.
    Json,
    /// `append.bin`: all bytes up to an fsync or the last close are one value.
    Binary,
}

/// Bounds of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest value that can still become a record, in bytes. A tail beyond it is refused at once; with [`Framing::Json`] lines and tail may
    /// be 8 times as long. That a complete line of [`Framing::Lines`] makes a record of allowed size is checked by the log.
    pub max_record_bytes: u64,
}

/// Why a request was refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedKind {
    /// A record is larger than a setting allows.
    TooLarge,
    /// A line is no envelope.
    BadLine,
}

/// A refused request: nothing of it, and nothing of the tail, becomes a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which errno the writer gets in the end.
    pub kind: RefusedKind,
    /// What is wrong, for the operator; for an envelope with line and column.
    pub reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refused {}

/// Why the caller could not store what was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// The records can never be stored: the tail is dropped, and what is left of a line that did not end will be skipped.
    Refused(RefusedKind),
    /// They could not be stored now (a full disk, an I/O error): everything is as before the request.
    Failed,
}

/// What a request completes, not yet taken into the feed: [`Feed::accept`] or [`Feed::reject`] follows.
#[derive(Debug)]
pub enum Offered<'a> {
    /// Values.
    Values(Values<'a>),
    /// Records of envelopes.
    Records(Vec<ParsedRecord>),
}

impl Offered<'_> {
    /// Whether there is nothing to store; the request has to be accepted all the same.
    pub fn is_empty(&self) -> bool {
        match self {
            Offered::Values(values) => values.clone().next().is_none(),
            Offered::Records(records) => records.is_empty(),
        }
    }
}

/// The values of complete lines, in order, borrowed from the request; only the first may lie in the feed's tail. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    first: Option<&'a [u8]>,
    /// Whole lines with their newlines.
    lines: &'a [u8],
}

impl<'a> Iterator for Values<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let (line, rest) = split_line(self.lines)?;
        self.lines = rest;
        Some(line)
    }
}

/// What an offer left behind for accept and reject.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The length of the tail before the offer; what stands behind it in the buffer came with the offer.
    tail_before: usize,
    /// What becomes of the buffer when the offer is accepted.
    kept: Kept,
    /// Whether the offer left no line begun.
    ended: bool,
    /// How many lines it completed; 0 unless the framing is JSON.
    lines: u64,
}

/// What becomes the tail when an offer is accepted.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// The whole buffer: no record was completed.
    All,
    /// What stands behind the last newline, which waits in its own buffer.
    Next,
}

/// The state of one look-up of `append`, `append.jsonl` or `append.bin`.
#[derive(Debug)]
pub struct Feed {
    framing: Framing,
    /// The most bytes of a line or tail.
    limit: usize,
    /// The tail, and during an offer what completes its line.
    tail: Vec<u8>,
    /// During an offer, what stands behind its last newline.
    next: Vec<u8>,
    pending: Option<Pending>,
    /// Why requests are refused until the refused line has ended.
    skipping: Option<RefusedKind>,
    /// Lines that went by since the opening, refused ones included.
    lines_seen: u64,
    /// The number of the last stored line.
    lines_stored: u64,
}

impl Feed {
    /// A feed without a tail.
    pub fn new(framing: Framing, limits: Limits) -> Feed {
        let bytes = match framing {
            Framing::Lines | Framing::Binary => limits.max_record_bytes,
            Framing::Json => limits.max_record_bytes.saturating_mul(JSON_LINE_FACTOR),
        };
        Feed {
            framing,
            limit: usize::try_from(bytes).unwrap_or(usize::MAX),
            tail: Vec::new(),
            next: Vec::new(),
            pending: None,
            skipping: None,
            lines_seen: 0,
            lines_stored: 0,
        }
    }

    /// How bytes are divided into records.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether bytes wait that fsync or the last close would make a record.
    pub fn tail_pending(&self) -> bool {
        !self.tail.is_empty()
    }

    /// With [`Framing::Json`], the number of the last line that was stored, counted from the opening (from 1; 0: none). An import can go on behind it.
    pub fn lines_stored(&self) -> u64 {
        self.lines_stored
    }

    /// Offers a write request. An offer that was neither accepted nor rejected before counts as failed.
    ///
    /// # Errors
    /// [`Refused`] where a line of the tail and the request can never become a record, where the tail would grow beyond the limit, or where the
    /// request continues a refused line. The feed is then as after a rejection; neither accept nor reject follows.
    pub fn offer<'a>(&'a mut self, data: &'a [u8]) -> Result<Offered<'a>, Refused> {
        self.reject(Rejection::Failed);
        if let Some(kind) = self.skipping {
            return Err(self.skip(data, kind));
        }
        let complete = match self.framing {
            Framing::Binary => 0,
            Framing::Lines | Framing::Json => last_newline(data).map_or(0, |last| last.saturating_add(1)),
        };
        let (mut lines, behind) = data.split_at(complete);
        let tail_before = self.tail.len();
        let tail_after = if lines.is_empty() { tail_before.saturating_add(behind.len()) } else { behind.len() };
        if tail_after > self.limit {
            return Err(self.refuse(data, RefusedKind::TooLarge, self.too_long()));
        }
        let (mut joins, mut kept) = (false, Kept::All);
        if lines.is_empty() {
            self.tail.extend_from_slice(behind);
        } else {
            kept = Kept::Next;
            self.next.extend_from_slice(behind);
            if tail_before > 0
                && let Some((end_of_first, others)) = split_line(lines)
            {
                joins = true;
                self.tail.extend_from_slice(end_of_first);
                lines = others;
            }
        }
        self.complete(data, joins, lines, Pending { tail_before, kept, ended: self.ends_line(data), lines: 0 })
    }

    /// Offers the tail as if its line had ended, for fsync and the last close; nothing where there is none.
    ///
    /// # Errors
    /// [`Refused`] where it is no envelope. The feed is then as after a rejection: what a writer adds to that line will be skipped.
    pub fn offer_tail(&mut self) -> Result<Offered<'_>, Refused> {
        self.reject(Rejection::Failed);
        let there = self.tail_pending();
        self.complete(b"", there, b"", Pending { tail_before: self.tail.len(), kept: Kept::Next, ended: !there, lines: 0 })
    }

    /// Makes the offer of `lines`, with the buffer of the tail before them as a line of its own if it `joins`; `data` is what is refused if one of
    /// them is no envelope.
    fn complete<'a>(&'a mut self, data: &[u8], joins: bool, lines: &'a [u8], mut pending: Pending) -> Result<Offered<'a>, Refused> {
        let mut records = None;
        if self.framing == Framing::Json {
            match self.parse(Values { first: joins.then_some(self.tail.as_slice()), lines }) {
                Ok((parsed, count)) => (records, pending.lines) = (Some(parsed), count),
                Err((kind, reason)) => return Err(self.refuse(data, kind, reason)),
            }
        }
        self.pending = Some(pending);
        Ok(match records {
            Some(records) => Offered::Records(records),
            None => Offered::Values(Values { first: joins.then_some(self.tail.as_slice()), lines }),
        })
    }

    /// Takes the offer into the feed: its records are stored. Does nothing without an offer.
    pub fn accept(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        if let Kept::Next = pending.kept {
            self.tail.clear();
            std::mem::swap(&mut self.tail, &mut self.next);
        }
        self.lines_seen = self.lines_seen.saturating_add(pending.lines);
        if pending.lines > 0 {
            self.lines_stored = self.lines_seen;
        }
        self.give_back();
    }

    /// Takes the offer back: its records are not stored. Does nothing without an offer.
    pub fn reject(&mut self, rejection: Rejection) {
        let Some(pending) = self.pending.take() else { return };
        self.next.clear();
        match rejection {
            Rejection::Failed => self.tail.truncate(pending.tail_before),
            Rejection::Refused(kind) => {
                self.tail.clear();
                self.lines_seen = self.lines_seen.saturating_add(pending.lines);
                if !pending.ended {
                    self.skipping = Some(kind);
                }
            }
        }
        self.give_back();
    }

    /// The last handle is closed: drops a tail that is still there, whether its line was refused or its commit failed, and begins anew. Returns the
    /// number of bytes dropped.
    pub fn close(&mut self) -> usize {
        self.reject(Rejection::Failed);
        let dropped = self.tail.len();
        self.tail = Vec::new();
        self.next = Vec::new();
        self.skipping = None;
        self.lines_seen = 0;
        self.lines_stored = 0;
        dropped
    }

    /// The state after `data` was refused, from whatever offer it began with.
    fn refuse(&mut self, data: &[u8], kind: RefusedKind, reason: String) -> Refused {
        self.tail.clear();
        self.next.clear();
        self.pass_over(data, kind);
        self.give_back();
        Refused { kind, reason }
    }

    /// Refuses a request because it continues a refused line, or stands in the same request as its end.
    fn skip(&mut self, data: &[u8], kind: RefusedKind) -> Refused {
        self.pass_over(data, kind);
        Refused { kind, reason: "the request continues what was refused before".to_owned() }
    }

    /// Counts the lines of a refused request, and skips on unless it ended with a newline.
    fn pass_over(&mut self, data: &[u8], kind: RefusedKind) {
        if self.framing == Framing::Json {
            let lines =
                Values { first: None, lines: data.get(..last_newline(data).map_or(0, |last| last.saturating_add(1))).unwrap_or_default() };
            self.lines_seen = self.lines_seen.saturating_add(lines.count() as u64);
        }
        self.skipping = (!self.ends_line(data)).then_some(kind);
    }

    /// Whether nothing of what a request began is left to come. The one record of [`Framing::Binary`] ends with no byte.
    fn ends_line(&self, data: &[u8]) -> bool {
        self.framing != Framing::Binary && data.ends_with(b"\n")
    }

    /// Reads lines as envelopes, and counts them.
    fn parse(&self, lines: Values<'_>) -> Result<(Vec<ParsedRecord>, u64), (RefusedKind, String)> {
        let (mut records, mut count) = (Vec::new(), 0_u64);
        for line in lines {
            count = count.saturating_add(1);
            let number = self.lines_seen.saturating_add(count);
            if line.len() > self.limit {
                return Err((RefusedKind::TooLarge, format!("line {number}: {}", self.too_long())));
            }
            match parse_line(line) {
                Ok(record) => records.extend(record),
                Err(bad) => return Err((RefusedKind::BadLine, format!("line {number}, {bad}"))),
            }
        }
        Ok((records, count))
    }

    fn too_long(&self) -> String {
        let what = match self.framing {
            Framing::Lines => "the line",
            Framing::Json => "the envelope",
            Framing::Binary => "the record",
        };
        format!("{what} is longer than {} bytes; raise max.message.bytes to append it", self.limit)
    }

    /// Frees a large buffer that is empty or nearly so: look-ups live long, and there may be many.
    fn give_back(&mut self) {
        for buffer in [&mut self.tail, &mut self.next] {
            if buffer.capacity() > KEPT_CAPACITY && buffer.len() <= KEPT_CAPACITY / 2 {
                buffer.shrink_to(KEPT_CAPACITY / 2);
            }
        }
    }
}

/// The first line without its newline, and what follows; `None` where no newline is there.
#[inline]
fn split_line(mut data: &[u8]) -> Option<(&[u8], &[u8])> {
    let whole = data;
    // Reading a slice cannot fail; its search for a byte is the fastest that the standard library offers.
    let length = data.skip_until(b'\n').ok()?;
    let line = whole.get(..length)?.strip_suffix(b"\n")?;
    Some((line, data))
}

/// The index of the last newline.
fn last_newline(data: &[u8]) -> Option<usize> {
    /// Bytes searched at once from the end; `contains` is far faster than a search backwards byte by byte.
    const STRIDE: usize = 256;
    let mut end = data.len();
    for chunk in data.rchunks(STRIDE) {
        let start = end.saturating_sub(chunk.len());
        if chunk.contains(&b'\n') {
            return chunk.iter().rposition(|&byte| byte == b'\n').map(|at| start.saturating_add(at));
        }
        end = start;
    }
    None
}
