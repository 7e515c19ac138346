//! LZ4 as Kafka stores it: one frame of independent blocks.
//!
//! The frame is read and written here rather than by a library, because Kafka allows less than the format does, and in magic 0
//! other bytes than it.
#![expect(clippy::little_endian_bytes, reason = "an LZ4 frame is little-endian")]

use super::{DecodeError, Output};
use crate::error::Fault;
use lz4_flex::block::DecompressError;
use std::io;

// A frame: magic 4 | FLG 1 | BD 1 | [content size 8] | HC 1 | block | block ... | end mark 4 (0) | [content checksum 4]
// A block: size 4, highest bit set where stored as it is | bytes | [block checksum 4]
// HC is the second byte of the xxh32 of FLG, BD and content size; in magic 0 wrongly of the magic, too.

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const FLG_VERSION_MASK: u8 = 0b1100_0000;
const FLG_VERSION: u8 = 0b0100_0000;
const FLG_INDEPENDENT: u8 = 0b0010_0000;
const FLG_BLOCK_CHECKSUM: u8 = 0b0001_0000;
const FLG_CONTENT_SIZE: u8 = 0b0000_1000;
const FLG_CONTENT_CHECKSUM: u8 = 0b0000_0100;
const FLG_RESERVED: u8 = 0b0000_0011;
const BD_RESERVED: u8 = 0b1000_1111;
const STORED: u32 = 1 << 31;

/// The writer's header: version 1, independent blocks, no checksums, no content size, blocks of 64 KiB.
const WRITER_HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, FLG_VERSION | FLG_INDEPENDENT, 0x40, 0x82];
const WRITER_BLOCK_SIZE: usize = 64 << 10;

/// More than one byte of a block can ever become: a further byte of a match length adds 255.
const EXPANSION_MAX: usize = 255;

fn fault(at: usize, expected: impl Into<std::borrow::Cow<'static, str>>, found: impl ToString) -> DecodeError {
    Fault::new(at as u64, expected, found.to_string()).into()
}

/// The bytes that are still to be read, and how many were.
struct Input<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(fault(self.at, what, format!("{} bytes before the end", self.rest.len())));
        };
        self.rest = rest;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let taken = self.take(N, what)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(taken);
        Ok(bytes)
    }
}

/// What the header of a frame says that is needed later.
struct Descriptor {
    block_size_max: usize,
    block_checksum: bool,
    content_checksum: bool,
}

fn descriptor(input: &mut Input<'_>, message_magic: u8) -> Result<Descriptor, DecodeError> {
    let magic: [u8; 4] = input.array("the magic of an LZ4 frame")?;
    if magic != MAGIC {
        return Err(fault(0, "an LZ4 frame's magic 0x184d2204", format!("{:#010x}", u32::from_le_bytes(magic))));
    }
    let (begin, described) = (input.at, input.rest);
    let [flg, bd] = input.array("the flags of an LZ4 frame")?;
    if flg & FLG_VERSION_MASK != FLG_VERSION || flg & FLG_INDEPENDENT == 0 || flg & FLG_RESERVED != 0 {
        return Err(fault(begin, "LZ4 frame flags of version 1 with independent blocks", format!("{flg:#04x}")));
    }
    let block_size_max = match bd >> 4 {
        size @ 4..=7 if bd & BD_RESERVED == 0 => 1 << (8 + 2 * usize::from(size)),
        _ => return Err(fault(begin + 1, "an LZ4 block size of 4 to 7", format!("{bd:#04x}"))),
    };
    if flg & FLG_CONTENT_SIZE != 0 {
        input.take(8, "the content size of an LZ4 frame")?;
    }
    let described = described.get(..input.at - begin).unwrap_or_default();
    let [stored] = input.array("the header checksum of an LZ4 frame")?;
    let computed = (xxh32(described) >> 8) as u8;
    if message_magic > 0 && stored != computed {
        return Err(fault(input.at - 1, format!("LZ4 header checksum {stored:#04x}"), format!("{computed:#04x}")));
    }
    Ok(Descriptor { block_size_max, block_checksum: flg & FLG_BLOCK_CHECKSUM != 0, content_checksum: flg & FLG_CONTENT_CHECKSUM != 0 })
}

