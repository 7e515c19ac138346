//! Files that ask for more memory than there is. The daemon runs with a limit on all that it may allocate: 128 MiB, and 64 MiB of address space that its
//! threads' stacks and heaps reserve and hardly touch.

use crate::encode::{Batch, Record, crc32c};
use crate::mounted::Mounted;
use crate::{PartitionDir, T0, batch, read_everything, said};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::Command;

/// What a daemon may allocate, in bytes.
const LIMIT: &str = "--data=201326592";
/// More than that.
const HUGE: u64 = 220 << 20;

/// Mounts a source under the limit, reads everything, and demands that the daemon is still there and serves what is good.
fn survives(what: &str, source: &PartitionDir) -> Vec<u8> {
    let mut m = Mounted::under(&["prlimit", LIMIT], source.path(), &["-o", "ro"]);
    let read = read_everything(&m);
    assert!(m.daemon.try_wait().expect("the child can be asked").is_none(), "{what}: the daemon has ended");
    assert_eq!(m.text("by-offset/0..3"), "a\nb\nc\n", "{what}");
    let status = fs::read_to_string(format!("/proc/{}/status", m.daemon.id())).expect("the daemon lives");
    let data = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).map(str::trim).unwrap_or_default().to_owned();
    println!("{what}: {data} resident, {} bytes read", read.len());
    read
}

/// A source whose first segment is good, with one file more.
fn with(name: &str, bytes: &[u8]) -> PartitionDir {
    let source = PartitionDir::new("demo-0");
    source.segment(0, &batch(0, &["a", "b", "c"]), &[], &[]);
    source.file(name, bytes);
    source
}

/// A batch with these bytes as its records, under the attributes of a codec.
fn raw(codec: i16, count: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Batch::new(3, vec![Record::new(0, T0, None, Some(b"x"))]).encode();
    bytes.truncate(61);
    bytes.extend(body);
    let len = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&len.to_be_bytes());
    bytes[21..23].copy_from_slice(&codec.to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    let checksum = crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

pub(crate) fn hostile_sizes_and_counts() {
    // A varint of 2^31 - 1, as it is stored.
    const LARGEST: [u8; 5] = [0xFE, 0xFF, 0xFF, 0xFF, 0x0F];
    let log = "00000000000000000003.log";
    let mut long = raw(0, 1, b"");
    long[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    let record = |head: &[u8], rest: &[u8]| raw(0, 1, &[head, rest, &[0; 40]].concat());
    for (what, bytes) in [
        ("a batch of 2 GiB", long),
        ("2^31 - 1 records", raw(0, i32::MAX, &[0; 40])),
        ("a negative count", raw(0, -5, &[0; 40])),
        ("a record of 2 GiB", record(&LARGEST, &[])),
        ("a key of 2 GiB", record(&[80, 0, 0, 0], &LARGEST)),
        ("a value of 2 GiB", record(&[80, 0, 0, 0, 1], &LARGEST)),
        ("2^31 - 1 headers", record(&[80, 0, 0, 0, 1, 1], &LARGEST)),
        ("a header of 2 GiB", record(&[80, 0, 0, 0, 1, 1, 2], &LARGEST)),
        ("a varint without an end", record(&[0xFF; 12], &[])),
    ] {
        survives(what, &with(log, &bytes));
    }
    for name in [
        log,
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ] {
        let source = with("unrelated", b"");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(source.path().join(name)).expect("a file");
        // A debug build takes its time over a `.log`, which is a map and no memory of its own.
        file.set_len(if name == log { 1 << 20 } else { HUGE }).expect("a hole");
        // Reading a hole through `segments/` is nothing but time.
        let mut m = Mounted::under(&["prlimit", LIMIT], source.path(), &["-o", "ro"]);
        m.sh(
            "{ cat status check errors; cat by-offset/earliest..latest decoded/*; ls by-offset by-time; cat by-offset/last; } 2>&1 || true",
        );
        assert!(m.daemon.try_wait().expect("the child can be asked").is_none(), "{name}: the daemon has ended");
        assert_eq!(m.text("by-offset/0..3"), "a\nb\nc\n", "{name}");
    }
    // Without the log start offset nobody knows which records were deleted: refused, in words, and at once.
    let source = with("log-start-offset-checkpoint", b"");
    File::options().write(true).open(source.path().join("log-start-offset-checkpoint")).and_then(|f| f.set_len(HUGE)).expect("a hole");
    let refused = Command::new("prlimit").args([LIMIT, env!("CARGO_BIN_EXE_offsetfs"), "stat"]).arg(source.path()).output();
    let refused = refused.expect("util-linux is installed");
    let words = said(&refused);
    assert!(refused.status.code() == Some(3) && words.contains("log-start-offset-checkpoint") && words.len() < 1000, "{words}");
    // A data directory whose checkpoint promises four billion lines.
    let source = with("unrelated", b"");
    fs::write(source.parent().join("meta.properties"), "version=1\n").expect("a file");
    fs::write(source.parent().join("log-start-offset-checkpoint"), "0\n4294967295\ndemo 0 1\n").expect("a file");
    let m = Mounted::under(&["prlimit", LIMIT], source.parent(), &["-o", "ro"]);
    m.sh("{ cat status errors; ls; } 2>&1 || true");
}

pub(crate) fn decompression_bombs() {
    let zeros = vec![0_u8; HUGE as usize];
    // One record whose value is all of it: length, attributes, deltas, no key, the value's length.
    let varint = |value: u64| {
        let (mut value, mut bytes) = (value << 1, Vec::new());
        while value > 0x7F {
            bytes.push((value & 0x7F) as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    let head = [varint(HUGE + 10), vec![0, 0, 0, 1], varint(HUGE)].concat();
    for (codec, name) in [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")] {
        let mut packed = Vec::new();
        match codec {
            1 => {
                let mut writer = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
                writer.write_all(&head).and_then(|()| writer.write_all(&zeros)).expect("memory takes it");
                writer.finish().expect("memory takes it");
            }
            2 => packed = snap::raw::Encoder::new().compress_vec(&[&head[..], &zeros].concat()).expect("it is short enough"),
            3 => {
                let info = lz4_flex::frame::FrameInfo::new().block_mode(lz4_flex::frame::BlockMode::Independent);
                let mut writer = lz4_flex::frame::FrameEncoder::with_frame_info(info, &mut packed);
                writer.write_all(&head).and_then(|()| writer.write_all(&zeros)).expect("memory takes it");
                writer.finish().expect("memory takes it");
            }
            _ => packed = zstd::encode_all(&[&head[..], &zeros].concat()[..], 1).expect("memory takes it"),
        }
        let bomb = raw(codec, 1, &packed);
        let source = with("00000000000000000003.log", &[bomb, batch(4, &["behind"])].concat());
        let read = survives(&format!("{} bytes of {name} for {HUGE}", packed.len()), &source);
        assert!(crate::contains(&read, b"Input/output error"), "the bomb is an EIO");
        let m = Mounted::under(&["prlimit", LIMIT], source.path(), &["-o", "ro"]);
        assert_eq!(fs::read(m.at("by-offset/3")).expect_err("the bomb").raw_os_error(), Some(libc::EIO), "{name}");
        assert_eq!(m.text("by-offset/4"), "behind", "{name}");
        assert!(m.text("errors").contains("by-offset/3 EIO 00000000000000000003.log:0 "), "{name}: {}", m.text("errors"));
    }
}
