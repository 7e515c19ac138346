//! The header of a record batch: its layout, how a `.log` file is walked from one batch to the next, the checksum.
//!
//! Entries of magic 0 and 1 get the same header, so that all above this file sees batches only. Records are not read here
//! (`record`), nor is anything decompressed. Facts: kafka-format, sections 1, 1.1 and 2.

use crate::error::Fault;
use crate::log::compression::Codec;
use crate::log::legacy::{self, Frame, PREFIX_SIZE, field};
use crate::types::{Offset, TimestampMs, TimestampType};

// The header of a batch of magic 2. Numbers are big-endian. The CRC-32C covers everything from the attributes to the end of the
// batch, so that base offset and leader epoch can be assigned in place.
//
//    0  base offset             8      35  max timestamp     8
//    8  batch length            4      43  producer id       8
//   12  partition leader epoch  4      51  producer epoch    2
//   16  magic                   1      53  base sequence     4
//   17  crc                     4      57  records count     4
//   21  attributes              2      61  records, or one compressed stream of them
//   23  last offset delta       4
//   27  base timestamp          8

/// Place of the base offset.
pub const BASE_OFFSET: usize = 0;
/// Place of the batch length, the number of bytes behind it.
pub const BATCH_LENGTH: usize = BASE_OFFSET + 8;
/// Place of the partition leader epoch.
pub const PARTITION_LEADER_EPOCH: usize = BATCH_LENGTH + 4;
/// Place of the magic byte.
pub const MAGIC: usize = PARTITION_LEADER_EPOCH + 4;
/// Place of the CRC-32C.
pub const CRC: usize = MAGIC + 1;
/// Place of the attributes, and of the first byte that the CRC-32C covers.
pub const ATTRIBUTES: usize = CRC + 4;
/// Place of the last offset's distance from the base offset.
pub const LAST_OFFSET_DELTA: usize = ATTRIBUTES + 2;
/// Place of the base timestamp.
pub const BASE_TIMESTAMP: usize = LAST_OFFSET_DELTA + 4;
/// Place of the greatest timestamp.
pub const MAX_TIMESTAMP: usize = BASE_TIMESTAMP + 8;
/// Place of the producer id.
pub const PRODUCER_ID: usize = MAX_TIMESTAMP + 8;
/// Place of the producer epoch.
pub const PRODUCER_EPOCH: usize = PRODUCER_ID + 8;
/// Place of the first record's sequence number.
pub const BASE_SEQUENCE: usize = PRODUCER_EPOCH + 2;
/// Place of the number of records.
pub const RECORDS_COUNT: usize = BASE_SEQUENCE + 4;
/// The size of the header in bytes, and the place of the records.
pub const HEADER_SIZE: usize = RECORDS_COUNT + 4;

const _: () = assert!(HEADER_SIZE == 61);
const _: () = assert!(BATCH_LENGTH + 4 == PREFIX_SIZE && MAGIC == 16 && ATTRIBUTES == 21);

/// The smallest batch length of magic 2: a header without records.
const BATCH_LENGTH_MIN: i32 = (HEADER_SIZE - PREFIX_SIZE) as i32;

/// The attribute bits of a batch. Only the low byte has a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes(i16);

impl Attributes {
    const CODEC_MASK: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// Attributes from the stored number.
    #[inline]
    pub const fn from_raw(raw: i16) -> Attributes {
        Attributes(raw)
    }

    /// The attributes of a data batch: a codec, and whether the log gave its records their time.
    #[inline]
    pub const fn of_data(codec: Codec, log_append_time: bool) -> Attributes {
        Attributes(codec.bits() as i16 | if log_append_time { Attributes::LOG_APPEND_TIME } else { 0 })
    }

    /// The stored number. Of magic 0 and 1 only the bits that these magics define are kept.
    #[inline]
    pub const fn raw(self) -> i16 {
        self.0
    }

    /// The codec of the records; `None` where the bits name none (5 to 7).
    #[inline]
    pub const fn codec(self) -> Option<Codec> {
        Codec::from_bits((self.0 & Attributes::CODEC_MASK) as u8)
    }

