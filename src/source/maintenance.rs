//! What is done to a log beyond reading and appending: rolling, deleting from the front, retention, compaction, checking; and how it is stored, in numbers.

use crate::error::Result;
use crate::log::check::{self, Report};
use crate::log::commit::Committer;
use crate::log::decoded::CacheCounts;
use crate::log::index::{OFFSET_ENTRY_LEN, TIME_ENTRY_LEN};
use crate::log::outline::Outline;
use crate::log::{compaction, names, retention};
use crate::source::local::Local;
use crate::source::upkeep::Upkeep;
use crate::source::{Compaction, RetentionPlan};
use crate::types::{Offset, Patience};
use std::ffi::OsStr;
use std::sync::Arc;

/// How the log is stored, in numbers. Segments whose indexes are not open count by the length of their files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// The bytes of all `.log` files.
    pub log_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Segments whose files are open.
    pub open_segments: u64,
    /// Entries of all offset indexes.
    pub offset_index_entries: u64,
    /// Entries of all time indexes.
    pub time_index_entries: u64,
    /// How often this process has synced the active segment; one sync serves all who wait for it.
    pub syncs: u64,
    /// Decompressed batches that are kept for neighbouring look-ups.
    pub decoded: CacheCounts,
}

/// What a source with files of its own can do beyond reading and appending. Each call may wait for the disk.
pub trait Maintenance {
    /// Ends the active segment and begins the next one; `false` where it is empty and stays.
    ///
    /// # Errors
    /// [`crate::source::Error::ReadOnly`]; [`crate::source::Error::Poisoned`]; what the system says.
    fn roll(&self) -> Result<bool>;

    /// Raises the log start offset, durably: records before it do not exist any more. Returns the log start offset, which an offset below it
    /// leaves as it is.
    ///
    /// # Errors
    /// [`crate::source::Error::OutOfRange`] for an offset beyond the log end; [`crate::source::Error::ReadOnly`]; what the system says.
    fn delete_before(&self, offset: Offset) -> Result<Offset>;

    /// What retention would take now, and why; nothing is done.
    ///
    /// # Errors
    /// What the system says.
    fn retention(&self) -> Result<RetentionPlan>;

    /// Takes the segments that retention names, durably, and returns what went. Who has them open keeps them.
    ///
    /// # Errors
    /// [`crate::source::Error::ReadOnly`]; [`crate::source::Error::Poisoned`]; what the system says.
    fn retain(&self) -> Result<RetentionPlan>;

    /// What compaction would come to now; nothing is done.
    ///
    /// # Errors
    /// As [`Maintenance::compact`].
    fn measure_compaction(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Compaction>;

    /// Compacts the log by key, where that is due; the outcome says whether it was. Who has a file open keeps it. `progress` is told the bytes done and
    /// all of them.
    ///
    /// # Errors
    /// [`crate::source::Error::NotCompacted`] with what to do; damage; [`crate::source::Error::ReadOnly`]; [`crate::source::Error::Poisoned`]; what the
    /// system says.
    fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Compaction>;

    /// Looks at every batch, record and index entry. `progress` is told the bytes done and all of them.
    ///
    /// # Errors
    /// What the system says; damage is no error but a finding.
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report>;

    /// The shape of the log, in at most so many pieces, from few headers.
    ///
    /// # Errors
    /// What the system says.
    fn outline(&self, pieces_most: usize) -> Result<Outline>;

    /// How the log is stored.
    ///
    /// # Errors
    /// What the system says.
    fn storage(&self) -> Result<Storage>;
}

impl Local {
    fn upkeeping(&self) -> Result<&Arc<Upkeep>> {
        self.upkeep().ok_or_else(|| self.refusal())
    }
}

impl Maintenance for Local {
    fn roll(&self) -> Result<bool> {
        self.writing()?.roll()
    }

    fn delete_before(&self, offset: Offset) -> Result<Offset> {
        self.upkeeping()?.delete_before(offset)
    }

    fn retention(&self) -> Result<RetentionPlan> {
        retention::plan(self.partition(), Patience::MayBlock)
    }

    fn retain(&self) -> Result<RetentionPlan> {
        self.upkeeping()?.retain()
    }

    fn measure_compaction(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Compaction> {
        self.partition().refresh()?;
        compaction::run(self.partition(), compaction::Mode::DryRun, &mut |done, all| {
            progress(done, all);
            true
        })
    }

    fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Compaction> {
        self.upkeeping()?.compact(&mut |done, all| {
            progress(done, all);
            true
        })
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
        let partition = self.partition();
        check::check(partition.directory(), partition.parent.as_ref(), partition.name(), progress)
    }

    fn outline(&self, pieces_most: usize) -> Result<Outline> {
        let partition = self.partition();
        partition.refresh()?;
        partition.outline(pieces_most)
    }

    fn storage(&self) -> Result<Storage> {
        let partition = self.partition();
        partition.refresh()?;
        let layout = partition.layout_full();
        let syncs = self.committer().map_or(0, Committer::syncs);
        let mut storage =
            Storage { segments: layout.segments.len() as u64, syncs, decoded: partition.decoded.counts(), ..Storage::default() };
        let file_len = |base, suffix| partition.directory().metadata(OsStr::new(&names::of(base, suffix))).map_or(0, |m| m.len);
        for (at, segment) in layout.segments.iter().enumerate() {
            storage.log_bytes += segment.end();
            let is_open = segment.opened().is_some();
            storage.open_segments += u64::from(is_open);
            // The files of the last segment are longer than their entries.
            let is_last = at + 1 == layout.segments.len();
            let (offset_bytes, time_bytes) = if is_open || is_last {
                let open = partition.open_segment(&layout, at, Patience::MayBlock)?;
                (open.index.entries().len() as u64, open.timeindex.entries().len() as u64)
            } else {
                (file_len(segment.base_offset(), names::INDEX), file_len(segment.base_offset(), names::TIME_INDEX))
            };
            storage.offset_index_entries += offset_bytes / OFFSET_ENTRY_LEN as u64;
            storage.time_index_entries += time_bytes / TIME_ENTRY_LEN as u64;
        }
        Ok(storage)
    }
}
