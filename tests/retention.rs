//! Retention from the outside: what goes and why, that nothing goes unasked, and that who has a file open keeps it.
//!
//! The rules themselves are tested beside them; here they meet commands, mounts without a kernel, and a clock that tests set.

mod common;

use common::encode::{Batch, indexes};
use common::partition::PartitionDir;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::io::sim::SimDisk;
use offsetfs::log::config::{CleanupPolicy, LogConfig};
use offsetfs::source::access::Wish;
use offsetfs::source::data_dir::DataDir;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Found, Maintenance, Source};
use offsetfs::types::Patience::MayBlock;
use offsetfs::types::{Offset, TimestampMs};
use offsetfs::view::View;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

/// 2023-11-14T22:13:20Z, in ms: years ago.
const T0: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 60 * 60 * 1000;

/// The files of a log of four segments of five records each: names and bytes.
fn four_segments() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("leader-epoch-checkpoint".to_owned(), b"0\n1\n0 0\n".to_vec())];
    for base in [0, 5, 10, 15] {
        let log = Batch::plain(base, 5, T0 + base * 1000).encode();
        let (index, timeindex) = indexes(base, &log, 4096);
        for (suffix, bytes) in [("log", log), ("index", index), ("timeindex", timeindex)] {
            files.push((format!("{base:020}.{suffix}"), bytes));
        }
    }
    files
}

fn on_disk() -> PartitionDir {
    let dir = PartitionDir::new("demo-0");
    four_segments().iter().for_each(|(name, bytes)| dir.file(name, bytes));
    dir
}

fn simulated(path: &str) -> SimDisk {
    let disk = SimDisk::new();
    four_segments().iter().for_each(|(name, bytes)| disk.write_file(format!("{path}/{name}"), bytes));
    disk
}

fn open(fs: Arc<dyn FileSystem>, path: &Path, config: LogConfig) -> Local {
    Local::open(&fs, path, Options { wish: Wish::Writable, create: false, config }).expect("the log can be opened")
}

fn logs(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| name.ends_with(".log")).collect()
}

fn offsetfs(arguments: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_offsetfs")).args(arguments).arg(dir).output().expect("offsetfs can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_command_says_what_goes_and_why_and_does_it_when_it_is_meant() {
    let dir = on_disk();
    let before = dir.names();
    let bytes = |base: i64| fs::metadata(dir.path().join(format!("{base:020}.log"))).expect("a log").len();
    let sizes = [0, 5, 10, 15].map(bytes);
    let kept = sizes[2] + sizes[3];
    let size = format!("retention.ms=-1,retention.bytes={kept}");
    let said = offsetfs(&["retain", "--dry-run", "-o", &size], dir.path());
    let all = |verb: &str| {
        let why = [0, 1].map(|n: usize| {
            let (base, left) = (5 * n, sizes[n..].iter().sum::<u64>());
            let why = format!("from it on the log has {left} bytes, and retention.bytes={kept} are left without it");
            format!("demo-0: {verb} {base:020}.log (offsets {base} to below {}, {} bytes): {why}\n", base + 5, sizes[n])
        });
        format!("{}demo-0: {verb} {} bytes; offsets begin at 10\n", why.concat(), sizes[0] + sizes[1])
    };
    assert_eq!((said.status.code(), text(&said.stdout)), (Some(0), all("would remove")), "{}", text(&said.stderr));
    assert_eq!(dir.names(), before, "a dry run touches nothing");
    let said = offsetfs(&["retain", "-o", &size], dir.path());
    assert_eq!((said.status.code(), text(&said.stdout)), (Some(0), all("removed")), "{}", text(&said.stderr));
    assert_eq!(
        dir.names(),
        [
            "00000000000000000010.index",
            "00000000000000000010.log",
            "00000000000000000010.timeindex",
            "00000000000000000015.index",
            "00000000000000000015.log",
            "00000000000000000015.timeindex",
            "leader-epoch-checkpoint",
            "log-start-offset-checkpoint"
        ]
    );
    assert_eq!(fs::read_to_string(dir.path().join("leader-epoch-checkpoint")).expect("epochs"), "0\n1\n0 10\n");
    let said = offsetfs(&["retain", "-o", &size], dir.path());
    assert_eq!(text(&said.stdout), "demo-0: nothing to remove\n");
    let said = offsetfs(&["check"], dir.path());
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stdout));
}

