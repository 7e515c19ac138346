//! A data directory: a folder of `<topic>-<n>` folders, as a broker keeps it. Which partitions it has, and each as a source once it is looked at.
//!
//! Nothing is opened before it is asked for. Folders that are being deleted, moved or that a broker does not own (`-delete`, `-future`,
//! `-stray`) are kept apart with their whole names; what fits no rule is passed over and told once.

use crate::error::{Error, Result};
use crate::io::{Clock, Directory, FileSystem, Kind};
use crate::log::listing;
use crate::log::segment::OpenSegments;
use crate::log::settings::Settings;
use crate::source::Source;
use crate::source::access::{self, Access, Wish};
use crate::source::local::{Local, OPEN_SEGMENTS_MOST};
use crate::types::TopicPartition;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The directory is listed again when this has passed since the last listing.
const LIST_INTERVAL: Duration = Duration::from_millis(50);
/// Suffixes of folders that are no partition any more, or not yet.
const APART: [&str; 3] = ["-delete", "-future", "-stray"];

/// What the directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The partitions of each topic.
    pub topics: BTreeMap<String, BTreeSet<i32>>,
    /// Folders that are kept apart, by their whole names.
    pub apart: BTreeSet<String>,
    /// Plain files.
    pub files: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct State {
    listed: Option<Instant>,
    contents: Arc<Contents>,
    open: HashMap<String, Arc<Local>>,
    told: HashSet<String>,
    events: Vec<String>,
}

/// A data directory.
#[derive(Debug)]
pub struct DataDir {
    dir: Arc<dyn Directory>,
    parent: Option<Arc<dyn Directory>>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    access: Access,
    opened: Arc<OpenSegments>,
    /// Held while a partition is opened, so that two who ask for it do not meet at its lock.
    opening: Mutex<()>,
    state: Mutex<State>,
}

impl DataDir {
    /// Whether a directory is one: it holds folders that are named like partitions, and is no partition itself.
    pub fn is_data_dir(fs: &dyn FileSystem, path: &Path) -> bool {
        let Ok(dir) = fs.open_dir(path) else { return false };
        let Ok(entries) = dir.list() else { return false };
        let names = |kind| entries.iter().filter(move |e| e.kind == kind).filter_map(|e| e.name.to_str());
        let holds_logs = names(Kind::File).any(|n| crate::log::names::parse(n).is_some_and(|(_, suffix)| suffix == crate::log::names::LOG));
        !holds_logs && names(Kind::Directory).any(|n| TopicPartition::from_directory_name(n).is_some())
    }

    /// Opens a data directory.
    ///
    /// # Errors
    /// [`Error::Locked`]; what the system says.
    pub fn open(fs: &Arc<dyn FileSystem>, path: &Path, wish: Wish, settings: Settings) -> Result<DataDir> {
        let dir = fs.open_dir(path).map_err(|e| Error::io("open", path.display(), e))?;
        let access = access::decide(&dir, Some(&dir), wish)?;
        let opened = Arc::new(OpenSegments::new(OPEN_SEGMENTS_MOST));
        let parent = access::parent_of(&**fs, path);
        let data = DataDir { dir, parent, clock: fs.clock(), settings, access, opened, opening: Mutex::new(()), state: Mutex::default() };
        if data.read_only().is_none() {
            data.open_maintained()?;
        }
        Ok(data)
    }

    /// Opens every partition whose settings ask for maintenance, which does not wait until somebody looks. One that cannot be opened is told.
    fn open_maintained(&self) -> Result<()> {
        let contents = self.contents()?;
        let partitions = contents.topics.iter().flat_map(|(topic, numbers)| numbers.iter().map(move |n| format!("{topic}-{n}")));
        for folder in partitions {
            let opened =
                self.is_maintained(&folder).and_then(|maintained| if maintained { self.partition(&folder).map(|_| ()) } else { Ok(()) });
            if let Err(error) = opened {
                self.state.lock().events.push(format!("{folder}: no maintenance: {error}"));
            }
        }
        Ok(())
    }

    fn is_maintained(&self, folder: &str) -> Result<bool> {
        let dir = self.dir.open_dir(OsStr::new(folder)).map_err(|e| Error::io("open", folder, e))?;
        let mut settings = self.settings.clone();
        settings.take_topic(&*dir)?;
        Ok(settings.config().maintenance)
    }

    /// Why nothing can be appended; `None` where it can.
    pub fn read_only(&self) -> Option<&str> {
        match &self.access {
            Access::ReadOnly(reason) => Some(reason),
            Access::Writable(_) => None,
        }
    }

    /// The directory itself.
    pub fn directory(&self) -> &Arc<dyn Directory> {
        &self.dir
    }

