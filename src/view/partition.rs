//! The tree of one partition: what each name leads to, what `stat` says of it, and its bytes.
//!
//! Listings are in `listing`, extended attributes in `xattr`; the grammar of names is in `path` and `time`.

mod keys;
mod listing;
mod xattr;

use crate::io::{File, Kind, Open, Space};
use crate::source::{Absent, Control, Found, Record, SegmentSpan, Shared, Source};
use crate::types::{Offset, Patience, TimestampMs};
use crate::view::appender::{Appender, Finished};
use crate::view::checking::Checks;
use crate::view::ctl;
use crate::view::decoded::Counts;
use crate::view::drafts::Drafts;
use crate::view::error::{Error, ErrorKind};
use crate::view::journal::Journal;
use crate::view::lines::Framing;
use crate::view::metrics::{self, AppendCounters, RequestCounters, Sample};
use crate::view::node::{Attr, FileKind, Lifetime, Node, Span, TextFile, Time};
use crate::view::options::{self, Options};
use crate::view::overview::{Form, Pictures};
use crate::view::path::{ByOffset, ByTime, Endpoint, Face, Lines, OffsetRange};
use crate::view::render;
use crate::view::stream::{self, Reader};
use crate::view::time::{TimeText, Zone};
use std::ffi::OsStr;
use std::sync::Arc;

/// A range that covers at most so many bytes of log has its exact size.
const SIZED_RANGE_MOST: u64 = 4 << 20;

/// The tree of a partition.
#[derive(Debug)]
pub struct View {
    source: Arc<dyn Source>,
    options: Options,
    journal: Arc<Journal>,
    counts: Counts,
    checks: Checks,
    drafts: Arc<Drafts>,
    pictures: Arc<Pictures>,
    commands: ctl::Done,
    appended: Arc<AppendCounters>,
    /// What was asked of the tree; `None` for a part of a larger one, which counts for all its parts.
    requests: Option<Arc<RequestCounters>>,
    /// Whether there is a `by-key/`: the settings that say so do not change while a source is open.
    is_keyed: bool,
}

type Result<T> = std::result::Result<T, Error>;

impl View {
    /// The tree over a source.
    pub fn new(source: Arc<dyn Source>, options: Options) -> View {
        View { requests: Some(Arc::default()), ..View::part(source, options, Arc::default()) }
    }

    /// The tree over a source as a part of a larger one, whose parts keep their pictures together.
    pub(crate) fn part(source: Arc<dyn Source>, options: Options, pictures: Arc<Pictures>) -> View {
        let journal: Arc<Journal> = Arc::default();
        View {
            is_keyed: keys::is_keyed(&*source, &options),
            drafts: Drafts::new(source.clone(), journal.clone()),
            source,
            counts: Counts::new(options.control),
            options,
            journal,
            checks: Checks::default(),
            pictures,
            commands: ctl::Done::default(),
            appended: Arc::default(),
            requests: None,
        }
    }

    /// What was asked of the tree, to be counted by whoever serves it; `None` for a part of a larger one.
    pub fn requests(&self) -> Option<&Arc<RequestCounters>> {
        self.requests.as_ref()
    }

    /// What the tree shows.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// The zone of times without one.
    pub fn zone(&self) -> &Zone {
        &self.options.zone
    }

    /// Room on the file system of the source.
    pub fn space(&self) -> Space {
        self.source.space()
    }

    /// Ends appending and closes the log well.
    ///
    /// # Errors
    /// What the source says.
    pub fn close(&self) -> Result<()> {
        self.source.close().map_err(Error::from)
    }

    /// Notes for `errors` that a handler failed in a way that no error describes.
    pub fn note_event(&self, sentence: &str) {
        self.journal.note_event(self.source.now(), sentence);
    }

