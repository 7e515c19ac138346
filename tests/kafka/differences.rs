//! The differences between Kafka and us that are meant, each with a directory that shows it. `DIFFERENCES.md` argues them.

use crate::build::build;
use crate::cleaning::{self, BELOW, FIRST_EPOCH, OVERTAKEN};
use crate::differential::compare;
use crate::encode::Codec;
use crate::judge::Judge;
use crate::keyed::{self, Item, Rec, Round, Settings, Who};
use crate::plans::{BatchPlan, Leftover, Plan, Producer, RecordPlan, Spoil, Stamp, Tail};

/// Good batches behind a bad one.
pub(crate) const MIDDLE: &str = "damage in the middle";
/// A good batch to which nothing leads but damage.
pub(crate) const HIDDEN: &str = "a good batch between two damaged places";
/// A batch whose base offset is another.
pub(crate) const OFFSET: &str = "an offset that lies";
/// A batch whose magic is another.
pub(crate) const MAGIC: &str = "a magic that lies";
/// A bad batch that Kafka does not get past.
pub(crate) const EARLY: &str = "a damaged batch that keeps Kafka from starting";
/// A wrapper of the old formats that is damaged, and whose inner messages look like outer ones.
pub(crate) const INNER: &str = "a damaged wrapper whose inner messages can be read";
/// A file of a finished cleaning that is damaged.
pub(crate) const SWAP: &str = "a damaged swap file";
/// An index that does not tell the truth, and a clean start.
pub(crate) const INDEX: &str = "a wrong index at a clean start";
/// A log with a torn end, and a clean start.
pub(crate) const TAIL: &str = "a torn tail at a clean start";
/// A log start offset beyond all records.
pub(crate) const START: &str = "a log that ends before its start";
/// A transaction that is open at the log start, and began below it.
pub(crate) const TRANSACTION: &str = "a transaction that begins below the log start";
/// A time that only a later segment has than the one that Kafka looks into.
pub(crate) const TIME: &str = "a time that Kafka does not find";
/// Batches with a leader epoch that Kafka does not know of.
pub(crate) const EPOCH: &str = "a leader epoch that Kafka forgets";

fn record(time: Option<i32>) -> RecordPlan {
    RecordPlan { gap: 0, time, key: None, value: Some(vec![b'v'; 40]), header: None }
}

fn batch(records: usize) -> BatchPlan {
    BatchPlan::Data {
        codec: Codec::None,
        gap: 0,
        tail_gap: 0,
        stamp: Stamp::Create,
        producer: Producer::None,
        epoch: 0,
        records: vec![record(Some(5)); records],
    }
}

fn wrapper(magic: i8) -> BatchPlan {
    BatchPlan::Old { magic, codec: Codec::Gzip, gap: 0, append_time: false, records: vec![record(Some(5)); 3] }
}

fn plan(segments: Vec<Vec<BatchPlan>>) -> Plan {
    Plan {
        base_offset: 0,
        segments,
        interval: 0,
        log_start: None,
        spoilt: Vec::new(),
        flips: Vec::new(),
        tail: Tail::Whole,
        leftover: None,
    }
}

/// Flips a bit of a byte of the n-th batch.
fn flipped(mut plan: Plan, n: usize, byte: usize, bit: u8) -> Plan {
    let built = build(&Plan { flips: Vec::new(), ..plan.clone() });
    let logs: Vec<usize> = built.files.iter().filter(|(name, _)| name.ends_with(".log")).map(|(_, bytes)| bytes.len()).collect();
    let batch = &built.made[n];
    let at = logs[..batch.segment].iter().sum::<usize>() + batch.position + byte;
    let place = (at * 65536).div_ceil(logs.iter().sum());
    plan.flips.push((u16::try_from(place).expect("a place within the logs"), bit));
    plan
}

