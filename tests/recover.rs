//! The explicit repair: what can be saved is saved, what leaves a log is kept, and an interruption at any point costs nothing.

mod common;

use common::encode::{Batch, Record, indexes, offset_index, time_index};
use common::fixtures::fixtures;
use common::partition::PartitionDir;
use offsetfs::io::os::OsFileSystem;
use offsetfs::io::sim::{Fault, SimDisk};
use offsetfs::io::{Directory, FileSystem};
use offsetfs::log::check::check;
use offsetfs::log::repair::{Options, apply, plan, settle};
use offsetfs::types::TopicPartition;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const T0: i64 = 1_700_000_000_000;
const CAREFUL: Options = Options { drop_damaged: false, discard: false, index_interval_bytes: 4096 };
const DROP: Options = Options { drop_damaged: true, ..CAREFUL };

fn name() -> TopicPartition {
    TopicPartition { topic: "t".to_owned(), partition: 0 }
}

/// Repairs a directory; the steps in words.
fn repair(dir: &Arc<dyn Directory>, options: &Options) -> offsetfs::error::Result<Vec<String>> {
    settle(&**dir, None, &name())?;
    let plan = plan(&**dir, options, &mut |_, _| {})?;
    let mut done = Vec::new();
    apply(&**dir, &plan, options, &mut |step| done.push(step.to_string()))?;
    Ok(done)
}

fn opened(path: &Path) -> Arc<dyn Directory> {
    OsFileSystem.open_dir(path).expect("the directory")
}

fn findings(path: &Path) -> u64 {
    check(&opened(path), None, &name(), &mut |_, _| {}).expect("a report").findings_count()
}

fn read(dir: &PartitionDir, name: &str) -> Vec<u8> {
    fs::read(dir.path().join(name)).expect(name)
}

fn file(base: i64, suffix: &str) -> String {
    format!("{base:020}.{suffix}")
}

/// A segment of batches with right indexes.
fn segment(dir: &PartitionDir, base: i64, batches: &[Vec<u8>]) -> Vec<u8> {
    let log = batches.concat();
    let (index, timeindex) = indexes(base, &log, 4096);
    dir.segment(base, &log, &index, &timeindex);
    log
}

fn batch(base: i64) -> Vec<u8> {
    Batch::plain(base, 5, T0 + base * 1000).encode()
}

#[test]
fn one_flipped_byte_costs_its_batch_and_nothing_else() {
    let dir = PartitionDir::new("t-0");
    for base in [0, 15, 30] {
        segment(&dir, base, &[batch(base), batch(base + 5), batch(base + 10)]);
    }
    let good = read(&dir, &file(15, "log"));
    let (from, to) = (batch(15).len(), batch(15).len() + batch(20).len());
    let mut damaged = good.clone();
    damaged[from + 90] ^= 1;
    dir.file(&file(15, "log"), &damaged);
    let before = dir.names();

    let planned = plan(&*opened(dir.path()), &CAREFUL, &mut |_, _| {}).expect("a plan");
    assert!(planned.is_empty() && planned.left.len() == 1 && planned.left[0].contains("offsets 20 to 24"), "{:?}", planned.left);
    assert_eq!((read(&dir, &file(15, "log")), dir.names()), (damaged.clone(), before), "damage in the middle stays unless it is asked for");

    repair(&opened(dir.path()), &DROP).expect("a repair");
    assert!(read(&dir, &file(15, "log")) == [&good[..from], &good[to..]].concat(), "only the damaged batch is gone");
    assert!(read(&dir, &format!("{}.cut-{from}", file(15, "log"))) == damaged[from..to], "its bytes are kept");
    for base in [0, 30] {
        assert!(read(&dir, &file(base, "log")) == [batch(base), batch(base + 5), batch(base + 10)].concat(), "{base} is as it was");
    }
    assert_eq!(findings(dir.path()), 0);
    assert_eq!(repair(&opened(dir.path()), &DROP).expect("another"), Vec::<String>::new(), "there is nothing left to do");
}

