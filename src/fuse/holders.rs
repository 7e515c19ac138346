//! Who still holds a descriptor: the question behind "was this the last close?", answered from `/proc`.
//!
//! The kernel says of each close that it happens, not whether it is the last one. At that moment the descriptor has left its
//! process's table, so the tables of all processes show exactly the others. Descriptors on their way between two processes are not
//! seen, nor those of processes that may not be read.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a close looks for other descriptors. It takes half a millisecond on an idle machine; with a dozen runnable threads a core 50 ms were
/// not enough, and a reader right after the close came too early.
pub(super) const SEARCH_MOST: Duration = Duration::from_millis(250);
/// Enough of a `fdinfo` file for its first lines: `pos`, `flags`, `mnt_id`, `ino`.
const FDINFO_BYTES: usize = 512;
/// No chain of ancestors is longer, unless it is being rearranged while it is read.
const ANCESTORS_MOST: usize = 1000;

/// Whether other descriptors of a file are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// None was found, and everybody who counts was asked.
    None,
    /// There is at least one.
    Some,
    /// Nobody can say: the closer lives in another pid namespace, its descriptors may not be read, or the time was over.
    Unknown,
}

/// Why a search ends before its end.
enum Stop {
    Found,
    TimeOver,
}

struct Search {
    /// The line of `fdinfo` that names the file.
    line: String,
    /// Whether only descriptors count that can write.
    writers: bool,
    deadline: Instant,
}

/// Looks for descriptors of the file with this inode number: in the closing process first (by the number of its thread), then in
/// its ancestors, then in all others, for at most `limit`.
pub(super) fn others(inode: u64, closer: u32, limit: Duration) -> Others {
    Search::new(inode, false, limit).answer(closer)
}

/// The same among descriptors that can write.
pub(super) fn other_writers(inode: u64, closer: u32, limit: Duration) -> Others {
    Search::new(inode, true, limit).answer(closer)
}

impl Search {
    fn new(inode: u64, writers: bool, limit: Duration) -> Search {
        Search { line: format!("\nino:\t{inode}\n"), writers, deadline: Instant::now() + limit }
    }

    fn answer(&self, closer: u32) -> Others {
        if closer == 0 {
            return Others::Unknown;
        }
        match self.everywhere(closer) {
            Ok(Ok(())) => Others::None,
            Ok(Err(Stop::Found)) => Others::Some,
            Ok(Err(Stop::TimeOver)) | Err(_) => Others::Unknown,
        }
    }

    /// The outer error: the closer itself cannot be read.
    fn everywhere(&self, closer: u32) -> io::Result<Result<(), Stop>> {
        if let Err(stop) = self.in_process(closer)? {
            return Ok(Err(stop));
        }
        let mut asked = vec![closer];
        let mut process = closer;
        while let Some(parent) = parent_of(process).filter(|parent| *parent != 0 && asked.len() < ANCESTORS_MOST) {
            if let Ok(Err(stop)) = self.in_process(parent) {
                return Ok(Err(stop));
            }
            asked.push(parent);
            process = parent;
        }
        for entry in fs::read_dir("/proc")? {
            let Some(process) = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse().ok()) else { continue };
            if asked.contains(&process) {
                continue;
            }
            if let Ok(Err(stop)) = self.in_process(process) {
                return Ok(Err(stop));
            }
        }
        Ok(Ok(()))
    }

    /// The outer error: the process or one of its descriptors cannot be read.
    fn in_process(&self, process: u32) -> io::Result<Result<(), Stop>> {
        for entry in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
            if Instant::now() >= self.deadline {
                return Ok(Err(Stop::TimeOver));
            }
            match self.names_it(&entry?.path()) {
                Ok(true) => return Ok(Err(Stop::Found)),
                Ok(false) => {}
                // Closed since it was listed.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Ok(()))
    }

    fn names_it(&self, fdinfo: &Path) -> io::Result<bool> {
        let mut text = [0; FDINFO_BYTES];
        let read = File::open(fdinfo)?.read(&mut text)?;
        let (line, text) = (self.line.as_bytes(), text.get(..read).unwrap_or_default());
        Ok(text.windows(line.len()).any(|window| window == line) && (!self.writers || can_write(text)))
    }
}

/// Whether `fdinfo` tells of a descriptor that can write: the last digit of its flags, which are octal, has the access mode. Where it cannot be told, it may.
fn can_write(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32)
}

/// The parent of a process. Not out of `stat`: reading that waits for an `execve` of the process to end, and the close that is being
/// answered may be part of one (a descriptor with close-on-exec), so that both would wait for ever.
fn parent_of(process: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{process}/status")).ok()?;
    String::from_utf8_lossy(&status).lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio, id};

    const LONG: Duration = Duration::from_secs(60);
    /// No file of the machine that runs the tests has this number.
    const NOBODY: u64 = u64::MAX - 0x5eed_cafe;

    #[test]
    fn our_own_descriptor_is_found() {
        let file = tempfile::tempfile().unwrap();
        let inode = file.metadata().unwrap().ino();
        assert_eq!(others(inode, id(), LONG), Others::Some);
    }

    #[test]
    fn nobody_holds_a_file_that_does_not_exist() {
        assert_eq!(others(NOBODY, id(), LONG), Others::None);
    }

    #[test]
    fn a_descriptor_of_another_process_is_found_and_then_is_gone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = file.as_file().metadata().unwrap().ino();
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::from(file.reopen().unwrap())).spawn().unwrap();
        drop(file);
        let search = Search::new(inode, false, LONG);
        let found = matches!(search.in_process(child.id()), Ok(Err(Stop::Found)));
        let whole = others(inode, id(), LONG);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
        assert_eq!(whole, Others::Some);
        assert!(search.in_process(child.id()).is_err());
    }

    #[test]
    fn readers_are_no_writers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = file.as_file().metadata().unwrap().ino();
        let path = file.into_temp_path();
        assert_eq!((others(inode, id(), LONG), other_writers(inode, id(), LONG)), (Others::None, Others::None));
        let reader = File::open(&path).unwrap();
        assert_eq!((others(inode, id(), LONG), other_writers(inode, id(), LONG)), (Others::Some, Others::None));
        let writer = File::options().append(true).open(&path).unwrap();
        assert_eq!(other_writers(inode, id(), LONG), Others::Some);
        drop((reader, writer));
    }

    #[test]
    fn a_parent_that_holds_it_is_asked_before_all_others() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let parent = parent_of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent, Some(id()));
    }

    #[test]
    fn a_foreign_or_vanished_closer_or_no_time_is_no_answer() {
        assert_eq!(others(NOBODY, 0, LONG), Others::Unknown);
        assert_eq!(others(NOBODY, u32::MAX, LONG), Others::Unknown);
        assert_eq!(others(NOBODY, id(), Duration::ZERO), Others::Unknown);
    }
}
