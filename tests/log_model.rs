//! The local engine against a vector of records: appends of every kind, rolls, syncs, closes, kills with torn tails and spoilt indexes, and
//! after each step every kind of look-up.
//!
//! It runs on the simulated disk, whose clock stands still and whose files can be looked at and spoilt; the process's death is a copy of the
//! files as they are. What a machine's crash leaves is the business of `crash`, damaged batches that of `damage`.

mod common;

use common::encode::{Batch, crc32c, indexes};
use common::partition::PartitionDir;
use offsetfs::error::Error;
use offsetfs::io::os::OsFileSystem;
use offsetfs::io::sim::SimDisk;
use offsetfs::io::{Clock, FileSystem};
use offsetfs::log::compression::Codec;
use offsetfs::log::config::LogConfig;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Absent, Appended, Found, NewRecord, Record, Source};
use offsetfs::types::{Offset, Patience, TimestampMs};
use proptest::prelude::*;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

const DIRECTORY: &str = "/topic-0";
const BEGINNING_MS: i64 = 1_700_000_000_000;

/// A header as the log takes it.
type HeaderOf<'a> = (&'a [u8], Option<&'a [u8]>);

/// A record as it was given to the log, with the time that the log keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rec {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What is at the end of the last `.log` after a kill.
#[derive(Clone, Debug)]
enum Tail {
    Whole,
    Random(Vec<u8>),
    Zeros(usize),
    /// So many bytes of a batch that would be right.
    TornBatch(usize),
    /// So many bytes are missing.
    Cut(usize),
}

/// What happened to an index file while nobody looked.
#[derive(Clone, Debug)]
enum Spoil {
    Removed,
    /// Cut at so many of 256 parts.
    Cut(u8),
    Replaced(Vec<u8>),
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Rec>, bool),
    Sync,
    Roll,
    Wait(i64),
    Reopen,
    Kill(Tail, Vec<(u8, Spoil)>),
}

fn offset(number: i64) -> Offset {
    Offset::new(number).expect("not negative")
}

fn plain(record: &Record) -> Rec {
    Rec {
        timestamp: record.timestamp().get(),
        key: record.key().map(<[u8]>::to_vec),
        value: record.value().map(<[u8]>::to_vec),
        headers: record.headers().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect(),
    }
}

/// The log and what it should hold.
struct Harness {
    disk: SimDisk,
    config: LogConfig,
    log: Option<Local>,
    model: Vec<Rec>,
    /// Segments that were not written in one go: their indexes depend on when they were opened.
    resumed: HashSet<i64>,
    /// Whether this opening has written: only then does it recover what it found, and close it well.
    written: bool,
}

impl Harness {
    fn new(config: LogConfig) -> Harness {
        let mut harness = Harness { disk: SimDisk::new(), config, log: None, model: Vec::new(), resumed: HashSet::new(), written: false };
        harness.open();
        harness
    }

    fn local(&self, wish: Wish) -> Local {
        let filesystem = self.disk.filesystem();
        let options = Options { wish, create: wish == Wish::Writable, config: self.config.clone() };
        Local::open(&filesystem, Path::new(DIRECTORY), options).expect("the directory can be opened")
    }

    fn open(&mut self) {
        self.resumed.extend(self.bases().last());
        self.log = Some(self.local(Wish::Writable));
        self.written = false;
    }

    fn log(&self) -> &Local {
        self.log.as_ref().expect("the log is open")
    }

    fn bases(&self) -> Vec<i64> {
        let names = self.disk.list(DIRECTORY);
        names.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect()
    }

