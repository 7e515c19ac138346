//! Requests that change `by-key/`: keys that are opened for writing, made, removed, renamed, and cut.
//!
//! They wait for the log, so each goes to the threads for keys.

use super::{Answers, settle};
use crate::fuse::GENERATION;
use crate::fuse::keys::KeyHandle;
use crate::fuse::reply::{self, Fail, Failure, errno};
use crate::types::Patience;
use crate::view::{Draft, Error, Node, Opening, Place, Request};
use fuser::{Errno, FileHandle, FopenFlags, INodeNo, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyOpen};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Answers {
    /// Cuts or fills a key to a size; owner, mode and times are accepted and change nothing.
    pub(super) fn set_key_attributes(
        this: &Arc<Answers>,
        number: u64,
        place: Place,
        size: Option<u64>,
        handle: Option<u64>,
        reply: ReplyAttr,
    ) {
        Answers::in_key_pool(this, Request::Setattr, move |answers| match answers.set_key(&place, size, handle) {
            // Whoever may wait does not get the reply back.
            Ok(()) => drop(answers.attributes(number, handle, Patience::MayBlock, reply)),
            Err(error) => reply.fail(errno(error.kind())),
        });
    }

    fn set_key(&self, place: &Place, size: Option<u64>, handle: Option<u64>) -> Result<(), Error> {
        match (size, handle.and_then(|handle| self.keys.get(handle))) {
            (Some(len), Some(key)) => key.draft.set_len(len),
            (Some(len), None) => {
                let draft = self.tree.draft(place, Opening::default())?;
                draft.set_len(len).and_then(|()| draft.commit(false))
            }
            (None, _) => self.tree.keys_writable(place),
        }
    }

    /// Opens a key for writing.
    pub(super) fn open_draft(this: &Arc<Answers>, number: u64, place: Place, flags: OpenFlags, reply: ReplyOpen) {
        Answers::in_key_pool(this, Request::Open, move |answers| {
            let opening = Opening { truncate: flags.0 & libc::O_TRUNC != 0, ..Opening::default() };
            match answers.tree.draft(&place, opening) {
                Ok(draft) => reply.opened(answers.keep_draft(number, draft, flags.0), FopenFlags::FOPEN_DIRECT_IO),
                Err(error) => reply.fail(errno(error.kind())),
            }
        });
    }

    /// A new handle for a draft, opened with these flags.
    fn keep_draft(&self, number: u64, draft: Arc<Draft>, flags: i32) -> FileHandle {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.keys.insert(handle, KeyHandle { number, draft, durable: flags & libc::O_DSYNC != 0 });
        FileHandle(handle)
    }

    pub(in crate::fuse) fn create(this: &Arc<Answers>, parent: u64, name: &OsStr, flags: i32, reply: ReplyCreate) {
        let name = name.to_owned();
        let opening = Opening { truncate: flags & libc::O_TRUNC != 0, create: true, exclusive: flags & libc::O_EXCL != 0 };
        Answers::in_key_pool(this, Request::Create, move |answers| {
            let make = || -> Result<_, Failure> {
                let (place, draft) = answers.tree.create(&answers.place(parent)?, name.as_bytes(), opening)?;
                let attr = answers.tree.attr(&place, Patience::MayBlock)?;
                Ok((place, draft, attr))
            };
            let sent = settle(make(), Patience::MayBlock, reply, |reply, (place, draft, attr)| {
                let mut attributes = answers.ownership.attributes(0, &place.node, &attr);
                let number = answers.inodes.look_up(place);
                attributes.ino = INodeNo(number);
                let handle = answers.keep_draft(number, draft, flags);
                reply.created(&reply::ttls(attr.lifetime).0, &attributes, GENERATION, handle, FopenFlags::FOPEN_DIRECT_IO);
            });
            // Whoever may wait does not get the reply back.
            drop(sent);
        });
    }

    pub(in crate::fuse) fn unlink(this: &Arc<Answers>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        Answers::in_key_pool(this, Request::Unlink, move |answers| {
            let remove = || -> Result<(), Failure> { Ok(answers.tree.remove(&answers.place(parent)?, name.as_bytes())?) };
            drop(settle(remove(), Patience::MayBlock, reply, |reply, ()| reply.ok()));
        });
    }

    /// Renames from a name in one directory to a name in another, given by their numbers.
    pub(in crate::fuse) fn rename(this: &Arc<Answers>, from: (u64, &OsStr), to: (u64, &OsStr), flags: RenameFlags, reply: ReplyEmpty) {
        let (from, to) = ((from.0, from.1.to_owned()), (to.0, to.1.to_owned()));
        let no_replace = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let can = (flags - RenameFlags::RENAME_NOREPLACE).is_empty();
        Answers::in_key_pool(this, Request::Rename, move |answers| {
            let rename = || -> Result<(), Failure> {
                let (dir, to_dir) = (answers.place(from.0)?, answers.place(to.0)?);
                if !can && dir.node == Node::ByKey {
                    return Err(Errno::EINVAL.into());
                }
                let (old, new) = answers.tree.rename(&dir, from.1.as_bytes(), &to_dir, to.1.as_bytes(), no_replace)?;
                answers.inodes.moved(&old, new);
                Ok(())
            };
            drop(settle(rename(), Patience::MayBlock, reply, |reply, ()| reply.ok()));
        });
    }
}
