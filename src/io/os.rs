//! The real side of the seam: directories and files of the operating system.
//!
//! Below a directory that was opened, nothing is reached by a path: every file is opened by a single name with `openat2`, which
//! follows no link, and must be a regular file. Calls that a signal interrupts are repeated. Nothing is remembered or buffered.

mod file;
mod sys;

use super::{Clock, Directory, Entry, File, FileSystem, Kind, Metadata, Open, Space, lock};
use crate::types::TimestampMs;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use sys::{Stream, leads_to, metadata_of, retried, stat_at, unlink_at};

pub use file::OsFile;

/// The files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFileSystem;

impl FileSystem for OsFileSystem {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        let handle = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)?;
        Ok(Arc::new(OsDirectory { handle, path: path.to_owned() }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.open_dir(parent)?.sync()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }
}

/// A file without a name, for more than memory should hold. It lies in `TMPDIR`, else in `/var/tmp`, which is no memory where `/tmp` is, and goes with
/// its last descriptor and map.
///
/// # Errors
/// What the system says.
pub fn nameless_file() -> io::Result<Arc<dyn File>> {
    let handle = match std::env::var_os("TMPDIR") {
        Some(folder) => tempfile::tempfile_in(folder)?,
        None => tempfile::tempfile_in("/var/tmp").or_else(|_| tempfile::tempfile())?,
    };
    Ok(Arc::new(OsFile { handle }))
}

/// The time since some moment before the process began, which never goes back, to within some 10 ms (a tick of the kernel). Unlike
/// [`std::time::Instant`] it reads no counter of the processor, which would wait for all that is under way.
pub fn ticks() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives through the call, which only writes into it. It fails for an unknown clock only, and then leaves it as it is.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> TimestampMs {
        let ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        };
        TimestampMs::new(ms)
    }
}

/// A directory of the operating system, held by a real open.
#[derive(Debug)]
pub struct OsDirectory {
    handle: fs::File,
    path: PathBuf,
}

