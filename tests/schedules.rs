//! The engine's own code under a scheduler that tries the orders in which its threads may run: what readers see of a writer, and what a group commit
//! answers whom.
//!
//! It needs the feature `shuttle` (`cargo test --features shuttle --test schedules`), which puts the scheduler's locks, waits, atomics and threads into
//! `io::sync`; the disk is the simulated one, whose every operation is a place to switch at. Each test runs 1,000 schedules at random and 1,000 with
//! few, well placed switches (PCT, depth 3); `OFFSETFS_SCHEDULES` asks for another number. A schedule in which somebody waits for ever is a failure, too.
//! What is not tried: orders in which a processor may see the stores of another, beyond one after the other.

use offsetfs::error::Error;
use offsetfs::io::sim::{Fault, SimDisk};
use offsetfs::log::commit::Committer;
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::NewRecord;
use offsetfs::log::partition::Partition;
use offsetfs::log::prepare::{Prepared, prepare};
use offsetfs::log::seek::Found;
use offsetfs::log::segment::OpenSegments;
use offsetfs::log::walk::{Item, Look};
use offsetfs::log::writer::Writer;
use offsetfs::source::Source;
use offsetfs::source::local::{self, Local};
use offsetfs::types::{Offset, Patience, TimestampMs, TopicPartition};
use offsetfs::view::path::Lines;
use offsetfs::view::time::Zone;
use offsetfs::view::{Options, Span, View};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::mpsc;
use shuttle::{Config, Runner, thread};
use std::path::Path;
use std::sync::Arc;

/// So many schedules of each kind are tried where nobody asks for more.
const SCHEDULES: usize = 1_000;
const DIRECTORY: &str = "/t-0";

fn in_many_orders(test: impl Fn() + Send + Sync + 'static) {
    let asked = std::env::var("OFFSETFS_SCHEDULES").ok().map(|text| text.parse().expect("OFFSETFS_SCHEDULES is a number"));
    let count = asked.unwrap_or(SCHEDULES);
    let test = Arc::new(test);
    fn run(scheduler: impl Scheduler + 'static, test: Arc<impl Fn() + Send + Sync + 'static>) {
        let mut config = Config::new();
        // Of a stack of 32 KiB, the usual one here, the engine's look-ups would take the most part.
        config.stack_size = 512 << 10;
        Runner::new(scheduler, config).run(move || test());
    }
    run(RandomScheduler::new(count), test.clone());
    run(PctScheduler::new(3, count), test);
}

/// Segments of about three requests, and an index entry for each batch.
fn config() -> LogConfig {
    LogConfig { segment_bytes: 300, index_interval_bytes: 1, segment_index_bytes: 256, ..LogConfig::default() }
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.filesystem().create_dir(Path::new(DIRECTORY)).expect("a new directory");
    disk
}

fn partition(disk: &SimDisk) -> Arc<Partition> {
    let directory = disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory is there");
    let name = TopicPartition { topic: "t".to_owned(), partition: 0 };
    let opened = Arc::new(OpenSegments::new(8));
    Arc::new(Partition::open(directory, None, name, config(), disk.clock(), opened, false).expect("it can be opened"))
}

fn request(partition: &Partition, time: i64, values: &[String]) -> Prepared {
    let time = TimestampMs::new(time);
    let mut records = values.iter().map(|v| NewRecord { timestamp: time, key: None, value: Some(v.as_bytes()), headers: &[] });
    prepare(partition.config(), time, &mut records).expect("small records")
}

fn value_at(partition: &Partition, offset: i64) -> Option<String> {
    match partition.record(Offset::new(offset).expect("not negative"), Patience::MayBlock).expect("a look-up") {
        Found::Record(record) => Some(String::from_utf8(record.value().expect("a value").to_vec()).expect("text")),
        Found::Absent(_) => None,
    }
}

/// The log as it is after the machine lost everything that was not synced.
fn after_power_cut(disk: &SimDisk) -> Arc<Partition> {
    partition(&disk.crash(&mut |_| 0))
}

