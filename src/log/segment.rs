//! One segment for readers: its place in the log, the published end of its bytes, and its maps, opened at the first look and closed by an LRU.
//!
//! Nothing here searches; `seek` does. Nothing here writes; the writer publishes new ends through [`Segment::publish`].

use crate::error::{Error, Result};
use crate::io::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::io::sync::{ArcSwapOption, Mutex};
use crate::io::{Directory, File, Map, Metadata, Open, read_up_to};
use crate::log::index::{used_offset_bytes, used_time_bytes};
use crate::log::names;
use crate::log::scan::Scan;
use crate::log::verified::Instance;
use crate::types::{Offset, TimestampMs};
use arc_swap::Guard;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Weak};

/// The greatest length of a `.log` file that positions can name, in bytes.
pub const LOG_LEN_MAX: u64 = i32::MAX as u64;

/// The bytes of an index: mapped, or read into memory where the file may be trimmed under us or does not exist.
#[derive(Clone, Debug)]
pub enum IndexBytes {
    /// A map of the file and the number of bytes that are entries, which the writer raises.
    Mapped(Arc<Map>, Arc<AtomicU64>),
    /// In memory.
    Owned(Arc<Vec<u8>>),
}

impl IndexBytes {
    /// The entries.
    #[inline]
    pub fn entries(&self) -> &[u8] {
        match self {
            IndexBytes::Mapped(map, used) => map.slice(0..used.load(Ordering::Acquire)).unwrap_or_default(),
            IndexBytes::Owned(bytes) => bytes,
        }
    }

    fn is_broken(&self) -> bool {
        matches!(self, IndexBytes::Mapped(map, _) if map.is_broken())
    }
}

/// A segment whose files are mapped.
#[derive(Debug)]
pub struct OpenSegment {
    /// Names this opening in what was verified.
    pub instance: Instance,
    /// The `.log`; readers slice only up to [`Segment::end`].
    pub log: Arc<Map>,
    /// The offset index.
    pub index: IndexBytes,
    /// The time index.
    pub timeindex: IndexBytes,
    /// The thorough pass, where one was needed; the indexes are then the ones that it made.
    pub scan: Option<Arc<Scan>>,
}

impl OpenSegment {
    /// Whether a file lost bytes under one of the maps.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.log.is_broken() || self.index.is_broken() || self.timeindex.is_broken()
    }
}

/// How a segment's files are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Not the last one: its files do not grow.
    Sealed,
    /// The last one, not (or not yet) appended to by this process: it may grow, and its indexes may be trimmed under us.
    Last,
}

/// A segment.
#[derive(Debug)]
pub struct Segment {
    base_offset: Offset,
    log_name: Arc<str>,
    /// What follows the usual names: `.swap` where a finished cleaning was not renamed yet, else nothing.
    suffix: &'static str,
    /// The identity of the `.log`, to notice that another file took its name.
    inode: u64,
    /// The permission bits of its `.log`.
    mode: u32,
    mtime_ms: AtomicI64,
    end: AtomicU64,
    open: ArcSwapOption<OpenSegment>,
    recently_used: AtomicBool,
    /// The writer's files are never closed by the LRU.
    pinned: AtomicBool,
    /// Whether the clock hand passes over it.
    in_ring: AtomicBool,
    /// Held while the files are opened, scanned or exchanged; never by a reader of an open segment.
    opening: Mutex<()>,
    /// The largest time and the last offset of its batch, once known: `i64::MIN` is unknown.
    largest_ms: AtomicI64,
}

