//! What the first append makes of a directory that was left in the middle of something: it finishes what was finished, keeps what it cannot judge, and can
//! be interrupted anywhere.

mod common;

use common::encode::{Batch, Record, indexes, time_index};
use offsetfs::error::{Error, Result};
use offsetfs::io::sim::{Fault, SimDisk};
use offsetfs::log::check::check;
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::NewRecord;
use offsetfs::log::partition::Partition;
use offsetfs::log::prepare::prepare;
use offsetfs::log::repair::{self, Options};
use offsetfs::log::seek::Found;
use offsetfs::log::segment::OpenSegments;
use offsetfs::log::walk::{Item, Look};
use offsetfs::log::writer::Writer;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{self, Local};
use offsetfs::source::{Appended, Source};
use offsetfs::types::{Offset, Patience, TimestampMs, TopicPartition};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};

const T0: i64 = 1_700_000_000_000;

type Files = BTreeMap<String, Vec<u8>>;

fn name() -> TopicPartition {
    TopicPartition { topic: "t".to_owned(), partition: 0 }
}

fn offset(number: i64) -> Offset {
    Offset::new(number).expect("not negative")
}

fn file(base: i64, suffix: &str) -> String {
    format!("{base:020}.{suffix}")
}

fn batch(base: i64) -> Vec<u8> {
    Batch::plain(base, 5, T0 + base * 1000).encode()
}

/// The files of a segment, each with what follows its usual name.
fn segment(files: &mut Files, base: i64, log: Vec<u8>, suffix: &str) {
    let (index, timeindex) = indexes(base, &log, 4096);
    for (kind, bytes) in [("log", log), ("index", index), ("timeindex", timeindex)] {
        files.insert(file(base, &format!("{kind}{suffix}")), bytes);
    }
}

fn disk_of(files: &Files) -> SimDisk {
    let disk = SimDisk::new();
    for (name, bytes) in files {
        disk.write_file(format!("t-0/{name}"), bytes);
    }
    disk
}

fn files_of(disk: &SimDisk) -> Files {
    disk.list("t-0").into_iter().map(|name| (name.clone(), disk.read_file(format!("t-0/{name}")).expect("a file"))).collect()
}

fn open(disk: &SimDisk) -> Result<Arc<Partition>> {
    let config = LogConfig { segment_index_bytes: 120, ..LogConfig::default() };
    let dir = disk.filesystem().open_dir(Path::new("t-0")).map_err(|e| Error::io("open", "t-0", e))?;
    Partition::open(dir, None, name(), config, disk.clock(), Arc::new(OpenSegments::new(100)), false).map(Arc::new)
}

/// Gets the directory ready for appends, as the first append does; the offset that the next record gets.
fn make_ready(disk: &SimDisk) -> Result<i64> {
    Writer::open(open(disk)?).map(|(writer, _)| writer.next_offset().get())
}

/// The offsets of all records that readers see, and whether they meet damage.
fn offsets(partition: &Partition) -> (Vec<i64>, bool) {
    let bounds = partition.bounds();
    let mut walk = partition.walk(bounds.log_start, bounds.log_end, Look::Batches, Patience::MayBlock);
    let (mut found, mut damaged) = (Vec::new(), false);
    while let Some(item) = walk.next(partition).expect("a walk") {
        match item {
            Item::Damaged(_) => damaged = true,
            Item::Batch(batch, file) => {
                let body = partition.body(&batch, &file, Patience::MayBlock).expect("a body");
                found.extend(body.records().map(|record| body.record(record.expect("a record")).offset().get()));
            }
        }
    }
    (found, damaged)
}

fn append(writer: &mut Writer) {
    let record = NewRecord { timestamp: TimestampMs::new(T0), key: None, value: Some(b"new"), headers: &[] };
    let request = prepare(&LogConfig::default(), record.timestamp, &mut std::iter::once(record)).expect("a small record");
    let (stored, stopped) = writer.append(&mut [request]);
    assert!(stored == 1 && stopped.is_none(), "{stopped:?}");
}

