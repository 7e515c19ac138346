//! The same questions that a mount asks, asked in this process: allocations by a counting allocator, system calls of a child by strace.

use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::LogConfig;
use offsetfs::log::verified::batches_known_and_computed;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Found, NewRecord, Source};
use offsetfs::types::{Offset, Patience, TimestampMs};
use offsetfs::view::time::Zone;
use offsetfs::view::{self, Framing, Node, View};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, mpsc};

/// The word by which this program is told to be the child that strace looks at.
pub(super) const CHILD: &str = "look-ups-of-a-child";

const RECORDS: i64 = 20_000;
const BASE_MS: i64 = 1_700_000_000_000;

/// Counts what each thread asks the system's allocator for.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending counts no more.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is handed on as it came; counting touches a cell of this thread and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps what `realloc` asks for.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps what `dealloc` asks for.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn open(path: &Path, wish: Wish) -> Local {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    Local::open(&fs, path, Options { wish, create: wish == Wish::Writable, config: LogConfig::default() }).expect("a partition")
}

fn view(local: Local) -> View {
    View::new(Arc::new(local), view::Options { zone: Zone::utc(), ..view::Options::default() })
}

/// A log of small records, a millisecond apart, over some hundred batches; closed well.
fn fill(path: &Path) {
    let log = open(path, Wish::Writable);
    let value = [b'v'; 100];
    let records =
        (0..RECORDS).map(|n| NewRecord { timestamp: TimestampMs::new(BASE_MS + n), key: None, value: Some(&value), headers: &[] });
    let (sender, receiver) = mpsc::channel();
    let mut records = records;
    log.append(&mut records, false, Box::new(move |result| sender.send(result).expect("somebody waits"))).expect("accepted");
    receiver.recv().expect("an answer").expect("appended");
    log.close().expect("closed");
}

/// Offsets all over the log, in no order.
fn offsets() -> impl Iterator<Item = i64> {
    (0..2000).map(|n| n * 7919 % RECORDS)
}

fn offset(n: i64) -> Offset {
    Offset::new(n).expect("an offset")
}

fn by_offset(log: &Local, n: i64) {
    match log.record(offset(n), Patience::MayBlock) {
        Ok(Found::Record(record)) => assert_eq!(black_box(record.value()).map(<[u8]>::len), Some(100)),
        other => panic!("{n}: {other:?}"),
    }
}

fn batch_of(log: &Local, n: i64) {
    let found = log.partition().batch_at(offset(n), Patience::MayBlock).expect("readable");
    assert!(found.is_ok_and(|(batch, _)| (batch.header.base_offset..=batch.header.last_offset).contains(&offset(n))));
}

fn by_time(log: &Local, n: i64) {
    let found = log.offset_at(TimestampMs::new(BASE_MS + n), Patience::MayBlock).expect("readable");
    assert_eq!(found, Some(offset(n)));
}

pub(super) fn a_look_up_of_a_touched_batch_allocates_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cost-0");
    fill(&path);
    for wish in [Wish::Writable, Wish::ReadOnly] {
        let log = open(&path, wish);
        for (way, look_up) in [("record", by_offset as fn(&Local, i64)), ("batch", batch_of), ("time", by_time)] {
            offsets().for_each(|n| look_up(&log, n));
            let made = allocations(|| offsets().for_each(|n| look_up(&log, n)));
            println!("{wish:?}, {way}: {made} allocations in 2000 look-ups");
            // A log that others may write to is looked at again now and then, which takes a path or two.
            assert!(made == 0 || wish == Wish::ReadOnly && made < 200, "{wish:?}, {way}: {made} allocations in 2000 look-ups");
        }
        let view = view(log);
        let names: Vec<String> = offsets().map(|n| n.to_string()).collect();
        let made = allocations(|| {
            for name in &names {
                let (node, attr) = view.lookup_with_attr(&Node::ByOffset, name.as_bytes(), Patience::AtOnce).expect("a record");
                let Node::Record(offset, face) = node else { panic!("{node:?}") };
                let mut value = [0; 128];
                let n = view.read_record(offset, face, 0, &mut value, Patience::AtOnce).expect("its value");
                assert_eq!((n, attr.size), (100, 100));
            }
        });
        println!("{wish:?}, view: {made} allocations in 2000 look-ups");
        assert!(made == 0 || wish == Wish::ReadOnly && made < 200, "{wish:?}: {made} allocations in 2000 look-ups of names");
        view.close().expect("closed");
    }
}

