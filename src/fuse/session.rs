//! A mount from its beginning to its end.
//!
//! As root the mount is our own mount(2), so that its type is `fuse.offsetfs` and that only we take it away; another user goes through
//! fusermount3. The calling thread then waits: for a signal, or for the news that the session has ended or that the mount is gone (also a
//! lazy unmount is an end: else a forgotten handle would keep the log locked). In each case the mount is detached, tails are
//! committed, the log is closed.

use super::Adapter;
use super::answers::Answers;
use super::busy::{self, Holder};
use super::mounts::{self, Mounted};
use super::reply::Ownership;
use super::signals::{self, Signals, Waiter};
use crate::io::os::OsFileSystem;
use crate::io::{FileSystem, Metadata, lock};
use crate::view::Tree;
use fuser::{Config, MountOption, Session, SessionACL};
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The kernel's door.
const DEVICE: &str = "/dev/fuse";
/// How long tails are waited for when the mount ends.
const TAILS_MOST: Duration = Duration::from_millis(1500);
/// How long an unmounting waits for the daemon to close the log.
const CLOSE_MOST: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long the session may take to end once the mount is detached and the log closed. Open handles keep it alive for longer.
const SESSION_MOST: Duration = Duration::from_millis(100);
/// How many dead mounts may lie on one another before it is given up.
const DEAD_MOST: usize = 16;

/// What to mount, where and how.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// The partition directory, for the mount's name and to keep the mount point out of it.
    pub source: PathBuf,
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// Whether the kernel refuses every write.
    pub read_only: bool,
    /// Whether other users may use the mount, as far as the permission bits go.
    pub allow_other: bool,
    /// The owner to show; that of the partition directory by default.
    pub uid: Option<u32>,
    /// The group to show; that of the partition directory by default.
    pub gid: Option<u32>,
    /// The permission bits to take away from what the kind of each file allows; by default those that the partition directory does
    /// not grant are taken away, too.
    pub umask: Option<u32>,
    /// How many threads take requests, at least 1; 2 by default.
    pub threads: usize,
    /// Whether the kernel may read the real files itself, where it can; by default it may.
    pub passthrough: bool,
}

impl MountConfig {
    /// The defaults.
    pub fn new(source: impl Into<PathBuf>, mountpoint: impl Into<PathBuf>) -> MountConfig {
        let (source, mountpoint) = (source.into(), mountpoint.into());
        let (uid, gid, umask) = (None, None, None);
        MountConfig { source, mountpoint, read_only: false, allow_other: false, uid, gid, umask, threads: 2, passthrough: true }
    }
}

/// Why there is no mount, or why it did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("cannot mount at {}: {error}", path.display())]
    Mountpoint {
        /// The mount point.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The mount point lies in the source, or the reverse.
    #[error("{} and {} lie one in the other; mount outside of the source", mountpoint.display(), source_path.display())]
    Nested {
        /// The mount point.
        mountpoint: PathBuf,
        /// The source.
        source_path: PathBuf,
    },
    /// There is a mount at the mount point already.
    #[error("{} has a mount already: {kind} of {what}", path.display())]
    Occupied {
        /// The mount point.
        path: PathBuf,
        /// The type of its file system.
        kind: String,
        /// What is mounted there.
        what: String,
    },
    /// The kernel's device cannot be opened.
    #[error("cannot open {DEVICE}: {0} (is the module loaded? modprobe fuse)")]
    Device(io::Error),
    /// The helper for users who may not mount is missing.
    #[error("{} is not installed; on Debian it is in the package fuse3", mounts::HELPER)]
    NoHelper,
    /// The system refuses.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it says.
        error: io::Error,
    },
    /// The mount has ended, but the log could not be closed well.
    #[error("the log could not be closed well: {0}")]
    Close(crate::view::Error),
}

