//! Message sets of magic 0 and 1: the layout of one entry, its checksum, and the entries inside a compressed wrapper.
//!
//! This file knows nothing of record batches of magic 2 and decompresses nothing; `batch` makes a header of an entry, and
//! `record` makes records of the inner entries. Facts: kafka-format, section 2.

use crate::error::Fault;
use crate::types::{TimestampMs, TimestampType};
use std::ops::Range;

// One entry. Numbers are big-endian. The CRC-32 (IEEE) covers everything from the magic byte to the end of the entry.
//
//   offset 8 | message size 4 | crc 4 | magic 1 | attributes 1 | [timestamp 8, magic 1 only] |
//   key length 4, key | value length 4, value                      (a negative length means null)

const OFFSET: usize = 0;
const MESSAGE_SIZE: usize = OFFSET + 8;
/// The bytes before the ones that an entry's size field counts, in every magic.
pub const PREFIX_SIZE: usize = MESSAGE_SIZE + 4;
const CRC: usize = PREFIX_SIZE;
const MAGIC: usize = CRC + 4;
const ATTRIBUTES: usize = MAGIC + 1;
const V0_KEY: usize = ATTRIBUTES + 1;
const V1_TIMESTAMP: usize = V0_KEY;
const V1_KEY: usize = V1_TIMESTAMP + 8;

/// The bytes that must be there before an entry of any magic can be told: prefix, checksum or leader epoch, magic, and one more.
pub const PROBE_SIZE: usize = ATTRIBUTES + 1;
/// The smallest value of the size field that any entry may have, in bytes.
pub const MESSAGE_SIZE_MIN: i32 = 14;

const _: () = assert!(PREFIX_SIZE == 12 && MAGIC == 16 && V0_KEY == 18 && V1_KEY == 26 && PROBE_SIZE == 18);

const CODEC_MASK: u8 = 0b0111;
const LOG_APPEND_TIME: u8 = 0b1000;

/// `N` bytes at the place `AT` of a block of known length; a place outside does not compile.
#[inline(always)]
pub(super) fn field<const AT: usize, const N: usize, const L: usize>(block: &[u8; L]) -> [u8; N] {
    const { assert!(AT + N <= L) };
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[AT..AT + N]);
    bytes
}

/// The place of a key or a value; `None` is null.
pub type Place = Option<Range<u32>>;

/// What stands at the same place in entries of every magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The offset field: of magic 0 and 1 the entry's own, of magic 2 the base offset. May be negative.
    pub offset: i64,
    /// The size field: the bytes behind the prefix. May be anything.
    pub message_size: i32,
    /// The magic byte. May be anything.
    pub magic: u8,
}

impl Frame {
    /// Reads the frame of the entry that begins at `at`; `None` where fewer than [`PROBE_SIZE`] bytes are left.
    #[inline]
    pub fn probe(bytes: &[u8], at: usize) -> Option<Frame> {
        let block: &[u8; PROBE_SIZE] = bytes.get(at..)?.first_chunk()?;
        Some(Frame {
            offset: i64::from_be_bytes(field::<OFFSET, 8, PROBE_SIZE>(block)),
            message_size: i32::from_be_bytes(field::<MESSAGE_SIZE, 4, PROBE_SIZE>(block)),
            magic: block[MAGIC],
        })
    }
}

/// The fixed fields of one entry of magic 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The magic, 0 or 1.
    pub magic: u8,
    /// The offset field: absolute, or in a wrapper of magic 1 relative. Never negative.
    pub offset: i64,
    /// The stored checksum.
    pub crc: u32,
    /// The attribute bits that this magic defines: the codec, and in magic 1 the timestamp type.
    pub attributes: u8,
    /// The entry's time; [`TimestampMs::NONE`] in magic 0.
    pub timestamp: TimestampMs,
}