/// A finished cleaning that was not renamed yet, what it replaces, and what other interruptions left; with it the offsets that readers see.
fn finished_cleaning() -> (Files, Vec<i64>) {
    let mut files = Files::new();
    segment(&mut files, 0, batch(0), "");
    segment(&mut files, 5, batch(5), "");
    segment(&mut files, 10, batch(10), "");
    segment(&mut files, 0, Batch::plain(0, 2, T0).encode(), ".swap");
    segment(&mut files, 4, [Batch::plain(4, 1, T0 + 4000).encode(), batch(5)].concat(), ".swap");
    segment(&mut files, 2, batch(2), ".deleted");
    files.insert(file(0, "log.cut-70"), b"what was cut".to_vec());
    files.insert(file(7, "log.cut-0"), b"once more".to_vec());
    files.insert(file(5, "snapshot"), b"of a segment that goes".to_vec());
    (files, [0, 1, 4].into_iter().chain(5..15).collect())
}

/// A cleaning that had not finished: one of its replacements has its last name but one already.
fn unfinished_cleaning() -> (Files, Vec<i64>) {
    let mut files = Files::new();
    segment(&mut files, 0, batch(0), "");
    segment(&mut files, 5, batch(5), "");
    segment(&mut files, 0, Batch::plain(0, 2, T0).encode(), ".cleaned");
    segment(&mut files, 5, Batch::plain(6, 1, T0).encode(), ".swap");
    files.insert(file(5, "log.cut-9"), b"what was cut".to_vec());
    (files, (0..10).collect())
}

/// Nothing was interrupted.
fn at_rest() -> (Files, Vec<i64>) {
    let mut files = Files::new();
    segment(&mut files, 0, batch(0), "");
    segment(&mut files, 5, batch(5), "");
    segment(&mut files, 10, batch(10), "");
    (files, (0..15).collect())
}

#[test]
fn an_interrupted_cleaning_ends_as_a_broker_would_end_it() {
    for (files, wanted) in [finished_cleaning(), unfinished_cleaning()] {
        let disk = disk_of(&files);
        assert_eq!(offsets(&open(&disk).expect("a partition")), (wanted.clone(), false), "before the first append");
        make_ready(&disk).expect("a writer");
        assert_eq!(offsets(&open(&disk).expect("a partition")), (wanted, false), "and behind it");
        let after = files_of(&disk);
        for (name, bytes) in files.iter().filter(|(name, _)| name.contains(".cut-")) {
            assert_eq!(after.get(name), Some(bytes), "what was cut is kept");
        }
        let left = |suffix: &&str| after.keys().any(|name| name.ends_with(*suffix));
        assert_eq!([".swap", ".cleaned", ".deleted"].iter().find(|s| left(s)), None, "{:?}", after.keys());
        assert!(after.len() > files.len() / 3 && !after.contains_key(&file(5, "snapshot")));
    }
}

#[test]
fn readers_of_before_and_behind_agree_on_an_emptied_segment() {
    let mut files = Files::new();
    segment(&mut files, 0, batch(0), "");
    segment(&mut files, 0, Vec::new(), ".swap");
    segment(&mut files, 5, batch(5), "");
    let disk = disk_of(&files);
    assert_eq!(offsets(&open(&disk).expect("a partition")).0, (5..10).collect::<Vec<_>>());
    make_ready(&disk).expect("a writer");
    assert_eq!(offsets(&open(&disk).expect("a partition")).0, (5..10).collect::<Vec<_>>());
}

