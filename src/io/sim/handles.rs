//! What a user of the simulated disk holds: open directories and files, index maps, locks.

use super::image::{Change, Image};
use super::state::{Action, FileNode, NameChange, Node, NodeId, Outcome, State, errno, fill};
use super::{SimDisk, names};
use crate::io::mmap::WritableMap;
use crate::io::{Clock, Directory, Entry, File, IndexMap, Map, Metadata, Open, Space, lock};
use crate::types::TimestampMs;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open directory of the disk.
#[derive(Debug)]
pub(super) struct SimDirectory {
    disk: SimDisk,
    node: NodeId,
    path: PathBuf,
}

impl SimDirectory {
    pub(super) fn open(disk: &SimDisk, path: &Path) -> io::Result<Arc<dyn Directory>> {
        let mut state = disk.shared.state.lock();
        let outcome = state.step(Action::Look)?;
        let node = state.walk(&names(path)?)?;
        state.directory(node)?;
        outcome.result(Arc::new(SimDirectory { disk: disk.clone(), node, path: path.to_owned() }))
    }

    fn open_file(&self, state: &mut State, name: &OsStr, writable: bool) -> io::Result<SimFile> {
        let node = state.entry(self.node, name)?;
        let live = state.file(node)?.live()?;
        Ok(SimFile { disk: self.disk.clone(), node, live, writable })
    }

    /// Makes an empty file; its name is not durable yet.
    fn make_file(&self, state: &mut State, name: &OsStr) -> io::Result<()> {
        let node = state.add(Node::File(FileNode::of(Image::default(), self.disk.shared.clock.now().get())));
        state.directory(self.node)?.change(NameChange::Add(name.to_owned(), node));
        Ok(())
    }
}

impl Directory for SimDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn own_metadata(&self) -> io::Result<Metadata> {
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::Look)?;
        outcome.result(state.metadata(self.node))
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::Look)?;
        let names = state.directory(self.node)?.live.clone();
        outcome.result(names.into_iter().map(|(name, id)| Entry { name, kind: state.metadata(id).kind }).collect())
    }

    fn metadata(&self, name: &OsStr) -> io::Result<Metadata> {
        check_name(name)?;
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::Look)?;
        let node = state.entry(self.node, name)?;
        outcome.result(state.metadata(node))
    }

    fn open(&self, name: &OsStr, how: Open) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        let mut state = self.disk.shared.state.lock();
        let makes = how == Open::Create && !state.directory(self.node)?.live.contains_key(name);
        let outcome = state.step(if makes { Action::TakeRoom } else { Action::Look })?;
        if makes {
            self.make_file(&mut state, name)?;
        }
        outcome.result(Arc::new(self.open_file(&mut state, name, how != Open::Read)?))
    }

    fn open_dir(&self, name: &OsStr) -> io::Result<Arc<dyn Directory>> {
        check_name(name)?;
        SimDirectory::open(&self.disk, &self.path.join(name))
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::TakeRoom)?;
        state.entry(self.node, from)?;
        state.directory(self.node)?.change(NameChange::Rename(from.to_owned(), to.to_owned()));
        outcome.result(())
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        check_name(name)?;
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::Settle)?;
        let node = state.entry(self.node, name)?;
        state.file(node).map_err(|_| errno(libc::EISDIR))?;
        state.directory(self.node)?.change(NameChange::Remove(name.to_owned()));
        outcome.result(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.shared.state.lock();
        if state.step(Action::Settle)? == Outcome::Crashed {
            return Err(errno(libc::EIO));
        }
        let directory = state.directory(self.node)?;
        directory.changes.clear();
        directory.durable = directory.live.clone();
        Ok(())
    }

    fn lock(&self, kind: lock::Kind) -> io::Result<Option<lock::DirectoryLock>> {
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::Look)?;
        let directory = state.directory(self.node)?;
        if directory.exclusive_lock || (kind == lock::Kind::Exclusive && directory.shared_locks > 0) {
            return outcome.result(None);
        }
        match kind {
            lock::Kind::Shared => directory.shared_locks += 1,
            lock::Kind::Exclusive => directory.exclusive_lock = true,
        }
        let held = HeldDirectory { disk: self.disk.clone(), node: self.node, kind };
        // The lock is made only once the state is free again: where it is not handed out, dropping it takes the state.
        drop(state);
        outcome.result(Some(lock::DirectoryLock::new(Box::new(held))))
    }

    fn record_lock_holder(&self, name: &OsStr) -> io::Result<Option<lock::Holder>> {
        check_name(name)?;
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::Look)?;
        let locked = match state.entry(self.node, name) {
            Ok(node) => state.file(node)?.record_locked,
            Err(_) => false,
        };
        outcome.result(locked.then(lock::Holder::default))
    }

    fn take_record_lock(&self, name: &OsStr) -> io::Result<Result<lock::RecordLock, lock::Holder>> {
        check_name(name)?;
        let mut state = self.disk.shared.state.lock();
        let makes = !state.directory(self.node)?.live.contains_key(name);
        let outcome = state.step(if makes { Action::TakeRoom } else { Action::Look })?;
        if makes {
            self.make_file(&mut state, name)?;
        }
        let node = state.entry(self.node, name)?;
        let file = state.file(node)?;
        if file.record_locked {
            return outcome.result(Err(lock::Holder::default()));
        }
        file.record_locked = true;
        let held = HeldFile { disk: self.disk.clone(), directory: self.node, name: name.to_owned(), node };
        drop(state);
        outcome.result(Ok(lock::RecordLock::new(Box::new(held), makes)))
    }

    fn space(&self) -> io::Result<Space> {
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::Look)?;
        outcome.result(Space { block_size: 4096, blocks: 1 << 20, free: 1 << 19, available: 1 << 19, files: 1 << 20, files_free: 1 << 19 })
    }
}

