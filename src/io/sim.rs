//! A disk in memory, for tests: it fails at a chosen operation, and a crash keeps any subset of what was not synced.
//!
//! Every file has a live image, which readers, writers and maps see (anonymous memory behind a descriptor, so maps are the real
//! thing), and a durable one. What lies between them is a list of changes in order: each write, each [`IndexMap::put`](super::IndexMap::put), each
//! change of the length. [`File::sync_data`](super::File::sync_data) makes the changes of that file durable, and not its name; [`Directory::sync`] makes
//! the names of that directory durable, and not the files' bytes. [`SimDisk::crash`] gives a new disk with the durable images and
//! a chosen part of the changes:
//!
//! - bytes survive whole, not at all, torn at one sector boundary, or as any subset of their sectors (of a long write: of its
//!   pages), and later ones without earlier ones; a write that lengthens its file may leave zeros;
//! - what was written behind a cut does not survive without the cut;
//! - the changes of a directory survive up to a chosen one, or each for itself ([`SimDisk::reorder_names`]);
//! - what a failed sync should have written may be lost, however many later syncs succeed.
//!
//! Not modelled: tears inside a sector, permission bits, times other than a file's mtime, and disk blocks (a store into a
//! place that was never allocated works as long as the file is long enough).

mod handles;
mod image;
mod state;
#[cfg(test)]
mod tests;

use super::sync::Mutex;
use super::{Clock, Directory, FileSystem};
use crate::types::TimestampMs;
use handles::SimDirectory;
use state::State;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What goes wrong at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with EIO and changes nothing, except that a sync leaves the changes it should have written uncertain for good.
    Io,
    /// It fails with ENOSPC and changes nothing. Only operations that take room on the disk are struck.
    NoSpace,
    /// Half of the bytes are written, and the next operation that takes room fails with ENOSPC. Only writes are struck.
    ShortWrite,
    /// The machine stops in the middle of it: what it changes may survive, and everything after it fails with EIO.
    Crash,
}

/// The simulated disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

/// What all handles of a disk share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    clock: Arc<SimClock>,
}

impl SimDisk {
    /// A disk with an empty root directory, its clock at 1700000000000 ms.
    pub fn new() -> SimDisk {
        SimDisk::of(State::new(), TimestampMs::new(1_700_000_000_000))
    }

    fn of(state: State, now: TimestampMs) -> SimDisk {
        let clock = Arc::new(SimClock { now_ms: AtomicI64::new(now.get()) });
        SimDisk { shared: Arc::new(Shared { state: Mutex::new(state), clock }) }
    }

    /// The disk as the engine sees it. Paths begin at the root directory, with a slash or without.
    pub fn filesystem(&self) -> Arc<dyn FileSystem> {
        Arc::new(self.clone())
    }

    /// The clock of the disk; it stands still unless it is set.
    pub fn clock(&self) -> Arc<SimClock> {
        Arc::clone(&self.shared.clock)
    }

    /// Lets the `n`-th operation from now fail, 1 being the next; where the fault cannot strike that one, the first after it that
    /// it can. Replaces a fault that has not struck yet. Everything that can fail is an operation, reads too; a
    /// [`put`](super::IndexMap::put) is none.
    pub fn fail_at(&self, n: u64, fault: Fault) {
        self.shared.state.lock().fail_at(n, fault);
    }

    /// How many operations were asked for until now.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations()
    }

    /// Whether the changes of a directory survive a crash each for itself, instead of up to a chosen one. Not so at first.
    pub fn reorder_names(&self, reorder: bool) {
        self.shared.state.lock().reorder_names(reorder);
    }

    /// A disk as this one may come back after a crash now. `choice` gets a number of options and picks one, counted from 0, for
    /// every change that is not durable; 0 everywhere is the disk that lost all of them. This disk stays as it is, so all
    /// choices can be tried one after the other, with [`Choices`]. No lock survives; the clock's time does.
    ///
    /// # Panics
    /// Where `choice` picks an option that there is not.
    pub fn crash(&self, choice: &mut dyn FnMut(usize) -> usize) -> SimDisk {
        let mut checked = |options: usize| {
            let chosen = choice(options);
            assert!(chosen < options, "option {chosen} of {options}");
            chosen
        };
        let state = self.shared.state.lock().crash(&mut checked);
        SimDisk::of(state, self.shared.clock.now())
    }

    /// The bytes of a file now; `None` where there is none.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.shared.state.lock().read_file(&names(path.as_ref()).ok()?)
    }

    /// The bytes that a file has for certain after a crash; `None` where its name is not certain.
    pub fn durable_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.shared.state.lock().durable_file(&names(path.as_ref()).ok()?)
    }

    /// Puts a file onto the disk, durably, with the directories on the way to it. It is no operation: this is for setting up.
    ///
    /// # Panics
    /// Where the path is none, or a file stands where a directory should.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let names = names(path.as_ref()).expect("a path below the root");
        self.shared.state.lock().write_file(&names, bytes, self.shared.clock.now());
    }

    /// The names in a directory now, in order; none where there is no such directory.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        names(path.as_ref()).map(|names| self.shared.state.lock().list(&names)).unwrap_or_default()
    }
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl FileSystem for SimDisk {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        SimDirectory::open(self, path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let parent = SimDirectory::open(self, path.parent().unwrap_or(Path::new("")))?;
        self.shared.state.lock().create_dir(&names(path)?)?;
        parent.sync()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        SimDisk::clock(self)
    }
}

/// The names that a path from the root leads through.
fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    path.components()
        .filter(|component| !matches!(component, Component::RootDir | Component::CurDir))
        .map(|component| match component {
            Component::Normal(name) => Ok(name),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        })
        .collect()
}

/// A clock that tests set.
#[derive(Debug)]
pub struct SimClock {
    now_ms: AtomicI64,
}

impl SimClock {
    /// Sets the time.
    pub fn set(&self, now: TimestampMs) {
        self.now_ms.store(now.get(), Ordering::SeqCst);
    }

    /// Moves the time by a number of milliseconds, back if it is negative.
    pub fn advance(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now(&self) -> TimestampMs {
        TimestampMs::new(self.now_ms.load(Ordering::SeqCst))
    }
}

/// Goes through all combinations of choices, for [`SimDisk::crash`]:
///
/// ```
/// # use offsetfs::io::sim::{Choices, SimDisk};
/// # let disk = SimDisk::new();
/// let mut choices = Choices::default();
/// loop {
///     let after = disk.crash(&mut |options| choices.choose(options));
///     // Look at `after`.
///     if !choices.advance() {
///         break;
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// What was chosen, and of how many options.
    made: Vec<(usize, usize)>,
    /// How many of them this round has used.
    used: usize,
}

impl Choices {
    /// The next choice of this round. `options` is at least 1, and depends on nothing but the choices before.
    pub fn choose(&mut self, options: usize) -> usize {
        if self.used == self.made.len() {
            self.made.push((0, options));
        }
        self.used += 1;
        self.made[self.used - 1].0
    }

    /// Goes on to the next combination; false after the last.
    pub fn advance(&mut self) -> bool {
        self.used = 0;
        while let Some((chosen, options)) = self.made.pop() {
            if chosen + 1 < options {
                self.made.push((chosen + 1, options));
                return true;
            }
        }
        false
    }
}