#[test]
fn wherever_it_is_interrupted_the_next_one_comes_to_the_same_end() {
    for (start, wanted_offsets) in [finished_cleaning(), unfinished_cleaning(), at_rest()] {
        let disk = disk_of(&start);
        make_ready(&disk).expect("a writer");
        let wanted = files_of(&disk);
        let operations = disk.operations();
        let mut struck = 0;
        for at in 1..=operations {
            for fault in [Fault::Io, Fault::Crash] {
                let disk = disk_of(&start);
                disk.fail_at(at, fault);
                let outcome = make_ready(&disk);
                struck += u64::from(outcome.is_err());
                let next = wanted_offsets.last().expect("some records") + 1;
                assert!(outcome.as_ref().map_or(true, |given| *given == next), "operation {at}, {fault:?}: {outcome:?}, not {next}");
                // 0: all unsynced changes are lost; 1: all are kept; else a mixture, in any order.
                for seed in 0..if fault == Fault::Crash { 6 } else { 1 } {
                    let mut state = seed * 1000 + at;
                    let mut choose = |options: usize| match seed {
                        0 => 0,
                        1 => options - 1,
                        _ => {
                            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                            (state >> 33) as usize % options
                        }
                    };
                    disk.reorder_names(seed >= 2);
                    let after = if fault == Fault::Crash { disk.crash(&mut choose) } else { disk.clone() };
                    let place = format!("operation {at}, {fault:?}, seed {seed}, {outcome:?}");
                    assert_eq!(offsets(&open(&after).expect("a partition")), (wanted_offsets.clone(), false), "{place}");
                    make_ready(&after).unwrap_or_else(|e| panic!("{place}: {e}"));
                    let end = files_of(&after);
                    let differ: Vec<_> = wanted.keys().chain(end.keys()).filter(|name| wanted.get(*name) != end.get(*name)).collect();
                    assert!(differ.is_empty(), "{place}: {differ:?}");
                }
            }
        }
        assert!(struck > operations, "nearly every operation can fail, {struck} of {operations} did");
    }
}

/// A whole batch behind the last good one whose offsets do not rise: `claimed` is its first one.
fn out_of_order(claimed: i64) -> (Files, Vec<u8>) {
    let log = [batch(0), Batch::plain(claimed, 3, T0 + 9000).encode()].concat();
    let mut files = Files::new();
    files.insert(file(0, "log"), log.clone());
    files.insert(file(0, "index"), Vec::new());
    files.insert(file(0, "timeindex"), time_index(0, &[(T0 + 4000, 4)]));
    (files, log)
}

#[test]
fn a_whole_batch_whose_offsets_do_not_rise_is_damage_and_no_torn_tail() {
    // It overlaps, it stands there twice, it lies beyond what an index can name: the offsets that it costs.
    for (claimed, last) in [(3, 5), (4, 6), (0, 7), (i64::from(i32::MAX) + 7, 7)] {
        for unclean in [false, true] {
            let (mut files, log) = out_of_order(claimed);
            if unclean {
                files.insert(file(0, "index"), vec![0; 120]);
                files.insert(file(0, "timeindex"), vec![0; 120]);
            }
            let disk = disk_of(&files);
            let looked = || {
                let partition = open(&disk).expect("a partition");
                assert!(partition.torn_tail().is_none(), "{claimed}: nothing will be cut");
                for n in 5..=last {
                    let damaged = matches!(partition.record(offset(n), Patience::MayBlock), Err(Error::Corrupt(_)));
                    assert!(damaged, "{claimed}: offset {n}");
                }
                (partition.bounds().log_end.get(), offsets(&partition))
            };
            assert_eq!(looked(), (last + 1, ((0..5).collect(), true)), "{claimed}");

            let (mut writer, _) = Writer::open(open(&disk).expect("a partition")).expect("a writer");
            append(&mut writer);
            let partition = open(&disk).expect("a partition");
            let found = partition.record(offset(last + 1), Patience::MayBlock).expect("a record");
            assert!(matches!(&found, Found::Record(record) if record.value() == Some(b"new")), "{claimed}: {found:?}");
            writer.close().expect("a clean end");
            assert_eq!(looked(), (last + 2, ((0..5).chain([last + 1]).collect(), true)), "{claimed}");
            let after = files_of(&disk);
            assert!(after[&file(0, "log")] == log, "{claimed}: the bytes stay");
            assert!(!after.keys().any(|name| name.contains(".cut-")));
        }
    }
}

#[test]
fn the_only_batch_of_a_segment_keeps_its_offsets_when_it_lost_their_base() {
    let mut files = Files::new();
    segment(&mut files, 0, batch(0), "");
    files.insert(file(5, "log"), Batch::plain(0, 3, T0).encode());
    let disk = disk_of(&files);
    let partition = open(&disk).expect("a partition");
    assert_eq!(partition.bounds().log_end, offset(8));
    let (mut writer, _) = Writer::open(partition).expect("a writer");
    append(&mut writer);
    writer.close().expect("a clean end");
    let after = files_of(&disk);
    assert!(after[&file(5, "log")] == files[&file(5, "log")] && after.contains_key(&file(8, "log")), "{:?}", after.keys());
    assert_eq!(offsets(&open(&disk).expect("a partition")), ([0, 1, 2, 3, 4, 8].to_vec(), true));
}

