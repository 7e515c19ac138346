//! What the tree asks of whoever holds the records: one small trait. The local engine is its implementation; a live cluster can be another.
//!
//! Every question is answered at once, or with [`Error::WouldBlock`] where the caller said that it cannot wait; the same question is then asked
//! again from a thread that can. Records leave a source as owned handles on shared bytes. What a source cannot have (files, stored batches,
//! appends) is a capability that it does not declare.

pub mod access;
pub mod data_dir;
pub mod held;
pub mod keys;
pub mod local;
pub mod maintenance;
mod status;
pub mod upkeep;

pub use crate::error::{Corruption, Error, Result};
pub use crate::log::batch::BatchHeader;
pub use crate::log::bytes::Shared;
pub use crate::log::check::{Report, Severity};
pub use crate::log::commit::{Appended, Done};
pub use crate::log::compaction::Outcome as Compaction;
pub use crate::log::counters::Counters;
pub use crate::log::decoded::CacheCounts;
pub use crate::log::encode::NewRecord;
pub use crate::log::handle::{Body, Record};
pub use crate::log::keys::{KeySink, Latest};
pub use crate::log::outline::{Outline, Piece};
pub use crate::log::partition::Bounds;
pub use crate::log::record::{ControlType, control_type};
pub use crate::log::retention::Plan as RetentionPlan;
pub use crate::log::seek::{Absent, Found};
pub use crate::log::settings::{InForce, Origin};
pub use crate::log::transactions::OpenTransaction;
pub use crate::log::verified::batches_known_and_computed;

pub use held::Kept;
pub use keys::Keys;
pub use maintenance::{Maintenance, Storage};

use crate::io::{Directory, Space};
use crate::types::{Offset, Patience, TimestampMs, TopicPartition};
use std::fmt;
use std::sync::Arc;

/// Whether control batches, such as the markers of transactions, are among the batches of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// They are passed over.
    #[default]
    Hide,
    /// They are handed out like others.
    Show,
}

/// Batches of a range, in order; hidden ones (what the isolation hides, and mostly control batches) are passed over.
pub trait Batches: Send + fmt::Debug {
    /// The next batch with its records readable; `None` at the end. After an error of kind [`Error::WouldBlock`] the same step can be tried
    /// again; after damage the next call goes on behind it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged stretch; what the source says.
    fn next(&mut self, patience: Patience) -> Result<Option<Body>>;
}

/// What an operator wants to know of a partition.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The first offset that may be read.
    pub log_start_offset: i64,
    /// The offset that the next record gets.
    pub log_end_offset: i64,
    /// The first offset of the oldest open transaction, else the log end offset.
    pub last_stable_offset: i64,
    /// The number of segments.
    pub segments: u64,
    /// The bytes of all `.log` files.
    pub bytes: u64,
    /// The time of the first record; `None` where it has none.
    pub first_timestamp: Option<TimestampMs>,
    /// The time of the last record; `None` where it has none.
    pub last_timestamp: Option<TimestampMs>,
    /// Transactions without a marker.
    pub open_transactions: Vec<OpenTransaction>,
    /// The latest leader epoch; `None` where nothing tells it.
    pub leader_epoch: Option<i32>,
    /// What an append will do first: file, position, bytes and a sentence.
    pub recovery: Vec<RecoveryStep>,
    /// What was done before the first append of this mount, in sentences.
    pub recovered: Vec<String>,
    /// What retention would take now; `None` for nothing.
    pub retention: Option<Outlook>,
    /// What deserves a look, in sentences.
    pub warnings: Vec<String>,
}

/// What retention would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// So many segments, from the oldest on.
    pub segments: u64,
    /// The bytes of their logs.
    pub bytes: u64,
    /// The log start offset would then be at least this.
    pub log_start: Offset,
    /// Whether it will be done without a command.
    pub automatic: bool,
}

/// A segment by its offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSpan {
    /// Its base offset.
    pub base: Offset,
    /// The offset behind its last.
    pub until: Offset,
    /// Whether it is the last one, which may grow.
    pub active: bool,
}

/// A thing that recovery will do.
#[derive(Clone, Debug)]
pub struct RecoveryStep {
    /// The file.
    pub file: String,
    /// Where in it.
    pub position: u64,
    /// How many bytes are concerned.
    pub bytes: u64,
    /// In words.
    pub what: String,
}

/// Who holds the records of one partition.
pub trait Source: Send + Sync + fmt::Debug {
    /// Topic and number.
    fn name(&self) -> &TopicPartition;

    /// Why nothing can be appended; `None` where it can.
    fn read_only(&self) -> Option<&str>;

    /// Whether only this process changes the log, so that a record that was seen stays as it is.
    fn is_stable(&self) -> bool;

    /// The offsets now. For readers of committed records the end is the last stable offset.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]; what the source says.
    fn bounds(&self, patience: Patience) -> Result<Bounds>;

    /// The record at an offset, or why there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged offset; [`Error::WouldBlock`]; what the source says.
    fn record(&self, offset: Offset, patience: Patience) -> Result<Found>;

