//! The thorough pass over logs of a few batches, good and bad. Every flipped bit, crashes and hostile values: `tests/damage.rs`, `tests/crash.rs`.

use super::*;
use crate::log::batch::assign;
use crate::log::encode::{BatchEncoder, Encoding, NewRecord};
use crate::log::index::OffsetEntry;

fn offset(number: i64) -> Offset {
    Offset::new(number).expect("not negative")
}

/// A batch of values from an offset on.
fn batch(first: i64, values: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = BatchEncoder::new(&mut bytes, &Encoding::default());
    for value in values {
        encoder.push(&NewRecord { timestamp: TimestampMs::new(1000 + first), key: None, value: Some(value), headers: &[] });
    }
    encoder.finish(usize::MAX).expect("no codec can fail");
    assign(&mut bytes, offset(first), 7);
    bytes
}

fn scanned(log: &[u8], limit: Option<i64>, disk_index: &[u8]) -> Scan {
    scan(log, Scope { base: Offset::ZERO, limit: limit.map(offset), interval_bytes: 100, disk_index })
}

/// The first byte of a damaged stretch, the byte behind it, and the offsets that it costs.
type Stretch = (u64, u64, Option<(i64, i64)>);

fn damage(scan: &Scan) -> Vec<Stretch> {
    scan.damage.iter().map(|d| (d.from.get(), d.to.get(), d.offsets.map(|(first, last)| (first.get(), last.get())))).collect()
}

fn tail(scan: &Scan) -> Option<(u64, u64, bool)> {
    scan.tail.as_ref().map(|t| (t.from.get(), t.bytes, t.zeros))
}

#[test]
fn a_sound_log_has_nothing_but_an_end() {
    let log = [batch(0, &[b"a", b"b"]), batch(2, &[b"c"]), batch(9, &[b"d"])].concat();
    let scan = scanned(&log, Some(10), &[]);
    assert_eq!((damage(&scan), tail(&scan)), (Vec::new(), None));
    assert_eq!((scan.valid_end.get(), scan.next_offset, scan.batches, scan.last_epoch), (log.len() as u64, offset(10), 3, Some(7)));
    assert_eq!((scan.largest.timestamp.get(), scan.largest.offset), (1009, offset(9)));
    let empty = scanned(&[], None, &[]);
    assert_eq!((empty.next_offset, empty.batches, tail(&empty), empty.largest.timestamp), (Offset::ZERO, 0, None, TimestampMs::NONE));
}

#[test]
fn what_follows_the_last_good_batch_is_its_tail() {
    let good = batch(0, &[b"a", b"b"]);
    let next = batch(2, &[b"cccc"]);
    let end = good.len() as u64;
    let mut wrong = next.clone();
    *wrong.last_mut().expect("a byte") ^= 1;
    for (tail_bytes, zeros) in [(&next[..5], true), (&next[..40], false), (&wrong[..], false), (&[0; 300][..], true), (b"?", false)] {
        let scan = scanned(&[&good, tail_bytes].concat(), None, &[]);
        assert_eq!((damage(&scan), tail(&scan)), (Vec::new(), Some((end, tail_bytes.len() as u64, zeros))));
        assert_eq!((scan.valid_end.get(), scan.next_offset), (end, offset(2)));
    }
}

#[test]
fn a_damaged_stretch_costs_the_offsets_between_its_neighbours() {
    let pieces = [batch(0, &[b"a"]), batch(1, &[b"b", b"c"]), batch(3, &[b"d"]), batch(4, &[b"e"])];
    let lengths: Vec<u64> = pieces.iter().map(|p| p.len() as u64).collect();
    for at in [0, 8, 11, 17, 30, 60, 66] {
        let mut log = pieces.concat();
        log[pieces[0].len() + at] ^= 0x10;
        let scan = scanned(&log, None, &[]);
        let from = lengths[0];
        assert_eq!((damage(&scan), tail(&scan)), (vec![(from, from + lengths[1], Some((1, 2)))], None), "byte {at}");
        assert_eq!(scan.damage_at(offset(2)).map(|d| d.from.get()), Some(from));
        assert_eq!((scan.damage_at(offset(0)), scan.damage_at(offset(3))), (None, None));
        assert_eq!(scan.damage_from(from).map(|d| d.to.get()), Some(from + lengths[1]));
    }
}

