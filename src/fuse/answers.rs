//! Each request's question to the view, and what becomes of the answer.
//!
//! A function that takes a [`Patience`] gives the reply back as an error where the answer would have to wait, so that the same
//! question can be asked from the pool. One that takes the shared state by `Arc` may hand itself to the pool.

mod keys;

use super::append::{self, Appends, Lookup};
use super::follow::{Follower, Waiters};
use super::inode::{self, Inodes};
use super::keys::KeyHandles;
use super::measure::{self, Measured, Ticket};
use super::pool::Pool;
use super::reply::{self, Fail, Failure, Ownership, errno};
use super::segments::OpenFiles;
use super::{Answered, GENERATION};
use crate::types::Patience;
use crate::view::{Error, ErrorKind, FileKind, Lifetime, Node, Place, Reader, Request, RequestCounters, Tree};
use fuser::{
    Errno, FileHandle, FopenFlags, INodeNo, OpenAccMode, OpenFlags, PollEvents, PollNotifier, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that may wait, and how many questions may wait for them.
const POOL_THREADS: usize = 4;
const POOL_QUEUE: usize = 1024;
/// Threads for questions about keys.
const KEY_POOL_THREADS: usize = 4;
/// Listings begin with `.` and `..`, whose cursors come before the view's.
const DOTS: u64 = 2;
/// The handle of a record whose opening the view counts; other handles of records have no closing that it waits for.
const COUNTED: u64 = 1;
/// The longest name that a listing can show and a look-up can ask for, in bytes.
const NAME_MOST: u32 = 255;
/// No read request is larger than the largest that the kernel negotiates, in bytes.
const READ_MOST: u32 = 16 << 20;

/// The state behind all requests.
#[derive(Debug)]
pub(super) struct Answers {
    tree: Arc<Tree>,
    counters: Arc<RequestCounters>,
    ownership: Ownership,
    inodes: Inodes,
    appends: Appends,
    files: OpenFiles,
    keys: KeyHandles,
    /// Open ranges and texts, by handle.
    readers: RwLock<HashMap<u64, Arc<Reader>>>,
    /// Open `follow` files, by handle.
    followers: RwLock<HashMap<u64, Arc<Follower>>>,
    waiters: Waiters,
    next_handle: AtomicU64,
    pool: Pool,
    /// Threads of their own for questions about keys: the first of a mount may read the whole log, and nothing else is to wait for that.
    key_pool: Pool,
}

/// A read request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// The inode's number.
    pub(super) number: u64,
    /// The handle of an open range or text.
    pub(super) handle: u64,
    /// The position in bytes.
    pub(super) at: u64,
    /// How many bytes at most.
    pub(super) size: u32,
    /// What the handle was opened with.
    pub(super) flags: OpenFlags,
    /// The thread that reads; 0 for one outside of this process's pid namespace.
    pub(super) thread: u32,
}

/// A write request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    /// The inode's number.
    pub(super) number: u64,
    /// The handle of an open key.
    pub(super) handle: u64,
    /// The position in bytes.
    pub(super) at: u64,
    /// Whether it is to be on the disk when it is answered.
    pub(super) durable: bool,
    /// What the handle was opened with.
    pub(super) flags: OpenFlags,
}

/// Adds an entry to a listing: its partition, name, kind, node where that is known, and the cursor behind it; says whether the reply is full.
type Add<'a> = dyn FnMut(u32, &[u8], FileKind, Option<&Node>, u64) -> bool + 'a;

/// Runs the body of a handler for a request that came at `came`, and counts the request. A panic drops its reply, which answers EIO, and is noted.
pub(super) fn guard(answers: &Answers, request: Request, came: Instant, body: impl FnOnce()) {
    let _measured = Measured::begin(&answers.counters, request, came);
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        measure::failed(Errno::EIO);
        let request = request.name();
        log::error!("a {request} request failed with a panic; it was answered EIO");
        let note = || answers.tree.note_event(&format!("a {request} request failed with a panic; this is a fault of the program"));
        // The note is a kindness; that it cannot be taken after such a fault changes nothing.
        let _ = catch_unwind(AssertUnwindSafe(note));
    }
}

/// Sends what was found or the errno; gives the reply back where asking again helps.
fn settle<T, R: Fail>(result: Result<T, Failure>, patience: Patience, reply: R, send: impl FnOnce(R, T)) -> Answered<R> {
    match (result, patience) {
        (Ok(found), _) => send(reply, found),
        (Err(Failure::WouldBlock), Patience::AtOnce) => return Err(reply),
        (Err(Failure::WouldBlock), Patience::MayBlock) => reply.fail(Errno::EAGAIN),
        (Err(Failure::Errno(errno)), _) => reply.fail(errno),
    }
    Ok(())
}

