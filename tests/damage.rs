//! Bit rot and lies: every single flipped bit of small logs, indexes of any bytes, values that hold copies of segments.
//!
//! What is damaged is told with file and position and costs its own records only; an index costs time at most. The logs come from the tests' own
//! encoder, so that all formats and codecs are there.

mod common;

use common::encode::{Batch, Codec, Record, indexes, message, offset_index, time_index, wrapper};
use offsetfs::error::Error;
use offsetfs::io::sim::SimDisk;
use offsetfs::log::config::LogConfig;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Absent, Found, Source};
use offsetfs::types::{Offset, Patience, TimestampMs};
use proptest::prelude::*;
use std::path::Path;

const DIRECTORY: &str = "/topic-0";
const TIME_MS: i64 = 1_700_000_000_000;

fn offset(number: i64) -> Offset {
    Offset::new(number).expect("not negative")
}

/// The offset, the time and the value of a record.
type Entry = (i64, i64, Vec<u8>);

/// The bytes of a batch or message, and the records that are in it.
#[derive(Clone, Debug)]
struct Piece {
    bytes: Vec<u8>,
    records: Vec<Entry>,
}

fn value_of(number: i64) -> Vec<u8> {
    format!("value {number}").into_bytes()
}

fn records(first: i64, count: i64) -> Vec<Entry> {
    (first..first + count).map(|n| (n, TIME_MS + n, value_of(n))).collect()
}

/// A batch of magic 2.
fn batch(first: i64, count: i64, codec: Codec) -> Piece {
    let records = records(first, count);
    let encoded = records.iter().map(|(n, time, value)| Record::new((n - first) as i32, *time, Some(b"k"), Some(value))).collect();
    Piece { bytes: Batch { codec, ..Batch::new(first, encoded) }.encode(), records }
}

/// A message of magic 0 or 1 alone, or several in a wrapper. Messages of magic 0 have no time.
fn old(first: i64, count: i64, magic: i8, codec: Codec) -> Piece {
    let mut records = records(first, count);
    if magic == 0 {
        records.iter_mut().for_each(|record| record.1 = -1);
    }
    if codec == Codec::None {
        let bytes = records.iter().flat_map(|(n, time, value)| message(*n, magic, 0, *time, Some(b"k"), Some(value))).collect();
        return Piece { bytes, records };
    }
    let inner = |(n, time, value): &Entry| message(if magic == 0 { *n } else { n - first }, magic, 0, *time, Some(b"k"), Some(value));
    let inner: Vec<u8> = records.iter().flat_map(inner).collect();
    Piece { bytes: wrapper(first + count - 1, magic, codec, TIME_MS + first + count - 1, &inner), records }
}

/// Segments of pieces, by base offset.
#[derive(Clone, Debug)]
struct Log {
    segments: Vec<(i64, Vec<Piece>)>,
}

impl Log {
    /// Two segments of two and three pieces. `make` gets the first offset of a piece and the number of its records.
    fn of(make: impl Fn(i64, i64) -> Piece) -> Log {
        Log { segments: vec![(0, vec![make(0, 2), make(2, 1)]), (3, vec![make(3, 2), make(5, 2), make(7, 2)])] }
    }

    fn bytes(&self, segment: usize) -> Vec<u8> {
        self.segments[segment].1.iter().flat_map(|piece| piece.bytes.clone()).collect()
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.segments.iter().flat_map(|(_, pieces)| pieces)
    }

    fn records(&self) -> Vec<Entry> {
        self.pieces().flat_map(|piece| piece.records.clone()).collect()
    }

    /// A disk with it; `magic 2` gets the indexes that Kafka would write, the others none.
    fn disk(&self) -> SimDisk {
        self.disk_indexed(50)
    }