/// Why a mount was not taken away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// Nothing is mounted there.
    #[error("nothing is mounted at {}", .0.display())]
    NotMounted(PathBuf),
    /// The mount is not one of ours.
    #[error("{} is no mount of offsetfs but of type {kind}", path.display())]
    Foreign {
        /// The mount point.
        path: PathBuf,
        /// The type of its file system.
        kind: String,
    },
    /// It is in use.
    #[error("{} is in use{}", path.display(), listed(holders))]
    Busy {
        /// The mount point.
        path: PathBuf,
        /// By whom, as far as that can be seen.
        holders: Vec<Holder>,
    },
    /// The system refuses.
    #[error("cannot unmount {}: {error}", path.display())]
    System {
        /// The mount point.
        path: PathBuf,
        /// What it says.
        error: io::Error,
    },
}

fn listed(holders: &[Holder]) -> String {
    let list: Vec<String> = holders.iter().map(Holder::to_string).collect();
    if list.is_empty() { String::new() } else { format!(" by {}", list.join(", ")) }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> MountError {
    move |error| MountError::System { what, error }
}

/// Blocks INT, TERM and HUP in this thread and in those that it starts. Called before a program starts its first thread, it keeps
/// these signals for [`mount`]; a thread that is older could take them and end the process with a mount left behind.
///
/// # Errors
/// What the system says.
pub fn block_signals() -> io::Result<()> {
    signals::block().map(drop)
}

/// Whether a mount would be refused because of its mount point. A dead mount of ours there is taken away. [`mount`] asks the same
/// again; asked before, it spares opening the log.
///
/// # Errors
/// [`MountError::Mountpoint`], [`MountError::Nested`], [`MountError::Occupied`].
pub fn check(config: &MountConfig) -> Result<(), MountError> {
    free_mountpoint(config).map(drop)
}

/// Mounts the tree and serves it until it is unmounted or INT, TERM or HUP comes; then the log is closed. `ready` is called when
/// the mount answers. When this comes back the process should end: handles that are still open keep threads alive, and get errors
/// once it has ended.
///
/// # Errors
/// Why there is no mount; [`MountError::Close`] where it ended but the log could not be closed well.
pub fn mount(config: MountConfig, tree: Arc<Tree>, ready: impl FnOnce()) -> Result<(), MountError> {
    let signals = signals::block().map_err(system("block signals"))?;
    let mountpoint = free_mountpoint(&config)?;
    let root = mounts::is_root();
    let answers =
        Answers::new(Arc::clone(&tree), ownership(&config, &tree), root && config.passthrough).map_err(system("start threads"))?;
    let answers = Arc::new(answers);
    let session = open_session(&config, &mountpoint, root, &answers)?;
    let device = match mounts::top(&mountpoint) {
        Ok(Some(mounted)) if mounted.kind == mounts::TYPE => Some(mounted.device),
        _ => None,
    };
    let mount = Mount { mountpoint, device };
    let mut background = match session.spawn() {
        Ok(background) => background,
        Err(error) => {
            mount.detach();
            return Err(system("start the session")(error));
        }
    };
    // What fuser keeps of a mount that fusermount3 made would unmount by path at its end, whatever is mounted there by then (a
    // fault of fuser 0.18). Only its thread is wanted; the rest is left to the end of the process.
    let session = mem::replace(&mut background.guard, thread::spawn(|| Ok(())));
    mem::forget(background);
    let end = End { over: Arc::default(), waiter: Waiter::this_thread() };
    let session_over = end.when_session_ends(session).map_err(system("start a thread"))?;
    if let Some(device) = mount.device.clone() {
        end.when_mount_is_gone(device).map_err(system("start a thread"))?;
    }
    ready();
    end.wait(&signals);
    mount.detach();
    answers.finish(TAILS_MOST);
    let closed = tree.close();
    // The kernel ends the session when the last handle is closed. Those who do not close theirs are not waited for.
    let _ = session_over.recv_timeout(SESSION_MOST);
    closed.map_err(MountError::Close)
}

/// Takes away a mount of ours; `lazy` does so even if it is in use. Comes back once its daemon has closed the log and let go of the lock, so that who
/// copies the files, or mounts them again, finds them as they stay; a daemon that takes ten seconds for it is not waited for any longer.
///
/// # Errors
/// [`UnmountError::Busy`] names who uses it.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), UnmountError> {
    let refused = |error| UnmountError::System { path: mountpoint.to_owned(), error };
    let path = mounts::resolve(mountpoint).map_err(refused)?;
    let writer = match mounts::top(&path).map_err(refused)? {
        None => return Err(UnmountError::NotMounted(path)),
        Some(Mounted { kind, .. }) if kind != mounts::TYPE => return Err(UnmountError::Foreign { path, kind }),
        Some(mounted) => Writer::of(&mounted),
    };
    match mounts::unmount(&path, lazy) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let holders = busy::holders(&path);
            Err(UnmountError::Busy { path, holders })
        }
        Err(error) => Err(UnmountError::System { path, error }),
        Ok(()) => {
            if let Some(writer) = writer {
                writer.wait();
            }
            Ok(())
        }
    }
}

