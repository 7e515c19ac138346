//! Entries of the source that are no files of it: links, pipes, devices, directories, second names of other files, and names that change while
//! they are looked at.

use crate::mounted::Mounted;
use crate::watch::Watch;
use crate::{PartitionDir, batch, contains, demo, offsetfs, read_everything, said};
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::LogConfig;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Found, Source};
use offsetfs::types::{Offset, Patience};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev, mknodat, renameat_with};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// What must never be seen.
const SECRET: &str = "secret-of-somebody-else";

/// Every kind of name that the program itself would open or make.
const NAMES: [&str; 12] = [
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000003.log",
    "00000000000000000003.index",
    "00000000000000000003.timeindex",
    "00000000000000000003.snapshot",
    "00000000000000000000.index.tmp",
    "00000000000000000000.timeindex.tmp",
    "leader-epoch-checkpoint",
    "leader-epoch-checkpoint.tmp",
    "partition.metadata",
];

/// A source with a good segment, in which `plant` puts something at each of the names.
fn planted(plant: impl Fn(&Path)) -> PartitionDir {
    let dir = PartitionDir::new("demo-0");
    dir.file("00000000000000000000.log", &batch(0, &["a", "b", "c"]));
    for name in NAMES {
        plant(&dir.path().join(name));
    }
    dir
}

/// Tries everything that reads and everything that writes. Each either works or is refused in words, and at once; nothing of what is watched is opened.
fn try_all(source: &PartitionDir, watch: &Watch) {
    let mut read = Vec::new();
    for options in ["ro", "rw"] {
        let m = Mounted::new(source.path(), &["-o", options]);
        assert_eq!(m.text("by-offset/0..3"), "a\nb\nc\n", "the good segment is served");
        read.extend(read_everything(&m));
        if options == "rw" {
            m.sh("{ echo more >> append; echo roll > ctl; echo more >> append; echo delete-before 1 > ctl; } 2>&1 || true");
        }
        assert_eq!(m.text("by-offset/1..3"), "b\nc\n");
    }
    let path = source.path();
    for arguments in [
        vec!["check".as_ref(), path],
        vec!["recover".as_ref(), "--dry-run".as_ref(), path],
        vec!["recover".as_ref(), path],
        vec!["ls".as_ref(), path, "segments".as_ref()],
        vec!["cat".as_ref(), path, "by-offset/latest".as_ref()],
        vec!["append".as_ref(), path],
    ] {
        let output = offsetfs(&arguments);
        assert!(output.status.code().is_some_and(|code| code <= 3), "{arguments:?}: {:?}, {}", output.status, said(&output));
        assert!(!said(&output).contains("panicked"), "{}", said(&output));
        read.extend(said(&output).into_bytes());
    }
    // Without the log start offset nobody knows which records were deleted: refused in words, with every kind of entry.
    let checkpoint = path.join("log-start-offset-checkpoint");
    // What the commands above have written there.
    let _ = fs::remove_file(&checkpoint);
    symlink("nowhere", &checkpoint).expect("a link");
    let output = offsetfs(&["cat".as_ref(), path, "by-offset/0".as_ref()]);
    let words = said(&output);
    assert!(!output.status.success() && words.contains("log-start-offset-checkpoint: not a regular file"), "{words}");
    let shown = read.windows(SECRET.len()).position(|window| window == SECRET.as_bytes());
    assert_eq!(shown, None, "{}", read[shown.unwrap_or(0).saturating_sub(200)..].escape_ascii());
    assert_eq!(watch.seen(), "");
}

/// A folder with a log of somebody else, and a plain file.
fn somebody_else() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (log, text) = (folder.path().join("log"), folder.path().join("text"));
    fs::write(&log, batch(3, &[SECRET])).expect("a file");
    fs::write(&text, format!("0\n1\n{SECRET}\n")).expect("a file");
    (folder, log, text)
}

pub(crate) fn symlinks_lead_nowhere() {
    let (folder, log, text) = somebody_else();
    let watch = Watch::new(&[&log, &text]);
    let source = planted(|path| symlink(if path.extension().is_some_and(|e| e == "log") { &log } else { &text }, path).expect("a link"));
    // Also to what does not exist: nothing is made through it.
    let nowhere = folder.path().join("nowhere");
    symlink(&nowhere, source.path().join("00000000000000000009.log")).expect("a link");
    symlink(folder.path(), source.path().join("00000000000000000000.log.cut-0")).expect("a link");
    try_all(&source, &watch);
    assert!(!nowhere.exists());
    // The checkpoint beside the partition, and a whole partition of a data directory.
    let data = PartitionDir::new("demo-0");
    data.file("00000000000000000000.log", &batch(0, &["a", "b", "c"]));
    fs::write(data.parent().join("meta.properties"), "version=1\n").expect("a file");
    symlink(folder.path(), data.parent().join("other-0")).expect("a link");
    let m = Mounted::new(data.parent(), &["-o", "ro"]);
    assert_eq!(m.text("demo/0/by-offset/0..3"), "a\nb\nc\n");
    assert!(!contains(&read_tree(&m), SECRET.as_bytes()));
    assert!(!m.at("other").exists(), "a linked folder is no partition");
    assert_eq!(watch.seen(), "");
}

