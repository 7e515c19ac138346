//! Partition directories built by a test, file by file.

use std::fs;
use std::path::{Path, PathBuf};

/// A directory `<topic>-<n>` in a temporary folder of its own, which goes with it.
#[derive(Debug)]
pub(crate) struct PartitionDir {
    parent: tempfile::TempDir,
    path: PathBuf,
}

impl PartitionDir {
    /// An empty one.
    pub(crate) fn new(name: &str) -> PartitionDir {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let path = parent.path().join(name);
        fs::create_dir(&path).expect("a new folder");
        PartitionDir { parent, path }
    }

    /// A copy of a directory under the same name, with the times of its files; holes may become zeros.
    pub(crate) fn copy_of(source: &Path) -> PartitionDir {
        let name = source.file_name().and_then(|name| name.to_str()).expect("a partition directory has a plain name");
        let copy = PartitionDir::new(name);
        for entry in fs::read_dir(source).expect("the source can be listed") {
            let entry = entry.expect("the source can be listed");
            let target = copy.path.join(entry.file_name());
            fs::copy(entry.path(), &target).expect("the file can be copied");
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).expect("a file has a time");
            let target = fs::File::options().write(true).open(target).expect("the copy can be opened");
            target.set_modified(modified).expect("the copy can be given its time");
        }
        copy
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder around it, where a data directory's checkpoints would stand.
    pub(crate) fn parent(&self) -> &Path {
        self.parent.path()
    }

    /// Writes the three files of a segment.
    pub(crate) fn segment(&self, base_offset: i64, log: &[u8], index: &[u8], timeindex: &[u8]) {
        for (suffix, bytes) in [("log", log), ("index", index), ("timeindex", timeindex)] {
            self.file(&format!("{base_offset:020}.{suffix}"), bytes);
        }
    }

    /// Writes any other file.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path.join(name), bytes).expect("the file can be written");
    }

    /// The names in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).expect("the directory can be listed");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name")).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_three_files_and_a_copy_has_them_too() {
        let built = PartitionDir::new("a-b-7");
        built.segment(42, b"log", b"index", b"timeindex");
        built.file("leader-epoch-checkpoint", b"0\n0\n");
        let copy = PartitionDir::copy_of(built.path());
        assert_eq!(
            copy.names(),
            ["00000000000000000042.index", "00000000000000000042.log", "00000000000000000042.timeindex", "leader-epoch-checkpoint"]
        );
        assert_eq!(copy.path(), copy.parent().join("a-b-7"));
        let log = "00000000000000000042.log";
        assert_eq!(fs::read(copy.path().join(log)).expect("the copy"), b"log");
        let time_of = |folder: &Path| fs::metadata(folder.join(log)).and_then(|metadata| metadata.modified()).expect("a time");
        assert_eq!(time_of(copy.path()), time_of(built.path()));
    }
}
