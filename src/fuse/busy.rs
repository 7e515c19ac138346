//! Who keeps a mount busy: processes with something open, mapped or entered below a path.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A process that uses something below a mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The number of the process.
    pub pid: u32,
    /// Its name, at most 15 bytes as the kernel keeps it; empty where it may not be read.
    pub name: String,
    /// How it uses it: `cwd`, `root`, `exe`, `maps` or the number of a descriptor with `fd` before it.
    pub how: String,
    /// What it uses.
    pub path: PathBuf,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}: {} {})", self.pid, self.name, self.how, self.path.display())
    }
}

/// The processes that use something below a path, one line each. Those that may not be read are not seen, nor those in another
/// mount namespace, whose paths may differ. The file system itself is not asked.
pub(super) fn holders(below: &Path) -> Vec<Holder> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| {
        let (how, path) = use_of(pid, below)?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).map(|name| name.trim_end().to_owned()).unwrap_or_default();
        Some(Holder { pid, name, how, path })
    })
    .collect()
}

/// The first thing that a process is found to use.
fn use_of(pid: u32, below: &Path) -> Option<(String, PathBuf)> {
    let target = |link: &str| fs::read_link(format!("/proc/{pid}/{link}")).ok().filter(|path| path.starts_with(below));
    if let Some(found) = ["cwd", "root", "exe"].into_iter().find_map(|link| target(link).map(|path| (link.to_owned(), path))) {
        return Some(found);
    }
    if let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) {
        for number in descriptors.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            if let Some(path) = target(&format!("fd/{number}")) {
                return Some((format!("fd {number}"), path));
            }
        }
    }
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        let path = Path::new(OsStr::from_bytes(line.get(line.iter().position(|byte| *byte == b'/')?..)?));
        path.starts_with(below).then(|| ("maps".to_owned(), path.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio, id};

    #[test]
    fn an_open_file_and_a_working_directory_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        assert_eq!(holders(&path), []);
        let file = fs::File::create(path.join("f")).unwrap();
        let mut child = Command::new("sleep").arg("1000").current_dir(&path).stdin(Stdio::null()).spawn().unwrap();
        let found = holders(&path);
        child.kill().unwrap();
        child.wait().unwrap();
        let of = |pid| found.iter().find(|holder| holder.pid == pid).unwrap_or_else(|| panic!("{pid} in {found:?}"));
        assert!(of(id()).how.starts_with("fd "), "{found:?}");
        assert_eq!(of(id()).path, path.join("f"));
        assert_eq!((of(child.id()).how.as_str(), &of(child.id()).path), ("cwd", &path));
        drop(file);
    }

    #[test]
    fn a_neighbour_with_a_longer_name_is_not_below() {
        let folder = tempfile::tempdir().unwrap();
        let (inner, longer) = (folder.path().join("m"), folder.path().join("mm"));
        let _file = fs::File::create(&longer).unwrap();
        assert_eq!(holders(&inner), []);
    }
}
