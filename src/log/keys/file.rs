//! The file of a key index beside its log: a head that says which log it was made from and how far, then the blocks of a table.
//!
//! ```text
//!    0  magic "OFSKEYS" and the version, 1      8
//!    8  length of the head, whole blocks        4
//!   12  number of the table                     4
//!   16  seed                                   16
//!   32  covered offset                          8     everything below it is in the table
//!   40  base offset of the last batch           8
//!   48  CRC of the last batch                   4
//!   52  number of segments                      4
//!   56  homes 8, blocks 8, entries 8           24
//!   80  base offset 8 and end 8 of each segment, in order, as it was then
//!       zeros, and in the last 4 bytes of the head the CRC-32C of all before
//! ```
//!
//! It is a hint, as every index is. It counts where its head is whole, where the log still has the segments that it tells of (but for those
//! that went from the front), and where the last batch is still the same; then only what the log holds behind the covered offset has to be read.
//! Everything else is no file. It is written beside its name and renamed, so that a crash leaves the old one, the new one, or one whose sums are wrong.

use super::hash::{SEED_LEN, Seed};
use super::table::{BLOCK_LEN, Builder, Bytes, Shape, Table};
use crate::error::{Error, Result};
use crate::io::{Directory, File, Open, read_up_to, write_all_at};
use crate::log::partition::Partition;
use crate::types::{Offset, Patience};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"OFSKEYS\x01";
/// Where the segments begin.
const SEGMENTS: usize = 80;
/// The bytes of a segment.
const SEGMENT_LEN: usize = 16;
/// A head is no longer than this, in bytes: a million segments.
const HEAD_MOST: usize = 16 << 20;
/// Blocks are written in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// The last batch that an index has read: that the log still has it tells that the log was not cut and written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastBatch {
    pub(super) base: Offset,
    pub(super) crc: u32,
}

impl LastBatch {
    /// Whether the log still has it.
    pub(super) fn is_in(self, partition: &Partition) -> bool {
        matches!(partition.batch_at(self.base, Patience::MayBlock), Ok(Ok((batch, _)))
            if batch.header.base_offset == self.base && batch.header.crc == self.crc)
    }
}

/// What the head of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) seed: Seed,
    pub(super) covered: Offset,
    pub(super) last: LastBatch,
    /// Base offset and end of each segment.
    pub(super) segments: Vec<(Offset, u64)>,
}

impl Head {
    /// How many bytes it takes.
    fn len(&self) -> usize {
        (SEGMENTS + self.segments.len() * SEGMENT_LEN + 4).next_multiple_of(BLOCK_LEN)
    }

    fn to_bytes(&self, shape: Shape) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&u32::try_from(self.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(&shape.number.to_be_bytes());
        bytes.extend_from_slice(&self.seed.bytes());
        bytes.extend_from_slice(&self.covered.get().to_be_bytes());
        bytes.extend_from_slice(&self.last.base.get().to_be_bytes());
        bytes.extend_from_slice(&self.last.crc.to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(self.segments.len()).unwrap_or(u32::MAX).to_be_bytes());
        for count in [shape.homes, shape.blocks, shape.entries] {
            bytes.extend_from_slice(&count.to_be_bytes());
        }
        for (base, end) in &self.segments {
            bytes.extend_from_slice(&base.get().to_be_bytes());
            bytes.extend_from_slice(&end.to_be_bytes());
        }
        bytes.resize(self.len() - 4, 0);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_be_bytes());
        bytes
    }

    /// Reads a head; `None` for anything that is none.
    fn read(bytes: &[u8]) -> Option<(Head, Shape)> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if bytes.get(..8)? != MAGIC || crc32c::crc32c(body).to_be_bytes() != *crc {
            return None;
        }
        let offset = |at: usize| Offset::new(i64_at(bytes, at)?);
        let shape =
            Shape { number: u32_at(bytes, 12)?, homes: u64_at(bytes, 56)?, blocks: u64_at(bytes, 64)?, entries: u64_at(bytes, 72)? };
        let count = u32_at(bytes, 52)? as usize;
        let segments = bytes.get(SEGMENTS..SEGMENTS.checked_add(count.checked_mul(SEGMENT_LEN)?)?)?;
        let segments = segments.chunks_exact(SEGMENT_LEN).map(|s| Some((Offset::new(i64_at(s, 0)?)?, u64_at(s, 8)?)));
        let head = Head {
            seed: Seed::from_bytes(bytes.get(16..16 + SEED_LEN)?.try_into().ok()?),
            covered: offset(32)?,
            last: LastBatch { base: offset(40)?, crc: u32_at(bytes, 48)? },
            segments: segments.collect::<Option<_>>()?,
        };
        (head.len() == bytes.len() && shape.homes >= 1 && shape.homes <= shape.blocks).then_some((head, shape))
    }

    /// Whether it was made from this log as it is now, up to the covered offset.
    fn tells_of(&self, partition: &Partition) -> bool {
        let now = segments_below(partition, self.covered);
        let Some(skipped) = self.segments.len().checked_sub(now.len()) else { return false };
        let then = self.segments.get(skipped..).unwrap_or_default();
        let grown = now.len().saturating_sub(1);
        let same =
            now.iter().zip(then).enumerate().all(|(i, (now, then))| now.0 == then.0 && (now.1 == then.1 || i == grown && now.1 > then.1));
        same && !now.is_empty() && self.covered <= partition.bounds().log_end && self.last.is_in(partition)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    u64_at(bytes, at).map(u64::cast_signed)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The segments that begin below an offset, with their published ends.
pub(super) fn segments_below(partition: &Partition, offset: Offset) -> Vec<(Offset, u64)> {
    let layout = partition.layout();
    layout.segments.iter().map(|s| (s.base_offset(), s.end())).take_while(|(base, _)| *base < offset).collect()
}

/// The index that a file holds, if it is there, whole, and made from this log.
pub(super) fn load(partition: &Partition, name: &str) -> Option<(Head, Table)> {
    let file = partition.directory().open(OsStr::new(name), Open::Read).ok()?;
    let first = read_up_to(&*file, 0, 12).ok()?;
    let head_len = u32_at(&first, 8)? as usize;
    if first.get(..8)? != MAGIC || !(BLOCK_LEN..=HEAD_MOST).contains(&head_len) {
        return None;
    }
    let (head, shape) = Head::read(&read_up_to(&*file, 0, head_len).ok()?)?;
    let len = shape.blocks.checked_mul(BLOCK_LEN as u64)?.checked_add(head_len as u64)?;
    if file.metadata().ok()?.len != len || !head.tells_of(partition) {
        return None;
    }
    let map = file.map(len).ok()?;
    Some((head, Table::new(Bytes::Mapped(map, head_len as u64), shape)))
}

/// Fills a table; the entries come in the order of their hashes.
pub(super) type Fill<'f> = dyn FnMut(&mut Builder<'_>) -> Result<()> + 'f;

