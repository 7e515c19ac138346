//! What can go wrong in the engine, with all that an operator needs: file, position, offsets, expected, found, what to do next.
//!
//! This is not errno: only the FUSE adapter turns an error into a number, in one exhaustive match.

use crate::types::{Offset, Position};
use std::borrow::Cow;
use std::fmt;
use std::io;

/// A place in a file whose bytes are not what the format asks for. The codec finds it; who knows the file makes a [`Corruption`] of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where the wrong bytes stand, counted from the start of the bytes that were looked at.
    pub position: Position,
    /// What should stand there.
    pub expected: Cow<'static, str>,
    /// What stands there.
    pub found: Cow<'static, str>,
}

impl Fault {
    /// A fault at a place.
    pub fn new(position: u64, expected: impl Into<Cow<'static, str>>, found: impl Into<Cow<'static, str>>) -> Fault {
        Fault { position: Position::new(position), expected: expected.into(), found: found.into() }
    }

    /// The same fault, told at another place.
    #[must_use]
    pub fn at(mut self, position: Position) -> Fault {
        self.position = position;
        self
    }

    /// The same fault in bytes that begin `by` bytes earlier.
    #[must_use]
    pub fn moved(mut self, by: u64) -> Fault {
        self.position = self.position.plus(by);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

/// A fault in a file that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file's name in its partition directory.
    pub file: String,
    /// The place of the batch or entry concerned, and what is wrong there.
    pub fault: Fault,
    /// The first and the last offset that cannot be read because of it, where they are known.
    pub offsets: Option<(Offset, Offset)>,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at position {}: {}", self.file, self.fault.position, self.fault)?;
        if let Some((first, last)) = self.offsets {
            write!(f, "; offsets {first} to {last} are unreadable")?;
        }
        Ok(())
    }
}

/// Why the engine cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation on a file.
    #[error("{action} {file}: {source}")]
    Io {
        /// What was tried, as a verb: `read`, `sync`.
        action: &'static str,
        /// The file or directory.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that are not what the format asks for.
    #[error("damaged: {0}")]
    Corrupt(Corruption),
    /// A file of settings that cannot be taken.
    #[error("{}: {reason}", line.map_or_else(|| file.clone(), |line| format!("{file}, line {line}")))]
    Settings {
        /// The file.
        file: String,
        /// The line, from 1; `None` where it is the file as a whole.
        line: Option<usize>,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A compressed batch that is larger than the bound once decoded.
    #[error("{file} at position {position}: the batch is larger than {limit} bytes once decoded; raise batch.decoded.max.bytes to read it")]
    DecodedTooLarge {
        /// The segment file.
        file: String,
        /// Where the batch begins.
        position: Position,
        /// The bound in force, in bytes.
        limit: u64,
    },
    /// A file that was there a moment ago lost bytes under its map.
    #[error("{file} became shorter while it was read; read again")]
    Truncated {
        /// The file.
        file: String,
    },
    /// A record that no batch may hold.
    #[error("a record of {bytes} bytes is larger than {setting}={limit}; split it or raise the setting")]
    RecordTooLarge {
        /// The size of its one-record batch, uncompressed, in bytes.
        bytes: u64,
        /// The setting that it exceeds.
        setting: &'static str,
        /// The setting's value, in bytes.
        limit: u64,
    },
    /// The offsets of the partition are used up.
    #[error("the partition has no offsets left behind {0}")]
    OffsetsExhausted(Offset),
    /// An fsync failed: what the kernel holds can no longer be trusted.
    #[error("appends are refused since an fsync failed ({reason}); the log stays readable; unmount, look at the disk, mount again")]
    Poisoned {
        /// What the system said at that fsync.
        reason: String,
    },
    /// The partition was opened for reading only.
    #[error("opened read-only: {reason}")]
    ReadOnly {
        /// Why.
        reason: String,
    },
    /// The log was closed; no more can be appended.
    #[error("the log is closed")]
    Closed,
    /// Somebody else holds the partition.
    #[error("{path} is in use: {holder}; mount it with -o ro to read beside it")]
    Locked {
        /// The directory or lock file.
        path: String,
        /// Who holds it.
        holder: String,
    },
    /// An offset that the log has not come to.
    #[error("offset {offset} lies behind the log end offset {log_end}")]
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The offset that the next record gets.
        log_end: Offset,
    },
    /// A log that is not to be compacted.
    #[error("not compacted: {reason}")]
    NotCompacted {
        /// Why, and what to do.
        reason: String,
    },
    /// A compaction that failed while it exchanged files.
    #[error(
        "the exchange of a compacted segment was interrupted ({reason}); no record is lost; unmount and mount again, or run offsetfs recover, to finish it"
    )]
    HalfCompacted {
        /// What the system said.
        reason: String,
    },
    /// A name that a checkpoint file cannot hold.
    #[error("the topic name `{topic}` has a blank in it, which separates the fields of a checkpoint; give the directory another name")]
    TopicName {
        /// The name, control characters escaped.
        topic: String,
    },
    /// The source is not what was asked for.
    #[error("{path}: {reason}")]
    NotAPartition {
        /// The source.
        path: String,
        /// What it is instead, and what to do.
        reason: String,
    },
    /// An answer would have to wait for the disk; ask again from a thread that may wait.
    #[error("the answer is not in memory")]
    WouldBlock,
}

impl Error {
    /// An [`Error::Io`].
    pub fn io(action: &'static str, file: impl fmt::Display, source: io::Error) -> Error {
        Error::Io { action, file: file.to_string(), source }
    }

    /// An [`Error::Corrupt`] without known offsets.
    pub fn corrupt(file: impl Into<String>, fault: Fault) -> Error {
        Error::Corrupt(Corruption { file: file.into(), fault, offsets: None })
    }
}

/// A result of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;
