//! Records of all magics, sound and damaged, against bytes that are put together here by hand.

use super::*;
use crate::log::batch::{Attributes, Step};
use crate::log::compression::Codec;

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn offset(number: i64) -> Offset {
    Offset::new(number).unwrap()
}

fn header(batch: &[u8]) -> BatchHeader {
    match BatchHeader::read(batch, 0) {
        Ok(Step::Batch(header)) => header,
        other => panic!("{other:?}"),
    }
}

/// A header of magic 2 for offsets 10 to 19, times from 1000 on.
fn plain_header(records_count: i32) -> BatchHeader {
    BatchHeader {
        magic: 2,
        base_offset: offset(10),
        last_offset: offset(19),
        size: 0,
        partition_leader_epoch: 0,
        crc: 0,
        attributes: Attributes::default(),
        base_timestamp: TimestampMs::new(1000),
        max_timestamp: TimestampMs::new(5000),
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count,
    }
}

/// A record without key, value and headers.
fn bare(offset_delta: u8) -> Vec<u8> {
    vec![12, 0, 4, offset_delta * 2, 1, 1, 0]
}

fn offsets(header: &BatchHeader, body: &[u8]) -> (Vec<i64>, Option<Fault>) {
    let (mut offsets, mut fault) = (Vec::new(), None);
    let mut records = Records::in_decoded(header, body);
    for record in records.by_ref() {
        match record {
            Ok(record) => offsets.push(record.offset.get()),
            Err(error) => fault = Some(error),
        }
    }
    assert!(records.next().is_none(), "nothing comes behind the end");
    (offsets, fault)
}

fn text<'a>(body: &'a [u8], range: &Option<Range<u32>>) -> Option<&'a str> {
    range.as_ref().map(|range| std::str::from_utf8(&body[range.start as usize..range.end as usize]).unwrap())
}

const TWO_RECORDS: &str = "00000000000000640000004500000000026937d2640000000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff0000000210000000026b02760014000a0201010202680278";
const COMMIT: &str = "000000000000000000000042000000000255f2eb490030000000000000018bcfe568000000018bcfe5680000000000000000010000ffffffff000000012000000008000000010c00000000000700";
const MAGIC_0: &str = "0000000000000005000000101fecd70a0000000000016b0000000176";
/// After a cleaning: tombstone `c` and record `a`, offsets 3 and 4, the base timestamp a delete horizon.
const HORIZON: &str = "00000000000000030000004800000005024c46fd200040000000010000018bd50d4aa00000018bcfe56804ffffffffffffffffffffffffffff000000021400b98abf5200026301001600b78abf52020261023200";
/// The same one cleaning later: only `a`, the last offset as it was.
const HORIZON_LATER: &str = "00000000000000030000003d000000050218da58050040000000010000018bd50d4aa00000018bcfe56804ffffffffffffffffffffffffffff000000011600b78abf52020261023200";
/// Emptied by the cleaner.
const EMPTIED: &str =
    "000000000000000700000031000000050226f579d6000000000000ffffffffffffffff0000018bcfe56807000000000000000100000000000000000000";

#[test]
fn every_field_of_golden_records() {
    let batch = bytes(TWO_RECORDS);
    let records: Vec<_> = Records::in_batch(&header(&batch), &batch).map(Result::unwrap).collect();
    let [first, second] = &records[..] else { panic!() };
    assert_eq!((first.offset, first.timestamp.get(), first.sequence), (offset(100), 1_700_000_000_000, -1));
    assert_eq!(first.timestamp_type, TimestampType::CreateTime);
    assert_eq!((text(&batch, &first.key), text(&batch, &first.value), first.headers_count), (Some("k"), Some("v"), 0));
    assert_eq!((second.offset, second.timestamp.get()), (offset(101), 1_700_000_000_005));
    assert_eq!((&second.key, &second.value, second.headers_count), (&None, &None, 1));
    assert_eq!(Headers::new(&batch, second).collect::<Vec<_>>(), [(&b"h"[..], Some(&b"x"[..]))]);
    assert_eq!(Headers::new(&batch, first).count(), 0);
}

