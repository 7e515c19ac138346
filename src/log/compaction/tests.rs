//! The worked example of the format reference (11.1), to the byte, and what no other log shows as plainly.

use super::*;
use crate::io::sim::SimDisk;
use crate::log::batch;
use crate::log::config::{CleanupPolicy, LogConfig};
use crate::log::encode::{BatchEncoder, Encoding, NewRecord};
use crate::log::segment::OpenSegments;
use crate::types::TopicPartition;
use std::path::Path;

const DIRECTORY: &str = "/t-0";
const FIRST: [&str; 3] = [
    "00000000000000000000004b0000000502894918750000000000020000018bcfe568000000018bcfe56802ffffffffffffffffffffffffffff000000031000000002610231001000020202620231000e00040401027800",
    "00000000000000030000004200000005028916baeb0000000000010000018bcfe568030000018bcfe56804ffffffffffffffffffffffffffff000000020e00000002630100100002020261023200",
    "00000000000000050000004300000005022b479b340000000000010000018bcfe568050000018bcfe56806ffffffffffffffffffffffffffff00000002100000000264023100100002020262023200",
];
const SECOND: [&str; 3] = [
    "00000000000000070000003a00000005024b9847f70000000000000000018bcfe568070000018bcfe56807000000000000000100000000000000000001100000000265023100",
    "00000000000000080000004300000005020a8c5fc00000000000010000018bcfe568080000018bcfe56809ffffffffffffffffffffffffffff00000002100000000265023200100002020262023300",
    "000000000000000a0000003900000005023a8f10850000000000000000018bcfe5680a0000018bcfe5680affffffffffffffffffffffffffff000000010e00000001027900",
];
const ACTIVE: &str = "000000000000000b0000003a0000000502763fe1f10000000000000000018bcfe5680b0000018bcfe5680bffffffffffffffffffffffffffff0000000110000000027a023100";
const AFTER: [&str; 5] = [
    "00000000000000030000004800000005024c46fd200040000000010000018bd50d4aa00000018bcfe56804ffffffffffffffffffffffffffff000000021400b98abf5200026301001600b78abf52020261023200",
    "00000000000000050000003a00000005023e9162c00000000000010000018bcfe568050000018bcfe56805ffffffffffffffffffffffffffff00000001100000000264023100",
    "000000000000000700000031000000050226f579d6000000000000ffffffffffffffff0000018bcfe56807000000000000000100000000000000000000",
    "00000000000000080000004300000005020a8c5fc00000000000010000018bcfe568080000018bcfe56809ffffffffffffffffffffffffffff00000002100000000265023200100002020262023300",
    "000000000000000a0000003100000005028eb2635d000000000000ffffffffffffffff0000018bcfe5680affffffffffffffffffffffffffff00000000",
];
const TOMBSTONE_GONE: &str = "00000000000000030000003d000000050218da58050040000000010000018bd50d4aa00000018bcfe56804ffffffffffffffffffffffffffff000000011600b78abf52020261023200";

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn joined(parts: &[&str]) -> Vec<u8> {
    parts.iter().flat_map(|hex| bytes(hex)).collect()
}

fn log_path(base: i64, suffix: &str) -> String {
    format!("{DIRECTORY}/{base:020}{suffix}")
}

fn put(disk: &SimDisk, base: i64, log: &[u8], modified: i64) {
    disk.clock().set(TimestampMs::new(modified));
    disk.write_file(log_path(base, ".log"), log);
}

fn config() -> LogConfig {
    LogConfig {
        cleanup_policy: CleanupPolicy { delete: false, compact: true },
        min_cleanable_dirty_ratio: 0.0,
        producer_id_expiration_ms: i32::MAX as u64,
        ..LogConfig::default()
    }
}

fn open(disk: &SimDisk, config: LogConfig) -> Arc<Partition> {
    let directory = disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory is there");
    let name = TopicPartition { topic: "t".to_owned(), partition: 0 };
    Arc::new(
        Partition::open(directory, None, name, config, disk.clock(), Arc::new(OpenSegments::new(10)), false).expect("it can be opened"),
    )
}

fn compact(partition: &Arc<Partition>) -> Result<Outcome> {
    let mut exclusively = |work: &mut dyn FnMut()| {
        work();
        Ok(())
    };
    run(partition, Mode::Real { durable: Offset::MAX, exclusively: &mut exclusively }, &mut |_, _| true)
}

