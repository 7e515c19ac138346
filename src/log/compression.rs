//! The five codecs, with the framing that Kafka gives each of them; output bounded by a limit, never by what the data claims.
//!
//! This file knows bytes only: which bytes of a batch are compressed is `record`'s matter. Facts: kafka-format, section 3.

use crate::error::Fault;
use parking_lot::{Mutex, MutexGuard};
use std::io::{self, Read, Write};

mod lz4;
mod snappy;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy blocks in a xerial stream.
    Snappy,
    /// An LZ4 frame.
    Lz4,
    /// Zstandard frames; magic 2 only.
    Zstd,
}

impl Codec {
    /// The codec of the attribute bits 0 to 2; `None` for 5 to 7 and beyond, which name none.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Codec> {
        match bits {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// The codec's attribute bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// The codec's name in Kafka's settings and dumps.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// The codec that a value of `compression.type` names. `uncompressed` is none, and so is `producer`: there is no producer here
    /// whose choice could be kept.
    pub fn parse(name: &str) -> Option<Codec> {
        match name {
            "none" | "uncompressed" | "producer" => Some(Codec::None),
            "gzip" => Some(Codec::Gzip),
            "snappy" => Some(Codec::Snappy),
            "lz4" => Some(Codec::Lz4),
            "zstd" => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// Why compressed bytes could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The output would be larger than the limit.
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The bytes are not what the codec asks for; the position counts from their start.
    Damaged(Fault),
}

impl From<Fault> for DecodeError {
    fn from(fault: Fault) -> DecodeError {
        DecodeError::Damaged(fault)
    }
}

/// The memory to begin with, in bytes; from there it grows with the output.
const FIRST_CAPACITY: u64 = 64 << 10;

/// An output that grows beyond this, in bytes, grows alone: however many readers meet large batches at once, one of them at a time takes the memory.
const TOGETHER_MOST: u64 = 4 << 20;

/// Held by the one output that is large.
static LARGE: Mutex<()> = Mutex::new(());

/// The output of a decoder, and how much of it there may be. Its memory never exceeds the limit by more than a byte.
struct Output {
    bytes: Vec<u8>,
    limit: u64,
    large: Option<MutexGuard<'static, ()>>,
}

impl Output {
    fn new(limit: u64) -> Output {
        Output { bytes: Vec::with_capacity(usize::try_from(limit.min(FIRST_CAPACITY)).unwrap_or(0)), limit, large: None }
    }

    /// How many more bytes there may be.
    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.bytes.len() as u64)
    }

    fn too_large(&self) -> DecodeError {
        DecodeError::TooLarge { limit: self.limit }
    }

    fn append(&mut self, plain: &[u8]) -> Result<(), DecodeError> {
        if plain.len() as u64 > self.room() {
            return Err(self.too_large());
        }
        if plain.len() > self.bytes.capacity() - self.bytes.len() {
            self.grow(plain.len())?;
        }
        self.bytes.extend_from_slice(plain);
        Ok(())
    }

    /// Appends so many zeros, as the place of a block.
    fn extend(&mut self, len: usize) -> Result<(), DecodeError> {
        if len > self.bytes.capacity() - self.bytes.len() {
            self.grow(len)?;
        }
        self.bytes.resize(self.bytes.len() + len, 0);
        Ok(())
    }

    /// Makes room for some more bytes: twice the memory, but not beyond the limit, and a byte that shows that it is passed.
    fn grow(&mut self, more: usize) -> Result<(), DecodeError> {
        let most = usize::try_from(self.limit).unwrap_or(usize::MAX).saturating_add(1);
        let wanted = self.bytes.capacity().saturating_mul(2).min(most).max(self.bytes.len().saturating_add(more));
        if wanted as u64 > TOGETHER_MOST && self.large.is_none() {
            self.large = Some(LARGE.lock());
        }
        // Where there is no memory, one batch cannot be read; the process goes on.
        let reserved = self.bytes.try_reserve_exact(wanted - self.bytes.len());
        reserved.map_err(|_| Fault::new(0, format!("memory for {wanted} bytes"), "none").into())
    }

    /// Reads a decoder to its end. Memory follows what really comes out. `Ok(Err(_))` is what the decoder says of its input.
    fn read_all(&mut self, mut decoder: impl Read) -> Result<io::Result<()>, DecodeError> {
        loop {
            if self.bytes.len() == self.bytes.capacity() {
                self.grow(1)?;
            }
            let free = (self.bytes.capacity() - self.bytes.len()) as u64;
            let most = free.min(self.room().saturating_add(1));
            let read = decoder.by_ref().take(most).read_to_end(&mut self.bytes);
            if self.bytes.len() as u64 > self.limit {
                return Err(self.too_large());
            }
            match read {
                Ok(read) if read as u64 == most => {}
                other => return Ok(other.map(drop)),
            }
        }
    }
}

/// Decodes `compressed`, the compressed records of a batch of `magic`, to at most `limit` bytes.
///
/// Memory grows with the bytes that really come out. (The window of a zstd frame is the exception: up to 128 MiB of address space,
/// as the format has it, touched only as far as it is used.)
///
/// # Errors
/// [`DecodeError::TooLarge`] beyond `limit`; [`DecodeError::Damaged`] for bytes that the codec does not allow, with a position in
/// `compressed`, and for zstd in magic 0 and 1.
pub fn decompress(codec: Codec, magic: u8, compressed: &[u8], limit: u64) -> Result<Vec<u8>, DecodeError> {
    let mut output = Output::new(limit);
    match codec {
        Codec::None => output.append(compressed)?,
        Codec::Gzip => gunzip(compressed, &mut output)?,
        Codec::Snappy => snappy::decompress(compressed, &mut output)?,
        Codec::Lz4 => lz4::decompress(compressed, magic, &mut output)?,
        Codec::Zstd if magic < 2 => return Err(Fault::new(0, format!("a codec of magic {magic}"), "zstd").into()),
        Codec::Zstd => unzstd(compressed, &mut output)?,
    }
    Ok(output.bytes)
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// One member, and further ones behind it; what follows and is no member is passed over, as Java's reader does.
fn gunzip(compressed: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let mut rest = compressed;
    loop {
        let mut decoder = flate2::bufread::GzDecoder::new(rest);
        let read = output.read_all(&mut decoder)?;
        rest = decoder.into_inner();
        read.map_err(|error| Fault::new((compressed.len() - rest.len()) as u64, "a gzip member", error.to_string()))?;
        if !rest.starts_with(&GZIP_MAGIC) {
            return Ok(());
        }
    }
}

/// Any number of frames in a row.
fn unzstd(compressed: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let damaged = |left: usize, error: io::Error| Fault::new((compressed.len() - left) as u64, "a zstd frame", error.to_string());
    let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed).map_err(|error| damaged(compressed.len(), error))?;
    let read = output.read_all(&mut decoder)?;
    let left = decoder.get_ref().len();
    Ok(read.map_err(|error| damaged(left, error))?)
}

/// Compresses `plain` and appends the result to `out`, framed for a batch of magic 2.
///
/// `level` is the codec's own: gzip 1 to 9, zstd -131072 to 22, `None` or -1 for gzip being the codec's default (gzip zlib's, zstd
/// 3). Snappy has no levels, and of LZ4 only the fast compressor is used.
///
/// # Errors
/// A level out of bounds ([`io::ErrorKind::InvalidInput`]), or what the library says. `out` may then have grown.
pub fn compress(codec: Codec, level: Option<i32>, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    match codec {
        Codec::None => out.extend_from_slice(plain),
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(out, gzip_level(level)?);
            encoder.write_all(plain)?;
            encoder.finish()?;
        }
        Codec::Snappy => snappy::compress(plain, out)?,
        Codec::Lz4 => lz4::compress(plain, out)?,
        Codec::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(out, zstd_level(level)?)?;
            encoder.write_all(plain)?;
            encoder.finish()?;
        }
    }
    Ok(())
}

