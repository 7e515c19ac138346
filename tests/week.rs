//! A week of a log in a few seconds: writers, readers, rolls by time and size, retention and compaction under a clock that this test moves, jumps
//! back and forth among it. Memory, descriptors, maps, threads and files are as flat at the end of each day as at the end of the first.
//!
//! The file system is a real one, so that descriptors and maps are; only its clock is not. It is one test alone in its process, for it counts what
//! the whole process holds.

use offsetfs::io::os::OsFileSystem;
use offsetfs::io::sim::{SimClock, SimDisk};
use offsetfs::io::{Clock, Directory, FileSystem};
use offsetfs::log::config::{CleanupPolicy, LogConfig};
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Maintenance, Source};
use offsetfs::types::Patience::MayBlock;
use offsetfs::types::TimestampMs;
use offsetfs::view::time::Zone;
use offsetfs::view::{self, ErrorKind, Framing, View};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
const STEP_MS: i64 = 10 * MINUTE_MS;
const STEPS_A_DAY: i64 = DAY_MS / STEP_MS;
const DAYS: i64 = 7;
/// 2023-11-14T22:13:20Z, in ms.
const T0: i64 = 1_700_000_000_000;
const KEYS: i64 = 50;

/// Counts the bytes that are allocated and not given back.
struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call is handed on as it came; counting is one atomic addition.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps what `dealloc` asks for.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The system's files under a clock of our own.
#[derive(Debug)]
struct Clocked(Arc<SimClock>);

impl FileSystem for Clocked {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        OsFileSystem.open_dir(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        OsFileSystem.create_dir(path)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clone()
    }
}

struct Log {
    path: PathBuf,
    local: Arc<Local>,
    view: View,
}

impl Log {
    fn new(fs: &Arc<dyn FileSystem>, path: PathBuf, config: LogConfig) -> Log {
        let config = LogConfig { maintenance: true, segment_ms: HOUR_MS as u64, segment_bytes: 16 << 10, ..config };
        let local = Local::open(fs, &path, Options { wish: Wish::Writable, create: true, config }).expect("a new log");
        let local = Arc::new(local);
        let view = View::new(local.clone(), view::Options { zone: Zone::utc(), ..view::Options::default() });
        Log { path, local, view }
    }

    fn append(&self, framing: Framing, lines: &str) {
        let appender = self.view.appender(framing).expect("it is writable");
        let (sender, receiver) = mpsc::sync_channel(1);
        appender.write(lines.as_bytes(), false, Box::new(move |result| sender.send(result).expect("it is waited for")));
        receiver.recv().expect("an answer").expect("appended");
    }

    /// The bytes of a file of the tree.
    fn text(&self, path: &str) -> Result<String, ErrorKind> {
        let node = self.view.resolve(path.as_bytes(), MayBlock).map_err(|e| e.kind())?;
        let reader = self.view.open(&node, MayBlock).map_err(|e| e.kind())?;
        let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match reader.read(bytes.len() as u64, &mut piece, MayBlock).map_err(|e| e.kind())? {
                0 => return Ok(String::from_utf8(bytes).expect("text")),
                n => bytes.extend_from_slice(&piece[..n]),
            }
        }
    }

    fn look(&self) {
        self.local.upkeep().expect("it is writable").look();
        let events = self.local.take_events();
        assert!(events.is_empty(), "{}: {events:?}", self.path.display());
    }

    fn bounds(&self) -> (i64, i64) {
        let bounds = self.local.bounds(MayBlock).expect("bounds");
        (bounds.log_start.get(), bounds.log_end.get())
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.path).expect("a folder").count()
    }
}

/// What the process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    heap_bytes: i64,
    resident_kib: i64,
    descriptors: i64,
    maps: i64,
    threads: i64,
    files: i64,
}

impl Held {
    fn now(logs: &[Log]) -> Held {
        let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of it");
            line.trim().trim_end_matches(" kB").parse::<i64>().expect("a number")
        };
        Held {
            heap_bytes: LIVE.load(Ordering::Relaxed),
            resident_kib: number("RssAnon:"),
            descriptors: fs::read_dir("/proc/self/fd").expect("/proc is there").count() as i64,
            maps: fs::read_to_string("/proc/self/maps").expect("/proc is there").lines().count() as i64,
            threads: number("Threads:"),
            files: logs.iter().map(|log| log.files() as i64).sum(),
        }
    }

    /// Whether it is no more than at the end of the first day, but for a few segments that are there at one hour and not at another.
    fn is_flat(&self, first: &Held) -> bool {
        self.heap_bytes <= first.heap_bytes + (16 << 10)
            && self.resident_kib <= first.resident_kib + (4 << 10)
            && self.descriptors <= first.descriptors + 12
            && self.maps <= first.maps + 12
            && self.threads <= first.threads
            && self.files <= first.files + 12
    }
}

