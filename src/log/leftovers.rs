//! What an interrupted cleaning or deletion left: finished or rolled back as Kafka would at its start (format reference 8, steps 1 to 3).
//!
//! It says what to do with which name, in groups that are made durable one after the other: wherever it is interrupted, the rest of the plan is what
//! is planned the next time. Who carries it out (recovery before the first append, and the explicit repair) holds the locks of a writer.
//! Files that it does not know stay, those that keep cut bytes among them.

use crate::error::{Error, Result};
use crate::io::Directory;
use crate::log::check::files::Layout;
use crate::log::listing::Listing;
use crate::log::names;
use crate::types::Offset;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::io::ErrorKind;

/// The files of a segment that go when a cleaning replaces it.
const REPLACED: [&str; 5] = [names::LOG, names::INDEX, names::TIME_INDEX, names::TXN_INDEX, names::SNAPSHOT];
/// The files that mean nothing without the `.log`.
const INDEXES: [&str; 3] = [names::INDEX, names::TIME_INDEX, names::TXN_INDEX];

/// What becomes of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileStep {
    /// The file goes; it may be gone already.
    Remove {
        /// Its name.
        file: String,
        /// Why it may.
        why: String,
    },
    /// The file of a finished cleaning gets its final name.
    Rename {
        /// Its name.
        file: String,
        /// Its new name.
        to: String,
    },
}

/// As an order.
impl fmt::Display for FileStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileStep::Remove { file, why } => write!(f, "remove {}: {why}", file.escape_debug()),
            FileStep::Rename { file, to } => write!(f, "rename {file} to {to}: a finished cleaning takes the place of what it replaces"),
        }
    }
}

impl FileStep {
    fn remove(file: &str, why: &str) -> FileStep {
        FileStep::Remove { file: file.to_owned(), why: why.to_owned() }
    }

    /// What was done, in words.
    pub(crate) fn told(&self) -> String {
        match self {
            FileStep::Remove { file, why } => format!("{}: removed; {why}", file.escape_debug()),
            FileStep::Rename { file, to } => format!("{file}: renamed to {to}; a finished cleaning takes the place of what it replaced"),
        }
    }

    /// Does it; it is durable when the directory is synced.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn run(&self, dir: &dyn Directory) -> Result<()> {
        match self {
            FileStep::Remove { file, .. } => match dir.remove(OsStr::new(file)) {
                Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", file, e)),
                _ => Ok(()),
            },
            FileStep::Rename { file, to } => dir.rename(OsStr::new(file), OsStr::new(to)).map_err(|e| Error::io("rename", file, e)),
        }
    }
}

/// The names of a directory that follow the grammar of a segment's files.
#[derive(Debug)]
pub(crate) struct Names(BTreeSet<String>);

impl Names {
    /// Lists a directory.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn of(dir: &dyn Directory) -> Result<Names> {
        let entries = dir.list().map_err(|e| Error::io("list", dir.path().display(), e))?;
        Ok(Names(entries.into_iter().filter_map(|e| e.name.into_string().ok()).collect()))
    }

    /// The files of cleanings that were not complete.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &String> {
        self.parsed().filter(|(.., suffix)| suffix.ends_with(names::CLEANED)).map(|(name, ..)| name)
    }

    fn parsed(&self) -> impl Iterator<Item = (&String, Offset, &str)> {
        self.0.iter().filter_map(|name| names::parse(name).map(|(base, suffix)| (name, base, suffix)))
    }
}

/// Plans the end of a cleaning or deletion that was interrupted. Each group is to be durable before the next begins.
pub(crate) fn cleaning(names_there: &Names, found: &Listing, layout: &Layout) -> Vec<Vec<FileStep>> {
    let parsed = || names_there.parsed();
    // A replacement that was not complete goes before the mark of that goes: else it would be taken for a complete one.
    let incomplete_from = parsed().filter(|(.., suffix)| suffix.ends_with(names::CLEANED)).map(|(_, base, _)| base).min();
    let is_stale = |base: Offset, suffix: &str| suffix.ends_with(names::SWAP) && incomplete_from.is_some_and(|from| base >= from);
    let stale = parsed().filter(|(_, base, suffix)| is_stale(*base, suffix));
    let mut groups: Vec<Vec<FileStep>> = Vec::new();
    groups.push(stale.map(|(name, ..)| FileStep::remove(name, "it belongs to a cleaning that had not finished")).collect());
    groups.push(names_there.unfinished().map(|name| FileStep::remove(name, "a cleaning that had not finished")).collect());
    let deleted = parsed().filter(|(.., suffix)| suffix.ends_with(names::DELETED));
    groups.push(deleted.map(|(name, ..)| FileStep::remove(name, "it waited to be removed")).collect());

    let replaced = parsed().filter(|(_, base, suffix)| REPLACED.contains(suffix) && found.is_replaced(*base, layout.range));
    groups.push(replaced.map(|(name, ..)| FileStep::remove(name, "a finished cleaning replaces it")).collect());
    // In rising order, each log first: what is left of an interrupted renaming lies behind all that was renamed, and replaces nothing of it.
    let mut swaps: Vec<(Offset, bool, &String)> = parsed()
        .filter(|(_, base, suffix)| suffix.ends_with(names::SWAP) && !is_stale(*base, suffix))
        .map(|(name, base, suffix)| (base, suffix != format!("{}{}", names::LOG, names::SWAP), name))
        .collect();
    swaps.sort();
    for (_, _, name) in swaps {
        if let Some(to) = name.strip_suffix(names::SWAP) {
            groups.push(vec![FileStep::Rename { file: name.clone(), to: to.to_owned() }]);
        }
    }
    groups
}

/// Plans what becomes of indexes whose log is gone and of files whose writer stopped before they were whole.
pub(crate) fn orphans(names_there: &Names, found: &Listing, layout: &Layout) -> Vec<Vec<FileStep>> {
    let has_log = |base: Offset| layout.logs.iter().any(|l| l.base_offset == base);
    let orphans = names_there
        .parsed()
        .filter(|(_, base, suffix)| INDEXES.contains(suffix) && !has_log(*base) && !found.is_replaced(*base, layout.range))
        .map(|(name, ..)| FileStep::remove(name, "an index without its .log"));
    let epochs_tmp = format!("{}.tmp", names::LEADER_EPOCHS);
    let unwritten = names_there
        .0
        .iter()
        .filter(|n| **n == epochs_tmp || names::parse(n).is_some_and(|(_, suffix)| suffix.ends_with(".tmp")))
        .map(|name| FileStep::remove(name, "its writer stopped before it was whole"));
    vec![orphans.collect(), unwritten.collect()]
}