    /// The directory around it.
    pub fn parent(&self) -> Option<&Arc<dyn Directory>> {
        self.parent.as_ref()
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The settings for every partition; each takes what its own `topic.properties` says under them.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it holds now, at most a moment old.
    ///
    /// # Errors
    /// What the system says.
    pub fn contents(&self) -> Result<Arc<Contents>> {
        let mut state = self.state.lock();
        if state.listed.is_some_and(|l| l.elapsed() < LIST_INTERVAL) {
            return Ok(state.contents.clone());
        }
        let entries = self.dir.list().map_err(|e| Error::io("list", self.dir.path().display(), e))?;
        let mut contents = Contents::default();
        for entry in entries {
            let strange = match (entry.kind, entry.name.to_str()) {
                (Kind::File, Some(name)) => {
                    contents.files.insert(name.to_owned());
                    continue;
                }
                (Kind::Directory, Some(name)) if APART.iter().any(|s| name.ends_with(s)) => {
                    contents.apart.insert(name.to_owned());
                    continue;
                }
                (Kind::Directory, Some(name)) => match TopicPartition::from_directory_name(name) {
                    // The tree's own names begin so, and no topic's does.
                    Some(partition) if !partition.topic.starts_with('+') => {
                        contents.topics.entry(partition.topic).or_default().insert(partition.partition);
                        continue;
                    }
                    _ => format!("{name}: a folder that is named like no partition; it is left out"),
                },
                (_, name) => format!("{}: neither a folder nor a plain file; it is left out", name.unwrap_or("a name that is no text")),
            };
            if state.told.insert(strange.clone()) {
                state.events.push(strange);
            }
        }
        state.listed = Some(Instant::now());
        state.contents = Arc::new(contents);
        let there = state.contents.clone();
        let is_there = |name: &str| match TopicPartition::from_directory_name(name) {
            Some(p) if !there.apart.contains(name) => there.topics.get(&p.topic).is_some_and(|n| n.contains(&p.partition)),
            _ => there.apart.contains(name),
        };
        // A partition that went is closed, so that one of its name that comes later is another.
        let gone: Vec<String> = state.open.keys().filter(|n| !is_there(n)).cloned().collect();
        for name in gone {
            state.open.remove(&name);
        }
        Ok(there)
    }

    /// The partition in a folder, by the folder's name; opened now if it was not.
    ///
    /// # Errors
    /// [`Error::NotAPartition`] for a name that leads to none; [`Error::Locked`]; what the system says.
    pub fn partition(&self, folder: &str) -> Result<Arc<Local>> {
        let known = || self.state.lock().open.get(folder).cloned();
        if let Some(open) = known() {
            return Ok(open);
        }
        let _opening = self.opening.lock();
        if let Some(open) = known() {
            return Ok(open);
        }
        let dir = self.dir.open_dir(OsStr::new(folder)).map_err(|e| Error::io("open", folder, e))?;
        let apart = APART.iter().any(|s| folder.ends_with(s));
        let name = TopicPartition::from_directory_name(folder).filter(|_| !apart);
        let name = name.unwrap_or(TopicPartition { topic: folder.to_owned(), partition: 0 });
        let found = listing::list(&*dir)?;
        let access = match &self.access {
            // Any folder may be called `word-1`: a log is not begun between somebody's files.
            Access::Writable(_) if !found.is_partition && !found.is_empty => {
                Access::ReadOnly("it holds files but no .log, as no partition does; remove them, or write elsewhere".to_owned())
            }
            Access::Writable(locks) if !apart => access::within(&dir, locks)?,
            Access::Writable(_) => Access::ReadOnly("it is being deleted or moved".to_owned()),
            Access::ReadOnly(reason) => Access::ReadOnly(reason.clone()),
        };
        let local =
            Local::with_access(dir, Some(self.dir.clone()), name, self.settings.clone(), self.clock.clone(), self.opened.clone(), access)?;
        let local = Arc::new(local);
        self.state.lock().open.insert(folder.to_owned(), local.clone());
        Ok(local)
    }

    /// Whether the partition in a folder is open.
    pub fn is_open(&self, folder: &str) -> bool {
        self.state.lock().open.contains_key(folder)
    }

    /// The partitions that are open.
    pub fn open_partitions(&self) -> Vec<Arc<Local>> {
        self.state.lock().open.values().cloned().collect()
    }

    /// What happened since the last call, in words.
    pub fn take_events(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().events)
    }

    /// Closes every partition well.
    ///
    /// # Errors
    /// The first failure; the others are closed all the same.
    pub fn close(&self) -> Result<()> {
        let mut result = Ok(());
        for local in self.open_partitions() {
            let closed = local.close();
            if result.is_ok() {
                result = closed;
            }
        }
        if let Access::Writable(locks) = &self.access {
            locks.release_broker();
        }
        result
    }
}
