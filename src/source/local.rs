//! The local engine as a source: a partition directory, read and perhaps written by this process.

use crate::error::{Error, Result};
use crate::io::{Clock, Directory, FileSystem, Kind, Space};
use crate::log::commit::{Appended, Committer, Done};
use crate::log::config::{Isolation, LogConfig};
use crate::log::encode::NewRecord;
use crate::log::handle::{Batch, Body};
use crate::log::keys::KeyIndex;
use crate::log::listing;
use crate::log::names;
use crate::log::partition::{Bounds, MayWrite, Partition};
use crate::log::prepare::prepare;
use crate::log::seek::{Absent, Found};
use crate::log::segment::OpenSegments;
use crate::log::settings::{InForce, Settings};
use crate::log::walk::{Item, Look, Walk};
use crate::source::access::{self, Access, Locks, Wish};
use crate::source::held::Kept;
use crate::source::status;
use crate::source::upkeep::Upkeep;
use crate::source::{Batches, Control, Keys, Maintenance, SegmentSpan, Shared, Source, Status};
use crate::types::{Offset, Patience, TimestampMs, TopicPartition};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

/// So many segments are kept open at once; each is up to three maps, of which Linux allows 65,530 a process.
pub(crate) const OPEN_SEGMENTS_MOST: usize = 10_240;

/// How a partition directory is opened.
#[derive(Clone, Debug)]
pub struct Options<C = LogConfig> {
    /// Reading, writing, or taking over.
    pub wish: Wish,
    /// Make the directory if it is missing, and take an empty one. A new log gets a `topic.properties` with the settings that were given.
    pub create: bool,
    /// The settings: [`Settings`], or a [`LogConfig`] that becomes them. What lies in the directory is taken under them.
    pub config: C,
}

/// To look, with the default settings.
impl Default for Options {
    fn default() -> Options {
        Options { wish: Wish::default(), create: false, config: LogConfig::default() }
    }
}

/// A partition directory.
#[derive(Debug)]
pub struct Local {
    partition: Arc<Partition>,
    keys: KeyIndex,
    committer: Option<Arc<Committer>>,
    upkeep: Option<Arc<Upkeep>>,
    read_only: Option<String>,
    locks: Option<Arc<Locks>>,
    /// Whether `.kafka_cleanshutdown` was taken away and has to be put back after a clean close.
    clean_mark: Arc<parking_lot::Mutex<bool>>,
    settings: Settings,
    /// What there is to say of the settings.
    said: parking_lot::Mutex<Vec<String>>,
}

impl Local {
    /// Opens a partition directory. Nothing in it is written before the first append; with [`Options::create`] a missing directory is made.
    ///
    /// # Errors
    /// [`Error::NotAPartition`] with what to do instead; [`Error::Locked`]; [`Error::Settings`]; what the system says.
    pub fn open<C: Into<Settings>>(fs: &Arc<dyn FileSystem>, path: &Path, options: Options<C>) -> Result<Local> {
        let Options { wish, create, config } = options;
        Local::open_in(fs, path, Options { wish, create, config: config.into() })
    }

    fn open_in(fs: &Arc<dyn FileSystem>, path: &Path, options: Options<Settings>) -> Result<Local> {
        let shown = path.display().to_string();
        let not = |reason: String| Error::NotAPartition { path: shown.clone(), reason };
        let dir = match fs.open_dir(path) {
            Ok(dir) => dir,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && options.create && options.wish != Wish::ReadOnly => {
                fs.create_dir(path).map_err(|e| Error::io("create", &shown, e))?;
                fs.open_dir(path).map_err(|e| Error::io("open", &shown, e))?
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(not("there is no such directory; --create makes a new partition".to_owned()));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(not("it is a file; give the partition directory that it lies in".to_owned()));
            }
            Err(e) => return Err(Error::io("open", &shown, e)),
        };
        let found = listing::list(&*dir)?;
        if !found.is_partition {
            if let Some(inside) = partition_inside(&*dir)? {
                return Err(not(format!("it is a data directory; give one of its partitions, such as {}", path.join(inside).display())));
            }
            match (found.is_empty, options.create) {
                (true, true) => {}
                (true, false) => return Err(not("it is empty; --create makes it a new partition".to_owned())),
                (false, _) => return Err(not("it is no partition directory: no .log file in it; nothing was touched".to_owned())),
            }
        }
        let name = path.file_name().map_or_else(|| "log".into(), |n| n.to_string_lossy());
        let name = TopicPartition::from_directory_name(&name).unwrap_or(TopicPartition { topic: name.into_owned(), partition: 0 });
        let parent = access::parent_of(&**fs, path);
        let access = access::decide(&dir, parent.as_ref(), options.wish)?;
        let is_new = found.is_empty && dir.metadata(OsStr::new(names::TOPIC_PROPERTIES)).is_err();
        if is_new && matches!(access, Access::Writable(_)) {
            options.config.write_topic(&*dir)?;
        }
        let opened = Arc::new(OpenSegments::new(OPEN_SEGMENTS_MOST));
        Local::with_access(dir, parent, name, options.config, fs.clock(), opened, access)
    }

