//! The seam under the engine: directories held open, files by single names, maps, locks, the clock.
//!
//! The engine reaches files through these traits only. [`os`] is the real side; [`sim`] is a disk in memory that can fail at any
//! operation and lose any subset of what was not synced. Nothing here knows what a segment is.

mod guard;
pub mod lock;
pub mod mmap;
pub mod os;
mod prefetch;
pub mod process;
pub mod sim;
pub(crate) mod sync;

use crate::types::TimestampMs;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

pub use mmap::Map;
pub use prefetch::{CACHE_LINE, prefetch};

/// Where directories come from.
pub trait FileSystem: Send + Sync + fmt::Debug {
    /// Opens a directory; symbolic links on the way to it are followed, below it none are.
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Directory>>;
    /// Makes a directory (its parent must exist) and syncs the parent.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The time.
    fn clock(&self) -> Arc<dyn Clock>;
}

/// What kind of thing a name leads to; links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a link, a pipe, a device, a socket.
    Other,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, any bytes.
    pub name: OsString,
    /// What it leads to.
    pub kind: Kind,
}

/// What the system says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: Kind,
    /// Its length in bytes.
    pub len: u64,
    /// The time of the last change of its bytes, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Its inode number.
    pub inode: u64,
    /// The device it lies on.
    pub device: u64,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// How many names it has.
    pub links: u64,
}

impl Metadata {
    /// The time of the last change of its bytes, as records count time.
    pub fn mtime(&self) -> TimestampMs {
        TimestampMs::new(self.mtime_ns.div_euclid(1_000_000))
    }
}

/// How a file is opened. Only regular files are; everything else is an error of kind `InvalidInput`. A file with several names (hard links) is opened
/// for reading only, `PermissionDenied` otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Write,
    /// For reading and writing; it is made where missing, and an existing one keeps its bytes.
    Create,
}

/// A directory that is held open. Names are single names: one with a slash, `.` or `..` is refused with `InvalidInput`.
pub trait Directory: Send + Sync + fmt::Debug {
    /// The path it was opened by, for messages.
    fn path(&self) -> &Path;
    /// Its own metadata.
    fn own_metadata(&self) -> io::Result<Metadata>;
    /// Its entries without `.` and `..`, in no order.
    fn list(&self) -> io::Result<Vec<Entry>>;
    /// The metadata of an entry; links are not followed.
    fn metadata(&self, name: &OsStr) -> io::Result<Metadata>;
    /// Opens a regular file in it; never a link, and never anything outside.
    fn open(&self, name: &OsStr, how: Open) -> io::Result<Arc<dyn File>>;
    /// Opens a directory in it.
    fn open_dir(&self, name: &OsStr) -> io::Result<Arc<dyn Directory>>;
    /// Gives a file another name, replacing what had that name.
    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &OsStr) -> io::Result<()>;
    /// Makes new, renamed and removed names durable.
    fn sync(&self) -> io::Result<()>;
    /// Locks the directory itself (`flock`) without waiting; `None` where another process holds it.
    fn lock(&self, kind: lock::Kind) -> io::Result<Option<lock::DirectoryLock>>;
    /// Who holds a POSIX record lock on a file in it, as a broker does on `.lock`; `None` for nobody or no such file. Makes no file.
    fn record_lock_holder(&self, name: &OsStr) -> io::Result<Option<lock::Holder>>;
    /// Takes that record lock for ourselves, making the file if it is missing; `Err(holder)` where somebody has it.
    fn take_record_lock(&self, name: &OsStr) -> io::Result<Result<lock::RecordLock, lock::Holder>>;
    /// Total, free and available bytes of the file system it lies on, and its block size.
    fn space(&self) -> io::Result<Space>;
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The size of a block in bytes.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Blocks that an ordinary user may take.
    pub available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
}

/// An open regular file.
pub trait File: Send + Sync + fmt::Debug {
    /// Its metadata now.
    fn metadata(&self) -> io::Result<Metadata>;
    /// Reads at a position; fewer bytes than asked for only at the end.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// The same where all of it lies in memory; `None` where the disk would have to be waited for, or where the file system cannot tell.
    fn read_at_once(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
        self.read_at(buffer, position).map(Some)
    }
    /// Writes the parts one behind the other at a position (`pwritev`); returns how many bytes went in, which may be fewer.
    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<usize>;
    /// Gives the bytes `[from, from + len)` room on the disk, so that storing into a map of them cannot fail. The length may grow to cover them.
    fn allocate(&self, from: u64, len: u64) -> io::Result<()>;
    /// Cuts the file or lets it grow by a hole.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Sets the time of the last change of its bytes.
    fn set_modified(&self, time: TimestampMs) -> io::Result<()>;
    /// Makes its bytes and its length durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Maps `len` bytes for reading; `len` may lie beyond the end, but only bytes below the end may be read.
    fn map(&self, len: u64) -> io::Result<Arc<Map>>;
    /// Maps `len` bytes for reading and for storing index entries.
    fn map_index(&self, len: u64) -> io::Result<Box<dyn IndexMap>>;
    /// Forgets cached pages from a position on, so that the next read asks the disk; some before it may go, too. Pages that were not synced yet
    /// or that a map has touched stay, so this comes before the file is mapped.
    fn drop_cached(&self, from: u64) -> io::Result<()>;
    /// The descriptor, where there is one (the simulated disk has none to show).
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// A map that index entries are stored through. One thread stores; any number read, each only below the count published before.
pub trait IndexMap: Send + Sync + fmt::Debug {
    /// The bytes, for readers.
    fn map(&self) -> &Arc<Map>;
    /// Stores bytes. The place must have been allocated.
    ///
    /// # Panics
    /// Where the bytes do not fit into the map.
    fn put(&self, at: u64, bytes: &[u8]);
    /// Makes what was stored durable.
    fn sync(&self) -> io::Result<()>;
}

/// What time it is.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now, in milliseconds since 1970.
    fn now(&self) -> TimestampMs;
}

/// Reads exactly `len` bytes at a position, or as many as there are before the end.
///
/// # Errors
/// What the file says.
pub fn read_up_to(file: &dyn File, position: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut buffer[filled..], position + filled as u64)? {
            0 => break,
            n => filled += n,
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

/// Writes all of the bytes at a position.
///
/// # Errors
/// What the file says; `WriteZero` where it takes nothing more.
pub fn write_all_at(file: &dyn File, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(&[io::IoSlice::new(bytes)], position)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => {
                bytes = &bytes[n..];
                position += n as u64;
            }
        }
    }
    Ok(())
}
