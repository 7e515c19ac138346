//! Regular files of the operating system.

use super::sys::{metadata_of, retried};
use crate::io::guard::page_size;
use crate::io::mmap::WritableMap;
use crate::io::{File, IndexMap, Map, Metadata, write_all_at};
use crate::types::TimestampMs;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The most parts that one `pwritev` takes (`IOV_MAX`).
const PARTS_MAX: usize = 1024;

/// A regular file of the operating system.
#[derive(Debug)]
pub struct OsFile {
    pub(super) handle: fs::File,
}

impl OsFile {
    /// What `fallocate` does, where the file system cannot: zeros are written into the holes of a range and behind the end, never
    /// over data. Where the file system cannot name its holes either, all below the end counts as data.
    fn fill_holes(&self, from: u64, end: u64) -> io::Result<()> {
        let len = self.handle.metadata()?.len();
        let mut position = from;
        while position < end.min(len) {
            let hole = self.seek(position, libc::SEEK_HOLE)?.unwrap_or(len).min(end);
            if hole >= len.min(end) {
                break;
            }
            let data = self.seek(hole, libc::SEEK_DATA)?.unwrap_or(len).min(end.min(len));
            self.write_zeros(hole, data)?;
            position = data;
        }
        self.write_zeros(from.max(len), end)
    }

    /// The next hole or the next data from a position on; `None` where there is none before the end of the file.
    fn seek(&self, position: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
        let position = off_t(position)?;
        // SAFETY: the descriptor is open. The place that lseek moves is used by nothing here: all reads and writes name theirs.
        let found = unsafe { libc::lseek64(self.handle.as_raw_fd(), position, whence) };
        match u64::try_from(found) {
            Ok(found) => Ok(Some(found)),
            Err(_) => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
                e => Err(e),
            },
        }
    }

    fn write_zeros(&self, mut from: u64, end: u64) -> io::Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        while from < end {
            let len = (end - from).min(ZEROS.len() as u64) as usize;
            write_all_at(self, &ZEROS[..len], from)?;
            from += len as u64;
        }
        Ok(())
    }
}

