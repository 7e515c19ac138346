//! System calls on directories and names, each repeated as long as a signal interrupts it.

use crate::io::{Kind, Metadata};
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// An open stream of directory entries.
pub(super) struct Stream(std::ptr::NonNull<libc::DIR>);

impl Stream {
    pub(super) fn new(directory: fs::File) -> io::Result<Stream> {
        // SAFETY: the descriptor is open and, where the call succeeds, belongs to the stream from then on.
        let stream = unsafe { libc::fdopendir(directory.as_raw_fd()) };
        let stream = std::ptr::NonNull::new(stream).ok_or_else(io::Error::last_os_error)?;
        std::mem::forget(directory);
        Ok(Stream(stream))
    }

    /// The next name but `.` and `..`, and its kind where the file system tells.
    pub(super) fn next(&self) -> io::Result<Option<(CString, Option<Kind>)>> {
        loop {
            // SAFETY: the stream is open, and only this thread uses it. The entry that readdir returns stays valid until its next
            // call, and its name ends with NUL. errno tells the end from an error only if it was 0 before.
            let (name, kind) = unsafe {
                *libc::__errno_location() = 0;
                let entry = libc::readdir64(self.0.as_ptr());
                if entry.is_null() {
                    return match io::Error::last_os_error() {
                        e if e.raw_os_error() == Some(0) => Ok(None),
                        e => Err(e),
                    };
                }
                (CStr::from_ptr((&raw const (*entry).d_name).cast()), (*entry).d_type)
            };
            if name == c"." || name == c".." {
                continue;
            }
            let kind = match kind {
                libc::DT_UNKNOWN => None,
                libc::DT_REG => Some(Kind::File),
                libc::DT_DIR => Some(Kind::Directory),
                _ => Some(Kind::Other),
            };
            return Ok(Some((name.to_owned(), kind)));
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is open, and nobody uses it afterwards.
        unsafe { libc::closedir(self.0.as_ptr()) };
    }
}

/// Repeats a call that returns -1 for an error as long as a signal interrupts it.
pub(super) fn retried(mut call: impl FnMut() -> libc::c_int) -> io::Result<libc::c_int> {
    loop {
        match call() {
            -1 => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
            result => return Ok(result),
        }
    }
}

pub(super) fn metadata_of(metadata: &fs::Metadata) -> Metadata {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => Kind::File,
        kind if kind.is_dir() => Kind::Directory,
        _ => Kind::Other,
    };
    Metadata {
        kind,
        len: metadata.len(),
        mtime_ns: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
        inode: metadata.ino(),
        device: metadata.dev(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        links: metadata.nlink(),
    }
}

/// The metadata of an entry of a directory; links are not followed.
pub(super) fn stat_at(directory: &fs::File, name: &CStr) -> io::Result<Metadata> {
    // SAFETY: the structure is plain data for which zero is a valid value.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    retried(|| {
        // SAFETY: the descriptor is open, the name ends with NUL, and `stat` lives through the call, which writes only into it.
        unsafe { libc::fstatat64(directory.as_raw_fd(), name.as_ptr(), &raw mut stat, libc::AT_SYMLINK_NOFOLLOW) }
    })?;
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => Kind::File,
        libc::S_IFDIR => Kind::Directory,
        _ => Kind::Other,
    };
    Ok(Metadata {
        kind,
        len: u64::try_from(stat.st_size).unwrap_or(0),
        mtime_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec),
        inode: stat.st_ino,
        device: stat.st_dev,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        #[allow(clippy::unnecessary_cast, reason = "it is a u32 on some machines")]
        links: stat.st_nlink as u64,
    })
}

/// Whether a name leads to a file whose metadata were taken before.
pub(super) fn leads_to(directory: &fs::File, name: &CStr, file: &Metadata) -> io::Result<bool> {
    match stat_at(directory, name) {
        Ok(now) => Ok((now.device, now.inode) == (file.device, file.inode)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

pub(super) fn unlink_at(directory: &fs::File, name: &CStr) -> io::Result<()> {
    retried(|| {
        // SAFETY: the descriptor is open and the name ends with NUL.
        unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) }
    })?;
    Ok(())
}
