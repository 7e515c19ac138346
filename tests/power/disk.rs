//! A file system on a loop device whose power can be cut.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `EXT4_IOC_SHUTDOWN` of Linux' `fs/ext4/ext4.h`.
const EXT4_IOC_SHUTDOWN: libc::Ioctl = 0x8004_587d;
/// Nothing more is written, the journal's unwritten part neither.
const NOLOGFLUSH: u32 = 2;
const IMAGE_BYTES: u64 = 64 << 20;

/// An ext4 file system in a file.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: tempfile::TempDir,
    /// Each time it comes back it is another file: whoever still holds the old file system, in whatever mount namespace, cannot touch the new one.
    times: u32,
}

impl Disk {
    /// A new one, mounted.
    pub(crate) fn new() -> Disk {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let disk = Disk { folder, times: 0 };
        File::create(disk.image()).and_then(|image| image.set_len(IMAGE_BYTES)).expect("a file for the disk");
        fs::create_dir(disk.point()).expect("a new folder");
        run(Command::new("mkfs.ext4").arg("-qF").arg(disk.image()));
        disk.mount();
        disk
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join(format!("image-{}", self.times))
    }

    /// Where it is mounted.
    pub(crate) fn point(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// Leaves the image for somebody to look at; where it is.
    pub(crate) fn keep(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.image()
    }

    /// From now on nothing reaches the disk, and every call fails.
    pub(crate) fn cut_power(&mut self) {
        let root = File::open(self.point()).expect("the root directory");
        let how: u32 = NOLOGFLUSH;
        // SAFETY: the request reads one u32, which lives until the call is over.
        let done = unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const how) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Mounts what the disk holds.
    pub(crate) fn power_on(&mut self) {
        run(Command::new("umount").arg("-l").arg(self.point()));
        let before = self.image();
        self.times += 1;
        run(Command::new("cp").arg("--sparse=always").arg(&before).arg(self.image()));
        fs::remove_file(before).expect("the old image");
        self.mount();
    }

    fn mount(&self) {
        mount_image(&self.image(), &self.point());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.point());
    }
}

/// Mounts a file that holds an ext4 file system.
pub(crate) fn mount_image(image: &Path, point: &Path) {
    run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(point));
}

/// Unmounts what is mounted there, also where a test that failed has left a writer that still lives.
pub(crate) fn unmount(point: &Path) {
    if is_mounted(point) {
        let _ = Command::new("umount").arg("-l").arg(point).status();
    }
}

fn is_mounted(point: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("a list of mounts");
    mounts.lines().any(|line| line.split(' ').nth(4) == point.to_str())
}

/// Runs a command that has to go well.
pub(crate) fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
