//! An encoder of the on-disk format for tests, written from the format's description and without the engine's help: its own checksums,
//! varints and codecs (with stored blocks only). What the engine reads from it, it did not write itself.

/// The reflected polynomial of CRC-32C (Castagnoli), which batches of magic 2 carry.
const CASTAGNOLI: u32 = 0x82F6_3B78;
/// The reflected polynomial of CRC-32 (IEEE), which messages of magic 0 and 1 and gzip carry.
const IEEE: u32 = 0xEDB8_8320;

static CASTAGNOLI_TABLE: [u32; 256] = table(CASTAGNOLI);
static IEEE_TABLE: [u32; 256] = table(IEEE);

const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (polynomial * (value & 1));
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

fn checksum(table: &[u32; 256], bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| table[usize::from(sum.to_be_bytes()[3] ^ byte)] ^ (sum >> 8))
}

/// CRC-32C of the bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    checksum(&CASTAGNOLI_TABLE, bytes)
}

/// CRC-32 (IEEE) of the bytes.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    checksum(&IEEE_TABLE, bytes)
}

/// How the records of a batch, or the inner messages of a wrapper, are compressed. All blocks are stored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// Not at all.
    None,
    /// A gzip member.
    Gzip,
    /// One raw snappy block.
    SnappyRaw,
    /// The stream of the Java library, as Kafka writes it, in blocks of 64 bytes.
    SnappyStream,
    /// The same with the two version words in little-endian order.
    SnappyStreamLittleEndian,
    /// An LZ4 frame.
    Lz4,
    /// An LZ4 frame with the wrong header checksum that magic 0 asks for.
    Lz4OfMagic0,
    /// A zstd frame.
    Zstd,
    /// Two zstd frames, one behind the other.
    ZstdTwoFrames,
}

impl Codec {
    /// All of them.
    pub(crate) const ALL: [Codec; 9] = [
        Codec::None,
        Codec::Gzip,
        Codec::SnappyRaw,
        Codec::SnappyStream,
        Codec::SnappyStreamLittleEndian,
        Codec::Lz4,
        Codec::Lz4OfMagic0,
        Codec::Zstd,
        Codec::ZstdTwoFrames,
    ];

    /// The number in the low bits of the attributes.
    pub(crate) fn id(self) -> i8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::SnappyRaw | Codec::SnappyStream | Codec::SnappyStreamLittleEndian => 2,
            Codec::Lz4 | Codec::Lz4OfMagic0 => 3,
            Codec::Zstd | Codec::ZstdTwoFrames => 4,
        }
    }

    /// The bytes in this codec's framing.
    pub(crate) fn wrap(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Codec::None => bytes.to_vec(),
            Codec::Gzip => gzip(bytes),
            Codec::SnappyRaw => snappy_raw(bytes),
            Codec::SnappyStream => snappy_stream(bytes, [0, 0, 0, 1]),
            Codec::SnappyStreamLittleEndian => snappy_stream(bytes, [1, 0, 0, 0]),
            Codec::Lz4 => lz4(bytes, 0x82),
            Codec::Lz4OfMagic0 => lz4(bytes, 0x1A),
            Codec::Zstd => zstd(bytes),
            Codec::ZstdTwoFrames => {
                let (head, tail) = bytes.split_at(bytes.len() / 2);
                [zstd(head), zstd(tail)].concat()
            }
        }
    }
}

/// A number's bytes, the lowest first, for the framings that are not Kafka's own.
fn lowest_first<const N: usize>(mut highest_first: [u8; N]) -> [u8; N] {
    highest_first.reverse();
    highest_first
}

/// One member of deflate's stored blocks.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255];
    let count = bytes.len().div_ceil(0xFFFF).max(1);
    for n in 0..count {
        let block = &bytes[n * 0xFFFF..bytes.len().min((n + 1) * 0xFFFF)];
        let len = u16::try_from(block.len()).expect("a stored block is below 64 KiB");
        out.push(u8::from(n + 1 == count));
        out.extend(lowest_first(len.to_be_bytes()));
        out.extend(lowest_first((!len).to_be_bytes()));
        out.extend(block);
    }
    out.extend(lowest_first(crc32(bytes).to_be_bytes()));
    out.extend(lowest_first(size(bytes).to_be_bytes()));
    out
}

