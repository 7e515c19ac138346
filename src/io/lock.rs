//! Who may write: `flock` on directories, and the POSIX record lock on a broker's `.lock`.
//!
//! The two kinds do not see each other. A plain record lock is lost at any close of its file in the process, so ours are those
//! of an open file description (`F_OFD_SETLK`), which conflict with the plain ones of a broker all the same. This is not the
//! policy of which lock is taken when; the caller has that.

use super::Metadata;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// How much a lock shuts out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Others may hold it shared, too.
    Shared,
    /// Nobody else may hold it.
    Exclusive,
}

/// Who holds a lock, as far as the system tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The process; `None` where it cannot be found, as in a foreign pid namespace.
    pub pid: Option<i32>,
    /// The name of its program, at most 15 bytes of it.
    pub name: Option<String>,
}

impl Holder {
    /// A holder by its process id; its name is looked up.
    fn of_process(pid: i32) -> Holder {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned());
        Holder { pid: Some(pid), name }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.name) {
            (Some(pid), Some(name)) => write!(f, "process {pid} ({name})"),
            (Some(pid), None) => write!(f, "process {pid}"),
            (None, _) => f.write_str("another process"),
        }
    }
}

/// What a lock keeps alive while it is held: a descriptor, or an entry of the simulated disk.
pub(super) trait Held: fmt::Debug + Send + Sync {
    /// Removes the locked file by its name.
    fn remove(&self) -> io::Result<()>;
}

/// A lock on a directory, held until it is dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    _held: Box<dyn fmt::Debug + Send + Sync>,
}

impl DirectoryLock {
    pub(super) fn new(held: Box<dyn fmt::Debug + Send + Sync>) -> DirectoryLock {
        DirectoryLock { _held: held }
    }
}

/// An exclusive lock on a whole file, held until it is dropped.
#[derive(Debug)]
pub struct RecordLock {
    held: Box<dyn Held>,
    made_file: bool,
}

impl RecordLock {
    pub(super) fn new(held: Box<dyn Held>, made_file: bool) -> RecordLock {
        RecordLock { held, made_file }
    }

    /// Whether taking the lock made the file.
    pub fn made_file(&self) -> bool {
        self.made_file
    }

    /// Removes the file if taking the lock made it, while the lock is still held; a file that was there before stays, and so does
    /// one that took the locked file's name since.
    ///
    /// # Errors
    /// What removing the file says. A file that is gone already is no error.
    pub fn remove_made_file(&mut self) -> io::Result<()> {
        if !self.made_file {
            return Ok(());
        }
        self.held.remove()?;
        self.made_file = false;
        Ok(())
    }
}

/// Takes a `flock` without waiting; false where another open of the file has it.
///
/// # Errors
/// What `flock` says.
pub(super) fn flock(file: &fs::File, kind: Kind) -> io::Result<bool> {
    let operation = match kind {
        Kind::Shared => libc::LOCK_SH,
        Kind::Exclusive => libc::LOCK_EX,
    };
    loop {
        // SAFETY: the descriptor is open as long as `file` lives; flock touches no memory of ours.
        if unsafe { libc::flock(file.as_raw_fd(), operation | libc::LOCK_NB) } == 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => {}
            e if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            e => return Err(e),
        }
    }
}

/// A request for an exclusive record lock on a whole file, whatever its length becomes.
fn whole_file() -> libc::flock {
    // SAFETY: the structure is plain data for which zero is a valid value; F_OFD commands ask for a zero l_pid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// Takes an exclusive record lock on a whole file that was opened for writing, without waiting; false where somebody has one.
///
/// # Errors
/// What `fcntl` says.
pub(super) fn set_record_lock(file: &fs::File) -> io::Result<bool> {
    let lock = whole_file();
    loop {
        // SAFETY: the descriptor is open as long as `file` lives, and `lock` lives through the call, which only reads it.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
            return Ok(true);
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
            _ => return Err(e),
        }
    }
}

