//! A file system whose syncs do nothing: what the crash suite must find.

use offsetfs::io::lock::{DirectoryLock, Holder, Kind, RecordLock};
use offsetfs::io::{Clock, Directory, Entry, File, FileSystem, IndexMap, Map, Metadata, Open, Space};
use offsetfs::types::TimestampMs;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// Which syncs are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Those of files.
    Data,
    /// Those of directories.
    Names,
}

/// The file system.
#[derive(Debug)]
pub(crate) struct LyingFileSystem {
    inner: Arc<dyn FileSystem>,
    lie: Lie,
}

impl LyingFileSystem {
    /// Over another one.
    pub(crate) fn new(inner: Arc<dyn FileSystem>, lie: Lie) -> LyingFileSystem {
        LyingFileSystem { inner, lie }
    }
}

impl FileSystem for LyingFileSystem {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        Ok(Arc::new(LyingDirectory { inner: self.inner.open_dir(path)?, lie: self.lie }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}

#[derive(Debug)]
struct LyingDirectory {
    inner: Arc<dyn Directory>,
    lie: Lie,
}

impl Directory for LyingDirectory {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn own_metadata(&self) -> io::Result<Metadata> {
        self.inner.own_metadata()
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        self.inner.list()
    }

    fn metadata(&self, name: &OsStr) -> io::Result<Metadata> {
        self.inner.metadata(name)
    }

    fn open(&self, name: &OsStr, how: Open) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(LyingFile { inner: self.inner.open(name, how)?, lie: self.lie }))
    }

    fn open_dir(&self, name: &OsStr) -> io::Result<Arc<dyn Directory>> {
        Ok(Arc::new(LyingDirectory { inner: self.inner.open_dir(name)?, lie: self.lie }))
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        if self.lie == Lie::Names { Ok(()) } else { self.inner.sync() }
    }

    fn lock(&self, kind: Kind) -> io::Result<Option<DirectoryLock>> {
        self.inner.lock(kind)
    }

    fn record_lock_holder(&self, name: &OsStr) -> io::Result<Option<Holder>> {
        self.inner.record_lock_holder(name)
    }

    fn take_record_lock(&self, name: &OsStr) -> io::Result<Result<RecordLock, Holder>> {
        self.inner.take_record_lock(name)
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }
}

#[derive(Debug)]
struct LyingFile {
    inner: Arc<dyn File>,
    lie: Lie,
}

impl File for LyingFile {
    fn metadata(&self) -> io::Result<Metadata> {
        self.inner.metadata()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, position)
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<usize> {
        self.inner.write_at(parts, position)
    }

    fn allocate(&self, from: u64, len: u64) -> io::Result<()> {
        self.inner.allocate(from, len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn set_modified(&self, time: TimestampMs) -> io::Result<()> {
        self.inner.set_modified(time)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.lie == Lie::Data { Ok(()) } else { self.inner.sync_data() }
    }

    fn map(&self, len: u64) -> io::Result<Arc<Map>> {
        self.inner.map(len)
    }

    fn map_index(&self, len: u64) -> io::Result<Box<dyn IndexMap>> {
        self.inner.map_index(len)
    }

    fn drop_cached(&self, from: u64) -> io::Result<()> {
        self.inner.drop_cached(from)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
