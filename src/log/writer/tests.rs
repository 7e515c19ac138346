//! What the writer takes back when the disk is full, told step by step. Every operation and every crash: `tests/crash.rs`.

use super::*;
use crate::io::sim::{Fault, SimDisk};
use crate::log::encode::NewRecord;
use crate::log::prepare::prepare;
use crate::log::segment::OpenSegments;
use crate::types::TopicPartition;
use std::path::Path;

fn open(disk: &SimDisk, config: &LogConfig) -> (Arc<Partition>, Writer) {
    let directory = disk.filesystem().open_dir(Path::new("/t-0")).expect("the directory is there");
    let name = TopicPartition { topic: "t".to_owned(), partition: 0 };
    let opened = Arc::new(OpenSegments::new(10));
    let partition = Partition::open(directory, None, name, config.clone(), disk.clock(), opened, false).expect("it can be opened");
    let partition = Arc::new(partition);
    let (writer, _) = Writer::open(partition.clone()).expect("it can be written to");
    (partition, writer)
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.filesystem().create_dir(Path::new("/t-0")).expect("a new directory");
    disk
}

/// A request of records of so many bytes, each in its own batch.
fn request(config: &LogConfig, records: usize, bytes: usize) -> Prepared {
    let value = vec![b'x'; bytes];
    let record = NewRecord { timestamp: TimestampMs::new(1000), key: None, value: Some(&value), headers: &[] };
    prepare(config, TimestampMs::new(1000), &mut std::iter::repeat_n(record, records)).expect("small records")
}

fn contents(disk: &SimDisk) -> Vec<(String, Option<Vec<u8>>)> {
    disk.list("/t-0").into_iter().map(|name| (name.clone(), disk.read_file(format!("/t-0/{name}")))).collect()
}

fn config() -> LogConfig {
    LogConfig { segment_bytes: 400, batch_size: 1, index_interval_bytes: 0, segment_index_bytes: 240, ..LogConfig::default() }
}

#[test]
fn a_request_that_fails_behind_rolls_leaves_no_trace() {
    let (config, disk) = (config(), disk());
    let (partition, mut writer) = open(&disk, &config);
    assert!(matches!(writer.append(&mut [request(&config, 2, 50)]), (1, None)));
    let before = contents(&disk);
    // Every operation in turn that takes room is refused: a request of six batches begins three segments on its way.
    let mut refused = 0;
    loop {
        disk.fail_at(refused + 1, Fault::NoSpace);
        let mut group = [request(&config, 6, 80)];
        let (whole, stopped) = writer.append(&mut group);
        if stopped.is_none() {
            assert_eq!((whole, group[0].first_offset, writer.next_offset().get()), (1, Offset::new(2), 8));
            break;
        }
        assert_eq!((whole, group[0].first_offset, writer.next_offset().get(), writer.poisoned()), (0, None, 2, None));
        assert_eq!(partition.bounds().log_end.get(), 2);
        assert!(contents(&disk) == before, "operation {refused}: {:?}", disk.list("/t-0"));
        assert!(writer.take_rolled().is_empty());
        refused += 1;
    }
    assert!(refused >= 5, "{refused} operations took room");
    assert_eq!(writer.take_rolled().len(), 3);
}

#[test]
fn requests_before_the_one_that_fails_stay() {
    let (config, disk) = (config(), disk());
    let (partition, mut writer) = open(&disk, &config);
    // The first request fits the segment, the second begins another one, which is refused.
    let mut group = [request(&config, 2, 50), request(&config, 4, 80), request(&config, 1, 10)];
    disk.fail_at(2, Fault::NoSpace);
    let (whole, stopped) = writer.append(&mut group);
    assert!(matches!(&stopped, Some(Error::Io { source, .. }) if source.raw_os_error() == Some(28)), "{stopped:?}");
    assert_eq!((whole, group.each_ref().map(|r| r.first_offset)), (1, [Offset::new(0), None, None]));
    assert_eq!((writer.next_offset().get(), partition.bounds().log_end.get(), partition.layout().segments.len()), (2, 2, 1));
    assert!(matches!(writer.append(&mut group[1..]), (2, None)), "room again: the rest can be stored");
    assert_eq!((group[1].first_offset, group[2].first_offset), (Offset::new(2), Offset::new(6)));
}

#[test]
fn a_log_that_cannot_be_cut_back_takes_nothing_more() {
    let (config, disk) = (config(), disk());
    let (partition, mut writer) = open(&disk, &config);
    assert!(matches!(writer.append(&mut [request(&config, 1, 50)]), (1, None)));
    // From the write on, nothing works any more.
    disk.fail_at(1, Fault::Crash);
    assert!(matches!(writer.append(&mut [request(&config, 1, 50)]), (0, Some(Error::Io { .. }))));
    assert_eq!((writer.next_offset().get(), partition.bounds().log_end.get()), (1, 1), "readers see what was stored whole");
    assert!(matches!(writer.append(&mut [request(&config, 1, 50)]), (0, Some(Error::Poisoned { .. }))));
    assert!(matches!(writer.close(), Err(Error::Poisoned { .. })), "it was not closed well");
}

#[test]
fn half_a_segment_is_removed_where_a_roll_fails() {
    let (config, disk) = (config(), disk());
    let (_, mut writer) = open(&disk, &config);
    assert!(matches!(writer.append(&mut [request(&config, 1, 50)]), (1, None)));
    let before = contents(&disk);
    for n in 1..40 {
        disk.fail_at(n, Fault::NoSpace);
        if writer.roll_now().is_ok() {
            assert!(n > 2, "a roll takes room");
            return;
        }
        assert!(contents(&disk) == before, "operation {n}: {:?}", disk.list("/t-0"));
    }
    panic!("a roll never works");
}
