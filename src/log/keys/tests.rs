//! The index against a plain map, over appends, deletions, rolls, reopenings, crashes, retention and spoilt files; and its files one by one.

use super::*;
use crate::io::sim::SimDisk;
use crate::log::commit::Committer;
use crate::log::compaction::{self, Mode};
use crate::log::config::{CleanupPolicy, LogConfig};
use crate::log::encode::NewRecord;
use crate::log::prepare::prepare;
use crate::log::segment::OpenSegments;
use crate::types::{TimestampMs, TopicPartition};
use proptest::prelude::*;
use std::path::Path;

const DIRECTORY: &str = "/t-0";
const SMALL: Limits = Limits { recent_most: 7, save_behind: 4 };

/// A record as it was appended: its key, and `None` for a tombstone.
type Rec = (Vec<u8>, Option<Vec<u8>>);

struct Log {
    partition: Arc<Partition>,
    committer: Committer,
    index: KeyIndex,
}

impl Log {
    fn open(disk: &SimDisk, config: &LogConfig, limits: Limits) -> Log {
        let directory = disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory is there");
        let name = TopicPartition { topic: "t".to_owned(), partition: 0 };
        let opened = Arc::new(OpenSegments::new(10));
        let partition = Partition::open(directory, None, name, config.clone(), disk.clock(), opened, false).expect("it can be opened");
        let partition = Arc::new(partition);
        let committer = Committer::new(partition.clone(), None).expect("threads");
        let index = KeyIndex { limits, ..KeyIndex::new(partition.clone(), false) };
        Log { partition, committer, index }
    }

    fn append(&self, records: &[Rec]) {
        let time = TimestampMs::new(1000);
        let mut new = records.iter().map(|(k, v)| NewRecord { timestamp: time, key: Some(k), value: v.as_deref(), headers: &[] });
        let prepared = prepare(self.partition.config(), time, &mut new).expect("small records");
        self.committer.append_and_wait(prepared, false).expect("an append");
    }

    /// The value of a key; an error where it is damaged.
    fn answer(&self, key: &[u8]) -> Answer {
        match self.index.latest(key, self.partition.bounds(), Patience::MayBlock) {
            Ok(Latest::Live(record)) => Ok(Some(record.value().expect("a live record").to_vec())),
            Ok(Latest::Deleted(_) | Latest::Never) => Ok(None),
            Err(Error::Corrupt(_)) => Err(()),
            Err(error) => panic!("{error}"),
        }
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.answer(key).expect("no damage")
    }

    /// The keys listed, sorted, and whether the listing came to a good end.
    fn live(&self) -> (Vec<Vec<u8>>, bool) {
        let mut keys = Vec::new();
        let mut cursor = 0;
        loop {
            let mut room = 3;
            let before = keys.len();
            let mut behind_last = cursor;
            let mut sink = |key: &[u8], _: &Record, behind: u64| {
                if room == 0 {
                    return false;
                }
                room -= 1;
                keys.push(key.to_vec());
                behind_last = behind;
                true
            };
            let listed = self.index.list(cursor, self.partition.bounds(), Patience::MayBlock, &mut sink);
            cursor = behind_last;
            if keys.len() == before || listed.is_err() {
                keys.sort();
                return (keys, listed.is_ok());
            }
        }
    }