impl OsDirectory {
    /// Opens an entry without following links and without waiting, whatever it is.
    fn open_entry(&self, name: &CStr, flags: libc::c_int) -> io::Result<fs::File> {
        let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mode: libc::mode_t = if flags & libc::O_CREAT == 0 { 0 } else { 0o666 };
        // SAFETY: the structure is plain data for which zero is a valid value.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = flags as u64;
        how.mode = u64::from(mode);
        how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
        let descriptor = retried(|| {
            // SAFETY: the descriptor is open, the name ends with NUL, and `how` lives through the call, which gets its true size.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_openat2,
                    self.handle.as_raw_fd(),
                    name.as_ptr(),
                    &raw const how,
                    std::mem::size_of::<libc::open_how>(),
                )
            };
            result as libc::c_int
        });
        let descriptor = match descriptor {
            // A sandbox that does not know openat2. The name is a single one, so O_NOFOLLOW says nearly the same.
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => retried(|| {
                // SAFETY: the descriptor is open and the name ends with NUL.
                unsafe { libc::openat(self.handle.as_raw_fd(), name.as_ptr(), flags, mode) }
            }),
            other => other,
        }?;
        // SAFETY: the call has just returned this descriptor, and nobody else has it.
        Ok(fs::File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Opens a regular file; anything else is `InvalidInput`. A file that has another name, too, is `PermissionDenied` for writing: what is written into
    /// it would go into a file that may lie anywhere.
    fn open_file(&self, name: &CStr, flags: libc::c_int) -> io::Result<OsFile> {
        // Opening a device or a pipe can do something by itself, so it is looked at first. Whoever swaps the name in between can get it opened and no more.
        match stat_at(&self.handle, name) {
            Ok(metadata) if metadata.kind != Kind::File => return Err(not_regular()),
            Err(e) if e.kind() == io::ErrorKind::NotFound && flags & libc::O_CREAT != 0 => {}
            Err(e) => return Err(e),
            Ok(_) => {}
        }
        let handle = self.open_entry(name, flags).map_err(|e| match e.raw_os_error() {
            // A link, a directory opened for writing, a socket or a pipe.
            Some(libc::ELOOP | libc::EISDIR | libc::ENXIO) => not_regular(),
            _ => e,
        })?;
        let metadata = handle.metadata()?;
        if !metadata.is_file() {
            return Err(not_regular());
        }
        if flags & libc::O_ACCMODE != libc::O_RDONLY && metadata.nlink() > 1 {
            return Err(has_another_name());
        }
        Ok(OsFile { handle })
    }

    /// Another open of the directory itself, with its own place for reading entries and its own lock.
    fn reopen(&self) -> io::Result<fs::File> {
        let descriptor = retried(|| {
            // SAFETY: the descriptor is open and the name ends with NUL.
            unsafe { libc::openat(self.handle.as_raw_fd(), c".".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) }
        })?;
        // SAFETY: openat has just returned this descriptor, and nobody else has it.
        Ok(fs::File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }
}

impl Directory for OsDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn own_metadata(&self) -> io::Result<Metadata> {
        Ok(metadata_of(&self.handle.metadata()?))
    }

    fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let stream = Stream::new(self.reopen()?)?;
        while let Some((name, kind)) = stream.next()? {
            let kind = match kind {
                Some(kind) => kind,
                None => match stat_at(&self.handle, &name) {
                    Ok(metadata) => metadata.kind,
                    // Removed between the two calls.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(e),
                },
            };
            entries.push(Entry { name: OsString::from_vec(name.into_bytes()), kind });
        }
        Ok(entries)
    }

    fn metadata(&self, name: &OsStr) -> io::Result<Metadata> {
        stat_at(&self.handle, &single_name(name)?)
    }

    fn open(&self, name: &OsStr, how: Open) -> io::Result<Arc<dyn File>> {
        let flags = match how {
            Open::Read => libc::O_RDONLY,
            Open::Write => libc::O_RDWR,
            Open::Create => libc::O_RDWR | libc::O_CREAT,
        };
        Ok(Arc::new(self.open_file(&single_name(name)?, flags)?))
    }

    fn open_dir(&self, name: &OsStr) -> io::Result<Arc<dyn Directory>> {
        let handle = self.open_entry(&single_name(name)?, libc::O_RDONLY | libc::O_DIRECTORY)?;
        Ok(Arc::new(OsDirectory { handle, path: self.path.join(name) }))
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (from, to, directory) = (single_name(from)?, single_name(to)?, self.handle.as_raw_fd());
        retried(|| {
            // SAFETY: the descriptor is open and both names end with NUL.
            unsafe { libc::renameat(directory, from.as_ptr(), directory, to.as_ptr()) }
        })?;
        Ok(())
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        unlink_at(&self.handle, &single_name(name)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn lock(&self, kind: lock::Kind) -> io::Result<Option<lock::DirectoryLock>> {
        let handle = self.reopen()?;
        Ok(lock::flock(&handle, kind)?.then(|| lock::DirectoryLock::new(Box::new(handle))))
    }

    fn record_lock_holder(&self, name: &OsStr) -> io::Result<Option<lock::Holder>> {
        match self.open_file(&single_name(name)?, libc::O_RDONLY) {
            Ok(file) => lock::record_lock_holder(&file.handle, &file.metadata()?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn take_record_lock(&self, name: &OsStr) -> io::Result<Result<lock::RecordLock, lock::Holder>> {
        let name = single_name(name)?;
        loop {
            let (file, made_file) = match self.open_file(&name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) {
                Ok(file) => (file, true),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match self.open_file(&name, libc::O_RDWR) {
                    Ok(file) => (file, false),
                    // Whoever had it removed it in between, as a broker does when it stops.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(e),
                },
                Err(e) => return Err(e),
            };
            let metadata = file.metadata()?;
            if !lock::set_record_lock(&file.handle)? {
                match lock::record_lock_holder(&file.handle, &metadata)? {
                    Some(holder) => return Ok(Err(holder)),
                    None => continue,
                }
            }
            // The name may lead to another file by now; a lock on a removed file shuts nobody out.
            if leads_to(&self.handle, &name, &metadata)? {
                let held = HeldFile { directory: self.handle.try_clone()?, name, metadata, _file: file };
                return Ok(Ok(lock::RecordLock::new(Box::new(held), made_file)));
            }
        }
    }

    fn space(&self) -> io::Result<Space> {
        // SAFETY: the structure is plain data for which zero is a valid value.
        let mut stat: libc::statvfs64 = unsafe { std::mem::zeroed() };
        retried(|| {
            // SAFETY: the descriptor is open, and `stat` lives through the call, which writes only into it.
            unsafe { libc::fstatvfs64(self.handle.as_raw_fd(), &raw mut stat) }
        })?;
        Ok(Space {
            block_size: u32::try_from(stat.f_frsize).unwrap_or(u32::MAX),
            blocks: stat.f_blocks,
            free: stat.f_bfree,
            available: stat.f_bavail,
            files: stat.f_files,
            files_free: stat.f_ffree,
        })
    }
}

/// A locked file and the way to it.
#[derive(Debug)]
struct HeldFile {
    directory: fs::File,
    name: CString,
    metadata: Metadata,
    _file: OsFile,
}

impl lock::Held for HeldFile {
    fn remove(&self) -> io::Result<()> {
        if leads_to(&self.directory, &self.name, &self.metadata)? { unlink_at(&self.directory, &self.name) } else { Ok(()) }
    }
}

/// A name for the system; `InvalidInput` for one that is empty, has a slash or a NUL, or is `.` or `..`.
fn single_name(name: &OsStr) -> io::Result<CString> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a single file name"));
    }
    CString::new(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

fn has_another_name() -> io::Error {
    let words =
        "the file has another name (a hard link), under which it would change, too; put a copy in its place: cp -p F F.own && mv F.own F";
    io::Error::new(io::ErrorKind::PermissionDenied, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{read_up_to, write_all_at};
    use std::os::unix::fs::symlink;

    fn directory() -> (tempfile::TempDir, Arc<dyn Directory>) {
        let place = tempfile::tempdir().unwrap();
        let directory = OsFileSystem.open_dir(place.path()).unwrap();
        (place, directory)
    }

    fn name(name: &str) -> &OsStr {
        OsStr::new(name)
    }

    #[test]
    fn only_single_names_are_taken() {
        let (_place, directory) = directory();
        for bad in ["", ".", "..", "a/b", "/", "../x", "a\0b"] {
            let bad = name(bad);
            let results = [
                directory.open(bad, Open::Create).err(),
                directory.open_dir(bad).err(),
                directory.metadata(bad).err(),
                directory.remove(bad).err(),
                directory.rename(bad, name("x")).err(),
                directory.rename(name("x"), bad).err(),
                directory.record_lock_holder(bad).err(),
                directory.take_record_lock(bad).err(),
            ];
            for result in results {
                assert_eq!(result.expect("an error").kind(), io::ErrorKind::InvalidInput, "{bad:?}");
            }
        }
    }

    #[test]
    fn a_file_with_another_name_is_read_and_not_written() {
        let (place, directory) = directory();
        fs::write(place.path().join("file"), "x").unwrap();
        fs::hard_link(place.path().join("file"), place.path().join("other")).unwrap();
        assert_eq!(read_up_to(&*directory.open(name("file"), Open::Read).unwrap(), 0, 9).unwrap(), b"x");
        for how in [Open::Write, Open::Create] {
            assert_eq!(directory.open(name("file"), how).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{how:?}");
        }
        directory.remove(name("other")).unwrap();
        directory.open(name("file"), Open::Write).unwrap();
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_blocks() {
        let (place, directory) = directory();
        fs::write(place.path().join("file"), "x").unwrap();
        symlink("file", place.path().join("link")).unwrap();
        symlink("/etc", place.path().join("link-to-dir")).unwrap();
        fs::create_dir(place.path().join("dir")).unwrap();
        std::process::Command::new("mkfifo").arg(place.path().join("pipe")).status().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(place.path().join("socket")).unwrap();
        for odd in ["link", "dir", "pipe", "socket"] {
            for how in [Open::Read, Open::Write, Open::Create] {
                assert_eq!(directory.open(name(odd), how).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{odd} {how:?}");
            }
        }
        assert!(directory.open_dir(name("link-to-dir")).is_err());
        assert_eq!(directory.open_dir(name("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(directory.open(name("none"), Open::Write).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_listing_names_everything_with_its_kind() {
        let (place, directory) = directory();
        fs::write(place.path().join("file"), "x").unwrap();
        fs::create_dir(place.path().join("dir")).unwrap();
        symlink("file", place.path().join("link")).unwrap();
        let bytes = OsString::from_vec(vec![0xff, 0xfe]);
        fs::write(place.path().join(&bytes), "").unwrap();
        for _ in 0..2 {
            let mut entries = directory.list().unwrap();
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            let entries: Vec<_> = entries.into_iter().map(|entry| (entry.name, entry.kind)).collect();
            let expected =
                [("dir".into(), Kind::Directory), ("file".into(), Kind::File), ("link".into(), Kind::Other), (bytes.clone(), Kind::File)];
            assert_eq!(entries, expected);
        }
        assert_eq!(directory.metadata(name("link")).unwrap().kind, Kind::Other);
    }

    #[test]
    fn metadata_by_name_and_by_handle_agree() {
        let (_place, directory) = directory();
        let file = directory.open(name("file"), Open::Create).unwrap();
        write_all_at(&*file, b"12345", 0).unwrap();
        assert_eq!(file.metadata().unwrap(), directory.metadata(name("file")).unwrap());
        assert_eq!(file.metadata().unwrap().len, 5);
        assert_eq!(directory.own_metadata().unwrap().kind, Kind::Directory);
    }

    #[test]
    fn creating_keeps_what_is_there_and_names_change_inside_the_directory() {
        let (place, directory) = directory();
        fs::write(place.path().join("a"), "old").unwrap();
        let file = directory.open(name("a"), Open::Create).unwrap();
        assert_eq!(read_up_to(&*file, 1, 100).unwrap(), b"ld");
        directory.rename(name("a"), name("b")).unwrap();
        directory.sync().unwrap();
        assert_eq!(fs::read(place.path().join("b")).unwrap(), b"old");
        directory.remove(name("b")).unwrap();
        assert_eq!(directory.remove(name("b")).unwrap_err().kind(), io::ErrorKind::NotFound);
        OsFileSystem.create_dir(&place.path().join("sub")).unwrap();
        assert_eq!(directory.open_dir(name("sub")).unwrap().path(), place.path().join("sub"));
        assert!(directory.remove(name("sub")).is_err());
    }

    #[test]
    fn there_is_room_on_the_disk() {
        let (_place, directory) = directory();
        let space = directory.space().unwrap();
        assert!(space.block_size >= 512 && space.blocks >= space.free && space.free >= space.available);
    }

    #[test]
    fn the_clock_shows_a_time_of_this_century() {
        assert!(OsFileSystem.clock().now() > TimestampMs::new(1_600_000_000_000));
    }
}
