//! A real broker produces, rolls, deletes and compacts while its directory is mounted read-only and read by all means: every answer is what was
//! produced or a clean error, nothing ends by a signal, and nothing is written into the directory.
//!
//! Runs under `OFFSETFS_TEST_KAFKA=1` only, for 20 seconds; `OFFSETFS_LIVE_SECONDS` asks for more.

#[path = "live_broker/broker.rs"]
mod broker;
#[path = "common/mounted.rs"]
mod mounted;
#[path = "common/on_request.rs"]
mod on_request;
#[path = "live_broker/readers.rs"]
mod readers;

use broker::Broker;
use mounted::Mounted;
use std::fs;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    on_request::run(
        "OFFSETFS_TEST_KAFKA",
        "a JDK 17, /dev/fuse, and for the first run Maven and the network",
        &[("readers_beside_a_live_broker_see_records_or_errors", readers_beside_a_live_broker_see_records_or_errors)],
    )
}

/// The topic whose old segments are deleted; the record at offset n is the n-th line that was produced.
const ROLLED: &str = "rolled";
/// The topic that is compacted, of which the same holds.
const COMPACTED: &str = "compacted";
/// How many keys the second one has.
const KEYS: u64 = 50;

/// The n-th line. Whoever mixes two lines gets a third that is none.
fn line(n: u64) -> String {
    let letter = char::from(b'a' + (n % 26) as u8);
    format!("{n:010} {} {n:010}", letter.to_string().repeat(150 + (n % 97) as usize))
}

/// What the readers share.
#[derive(Debug, Default)]
struct Watch {
    over: AtomicBool,
    good: AtomicU64,
    refused: AtomicU64,
}

impl Watch {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn saw(&self, good: u64) {
        self.good.fetch_add(good, Ordering::Relaxed);
    }

    /// An error that a reader may get when files go under it.
    fn refused(&self, what: &str, error: &std::io::Error) {
        let clean = [libc::ENOENT, libc::EIO, libc::ESTALE].map(Some).contains(&error.raw_os_error());
        assert!(clean, "{what}: {error}");
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// The value of a line of `status`.
fn status(m: &Mounted, topic: &str, name: &str) -> u64 {
    let text = m.text(&format!("{topic}/0/status"));
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).expect("a member of status");
    value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
}

fn readers_beside_a_live_broker_see_records_or_errors() {
    let seconds = std::env::var("OFFSETFS_LIVE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let mut broker = Broker::start();
    broker.create(ROLLED, &["segment.bytes=1048576", "retention.bytes=2097152", "file.delete.delay.ms=500"]);
    broker.create(
        COMPACTED,
        &[
            "segment.bytes=1048576",
            "cleanup.policy=compact",
            "min.cleanable.dirty.ratio=0.01",
            "delete.retention.ms=100",
            "file.delete.delay.ms=500",
        ],
    );
    let m = Mounted::new(&broker.data(), &["-o", "ro"]);
    let watch = Watch::default();
    let pid = m.daemon.id();
    thread::scope(|scope| {
        scope.spawn(|| broker.produce(ROLLED, &watch, line));
        scope.spawn(|| broker.produce(COMPACTED, &watch, |n| format!("{}\t{}", n % KEYS, line(n))));
        let begin = Instant::now();
        while [ROLLED, COMPACTED].iter().any(|topic| status(&m, topic, "log_end_offset") < 1000) {
            assert!(begin.elapsed() < Duration::from_secs(120), "nothing is produced: {}", broker.said());
            thread::sleep(Duration::from_millis(100));
        }
        for reader in readers::ALL {
            let (m, watch) = (&m, &watch);
            scope.spawn(move || reader(m, watch));
        }
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(seconds) && watch.goes_on() {
            readers::opened_read_only(pid, &broker.data());
            thread::sleep(Duration::from_millis(50));
        }
        watch.over.store(true, Ordering::Relaxed);
    });
    let (start, end) = (status(&m, ROLLED, "log_start_offset"), status(&m, ROLLED, "log_end_offset"));
    let compacted = status(&m, COMPACTED, "log_end_offset");
    let kept = m.text(&format!("{COMPACTED}/0/by-offset/earliest..latest.jsonl")).lines().count() as u64;
    println!(
        "{seconds} s: {} answers right, {} refused; {ROLLED}: offsets {start} to {end}; {COMPACTED}: {kept} of {compacted} records left",
        watch.good.load(Ordering::Relaxed),
        watch.refused.load(Ordering::Relaxed)
    );
    assert!(start > 0 && end > start, "retention took segments");
    assert!(kept < compacted && kept >= KEYS, "compaction took records");
    assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).expect("the daemon lives").trim(), "offsetfs");
    broker.stop();
    for topic in [ROLLED, COMPACTED] {
        m.sh(&format!("diff -r {topic}/0/segments '{}/{topic}-0'", broker.data().display()));
    }
    let last = status(&m, ROLLED, "log_end_offset") - 1;
    assert_eq!(m.text(&format!("{ROLLED}/0/by-offset/last")), line(last));
}