/// How far the clock jumps at a step, in ms.
fn jump(step: i64) -> i64 {
    match (step / STEPS_A_DAY, step % STEPS_A_DAY) {
        (1, 50) => -3 * HOUR_MS,
        (1, 80) => 3 * HOUR_MS,
        (2, 20) => 6 * HOUR_MS,
        (2, 30) => -6 * HOUR_MS,
        (3, 100) => -365 * DAY_MS,
        (3, 103) => 365 * DAY_MS,
        _ => 0,
    }
}

/// The newest value of each key, as a reader of the tree finds it, is the one that was written last.
fn assert_state(state: &Log, newest: &BTreeMap<i64, Option<i64>>) {
    for (key, value) in newest {
        let found = state.text(&format!("by-key/k{key}"));
        let expected = value.map(|v| v.to_string()).ok_or(ErrorKind::NotFound);
        assert_eq!(found, expected, "k{key}");
    }
}

#[test]
fn a_week_passes_and_leaves_nothing_behind() {
    // Where files need no disk, for thousands of syncs; elsewhere it takes longer.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let clock = SimDisk::new().clock();
    clock.set(TimestampMs::new(T0));
    let filesystem: Arc<dyn FileSystem> = Arc::new(Clocked(clock.clone()));
    let log = |name: &str, config| Log::new(&filesystem, folder.path().join(name), config);
    let logs = [
        log("events-0", LogConfig { retention_ms: 6 * HOUR_MS, ..LogConfig::default() }),
        log(
            "state-0",
            LogConfig {
                cleanup_policy: CleanupPolicy { delete: false, compact: true },
                min_cleanable_dirty_ratio: 0.1,
                delete_retention_ms: HOUR_MS as u64,
                ..LogConfig::default()
            },
        ),
        log("quiet-0", LogConfig { retention_ms: DAY_MS, ..LogConfig::default() }),
    ];
    let [events, state, quiet] = &logs;
    quiet.append(Framing::Lines, "one\ntwo\nthree\n");
    let mut newest = BTreeMap::new();
    let mut first: Option<Held> = None;
    let mut days = Vec::new();
    for step in 0..DAYS * STEPS_A_DAY {
        clock.advance(STEP_MS + jump(step));
        std::thread::scope(|scope| {
            for writer in ["a", "b"] {
                let lines: String = (0..5).map(|n| format!("{writer} {step} {n} {}\n", "x".repeat(200))).collect();
                scope.spawn(move || events.append(Framing::Lines, &lines));
            }
        });
        for key in [step % KEYS, step * 7 % KEYS] {
            let value = (step % 13 != 5).then_some(step);
            let payload = value.map_or("null".to_owned(), |v| format!("\"{v}\""));
            state.append(Framing::Json, &format!("{{\"key\":\"k{key}\",\"payload\":{payload}}}\n"));
            newest.insert(key, value);
        }
        logs.iter().for_each(Log::look);
        let last = events.text("by-offset/-1..").expect("the last record");
        assert!(last.contains(&format!(" {step} 4 ")), "{last}");
        // The clock may have been set back: there may be no such time.
        let _ = events.view.resolve(b"by-time/1h-ago", MayBlock);
        assert!(events.text("status").expect("a status").contains("segments: "));
        if step % STEPS_A_DAY == STEPS_A_DAY - 1 {
            assert_state(state, &newest);
            let day = step / STEPS_A_DAY + 1;
            // Two hours before, the clock was right again: what is older than it may be has gone.
            let (start, end) = events.bounds();
            assert!(start > 0 && end == (step + 1) * 10, "day {day}: {start} to {end}");
            assert!(end - start <= (6 + 1 + 1) * 60 + 10, "day {day}: {} records are left", end - start);
            assert_eq!(quiet.bounds(), if day == 1 { (0, 3) } else { (3, 3) }, "day {day}");
            let first = *first.get_or_insert_with(|| Held::now(&logs));
            // A thread that ended a moment ago may still be counted.
            let since = Instant::now();
            let held = loop {
                let held = Held::now(&logs);
                if held.is_flat(&first) || since.elapsed() > Duration::from_secs(5) {
                    break held;
                }
                std::thread::yield_now();
            };
            assert!(held.is_flat(&first), "day {day}: {held:?}, on the first {first:?}; before {days:#?}");
            days.push(held);
        }
    }
    quiet.append(Framing::Lines, "four\n");
    assert_eq!(quiet.text("by-offset/3..").expect("the record"), "four\n");
    for log in &logs {
        log.local.close().expect("a clean close");
        let report = log.local.check(&mut |_, _| ()).expect("a report");
        assert!(report.is_clean(), "{:?}", report.findings);
    }
}
