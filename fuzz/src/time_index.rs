//! Time indexes: whatever bytes one has, every answer is the one without an index; only an entry that is true and hides a larger time before it
//! is believed, as Kafka believes it. Then the answer is a record at or after the time all the same.

use crate::input::Input;
use crate::logs::{self, Log, config, disk, file};
use offsetfs::log::names;
use std::sync::OnceLock;

/// A log whose times rise from batch to batch, and one whose times jump.
fn logs_of_both_kinds() -> &'static [Log; 2] {
    static LOGS: OnceLock<[Log; 2]> = OnceLock::new();
    LOGS.get_or_init(|| {
        let rising: Vec<Vec<i64>> = (0..24).map(|n: i64| vec![1000 + n * 10, 1005 + n * 10]).collect();
        let jumping: Vec<Vec<i64>> = (0..24).map(|n: i64| vec![1000 + (n * 7 % 24) * 10, 1005 + (n * 5 % 24) * 10]).collect();
        [rising, jumping].map(|batches| {
            let batches: Vec<&[i64]> = batches.iter().map(Vec::as_slice).collect();
            logs::write(&batches)
        })
    })
}

/// Whether an index has an entry that is true of its batch while an earlier batch of the segment has as large a time.
fn hides_a_time(log: &Log, base: i64, index: &[u8]) -> bool {
    index.chunks_exact(12).any(|entry| {
        let time = i64::from_be_bytes(std::array::from_fn(|at| entry[at]));
        let relative = i32::from_be_bytes(std::array::from_fn(|at| entry[8 + at]));
        let offset = base + i64::from(relative);
        let named = log.batches.iter().find(|b| b.segment == base && (b.first..=b.last).contains(&offset) && b.largest == time);
        named.is_some_and(|named| log.batches.iter().any(|b| b.segment == base && b.first < named.first && b.largest >= time))
    })
}

/// One input: which log and segments get it and what is done then, and the bytes of a time index.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let (which, choice) = (usize::from(input.byte()), input.byte());
    let log = &logs_of_both_kinds()[usize::from(choice & 1)];
    let index = input.rest();
    let chosen: Vec<i64> = match log.bases.get(which % (log.bases.len() + 1)) {
        Some(base) => vec![*base],
        None => log.bases.clone(),
    };
    let mut others: Vec<_> = chosen.iter().map(|base| (names::of(logs::offset(*base), names::TIME_INDEX), Some(index))).collect();
    if choice & 2 != 0 {
        // An offset index as wrong as the time index.
        others.extend(chosen.iter().map(|base| (names::of(logs::offset(*base), names::INDEX), Some(index))));
    }
    let disk = disk(log, &others);
    let partition = logs::open(&disk, &config()).expect("an index is a hint");
    let believed = chosen.iter().any(|base| hides_a_time(log, *base, index));
    let times = log.records.iter().flat_map(|known| [known.timestamp, known.timestamp + 1]).chain([0, i64::MAX]);
    for time in times {
        let expected = log.records.iter().position(|known| known.timestamp >= time).map(|at| at as i64);
        let answer = logs::first_at(&partition, time);
        if !believed {
            assert_eq!(answer, expected, "time {time}");
        } else if let Some(offset) = answer {
            assert!(log.records[offset as usize].timestamp >= time, "time {time} leads to offset {offset}, which is older");
        }
    }
    logs::same_records(&partition, &log.records);
    drop(partition);
    if choice & 4 != 0 {
        logs::append_one(&disk, &config(), &log.records, choice & 8 != 0);
    }
}

/// Inputs to begin with: the index of each segment, for itself, cut, with a zero tail, without its first entry, and for another segment.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (kind, log) in (0..).zip(logs_of_both_kinds()) {
        for (number, base) in (0..).zip(&log.bases) {
            let index = file(log, *base, names::TIME_INDEX);
            for (which, choice) in [(number, 0), (number, 4), (number + 1, 8), (u8::MAX, 2)] {
                seeds.push([&[which, kind | choice], index].concat());
            }
            seeds.push([&[number, kind | 12], index, &[0; 96]].concat());
            seeds.push([&[number, kind | 4], &index[..index.len() / 2]].concat());
            seeds.push([&[number, kind], index.get(12..).unwrap_or_default()].concat());
            let batches = log.batches.iter().filter(|batch| batch.segment == *base);
            let entries: Vec<u8> =
                batches.flat_map(|b| [&b.largest.to_be_bytes()[..], &((b.first - base) as i32).to_be_bytes()].concat()).collect();
            seeds.push([&[number, kind], entries.as_slice()].concat());
        }
    }
    seeds
}
