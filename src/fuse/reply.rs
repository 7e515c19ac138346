//! From the tree's words to the kernel's: errno, attributes, lifetimes, and buffers that the kernel copies from quickly.

use super::inode;
use super::measure;
use crate::view::{Attr, Error, ErrorKind, FileKind, Lifetime, Node, Time};
use fuser::{
    Errno, FileAttr, FileType, FopenFlags, INodeNo, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a name that never changes is believed.
const FIXED_TTL: Duration = Duration::from_secs(10);
/// How long the attributes of a directory are believed. Every walk along a path asks for them, so a busy reader must not pay for each; but
/// a mount whose daemon has died should not look alive for long.
const DIRECTORY_TTL: Duration = Duration::from_millis(10);
/// How long a record of a log that only we change is believed.
const STABLE_TTL: Duration = Duration::from_secs(10);
/// How long a record that others may change is believed.
const FOREIGN_TTL: Duration = Duration::from_secs(1);
/// The least alignment of a read buffer, in bytes: a copy that begins elsewhere in a page is several times slower.
const PAGE: usize = 4096;
/// The unit that readers are told to read a range in: as much as one request carries, in bytes.
const RANGE_BLOCK: u32 = 1 << 20;
/// The unit for all else, in bytes.
const BLOCK: u32 = 4096;

/// The number that the kernel knows a refusal by.
pub(super) fn errno(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::Invalid => Errno::EINVAL,
        ErrorKind::NotPermitted => Errno::EPERM,
        ErrorKind::ReadOnly => Errno::EROFS,
        ErrorKind::Damaged => Errno::EIO,
        ErrorKind::TooLarge => Errno::EMSGSIZE,
        ErrorKind::NoSpace => Errno::ENOSPC,
        ErrorKind::NotDirectory => Errno::ENOTDIR,
        ErrorKind::NoAttribute => Errno::ENODATA,
        ErrorKind::NotSupported => Errno::EOPNOTSUPP,
        ErrorKind::WouldBlock => Errno::EAGAIN,
        ErrorKind::Closed => Errno::ESHUTDOWN,
        ErrorKind::Access => Errno::EACCES,
        ErrorKind::Exists => Errno::EEXIST,
        ErrorKind::NameTooLong => Errno::ENAMETOOLONG,
        ErrorKind::CrossDevice => Errno::EXDEV,
    }
}

/// Why a request is not answered with what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It is asked again from a thread that may wait.
    WouldBlock,
    /// The answer is an error.
    Errno(Errno),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock => Failure::WouldBlock,
            kind => Failure::Errno(errno(kind)),
        }
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

/// A reply that can carry an error.
pub(super) trait Fail: Send + 'static {
    /// Sends the error.
    fn fail(self, errno: Errno);
}

macro_rules! fail {
    ($($reply:ty),*) => { $(impl Fail for $reply {
        fn fail(self, errno: Errno) {
            measure::failed(errno);
            self.error(errno);
        }
    })* };
}

fail!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEmpty,
    ReplyEntry,
    ReplyOpen,
    ReplyStatfs,
    ReplyWrite,
    ReplyXattr
);

/// Whose files the mount shows, and which permission bits at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ownership {
    /// The owner of everything.
    pub(super) uid: u32,
    /// The group of everything.
    pub(super) gid: u32,
    /// The bits that the source grants, and that the daemon's own mask leaves.
    pub(super) granted: u32,
    /// The mask that the user of the mount asked for: it replaces `granted`.
    pub(super) umask: Option<u32>,
}

impl Ownership {
    /// The permission bits of a thing whose kind allows `mode`.
    fn mode(&self, kind: FileKind, mode: u32) -> u32 {
        match (kind, self.umask) {
            (FileKind::Link, _) => 0o777,
            (FileKind::Directory, Some(umask)) => 0o777 & !umask,
            (FileKind::File, Some(umask)) => {
                let readable = if mode & 0o444 == 0 { 0 } else { 0o444 };
                let writable = if mode & 0o222 == 0 { 0 } else { 0o222 };
                (readable | writable) & !umask
            }
            (_, None) => mode & self.granted & 0o777,
        }
    }

    /// What `stat` shows of a node.
    pub(super) fn attributes(&self, number: u64, node: &Node, attr: &Attr) -> FileAttr {
        let time = system_time(attr.mtime);
        FileAttr {
            ino: INodeNo(number),
            size: attr.size,
            blocks: attr.size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: file_type(attr.kind),
            perm: u16::try_from(self.mode(attr.kind, attr.mode)).unwrap_or(0),
            nlink: if attr.kind == FileKind::Directory { 2 } else { 1 },
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: if matches!(node, Node::Range(_)) { RANGE_BLOCK } else { BLOCK },
            flags: 0,
        }
    }

    /// What goes with a name in a listing whose attributes were not looked for: its kind alone.
    pub(super) fn bare(&self, kind: FileType) -> FileAttr {
        let none = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino: INodeNo(super::inode::UNKNOWN),
            size: 0,
            blocks: 0,
            atime: none,
            mtime: none,
            ctime: none,
            crtime: none,
            kind,
            perm: 0,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        }
    }
}

/// The kernel's word for a kind.
pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Link => FileType::Symlink,
    }
}

fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let seconds = if time.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    seconds.and_then(|t| t.checked_add(Duration::from_nanos(u64::from(time.nanos)))).unwrap_or(UNIX_EPOCH)
}