    fn file(&self, base: i64, suffix: &str) -> Option<Vec<u8>> {
        self.disk.read_file(format!("{DIRECTORY}/{base:020}.{suffix}"))
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(records, durable) => self.append(records, *durable),
            Step::Sync => {
                let (sender, receiver) = sync_channel(1);
                self.log().sync(Box::new(move |result| sender.send(result).expect("somebody waits")));
                receiver.recv().expect("an answer").expect("a sync");
            }
            Step::Roll => {
                let end = self.model.len() as i64;
                self.written = true;
                let rolled = self.log().committer().expect("writable").roll().expect("a roll");
                assert!(!rolled || end > 0, "an empty log has nothing to roll");
                assert!(self.bases().contains(&end), "an empty segment stands at the end after a roll");
            }
            Step::Wait(ms) => self.disk.clock().advance(*ms),
            Step::Reopen => {
                let log = self.log.take().expect("the log is open");
                log.close().expect("a clean close");
                drop(log);
                let written = self.written;
                self.check_indexes();
                self.open();
                let recovery = self.log().status(Patience::MayBlock).expect("a status").recovery;
                assert!(!written || recovery.is_empty(), "it was closed well: {recovery:?}");
            }
            Step::Kill(tail, spoilt) => self.kill(tail, spoilt),
        }
    }

    fn append(&mut self, records: &[Rec], durable: bool) {
        let headers: Vec<Vec<HeaderOf<'_>>> =
            records.iter().map(|r| r.headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect()).collect();
        let mut new = records.iter().zip(&headers).map(|(record, headers)| NewRecord {
            timestamp: TimestampMs::new(record.timestamp),
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers,
        });
        let (sender, receiver) = sync_channel(1);
        let taken = self.log().append(&mut new, durable, Box::new(move |result| sender.send(result).expect("somebody waits")));
        match taken {
            Err(Error::RecordTooLarge { limit, .. }) => assert_eq!(limit, self.config.segment_bytes),
            Err(error) => panic!("{error}"),
            Ok(()) => {
                self.written = true;
                let appended = receiver.recv().expect("an answer").expect("an append");
                assert_eq!(appended, Appended { first: offset(self.model.len() as i64), records: records.len() as u64 });
                let now = self.disk.clock().now().get();
                let kept = records.iter().map(|record| {
                    let timestamp = if self.config.log_append_time { now } else { record.timestamp };
                    Rec { timestamp, ..record.clone() }
                });
                self.model.extend(kept);
            }
        }
    }

    /// The process is gone: its files stay as they are, but for what is done to them here.
    fn kill(&mut self, tail: &Tail, spoilt: &[(u8, Spoil)]) {
        let after = SimDisk::new();
        after.clock().set(self.disk.clock().now());
        // A partition that nothing was appended to has no file yet, but its directory is there.
        after.filesystem().create_dir(Path::new(DIRECTORY)).expect("a new directory");
        let last = self.bases().last().map(|base| format!("{base:020}.log"));
        let names: Vec<String> = self.disk.list(DIRECTORY);
        let indexes: Vec<&String> = names.iter().filter(|name| name.ends_with("index")).collect();
        let spoil_of = |name: &String| {
            spoilt
                .iter()
                .find(|(which, _)| !indexes.is_empty() && indexes[usize::from(*which) % indexes.len()] == name)
                .map(|(_, spoil)| spoil)
        };
        for name in &names {
            let mut bytes = self.disk.read_file(format!("{DIRECTORY}/{name}")).expect("a listed file");
            if Some(name) == last.as_ref() {
                match tail {
                    Tail::Whole => {}
                    Tail::Random(more) => bytes.extend(more),
                    Tail::Zeros(count) => bytes.resize(bytes.len() + count, 0),
                    Tail::TornBatch(count) => {
                        let batch = Batch::plain(self.model.len() as i64, 3, BEGINNING_MS).encode();
                        // Without its last byte alone, which is zero, it would be made whole by the zeros of another step.
                        bytes.extend(&batch[..count % (batch.len() - 1)]);
                    }
                    Tail::Cut(count) => bytes.truncate(bytes.len().saturating_sub(*count)),
                }
                if let Tail::Cut(_) = tail {
                    let base = name[..20].parse().expect("a base offset");
                    self.model.truncate(end_of_batches(base, &bytes) as usize);
                }
            }
            match spoil_of(name) {
                Some(Spoil::Removed) => continue,
                Some(Spoil::Cut(parts)) => bytes.truncate(bytes.len() * usize::from(*parts) / 256),
                Some(Spoil::Replaced(other)) => bytes.clone_from(other),
                None => {}
            }
            after.write_file(format!("{DIRECTORY}/{name}"), &bytes);
        }
        let killed = std::mem::replace(&mut self.disk, after);
        // The threads of the killed process end on a disk that nobody looks at any more.
        drop(self.log.take());
        drop(killed);
        // With its index the mark of an unclean stop may be gone, and with it the rebuilding.
        self.resumed.extend(self.bases());
        let before = self.contents();
        // Before the first append there are only the settings that the log is to be made with.
        if before.iter().any(|(name, _)| name != "topic.properties") {
            self.check(&self.local(Wish::ReadOnly));
        }
        self.open();
        self.check(self.log());
        assert!(self.contents() == before, "opening and reading touch nothing");
    }

    fn contents(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let names = self.disk.list(DIRECTORY);
        names.into_iter().map(|name| (name.clone(), self.disk.read_file(format!("{DIRECTORY}/{name}")))).collect()
    }

    /// After a clean close the indexes are trimmed, and right to the byte where the segment was written in one go.
    fn check_indexes(&self) {
        // An index of a place or two has no room for all that is due.
        if !self.written || self.config.segment_index_bytes < 36 {
            return;
        }
        let interval = u32::try_from(self.config.index_interval_bytes).expect("a small interval");
        for base in self.bases().into_iter().filter(|base| !self.resumed.contains(base)) {
            let file = |suffix| self.file(base, suffix).expect("a segment has three files");
            assert_eq!((file("index"), file("timeindex")), indexes(base, &file("log"), interval), "the indexes of {base}");
        }
    }

    /// Every kind of look-up.
    fn check(&self, log: &Local) {
        let model = &self.model;
        let end = model.len() as i64;
        let bounds = log.bounds(Patience::MayBlock).expect("bounds");
        assert_eq!((bounds.log_start.get(), bounds.log_end.get()), (0, end));
        for (number, want) in (0..).zip(model) {
            match log.record(offset(number), Patience::MayBlock).expect("a look-up") {
                Found::Record(record) => assert_eq!((record.offset().get(), &plain(&record)), (number, want)),
                Found::Absent(absent) => panic!("{number}: {absent:?}"),
            }
        }
        for beyond in [end, end + 1, i64::MAX] {
            let found = log.record(offset(beyond), Patience::MayBlock).expect("a look-up");
            assert!(matches!(found, Found::Absent(Absent::BeyondLogEnd(at)) if at.get() == end), "{beyond}: {found:?}");
        }
        for (from, until) in [(0, end), (0, i64::MAX), (end / 3, end - end / 3), (end / 2, end / 2), (end / 2, end / 2 + 1), (end, end + 9)]
        {
            let until = until.max(from);
            let mut batches = log.batches(offset(from), offset(until));
            let mut got = Vec::new();
            while let Some(body) = batches.next(Patience::MayBlock).expect("a range") {
                for record in body.records() {
                    let record = body.record(record.expect("a record"));
                    if (from..until).contains(&record.offset().get()) {
                        assert_eq!(record.offset().get(), from + got.len() as i64);
                        got.push(plain(&record));
                    }
                }
            }
            let want = &model[from.min(end) as usize..until.min(end) as usize];
            assert_eq!(got, want, "{from}..{until}");
        }
        let mut listed = Vec::new();
        let mut sink = |found: Offset| {
            listed.push(found.get());
            true
        };
        log.offsets(offset(end / 4), Patience::MayBlock, &mut sink).expect("a listing");
        assert!(listed.into_iter().eq(end / 4..end));
        for k in [1, 2, end / 2, end - 1, end, end + 1, i64::MAX].into_iter().filter(|k| *k > 0) {
            let got = log.nth_last(k.cast_unsigned(), Patience::MayBlock).expect("an answer");
            assert_eq!(got.map(Offset::get), Some(end - k).filter(|n| *n >= 0), "-{k} of {end}");
        }
        let mut times: Vec<i64> = model.iter().flat_map(|r| [r.timestamp - 1, r.timestamp, r.timestamp + 1]).collect();
        times.extend([0, i64::MAX]);
        times.sort_unstable();
        times.dedup();
        for time in times.into_iter().filter(|time| *time >= 0) {
            let want = model.iter().position(|record| record.timestamp >= time);
            let got = log.offset_at(TimestampMs::new(time), Patience::MayBlock).expect("an answer");
            assert_eq!(got.map(|found| found.get() as usize), want, "at {time}");
        }
    }
}

