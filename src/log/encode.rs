//! The writer of record batches of magic 2: records in, one batch at the end of a buffer out.
//!
//! Offsets and leader epoch are not known here: a batch is written with base offset 0 and leader epoch -1, and the log assigns them
//! in place (`batch::assign`) without touching the checksum. Facts: kafka-format, sections 1 and 3.

use crate::log::batch::{
    ATTRIBUTES, Attributes, BASE_TIMESTAMP, BATCH_LENGTH, CRC, HEADER_SIZE, LAST_OFFSET_DELTA, MAGIC, MAX_TIMESTAMP,
    PARTITION_LEADER_EPOCH, PRODUCER_ID, RECORDS_COUNT,
};
use crate::log::compression::{self, Codec};
use crate::log::legacy::PREFIX_SIZE;
use crate::log::record::{Packed, varint_len, write_varint, write_zigzagged, zigzag, zigzagged_len};
use crate::types::TimestampMs;
use std::io;
use std::ops::Range;

/// A record that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// Its time; [`TimestampMs::NONE`] is none.
    pub timestamp: TimestampMs,
    /// Its key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is null, a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers, name and value, in order.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

/// How batches are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// The codec. Default: none.
    pub codec: Codec,
    /// The codec's level, bounds as in [`compression::compress`]; `None`, the default, is the codec's own default.
    pub level: Option<i32>,
    /// The time that the log gives every record; `None`, the default, keeps the records' own.
    pub log_append_time: Option<TimestampMs>,
}

/// A batch that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBatch {
    /// Where it lies in the buffer.
    pub range: Range<usize>,
    /// The number of its records; the last one has the offset delta `records_count - 1`.
    pub records_count: u32,
    /// The greatest time of a record, or the time of the append.
    pub max_timestamp: TimestampMs,
}

/// Writes one batch at the end of a buffer, record by record.
///
/// Dropped before [`BatchEncoder::finish`], it leaves an unfinished batch in the buffer; the caller cuts it off.
#[derive(Debug)]
pub struct BatchEncoder<'o> {
    out: &'o mut Vec<u8>,
    begin: usize,
    encoding: Encoding,
    records_count: u32,
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
    /// Set once a record was longer than the format can say.
    too_large: bool,
}

/// The numbers that every record has, zigzagged.
struct Numbers {
    timestamp_delta: u64,
    offset_delta: u64,
    key_length: u64,
    value_length: u64,
}

impl Numbers {
    #[inline(always)]
    fn new(record: &NewRecord<'_>, timestamp_delta: i64, records_count: u32) -> Numbers {
        Numbers {
            timestamp_delta: zigzag(timestamp_delta),
            offset_delta: zigzag(i64::from(records_count)),
            key_length: zigzag(length(record.key)),
            value_length: zigzag(length(record.value)),
        }
    }

    /// Whether each of them takes one or two bytes.
    #[inline(always)]
    fn are_short(&self) -> bool {
        self.timestamp_delta | self.offset_delta | self.key_length | self.value_length < Packed::END
    }

    /// The size of all that stands behind the record's length field, in bytes. Saturates: the lengths are the caller's, and what is
    /// larger than a batch can be is refused by this size.
    #[inline]
    fn body_size(&self, record: &NewRecord<'_>) -> usize {
        let numbers = zigzagged_len(self.timestamp_delta)
            + zigzagged_len(self.offset_delta)
            + zigzagged_len(self.key_length)
            + zigzagged_len(self.value_length);
        let key_and_value = record.key.map_or(0, <[u8]>::len).saturating_add(record.value.map_or(0, <[u8]>::len));
        key_and_value.saturating_add(1 + numbers).saturating_add(headers_size(record.headers))
    }
}

/// The size of a whole record in bytes.
#[inline]
fn record_size(body_size: usize) -> usize {
    zigzagged_len((body_size as u64) << 1).saturating_add(body_size)
}

/// The length of a key or value; -1 for null.
#[inline(always)]
fn length(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| bytes.len() as i64)
}

fn headers_size(headers: &[(&[u8], Option<&[u8]>)]) -> usize {
    let part = |bytes: Option<&[u8]>| varint_len(length(bytes)).saturating_add(bytes.map_or(0, <[u8]>::len));
    let parts = headers.iter().map(|(name, value)| part(Some(name)).saturating_add(part(*value)));
    parts.fold(varint_len(headers.len() as i64), usize::saturating_add)
}