#[test]
fn a_torn_tail_is_cut_and_kept_or_discarded() {
    for discard in [false, true] {
        let dir = PartitionDir::new("t-0");
        let torn = &batch(5)[..40];
        dir.segment(0, &[&batch(0)[..], torn].concat(), b"", b"");
        let options = Options { discard, ..CAREFUL };
        let words = repair(&opened(dir.path()), &options).expect("a repair").join("\n");
        assert!(words.contains("cut 40 bytes at position"), "{words}");
        assert!(read(&dir, &file(0, "log")) == batch(0));
        let (_, timeindex) = indexes(0, &batch(0), 4096);
        assert_eq!((read(&dir, &file(0, "index")), read(&dir, &file(0, "timeindex"))), (Vec::new(), timeindex));
        let kept = format!("{}.cut-{}", file(0, "log"), batch(0).len());
        assert_eq!(dir.names().contains(&kept), !discard);
        if !discard {
            assert!(read(&dir, &kept) == torn);
        }
        assert_eq!(findings(dir.path()), 0);
    }
}

#[test]
fn what_an_earlier_repair_kept_is_not_overwritten() {
    let dir = PartitionDir::new("t-0");
    let kept = format!("{}.cut-{}", file(0, "log"), batch(0).len());
    for (torn, name) in [(b"first".as_slice(), kept.clone()), (b"second", format!("{kept}.2")), (b"first", kept.clone())] {
        dir.segment(0, &[&batch(0)[..], torn].concat(), b"", b"");
        repair(&opened(dir.path()), &CAREFUL).expect("a repair");
        assert_eq!(read(&dir, &name), torn);
    }
    assert_eq!(read(&dir, &kept), b"first");
    assert_eq!(dir.names().len(), 5, "{:?}", dir.names());
}

#[test]
fn records_are_saved_from_a_batch_that_lies_about_them() {
    let records = || (0..3).map(|n| Record::new(n, T0 + i64::from(n), Some(b"k"), Some(b"value"))).collect();
    for count in [-1, 2, 0, i32::MAX] {
        let dir = PartitionDir::new("t-0");
        let lying = Batch { records_count: Some(count), ..Batch::new(5, records()) };
        segment(&dir, 0, &[batch(0), lying.encode(), batch(8)]);
        repair(&opened(dir.path()), &DROP).expect("a repair");
        assert!(read(&dir, &file(0, "log")) == [batch(0), Batch::new(5, records()).encode(), batch(8)].concat(), "count {count}");
        assert!(read(&dir, &format!("{}.cut-{}", file(0, "log"), batch(0).len())) == lying.encode());
        assert_eq!(findings(dir.path()), 0);
    }
    // A record that is cut off: those before it are saved, with the time of the last of them.
    let dir = PartitionDir::new("t-0");
    let whole = Batch::new(5, records());
    let mut lying = Batch { last_offset_delta: Some(2), ..Batch::new(5, records()) };
    lying.records[2].offset_delta = 0;
    segment(&dir, 0, &[batch(0), lying.encode(), batch(8)]);
    repair(&opened(dir.path()), &DROP).expect("a repair");
    let two = Batch { records: whole.records[..2].to_vec(), last_offset_delta: Some(2), ..whole };
    assert!(read(&dir, &file(0, "log")) == [batch(0), two.encode(), batch(8)].concat());
}

#[test]
fn indexes_that_lie_are_made_anew_and_sound_ones_stay() {
    let dir = PartitionDir::new("t-0");
    let log = [batch(0), batch(5)].concat();
    dir.segment(0, &log, &offset_index(0, &[(4, 7), (3, 9_999_999)]), &time_index(0, &[(T0 + 9000, 9), (0, 0)]));
    repair(&opened(dir.path()), &CAREFUL).expect("a repair");
    assert!(read(&dir, &file(0, "log")) == log);
    assert_eq!((read(&dir, &file(0, "index")), read(&dir, &file(0, "timeindex"))), indexes(0, &log, 4096));
    // A dense index that the rule with this interval would not have made.
    let dense = offset_index(0, &[(9, batch(0).len() as u32)]);
    dir.file(&file(0, "index"), &dense);
    assert_eq!(repair(&opened(dir.path()), &CAREFUL).expect("a repair"), Vec::<String>::new());
    assert_eq!(read(&dir, &file(0, "index")), dense);
}

#[test]
fn what_a_killed_broker_left_is_put_right_and_no_record_is_lost() {
    for entry in fs::read_dir(fixtures().join("unclean")).expect("the data directory") {
        let path = entry.expect("an entry").path();
        if !path.is_dir() {
            continue;
        }
        let copy = PartitionDir::copy_of(&path);
        repair(&opened(copy.path()), &CAREFUL).expect("a repair");
        assert_eq!(findings(copy.path()), 0, "{}", path.display());
        for name in copy.names() {
            if name.ends_with(".log") {
                assert!(read(&copy, &name) == fs::read(path.join(&name)).expect("the log"), "{}/{name}", path.display());
            }
            let is_index = name.ends_with("index");
            assert!(!is_index || fs::metadata(copy.path().join(&name)).expect("the index").len() < 1 << 20, "{name} is trimmed");
            assert!(!name.ends_with(".deleted"), "{name} is gone");
        }
    }
}