/// The process that holds the lock of a mount's source.
struct Writer {
    source: Metadata,
    pid: i32,
}

impl Writer {
    /// `None` where nobody is seen to hold it; a mount that takes no writes does not.
    fn of(mounted: &Mounted) -> Option<Writer> {
        let dir = OsFileSystem.open_dir(Path::new(&mounted.source)).ok().filter(|_| !mounted.read_only)?;
        let source = dir.own_metadata().ok()?;
        Some(Writer { pid: lock::flock_holder(&source).pid?, source })
    }

    /// Until it holds it no more.
    fn wait(&self) {
        let begin = Instant::now();
        while lock::flock_holder(&self.source).pid == Some(self.pid) && begin.elapsed() < CLOSE_MOST {
            thread::sleep(LOOK_AGAIN);
        }
    }
}

/// A mount of this process.
struct Mount {
    mountpoint: PathBuf,
    /// Its device number; `None` where the kernel's list does not show it.
    device: Option<String>,
}

impl Mount {
    /// Takes the mount away, in use or not, unless another one lies on it or has taken its place.
    fn detach(&self) {
        let ours = |mounted: &Mounted| Some(&mounted.device) == self.device.as_ref();
        match mounts::top(&self.mountpoint) {
            Ok(Some(mounted)) if ours(&mounted) => {
                if let Err(error) = mounts::unmount(&self.mountpoint, true) {
                    log::warn!("cannot unmount {}: {error}", self.mountpoint.display());
                }
            }
            Ok(_) => {}
            Err(error) => log::warn!("cannot see what is mounted at {}: {error}", self.mountpoint.display()),
        }
    }
}

/// How the thread that waits for signals learns of other ends.
struct End {
    over: Arc<AtomicBool>,
    waiter: Waiter,
}

impl End {
    fn wait(&self, signals: &Signals) {
        // A signal that was not sent by `tell` is an end, too, so whatever wakes this thread, the wait is over.
        match signals.wait() {
            Ok(_) if self.over.load(Ordering::Acquire) => log::info!("unmounted"),
            Ok(signal) => log::info!("signal {signal}: unmounting"),
            Err(error) => log::error!("cannot wait for signals: {error}; unmounting"),
        }
    }

    fn tell(over: &AtomicBool, waiter: Waiter) {
        // Told twice, the second signal would stay pending; the first one is enough.
        if !over.swap(true, Ordering::AcqRel) {
            waiter.wake();
        }
    }