#[test]
fn good_batches_between_damaged_ones_stay() {
    let pieces: Vec<Vec<u8>> = (0..6).map(|n| batch(n, &[b"value"])).collect();
    let size = pieces[0].len();
    let mut log = pieces.concat();
    [1, 3, 4].iter().for_each(|number| log[number * size + 65] ^= 1);
    let place = |number: usize| (number * size) as u64;
    assert_eq!(damage(&scanned(&log, None, &[])), [(place(1), place(2), Some((1, 1))), (place(3), place(5), Some((3, 4)))]);
    // Where the last ones are no batches at all, only an index entry tells that the one between is not what a value holds.
    log[place(4) as usize..].fill(0xFF);
    let entry = OffsetEntry { offset: offset(4), position: Position::new(place(4)) };
    for (index, expected) in [(encode_offset_entry(Offset::ZERO, entry).expect("it fits").to_vec(), place(3)), (Vec::new(), place(1))] {
        assert_eq!(scanned(&log, None, &index).valid_end.get(), expected);
    }
}

#[test]
fn an_entry_stands_behind_a_damaged_stretch_however_short_the_way() {
    let pieces = [batch(0, &[b"a"]), batch(1, &[b"b"]), batch(2, &[b"c"])];
    let mut log = pieces.concat();
    let third = pieces[0].len() + pieces[1].len();
    log[pieces[0].len() + 30] ^= 1;
    let scan = scan(&log, Scope { base: Offset::ZERO, limit: None, interval_bytes: 1 << 20, disk_index: &[] });
    let index = OffsetIndex::new(&scan.index, Offset::ZERO);
    let entries: Vec<_> = (0..index.len()).filter_map(|i| index.entry(i)).map(|e| (e.offset.get(), e.position.get())).collect();
    assert_eq!(entries, [(2, third as u64)]);
    // With its help the good batch is found again where the chain behind it is broken, too.
    let broken = [&log[..], &batch(3, &[b"d"])[..50], &[0xff; 200]].concat();
    let with = scanned(&broken, Some(9), &scan.index);
    assert_eq!((damage(&with).len(), with.next_offset), (1, offset(3)));
}

#[test]
fn a_base_offset_that_is_wrong_is_told_from_its_neighbour() {
    let pieces = [batch(0, &[b"a"]), batch(1, &[b"b", b"c"]), batch(3, &[b"d"])];
    let mut log = pieces.concat();
    let second = pieces[0].len();
    log[second + 6] = 1;
    let scan = scanned(&log, None, &[]);
    assert_eq!(damage(&scan), [(second as u64, (second + pieces[1].len()) as u64, Some((1, 2)))], "no CRC covers it, the next batch tells");
    assert_eq!(scan.next_offset, offset(4));
}

#[test]
fn a_torn_base_offset_is_not_taken_for_the_first_one() {
    // Everything before the second half of a write is lost, the bytes of the base offset among it.
    let mut log = [vec![0; 500], batch(0, &[b"a"])].concat();
    assert_eq!((scanned(&log, None, &[]).batches, tail(&scanned(&log, None, &[])).map(|t| t.0)), (0, Some(0)));
    log.extend(batch(40, &[b"b"]));
    log.extend(batch(41, &[b"c"]));
    let scan = scanned(&log, None, &[]);
    assert_eq!((scan.batches, damage(&scan)), (2, vec![(0, 500 + batch(0, &[b"a"]).len() as u64, Some((0, 39)))]));
    // Agreed with by the batch behind it, it is good: the stretch before cost nothing.
    let log = [vec![0; 500], batch(0, &[b"a"]), batch(1, &[b"b"])].concat();
    assert_eq!((scanned(&log, None, &[]).batches, damage(&scanned(&log, None, &[]))), (2, vec![(0, 500, None)]));
}

#[test]
fn nothing_in_a_segment_reaches_the_next_one() {
    let log = [batch(0, &[b"a"]), batch(5, &[b"b"])].concat();
    let scan = scanned(&log, Some(5), &[]);
    assert_eq!((scan.next_offset, scan.batches), (offset(1), 1));
    assert!(scan.tail.is_none(), "a whole batch is no torn write");
    assert_eq!(scan.damage_at_end().map(|d| d.fault.expected.clone()), Some("offsets from 1 on and below 5".into()));
    assert_eq!((scan.damage_at_end().and_then(|d| d.offsets), scan.end_offset()), (Some((offset(1), offset(4))), offset(5)));
}
