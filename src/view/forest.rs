//! The tree over a data directory: topics, their partitions, what is kept apart, and what stands beside them at the root.
//!
//! ```text
//! M/<topic>/<n>/...                  the tree of a partition
//! M/<topic>/by-time/T..U.jsonl       the topic's partitions merged by time
//! M/.other/<folder>/...              folders ending in -delete, -future, -stray
//! M/+files/                          the directory's own plain files
//! M/errors, status, status.json, metrics, README, and +errors, ... which always stand (`+` is in no topic name)
//! ```

use crate::error::Error as SourceError;
use crate::io::{Directory, File, Kind, Open};
use crate::source::Source;
use crate::source::data_dir::DataDir;
use crate::source::local::Local;
use crate::types::{Patience, TimestampMs};
use crate::view::error::{Error, ErrorKind};
use crate::view::journal::Journal;
use crate::view::merge::Merge;
use crate::view::metrics::{RequestCounters, Sample, exposition};
use crate::view::node::{Attr, FileKind, Lifetime, Merged, Node, Place, Sink, TextFile, Time};
use crate::view::options::Options;
use crate::view::overview::Pictures;
use crate::view::partition::View;
use crate::view::path::{ByTime, Lines};
use crate::view::stream::Reader;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Error>;

/// What stands beside the topics; each also with a `+` before it.
const TEXTS: [(&str, TextFile); 5] = [
    ("errors", TextFile::Errors),
    ("status", TextFile::Status),
    ("status.json", TextFile::StatusJson),
    ("metrics", TextFile::Metrics),
    ("README", TextFile::Readme),
];

/// The tree over a data directory.
#[derive(Debug)]
pub struct Forest {
    data: Arc<DataDir>,
    options: Options,
    journal: Arc<Journal>,
    requests: Arc<RequestCounters>,
    pictures: Arc<Pictures>,
    slots: Mutex<Slots>,
}

/// Folders by number, in the order in which they were first looked at.
#[derive(Debug, Default)]
struct Slots {
    folders: Vec<String>,
    by_folder: HashMap<String, u32>,
    views: HashMap<u32, (Arc<Local>, Arc<View>)>,
}

impl Forest {
    /// The tree over a data directory.
    pub fn new(data: Arc<DataDir>, options: Options) -> Forest {
        Forest { data, options, journal: Arc::default(), requests: Arc::default(), pictures: Arc::default(), slots: Mutex::default() }
    }

    /// What was asked of the tree, to be counted by whoever serves it.
    pub fn requests(&self) -> &Arc<RequestCounters> {
        &self.requests
    }

    /// The data directory itself.
    pub fn directory(&self) -> &Arc<dyn Directory> {
        self.data.directory()
    }

    fn now(&self) -> TimestampMs {
        self.data.clock().now()
    }

    pub(crate) fn note_event(&self, sentence: &str) {
        self.journal.note_event(self.now(), sentence);
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.data.close().map_err(Error::from)
    }

    fn slot(&self, folder: &str) -> u32 {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.by_folder.get(folder) {
            return *slot;
        }
        slots.folders.push(folder.to_owned());
        let slot = slots.folders.len() as u32;
        slots.by_folder.insert(folder.to_owned(), slot);
        slot
    }

    /// The partition in a folder; opening it has to wait for the disk.
    fn partition(&self, folder: &str, patience: Patience) -> Result<Arc<Local>> {
        if patience == Patience::AtOnce && !self.data.is_open(folder) {
            return Err(Error::new(ErrorKind::WouldBlock, "not opened yet"));
        }
        Ok(self.data.partition(folder)?)
    }

    /// The tree of a partition.
    pub(crate) fn view(&self, slot: u32, patience: Patience) -> Result<Arc<View>> {
        self.data.contents()?;
        let folder = (slot as usize).checked_sub(1).and_then(|i| self.slots.lock().folders.get(i).cloned());
        let folder = folder.ok_or_else(|| Error::not_found("there is no such partition"))?;
        let local = self.partition(&folder, patience)?;
        let mut slots = self.slots.lock();
        if let Some((known, view)) = slots.views.get(&slot)
            && Arc::ptr_eq(known, &local)
        {
            return Ok(view.clone());
        }
        let view = Arc::new(View::part(local.clone(), self.options.clone(), self.pictures.clone()));
        slots.views.insert(slot, (local, view.clone()));
        Ok(view)
    }

    pub(crate) fn lookup(&self, dir: &Node, name: &[u8], patience: Patience) -> Result<Place> {
        let shown = String::from_utf8_lossy(name);
        self.find(dir, name, patience).inspect_err(|error| {
            if error.kind() != ErrorKind::WouldBlock {
                self.journal.note(self.now(), &format!("{}{shown}", prefix(dir)), error);
            }
        })
    }