    /// The partition in a directory for which it was decided what it may be opened for.
    pub(crate) fn with_access(
        dir: Arc<dyn Directory>,
        parent: Option<Arc<dyn Directory>>,
        name: TopicPartition,
        mut settings: Settings,
        clock: Arc<dyn Clock>,
        opened: Arc<OpenSegments>,
        access: Access,
    ) -> Result<Local> {
        let foreign = matches!(access, Access::ReadOnly(_));
        let said = match settings.take_topic(&*dir) {
            Ok(said) => said,
            // Whoever only looks can do without. Who writes must not roll, delete or compact by other settings than it was told.
            Err(error) if foreign => vec![format!("{error}; nothing of the file is in force")],
            Err(error) => return Err(to_write(error)),
        };
        let said = parking_lot::Mutex::new(said);
        let config = settings.config().clone();
        let mut partition = Partition::open(dir, parent.clone(), name, config, clock, opened, foreign)?;
        let clean_mark = Arc::new(parking_lot::Mutex::new(false));
        let locks = match access {
            Access::ReadOnly(reason) => {
                let partition = Arc::new(partition);
                let keys = key_index(&partition);
                return Ok(Local {
                    partition,
                    keys,
                    committer: None,
                    upkeep: None,
                    read_only: Some(reason),
                    locks: None,
                    clean_mark,
                    settings,
                    said,
                });
            }
            Access::Writable(locks) => Arc::new(locks),
        };
        if !locks.took_over()
            && let Some(parent) = parent.clone()
        {
            partition.ask_before_writing(MayWrite(Box::new(move || access::refuse_beside_a_broker(&*parent))));
        }
        let before = locks.took_over().then(|| access::take_clean_mark(parent, clean_mark.clone()));
        let partition = Arc::new(partition);
        let committer = Arc::new(Committer::new(partition.clone(), before)?);
        let upkeep = Upkeep::new(partition.clone(), committer.clone())?;
        let keys = key_index(&partition);
        let (committer, upkeep) = (Some(committer), Some(upkeep));
        Ok(Local { partition, keys, committer, upkeep, read_only: None, locks: Some(locks), clean_mark, settings, said })
    }

    /// The partition, for tools that look below the tree.
    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// The appending side; `None` where nothing can be appended.
    pub fn committer(&self) -> Option<&Committer> {
        self.committer.as_deref()
    }

    /// Retention, and what it leaves to do; `None` where nothing may be written.
    pub fn upkeep(&self) -> Option<&Arc<Upkeep>> {
        self.upkeep.as_ref()
    }

    /// The appending side of a log that can be written to.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], with the reason.
    pub(crate) fn writing(&self) -> Result<&Committer> {
        self.committer().ok_or_else(|| self.refusal())
    }

    /// Why nothing can be written, as an error.
    pub(crate) fn refusal(&self) -> Error {
        Error::ReadOnly { reason: self.read_only.clone().unwrap_or_default() }
    }

    pub(crate) fn key_index(&self) -> &KeyIndex {
        &self.keys
    }

    fn committed_only(&self) -> bool {
        self.partition.config().isolation == Isolation::ReadCommitted
    }

    /// Whether a reader sees the records of a batch at an offset.
    fn shows(&self, batch: &crate::log::batch::BatchHeader, offset: Offset, patience: Patience) -> Result<bool> {
        if batch.magic >= 2 && batch.attributes.is_control() {
            return Ok(false);
        }
        if self.committed_only() { self.partition.is_committed(batch, offset, patience) } else { Ok(true) }
    }

    /// The offsets of a batch's records that are shown, if its header tells them all: none missing, none hidden.
    fn dense(header: &crate::log::batch::BatchHeader) -> bool {
        !header.is_wrapper() && i64::from(header.records_count) == header.last_offset.delta_from(header.base_offset) + 1
    }