    /// Compacts the log; `false` where it has damage, or nothing is due.
    fn compact(&self) -> bool {
        let mut exclusively = |work: &mut dyn FnMut()| {
            self.committer.with_writer(|_| {
                work();
                Ok(())
            })
        };
        let durable = self.committer.make_durable().expect("nothing fails");
        match compaction::run(&self.partition, Mode::Real { durable, exclusively: &mut exclusively }, &mut |_, _| true) {
            Ok(outcome) => outcome.compacted_to.is_some(),
            Err(Error::Corrupt(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn close(self) {
        self.committer.close().expect("a clean close");
        self.index.save(self.partition.bounds());
    }
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.filesystem().create_dir(Path::new(DIRECTORY)).expect("a new directory");
    disk
}

fn put(key: &str, value: &str) -> Rec {
    (key.into(), Some(value.into()))
}

fn delete(key: &str) -> Rec {
    (key.into(), None)
}

/// The value of a key; an error where it is damaged.
type Answer = Result<Option<Vec<u8>>, ()>;

/// What stands at an offset.
#[derive(Clone, Debug)]
enum Held {
    Record(Rec),
    Gap,
    /// A record that cannot be read any more, if it is known which one.
    Damaged(Option<Rec>),
}

fn held(records: &[Rec]) -> Vec<Held> {
    records.iter().cloned().map(Held::Record).collect()
}

/// What a log holds, offset by offset, the index not asked; `before` is what it held once.
fn contents(partition: &Partition, before: &[Held]) -> Vec<Held> {
    let end = partition.bounds().log_end.get();
    let at = |offset| match partition.record(Offset::new(offset).expect("not negative"), Patience::MayBlock) {
        Ok(Found::Record(r)) => Held::Record((r.key().expect("a key").to_vec(), r.value().map(<[u8]>::to_vec))),
        Ok(Found::Absent(_)) => Held::Gap,
        Err(Error::Corrupt(_)) => Held::Damaged(match before.get(offset as usize) {
            Some(Held::Record(rec) | Held::Damaged(Some(rec))) => Some(rec.clone()),
            _ => None,
        }),
        Err(error) => panic!("{error}"),
    };
    (0..end).map(at).collect()
}

/// What may be said of a key by what stands from `start` on. Damage that may hide its last record makes an error of it; an index that had read the
/// damaged records while they were whole may also know better.
fn allowed(log: &[Held], start: i64, key: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for held in log.iter().skip(start as usize).rev() {
        match held {
            Held::Record((of, value)) if of == key => {
                answers.push(Ok(value.clone()));
                return answers;
            }
            Held::Damaged(known) => {
                answers = vec![Err(())];
                if known.as_ref().is_none_or(|(of, _)| of == key) {
                    return answers;
                }
            }
            Held::Record(_) | Held::Gap => {}
        }
    }
    answers.push(Ok(None));
    answers
}

/// The last record of each key, and where it stands.
fn last_of(log: &[Held]) -> BTreeMap<Vec<u8>, (usize, Option<Vec<u8>>)> {
    let records = log.iter().enumerate().filter_map(|(at, held)| match held {
        Held::Record((key, value)) => Some((key.clone(), (at, value.clone()))),
        Held::Gap | Held::Damaged(_) => None,
    });
    records.collect()
}

fn assert_holds(log: &Log, held: &[Held], all: &[Vec<u8>]) {
    let start = log.partition.bounds().log_start.get();
    let mut live = Vec::new();
    for key in all {
        let (answer, allowed) = (log.answer(key), allowed(held, start, key));
        assert!(allowed.contains(&answer), "{}: {answer:?} of {allowed:?}", key.escape_ascii());
        live.extend(matches!(answer, Ok(Some(_))).then(|| key.clone()));
    }
    live.sort();
    live.dedup();
    let (listed, is_whole) = log.live();
    assert_eq!(listed, live);
    assert!(is_whole || held.iter().skip(start as usize).any(|held| matches!(held, Held::Damaged(_))));
}

fn assert_is(log: &Log, records: &[Rec], all: &[Vec<u8>]) {
    assert_holds(log, &held(records), all);
}

fn keys() -> Vec<Vec<u8>> {
    (0..20u8).map(|n| vec![n; usize::from(n) * 3]).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(u8, Option<u8>)>),
    Look(u8),
    Roll,
    Reopen,
    Retain(u8),
    /// So many milliseconds pass, and the log is compacted.
    Compact(u8),
    /// The machine stops; which of the unsynced changes survive is drawn from these numbers.
    Crash(Vec<u8>),
    /// A byte of the index's file is changed while nobody looks.
    Spoil(prop::sample::Index, u8),
    /// The index's file of an earlier moment comes back.
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    let records = proptest::collection::vec((0..20u8, proptest::option::weighted(0.7, any::<u8>())), 1..12);
    prop_oneof![
        6 => records.prop_map(Step::Append),
        3 => (0..20u8).prop_map(Step::Look),
        1 => Just(Step::Roll),
        2 => Just(Step::Reopen),
        1 => any::<u8>().prop_map(Step::Retain),
        2 => any::<u8>().prop_map(Step::Compact),
        2 => proptest::collection::vec(any::<u8>(), 1..30).prop_map(Step::Crash),
        1 => (any::<prop::sample::Index>(), 1..=255u8).prop_map(|(at, bits)| Step::Spoil(at, bits)),
        1 => Just(Step::Restore),
    ]
}

fn run(steps: &[Step]) {
    let config = LogConfig {
        segment_bytes: 900,
        batch_size: 120,
        index_interval_bytes: 100,
        cleanup_policy: CleanupPolicy { delete: false, compact: true },
        min_cleanable_dirty_ratio: 0.0,
        delete_retention_ms: 100,
        ..LogConfig::default()
    };
    let file = format!("{DIRECTORY}/{}", names::KEYS);
    let mut disk = disk();
    let open = |disk: &SimDisk| Log::open(disk, &config, SMALL);
    let mut log = open(&disk);
    let (mut records, mut kept): (Vec<Held>, Option<Vec<u8>>) = (Vec::new(), None);
    let all = keys();
    for step in steps {
        match step {
            Step::Append(new) => {
                let new: Vec<Rec> = new.iter().map(|(k, v)| (all[usize::from(*k)].clone(), v.map(|v| vec![v; 5]))).collect();
                log.append(&new);
                records.extend(held(&new));
            }
            Step::Look(key) => {
                let key = &all[usize::from(*key)];
                let start = log.partition.bounds().log_start.get();
                assert!(allowed(&records, start, key).contains(&log.answer(key)));
            }
            Step::Roll => {
                log.committer.roll().expect("a roll");
            }
            Step::Retain(part) => {
                let to = records.len() as i64 * i64::from(*part) / 256;
                log.partition.delete_before(Offset::new(to).expect("not negative")).expect("a checkpoint");
            }
            Step::Compact(milliseconds) => {
                disk.clock().advance(i64::from(*milliseconds));
                let before = last_of(&records);
                if log.compact() {
                    records = contents(&log.partition, &records);
                    let start = log.partition.bounds().log_start.get() as usize;
                    let holds = |(key, (at, value)): (&Vec<u8>, &(usize, Option<Vec<u8>>))| {
                        *at < start || last_of(&records).get(key).map_or(value.is_none(), |now| now == &(*at, value.clone()))
                    };
                    assert!(before.iter().all(holds), "the last record of a key went");
                }
            }
            Step::Reopen | Step::Spoil(..) | Step::Restore => {
                log.close();
                let before = disk.read_file(&file);
                match (step, before.clone()) {
                    (Step::Spoil(at, bits), Some(mut bytes)) => {
                        let at = at.index(bytes.len());
                        bytes[at] ^= bits;
                        disk.write_file(&file, &bytes);
                    }
                    (Step::Restore, _) => kept.iter().for_each(|bytes| disk.write_file(&file, bytes)),
                    _ => {}
                }
                kept = kept.or(before);
                log = open(&disk);
            }
            Step::Crash(choices) => {
                let mut choices = choices.iter().cycle();
                let after = disk.crash(&mut |options| usize::from(*choices.next().expect("a cycle")) % options);
                drop(std::mem::replace(&mut log, open(&after)));
                disk = after;
                // The first append cuts what was torn.
                log.append(&[delete("")]);
                records = contents(&log.partition, &records);
            }
        }
    }
    assert_holds(&log, &records, &all);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_index_says_what_the_log_says(steps in proptest::collection::vec(step(), 1..40)) {
        run(&steps);
    }
}

#[test]
fn keys_that_share_a_hash_are_told_apart() {
    for bits in [1, 3] {
        let disk = disk();
        let log = Log::open(&disk, &LogConfig::default(), SMALL);
        log.index.state.write().seed = Seed::weak(bits);
        let records: Vec<Rec> = keys().into_iter().map(|key| (key.clone(), Some([&key[..], b"!"].concat()))).collect();
        log.append(&records);
        assert_is(&log, &records, &keys());
        assert_ne!(log.index.state.read().epoch, 0, "the seed was changed");
    }
}

fn many(count: usize) -> Vec<Rec> {
    (0..count).map(|n| put(&format!("key {}", n % (count / 2)), &n.to_string())).collect()
}

#[test]
fn a_saved_index_is_read_again_and_only_what_came_later_is_scanned() {
    let (disk, config) = (disk(), LogConfig { segment_bytes: 5000, ..LogConfig::default() });
    let mut records = many(1000);
    let log = Log::open(&disk, &config, SMALL);
    log.append(&records);
    assert_eq!(log.value(b"key 7"), Some(b"507".to_vec()));
    log.close();
    let log = Log::open(&disk, &config, SMALL);
    assert_eq!(log.value(b"key 7"), Some(b"507".to_vec()));
    {
        let state = log.index.state.read();
        assert_eq!((state.saved.map(|(covered, _)| covered.get()), state.recent.len(), state.epoch), (Some(1000), 0, 0));
    }
    let more = [put("key 7", "new"), delete("key 8"), put("other", "")];
    log.append(&more);
    records.extend(more);
    let all: Vec<Vec<u8>> = records.iter().map(|(k, _)| k.clone()).collect();
    assert_is(&log, &records, &all);
    assert_eq!(log.index.state.read().epoch, 0);
}

#[test]
fn nothing_is_written_before_the_first_append_of_a_mount() {
    let (disk, config) = (disk(), LogConfig::default());
    let log = Log::open(&disk, &config, Limits { save_behind: i64::MAX, ..SMALL });
    log.append(&many(100));
    log.close();
    let before = disk.list(DIRECTORY);
    let log = Log::open(&disk, &config, SMALL);
    assert_eq!(log.value(b"key 49"), Some(b"99".to_vec()));
    assert!(log.index.state.read().table.is_some(), "folded into a nameless file");
    log.close();
    assert_eq!(disk.list(DIRECTORY), before);
}

#[test]
fn any_changed_byte_of_the_file_gives_the_answers_of_no_file() {
    let (disk, config) = (disk(), LogConfig::default());
    let mut records = many(300);
    records.extend((0..50).map(|n| delete(&format!("key {n}"))));
    let log = Log::open(&disk, &config, SMALL);
    log.append(&records);
    assert_eq!(log.value(b"key 3"), None);
    log.close();
    let path = format!("{DIRECTORY}/{}", names::KEYS);
    let bytes = disk.read_file(&path).expect("a saved index");
    let all: Vec<Vec<u8>> = records.iter().map(|(k, _)| k.clone()).collect();
    let changes = (0..bytes.len()).step_by(41).chain(0..88).chain(bytes.len() - 20..bytes.len());
    for at in changes {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        disk.write_file(&path, &other);
        assert_is(&Log::open(&disk, &config, SMALL), &records, &all);
    }
    for len in [0, 7, 11, 12, 4095, 4096, bytes.len() - 4096, bytes.len() - 1] {
        disk.write_file(&path, &bytes[..len]);
        assert_is(&Log::open(&disk, &config, SMALL), &records, &all);
    }
    disk.write_file(&path, &[&bytes[..], &[0; 4096]].concat());
    assert_is(&Log::open(&disk, &config, SMALL), &records, &all);
}

#[test]
fn the_index_of_another_log_is_not_believed() {
    let (config, all) = (LogConfig { segment_bytes: 2000, ..LogConfig::default() }, keys());
    let (here, there) = (disk(), disk());
    let log = Log::open(&there, &config, SMALL);
    log.append(&many(200));
    assert_eq!(log.live().0.len(), 100);
    log.close();
    let stolen = there.read_file(format!("{DIRECTORY}/{}", names::KEYS)).expect("a saved index");
    let records: Vec<Rec> = all.iter().cycle().take(200).map(|key| (key.clone(), Some(b"x".to_vec()))).collect();
    let log = Log::open(&here, &config, Limits { save_behind: i64::MAX, ..SMALL });
    log.append(&records);
    log.close();
    here.write_file(format!("{DIRECTORY}/{}", names::KEYS), &stolen);
    let log = Log::open(&here, &config, SMALL);
    assert_is(&log, &records, &all);
    assert_eq!(log.index.state.read().saved, None);
}

#[test]
fn a_damaged_last_record_is_an_error_and_so_is_all_that_is_older() {
    let (disk, config) = (disk(), LogConfig { batch_size: 1, ..LogConfig::default() });
    let log = Log::open(&disk, &config, Limits { save_behind: i64::MAX, ..SMALL });
    log.append(&[put("old", "1"), put("lost", "1"), put("lost", "2"), put("new", "1")]);
    log.close();
    let path = format!("{DIRECTORY}/{}", names::of(Offset::ZERO, names::LOG));
    let mut bytes = disk.read_file(&path).expect("the log");
    let batch = bytes.len() / 4;
    bytes[3 * batch - 2] ^= 1;
    disk.write_file(&path, &bytes);
    let log = Log::open(&disk, &config, SMALL);
    let of = |key: &str| log.index.latest(key.as_bytes(), log.partition.bounds(), Patience::MayBlock);
    assert!(matches!(of("new"), Ok(Latest::Live(_))));
    for key in ["old", "lost", "never"] {
        assert!(matches!(of(key), Err(Error::Corrupt(c)) if c.offsets == Offset::new(2).map(|o| (o, o))), "{key}");
    }
    let mut listed = Vec::new();
    let result = log.index.list(0, log.partition.bounds(), Patience::MayBlock, &mut |key, _, _| {
        listed.push(key.to_vec());
        true
    });
    assert!(matches!(result, Err(Error::Corrupt(_))));
    assert_eq!(listed, [b"new"]);
    // What is written behind it counts.
    log.append(&[put("lost", "3"), delete("old")]);
    assert_eq!((log.value(b"lost"), log.value(b"old")), (Some(b"3".to_vec()), None));
}

#[test]
fn a_question_that_may_not_wait_reads_a_little_and_no_more() {
    let disk = disk();
    let log = Log::open(&disk, &LogConfig::default(), Limits { recent_most: 1000, save_behind: 4 });
    log.append(&many(10));
    let at_once = |key: &[u8]| log.index.latest(key, log.partition.bounds(), Patience::AtOnce);
    assert!(matches!(at_once(b"key 1"), Err(Error::WouldBlock)));
    assert_eq!(log.value(b"key 1"), Some(b"6".to_vec()));
    log.append(&[put("key 1", "new")]);
    assert!(matches!(at_once(b"key 1"), Ok(Latest::Live(record)) if record.value() == Some(b"new")));
    log.append(&many(400));
    assert!(matches!(at_once(b"key 1"), Err(Error::WouldBlock)));
}