/// The offset behind the last whole batch of a segment that begins with right ones.
fn end_of_batches(base: i64, log: &[u8]) -> i64 {
    let number = |at: usize| i32::from_be_bytes(log[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut end) = (0, base);
    while at + 61 <= log.len() {
        let length = usize::try_from(number(at + 8)).unwrap_or(0);
        let next = at + 12 + length;
        if length < 49 || next > log.len() || crc32c(&log[at + 21..next]) != number(at + 17).cast_unsigned() {
            break;
        }
        end = i64::from_be_bytes(log[at..at + 8].try_into().expect("eight bytes")) + i64::from(number(at + 23)) + 1;
        at = next;
    }
    end
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => prop::collection::vec(prop_oneof![Just(b'a'), Just(b'\n'), any::<u8>()], 0..most), 1 => (0..most).prop_map(|n| vec![b'x'; n])]
}

fn record() -> impl Strategy<Value = Rec> {
    let timestamp = prop_oneof![1 => Just(-1), 6 => (0..2000_i64).prop_map(|ms| BEGINNING_MS + ms), 1 => 0..10_i64];
    let headers = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec((bytes(6), prop::option::of(bytes(9))), 1..4)];
    (timestamp, prop::option::of(bytes(12)), prop::option::weighted(0.9, bytes(150)), headers)
        .prop_map(|(timestamp, key, value, headers)| Rec { timestamp, key, value, headers })
}

