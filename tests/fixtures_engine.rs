//! Every partition that a real Kafka wrote, read through the local engine and compared with what Kafka's own consumer and broker said of it.
//!
//! Nothing is mounted: the questions are those that the tree asks of a source. The same is asked of the directory as a clean stop left it and as
//! a `kill -9` left it.

mod common;

use common::fixtures::{Answer, Facts, answers, facts, fixtures, partitions};
use common::partition::PartitionDir;
use offsetfs::error::Error;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::{Isolation, LogConfig};
use offsetfs::log::prepare::prepare;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Absent, Found, NewRecord, Record, Source};
use offsetfs::types::{Offset, Patience, TimestampMs, TimestampType};
use offsetfs::view::{Node, View};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// Every partition in both states; the old formats, which no broker served, are there in one only.
fn states() -> Vec<(&'static str, String)> {
    let both = ["data", "unclean"].into_iter().flat_map(|state| partitions().into_iter().map(move |partition| (state, partition)));
    let states: Vec<_> = both.filter(|(state, partition)| fixtures().join(state).join(partition).is_dir()).collect();
    assert_eq!(states.len(), 30 + 27);
    states
}

fn offset(number: i64) -> Offset {
    Offset::new(number).expect("the answers have no negative offset")
}

fn open(state: &str, partition: &str, isolation: Isolation) -> Local {
    let filesystem: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let path: PathBuf = fixtures().join(state).join(partition);
    let config = LogConfig { isolation, ..LogConfig::default() };
    let options = Options { wish: Wish::ReadOnly, create: false, config };
    Local::open(&filesystem, &path, options).unwrap_or_else(|error| panic!("{state}/{partition}: {error}"))
}