/// Writes an index beside its log and takes its name.
///
/// # Errors
/// What the system says, or `fill`; what stood there before stays.
pub(super) fn save(dir: &dyn Directory, name: &str, head: &Head, most: u64, fill: &mut Fill<'_>) -> Result<Table> {
    let temporary = format!("{name}.tmp");
    let told = |e: io::Error| Error::io("write", name, e);
    let file = dir.open(OsStr::new(&temporary), Open::Create).map_err(told)?;
    let written = (|| {
        file.set_len(0).map_err(told)?;
        let shape = write_blocks(&*file, head.len() as u64, most, name, fill)?;
        write_all_at(&*file, &head.to_bytes(shape), 0).map_err(told)?;
        file.sync_data().map_err(told)?;
        dir.rename(OsStr::new(&temporary), OsStr::new(name)).map_err(told)?;
        mapped(&file, head.len() as u64, shape).map_err(told)
    })();
    if written.is_err() {
        // Half a file is worth nothing; where it cannot be removed, the next attempt writes over it.
        let _ = dir.remove(OsStr::new(&temporary));
    }
    written
}

/// Writes a table into a file that has no name.
///
/// # Errors
/// As [`save`].
pub(super) fn write_nameless(file: &Arc<dyn File>, most: u64, fill: &mut Fill<'_>) -> Result<Table> {
    const WHAT: &str = "a temporary file for the key index";
    let shape = write_blocks(&**file, 0, most, WHAT, fill)?;
    mapped(file, 0, shape).map_err(|e| Error::io("map", WHAT, e))
}

fn write_blocks(file: &dyn File, from: u64, most: u64, name: &str, fill: &mut Fill<'_>) -> Result<Shape> {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let mut at = from;
    let mut out = |block: &[u8]| {
        piece.extend_from_slice(block);
        if piece.len() >= PIECE_BYTES {
            write_all_at(file, &piece, at)?;
            at += piece.len() as u64;
            piece.clear();
        }
        Ok(())
    };
    let mut builder = Builder::new(Seed::number(), most, &mut out);
    fill(&mut builder)?;
    let shape = builder.finish().map_err(|e| Error::io("write", name, e))?;
    write_all_at(file, &piece, at).map_err(|e| Error::io("write", name, e))?;
    Ok(shape)
}

fn mapped(file: &Arc<dyn File>, from: u64, shape: Shape) -> io::Result<Table> {
    let map = file.map(from + shape.blocks * BLOCK_LEN as u64)?;
    Ok(Table::new(Bytes::Mapped(map, from), shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_back_and_no_byte_of_it_may_change() {
        let offset = |n| Offset::new(n).unwrap();
        let segments: Vec<_> = (0..300).map(|n| (offset(n * 1000), 77 * n.unsigned_abs())).collect();
        for count in [0, 1, 250, 251, 300] {
            let head = Head {
                seed: Seed::random(),
                covered: offset(i64::MAX),
                last: LastBatch { base: offset(5), crc: 0xdead_beef },
                segments: segments[..count].to_vec(),
            };
            let shape = Shape { number: 9, homes: 3, blocks: 4, entries: 500 };
            let bytes = head.to_bytes(shape);
            assert_eq!(bytes.len() % BLOCK_LEN, 0);
            assert_eq!(Head::read(&bytes), Some((head, shape)));
            for at in (0..bytes.len()).step_by(if count == 1 { 1 } else { 97 }) {
                let mut other = bytes.clone();
                other[at] ^= 0x10;
                assert_eq!(Head::read(&other), None, "byte {at}");
            }
            assert_eq!(Head::read(&bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(Head::read(&[]), None);
    }
}
