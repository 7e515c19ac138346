//! Record batches of magic 2: as they are walked in a file, and records behind a header that fits them.

use crate::fixtures;
use crate::input::Input;
use offsetfs::log::batch::{Attributes, BatchHeader, HEADER_SIZE, Step, assign, verify_crc};
use offsetfs::log::encode::{BatchEncoder, Encoding, NewRecord};
use offsetfs::log::record::{self, Headers, RecordRef, Records, find_in_batch, find_in_decoded};
use offsetfs::types::{Offset, TimestampMs};

/// What a compressed batch may decode to, in bytes.
const LIMIT: u64 = 256 << 10;
/// So many records of a batch are looked up one by one.
const LOOKED_UP: usize = 64;

/// One input: a choice, and a file, or the records of one batch.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    match input.byte() % 2 {
        0 => file(input.rest()),
        _ => {
            let header = BatchHeader {
                magic: 2,
                base_offset: Offset::new(i64::from(input.byte())).expect("not negative"),
                last_offset: Offset::new(1000).expect("not negative"),
                size: 0,
                partition_leader_epoch: 0,
                crc: 0,
                attributes: Attributes::from_raw(i16::from(input.byte() & 0x78) | 1),
                base_timestamp: TimestampMs::new(input.number()),
                max_timestamp: TimestampMs::new(input.number()),
                producer_id: -1,
                producer_epoch: -1,
                base_sequence: i32::from_be_bytes(input.bytes()),
                records_count: i32::from(i8::from_be_bytes(input.bytes())),
            };
            records(&header, input.rest(), Kind::Decoded);
        }
    }
}

fn file(log: &[u8]) {
    let mut at = 0;
    loop {
        let header = match BatchHeader::read(log, at) {
            Ok(Step::Batch(header)) => header,
            Ok(Step::End { left }) => {
                assert_eq!(left as usize, log.len() - at);
                return;
            }
            Err(fault) => {
                assert_eq!(fault.position.get(), at as u64, "a fault is told where its batch begins");
                return;
            }
        };
        let end = at + header.size as usize;
        let batch = &log[at..end];
        let _ = verify_crc(&header, batch);
        if header.magic == 2 {
            if header.is_compressed() {
                if let Ok(body) = record::decode(&header, batch, LIMIT) {
                    records(&header, &body, Kind::Decoded);
                }
            } else {
                records(&header, batch, Kind::Stored);
            }
        }
        at = end;
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The bytes are a batch.
    Stored,
    /// The bytes are what a batch decodes to.
    Decoded,
}

fn walk<'a>(header: &BatchHeader, body: &'a [u8], kind: Kind) -> Records<'a> {
    if kind == Kind::Stored { Records::in_batch(header, body) } else { Records::in_decoded(header, body) }
}

fn records(header: &BatchHeader, body: &[u8], kind: Kind) {
    let mut found: Vec<RecordRef> = Vec::new();
    let mut whole = true;
    for record in walk(header, body, kind) {
        match record {
            Ok(record) => {
                assert!(record.offset >= header.base_offset && record.offset <= header.last_offset, "{record:?}");
                assert!(found.last().is_none_or(|last| last.offset < record.offset), "offsets rise");
                found.push(record);
            }
            Err(fault) => {
                assert!(fault.position.get() <= body.len() as u64);
                whole = false;
            }
        }
    }
    for record in found.iter().take(LOOKED_UP) {
        let again = match kind {
            Kind::Stored => find_in_batch(header, body, record.offset),
            Kind::Decoded => find_in_decoded(header, body, record.offset),
        };
        assert_eq!(again.as_ref(), Ok(&Some(record.clone())), "a look-up finds what the walk shows");
    }
    if whole {
        assert_eq!(found.len() as i64, i64::from(header.records_count), "a whole batch has as many records as it says");
        written_again(header, body, &found);
    }
}

/// The records without their places.
type Plain<'a> = (i64, Option<&'a [u8]>, Option<&'a [u8]>, Vec<(&'a [u8], Option<&'a [u8]>)>);

fn plain<'a>(body: &'a [u8], record: &RecordRef) -> Plain<'a> {
    let part = |range: &Option<std::ops::Range<u32>>| range.as_ref().map(|r| &body[r.start as usize..r.end as usize]);
    (record.timestamp.get(), part(&record.key), part(&record.value), Headers::new(body, record).collect())
}

/// Records that were read are written, and read again: the same.
fn written_again(header: &BatchHeader, body: &[u8], found: &[RecordRef]) {
    let records: Vec<Plain<'_>> = found.iter().map(|record| plain(body, record)).collect();
    for (record, (_, _, _, headers)) in found.iter().zip(&records) {
        assert_eq!(headers.len(), record.headers_count as usize, "a record that was read has all its headers");
    }
    let log_append_time = (!records.is_empty() && header.attributes.timestamp_type() == offsetfs::types::TimestampType::LogAppendTime)
        .then_some(header.max_timestamp);
    let encoding = Encoding { log_append_time, ..Encoding::default() };
    let mut out = Vec::new();
    let mut encoder = BatchEncoder::new(&mut out, &encoding);
    for (timestamp, key, value, headers) in &records {
        encoder.push(&NewRecord { timestamp: TimestampMs::new(*timestamp), key: *key, value: *value, headers });
    }
    let size = encoder.size();
    let encoded = encoder.finish(usize::MAX).expect("records that were read fit a batch");
    if records.is_empty() {
        assert!(out.is_empty());
        return;
    }
    assert_eq!(out.len(), size, "an encoder knows the size of what it writes");
    assert_eq!(encoded.range, 0..out.len());
    assign(&mut out, Offset::new(7).expect("not negative"), 3);
    let Ok(Step::Batch(again)) = BatchHeader::read(&out, 0) else { panic!("what was written is no batch") };
    verify_crc(&again, &out).expect("what was written has the right checksum");
    assert_eq!((again.base_offset.get(), again.partition_leader_epoch), (7, 3));
    let read: Vec<RecordRef> = Records::in_batch(&again, &out).map(|record| record.expect("what was written can be read")).collect();
    assert_eq!(read.iter().map(|record| plain(&out, record)).collect::<Vec<_>>(), records, "what was written is read");
    if log_append_time.is_none() {
        assert_eq!(again.max_timestamp.get(), records.iter().map(|record| record.0).max().unwrap_or(-1));
    }
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for batch in fixtures::some(fixtures::batches(), 60) {
        let Ok(Step::Batch(header)) = BatchHeader::read(&batch, 0) else { continue };
        if header.magic != 2 {
            continue;
        }
        seeds.push([&[0], batch.as_slice()].concat());
        let body =
            if header.is_compressed() { record::decode(&header, &batch, LIMIT).unwrap_or_default() } else { batch[HEADER_SIZE..].to_vec() };
        let count = u8::try_from(header.records_count).unwrap_or_default();
        let numbers = [header.base_timestamp.get().to_be_bytes(), header.max_timestamp.get().to_be_bytes()].concat();
        seeds.push([&[1, 0, 0], numbers.as_slice(), &header.base_sequence.to_be_bytes(), &[count], &body].concat());
    }
    seeds
}