    /// The same, with an index entry for each so many bytes.
    fn disk_indexed(&self, interval_bytes: u32) -> SimDisk {
        let disk = SimDisk::new();
        for (number, (base, pieces)) in self.segments.iter().enumerate() {
            let bytes = self.bytes(number);
            if pieces.iter().all(|piece| piece.bytes[16] == 2) {
                let (index, timeindex) = indexes(*base, &bytes, interval_bytes);
                disk.write_file(format!("{DIRECTORY}/{base:020}.index"), &index);
                disk.write_file(format!("{DIRECTORY}/{base:020}.timeindex"), &timeindex);
            }
            disk.write_file(log_path(*base), &bytes);
        }
        disk
    }
}

fn log_path(base: i64) -> String {
    format!("{DIRECTORY}/{base:020}.log")
}

fn open(disk: &SimDisk) -> Local {
    let config = LogConfig { index_interval_bytes: 50, segment_bytes: 4096, ..LogConfig::default() };
    Local::open(&disk.filesystem(), Path::new(DIRECTORY), Options { wish: Wish::ReadOnly, create: false, config })
        .expect("it can be opened")
}

/// What a range over everything gives: the records in order, and the damage met on the way.
fn range(log: &Local) -> (Vec<Entry>, Vec<Error>) {
    let mut batches = log.batches(Offset::ZERO, Offset::MAX);
    let (mut found, mut damage) = (Vec::new(), Vec::new());
    loop {
        match batches.next(Patience::MayBlock) {
            Ok(None) => return (found, damage),
            Err(error) => damage.push(error),
            Ok(Some(body)) => {
                for record in body.records() {
                    match record {
                        Ok(record) => {
                            let record = body.record(record);
                            found.push((record.offset().get(), record.timestamp().get(), record.value().unwrap_or_default().to_vec()));
                        }
                        Err(fault) => panic!("a batch with a right CRC has a fault: {fault}"),
                    }
                }
            }
        }
        assert!(damage.len() < 100, "the walk does not end: {damage:?}");
    }
}

