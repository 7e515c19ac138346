//! The consistency check: silent on what a healthy Kafka leaves, and at the right file and position on what is damaged.

mod common;

use common::encode::{Batch, Codec, Record, indexes, offset_index, time_index};
use common::fixtures::fixtures;
use common::partition::PartitionDir;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::check::{Report, Severity, check};
use offsetfs::types::TopicPartition;
use std::fs;
use std::path::Path;

const T0: i64 = 1_700_000_000_000;
const LOG: &str = "00000000000000000000.log";
const INDEX: &str = "00000000000000000000.index";
const TIME_INDEX: &str = "00000000000000000000.timeindex";

fn report(path: &Path) -> Report {
    let dir = OsFileSystem.open_dir(path).expect("the directory");
    let parent = path.parent().map(|parent| OsFileSystem.open_dir(parent).expect("its parent"));
    let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
    let name = TopicPartition::from_directory_name(name).expect("a partition's name");
    let mut told = Vec::new();
    let report = check(&dir, parent.as_ref(), &name, &mut |done, total| told.push((done, total))).expect("a report");
    assert!(told.is_sorted_by_key(|t| t.0) && told.iter().all(|(done, total)| done <= total), "progress rises: {told:?}");
    report
}

/// File, position and offsets of each finding; notes are left out.
type Place = (String, Option<u64>, Option<(i64, i64)>);

fn places(report: &Report, severity: Severity) -> Vec<Place> {
    let of_it = report.findings.iter().filter(|f| f.severity == severity);
    of_it.map(|f| (f.file.clone(), f.position.map(|p| p.get()), f.offsets.map(|(a, b)| (a.get(), b.get())))).collect()
}

fn findings(path: &Path) -> Vec<Place> {
    places(&report(path), Severity::Finding)
}

fn at(file: &str, position: u64, offsets: Option<(i64, i64)>) -> Place {
    (file.to_owned(), Some(position), offsets)
}

fn whole(file: &str) -> Place {
    (file.to_owned(), None, None)
}

/// Two batches of five records from offset `base` on, and right indexes.
fn plain_segment(dir: &PartitionDir, base: i64) -> Vec<u8> {
    let log = [Batch::plain(base, 5, T0 + base * 1000).encode(), Batch::plain(base + 5, 5, T0 + (base + 5) * 1000).encode()].concat();
    let (index, timeindex) = indexes(base, &log, 4096);
    dir.segment(base, &log, &index, &timeindex);
    log
}

#[test]
fn what_kafka_leaves_has_no_finding() {
    for kind in ["data", "unclean"] {
        let (mut partitions, mut records) = (0, 0);
        for entry in fs::read_dir(fixtures().join(kind)).expect("the data directory") {
            let path = entry.expect("an entry").path();
            if !path.is_dir() {
                continue;
            }
            let report = report(&path);
            assert!(report.is_clean(), "{}: {report}", path.display());
            partitions += 1;
            records += report.records;
        }
        assert!(partitions >= 28 && records > 5000, "{kind}: {partitions} partitions, {records} records");
    }
}

#[test]
fn a_plain_log_is_clean_and_a_finding_is_one_line() {
    let dir = PartitionDir::new("t-0");
    plain_segment(&dir, 0);
    let clean = report(dir.path());
    assert!(clean.is_clean() && clean.records == 10 && clean.batches == 2, "{clean}");
    dir.file("7.log", b"");
    let report = report(dir.path());
    assert_eq!(places(&report, Severity::Finding), [whole("7.log")]);
    let line = report.findings.iter().find(|f| f.severity == Severity::Finding).expect("the finding").to_string();
    assert!(line.starts_with("finding: 7.log: expected ") && !line.contains('\n'), "{line}");
}

#[test]
fn a_torn_tail_and_zeros_are_notes_at_their_place() {
    let first = Batch::plain(0, 5, T0).encode();
    let torn = [&first[..], &Batch::plain(5, 5, T0 + 5000).encode()[..40]].concat();
    let dir = PartitionDir::new("t-0");
    dir.segment(0, &torn, b"", b"");
    let found = report(dir.path());
    assert_eq!(places(&found, Severity::Finding), []);
    assert!(places(&found, Severity::Note).contains(&at(LOG, first.len() as u64, None)));
    assert!(found.to_string().contains("40 bytes of a torn tail"), "{found}");

    let dir = PartitionDir::new("t-0");
    dir.segment(0, &[&first[..], &[0; 4096]].concat(), &[0; 10_485_760], &[0; 10_485_756]);
    let found = report(dir.path());
    assert_eq!(places(&found, Severity::Finding), []);
    for note in [at(LOG, first.len() as u64, None), at(INDEX, 0, None), at(TIME_INDEX, 0, None)] {
        assert!(places(&found, Severity::Note).contains(&note), "{found}");
    }
}

