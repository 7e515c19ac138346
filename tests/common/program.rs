//! The built program where other users can reach it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A copy of the program in a folder, which every user may then enter.
pub(crate) fn program(folder: &Path) -> PathBuf {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("a mode");
    let path = folder.join("offsetfs");
    fs::copy(env!("CARGO_BIN_EXE_offsetfs"), &path).expect("the program can be copied");
    path
}
