//! Folders for the many small directories that are judged.

use std::fs;
use std::path::Path;

/// A temporary folder, in memory where the system has such a place: Kafka syncs each file that it writes.
///
/// # Panics
/// Where none can be made.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

/// Copies the files of a flat folder with their times.
///
/// # Panics
/// Where that cannot be done.
pub(crate) fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a new folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        fs::copy(entry.path(), &target).expect("a copy");
        let modified = entry.metadata().and_then(|metadata| metadata.modified()).expect("a file has a time");
        fs::File::options().write(true).open(target).and_then(|file| file.set_modified(modified)).expect("the copy's time");
    }
}

/// The names in a folder that end with one of these, sorted, each with its bytes.
///
/// # Panics
/// Where the folder cannot be read.
pub(crate) fn files(folder: &Path, suffixes: &[&str]) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| (entry.file_name().into_string().expect("a plain name"), entry.path()))
        .filter(|(name, _)| suffixes.iter().any(|suffix| name.ends_with(suffix)))
        .map(|(name, path)| (name, fs::read(path).expect("a file")))
        .collect();
    files.sort();
    files
}