#[test]
fn a_flipped_byte_is_found_where_its_batch_begins() {
    let dir = PartitionDir::new("t-0");
    let mut log = plain_segment(&dir, 0);
    let position = Batch::plain(0, 5, T0).encode().len();
    log[position + 70] ^= 0x20;
    log.extend(Batch::plain(10, 1, T0 + 10_000).encode());
    dir.file(LOG, &log);
    assert_eq!(findings(dir.path())[0], at(LOG, position as u64, Some((5, 9))));
}

#[test]
fn damage_at_the_end_of_a_sealed_segment_is_no_torn_tail() {
    let dir = PartitionDir::new("t-0");
    let log = plain_segment(&dir, 0);
    plain_segment(&dir, 10);
    let position = Batch::plain(0, 5, T0).encode().len();
    dir.file(LOG, &log[..log.len() - 3]);
    assert_eq!(findings(dir.path())[0], at(LOG, position as u64, Some((5, 9))));
}

#[test]
fn records_that_lie_under_a_right_crc_are_found() {
    let head = Batch::plain(0, 2, T0).encode();
    let one = |change: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new(2, vec![Record::new(0, T0, None, Some(b"x"))]);
        change(&mut batch);
        let dir = PartitionDir::new("t-0");
        let log = [head.clone(), batch.encode(), Batch::plain(3, 2, T0 + 3000).encode()].concat();
        dir.segment(0, &log, b"", &time_index(0, &[(T0 + 4000, 4)]));
        findings(dir.path())
    };
    let place = [at(LOG, head.len() as u64, Some((2, 2)))];
    assert_eq!(one(&|_| ()), []);
    assert_eq!(one(&|b| b.records_count = Some(-1)), place);
    assert_eq!(one(&|b| b.records_count = Some(i32::MAX)), place);
    assert_eq!(one(&|b| b.records_count = Some(0)), place);
    assert_eq!(one(&|b| b.max_timestamp = Some(T0 - 1)), place);
    assert_eq!(one(&|b| b.max_timestamp = Some(T0 + 1)), [], "a time that is too late costs only time");
    assert_eq!(one(&|b| (b.records[0].offset_delta, b.last_offset_delta) = (1, Some(0))), place, "an offset behind the batch's last one");
    // A batch that claims the next one's offset: the next one is whole and right, so it is no torn tail.
    let next = head.len() + Batch::new(2, vec![Record::new(0, T0, None, Some(b"x"))]).encode().len();
    assert_eq!(one(&|b| b.last_offset_delta = Some(1))[0], at(LOG, next as u64, Some((4, 4))));
    assert_eq!(one(&|b| (b.codec, b.attributes) = (Codec::None, 1)), place, "no gzip stream");
}