    fn find(&self, dir: &Node, name: &[u8], patience: Patience) -> Result<Place> {
        let none = || Error::not_found("there is no such file; see README");
        let here = |node| Ok(Place { slot: 0, node });
        let name = std::str::from_utf8(name).map_err(|_| none())?;
        let contents = self.data.contents()?;
        match dir {
            Node::Root => {
                if contents.topics.contains_key(name) {
                    return here(Node::Topic(name.to_owned()));
                }
                match name {
                    ".other" if !contents.apart.is_empty() => return here(Node::Apart),
                    "+files" => return here(Node::Segments),
                    _ => {}
                }
                let plain = name.strip_prefix('+').unwrap_or(name);
                TEXTS.iter().find(|(n, _)| *n == plain).map(|(_, text)| Place { slot: 0, node: Node::Text(*text) }).ok_or_else(none)
            }
            Node::Topic(topic) => {
                if name == "by-time" {
                    return here(Node::TopicTimes(topic.clone()));
                }
                let number: i32 = name.parse().map_err(|_| none())?;
                let there = number.to_string() == name && contents.topics.get(topic).is_some_and(|n| n.contains(&number));
                if !there {
                    return Err(Error::not_found(format!("topic {topic} has no partition {name} here")));
                }
                Ok(Place { slot: self.slot(&format!("{topic}-{number}")), node: Node::Root })
            }
            Node::Apart if contents.apart.contains(name) => Ok(Place { slot: self.slot(name), node: Node::Root }),
            Node::Segments if contents.files.contains(name) => here(Node::SegmentFile(name.into())),
            Node::TopicTimes(topic) => match ByTime::parse(name.as_bytes())? {
                ByTime::Range { from, to, lines: Lines::Json } => {
                    let at =
                        |time: Option<crate::view::time::TimeText>| time.map(|t| t.resolve(&self.options.zone, self.now())).transpose();
                    here(Node::Merged(Merged { topic: topic.clone(), from: at(from)?, until: at(to)? }))
                }
                _ => Err(Error::not_found("a topic's times are ranges of envelopes, T..U.jsonl; a partition has its own by-time")),
            },
            _ => {
                let _ = patience;
                Err(none())
            }
        }
    }

    pub(crate) fn attr(&self, node: &Node, patience: Patience) -> Result<Attr> {
        let now = Time::from_ms(self.now());
        let directory = || {
            let mtime = self.directory().own_metadata().map_or(now, |m| Time::from_ns(m.mtime_ns));
            Attr { kind: FileKind::Directory, size: 0, mtime, mode: 0o555, lifetime: Lifetime::Moving }
        };
        let file = |size, mtime, mode, lifetime| Attr { kind: FileKind::File, size, mtime, mode, lifetime };
        match node {
            Node::Root | Node::Segments | Node::Apart | Node::Topic(_) | Node::TopicTimes(_) => Ok(directory()),
            Node::Text(_) => Ok(file(0, now, 0o444, Lifetime::Moving)),
            Node::Merged(merged) => {
                // Only what the files of all its partitions let everybody see.
                let readable = self.sources(&merged.topic, patience)?.iter().fold(0o444, |bits, source| bits & source.readable());
                Ok(file(0, now, readable, Lifetime::Moving))
            }
            Node::SegmentFile(name) => {
                let metadata = self.directory().metadata(name).map_err(|e| SourceError::io("look at", name.to_string_lossy(), e))?;
                Ok(file(metadata.len, Time::from_ns(metadata.mtime_ns), 0o444 & metadata.mode, Lifetime::Growing))
            }
            _ => Err(Error::not_found("there is no such file")),
        }
    }

