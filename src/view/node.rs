//! The things a tree consists of, and what `stat` says of them. No inode numbers, no kernel types.

use crate::types::{Offset, TimestampMs};
use crate::view::lines::Framing;
use crate::view::path::{Face, KeyFace, Lines};
use std::ffi::OsString;
use std::sync::Arc;

/// A thing in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The root.
    Root,
    /// `by-offset/`.
    ByOffset,
    /// `by-time/`.
    ByTime,
    /// `by-key/`.
    ByKey,
    /// `segments/`.
    Segments,
    /// `decoded/`.
    DecodedDir,
    /// `decoded/<base>.txt` and `.jsonl`: a whole segment as values or envelopes.
    Decoded(Offset, Lines),
    /// `follow` and `follow.jsonl`.
    Follow(Lines),
    /// `append`, `append.jsonl`, `append.bin`.
    Append(Framing),
    /// `ctl`: takes commands.
    Ctl,
    /// A record of `by-offset/`.
    Record(Offset, Face),
    /// A key of `by-key/`: the last record that has it.
    Key(Arc<[u8]>, KeyFace),
    /// A symbolic link, by its target.
    Link(String),
    /// A range of records, from a snapshot taken at its look-up.
    Range(Span),
    /// A real file, by its name.
    SegmentFile(OsString),
    /// A text about the mount or the log.
    Text(TextFile),
    /// A topic of a data directory.
    Topic(String),
    /// `.other/` of a data directory.
    Apart,
    /// `by-time/` of a topic.
    TopicTimes(String),
    /// The partitions of a topic merged by time.
    Merged(Merged),
}

/// A range of times over a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Merged {
    /// The topic.
    pub topic: String,
    /// From this time on; `None`: from the log starts.
    pub from: Option<TimestampMs>,
    /// Up to the first record at or after this time; `None`: to the log ends.
    pub until: Option<TimestampMs>,
}

/// A range of offsets, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first offset.
    pub from: Offset,
    /// The offset behind the last.
    pub until: Offset,
    /// What each record becomes.
    pub lines: Lines,
}

/// The texts of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextFile {
    /// `status`.
    Status,
    /// `status.json`.
    StatusJson,
    /// `config`.
    Config,
    /// `metrics`.
    Metrics,
    /// `check`: reading runs the consistency check.
    Check,
    /// `errors`.
    Errors,
    /// `overview.svg`: the picture.
    OverviewSvg,
    /// `overview.html`: the picture and its facts.
    OverviewHtml,
    /// `README`.
    Readme,
}

/// What kind of thing a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

/// How long what is known of a thing stays true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as the mount.
    Fixed,
    /// A record in a log that only we change: until it is deleted by retention.
    Stable,
    /// A record in a directory that others may write to.
    Foreign,
    /// It may change at any moment.
    Moving,
    /// Each look-up is a file of its own, which is new.
    Fresh,
    /// A file that does not change any more.
    Sealed,
    /// A file that grows.
    Growing,
}

/// A time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds behind them.
    pub nanos: u32,
}

impl Time {
    /// A time from milliseconds.
    pub fn from_ms(ms: TimestampMs) -> Time {
        Time { seconds: ms.get().div_euclid(1000), nanos: ms.get().rem_euclid(1000) as u32 * 1_000_000 }
    }

    /// A time from nanoseconds.
    pub fn from_ns(ns: i64) -> Time {
        Time { seconds: ns.div_euclid(1_000_000_000), nanos: ns.rem_euclid(1_000_000_000) as u32 }
    }
}

/// What `stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// What it is.
    pub kind: FileKind,
    /// Its size in bytes; 0 where it is not known before reading.
    pub size: u64,
    /// When it changed.
    pub mtime: Time,
    /// Its permission bits.
    pub mode: u32,
    /// How long this stays true.
    pub lifetime: Lifetime,
}

/// Takes an entry of a listing: its name, its kind, its node where that is known without looking, and the cursor behind it; says whether to go on.
pub type Sink<'s> = dyn FnMut(&[u8], FileKind, Option<&Node>, u64) -> bool + 's;

/// A node and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// 0: the tree's own root and what stands beside the partitions; from 1: a partition of a data directory, numbered as they are looked at.
    pub slot: u32,
    /// The node.
    pub node: Node,
}

impl Place {
    /// The root of the mount.
    pub const ROOT: Place = Place { slot: 0, node: Node::Root };
}
