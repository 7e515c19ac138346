//! The numbered promises of the README's section "Semantics", each as one test. The tests that only root can run are in `tests/load.rs`.
//!
//! These tests mount, so they need `/dev/fuse` (and for a user who is not root fusermount3), and fail where there is none.

#[path = "semantics/appending.rs"]
mod appending;
mod common;
#[path = "semantics/keys.rs"]
mod keys;
#[path = "semantics/lasting.rs"]
mod lasting;
#[path = "common/mounted.rs"]
mod mounted;
#[path = "semantics/reading.rs"]
mod reading;
#[path = "semantics/remembering.rs"]
mod remembering;

use mounted::Mounted;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// 2023-11-14T22:13:20Z, in ms.
const T0: i64 = 1_700_000_000_000;
const LOG: &str = "00000000000000000000.log";

/// A mount of a new partition.
fn fresh(options: &str) -> (tempfile::TempDir, Mounted) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mounted = Mounted::new(&folder.path().join("demo-0"), &["--create", "-o", options]);
    (folder, mounted)
}

/// The error number of a call that must fail; 0 where it does not.
fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1))
}

/// Waits until something holds. The promises name shorter times; a busy machine gets more.
fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_promise_has_its_test() {
    let readme = include_str!("../README.md");
    let sources = [
        include_str!("semantics/appending.rs"),
        include_str!("semantics/reading.rs"),
        include_str!("semantics/remembering.rs"),
        include_str!("semantics/lasting.rs"),
        include_str!("semantics/keys.rs"),
        include_str!("load.rs"),
    ];
    let promised: Vec<&str> = readme.lines().filter_map(|line| line.strip_prefix("- **P")?.split_once("** ").map(|(n, _)| n)).collect();
    let expected: Vec<String> = (1..=46).map(|n| n.to_string()).collect();
    assert_eq!(promised, expected, "the numbers of the README");
    for number in promised {
        let tests = sources.iter().map(|source| source.matches(&format!("\nfn p{number}_")).count()).sum::<usize>();
        assert_eq!(tests, 1, "tests of P{number}");
    }
}