#[test]
fn cleaned_batches_keep_offsets_and_times() {
    let batch = bytes(HORIZON);
    let records: Vec<_> = Records::in_batch(&header(&batch), &batch).map(Result::unwrap).collect();
    assert_eq!(
        records.iter().map(|record| (record.offset.get(), record.timestamp.get())).collect::<Vec<_>>(),
        [(3, 1_700_000_000_003), (4, 1_700_000_000_004)]
    );
    assert_eq!((text(&batch, &records[0].key), &records[0].value), (Some("c"), &None));

    let later = bytes(HORIZON_LATER);
    let found = find_in_batch(&header(&later), &later, offset(4)).unwrap().unwrap();
    assert_eq!(text(&later, &found.value), Some("2"));
    assert_eq!(find_in_batch(&header(&later), &later, offset(3)), Ok(None));

    let emptied = bytes(EMPTIED);
    assert_eq!(Records::in_batch(&header(&emptied), &emptied).count(), 0);
    assert_eq!(find_in_batch(&header(&emptied), &emptied, offset(7)), Ok(None));
}

#[test]
fn a_commit_marker_and_other_control_keys() {
    let batch = bytes(COMMIT);
    let record = Records::in_batch(&header(&batch), &batch).next().unwrap().unwrap();
    let key = record.key.unwrap();
    assert_eq!(control_type(&batch[key.start as usize..key.end as usize]), Ok(ControlType::Commit));
    assert_eq!(control_type(&[0, 0, 0, 0, 9]), Ok(ControlType::Abort), "more bytes are tolerated");
    assert_eq!(control_type(&[0, 1, 0xff, 0xfe]), Ok(ControlType::Other(-2)));
    assert!(control_type(&[0, 0, 0]).is_err());
    assert!(control_type(&[0xff, 0xff, 0, 0]).is_err());
}

#[test]
fn the_logs_append_time_stands_for_every_record() {
    let header = BatchHeader { attributes: Attributes::of_data(Codec::None, true), ..plain_header(1) };
    let record = Records::in_decoded(&header, &bare(0)).next().unwrap().unwrap();
    assert_eq!((record.timestamp.get(), record.timestamp_type), (5000, TimestampType::LogAppendTime));
    let record = Records::in_decoded(&plain_header(1), &bare(0)).next().unwrap().unwrap();
    assert_eq!((record.timestamp.get(), record.timestamp_type), (1002, TimestampType::CreateTime));
}

#[test]
fn sequences_wrap_to_zero() {
    let header = BatchHeader { base_sequence: i32::MAX - 1, ..plain_header(3) };
    let body = [bare(0), bare(1), bare(2)].concat();
    let sequences: Vec<_> = Records::in_decoded(&header, &body).map(|record| record.unwrap().sequence).collect();
    assert_eq!(sequences, [i32::MAX - 1, i32::MAX, 0]);
}

#[test]
fn records_before_a_fault_are_handed_out() {
    let two = [bare(0), bare(4)].concat();
    assert_eq!(offsets(&plain_header(2), &two), (vec![10, 14], None));

    let (read, fault) = offsets(&plain_header(i32::MAX), &two);
    assert_eq!(read, [10, 14]);
    assert_eq!(fault.unwrap().position.get(), 14, "the count promises more");

    let (read, fault) = offsets(&plain_header(1), &two);
    assert_eq!(read, [10]);
    assert!(fault.unwrap().to_string().contains("7 more bytes"), "the count promises less");

    let (read, fault) = offsets(&plain_header(-1), &two);
    assert!(read.is_empty(), "{read:?}");
    assert!(fault.unwrap().to_string().contains("0 or more, found -1"));
    assert!(find_in_decoded(&plain_header(-1), &two, offset(10)).is_err());

    let (read, fault) = offsets(&plain_header(0), &two);
    assert!(read.is_empty(), "{read:?}");
    assert!(fault.is_some());
}