    /// The stored bytes of the batch that holds the record at an offset (magic 0 and 1: the outer entry); a capability.
    ///
    /// # Errors
    /// As [`Source::record`].
    fn stored_batch(&self, offset: Offset, patience: Patience) -> Result<Result<Shared, Absent>>;

    /// Somebody opens the record at an offset: until it is closed, its bytes stay for [`Source::kept`], whatever is taken from the log. Others than
    /// us who take it do not ask.
    fn open_record(&self, _offset: Offset) {}

    /// Somebody who has opened it closes it.
    fn close_record(&self, _offset: Offset) {}

    /// A record that went while it was open.
    fn kept(&self, _offset: Offset) -> Option<Kept> {
        None
    }

    /// The file and the position of the batch that holds the record at an offset; a capability.
    ///
    /// # Errors
    /// As [`Source::record`].
    fn stored_at(&self, offset: Offset, patience: Patience) -> Result<Option<(String, u64)>>;

    /// The offset of the first record that is shown.
    ///
    /// # Errors
    /// As [`Source::bounds`].
    fn first(&self, patience: Patience) -> Result<Option<Offset>>;

    /// The offset of the k-th last record that is shown, k from 1; `None` where there are fewer.
    ///
    /// # Errors
    /// As [`Source::bounds`].
    fn nth_last(&self, k: u64, patience: Patience) -> Result<Option<Offset>>;

    /// The offset of the first record that is shown at or after a time.
    ///
    /// # Errors
    /// As [`Source::bounds`].
    fn offset_at(&self, time: TimestampMs, patience: Patience) -> Result<Option<Offset>>;

    /// The batches that hold offsets from `from` to below `until`, control batches passed over.
    fn batches(&self, from: Offset, until: Offset) -> Box<dyn Batches> {
        self.batches_with(from, until, Control::Hide)
    }

    /// The batches that hold offsets from `from` to below `until`.
    fn batches_with(&self, from: Offset, until: Offset, control: Control) -> Box<dyn Batches>;

    /// About how many bytes of log a range covers, counted until `most` is exceeded.
    ///
    /// # Errors
    /// As [`Source::bounds`].
    fn log_bytes(&self, from: Offset, until: Offset, most: u64, patience: Patience) -> Result<u64>;

    /// The offsets from `from` on that have a record that is shown, as far as headers tell, in order, until `sink` says no.
    ///
    /// # Errors
    /// As [`Source::bounds`].
    fn offsets(&self, from: Offset, patience: Patience, sink: &mut dyn FnMut(Offset) -> bool) -> Result<()>;

    /// The spans of time that stretches of the log cover, in log order: the first and the largest time of each.
    ///
    /// # Errors
    /// As [`Source::bounds`].
    fn time_spans(&self, patience: Patience) -> Result<Vec<(TimestampMs, TimestampMs)>>;

    /// The segments in order; for a source without segments, the whole log as one.
    ///
    /// # Errors
    /// As [`Source::bounds`].
    fn segments(&self, patience: Patience) -> Result<Vec<SegmentSpan>>;

    /// The read bits that every file with records grants: nobody gets to see through the tree what its files keep from them.
    fn readable(&self) -> u32 {
        0o444
    }

    /// When the part of the log that holds an offset was last written to.
    fn modified(&self, offset: Offset) -> TimestampMs;

    /// Appends records, in order, all or none. `durable` asks for an fsync before `done` is called, which may be on this thread.
    ///
    /// # Errors
    /// What is refused before anything is written; `done` is then not called.
    fn append(&self, records: &mut dyn Iterator<Item = NewRecord<'_>>, durable: bool, done: Done<Appended>) -> Result<()>;

    /// Makes everything appended so far durable.
    fn sync(&self, done: Done<()>);

    /// The largest value that a record without key and headers may have, in bytes.
    fn largest_value(&self) -> u64;

    /// What an operator wants to know.
    ///
    /// # Errors
    /// As [`Source::bounds`].
    fn status(&self, patience: Patience) -> Result<Status>;

    /// The settings in force, and where each value comes from.
    fn settings(&self) -> Vec<InForce>;

    /// The real files; a capability.
    fn files(&self) -> Option<&Arc<dyn Directory>>;

    /// What can be done to the log beyond reading and appending, and how it is made; a capability.
    fn maintenance(&self) -> Option<&dyn Maintenance>;

    /// The records by their keys; a capability.
    fn keys(&self) -> Option<&dyn Keys>;

    /// Whether a file of [`Source::files`] may still change.
    fn file_may_change(&self, name: &str) -> bool;

    /// Room on the file system that the log lies on.
    fn space(&self) -> Space;

    /// What happened since the last call that belongs into the list of faults, in words.
    fn take_events(&self) -> Vec<String>;

    /// The time.
    fn now(&self) -> TimestampMs;

    /// Ends appending and closes the log well.
    ///
    /// # Errors
    /// What the system says.
    fn close(&self) -> Result<()>;
}