#[test]
fn by_age_all_of_it_goes_and_the_next_record_goes_on() {
    let dir = on_disk();
    let said = offsetfs(&["retain"], dir.path());
    assert_eq!(text(&said.stdout).matches("is longer ago than retention.ms=604800000").count(), 4, "{}", text(&said.stdout));
    assert_eq!(logs(dir.names()), ["00000000000000000020.log"], "an empty one was begun before");
    let mut child = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    let said = child.args(["append"]).arg(dir.path()).stdin(std::process::Stdio::null()).output().expect("offsetfs can be started");
    assert!(said.status.success());
    let local = open(Arc::new(OsFileSystem), dir.path(), LogConfig::default());
    assert_eq!((local.bounds(MayBlock).expect("bounds").log_start.get(), local.bounds(MayBlock).expect("bounds").log_end.get()), (20, 20));
}

/// A week's old backup, opened for writing, for an hour: whatever the settings say, it stays unless it was said that it need not.
#[test]
fn a_log_that_nobody_told_to_is_never_emptied() {
    for policy in [CleanupPolicy { delete: true, compact: false }, CleanupPolicy { delete: true, compact: true }] {
        for maintenance in [false, true] {
            let disk = simulated("/demo-0");
            disk.clock().set(TimestampMs::new(T0 + 365 * 24 * HOUR_MS));
            let config = LogConfig { maintenance, cleanup_policy: policy, ..LogConfig::default() };
            let local = open(disk.filesystem(), Path::new("/demo-0"), config);
            let status = local.status(MayBlock).expect("a status");
            let outlook = status.retention.expect("it would take all");
            assert_eq!((outlook.segments, outlook.log_start.get(), outlook.automatic), (4, 20, maintenance));
            let before = disk.list("/demo-0");
            for _ in 0..60 {
                disk.clock().advance(60_000);
                local.upkeep().expect("it is writable").look();
            }
            if !maintenance {
                assert_eq!(disk.list("/demo-0"), before);
                assert_eq!(local.bounds(MayBlock).expect("bounds").log_start.get(), 0);
            } else {
                assert_eq!(logs(disk.list("/demo-0")), ["00000000000000000020.log"]);
                assert!(disk.list("/demo-0").iter().all(|name| !name.ends_with(".deleted")), "{:?}", disk.list("/demo-0"));
                assert_eq!(local.bounds(MayBlock).expect("bounds").log_start.get(), 20);
            }
            local.close().expect("a clean close");
        }
    }
}

#[test]
fn maintenance_of_a_data_directory_reaches_partitions_that_nobody_looks_at() {
    for (given, of_the_topic, left) in [(false, false, 4), (true, false, 1), (false, true, 1)] {
        let disk = simulated("/data/demo-0");
        if of_the_topic {
            disk.write_file("/data/demo-0/topic.properties", b"maintenance=on\n");
        }
        let filesystem = disk.filesystem();
        disk.clock().set(TimestampMs::new(T0 + 365 * 24 * HOUR_MS));
        let data =
            DataDir::open(&filesystem, Path::new("/data"), Wish::Writable, LogConfig { maintenance: given, ..LogConfig::default() }.into())
                .expect("a data directory");
        disk.clock().advance(HOUR_MS);
        assert_eq!(data.open_partitions().len(), usize::from(given || of_the_topic));
        data.open_partitions().iter().for_each(|local| local.upkeep().expect("it is writable").look());
        assert_eq!(logs(disk.list("/data/demo-0")).len(), left);
        data.close().expect("a clean close");
    }
}