impl File for OsFile {
    fn metadata(&self) -> io::Result<Metadata> {
        Ok(metadata_of(&self.handle.metadata()?))
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            match self.handle.read_at(buffer, position) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn read_at_once(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let part = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
            let place = off_t(position.saturating_add(filled as u64))?;
            // SAFETY: the descriptor is open; the one part is a slice that lives through the call, which only writes into it.
            let read = retried_size(|| unsafe { libc::preadv2(self.handle.as_raw_fd(), &raw const part, 1, place, libc::RWF_NOWAIT) });
            match read {
                // What is missing lies behind the end of the file, or on the disk: the next turn tells.
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EOPNOTSUPP)) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        Ok(Some(filled))
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<usize> {
        let mut written = 0_usize;
        for parts in parts.chunks(PARTS_MAX) {
            let place = off_t(position.saturating_add(written as u64))?;
            let result = retried_size(|| {
                // SAFETY: the descriptor is open; an IoSlice has the layout of an iovec, and the slices behind them live through
                // the call, which only reads them. There are at most PARTS_MAX of them.
                unsafe { libc::pwritev64(self.handle.as_raw_fd(), parts.as_ptr().cast(), parts.len() as libc::c_int, place) }
            });
            match result {
                Ok(count) => {
                    written += count;
                    if count < parts.iter().map(|part| part.len()).sum() {
                        break;
                    }
                }
                // What went in before counts; the caller's next try meets the error again.
                Err(_) if written > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(written)
    }

    fn allocate(&self, from: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (place, size) = (off_t(from)?, off_t(len)?);
        let result = retried(|| {
            // SAFETY: the descriptor is open; fallocate touches no memory of ours.
            unsafe { libc::fallocate64(self.handle.as_raw_fd(), 0, place, size) }
        });
        match result {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => self.fill_holes(from, from.saturating_add(len)),
            Err(e) => Err(e),
            Ok(_) => Ok(()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.handle.set_len(len)
    }

    fn set_modified(&self, time: TimestampMs) -> io::Result<()> {
        let distance = Duration::from_millis(time.get().unsigned_abs());
        let modified = if time.get() < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        self.handle.set_modified(modified.ok_or(io::ErrorKind::InvalidInput)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.handle.sync_data()
    }

    fn map(&self, len: u64) -> io::Result<Arc<Map>> {
        Ok(Arc::new(Map::new(self.handle.as_fd(), len)?))
    }

    fn map_index(&self, len: u64) -> io::Result<Box<dyn IndexMap>> {
        Ok(Box::new(WritableMap::new(&self.handle, len)?))
    }

    fn drop_cached(&self, from: u64) -> io::Result<()> {
        // Pages are cached in groups of up to what one entry of a middle page table maps (2 MiB of 4 KiB pages), aligned to their
        // size, and the kernel keeps a group that is only partly named. So the range begins where any such group may begin.
        let group = page_size() as u64 * (page_size() as u64 / 8);
        let from = off_t(from - from % group)?;
        // SAFETY: the descriptor is open; posix_fadvise touches no memory of ours.
        match unsafe { libc::posix_fadvise64(self.handle.as_raw_fd(), from, 0, libc::POSIX_FADV_DONTNEED) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.handle.as_fd())
    }
}

fn off_t(bytes: u64) -> io::Result<i64> {
    i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// As [`retried`], for a call that returns a number of bytes.
fn retried_size(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::IoSlice;

    fn file(bytes: &[u8]) -> OsFile {
        let handle = tempfile::tempfile().unwrap();
        handle.write_all_at(bytes, 0).unwrap();
        OsFile { handle }
    }

    fn content(file: &OsFile) -> Vec<u8> {
        crate::io::read_up_to(file, 0, 1 << 24).unwrap()
    }

    #[test]
    fn parts_are_written_one_behind_the_other_however_many() {
        let file = file(b"");
        let parts: Vec<[u8; 2]> = (0..3000_u16).map(u16::to_be_bytes).collect();
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        assert_eq!(file.write_at(&slices, 3).unwrap(), 6000);
        assert_eq!(content(&file)[3..], parts.concat());
        assert_eq!(file.write_at(&[], 0).unwrap(), 0);
        assert_eq!(file.write_at(&slices, u64::MAX).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn allocating_keeps_the_bytes_and_grows_the_file() {
        let file = file(b"data");
        file.allocate(0, 65_536).unwrap();
        file.allocate(0, 0).unwrap();
        assert_eq!(file.metadata().unwrap().len, 65_536);
        assert_eq!(content(&file)[..5], *b"data\0");
    }

    #[test]
    fn filling_holes_overwrites_no_data() {
        let page = page_size() as u64;
        let file = file(b"");
        file.set_len(20 * page).unwrap();
        for at in [3 * page + 5, 7 * page, 8 * page] {
            file.handle.write_all_at(b"data", at).unwrap();
        }
        file.handle.set_len(20 * page + 1).unwrap();
        let before = content(&file);
        file.fill_holes(page, 25 * page).unwrap();
        let after = content(&file);
        assert_eq!(after[..before.len()], before);
        assert!(after[before.len()..].iter().all(|&byte| byte == 0) && after.len() as u64 == 25 * page);
        assert_eq!(file.seek(page, libc::SEEK_HOLE).unwrap(), Some(25 * page), "no hole is left in the range");
        assert_eq!(file.seek(0, libc::SEEK_HOLE).unwrap(), Some(0), "what lies before the range stays a hole");
    }

    #[test]
    fn filling_inside_a_file_leaves_its_length() {
        let page = page_size() as u64;
        let file = file(b"");
        file.set_len(8 * page).unwrap();
        file.fill_holes(0, 4 * page).unwrap();
        assert_eq!(file.metadata().unwrap().len, 8 * page);
        assert_eq!(file.seek(0, libc::SEEK_HOLE).unwrap(), Some(4 * page));
    }

    #[test]
    fn dropped_pages_are_no_longer_resident() {
        let group = page_size() as u64 * (page_size() as u64 / 8);
        // Beside the sources rather than in a temporary directory, which may be memory only.
        let file = OsFile { handle: tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap() };
        write_all_at(&file, &vec![1; 2 * group as usize], 0).unwrap();
        file.sync_data().unwrap();
        let map = file.map(2 * group).unwrap();
        assert!(map.is_resident(0..2 * group));
        // The middle of a group, and of a page: the page goes all the same.
        let from = group + group / 2 + 100;
        file.drop_cached(from).unwrap();
        assert!(map.is_resident(0..group), "what lies well before stays");
        assert!(!map.is_resident(from..from + 1) && !map.is_resident(2 * group - 1..2 * group));
        // What was dropped is not waited for, and no part of an answer passes for all of it.
        let mut buffer = vec![0; group as usize];
        assert_eq!(file.read_at_once(&mut buffer, from - group).unwrap(), None);
        assert_eq!(file.read_at_once(&mut buffer[..100], 0).unwrap(), Some(100));
        assert_eq!(file.read_at(&mut buffer, from - group).unwrap(), group as usize);
        assert_eq!(file.read_at_once(&mut buffer, from - group).unwrap(), Some(group as usize));
        // At the end, and behind it.
        assert_eq!(file.read_at(&mut buffer, 2 * group - 50).unwrap(), 50);
        assert_eq!(file.read_at_once(&mut buffer, 2 * group - 50).unwrap(), Some(50));
        assert_eq!(file.read_at_once(&mut buffer, 3 * group).unwrap(), Some(0));
        assert_eq!(buffer[..100], [1; 100]);
    }
}