/// Answers a write of all these bytes.
fn written(result: Result<(), Error>, data: &[u8], reply: ReplyWrite) {
    match result {
        // No request carries more than 32 bits can count.
        Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
        Err(error) => reply.fail(errno(error.kind())),
    }
}

/// Answers what is only done or not.
fn done(result: Result<(), Error>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.fail(errno(error.kind())),
    }
}

impl Answers {
    /// The state of a new mount.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub(super) fn new(tree: Arc<Tree>, ownership: Ownership, passthrough: bool) -> io::Result<Answers> {
        let waiters = Waiters::new()?;
        Ok(Answers {
            counters: tree.requests(),
            tree,
            ownership,
            inodes: Inodes::new(),
            appends: Appends::new(waiters.bell()),
            files: OpenFiles::new(passthrough),
            keys: KeyHandles::default(),
            readers: RwLock::default(),
            followers: RwLock::default(),
            waiters,
            next_handle: AtomicU64::new(1),
            pool: Pool::new(POOL_THREADS, POOL_QUEUE)?,
            key_pool: Pool::new(KEY_POOL_THREADS, POOL_QUEUE)?,
        })
    }

    /// Runs a job on a thread that may wait.
    pub(super) fn in_pool(this: &Arc<Answers>, request: Request, job: impl FnOnce(&Answers) + Send + 'static) {
        this.run_in(&this.pool, request, Arc::clone(this), job);
    }

    /// The same for a job about keys.
    fn in_key_pool(this: &Arc<Answers>, request: Request, job: impl FnOnce(&Answers) + Send + 'static) {
        this.run_in(&this.key_pool, request, Arc::clone(this), job);
    }

    /// The same for a job about the node of a number.
    pub(super) fn in_pool_of(this: &Arc<Answers>, number: u64, request: Request, job: impl FnOnce(&Answers) + Send + 'static) {
        match this.inodes.place(number) {
            Some(Place { node: Node::ByKey | Node::Key(..), .. }) => Answers::in_key_pool(this, request, job),
            _ => Answers::in_pool(this, request, job),
        }
    }

    fn run_in(&self, pool: &Pool, request: Request, answers: Arc<Answers>, job: impl FnOnce(&Answers) + Send + 'static) {
        let came = measure::defer();
        pool.run(move || guard(&answers, request, came, || job(&answers)));
    }

    /// The kernel has no passthrough.
    pub(super) fn without_passthrough(&self) {
        self.files.without_passthrough();
    }

    /// The mount ends: nobody waits for records any more, and the tails of all open append files are committed, for at most `limit`.
    pub(super) fn finish(&self, limit: Duration) {
        self.waiters.close();
        self.appends.commit_tails(limit);
    }

    fn place(&self, number: u64) -> Result<Place, Failure> {
        self.inodes.place(number).ok_or(Failure::Errno(Errno::ESTALE))
    }

    pub(super) fn lookup(&self, parent: u64, name: &[u8], patience: Patience, reply: ReplyEntry) -> Answered<ReplyEntry> {
        let find = || -> Result<_, Failure> { Ok(self.tree.lookup_with_attr(&self.place(parent)?, name, patience)?) };
        settle(find(), patience, reply, |reply, (place, attr)| {
            let mut attributes = self.ownership.attributes(0, &place.node, &attr);
            let number = self.inodes.look_up(place);
            attributes.ino = INodeNo(number);
            let (entry_ttl, attr_ttl) = reply::ttls(attr.lifetime);
            reply.entry_with_ttls(&attr_ttl, &entry_ttl, &attributes, GENERATION);
        })
    }

    pub(super) fn forget(&self, number: u64, lookups: u64) {
        self.inodes.forget(number, lookups);
    }

    pub(super) fn attributes(&self, number: u64, handle: Option<u64>, patience: Patience, reply: ReplyAttr) -> Answered<ReplyAttr> {
        let find = || -> Result<_, Failure> {
            let place = self.place(number)?;
            let mut attr = self.tree.attr(&place, patience)?;
            if let Some(key) = handle.and_then(|handle| self.keys.get(handle)) {
                // Who writes a key sees what it has written.
                attr.size = key.draft.size();
            }
            Ok((place, attr))
        };
        settle(find(), patience, reply, |reply, (place, attr)| {
            reply.attr(&reply::ttls(attr.lifetime).1, &self.ownership.attributes(number, &place.node, &attr));
        })
    }

    /// Truncation and times of an append file are accepted and change nothing, and so are owner, mode and times of a key and of by-key, which
    /// programs set that copy or replace files; all else is refused.
    pub(super) fn set_attributes(
        this: &Arc<Answers>,
        number: u64,
        changes_owner_or_mode: bool,
        size: Option<u64>,
        handle: Option<u64>,
        reply: ReplyAttr,
    ) {
        let place = match this.place(number) {
            Ok(place) => place,
            Err(_) => return reply.fail(Errno::ESTALE),
        };
        match place.node {
            Node::Append(_) | Node::Ctl if !changes_owner_or_mode => {
                // The attributes of these files are known without waiting.
                let _ = this.attributes(number, None, Patience::MayBlock, reply);
            }
            Node::Key(..) | Node::ByKey => Answers::set_key_attributes(this, number, place, size, handle, reply),
            _ => reply.fail(Errno::EPERM),
        }
    }

    pub(super) fn readlink(&self, number: u64, reply: ReplyData) {
        match self.place(number).map(|place| place.node) {
            Ok(Node::Link(target)) => reply.data(target.as_bytes()),
            Ok(_) => reply.fail(Errno::EINVAL),
            Err(_) => reply.fail(Errno::ESTALE),
        }
    }

    pub(super) fn open(this: &Arc<Answers>, number: u64, flags: OpenFlags, reply: ReplyOpen) {
        let mode = flags.acc_mode();
        let place = match this.place(number) {
            Ok(place) => place,
            Err(_) => return reply.fail(Errno::ESTALE),
        };
        let writes = mode != OpenAccMode::O_RDONLY || flags.0 & libc::O_TRUNC != 0;
        if writes && !matches!(place.node, Node::Append(_) | Node::Ctl | Node::Key(..)) {
            // Whom the permission bits do not stop, root, is stopped here.
            return reply.fail(Errno::EPERM);
        }
        match place.node {
            Node::Append(framing) => {
                let readable = mode == OpenAccMode::O_RDWR;
                let appender = || this.tree.appender(&place, framing).map_err(|error| errno(error.kind()));
                let mut flags = FopenFlags::FOPEN_DIRECT_IO;
                if mode == OpenAccMode::O_RDONLY {
                    return reply.opened(FileHandle(0), flags | FopenFlags::FOPEN_NOFLUSH);
                }
                if readable {
                    // A file position means nothing there, and a shell that could seek would read ahead and go back.
                    flags |= FopenFlags::FOPEN_STREAM | FopenFlags::FOPEN_NONSEEKABLE;
                }
                match this.appends.open(number, readable, appender) {
                    Ok(()) => reply.opened(FileHandle(0), flags),
                    Err(errno) => reply.fail(errno),
                }
            }
            Node::Record(..) => match this.tree.open_record(&place, Patience::AtOnce) {
                Ok(lifetime) => reply.opened(FileHandle(COUNTED), reply::cached(lifetime)),
                // Deleted from the front since its name was looked up.
                Err(error) if error.kind() == ErrorKind::NotFound => reply.fail(errno(error.kind())),
                // What is wrong the read will say; nothing is cached then.
                Err(_) => reply.opened(FileHandle(0), reply::cached(Lifetime::Foreign)),
            },
            Node::Ctl => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH),
            Node::Key(..) if writes => Answers::open_draft(this, number, place, flags, reply),
            Node::Range(_) | Node::Decoded(..) | Node::Follow(_) | Node::Text(_) | Node::Merged(_) | Node::Key(..) => {
                if let Err(reply) = this.open_reader(&place, Patience::AtOnce, reply) {
                    Answers::in_pool_of(this, number, Request::Open, move |answers| {
                        // Whoever may wait does not get the reply back.
                        let _ = answers.open_reader(&place, Patience::MayBlock, reply);
                    });
                }
            }
            // Opening a file may look for it on the disk.
            Node::SegmentFile(_) => Answers::in_pool(this, Request::Open, move |answers| answers.open_file(number, &place, reply)),
            Node::Root | Node::ByOffset | Node::ByTime | Node::ByKey | Node::Segments | Node::DecodedDir => reply.fail(Errno::EISDIR),
            Node::Topic(_) | Node::Apart | Node::TopicTimes(_) => reply.fail(Errno::EISDIR),
            Node::Link(_) => reply.fail(Errno::ELOOP),
        }
    }

    fn open_reader(&self, place: &Place, patience: Patience, reply: ReplyOpen) -> Answered<ReplyOpen> {
        settle(self.tree.open(place, patience).map_err(Failure::from), patience, reply, |reply, reader| {
            let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
            let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
            if let Node::Follow(_) = place.node {
                // A position means nothing there, but head(1) goes back to where its line ended, and says so where it cannot.
                self.followers.write().insert(handle, Arc::new(Follower::new(handle, reader)));
            } else {
                self.readers.write().insert(handle, Arc::new(reader));
            }
            reply.opened(FileHandle(handle), flags);
        })
    }

    fn open_file(&self, number: u64, place: &Place, reply: ReplyOpen) {
        match self.tree.attr(place, Patience::MayBlock) {
            Ok(attr) => {
                let file = || self.tree.file(place).map_err(|error| errno(error.kind()));
                self.files.open(number, reply::cached(attr.lifetime), file, reply);
            }
            Err(error) => reply.fail(errno(error.kind())),
        }
    }

    pub(super) fn read(&self, ask: Read, patience: Patience, reply: ReplyData) -> Answered<ReplyData> {
        let size = ask.size.min(READ_MOST) as usize;
        if inode::is_follow(ask.number) {
            return self.read_follow(ask, size, patience, reply);
        }
        reply::with_buffer(size, |buffer| {
            let read = self.read_into(ask, patience, buffer);
            settle(read, patience, reply, |reply, n| {
                self.counters.read(n as u64);
                reply.data(buffer.get(..n).unwrap_or_default());
            })
        })
    }

    fn read_follow(&self, ask: Read, size: usize, patience: Patience, reply: ReplyData) -> Answered<ReplyData> {
        let Some(follower) = self.followers.read().get(&ask.handle).cloned() else {
            reply.fail(Errno::EBADF);
            return Ok(());
        };
        reply::with_buffer(size, |buffer| match follower.read(buffer, patience) {
            Ok(0) if size > 0 && ask.flags.0 & libc::O_NONBLOCK == 0 => {
                self.waiters.park(follower, size, ask.thread, reply);
                Ok(())
            }
            Ok(0) if size > 0 => settle::<(), _>(Err(Errno::EAGAIN.into()), patience, reply, |_, ()| ()),
            read => settle(read, patience, reply, |reply, n| reply.data(buffer.get(..n).unwrap_or_default())),
        })
    }

    /// Says what a handle is ready for; `notifier` is kept for one that is ready for nothing yet.
    pub(super) fn poll(&self, number: u64, handle: u64, notifier: Option<PollNotifier>, reply: ReplyPoll) {
        let readable = PollEvents::POLLIN | PollEvents::POLLRDNORM;
        if !inode::is_follow(number) {
            return reply.poll(readable | PollEvents::POLLOUT | PollEvents::POLLWRNORM);
        }
        let Some(follower) = self.followers.read().get(&handle).cloned() else { return reply.poll(PollEvents::POLLERR) };
        if follower.is_ready(Patience::AtOnce) {
            return reply.poll(readable);
        }
        if let Some(notifier) = notifier {
            self.waiters.tell(follower, notifier);
        }
        reply.poll(PollEvents::empty());
    }

    fn read_into(&self, ask: Read, patience: Patience, buffer: &mut [u8]) -> Result<usize, Failure> {
        let place = self.place(ask.number)?;
        match place.node {
            Node::Record(..) => Ok(self.tree.read_record(&place, ask.at, buffer, patience)?),
            Node::Key(..) if let Some(key) = self.keys.get(ask.handle) => Ok(key.draft.read(ask.at, buffer)),
            Node::Range(_) | Node::Decoded(..) | Node::Text(_) | Node::Merged(_) | Node::Key(..) => {
                let reader = self.readers.read().get(&ask.handle).cloned().ok_or(Errno::EBADF)?;
                Ok(reader.read(ask.at, buffer, patience)?)
            }
            Node::SegmentFile(_) => {
                let file = self.files.file(ask.number).ok_or(Errno::EBADF)?;
                let read = match patience {
                    Patience::AtOnce => file.read_at_once(buffer, ask.at),
                    Patience::MayBlock => file.read_at(buffer, ask.at).map(Some),
                };
                read.map_err(|error| Failure::Errno(error.into()))?.ok_or(Failure::WouldBlock)
            }
            Node::Append(_) if ask.flags.acc_mode() == OpenAccMode::O_RDWR => {
                Ok(self.appends.get(ask.number).map_or(0, |lookup| lookup.appender.read_back(buffer)))
            }
            Node::Append(_) | Node::Ctl => Ok(0),
            // Read by `read_follow`.
            Node::Follow(_) => Err(Errno::EBADF.into()),
            Node::Root | Node::ByOffset | Node::ByTime | Node::ByKey | Node::Segments | Node::DecodedDir => Err(Errno::EISDIR.into()),
            Node::Topic(_) | Node::Apart | Node::TopicTimes(_) => Err(Errno::EISDIR.into()),
            Node::Link(_) => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn write(this: &Arc<Answers>, ask: Write, data: &[u8], reply: ReplyWrite) {
        if let Some(lookup) = this.appends.get(ask.number) {
            return lookup.write(data, ask.durable, Ticket::take(&this.counters, Request::Write), reply);
        }
        match this.place(ask.number) {
            Ok(place) if place.node == Node::Ctl => {
                let commands = data.to_vec();
                Answers::in_pool(this, Request::Write, move |answers| written(answers.tree.control(&place, &commands), &commands, reply));
            }
            Ok(Place { node: Node::Key(..), .. }) => match this.keys.get(ask.handle) {
                Some(key) => written(key.write(ask.at, ask.flags.0 & libc::O_APPEND != 0, data), data, reply),
                None => reply.fail(Errno::EBADF),
            },
            _ => reply.fail(Errno::EBADF),
        }
    }

    pub(super) fn flush(this: &Arc<Answers>, number: u64, handle: u64, closer: u32, reply: ReplyEmpty) {
        if let Some(key) = this.keys.get(handle).filter(|key| key.draft.is_due()) {
            return Answers::in_key_pool(this, Request::Flush, move |_| done(key.close(closer), reply));
        }
        match this.appends.get(number).filter(|lookup| lookup.appender.tail_pending()) {
            Some(lookup) => Answers::in_pool(this, Request::Flush, move |answers| {
                Lookup::flush(&lookup, number, closer, Ticket::take(&answers.counters, Request::Flush), reply);
            }),
            None => reply.ok(),
        }
    }

    pub(super) fn sync(this: &Arc<Answers>, number: u64, handle: u64, reply: ReplyEmpty) {
        if let Some(key) = this.keys.get(handle) {
            return Answers::in_key_pool(this, Request::Fsync, move |_| done(key.draft.commit(true), reply));
        }
        match this.appends.get(number) {
            // A tail is committed behind a write that may be under way.
            Some(lookup) if lookup.appender.tail_pending() => Answers::in_pool(this, Request::Fsync, move |answers| {
                lookup.sync(Ticket::take(&answers.counters, Request::Fsync), reply);
            }),
            Some(lookup) => lookup.sync(Ticket::take(&this.counters, Request::Fsync), reply),
            // sync(1) opens for reading only: whatever file it is, what was written to its log before is meant.
            None => match this.inodes.place(number) {
                Some(place) => Answers::in_pool_of(this, number, Request::Fsync, move |answers| {
                    let ticket = Ticket::take(&answers.counters, Request::Fsync);
                    answers.tree.sync(&place, Box::new(move |result| append::answer(result, ticket, reply)));
                }),
                None => reply.ok(),
            },
        }
    }

    pub(super) fn release(this: &Arc<Answers>, number: u64, handle: u64, mode: OpenAccMode) {
        let place = this.inodes.place(number);
        match place.as_ref().map(|place| &place.node) {
            Some(Node::Record(..)) if handle != COUNTED => {}
            Some(Node::Record(..)) => place.iter().for_each(|place| this.tree.close_record(place)),
            Some(Node::Append(_)) if mode != OpenAccMode::O_RDONLY => {
                if let Some(lookup) = this.appends.release(number) {
                    if lookup.appender.tail_pending() {
                        Answers::in_pool(this, Request::Release, move |_| lookup.finish());
                    } else {
                        lookup.finish();
                    }
                }
            }
            Some(Node::SegmentFile(_)) => this.files.release(number),
            Some(Node::Key(..)) if let Some(key) = this.keys.remove(handle) => {
                if key.draft.is_due() {
                    // No writer waits for the answer any more; `errors` has it.
                    Answers::in_key_pool(this, Request::Release, move |_| drop(key.draft.commit(key.durable)));
                }
            }
            Some(Node::Range(_) | Node::Decoded(..) | Node::Text(_) | Node::Merged(_) | Node::Key(..)) => {
                drop(this.readers.write().remove(&handle))
            }
            Some(Node::Follow(_)) => {
                this.waiters.forget(handle);
                this.followers.write().remove(&handle);
            }
            Some(Node::Append(_) | Node::Ctl | Node::Link(_)) | None => {}
            Some(Node::Root | Node::ByOffset | Node::ByTime | Node::ByKey | Node::Segments | Node::DecodedDir) => {}
            Some(Node::Topic(_) | Node::Apart | Node::TopicTimes(_)) => {}
        }
    }

    pub(super) fn list(&self, number: u64, cursor: u64, patience: Patience, mut reply: ReplyDirectory) -> Answered<ReplyDirectory> {
        let result = self.list_into(number, cursor, patience, &mut |slot, name, kind, node, behind| {
            let inode = match (name, node) {
                (b".", _) => number,
                (b"..", _) => reply::PARENT,
                (_, node) => self.inodes.number(slot, node),
            };
            reply.add(INodeNo(inode), behind, reply::file_type(kind), OsStr::from_bytes(name))
        });
        settle(result, patience, reply, |reply, ()| reply.ok())
    }

    /// The same, and with each name its attributes, where its number needs no table; the others are looked up by the kernel when it wants them.
    pub(super) fn list_with_attributes(
        &self,
        number: u64,
        cursor: u64,
        patience: Patience,
        mut reply: ReplyDirectoryPlus,
    ) -> Answered<ReplyDirectoryPlus> {
        let result = self.list_into(number, cursor, patience, &mut |slot, name, kind, node, behind| {
            let name = OsStr::from_bytes(name);
            if let Some(node) = node.filter(|node| matches!(node, Node::Record(..)))
                && let inode = self.inodes.number(slot, Some(node))
                && inode != inode::UNKNOWN
                && let Ok(attr) = self.tree.attr(&Place { slot, node: node.clone() }, patience)
            {
                let attributes = self.ownership.attributes(inode, node, &attr);
                return reply.add(INodeNo(inode), behind, name, &reply::ttls(attr.lifetime).0, &attributes, GENERATION);
            }
            let attributes = self.ownership.bare(reply::file_type(kind));
            reply.add(INodeNo(0), behind, name, &Duration::ZERO, &attributes, GENERATION)
        });
        settle(result, patience, reply, |reply, ()| reply.ok())
    }

    /// Lists a directory from a cursor on, the dots first, until `add` says that the reply is full.
    fn list_into(&self, number: u64, cursor: u64, patience: Patience, add: &mut Add<'_>) -> Result<(), Failure> {
        let dir = self.place(number)?;
        let mut filled = false;
        for (behind, name) in [(1, &b"."[..]), (DOTS, b"..")] {
            if cursor < behind {
                if add(dir.slot, name, FileKind::Directory, None, behind) {
                    return Ok(());
                }
                filled = true;
            }
        }
        let result = self.tree.list(&dir, cursor.saturating_sub(DOTS), patience, &mut |name, kind, node, behind| {
            let full = add(dir.slot, name, kind, node, behind.saturating_add(DOTS));
            filled |= !full;
            !full
        });
        // What was found before an error is shown; the next request meets the error alone.
        if filled { Ok(()) } else { result.map_err(Failure::from) }
    }

    pub(super) fn space(&self, reply: ReplyStatfs) {
        let space = self.tree.space();
        reply.statfs(
            space.blocks,
            space.free,
            space.available,
            space.files,
            space.files_free,
            space.block_size,
            NAME_MOST,
            space.block_size,
        );
    }

    pub(super) fn xattr(&self, number: u64, name: &[u8], size: u32, patience: Patience, reply: ReplyXattr) -> Answered<ReplyXattr> {
        let find = || -> Result<_, Failure> { Ok(self.tree.xattr(&self.place(number)?, name, patience)?) };
        settle(find(), patience, reply, |reply, value| reply::send_xattr(reply, size, &value))
    }

    pub(super) fn xattr_names(&self, number: u64, size: u32, patience: Patience, reply: ReplyXattr) -> Answered<ReplyXattr> {
        let find = || -> Result<_, Failure> { Ok(self.tree.xattr_names(&self.place(number)?, patience)?) };
        settle(find(), patience, reply, |reply, names| {
            let mut list = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
            for name in names {
                list.extend_from_slice(&name);
                list.push(0);
            }
            reply::send_xattr(reply, size, &list);
        })
    }
}