/// The size in bytes of an uncompressed batch that holds `record` alone, header included.
pub fn one_record_batch_size(record: &NewRecord<'_>) -> usize {
    record_size(Numbers::new(record, 0, 0).body_size(record)).saturating_add(HEADER_SIZE)
}

/// The most bytes that the length field of a batch, or of a record, can count.
const SIZE_MAX: usize = i32::MAX as usize;

impl<'o> BatchEncoder<'o> {
    /// Begins a batch at the end of `out`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, encoding: &Encoding) -> BatchEncoder<'o> {
        let begin = out.len();
        out.extend_from_slice(&[0; HEADER_SIZE]);
        BatchEncoder {
            out,
            begin,
            encoding: *encoding,
            records_count: 0,
            base_timestamp: TimestampMs::NONE,
            max_timestamp: TimestampMs::NONE,
            too_large: false,
        }
    }

    /// The number of records so far.
    #[inline]
    pub fn count(&self) -> u32 {
        self.records_count
    }

    /// The size of the whole batch so far in bytes, uncompressed, header included.
    #[inline]
    pub fn size(&self) -> usize {
        self.out.len() - self.begin
    }

    /// What [`BatchEncoder::size`] would be with `record` added.
    #[inline]
    pub fn size_with(&self, record: &NewRecord<'_>) -> usize {
        let numbers = Numbers::new(record, self.timestamp_delta(record), self.records_count);
        record_size(numbers.body_size(record)).saturating_add(self.size())
    }

    /// The first record's is 0: its time is the base. Wraps as the reader's sum does.
    #[inline]
    fn timestamp_delta(&self, record: &NewRecord<'_>) -> i64 {
        if self.records_count == 0 { 0 } else { record.timestamp.get().wrapping_sub(self.base_timestamp.get()) }
    }

    /// Adds a record. One that makes the batch larger than the format allows is refused by [`BatchEncoder::finish`].
    #[inline]
    pub fn push(&mut self, record: &NewRecord<'_>) {
        self.too_large |= !self.push_within(record, SIZE_MAX);
    }

    /// Adds a record if [`BatchEncoder::size`] stays within `size_max` bytes; whether it was added. Costs less than
    /// [`BatchEncoder::size_with`] and [`BatchEncoder::push`].
    #[inline]
    pub fn push_within(&mut self, record: &NewRecord<'_>, size_max: usize) -> bool {
        let room = size_max.min(SIZE_MAX).saturating_sub(self.size());
        let numbers = Numbers::new(record, self.timestamp_delta(record), self.records_count);
        let added = if numbers.are_short() && record.headers.is_empty() {
            self.append_short(&numbers, record, room)
        } else {
            self.append(&numbers, record, room)
        };
        if added {
            if self.records_count == 0 {
                self.base_timestamp = record.timestamp;
                self.max_timestamp = record.timestamp;
            }
            self.max_timestamp = self.max_timestamp.max(record.timestamp);
            self.records_count += 1;
        }
        added
    }

    /// Appends a record of short numbers and no headers, which is what most are, if it fits `room` bytes.
    #[inline(always)]
    fn append_short(&mut self, numbers: &Numbers, record: &NewRecord<'_>, room: usize) -> bool {
        let before_key = Packed::new(numbers.timestamp_delta).then(Packed::new(numbers.offset_delta)).then(Packed::new(numbers.key_length));
        let value_length = Packed::new(numbers.value_length);
        let value = record.value.unwrap_or_default();
        // The attributes before, the headers count behind: a byte each. Short lengths have a small sum.
        let body_size = 1 + before_key.size() + record.key.map_or(0, <[u8]>::len) + value_length.size() + value.len() + 1;
        let length = (body_size as u64) << 1;
        if length >= Packed::END {
            return self.append(numbers, record, room);
        }
        let length_and_attributes = Packed::new(length).then(Packed::new(0));
        let record_size = length_and_attributes.size() - 1 + body_size;
        if record_size > room {
            return false;
        }
        // Packed numbers are appended with a surplus.
        self.out.reserve(record_size + size_of::<Packed>());
        length_and_attributes.append(self.out);
        match record.key {
            None => before_key.then(value_length).append(self.out),
            Some(key) => {
                before_key.append(self.out);
                self.out.extend_from_slice(key);
                value_length.append(self.out);
            }
        }
        self.out.extend_from_slice(value);
        self.out.push(0);
        true
    }

    /// Appends any record, if it fits `room` bytes.
    #[inline(never)]
    fn append(&mut self, numbers: &Numbers, record: &NewRecord<'_>, room: usize) -> bool {
        let body_size = numbers.body_size(record);
        let record_size = record_size(body_size);
        if record_size > room {
            return false;
        }
        self.out.reserve(record_size);
        write_zigzagged(self.out, (body_size as u64) << 1);
        self.out.push(0);
        for number in [numbers.timestamp_delta, numbers.offset_delta, numbers.key_length] {
            write_zigzagged(self.out, number);
        }
        self.out.extend_from_slice(record.key.unwrap_or_default());
        write_zigzagged(self.out, numbers.value_length);
        self.out.extend_from_slice(record.value.unwrap_or_default());
        self.append_headers(record.headers);
        true
    }

    fn append_headers(&mut self, headers: &[(&[u8], Option<&[u8]>)]) {
        write_varint(self.out, headers.len() as i64);
        for (name, value) in headers {
            for part in [Some(*name), *value] {
                write_varint(self.out, length(part));
                self.out.extend_from_slice(part.unwrap_or_default());
            }
        }
    }

    /// Completes the batch: compression, header, checksum. Without a record nothing is left in the buffer, and the range is empty.
    ///
    /// Bytes that do not compress become a little larger. Where that makes a batch of more than `size_max` bytes, its records are
    /// stored uncompressed instead, in the [`BatchEncoder::size`] that the caller knows.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a batch of more than 2 GiB or a compression level out of bounds; what the codec's library
    /// says. The buffer then ends where it did before.
    pub fn finish(self, size_max: usize) -> io::Result<EncodedBatch> {
        let BatchEncoder { out, begin, encoding, records_count, base_timestamp, max_timestamp, too_large } = self;
        if records_count == 0 && !too_large {
            out.truncate(begin);
            return Ok(EncodedBatch { range: begin..begin, records_count, max_timestamp });
        }
        let codec = if too_large { Err(too_long()) } else { compress_tail(out, begin + HEADER_SIZE, &encoding, size_max) };
        let codec = codec.inspect_err(|_| out.truncate(begin))?;
        let size = out.len() - begin;
        let length = i32::try_from(size - PREFIX_SIZE).map_err(|_| too_long());
        let length = length.inspect_err(|_| out.truncate(begin))?;
        let max_timestamp = encoding.log_append_time.unwrap_or(max_timestamp);
        let attributes = Attributes::of_data(codec, encoding.log_append_time.is_some());

        let batch = &mut out[begin..];
        batch[BATCH_LENGTH..PARTITION_LEADER_EPOCH].copy_from_slice(&length.to_be_bytes());
        batch[PARTITION_LEADER_EPOCH..MAGIC].copy_from_slice(&(-1i32).to_be_bytes());
        batch[MAGIC] = 2;
        batch[ATTRIBUTES..LAST_OFFSET_DELTA].copy_from_slice(&attributes.raw().to_be_bytes());
        batch[LAST_OFFSET_DELTA..BASE_TIMESTAMP].copy_from_slice(&(records_count - 1).to_be_bytes());
        batch[BASE_TIMESTAMP..MAX_TIMESTAMP].copy_from_slice(&base_timestamp.get().to_be_bytes());
        batch[MAX_TIMESTAMP..PRODUCER_ID].copy_from_slice(&max_timestamp.get().to_be_bytes());
        // Producer id, producer epoch and base sequence: -1 each.
        batch[PRODUCER_ID..RECORDS_COUNT].fill(0xff);
        batch[RECORDS_COUNT..HEADER_SIZE].copy_from_slice(&records_count.to_be_bytes());
        let crc = crc32c::crc32c(&batch[ATTRIBUTES..]);
        batch[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
        Ok(EncodedBatch { range: begin..begin + size, records_count, max_timestamp })
    }
}