/// A record in the words of an answer.
fn answer_of(record: &Record) -> Answer {
    let timestamp_type = match record.reference.timestamp_type {
        TimestampType::None => "NoTimestampType",
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the fixtures' header names are text");
    Answer {
        offset: record.offset().get(),
        timestamp: record.timestamp().get(),
        timestamp_type: timestamp_type.to_owned(),
        leader_epoch: record.header.partition_leader_epoch,
        key: record.key().map(<[u8]>::to_vec),
        value: record.value().map(<[u8]>::to_vec),
        headers: record.headers().map(|(name, value)| (text(name), value.map(<[u8]>::to_vec))).collect(),
    }
}

fn everything(source: &Local, from: i64, until: i64) -> Vec<Answer> {
    let mut batches = source.batches(offset(from), offset(until));
    let mut found = Vec::new();
    while let Some(body) = batches.next(Patience::MayBlock).expect("the fixtures are sound") {
        for record in body.records() {
            let record = body.record(record.expect("the fixtures are sound"));
            if (from..until).contains(&record.offset().get()) {
                found.push(answer_of(&record));
            }
        }
    }
    found
}

/// Asks once as a caller that cannot wait, and again, as it would, as one that can.
fn record(source: &Local, number: i64) -> Found {
    match source.record(offset(number), Patience::AtOnce) {
        Err(Error::WouldBlock) => source.record(offset(number), Patience::MayBlock).expect("the fixtures are sound"),
        found => found.expect("the fixtures are sound"),
    }
}

fn for_every_partition(ask: fn(&str, &str, &[Answer], Option<&Facts>)) {
    for (state, partition) in states() {
        ask(state, &partition, &answers(&partition), facts(&partition).as_ref());
    }
}

/// The offsets that the broker named; of what no broker served, those of the records.
fn ends(answers: &[Answer], facts: Option<&Facts>) -> (i64, i64) {
    match facts {
        Some(facts) => (facts.log_start_offset, facts.log_end_offset),
        None => (0, answers.last().expect("old directories have records").offset + 1),
    }
}

#[test]
fn every_record_stands_at_its_offset_and_nothing_in_the_holes() {
    for_every_partition(|state, partition, answers, facts| {
        let source = open(state, partition, Isolation::ReadUncommitted);
        let (start, end) = ends(answers, facts);
        let mut answers = answers.iter().peekable();
        for number in 0..end + 3 {
            let found = record(&source, number);
            match answers.next_if(|answer| answer.offset == number) {
                Some(answer) => match found {
                    Found::Record(record) => assert_eq!(answer_of(&record), *answer, "{state}/{partition}"),
                    Found::Absent(absent) => panic!("{state}/{partition}: no record at {number}: {absent:?}"),
                },
                None => match found {
                    Found::Absent(Absent::BeforeLogStart(from)) => {
                        assert!(number < start && from.get() == start, "{state}/{partition} {number}")
                    }
                    Found::Absent(Absent::BeyondLogEnd(from)) => {
                        assert!(number >= end && from.get() == end, "{state}/{partition} {number}")
                    }
                    Found::Absent(Absent::Gap | Absent::Control) => assert!((start..end).contains(&number), "{state}/{partition} {number}"),
                    found => panic!("{state}/{partition}: {found:?} at {number}"),
                },
            }
        }
        assert_eq!(answers.next(), None);
    });
}

#[test]
fn the_bounds_are_the_brokers() {
    for_every_partition(|state, partition, answers, facts| {
        let source = open(state, partition, Isolation::ReadUncommitted);
        let bounds = source.bounds(Patience::MayBlock).expect("bounds");
        assert_eq!((bounds.log_start.get(), bounds.log_end.get()), ends(answers, facts), "{state}/{partition}");
        let status = source.status(Patience::MayBlock).expect("status");
        let Some(facts) = facts else { return };
        let told = (status.log_start_offset, status.log_end_offset, status.last_stable_offset);
        assert_eq!(told, (facts.log_start_offset, facts.log_end_offset, facts.last_stable_offset), "{state}/{partition}");
        assert_eq!(status.open_transactions.is_empty(), facts.last_stable_offset == facts.log_end_offset, "{state}/{partition}");
        assert!(status.recovery.is_empty(), "{state}/{partition}: nothing will be recovered by a reader: {:?}", status.recovery);
        let times = (answers.first().map(|a| a.timestamp), answers.last().map(|a| a.timestamp));
        let time = |time: Option<TimestampMs>| time.map(TimestampMs::get);
        assert_eq!((time(status.first_timestamp), time(status.last_timestamp)), times, "{state}/{partition}");
    });
}

#[test]
fn ranges_give_the_records_between_their_ends() {
    for_every_partition(|state, partition, answers, facts| {
        let source = open(state, partition, Isolation::ReadUncommitted);
        let (start, end) = ends(answers, facts);
        let all = answers;
        // Not by assert_eq: a difference would print two whole logs.
        assert!(everything(&source, start, end) == all, "{state}/{partition}");
        assert!(everything(&source, start, i64::MAX) == all, "{state}/{partition}");
        let step = ((end - start) / 17).max(1);
        let mut from = start;
        while from < end {
            for until in [from, from + 1, from + step, from + 3 * step + 1, end] {
                let want: Vec<&Answer> = all.iter().filter(|answer| (from..until).contains(&answer.offset)).collect();
                let got = everything(&source, from, until);
                assert!(got.iter().eq(want), "{state}/{partition} {from}..{until}");
            }
            from += step;
        }
    });
}

#[test]
fn readers_of_committed_records_see_what_kafkas_do() {
    for_every_partition(|state, partition, answers, facts| {
        let Some(facts) = facts else { return };
        let source = open(state, partition, Isolation::ReadCommitted);
        let bounds = source.bounds(Patience::MayBlock).expect("bounds");
        assert_eq!(bounds.log_end.get(), facts.last_stable_offset, "{state}/{partition}");
        let got: Vec<i64> = everything(&source, bounds.log_start.get(), bounds.log_end.get()).iter().map(|answer| answer.offset).collect();
        assert_eq!(got, facts.committed_offsets, "{state}/{partition}");
        for answer in answers {
            let committed = facts.committed_offsets.binary_search(&answer.offset).is_ok();
            match record(&source, answer.offset) {
                Found::Record(_) => assert!(committed, "{state}/{partition} {}", answer.offset),
                Found::Absent(Absent::NotCommitted) => assert!(!committed, "{state}/{partition} {}", answer.offset),
                found => panic!("{state}/{partition}: {found:?} at {}", answer.offset),
            }
        }
        let mut listed = Vec::new();
        let mut sink = |found: Offset| {
            listed.push(found.get());
            true
        };
        source.offsets(Offset::ZERO, Patience::MayBlock, &mut sink).expect("a listing");
        assert_eq!(listed, facts.committed_offsets, "{state}/{partition}");
        for (k, want) in (1..).zip(facts.committed_offsets.iter().rev()) {
            let got = source.nth_last(k, Patience::MayBlock).expect("an answer");
            assert_eq!(got.map(Offset::get), Some(*want), "{state}/{partition} -{k}");
        }
    });
}

#[test]
fn the_listing_has_every_record_once() {
    for_every_partition(|state, partition, answers, _| {
        let source = open(state, partition, Isolation::ReadUncommitted);
        let offsets: Vec<i64> = answers.iter().map(|answer| answer.offset).collect();
        let list = |from: i64, most: usize| {
            let mut listed = Vec::new();
            let mut sink = |found: Offset| {
                listed.push(found.get());
                listed.len() < most
            };
            source.offsets(offset(from), Patience::MayBlock, &mut sink).expect("a listing");
            listed
        };
        assert_eq!(list(0, usize::MAX), offsets, "{state}/{partition}");
        for at in (0..offsets.len()).step_by(13) {
            assert_eq!(list(offsets[at], 5), offsets[at..(at + 5).min(offsets.len())], "{state}/{partition} from {}", offsets[at]);
            assert_eq!(list(offsets[at] + 1, usize::MAX), offsets[at + 1..], "{state}/{partition} behind {}", offsets[at]);
        }
        let first = source.first(Patience::MayBlock).expect("an answer").map(Offset::get);
        assert_eq!(first, offsets.first().copied(), "{state}/{partition}");
    });
}

#[test]
fn the_last_records_are_counted_in_records() {
    for_every_partition(|state, partition, answers, _| {
        let source = open(state, partition, Isolation::ReadUncommitted);
        for (k, answer) in (1..).zip(answers.iter().rev()) {
            let got = source.nth_last(k, Patience::MayBlock).expect("an answer");
            assert_eq!(got.map(Offset::get), Some(answer.offset), "{state}/{partition} -{k}");
        }
        for beyond in [answers.len() as u64 + 1, answers.len() as u64 + 1000, u64::MAX] {
            assert_eq!(source.nth_last(beyond, Patience::MayBlock).expect("an answer"), None, "{state}/{partition} -{beyond}");
        }
    });
}

#[test]
fn times_lead_to_the_records_that_kafka_names() {
    let mut asked = 0;
    for (state, partition) in states() {
        let Some(facts) = facts(&partition) else { continue };
        let answers = answers(&partition);
        let source = open(state, &partition, Isolation::ReadUncommitted);
        // Twice, in both directions: what the first pass remembers must not change the second one's answers.
        for (time, from, _) in facts.first_at_or_after.iter().rev().chain(&facts.first_at_or_after) {
            // Kafka may name a control record, or nothing where the first segment that is late enough lies below the log start: the first
            // record shown from there on counts.
            let want = answers.iter().find(|answer| answer.offset >= *from && answer.timestamp >= *time).map(|answer| answer.offset);
            let got = source.offset_at(TimestampMs::new(*time), Patience::MayBlock).expect("an answer");
            assert_eq!(got.map(Offset::get), want, "{state}/{partition} at {time}");
            asked += 1;
        }
    }
    assert!(asked > 1000, "{asked} questions");
}

#[test]
fn every_time_that_is_listed_leads_to_a_record() {
    for (state, partition) in states() {
        for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
            let view = View::new(Arc::new(open(state, &partition, isolation)), offsetfs::view::Options::default());
            let times = view.resolve(b"by-time", Patience::MayBlock).expect("a directory");
            let mut names = Vec::new();
            let mut sink = |name: &[u8], _, _: Option<&Node>, _| {
                names.push(name.to_vec());
                true
            };
            view.list(&times, 0, Patience::MayBlock, &mut sink).expect("a listing");
            for name in names {
                let found = view.lookup(&times, &name, Patience::MayBlock);
                assert!(found.is_ok(), "{state}/{partition}: {}: {found:?}", String::from_utf8_lossy(&name));
            }
        }
    }
}

