//! Snappy as Kafka stores it: a xerial stream of blocks, or one bare block.

use super::{DecodeError, Output};
use crate::error::Fault;
use std::io;

// A stream: header 16 | block | block ...        header: magic 8 | version 4 | compatible version 4
// A block: compressed length 4, big-endian | a raw snappy block

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_SIZE: usize = MAGIC.len() + 4 + 4;
/// The start of the magic, read as a block's length: the header of a further stream.
const MAGIC_AS_LENGTH: [u8; 4] = [0x82, b'S', b'N', b'A'];
/// How many bytes of a stream's content the writer puts into one block.
const BLOCK_SIZE: usize = 32 << 10;
/// More than one byte of a raw block can ever become: a copy of 64 bytes takes 3.
const EXPANSION_MAX: u64 = 22;

pub(super) fn decompress(compressed: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    if compressed.len() < HEADER_SIZE || !compressed.starts_with(&MAGIC) {
        return block(compressed, 0, output);
    }
    let mut at = HEADER_SIZE;
    // Fewer than four bytes are no length any more, and are passed over as the xerial reader does.
    while let Some((length, rest)) = compressed.get(at..).unwrap_or_default().split_first_chunk::<4>() {
        if *length == MAGIC_AS_LENGTH {
            if rest.len() < HEADER_SIZE - 4 {
                return Err(Fault::new(at as u64, "a xerial header of 16 bytes", format!("{} bytes", rest.len() + 4)).into());
            }
            at += HEADER_SIZE;
            continue;
        }
        let stated = i32::from_be_bytes(*length);
        let Some(bytes) = usize::try_from(stated).ok().and_then(|length| rest.get(..length)) else {
            return Err(Fault::new(at as u64, format!("a block length of 0 to {}", rest.len()), format!("{stated}")).into());
        };
        block(bytes, at + 4, output)?;
        at += 4 + bytes.len();
    }
    Ok(())
}

/// Decodes one raw block that stands at `at`.
fn block(bytes: &[u8], at: usize, output: &mut Output) -> Result<(), DecodeError> {
    let damaged = |error: snap::Error| Fault::new(at as u64, "a snappy block", error.to_string());
    let stated = snap::raw::decompress_len(bytes).map_err(damaged)?;
    // Memory is asked for by the stated length, so a length that these bytes cannot have is refused first.
    if stated as u64 > (bytes.len() as u64).saturating_mul(EXPANSION_MAX) {
        let expected = format!("at most {EXPANSION_MAX} times the block's {} bytes", bytes.len());
        return Err(Fault::new(at as u64, expected, format!("a stated size of {stated}")).into());
    }
    if stated as u64 > output.room() {
        return Err(output.too_large());
    }
    let begin = output.bytes.len();
    output.extend(stated)?;
    let written = snap::raw::Decoder::new().decompress(bytes, &mut output.bytes[begin..]).map_err(damaged)?;
    output.bytes.truncate(begin + written);
    Ok(())
}

pub(super) fn compress(plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&MAGIC);
    for _version in 0..2 {
        out.extend_from_slice(&1i32.to_be_bytes());
    }
    let mut encoder = snap::raw::Encoder::new();
    for block in plain.chunks(BLOCK_SIZE) {
        let length_at = out.len();
        let begin = length_at + 4;
        out.resize(begin + snap::raw::max_compress_len(block.len()), 0);
        let written = encoder.compress(block, &mut out[begin..])?;
        out.truncate(begin + written);
        // A block of 32 KiB cannot become one of 2 GiB.
        out[length_at..begin].copy_from_slice(&(written as i32).to_be_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(compressed: &[u8], limit: u64) -> Result<Vec<u8>, DecodeError> {
        let mut output = Output::new(limit);
        decompress(compressed, &mut output).map(|()| output.bytes)
    }

    fn raw(plain: &[u8]) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(plain).unwrap()
    }

    fn stream(versions: [u8; 8], blocks: &[&[u8]]) -> Vec<u8> {
        let mut bytes = [MAGIC, versions].concat();
        for block in blocks {
            bytes.extend_from_slice(&(block.len() as u32).to_be_bytes());
            bytes.extend_from_slice(block);
        }
        bytes
    }

    const BIG_ENDIAN_ONES: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];

    #[test]
    fn the_writer_cuts_blocks_of_32_kib() {
        let content: Vec<u8> = (0..70_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).take(70_000).collect();
        let mut out = b"before".to_vec();
        compress(&content, &mut out).unwrap();
        let out = &out[6..];
        assert_eq!(out[..16], [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        let (mut at, mut sizes) = (16, Vec::new());
        while at < out.len() {
            let length = u32::from_be_bytes(out[at..at + 4].try_into().unwrap()) as usize;
            sizes.push(snap::raw::decompress_len(&out[at + 4..at + 4 + length]).unwrap());
            at += 4 + length;
        }
        assert_eq!(sizes, [32_768, 32_768, 4_464]);
        assert_eq!(plain(out, 70_000).unwrap(), content);
    }

    #[test]
    fn bare_blocks_any_version_words_and_streams_in_a_row() {
        let (one, two) = (raw(b"one "), raw(b"two "));
        assert_eq!(plain(&one, 4).unwrap(), b"one ");
        for versions in [BIG_ENDIAN_ONES, [1, 0, 0, 0, 1, 0, 0, 0], [0xff; 8], [0; 8]] {
            let twice = [stream(versions, &[&one, &two]), stream(versions, &[&one])].concat();
            assert_eq!(plain(&twice, 100).unwrap(), b"one two one ");
        }
        assert_eq!(plain(&stream(BIG_ENDIAN_ONES, &[]), 0).unwrap(), b"");
        let tail = [stream(BIG_ENDIAN_ONES, &[&one]), vec![0, 0, 0]].concat();
        assert_eq!(plain(&tail, 100).unwrap(), b"one ", "three bytes are no length");
    }

    #[test]
    fn faults_stand_where_the_block_stands() {
        let one = raw(b"one ");
        let cases = [
            ([stream(BIG_ENDIAN_ONES, &[&one]), vec![0xff; 4]].concat(), 26, "found -1"),
            ([stream(BIG_ENDIAN_ONES, &[&one]), vec![0, 0, 0, 9, 1]].concat(), 26, "0 to 1, found 9"),
            ([stream(BIG_ENDIAN_ONES, &[&one]), MAGIC.to_vec()].concat(), 26, "16 bytes, found 8 bytes"),
            (stream(BIG_ENDIAN_ONES, &[&[4, 0xf0]]), 20, "a snappy block"),
        ];
        assert_eq!(one.len(), 6);
        for (bytes, position, message) in cases {
            let Err(DecodeError::Damaged(fault)) = plain(&bytes, 100) else { panic!("{message}") };
            assert_eq!(fault.position.get(), position, "{fault}");
            assert!(fault.to_string().contains(message), "{fault}");
        }
    }

    #[test]
    fn a_size_that_the_bytes_cannot_have_takes_no_memory() {
        // States 2 GiB - 1 in a block of seven bytes.
        let Err(DecodeError::Damaged(fault)) = plain(&[0xff, 0xff, 0xff, 0xff, 0x07, 0, b'x'], u64::MAX) else { panic!() };
        assert!(fault.to_string().contains("stated size of 2147483647"), "{fault}");
    }

    #[test]
    fn the_greatest_expansion_is_within_the_bound() {
        let zeros = vec![0; 1 << 20];
        assert_eq!(plain(&raw(&zeros), 1 << 20).unwrap(), zeros);
    }
}