#[test]
fn files_wait_for_their_delay_and_a_clock_that_jumps_harms_nothing() {
    let disk = simulated("/demo-0");
    let config = LogConfig { maintenance: true, retention_ms: HOUR_MS, ..LogConfig::default() };
    disk.clock().set(TimestampMs::new(T0));
    let local = open(disk.filesystem(), Path::new("/demo-0"), config);
    let upkeep = local.upkeep().expect("it is writable");
    let deleted = || disk.list("/demo-0").iter().filter(|name| name.ends_with(".log.deleted")).count();
    upkeep.look();
    disk.clock().advance(-10 * HOUR_MS);
    upkeep.look();
    assert_eq!(logs(disk.list("/demo-0")).len(), 4, "a clock that was set back makes nothing old");
    // The first record that is over an hour old when this is looked at next is the third segment's newest.
    disk.clock().set(TimestampMs::new(T0 + HOUR_MS + 14_500));
    upkeep.look();
    assert_eq!((logs(disk.list("/demo-0")).len(), deleted()), (1, 3), "the interval is not put off by the jump");
    disk.clock().advance(59_999);
    upkeep.look();
    assert_eq!(deleted(), 3);
    disk.clock().advance(1);
    upkeep.look();
    assert_eq!(deleted(), 0);
    assert!(local.take_events().is_empty());
    local.close().expect("a clean close");
}

#[test]
fn who_has_it_open_keeps_the_bytes() {
    let dir = on_disk();
    let config = LogConfig { retention_ms: -1, retention_bytes: 1, ..LogConfig::default() };
    let local = Arc::new(open(Arc::new(OsFileSystem), dir.path(), config));
    let view = View::new(local.clone(), offsetfs::view::Options::default());
    let read = |reader: &offsetfs::view::Reader| {
        let mut piece = vec![0; 4096];
        let n = reader.read(0, &mut piece, MayBlock).expect("bytes");
        text(&piece[..n])
    };
    let open = |path: &str| view.open(&view.resolve(path.as_bytes(), MayBlock).expect(path), MayBlock).expect(path);
    let range = open("by-offset/0..10");
    let real = view.file("00000000000000000005.log".as_ref()).expect("a file of the source");
    view.control(b"retain\n").expect("a command");
    assert_eq!(local.bounds(MayBlock).expect("bounds").log_start.get(), 15);
    assert_eq!(read(&range), (0..10).map(|n| format!("v{n}\n")).collect::<String>(), "a range that was not read yet");
    assert_eq!(offsetfs::io::read_up_to(&*real, 0, 4096).expect("the bytes"), Batch::plain(5, 5, T0 + 5000).encode());
    assert!(view.resolve(b"by-offset/1", MayBlock).is_err(), "a new look finds nothing");
    let gone = Offset::new(1).expect("an offset");
    assert!(matches!(local.record(gone, MayBlock), Ok(Found::Absent(_))));
    let status = local.status(MayBlock).expect("a status");
    assert_eq!((status.retention, status.log_start_offset, status.segments), (None, 15, 1));
    assert!(dir.names().iter().any(|name| name.ends_with(".deleted")));
    local.close().expect("a clean close");
    assert_eq!(logs(dir.names()), ["00000000000000000015.log"]);
    assert!(dir.names().iter().all(|name| !name.ends_with(".deleted")), "closing does not leave them behind");
}

#[test]
fn what_lies_below_the_log_start_goes_whatever_the_policy() {
    let dir = on_disk();
    let config = LogConfig { cleanup_policy: CleanupPolicy { delete: false, compact: true }, retention_bytes: 0, ..LogConfig::default() };
    let local = open(Arc::new(OsFileSystem), dir.path(), config);
    assert_eq!(local.retain().expect("nothing to do").removals, []);
    assert!(!dir.path().join("log-start-offset-checkpoint").exists(), "nothing is touched where nothing goes");
    local.delete_before(Offset::new(12).expect("an offset")).expect("a command");
    assert_eq!(local.retain().expect("two segments").removals.len(), 2);
    assert_eq!(local.bounds(MayBlock).expect("bounds").log_start.get(), 12);
    local.close().expect("a clean close");
}