#[test]
fn offsets_rise_and_stay_within_the_batch() {
    for (body, read) in [
        ([bare(3), bare(3)].concat(), vec![13]),
        ([bare(3), bare(2)].concat(), vec![13]),
        ([bare(9), bare(10)].concat(), vec![19]),
        ([bare(0), vec![12, 0, 0, 1, 1, 1, 0]].concat(), vec![10]),
    ] {
        let (offsets, fault) = offsets(&plain_header(2), &body);
        assert_eq!(offsets, read);
        assert_eq!(fault.unwrap().position.get(), 7);
    }
}

#[test]
fn a_body_is_read_exactly() {
    let cases: [(&[u8], &str); 14] = [
        (&[], "a record's length"),
        (&[0x80], "a record's length"),
        (&[1], "a record's length of 0 to 0, found -1"),
        (&[14, 0, 0, 0, 1, 1, 0], "a record's length of 0 to 6, found 7"),
        (&[0], "a timestamp delta"),
        (&[2, 0], "a timestamp delta"),
        (&[4, 0, 0], "an offset delta"),
        (&[12, 0, 0, 0, 8, 1, 0], "a key that fits"),
        (&[12, 0, 0, 0, 1, 4, 0], "a value that fits"),
        (&[12, 0, 0, 0, 1, 1, 1], "a headers count of 0 to 0, found -1"),
        (&[12, 0, 0, 0, 1, 1, 2], "a headers count of 0 to 0, found 1"),
        (&[14, 0, 0, 0, 1, 1, 0, 0], "the end of the record behind its last header, found 1 more"),
        (&[16, 0, 0, 0, 1, 1, 2, 1, 1], "a header's name, found null"),
        (&[16, 0, 0, 0, 1, 1, 2, 0, 2], "a header's value that fits"),
    ];
    for (body, message) in cases {
        let (read, fault) = offsets(&plain_header(1), body);
        assert!(read.is_empty(), "{read:?}");
        let fault = fault.unwrap();
        assert!(fault.to_string().contains(message), "{fault}");
    }
}

#[test]
fn any_negative_length_is_null_and_zero_is_empty() {
    let body = [20, 0, 0, 0, 5, 0, 4, 0, 3, 0, 9];
    let record = Records::in_decoded(&plain_header(1), &body).next().unwrap().unwrap();
    assert_eq!((record.key.clone(), record.value.clone(), record.headers_count), (None, Some(6..6), 2));
    assert_eq!(Headers::new(&body, &record).collect::<Vec<_>>(), [(&b""[..], None), (&b""[..], None)]);
}

#[test]
fn a_search_stops_at_the_record() {
    let body = [bare(1), bare(3), bare(5), vec![0xff; 7]].concat();
    let header = plain_header(4);
    for (number, found) in [(9, false), (10, false), (11, true), (12, false), (13, true), (15, true), (20, false)] {
        let record = find_in_decoded(&header, &body, offset(number)).unwrap();
        assert_eq!(record.map(|record| record.offset.get()), found.then_some(number));
    }
    assert!(find_in_decoded(&header, &body, offset(16)).is_err(), "damage lies before it");
    let compressed = BatchHeader { attributes: Attributes::from_raw(1), ..header };
    assert!(find_in_batch(&compressed, &body, offset(11)).is_err());
    assert!(Records::in_batch(&compressed, &body).next().unwrap().is_err());
}

#[test]
fn codecs_that_do_not_exist_are_faults() {
    for bits in 5..8 {
        let header = BatchHeader { attributes: Attributes::from_raw(bits), ..plain_header(1) };
        assert!(matches!(decode(&header, &[0; 70], 100), Err(DecodeError::Damaged(_))));
    }
    let gzip = BatchHeader { attributes: Attributes::from_raw(1), ..plain_header(1) };
    let Err(DecodeError::Damaged(fault)) = decode(&gzip, &[0; 70], 100) else { panic!() };
    assert!(fault.position.get() >= 61, "{fault}");
}

// Magic 0 and 1.

