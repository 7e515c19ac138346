//! The same batches, appended by Kafka's own log and by ours: the same files to the byte.

use crate::folder::{files, folder};
use crate::judge::Judge;
use crate::seeds;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::LogConfig;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{NewRecord, Source};
use offsetfs::types::TimestampMs;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

const BEGINNING_MS: i64 = 1_700_000_000_000;
/// What both sides must write alike.
const SUFFIXES: [&str; 4] = [".log", ".index", ".timeindex", "leader-epoch-checkpoint"];

/// A record to append: time, key, value.
type Plan = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

#[derive(Clone, Debug)]
enum Step {
    /// One request.
    Append(Vec<Plan>),
    Roll,
    /// A clean stop and a new start.
    Reopen,
}

fn plan() -> impl Strategy<Value = Plan> {
    let timestamp = prop_oneof![6 => (0..50_000_i64).prop_map(|ms| BEGINNING_MS + ms), 1 => Just(-1), 1 => 0..3_i64];
    let bytes = |most: usize| prop_oneof![4 => (0..most).prop_map(|n| vec![b'x'; n]), 1 => prop::collection::vec(any::<u8>(), 0..9)];
    (timestamp, prop::option::weighted(0.3, bytes(20)), prop::option::weighted(0.9, bytes(400)))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec(plan(), 1..12).prop_map(Step::Append),
        1 => Just(Step::Roll),
        1 => Just(Step::Reopen),
    ]
}

fn config() -> impl Strategy<Value = LogConfig> {
    let segment_ms = prop_oneof![2 => Just(i64::MAX as u64), 1 => 1..60_000_u64];
    // Kafka's time index keeps its last place for the close, so that one of two places rolls at each batch; it cannot do with fewer.
    let segment_index_bytes = prop_oneof![1 => 24..120_u64, 3 => Just(4096_u64)];
    (900..6000_u64, 0..1500_u64, segment_index_bytes, segment_ms, 1..900_u64).prop_map(
        |(segment_bytes, index_interval_bytes, segment_index_bytes, segment_ms, batch_size)| LogConfig {
            segment_bytes,
            index_interval_bytes,
            segment_index_bytes,
            segment_ms,
            batch_size,
            ..LogConfig::default()
        },
    )
}

fn open(directory: &Path, config: &LogConfig) -> Local {
    let filesystem: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let options = Options { wish: Wish::Writable, create: true, config: config.clone() };
    Local::open(&filesystem, directory, options).expect("the directory can be opened")
}

/// Appends with offsetfs; gives the batches that came of it, in order, as they stand in the `.log` files.
fn append(log: &Local, directory: &Path, plans: &[Plan]) -> Vec<Vec<u8>> {
    let before: usize = log_bytes(directory).len();
    let mut records = plans.iter().map(|(timestamp, key, value)| NewRecord {
        timestamp: TimestampMs::new(*timestamp),
        key: key.as_deref(),
        value: value.as_deref(),
        headers: &[],
    });
    let (sender, receiver) = sync_channel(1);
    log.append(&mut records, false, Box::new(move |result| sender.send(result).expect("somebody waits"))).expect("records within bounds");
    receiver.recv().expect("an answer").expect("an append");
    let mut rest = &log_bytes(directory)[before..];
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        let (batch, behind) = rest.split_at(12 + length);
        batches.push(batch.to_vec());
        rest = behind;
    }
    batches
}

/// The bytes of all `.log` files behind one another.
fn log_bytes(directory: &Path) -> Vec<u8> {
    files(directory, &[".log"]).into_iter().flat_map(|(_, bytes)| bytes).collect()
}

/// The files that both sides must have alike. Kafka makes an index at its first use, we with its segment: an empty one and none are the same.
fn written(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = files(directory, &SUFFIXES);
    files.retain(|(name, bytes)| !(name.ends_with("index") && bytes.is_empty()));
    files
}

/// Runs the steps on both sides. `Err` says what differs.
fn run(judge: &mut Judge, config: &LogConfig, steps: &[Step]) -> Result<usize, String> {
    let folder = folder();
    let (theirs, ours) = (folder.path().join("theirs-0"), folder.path().join("ours-0"));
    std::fs::create_dir(&theirs).expect("a new folder");
    let settings = format!(
        "internal.segment.bytes={},index.interval.bytes={},segment.index.bytes={},segment.ms={}",
        config.segment_bytes, config.index_interval_bytes, config.segment_index_bytes, config.segment_ms
    );
    let mut log = open(&ours, config);
    judge.open(&theirs, &settings, true, 0)?;
    let mut appended = false;
    for step in steps {
        match step {
            Step::Append(plans) => {
                let batches = append(&log, &ours, plans);
                judge.append(&batches.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
                appended = true;
            }
            // A partition that nothing was appended to has no file yet.
            Step::Roll if appended => {
                log.committer().expect("writable").roll().expect("a roll");
                judge.roll()?;
            }
            Step::Roll => {}
            Step::Reopen => {
                log.close().expect("a clean close");
                drop(log);
                judge.close()?;
                log = open(&ours, config);
                judge.open(&theirs, &settings, true, 0)?;
            }
        }
    }
    log.close().expect("a clean close");
    judge.close()?;
    if !appended {
        return Ok(0);
    }
    let (theirs, ours) = (written(&theirs), written(&ours));
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(&theirs) != names(&ours) {
        return Err(format!("Kafka's files are {:?}, ours {:?}", names(&theirs), names(&ours)));
    }
    match theirs.iter().zip(&ours).find(|(theirs, ours)| theirs != ours) {
        Some(((name, theirs), (_, ours))) => Err(format!("{name}: Kafka's is {}, ours {}", theirs.escape_ascii(), ours.escape_ascii())),
        None => Ok(theirs.iter().filter(|(name, _)| name.ends_with("index")).count()),
    }
}

/// Generated sequences of appends, rolls and restarts give byte-equal `.log`, `.index`, `.timeindex` and `leader-epoch-checkpoint`.
pub(crate) fn what_we_append_is_kafkas_to_the_byte() {
    let mut judge = Judge::start();
    let seed = seeds::base();
    let mut indexes = 0;
    for n in 0..SEQUENCES {
        let strategy = (config(), prop::collection::vec(step(), 1..15));
        let found = seeds::hold(seed + n, &strategy, |(config, steps)| run(&mut judge, config, steps).map(|count| indexes += count));
        if let Err(((config, steps), difference)) = found {
            panic!("{}={}: {difference}\n{config:?}\n{steps:?}", seeds::SEED, seed + n);
        }
    }
    println!("    {SEQUENCES} sequences from seed {seed}: {indexes} index files with entries, all byte-equal");
    assert!(indexes > SEQUENCES as usize, "{indexes} index files are too few to tell");
}

/// How many sequences are tried.
const SEQUENCES: u64 = 200;