#[test]
fn readers_see_whole_records_up_to_the_published_end_over_rolls() {
    in_many_orders(|| {
        const REQUESTS: i64 = 5;
        const END: i64 = 2 * REQUESTS;
        let disk = disk();
        let partition = partition(&disk);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let partition = partition.clone();
                thread::spawn(move || {
                    let mut seen = 0;
                    while seen < END {
                        let end = partition.bounds().log_end.get();
                        assert!(end >= seen, "the end never moves back");
                        if end == seen {
                            thread::yield_now();
                            continue;
                        }
                        for offset in [seen, end - 1] {
                            assert_eq!(value_at(&partition, offset), Some(format!("value {offset}")), "below the end {end}");
                        }
                        // The time of a record leads to it: all times rise.
                        let time = TimestampMs::new(1000 + (end - 1) / 2);
                        let first = partition.first_at(time, Patience::MayBlock, &mut |_, _| true).expect("a look-up");
                        assert_eq!(first.map(|offset| offset.get() / 2), Some((end - 1) / 2), "time {time}");
                        let mut walk =
                            partition.walk(Offset::ZERO, Offset::new(end).expect("not negative"), Look::Batches, Patience::MayBlock);
                        let mut next = 0;
                        while let Some(item) = walk.next(&partition).expect("a step") {
                            let Item::Batch(batch, _) = item else { panic!("{item:?}") };
                            assert_eq!(batch.header.base_offset.get(), next, "no batch is passed over");
                            next = batch.header.next_offset().get();
                        }
                        assert!(next >= end, "a walk comes to the end");
                        seen = end;
                    }
                })
            })
            .collect();
        let (mut writer, _) = Writer::open(partition.clone()).expect("a writer");
        let mut sealing = Vec::new();
        for number in 0..REQUESTS {
            let values = [2 * number, 2 * number + 1].map(|n| format!("value {n}"));
            let (whole, stopped) = writer.append(&mut [request(&partition, 1000 + number, &values)]);
            assert_eq!((whole, stopped.is_none()), (1, true));
            // Sealed beside the appends, as the syncer does it: indexes are trimmed while readers look into them.
            for rolled in writer.take_rolled() {
                sealing.push(thread::spawn(move || rolled.run().expect("a seal")));
            }
        }
        for thread in readers.into_iter().chain(sealing) {
            thread.join().expect("no panic");
        }
        writer.close().expect("a clean close");
    });
}

/// Appends and waits for the answer. An answer that promises durability is tested at the moment it is given, on the thread that gives it.
fn append(committer: &Committer, partition: &Partition, disk: &SimDisk, value: String, durable: bool) -> Result<i64, Error> {
    let (sender, receiver) = mpsc::channel();
    let prepared = request(partition, 1000, std::slice::from_ref(&value));
    let disk = disk.clone();
    let done = move |answer: Result<offsetfs::log::commit::Appended, Error>| {
        if let (Ok(appended), true) = (&answer, durable) {
            let found = value_at(&after_power_cut(&disk), appended.first.get());
            assert_eq!(found, Some(value), "what was acknowledged as durable is on the disk");
        }
        sender.send(answer.map(|appended| appended.first.get())).expect("who appended waits");
    };
    committer.append(prepared, durable, Box::new(done));
    receiver.recv().expect("every append is answered")
}

/// Syncs and waits for the answer.
fn sync(committer: &Committer) -> Result<(), Error> {
    let (sender, receiver) = mpsc::channel();
    committer.sync(Box::new(move |answer| sender.send(answer).expect("who syncs waits")));
    receiver.recv().expect("every sync is answered")
}

#[test]
fn every_append_is_answered_and_what_is_said_to_be_durable_is() {
    in_many_orders(|| {
        let disk = disk();
        let partition = partition(&disk);
        let committer = Arc::new(Committer::new(partition.clone(), None).expect("threads"));
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (committer, partition, disk) = (committer.clone(), partition.clone(), disk.clone());
                thread::spawn(move || {
                    let mut offsets = Vec::new();
                    for number in 0..2 {
                        let value = format!("{writer}/{number}");
                        let offset = append(&committer, &partition, &disk, value.clone(), writer != number).expect("an append");
                        assert_eq!(value_at(&partition, offset), Some(value), "an answered append can be read");
                        offsets.push(offset);
                    }
                    sync(&committer).expect("a sync");
                    let synced = after_power_cut(&disk);
                    for (number, offset) in (0..).zip(&offsets) {
                        assert_eq!(
                            value_at(&synced, *offset),
                            Some(format!("{writer}/{number}")),
                            "a sync covers what was answered before"
                        );
                    }
                    offsets
                })
            })
            .collect();
        let roller = {
            let committer = committer.clone();
            thread::spawn(move || committer.roll().map(drop).expect("a roll"))
        };
        let mut offsets: Vec<i64> = writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect();
        roller.join().expect("no panic");
        offsets.sort_unstable();
        assert_eq!(offsets, (0..6).collect::<Vec<_>>(), "every offset is given once");
        committer.close().expect("a clean close");
        assert_eq!(after_power_cut(&disk).bounds().log_end.get(), 6, "what was closed well is on the disk");
    });
}

#[test]
fn what_is_called_durable_is_though_the_log_rolls_meanwhile() {
    in_many_orders(|| {
        let disk = disk();
        let partition = partition(&disk);
        let committer = Arc::new(Committer::new(partition.clone(), None).expect("threads"));
        let appender = {
            let (committer, partition, disk) = (committer.clone(), partition.clone(), disk.clone());
            thread::spawn(move || {
                for number in 0..3 {
                    append(&committer, &partition, &disk, format!("value {number}"), false).expect("an append");
                    committer.roll().expect("a roll");
                }
            })
        };
        for _ in 0..2 {
            let durable = committer.make_durable().expect("nothing fails").get();
            let after = after_power_cut(&disk);
            assert!(after.bounds().log_end.get() >= durable, "what is called durable below {durable} is on the disk");
            for offset in 0..durable {
                assert_eq!(
                    value_at(&after, offset),
                    Some(format!("value {offset}")),
                    "what is called durable below {durable} is on the disk"
                );
            }
        }
        appender.join().expect("no panic");
        committer.close().expect("a clean close");
    });
}