    /// Wakes the waiter when the session has ended; the channel then hangs up.
    fn when_session_ends(&self, session: thread::JoinHandle<io::Result<()>>) -> io::Result<mpsc::Receiver<()>> {
        let (sender, session_over) = mpsc::channel();
        let (over, waiter) = (Arc::clone(&self.over), self.waiter);
        thread::Builder::new().name("offsetfs-end".to_owned()).spawn(move || {
            match session.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => log::error!("the session ended with an error: {error}"),
                Err(_) => log::error!("the session ended with a panic"),
            }
            End::tell(&over, waiter);
            drop::<mpsc::Sender<()>>(sender);
        })?;
        Ok(session_over)
    }

    /// Wakes the waiter when no mount of this device is left.
    fn when_mount_is_gone(&self, device: String) -> io::Result<()> {
        let changes = mounts::Changes::new()?;
        let (over, waiter) = (Arc::clone(&self.over), self.waiter);
        thread::Builder::new().name("offsetfs-mounts".to_owned()).spawn(move || {
            loop {
                match mounts::all() {
                    Ok(all) if all.iter().any(|mounted| mounted.device == device) => {}
                    Ok(_) => return End::tell(&over, waiter),
                    Err(_) => return,
                }
                if changes.wait().is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }
}

/// The mount point without links, once it is known to be free. A dead mount of ours on it is taken away.
fn free_mountpoint(config: &MountConfig) -> Result<PathBuf, MountError> {
    let unusable = |error: io::Error| {
        let error = match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(error.kind(), "there is no such directory; make it first (mkdir)"),
            _ => error,
        };
        MountError::Mountpoint { path: config.mountpoint.clone(), error }
    };
    let path = mounts::resolve(&config.mountpoint).map_err(unusable)?;
    for _ in 0..DEAD_MOST {
        let Some(mounted) = mounts::top(&path).map_err(unusable)? else { break };
        // What `stat` says may be remembered from when it lived; a listing is always asked for.
        let dead = mounted.kind == mounts::TYPE && fs::read_dir(&path).is_err_and(|error| mounts::is_dead(&error));
        if !dead {
            return Err(MountError::Occupied { path, kind: mounted.kind, what: mounted.source });
        }
        log::warn!("{} has a dead mount of {}; it is taken away", path.display(), mounted.source);
        mounts::unmount(&path, true).map_err(unusable)?;
    }
    if !fs::metadata(&path).map_err(unusable)?.is_dir() {
        return Err(unusable(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    // A source that is still to be made has no path without links yet.
    let source_path = config.source.canonicalize().unwrap_or_else(|_| config.source.clone());
    if path.starts_with(&source_path) || source_path.starts_with(&path) {
        return Err(MountError::Nested { mountpoint: path, source_path });
    }
    Ok(path)
}

/// Whose the files are: the partition directory's, unless the configuration says otherwise.
fn ownership(config: &MountConfig, tree: &Tree) -> Ownership {
    let directory = tree.directory().and_then(|files| files.own_metadata().ok());
    // SAFETY: the call has no conditions.
    let user = unsafe { libc::geteuid() };
    // SAFETY: the call has no conditions.
    let group = unsafe { libc::getegid() };
    Ownership {
        uid: config.uid.or(directory.map(|d| d.uid)).unwrap_or(user),
        gid: config.gid.or(directory.map(|d| d.gid)).unwrap_or(group),
        granted: directory.map_or(0o777, |d| d.mode) & !own_umask(),
        umask: config.umask,
    }
}

/// The mask of this process, which only says what it is when it is changed; `/proc` tells without.
fn own_umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    // Only write bits: that others may read the tree is up to the source.
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022) & 0o222
}

/// Mounts and negotiates with the kernel. After an error nothing is mounted.
fn open_session(config: &MountConfig, mountpoint: &Path, root: bool, answers: &Arc<Answers>) -> Result<Session<Adapter>, MountError> {
    let mut settings = Config::default();
    settings.n_threads = Some(config.threads.max(1));
    settings.clone_fd = true;
    let adapter = Adapter { answers: Arc::clone(answers) };
    if root && let Some(device) = mount_by_kernel(config, mountpoint)? {
        // The kernel keeps strangers out where the mount is not for all; nothing is left for fuser to refuse.
        return Session::from_fd(adapter, device, SessionACL::All, settings).map_err(|error| {
            let mounted = mounts::top(mountpoint).ok().flatten().map(|mounted| mounted.device);
            Mount { mountpoint: mountpoint.to_owned(), device: mounted }.detach();
            system("start the session")(error)
        });
    }
    settings.acl = if config.allow_other { SessionACL::All } else { SessionACL::Owner };
    settings.mount_options = vec![
        MountOption::FSName(mount_name(&config.source)),
        MountOption::Subtype("offsetfs".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoExec,
        if config.read_only { MountOption::RO } else { MountOption::RW },
    ];
    if std::process::Command::new(mounts::HELPER).arg("-V").output().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(MountError::NoHelper);
    }
    Session::new(adapter, mountpoint, &settings).map_err(system("mount"))
}

/// Mounts with mount(2); `None` where the system wants a helper to do it.
fn mount_by_kernel(config: &MountConfig, mountpoint: &Path) -> Result<Option<OwnedFd>, MountError> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(MountError::Device)?;
    // SAFETY: the call has no conditions.
    let user = unsafe { libc::geteuid() };
    // SAFETY: the call has no conditions.
    let group = unsafe { libc::getegid() };
    let fd = device.as_raw_fd();
    let mut options = format!("fd={fd},rootmode=40000,user_id={user},group_id={group},default_permissions");
    if config.allow_other {
        options.push_str(",allow_other");
    }
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|error| system("name the mount")(error.into()));
    let (what, path, kind) =
        (text(mount_name(&config.source).as_bytes())?, text(mountpoint.as_os_str().as_bytes())?, text(mounts::TYPE.as_bytes())?);
    let options = text(options.as_bytes())?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | if config.read_only { libc::MS_RDONLY } else { 0 };
    // SAFETY: all texts end with NUL and live through the call, and the descriptor that the options name is open.
    match unsafe { libc::mount(what.as_ptr(), path.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) } {
        0 => Ok(Some(device.into())),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            error => Err(system("mount")(error)),
        },
    }
}