/// Decodes one frame; what follows it is not looked at.
pub(super) fn decompress(compressed: &[u8], magic: u8, output: &mut Output) -> Result<(), DecodeError> {
    let mut input = Input { rest: compressed, at: 0 };
    let frame = descriptor(&mut input, magic)?;
    loop {
        let at = input.at;
        let word = u32::from_le_bytes(input.array("the size of an LZ4 block, or an end mark")?);
        let size = (word & !STORED) as usize;
        if size == 0 {
            if frame.content_checksum {
                input.take(4, "the content checksum of an LZ4 frame")?;
            }
            return Ok(());
        }
        if size > frame.block_size_max {
            return Err(fault(at, format!("an LZ4 block of at most {} bytes", frame.block_size_max), size));
        }
        let block = input.take(size, "a whole LZ4 block")?;
        if frame.block_checksum {
            let stored = u32::from_le_bytes(input.array("the checksum of an LZ4 block")?);
            let computed = xxh32(block);
            if stored != computed {
                return Err(fault(at, format!("LZ4 block checksum {stored:#010x}"), format!("{computed:#010x}")));
            }
        }
        if word & STORED != 0 {
            output.append(block)?;
        } else {
            expand(block, at, frame.block_size_max, output)?;
        }
    }
}

/// Decodes the block that stands at `at`. Memory is asked for by what so many bytes can become at most.
fn expand(block: &[u8], at: usize, block_size_max: usize, output: &mut Output) -> Result<(), DecodeError> {
    let possible = block_size_max.min(block.len().saturating_mul(EXPANSION_MAX));
    let room = usize::try_from(output.room()).unwrap_or(usize::MAX).min(possible);
    let begin = output.bytes.len();
    output.extend(room)?;
    match lz4_flex::block::decompress_into(block, &mut output.bytes[begin..]) {
        Ok(written) => {
            output.bytes.truncate(begin + written);
            Ok(())
        }
        Err(DecompressError::OutputTooSmall { .. }) if room < possible => Err(output.too_large()),
        Err(error) => Err(fault(at, "an LZ4 block", error)),
    }
}

pub(super) fn compress(plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&WRITER_HEADER);
    for block in plain.chunks(WRITER_BLOCK_SIZE) {
        let size_at = out.len();
        let begin = size_at + 4;
        out.resize(begin + lz4_flex::block::get_maximum_output_size(block.len()), 0);
        let written = lz4_flex::block::compress_into(block, &mut out[begin..]).map_err(io::Error::other)?;
        out.truncate(begin + written);
        let mut word = written as u32;
        if written >= block.len() {
            out.truncate(begin);
            out.extend_from_slice(block);
            word = block.len() as u32 | STORED;
        }
        out[size_at..begin].copy_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    Ok(())
}

const PRIME_1: u32 = 0x9e37_79b1;
const PRIME_2: u32 = 0x85eb_ca77;
const PRIME_3: u32 = 0xc2b2_ae3d;
const PRIME_4: u32 = 0x27d4_eb2f;
const PRIME_5: u32 = 0x1656_67b1;