    pub(crate) fn list(&self, dir: &Node, cursor: u64, sink: &mut Sink<'_>) -> Result<()> {
        let contents = self.data.contents()?;
        let mut names: Vec<(String, FileKind)> = Vec::new();
        match dir {
            Node::Root => {
                names.extend(contents.topics.keys().map(|t| (t.clone(), FileKind::Directory)));
                if !contents.apart.is_empty() && !contents.topics.contains_key(".other") {
                    names.push((".other".to_owned(), FileKind::Directory));
                }
                names.push(("+files".to_owned(), FileKind::Directory));
                for (name, _) in TEXTS {
                    if !contents.topics.contains_key(name) {
                        names.push((name.to_owned(), FileKind::File));
                    }
                }
            }
            Node::Topic(topic) => {
                names.extend(contents.topics.get(topic).into_iter().flatten().map(|n| (n.to_string(), FileKind::Directory)));
                names.push(("by-time".to_owned(), FileKind::Directory));
            }
            Node::Apart => names.extend(contents.apart.iter().map(|n| (n.clone(), FileKind::Directory))),
            Node::Segments => names.extend(contents.files.iter().map(|n| (n.clone(), FileKind::File))),
            _ => {}
        }
        for (i, (name, kind)) in names.iter().enumerate().skip(cursor as usize) {
            if !sink(name.as_bytes(), *kind, None, i as u64 + 1) {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn open(&self, node: &Node, patience: Patience) -> Result<Reader> {
        match node {
            // Each partition is looked at, file by file.
            Node::Text(TextFile::Metrics) if patience == Patience::AtOnce => Err(Error::new(ErrorKind::WouldBlock, "not gathered yet")),
            Node::Text(text) => Ok(Reader::text(self.text(*text)?.into_bytes())),
            Node::Merged(_) if patience == Patience::AtOnce => Err(Error::new(ErrorKind::WouldBlock, "partitions have to be opened")),
            Node::Merged(merged) => Ok(Reader::merged(Merge::new(self.sources(&merged.topic, patience)?, merged.clone())?)),
            _ => Err(Error::new(ErrorKind::Invalid, "it is not read in this way")),
        }
    }

    /// The partitions of a topic, opened.
    fn sources(&self, topic: &str, patience: Patience) -> Result<Vec<Arc<dyn Source>>> {
        let contents = self.data.contents()?;
        let mut sources: Vec<Arc<dyn Source>> = Vec::new();
        for number in contents.topics.get(topic).into_iter().flatten() {
            sources.push(self.partition(&format!("{topic}-{number}"), patience)?);
        }
        Ok(sources)
    }

    pub(crate) fn file(&self, name: &OsStr) -> Result<Arc<dyn File>> {
        self.directory().open(name, Open::Read).map_err(|e| SourceError::io("open", name.to_string_lossy(), e).into())
    }

    fn text(&self, file: TextFile) -> Result<String> {
        for event in self.data.take_events() {
            self.note_event(&event);
        }
        let contents = self.data.contents()?;
        let status = json!({
            "data_directory": self.directory().path().display().to_string(),
            "mode": if self.data.read_only().is_some() { "ro" } else { "rw" },
            "mode_reason": self.data.read_only(),
            "topics": contents.topics.len(),
            "partitions": contents.topics.values().map(|n| n.len()).sum::<usize>(),
            "apart": contents.apart.iter().collect::<Vec<_>>(),
            "opened_partitions": self.data.open_partitions().len(),
            "files": contents.files.iter().filter(|n| self.directory().metadata(OsStr::new(n.as_str())).is_ok_and(|m| m.kind == Kind::File)).count(),
        });
        Ok(match file {
            TextFile::StatusJson => format!("{status}\n"),
            TextFile::Status => {
                let mut text = String::new();
                for (name, value) in status.as_object().into_iter().flatten() {
                    let shown = match value {
                        serde_json::Value::Null => "-".to_owned(),
                        serde_json::Value::String(s) => s.clone(),
                        other => other.to_string(),
                    };
                    let _ = writeln!(text, "{name}: {shown}");
                }
                text
            }
            TextFile::Errors => self.journal.text(&self.options.zone),
            TextFile::Metrics => {
                // Only those that were looked at: gathering opens nothing.
                let mut views: Vec<(u32, Arc<View>)> =
                    self.slots.lock().views.iter().map(|(slot, (_, view))| (*slot, view.clone())).collect();
                views.sort_by_key(|(slot, _)| *slot);
                // A partition that went has nothing to tell.
                let samples: Vec<Sample> = views.iter().filter_map(|(_, view)| view.sample().ok()).collect();
                exposition(Some(&self.requests), &samples)
            }
            TextFile::Check | TextFile::Config | TextFile::Readme | TextFile::OverviewSvg | TextFile::OverviewHtml => format!(
                "This is a data directory. <topic>/<n>/ is the tree of a partition; its README has the grammar.\n\n\
                 <topic>/<n>/              by-offset, by-time, segments, decoded, append, status, ctl, ...\n\
                 <topic>/by-time/T..U.jsonl  all partitions of the topic, merged by time (T.. and ..U, too)\n\
                 .other/                   folders that are being deleted, moved, or that belong to no broker\n\
                 +files/                   the plain files of the directory\n\
                 errors, status, status.json, metrics (also +errors, ... where a topic has such a name)\n\n\
                 Times without a zone are in {}.\n",
                self.options.zone.name()
            ),
        })
    }
}

/// The path of a directory, for `errors`.
fn prefix(dir: &Node) -> String {
    match dir {
        Node::Topic(topic) => format!("{topic}/"),
        Node::TopicTimes(topic) => format!("{topic}/by-time/"),
        Node::Apart => ".other/".to_owned(),
        Node::Segments => "+files/".to_owned(),
        _ => String::new(),
    }
}
