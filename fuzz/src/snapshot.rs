//! `.snapshot`: one that cannot be read counts for nothing; one that can is believed within the log.

use crate::input::Input;
use crate::logs::{DIRECTORY, offset, open};
use crate::txnindex::{END, STABLE, committed, disk};
use offsetfs::log::check::check;
use offsetfs::log::config::LogConfig;
use offsetfs::log::names;
use offsetfs::log::transactions::read_snapshot;
use offsetfs::types::{Patience, TopicPartition};
use std::path::Path;

/// Where the entries begin, and the size of one, in bytes.
const HEAD_LEN: usize = 10;
const ENTRY_LEN: usize = 46;

/// One input: the offset of the snapshot, whether its checksum and count are made right, and its bytes.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let (at, mends) = (i64::from(input.byte() % 16), input.byte() & 1 != 0);
    let mut bytes = input.rest().to_vec();
    if mends {
        mend(&mut bytes);
    }
    let disk = disk(&names::of(offset(at), names::SNAPSHOT), &bytes);
    let directory = disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory is there");
    let read = read_snapshot(&*directory, offset(at));
    let partition = open(&disk, &LogConfig::default()).expect("a snapshot is a hint");
    let stable = partition.last_stable_offset(Patience::MayBlock).expect("transactions can be followed").get();
    let transactions = partition.open_transactions(Patience::MayBlock).expect("transactions can be followed");
    assert_eq!(read.is_ok(), is_sound(&bytes), "{read:?}");
    match &read {
        Ok(found) => {
            assert!(found.len() <= (bytes.len() - HEAD_LEN) / ENTRY_LEN);
            assert!((0..=END).contains(&stable));
        }
        Err(_) => {
            assert_eq!(stable, STABLE, "a snapshot that cannot be read counts for nothing");
            assert_eq!(transactions.iter().map(|t| (t.producer_id, t.first.get())).collect::<Vec<_>>(), [(3, STABLE)]);
        }
    }
    // What is aborted comes from the log alone.
    assert_eq!(committed(&partition), [2, 3, 5, 6]);
    let topic = TopicPartition { topic: "t".to_owned(), partition: 0 };
    let report = check(&directory, None, &topic, &mut |_, _| {}).expect("a check ends with a report");
    let name = names::of(offset(at), names::SNAPSHOT);
    assert!(read.is_ok() || report.to_string().contains(&name), "a snapshot that cannot be read is told: {report}");
}

/// Whether version, checksum and count are right.
fn is_sound(bytes: &[u8]) -> bool {
    let Some((head, entries)) = bytes.split_at_checked(HEAD_LEN) else { return false };
    let number = |at: usize| u32::from_be_bytes(std::array::from_fn(|byte| head[at + byte]));
    head[..2] == [0, 1] && number(2) == crc32c::crc32c(&bytes[6..]) && u64::from(number(6)) * ENTRY_LEN as u64 == entries.len() as u64
}

fn mend(bytes: &mut [u8]) {
    if bytes.len() < HEAD_LEN {
        return;
    }
    let count = ((bytes.len() - HEAD_LEN) / ENTRY_LEN) as i32;
    bytes[..2].copy_from_slice(&[0, 1]);
    bytes[6..10].copy_from_slice(&count.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[6..]);
    bytes[2..6].copy_from_slice(&crc.to_be_bytes());
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let heads = crate::fixtures::heads(names::SNAPSHOT);
    let mut seeds: Vec<Vec<u8>> =
        crate::fixtures::some(heads, 12).into_iter().map(|(_, bytes)| [&[12, 1], bytes.as_slice()].concat()).collect();
    let entry = |producer: i64, first: i64| [&producer.to_be_bytes()[..], &[0; 30], &first.to_be_bytes()].concat();
    let mut one = [vec![0; HEAD_LEN], entry(3, STABLE)].concat();
    mend(&mut one);
    seeds.push([&[12, 0], one.as_slice()].concat());
    seeds.push([&[8, 0], one.as_slice()].concat());
    let mut none = vec![0; HEAD_LEN];
    mend(&mut none);
    seeds.push([&[10, 0], none.as_slice()].concat());
    seeds
}