#[test]
fn a_write_that_was_torn_just_before_a_roll_is_a_torn_tail() {
    let torn = &batch(5)[..70];
    let mut files = Files::new();
    files.insert(file(0, "log"), [&batch(0)[..], torn].concat());
    for (base, suffix) in [(0, "index"), (0, "timeindex"), (10, "index"), (10, "timeindex")] {
        files.insert(file(base, suffix), vec![0; 120]);
    }
    files.insert(file(10, "log"), Vec::new());
    let disk = disk_of(&files);
    let (mut writer, said) = Writer::open(open(&disk).expect("a partition")).expect("a writer");
    assert_eq!(writer.next_offset(), offset(10), "what the new segment was made for is not given away");
    assert!(said.iter().any(|line| line.contains("cut")), "{said:?}");
    append(&mut writer);
    writer.close().expect("a clean end");
    let after = files_of(&disk);
    assert_eq!(after[&file(0, "log")], batch(0));
    assert_eq!(after[&format!("{}.cut-{}", file(0, "log"), batch(0).len())], torn);
    assert_eq!(offsets(&open(&disk).expect("a partition")), ([0, 1, 2, 3, 4, 10].to_vec(), false));
}

#[test]
fn the_check_the_repair_and_the_first_append_agree_on_what_is_torn() {
    let torn = [batch(0), batch(5)[..70].to_vec()].concat();
    let value = Batch::new(0, vec![Record::new(0, T0, None, Some(&batch(0)[..40]))]).encode();
    // A piece of a batch, and a whole one that was there before behind some bytes that are none.
    for (log, is_torn) in [(torn, true), ([batch(0), value].concat(), false), ([batch(0), b"no".to_vec(), batch(0)].concat(), true)] {
        let mut files = Files::new();
        files.insert(file(0, "log"), log.clone());
        let disk = disk_of(&files);
        let dir = disk.filesystem().open_dir(Path::new("t-0")).expect("the directory");
        let report = check(&dir, None, &name(), &mut |_, _| {}).expect("a report");
        let damage = report.findings.iter().any(|f| f.file == file(0, "log") && f.severity == offsetfs::log::check::Severity::Finding);
        let options = Options { drop_damaged: false, discard: false, index_interval_bytes: 4096 };
        let plan = repair::plan(&*dir, &options, &mut |_, _| {}).expect("a plan");
        let cuts = plan.steps().any(|step| step.to_string().starts_with("cut "));
        let partition = open(&disk).expect("a partition");
        let tail = partition.torn_tail().is_some();
        make_ready(&disk).expect("a writer");
        let kept = files_of(&disk).keys().any(|name| name.contains(".cut-"));
        assert_eq!((!damage, cuts, tail, kept), (is_torn, is_torn, is_torn, is_torn), "{report}");
    }
}

/// A compacted segment may reach far: an index entry names its offsets by 31 bits.
#[test]
fn an_offset_that_no_index_entry_can_name_begins_a_segment() {
    let far = i64::from(i32::MAX) - 4;
    for (base, rolls) in [(far, true), (far - 1, false)] {
        let mut files = Files::new();
        segment(&mut files, 0, [batch(0), batch(base)].concat(), "");
        let disk = disk_of(&files);
        let (mut writer, _) = Writer::open(open(&disk).expect("a partition")).expect("a writer");
        append(&mut writer);
        writer.close().expect("a clean end");
        let next = base + 5;
        assert_eq!(files_of(&disk).contains_key(&file(next, "log")), rolls, "{next}");
        let partition = open(&disk).expect("a partition");
        assert_eq!((partition.bounds().log_end.get(), partition.torn_tail().is_none()), (next + 1, true));
        assert_eq!(offsets(&partition), ((0..5).chain(base..next + 1).collect(), false), "{next}");
    }
}