/// The source as the mount's name. Characters that would end it in a list of options, or spoil a listing, stand as `%` and two
/// hexadecimal digits.
fn mount_name(source: &Path) -> String {
    let path = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    let mut name = String::new();
    for character in path.to_string_lossy().chars() {
        match character {
            ',' | '\\' | '%' | '\0'..='\x1f' | '\x7f' => name.push_str(&format!("%{:02X}", u32::from(character))),
            _ => name.push(character),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_mounts_cannot_carry_options() {
        assert_eq!(mount_name(Path::new("/no/such,suid\\x\n50%")), "/no/such%2Csuid%5Cx%0A50%25");
        assert_eq!(mount_name(Path::new("/no/such folder-0")), "/no/such folder-0");
    }

    #[test]
    fn mount_points_are_checked_before_anything_is_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("source/inner")).unwrap();
        fs::create_dir(path("mount")).unwrap();
        fs::write(path("file"), "").unwrap();
        std::os::unix::fs::symlink(path("source/inner"), path("link")).unwrap();
        let check = |source: PathBuf, mountpoint: PathBuf| free_mountpoint(&MountConfig::new(source, mountpoint));
        assert_eq!(check(path("source"), path("mount")).unwrap(), path("mount").canonicalize().unwrap());
        for (source, mountpoint) in [("source", "source"), ("source", "source/inner"), ("source/inner", "source"), ("source", "link")] {
            assert!(matches!(check(path(source), path(mountpoint)), Err(MountError::Nested { .. })), "{source} {mountpoint}");
        }
        for mountpoint in ["file", "missing"] {
            assert!(matches!(check(path("source"), path(mountpoint)), Err(MountError::Mountpoint { .. })), "{mountpoint}");
        }
        let occupied = check(path("source"), PathBuf::from("/proc"));
        assert!(matches!(&occupied, Err(MountError::Occupied { kind, .. }) if kind == "proc"), "{occupied:?}");
    }

    #[test]
    fn only_our_own_mounts_are_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(unmount(folder.path(), false), Err(UnmountError::NotMounted(_))));
        assert!(matches!(unmount(Path::new("/proc"), true), Err(UnmountError::Foreign { kind, .. }) if kind == "proc"));
        assert!(matches!(unmount(&folder.path().join("missing"), false), Err(UnmountError::System { .. })));
    }

    #[test]
    fn a_busy_mount_names_its_holders() {
        let holder = Holder { pid: 7, name: "cat".to_owned(), how: "fd 3".to_owned(), path: "/m/status".into() };
        let busy = UnmountError::Busy { path: "/m".into(), holders: vec![holder] };
        assert_eq!(busy.to_string(), "/m is in use by 7 (cat: fd 3 /m/status)");
        assert_eq!(UnmountError::Busy { path: "/m".into(), holders: Vec::new() }.to_string(), "/m is in use");
    }
}
