//! The mount as a user sees it: what is appended and read, what is refused and in which words, how a mount begins and ends.
//!
//! These tests mount, so they need `/dev/fuse` (and for a user who is not root fusermount3), and fail where there is none.

#[path = "mount/bad_input.rs"]
mod bad_input;
#[path = "mount/beginning.rs"]
mod beginning;
mod common;
#[path = "mount/ending.rs"]
mod ending;
#[path = "common/mounted.rs"]
mod mounted;
#[path = "mount/reading.rs"]
mod reading;
#[path = "mount/refusals.rs"]
mod refusals;
#[path = "mount/writing.rs"]
mod writing;

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output, Stdio};

/// Runs the program to its end.
fn offsetfs<A: AsRef<OsStr>>(arguments: &[A]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    command.args(arguments).stdin(Stdio::null()).output().expect("offsetfs can be started")
}

/// What a process said on its standard error.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The error number of a call that must fail.
fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(-1),
    }
}