    /// The node that a name in a directory leads to.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] or [`ErrorKind::Invalid`] with the reason, which is noted in `errors`; [`ErrorKind::Damaged`];
    /// [`ErrorKind::WouldBlock`].
    pub fn lookup(&self, dir: &Node, name: &[u8], patience: Patience) -> Result<Node> {
        let found = match dir {
            Node::Root => self.in_root(name),
            Node::ByOffset => self.in_by_offset(name, patience),
            Node::ByTime => self.in_by_time(name, patience),
            Node::ByKey => self.in_by_key(name, patience),
            Node::Segments => self.in_segments(name),
            Node::DecodedDir => self.in_decoded(name, patience),
            _ => Err(Error::new(ErrorKind::NotDirectory, "it is no directory")),
        };
        found.inspect_err(|error| self.note_refused(dir, name, error))
    }

    /// The node that a name in a directory leads to, and what `stat` says of it. A record is looked for once for both.
    ///
    /// # Errors
    /// As [`View::lookup`].
    pub fn lookup_with_attr(&self, dir: &Node, name: &[u8], patience: Patience) -> Result<(Node, Attr)> {
        if *dir == Node::ByOffset
            && let Ok(ByOffset::Record(offset, face)) = ByOffset::parse(name)
        {
            let attr = self.record(offset, patience).and_then(|record| self.record_attr(&record, face));
            return attr.map(|attr| (Node::Record(offset, face), attr)).inspect_err(|error| self.note_refused(dir, name, error));
        }
        let node = self.lookup(dir, name, patience)?;
        let attr = self.attr(&node, patience)?;
        Ok((node, attr))
    }

    fn note_refused(&self, dir: &Node, name: &[u8], error: &Error) {
        if error.kind() == ErrorKind::WouldBlock {
            return;
        }
        let folder = match dir {
            Node::ByOffset => "by-offset/",
            Node::ByTime => "by-time/",
            Node::ByKey => "by-key/",
            Node::Segments => "segments/",
            Node::DecodedDir => "decoded/",
            _ => "",
        };
        self.journal.note(self.source.now(), &format!("{folder}{}", String::from_utf8_lossy(name)), error);
    }

