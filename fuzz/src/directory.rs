//! A whole directory of arbitrary bytes: it opens or says why not, everything that is listed can be asked for, every answer ends, and an append
//! behind it is there afterwards.

use crate::input::Input;
use crate::logs;
use offsetfs::io::sim::SimDisk;
use offsetfs::log::batch::{ATTRIBUTES, BatchHeader, CRC, Step};
use offsetfs::log::check::check;
use offsetfs::log::config::{Isolation, LogConfig};
use offsetfs::log::encode::NewRecord;
use offsetfs::log::names;
use offsetfs::log::partition::Partition;
use offsetfs::log::prepare::prepare;
use offsetfs::log::repair;
use offsetfs::log::seek::Found;
use offsetfs::log::segment::OpenSegments;
use offsetfs::log::writer::Writer;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::types::{Patience, TimestampMs, TopicPartition};
use offsetfs::view::Place;
use offsetfs::view::time::Zone;
use offsetfs::view::{Node, Tree, View};
use std::path::Path;
use std::sync::Arc;

const DIRECTORY: &str = "/t-0";
/// No more files than this are made of an input.
const FILES_MOST: usize = 8;
/// Of a directory no more names than this are asked for; one batch can claim two thousand million records.
const NAMES_MOST: usize = 200;
/// Of a file no more is read than this, in bytes.
const READ_MOST: usize = 1 << 20;

fn config(choice: u8) -> LogConfig {
    let isolation = if choice & 1 != 0 { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
    LogConfig {
        index_interval_bytes: 64,
        segment_index_bytes: 1024,
        segment_bytes: 4096,
        batch_decoded_max_bytes: 64 << 10,
        isolation,
        ..LogConfig::default()
    }
}

/// One input: a choice, then files: a kind, an offset, a length, bytes.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let choice = input.byte();
    let disk = SimDisk::new();
    for _ in 0..FILES_MOST {
        if input.is_empty() {
            break;
        }
        let (kind, base) = (input.byte(), i64::from(input.byte()));
        let length = usize::from(u16::from_be_bytes(input.bytes()));
        let mut bytes = input.piece(length).to_vec();
        let suffixes = [
            names::LOG,
            names::INDEX,
            names::TIME_INDEX,
            names::TXN_INDEX,
            names::SNAPSHOT,
            ".log.swap",
            ".log.cleaned",
            ".log.deleted",
            ".index.swap",
        ];
        let name = match kind & 15 {
            n if usize::from(n) < suffixes.len() => names::of(logs::offset(base), suffixes[usize::from(n)]),
            9 => names::LEADER_EPOCHS.to_owned(),
            10 => names::LOG_START.to_owned(),
            11 => "partition.metadata".to_owned(),
            _ => names::of(logs::offset(base), names::LOG),
        };
        if kind & 16 != 0 && name.contains(".log") {
            mend(&mut bytes);
        }
        disk.write_file(format!("{DIRECTORY}/{name}"), &bytes);
    }
    if disk.list(DIRECTORY).is_empty() {
        return;
    }
    read_all(&disk, choice);
    let directory = disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory is there");
    let topic = TopicPartition { topic: "t".to_owned(), partition: 0 };
    // A directory may be refused; a report, where there is one, can be printed.
    if let Ok(report) = check(&directory, None, &topic, &mut |_, _| {}) {
        assert!(!report.to_string().is_empty());
    }
    if choice & 2 != 0 {
        repair(&disk, choice);
    }
    if choice & 4 != 0 {
        append(&disk, choice);
    }
}

/// Gives the batches of magic 2 the checksums of their bytes, so that what lies behind that check is reached.
fn mend(log: &mut [u8]) {
    let mut at = 0;
    while let Ok(Step::Batch(header)) = BatchHeader::read(log, at) {
        let end = at + header.size as usize;
        if header.magic == 2 {
            let crc = crc32c::crc32c(&log[at + ATTRIBUTES..end]);
            log[at + CRC..at + CRC + 4].copy_from_slice(&crc.to_be_bytes());
        }
        at = end;
    }
}

/// Asks the tree for everything, as somebody would who goes through it with `find` and `cat`.
fn read_all(disk: &SimDisk, choice: u8) {
    let options = Options { wish: Wish::ReadOnly, create: false, config: config(choice) };
    let Ok(local) = Local::open(&disk.filesystem(), Path::new(DIRECTORY), options) else { return };
    let view = View::new(Arc::new(local), offsetfs::view::Options { zone: Zone::utc(), ..offsetfs::view::Options::default() });
    let tree = Tree::One(Arc::new(view));
    visit(&tree, &Place::ROOT);
    let asked = [
        "by-offset/earliest..latest",
        "by-offset/earliest..latest.jsonl",
        "by-offset/-3..",
        "by-offset/-1",
        "by-offset/first.json",
        "by-time/now",
        "by-time/@0",
        "by-time/1d-ago..",
        "by-offset/0.batch",
    ];
    for path in asked {
        let Ok(place) = tree.resolve(path.as_bytes(), Patience::MayBlock) else { continue };
        visit_file(&tree, &place);
    }
}

fn visit(tree: &Tree, directory: &Place) {
    let mut names = Vec::new();
    let listed = tree.list(directory, 0, Patience::MayBlock, &mut |name, _, _, _| {
        names.push(name.to_vec());
        names.len() < NAMES_MOST
    });
    if listed.is_err() {
        return;
    }
    for name in names {
        let Ok(place) = tree.lookup(directory, &name, Patience::MayBlock) else { continue };
        match place.node {
            Node::ByOffset | Node::ByTime | Node::Segments | Node::DecodedDir => visit(tree, &place),
            _ => visit_file(tree, &place),
        }
    }
}

