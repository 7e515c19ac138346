//! The tests' own encoder against published vectors, other libraries' decoders and the format's rules.

use super::encode::{Batch, Codec, Record, crc32, crc32c, indexes, message, offset_index, time_index, wrapper};
use std::io::Read;

const T0: i64 = 1_700_000_000_000;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn checksums_have_their_published_check_values() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
}

#[test]
fn batches_and_messages_have_the_bytes_of_the_format() {
    let second = Record::new(1, T0 + 5, None, None).header(b"h", Some(b"x"));
    let batch = Batch::new(100, vec![Record::new(0, T0, Some(b"k"), Some(b"v")), second]);
    let expected = concat!(
        "00000000000000640000004500000000026937d2640000000000010000018bcfe568000000018bcfe56805",
        "ffffffffffffffffffffffffffff0000000210000000026b02760014000a0201010202680278"
    );
    assert_eq!(hex(&batch.encode()), expected);
    let commit = Batch::end_of_transaction(0, 1, 0, T0, true);
    let expected = concat!(
        "000000000000000000000042000000000255f2eb490030000000000000018bcfe568000000018bcfe568000000000000000001",
        "0000ffffffff000000012000000008000000010c00000000000700"
    );
    assert_eq!(hex(&commit.encode()), expected);
    assert_eq!(hex(&message(5, 0, 0, -1, Some(b"k"), Some(b"v"))), "0000000000000005000000101fecd70a0000000000016b0000000176");
}

#[test]
fn every_framing_holds_the_bytes_it_was_given() {
    let bytes: Vec<u8> = (0..150_000_u32).map(|n| (n % 251) as u8).collect();
    let read = |mut reader: Box<dyn Read + '_>| {
        let mut out = Vec::new();
        reader.read_to_end(&mut out).expect("the frame is whole");
        out
    };
    for codec in Codec::ALL {
        let wrapped = codec.wrap(&bytes);
        let unwrapped = match codec {
            Codec::None => wrapped,
            Codec::Gzip => read(Box::new(flate2::read::GzDecoder::new(&wrapped[..]))),
            Codec::SnappyRaw => snap::raw::Decoder::new().decompress_vec(&wrapped).expect("a whole block"),
            Codec::SnappyStream | Codec::SnappyStreamLittleEndian => {
                assert_eq!(&wrapped[..8], b"\x82SNAPPY\0");
                let (mut rest, mut out) = (&wrapped[16..], Vec::new());
                while let Some((len, behind)) = rest.split_first_chunk::<4>() {
                    let (block, behind) = behind.split_at(u32::from_be_bytes(*len) as usize);
                    out.extend(snap::raw::Decoder::new().decompress_vec(block).expect("a whole block"));
                    rest = behind;
                }
                out
            }
            Codec::Lz4 => read(Box::new(lz4_flex::frame::FrameDecoder::new(&wrapped[..]))),
            Codec::Lz4OfMagic0 => {
                let mut mended = wrapped;
                assert_eq!(std::mem::replace(&mut mended[6], 0x82), 0x1A);
                read(Box::new(lz4_flex::frame::FrameDecoder::new(&mended[..])))
            }
            Codec::Zstd | Codec::ZstdTwoFrames => zstd::stream::decode_all(&wrapped[..]).expect("whole frames"),
        };
        assert!(unwrapped == bytes, "{codec:?}");
    }
}

#[test]
fn a_wrapper_holds_its_inner_messages() {
    let inner: Vec<u8> = (0..3).flat_map(|n| message(n, 1, 0, T0 + n, Some(b"k"), Some(b"in"))).collect();
    let outer = wrapper(102, 1, Codec::None, T0 + 2, &inner);
    assert!(outer.ends_with(&inner));
    assert_eq!(outer.len(), 12 + 22 + inner.len());
    assert_eq!(wrapper(102, 1, Codec::Gzip, T0, &inner)[17], 1);
}

#[test]
fn the_interval_is_exceeded_not_reached() {
    let batches: Vec<Vec<u8>> = (0..4).map(|n| Batch::plain(10 + n * 2, 2, T0 + n * 10_000).encode()).collect();
    let (log, len) = (batches.concat(), batches[0].len() as u32);
    assert!(batches.iter().all(|batch| batch.len() == batches[0].len()));
    let at_the_limit = indexes(10, &log, len);
    assert_eq!(at_the_limit.0, offset_index(10, &[(15, 2 * len)]));
    assert_eq!(at_the_limit.1, time_index(10, &[(T0 + 21_000, 15), (T0 + 31_000, 17)]));
    let below = indexes(10, &log, len - 1);
    assert_eq!(below.0, offset_index(10, &[(13, len), (15, 2 * len), (17, 3 * len)]));
    assert_eq!(hex(&below.0[..8]), format!("00000003{len:08x}"));
}

#[test]
fn a_batch_says_what_it_is_told_to_say() {
    let told = Batch {
        partition_leader_epoch: 4,
        attributes: Batch::LOG_APPEND_TIME | Batch::DELETE_HORIZON,
        codec: Codec::Zstd,
        last_offset_delta: Some(9),
        base_timestamp: Some(1),
        max_timestamp: Some(2),
        base_sequence: 3,
        records_count: Some(-1),
        ..Batch::plain(0, 1, T0)
    };
    let bytes = told.encode();
    assert_eq!(hex(&bytes[12..17]), "0000000402");
    assert_eq!(hex(&bytes[21..43]), "004c00000009000000000000000100000000000000020000000000000000"[..44]);
    assert_eq!(hex(&bytes[53..61]), "00000003ffffffff");
}