#[test]
fn a_failed_sync_reaches_all_that_wait_and_nothing_is_acknowledged_behind_it() {
    in_many_orders(|| {
        let disk = disk();
        let partition = partition(&disk);
        let committer = Arc::new(Committer::new(partition.clone(), None).expect("threads"));
        append(&committer, &partition, &disk, "first".to_owned(), true).expect("the disk works");
        disk.fail_at(thread_rng().gen_range(1..30), Fault::Io);
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (committer, partition, disk) = (committer.clone(), partition.clone(), disk.clone());
                thread::spawn(move || {
                    for number in 0..2 {
                        let refused = committer.poisoned().is_some();
                        // That an answer of success is true is tested where it is given.
                        let answer = append(&committer, &partition, &disk, format!("{writer}/{number}"), true);
                        assert!(!refused || matches!(answer, Err(Error::Poisoned { .. })), "{answer:?} behind a failed sync");
                        if let Ok(offset) = answer {
                            assert_eq!(value_at(&partition, offset), Some(format!("{writer}/{number}")));
                        }
                        if refused {
                            assert!(matches!(sync(&committer), Err(Error::Poisoned { .. })), "a sync behind a failed one proves nothing");
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("no panic");
        }
        let poisoned = committer.poisoned().is_some();
        let closed = committer.close();
        assert!(!poisoned || closed.is_err(), "a log with a failed sync is not closed well");
        assert_eq!(value_at(&partition, 0), Some("first".to_owned()), "the log stays readable");
    });
}

#[test]
fn a_close_beside_appends_and_syncs_leaves_nobody_waiting() {
    in_many_orders(|| {
        let disk = disk();
        let partition = partition(&disk);
        let committer = Arc::new(Committer::new(partition.clone(), None).expect("threads"));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (committer, partition, disk) = (committer.clone(), partition.clone(), disk.clone());
                thread::spawn(move || {
                    let mut kept = Vec::new();
                    for number in 0..2 {
                        let value = format!("{writer}/{number}");
                        match append(&committer, &partition, &disk, value.clone(), number == 0) {
                            Ok(offset) => kept.push((offset, value)),
                            Err(error) => assert!(matches!(error, Error::Closed), "{error}"),
                        }
                        match sync(&committer) {
                            Ok(()) | Err(Error::Closed) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    kept
                })
            })
            .collect();
        committer.close().expect("a clean close");
        let kept: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect();
        let reopened = after_power_cut(&disk);
        for (offset, value) in kept {
            assert_eq!(value_at(&reopened, offset), Some(value), "what was answered before a clean close is on the disk");
        }
    });
}

#[test]
fn a_follower_gets_every_line_once_while_the_log_rolls() {
    in_many_orders(|| {
        let disk = disk();
        let options = local::Options { create: true, config: config(), ..local::Options::default() };
        let source: Arc<dyn Source> = Arc::new(Local::open(&disk.filesystem(), Path::new(DIRECTORY), options).expect("a partition"));
        let view = View::new(source.clone(), Options { zone: Zone::utc(), ..Options::default() });
        let reader = view.follow(Span { from: Offset::ZERO, until: Offset::MAX, lines: Lines::Values });
        const LINES: usize = 6;
        let expected: String = (0..LINES).map(|number| format!("line {number}\n")).collect();
        let writer = {
            let source = source.clone();
            thread::spawn(move || {
                for number in 0..LINES {
                    let value = format!("line {number}");
                    let record = NewRecord { timestamp: TimestampMs::new(1000), key: None, value: Some(value.as_bytes()), headers: &[] };
                    let (sender, receiver) = mpsc::channel();
                    let done = Box::new(move |answer: Result<_, Error>| sender.send(answer.map(drop)).expect("who appended waits"));
                    source.append(&mut std::iter::once(record), number % 2 == 0, done).expect("a record");
                    receiver.recv().expect("an answer").expect("an append");
                }
            })
        };
        let mut got = Vec::new();
        let mut buffer = [0; 40];
        while got.len() < expected.len() {
            match reader.read(got.len() as u64, &mut buffer, Patience::MayBlock).expect("no file is damaged") {
                0 => thread::yield_now(),
                n => got.extend(&buffer[..n]),
            }
            assert!(expected.as_bytes().starts_with(&got), "{}", got.escape_ascii());
        }
        writer.join().expect("no panic");
        source.close().expect("a clean close");
        assert_eq!(reader.read(got.len() as u64, &mut buffer, Patience::MayBlock).expect("no file is damaged"), 0, "nothing comes twice");
    });
}