fn visit_file(tree: &Tree, place: &Place) {
    let Ok(attr) = tree.attr(place, Patience::MayBlock) else { return };
    let mut buffer = vec![0; 4096];
    let mut at = 0;
    match place.node {
        Node::Record(..) => {
            let mut bytes = 0;
            while let Ok(n @ 1..) = tree.read_record(place, at, &mut buffer, Patience::MayBlock) {
                (at, bytes) = (at + n as u64, bytes + n as u64);
                assert!(bytes <= attr.size, "a record is as long as its size says");
            }
            let names = tree.xattr_names(place, Patience::MayBlock).unwrap_or_default();
            for name in names {
                let _ = tree.xattr(place, &name, Patience::MayBlock);
            }
        }
        Node::Append(_) | Node::Ctl | Node::Link(_) | Node::Follow(_) => {}
        _ => {
            let Ok(reader) = tree.open(place, Patience::MayBlock) else { return };
            while (at as usize) < READ_MOST {
                match reader.read(at, &mut buffer, Patience::MayBlock) {
                    Ok(n @ 1..) => at += n as u64,
                    _ => break,
                }
            }
        }
    }
}

fn repair(disk: &SimDisk, choice: u8) {
    let directory = disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory is there");
    let options = repair::Options { drop_damaged: choice & 8 != 0, discard: choice & 16 != 0, index_interval_bytes: 64 };
    // Markers behind damage are in doubt until it is out, and bytes before a torn tail may be one, too, once that is cut: each file at most once.
    for _ in 0..=FILES_MOST {
        let Ok(plan) = repair::plan(&*directory, &options, &mut |_, _| {}) else { return };
        repair::apply(&*directory, &plan, &options, &mut |_| {}).expect("the disk takes what is written");
    }
    let again = repair::plan(&*directory, &options, &mut |_, _| {}).expect("what was repaired can be looked at");
    assert!(again.is_empty(), "a repair leaves nothing to repair: {:?}", again.steps().collect::<Vec<_>>());
}

fn open(disk: &SimDisk, choice: u8) -> Option<Partition> {
    let directory = disk.filesystem().open_dir(Path::new(DIRECTORY)).expect("the directory is there");
    let name = TopicPartition { topic: "t".to_owned(), partition: 0 };
    Partition::open(directory, None, name, config(choice), disk.clock(), Arc::new(OpenSegments::new(8)), false).ok()
}

/// Appends behind whatever is there; a directory that opens for appends keeps what was appended, over a close or without one.
fn append(disk: &SimDisk, choice: u8) {
    let Some(partition) = open(disk, choice).map(Arc::new) else { return };
    let Ok((mut writer, _)) = Writer::open(partition.clone()) else { return };
    let end = partition.bounds().log_end;
    let mut record = std::iter::once(NewRecord { timestamp: TimestampMs::new(1000), key: None, value: Some(b"behind"), headers: &[] });
    let prepared = prepare(partition.config(), TimestampMs::new(1000), &mut record).expect("a small record");
    let (whole, stopped) = writer.append(&mut [prepared]);
    if whole == 0 {
        assert!(matches!(stopped, Some(offsetfs::error::Error::OffsetsExhausted(_))), "{stopped:?}");
        return;
    }
    let is_there = |partition: &Partition| match partition.record(end, Patience::MayBlock) {
        Ok(Found::Record(record)) => assert_eq!(record.value(), Some(&b"behind"[..])),
        other => panic!("what was appended at {end} is not there: {other:?}"),
    };
    is_there(&partition);
    for sealing in writer.take_rolled() {
        sealing.run().expect("a seal");
    }
    if choice & 32 != 0 {
        writer.close().expect("a clean close");
    } else {
        drop(writer);
    }
    let again = open(disk, choice).expect("what was appended to can be opened");
    assert!(again.bounds().log_end >= end.next(), "the end is behind what was appended");
    is_there(&again);
}

fn part(kind: u8, base: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a small file");
    [&[kind, base], &length.to_be_bytes()[..], bytes].concat()
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let transactions = crate::txnindex::transactions();
    let mut seeds = Vec::new();
    for choice in [0, 1, 4, 6, 14, 36] {
        seeds.push([vec![choice], part(0, 0, &transactions), part(9, 0, b"0\n1\n0 0\n")].concat());
        seeds.push([vec![choice], part(16, 0, &transactions[..transactions.len() - 7]), part(10, 0, b"0\n1\nt 0 3\n")].concat());
        let mut damaged = transactions.clone();
        damaged[100] ^= 1;
        seeds.push([vec![choice], part(0, 0, &damaged), part(1, 0, &[0; 40]), part(2, 0, &[0; 36])].concat());
    }
    for (path, log) in crate::fixtures::some(crate::fixtures::heads(".log"), 40) {
        let base = path.rsplit('/').next().and_then(|name| name.get(..20)?.parse::<u8>().ok());
        let log = &log[..log.len().min(2000)];
        if let Some(base) = base {
            seeds.push([vec![4], part(0, base, log)].concat());
            seeds.push([vec![2], part(5, base, log), part(0, 0, &transactions)].concat());
        }
    }
    seeds
}
