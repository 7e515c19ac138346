//! The codecs: bytes that claim to be compressed, and bytes that are.

use crate::fixtures;
use crate::memory::peak_of;
use offsetfs::log::batch::{BatchHeader, Step};
use offsetfs::log::compression::{Codec, DecodeError, compress, decompress};
use offsetfs::log::record;

/// What may come out, in bytes.
const LIMIT: u64 = 256 << 10;
/// What a decoder may take for itself, in bytes: tables, windows, and a buffer that is copied while it grows.
const OWN: usize = 1 << 20;

fn run(codec: Codec, input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let magic = choice % 3;
    let (decoded, peak) = peak_of(|| decompress(codec, magic, bytes, LIMIT));
    let most = OWN + 4 * (LIMIT as usize + bytes.len());
    assert!(peak <= most, "{peak} bytes were in use for {} bytes of input; at most {most} are allowed", bytes.len());
    match decoded {
        Ok(plain) => {
            assert!(plain.len() as u64 <= LIMIT);
            assert_eq!(decompress(codec, magic, bytes, plain.len() as u64).as_ref(), Ok(&plain), "the limit is a limit, not more");
            if let Some(less) = (plain.len() as u64).checked_sub(1) {
                assert_eq!(decompress(codec, magic, bytes, less), Err(DecodeError::TooLarge { limit: less }));
            }
            there_and_back(codec, &plain);
        }
        Err(DecodeError::TooLarge { limit }) => assert_eq!(limit, LIMIT),
        Err(DecodeError::Damaged(fault)) => assert!(fault.position.get() <= bytes.len() as u64, "{fault} at {}", fault.position),
    }
    there_and_back(codec, bytes);
}

fn there_and_back(codec: Codec, plain: &[u8]) {
    let mut compressed = Vec::new();
    compress(codec, None, plain, &mut compressed).expect("every codec takes every byte");
    let back = decompress(codec, 2, &compressed, plain.len() as u64);
    assert_eq!(back.as_deref(), Ok(plain), "what is compressed decodes to itself");
}

/// What batches of that codec hold, from Kafka's own files, and a few inputs made here.
fn seeds(codec: Codec) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for batch in fixtures::batches() {
        let Ok(Step::Batch(header)) = BatchHeader::read(&batch, 0) else { continue };
        if header.attributes.codec() == Some(codec)
            && let Ok(range) = record::compressed_range(&header, &batch)
        {
            seeds.push([&[header.magic], &batch[range]].concat());
        }
    }
    let mut seeds = fixtures::some(seeds, 12);
    for plain in [&b""[..], b"a", &[0; 5000], b"abcabcabcabcabcabcabcabcabcabcabc"] {
        let mut compressed = vec![2];
        compress(codec, None, plain, &mut compressed).expect("every codec takes every byte");
        seeds.push(compressed);
    }
    seeds
}

macro_rules! codec {
    ($name:ident, $codec:expr) => {
        #[doc = concat!("The codec ", stringify!($name), ".")]
        pub mod $name {
            /// One input: the magic, and bytes.
            pub fn run(input: &[u8]) {
                super::run($codec, input);
            }

            /// Inputs to begin with.
            pub fn seeds() -> Vec<Vec<u8>> {
                super::seeds($codec)
            }
        }
    };
}

codec!(gzip, super::Codec::Gzip);
codec!(snappy, super::Codec::Snappy);
codec!(lz4, super::Codec::Lz4);
codec!(zstd, super::Codec::Zstd);