/// Flips every bit of one segment of a log, one at a time. Returns how many there were.
fn flip_every_bit(log: &Log, segment: usize, what: &str) -> usize {
    let disk = log.disk();
    let (base, pieces) = &log.segments[segment];
    let bytes = log.bytes(segment);
    let all = log.records();
    let end = all.last().expect("records").0 + 1;
    let file = format!("{base:020}.log");
    let last_segment = segment + 1 == log.segments.len();
    let mut start = 0;
    for (number, piece) in pieces.iter().enumerate() {
        let last = last_segment && number + 1 == pieces.len();
        // Messages that are not wrapped are entries of their own.
        let entries = entries(&piece.bytes);
        for (at, bit) in (start..start + piece.bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let what = format!("{what}: bit {bit} of byte {at} of {file}, byte {} of the piece at {start}", at - start);
            let (entry, inside) = entries
                .iter()
                .map(|entry| (start + entry, at - start - entry.min(&(at - start))))
                .rfind(|(entry, _)| *entry <= at)
                .expect("an entry");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            disk.write_file(log_path(*base), &flipped);
            let source = open(&disk);
            let hit: Vec<i64> = hit_by(piece, &entries, entry - start);
            let last = last && entry - start == *entries.last().expect("an entry");
            // No checksum covers a base offset: where nothing comes behind the batch, it stands at whatever offset it names.
            let moved = last && inside < 8;
            for (number, time, value) in &all {
                let found = source.record(offset(*number), Patience::MayBlock);
                match found {
                    Ok(Found::Record(record)) => {
                        let is = (record.offset().get(), record.timestamp().get(), record.value().unwrap_or_default());
                        let own = is == (*number, *time, value.as_slice());
                        assert!(own || moved && hit.contains(number), "{what}: a wrong record at {number}: {is:?}");
                    }
                    Ok(Found::Absent(absent)) => {
                        assert!(hit.contains(number), "{what}: {number} is lost: {absent:?}");
                        let torn = last && matches!(absent, Absent::BeyondLogEnd(_));
                        assert!(torn || moved, "{what}: {number} is {absent:?}, not damaged");
                    }
                    Err(Error::Corrupt(corruption)) => {
                        assert!(hit.contains(number), "{what}: {number} is lost: {corruption}");
                        assert_eq!(
                            (corruption.file.as_str(), corruption.fault.position.get()),
                            (file.as_str(), entry as u64),
                            "{what}: {corruption}"
                        );
                        let covers = corruption.offsets.is_some_and(|(first, last)| (first.get()..=last.get()).contains(number));
                        assert!(covers, "{what}: {corruption}");
                    }
                    Err(error) => panic!("{what}: {number}: {error}"),
                }
            }
            let (found, damage) = range(&source);
            let survivors: Vec<_> = all.iter().filter(|record| !hit.contains(&record.0)).cloned().collect();
            let good: Vec<_> = found.iter().filter(|record| !(moved && record.0 >= hit[0])).cloned().collect();
            let others_lost = survivors.iter().find(|record| !good.contains(record));
            assert_eq!(others_lost, None, "{what}: lost in a range");
            let wrong = good.iter().find(|record| !all.contains(record));
            assert_eq!(wrong, None, "{what}: a wrong record in a range");
            assert!(found.is_sorted_by(|a, b| a.0 < b.0), "{what}: the offsets do not rise");
            for error in &damage {
                let Error::Corrupt(corruption) = error else { panic!("{what}: {error}") };
                assert_eq!(
                    (corruption.file.as_str(), corruption.fault.position.get()),
                    (file.as_str(), entry as u64),
                    "{what}: {corruption}"
                );
            }
            if good.len() < all.len() && !moved {
                let torn = source.partition().torn_tail().filter(|(name, tail)| *name == file && tail.from.get() == entry as u64);
                assert!(last && torn.is_some() || !damage.is_empty(), "{what}: {} of {end} records, and not a word", good.len());
            }
            let mut listed = Vec::new();
            let mut sink = |found: Offset| {
                listed.push(found.get());
                listed.len() < 1000
            };
            source.offsets(Offset::ZERO, Patience::MayBlock, &mut sink).unwrap_or_else(|error| panic!("{what}: a listing: {error}"));
            let unlisted = survivors.iter().find(|record| !listed.contains(&record.0));
            assert_eq!(unlisted, None, "{what}: not listed");
            for (number, time, _) in survivors.iter().filter(|record| record.1 >= 0 && !moved) {
                let got = source
                    .offset_at(TimestampMs::new(*time), Patience::MayBlock)
                    .unwrap_or_else(|error| panic!("{what}: at {time}: {error}"));
                assert_eq!(got.map(Offset::get), Some(*number), "{what}: at {time}");
            }
            let last_found = source.nth_last(1, Patience::MayBlock).unwrap_or_else(|error| panic!("{what}: the last record: {error}"));
            assert!(last_found.is_some(), "{what}: there is a last record");
        }
        start += piece.bytes.len();
    }
    disk.write_file(log_path(*base), &bytes);
    assert_eq!(range(&open(&disk)).0, all, "{what}: untouched");
    println!("{what}: {} bits", bytes.len() * 8);
    bytes.len() * 8
}

/// Where the batches or messages of a piece begin.
fn entries(bytes: &[u8]) -> Vec<usize> {
    let (mut entries, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        entries.push(at);
        at += 12 + u32::from_be_bytes(bytes[at + 8..at + 12].try_into().expect("four bytes")) as usize;
    }
    entries
}

/// The offsets in the entry at a position of a piece.
fn hit_by(piece: &Piece, entries: &[usize], entry: usize) -> Vec<i64> {
    let offsets = piece.records.iter().map(|record| record.0);
    if entries.len() == 1 {
        return offsets.collect();
    }
    let number = entries.iter().position(|at| *at == entry).expect("an entry of the piece");
    offsets.skip(number).take(1).collect()
}

#[test]
fn a_flipped_bit_of_a_plain_batch_costs_that_batch() {
    let log = Log::of(|first, count| batch(first, count, Codec::None));
    let flips = flip_every_bit(&log, 0, "plain") + flip_every_bit(&log, 1, "plain");
    assert!(flips > 3000, "{flips}");
}