    /// Who gave the records their time. Magic 0 has none: ask [`BatchHeader::timestamp_type`].
    #[inline]
    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & Attributes::LOG_APPEND_TIME != 0 { TimestampType::LogAppendTime } else { TimestampType::CreateTime }
    }

    /// Whether the batch belongs to a transaction.
    #[inline]
    pub const fn is_transactional(self) -> bool {
        self.0 & Attributes::TRANSACTIONAL != 0
    }

    /// Whether the batch holds control records, which are never values.
    #[inline]
    pub const fn is_control(self) -> bool {
        self.0 & Attributes::CONTROL != 0
    }

    /// Whether the base timestamp is a delete horizon.
    #[inline]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Attributes::DELETE_HORIZON != 0
    }
}

/// What the header of one batch says. An entry of magic 0 or 1 is a batch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The magic, 0 to 2.
    pub magic: u8,
    /// The offset of the first record that the batch was written with. Of an entry of magic 0 or 1 its offset field: the first
    /// offset of a compressed one is known only once it is decoded.
    pub base_offset: Offset,
    /// The offset of the last record that the batch was written with, also where compaction took that record away.
    pub last_offset: Offset,
    /// The size of the whole batch in bytes, with the prefix of 12 bytes that its length field does not count.
    pub size: u32,
    /// The epoch of the leader that appended the batch; -1 is unknown, and always so in magic 0 and 1.
    pub partition_leader_epoch: i32,
    /// The stored checksum: CRC-32C in magic 2, CRC-32 in magic 0 and 1.
    pub crc: u32,
    /// The attribute bits.
    pub attributes: Attributes,
    /// The time that the records' deltas count from: the first record's, or the delete horizon. Magic 1: the entry's; magic 0: none.
    pub base_timestamp: TimestampMs,
    /// The greatest time of a record, or the time of the append. Magic 1: the entry's; magic 0: none.
    pub max_timestamp: TimestampMs,
    /// The producer's id; -1 is none.
    pub producer_id: i64,
    /// The producer's epoch; -1 is none.
    pub producer_epoch: i16,
    /// The sequence number of the first record; -1 is none.
    pub base_sequence: i32,
    /// The number of records in the batch as stored, 0 after compaction took the last one; 1 in magic 0 and 1. A negative number is
    /// not refused here but where records are read.
    pub records_count: i32,
}

/// How far a batch reaches, as plain numbers: base offset, last offset, size in bytes, greatest time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The base offset.
    pub base: i64,
    /// The last offset.
    pub last: i64,
    /// The size of the whole batch in bytes.
    pub size: u32,
    /// The greatest time of a record, or the time of the append.
    pub max_timestamp: i64,
}

/// What stands at a place of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A batch that lies whole in the log.
    Batch(BatchHeader),
    /// No whole batch any more.
    End {
        /// The bytes from the place to the end of the log; 0 is a clean end, anything else a torn tail.
        left: u64,
    },
}

