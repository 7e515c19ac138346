//! Shared maps of files: [`Map`] for readers, `WritableMap` for the one thread that stores index entries.
//!
//! A map hands out plain slices. Two rules make that sound. Only bytes below the published end of the file are asked for, and
//! those never change. Where another process shortens the file all the same, the guard turns the lost pages into zeros instead
//! of ending the process, and [`Map::is_broken`] says so: **every request asks it after its last read of the map and before it
//! uses or sends what it read.**

use super::IndexMap;
use super::guard::{Registration, page_size};
use super::sync::Mutex;
use memmap2::{MmapOptions, MmapRaw};
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// A mapping and its guard. The guard is dropped before the mapping: members are dropped in this order.
struct Mapping {
    registration: Registration,
    pages: MmapRaw,
}

/// A shared map of the first bytes of a file, for reading. It may reach beyond the end of the file, so that a growing file needs
/// no new map.
pub struct Map {
    /// `None` for a map of no bytes.
    mapping: Option<Mapping>,
    len: u64,
}

impl Map {
    /// Maps the first `len` bytes of a file; 0 is an empty map.
    ///
    /// # Errors
    /// What `mmap` says; ENOMEM where no further map can be guarded; `InvalidInput` for more bytes than there are addresses.
    pub fn new(file: BorrowedFd<'_>, len: u64) -> io::Result<Map> {
        Map::with_access(file, len, false)
    }

    fn with_access(file: BorrowedFd<'_>, len: u64, writable: bool) -> io::Result<Map> {
        if len == 0 {
            return Ok(Map { mapping: None, len });
        }
        let len_bytes = usize::try_from(len).ok().filter(|&len| len <= isize::MAX as usize).ok_or(io::ErrorKind::InvalidInput)?;
        let mut options = MmapOptions::new();
        options.len(len_bytes);
        let pages = if writable { options.map_raw(file.as_raw_fd())? } else { options.map_raw_read_only(file.as_raw_fd())? };
        let registration = Registration::new(pages.as_ptr() as usize, len_bytes, writable)?;
        Ok(Map { mapping: Some(Mapping { registration, pages }), len })
    }

    /// The number of mapped bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no byte is mapped.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of a range; `None` where it does not lie in the map or ends before it begins. The caller asks only for bytes
    /// below the published end of the file; see the module's rules.
    #[inline]
    pub fn slice(&self, range: Range<u64>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let Some(mapping) = &self.mapping else { return Some(&[]) };
        // SAFETY: the range lies in the mapping, whose length fits an isize, and the mapping lives as long as `self`. A page that
        // the file has lost is replaced by a zero page at the first touch. Bytes below the published end are not stored to.
        Some(unsafe { std::slice::from_raw_parts(mapping.pages.as_ptr().add(range.start as usize), (range.end - range.start) as usize) })
    }

    /// Whether the file lost bytes that were read through this map: some of what was read may be zeros. Stays true.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.mapping.as_ref().is_some_and(|mapping| mapping.registration.is_broken())
    }

    /// Whether reading a range would not wait for the disk. One system call up to 4 MiB. A range that lies outside, or about which the kernel gives
    /// no answer, counts as resident: the read then finds out.
    pub fn is_resident(&self, range: Range<u64>) -> bool {
        let mut states = [0_u8; 1024];
        let Some((mut from, end)) = self.whole_pages(range) else { return true };
        while from < end {
            let len = (end - from).min(states.len() * page_size());
            let pages = len.div_ceil(page_size());
            // SAFETY: the addresses lie in our mapping and begin at a page; `states` has a byte for each of the pages.
            let answer = unsafe { libc::mincore(from as *mut libc::c_void, len, states.as_mut_ptr()) };
            if answer != 0 {
                return true;
            }
            if states[..pages].iter().any(|state| state & 1 == 0) {
                return false;
            }
            from += len;
        }
        true
    }

    /// Reads a range into memory and sets up its page table entries in one system call, for a scan that is about to touch every
    /// page. It is a hint: where the kernel cannot, the scan faults the pages in one by one.
    pub fn populate(&self, range: Range<u64>) {
        if let Some((from, end)) = self.whole_pages(range) {
            // SAFETY: the addresses lie in our mapping and begin at a page. Populating for reading changes no byte, and a page
            // beyond the end of the file gives an error here instead of a signal.
            unsafe { libc::madvise(from as *mut libc::c_void, end - from, libc::MADV_POPULATE_READ) };
        }
    }

    /// The addresses of a range, widened at its start to a whole page; `None` for an empty range or one that lies outside.
    fn whole_pages(&self, range: Range<u64>) -> Option<(usize, usize)> {
        let mapping = self.mapping.as_ref()?;
        if range.start >= range.end || range.end > self.len {
            return None;
        }
        let base = mapping.pages.as_ptr() as usize;
        let start = range.start as usize;
        Some((base + (start - start % page_size()), base + range.end as usize))
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("len", &self.len).field("broken", &self.is_broken()).finish()
    }
}

