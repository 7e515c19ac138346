//! Writers, readers, rolls, raised log starts and closes at once on the engine and a real directory, with a watchdog: nobody stands still, nothing is lost or
//! doubled, and neither descriptors nor memory grow.
//!
//! It runs a few seconds; `OFFSETFS_STRESS_SECONDS` asks for more. What it prints is for a long run (`cargo test --release --test stress -- --nocapture`):
//! operations, the longest time that one took, descriptors and memory. This file has one test, since it counts what its process holds.

use offsetfs::error::Error;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::commit::Appended;
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::NewRecord;
use offsetfs::log::walk::{Item, Look};
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Found, Maintenance, Source};
use offsetfs::types::{Offset, Patience, TimestampMs};
use offsetfs::view::path::Lines;
use offsetfs::view::time::Zone;
use offsetfs::view::{self, Span, View};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long it runs where nobody asks for more.
const USUAL: Duration = Duration::from_secs(3);
/// A log is written, checked and removed in so long, so that no run fills the disk.
const ROUND: Duration = Duration::from_secs(3);
/// A log is closed and opened again this often in a round.
const CLOSES: u32 = 6;
const WRITERS: usize = 4;
/// Who takes longer than this for one operation stands still: generous, since the machine may have other work.
const STALL_MOST: Duration = Duration::from_secs(60);
/// Memory may grow by this over all rounds behind the second: what the allocator keeps.
const GROWTH_MOST_KIB: u64 = 64 << 10;

/// What one thread does, watched.
struct Worker {
    name: &'static str,
    /// When its operation at hand began, in milliseconds from the beginning; `u64::MAX` while it is between two.
    since: AtomicU64,
    operations: AtomicU64,
    longest_us: AtomicU64,
}

impl Worker {
    fn new(name: &'static str) -> Arc<Worker> {
        Arc::new(Worker { name, since: AtomicU64::new(u64::MAX), operations: AtomicU64::new(0), longest_us: AtomicU64::new(0) })
    }

    fn run<T>(&self, begin: Instant, operation: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        self.since.store(begin.elapsed().as_millis() as u64, Ordering::SeqCst);
        let result = operation();
        self.since.store(u64::MAX, Ordering::SeqCst);
        self.operations.fetch_add(1, Ordering::SeqCst);
        self.longest_us.fetch_max(started.elapsed().as_micros() as u64, Ordering::SeqCst);
        result
    }
}

/// Ends the process where somebody stands still: a thread that hangs cannot be made to fail.
fn watch(workers: &[Arc<Worker>], begin: Instant, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(50));
        let now = begin.elapsed().as_millis() as u64;
        for worker in workers {
            let since = worker.since.load(Ordering::SeqCst);
            if now.saturating_sub(since) > STALL_MOST.as_millis() as u64 {
                eprintln!("a {} stands still since {} ms", worker.name, now - since);
                std::process::abort();
            }
        }
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc is there").count()
}

/// Memory of our own, without mapped files, in KiB.
fn memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon is told");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

fn open(path: &Path) -> Arc<Local> {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let config = LogConfig { segment_bytes: 64 << 10, index_interval_bytes: 512, segment_index_bytes: 4096, ..LogConfig::default() };
    Arc::new(Local::open(&fs, path, Options { create: true, config, ..Options::default() }).expect("a partition"))
}

/// Appends a value; `None` where the log was closed meanwhile, and then it was not stored.
fn append(log: &Local, value: &str, durable: bool) -> Option<i64> {
    let record = NewRecord { timestamp: TimestampMs::new(1000), key: None, value: Some(value.as_bytes()), headers: &[] };
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |answer: Result<Appended, Error>| sender.send(answer).expect("who appended waits"));
    log.append(&mut std::iter::once(record), durable, done).expect("a small record");
    match receiver.recv().expect("every append is answered") {
        Ok(appended) => Some(appended.first.get()),
        Err(Error::Closed) => None,
        Err(error) => panic!("an append was refused: {error}"),
    }
}

/// The record at an offset, if it is there; another one must never be.
fn look(log: &Local, offset: i64) {
    match log.record(Offset::new(offset).expect("not negative"), Patience::MayBlock).expect("a look-up") {
        Found::Record(record) => assert_eq!(record.offset().get(), offset),
        Found::Absent(absent) => {
            let bounds = log.bounds(Patience::MayBlock).expect("bounds");
            assert!(offset < bounds.log_start.get(), "offset {offset} within {bounds:?} is {absent:?}");
        }
    }
}

/// Reads the whole log as a follower that began at its start, up to the end of now.
fn follow(log: &Arc<Local>) {
    let view = View::new(log.clone(), view::Options { zone: Zone::utc(), ..view::Options::default() });
    let from = log.bounds(Patience::MayBlock).expect("bounds").log_start;
    let reader = view.follow(Span { from, until: Offset::MAX, lines: Lines::Values });
    let (mut at, mut buffer) = (0, vec![0; 64 << 10]);
    for _ in 0..100 {
        match reader.read(at, &mut buffer, Patience::MayBlock).expect("no file is damaged") {
            0 => break,
            n => at += n as u64,
        }
    }
}