fn step() -> impl Strategy<Value = Step> {
    let tail = prop_oneof![
        3 => Just(Tail::Whole),
        2 => prop::collection::vec(any::<u8>(), 1..200).prop_map(Tail::Random),
        1 => (1..300_usize).prop_map(Tail::Zeros),
        2 => (1..200_usize).prop_map(Tail::TornBatch),
        2 => (1..400_usize).prop_map(Tail::Cut),
    ];
    let spoil = prop_oneof![
        Just(Spoil::Removed),
        any::<u8>().prop_map(Spoil::Cut),
        prop::collection::vec(prop_oneof![Just(0), 0..4_u8, any::<u8>()], 0..100).prop_map(Spoil::Replaced),
    ];
    let spoilt = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec((any::<u8>(), spoil), 1..4)];
    prop_oneof![
        12 => (prop::collection::vec(record(), 1..8), prop::bool::weighted(0.2)).prop_map(|(records, durable)| Step::Append(records, durable)),
        2 => Just(Step::Sync),
        2 => Just(Step::Roll),
        2 => (1..3000_i64).prop_map(Step::Wait),
        2 => Just(Step::Reopen),
        2 => (tail, spoilt).prop_map(|(tail, spoilt)| Step::Kill(tail, spoilt)),
    ]
}

fn config() -> impl Strategy<Value = LogConfig> {
    let codec = prop_oneof![
        3 => Just(Codec::None),
        1 => Just(Codec::Gzip),
        1 => Just(Codec::Snappy),
        1 => Just(Codec::Lz4),
        1 => Just(Codec::Zstd),
    ];
    let index_bytes = prop_oneof![1 => 4..60_u64, 3 => Just(4096_u64)];
    let segment_ms = prop_oneof![3 => Just(u64::MAX / 2), 1 => 1..2000_u64];
    (300..4000_u64, 0..600_u64, index_bytes, segment_ms, 1..700_u64, codec, prop::bool::weighted(0.2)).prop_map(
        |(segment_bytes, index_interval_bytes, segment_index_bytes, segment_ms, batch_size, compression_type, log_append_time)| LogConfig {
            segment_bytes,
            index_interval_bytes,
            segment_index_bytes,
            segment_ms,
            batch_size,
            compression_type,
            log_append_time,
            ..LogConfig::default()
        },
    )
}

#[test]
fn a_reader_beside_the_writer_follows_it() {
    let directory = PartitionDir::new("topic-0");
    let filesystem: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let config = LogConfig { segment_bytes: 300, segment_index_bytes: 240, ..LogConfig::default() };
    let open = |wish| {
        let options = Options { wish, create: wish == Wish::Writable, config: config.clone() };
        Local::open(&filesystem, directory.path(), options).expect("the directory can be opened")
    };
    let writer = open(Wish::Writable);
    let mut reader = None;
    for number in 0..60 {
        let value = format!("value {number}");
        let new = NewRecord { timestamp: TimestampMs::new(BEGINNING_MS), key: None, value: Some(value.as_bytes()), headers: &[] };
        let (sender, receiver) = sync_channel(1);
        let done = Box::new(move |result| sender.send(result).expect("somebody waits"));
        writer.append(&mut std::iter::once(new), false, done).expect("a small record");
        receiver.recv().expect("an answer").expect("an append");
        // Every third record rolls the log: the reader has to find new bytes, new segments, and indexes that are trimmed.
        let reader = reader.get_or_insert_with(|| open(Wish::ReadOnly));
        let mut asked = 0;
        loop {
            match reader.record(offset(number), Patience::MayBlock).expect("a look-up beside the writer") {
                Found::Record(record) => break assert_eq!(record.value(), Some(value.as_bytes())),
                Found::Absent(absent) => assert!(matches!(absent, Absent::BeyondLogEnd(_)), "{number}: {absent:?}"),
            }
            asked += 1;
            assert!(asked < 2_000, "{number} does not appear");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let mut batches = reader.as_ref().expect("a reader").batches(Offset::ZERO, Offset::MAX);
    let mut records = 0;
    while let Some(body) = batches.next(Patience::MayBlock).expect("a range beside the writer") {
        records += body.records().count();
    }
    assert_eq!(records, 60);
    writer.close().expect("a clean close");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_a_vector_of_records(config in config(), steps in prop::collection::vec(step(), 1..25)) {
        let mut harness = Harness::new(config);
        harness.check(harness.log());
        for step in &steps {
            harness.step(step);
            harness.check(harness.log());
        }
        harness.step(&Step::Reopen);
        harness.check(harness.log());
    }
}