impl BatchHeader {
    /// Reads the header of the batch at the byte `at` of `log`, as a file is walked.
    ///
    /// Fewer than 18 bytes, or a batch that reaches past the end, is [`Step::End`] as in Kafka. The checksum is not looked at.
    ///
    /// # Errors
    /// A size or magic that no batch has, a negative offset or delta, a last offset beyond [`Offset::MAX`]. The fault's position is
    /// `at`. Source: kafka-format, section 1.1.
    #[inline]
    pub fn read(log: &[u8], at: usize) -> Result<Step, Fault> {
        let left = log.get(at..).unwrap_or_default();
        if let Some(block) = left.first_chunk::<HEADER_SIZE>() {
            let length = i32::from_be_bytes(field::<BATCH_LENGTH, 4, HEADER_SIZE>(block));
            let base_offset = i64::from_be_bytes(field::<BASE_OFFSET, 8, HEADER_SIZE>(block));
            let last_offset_delta = i32::from_be_bytes(field::<LAST_OFFSET_DELTA, 4, HEADER_SIZE>(block));
            // Not negative, so the sum cannot wrap; 12 more than an i32 fits a u32.
            let size = (length as u32).wrapping_add(PREFIX_SIZE as u32);
            if block[MAGIC] == 2
                && length >= BATCH_LENGTH_MIN
                && size as usize <= left.len()
                && last_offset_delta >= 0
                && let Some(base_offset) = Offset::new(base_offset)
                && let Some(last_offset) = base_offset.checked_add(i64::from(last_offset_delta))
            {
                return Ok(Step::Batch(BatchHeader {
                    magic: 2,
                    base_offset,
                    last_offset,
                    size,
                    partition_leader_epoch: i32::from_be_bytes(field::<PARTITION_LEADER_EPOCH, 4, HEADER_SIZE>(block)),
                    crc: u32::from_be_bytes(field::<CRC, 4, HEADER_SIZE>(block)),
                    attributes: Attributes(i16::from_be_bytes(field::<ATTRIBUTES, 2, HEADER_SIZE>(block))),
                    base_timestamp: TimestampMs::new(i64::from_be_bytes(field::<BASE_TIMESTAMP, 8, HEADER_SIZE>(block))),
                    max_timestamp: TimestampMs::new(i64::from_be_bytes(field::<MAX_TIMESTAMP, 8, HEADER_SIZE>(block))),
                    producer_id: i64::from_be_bytes(field::<PRODUCER_ID, 8, HEADER_SIZE>(block)),
                    producer_epoch: i16::from_be_bytes(field::<PRODUCER_EPOCH, 2, HEADER_SIZE>(block)),
                    base_sequence: i32::from_be_bytes(field::<BASE_SEQUENCE, 4, HEADER_SIZE>(block)),
                    records_count: i32::from_be_bytes(field::<RECORDS_COUNT, 4, HEADER_SIZE>(block)),
                }));
            }
        }
        read_other(left).map_err(|fault| Fault { position: crate::types::Position::new(at as u64), ..fault })
    }

    /// How far a sound batch of magic 2 at a place reaches, and nothing else of it: what a search walks by. `None` for all else, which
    /// [`BatchHeader::read`] tells apart.
    #[inline(always)]
    pub fn extent(log: &[u8], at: usize) -> Option<Extent> {
        let left = log.get(at..)?;
        let block = left.first_chunk::<HEADER_SIZE>()?;
        let length = i32::from_be_bytes(field::<BATCH_LENGTH, 4, HEADER_SIZE>(block));
        let size = (length as u32).wrapping_add(PREFIX_SIZE as u32);
        let base = i64::from_be_bytes(field::<BASE_OFFSET, 8, HEADER_SIZE>(block));
        let delta = i32::from_be_bytes(field::<LAST_OFFSET_DELTA, 4, HEADER_SIZE>(block));
        if block[MAGIC] != 2 || length < BATCH_LENGTH_MIN || size as usize > left.len() || base < 0 || delta < 0 {
            return None;
        }
        let max_timestamp = i64::from_be_bytes(field::<MAX_TIMESTAMP, 8, HEADER_SIZE>(block));
        Some(Extent { base, last: base.checked_add(i64::from(delta))?, size, max_timestamp })
    }

    /// Whether the records are compressed, be it with a codec that does not exist.
    #[inline]
    pub const fn is_compressed(&self) -> bool {
        self.attributes.0 & Attributes::CODEC_MASK != 0
    }

    /// Whether this is an entry of magic 0 or 1 whose value holds other entries.
    #[inline]
    pub const fn is_wrapper(&self) -> bool {
        self.magic < 2 && self.is_compressed()
    }

    /// The attributes of a batch of magic 2 that compaction writes with records of this one: who gave the times, transaction and control stay.
    pub(crate) fn rewritten_attributes(&self, codec: Codec, has_delete_horizon: bool) -> Attributes {
        let stays = if self.magic >= 2 { self.attributes.0 & (Attributes::TRANSACTIONAL | Attributes::CONTROL) } else { 0 };
        let horizon = if has_delete_horizon { Attributes::DELETE_HORIZON } else { 0 };
        Attributes(Attributes::of_data(codec, self.timestamp_type() == TimestampType::LogAppendTime).0 | stays | horizon)
    }

    /// The offset behind the batch; [`Offset::MAX`] where there is none.
    #[inline]
    pub const fn next_offset(&self) -> Offset {
        self.last_offset.next()
    }