/// One log from its making to its end; returns the records that were stored.
fn round(path: &Path, length: Duration, begin: Instant, workers: &[Arc<Worker>]) -> u64 {
    // `None` only while the log is closed and not open again: the old one holds the lock of the directory.
    let log = RwLock::new(Some(open(path)));
    let over = AtomicBool::new(false);
    let acknowledged = thread::scope(|scope| {
        let log = &log;
        let over = &over;
        let is_over = || over.load(Ordering::SeqCst);
        let with = move |run: &dyn Fn(&Arc<Local>)| {
            if let Some(log) = &*log.read().expect("nobody panicked") {
                run(log);
            }
        };
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let worker = workers[number].clone();
                scope.spawn(move || {
                    let mut stored = Vec::new();
                    while !is_over() {
                        let value = format!("{number}/{}", stored.len());
                        let durable = number == 0 || stored.len() % 64 == 0;
                        let log = log.read().expect("nobody panicked");
                        let offset = log.as_ref().and_then(|log| worker.run(begin, || append(log, &value, durable)));
                        drop(log);
                        match offset {
                            Some(offset) => stored.push((offset, value)),
                            None => thread::yield_now(),
                        }
                    }
                    stored
                })
            })
            .collect();
        let [looker, walker, roller] = [WRITERS, WRITERS + 1, WRITERS + 2].map(|at| workers[at].clone());
        scope.spawn(move || {
            let mut step = 1_i64;
            while !is_over() {
                with(&|log| {
                    let end = log.bounds(Patience::MayBlock).expect("bounds").log_end.get();
                    if end > 0 {
                        looker.run(begin, || look(log, (step * 7919) % end));
                        looker.run(begin, || look(log, end - 1));
                    }
                });
                step += 1;
            }
        });
        scope.spawn(move || {
            while !is_over() {
                with(&|log| walker.run(begin, || follow(log)));
            }
        });
        scope.spawn(move || {
            let mut step = 0_i64;
            while !is_over() {
                thread::sleep(Duration::from_millis(3));
                with(&|log| {
                    let end = log.bounds(Patience::MayBlock).expect("bounds").log_end.get();
                    let done = roller.run(begin, || match step % 4 {
                        0 => log.delete_before(Offset::new(end / 4).expect("not negative")).map(drop),
                        _ => Maintenance::roll(&**log).map(drop),
                    });
                    assert!(matches!(done, Ok(()) | Err(Error::Closed)), "{done:?}");
                });
                step += 1;
            }
        });
        let closer = &workers[WRITERS + 3];
        for _ in 0..CLOSES {
            thread::sleep(length / CLOSES);
            // Beside the others: who comes too late is told so.
            let closing = log.read().expect("nobody panicked").clone();
            closer.run(begin, || closing.map_or(Ok(()), |log| log.close())).expect("a clean close");
            let mut log = log.write().expect("nobody panicked");
            closer.run(begin, || {
                *log = None;
                *log = Some(open(path));
            });
        }
        over.store(true, Ordering::SeqCst);
        writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect::<Vec<_>>()
    });
    let log = log.into_inner().expect("nobody panicked").expect("it was opened again");
    log.close().expect("a clean close");
    check(&log, acknowledged)
}

/// Every record was acknowledged, once, at its offset; and all that were are there.
fn check(log: &Local, acknowledged: Vec<(i64, String)>) -> u64 {
    let partition = log.partition();
    let bounds = partition.bounds();
    assert_eq!(acknowledged.len() as i64, bounds.log_end.get(), "as many records as answers");
    let expected: HashMap<i64, String> = acknowledged.into_iter().collect();
    let mut walk = partition.walk(bounds.log_start, bounds.log_end, Look::Batches, Patience::MayBlock);
    let mut next = None;
    while let Some(item) = walk.next(partition).expect("a step") {
        let Item::Batch(batch, file) = item else { panic!("{item:?}") };
        let body = partition.body(&batch, &file, Patience::MayBlock).expect("a sound batch");
        for record in body.records() {
            let record = body.record(record.expect("a sound record"));
            let offset = record.offset().get();
            assert_eq!(record.value(), expected.get(&offset).map(|value| value.as_bytes()), "offset {offset}");
            assert!(next.is_none_or(|next| next == offset), "no offset is missing");
            next = Some(offset + 1);
        }
    }
    assert_eq!(next, Some(bounds.log_end.get()));
    expected.len() as u64
}

#[test]
fn nobody_stands_still_nothing_is_lost_and_nothing_grows() {
    let asked = std::env::var("OFFSETFS_STRESS_SECONDS").ok();
    let length = asked.map_or(USUAL, |text| Duration::from_secs(text.parse().expect("OFFSETFS_STRESS_SECONDS is a number")));
    let begin = Instant::now();
    let names = ["writer"; WRITERS].into_iter().chain(["look-up", "follower", "roll or raised start", "close"]);
    let workers: Vec<Arc<Worker>> = names.map(Worker::new).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| watch(&workers, begin, &over));
        let run = || {
            let descriptors_before = descriptors();
            let (mut records, mut rounds, mut memory_before) = (0, 0, None);
            while rounds < 3 || begin.elapsed() < length {
                let folder = tempfile::tempdir().expect("a temporary folder");
                records += round(&folder.path().join("stress-0"), ROUND.min(length / 3), begin, &workers);
                rounds += 1;
                if rounds == 2 {
                    memory_before = Some(memory_kib());
                }
            }
            assert_eq!(descriptors(), descriptors_before, "no descriptor is left");
            let (before, after) = (memory_before.unwrap_or_default(), memory_kib());
            assert!(after <= before + GROWTH_MOST_KIB, "memory grew from {before} to {after} KiB");
            println!("{rounds} rounds, {records} records, memory {before} KiB behind the second round and {after} KiB at the end");
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        over.store(true, Ordering::SeqCst);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    for worker in &workers {
        let (operations, longest) = (worker.operations.load(Ordering::SeqCst), worker.longest_us.load(Ordering::SeqCst));
        assert!(operations > 0, "a {} did nothing", worker.name);
        println!("{:<22} {operations:>10} operations, the longest took {} ms", worker.name, longest.div_ceil(1000));
    }
}