/// A lock on a directory, released when dropped.
#[derive(Debug)]
struct HeldDirectory {
    disk: SimDisk,
    node: NodeId,
    kind: lock::Kind,
}

impl Drop for HeldDirectory {
    fn drop(&mut self) {
        if let Ok(directory) = self.disk.shared.state.lock().directory(self.node) {
            match self.kind {
                lock::Kind::Shared => directory.shared_locks -= 1,
                lock::Kind::Exclusive => directory.exclusive_lock = false,
            }
        }
    }
}

/// A record lock on a file, released when dropped.
#[derive(Debug)]
struct HeldFile {
    disk: SimDisk,
    directory: NodeId,
    name: OsString,
    node: NodeId,
}

impl lock::Held for HeldFile {
    fn remove(&self) -> io::Result<()> {
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::Settle)?;
        let directory = state.directory(self.directory)?;
        if directory.live.get(&self.name) == Some(&self.node) {
            directory.change(NameChange::Remove(self.name.clone()));
        }
        outcome.result(())
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        if let Ok(file) = self.disk.shared.state.lock().file(self.node) {
            file.record_locked = false;
        }
    }
}

/// An open file of the disk.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    node: NodeId,
    live: Arc<fs::File>,
    writable: bool,
}

impl SimFile {
    /// Begins an operation that changes the file.
    fn change<T>(&self, action: Action, with: impl FnOnce(&mut FileNode, Outcome) -> io::Result<T>) -> io::Result<T> {
        if !self.writable {
            return Err(errno(libc::EBADF));
        }
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(action)?;
        let file = state.file(self.node)?;
        file.mtime_ms = self.disk.shared.clock.now().get();
        let value = with(file, outcome)?;
        outcome.result(value)
    }

    fn look<T>(&self, with: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let outcome = self.disk.shared.state.lock().step(Action::Look)?;
        outcome.result(with()?)
    }
}

impl File for SimFile {
    fn metadata(&self) -> io::Result<Metadata> {
        self.look(|| Ok(self.disk.shared.state.lock().metadata(self.node)))
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.look(|| self.live.read_at(buffer, position))
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<usize> {
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        self.change(Action::Write, |file, outcome| {
            if outcome == Outcome::Short {
                bytes.truncate(bytes.len() / 2);
            }
            self.live.write_all_at(&bytes, position)?;
            let written = bytes.len();
            if written > 0 {
                file.len = file.len.max(position + written as u64);
                file.journal.push(Change::Bytes { at: position, bytes: bytes.into() });
            }
            Ok(written)
        })
    }

    fn allocate(&self, from: u64, len: u64) -> io::Result<()> {
        let end = from.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
        self.change(Action::TakeRoom, |file, _| if end > file.len { file.set_len(end, Change::Grow(end)) } else { Ok(()) })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Action::Settle, |file, _| file.set_len(len, Change::SetLen(len)))
    }

    fn set_modified(&self, time: TimestampMs) -> io::Result<()> {
        self.change(Action::Settle, |file, _| {
            file.mtime_ms = time.get();
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        sync(&self.disk, self.node)
    }

    fn map(&self, len: u64) -> io::Result<Arc<Map>> {
        self.look(|| Ok(Arc::new(Map::new(self.live.as_fd(), len)?)))
    }

    fn map_index(&self, len: u64) -> io::Result<Box<dyn IndexMap>> {
        if !self.writable {
            return Err(errno(libc::EACCES));
        }
        self.look(|| {
            let map = WritableMap::new(&self.live, len)?;
            Ok(Box::new(SimIndexMap { disk: self.disk.clone(), node: self.node, map }) as Box<dyn IndexMap>)
        })
    }

    fn drop_cached(&self, _from: u64) -> io::Result<()> {
        let mut state = self.disk.shared.state.lock();
        let outcome = state.step(Action::Look)?;
        let file = state.file(self.node)?;
        fill(&self.live, &file.journal.forget_failed())?;
        outcome.result(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Makes the changes of a file durable, or uncertain for good where that fails.
fn sync(disk: &SimDisk, node: NodeId) -> io::Result<()> {
    let mut state = disk.shared.state.lock();
    match state.step(Action::Settle) {
        Ok(Outcome::Crashed) => Err(errno(libc::EIO)),
        Ok(_) => {
            state.file(node)?.journal.sync();
            Ok(())
        }
        Err(e) => {
            state.file(node)?.journal.fail_sync();
            Err(e)
        }
    }
}

/// The real map of the live image, each store of which is a change of its own.
#[derive(Debug)]
struct SimIndexMap {
    disk: SimDisk,
    node: NodeId,
    map: WritableMap,
}

impl IndexMap for SimIndexMap {
    fn map(&self) -> &Arc<Map> {
        self.map.map()
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let mut state = self.disk.shared.state.lock();
        let crashed = state.crashed;
        let Ok(file) = state.file(self.node) else { return };
        assert!(at.saturating_add(bytes.len() as u64) <= file.len, "a store at {at} into a file of {} bytes: allocate first", file.len);
        self.map.put(at, bytes);
        if !crashed {
            file.journal.push(Change::Bytes { at, bytes: bytes.into() });
        }
    }

    fn sync(&self) -> io::Result<()> {
        sync(&self.disk, self.node)
    }
}

fn check_name(name: &OsStr) -> io::Result<()> {
    let bytes = name.as_encoded_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a single file name"));
    }
    Ok(())
}
