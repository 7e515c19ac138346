//! The tree as a mount: requests of the kernel are turned into questions to the view, and its answers into replies. Nothing is
//! decided here about names or records.
//!
//! - `session`: mounting, signals, unmounting; `mounts`: what is mounted where; `busy`: who keeps a mount busy.
//! - `inode`: numbers of nodes. `reply`: errno, attributes, buffers. `answers`: each request's question and answer.
//! - `append`, `keys`, `segments`, `follow`: handles of append files, of keys, of real files, and reads that wait for records. `holders`: whether a
//!   close was the last one. `pool`: threads that may wait. `measure`: how long requests take.
//!
//! No event thread waits for the disk: a question is asked at once, and where the answer is that it would block, asked again from
//! the pool, which replies. A panic in a handler becomes EIO (the reply is dropped) and a line in the log; the mount lives on.

mod answers;
mod append;
mod busy;
mod follow;
mod holders;
mod inode;
mod keys;
mod measure;
mod mounts;
mod pool;
mod reply;
mod segments;
mod session;
mod signals;

pub use busy::Holder;
pub use session::{MountConfig, MountError, UnmountError, block_signals, check, mount, unmount};

use crate::types::Patience;
use crate::view::Request as Asked;
use answers::Answers;
use fuser::{
    AccessFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner,
    OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// What fuser calls.
#[derive(Debug)]
struct Adapter {
    answers: Arc<Answers>,
}

/// The request's answer, or the reply back where it would have to wait.
type Answered<R> = Result<(), R>;

impl Adapter {
    /// Runs a handler; a panic is noted.
    fn guard(&self, request: Asked, body: impl FnOnce(&Arc<Answers>)) {
        answers::guard(&self.answers, request, Instant::now(), || body(&self.answers));
    }

    /// Asks about the node of a number at once, and where that would block, once more from the pool. `owned` makes what the second question needs.
    fn ask<R: Send + 'static, A: Send + 'static>(
        &self,
        request: Asked,
        number: INodeNo,
        reply: R,
        now: impl FnOnce(&Answers, R) -> Answered<R>,
        owned: impl FnOnce() -> A,
        later: impl FnOnce(&Answers, A, R) -> Answered<R> + Send + 'static,
    ) {
        self.guard(request, |answers| {
            if let Err(reply) = now(answers, reply) {
                let owned = owned();
                Answers::in_pool_of(answers, number.0, request, move |answers| {
                    // Whoever may wait is not told to wait: the reply is never given back, and dropping it would say EIO.
                    let _ = later(answers, owned, reply);
                });
            }
        });
    }
}

/// What a reply to a request that this file system does not know says: the kernel remembers it and asks no more.
const UNKNOWN: Errno = Errno::ENOSYS;

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // One by one: a bit that this kernel does not have would lose the others.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        // Attributes come along with names where the kernel sees that they are asked for, as `ls -l` does.
        for flag in [InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO] {
            let _ = config.add_capabilities(flag);
        }
        // A key that is opened to be truncated is told so: the truncation that would come apart from it has no handle.
        let _ = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        // Two, so that the log may lie on an overlay.
        if config.set_max_stack_depth(2).is_err() || config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_err() {
            self.answers.without_passthrough();
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.ask(
            Asked::Lookup,
            parent,
            reply,
            |answers, reply| answers.lookup(parent.0, name.as_bytes(), Patience::AtOnce, reply),
            || name.to_owned(),
            move |answers, name, reply| answers.lookup(parent.0, name.as_bytes(), Patience::MayBlock, reply),
        );
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.guard(Asked::Forget, |answers| answers.forget(number.0, lookups));
    }

    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let handle = handle.map(|handle| handle.0);
        self.ask(
            Asked::Getattr,
            number,
            reply,
            |answers, reply| answers.attributes(number.0, handle, Patience::AtOnce, reply),
            || (),
            move |answers, (), reply| answers.attributes(number.0, handle, Patience::MayBlock, reply),
        );
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes_owner_or_mode = mode.is_some() || uid.is_some() || gid.is_some();
        let handle = handle.map(|handle| handle.0);
        self.guard(Asked::Setattr, |answers| Answers::set_attributes(answers, number.0, changes_owner_or_mode, size, handle, reply));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        self.guard(Asked::Readlink, |answers| answers.readlink(number.0, reply));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.guard(Asked::Open, |answers| Answers::open(answers, number.0, flags, reply));
    }

    fn read(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        at: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let ask = answers::Read { number: number.0, handle: handle.0, at, size, flags, thread: request.pid() };
        self.ask(
            Asked::Read,
            number,
            reply,
            |answers, reply| answers.read(ask, Patience::AtOnce, reply),
            || (),
            move |answers, (), reply| answers.read(ask, Patience::MayBlock, reply),
        );
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        at: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // With DIRECT_IO the kernel sends no FSYNC for O_SYNC and O_DSYNC, which share this bit.
        let write = answers::Write { number: number.0, handle: handle.0, at, durable: flags.0 & libc::O_DSYNC != 0, flags };
        self.guard(Asked::Write, |answers| Answers::write(answers, write, data, reply));
    }

    fn flush(&self, request: &Request, number: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.guard(Asked::Flush, |answers| Answers::flush(answers, number.0, handle.0, request.pid(), reply));
    }

    fn fsync(&self, _: &Request, number: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.guard(Asked::Fsync, |answers| Answers::sync(answers, number.0, handle.0, reply));
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.guard(Asked::Release, |answers| {
            Answers::release(answers, number.0, handle.0, flags.acc_mode());
            reply.ok();
        });
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, cursor: u64, reply: ReplyDirectory) {
        self.ask(
            Asked::Readdir,
            number,
            reply,
            |answers, reply| answers.list(number.0, cursor, Patience::AtOnce, reply),
            || (),
            move |answers, (), reply| answers.list(number.0, cursor, Patience::MayBlock, reply),
        );
    }

    fn readdirplus(&self, _: &Request, number: INodeNo, _: FileHandle, cursor: u64, reply: ReplyDirectoryPlus) {
        self.ask(
            Asked::Readdirplus,
            number,
            reply,
            |answers, reply| answers.list_with_attributes(number.0, cursor, Patience::AtOnce, reply),
            || (),
            move |answers, (), reply| answers.list_with_attributes(number.0, cursor, Patience::MayBlock, reply),
        );
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.guard(Asked::Statfs, |answers| Answers::in_pool(answers, Asked::Statfs, move |answers| answers.space(reply)));
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.ask(
            Asked::Getxattr,
            number,
            reply,
            |answers, reply| answers.xattr(number.0, name.as_bytes(), size, Patience::AtOnce, reply),
            || name.to_owned(),
            move |answers, name, reply| answers.xattr(number.0, name.as_bytes(), size, Patience::MayBlock, reply),
        );
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        self.ask(
            Asked::Listxattr,
            number,
            reply,
            |answers, reply| answers.xattr_names(number.0, size, Patience::AtOnce, reply),
            || (),
            move |answers, (), reply| answers.xattr_names(number.0, size, Patience::MayBlock, reply),
        );
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(UNKNOWN);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.guard(Asked::Unlink, |answers| Answers::unlink(answers, parent.0, name, reply));
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn rename(&self, _: &Request, parent: INodeNo, name: &OsStr, to_parent: INodeNo, to: &OsStr, flags: RenameFlags, reply: ReplyEmpty) {
        self.guard(Asked::Rename, |answers| Answers::rename(answers, (parent.0, name), (to_parent.0, to), flags, reply));
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, flags: i32, reply: ReplyCreate) {
        self.guard(Asked::Create, |answers| Answers::create(answers, parent.0, name, flags, reply));
    }

    fn setxattr(&self, _: &Request, _: INodeNo, name: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        // Programs that copy permissions try access lists first, and give up at any other error.
        let is_access_list = name.as_bytes().starts_with(b"system.posix_acl_");
        reply.error(if is_access_list { Errno::EOPNOTSUPP } else { Errno::EPERM });
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(UNKNOWN);
    }

    fn ioctl(&self, _: &Request, _: INodeNo, _: FileHandle, _: IoctlFlags, _: u32, _: &[u8], _: u32, reply: ReplyIoctl) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        notifier: PollNotifier,
        _: PollEvents,
        flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let notifier = flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY).then_some(notifier);
        self.guard(Asked::Poll, |answers| answers.poll(number.0, handle.0, notifier, reply));
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        reply.error(UNKNOWN);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(UNKNOWN);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(UNKNOWN);
    }
}

/// Numbers are never reused, so every node is of the first generation.
const GENERATION: Generation = Generation(0);