/// The xxh32 checksum with seed 0.
fn xxh32(bytes: &[u8]) -> u32 {
    let (stripes, tail) = bytes.as_chunks::<16>();
    let mut hash = if stripes.is_empty() {
        PRIME_5
    } else {
        let mut lanes = [PRIME_1.wrapping_add(PRIME_2), PRIME_2, 0, 0u32.wrapping_sub(PRIME_1)];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<4>().0) {
                let mixed = lane.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIME_2));
                *lane = mixed.rotate_left(13).wrapping_mul(PRIME_1);
            }
        }
        let [a, b, c, d] = lanes;
        a.rotate_left(1).wrapping_add(b.rotate_left(7)).wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18))
    };
    hash = hash.wrapping_add(bytes.len() as u32);
    let (words, tail) = tail.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIME_3)).rotate_left(17).wrapping_mul(PRIME_4);
    }
    for byte in tail {
        hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(PRIME_5)).rotate_left(11).wrapping_mul(PRIME_1);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(compressed: &[u8], magic: u8) -> Result<Vec<u8>, DecodeError> {
        let mut output = Output::new(1 << 20);
        decompress(compressed, magic, &mut output).map(|()| output.bytes)
    }

    fn fault(compressed: &[u8], magic: u8) -> Fault {
        match plain(compressed, magic) {
            Err(DecodeError::Damaged(fault)) => fault,
            other => panic!("{other:?}"),
        }
    }

    /// A frame with a right header checksum and one stored block `abc`; `behind` follows it.
    fn frame(flg: u8, bd: u8, content_size: &[u8], behind: &[u8]) -> Vec<u8> {
        let described = [&[flg, bd], content_size].concat();
        let checksum = (xxh32(&described) >> 8) as u8;
        [&MAGIC, &described[..], &[checksum, 3, 0, 0, 0x80], b"abc", behind].concat()
    }

    #[test]
    fn xxh32_agrees_with_its_specification() {
        for (text, hash) in
            [("", 0x02cc_5d05), ("a", 0x550d_7456), ("abc", 0x32d1_53ff), ("Nobody inspects the spammish repetition", 0xe229_3b2f)]
        {
            assert_eq!(xxh32(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn the_writers_header_and_the_wrong_one_of_magic_0() {
        assert_eq!((xxh32(&WRITER_HEADER[4..6]) >> 8) as u8, 0x82);
        assert_eq!((xxh32(&WRITER_HEADER[..6]) >> 8) as u8, 0x1a);
        let mut out = Vec::new();
        compress(b"abc", &mut out).unwrap();
        assert_eq!(out, frame(0x60, 0x40, &[], &[0; 4]), "three bytes are stored as they are");
        out[6] = 0x1a;
        assert_eq!(plain(&out, 0).unwrap(), b"abc");
        for magic in 1..3 {
            assert!(fault(&out, magic).to_string().contains("header checksum 0x1a, found 0x82"));
        }
    }

    #[test]
    fn sizes_and_checksums_of_other_writers() {
        assert_eq!(plain(&frame(0x68, 0x40, &[9; 8], &[0; 4]), 2).unwrap(), b"abc", "a content size is passed over");
        assert_eq!(plain(&frame(0x64, 0x70, &[], &[0, 0, 0, 0, 1, 2, 3, 4]), 2).unwrap(), b"abc", "so is a content checksum");
        assert!(plain(&frame(0x64, 0x70, &[], &[0; 4]), 2).is_err(), "it must be there");
        let checksum = xxh32(b"abc").to_le_bytes();
        assert_eq!(plain(&frame(0x70, 0x40, &[], &[&checksum[..], &[0; 4]].concat()), 2).unwrap(), b"abc");
        assert!(fault(&frame(0x70, 0x40, &[], &[0; 8]), 2).to_string().contains("block checksum"));
        assert_eq!(plain(&frame(0x60, 0x40, &[], &[0, 0, 0, 0, 7, 7]), 2).unwrap(), b"abc", "what follows the frame does not count");
    }

    #[test]
    fn what_the_reader_refuses() {
        for (flg, bd, position, what) in [
            (0x40, 0x40, 4, "dependent blocks"),
            (0x20, 0x40, 4, "version 0"),
            (0xa0, 0x40, 4, "version 2"),
            (0x61, 0x40, 4, "a dictionary"),
            (0x62, 0x40, 4, "a reserved bit"),
            (0x60, 0x30, 5, "blocks of 16 KiB"),
            (0x60, 0xc0, 5, "a reserved bit"),
            (0x60, 0x41, 5, "a reserved bit"),
        ] {
            assert_eq!(fault(&frame(flg, bd, &[], &[0; 4]), 2).position.get(), position, "{what}");
        }
        let mut large = frame(0x60, 0x40, &[], &[0; 4]);
        large[7..11].copy_from_slice(&65_537u32.to_le_bytes());
        assert!(fault(&large, 2).to_string().contains("at most 65536 bytes, found 65537"));
        assert_eq!(fault(&frame(0x60, 0x40, &[], &[]), 2).position.get(), 14, "no end mark");
        assert_eq!(fault(b"\x05\x22\x4d\x18", 2).position.get(), 0);
    }

    #[test]
    fn a_block_that_decodes_to_more_than_the_frame_allows_is_damaged() {
        let block = lz4_flex::block::compress(&vec![0; 65_537]);
        let mut bytes = WRITER_HEADER.to_vec();
        bytes.extend_from_slice(&(block.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&block);
        bytes.extend_from_slice(&[0; 4]);
        assert!(fault(&bytes, 2).to_string().contains("an LZ4 block"));
    }
}