/// One block of literals.
fn snappy_raw(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    leb128(bytes.len() as u64, &mut out);
    for literal in bytes.chunks(60) {
        out.push(u8::try_from(literal.len() - 1).expect("at most 60 bytes") << 2);
        out.extend(literal);
    }
    out
}

fn snappy_stream(bytes: &[u8], version: [u8; 4]) -> Vec<u8> {
    let mut out = b"\x82SNAPPY\0".to_vec();
    out.extend(version);
    out.extend(version);
    for block in bytes.chunks(64) {
        let block = snappy_raw(block);
        out.extend(size(&block).to_be_bytes());
        out.extend(block);
    }
    out
}

/// One frame of stored blocks of 64 KiB.
fn lz4(bytes: &[u8], header_checksum: u8) -> Vec<u8> {
    let mut out = vec![0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, header_checksum];
    for block in bytes.chunks(0x1_0000) {
        out.extend(lowest_first((size(block) | 0x8000_0000).to_be_bytes()));
        out.extend(block);
    }
    out.extend([0; 4]);
    out
}

/// One frame of raw blocks without the content's size.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58];
    let count = bytes.len().div_ceil(0x1_0000).max(1);
    for n in 0..count {
        let block = &bytes[n * 0x1_0000..bytes.len().min((n + 1) * 0x1_0000)];
        let header = size(block) << 3 | u32::from(n + 1 == count);
        out.extend(&lowest_first(header.to_be_bytes())[..3]);
        out.extend(block);
    }
    out
}

/// A length as the 32 bits that the framings have for it.
fn size(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("test data is below 4 GiB")
}