#[test]
fn a_lost_index_of_aborted_transactions_is_what_kafka_wrote() {
    let copy = PartitionDir::copy_of(&fixtures().join("data/txn-0"));
    let indexes: Vec<String> = copy.names().into_iter().filter(|n| n.ends_with(".txnindex")).collect();
    assert!(!indexes.is_empty());
    let before: Vec<Vec<u8>> = indexes.iter().map(|n| read(&copy, n)).collect();
    for (index, bytes) in indexes.iter().zip(&before) {
        for lost in [&b""[..], &bytes[..bytes.len() - 1], &[&bytes[..], &bytes[..34]].concat()] {
            copy.file(index, lost);
            repair(&opened(copy.path()), &CAREFUL).expect("a repair");
            assert!(read(&copy, index) == *bytes, "{index}");
        }
        fs::remove_file(copy.path().join(index)).expect("the index goes");
    }
    repair(&opened(copy.path()), &CAREFUL).expect("a repair");
    assert!(indexes.iter().map(|n| read(&copy, n)).eq(before));
    // An entry for a marker that the log has not come to would hide what is written there.
    let last = copy.names().into_iter().rfind(|n| n.ends_with(".log")).expect("a segment").replace(".log", ".txnindex");
    let whole = fs::read(copy.path().join(&last)).unwrap_or_default();
    let ahead = [7_i64, 1000, 1004, 1005].map(i64::to_be_bytes).concat();
    copy.file(&last, &[&whole[..], &[0, 0], &ahead].concat());
    assert!(findings(copy.path()) > 0);
    repair(&opened(copy.path()), &CAREFUL).expect("a repair");
    assert!(read(&copy, &last) == whole, "{last}");
    copy.file("leader-epoch-checkpoint", b"0\n9\n");
    repair(&opened(copy.path()), &CAREFUL).expect("a repair");
    // Kafka's has one more: an epoch that began at the log end, of which no batch tells.
    assert_eq!(read(&copy, "leader-epoch-checkpoint"), b"0\n2\n0 0\n2 305\n");
}

#[test]
fn a_finished_cleaning_is_finished_and_an_unfinished_one_rolled_back() {
    let dir = PartitionDir::new("t-0");
    for base in [0, 10, 20] {
        segment(&dir, base, &[batch(base), batch(base + 5)]);
    }
    let cleaned = [batch(5), batch(15)].concat();
    dir.file(&file(0, "log.swap"), &cleaned);
    dir.file(&file(0, "index.swap"), b"");
    dir.file(&file(0, "timeindex.swap"), &time_index(0, &[(T0 + 19_000, 19)]));
    dir.file(&file(10, "log.deleted"), b"x");
    dir.file(&format!("{}.cut-7", file(0, "log")), b"kept");
    let before = dir.names();
    dir.file(&file(0, "log.cleaned"), b"x");
    repair(&opened(dir.path()), &CAREFUL).expect("a repair");
    assert_eq!(read(&dir, &file(0, "log")), [batch(0), batch(5)].concat(), "while one part is not finished, none is");
    assert_eq!(dir.names().iter().filter(|n| before.contains(n)).count(), 10, "{:?}", dir.names());

    dir.file(&file(0, "log.swap"), &cleaned);
    dir.file(&file(0, "timeindex.swap"), &time_index(0, &[(T0 + 19_000, 19)]));
    repair(&opened(dir.path()), &CAREFUL).expect("a repair");
    assert_eq!(read(&dir, &file(0, "log")), cleaned);
    let segments = [0, 20].map(|base| ["index", "log", "timeindex"].map(|suffix| file(base, suffix))).concat();
    let mut wanted = [vec![format!("{}.cut-7", file(0, "log"))], segments].concat();
    wanted.sort();
    assert_eq!(dir.names(), wanted);
    assert_eq!(findings(dir.path()), 0);
}