fn gzip_level(level: Option<i32>) -> io::Result<flate2::Compression> {
    match level.unwrap_or(-1) {
        -1 => Ok(flate2::Compression::default()),
        level @ 1..=9 => Ok(flate2::Compression::new(level.unsigned_abs())),
        level => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("compression.gzip.level is 1 to 9, or -1, not {level}"))),
    }
}

fn zstd_level(level: Option<i32>) -> io::Result<i32> {
    match level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL) {
        level @ -131_072..=22 => Ok(level),
        level => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("compression.zstd.level is -131072 to 22, not {level}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn compressed(codec: Codec, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        compress(codec, None, plain, &mut out).unwrap();
        out
    }

    /// Bytes that compress, but not to nothing.
    fn prose(size: usize) -> Vec<u8> {
        (0..size).map(|at| b"a record batch, and another one; "[(at * at % 33) ^ ((at >> 9) % 3)]).collect()
    }

    #[test]
    fn names_and_bits_lead_back() {
        for codec in CODECS {
            assert_eq!(Codec::from_bits(codec.bits()), Some(codec));
            assert_eq!(Codec::parse(codec.name()), Some(codec));
        }
        assert_eq!(Codec::from_bits(5), None);
        assert_eq!(Codec::parse("uncompressed"), Some(Codec::None));
        assert_eq!(Codec::parse("producer"), Some(Codec::None));
        assert_eq!(Codec::parse("LZ4"), None);
    }

    #[test]
    fn what_was_compressed_comes_back() {
        for codec in CODECS {
            for size in [0, 1, 100, 32 << 10, (32 << 10) + 1, 64 << 10, 300_000] {
                let plain = prose(size);
                let packed = compressed(codec, &plain);
                assert_eq!(decompress(codec, 2, &packed, size as u64).unwrap(), plain, "{codec:?} {size}");
            }
        }
    }

    #[test]
    fn the_limit_is_exact() {
        for codec in CODECS {
            for size in [1, 1000, 65_536, 200_000] {
                let packed = compressed(codec, &prose(size));
                let limit = size as u64 - 1;
                assert_eq!(decompress(codec, 2, &packed, limit), Err(DecodeError::TooLarge { limit }), "{codec:?} {size}");
            }
            let bomb = compressed(codec, &vec![0; 4 << 20]);
            let limit = 100_000;
            assert_eq!(decompress(codec, 2, &bomb, limit), Err(DecodeError::TooLarge { limit }), "{codec:?}");
        }
    }

    #[test]
    fn a_cut_stream_is_a_fault() {
        let plain = prose(100_000);
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let packed = compressed(codec, &plain);
            for cut in [0, 3, 10, packed.len() / 2, packed.len() - 1] {
                match decompress(codec, 2, &packed[..cut], 1 << 20) {
                    Err(DecodeError::Damaged(fault)) => assert!(fault.position.get() <= cut as u64),
                    other => assert_eq!(other, Ok(Vec::new()), "{codec:?} {cut}: only an empty zstd stream has no frame"),
                }
            }
        }
    }

    #[test]
    fn gzip_members_in_a_row_are_one_content() {
        let mut packed = [compressed(Codec::Gzip, b"one "), compressed(Codec::Gzip, b"two")].concat();
        packed.extend_from_slice(b"no member");
        assert_eq!(decompress(Codec::Gzip, 2, &packed, 7).unwrap(), b"one two");
        assert_eq!(decompress(Codec::Gzip, 2, &packed, 6), Err(DecodeError::TooLarge { limit: 6 }));
        let second = compressed(Codec::Gzip, b"one ").len();
        packed[second + 10] ^= 0xff;
        assert!(
            matches!(decompress(Codec::Gzip, 2, &packed, 7), Err(DecodeError::Damaged(fault)) if fault.position.get() >= second as u64)
        );
    }

    #[test]
    fn zstd_frames_in_a_row_are_one_content_and_magic_1_has_none() {
        let packed = [compressed(Codec::Zstd, b"one "), compressed(Codec::Zstd, b"two")].concat();
        assert_eq!(decompress(Codec::Zstd, 2, &packed, 7).unwrap(), b"one two");
        assert!(matches!(decompress(Codec::Zstd, 1, &packed, 7), Err(DecodeError::Damaged(_))));
    }

    #[test]
    fn the_zstd_frame_does_not_say_its_size() {
        // Bits 6 and 7 of the descriptor are the size field's length, bit 5 would be a single segment.
        assert_eq!(compressed(Codec::Zstd, &prose(1000))[4] & 0b1110_0000, 0);
    }

    #[test]
    fn levels_have_bounds() {
        let mut out = Vec::new();
        for (codec, level) in [(Codec::Gzip, 0), (Codec::Gzip, 10), (Codec::Zstd, 23), (Codec::Zstd, -131_073)] {
            let error = compress(codec, Some(level), b"x", &mut out).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        for (codec, level) in [(Codec::Gzip, -1), (Codec::Gzip, 9), (Codec::Zstd, 22), (Codec::Zstd, -131_072), (Codec::Lz4, 17)] {
            compress(codec, Some(level), b"x", &mut out).unwrap();
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bits in 0u8..5, magic in 0u8..3, noise in proptest::collection::vec(0u8.., 0..300)) {
            let codec = Codec::from_bits(bits).unwrap();
            let _ = decompress(codec, magic, &noise, 1 << 16);
        }

        #[test]
        fn no_damage_makes_it_panic_or_exceed_the_limit(
            bits in 1u8..5,
            size in 0usize..5000,
            flips in proptest::collection::vec((0usize..5000, 1u8..), 1..4),
        ) {
            let codec = Codec::from_bits(bits).unwrap();
            let mut packed = compressed(codec, &prose(size));
            for (at, flip) in flips {
                let length = packed.len();
                packed[at % length] ^= flip;
            }
            if let Ok(plain) = decompress(codec, 2, &packed, 6000) {
                proptest::prop_assert!(plain.len() <= 6000);
            }
        }
    }
}
