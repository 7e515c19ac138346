//! `.txnindex`: whatever bytes one has, readers of committed records see the same, the check ends, and a recovery makes it right.

use crate::input::Input;
use crate::logs::{DIRECTORY, offset, open};
use offsetfs::io::sim::SimDisk;
use offsetfs::log::batch::{ATTRIBUTES, BatchHeader, CRC, PRODUCER_ID, Step, assign};
use offsetfs::log::check::check;
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::{BatchEncoder, Encoding, NewRecord};
use offsetfs::log::repair::{self, Options};
use offsetfs::log::seek::Found;
use offsetfs::log::{names, partition::Partition};
use offsetfs::types::{Patience, TimestampMs, TopicPartition};
use std::path::Path;

const TRANSACTIONAL: u8 = 0x10;
const CONTROL: u8 = 0x20;
/// Keys of markers.
const ABORT: &[u8] = &[0, 0, 0, 0];
const COMMIT: &[u8] = &[0, 0, 0, 1];

/// A batch of one record each for the keys; its producer's id and attributes are put into the header.
fn batch(log: &mut Vec<u8>, base: i64, keys: &[&[u8]], producer: i64, attributes: u8) {
    let mut bytes = Vec::new();
    let encoding = Encoding::default();
    let mut encoder = BatchEncoder::new(&mut bytes, &encoding);
    for key in keys {
        encoder.push(&NewRecord { timestamp: TimestampMs::new(1000 + base), key: Some(key), value: Some(&[0; 6]), headers: &[] });
    }
    encoder.finish(usize::MAX).expect("a small batch");
    assign(&mut bytes, offset(base), 0);
    bytes[ATTRIBUTES + 1] |= attributes;
    bytes[PRODUCER_ID..PRODUCER_ID + 8].copy_from_slice(&producer.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[ATTRIBUTES..]);
    bytes[CRC..CRC + 4].copy_from_slice(&crc.to_be_bytes());
    log.extend(bytes);
}

/// Producer 1 aborts offsets 0 to 1 and 8 at 4 and 9, producer 2 commits 2 to 3 at 7, 5 to 6 belong to none, 10 to 11 of producer 3 are open.
pub(crate) fn transactions() -> Vec<u8> {
    let mut log = Vec::new();
    batch(&mut log, 0, &[b"a", b"b"], 1, TRANSACTIONAL);
    batch(&mut log, 2, &[b"c", b"d"], 2, TRANSACTIONAL);
    batch(&mut log, 4, &[ABORT], 1, TRANSACTIONAL | CONTROL);
    batch(&mut log, 5, &[b"e", b"f"], -1, 0);
    batch(&mut log, 7, &[COMMIT], 2, TRANSACTIONAL | CONTROL);
    batch(&mut log, 8, &[b"g"], 1, TRANSACTIONAL);
    batch(&mut log, 9, &[ABORT], 1, TRANSACTIONAL | CONTROL);
    batch(&mut log, 10, &[b"h", b"i"], 3, TRANSACTIONAL);
    log
}

/// The size of an entry, in bytes.
const ENTRY_LEN: usize = 34;

/// The offsets that are committed.
const COMMITTED: &[i64] = &[2, 3, 5, 6];
/// The log's end.
pub(crate) const END: i64 = 12;
/// Where the open transaction begins.
pub(crate) const STABLE: i64 = 10;

/// A disk with the log, and one file more.
pub(crate) fn disk(name: &str, bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new();
    disk.write_file(format!("{DIRECTORY}/{}", names::of(offset(0), names::LOG)), &transactions());
    disk.write_file(format!("{DIRECTORY}/leader-epoch-checkpoint"), b"0\n1\n0 0\n");
    disk.write_file(format!("{DIRECTORY}/{name}"), bytes);
    disk
}

/// The offsets whose records a reader of committed ones sees.
pub(crate) fn committed(partition: &Partition) -> Vec<i64> {
    let shown = |number: &i64| match partition.record(offset(*number), Patience::MayBlock).expect("no file is damaged") {
        Found::Record(record) => {
            partition.is_committed(&record.header, offset(*number), Patience::MayBlock).expect("transactions can be followed")
        }
        Found::Absent(_) => false,
    };
    (0..END).filter(shown).collect()
}

/// One input: the bytes of a `.txnindex`, behind a choice.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let repairs = input.byte() & 1 != 0;
    let name = names::of(offset(0), names::TXN_INDEX);
    let disk = disk(&name, input.rest());
    let config = LogConfig::default();
    assert_eq!(committed(&open(&disk, &config).expect("an index is a hint")), COMMITTED);
    let directory = disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory is there");
    let topic = TopicPartition { topic: "t".to_owned(), partition: 0 };
    let report = check(&directory, None, &topic, &mut |_, _| {}).expect("a check ends with a report");
    if !repairs {
        return;
    }
    let options = Options { drop_damaged: false, discard: false, index_interval_bytes: config.index_interval_bytes };
    let plan = repair::plan(&*directory, &options, &mut |_, _| {}).expect("a plan");
    let tells = |report: &offsetfs::log::check::Report| report.to_string().lines().filter(|line| line.contains(names::TXN_INDEX)).count();
    assert!(report.findings_count() == 0 || !plan.is_empty(), "what is found is repaired: {report}");
    repair::apply(&*directory, &plan, &options, &mut |_| {}).expect("a repair");
    let after = check(&directory, None, &topic, &mut |_, _| {}).expect("a check ends with a report");
    assert_eq!(after.findings_count(), 0, "after a repair nothing is found: {after}");
    assert_eq!(tells(&after), 0, "{after}");
    assert_eq!(committed(&open(&disk, &config).expect("it can be opened")), COMMITTED);
    let index = disk.read_file(format!("{DIRECTORY}/{name}")).unwrap_or_default();
    let number = |entry: &[u8], at: usize| i64::from_be_bytes(std::array::from_fn(|byte| entry[at + byte]));
    let entries: Vec<(i64, i64)> = index.chunks(ENTRY_LEN).map(|entry| (number(entry, 2), number(entry, 18))).collect();
    assert_eq!(entries, [(1, 4), (1, 9)], "both aborted transactions are in the index, and no other");
}

fn entry(producer: i64, first: i64, last: i64, stable: i64) -> Vec<u8> {
    [&[0, 0][..], &producer.to_be_bytes(), &first.to_be_bytes(), &last.to_be_bytes(), &stable.to_be_bytes()].concat()
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let right = [entry(1, 0, 4, 2), entry(1, 8, 9, 10)].concat();
    let mut seeds = vec![[&[1], right.as_slice()].concat(), [&[1], &right[..34]].concat(), [&[0], &right[..50]].concat(), vec![1]];
    seeds.push([vec![1], entry(2, 2, 7, 8), entry(1, 0, 4, 2)].concat());
    let heads = crate::fixtures::heads(names::TXN_INDEX);
    seeds.extend(crate::fixtures::some(heads, 10).into_iter().map(|(_, bytes)| [&[1], bytes.as_slice()].concat()));
    assert!(matches!(BatchHeader::read(&transactions(), 0), Ok(Step::Batch(_))));
    seeds
}