fn example() -> SimDisk {
    let disk = SimDisk::new();
    put(&disk, 0, &joined(&FIRST), 1_700_000_001_000);
    disk.write_file(log_path(7, ".snapshot"), b"state");
    put(&disk, 7, &joined(&SECOND), 1_700_000_002_000);
    put(&disk, 11, &bytes(ACTIVE), 1_700_000_002_500);
    disk
}

/// Appends `z=2` at offset 12 into a segment of its own.
fn go_on(disk: &SimDisk) {
    put(disk, 11, &bytes(ACTIVE), 1_700_000_003_000);
    let mut log = Vec::new();
    let mut encoder = BatchEncoder::new(&mut log, &Encoding::default());
    encoder.push(&NewRecord { timestamp: TimestampMs::new(1_700_000_000_012), key: Some(b"z"), value: Some(b"2"), headers: &[] });
    encoder.finish(usize::MAX).expect("a small batch");
    batch::assign(&mut log, Offset::new(12).expect("an offset"), 5);
    put(disk, 12, &log, 1_700_000_003_500);
}

#[test]
fn the_worked_example_to_the_byte() {
    let disk = example();
    disk.clock().set(TimestampMs::new(1_700_000_100_000));
    let partition = open(&disk, config());
    let outcome = compact(&partition).expect("a sound log");
    assert_eq!(outcome.compacted_to, Offset::new(11));
    assert_eq!((outcome.segments, outcome.bytes, outcome.kept), ((2, 1), (462, 355), 5));
    assert_eq!(outcome.gone, Gone { outdated: 4, keyless: 2, ..Gone::default() });
    let file = |base, suffix| disk.read_file(log_path(base, suffix));
    assert_eq!(file(0, ".log"), Some(joined(&AFTER)));
    assert_eq!(file(0, ".index"), Some(Vec::new()));
    assert_eq!(file(0, ".timeindex"), Some(bytes("0000018bcfe5680a0000000a")));
    assert_eq!(disk.read_file(format!("{DIRECTORY}/cleaner-offset-checkpoint")), Some(b"0\n1\nt 0 11\n".to_vec()));
    let names = disk.list(DIRECTORY);
    for gone in [".log.deleted", ".snapshot.deleted"] {
        assert!(names.contains(&format!("{:020}{gone}", 7)), "{names:?}");
    }
    assert_eq!(partition.layout().segments.iter().map(|s| s.base_offset().get()).collect::<Vec<_>>(), [0, 11]);
    let modified = |suffix: &str| partition.directory().metadata(names::of(Offset::ZERO, suffix).as_ref()).expect("a file").mtime_ns;
    for suffix in [names::LOG, names::INDEX, names::TIME_INDEX] {
        assert_eq!(modified(suffix), 1_700_000_002_000 * 1_000_000, "{suffix}");
    }
    assert!(!compact(&partition).expect("nothing to do").plan.due);

    go_on(&disk);
    for (now, first) in [(1_700_086_499_999, AFTER[0]), (1_700_086_500_000, TOMBSTONE_GONE)] {
        let disk = disk.crash(&mut |_| 1);
        disk.clock().set(TimestampMs::new(now));
        let outcome = compact(&open(&disk, config())).expect("a sound log");
        assert_eq!(outcome.compacted_to, Offset::new(12));
        let log = joined(&[first, AFTER[1], AFTER[2], AFTER[3], ACTIVE]);
        assert_eq!(disk.read_file(log_path(0, ".log")), Some(log), "at {now}");
        assert_eq!(disk.read_file(log_path(0, ".timeindex")), Some(bytes("0000018bcfe5680b0000000b")));
        assert_eq!(disk.read_file(format!("{DIRECTORY}/cleaner-offset-checkpoint")), Some(b"0\n1\nt 0 12\n".to_vec()));
    }
}

