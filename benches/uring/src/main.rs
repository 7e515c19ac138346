//! `by-offset/` of a partition directory over FUSE on io_uring: an experiment beside the product's own adapter, which reads requests from
//! `/dev/fuse`. Both answer from the same view. It knows look-ups by offset and nothing else.
//!
//! `offsetfs-uring SOURCE MOUNTPOINT` serves until it is unmounted. The kernel has to allow it: `echo Y > /sys/module/fuse/parameters/enable_uring`.

use fractal_fuse::abi::FUSE_ROOT_ID;
use fractal_fuse::{
    EIO, ENOENT, FileAttr, FileHandleId, FileType, Filesystem, FsResult, InodeId, MountOptions, ReplyAttr, ReplyEntry, ReplyOpen, Request,
    Session, Timestamp,
};
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::LogConfig;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::types::{Offset, Patience};
use offsetfs::view::{self, Node, View, path::Face, time::Zone};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const BY_OFFSET: u64 = 2;
const RECORDS: u64 = 1 << 62;
/// As the product: a record never changes.
const TTL: Duration = Duration::from_secs(1 << 30);
/// FOPEN_KEEP_CACHE and FOPEN_NOFLUSH.
const FLAGS: u32 = 1 << 1 | 1 << 5;

struct Adapter {
    view: View,
}

fn attr(ino: u64, kind: FileType, size: u64) -> FileAttr {
    let zero = Timestamp::new(0, 0);
    FileAttr {
        ino,
        size,
        blocks: size.div_ceil(512),
        atime: zero,
        mtime: zero,
        ctime: zero,
        mode: kind.to_mode() | 0o555,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
    }
}

fn offset(inode: InodeId) -> FsResult<Offset> {
    i64::try_from(inode.0.wrapping_sub(RECORDS)).ok().and_then(Offset::new).ok_or(ENOENT)
}

impl Filesystem for Adapter {
    async fn lookup(&self, _: Request, parent: InodeId, name: &OsStr) -> FsResult<ReplyEntry> {
        let attr = match (parent.0, name.as_bytes()) {
            (FUSE_ROOT_ID, b"by-offset") => attr(BY_OFFSET, FileType::Directory, 0),
            (BY_OFFSET, name) => match self.view.lookup_with_attr(&Node::ByOffset, name, Patience::MayBlock) {
                Ok((Node::Record(offset, Face::Value), attributes)) => {
                    attr(RECORDS + offset.get() as u64, FileType::RegularFile, attributes.size)
                }
                _ => return Err(ENOENT),
            },
            _ => return Err(ENOENT),
        };
        Ok(ReplyEntry { ttl: TTL, attr, generation: 0 })
    }

    async fn getattr(&self, _: Request, inode: InodeId, _: Option<FileHandleId>, _: u32) -> FsResult<ReplyAttr> {
        let attr = match inode.0 {
            FUSE_ROOT_ID | BY_OFFSET => attr(inode.0, FileType::Directory, 0),
            _ => {
                let node = Node::Record(offset(inode)?, Face::Value);
                attr(inode.0, FileType::RegularFile, self.view.attr(&node, Patience::MayBlock).map_err(|_| EIO)?.size)
            }
        };
        Ok(ReplyAttr { ttl: TTL, attr })
    }

    async fn open(&self, _: Request, inode: InodeId, _: u32) -> FsResult<ReplyOpen> {
        self.view.open_record(offset(inode)?, Patience::MayBlock).map_err(|_| EIO)?;
        Ok(ReplyOpen { fh: FileHandleId(0), flags: FLAGS, backing_id: 0 })
    }

    async fn read(&self, _: Request, inode: InodeId, _: FileHandleId, at: u64, out: &mut [u8]) -> FsResult<usize> {
        self.view.read_record(offset(inode)?, Face::Value, at, out, Patience::MayBlock).map_err(|_| EIO)
    }
}

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [source, mountpoint] = &arguments[..] else { panic!("SOURCE MOUNTPOINT") };
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let options = Options { wish: Wish::ReadOnly, create: false, config: LogConfig::default() };
    let local = Local::open(&fs, source, options).expect("a partition");
    let view = View::new(Arc::new(local), view::Options { zone: Zone::utc(), ..view::Options::default() });
    let mount = MountOptions::new().fs_name("offsetfs-uring");
    let session = Session::new(mountpoint.clone(), mount).expect("it mounts");
    session.with_queue_depth(16).run(Adapter { view }).expect("the session ends well");
}