#[test]
fn a_flipped_bit_of_a_compressed_batch_costs_that_batch() {
    for codec in [Codec::Gzip, Codec::SnappyStream, Codec::Lz4, Codec::Zstd] {
        flip_every_bit(&Log::of(|first, count| batch(first, count, codec)), 1, &format!("{codec:?}"));
    }
}

#[test]
fn a_flipped_bit_of_an_old_message_costs_that_message() {
    for magic in [0, 1] {
        let log = Log::of(|first, count| old(first, count, magic, Codec::None));
        flip_every_bit(&log, 0, &format!("magic {magic}"));
        flip_every_bit(&log, 1, &format!("magic {magic}"));
    }
}

#[test]
fn a_flipped_bit_of_a_wrapper_costs_what_it_holds() {
    for (magic, codec) in [(0, Codec::Gzip), (1, Codec::Gzip), (1, Codec::SnappyStream), (0, Codec::Lz4OfMagic0)] {
        let log = Log::of(|first, count| old(first, count, magic, codec));
        flip_every_bit(&log, 1, &format!("magic {magic} {codec:?}"));
    }
}

/// The last records that a log opened anew shows, by their number from the end.
fn last_records(disk: &SimDisk, most: u64) -> Vec<Option<i64>> {
    (1..=most)
        .map(|k| open(disk).nth_last(k, Patience::MayBlock).unwrap_or_else(|error| panic!("-{k}: {error}")).map(Offset::get))
        .collect()
}

#[test]
fn a_log_opened_anew_counts_from_its_end_past_damage_and_finds_each_other_record() {
    // Several batches to an index interval: the batch that an entry names, ones between and the last one are hit in turn.
    let log = Log { segments: vec![(0, (0..12).map(|n| batch(2 * n, 2, Codec::None)).collect()), (24, vec![batch(24, 2, Codec::None)])] };
    let disk = log.disk_indexed(200);
    let bytes = log.bytes(0);
    let records = log.records();
    for (number, start) in entries(&bytes).into_iter().enumerate() {
        // Of the header: the base offset, the length, the magic byte, the last offset, the number of records; and a byte of a record.
        for (at, bit) in [(7, 0), (7, 1), (7, 2), (7, 3), (7, 4), (7, 5), (10, 3), (11, 0), (16, 2), (26, 0), (60, 0), (70, 3)] {
            let what = format!("bit {bit} of byte {at} of batch {number}");
            let mut flipped = bytes.clone();
            flipped[start + at] ^= 1 << bit;
            disk.write_file(log_path(0), &flipped);
            let hit = [2 * number as i64, 2 * number as i64 + 1];
            let survivors: Vec<i64> = records.iter().map(|record| record.0).filter(|offset| !hit.contains(offset)).collect();
            let want: Vec<Option<i64>> = survivors.iter().rev().map(|offset| Some(*offset)).chain([None, None]).collect();
            assert_eq!(last_records(&disk, want.len() as u64), want, "{what}");
            for (number, time, value) in &records {
                match open(&disk).record(offset(*number), Patience::MayBlock) {
                    Ok(Found::Record(record)) => {
                        let is = (record.offset().get(), record.timestamp().get(), record.value().unwrap_or_default());
                        assert_eq!(is, (*number, *time, value.as_slice()), "{what}");
                    }
                    Err(Error::Corrupt(_)) => assert!(hit.contains(number), "{what}: {number} is lost"),
                    other => panic!("{what}: {number}: {other:?}"),
                }
            }
        }
    }
}

/// A batch whose only value is a segment of batches that would fit behind it.
fn nested(first: i64, inner_first: i64, trailer: &[u8]) -> Piece {
    let inner: Vec<u8> = (0..3).flat_map(|n| batch(inner_first + 2 * n, 2, Codec::None).bytes).chain(trailer.iter().copied()).collect();
    let records = vec![(first, TIME_MS + first, inner.clone())];
    Piece { bytes: Batch::new(first, vec![Record::new(0, TIME_MS + first, None, Some(&inner))]).encode(), records }
}

