//! A disk that keeps a record of the blocks that are written to it, and what a power cut may leave of them.
//!
//! The disk is a file that this process serves through FUSE; a loop device with ext4 lies on top. What came before the last flush is on the disk; of what
//! came behind it any part is, each write whole, torn between two sectors, or not at all. The kernel's own dm-log-writes does the same where it is built in.

use crate::disk::{mount_image, run, unmount};
use crate::ledger::Random;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

const IMAGE_BYTES: usize = 24 << 20;
const SECTOR: usize = 512;
/// The inode of the one file.
const DISK: INodeNo = INodeNo(2);

#[derive(Debug)]
enum Event {
    Write(usize, Vec<u8>),
    Flush,
}

/// What was there at first, what is there now, and what led to it.
#[derive(Debug)]
struct Record {
    base: Vec<u8>,
    now: Vec<u8>,
    events: Vec<Event>,
}

#[derive(Debug)]
struct Shared(Mutex<Record>);

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().expect("nobody panics with it")
    }
}

/// The file system with the one file.
#[derive(Debug)]
struct OneFile(Arc<Shared>);

fn attr(ino: INodeNo) -> FileAttr {
    let (kind, size, perm) = if ino == DISK { (FileType::RegularFile, IMAGE_BYTES as u64, 0o600) } else { (FileType::Directory, 0, 0o700) };
    let [atime, mtime, ctime, crtime] = [UNIX_EPOCH; 4];
    let blocks = size / SECTOR as u64;
    FileAttr { ino, size, blocks, atime, mtime, ctime, crtime, kind, perm, nlink: 1, uid: 0, gid: 0, rdev: 0, flags: 0, blksize: 4096 }
}

impl Filesystem for OneFile {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" { reply.entry(&Duration::MAX, &attr(DISK), Generation(0)) } else { reply.error(Errno::ENOENT) }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(3600), &attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, size: u32, _: OpenFlags, _: Option<LockOwner>, reply: ReplyData) {
        let record = self.0.record();
        let from = (offset as usize).min(IMAGE_BYTES);
        reply.data(&record.now[from..(from + size as usize).min(IMAGE_BYTES)]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut record = self.0.record();
        let from = offset as usize;
        let Some(place) = record.now.get_mut(from..from + data.len()) else { return reply.error(Errno::ENOSPC) };
        place.copy_from_slice(data);
        record.events.push(Event::Write(from, data.to_vec()));
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.record().events.push(Event::Flush);
        reply.ok();
    }
}

/// An ext4 file system whose blocks are recorded, mounted.
#[derive(Debug)]
pub(crate) struct RecordedDisk {
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
    /// Taken away where the disk goes.
    session: Option<BackgroundSession>,
}

impl RecordedDisk {
    /// A new one.
    pub(crate) fn new() -> RecordedDisk {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = folder.path().join("image");
        fs::write(&image, vec![0; IMAGE_BYTES]).expect("a file for the disk");
        run(Command::new("mkfs.ext4").arg("-qF").arg(&image));
        let base = fs::read(&image).expect("the image");
        let shared = Arc::new(Shared(Mutex::new(Record { now: base.clone(), base, events: Vec::new() })));
        for name in ["fuse", "mnt", "cut"] {
            fs::create_dir(folder.path().join(name)).expect("a new folder");
        }
        let session = fuser::spawn_mount(OneFile(shared.clone()), folder.path().join("fuse"), &Config::default()).expect("/dev/fuse");
        let disk = RecordedDisk { folder, shared, session: Some(session) };
        mount_image(&disk.folder.path().join("fuse/disk"), &disk.point());
        disk
    }

    /// Where it is mounted.
    pub(crate) fn point(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// How many events there are so far. What was acknowledged before this was asked was flushed before it.
    pub(crate) fn events(&self) -> usize {
        self.shared.record().events.len()
    }

    /// An image of what a power cut behind so many events may leave, mounted for as long as the result lives.
    pub(crate) fn cut(&self, events: usize, random: &mut Random) -> Cut {
        let folder = self.folder.path();
        let cut = Cut { image: folder.join("image"), point: folder.join("cut") };
        fs::write(&cut.image, self.image(events, random)).expect("an image");
        mount_image(&cut.image, &cut.point);
        cut
    }

    fn image(&self, events: usize, random: &mut Random) -> Vec<u8> {
        let record = self.shared.record();
        let events = &record.events[..events];
        let flushed = events.iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
        let mut image = record.base.clone();
        // Mostly lost, mostly kept, or half of them.
        let (lost, torn) = ([1, 4, 9][random.below(3) as usize], random.below(3) == 0);
        for (number, event) in events.iter().enumerate() {
            let Event::Write(at, bytes) = event else { continue };
            let mut end = bytes.len();
            if number > flushed {
                if random.below(10) < lost {
                    continue;
                }
                if torn && random.below(4) == 0 {
                    end = random.below((end / SECTOR) as u64 + 1) as usize * SECTOR;
                }
            }
            image[*at..at + end].copy_from_slice(&bytes[..end]);
        }
        image
    }
}

impl Drop for RecordedDisk {
    fn drop(&mut self) {
        unmount(&self.point());
        if let Some(session) = self.session.take() {
            // The loop device lets go of the file a moment after the unmounting.
            let _ = Command::new("umount").arg("-l").arg(self.folder.path().join("fuse")).status();
            drop(session);
        }
    }
}

/// A mounted image.
#[derive(Debug)]
pub(crate) struct Cut {
    image: PathBuf,
    point: PathBuf,
}

impl Cut {
    /// Where it is mounted.
    pub(crate) fn point(&self) -> PathBuf {
        self.point.clone()
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        unmount(&self.point);
        let _ = fs::remove_file(&self.image);
    }
}