impl Entry {
    /// Reads the fixed fields of `entry`, the bytes of exactly one entry with its prefix.
    ///
    /// # Errors
    /// A magic other than 0 and 1, a negative offset, fewer bytes than the magic's fixed fields take. Positions count from the
    /// start of `entry`.
    pub fn read(entry: &[u8]) -> Result<Entry, Fault> {
        let Some(block) = entry.first_chunk::<PROBE_SIZE>() else {
            return Err(Fault::new(0, "an entry of magic 0 or 1", format!("{} bytes", entry.len())));
        };
        let magic = block[MAGIC];
        let (size_min, defined) = match magic {
            0 => (V0_KEY + 8, CODEC_MASK),
            1 => (V1_KEY + 8, CODEC_MASK | LOG_APPEND_TIME),
            other => return Err(Fault::new(MAGIC as u64, "magic 0 or 1", format!("{other}"))),
        };
        if entry.len() < size_min {
            return Err(Fault::new(
                MESSAGE_SIZE as u64,
                format!("a size of at least {} for magic {magic}", size_min - PREFIX_SIZE),
                format!("{}", entry.len() - PREFIX_SIZE),
            ));
        }
        let offset = i64::from_be_bytes(field::<OFFSET, 8, PROBE_SIZE>(block));
        if offset < 0 {
            return Err(Fault::new(OFFSET as u64, "an offset of 0 or more", format!("{offset}")));
        }
        let timestamp = match entry.first_chunk::<V1_KEY>() {
            Some(block) if magic == 1 => TimestampMs::new(i64::from_be_bytes(field::<V1_TIMESTAMP, 8, V1_KEY>(block))),
            _ => TimestampMs::NONE,
        };
        Ok(Entry {
            magic,
            offset,
            crc: u32::from_be_bytes(field::<CRC, 4, PROBE_SIZE>(block)),
            attributes: block[ATTRIBUTES] & defined,
            timestamp,
        })
    }

    /// Whether the entry's value holds other entries.
    #[inline]
    pub fn is_compressed(&self) -> bool {
        self.attributes & CODEC_MASK != 0
    }

    /// Who gave the entry its time.
    #[inline]
    pub fn timestamp_type(&self) -> TimestampType {
        match (self.magic, self.attributes & LOG_APPEND_TIME != 0) {
            (0, _) => TimestampType::None,
            (_, true) => TimestampType::LogAppendTime,
            (_, false) => TimestampType::CreateTime,
        }
    }

    /// The places of the key and the value in `entry`, the bytes that this was read from; `None` stands for null.
    ///
    /// # Errors
    /// A length that reaches past the end, or bytes behind the value. Positions count from the start of `entry`.
    pub fn key_and_value(&self, entry: &[u8]) -> Result<(Place, Place), Fault> {
        let key_at = if self.magic == 0 { V0_KEY } else { V1_KEY };
        let (key, value_at) = sized(entry, key_at)?;
        let (value, end) = sized(entry, value_at)?;
        if end != entry.len() {
            return Err(Fault::new(end as u64, "the end of the entry behind its value", format!("{} more bytes", entry.len() - end)));
        }
        Ok((key, value))
    }
}

/// A length of four bytes and as many bytes as it says; the place behind them.
fn sized(entry: &[u8], at: usize) -> Result<(Place, usize), Fault> {
    let left = entry.get(at..).unwrap_or_default();
    let Some((length, left)) = left.split_first_chunk::<4>() else {
        return Err(Fault::new(at as u64, "a length of 4 bytes", format!("{} bytes", left.len())));
    };
    let (length, begin) = (i32::from_be_bytes(*length), at + 4);
    let Ok(length) = usize::try_from(length) else { return Ok((None, begin)) };
    if length > left.len() {
        return Err(Fault::new(at as u64, format!("a length of at most {}", left.len()), format!("{length}")));
    }
    let end = begin + length;
    match (u32::try_from(begin), u32::try_from(end)) {
        (Ok(first), Ok(last)) => Ok((Some(first..last), end)),
        _ => Err(Fault::new(at as u64, "an entry below 4 GiB", format!("a field that ends at {end}"))),
    }
}

/// Checks the CRC-32 of `entry`, the bytes of exactly one entry, against the stored one.
///
/// # Errors
/// A checksum that differs; its position is the start of the entry.
pub fn verify_crc(stored: u32, entry: &[u8]) -> Result<(), Fault> {
    let computed = crc32fast::hash(entry.get(MAGIC..).unwrap_or_default());
    if computed == stored {
        return Ok(());
    }
    Err(Fault::new(0, format!("CRC-32 {stored:#010x}"), format!("{computed:#010x}")))
}

