//! The real files: the kernel reads them itself where it can (passthrough), else this process does.
//!
//! The kernel refuses to mix both ways on one inode, so the way is chosen at the first open and kept until the last close. Whether
//! passthrough works at all is only known once it was tried: the kernel offers it to daemons that may not use it.

use super::reply::Fail;
use crate::io::File;
use fuser::{BackingId, Errno, FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Real files that are open, by inode number.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: Mutex<HashMap<u64, OpenFile>>,
    passthrough: AtomicBool,
}

#[derive(Debug)]
struct OpenFile {
    file: Arc<dyn File>,
    backing: Option<BackingId>,
    /// How many opens were answered and not released.
    opens: usize,
}

impl OpenFiles {
    /// No open file; `passthrough` says whether it is worth trying.
    pub(super) fn new(passthrough: bool) -> OpenFiles {
        OpenFiles { files: Mutex::default(), passthrough: AtomicBool::new(passthrough) }
    }

    /// Passthrough was not negotiated.
    pub(super) fn without_passthrough(&self) {
        self.passthrough.store(false, Ordering::Relaxed);
    }

    /// Answers an open. `file` opens the file; it is called if no open of this inode is left. `flags` are those for reading through
    /// this process.
    pub(super) fn open(&self, inode: u64, flags: FopenFlags, file: impl FnOnce() -> Result<Arc<dyn File>, Errno>, reply: ReplyOpen) {
        let mut files = self.files.lock();
        let open = match files.entry(inode) {
            std::collections::hash_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => match file() {
                Ok(file) => {
                    let backing = self.try_passthrough(&*file, &reply);
                    place.insert(OpenFile { file, backing, opens: 0 })
                }
                Err(errno) => return reply.fail(errno),
            },
        };
        open.opens = open.opens.saturating_add(1);
        match &open.backing {
            Some(backing) => reply.opened_passthrough(FileHandle(0), FopenFlags::FOPEN_NOFLUSH, backing),
            None => reply.opened(FileHandle(0), flags),
        }
    }

    fn try_passthrough(&self, file: &dyn File, reply: &ReplyOpen) -> Option<BackingId> {
        if !self.passthrough.load(Ordering::Relaxed) {
            return None;
        }
        match reply.open_backing(file.descriptor()?) {
            Ok(backing) => Some(backing),
            Err(error) => {
                log::info!("segments are read through this process: the kernel refuses passthrough ({error})");
                self.without_passthrough();
                None
            }
        }
    }

    /// An open file, for a read that does not pass through.
    pub(super) fn file(&self, inode: u64) -> Option<Arc<dyn File>> {
        self.files.lock().get(&inode).map(|open| Arc::clone(&open.file))
    }

    /// One open less; the last one closes the file.
    pub(super) fn release(&self, inode: u64) {
        let mut files = self.files.lock();
        if let Some(open) = files.get_mut(&inode) {
            open.opens = open.opens.saturating_sub(1);
            if open.opens == 0 {
                files.remove(&inode);
            }
        }
    }
}
