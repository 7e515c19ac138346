//! Bytes that are made while they are read: ranges of records, decoded segments, followers, and texts.
//!
//! Records are read from the front: a reader keeps where it is between two reads that follow each other, and begins again when somebody seeks
//! back: at the start, or at the nearest mark that counting has left. It never holds more than the record at hand. A growing reader looks at the log
//! again when it has come to the end.

use crate::source::{Body, Control, Source};
use crate::types::{Offset, Patience, TopicPartition};
use crate::view::checking::Check;
use crate::view::decoded::Count;
use crate::view::error::{Error, ErrorKind};
use crate::view::merge::Merge;
use crate::view::node::Span;
use crate::view::path::Lines;
use crate::view::render::{copy_from, json_line};
use parking_lot::Mutex;
use std::sync::Arc;

/// An opened range or text.
#[derive(Debug)]
pub struct Reader {
    content: Mutex<Content>,
}

#[derive(Debug)]
enum Content {
    Text(Vec<u8>),
    Range(Box<RangeReader>),
    Merge(Box<Merge>),
    Check(Arc<Check>),
}

impl Reader {
    pub(crate) fn text(text: Vec<u8>) -> Reader {
        Reader { content: Mutex::new(Content::Text(text)) }
    }

    pub(crate) fn range(source: Arc<dyn Source>, span: Span) -> Reader {
        Reader { content: Mutex::new(Content::Range(Box::new(RangeReader::new(source, span, Control::Hide)))) }
    }

    /// A reader that goes on when the log has grown, up to an offset; `marks` tell where in it to begin after a seek.
    pub(crate) fn growing(source: Arc<dyn Source>, span: Span, control: Control, marks: Option<Arc<Mutex<Count>>>) -> Reader {
        let mut reader = RangeReader::new(source, span, control);
        (reader.growing, reader.marks) = (true, marks);
        Reader { content: Mutex::new(Content::Range(Box::new(reader))) }
    }

    pub(crate) fn check(check: Arc<Check>) -> Reader {
        Reader { content: Mutex::new(Content::Check(check)) }
    }

    pub(crate) fn merged(merge: Merge) -> Reader {
        Reader { content: Mutex::new(Content::Merge(Box::new(merge))) }
    }

    /// Fills the buffer from a position on; fewer bytes only at the end, or where the next record is damaged. The error comes with the next read.
    ///
    /// # Errors
    /// Where the record at the position cannot be read; [`ErrorKind::WouldBlock`].
    pub fn read(&self, at: u64, out: &mut [u8], patience: Patience) -> Result<usize, Error> {
        match &mut *self.content.lock() {
            Content::Text(text) => Ok(copy_from(text, at, out)),
            Content::Range(range) => range.read(at, out, patience),
            Content::Merge(_) if patience == Patience::AtOnce => Err(Error::new(ErrorKind::WouldBlock, "many partitions")),
            Content::Merge(merge) => merge.read(at, out),
            Content::Check(check) => check.read(at, out, patience),
        }
    }
}

/// A batch that is being handed out, and how many of its records were.
#[derive(Debug)]
struct Current {
    body: Body,
    done: usize,
}

#[derive(Debug)]
struct RangeReader {
    source: Arc<dyn Source>,
    span: Span,
    control: Control,
    batches: Box<dyn crate::source::Batches>,
    current: Option<Current>,
    /// Bytes of the record at hand that did not fit into the last reply.
    left: Vec<u8>,
    left_at: usize,
    /// Where in the range the next byte lies.
    at: u64,
    /// The offset behind the last record that was made.
    next: Offset,
    /// Set once the range has come to an end, or to a damaged record.
    over: Option<Result<(), Error>>,
    growing: bool,
    marks: Option<Arc<Mutex<Count>>>,
}

impl RangeReader {
    fn new(source: Arc<dyn Source>, span: Span, control: Control) -> RangeReader {
        let batches = source.batches_with(span.from, span.until, control);
        RangeReader {
            source,
            span,
            control,
            batches,
            current: None,
            left: Vec::new(),
            left_at: 0,
            at: 0,
            next: span.from,
            over: None,
            growing: false,
            marks: None,
        }
    }

    /// Begins again at a position of the output that an offset is known for.
    fn restart(&mut self, at: u64, from: Offset) {
        self.batches = self.source.batches_with(from, self.span.until, self.control);
        (self.current, self.left, self.left_at, self.over) = (None, Vec::new(), 0, None);
        (self.at, self.next) = (at, from);
    }

    /// Looks for records that came since the end was reached.
    fn grow(&mut self, patience: Patience) -> Result<(), Error> {
        let bounds = self.source.bounds(patience)?;
        self.next = self.next.max(bounds.log_start);
        if self.next < bounds.log_end.min(self.span.until) {
            self.restart(self.at, self.next);
        }
        Ok(())
    }

    fn read(&mut self, at: u64, out: &mut [u8], patience: Patience) -> Result<usize, Error> {
        if at != self.at {
            let mark = self.marks.as_ref().map(|m| m.lock().mark(at)).unwrap_or((0, self.span.from));
            if at < self.at || mark.0 > self.at {
                self.restart(mark.0, mark.1);
            }
        }
        if self.growing && matches!(self.over, Some(Ok(()))) {
            self.grow(patience)?;
        }
        while self.at < at {
            // Somebody seeks forward: what lies between is made and dropped.
            let mut dropped = [0; 4096];
            let wanted = (at - self.at).min(dropped.len() as u64) as usize;
            if self.fill(&mut dropped[..wanted], patience)? == 0 {
                return self.end();
            }
        }
        match self.fill(out, patience)? {
            0 if !out.is_empty() => self.end(),
            n => Ok(n),
        }
    }