/// One entry with its right checksum.
fn entry(number: i64, magic: u8, attributes: u8, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
    let mut covered = vec![magic, attributes];
    if magic == 1 {
        covered.extend_from_slice(&timestamp.to_be_bytes());
    }
    for part in [key, value] {
        covered.extend_from_slice(&part.map_or(-1, |part| part.len() as i32).to_be_bytes());
        covered.extend_from_slice(part.unwrap_or_default());
    }
    let size = (covered.len() + 4) as i32;
    [&number.to_be_bytes()[..], &size.to_be_bytes(), &crc32fast::hash(&covered).to_be_bytes(), &covered].concat()
}

/// A gzip wrapper around entries, and what it decodes to.
fn wrapper(number: i64, magic: u8, attributes: u8, inner: &[Vec<u8>]) -> (BatchHeader, Vec<u8>) {
    let mut value = Vec::new();
    compression::compress(Codec::Gzip, None, &inner.concat(), &mut value).unwrap();
    let batch = entry(number, magic, attributes | 1, 777, None, Some(&value));
    let header = header(&batch);
    assert!(header.is_wrapper());
    crate::log::batch::verify_crc(&header, &batch).unwrap();
    (header, decode(&header, &batch, 1 << 20).unwrap())
}

#[test]
fn plain_entries() {
    let batch = bytes(MAGIC_0);
    let record = Records::in_batch(&header(&batch), &batch).map(Result::unwrap).collect::<Vec<_>>();
    let [record] = &record[..] else { panic!() };
    assert_eq!((record.offset, record.timestamp, record.timestamp_type), (offset(5), TimestampMs::NONE, TimestampType::None));
    assert_eq!((text(&batch, &record.key), text(&batch, &record.value)), (Some("k"), Some("v")));
    assert_eq!((record.sequence, record.headers_count), (-1, 0));

    let batch = entry(9, 1, 8, 123, None, Some(b""));
    let record = find_in_batch(&header(&batch), &batch, offset(9)).unwrap().unwrap();
    assert_eq!((record.timestamp.get(), record.timestamp_type), (123, TimestampType::LogAppendTime));
    assert_eq!((record.key, record.value), (None, Some(34..34)));
    assert_eq!(find_in_batch(&header(&batch), &batch, offset(8)), Ok(None));
}

#[test]
fn plain_entries_must_fit() {
    let good = entry(9, 1, 0, 123, Some(b"key"), Some(b"value"));
    for (at, wrong) in [(29, 4), (29, 100), (36, 6), (36, 4), (26, 0x7f)] {
        let mut batch = good.clone();
        batch[at] = wrong;
        let records: Vec<_> = Records::in_batch(&header(&batch), &batch).collect();
        assert!(matches!(records[..], [Err(_)]), "{at} {wrong} {records:?}");
    }
}

#[test]
fn inner_offsets_of_magic_0_are_absolute() {
    let (header, body) = wrapper(42, 0, 0, &[entry(40, 0, 0, 0, None, Some(b"a")), entry(42, 0, 0, 0, Some(b"k"), None)]);
    assert_eq!(offsets(&header, &body), (vec![40, 42], None));
    let record = find_in_decoded(&header, &body, offset(42)).unwrap().unwrap();
    assert_eq!((text(&body, &record.key), record.value, record.timestamp_type), (Some("k"), None, TimestampType::None));
    assert_eq!(find_in_decoded(&header, &body, offset(41)), Ok(None));
    let (header, body) = wrapper(41, 0, 0, &[entry(40, 0, 0, 0, None, None), entry(42, 0, 0, 0, None, None)]);
    assert_eq!(offsets(&header, &body).0, [40], "42 lies behind the wrapper's last offset");
}