/// The least directory for each difference.
fn examples() -> Vec<(&'static str, Plan)> {
    let three = || plan(vec![vec![batch(2), batch(1)], vec![batch(1), batch(1), batch(1)]]);
    let transaction = BatchPlan::Data {
        codec: Codec::None,
        gap: 0,
        tail_gap: 0,
        stamp: Stamp::Create,
        producer: Producer::Transaction(1),
        epoch: 0,
        records: vec![record(Some(1)); 2],
    };
    let timeless = BatchPlan::Old { magic: 0, codec: Codec::None, gap: 0, append_time: false, records: vec![record(None)] };
    vec![
        (MIDDLE, flipped(three(), 1, 70, 0)),
        // The length of the first batch is wrong, and behind the second one stands noise: it could be a copy in a value.
        (HIDDEN, Plan { interval: 9000, tail: Tail::Noise(vec![0xAA; 60]), ..flipped(plan(vec![vec![batch(2), batch(1)]]), 0, 9, 0) }),
        (OFFSET, flipped(three(), 1, 3, 0)),
        (MAGIC, flipped(three(), 2, 16, 0)),
        // The second segment has no index: Kafka recovers it first, and looks through the one before it for producers.
        (EARLY, Plan { spoilt: vec![(2, Spoil::Removed)], ..flipped(plan(vec![vec![wrapper(1), wrapper(1)], vec![batch(1)]]), 1, 45, 0) }),
        (INNER, flipped(plan(vec![vec![wrapper(0)]]), 0, 9, 0)),
        (SWAP, Plan { leftover: Some((0, Leftover::Swap)), tail: Tail::Zeros(100), ..plan(vec![vec![batch(1)]]) }),
        // The last entry's position is one byte off.
        (INDEX, Plan { spoilt: vec![(0, Spoil::Lie(255, 1))], ..plan(vec![vec![batch(1), batch(1), batch(1)]]) }),
        (TAIL, Plan { tail: Tail::Zeros(100), ..plan(vec![vec![batch(1)]]) }),
        (START, Plan { log_start: Some(255), tail: Tail::Cut(1), ..plan(vec![vec![batch(2)]]) }),
        (TRANSACTION, Plan { log_start: Some(200), ..plan(vec![vec![transaction, batch(1)]]) }),
        (TIME, plan(vec![vec![timeless], vec![batch(1)]])),
        (EPOCH, Plan { spoilt: vec![(2, Spoil::Removed)], ..flipped(plan(vec![vec![batch(1), batch(1)], vec![batch(1)]]), 1, 70, 0) }),
    ]
}

/// The least log for each difference of cleaning.
fn logs() -> Vec<(&'static str, keyed::Plan)> {
    let settings = Settings {
        deletes: false,
        compacts: true,
        interval: 0,
        segment_bytes: 1_000_000,
        ratio: 0.0,
        delete_retention_ms: 0,
        min_lag_ms: 0,
        max_lag_ms: None,
        retention_ms: None,
        retention_bytes: None,
        slots: 1000,
        producer_expiration_ms: 2_000_000_000,
    };
    let rec = |key| Rec { gap: 0, time: Some(0), key: Some(key), value: Some(3), header: false };
    let data = |who| Item::Data { codec: Codec::None, gap: 0, tail_gap: 0, append_time: false, who, records: vec![rec(1)] };
    let (plain, transaction) = (|| data(Who::Nobody), data(Who::Transaction(0)));
    let abort = Item::Marker { producer: 0, commit: false, bumps: false };
    let old = Item::Old { magic: 0, codec: Codec::None, gap: 0, append_time: false, records: vec![rec(1)] };
    let round = |log_start| Round { rolls: false, items: vec![plain(), plain()], rolls_behind: true, log_start, wait_ms: 0 };
    let log = |settings: &Settings, first: Vec<Vec<Item>>, rounds: Vec<Round>| keyed::Plan {
        settings: settings.clone(),
        first,
        wait_ms: 0,
        rounds,
    };
    let deleting = Settings { deletes: true, retention_ms: Some(0), ..settings.clone() };
    vec![
        (BELOW, log(&settings, vec![vec![transaction, abort, plain(), plain()]], vec![round(Some(100))])),
        (FIRST_EPOCH, log(&settings, vec![vec![old], vec![]], vec![])),
        (OVERTAKEN, log(&deleting, vec![vec![plain()], vec![plain()]], vec![Round { rolls_behind: false, ..round(None) }])),
    ]
}

/// Each difference of the list is there as long as Kafka is as it is, and none is listed that has no example.
pub(crate) fn each_listed_difference_is_there() {
    let listed = include_str!("DIFFERENCES.md");
    let mut judge = Judge::start();
    let examples = examples();
    for (difference, plan) in &examples {
        assert!(listed.contains(&format!("| {difference} |")), "{difference} is not listed");
        match compare(&mut judge, plan) {
            Ok(met) => {
                assert!(met.contains(difference), "{difference}: Kafka and we agree, or differ in {met:?}; hit: {:?}", build(plan).hits())
            }
            Err(said) => panic!("{difference}: {said}; hit: {:?}", build(plan).hits()),
        }
    }
    let logs = logs();
    for (difference, plan) in &logs {
        assert!(listed.contains(&format!("| {difference} |")), "{difference} is not listed");
        let met = cleaning::compare(&mut judge, plan).unwrap_or_else(|said| panic!("{difference}: {said}"));
        assert!(met.contains(difference), "{difference}: Kafka and we agree, or differ in {met:?}");
    }
    assert_eq!(listed.matches("\n| ").count(), examples.len() + logs.len(), "a listed difference has no example");
}