#[test]
fn lying_indexes_are_found_entry_by_entry() {
    let dir = PartitionDir::new("t-0");
    let log = plain_segment(&dir, 0);
    let second = Batch::plain(0, 5, T0).encode().len() as u32;
    let try_index = |entries: &[(i64, u32)]| {
        dir.segment(0, &log, &offset_index(0, entries), &time_index(0, &[(T0 + 9000, 9)]));
        findings(dir.path())
    };
    assert_eq!(try_index(&[(9, second)]), []);
    assert_eq!(try_index(&[(4, 7), (3, 9_999_999)]), [at(INDEX, 0, Some((4, 4))), at(INDEX, 8, Some((3, 3)))]);
    assert_eq!(try_index(&[(9, 9_999_999)]), [at(INDEX, 0, Some((9, 9)))]);
    assert_eq!(try_index(&[(4, second)]), [at(INDEX, 0, Some((4, 4)))], "a look-up of 4 would miss it");
    assert_eq!(try_index(&[(4, 0)]), [], "the first batch may have an entry");
    let try_times = |entries: &[(i64, i64)]| {
        dir.segment(0, &log, b"", &time_index(0, entries));
        findings(dir.path())
    };
    assert_eq!(try_times(&[(T0 + 4000, 4), (T0 + 9000, 9)]), []);
    assert_eq!(try_times(&[(T0 + 5000, 4), (T0 + 9000, 9)]), [at(TIME_INDEX, 0, Some((4, 4)))]);
    assert_eq!(try_times(&[(T0 + 4000, 4), (T0 + 4000, 9)]), [at(TIME_INDEX, 12, Some((9, 9)))]);
    assert_eq!(try_times(&[(T0 + 9000, 9), (T0 + 9001, 77)]), [at(TIME_INDEX, 12, Some((77, 77)))]);
    dir.segment(0, &log, &offset_index(0, &[(9, second)]), &[0; 1200]);
    assert_eq!(findings(dir.path()), [at(TIME_INDEX, 0, None)], "an all-zero time index beside an offset index with entries");
    dir.segment(0, &log, &[7; 5], &time_index(0, &[(T0 + 9000, 9)]));
    assert_eq!(findings(dir.path()), [at(INDEX, 0, None)], "a part of an entry");
    fs::remove_file(dir.path().join(TIME_INDEX)).expect("the index goes");
    dir.file(INDEX, b"");
    assert_eq!(findings(dir.path()), [whole(TIME_INDEX)]);
}

#[test]
fn a_segment_that_is_not_the_last_has_trimmed_indexes_with_its_largest_time() {
    let dir = PartitionDir::new("t-0");
    let log = plain_segment(&dir, 0);
    plain_segment(&dir, 10);
    assert_eq!(findings(dir.path()), []);
    dir.segment(0, &log, &[0; 800], &time_index(0, &[(T0 + 9000, 9)]));
    assert_eq!(findings(dir.path()), [at(INDEX, 0, None)]);
    dir.segment(0, &log, b"", &time_index(0, &[(T0 + 4000, 4)]));
    assert_eq!(findings(dir.path()), [whole(TIME_INDEX)]);
}

#[test]
fn a_lost_segment_is_found_and_a_compacted_gap_is_a_note() {
    let dir = PartitionDir::new("t-0");
    for base in [0, 10, 20] {
        plain_segment(&dir, base);
    }
    for suffix in ["log", "index", "timeindex"] {
        fs::remove_file(dir.path().join(format!("{:020}.{suffix}", 10))).expect("the file goes");
    }
    let hole = ("00000000000000000020.log".to_owned(), None, Some((10, 19)));
    assert_eq!(findings(dir.path()), std::slice::from_ref(&hole));
    fs::write(dir.parent().join("cleaner-offset-checkpoint"), "0\n1\nt 0 20\n").expect("a checkpoint");
    let report = report(dir.path());
    assert!(report.is_clean() && places(&report, Severity::Note).contains(&hole), "{report}");
}

#[test]
fn an_emptied_batch_is_a_gap_with_its_reason() {
    let dir = PartitionDir::new("t-0");
    let emptied =
        Batch { last_offset_delta: Some(4), max_timestamp: Some(T0 + 9000), base_timestamp: Some(-1), ..Batch::new(5, Vec::new()) };
    let log = [Batch::plain(0, 5, T0).encode(), emptied.encode()].concat();
    dir.segment(0, &log, b"", &time_index(0, &[(T0 + 9000, 9)]));
    plain_segment(&dir, 10);
    let report = report(dir.path());
    assert!(report.is_clean() && places(&report, Severity::Note).contains(&(LOG.to_owned(), None, Some((5, 9)))), "{report}");
    assert!(report.to_string().contains("5 to 9 (empty batch)"), "{report}");
}

#[test]
fn aborted_transactions_without_an_entry_are_found() {
    let copy = PartitionDir::copy_of(&fixtures().join("data/txn-0"));
    let index = copy.names().into_iter().find(|n| n.ends_with(".txnindex")).expect("aborted transactions");
    let bytes = fs::read(copy.path().join(&index)).expect("the index");
    let replaced = |bytes: &[u8]| {
        copy.file(&index, bytes);
        findings(copy.path()).into_iter().map(|(file, position, _)| (file, position)).collect::<Vec<_>>()
    };
    assert_eq!(replaced(&bytes), []);
    let entries = bytes.len() / 34;
    assert_eq!(replaced(b"").len(), entries.min(9), "every entry is missed");
    assert_eq!(replaced(&bytes[..bytes.len() - 3])[0], (index.clone(), Some(bytes.len() as u64 - 34)), "a part of an entry");
    let mut other_producer = bytes.clone();
    other_producer[9] ^= 1;
    assert_eq!(replaced(&other_producer)[0], (index.clone(), Some(0)));
    let mut later = bytes.clone();
    let last = i64::from_be_bytes(bytes[18..26].try_into().expect("eight bytes"));
    later[10..18].copy_from_slice(&last.to_be_bytes());
    assert_eq!(replaced(&later)[0], (index.clone(), Some(0)), "a first offset behind the transaction's records");
}