#[test]
fn a_producer_that_is_forgotten_keeps_nothing() {
    let disk = example();
    disk.clock().set(TimestampMs::new(1_700_000_000_007 + 1000));
    for (expiration_ms, kept) in [(1000, false), (1001, true)] {
        let disk = disk.crash(&mut |_| 1);
        compact(&open(&disk, LogConfig { producer_id_expiration_ms: expiration_ms, ..config() })).expect("a sound log");
        let log = disk.read_file(log_path(0, ".log")).expect("a log");
        assert_eq!(log.windows(61).any(|window| window == bytes(AFTER[2])), kept, "after {expiration_ms} ms");
    }
}

/// A snapshot: of each producer its id, its last offset of data, when it wrote, and since when it has a transaction (-1: it has none).
fn snapshot(producers: &[(i64, i64, i64, i64)]) -> Vec<u8> {
    let mut body = (producers.len() as i32).to_be_bytes().to_vec();
    for (id, last_data, timestamp, open_since) in producers {
        body.extend(
            [&id.to_be_bytes()[..], &0_i16.to_be_bytes(), &0_i32.to_be_bytes(), &last_data.to_be_bytes(), &0_i32.to_be_bytes()].concat(),
        );
        body.extend([&timestamp.to_be_bytes()[..], &0_i32.to_be_bytes(), &open_since.to_be_bytes()].concat());
    }
    [&1_i16.to_be_bytes()[..], &crc32c::crc32c(&body).to_be_bytes(), &body].concat()
}