/// Who holds a record lock that would shut us out of a file; `None` for nobody. A descriptor opened for reading will do.
///
/// # Errors
/// What `fcntl` says.
pub(super) fn record_lock_holder(file: &fs::File, metadata: &Metadata) -> io::Result<Option<Holder>> {
    let mut lock = whole_file();
    loop {
        // SAFETY: the descriptor is open as long as `file` lives, and `lock` lives through the call, which writes only into it.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } == 0 {
            break;
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
    if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    // The lock of an open file description has no process (-1), and one from a foreign pid namespace has 0.
    Ok(Some(if lock.l_pid > 0 { Holder::of_process(lock.l_pid) } else { holder_by_descriptor(Path::new("/proc"), "OFDLCK", metadata) }))
}

/// Who holds a `flock` on a file or directory, found by its metadata. A holder without a process where nobody is found: the lock
/// may be gone by now, or its holder may be out of sight.
pub fn flock_holder(metadata: &Metadata) -> Holder {
    // /proc/locks can be read without any right over the holder, but it names the process that took the lock, and leaves the
    // line out once that one is gone, though a child may have inherited the descriptor.
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    match holder_in_lines(locks.lines(), "FLOCK", metadata) {
        Some(pid) if pid > 0 => Holder::of_process(pid),
        _ => holder_by_descriptor(Path::new("/proc"), "FLOCK", metadata),
    }
}

/// The process of the first line that describes a held lock of a class (`FLOCK`, `OFDLCK`, `POSIX`) on a file. A line is
/// `1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`, with the device in hexadecimal; a waiter has `->` behind the number.
fn holder_in_lines<'a>(lines: impl Iterator<Item = &'a str>, class: &str, metadata: &Metadata) -> Option<i32> {
    let inode = metadata.inode.to_string();
    let device = format!("{:02x}:{:02x}", libc::major(metadata.device), libc::minor(metadata.device));
    let mut nearly = None;
    for line in lines {
        let mut words = line.split_whitespace().skip(1);
        if words.next() != Some(class) {
            continue;
        }
        let mut words = words.skip(2);
        let (Some(pid), Some(place)) = (words.next(), words.next()) else { continue };
        let (Ok(pid), Some((line_device, line_inode))) = (pid.parse(), place.rsplit_once(':')) else { continue };
        if line_inode != inode {
            continue;
        }
        if line_device == device {
            return Some(pid);
        }
        // btrfs and overlayfs show another device here than `stat` does; the inode number alone is then the best there is.
        nearly.get_or_insert(pid);
    }
    nearly
}

