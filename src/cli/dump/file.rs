//! The files that a dump reads: what they are by their names, and their bytes.

use crate::error::{Error, Result};
use crate::io::os::OsFileSystem;
use crate::io::{FileSystem, Map, Open, read_up_to};
use crate::log::names;
use crate::types::{Offset, TopicPartition};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Record batches of a segment.
    Log,
    /// Record batches of a snapshot of `__cluster_metadata`.
    Checkpoint,
    /// An offset index.
    Index,
    /// A time index.
    TimeIndex,
    /// Aborted transactions.
    TxnIndex,
    /// The state of producers.
    Snapshot,
    /// The leader epochs of a partition.
    LeaderEpochs,
    /// An offset for each partition of a data directory.
    Offsets,
    /// Anything else.
    Unknown,
}

/// The suffixes that a cleaning or a deletion puts behind a name.
const BEHIND: [&str; 3] = [names::DELETED, names::SWAP, names::CLEANED];

impl Kind {
    /// The kind of a file by its name.
    pub(super) fn of(path: &Path) -> Kind {
        let name = name_of(path);
        let (name, _) = split_behind(&name);
        if name == names::LEADER_EPOCHS {
            return Kind::LeaderEpochs;
        }
        if name.ends_with("-offset-checkpoint") {
            return Kind::Offsets;
        }
        match name.rfind('.').and_then(|at| name.get(at..)) {
            Some(names::LOG) => Kind::Log,
            Some(".checkpoint") => Kind::Checkpoint,
            Some(names::INDEX) => Kind::Index,
            Some(names::TIME_INDEX) => Kind::TimeIndex,
            Some(names::TXN_INDEX) => Kind::TxnIndex,
            Some(names::SNAPSHOT) => Kind::Snapshot,
            _ => Kind::Unknown,
        }
    }
}

/// The last part of a path; other bytes than UTF-8 are replaced.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A name and the suffix that a cleaning or a deletion put behind it.
fn split_behind(name: &str) -> (&str, &str) {
    BEHIND.iter().find_map(|behind| name.strip_suffix(behind).map(|name| (name, *behind))).unwrap_or((name, ""))
}

/// The topic and partition that the name of the file's directory gives; another name is the topic, partition 0.
pub(super) fn partition_of(path: &Path) -> TopicPartition {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let directory = absolute.parent().map(name_of).unwrap_or_default();
    TopicPartition::from_directory_name(&directory).unwrap_or(TopicPartition { topic: directory, partition: 0 })
}

/// The bytes of a file.
#[derive(Debug)]
enum Bytes {
    Mapped(Arc<Map>),
    /// Of a file that cannot be mapped.
    Read(Vec<u8>),
}

/// How much is brought into memory at a time, ahead of the walk.
const POPULATE_BYTES: u64 = 4 << 20;

/// A file that is open, as long as it was then.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    name: String,
    bytes: Bytes,
}

impl Source {
    /// Opens a file; links are followed.
    pub(super) fn open(path: &Path) -> Result<Source> {
        let failed = |action| move |error| Error::io(action, path.display(), error);
        let real = fs::canonicalize(path).map_err(failed("open"))?;
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(Error::io("open", path.display(), io::ErrorKind::IsADirectory.into()));
        };
        let directory = OsFileSystem.open_dir(parent).map_err(failed("open"))?;
        let file = directory.open(name, Open::Read).map_err(failed("open"))?;
        let len = file.metadata().map_err(failed("read"))?.len;
        let bytes = match file.map(len) {
            Ok(map) => Bytes::Mapped(map),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                let len = usize::try_from(len).map_err(|_| Error::io("read", path.display(), io::ErrorKind::FileTooLarge.into()))?;
                Bytes::Read(read_up_to(&*file, 0, len).map_err(failed("read"))?)
            }
            Err(error) => return Err(Error::io("map", path.display(), error)),
        };
        Ok(Source { path: path.to_owned(), name: name_of(path), bytes })
    }

    /// The path as it was given.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The name without folders.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// All bytes. After the last read of them [`Source::still_there`] tells whether they can be used.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map.slice(0..map.len()).unwrap_or_default(),
            Bytes::Read(bytes) => bytes,
        }
    }

    /// Brings the bytes from a position on into memory; gives the position up to which that was done.
    pub(super) fn populate(&self, from: u64) -> u64 {
        match &self.bytes {
            Bytes::Mapped(map) => {
                let to = from.saturating_add(POPULATE_BYTES).min(map.len());
                map.populate(from..to);
                if to < map.len() { to } else { u64::MAX }
            }
            Bytes::Read(_) => u64::MAX,
        }
    }

    /// An error where the file lost bytes under the reader.
    pub(super) fn still_there(&self) -> Result<()> {
        match &self.bytes {
            Bytes::Mapped(map) if map.is_broken() => Err(Error::Truncated { file: self.path.display().to_string() }),
            _ => Ok(()),
        }
    }

    /// The base offset that the name begins with; `None` for another name.
    pub(super) fn base_offset(&self) -> Option<Offset> {
        let digits = self.name.split('.').next().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        Offset::new(digits.parse().ok()?)
    }

    /// The file of the same segment with another suffix; `None` where it cannot be read.
    pub(super) fn sibling(&self, suffix: &str) -> Option<Source> {
        let (_, behind) = split_behind(&self.name);
        let base = self.name.split('.').next()?;
        Source::open(&self.path.with_file_name(format!("{base}{suffix}{behind}"))).ok()
    }

    /// Whether a segment with a greater base offset lies beside this one, so that nothing is appended to this one any more.
    pub(super) fn is_sealed(&self) -> bool {
        let Some(base) = self.base_offset() else { return false };
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(entries) = fs::read_dir(parent) else { return false };
        let found = |name: &str| names::parse(name).is_some_and(|(other, suffix)| suffix == names::LOG && other > base);
        entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(found))
    }
}
