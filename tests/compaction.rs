//! Compaction from the outside: what the command says and refuses, that readers keep what they have, and that keys stay what they are.
//!
//! The rules themselves are tested beside them and against Kafka's own cleaner (`tests/kafka`); crashes are in `tests/crash`.

mod common;

use common::encode::{Batch, Record, indexes};
use common::partition::PartitionDir;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::io::sim::SimDisk;
use offsetfs::log::config::{CleanupPolicy, LogConfig};
use offsetfs::source::access::Wish;
use offsetfs::source::keys::Keys;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Latest, Maintenance, Source};
use offsetfs::types::Patience::MayBlock;
use offsetfs::types::TimestampMs;
use offsetfs::view::View;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

/// 2023-11-14T22:13:20Z, in ms: years ago.
const T0: i64 = 1_700_000_000_000;
const COMPACT: &str = "cleanup.policy=compact";

fn record(delta: i32, key: Option<&str>, value: Option<&str>) -> Record {
    Record::new(delta, T0 + i64::from(delta), key.map(str::as_bytes), value.map(str::as_bytes))
}

/// A segment's name without suffix, and its batches.
type Plan = Vec<(i64, Vec<Batch>)>;

/// Three segments: `a` set twice, `b` set and deleted, `c` set once, a record without a key; and the active one.
fn three_segments() -> Plan {
    let (a, b, c) = (Some("a"), Some("b"), Some("c"));
    vec![
        (0, vec![Batch::new(0, vec![record(0, a, Some("1")), record(1, b, Some("1")), record(2, None, Some("x"))])]),
        (3, vec![Batch::new(3, vec![record(0, a, Some("2")), record(1, b, None), record(2, c, Some("1"))])]),
        (6, vec![Batch::new(6, vec![record(0, Some("d"), Some("1"))])]),
    ]
}

fn files_of(plan: &Plan) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("leader-epoch-checkpoint".to_owned(), b"0\n1\n0 0\n".to_vec())];
    for (base, batches) in plan {
        let log: Vec<u8> = batches.iter().flat_map(Batch::encode).collect();
        let (index, timeindex) = indexes(*base, &log, 4096);
        for (suffix, bytes) in [("log", log), ("index", index), ("timeindex", timeindex)] {
            files.push((format!("{base:020}.{suffix}"), bytes));
        }
    }
    files
}

fn on_disk(plan: &Plan) -> PartitionDir {
    let dir = PartitionDir::new("demo-0");
    files_of(plan).iter().for_each(|(name, bytes)| dir.file(name, bytes));
    dir
}

fn open(fs: Arc<dyn FileSystem>, path: &Path, config: LogConfig) -> Local {
    Local::open(&fs, path, Options { wish: Wish::Writable, create: false, config }).expect("the log can be opened")
}

fn compacting() -> LogConfig {
    LogConfig { cleanup_policy: CleanupPolicy { delete: false, compact: true }, ..LogConfig::default() }
}