/// Reads every file of a mounted data directory.
fn read_tree(m: &Mounted) -> Vec<u8> {
    let script = "timeout 60 find . -type f ! -name 'append*' ! -name ctl -exec cat {} + 2>&1; test $? != 124";
    m.sh(script).into_bytes()
}

pub(crate) fn pipes_block_nobody() {
    let source = planted(|path| {
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a pipe");
    });
    watched(&source);
}

pub(crate) fn devices_are_not_opened() {
    // `/dev/zero` and `/dev/full`: endless, and refusing every write.
    for minor in [5, 7] {
        let source = planted(|path| {
            let mode = Mode::from_raw_mode(0o666);
            mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(1, minor)).expect("root may make a device");
        });
        watched(&source);
    }
}

/// Tries all with what was planted watched itself.
fn watched(source: &PartitionDir) {
    let planted: Vec<PathBuf> = NAMES.iter().map(|name| source.path().join(name)).collect();
    let watch = Watch::new(&planted.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    try_all(source, &watch);
}

pub(crate) fn directories_are_no_segments() {
    let source = planted(|path| {
        fs::create_dir(path).expect("a folder");
        fs::write(path.join("inside"), SECRET).expect("a file");
    });
    let inside: Vec<PathBuf> = NAMES.iter().map(|name| source.path().join(name).join("inside")).collect();
    let watch = Watch::new(&inside.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    try_all(&source, &watch);
    assert!(inside.iter().all(|path| path.exists()), "and none of them is removed");
}

pub(crate) fn hard_links_are_read_and_not_written() {
    // A backup of hard links is a good one to look into. What is written goes into no file that has another name.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let original = demo();
    let copy = folder.path().join("demo-0");
    let linked = Command::new("cp").arg("-al").arg(original.path()).arg(&copy).status().expect("cp can be started");
    assert!(linked.success());
    let before: Vec<Vec<u8>> = original.names().iter().map(|name| fs::read(original.path().join(name)).expect("a file")).collect();
    let m = Mounted::new(&copy, &[]);
    assert_eq!(m.text("by-offset/0..3"), "a\nb\nc\n");
    let status = m.text("status");
    assert!(status.contains("mode: ro") && status.contains("another name"), "it is mounted read-only, and why is told: {status}");
    assert!(!m.sh("echo more 2>&1 >> append || true").is_empty(), "the write is refused");
    drop(m);
    let after: Vec<Vec<u8>> = original.names().iter().map(|name| fs::read(original.path().join(name)).expect("a file")).collect();
    assert!(before == after, "the original is as it was");
    // The same with a take-over, which leaves no lock file behind.
    let broker = folder.path().join("meta.properties");
    fs::write(&broker, "version=1\n").expect("a file");
    let m = Mounted::new(&copy, &["--take-over"]);
    assert!(m.text("status").contains("another name"), "{}", m.text("status"));
    drop(m);
    assert!(!folder.path().join(".lock").exists());
    fs::remove_file(broker).expect("no data directory any more");
    // Copied into a file of its own, it takes appends.
    let script = "for f in *; do cp \"$f\" \"$f.own\"; mv \"$f.own\" \"$f\"; done";
    assert!(Command::new("bash").args(["-ec", script]).current_dir(&copy).status().expect("bash can be started").success());
    let m = Mounted::new(&copy, &[]);
    m.sh("echo more >> append");
    assert_eq!(m.text("by-offset/earliest..latest"), "a\nb\nc\nmore\n");
    // Devices and sockets aside, a secret of somebody else behind a hard link in a log directory is no log: it is damage at most.
    let (_folder, _, text) = somebody_else();
    let source = demo();
    if fs::hard_link(&text, source.path().join("00000000000000000003.log")).is_ok() {
        let m = Mounted::new(source.path(), &[]);
        assert!(!m.sh("echo more 2>&1 >> append || true").is_empty());
        drop(m);
        offsetfs(&["recover".as_ref(), "--drop-damaged".as_ref(), source.path()]);
        assert!(fs::read_to_string(&text).expect("the file").contains(SECRET), "it is as it was");
    }
}

pub(crate) fn a_name_that_is_swapped_leads_nowhere_else() {
    let (_folder, log, _) = somebody_else();
    let foreign = batch(0, &[SECRET, SECRET, SECRET]);
    fs::write(&log, foreign).expect("a file");
    let watch = Watch::new(&[&log]);
    let source = demo();
    let (name, other) = (source.path().join("00000000000000000000.log"), source.parent().join("other"));
    symlink(&log, &other).expect("a link");
    let stop = AtomicBool::new(false);
    let (mut served, mut refused) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &name, CWD, &other, RenameFlags::EXCHANGE).expect("both are there");
            }
        });
        let filesystem: std::sync::Arc<dyn FileSystem> = std::sync::Arc::new(OsFileSystem);
        while served < 300 || refused < 300 {
            let options = Options { wish: Wish::ReadOnly, create: false, config: LogConfig::default() };
            let opened = Local::open(&filesystem, source.path(), options);
            let value = opened.and_then(|log| log.record(Offset::ZERO, Patience::MayBlock));
            match value {
                Ok(Found::Record(record)) => {
                    assert_eq!(record.value(), Some(b"a".as_slice()));
                    served += 1;
                }
                Ok(_) | Err(_) => refused += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("served {served} times, refused {refused} times");
    assert_eq!(watch.seen(), "");
}