/// Compaction gives a batch the largest time of what it leaves in it, and a marker that was emptied tells nothing of its producer: a snapshot knows.
#[test]
fn a_producer_whom_a_snapshot_knows_keeps_its_last_batch() {
    let forgotten = LogConfig { producer_id_expiration_ms: 1000, ..config() };
    for (written, kept) in [(None, false), (Some(1_700_000_099_000), false), (Some(1_700_000_099_001), true)] {
        let disk = example();
        if let Some(written) = written {
            disk.write_file(log_path(11, ".snapshot"), &snapshot(&[(1, 7, written, -1), (99, -1, written, -1)]));
        }
        disk.clock().set(TimestampMs::new(1_700_000_100_000));
        compact(&open(&disk, forgotten.clone())).expect("a sound log");
        let log = disk.read_file(log_path(0, ".log")).expect("a log");
        assert_eq!(log.windows(61).any(|window| window == bytes(AFTER[2])), kept, "written at {written:?}");
    }
    // Who is not in a snapshot was forgotten; one that cannot be read says nothing.
    for (snapshot, kept) in [(snapshot(&[]), false), (b"state".to_vec(), true)] {
        let disk = example();
        disk.write_file(log_path(11, ".snapshot"), &snapshot);
        disk.clock().set(TimestampMs::new(1_700_000_100_000));
        compact(&open(&disk, config())).expect("a sound log");
        let log = disk.read_file(log_path(0, ".log")).expect("a log");
        assert_eq!(log.windows(61).any(|window| window == bytes(AFTER[2])), kept, "{snapshot:?}");
    }
    // The marker of a transaction without records, emptied before: only the snapshot has its producer.
    let mut marker = bytes(AFTER[2]);
    marker[batch::ATTRIBUTES + 1] |= 0x30;
    marker[batch::PRODUCER_ID + 7] = 99;
    let crc = crc32c::crc32c(&marker[batch::ATTRIBUTES..]);
    marker[batch::CRC..batch::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    for (known, kept) in [(false, false), (true, true)] {
        let disk = example();
        let mut log = marker.clone();
        log.extend(bytes(SECOND[1]).into_iter().chain(bytes(SECOND[2])));
        put(&disk, 7, &log, 1_700_000_002_000);
        if known {
            disk.write_file(log_path(11, ".snapshot"), &snapshot(&[(99, -1, 1_700_000_000_007, -1)]));
        }
        disk.clock().set(TimestampMs::new(1_700_000_100_000));
        compact(&open(&disk, config())).expect("a sound log");
        let log = disk.read_file(log_path(0, ".log")).expect("a log");
        assert_eq!(log.windows(61).any(|window| window == marker), kept, "known: {known}");
    }
}

/// Retention may have taken the records of a transaction that still may come to an end.
#[test]
fn an_open_transaction_that_only_a_snapshot_knows_is_waited_for() {
    let disk = example();
    disk.clock().set(TimestampMs::new(1_700_000_100_000));
    disk.write_file(log_path(11, ".snapshot"), &snapshot(&[(5, 5, 1_700_000_000_000, 5)]));
    let outcome = compact(&open(&disk, config())).expect("a sound log");
    assert_eq!((outcome.plan.first_uncleanable.get(), outcome.compacted_to), (0, None));
}

#[test]
fn it_is_refused_where_nobody_asked_for_it_or_the_log_is_damaged() {
    let disk = example();
    let before = disk.list(DIRECTORY);
    let refused = compact(&open(&disk, LogConfig { cleanup_policy: CleanupPolicy::default(), ..config() }));
    assert!(matches!(&refused, Err(error) if error.to_string().contains("cleanup.policy=compact")), "{refused:?}");
    for (base, at) in [(0, 80), (7, 100), (7, 150)] {
        let disk = disk.crash(&mut |_| 1);
        let mut log = disk.read_file(log_path(base, ".log")).expect("a log");
        log[at] ^= 1;
        disk.write_file(log_path(base, ".log"), &log);
        let refused = compact(&open(&disk, config()));
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{base} {at}: {refused:?}");
        assert_eq!(disk.list(DIRECTORY), before, "nothing is left of it");
        assert_eq!(disk.read_file(log_path(base, ".log")), Some(log));
    }
}

#[test]
fn a_small_map_takes_several_passes() {
    let disk = example();
    disk.clock().set(TimestampMs::new(1_700_000_100_000));
    // Three slots, of which two are used.
    let config = LogConfig { dedupe_buffer_size: 72, ..config() };
    let mut compacted = Vec::new();
    let mut keys = Vec::new();
    loop {
        let partition = open(&disk, config.clone());
        let outcome = compact(&partition).expect("a sound log");
        let Some(end) = outcome.compacted_to else { break };
        compacted.push(end.get());
        keys.push(outcome.kept);
        if compacted.len() > 20 {
            break;
        }
    }
    assert!(compacted.len() > 1 && compacted.is_sorted() && compacted.last() == Some(&11), "{compacted:?} {keys:?}");
    let log = disk.read_file(log_path(0, ".log")).expect("a log");
    // e=1 and b=2 are outdated by later records, whatever the number of passes.
    assert_eq!(log.len(), joined(&AFTER).len(), "{compacted:?}");
}

#[test]
fn a_dry_run_says_the_same_and_touches_nothing() {
    let disk = example();
    disk.clock().set(TimestampMs::new(1_700_000_100_000));
    let before: Vec<_> = disk.list(DIRECTORY).into_iter().map(|name| (disk.read_file(format!("{DIRECTORY}/{name}")), name)).collect();
    let partition = open(&disk, config());
    let measured = run(&partition, Mode::DryRun, &mut |_, _| true).expect("a sound log");
    let after: Vec<_> = disk.list(DIRECTORY).into_iter().map(|name| (disk.read_file(format!("{DIRECTORY}/{name}")), name)).collect();
    assert_eq!(before, after);
    assert_eq!(measured, compact(&partition).expect("a sound log"));
}

#[test]
fn young_records_wait_and_old_ones_are_due() {
    let disk = example();
    disk.clock().set(TimestampMs::new(1_700_000_000_007 + 100));
    let plan_of = |config: LogConfig| plan(&open(&disk, config)).expect("a plan");
    let all = plan_of(config());
    assert_eq!((all.first_dirty.get(), all.first_uncleanable.get(), all.clean_bytes, all.dirty_bytes, all.due), (0, 11, 0, 462, true));
    // The first segment's newest record is 101 ms old, the second's 97 ms.
    for (lag_ms, first, due) in [(97, 11, true), (98, 7, true), (101, 7, true), (102, 0, false)] {
        let plan = plan_of(LogConfig { min_compaction_lag_ms: lag_ms, ..config() });
        assert_eq!((plan.first_uncleanable.get(), plan.due), (first, due), "min.compaction.lag.ms={lag_ms}");
    }
    // Its first batch's newest is 105 ms old.
    for (lag_ms, due) in [(104, true), (105, false), (i64::MAX as u64, false)] {
        let plan = plan_of(LogConfig { min_cleanable_dirty_ratio: 1.0, max_compaction_lag_ms: lag_ms, ..config() });
        assert_eq!(plan.due, due, "max.compaction.lag.ms={lag_ms}: {}", plan.why);
    }
}