#[test]
fn what_is_torn_before_a_segment_with_records_is_damage_and_stays() {
    let log = [&batch(0)[..], &batch(5)[..70]].concat();
    let mut files = Files::new();
    segment(&mut files, 10, batch(10), "");
    files.insert(file(0, "log"), log.clone());
    // The marks of an unclean stop: recovery looks at both segments.
    for (base, suffix) in [(0, "index"), (0, "timeindex"), (10, "index"), (10, "timeindex")] {
        files.insert(file(base, suffix), vec![0; 120]);
    }
    let disk = disk_of(&files);
    let seen = || offsets(&open(&disk).expect("a partition"));
    let there: Vec<i64> = (0..5).chain(10..15).collect();
    assert_eq!(seen(), (there.clone(), true));
    let (mut writer, _) = Writer::open(open(&disk).expect("a partition")).expect("a writer");
    append(&mut writer);
    writer.close().expect("a clean end");
    let after = files_of(&disk);
    assert!(after[&file(0, "log")] == log && !after.keys().any(|name| name.contains(".cut-")), "{:?}", after.keys());
    assert_eq!(seen(), (there.into_iter().chain([15]).collect(), true));
    assert!(matches!(open(&disk).expect("a partition").record(offset(7), Patience::MayBlock), Err(Error::Corrupt(_))), "it was there once");
}

#[test]
fn a_torn_tail_is_in_the_log_or_beside_it_wherever_a_crash_strikes() {
    let torn = &batch(5)[..70];
    let mut start = Files::new();
    start.insert(file(0, "log"), [&batch(0)[..], torn].concat());
    for suffix in ["index", "timeindex"] {
        start.insert(file(0, suffix), vec![0; 120]);
    }
    let calm = disk_of(&start);
    make_ready(&calm).expect("a writer");
    for at in 1..=calm.operations() {
        for seed in 0..20 {
            let disk = disk_of(&start);
            disk.fail_at(at, Fault::Crash);
            let _ = make_ready(&disk);
            // 0: all unsynced changes are lost; else some are kept.
            let mut state = seed * 1000 + at;
            let mut choose = |options: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if seed == 0 { 0 } else { (state >> 33) as usize % options }
            };
            disk.reorder_names(seed % 2 == 1);
            let after = files_of(&disk.crash(&mut choose));
            let is_kept = after.iter().any(|(name, bytes)| name.contains(".log") && bytes.ends_with(torn));
            assert!(is_kept, "operation {at}, seed {seed}: {:?}", after.keys());
        }
    }
}

/// A broker believes every `.log` beside its mark of a clean stop.
#[test]
fn a_brokers_mark_of_a_clean_stop_never_stands_beside_a_log_that_is_being_changed() {
    const MARK: &str = "data/.kafka_cleanshutdown";
    let start = || {
        let disk = SimDisk::new();
        disk.write_file("data/meta.properties", b"version=1\n");
        disk.write_file(MARK, b"{}");
        for (name, bytes) in at_rest().0 {
            disk.write_file(format!("data/t-0/{name}"), &bytes);
        }
        disk
    };
    let files = |disk: &SimDisk| -> Vec<_> {
        disk.list("data/t-0").into_iter().map(|name| (name.clone(), disk.read_file(format!("data/t-0/{name}")))).collect()
    };
    let take_over = |disk: &SimDisk| -> Result<()> {
        let options =
            local::Options { wish: Wish::TakeOver, create: false, config: LogConfig { segment_index_bytes: 120, ..LogConfig::default() } };
        let log = Local::open(&disk.filesystem(), Path::new("data/t-0"), options)?;
        let record = NewRecord { timestamp: TimestampMs::new(T0), key: None, value: Some(b"new"), headers: &[] };
        let (sender, answer) = mpsc::channel::<Result<Appended>>();
        log.append(&mut std::iter::once(record), true, Box::new(move |result| sender.send(result).expect("somebody waits")))?;
        answer.recv().expect("an answer")?;
        log.close()
    };
    let calm = start();
    let before = calm.operations();
    take_over(&calm).expect("a record");
    let (untouched, closed) = (files(&start()), files(&calm));
    assert!(calm.read_file(MARK).is_some() && closed != untouched, "it is back behind a clean close");
    for at in 1..=calm.operations() - before {
        for seed in 0..6 {
            let disk = start();
            disk.fail_at(at, Fault::Crash);
            let _ = take_over(&disk);
            let mut state = seed * 1000 + at;
            let mut choose = |options: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if seed == 0 { 0 } else { (state >> 33) as usize % options }
            };
            disk.reorder_names(seed % 2 == 1);
            let after = disk.crash(&mut choose);
            let found = files(&after);
            let is_whole = found == untouched || found == closed;
            assert!(after.read_file(MARK).is_none() || is_whole, "operation {at}, seed {seed}");
        }
    }
}