#[test]
fn the_oldest_formats_have_times_too() {
    for partition in ["old-v1-0", "old-upgraded-0"] {
        let source = open("data", partition, Isolation::ReadUncommitted);
        let answers = answers(partition);
        for answer in answers.iter().filter(|answer| answer.timestamp >= 0) {
            let found = source.offset_at(TimestampMs::new(answer.timestamp), Patience::MayBlock).expect("an answer");
            let found = found.and_then(|found| answers.iter().find(|answer| answer.offset == found.get())).expect("a record of the log");
            assert!(found.timestamp >= answer.timestamp && found.offset <= answer.offset, "{partition} {}", answer.offset);
        }
    }
}

#[test]
fn stored_batches_hold_the_record_asked_for() {
    for_every_partition(|state, partition, answers, _| {
        let source = open(state, partition, Isolation::ReadUncommitted);
        for answer in answers.iter().step_by(7) {
            let stored = source.stored_batch(offset(answer.offset), Patience::MayBlock).expect("sound").expect("a record is there");
            let bytes = stored.as_slice();
            let wide = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            let number = |at: usize| i64::from(i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
            assert_eq!(number(8) + 12, bytes.len() as i64, "{state}/{partition} {}", answer.offset);
            let last = if bytes[16] == 2 { wide(0) + number(23) } else { wide(0) };
            assert!(last >= answer.offset, "{state}/{partition} {}", answer.offset);
            assert!(bytes[16] < 2 || wide(0) <= answer.offset, "{state}/{partition} {}", answer.offset);
        }
    });
}

/// A copy of a partition that no broker owns: it can be appended to.
fn writable(filesystem: &Arc<dyn FileSystem>, directory: &PartitionDir) -> Local {
    let options = Options { wish: Wish::Writable, create: false, config: LogConfig::default() };
    Local::open(filesystem, directory.path(), options).expect("the copy can be opened")
}

#[test]
fn what_kafka_left_is_gone_on_with() {
    let filesystem: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    for (state, partition) in
        [("data", "codec-lz4-0"), ("unclean", "codec-lz4-0"), ("unclean", "txn-0"), ("data", "compacted-0"), ("data", "old-upgraded-0")]
    {
        let directory = PartitionDir::copy_of(&fixtures().join(state).join(partition));
        let mut answers = answers(partition);
        // The last epoch of the checkpoint, else that of the last batch.
        let checkpoint = fs::read_to_string(directory.path().join("leader-epoch-checkpoint")).unwrap_or_default();
        let epoch = checkpoint.lines().skip(2).last().and_then(|line| line.split(' ').next()?.parse().ok());
        let leader_epoch: i32 = epoch.unwrap_or_else(|| answers.last().expect("records").leader_epoch.max(0));
        let mut end = facts(partition).map_or_else(|| answers.last().expect("records").offset + 1, |facts| facts.log_end_offset);
        for round in 0..3 {
            let source = writable(&filesystem, &directory);
            assert_eq!(source.read_only(), None, "{state}/{partition}");
            assert!(everything(&source, 0, end) == answers, "{state}/{partition} before round {round}");
            let value = format!("round {round}");
            let new = NewRecord { timestamp: TimestampMs::new(1_800_000_000_000), key: None, value: Some(value.as_bytes()), headers: &[] };
            let prepared = prepare(source.partition().config(), source.now(), &mut std::iter::once(new)).expect("a small record");
            let appended = source.committer().expect("writable").append_and_wait(prepared, true).expect("an append");
            assert_eq!(appended.first.get(), end, "{state}/{partition} round {round}");
            answers.push(Answer {
                offset: end,
                timestamp: 1_800_000_000_000,
                timestamp_type: "CreateTime".to_owned(),
                leader_epoch,
                key: None,
                value: Some(value.into_bytes()),
                headers: Vec::new(),
            });
            end += 1;
            assert!(everything(&source, 0, end) == answers, "{state}/{partition} after round {round}");
            source.close().expect("a clean close");
        }
        let left = directory.names();
        assert!(!left.iter().any(|name| name.contains(".cut-") || name.ends_with(".tmp")), "{state}/{partition}: {left:?}");
    }
}