#[test]
fn snapshots_epochs_and_checkpoints_are_read() {
    let copy = PartitionDir::copy_of(&fixtures().join("data/txn-0"));
    let snapshot = copy.names().into_iter().rfind(|n| n.ends_with(".snapshot")).expect("a snapshot");
    let bytes = fs::read(copy.path().join(&snapshot)).expect("the snapshot");
    let mut flipped = bytes.clone();
    flipped[20] ^= 1;
    copy.file(&snapshot, &flipped);
    assert_eq!(findings(copy.path()).into_iter().map(|f| (f.0, f.1)).collect::<Vec<_>>(), [(snapshot.clone(), Some(2))]);
    // An empty one is right in itself, and forgets the transaction that is open at the end of this log.
    copy.file(&snapshot, &[0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]);
    assert_eq!(findings(copy.path()).into_iter().map(|f| f.0).collect::<Vec<_>>(), std::slice::from_ref(&snapshot));
    copy.file(&snapshot, &bytes);
    assert_eq!(findings(copy.path()), []);

    copy.file("leader-epoch-checkpoint", b"0\n2\n0 0\n");
    assert_eq!(findings(copy.path()), [at("leader-epoch-checkpoint", 2, None)]);
    copy.file("leader-epoch-checkpoint", b"0\n1\n7 0\n");
    assert!(findings(copy.path()).iter().any(|f| f.0.ends_with(".log") && f.1 == Some(0)), "the batches have another epoch");
    copy.file("leader-epoch-checkpoint", b"0\n0\n");
    copy.file("partition.metadata", b"version: 0\n");
    assert_eq!(findings(copy.path()), [at("partition.metadata", 0, None)]);
    fs::remove_file(copy.path().join("partition.metadata")).expect("the file goes");
    fs::write(copy.parent().join("log-start-offset-checkpoint"), "0\n1\ntxn 0 99999\n").expect("a checkpoint");
    fs::write(copy.parent().join("replication-offset-checkpoint"), "0\n1\ntxn 0 x\n").expect("a checkpoint");
    let found = findings(copy.path());
    assert_eq!(found, [whole("log-start-offset-checkpoint"), at("replication-offset-checkpoint", 0, None)]);
}

#[test]
fn strange_and_left_names_are_told() {
    let dir = PartitionDir::new("t-0");
    plain_segment(&dir, 0);
    dir.file("00000000000000000099.index", b"");
    std::os::unix::fs::symlink(LOG, dir.path().join("00000000000000000050.log")).expect("a link");
    for name in ["00000000000000000005.log.deleted", "00000000000000000006.log.cleaned", "00000000000000000000.log.cut-9", "note to self"] {
        dir.file(name, b"x");
    }
    let report = report(dir.path());
    assert_eq!(
        places(&report, Severity::Finding),
        [whole("00000000000000000050.log"), ("00000000000000000099.index".to_owned(), None, Some((99, 99)))]
    );
    let notes: Vec<_> = places(&report, Severity::Note).into_iter().map(|n| n.0).collect();
    for name in ["00000000000000000005.log.deleted", "00000000000000000006.log.cleaned", "00000000000000000000.log.cut-9", "note to self"] {
        assert!(notes.iter().any(|n| n == name), "{name}: {notes:?}");
    }
}

#[test]
fn a_report_stays_small_whatever_is_wrong() {
    let dir = PartitionDir::new("t-0");
    let log: Vec<u8> = (0..12_000).flat_map(|n| Batch { records_count: Some(-1), ..Batch::plain(n, 1, T0) }.encode()).collect();
    dir.segment(0, &log, b"", &time_index(0, &[(T0, 0)]));
    let report = report(dir.path());
    assert_eq!((report.findings_count(), report.findings_unlisted), (12_000, 2_000));
    assert!(!report.is_clean() && report.findings.len() < 11_000);
}
