//! Who touches a file: inotify, asked afterwards.

use rustix::fs::inotify;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Files and other entries that nobody may open, read or change.
#[derive(Debug)]
pub(crate) struct Watch {
    queue: OwnedFd,
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn new(paths: &[&Path]) -> Watch {
        let queue = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).expect("inotify");
        for path in paths {
            let what = inotify::WatchFlags::OPEN | inotify::WatchFlags::ACCESS | inotify::WatchFlags::MODIFY;
            inotify::add_watch(&queue, *path, what | inotify::WatchFlags::DONT_FOLLOW).expect("a path to watch");
        }
        Watch { queue }
    }

    /// What happened to them, in words; empty for nothing.
    pub(crate) fn seen(&self) -> String {
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 4096];
        let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
        let mut words = String::new();
        while let Ok(event) = reader.next() {
            write!(words, "{:?} of the {}. path; ", event.events(), event.wd()).expect("a string takes it");
        }
        words
    }
}