/// A failed fsync marks pages clean that the disk never got: until they are dropped, the page cache shows records that are lost.
#[test]
fn what_a_process_finds_after_a_failed_fsync_is_there_once_it_has_synced() {
    let sync = |writer: &mut Writer| -> Result<()> {
        writer.take_rolled().into_iter().try_for_each(|rolled| rolled.run())?;
        writer.active_log().sync_data().map_err(|e| Error::io("sync", "the log", e))
    };
    let first = |disk: &SimDisk, fails_at: u64, rolls: bool| -> Result<()> {
        let (mut writer, _) = Writer::open(open(disk)?)?;
        append(&mut writer);
        sync(&mut writer)?;
        append(&mut writer);
        if rolls {
            writer.roll_now()?;
            append(&mut writer);
        }
        disk.fail_at(fails_at, Fault::Io);
        sync(&mut writer)
    };
    for rolls in [false, true] {
        let mut failed = 0;
        for at in 1.. {
            let disk = SimDisk::new();
            disk.filesystem().create_dir(Path::new("t-0")).expect("a new directory");
            if first(&disk, at, rolls).is_ok() {
                break;
            }
            failed += 1;
            let (mut writer, _) = Writer::open(open(&disk).expect("a partition")).expect("the disk works again");
            append(&mut writer);
            sync(&mut writer).expect("the disk works again");
            let seen = offsets(&open(&disk).expect("a partition")).0;
            drop(writer);
            let after = disk.crash(&mut |_| 0);
            assert_eq!(offsets(&open(&after).expect("a partition")).0, seen, "operation {at}, with a roll: {rolls}");
        }
        assert!(failed > if rolls { 5 } else { 0 }, "{failed} operations failed, with a roll: {rolls}");
    }
}

#[test]
fn appended_batches_carry_the_last_epoch_of_the_checkpoint() {
    let (mut files, _) = at_rest();
    files.insert("leader-epoch-checkpoint".to_owned(), b"0\n2\n3 0\n7 5\n".to_vec());
    let disk = disk_of(&files);
    let (mut writer, _) = Writer::open(open(&disk).expect("a partition")).expect("a writer");
    append(&mut writer);
    writer.close().expect("a clean end");
    let after = files_of(&disk);
    let log = &after[&file(10, "log")];
    assert_eq!(log[batch(10).len() + 12..][..4], 7_i32.to_be_bytes(), "the partition leader epoch");
    assert_eq!(after["leader-epoch-checkpoint"], files["leader-epoch-checkpoint"]);
}

/// Whatever the clock says: a copied log keeps its shape.
#[test]
fn a_segment_is_as_old_as_the_time_between_its_records() {
    for reopened in [false, true] {
        let disk = disk_of(&Files::new());
        disk.filesystem().create_dir(Path::new("t-0")).expect("a new directory");
        let config = LogConfig { segment_ms: 1000, ..LogConfig::default() };
        let open = || {
            let dir = disk.filesystem().open_dir(Path::new("t-0")).expect("the directory");
            let opened = Arc::new(OpenSegments::new(100));
            let partition = Partition::open(dir, None, name(), config.clone(), disk.clock(), opened, false).expect("a partition");
            Writer::open(Arc::new(partition)).expect("a writer").0
        };
        let mut writer = open();
        for delta in [0, 1000, 1001, 1500] {
            let record = NewRecord { timestamp: TimestampMs::new(T0 + delta), key: None, value: Some(b"new"), headers: &[] };
            let request = prepare(&config, record.timestamp, &mut std::iter::once(record)).expect("a small record");
            assert_eq!(writer.append(&mut [request]).0, 1);
            if reopened {
                writer.close().expect("a clean end");
                disk.clock().advance(100_000);
                writer = open();
            }
        }
        let logs: Vec<_> = files_of(&disk).into_keys().filter(|name| name.ends_with(".log")).collect();
        assert_eq!(logs, [file(0, "log"), file(2, "log")], "opened anew in between: {reopened}");
    }
}