#[test]
fn inner_offsets_of_magic_1_count_back_from_the_wrapper() {
    let inner = [entry(0, 1, 0, 500, None, Some(b"a")), entry(3, 1, 0, 400, None, Some(b"b"))];
    let (header, body) = wrapper(103, 1, 0, &inner);
    assert_eq!(offsets(&header, &body), (vec![100, 103], None));
    let times = |header: &BatchHeader, body: &[u8]| {
        Records::in_decoded(header, body)
            .map(|record| record.map(|record| (record.timestamp.get(), record.timestamp_type)).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(times(&header, &body), [(500, TimestampType::CreateTime), (400, TimestampType::CreateTime)]);

    let (header, body) = wrapper(103, 1, 8, &inner);
    assert_eq!(times(&header, &body), [(777, TimestampType::LogAppendTime); 2], "the wrapper's time stands for all");

    let (header, body) = wrapper(0, 1, 0, &inner);
    assert_eq!(offsets(&header, &body), (vec![0, 3], None), "a wrapper offset of 0 was never assigned");

    let (header, body) = wrapper(2, 1, 0, &inner);
    assert!(offsets(&header, &body).1.unwrap().to_string().contains("0 to 2, found 3"));
}

#[test]
fn what_a_wrapper_may_not_hold() {
    let good = entry(1, 1, 0, 1, None, None);
    let flipped = |at: usize| {
        let mut bad = good.clone();
        bad[at] ^= 1;
        bad
    };
    for (inner, message) in [
        (vec![], "an entry inside the wrapper"),
        (vec![entry(0, 1, 1, 1, None, Some(b"x")), good.clone()], "uncompressed entry"),
        (vec![entry(0, 0, 0, 1, None, Some(b"x")), good.clone()], "magic 1, found 0"),
        (vec![flipped(20), good.clone()], "CRC-32"),
        (vec![good.clone(), vec![0; 17]], "an inner entry, found 17 bytes"),
        (vec![good.clone(), good[..30].to_vec()], "at most 30 bytes"),
        (vec![flipped(0), good.clone()], "an offset of"),
        (vec![good.clone(), vec![0; 30]], "size of at least 14, found 0"),
        (vec![entry(-1, 1, 0, 1, None, None), good.clone()], "an offset of 0 or more"),
    ] {
        let (header, body) = wrapper(7, 1, 0, &inner);
        let (read, fault) = offsets(&header, &body);
        assert!(read.is_empty(), "{message}: {read:?}");
        let fault = fault.unwrap();
        assert!(fault.to_string().contains(message), "{fault}");
    }
    let (header, body) = wrapper(7, 1, 0, &[good.clone(), good.clone()]);
    let (read, fault) = offsets(&header, &body);
    assert_eq!((read, fault.unwrap().position.get()), (vec![7], good.len() as u64), "offsets rise");

    let null = entry(7, 1, 1, 1, None, None);
    assert!(matches!(decode(&self::header(&null), &null, 100), Err(DecodeError::Damaged(fault)) if fault.to_string().contains("null")));
    let zstd = entry(7, 1, 4, 1, None, Some(b"x"));
    assert!(matches!(decode(&self::header(&zstd), &zstd, 100), Err(DecodeError::Damaged(_))));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        body in proptest::collection::vec(proptest::prop_oneof![0u8..16, 0u8..], 0..120),
        magic in 0u8..3,
        records_count: i32,
        target in 0i64..30,
    ) {
        let header = BatchHeader { magic, attributes: Attributes::from_raw(i16::from(magic < 2)), ..plain_header(records_count) };
        for record in Records::in_decoded(&header, &body).flatten() {
            let _ = Headers::new(&body, &record).count();
            for range in [record.key, record.value].into_iter().flatten() {
                proptest::prop_assert!(range.start <= range.end && range.end as usize <= body.len());
            }
        }
        let _ = find_in_decoded(&header, &body, offset(target));
        let _ = find_in_batch(&header, &body, offset(target));
        let _ = decode(&header, &body, 1 << 16);
        let _ = Records::in_batch(&BatchHeader { attributes: Attributes::default(), ..header }, &body).count();
    }

    #[test]
    fn damaged_wrappers_do_not_panic(flips in proptest::collection::vec((0usize..200, 1u8..), 1..4)) {
        let (header, mut body) = wrapper(9, 1, 0, &[entry(0, 1, 0, 1, Some(b"key"), Some(b"value")), entry(1, 1, 0, 2, None, None)]);
        for (at, flip) in flips {
            let length = body.len();
            body[at % length] ^= flip;
        }
        let _ = offsets(&header, &body);
    }
}