    /// The node that a path below the root leads to; an empty path is the root. Links are not followed.
    ///
    /// # Errors
    /// As [`View::lookup`].
    pub fn resolve(&self, path: &[u8], patience: Patience) -> Result<Node> {
        let mut node = Node::Root;
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".") {
            node = self.lookup(&node, name, patience)?;
        }
        Ok(node)
    }

    fn in_root(&self, name: &[u8]) -> Result<Node> {
        ROOT.iter().find(|(n, node)| n.as_bytes() == name && self.has(node)).map(|(_, node)| node.clone()).ok_or_else(|| match name {
            b"by-key" => Error::not_found("by-key/ is there with -o by-key=ro or rw, or where cleanup.policy has compact"),
            _ => Error::not_found("there is no such file; see README"),
        })
    }

    /// Whether the source can do what a file of the root stands for.
    fn has(&self, node: &Node) -> bool {
        match node {
            Node::Ctl | Node::Text(TextFile::Check | TextFile::OverviewSvg | TextFile::OverviewHtml) => self.source.maintenance().is_some(),
            Node::ByKey => self.is_keyed,
            _ => true,
        }
    }

    fn in_by_offset(&self, name: &[u8], patience: Patience) -> Result<Node> {
        match ByOffset::parse(name)? {
            ByOffset::Record(offset, face) => {
                self.record(offset, patience)?;
                Ok(Node::Record(offset, face))
            }
            ByOffset::Link(endpoint, face) => {
                let offset = match endpoint {
                    Endpoint::First => self.source.first(patience)?,
                    Endpoint::Last => self.source.nth_last(1, patience)?,
                    Endpoint::FromEnd(k) => self.source.nth_last(k, patience)?,
                    Endpoint::Number(offset) => Some(offset),
                    Endpoint::Earliest | Endpoint::Latest => None,
                };
                let offset = offset.ok_or_else(|| Error::not_found("the log has no such record"))?;
                Ok(Node::Link(format!("{offset}{}", face.suffix())))
            }
            ByOffset::Range(range) => Ok(Node::Range(self.span(&range, patience)?)),
        }
    }

    /// The offsets of a range, now.
    fn span(&self, range: &OffsetRange, patience: Patience) -> Result<Span> {
        let bounds = self.source.bounds(patience)?;
        let first_or_end = || -> Result<Offset> { Ok(self.source.first(patience)?.unwrap_or(bounds.log_end)) };
        let place = |endpoint: &Endpoint| -> Result<Offset> {
            Ok(match endpoint {
                Endpoint::Number(offset) => *offset,
                Endpoint::Earliest => bounds.log_start,
                Endpoint::Latest => bounds.log_end,
                Endpoint::First => first_or_end()?,
                Endpoint::Last => self.source.nth_last(1, patience)?.unwrap_or(bounds.log_end),
                // Further back than there are records is the first record.
                Endpoint::FromEnd(k) => match self.source.nth_last(*k, patience)? {
                    Some(offset) => offset,
                    None => first_or_end()?,
                },
            })
        };
        let from = range.from.as_ref().map_or(Ok(bounds.log_start), place)?;
        let until = range.to.as_ref().map_or(Ok(bounds.log_end), place)?;
        let until = if range.inclusive { until.next() } else { until };
        let from = from.max(bounds.log_start).min(bounds.log_end);
        Ok(Span { from, until: until.min(bounds.log_end).max(from), lines: range.lines })
    }

    fn in_by_time(&self, name: &[u8], patience: Patience) -> Result<Node> {
        let at = |time: &TimeText| -> Result<Option<Offset>> {
            let time = time.resolve(&self.options.zone, self.source.now())?;
            Ok(self.source.offset_at(time, patience)?)
        };
        match ByTime::parse(name)? {
            ByTime::Point(time) => {
                let offset = at(&time)?.ok_or_else(|| Error::not_found("the log has no record at or after that time"))?;
                Ok(Node::Link(format!("../by-offset/{offset}")))
            }
            ByTime::Range { from, to, lines } => {
                let bounds = self.source.bounds(patience)?;
                let until = match &to {
                    Some(time) => at(time)?.unwrap_or(bounds.log_end),
                    None => bounds.log_end,
                };
                let from = match &from {
                    // Nothing at or after it: the range is empty, and stands at its own end.
                    Some(time) => at(time)?.unwrap_or(until),
                    None => bounds.log_start,
                };
                let until = until.max(from);
                Ok(Node::Link(format!("../by-offset/{from}..{until}{}", lines.suffix())))
            }
        }
    }

    fn in_decoded(&self, name: &[u8], patience: Patience) -> Result<Node> {
        let none = || Error::not_found("decoded/ has <base offset of a segment>.txt and .jsonl, active.txt, active.jsonl");
        let name = std::str::from_utf8(name).map_err(|_| none())?;
        let (stem, lines) = match (name.strip_suffix(".jsonl"), name.strip_suffix(".txt")) {
            (Some(stem), _) => (stem, Lines::Json),
            (None, Some(stem)) => (stem, Lines::Values),
            (None, None) => return Err(none()),
        };
        if stem == "active" {
            let active = self.source.segments(patience)?.into_iter().next_back();
            let active = active.ok_or_else(|| Error::not_found("the log has no segment yet"))?;
            return Ok(Node::Link(decoded_name(active.base, lines)));
        }
        let base = self.source.segments(patience)?.into_iter().map(|s| s.base).find(|base| decoded_name(*base, lines) == name);
        base.map(|base| Node::Decoded(base, lines)).ok_or_else(none)
    }

    /// The segment with a base offset.
    fn segment(&self, base: Offset, patience: Patience) -> Result<SegmentSpan> {
        let segments = self.source.segments(patience)?;
        let at = segments.binary_search_by_key(&base, |s| s.base);
        at.ok().and_then(|at| segments.get(at).copied()).ok_or_else(|| Error::not_found("the segment is gone"))
    }

    fn in_segments(&self, name: &[u8]) -> Result<Node> {
        let name = std::str::from_utf8(name).map_err(|_| Error::not_found("there is no such file"))?;
        let files = self.source.files().ok_or_else(|| Error::not_found("this source has no files"))?;
        let metadata = files.metadata(OsStr::new(name)).map_err(|e| crate::error::Error::io("look at", name, e))?;
        match metadata.kind {
            Kind::File => Ok(Node::SegmentFile(name.into())),
            Kind::Directory | Kind::Other => Err(Error::not_found("it is no regular file; only those are shown")),
        }
    }

    /// A record, or the reason why there is none.
    fn record(&self, offset: Offset, patience: Patience) -> Result<Record> {
        match self.source.record(offset, patience)? {
            Found::Record(record) => Ok(record),
            Found::Absent(absent) => Err(Error::not_found(match absent {
                Absent::BeforeLogStart(start) => format!("offset {offset} lies before the log start offset {start}"),
                Absent::BeyondLogEnd(end) => format!("offset {offset} was not written yet; the log ends at {end}"),
                Absent::Gap => format!("there is no record at offset {offset}: a gap, as compaction leaves"),
                Absent::Control => format!("a transaction marker stands at offset {offset}, no value"),
                Absent::NotCommitted => {
                    format!(
                        "offset {offset} is hidden by isolation=read_committed: its transaction was aborted or is open, or an open one begins before it"
                    )
                }
            })),
        }
    }

    /// What `stat` says of a node.
    ///
    /// # Errors
    /// As [`View::lookup`].
    pub fn attr(&self, node: &Node, patience: Patience) -> Result<Attr> {
        let file = |size, mtime, mode, lifetime| Attr { kind: FileKind::File, size, mtime, mode, lifetime };
        let now = || Time::from_ms(self.source.now());
        Ok(match node {
            Node::Root | Node::ByOffset | Node::ByTime | Node::Segments | Node::DecodedDir => {
                let mtime = Time::from_ms(self.source.modified(Offset::MAX));
                Attr { kind: FileKind::Directory, size: 0, mtime, mode: 0o555, lifetime: Lifetime::Fixed }
            }
            Node::ByKey => {
                let mtime = Time::from_ms(self.source.modified(Offset::MAX));
                let mode = if self.keys_writable().is_ok() { 0o777 } else { 0o555 };
                Attr { kind: FileKind::Directory, size: 0, mtime, mode, lifetime: Lifetime::Fixed }
            }
            Node::Key(key, face) => self.key_attr(key, *face, patience)?,
            Node::Append(_) => {
                let mode = if self.source.read_only().is_some() { 0o444 } else { 0o666 };
                file(0, Time::from_ms(self.source.modified(Offset::MAX)), mode, Lifetime::Fresh)
            }
            Node::Ctl => file(0, Time::from_ms(self.source.modified(Offset::MAX)), 0o200, Lifetime::Moving),
            // Browsers believe the size, so it is that of the picture, which is kept for the moment.
            Node::Text(text @ (TextFile::OverviewSvg | TextFile::OverviewHtml)) => {
                let size = self.picture(*text, patience)?.len() as u64;
                file(size, Time::from_ms(self.source.modified(Offset::MAX)), 0o444, Lifetime::Moving)
            }
            Node::Text(_) => file(0, now(), 0o444, Lifetime::Moving),
            Node::Follow(_) => file(0, now(), self.source.readable(), Lifetime::Moving),
            Node::Decoded(base, lines) => {
                let segment = self.segment(*base, patience)?;
                let span = Span { from: segment.base, until: segment.until, lines: *lines };
                let size = self.counts.size(&self.source, span, segment.active, patience)?;
                file(size.unwrap_or(0), Time::from_ms(self.source.modified(*base)), self.source.readable(), Lifetime::Moving)
            }
            Node::Link(target) => {
                Attr { kind: FileKind::Link, size: target.len() as u64, mtime: now(), mode: 0o777, lifetime: Lifetime::Moving }
            }
            Node::Range(span) => {
                let size = stream::size_of(&self.source, *span, SIZED_RANGE_MOST, patience)?;
                file(size.unwrap_or(0), Time::from_ms(self.source.modified(span.until)), self.source.readable(), Lifetime::Moving)
            }
            Node::Record(offset, face) => self.record_attr(&self.record_or_kept(*offset, patience)?.0, *face)?,
            Node::SegmentFile(name) => {
                let files = self.source.files().ok_or_else(|| Error::not_found("this source has no files"))?;
                let metadata = files.metadata(name).map_err(|e| crate::error::Error::io("look at", name.to_string_lossy(), e))?;
                let growing = self.source.file_may_change(&name.to_string_lossy());
                let lifetime = if growing { Lifetime::Growing } else { Lifetime::Sealed };
                file(metadata.len, Time::from_ns(metadata.mtime_ns), 0o444 & metadata.mode, lifetime)
            }
            Node::Topic(_) | Node::Apart | Node::TopicTimes(_) | Node::Merged(_) => {
                return Err(Error::not_found("a partition has no such thing"));
            }
        })
    }

    fn record_attr(&self, record: &Record, face: Face) -> Result<Attr> {
        let size = match face {
            Face::Value => record.reference.value.as_ref().map_or(0, |r| u64::from(r.end - r.start)),
            Face::Key => record.reference.key.as_ref().map_or(0, |r| u64::from(r.end - r.start)),
            Face::Json => self.json(record)?.len() as u64,
            Face::Batch => u64::from(record.header.size),
        };
        let offset = record.offset();
        let mtime = if record.timestamp() == TimestampMs::NONE { self.source.modified(offset) } else { record.timestamp() };
        Ok(Attr { kind: FileKind::File, size, mtime: Time::from_ms(mtime), mode: self.source.readable(), lifetime: self.record_lifetime() })
    }

    fn record_lifetime(&self) -> Lifetime {
        if self.source.is_stable() { Lifetime::Stable } else { Lifetime::Foreign }
    }

    /// Opens a record: its bytes stay until [`View::close_record`], which has to follow unless this fails. Says how long a record that was
    /// looked up may be believed; the record itself is not looked for again.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the log does not reach it any more; as [`View::lookup`].
    pub fn open_record(&self, offset: Offset, patience: Patience) -> Result<Lifetime> {
        // Before the look: who takes it behind the look keeps it.
        self.source.open_record(offset);
        let bounds = self.source.bounds(patience).inspect_err(|_| self.source.close_record(offset))?;
        if offset < bounds.log_start || offset >= bounds.log_end {
            self.source.close_record(offset);
            return Err(Error::not_found(format!("offset {offset} does not lie between {} and {}", bounds.log_start, bounds.log_end)));
        }
        Ok(self.record_lifetime())
    }

    /// Closes a record that was opened.
    pub fn close_record(&self, offset: Offset) {
        self.source.close_record(offset);
    }

    /// A record, or what was kept of it for those who have it open; then with the stored bytes of its batch.
    fn record_or_kept(&self, offset: Offset, patience: Patience) -> Result<(Record, Option<Shared>)> {
        match self.record(offset, patience) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.source.kept(offset).map(|kept| (kept.record, Some(kept.batch))).ok_or(error)
            }
            found => found.map(|record| (record, None)),
        }
    }

    fn json(&self, record: &Record) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        render::json_line(&mut line, self.source.name(), record);
        if record.is_broken() {
            return Err(Error::new(ErrorKind::Damaged, "a segment became shorter while it was read; read again"));
        }
        Ok(line)
    }

    /// Reads from a record's file at a position; returns how many bytes. Nothing is kept between two reads, but for an open record that was taken from
    /// the log.
    ///
    /// # Errors
    /// As [`View::lookup`].
    pub fn read_record(&self, offset: Offset, face: Face, at: u64, out: &mut [u8], patience: Patience) -> Result<usize> {
        let (record, kept) = self.record_or_kept(offset, patience).inspect_err(|error| {
            if error.kind() == ErrorKind::Damaged {
                self.journal.note(self.source.now(), &format!("by-offset/{offset}{}", face.suffix()), error);
            }
        })?;
        let (n, broken) = match face {
            Face::Value => (render::copy_from(record.value().unwrap_or_default(), at, out), record.is_broken()),
            Face::Key => (render::copy_from(record.key().unwrap_or_default(), at, out), record.is_broken()),
            Face::Json => (render::copy_from(&self.json(&record)?, at, out), false),
            Face::Batch => match kept.map_or_else(|| self.source.stored_batch(offset, patience), |batch| Ok(Ok(batch)))? {
                Ok(stored) => (render::copy_from(stored.as_slice(), at, out), stored.is_broken()),
                Err(_) => return Err(Error::not_found(format!("the record at offset {offset} is gone"))),
            },
        };
        if broken {
            return Err(Error::new(ErrorKind::Damaged, "a segment became shorter while it was read; read again"));
        }
        Ok(n)
    }

    /// Opens a range, a decoded segment, a follower or a text. A follower that reads nothing has come to the end for now.
    ///
    /// # Errors
    /// As [`View::lookup`]; [`ErrorKind::Invalid`] for a node that is read in another way.
    pub fn open(&self, node: &Node, patience: Patience) -> Result<Reader> {
        match node {
            Node::Range(span) => Ok(Reader::range(self.source.clone(), *span)),
            Node::Decoded(base, lines) => {
                let segment = self.segment(*base, patience)?;
                let until = if segment.active { Offset::MAX } else { segment.until };
                let span = Span { from: segment.base, until, lines: *lines };
                Ok(Reader::growing(self.source.clone(), span, self.counts.control(*lines), Some(self.counts.of(*base, *lines))))
            }
            Node::Follow(lines) => {
                let span = Span { from: self.source.bounds(patience)?.log_end, until: Offset::MAX, lines: *lines };
                Ok(self.follow(span))
            }
            Node::Key(key, face) => self.open_key(key, *face, patience),
            Node::Text(TextFile::Check) => Ok(Reader::check(self.checks.join_or_start(&self.source)?)),
            Node::Text(text) => Ok(Reader::text(self.text(*text, patience)?.into_bytes())),
            _ => Err(Error::new(ErrorKind::Invalid, "it is not read in this way")),
        }
    }

    /// A reader of a span that goes on when the log has grown.
    pub fn follow(&self, span: Span) -> Reader {
        Reader::growing(self.source.clone(), span, Control::Hide, None)
    }

    fn text(&self, file: TextFile, patience: Patience) -> Result<String> {
        for event in self.source.take_events() {
            self.note_event(&event);
        }
        Ok(match file {
            TextFile::Status | TextFile::StatusJson => {
                let commands = self.commands.sentences(self.zone());
                let status = render::status_json(&*self.source, &self.source.status(patience)?, &commands);
                if file == TextFile::Status {
                    render::status_text(&status, &self.options.zone)
                } else {
                    format!("{}\n", serde_json::Value::Object(status))
                }
            }
            TextFile::Config => options::config_text(&*self.source, &self.options),
            // Storage is looked at file by file.
            TextFile::Metrics if patience == Patience::AtOnce => return Err(Error::new(ErrorKind::WouldBlock, "not gathered yet")),
            TextFile::Metrics => metrics::exposition(self.requests.as_deref(), &[self.sample()?]),
            TextFile::OverviewSvg | TextFile::OverviewHtml => self.picture(file, patience)?.to_string(),
            TextFile::Check => return Err(Error::new(ErrorKind::Invalid, "it is read while it is made")),
            TextFile::Errors => self.journal.text(&self.options.zone),
            TextFile::Readme => render::readme(&*self.source, &self.options.zone),
        })
    }

    /// `overview.svg` and `overview.html`.
    fn picture(&self, file: TextFile, patience: Patience) -> Result<Arc<str>> {
        let form = if file == TextFile::OverviewHtml { Form::Html } else { Form::Svg };
        self.pictures.get(&*self.source, self.checks.last_report().as_deref(), &self.options.zone, form, patience)
    }

    /// What the partition looks like now. It may wait for the disk.
    ///
    /// # Errors
    /// What the source says.
    pub(crate) fn sample(&self) -> Result<Sample> {
        let bounds = self.source.bounds(Patience::MayBlock)?;
        let storage = self.source.maintenance().map(|m| m.storage()).transpose()?;
        Ok(Sample::new(self.source.name(), bounds, &self.appended, storage))
    }

    /// Carries out the commands of one write to `ctl`, in order. It may wait for the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what is no command, before any is carried out; [`ErrorKind::NotSupported`]; [`ErrorKind::ReadOnly`]; what
    /// the source says. All are noted in `errors`.
    pub fn control(&self, data: &[u8]) -> Result<()> {
        ctl::carry_out(&self.source, &self.commands, data).inspect_err(|error| self.journal.note_write(self.source.now(), "ctl", error))
    }

    /// Opens a real file for reading.
    ///
    /// # Errors
    /// What the system says.
    pub fn file(&self, name: &OsStr) -> Result<Arc<dyn File>> {
        let files = self.source.files().ok_or_else(|| Error::not_found("this source has no files"))?;
        files.open(name, Open::Read).map_err(|e| crate::error::Error::io("open", name.to_string_lossy(), e).into())
    }

    /// A new look-up of an append file.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] with the reason.
    pub fn appender(&self, framing: Framing) -> Result<Appender> {
        if let Some(reason) = self.source.read_only() {
            let error = Error::new(ErrorKind::ReadOnly, format!("mounted read-only: {reason}"));
            self.journal.note(self.source.now(), "append", &error);
            return Err(error);
        }
        Ok(Appender::new(self.source.clone(), self.journal.clone(), self.appended.clone(), framing))
    }

    /// Makes everything that was appended so far durable, by whomever. Nothing is to be done where nothing can be appended.
    pub fn sync(&self, finished: Finished) {
        self.source.sync(Box::new(move |result| finished(result.map_err(Error::from))));
    }
}