    /// Who gave the records their time.
    #[inline]
    pub const fn timestamp_type(&self) -> TimestampType {
        if self.magic == 0 { TimestampType::None } else { self.attributes.timestamp_type() }
    }

    /// The time from which tombstones and markers in this batch may be removed; `None` where the cleaner has set none.
    #[inline]
    pub const fn delete_horizon(&self) -> Option<TimestampMs> {
        if self.magic == 2 && self.attributes.has_delete_horizon() { Some(self.base_timestamp) } else { None }
    }
}

/// All that is not a sound batch of magic 2: ends, entries of magic 0 and 1, faults. `left` is the log from the place on.
#[inline(never)]
fn read_other(left: &[u8]) -> Result<Step, Fault> {
    let end = Step::End { left: left.len() as u64 };
    let Some(frame) = Frame::probe(left, 0) else { return Ok(end) };
    if frame.message_size < legacy::MESSAGE_SIZE_MIN {
        return Err(fault("a batch length of at least 14", i64::from(frame.message_size)));
    }
    let size = (frame.message_size as u32).wrapping_add(PREFIX_SIZE as u32);
    let Some(entry) = left.get(..size as usize) else { return Ok(end) };
    match frame.magic {
        0 | 1 => read_legacy(entry, size),
        2 => Err(unsound(&frame, entry)),
        other => Err(fault("magic 0, 1 or 2", i64::from(other))),
    }
}

fn read_legacy(bytes: &[u8], size: u32) -> Result<Step, Fault> {
    let entry = legacy::Entry::read(bytes)?;
    let Some(offset) = Offset::new(entry.offset) else { return Err(fault("an offset of 0 or more", entry.offset)) };
    Ok(Step::Batch(BatchHeader {
        magic: entry.magic,
        base_offset: offset,
        last_offset: offset,
        size,
        partition_leader_epoch: -1,
        crc: entry.crc,
        attributes: Attributes(i16::from(entry.attributes)),
        base_timestamp: entry.timestamp,
        max_timestamp: entry.timestamp,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count: 1,
    }))
}

/// Says what is wrong with a whole entry of magic 2 that the short way has refused.
#[cold]
fn unsound(frame: &Frame, entry: &[u8]) -> Fault {
    let Some(block) = entry.first_chunk::<HEADER_SIZE>() else {
        return fault("a batch length of at least 49 for magic 2", i64::from(frame.message_size));
    };
    if frame.offset < 0 {
        return fault("a base offset of 0 or more", frame.offset);
    }
    let delta = i32::from_be_bytes(field::<LAST_OFFSET_DELTA, 4, HEADER_SIZE>(block));
    if delta < 0 {
        return fault("a last offset delta of 0 or more", i64::from(delta));
    }
    Fault::new(
        0,
        format!("a last offset of at most {}", Offset::MAX),
        format!("base offset {} and last offset delta {delta}", frame.offset),
    )
}

#[cold]
fn fault(expected: &'static str, found: i64) -> Fault {
    Fault::new(0, expected, found.to_string())
}

/// Checks the checksum of a batch; `batch` holds exactly its bytes.
///
/// # Errors
/// A checksum that differs, or fewer bytes than the header says. The fault's position is 0: who knows the place moves it.
#[inline]
pub fn verify_crc(header: &BatchHeader, batch: &[u8]) -> Result<(), Fault> {
    if batch.len() != header.size as usize {
        return Err(wrong_size(header, batch));
    }
    if header.magic < 2 {
        return legacy::verify_crc(header.crc, batch);
    }
    let computed = crc32c::crc32c(batch.get(ATTRIBUTES..).unwrap_or_default());
    if computed == header.crc { Ok(()) } else { Err(wrong_crc(header.crc, computed)) }
}

#[cold]
fn wrong_size(header: &BatchHeader, batch: &[u8]) -> Fault {
    Fault::new(0, format!("a batch of {} bytes", header.size), format!("{} bytes", batch.len()))
}

#[cold]
fn wrong_crc(stored: u32, computed: u32) -> Fault {
    Fault::new(0, format!("CRC-32C {stored:#010x}"), format!("{computed:#010x}"))
}

