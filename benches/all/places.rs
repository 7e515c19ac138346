//! Where the benches put their logs, and how these are made.

use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::LogConfig;
use offsetfs::log::prepare::prepare;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Found, NewRecord, Source};
use offsetfs::types::{Offset, Patience, TimestampMs};
use offsetfs::view::{self, View, time::Zone};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The time of the first record, in milliseconds.
pub(crate) const BASE_MS: i64 = 1_700_000_000_000;
/// The name of the first segment.
pub(crate) const LOG: &str = "00000000000000000000.log";

/// A folder that goes at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let folder = std::env::temp_dir().join(format!("offsetfs-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Scratch(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

pub(crate) fn local(source: &Path, config: &LogConfig, wish: Wish) -> Local {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    Local::open(&fs, source, Options { wish, create: wish == Wish::Writable, config: config.clone() }).expect("a partition")
}

pub(crate) fn view(source: &Path, wish: Wish) -> View {
    let local = local(source, &LogConfig::default(), wish);
    View::new(Arc::new(local), view::Options { zone: Zone::utc(), ..view::Options::default() })
}

/// Appends records of these values, in turn, a millisecond apart from `from` on; as many as `count`.
pub(crate) fn append(log: &Local, values: &[Vec<u8>], from: i64, count: usize) {
    let mut records = values.iter().cycle().take(count).enumerate().map(|(i, value)| NewRecord {
        timestamp: TimestampMs::new(BASE_MS + from + i as i64),
        key: None,
        value: Some(value),
        headers: &[],
    });
    let prepared = prepare(log.partition().config(), TimestampMs::new(BASE_MS), &mut records).expect("prepared");
    log.committer().expect("writable").append_and_wait(prepared, false).expect("appended");
}

pub(crate) fn offset(n: u64) -> Offset {
    i64::try_from(n).ok().and_then(Offset::new).expect("an offset")
}

/// The length of the value at an offset.
pub(crate) fn value_of(log: &Local, n: u64) -> usize {
    match log.record(offset(n), Patience::MayBlock) {
        Ok(Found::Record(record)) => record.value().map_or(0, <[u8]>::len),
        other => panic!("{n}: {other:?}"),
    }
}

/// Builds a crate that the benches have beside them, in a target folder of that name; gives the folder of its programs.
pub(crate) fn built(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("target").join(name);
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "--quiet", "--manifest-path"]).arg(root.join("benches").join(name).join("Cargo.toml"));
    assert!(build.env("CARGO_TARGET_DIR", &target).status().expect("cargo").success(), "{build:?}");
    target.join("release")
}

/// Numbers in no order.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Letters in no order, the same in each run.
pub(crate) fn letters(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let letter = |n: u64| b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[n as usize & 63];
    (0..count).map(|_| (0..bytes).map(|_| letter(random.next())).collect()).collect()
}