/// A shared map of an index file that entries are stored through; the [`IndexMap`] of real files.
#[derive(Debug)]
pub(crate) struct WritableMap {
    map: Arc<Map>,
    file: fs::File,
    /// What was stored since the last sync. Its lock also keeps two stores from meeting.
    stored: Mutex<Range<u64>>,
}

impl WritableMap {
    /// Maps the first `len` bytes of a file that was opened for writing.
    ///
    /// # Errors
    /// As [`Map::new`]; what duplicating the descriptor says.
    pub(crate) fn new(file: &fs::File, len: u64) -> io::Result<WritableMap> {
        let file = file.try_clone()?;
        let map = Map::with_access(file.as_fd(), len, true)?;
        Ok(WritableMap { map: Arc::new(map), file, stored: Mutex::new(0..0) })
    }
}

impl IndexMap for WritableMap {
    fn map(&self) -> &Arc<Map> {
        &self.map
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let end = at.checked_add(bytes.len() as u64).filter(|&end| end <= self.map.len).expect("the bytes fit into the map");
        let Some(mapping) = &self.map.mapping else { return };
        let mut stored = self.stored.lock();
        // SAFETY: the destination lies in the mapping, which is writable because `with_access` was told so; `bytes` is no part of
        // it, since slices of the map end at the published count and stores go behind it. Stores are serialised by the lock.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), mapping.pages.as_mut_ptr().add(at as usize), bytes.len()) };
        *stored = if stored.is_empty() { at..end } else { stored.start.min(at)..stored.end.max(end) };
    }