    /// The offsets of a batch's records within bounds, from its records, where its header does not tell.
    fn offsets_of(&self, batch: &Batch, file: &Arc<str>, bounds: Bounds, patience: Patience) -> Result<Vec<Offset>> {
        let within = |o: &Offset| *o >= bounds.log_start && *o < bounds.log_end;
        match self.partition.body(batch, file, patience) {
            Ok(body) => Ok(body.records().map_while(|r| r.ok()).map(|r| r.offset).filter(within).collect()),
            Err(Error::Corrupt(_) | Error::DecodedTooLarge { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

fn key_index(partition: &Arc<Partition>) -> KeyIndex {
    KeyIndex::new(partition.clone(), partition.config().isolation == Isolation::ReadCommitted)
}

/// The error of a file of settings for somebody who wants to write.
fn to_write(error: Error) -> Error {
    match error {
        Error::Settings { file, line, reason } => {
            Error::Settings { file, line, reason: format!("{reason}; correct it, or open the log for reading only (-o ro)") }
        }
        error => error,
    }
}

/// The name of a partition directory inside a directory, if there is one.
fn partition_inside(dir: &dyn Directory) -> Result<Option<String>> {
    let entries = dir.list().map_err(|e| Error::io("list", dir.path().display(), e))?;
    let names = entries.into_iter().filter(|e| e.kind == Kind::Directory).filter_map(|e| e.name.into_string().ok());
    let mut names: Vec<String> = names.filter(|n| TopicPartition::from_directory_name(n).is_some()).collect();
    names.sort();
    Ok(names.into_iter().next())
}

impl Source for Local {
    fn name(&self) -> &TopicPartition {
        self.partition.name()
    }

    fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    fn is_stable(&self) -> bool {
        !self.partition.is_foreign()
    }

    fn bounds(&self, patience: Patience) -> Result<Bounds> {
        self.partition.refresh()?;
        let mut bounds = self.partition.bounds();
        if self.committed_only() {
            bounds.log_end = self.partition.last_stable_offset(patience)?;
        }
        Ok(bounds)
    }

    fn record(&self, offset: Offset, patience: Patience) -> Result<Found> {
        // Not only behind the end: retention may have taken the record, or a cut and another append replaced it.
        self.partition.refresh()?;
        match self.partition.current_record(offset, patience)? {
            Found::Record(record) if self.committed_only() && !self.shows(&record.header, offset, patience)? => {
                Ok(Found::Absent(Absent::NotCommitted))
            }
            found => Ok(found),
        }
    }

    fn stored_batch(&self, offset: Offset, patience: Patience) -> Result<Result<Shared, Absent>> {
        match self.record(offset, patience)? {
            Found::Absent(absent) => Ok(Err(absent)),
            Found::Record(_) => Ok(self.partition.batch_at(offset, patience)?.map(|(batch, _)| batch.stored)),
        }
    }

    fn open_record(&self, offset: Offset) {
        if let Some(upkeep) = &self.upkeep {
            upkeep.held().open(offset);
        }
    }

    fn close_record(&self, offset: Offset) {
        if let Some(upkeep) = &self.upkeep {
            upkeep.held().close(offset);
        }
    }

    fn kept(&self, offset: Offset) -> Option<Kept> {
        self.upkeep.as_ref()?.held().kept(offset)
    }

    fn stored_at(&self, offset: Offset, patience: Patience) -> Result<Option<(String, u64)>> {
        Ok(self.partition.batch_at(offset, patience)?.ok().map(|(batch, file)| (file.to_string(), batch.position)))
    }

    fn first(&self, patience: Patience) -> Result<Option<Offset>> {
        let mut first = None;
        let start = self.bounds(patience)?.log_start;
        self.offsets(start, patience, &mut |offset| {
            first = Some(offset);
            false
        })?;
        Ok(first)
    }

    fn nth_last(&self, k: u64, patience: Patience) -> Result<Option<Offset>> {
        let bounds = self.bounds(patience)?;
        let mut left = k;
        let mut found = None;
        self.partition.walk_back(patience, &mut |batches, file| {
            for batch in batches.iter().rev() {
                if batch.header.last_offset < bounds.log_start {
                    return Ok(false);
                }
                if batch.header.base_offset >= bounds.log_end || !self.shows(&batch.header, batch.header.base_offset, patience)? {
                    continue;
                }
                if Local::dense(&batch.header) {
                    let first = batch.header.base_offset.max(bounds.log_start);
                    let last = batch.header.last_offset.min(bounds.log_end.previous());
                    let count = (last.delta_from(first) + 1).max(0) as u64;
                    if left > count {
                        left -= count;
                        continue;
                    }
                    found = last.checked_add(1 - left as i64);
                    return Ok(false);
                }
                let offsets = self.offsets_of(batch, file, bounds, patience)?;
                if left as usize > offsets.len() {
                    left -= offsets.len() as u64;
                    continue;
                }
                found = offsets.get(offsets.len() - left as usize).copied();
                return Ok(false);
            }
            Ok(true)
        })?;
        Ok(found)
    }

    fn offset_at(&self, time: TimestampMs, patience: Patience) -> Result<Option<Offset>> {
        self.bounds(patience)?;
        let mut failed = None;
        let found = self.partition.first_at(time, patience, &mut |header, record| match self.shows(header, record.offset, patience) {
            Ok(shown) => shown,
            Err(error) => {
                failed = Some(error);
                true
            }
        })?;
        failed.map_or(Ok(found), Err)
    }

    fn batches_with(&self, from: Offset, until: Offset, control: Control) -> Box<dyn Batches> {
        let start = self.partition.bounds().log_start;
        let walk = self.partition.walk(from.max(start), until, Look::Batches, Patience::MayBlock);
        Box::new(LocalBatches { partition: self.partition.clone(), committed_only: self.committed_only(), control, walk, held: None })
    }

    fn log_bytes(&self, from: Offset, until: Offset, most: u64, patience: Patience) -> Result<u64> {
        let mut walk = self.partition.walk(from, until, Look::Headers, patience);
        let mut bytes = 0;
        while let Some(item) = walk.next(&self.partition)? {
            bytes += match item {
                Item::Batch(batch, _) => u64::from(batch.header.size),
                Item::Damaged(_) => most,
            };
            if bytes > most {
                break;
            }
        }
        Ok(bytes)
    }

    fn offsets(&self, from: Offset, patience: Patience, sink: &mut dyn FnMut(Offset) -> bool) -> Result<()> {
        let bounds = self.bounds(patience)?;
        let from = from.max(bounds.log_start);
        let mut walk = self.partition.walk(from, bounds.log_end, Look::Headers, patience);
        while let Some(item) = walk.next(&self.partition)? {
            let Item::Batch(batch, file) = item else { continue };
            if !self.shows(&batch.header, batch.header.base_offset, patience)? {
                continue;
            }
            if Local::dense(&batch.header) {
                let last = batch.header.last_offset.min(bounds.log_end.previous()).get();
                for offset in batch.header.base_offset.max(from).get()..=last {
                    if !Offset::new(offset).is_some_and(&mut *sink) {
                        return Ok(());
                    }
                }
                continue;
            }
            for offset in self.offsets_of(&batch, &file, bounds, patience)? {
                if offset >= from && !sink(offset) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn time_spans(&self, patience: Patience) -> Result<Vec<(TimestampMs, TimestampMs)>> {
        self.partition.refresh()?;
        let layout = self.partition.layout_full();
        let mut spans = Vec::new();
        for (at, segment) in layout.segments.iter().enumerate() {
            let largest = self.partition.largest_time(&layout, at, patience)?;
            let until = layout.limit(at).unwrap_or(Offset::MAX);
            let mut walk = self.partition.walk(segment.base_offset(), until, Look::Headers, patience);
            if let Some(Item::Batch(batch, _)) = walk.next(&self.partition)? {
                let first =
                    if batch.header.attributes.has_delete_horizon() { batch.header.max_timestamp } else { batch.header.base_timestamp };
                if first.get() >= 0 && largest.get() >= 0 {
                    spans.push((first.min(largest), largest));
                }
            }
        }
        Ok(spans)
    }

    fn segments(&self, patience: Patience) -> Result<Vec<SegmentSpan>> {
        let bounds = self.bounds(patience)?;
        let layout = self.partition.layout_full();
        let spans = layout.segments.iter().enumerate().map(|(at, segment)| {
            let limit = layout.limit(at);
            let until = limit.unwrap_or(bounds.log_end).min(bounds.log_end).max(segment.base_offset());
            SegmentSpan { base: segment.base_offset(), until, active: limit.is_none() }
        });
        Ok(spans.collect())
    }

    fn readable(&self) -> u32 {
        self.partition.layout().readable
    }

    fn modified(&self, offset: Offset) -> TimestampMs {
        let layout = self.partition.layout();
        layout.floor(offset).and_then(|at| layout.segments.get(at)).map_or(TimestampMs::new(0), |s| s.mtime())
    }

    fn append(&self, records: &mut dyn Iterator<Item = NewRecord<'_>>, durable: bool, done: Done<Appended>) -> Result<()> {
        let committer = self.writing()?;
        let prepared = prepare(self.partition.config(), self.now(), records)?;
        committer.append(prepared, durable, done);
        Ok(())
    }

    fn sync(&self, done: Done<()>) {
        match &self.committer {
            Some(committer) => committer.sync(done),
            None => done(Ok(())),
        }
    }

    fn largest_value(&self) -> u64 {
        let config = self.partition.config();
        config.max_message_bytes.min(config.segment_bytes)
    }

    fn status(&self, patience: Patience) -> Result<Status> {
        status::of(self, patience)
    }

    fn settings(&self) -> Vec<InForce> {
        self.settings.in_force()
    }

    fn files(&self) -> Option<&Arc<dyn Directory>> {
        Some(self.partition.directory())
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }

    fn keys(&self) -> Option<&dyn Keys> {
        Some(self)
    }

    fn file_may_change(&self, name: &str) -> bool {
        let layout = self.partition.layout();
        match (names::parse(name), layout.segments.last()) {
            (Some((base, _)), Some(last)) => base >= last.base_offset(),
            _ => true,
        }
    }

    fn space(&self) -> Space {
        self.partition.directory().space().unwrap_or_default()
    }

    fn take_events(&self) -> Vec<String> {
        let mut events = std::mem::take(&mut *self.said.lock());
        events.extend(self.partition.take_strange());
        events.extend(self.committer.iter().flat_map(|c| c.take_said()));
        events.extend(self.upkeep.iter().flat_map(|u| u.take_events()));
        events
    }

    fn now(&self) -> TimestampMs {
        let clock: &Arc<dyn Clock> = self.partition.clock();
        clock.now()
    }

    fn close(&self) -> Result<()> {
        // Only the first close can vouch for the log.
        let put_back = std::mem::take(&mut *self.clean_mark.lock());
        let unlinked = self.upkeep.as_ref().map_or(Ok(()), |u| u.stop());
        let closed = self.committer().map_or(Ok(()), Committer::close).and(unlinked);
        if closed.is_ok()
            && let Ok(bounds) = self.bounds(Patience::MayBlock)
        {
            self.keys.save(bounds);
        }
        let closed = closed.and_then(|()| match &self.partition.parent {
            Some(parent) if put_back => access::put_clean_mark(&**parent),
            _ => Ok(()),
        });
        if let Some(locks) = &self.locks {
            locks.release_broker();
        }
        closed
    }
}

impl Drop for Local {
    /// The thread of the upkeep ends with the log that it serves.
    fn drop(&mut self) {
        if let Some(Err(error)) = self.upkeep.as_ref().map(|u| u.stop()) {
            log::error!("{}: {error}", self.partition.name());
        }
    }
}

/// Batches of a range of the local log.
#[derive(Debug)]
struct LocalBatches {
    partition: Arc<Partition>,
    committed_only: bool,
    control: Control,
    walk: Walk,
    /// A batch whose records were not readable at once.
    held: Option<(Batch, Arc<str>)>,
}

impl Batches for LocalBatches {
    fn next(&mut self, patience: Patience) -> Result<Option<Body>> {
        self.walk.set_patience(patience);
        if self.held.is_none()
            && !self.committed_only
            && let Some(body) = self.walk.next_plain(|header| !header.attributes.is_control())
        {
            return Ok(Some(body));
        }
        loop {
            let (batch, file) = match self.held.take() {
                Some(held) => held,
                None => match self.walk.next(&self.partition)? {
                    None => return Ok(None),
                    Some(Item::Damaged(corruption)) => return Err(Error::Corrupt(corruption)),
                    Some(Item::Batch(batch, file)) => (batch, file),
                },
            };
            if batch.header.magic >= 2 && batch.header.attributes.is_control() {
                // A marker belongs to no transaction that could hide it, but it may stand behind what is stable.
                let stable = || Ok::<_, Error>(batch.header.base_offset < self.partition.last_stable_offset(patience)?);
                if self.control == Control::Hide || (self.committed_only && !stable()?) {
                    continue;
                }
            } else if self.committed_only && !self.partition.is_committed(&batch.header, batch.header.base_offset, patience)? {
                continue;
            }
            // As the partition does it, but for the count of the bytes' owner, which is given on.
            if !batch.header.is_compressed() {
                return Ok(Some(Body { header: batch.header, bytes: batch.stored }));
            }
            match self.partition.body(&batch, &file, patience) {
                Ok(body) => return Ok(Some(body)),
                Err(Error::WouldBlock) => {
                    self.held = Some((batch, file));
                    return Err(Error::WouldBlock);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