/// How long a name, and how long its attributes are believed.
pub(super) fn ttls(lifetime: Lifetime) -> (Duration, Duration) {
    match lifetime {
        Lifetime::Fixed => (FIXED_TTL, DIRECTORY_TTL),
        Lifetime::Stable => (STABLE_TTL, STABLE_TTL),
        Lifetime::Foreign => (FOREIGN_TTL, FOREIGN_TTL),
        // A cleaned or deleted segment leaves its name at once.
        Lifetime::Sealed => (Duration::ZERO, STABLE_TTL),
        // The open that follows a look-up asks for nothing once more.
        Lifetime::Fresh => (Duration::ZERO, DIRECTORY_TTL),
        Lifetime::Moving | Lifetime::Growing => (Duration::ZERO, Duration::ZERO),
    }
}

/// What the kernel may do with an open file whose bytes it takes from its page cache. Nothing is written to these, so close needs
/// no request.
pub(super) fn cached(lifetime: Lifetime) -> FopenFlags {
    match lifetime {
        Lifetime::Stable | Lifetime::Sealed => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
        Lifetime::Fixed | Lifetime::Foreign | Lifetime::Moving | Lifetime::Fresh | Lifetime::Growing => FopenFlags::FOPEN_NOFLUSH,
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends `read` a buffer of this thread, `size` bytes from the start of a page, and sends as many of its first bytes as `read`
/// says. The kernel never copies from a map of a log: a file that becomes shorter under it would kill the request, not fail it.
pub(super) fn with_buffer<T>(size: usize, read: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < size.saturating_add(PAGE) {
            buffer.resize(size.saturating_add(PAGE), 0);
        }
        let start = buffer.as_ptr().align_offset(PAGE).min(PAGE);
        let end = start.saturating_add(size);
        read(buffer.get_mut(start..end).unwrap_or_default())
    })
}

/// Sends an extended attribute, or its size where the caller has no room yet.
pub(super) fn send_xattr(reply: ReplyXattr, size: u32, value: &[u8]) {
    match (size, u32::try_from(value.len())) {
        (_, Err(_)) => reply.error(Errno::E2BIG),
        (0, Ok(len)) => reply.size(len),
        (size, Ok(len)) if len > size => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

/// The number of a directory's parent: the tree has two levels.
pub(super) const PARENT: u64 = inode::ROOT;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_number_of_its_name() {
        let kinds = [
            (ErrorKind::NotFound, libc::ENOENT),
            (ErrorKind::Invalid, libc::EINVAL),
            (ErrorKind::NotPermitted, libc::EPERM),
            (ErrorKind::ReadOnly, libc::EROFS),
            (ErrorKind::Damaged, libc::EIO),
            (ErrorKind::TooLarge, libc::EMSGSIZE),
            (ErrorKind::NoSpace, libc::ENOSPC),
            (ErrorKind::NotDirectory, libc::ENOTDIR),
            (ErrorKind::NoAttribute, libc::ENODATA),
            (ErrorKind::NotSupported, libc::ENOTSUP),
            (ErrorKind::WouldBlock, libc::EAGAIN),
            (ErrorKind::Closed, libc::ESHUTDOWN),
            (ErrorKind::Access, libc::EACCES),
            (ErrorKind::Exists, libc::EEXIST),
            (ErrorKind::NameTooLong, libc::ENAMETOOLONG),
            (ErrorKind::CrossDevice, libc::EXDEV),
        ];
        for (kind, number) in kinds {
            assert_eq!(errno(kind).code(), number, "{}", kind.name());
        }
    }

    #[test]
    fn only_would_block_is_asked_again() {
        assert_eq!(Failure::from(Error::new(ErrorKind::WouldBlock, "")), Failure::WouldBlock);
        assert_eq!(Failure::from(Error::not_found("")), Failure::Errno(Errno::ENOENT));
    }

    #[test]
    fn modes_are_at_most_the_sources() {
        let of = |granted, umask, kind, mode| Ownership { uid: 0, gid: 0, granted, umask }.mode(kind, mode);
        assert_eq!(of(0o755, None, FileKind::File, 0o666), 0o644);
        assert_eq!(of(0o750, None, FileKind::File, 0o444), 0o440);
        assert_eq!(of(0o700, None, FileKind::Directory, 0o555), 0o500);
        assert_eq!(of(0o700, None, FileKind::Link, 0o777), 0o777);
        assert_eq!(of(0o700, Some(0o022), FileKind::File, 0o666), 0o644);
        assert_eq!(of(0o700, Some(0), FileKind::File, 0o444), 0o444);
        assert_eq!(of(0o700, Some(0o022), FileKind::File, 0o200), 0o200);
        assert_eq!(of(0o700, Some(0o027), FileKind::Directory, 0o555), 0o750);
    }

    #[test]
    fn times_before_1970_and_out_of_range_are_no_trouble() {
        let early = system_time(Time { seconds: -2, nanos: 500_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(early).unwrap(), Duration::from_millis(1500));
        assert_eq!(system_time(Time { seconds: 7, nanos: 1 }).duration_since(UNIX_EPOCH).unwrap(), Duration::new(7, 1));
        for seconds in [i64::MIN, i64::MAX] {
            system_time(Time { seconds, nanos: 999_999_999 });
        }
    }

    #[test]
    fn buffers_begin_at_a_page_and_have_their_size() {
        for size in [1, 4096, 100_000, 0, 131_072] {
            let (at, len) = with_buffer(size, |buffer| (buffer.as_ptr().addr(), buffer.len()));
            assert_eq!((at % PAGE, len), (0, size));
        }
    }
}