fn offsetfs(arguments: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_offsetfs")).args(arguments).arg(dir).output().expect("offsetfs can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code and standard output; standard error where that is empty.
fn said(arguments: &[&str], dir: &Path) -> (i32, String) {
    let output = offsetfs(arguments, dir);
    let printed = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    (output.status.code().expect("it was not killed"), text(printed))
}

fn bytes_in(dir: &PartitionDir) -> Vec<(String, Vec<u8>)> {
    dir.names()
        .into_iter()
        .map(|name| (fs::read(dir.path().join(&name)).expect("a file"), name))
        .map(|(bytes, name)| (name, bytes))
        .collect()
}

#[test]
fn the_command_says_what_goes_and_why_and_does_it_when_it_is_meant() {
    let dir = on_disk(&three_segments());
    let before = bytes_in(&dir);
    let size: usize = before.iter().filter(|(name, _)| name.ends_with(".log") && !name.contains("06.")).map(|(_, bytes)| bytes.len()).sum();
    let (code, dry) = said(&["compact", "--dry-run", "-o", COMPACT], dir.path());
    let lines: Vec<&str> = dry.lines().collect();
    assert_eq!((code, lines.len()), (0, 3), "{dry}");
    assert_eq!(
        lines[..2],
        [
            "demo-0: would be compacted up to offset 6: 100% of the log were not compacted yet (min.cleanable.dirty.ratio=0.5)",
            "demo-0: 3 records stay, 3 would go: 2 outdated by a later one of the same key, 1 without a key",
        ]
    );
    assert!(lines[2].starts_with(&format!("demo-0: 2 segments of {size} bytes would become 1 of ")), "{dry}");
    assert_eq!(bytes_in(&dir), before, "a dry run touches nothing");

    let (code, done) = said(&["compact", "-o", COMPACT], dir.path());
    let expected = dry.replace("would be compacted", "compacted").replace("would go", "went").replace("would become", "became");
    assert_eq!((code, done), (0, expected));
    let names = [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000006.index",
        "00000000000000000006.log",
        "00000000000000000006.timeindex",
        "cleaner-offset-checkpoint",
        "leader-epoch-checkpoint",
    ];
    assert_eq!(dir.names(), names);
    assert_eq!(fs::read_to_string(dir.path().join("cleaner-offset-checkpoint")).expect("a checkpoint"), "0\n1\ndemo 0 6\n");
    let read = Command::new(env!("CARGO_BIN_EXE_offsetfs")).arg("cat").arg(dir.path()).arg("by-offset/earliest..latest.jsonl").output();
    let read = text(&read.expect("offsetfs can be started").stdout);
    let shown: Vec<&str> = read.lines().filter_map(|line| line.split("\"offset\":").nth(1)?.split(',').next()).collect();
    assert_eq!(shown, ["3", "4", "5", "6"]);

    let (code, again) = said(&["compact", "-o", COMPACT], dir.path());
    assert_eq!((code, &*again), (0, "demo-0: nothing to compact: all that was not compacted yet is in the active segment\n"));
    let (code, found) = said(&["check"], dir.path());
    assert!(code == 0 && !found.contains("finding:"), "{found}");
    assert!(!found.contains("cleaner-offset-checkpoint"), "our own file is nothing strange: {found}");
    dir.file("cleaner-offset-checkpoint", b"0\n2\ndemo 0 6\n");
    let (code, found) = said(&["check"], dir.path());
    assert!(code == 1 && found.contains("cleaner-offset-checkpoint") && found.contains("remove the file"), "{found}");
    let (code, why) = said(&["compact", "-o", COMPACT], dir.path());
    assert!(code == 3 && why.contains("cleaner-offset-checkpoint"), "{code} {why}");
}

#[test]
fn what_is_not_to_be_compacted_is_refused_and_stays_as_it_is() {
    let dir = on_disk(&three_segments());
    let before = bytes_in(&dir);
    for dry in [&["compact"][..], &["compact", "--dry-run"]] {
        let (code, why) = said(dry, dir.path());
        assert!(code == 1 && why.contains("cleanup.policy=compact") && why.contains("every record without a key goes"), "{code} {why}");
    }
    let not_yet = "demo-0: nothing to compact: 100% of the log were not compacted yet, and min.cleanable.dirty.ratio=1 asks for more; a smaller one compacts it\n";
    for dry in [&["compact"][..], &["compact", "--dry-run"]] {
        let asked = [dry, &["-o", "cleanup.policy=compact,min.cleanable.dirty.ratio=1"]].concat();
        assert_eq!(said(&asked, dir.path()), (0, not_yet.to_owned()));
    }
    assert_eq!(said(&["compact", "-o", "cleanup.policy=shrink"], dir.path()).0, 2);
    assert_eq!(said(&["compact", "-o", COMPACT], &dir.parent().join("nowhere-0")).0, 2);

    let local = open(Arc::new(OsFileSystem), dir.path(), compacting());
    let (code, why) = said(&["compact", "-o", COMPACT], dir.path());
    assert!(code == 1 && why.contains("is in use"), "{code} {why}");
    assert_eq!(said(&["compact", "--dry-run", "-o", COMPACT], dir.path()).0, 0, "measuring takes no lock");
    local.close().expect("a clean close");
    drop(local);

    fs::write(dir.parent().join("meta.properties"), "version=1\n").expect("a broker's file");
    let (code, why) = said(&["compact", "-o", COMPACT], dir.path());
    assert!(code == 1 && why.contains("--take-over"), "{code} {why}");
    fs::remove_file(dir.parent().join("meta.properties")).expect("the file");
    assert_eq!(bytes_in(&dir), before);

    let mut log = fs::read(dir.path().join("00000000000000000003.log")).expect("a log");
    log[70] ^= 1;
    dir.file("00000000000000000003.log", &log);
    let before = bytes_in(&dir);
    let (code, why) = said(&["compact", "-o", COMPACT], dir.path());
    assert!(code == 3 && why.contains("00000000000000000003.log"), "{code} {why}");
    assert_eq!(bytes_in(&dir), before, "a log with damage is not compacted");
}

#[test]
fn a_mount_compacts_when_it_is_told_to_and_only_then() {
    for maintenance in [false, true] {
        let disk = SimDisk::new();
        disk.clock().set(TimestampMs::new(T0));
        files_of(&three_segments()).iter().for_each(|(name, bytes)| disk.write_file(format!("/demo-0/{name}"), bytes));
        let before = disk.list("/demo-0");
        let local = open(disk.filesystem(), Path::new("/demo-0"), LogConfig { maintenance, ..compacting() });
        let upkeep = local.upkeep().expect("it is writable");
        for _ in 0..10 {
            disk.clock().advance(20_000);
            upkeep.look();
        }
        let merged = !disk.list("/demo-0").iter().any(|name| name.starts_with("00000000000000000003"));
        assert_eq!(merged, maintenance, "{:?}", disk.list("/demo-0"));
        assert!(maintenance || disk.list("/demo-0") == before);
        assert_eq!(local.take_events(), Vec::<String>::new());
        local.close().expect("a clean close");
    }
}

#[test]
fn readers_keep_what_they_have_and_new_ones_find_the_same_records() {
    let dir = on_disk(&three_segments());
    let local = Arc::new(open(Arc::new(OsFileSystem), dir.path(), compacting()));
    let view = View::new(local.clone(), offsetfs::view::Options::default());
    let open = |path: &str| view.open(&view.resolve(path.as_bytes(), MayBlock).expect(path), MayBlock).expect(path);
    let read = |reader: &offsetfs::view::Reader| {
        let mut piece = vec![0; 4096];
        let n = reader.read(0, &mut piece, MayBlock).expect("bytes");
        text(&piece[..n])
    };
    let range = open("by-offset/0..6");
    let real = view.file("00000000000000000003.log".as_ref()).expect("a file of the source");
    let stored = fs::read(dir.path().join("00000000000000000003.log")).expect("a log");
    let said = view.control(b"compact\n");
    assert!(said.is_ok(), "{said:?}");
    assert_eq!(read(&range), "1\n1\nx\n2\n\n1\n", "a range that was not read yet");
    assert_eq!(offsetfs::io::read_up_to(&*real, 0, 4096).expect("the bytes"), stored);
    assert!(view.resolve(b"by-offset/2", MayBlock).is_err(), "a new look finds nothing");
    assert_eq!(read(&open("by-offset/earliest..latest")), "2\n\n1\n1\n");
    local.close().expect("a clean close");
    assert!(dir.names().iter().all(|name| !name.ends_with(".deleted")), "closing does not leave them behind: {:?}", dir.names());
}

/// The live keys, and what `latest` says of one.
fn keys_of(local: &Local, asked: &str) -> (Vec<String>, Option<String>) {
    let mut live = Vec::new();
    let mut sink = |key: &[u8], _: &offsetfs::source::Record, _: u64| {
        live.push(text(key));
        true
    };
    local.live(0, MayBlock, &mut sink).expect("a listing");
    live.sort();
    let latest = match local.latest(asked.as_bytes(), MayBlock).expect("an answer") {
        Latest::Live(record) => record.value().map(text),
        Latest::Deleted(_) | Latest::Never => None,
    };
    (live, latest)
}

#[test]
fn a_live_index_of_keys_follows_a_compaction() {
    let mut plan = three_segments();
    let in_transaction = |offset, records| Batch {
        attributes: Batch::TRANSACTIONAL,
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: 0,
        ..Batch::new(offset, records)
    };
    // An aborted transaction sets `a` and deletes `c`: for readers of all records that is how they stand until it is gone.
    let aborted = in_transaction(6, vec![record(0, Some("a"), Some("aborted")), record(1, Some("c"), None)]);
    let end = Batch::end_of_transaction(8, 7, 0, T0, false);
    plan.truncate(2);
    plan.push((6, vec![aborted, end]));
    plan.push((9, vec![Batch::new(9, vec![record(0, Some("d"), Some("1"))])]));
    let disk = SimDisk::new();
    disk.clock().set(TimestampMs::new(T0));
    files_of(&plan).iter().for_each(|(name, bytes)| disk.write_file(format!("/demo-0/{name}"), bytes));
    let local = open(disk.filesystem(), Path::new("/demo-0"), compacting());
    assert_eq!(keys_of(&local, "a"), (vec!["a".to_owned(), "d".to_owned()], Some("aborted".to_owned())));
    let done = local.compact(&mut |_, _| {}).expect("a compaction");
    assert_eq!((done.gone.aborted, done.gone.outdated, done.gone.keyless), (2, 2, 1));
    let all = vec!["a".to_owned(), "c".to_owned(), "d".to_owned()];
    assert_eq!(keys_of(&local, "c"), (all.clone(), Some("1".to_owned())), "what stood before the aborted records is the last again");
    assert_eq!(keys_of(&local, "a").1, Some("2".to_owned()));
    // The tombstone of b goes, once its time has come, and b stays deleted.
    assert_eq!(keys_of(&local, "b").1, None);
    disk.clock().advance(2 * 24 * 60 * 60 * 1000);
    local.roll().expect("a roll");
    let done = local.compact(&mut |_, _| {}).expect("a compaction");
    assert_eq!((done.compacted_to.map(|o| o.get()), done.gone.tombstones), (None, 0), "{done:?}");
    local.close().expect("a clean close");
    drop(local);
    let local = open(disk.filesystem(), Path::new("/demo-0"), LogConfig { min_cleanable_dirty_ratio: 0.0, ..compacting() });
    assert_eq!(keys_of(&local, "b"), (all.clone(), None));
    let done = local.compact(&mut |_, _| {}).expect("a compaction");
    assert_eq!(done.gone.tombstones, 1, "{done:?}");
    assert_eq!(keys_of(&local, "b"), (all, None));
    local.close().expect("a clean close");
}

/// Beside a `.cleaned` of lower offsets recovery takes an exchange that was struck for one that had not begun.
#[test]
fn what_a_failed_compaction_left_behind_is_gone_before_the_next() {
    let disk = SimDisk::new();
    disk.clock().set(TimestampMs::new(T0 + 1000));
    files_of(&three_segments()).iter().for_each(|(name, bytes)| disk.write_file(format!("/demo-0/{name}"), bytes));
    let local = open(disk.filesystem(), Path::new("/demo-0"), compacting());
    // Made ready for writing: what lay there before would be removed by that.
    local.roll().expect("a roll");
    disk.write_file("/demo-0/00000000000000000000.txnindex.cleaned", b"left");
    local.compact(&mut |_, _| {}).expect("a compaction").compacted_to.expect("it was due");
    assert_eq!(disk.list("/demo-0").iter().filter(|name| name.ends_with(".cleaned")).count(), 0);
    local.close().expect("a clean close");
}