/// The bytes of the entry that begins at `at` among the decompressed entries of a wrapper.
fn inner(body: &[u8], at: usize) -> Result<&[u8], Fault> {
    let left = body.get(at..).unwrap_or_default();
    let Some(frame) = Frame::probe(body, at) else {
        return Err(Fault::new(at as u64, "an inner entry", format!("{} bytes", left.len())));
    };
    if frame.message_size < MESSAGE_SIZE_MIN {
        return Err(Fault::new(at as u64, "an inner entry's size of at least 14", format!("{}", frame.message_size)));
    }
    usize::try_from(frame.message_size).ok().and_then(|size| left.get(..size.checked_add(PREFIX_SIZE)?)).ok_or_else(|| {
        Fault::new(at as u64, format!("an inner entry of at most {} bytes", left.len()), format!("size {}", frame.message_size))
    })
}

/// One entry of a wrapper, with its places in the wrapper's decompressed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InnerEntry {
    /// The fixed fields; the offset as stored.
    pub entry: Entry,
    /// The key; `None` is null.
    pub key: Place,
    /// The value; `None` is null.
    pub value: Place,
    /// The place behind the entry.
    pub end: usize,
}

impl InnerEntry {
    /// Reads and checks the entry at `at` in `body`, the decompressed bytes of a wrapper of `magic`.
    ///
    /// # Errors
    /// All of [`Entry::read`] and [`Entry::key_and_value`], a wrong checksum, a magic that is not the wrapper's, an entry that
    /// is compressed itself. Positions count from the start of `body`.
    pub fn read(body: &[u8], at: usize, magic: u8) -> Result<InnerEntry, Fault> {
        let bytes = inner(body, at)?;
        let shifted = |fault: Fault| fault.moved(at as u64);
        let entry = Entry::read(bytes).map_err(shifted)?;
        if entry.magic != magic {
            return Err(Fault::new(at as u64, format!("the wrapper's magic {magic}"), format!("{}", entry.magic)));
        }
        if entry.is_compressed() {
            return Err(Fault::new(at as u64, "an uncompressed entry inside the wrapper", "a compressed one"));
        }
        verify_crc(entry.crc, bytes).map_err(shifted)?;
        let (key, value) = entry.key_and_value(bytes).map_err(shifted)?;
        let moved = |range: Range<u32>| {
            let first = u32::try_from(at).ok().and_then(|at| range.start.checked_add(at));
            let last = u32::try_from(at).ok().and_then(|at| range.end.checked_add(at));
            match (first, last) {
                (Some(first), Some(last)) => Ok(first..last),
                _ => Err(Fault::new(at as u64, "a wrapper below 4 GiB once decoded", format!("{} bytes", body.len()))),
            }
        };
        Ok(InnerEntry { entry, key: key.map(moved).transpose()?, value: value.map(moved).transpose()?, end: at + bytes.len() })
    }
}

/// What must be added to the stored offsets of the inner entries of a wrapper to make them absolute.
///
/// Magic 0 stores absolute ones. Magic 1 stores them relative, and the wrapper has the offset of its last entry; a wrapper offset
/// of 0 stands for base 0 (old producers never assigned it).
///
/// # Errors
/// No entry at all, a broken chain of sizes, a wrapper offset below the last entry's. Positions count from the start of `body`.
pub fn base_of_inner(body: &[u8], magic: u8, wrapper_offset: i64) -> Result<i64, Fault> {
    let (mut at, mut last) = (0, None);
    while at < body.len() {
        let entry = inner(body, at)?;
        last = Frame::probe(entry, 0).map(|frame| frame.offset);
        at += entry.len();
    }
    let Some(last) = last else { return Err(Fault::new(0, "an entry inside the wrapper", "none")) };
    if magic == 0 || wrapper_offset == 0 {
        return Ok(0);
    }
    match wrapper_offset.checked_sub(last) {
        Some(base) if base >= 0 && last >= 0 => Ok(base),
        _ => Err(Fault::new(0, format!("a last inner offset of 0 to {wrapper_offset}"), format!("{last}"))),
    }
}
