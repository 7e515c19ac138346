//! Offset indexes: whatever bytes an index has, every answer is the one without an index.

use crate::input::Input;
use crate::logs::{self, Log, config, disk, file};
use offsetfs::log::names;
use std::sync::OnceLock;

fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let batches: Vec<Vec<i64>> = (0..30).map(|n: i64| (0..=n % 3).map(|part| 1000 + n * 10 + part).collect()).collect();
        let batches: Vec<&[i64]> = batches.iter().map(Vec::as_slice).collect();
        logs::write(&batches)
    })
}

/// One input: which segments get it and what is done then, and the bytes of an index.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let (which, choice) = (usize::from(input.byte()), input.byte());
    let log = log();
    let index = input.rest();
    let chosen: Vec<i64> = match log.bases.get(which % (log.bases.len() + 1)) {
        Some(base) => vec![*base],
        None => log.bases.clone(),
    };
    let mut others: Vec<_> = chosen.iter().map(|base| (names::of(logs::offset(*base), names::INDEX), Some(index))).collect();
    if choice & 1 != 0 {
        others.extend(chosen.iter().map(|base| (names::of(logs::offset(*base), names::TIME_INDEX), None)));
    }
    let disk = disk(log, &others);
    let partition = logs::open(&disk, &config()).expect("an index is a hint");
    logs::same_records(&partition, &log.records);
    for batch in &log.batches {
        let expected = log.records.iter().position(|known| known.timestamp >= batch.largest).map(|at| at as i64);
        assert_eq!(logs::first_at(&partition, batch.largest), expected, "time {}", batch.largest);
    }
    drop(partition);
    if choice & 2 != 0 {
        logs::append_one(&disk, &config(), &log.records, choice & 4 != 0);
    }
}

/// Inputs to begin with: the index of each segment, for itself, cut, with a zero tail, and for another segment.
pub fn seeds() -> Vec<Vec<u8>> {
    let log = log();
    let mut seeds = Vec::new();
    for (number, base) in (0..).zip(&log.bases) {
        let index = file(log, *base, names::INDEX);
        for (which, choice) in [(number, 0), (number, 3), (number + 1, 6), (u8::MAX, 1)] {
            seeds.push([&[which, choice], index].concat());
        }
        seeds.push([&[number, 6], index, &[0; 64]].concat());
        seeds.push([&[number, 2], &index[..index.len() / 2]].concat());
    }
    seeds
}