impl Segment {
    /// A segment of a directory, from its base offset and the metadata of its `.log`.
    /// `suffix` is `.swap` for the files of a finished cleaning, else empty.
    pub fn new(base_offset: Offset, suffix: &'static str, metadata: &Metadata) -> Segment {
        Segment {
            base_offset,
            log_name: format!("{}{suffix}", names::of(base_offset, names::LOG)).into(),
            suffix,
            inode: metadata.inode,
            mode: metadata.mode,
            mtime_ms: AtomicI64::new(metadata.mtime().get()),
            end: AtomicU64::new(metadata.len.min(LOG_LEN_MAX)),
            open: ArcSwapOption::empty(),
            recently_used: AtomicBool::new(false),
            pinned: AtomicBool::new(false),
            in_ring: AtomicBool::new(false),
            opening: Mutex::new(()),
            largest_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// The offset in its name.
    #[inline]
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// The name of its `.log`.
    pub fn log_name(&self) -> &str {
        &self.log_name
    }

    /// The same, to keep.
    pub fn log_name_shared(&self) -> Arc<str> {
        self.log_name.clone()
    }

    /// What follows the usual names of its files: `.swap` where a finished cleaning was not renamed yet, else nothing.
    pub fn suffix(&self) -> &'static str {
        self.suffix
    }

    /// The inode of its `.log`.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The permission bits of its `.log`, as they were when it was found.
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// When its `.log` was last written to, as the file system says.
    pub fn mtime(&self) -> TimestampMs {
        TimestampMs::new(self.mtime_ms.load(Ordering::Relaxed))
    }

    /// The bytes of the `.log` that readers may look at.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Lets readers see the bytes up to `end`. The bytes and the index entries for them must be stored before.
    pub fn publish(&self, end: u64, mtime: Option<TimestampMs>) {
        if let Some(mtime) = mtime {
            self.mtime_ms.store(mtime.get(), Ordering::Relaxed);
        }
        self.end.store(end, Ordering::Release);
    }

    /// The largest time of its records, once it was looked for; [`TimestampMs::NONE`] where no record has one.
    pub fn largest(&self) -> Option<TimestampMs> {
        match self.largest_ms.load(Ordering::Acquire) {
            i64::MIN => None,
            ms => Some(TimestampMs::new(ms)),
        }
    }

    /// Remembers the largest time.
    pub fn set_largest(&self, largest: TimestampMs) {
        self.largest_ms.store(largest.get().max(i64::MIN + 1), Ordering::Release);
    }

    /// Forgets it, since the segment has grown.
    pub fn forget_largest(&self) {
        self.largest_ms.store(i64::MIN, Ordering::Release);
    }

    /// The open files, if they are; no lock, no system call.
    #[inline]
    pub fn opened(&self) -> Option<Guard<Option<Arc<OpenSegment>>>> {
        let guard = self.open.load();
        if guard.is_none() {
            return None;
        }
        if !self.recently_used.load(Ordering::Relaxed) {
            self.recently_used.store(true, Ordering::Relaxed);
        }
        Some(guard)
    }

    /// Opens the files, or gives those that are open.
    ///
    /// # Errors
    /// What the system says; that the segment is gone shows as an error of kind `NotFound`.
    pub fn open(
        self: &Arc<Segment>,
        dir: &dyn Directory,
        role: Role,
        segment_bytes: u64,
        cache: &OpenSegments,
    ) -> Result<Arc<OpenSegment>> {
        let _opening = self.opening.lock();
        if let Some(open) = self.open.load_full().filter(|o| !o.is_broken()) {
            return Ok(open);
        }
        let file = self.open_log(dir).map_err(|e| Error::io("open", &self.log_name, e))?;
        let len = match role {
            Role::Sealed => {
                // Somebody has shortened it since it was found: what is gone is damage, and what is left is looked at as it is.
                let file_len = file.metadata().map_err(|e| Error::io("look at", &self.log_name, e))?.len;
                if file_len < self.end() {
                    self.publish(file_len, None);
                }
                self.end()
            }
            Role::Last => self.end().max(segment_bytes).min(LOG_LEN_MAX),
        };
        let log = file.map(len).map_err(|e| Error::io("map", &self.log_name, e))?;
        let index = self.open_index(dir, names::INDEX, role, used_offset_bytes)?;
        let timeindex = self.open_index(dir, names::TIME_INDEX, role, used_time_bytes)?;
        let open = Arc::new(OpenSegment { instance: Instance::next(), log, index, timeindex, scan: None });
        self.set_open(open.clone(), cache);
        Ok(open)
    }

    /// The `.log` that this segment was made of. One that retention or compaction took meanwhile is still there under another name for a while.
    fn open_log(&self, dir: &dyn Directory) -> io::Result<Arc<dyn File>> {
        let taken = format!("{}{}", self.log_name, names::DELETED);
        for name in [&*self.log_name, &taken] {
            match dir.open(OsStr::new(name), Open::Read) {
                Ok(file) if file.metadata()?.inode == self.inode => return Ok(file),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn open_index(&self, dir: &dyn Directory, suffix: &str, role: Role, used: fn(&[u8]) -> usize) -> Result<IndexBytes> {
        let name = format!("{}{}", names::of(self.base_offset, suffix), self.suffix);
        let run = || -> io::Result<IndexBytes> {
            let file = match dir.open(OsStr::new(&name), Open::Read) {
                Ok(file) => file,
                // A link, a pipe, a directory: no index. It is a hint only.
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => {
                    return Ok(IndexBytes::Owned(Arc::default()));
                }
                Err(e) => return Err(e),
            };
            let len = file.metadata()?.len.min(LOG_LEN_MAX);
            if role == Role::Last {
                return read_used(&*file, len, used).map(|bytes| IndexBytes::Owned(Arc::new(bytes)));
            }
            let map = file.map(len)?;
            let used = map.slice(0..len).map_or(0, used);
            Ok(IndexBytes::Mapped(map, Arc::new(AtomicU64::new(used as u64))))
        };
        run().map_err(|e| Error::io("open", name, e))
    }

    /// Exchanges the open files: for those of the writer, or for the indexes that a scan made.
    pub fn set_open(self: &Arc<Segment>, open: Arc<OpenSegment>, cache: &OpenSegments) {
        self.open.store(Some(open));
        cache.opened(self);
    }

    /// Puts a thorough pass and its indexes in the place of what the disk says of the segment.
    pub fn set_scan(self: &Arc<Segment>, open: &OpenSegment, scan: Arc<Scan>, cache: &OpenSegments) -> Arc<OpenSegment> {
        let indexed = Arc::new(OpenSegment {
            instance: Instance::next(),
            log: open.log.clone(),
            index: IndexBytes::Owned(Arc::new(scan.index.clone())),
            timeindex: IndexBytes::Owned(Arc::new(scan.timeindex.clone())),
            scan: Some(scan),
        });
        self.set_open(indexed.clone(), cache);
        indexed
    }

    /// Keeps the files open whatever the LRU thinks, or lets it close them.
    pub fn pin(&self, pinned: bool) {
        self.pinned.store(pinned, Ordering::Relaxed);
    }

    /// Closes the files for this segment; readers that have them keep them.
    pub fn close(&self) {
        self.open.store(None);
    }
}

/// Reads the entries of an index whose zero tail may be long: what is read grows with the entries, not with the file.
fn read_used(file: &dyn File, len: u64, used: fn(&[u8]) -> usize) -> io::Result<Vec<u8>> {
    let mut wanted = 64 << 10;
    loop {
        let mut bytes = read_up_to(file, 0, wanted.min(len as usize))?;
        let entries = used(&bytes);
        if entries + 12 <= bytes.len() || bytes.len() < wanted || wanted as u64 >= len {
            bytes.truncate(entries);
            return Ok(bytes);
        }
        wanted *= 8;
    }
}

/// Bounds how many segments are open at once: a clock hand passes over them, and one that was not used since its last pass is closed.
#[derive(Debug)]
pub struct OpenSegments {
    most: usize,
    ring: Mutex<VecDeque<Weak<Segment>>>,
}

impl OpenSegments {
    /// At most so many segments are kept open (those that readers hold at the moment come on top).
    pub fn new(most: usize) -> OpenSegments {
        OpenSegments { most, ring: Mutex::new(VecDeque::new()) }
    }

    fn opened(&self, segment: &Arc<Segment>) {
        let mut ring = self.ring.lock();
        // Those that retention and compaction took do not fill the ring; looked for as often as it has doubled.
        if ring.len() >= 64 && ring.len().is_power_of_two() {
            ring.retain(|s| s.strong_count() > 0);
        }
        if !segment.in_ring.swap(true, Ordering::Relaxed) {
            ring.push_back(Arc::downgrade(segment));
        }
        let mut chances = 2 * ring.len();
        while ring.len() > self.most && chances > 0 {
            chances -= 1;
            let Some(oldest) = ring.pop_front() else { break };
            let Some(candidate) = oldest.upgrade() else { continue };
            if candidate.pinned.load(Ordering::Relaxed) || (candidate.recently_used.swap(false, Ordering::Relaxed) && chances > ring.len())
            {
                ring.push_back(oldest);
            } else {
                candidate.in_ring.store(false, Ordering::Relaxed);
                candidate.close();
            }
        }
    }
}