/// The names in the root, in the order of their listing, and behind them those that are only found by name.
const ROOT: &[(&str, Node)] = &[
    ("append", Node::Append(Framing::Lines)),
    ("append.jsonl", Node::Append(Framing::Json)),
    ("append.bin", Node::Append(Framing::Binary)),
    ("by-offset", Node::ByOffset),
    ("by-time", Node::ByTime),
    ("by-key", Node::ByKey),
    ("segments", Node::Segments),
    ("decoded", Node::DecodedDir),
    ("status", Node::Text(TextFile::Status)),
    ("status.json", Node::Text(TextFile::StatusJson)),
    ("metrics", Node::Text(TextFile::Metrics)),
    ("config", Node::Text(TextFile::Config)),
    ("check", Node::Text(TextFile::Check)),
    ("overview.svg", Node::Text(TextFile::OverviewSvg)),
    ("overview.html", Node::Text(TextFile::OverviewHtml)),
    ("errors", Node::Text(TextFile::Errors)),
    ("ctl", Node::Ctl),
    ("README", Node::Text(TextFile::Readme)),
    // Listed on request only: a recursive grep would hang in them.
    ("follow", Node::Follow(Lines::Values)),
    ("follow.jsonl", Node::Follow(Lines::Json)),
];
/// How many of them are always listed.
const LISTED_IN_ROOT: usize = ROOT.len() - 2;

/// The name of a decoded segment.
fn decoded_name(base: Offset, lines: Lines) -> String {
    let suffix = if lines == Lines::Json { "jsonl" } else { "txt" };
    format!("{:020}.{suffix}", base.get())
}