#[test]
fn a_copy_of_a_segment_in_a_value_never_becomes_records() {
    for trailer in [&b""[..], &[0; 40]] {
        // The copy's offsets begin at the very offset, and far behind.
        for inner_first in [2, 50] {
            let log =
                Log { segments: vec![(0, vec![batch(0, 2, Codec::None), nested(2, inner_first, trailer), batch(3, 2, Codec::None)])] };
            flip_every_bit(&log, 0, &format!("copy at {inner_first} in the middle, {} bytes behind it", trailer.len()));
            let log = Log { segments: vec![(0, vec![batch(0, 2, Codec::None), nested(2, inner_first, trailer)])] };
            flip_every_bit(&log, 0, &format!("copy at {inner_first} at the end, {} bytes behind it", trailer.len()));
        }
    }
}

/// Whoever cannot wait finds out that an entry lies, and comes again: what he has verified on the way must not answer him then.
#[test]
fn an_entry_that_leads_into_a_value_is_not_believed_by_who_comes_again() {
    let strange = |n: i64| Batch::new(n, vec![Record::new(0, TIME_MS + n, Some(b"k"), Some(b"strange"))]).encode();
    let copy = [strange(3), strange(4), strange(5)].concat();
    let carrier = Piece {
        bytes: Batch::new(2, vec![Record::new(0, TIME_MS + 2, None, Some(&copy))]).encode(),
        records: vec![(2, TIME_MS + 2, copy.clone())],
    };
    let log = Log { segments: vec![(0, vec![batch(0, 2, Codec::None), carrier, batch(3, 1, Codec::None), batch(4, 1, Codec::None)])] };
    let bytes = log.bytes(0);
    let inner = bytes.windows(copy.len()).position(|window| window == copy).expect("the copy lies in the log") as u32;
    for lie in [vec![(3, inner)], vec![(1, 0), (3, inner)], vec![(4, inner + strange(3).len() as u32)]] {
        let disk = log.disk();
        disk.write_file(format!("{DIRECTORY}/{:020}.index", 0), &offset_index(0, &lie));
        for number in 0..5 {
            let opened = open(&disk);
            // The last records come from behind, over the same entries.
            let _ = opened.nth_last(1, Patience::AtOnce);
            for patience in [Patience::AtOnce, Patience::AtOnce, Patience::MayBlock, Patience::AtOnce] {
                match opened.record(offset(number), patience) {
                    Ok(Found::Record(record)) => {
                        assert_eq!(
                            record.value(),
                            Some(log.records()[number as usize].2.as_slice()),
                            "offset {number}, {lie:?}, {patience:?}"
                        );
                    }
                    Err(Error::WouldBlock) if patience == Patience::AtOnce => {}
                    other => panic!("offset {number}, {lie:?}, {patience:?}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_damaged_stretch_is_told_once() {
    let log = Log::of(|first, count| batch(first, count, Codec::None));
    let bytes = log.bytes(0);
    for (number, start) in entries(&bytes).into_iter().enumerate() {
        // Bytes that are missing up to a batch are a gap, as compaction leaves it.
        for (what, damaged) in [
            ("a flipped bit", [&bytes[..start + 70], &[bytes[start + 70] ^ 1], &bytes[start + 71..]].concat()),
            ("a torn batch", bytes[..start + 40].to_vec()),
        ] {
            let disk = log.disk();
            disk.write_file(log_path(0), &damaged);
            let (found, told) = range(&open(&disk));
            let lost: Vec<i64> = log.segments[0]
                .1
                .iter()
                .enumerate()
                .filter(|(n, _)| if what == "a flipped bit" { *n == number } else { *n >= number })
                .flat_map(|(_, piece)| piece.records.iter().map(|r| r.0))
                .collect();
            let want: Vec<_> = log.records().into_iter().filter(|record| !lost.contains(&record.0)).collect();
            assert_eq!(found, want, "{what} in batch {number}");
            assert_eq!(told.len(), 1, "{what} in batch {number}: {told:?}");
        }
    }
}

#[test]
fn damaged_neighbours_cost_only_themselves() {
    let log = Log::of(|first, count| batch(first, count, Codec::None));
    let bytes = log.bytes(1);
    let starts = entries(&bytes);
    for hit in [vec![0, 1], vec![1, 2], vec![0, 2], vec![0, 1, 2]] {
        let disk = log.disk();
        let mut damaged = bytes.clone();
        hit.iter().for_each(|number| damaged[starts[*number] + 30] ^= 1);
        disk.write_file(log_path(3), &damaged);
        let (found, _) = range(&open(&disk));
        let lost: Vec<i64> = hit.iter().flat_map(|number| log.segments[1].1[*number].records.iter().map(|record| record.0)).collect();
        let want: Vec<_> = log.records().into_iter().filter(|record| !lost.contains(&record.0)).collect();
        assert_eq!(found, want, "{hit:?}");
    }
}

/// Every way to spoil five batches in a row, each for itself: a look-up that is the first to come into a segment passes over headers only, a range meets the
/// damage and has all of it looked at. What the one finds the other finds, too.
#[test]
fn a_look_up_finds_what_a_range_finds_whatever_is_damaged_before_it() {
    type Spoil = fn(&mut [u8]);
    // Nothing; the records; all; the length; the base offset.
    let spoils: [Spoil; 5] = [|_| {}, |bytes| bytes[61..].fill(0), |bytes| bytes.fill(0), |bytes| bytes[11] ^= 0x40, |bytes| bytes[6] ^= 1];
    let pieces = |from: i64| (from..from + 5).map(|n| batch(n, 1, Codec::None)).collect::<Vec<_>>();
    let log = Log { segments: vec![(0, pieces(0)), (5, pieces(5))] };
    let (bytes, starts) = (log.bytes(0), entries(&log.bytes(0)));
    // Entries for every second batch; those of older brokers, each for an append of two batches; none.
    let indexes = [vec![(2, starts[2]), (4, starts[4])], vec![(2, starts[1]), (4, starts[3])], vec![]];
    let mut shown = [0; 2];
    for index in indexes {
        let disk = log.disk();
        let index: Vec<(i64, u32)> = index.into_iter().map(|(offset, at)| (offset, at as u32)).collect();
        disk.write_file(format!("{DIRECTORY}/{:020}.index", 0), &offset_index(0, &index));
        for case in 0..5_usize.pow(5) {
            let mut damaged = bytes.clone();
            for (number, start) in starts.iter().enumerate() {
                let end = starts.get(number + 1).copied().unwrap_or(bytes.len());
                spoils[case / 5_usize.pow(number as u32) % 5](&mut damaged[*start..end]);
            }
            let what = format!("damage {case}, index {index:?}");
            disk.write_file(log_path(0), &damaged);
            let (found, _) = range(&open(&disk));
            for number in 0..5 {
                let by_range = found.iter().find(|record| record.0 == number).map(|record| record.2.clone());
                let by_offset = match open(&disk).record(offset(number), Patience::MayBlock) {
                    Ok(Found::Record(record)) => record.value().map(<[u8]>::to_vec),
                    Ok(Found::Absent(_)) | Err(_) => None,
                };
                assert_eq!(by_offset, by_range, "offset {number}, {what}");
                shown[usize::from(by_range.is_some())] += 1;
            }
            let by_time = open(&disk);
            for number in (0..10).rev() {
                let first = by_time.offset_at(TimestampMs::new(TIME_MS + number), Patience::MayBlock).expect("no failure").map(Offset::get);
                let want = found.iter().find(|record| record.1 >= TIME_MS + number).map(|record| record.0);
                assert_eq!(first, want, "time {number}, {what}");
            }
            let backwards = open(&disk);
            let numbers = found.iter().rev().map(|record| Some(record.0)).chain([None]);
            for (k, want) in (1..).zip(numbers) {
                let last = backwards.nth_last(k, Patience::MayBlock).expect("records and damage, but no failure").map(Offset::get);
                assert_eq!(last, want, "-{k}, {what}");
            }
        }
    }
    assert!(shown.iter().all(|count| *count > 1000), "{shown:?}");
}

/// All answers that look-ups give, in a form that can be compared.
fn answers(log: &Local, end: i64) -> Vec<String> {
    let mut answers = Vec::new();
    for number in 0..end + 2 {
        answers.push(match log.record(offset(number), Patience::MayBlock) {
            Ok(Found::Record(record)) => format!("{number}: {} {:?}", record.timestamp(), record.value()),
            Ok(Found::Absent(absent)) => format!("{number}: {absent:?}"),
            Err(error) => format!("{number}: {error}"),
        });
    }
    let (found, damage) = range(log);
    answers.push(format!("{found:?} {damage:?}"));
    for k in 1..end as u64 + 2 {
        answers.push(format!("-{k}: {:?}", log.nth_last(k, Patience::MayBlock)));
    }
    for time in (TIME_MS - 1..TIME_MS + end + 1).chain([0, i64::MAX]) {
        answers.push(format!("at {time}: {:?}", log.offset_at(TimestampMs::new(time), Patience::MayBlock)));
    }
    answers
}

fn many_batches() -> Log {
    let segment = |base: i64| (base, (0..12).map(|n| batch(base + 2 * n, 2, if n % 5 == 4 { Codec::Lz4 } else { Codec::None })).collect());
    Log { segments: vec![segment(0), segment(24), segment(48)] }
}

/// Bytes of an index: anything, entries that could be, true ones spoilt.
fn lying_index(base: i64, bytes_of_log: usize, truth: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let entry = (base..base + 26, 0..bytes_of_log as u32 + 50);
    let shuffled = truth.chunks(8).map(<[u8]>::to_vec).collect::<Vec<_>>();
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..120),
        prop::collection::vec(entry, 0..10).prop_map(move |entries| offset_index(base, &entries)),
        Just(shuffled).prop_shuffle().prop_map(|entries| entries.concat()),
        (0..truth.len().max(1), any::<u8>()).prop_map(move |(at, byte)| {
            let mut spoilt = truth.clone();
            spoilt.iter_mut().skip(at).take(1).for_each(|spoilt| *spoilt = byte);
            spoilt
        }),
    ]
}

fn lying_time_index(base: i64) -> impl Strategy<Value = Vec<u8>> {
    // Times that no batch has as its largest: an entry that is true, but leaves out a larger one before it, is believed.
    let entry = ((TIME_MS / 2 - 25..TIME_MS / 2 + 75).prop_map(|half| half * 2), base..base + 26);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..120),
        prop::collection::vec(entry, 0..8).prop_map(move |entries| time_index(base, &entries)),
        (1..40_usize).prop_map(|zeros| vec![0; zeros]),
    ]
}

fn lying_indexes() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let log = many_batches();
    let segment = |number: usize| {
        let (base, bytes) = (log.segments[number].0, log.bytes(number));
        (lying_index(base, bytes.len(), indexes(base, &bytes, 50).0), lying_time_index(base))
    };
    (segment(0), segment(1), segment(2)).prop_map(|(first, second, third)| vec![first, second, third])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn an_index_costs_time_and_never_a_wrong_answer(lies in lying_indexes(), hit in prop::option::weighted(0.3, (0..3_usize, 0..12_usize))) {
        let mut log = many_batches();
        // A damaged batch as well: what is lost must not depend on the index either.
        if let Some((segment, piece)) = hit {
            log.segments[segment].1[piece].bytes[40] ^= 1;
        }
        let (without, with) = (SimDisk::new(), SimDisk::new());
        for (number, (base, _)) in log.segments.iter().enumerate() {
            let bytes = log.bytes(number);
            without.write_file(log_path(*base), &bytes);
            with.write_file(log_path(*base), &bytes);
            with.write_file(format!("{DIRECTORY}/{base:020}.index"), &lies[number].0);
            with.write_file(format!("{DIRECTORY}/{base:020}.timeindex"), &lies[number].1);
        }
        let end = log.records().len() as i64;
        let (without, with) = (answers(&open(&without), end), answers(&open(&with), end));
        for (without, with) in without.iter().zip(&with) {
            prop_assert_eq!(without, with);
        }
    }
}
