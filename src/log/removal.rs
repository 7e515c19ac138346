//! Files that leave a log: they get the name that Kafka gives them, and are unlinked once `file.delete.delay.ms` has passed.
//!
//! Under `<name>.deleted` a file does not exist for whoever opens the log (format reference 10), while readers who found its segment a moment ago
//! can still open it. Who stops before the time is up leaves the files, or unlinks them at once; opening for writing removes what is left.

use crate::error::{Error, Result};
use crate::io::Directory;
use crate::io::sync::Mutex;
use crate::log::names;
use crate::types::{Offset, TimestampMs};
use std::ffi::OsStr;
use std::io::ErrorKind;

/// The files of a segment that go with it. The log goes first: without it the others mean nothing.
const OF_SEGMENT: [&str; 5] = [names::LOG, names::INDEX, names::TIME_INDEX, names::TXN_INDEX, names::SNAPSHOT];

/// Renamed files, and when each may be unlinked.
#[derive(Debug, Default)]
pub struct Waste {
    waiting: Mutex<Vec<(TimestampMs, String)>>,
}

impl Waste {
    /// Renames the files of a segment, those that there are, with or without the state of producers at its base offset. The names are durable once
    /// the directory is synced.
    ///
    /// # Errors
    /// What the system says; files that were renamed before stay so.
    pub(crate) fn take_segment(&self, dir: &dyn Directory, base: Offset, with_snapshot: bool, due: TimestampMs) -> Result<()> {
        let suffixes = OF_SEGMENT.iter().filter(|suffix| with_snapshot || **suffix != names::SNAPSHOT);
        suffixes.into_iter().try_for_each(|suffix| self.take(dir, &names::of(base, suffix), due))
    }

    fn take(&self, dir: &dyn Directory, name: &str, due: TimestampMs) -> Result<()> {
        let to = format!("{name}{}", names::DELETED);
        match dir.rename(OsStr::new(name), OsStr::new(&to)) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Error::io("rename", name, e)),
        }
        let mut waiting = self.waiting.lock();
        // What had this name before is gone.
        waiting.retain(|(_, known)| *known != to);
        waiting.push((due, to));
        Ok(())
    }

    /// Unlinks the files whose time has come; returns how many they were.
    ///
    /// # Errors
    /// What the system says; the file concerned stays in the list.
    pub fn unlink_due(&self, dir: &dyn Directory, now: TimestampMs) -> Result<usize> {
        self.unlink(dir, |due| due <= now)
    }

    /// Unlinks all of them now.
    ///
    /// # Errors
    /// As [`Waste::unlink_due`].
    pub fn unlink_all(&self, dir: &dyn Directory) -> Result<usize> {
        self.unlink(dir, |_| true)
    }

    fn unlink(&self, dir: &dyn Directory, is_due: impl Fn(TimestampMs) -> bool) -> Result<usize> {
        let mut waiting = self.waiting.lock();
        let mut gone = 0;
        while let Some(at) = waiting.iter().position(|(due, _)| is_due(*due)) {
            match dir.remove(OsStr::new(&waiting[at].1)) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("remove", &waiting[at].1, e)),
                _ => gone += 1,
            }
            waiting.swap_remove(at);
        }
        Ok(gone)
    }

    /// When the next file may be unlinked; `None` where none waits.
    pub fn next_due(&self) -> Option<TimestampMs> {
        self.waiting.lock().iter().map(|(due, _)| *due).min()
    }
}