/// The process that has a descriptor with a lock of a class on a file, from the `lock:` lines of `/proc/*/fdinfo/*`.
fn holder_by_descriptor(proc: &Path, class: &str, metadata: &Metadata) -> Holder {
    let Ok(processes) = fs::read_dir(proc) else { return Holder::default() };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(descriptors) = fs::read_dir(process.path().join("fdinfo")) else { continue };
        for descriptor in descriptors.flatten() {
            let Ok(text) = fs::read_to_string(descriptor.path()) else { continue };
            let locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
            if holder_in_lines(locks, class, metadata).is_some() {
                return Holder::of_process(pid);
            }
        }
    }
    Holder::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::os::OsFileSystem;
    use crate::io::{Directory, FileSystem, Open};
    use std::ffi::OsStr;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn directory() -> (tempfile::TempDir, Arc<dyn Directory>) {
        let place = tempfile::tempdir().unwrap();
        let directory = OsFileSystem.open_dir(place.path()).unwrap();
        (place, directory)
    }

    fn lock_name() -> &'static OsStr {
        OsStr::new(".lock")
    }

    fn own_pid() -> Option<i32> {
        Some(std::process::id() as i32)
    }

    #[test]
    fn a_directory_lock_shuts_out_other_opens_until_it_is_dropped() {
        let (place, first) = directory();
        let second = OsFileSystem.open_dir(place.path()).unwrap();
        let shared = first.lock(Kind::Shared).unwrap().unwrap();
        assert!(second.lock(Kind::Shared).unwrap().is_some());
        assert!(second.lock(Kind::Exclusive).unwrap().is_none());
        let holder = flock_holder(&second.own_metadata().unwrap());
        assert_eq!(holder.pid, own_pid());
        drop(shared);
        let exclusive = second.lock(Kind::Exclusive).unwrap().unwrap();
        assert!(first.lock(Kind::Shared).unwrap().is_none());
        drop(exclusive);
        assert!(first.lock(Kind::Shared).unwrap().is_some());
        assert_eq!(flock_holder(&second.own_metadata().unwrap()), Holder::default());
    }

    #[test]
    fn asking_for_a_record_lock_makes_no_file() {
        let (place, directory) = directory();
        assert_eq!(directory.record_lock_holder(lock_name()).unwrap(), None);
        assert!(fs::read_dir(place.path()).unwrap().next().is_none());
    }

    #[test]
    fn our_own_record_lock_is_named_though_it_has_no_process_number() {
        let (_place, directory) = directory();
        let lock = directory.take_record_lock(lock_name()).unwrap().unwrap();
        assert!(lock.made_file());
        let holder = directory.record_lock_holder(lock_name()).unwrap().unwrap();
        assert_eq!(holder.pid, own_pid());
        assert_eq!(directory.take_record_lock(lock_name()).unwrap().unwrap_err(), holder);
        // Closing another descriptor of the file releases nothing.
        drop(directory.open(lock_name(), Open::Read).unwrap());
        assert!(directory.record_lock_holder(lock_name()).unwrap().is_some());
        drop(lock);
        assert_eq!(directory.record_lock_holder(lock_name()).unwrap(), None);
    }

    #[test]
    fn only_a_file_that_the_lock_made_is_removed() {
        let (place, directory) = directory();
        let mut lock = directory.take_record_lock(lock_name()).unwrap().unwrap();
        lock.remove_made_file().unwrap();
        assert!(!place.path().join(".lock").exists() && !lock.made_file());
        fs::write(place.path().join(".lock"), "").unwrap();
        lock.remove_made_file().unwrap();
        let mut second = directory.take_record_lock(lock_name()).unwrap().unwrap();
        assert!(!second.made_file());
        second.remove_made_file().unwrap();
        assert!(place.path().join(".lock").exists());
    }

    #[test]
    fn a_file_that_took_the_name_since_is_left_alone() {
        let (place, directory) = directory();
        let mut lock = directory.take_record_lock(lock_name()).unwrap().unwrap();
        fs::remove_file(place.path().join(".lock")).unwrap();
        fs::write(place.path().join(".lock"), "somebody's").unwrap();
        lock.remove_made_file().unwrap();
        assert!(place.path().join(".lock").exists());
    }

    /// A removed lock file can still be locked by whoever opened it before; such a lock must not count.
    #[test]
    fn one_holds_the_lock_at_a_time_though_its_file_comes_and_goes() {
        let (place, _) = directory();
        let holders = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let directory = OsFileSystem.open_dir(place.path()).unwrap();
                    for _ in 0..200 {
                        if let Ok(mut lock) = directory.take_record_lock(lock_name()).unwrap() {
                            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                            std::thread::yield_now();
                            holders.fetch_sub(1, Ordering::SeqCst);
                            lock.remove_made_file().unwrap();
                        }
                    }
                });
            }
        });
    }

    /// A process that holds a plain POSIX lock on a file, as a broker does, until its standard input closes.
    fn broker(lock: &Path) -> Child {
        let script = "import fcntl,sys;f=open(sys.argv[1],'a');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);sys.stdin.read()";
        let mut child =
            Command::new("python3").args(["-c", script]).arg(lock).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        child
    }

    #[test]
    fn the_posix_lock_of_another_process_is_seen_and_named() {
        let (place, directory) = directory();
        let mut child = broker(&place.path().join(".lock"));
        let holder = directory.record_lock_holder(lock_name()).unwrap().unwrap();
        assert_eq!(holder.pid, Some(child.id() as i32));
        assert!(holder.name.as_deref().is_some_and(|name| name.starts_with("python3")), "{holder}");
        assert_eq!(directory.take_record_lock(lock_name()).unwrap().unwrap_err(), holder);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!directory.take_record_lock(lock_name()).unwrap().unwrap().made_file());
    }

    #[test]
    fn lines_of_locks_are_read_by_class_and_file() {
        let metadata = Metadata {
            kind: crate::io::Kind::File,
            len: 0,
            mtime_ns: 0,
            inode: 42,
            device: libc::makedev(0xfd, 1),
            mode: 0,
            uid: 0,
            gid: 0,
            links: 1,
        };
        let lines = [
            "1: POSIX  ADVISORY  WRITE 10 fd:01:42 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 11 fd:01:42 0 EOF",
            "2: FLOCK  ADVISORY  WRITE 12 fd:01:421 0 EOF",
            "3: FLOCK  ADVISORY  WRITE 13 fd:02:42 0 EOF",
            "4: FLOCK  ADVISORY  READ 14 fd:01:42 0 EOF",
            "5: OFDLCK ADVISORY  WRITE -1 fd:01:42 0 EOF",
        ];
        let of = |lines: &[&str], class| holder_in_lines(lines.iter().copied(), class, &metadata);
        assert_eq!(of(&lines, "FLOCK"), Some(14));
        assert_eq!(of(&lines[..4], "FLOCK"), Some(13), "another device is better than nothing");
        assert_eq!(of(&lines, "OFDLCK"), Some(-1));
        assert_eq!(of(&lines[..3], "FLOCK"), None);
        assert_eq!(of(&["", "1:", "1: FLOCK", "1: FLOCK A W x fd:01:42", "1: FLOCK A W 1 42"], "FLOCK"), None);
    }

    #[test]
    fn a_holder_says_what_is_known_of_it() {
        let name = Some("java".to_owned());
        assert_eq!(Holder { pid: Some(123), name }.to_string(), "process 123 (java)");
        assert_eq!(Holder { pid: Some(123), name: None }.to_string(), "process 123");
        assert_eq!(Holder::default().to_string(), "another process");
    }
}
