//! `by-key` next to `by-offset` in one run: opening with and without the kept index, look-ups of both kinds of the same records, memory.
//!
//! ```text
//! cargo bench --bench by_key                 10,000,000 keys with values of 100 bytes (1.4 GB of log, 0.4 GB of index), 7 rounds
//! cargo bench --bench by_key -- ROUNDS
//! OFFSETFS_BENCH_KEYS=1000000                fewer keys
//! ```
//! Pin it (`taskset -c 1`). The log lies in `TMPDIR`, else in `/tmp`, and has been read once before anything is measured.

use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::LogConfig;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Found, Latest, NewRecord, Source};
use offsetfs::types::{Offset, Patience, TimestampMs};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const VALUE: [u8; 100] = [b'v'; 100];
/// Records of one append.
const PER_APPEND: u64 = 10_000;
/// Look-ups of a round.
const LOOK_UPS: usize = 200_000;

fn main() {
    let rounds: usize = std::env::args().skip(1).filter(|a| a != "--bench").find_map(|a| a.parse().ok()).unwrap_or(7);
    let keys: u64 = std::env::var("OFFSETFS_BENCH_KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000_000);
    let folder = std::env::temp_dir().join(format!("offsetfs-by-key-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let source = folder.join("keys-0");
    fill(&source, keys);

    println!("{keys} keys, {} MiB of log", size(&source, ".log") >> 20);
    let (ms, local) = timed(|| open_and_look(&source, Wish::ReadOnly));
    println!("opened without an index, to the first answer  {ms:>9.1} ms, RssAnon {} MiB at the end", rss_anon_mib());
    drop(local);

    let local = open_and_look(&source, Wish::Writable);
    append(&local, keys, keys + 1);
    let (ms, closed) = timed(|| local.close());
    closed.expect("a clean close");
    drop(local);
    println!("the index written at the close                {ms:>9.1} ms, {} MiB", size(&source, ".offsetfs") >> 20);

    let before = rss_anon_mib();
    let (ms, local) = timed(|| open_and_look(&source, Wish::ReadOnly));
    println!("opened with a fresh index, to the first answer {ms:>8.1} ms ({}), bound 1000", held(ms, 1000.0));

    let mut ratios = Vec::new();
    let (mut of_keys, mut of_offsets) = (Vec::new(), Vec::new());
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for round in 0..=rounds {
        let asked: Vec<u64> = (0..LOOK_UPS).map(|_| random(&mut seed) % keys).collect();
        let names: Vec<String> = asked.iter().map(|n| key(*n)).collect();
        // Both touch the same records; each goes first in every other round.
        let mut times = [0.0; 2];
        for which in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            times[which] =
                timed(|| if which == 0 { look_up_offsets(&local, &asked) } else { look_up_keys(&local, &names) }).0 * 1e6 / LOOK_UPS as f64;
        }
        // The first round checks every batch and block that it meets.
        if round > 0 {
            of_offsets.push(times[0]);
            of_keys.push(times[1]);
            ratios.push(times[1] / times[0]);
        }
    }
    let (low, high) = ratios.iter().fold((f64::MAX, 0.0f64), |(low, high), r| (low.min(*r), high.max(*r)));
    let middle = median(&mut ratios);
    println!(
        "look-up by key {:.0} ns, by offset {:.0} ns: {middle:.2} ({low:.2} - {high:.2}), bound 1.30 ({})",
        median(&mut of_keys),
        median(&mut of_offsets),
        held(middle, 1.3)
    );
    println!("RssAnon {} MiB after the look-ups, {before} MiB before the opening", rss_anon_mib());
    let (ms, listed) = timed(|| {
        let mut count = 0u64;
        let listing = local.keys().expect("keys").live(0, Patience::MayBlock, &mut |_, _, _| {
            count += 1;
            true
        });
        listing.map(|()| count)
    });
    println!("all {} keys listed in {ms:.0} ms", listed.expect("a listing"));
    drop(local);
    fs::remove_dir_all(&folder).expect("the folder goes");
}

fn held(value: f64, bound: f64) -> &'static str {
    if value <= bound { "held" } else { "NOT held" }
}

fn key(n: u64) -> String {
    format!("user-{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn fill(source: &Path, keys: u64) {
    let local = open(source, Wish::Writable);
    for from in (0..keys).step_by(PER_APPEND as usize) {
        append(&local, from, keys.min(from + PER_APPEND));
    }
    local.close().expect("a clean close");
}

fn append(local: &Local, from: u64, until: u64) {
    let names: Vec<String> = (from..until).map(key).collect();
    let timestamp = TimestampMs::new(1_700_000_000_000);
    let mut records = names.iter().map(|name| NewRecord { timestamp, key: Some(name.as_bytes()), value: Some(&VALUE), headers: &[] });
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    local.append(&mut records, false, Box::new(move |result| sender.send(result).expect("somebody waits"))).expect("small records");
    receiver.recv().expect("an answer").expect("an append");
}

fn open(source: &Path, wish: Wish) -> Local {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    Local::open(&fs, source, Options { wish, create: true, config: LogConfig::default() }).expect("a partition")
}

fn open_and_look(source: &Path, wish: Wish) -> Local {
    let local = open(source, wish);
    look_up_keys(&local, &[key(7)]);
    local
}

fn look_up_keys(local: &Local, names: &[String]) {
    let keys = local.keys().expect("keys");
    for name in names {
        match keys.latest(name.as_bytes(), Patience::MayBlock).expect("an answer") {
            Latest::Live(record) => assert_eq!(black_box(record.value()).map(<[u8]>::len), Some(VALUE.len())),
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn look_up_offsets(local: &Local, offsets: &[u64]) {
    for offset in offsets {
        let offset = Offset::new(*offset as i64).expect("not negative");
        match local.record(offset, Patience::MayBlock).expect("an answer") {
            Found::Record(record) => assert_eq!(black_box(record.value()).map(<[u8]>::len), Some(VALUE.len())),
            other => panic!("{offset}: {other:?}"),
        }
    }
}

/// How long it took, in milliseconds.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let result = work();
    (begin.elapsed().as_secs_f64() * 1000.0, result)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn size(source: &Path, suffix: &str) -> u64 {
    let entries = fs::read_dir(source).expect("the source").map(|entry| entry.expect("an entry"));
    entries.filter(|e| e.file_name().to_string_lossy().ends_with(suffix)).map(|e| e.metadata().expect("a file").len()).sum()
}

/// Memory of this process that no file stands behind, in MiB.
fn rss_anon_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) >> 10
}
