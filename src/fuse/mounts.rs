//! What is mounted where, and taking mounts away.
//!
//! `/proc/self/mountinfo` answers without asking a file system, so it can be read when a mount is dead or its daemon is this very
//! process. Detaching always names a path, and the path may have got another mount since: what lies on top is looked at first.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The type of our mounts.
pub(super) const TYPE: &str = "fuse.offsetfs";
/// The helper that mounts and unmounts for users who may not.
pub(super) const HELPER: &str = "fusermount3";
/// Where mounts are listed.
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    id: u64,
    parent: u64,
    /// Its device, `major:minor`.
    pub(super) device: String,
    /// Where it is mounted.
    pub(super) point: PathBuf,
    /// Whether the kernel refuses every write.
    pub(super) read_only: bool,
    /// The type of its file system.
    pub(super) kind: String,
    /// What is mounted, in the words of who mounted it.
    pub(super) source: String,
}

/// All mounts that this process sees.
///
/// # Errors
/// Where `/proc` cannot be read.
pub(super) fn all() -> io::Result<Vec<Mounted>> {
    Ok(parse(&fs::read(MOUNTINFO)?))
}

/// The mount on top at a path.
///
/// # Errors
/// As [`all`].
pub(super) fn top(path: &Path) -> io::Result<Option<Mounted>> {
    Ok(top_of(all()?, path))
}

fn top_of(mounts: Vec<Mounted>, path: &Path) -> Option<Mounted> {
    let here: Vec<Mounted> = mounts.into_iter().filter(|mount| mount.point == path).collect();
    let covered = |mount: &Mounted| here.iter().any(|other| other.parent == mount.id && other.id != mount.id);
    here.iter().rfind(|mount| !covered(mount)).cloned()
}

/// Lines such as `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`; what is no such line is passed over.
fn parse(text: &[u8]) -> Vec<Mounted> {
    let line = |line: &[u8]| -> Option<Mounted> {
        let mut fields = line.split(|byte| *byte == b' ');
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
        let (id, parent) = (number(fields.next()?)?, number(fields.next()?)?);
        let device = text_of(fields.next()?);
        let point = PathBuf::from(unescape(fields.nth(1)?));
        let read_only = fields.next()?.split(|byte| *byte == b',').any(|option| option == b"ro");
        // The optional fields end with a hyphen.
        fields.find(|field| *field == b"-")?;
        Some(Mounted { id, parent, device, point, read_only, kind: text_of(fields.next()?), source: text_of(fields.next()?) })
    };
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

fn text_of(field: &[u8]) -> String {
    unescape(field).to_string_lossy().into_owned()
}

/// The kernel writes blanks and backslashes as a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        (bytes, rest) = match behind {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] if *first == b'\\' => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                (bytes, behind)
            }
            _ => {
                bytes.push(*first);
                (bytes, behind)
            }
        };
    }
    OsString::from_vec(bytes)
}

/// Waits until a mount was added or removed somewhere; may come back for other reasons, too.
pub(super) struct Changes(File);

impl Changes {
    /// Begins to watch.
    ///
    /// # Errors
    /// As [`all`].
    pub(super) fn new() -> io::Result<Changes> {
        File::open(MOUNTINFO).map(Changes)
    }

    /// Waits for the next change since the last one, or since the beginning.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn wait(&self) -> io::Result<()> {
        let mut ask = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one structure is passed, it lives through the call, and its descriptor is open.
        match unsafe { libc::poll(&raw mut ask, 1, -1) } {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
                error => Err(error),
            },
            _ => Ok(()),
        }
    }
}

/// The path of a mount point without links, also where a dead mount lies on it.
///
/// # Errors
/// Where there is no such path.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if is_dead(&error) => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(error) };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        result => result,
    }
}

/// Whether an error says that a mount has lost its daemon.
pub(super) fn is_dead(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOTCONN)
}

/// Whether this process may mount and unmount itself.
pub(super) fn is_root() -> bool {
    // SAFETY: the call has no conditions.
    let user = unsafe { libc::geteuid() };
    user == 0
}

/// Takes away the mount on top at a path; `lazy` does so even if it is in use.
///
/// # Errors
/// `ResourceBusy` where it is in use; what the system or the helper says.
pub(super) fn unmount(path: &Path, lazy: bool) -> io::Result<()> {
    if !is_root() {
        return unmount_by_helper(path, lazy);
    }
    let name = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazy { libc::MNT_DETACH } else { 0 };
    // SAFETY: the path ends with NUL and lives through the call.
    match unsafe { libc::umount2(name.as_ptr(), flags) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::PermissionDenied => unmount_by_helper(path, lazy),
            error => Err(error),
        },
    }
}

fn unmount_by_helper(path: &Path, lazy: bool) -> io::Result<()> {
    let flags: &[&str] = if lazy { &["-u", "-z"] } else { &["-u"] };
    let output = Command::new(HELPER).args(flags).args([OsStr::new("--"), path.as_os_str()]).env("LC_ALL", "C").output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if said.contains("busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:30 / /mnt/a\\040b rw,nosuid - fuse.offsetfs /data/t\\134x-0 rw,user_id=0
31 30 0:31 / /mnt/a\\040b rw shared:7 master:1 - tmpfs none rw
broken line
32 22 0:32 / /mnt/c nosuid,ro - fuse.offsetfs x rw
";

    #[test]
    fn lines_are_read_and_unescaped() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 4);
        let second = &mounts[1];
        assert_eq!((second.device.as_str(), second.kind.as_str(), second.source.as_str()), ("0:30", TYPE, "/data/t\\x-0"));
        assert_eq!(second.point, Path::new("/mnt/a b"));
        assert_eq!(mounts.iter().map(|mount| mount.read_only).collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn the_mount_on_top_is_the_one_that_none_covers() {
        let device = |path, mounts| top_of(mounts, Path::new(path)).map(|mount| mount.device);
        assert_eq!(device("/mnt/a b", parse(TEXT)).as_deref(), Some("0:31"));
        let reversed = parse(TEXT).into_iter().rev().collect();
        assert_eq!(device("/mnt/a b", reversed).as_deref(), Some("0:31"));
        assert_eq!(device("/mnt/c", parse(TEXT)).as_deref(), Some("0:32"));
        assert_eq!(device("/mnt", parse(TEXT)), None);
    }

    #[test]
    fn odd_escapes_stay_as_they_are() {
        for (escaped, plain) in
            [("a\\040", "a "), ("\\", "\\"), ("\\04", "\\04"), ("\\888", "\\888"), ("\\777", "\\777"), ("\\134134", "\\134")]
        {
            assert_eq!(unescape(escaped.as_bytes()), plain, "{escaped}");
        }
    }

    #[test]
    fn this_machine_has_a_root() {
        assert!(top(Path::new("/")).unwrap().is_some());
    }
}