#[cold]
fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a record batch is at most 2147483647 bytes long")
}

/// Replaces the records, which stand from `records` on, by their compressed form, unless that makes a batch of more than `size_max`
/// bytes; the codec in which they then are.
fn compress_tail(out: &mut Vec<u8>, records: usize, encoding: &Encoding, size_max: usize) -> io::Result<Codec> {
    if encoding.codec == Codec::None {
        return Ok(Codec::None);
    }
    let mut compressed = Vec::new();
    compression::compress(encoding.codec, encoding.level, &out[records..], &mut compressed)?;
    if compressed.len() > size_max.saturating_sub(HEADER_SIZE) {
        return Ok(Codec::None);
    }
    out.truncate(records);
    out.extend_from_slice(&compressed);
    Ok(encoding.codec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::batch::{BatchHeader, Step, assign, verify_crc};
    use crate::log::record::{Headers, Records, decode, find_in_batch};
    use crate::types::{Offset, TimestampType};

    const NOTHING: NewRecord<'_> = NewRecord { timestamp: TimestampMs::NONE, key: None, value: None, headers: &[] };

    fn header(batch: &[u8]) -> BatchHeader {
        match BatchHeader::read(batch, 0) {
            Ok(Step::Batch(header)) => header,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_golden_batch_byte_for_byte() {
        let golden = "00000000000000640000004500000000026937d2640000000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff0000000210000000026b02760014000a0201010202680278";
        let mut out = b"what was there".to_vec();
        let mut encoder = BatchEncoder::new(&mut out, &Encoding::default());
        let time = 1_700_000_000_000;
        encoder.push(&NewRecord { timestamp: TimestampMs::new(time), key: Some(b"k"), value: Some(b"v"), headers: &[] });
        encoder.push(&NewRecord { timestamp: TimestampMs::new(time + 5), headers: &[(b"h", Some(b"x"))], ..NOTHING });
        assert_eq!((encoder.count(), encoder.size()), (2, 81));
        let batch = encoder.finish(usize::MAX).unwrap();
        assert_eq!(batch, EncodedBatch { range: 14..95, records_count: 2, max_timestamp: TimestampMs::new(time + 5) });
        let unassigned = header(&out[batch.range.clone()]);
        assert_eq!((unassigned.base_offset, unassigned.partition_leader_epoch), (Offset::ZERO, -1));
        assign(&mut out[batch.range.clone()], Offset::new(100).unwrap(), 0);
        let hex: String = out[batch.range].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
        assert!(out.starts_with(b"what was there"));
    }

    #[test]
    fn the_logs_append_time_is_the_greatest_time() {
        let mut out = Vec::new();
        let encoding = Encoding { log_append_time: Some(TimestampMs::new(99)), ..Encoding::default() };
        let mut encoder = BatchEncoder::new(&mut out, &encoding);
        encoder.push(&NewRecord { timestamp: TimestampMs::new(500), ..NOTHING });
        assert_eq!(encoder.finish(usize::MAX).unwrap().max_timestamp, TimestampMs::new(99));
        let header = header(&out);
        assert_eq!((header.base_timestamp.get(), header.max_timestamp.get()), (500, 99));
        let record = Records::in_batch(&header, &out).next().unwrap().unwrap();
        assert_eq!((record.timestamp.get(), record.timestamp_type), (99, TimestampType::LogAppendTime));
    }

    #[test]
    fn without_a_record_there_is_no_batch() {
        let mut out = b"x".to_vec();
        let batch = BatchEncoder::new(&mut out, &Encoding::default()).finish(usize::MAX).unwrap();
        assert_eq!((batch.range, batch.records_count), (1..1, 0));
        assert_eq!(out, b"x");
    }

    #[test]
    fn an_error_leaves_the_buffer_as_it_was() {
        let mut out = b"x".to_vec();
        let encoding = Encoding { codec: Codec::Gzip, level: Some(99), ..Encoding::default() };
        let mut encoder = BatchEncoder::new(&mut out, &encoding);
        encoder.push(&NOTHING);
        assert_eq!(encoder.finish(usize::MAX).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(out, b"x");
    }

    #[test]
    fn what_compression_makes_too_large_is_stored_as_it_is() {
        let noise: Vec<u8> = (0..5_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).rotate_left(n % 31).to_be_bytes()).collect();
        for bits in 1..5 {
            let encoding = Encoding { codec: Codec::from_bits(bits).unwrap(), ..Encoding::default() };
            let size = |value: &[u8], size_max: usize| {
                let mut out = Vec::new();
                let mut encoder = BatchEncoder::new(&mut out, &encoding);
                encoder.push(&NewRecord { value: Some(value), ..NOTHING });
                let plain = encoder.size();
                let size = encoder.finish(size_max).unwrap().range.len();
                verify_crc(&header(&out), &out).unwrap();
                (plain, size, header(&out).attributes.codec())
            };
            let (plain, compressed, codec) = size(&noise, usize::MAX);
            assert_eq!(codec, Some(encoding.codec));
            assert_eq!(size(&noise, compressed), (plain, compressed, codec));
            assert_eq!(size(&noise, compressed - 1), (plain, plain, Some(Codec::None)));
        }
    }

    #[test]
    fn extreme_times_come_back() {
        for times in [[i64::MIN, i64::MAX], [i64::MAX, i64::MIN], [-1, i64::MIN]] {
            let mut out = Vec::new();
            let mut encoder = BatchEncoder::new(&mut out, &Encoding::default());
            for time in times {
                encoder.push(&NewRecord { timestamp: TimestampMs::new(time), ..NOTHING });
            }
            encoder.finish(usize::MAX).unwrap();
            let read: Vec<_> = Records::in_batch(&header(&out), &out).map(|record| record.unwrap().timestamp.get()).collect();
            assert_eq!(read, times);
        }
    }

    #[test]
    fn sizes_around_those_of_short_numbers() {
        let bytes = vec![b'x'; 20_000];
        for size in [0, 1, 50, 60, 63, 64, 8_100, 8_170, 8_183, 8_184, 8_185, 8_191, 8_192, 20_000] {
            for (key, value) in [(None, Some(&bytes[..size])), (Some(&bytes[..size]), None), (Some(&bytes[..size]), Some(&bytes[..size]))] {
                let mut out = Vec::new();
                let mut encoder = BatchEncoder::new(&mut out, &Encoding::default());
                let record = NewRecord { key, value, ..NOTHING };
                for _ in 0..2 {
                    let expected = encoder.size_with(&record);
                    encoder.push(&record);
                    assert_eq!(encoder.size(), expected, "{size}");
                }
                encoder.finish(usize::MAX).unwrap();
                let header = header(&out);
                for read in Records::in_batch(&header, &out) {
                    let read = read.unwrap();
                    let part = |range: Option<Range<u32>>| range.map(|range| &out[range.start as usize..range.end as usize]);
                    assert_eq!((part(read.key), part(read.value)), (key, value));
                }
            }
        }
    }

    type Part = Option<Vec<u8>>;
    type Made = (i64, Part, Part, Vec<(Vec<u8>, Part)>);

    fn made() -> impl proptest::strategy::Strategy<Value = Made> {
        use proptest::prelude::*;
        let part = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200));
        let headers = proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..20), part()), 0..4);
        let time = prop_oneof![-1i64..2, 1_700_000_000_000i64..1_700_000_100_000, any::<i64>()];
        (time, part(), part(), headers)
    }

    proptest::proptest! {
        #[test]
        fn what_was_written_is_read(records in proptest::collection::vec(made(), 1..80), bits in 0u8..5) {
            use proptest::prelude::*;
            let mut out = Vec::new();
            let encoding = Encoding { codec: Codec::from_bits(bits).unwrap(), ..Encoding::default() };
            let mut encoder = BatchEncoder::new(&mut out, &encoding);
            for (time, key, value, headers) in &records {
                let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect();
                let record =
                    NewRecord { timestamp: TimestampMs::new(*time), key: key.as_deref(), value: value.as_deref(), headers: &headers };
                let expected = encoder.size_with(&record);
                if encoder.count() == 0 {
                    prop_assert_eq!(one_record_batch_size(&record), expected);
                }
                prop_assert!(!encoder.push_within(&record, expected - 1));
                prop_assert!(encoder.push_within(&record, expected));
                prop_assert_eq!(encoder.size(), expected);
            }
            let batch = encoder.finish(usize::MAX).unwrap();
            prop_assert_eq!(batch.range.clone(), 0..out.len());
            let header = header(&out);
            verify_crc(&header, &out).unwrap();
            prop_assert_eq!(header.records_count as usize, records.len());
            prop_assert_eq!(header.last_offset.get(), records.len() as i64 - 1);
            prop_assert_eq!(header.base_timestamp.get(), records[0].0);
            prop_assert_eq!(Some(header.max_timestamp.get()), records.iter().map(|record| record.0).max());
            let decoded = decode(&header, &out, 1 << 24).unwrap();
            let (body, read) = if header.is_compressed() {
                (&decoded[..], Records::in_decoded(&header, &decoded))
            } else {
                (&out[..], Records::in_batch(&header, &out))
            };
            let part = |range: Option<Range<u32>>| range.map(|range| body[range.start as usize..range.end as usize].to_vec());
            let mut numbers = 0..;
            let read: Vec<Made> = read
                .map(|record| {
                    let record = record.unwrap();
                    assert_eq!(record.offset.get(), numbers.next().unwrap());
                    if !header.is_compressed() {
                        assert_eq!(find_in_batch(&header, &out, record.offset).unwrap().as_ref(), Some(&record));
                    }
                    let headers = Headers::new(body, &record).map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect();
                    (record.timestamp.get(), part(record.key), part(record.value), headers)
                })
                .collect();
            prop_assert_eq!(read, records);
        }
    }
}