pub(super) fn a_first_look_up_reads_two_batches_at_most() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cost-0");
    fill(&path);
    let log = open(&path, Wish::ReadOnly);
    // Opening has looked for the end of the log.
    let mut most = 0;
    for n in offsets().take(100) {
        let before = batches_known_and_computed().1;
        by_offset(&log, n);
        let first = batches_known_and_computed().1 - before;
        by_offset(&log, n);
        let second = batches_known_and_computed().1 - before - first;
        assert_eq!(second, 0, "offset {n}: what was checked is remembered");
        most = most.max(first);
    }
    println!("a first look-up computes the CRC of {most} batches at most");
    assert!(most <= 2, "{most} batches: the one that the index names and the record's own");
}

pub(super) fn a_line_of_many_allocates_nothing_of_its_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let view = view(open(&folder.path().join("cost-0"), Wish::Writable));
    let appender = view.appender(Framing::Lines).expect("an appender");
    let lines = "a line of some length\n".repeat(5000);
    let write = || {
        let (sender, receiver) = mpsc::sync_channel(1);
        appender.write(lines.as_bytes(), false, Box::new(move |result| sender.send(result).expect("somebody waits")));
        receiver.recv().expect("an answer").expect("appended");
    };
    // The first one makes the files.
    write();
    write();
    let made = allocations(write);
    println!("a write of 5000 lines: {made} allocations");
    assert!(made <= 100, "{made} allocations for a write of 5000 lines");
    view.close().expect("closed");
}

/// The child: look-ups of touched batches between two calls of getppid, which nothing else asks for, each with a call of stat beside it if it is told so.
pub(super) fn child(arguments: &[String]) -> ExitCode {
    let log = open(Path::new(&arguments[0]), Wish::Writable);
    let planted = arguments.get(1).is_some_and(|word| word == "stat");
    let all = |n| {
        by_offset(&log, n);
        batch_of(&log, n);
        by_time(&log, n);
        if planted {
            black_box(std::fs::metadata(&arguments[0]).is_ok());
        }
    };
    offsets().for_each(all);
    black_box(std::os::unix::process::parent_id());
    offsets().for_each(all);
    black_box(std::os::unix::process::parent_id());
    log.close().expect("closed");
    ExitCode::SUCCESS
}

/// The system calls that the child makes between its marks.
fn system_calls(path: &Path, planted: &[&str]) -> Vec<String> {
    let out = tempfile::NamedTempFile::new().expect("a temporary file");
    let program = std::env::current_exe().expect("this program");
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(out.path())
        .arg(program)
        .arg(CHILD)
        .arg(path)
        .args(planted)
        .stdin(Stdio::null())
        .status()
        .expect("strace is installed");
    assert!(status.success(), "the child: {status}");
    let lines = std::fs::read_to_string(out.path()).expect("strace wrote");
    let mark = |line: &&str| line.contains("getppid(");
    let thread = lines.lines().find(mark).and_then(|line| line.split_whitespace().next()).expect("the first mark").to_owned();
    let ours = lines.lines().filter(|line| line.split_whitespace().next() == Some(&*thread));
    ours.skip_while(|line| !mark(line)).skip(1).take_while(|line| !mark(line)).map(str::to_owned).collect()
}

pub(super) fn a_look_up_of_a_touched_batch_makes_no_system_call() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("cost-0");
    fill(&path);
    let made = system_calls(&path, &[]);
    println!("{} system calls in 6000 look-ups", made.len());
    assert!(made.is_empty(), "{:?}", made.iter().take(5).collect::<Vec<_>>());
    let planted = system_calls(&path, &["stat"]);
    println!("{} with one planted beside every third", planted.len());
    assert_eq!(planted.len(), 2000, "a call that is one too many shows");
}
