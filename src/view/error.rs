//! Why the tree has no answer: a kind, a sentence for a person, and the place in the files where there is one.
//!
//! A kind is a word of the tree. What number a kernel or an exit status makes of it is decided above.

use crate::error::Error as SourceError;
use crate::types::{Offset, Position};
use crate::view::path::Refusal;
use std::fmt;
use std::io;

/// What sort of refusal or fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is nothing of that name.
    NotFound,
    /// The name or the bytes cannot be understood.
    Invalid,
    /// The tree does not allow it.
    NotPermitted,
    /// Nothing can be written here.
    ReadOnly,
    /// The bytes on disk are not what they should be, or the disk failed.
    Damaged,
    /// A record is larger than a setting allows.
    TooLarge,
    /// The disk is full.
    NoSpace,
    /// It is no directory.
    NotDirectory,
    /// There is no such attribute.
    NoAttribute,
    /// There is no such thing here at all.
    NotSupported,
    /// Ask again from a thread that may wait.
    WouldBlock,
    /// The log is closed.
    Closed,
    /// The file system below does not allow it.
    Access,
    /// Something of that name is there already.
    Exists,
    /// The name is longer than a name can be.
    NameTooLong,
    /// It would lead from one part of the tree to another.
    CrossDevice,
}

impl ErrorKind {
    /// All of them, in the order of their declaration.
    pub const ALL: [ErrorKind; 16] = [
        ErrorKind::NotFound,
        ErrorKind::Invalid,
        ErrorKind::NotPermitted,
        ErrorKind::ReadOnly,
        ErrorKind::Damaged,
        ErrorKind::TooLarge,
        ErrorKind::NoSpace,
        ErrorKind::NotDirectory,
        ErrorKind::NoAttribute,
        ErrorKind::NotSupported,
        ErrorKind::WouldBlock,
        ErrorKind::Closed,
        ErrorKind::Access,
        ErrorKind::Exists,
        ErrorKind::NameTooLong,
        ErrorKind::CrossDevice,
    ];

    /// The name that a person knows it by.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "ENOENT",
            ErrorKind::Invalid => "EINVAL",
            ErrorKind::NotPermitted => "EPERM",
            ErrorKind::ReadOnly => "EROFS",
            ErrorKind::Damaged => "EIO",
            ErrorKind::TooLarge => "EMSGSIZE",
            ErrorKind::NoSpace => "ENOSPC",
            ErrorKind::NotDirectory => "ENOTDIR",
            ErrorKind::NoAttribute => "ENODATA",
            ErrorKind::NotSupported => "ENOTSUP",
            ErrorKind::WouldBlock => "EAGAIN",
            ErrorKind::Closed => "ESHUTDOWN",
            ErrorKind::Access => "EACCES",
            ErrorKind::Exists => "EEXIST",
            ErrorKind::NameTooLong => "ENAMETOOLONG",
            ErrorKind::CrossDevice => "EXDEV",
        }
    }
}

/// A place in a file of the partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The file's name.
    pub file: String,
    /// The byte in it, where one is known.
    pub position: Option<Position>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    reason: String,
    place: Option<Place>,
}

impl Error {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, reason: impl Into<String>) -> Error {
        Error { kind, reason: reason.into(), place: None }
    }

    /// There is nothing of that name, and why.
    pub fn not_found(reason: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, reason)
    }

    /// What sort it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// In a sentence.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Where in the files.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// The same error with other words for its reason.
    pub(crate) fn explained(mut self, words: impl FnOnce(&str) -> String) -> Error {
        self.reason = words(&self.reason);
        self
    }

    pub(crate) fn at(mut self, file: &str, position: Option<Position>) -> Error {
        self.place = Some(Place { file: file.to_owned(), position });
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.place {
            Some(Place { file, position: Some(position) }) => write!(f, " ({file} at position {position})"),
            Some(Place { file, position: None }) => write!(f, " ({file})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let kind = match refusal {
            Refusal::NotFound(_) => ErrorKind::NotFound,
            Refusal::Invalid(_) => ErrorKind::Invalid,
        };
        Error::new(kind, refusal.reason())
    }
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Error {
        match error {
            SourceError::WouldBlock => Error::new(ErrorKind::WouldBlock, "not in memory"),
            SourceError::Corrupt(corruption) => {
                let lost = match corruption.offsets {
                    Some((first, last)) if first == last => format!("; offset {first} cannot be read"),
                    Some((first, last)) if last == Offset::MAX => format!("; offsets from {first} on cannot be read"),
                    Some((first, last)) => format!("; offsets {first} to {last} cannot be read"),
                    None => String::new(),
                };
                let reason = format!("damaged: {}{lost}", corruption.fault);
                Error::new(ErrorKind::Damaged, reason).at(&corruption.file, Some(corruption.fault.position))
            }
            SourceError::DecodedTooLarge { ref file, position, .. } => {
                Error::new(ErrorKind::Damaged, error.to_string()).at(file, Some(position))
            }
            SourceError::Truncated { ref file } => Error::new(ErrorKind::Damaged, error.to_string()).at(file, None),
            SourceError::Io { ref source, ref file, .. } => {
                let kind = match source.kind() {
                    io::ErrorKind::NotFound => ErrorKind::NotFound,
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero => ErrorKind::NoSpace,
                    io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
                    io::ErrorKind::PermissionDenied => ErrorKind::Access,
                    _ => ErrorKind::Damaged,
                };
                let file = file.clone();
                Error::new(kind, error.to_string()).at(&file, None)
            }
            SourceError::OutOfRange { .. } | SourceError::TopicName { .. } | SourceError::NotCompacted { .. } => {
                Error::new(ErrorKind::Invalid, error.to_string())
            }
            SourceError::RecordTooLarge { .. } => Error::new(ErrorKind::TooLarge, error.to_string()),
            SourceError::OffsetsExhausted(_) => Error::new(ErrorKind::NoSpace, error.to_string()),
            SourceError::ReadOnly { .. } => Error::new(ErrorKind::ReadOnly, error.to_string()),
            SourceError::Closed => Error::new(ErrorKind::Closed, error.to_string()),
            SourceError::Poisoned { .. }
            | SourceError::Locked { .. }
            | SourceError::NotAPartition { .. }
            | SourceError::HalfCompacted { .. }
            | SourceError::Settings { .. } => Error::new(ErrorKind::Damaged, error.to_string()),
        }
    }
}