    fn end(&self) -> Result<usize, Error> {
        match &self.over {
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(0),
        }
    }

    /// Fills the buffer as far as there are records.
    fn fill(&mut self, out: &mut [u8], patience: Patience) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < out.len() {
            if self.left_at < self.left.len() {
                let n = copy_from(&self.left, self.left_at as u64, &mut out[filled..]);
                (self.left_at, filled) = (self.left_at + n, filled + n);
                continue;
            }
            if self.over.is_some() {
                break;
            }
            let Some(current) = &mut self.current else {
                match self.batches.next(patience) {
                    Ok(Some(body)) => self.current = Some(Current { body, done: 0 }),
                    Ok(None) => self.over = Some(Ok(())),
                    Err(crate::source::Error::WouldBlock) if filled > 0 => break,
                    Err(crate::source::Error::WouldBlock) => return Err(Error::new(ErrorKind::WouldBlock, "not in memory")),
                    Err(error) => self.over = Some(Err(error.into())),
                }
                continue;
            };
            let from = Span { from: self.next.max(self.span.from), ..self.span };
            let (n, state) = render(current, from, self.source.name(), &mut out[filled..], &mut self.left, &mut self.next);
            if current.body.bytes.is_broken() {
                self.over = Some(Err(Error::new(ErrorKind::Damaged, "a segment became shorter while it was read; read again")));
                (self.left, self.left_at) = (Vec::new(), 0);
                break;
            }
            filled += n;
            self.left_at = 0;
            match state {
                Rendered::Full => {}
                Rendered::Done => self.current = None,
                Rendered::Over => self.over = Some(Ok(())),
                Rendered::Fault(error) => self.over = Some(Err(error)),
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }
}

enum Rendered {
    /// The buffer is full; what did not fit is left over.
    Full,
    /// The batch is at its end.
    Done,
    /// The range is at its end.
    Over,
    Fault(Error),
}

/// Writes records of a batch into the buffer until it is full; the rest of the last one goes into `left`.
fn render(
    current: &mut Current,
    span: Span,
    name: &TopicPartition,
    out: &mut [u8],
    left: &mut Vec<u8>,
    next: &mut Offset,
) -> (usize, Rendered) {
    left.clear();
    let Current { body, done } = current;
    let bytes = body.bytes.as_slice();
    let mut filled = 0;
    let mut json = Vec::new();
    for record in body.records().skip(*done) {
        let record = match record {
            Ok(record) => record,
            Err(fault) => {
                let reason =
                    format!("damaged: {fault} (byte {} of the records of the batch at offset {})", fault.position, body.header.base_offset);
                return (filled, Rendered::Fault(Error::new(ErrorKind::Damaged, reason)));
            }
        };
        *done += 1;
        if record.offset < span.from {
            continue;
        }
        if record.offset >= span.until {
            return (filled, Rendered::Over);
        }
        *next = record.offset.next();
        let (line, newline): (&[u8], &[u8]) = match span.lines {
            Lines::Values => {
                let value = record.value.as_ref().and_then(|r| bytes.get(r.start as usize..r.end as usize));
                (value.unwrap_or_default(), b"\n")
            }
            Lines::Json => {
                json.clear();
                json_line(&mut json, name, &body.record(record));
                (&json, b"")
            }
        };
        for part in [line, newline] {
            let n = part.len().min(out.len() - filled);
            out[filled..filled + n].copy_from_slice(&part[..n]);
            filled += n;
            left.extend_from_slice(&part[n..]);
        }
        if !left.is_empty() || filled == out.len() {
            return (filled, Rendered::Full);
        }
    }
    (filled, Rendered::Done)
}

/// The exact size of a range, if it covers at most `most` bytes of log and all of it can be read; else `None`.
pub(crate) fn size_of(source: &Arc<dyn Source>, span: Span, most: u64, patience: Patience) -> Result<Option<u64>, Error> {
    if span.until <= span.from {
        return Ok(Some(0));
    }
    if source.log_bytes(span.from, span.until, most, patience)? > most {
        return Ok(None);
    }
    let mut batches = source.batches(span.from, span.until);
    let (mut size, mut json) = (0u64, Vec::new());
    loop {
        let body = match batches.next(patience) {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(Some(size)),
            Err(crate::source::Error::WouldBlock) => return Err(Error::new(ErrorKind::WouldBlock, "not in memory")),
            Err(_) => return Ok(None),
        };
        for record in body.records() {
            let Ok(record) = record else { return Ok(None) };
            if record.offset < span.from || record.offset >= span.until {
                continue;
            }
            size += match span.lines {
                Lines::Values => record.value.as_ref().map_or(0, |r| u64::from(r.end - r.start)) + 1,
                Lines::Json => {
                    json.clear();
                    json_line(&mut json, source.name(), &body.record(record));
                    json.len() as u64
                }
            };
        }
    }
}

/// The offset of a record that a range begins at, for messages.
impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let from: Offset = self.from;
        write!(f, "{from}..{}{}", self.until, self.lines.suffix())
    }
}