/// Every kind of work at once: damage, a lying batch, a torn tail, stale indexes, a finished cleaning, leftovers.
fn wreck() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut damaged = [batch(10), batch(15), batch(20)].concat();
    damaged[batch(10).len() + 70] ^= 1;
    let lying = Batch { records_count: Some(1), ..Batch::plain(35, 5, T0) }.encode();
    let torn = [&batch(40)[..], &batch(45)[..50]].concat();
    files.insert(file(0, "log"), batch(0));
    files.insert(file(5, "log"), batch(5));
    files.insert(file(0, "log.swap"), Batch::plain(0, 2, T0).encode());
    files.insert(file(2, "log.swap"), Batch::plain(2, 2, T0).encode());
    files.insert(file(4, "log.swap"), batch(5));
    for (base, time, offset) in [(0, T0 + 1000, 1), (2, T0 + 1000, 3), (4, T0 + 9000, 9)] {
        files.insert(file(base, "index.swap"), Vec::new());
        files.insert(file(base, "timeindex.swap"), time_index(base, &[(time, offset)]));
    }
    files.insert(file(10, "log"), damaged);
    files.insert(file(10, "index"), offset_index(10, &[(24, 1)]));
    files.insert(file(25, "log"), [batch(25), batch(30), lying].concat());
    files.insert(file(25, "timeindex"), time_index(25, &[(T0 + 34_000, 34)]));
    files.insert(file(40, "log"), torn);
    files.insert(file(40, "index"), vec![0; 80]);
    files.insert(file(40, "timeindex"), vec![0; 120]);
    files.insert(file(3, "log.deleted"), b"x".to_vec());
    files
}

fn disk_of(files: &BTreeMap<String, Vec<u8>>) -> SimDisk {
    let disk = SimDisk::new();
    for (name, bytes) in files {
        disk.write_file(format!("t-0/{name}"), bytes);
    }
    disk
}

fn files_of(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    disk.list("t-0").into_iter().map(|name| (name.clone(), disk.read_file(format!("t-0/{name}")).expect("a file"))).collect()
}

fn repair_disk(disk: &SimDisk) -> offsetfs::error::Result<Vec<String>> {
    repair(&disk.filesystem().open_dir(Path::new("t-0")).map_err(|e| offsetfs::error::Error::io("open", "t-0", e))?, &DROP)
}

/// The bytes of all batches that must never go, wherever they are: in the log that counts, or in the one that replaces it.
fn holds(files: &BTreeMap<String, Vec<u8>>, wanted: &[u8]) -> bool {
    let logs = files.iter().filter(|(name, _)| name.ends_with(".log") || name.ends_with(".log.swap"));
    logs.into_iter().any(|(_, bytes)| bytes.windows(wanted.len()).any(|window| window == wanted))
}

#[test]
fn an_interruption_at_any_point_can_be_repeated() {
    let start = wreck();
    let disk = disk_of(&start);
    repair_disk(&disk).expect("a repair");
    let wanted = files_of(&disk);
    let operations = disk.operations();
    assert!(wanted.contains_key(&format!("{}.cut-{}", file(10, "log"), batch(10).len())) && !wanted.contains_key(&file(5, "log")));
    let small = [0, 2].map(|base| Batch::plain(base, 2, T0).encode());
    let good = [&[5, 10, 20, 25, 30, 40].map(batch)[..], &small].concat();
    let mut states = 0;
    for at in 1..=operations {
        for fault in [Fault::Io, Fault::NoSpace, Fault::Crash] {
            let struck = disk_of(&start);
            struck.fail_at(at, fault);
            let outcome = repair_disk(&struck);
            // 0: all unsynced changes are lost; 1: all are kept; else a mixture, in any order.
            for seed in 0..6 {
                let mut state = (seed * 1000 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mut choose = |options: usize| match seed {
                    0 => 0,
                    1 => options - 1,
                    _ => {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        (state >> 33) as usize % options
                    }
                };
                struck.reorder_names(seed >= 2);
                let after = if fault == Fault::Crash { struck.crash(&mut choose) } else { struck.clone() };
                let left = files_of(&after);
                for batch in &good {
                    assert!(holds(&left, batch), "operation {at}, {fault:?}, seed {seed}: a good batch is gone ({outcome:?})");
                }
                repair_disk(&after).expect("the repeated repair");
                let end = files_of(&after);
                assert!(
                    end == wanted,
                    "operation {at}, {fault:?}, seed {seed}: {:?} instead of {:?}",
                    end.keys().collect::<Vec<_>>(),
                    wanted.keys().collect::<Vec<_>>()
                );
                states += 1;
                if fault != Fault::Crash {
                    break;
                }
            }
        }
    }
    assert!(states > 300, "{states} states");
}