    fn sync(&self) -> io::Result<()> {
        let stored = std::mem::take(&mut *self.stored.lock());
        if let Some((from, end)) = self.map.whole_pages(stored) {
            // SAFETY: the addresses lie in our mapping and begin at a page; syncing changes no byte.
            if unsafe { libc::msync(from as *mut libc::c_void, end - from, libc::MS_SYNC) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        self.file.sync_data()?;
        // What was stored to pages that the file has lost went nowhere.
        if self.map.is_broken() { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// A file of `len` bytes, each 1.
    fn file(len: usize) -> fs::File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; len], 0).unwrap();
        file
    }

    #[test]
    fn slices_are_checked_against_the_length() {
        let map = Map::new(file(10).as_fd(), 10).unwrap();
        assert_eq!(map.slice(2..10).unwrap(), [1; 8]);
        assert_eq!(map.slice(10..10).unwrap(), [0; 0]);
        let backwards = Range { start: 3, end: 2 };
        assert!(map.slice(2..11).is_none() && map.slice(backwards).is_none() && map.slice(u64::MAX..u64::MAX).is_none());
    }

    #[test]
    fn an_empty_map_has_an_empty_slice_and_breaks_never() {
        let map = Map::new(file(10).as_fd(), 0).unwrap();
        assert!(map.is_empty() && map.slice(0..0) == Some(&[]) && map.slice(0..1).is_none());
        assert!(!map.is_broken() && map.is_resident(0..0));
        assert!(Map::new(file(1).as_fd(), u64::MAX).is_err());
    }

    #[test]
    fn a_map_beyond_the_end_sees_the_file_grow() {
        let file = file(10);
        let map = Map::new(file.as_fd(), 1 << 20).unwrap();
        file.write_all_at(&[2; 10], 100_000).unwrap();
        assert_eq!(map.slice(100_000..100_010).unwrap(), [2; 10]);
        assert!(!map.is_broken());
    }

    #[test]
    fn a_shortened_file_reads_as_zeros_and_breaks_its_map_only() {
        let pages = 4 * page_size();
        let (short, whole) = (file(pages), file(pages));
        let map = Map::new(short.as_fd(), pages as u64).unwrap();
        let other = Map::new(whole.as_fd(), pages as u64).unwrap();
        assert_eq!(map.slice(0..pages as u64).unwrap(), vec![1; pages]);
        short.set_len(page_size() as u64).unwrap();
        assert!(!map.is_broken(), "nothing was read yet");
        let bytes = map.slice(0..pages as u64).unwrap();
        assert_eq!(bytes[..page_size()], vec![1; page_size()]);
        assert_eq!(bytes[page_size()..], vec![0; 3 * page_size()]);
        assert!(map.is_broken());
        assert_eq!(other.slice(0..pages as u64).unwrap(), vec![1; pages]);
        assert!(!other.is_broken());
    }

    #[test]
    fn a_map_made_after_a_broken_one_is_whole() {
        for _ in 0..3 {
            let file = file(page_size());
            let map = Map::new(file.as_fd(), page_size() as u64).unwrap();
            assert!(!map.is_broken());
            file.set_len(0).unwrap();
            assert_eq!(map.slice(0..1).unwrap(), [0]);
            assert!(map.is_broken());
        }
    }

    #[test]
    fn many_threads_may_meet_the_lost_pages_at_once() {
        let pages = 64;
        for _ in 0..20 {
            let file = file(pages * page_size());
            let map = Map::new(file.as_fd(), (pages * page_size()) as u64).unwrap();
            file.set_len(0).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let map = &map;
                    scope.spawn(move || {
                        for page in 0..pages {
                            let at = (((page * 7 + thread * 13) % pages) * page_size()) as u64;
                            assert_eq!(map.slice(at..at + 1).unwrap(), [0]);
                            assert!(map.is_broken());
                            drop(Map::new(file_of_a_page().as_fd(), 1).unwrap());
                        }
                    });
                }
            });
        }
        fn file_of_a_page() -> fs::File {
            file(1)
        }
    }

    /// The child's half of the next two tests: it dies by the signal that the parent looks for.
    fn in_child(test: &str, die: fn()) -> Option<i32> {
        const MARK: &str = "OFFSETFS_SIGBUS_CHILD";
        if std::env::var_os(MARK).is_some() {
            drop(Map::new(file(1).as_fd(), 1).unwrap());
            die();
            return None;
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("io::mmap::tests::{test}"), "--nocapture"])
            .env(MARK, "1")
            .output()
            .unwrap();
        Some(child.status.signal().unwrap_or(0))
    }

    #[test]
    fn a_fault_outside_our_maps_kills_as_before() {
        let signal = in_child("a_fault_outside_our_maps_kills_as_before", || {
            let file = file(1);
            let pages = MmapOptions::new().len(page_size()).map_raw_read_only(&file).unwrap();
            file.set_len(0).unwrap();
            // SAFETY: the address is mapped; that the page is gone is the point.
            unsafe { std::ptr::read_volatile(pages.as_ptr()) };
        });
        assert!(signal.is_none_or(|signal| signal == libc::SIGBUS), "{signal:?}");
    }

    #[test]
    fn a_sigbus_that_somebody_sends_goes_to_the_handler_before_ours() {
        let signal = in_child("a_sigbus_that_somebody_sends_goes_to_the_handler_before_ours", || {
            // The runtime's own handler, which was there before, only puts the default back at the first one.
            for _ in 0..2 {
                // SAFETY: raise takes a number and touches no memory of ours.
                unsafe { libc::raise(libc::SIGBUS) };
            }
        });
        assert!(signal.is_none_or(|signal| signal == libc::SIGBUS), "{signal:?}");
    }

    #[test]
    fn what_was_just_written_is_resident() {
        let len = 5 * 1024 * page_size();
        let map = Map::new(file(len).as_fd(), len as u64).unwrap();
        map.populate(0..len as u64);
        assert!(map.is_resident(0..len as u64) && map.is_resident(5000..5001));
        let hole = tempfile::tempfile().unwrap();
        hole.set_len(len as u64).unwrap();
        let map = Map::new(hole.as_fd(), len as u64).unwrap();
        assert!(!map.is_resident(len as u64 - 1..len as u64), "no page of a hole is in memory before it is read");
        assert!(map.is_resident(0..len as u64 + 1), "no answer counts as resident");
    }

    #[test]
    fn populating_beyond_the_end_does_no_harm() {
        let map = Map::new(file(1).as_fd(), 1 << 20).unwrap();
        map.populate(0..1 << 20);
        assert!(!map.is_broken());
    }

    #[test]
    fn stores_reach_the_file_and_its_readers() {
        let file = file(0);
        file.set_len(8192).unwrap();
        let index = WritableMap::new(&file, 8192).unwrap();
        index.put(8184, b"last one");
        index.put(0, b"first one");
        assert_eq!(index.map().slice(8184..8192).unwrap(), b"last one");
        index.sync().unwrap();
        let mut bytes = [0; 9];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"first one");
    }

    #[test]
    fn stores_into_a_shortened_file_fail_at_the_sync() {
        let file = file(page_size());
        let index = WritableMap::new(&file, page_size() as u64).unwrap();
        file.set_len(0).unwrap();
        index.put(0, b"lost");
        assert!(index.map().is_broken());
        assert_eq!(index.sync().unwrap_err().raw_os_error(), Some(libc::EIO));
    }

    #[test]
    #[should_panic(expected = "fit into the map")]
    fn a_store_outside_the_map_is_a_bug() {
        WritableMap::new(&file(10), 10).unwrap().put(8, b"abc");
    }
}