fn leb128(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7F {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A zig-zag varint, of 32 or 64 bits.
fn varint(value: i64, out: &mut Vec<u8>) {
    leb128(((value << 1) ^ (value >> 63)).cast_unsigned(), out);
}

/// A length as a varint and the bytes; null is the length -1.
fn sized(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    varint(bytes.map_or(-1, |bytes| i64::from(size(bytes))), out);
    out.extend(bytes.unwrap_or_default());
}

/// A record of a batch of magic 2.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Its offset less the batch's base offset.
    pub(crate) offset_delta: i32,
    /// Its time in ms; -1 for none.
    pub(crate) timestamp: i64,
    /// Its key.
    pub(crate) key: Option<Vec<u8>>,
    /// Its value.
    pub(crate) value: Option<Vec<u8>>,
    /// Names and values of its headers.
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Record {
    /// A record without headers.
    pub(crate) fn new(offset_delta: i32, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Record {
        Record { offset_delta, timestamp, key: key.map(<[u8]>::to_vec), value: value.map(<[u8]>::to_vec), headers: Vec::new() }
    }

    /// The same with one header more.
    pub(crate) fn header(mut self, name: &[u8], value: Option<&[u8]>) -> Record {
        self.headers.push((name.to_vec(), value.map(<[u8]>::to_vec)));
        self
    }

    fn encode(&self, base_timestamp: i64, out: &mut Vec<u8>) {
        let mut body = vec![0];
        varint(self.timestamp - base_timestamp, &mut body);
        varint(i64::from(self.offset_delta), &mut body);
        sized(self.key.as_deref(), &mut body);
        sized(self.value.as_deref(), &mut body);
        varint(self.headers.len() as i64, &mut body);
        for (name, value) in &self.headers {
            sized(Some(name), &mut body);
            sized(value.as_deref(), &mut body);
        }
        sized(Some(&body), out);
    }
}

/// A batch of magic 2. What is `None` is computed as a correct writer would; a value makes the batch say that instead.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The offset that the records' deltas count from.
    pub(crate) base_offset: i64,
    /// The leader epoch it was written in; -1 for unknown.
    pub(crate) partition_leader_epoch: i32,
    /// The attributes without the codec's bits.
    pub(crate) attributes: i16,
    /// How the records are compressed.
    pub(crate) codec: Codec,
    /// The last offset less the base offset.
    pub(crate) last_offset_delta: Option<i32>,
    /// The time that the records' deltas count from.
    pub(crate) base_timestamp: Option<i64>,
    /// The greatest time of a record, or the time of the append.
    pub(crate) max_timestamp: Option<i64>,
    /// The producer; -1 for none.
    pub(crate) producer_id: i64,
    /// The producer's epoch; -1 for none.
    pub(crate) producer_epoch: i16,
    /// The sequence number of the first record; -1 for none.
    pub(crate) base_sequence: i32,
    /// How many records it says it has.
    pub(crate) records_count: Option<i32>,
    /// Its records.
    pub(crate) records: Vec<Record>,
}

impl Batch {
    /// The attribute that makes `max_timestamp` the time of every record.
    pub(crate) const LOG_APPEND_TIME: i16 = 0x08;
    /// The attribute of a batch that is part of a transaction.
    pub(crate) const TRANSACTIONAL: i16 = 0x10;
    /// The attribute of a batch whose records are no data.
    pub(crate) const CONTROL: i16 = 0x20;
    /// The attribute that makes `base_timestamp` a delete horizon.
    pub(crate) const DELETE_HORIZON: i16 = 0x40;

    /// An uncompressed batch of epoch 0 without a producer.
    pub(crate) fn new(base_offset: i64, records: Vec<Record>) -> Batch {
        Batch {
            base_offset,
            partition_leader_epoch: 0,
            attributes: 0,
            codec: Codec::None,
            last_offset_delta: None,
            base_timestamp: None,
            max_timestamp: None,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: None,
            records,
        }
    }

    /// A batch of `count` records a second apart, with the keys `k0`, `k1`, `k2` in turn and the values `v<offset>`.
    pub(crate) fn plain(base_offset: i64, count: i32, timestamp: i64) -> Batch {
        let record = |n: i32| {
            let (key, value) = (format!("k{}", n % 3), format!("v{}", base_offset + i64::from(n)));
            Record::new(n, timestamp + i64::from(n) * 1000, Some(key.as_bytes()), Some(value.as_bytes()))
        };
        Batch::new(base_offset, (0..count).map(record).collect())
    }

    /// The control batch that ends a transaction.
    pub(crate) fn end_of_transaction(base_offset: i64, producer_id: i64, producer_epoch: i16, timestamp: i64, commit: bool) -> Batch {
        let record = Record::new(0, timestamp, Some(&[0, 0, 0, u8::from(commit)]), Some(&[0, 0, 0, 0, 0, 7]));
        Batch { attributes: Batch::TRANSACTIONAL | Batch::CONTROL, producer_id, producer_epoch, ..Batch::new(base_offset, vec![record]) }
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let first_timestamp = self.records.first().map_or(-1, |record| record.timestamp);
        let base_timestamp = self.base_timestamp.unwrap_or(first_timestamp);
        let max_timestamp = self.records.iter().map(|record| record.timestamp).max().unwrap_or(-1);
        let mut records = Vec::new();
        for record in &self.records {
            record.encode(base_timestamp, &mut records);
        }
        let last_delta = self.records.last().map_or(0, |record| record.offset_delta);
        let mut checked = Vec::new();
        checked.extend((self.attributes | i16::from(self.codec.id())).to_be_bytes());
        checked.extend(self.last_offset_delta.unwrap_or(last_delta).to_be_bytes());
        checked.extend(base_timestamp.to_be_bytes());
        checked.extend(self.max_timestamp.unwrap_or(max_timestamp).to_be_bytes());
        checked.extend(self.producer_id.to_be_bytes());
        checked.extend(self.producer_epoch.to_be_bytes());
        checked.extend(self.base_sequence.to_be_bytes());
        checked.extend(self.records_count.unwrap_or(self.records.len() as i32).to_be_bytes());
        checked.extend(self.codec.wrap(&records));
        let mut out = self.base_offset.to_be_bytes().to_vec();
        out.extend((9 + size(&checked)).to_be_bytes());
        out.extend(self.partition_leader_epoch.to_be_bytes());
        out.push(2);
        out.extend(crc32c(&checked).to_be_bytes());
        out.extend(checked);
        out
    }
}

/// A message of magic 0 (which stores no time) or 1. The attributes have the codec in their low bits and LogAppendTime in bit 3.
pub(crate) fn message(offset: i64, magic: i8, attributes: i8, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
    let mut checked = [magic.to_be_bytes(), attributes.to_be_bytes()].concat();
    if magic > 0 {
        checked.extend(timestamp.to_be_bytes());
    }
    for bytes in [key, value] {
        checked.extend(bytes.map_or(-1, |bytes| size(bytes).cast_signed()).to_be_bytes());
        checked.extend(bytes.unwrap_or_default());
    }
    let mut out = offset.to_be_bytes().to_vec();
    out.extend((4 + size(&checked)).to_be_bytes());
    out.extend(crc32(&checked).to_be_bytes());
    out.extend(checked);
    out
}

/// A message that holds other messages. Its offset is that of the last inner one; the inner offsets are absolute under magic 0 and count from 0 under magic 1.
pub(crate) fn wrapper(offset: i64, magic: i8, codec: Codec, timestamp: i64, inner: &[u8]) -> Vec<u8> {
    message(offset, magic, codec.id(), timestamp, None, Some(&codec.wrap(inner)))
}

/// The bytes of an offset index with these entries of offset and position.
pub(crate) fn offset_index(base_offset: i64, entries: &[(i64, u32)]) -> Vec<u8> {
    entries.iter().flat_map(|(offset, position)| [relative(*offset, base_offset), position.to_be_bytes()].concat()).collect()
}

/// The bytes of a time index with these entries of time and offset.
pub(crate) fn time_index(base_offset: i64, entries: &[(i64, i64)]) -> Vec<u8> {
    entries.iter().flat_map(|(time, offset)| [time.to_be_bytes().to_vec(), relative(*offset, base_offset).to_vec()].concat()).collect()
}

fn relative(offset: i64, base_offset: i64) -> [u8; 4] {
    i32::try_from(offset - base_offset).expect("a relative offset has 31 bits").to_be_bytes()
}

/// The two indexes that a rebuild gives for a segment of batches of magic 2: an entry where more than `interval` bytes lie between a batch's
/// start and the start of the last one that has an entry (or of the file); a time entry beside each and one at the end.
pub(crate) fn indexes(base_offset: i64, log: &[u8], interval: u32) -> (Vec<u8>, Vec<u8>) {
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().expect("four bytes"));
    let wide = |at: usize| i64::from_be_bytes(log[at..at + 8].try_into().expect("eight bytes"));
    let (mut offsets, mut times) = (Vec::new(), Vec::new());
    let (mut max_timestamp, mut offset_of_max, mut indexed) = (-1, base_offset, 0);
    let mut position = 0;
    let mut add_time = |time: i64, offset: i64| {
        if time > times.last().map_or(-1, |(last, _)| *last) {
            times.push((time, offset));
        }
    };
    while position < log.len() {
        let last_offset = wide(position) + i64::from(number(position + 23));
        if wide(position + 35) > max_timestamp {
            (max_timestamp, offset_of_max) = (wide(position + 35), last_offset);
        }
        if position - indexed > interval as usize {
            offsets.push((last_offset, position as u32));
            add_time(max_timestamp, offset_of_max);
            indexed = position;
        }
        position += 12 + number(position + 8) as usize;
    }
    add_time(max_timestamp, offset_of_max);
    (offset_index(base_offset, &offsets), time_index(base_offset, &times))
}
