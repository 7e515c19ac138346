//! The null file system: it answers each request with the least work that gives a correct answer.
//!
//! `by-offset/N` has 100 bytes for every N, `append` takes and drops, `range` and `segment` have the bytes of real files, `list` has as many names
//! as the real one. Flags and times to live are those of the product.

use crate::client::{VALUE_BYTES, aligned};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags,
    ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, SessionACL, WriteFlags,
};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

struct Null {
    range: File,
    range_len: u64,
    segment: File,
    segment_len: u64,
}

const ROOT: u64 = 1;
const BY_OFFSET: u64 = 2;
const APPEND: u64 = 3;
const RANGE: u64 = 4;
const SEGMENT: u64 = 5;
const RECORDS: u64 = 1 << 62;
const TTL: Duration = Duration::from_secs(10);
static VALUE: [u8; VALUE_BYTES] = [b'x'; VALUE_BYTES];

impl Null {
    fn attr(&self, ino: u64) -> FileAttr {
        let (kind, size) = match ino {
            ROOT | BY_OFFSET => (FileType::Directory, 0),
            APPEND | RANGE => (FileType::RegularFile, 0),
            SEGMENT => (FileType::RegularFile, self.segment_len),
            _ => (FileType::RegularFile, VALUE_BYTES as u64),
        };
        let zero = UNIX_EPOCH;
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: 1,
            atime: zero,
            mtime: zero,
            ctime: zero,
            crtime: zero,
            kind,
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Null {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = match (parent.0, name.as_bytes()) {
            (ROOT, b"by-offset") => BY_OFFSET,
            (ROOT, b"append") => APPEND,
            (ROOT, b"range") => RANGE,
            (ROOT, b"segment") => SEGMENT,
            (BY_OFFSET, name) => match std::str::from_utf8(name).ok().and_then(|n| n.parse::<u64>().ok()) {
                Some(n) => RECORDS + n,
                None => return reply.error(Errno::ENOENT),
            },
            _ => return reply.error(Errno::ENOENT),
        };
        reply.entry(&TTL, &self.attr(ino), Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino.0));
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = match ino.0 {
            APPEND | RANGE => FopenFlags::FOPEN_DIRECT_IO,
            // Read anew each time: the product's row without passthrough does so, too.
            SEGMENT => FopenFlags::FOPEN_NOFLUSH,
            _ => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(&self, _: &Request, ino: INodeNo, _: FileHandle, at: u64, size: u32, _: OpenFlags, _: Option<LockOwner>, reply: ReplyData) {
        let (file, len) = match ino.0 {
            RANGE => (&self.range, self.range_len),
            SEGMENT => (&self.segment, self.segment_len),
            _ => return reply.data(&VALUE[(at as usize).min(VALUE_BYTES)..]),
        };
        thread_local! {
            static BUFFER: std::cell::RefCell<crate::client::Aligned> = std::cell::RefCell::new(aligned(1 << 20));
        }
        BUFFER.with_borrow_mut(|buffer| {
            let piece = (size as usize).min(1 << 20);
            let n = file.read_at(&mut buffer.get_mut()[..piece], at.min(len)).unwrap_or(0);
            reply.data(&buffer.get()[..n]);
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// Serves until somebody unmounts it.
pub(crate) fn serve(mountpoint: &Path, folder: &Path) {
    let open = |name: &str| {
        let file = File::open(folder.join(name)).expect("a real file");
        let len = file.metadata().expect("its length").len();
        (file, len)
    };
    let ((range, range_len), (segment, segment_len)) = (open("range"), open("segment"));
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("null".to_owned())];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(2);
    config.clone_fd = true;
    let null = Null { range, range_len, segment, segment_len };
    fuser::spawn_mount(null, mountpoint, &config).expect("the null file system mounts").join().expect("the session ends");
}