/// Writes the two fields that the checksum does not cover into the header of `batch`, of magic 2. Fewer than 16 bytes stay as they are.
#[inline]
pub fn assign(batch: &mut [u8], base_offset: Offset, partition_leader_epoch: i32) {
    if let Some(block) = batch.first_chunk_mut::<MAGIC>() {
        block[BASE_OFFSET..BATCH_LENGTH].copy_from_slice(&base_offset.get().to_be_bytes());
        block[PARTITION_LEADER_EPOCH..MAGIC].copy_from_slice(&partition_leader_epoch.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two records from base offset 100 on, leader epoch 0.
    const TWO_RECORDS: &str = "00000000000000640000004500000000026937d2640000000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff0000000210000000026b02760014000a0201010202680278";
    const COMMIT: &str = "000000000000000000000042000000000255f2eb490030000000000000018bcfe568000000018bcfe5680000000000000000010000ffffffff000000012000000008000000010c00000000000700";
    const MAGIC_0: &str = "0000000000000005000000101fecd70a0000000000016b0000000176";
    /// A batch that the cleaner gave a delete horizon.
    const HORIZON: &str = "00000000000000030000004800000005024c46fd200040000000010000018bd50d4aa00000018bcfe56804ffffffffffffffffffffffffffff000000021400b98abf5200026301001600b78abf52020261023200";

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn header(log: &[u8]) -> BatchHeader {
        match BatchHeader::read(log, 0) {
            Ok(Step::Batch(header)) => header,
            other => panic!("{other:?}"),
        }
    }

    fn offset(number: i64) -> Offset {
        Offset::new(number).unwrap()
    }

    #[test]
    fn every_field_of_a_golden_batch() {
        let log = bytes(TWO_RECORDS);
        let expected = BatchHeader {
            magic: 2,
            base_offset: offset(100),
            last_offset: offset(101),
            size: 81,
            partition_leader_epoch: 0,
            crc: 0x6937_d264,
            attributes: Attributes::default(),
            base_timestamp: TimestampMs::new(1_700_000_000_000),
            max_timestamp: TimestampMs::new(1_700_000_000_005),
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: 2,
        };
        assert_eq!(header(&log), expected);
        assert_eq!(header(&log).next_offset(), offset(102));
        verify_crc(&expected, &log).unwrap();
    }

    #[test]
    fn a_commit_marker() {
        let log = bytes(COMMIT);
        let header = header(&log);
        assert!(header.attributes.is_control() && header.attributes.is_transactional() && !header.is_compressed());
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (1, 0, -1));
        assert_eq!(header.delete_horizon(), None);
        verify_crc(&header, &log).unwrap();
    }

    #[test]
    fn a_delete_horizon() {
        let log = bytes(HORIZON);
        let header = header(&log);
        assert_eq!(header.delete_horizon(), Some(TimestampMs::new(1_700_086_500_000)));
        verify_crc(&header, &log).unwrap();
    }

    #[test]
    fn an_entry_of_magic_0() {
        let log = bytes(MAGIC_0);
        let header = header(&log);
        assert_eq!((header.magic, header.base_offset, header.last_offset, header.size), (0, offset(5), offset(5), 28));
        assert_eq!((header.partition_leader_epoch, header.records_count), (-1, 1));
        assert_eq!((header.max_timestamp, header.timestamp_type()), (TimestampMs::NONE, TimestampType::None));
        assert!(!header.is_wrapper());
        verify_crc(&header, &log).unwrap();
    }

    #[test]
    fn a_walk_ends_clean_or_torn() {
        let log = [bytes(TWO_RECORDS), bytes(MAGIC_0), bytes(COMMIT)].concat();
        for cut in 0..=log.len() {
            let (mut at, mut batches) = (0, 0);
            let left = loop {
                match BatchHeader::read(&log[..cut], at).unwrap() {
                    Step::Batch(header) => at += header.size as usize,
                    Step::End { left } => break left,
                }
                batches += 1;
            };
            assert_eq!(at as u64 + left, cut as u64);
            assert_eq!(batches, [81, 109, 187].iter().filter(|end| **end <= cut).count(), "{cut}");
        }
        assert_eq!(BatchHeader::read(&log, log.len() + 1), Ok(Step::End { left: 0 }));
    }

    #[test]
    fn faults_name_the_place_and_what_stands_there() {
        let good = bytes(TWO_RECORDS);
        let cases: [(usize, &[u8], &str); 8] = [
            (BATCH_LENGTH, &[0, 0, 0, 13], "at least 14, found 13"),
            (BATCH_LENGTH, &[0, 0, 0, 0], "at least 14, found 0"),
            (BATCH_LENGTH, &[0x80, 0, 0, 0], "at least 14, found -2147483648"),
            (BATCH_LENGTH, &[0, 0, 0, 48], "at least 49 for magic 2, found 48"),
            (MAGIC, &[3], "magic 0, 1 or 2, found 3"),
            (BASE_OFFSET, &[0xff; 8], "a base offset of 0 or more, found -1"),
            (LAST_OFFSET_DELTA, &[0xff; 4], "a last offset delta of 0 or more, found -1"),
            (BASE_OFFSET, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "found base offset 9223372036854775807"),
        ];
        for (at, wrong, message) in cases {
            let mut log = [good.clone(), good.clone()].concat();
            log[81 + at..81 + at + wrong.len()].copy_from_slice(wrong);
            let fault = BatchHeader::read(&log, 81).unwrap_err();
            assert!(fault.to_string().contains(message), "{fault}");
            assert_eq!(fault.position.get(), 81, "{fault}");
        }
        let mut small = bytes(MAGIC_0);
        small[MAGIC] = 1;
        assert!(BatchHeader::read(&small, 0).unwrap_err().to_string().contains("at least 22 for magic 1"));
        small[MAGIC] = 0;
        small[0] = 0x80;
        assert!(BatchHeader::read(&small, 0).unwrap_err().to_string().contains("an offset of 0 or more"));
    }

    #[test]
    fn a_length_near_the_greatest_ends_the_walk() {
        let mut log = bytes(TWO_RECORDS);
        log[BATCH_LENGTH..BATCH_LENGTH + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(BatchHeader::read(&log, 0), Ok(Step::End { left: 81 }));
    }

    #[test]
    fn every_flipped_bit_behind_the_crc_is_found() {
        for hex in [TWO_RECORDS, COMMIT] {
            let good = bytes(hex);
            for bit in CRC * 8..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let Ok(Step::Batch(header)) = BatchHeader::read(&bad, 0) else { continue };
                let fault = verify_crc(&header, &bad).unwrap_err();
                assert!(fault.to_string().starts_with("expected CRC-32C 0x"), "{fault}");
            }
        }
        let good = header(&bytes(MAGIC_0));
        let mut bad = bytes(MAGIC_0);
        bad[27] ^= 1;
        assert!(verify_crc(&good, &bad).unwrap_err().to_string().starts_with("expected CRC-32 0x1fecd70a"));
        assert!(verify_crc(&good, &bad[..27]).is_err());
    }

    #[test]
    fn assigning_leaves_the_checksum_right() {
        let mut log = bytes(TWO_RECORDS);
        assign(&mut log, offset(1 << 40), 7);
        let header = header(&log);
        assert_eq!((header.base_offset, header.last_offset, header.partition_leader_epoch), (offset(1 << 40), offset((1 << 40) + 1), 7));
        verify_crc(&header, &log).unwrap();
    }

    #[test]
    fn attribute_bits() {
        assert_eq!(Attributes::from_raw(4).codec(), Some(Codec::Zstd));
        for bits in 5..8 {
            assert_eq!(Attributes::from_raw(bits).codec(), None);
        }
        assert_eq!(Attributes::from_raw(0x7f00).codec(), Some(Codec::None));
        let data = Attributes::of_data(Codec::Lz4, true);
        assert_eq!((data.raw(), data.timestamp_type()), (0x0b, TimestampType::LogAppendTime));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(log in proptest::collection::vec(0u8.., 0..200), at in 0usize..220) {
            if let Ok(Step::Batch(header)) = BatchHeader::read(&log, at) {
                proptest::prop_assert!(at + header.size as usize <= log.len());
                let _ = verify_crc(&header, &log[at..at + header.size as usize]);
            }
        }
    }
}
