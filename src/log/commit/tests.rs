//! Many threads at one log: groups, order, syncs, and what a failed sync does to all that wait.

use super::*;
use crate::io::sim::{Fault, SimDisk};
use crate::log::config::LogConfig;
use crate::log::encode::NewRecord;
use crate::log::prepare::prepare;
use crate::log::seek::Found;
use crate::log::segment::OpenSegments;
use crate::types::{Patience, TimestampMs, TopicPartition};
use std::path::Path;
use std::sync::mpsc;

fn partition(disk: &SimDisk, config: LogConfig) -> Arc<Partition> {
    let directory = disk.filesystem().open_dir(Path::new("/t-0")).expect("the directory is there");
    let name = TopicPartition { topic: "t".to_owned(), partition: 0 };
    let opened = Arc::new(OpenSegments::new(10));
    Arc::new(Partition::open(directory, None, name, config, disk.clock(), opened, false).expect("it can be opened"))
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.filesystem().create_dir(Path::new("/t-0")).expect("a new directory");
    disk
}

fn request(partition: &Partition, values: &[String]) -> Prepared {
    let time = TimestampMs::new(1000);
    let mut records = values.iter().map(|v| NewRecord { timestamp: time, key: None, value: Some(v.as_bytes()), headers: &[] });
    prepare(partition.config(), time, &mut records).expect("small records")
}

fn value_at(partition: &Partition, offset: Offset) -> String {
    match partition.record(offset, Patience::MayBlock).expect("a look-up") {
        Found::Record(record) => String::from_utf8(record.value().expect("a value").to_vec()).expect("text"),
        Found::Absent(absent) => panic!("{offset}: {absent:?}"),
    }
}

#[test]
fn appends_of_many_threads_are_whole_in_order_and_there_when_they_are_answered() {
    let disk = disk();
    let config = LogConfig { segment_bytes: 3000, batch_size: 200, ..LogConfig::default() };
    let partition = partition(&disk, config.clone());
    let committer = Committer::new(partition.clone(), None).expect("threads");
    const THREADS: usize = 8;
    const REQUESTS: usize = 60;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (partition, committer) = (&partition, &committer);
            scope.spawn(move || {
                let mut behind = 0;
                for number in 0..REQUESTS {
                    let values: Vec<String> = (0..1 + number % 4).map(|part| format!("{thread}/{number}/{part}")).collect();
                    let appended = committer.append_and_wait(request(partition, &values), number % 5 == 0).expect("an append");
                    assert_eq!(appended.records, values.len() as u64);
                    assert!(appended.first.get() >= behind, "a thread's requests stand in its order");
                    behind = appended.first.get() + values.len() as i64;
                    for (value, offset) in values.iter().zip(appended.first.get()..) {
                        assert_eq!(&value_at(partition, Offset::new(offset).expect("not negative")), value);
                    }
                }
            });
        }
    });
    let records = THREADS * (0..REQUESTS).map(|number| 1 + number % 4).sum::<usize>();
    assert_eq!(partition.bounds().log_end.get(), records as i64, "every record once");
    committer.close().expect("a clean close");
    assert!(matches!(committer.append_and_wait(request(&partition, &["late".to_owned()]), false), Err(Error::Closed)));
    // What was closed well survives the loss of everything that was not synced.
    let after = disk.crash(&mut |_| 0);
    let reopened = self::partition(&after, config);
    assert_eq!((reopened.bounds().log_end.get(), reopened.unclean_from()), (records as i64, None));
}

#[test]
fn a_durable_append_survives_the_loss_of_all_that_was_not_synced() {
    let disk = disk();
    let config = LogConfig { segment_bytes: 500, ..LogConfig::default() };
    let partition = partition(&disk, config.clone());
    let committer = Committer::new(partition.clone(), None).expect("threads");
    for number in 0..40 {
        let appended = committer.append_and_wait(request(&partition, &[format!("value {number}")]), number % 3 == 0).expect("an append");
        if number % 3 == 0 {
            let after = self::partition(&disk.crash(&mut |_| 0), config.clone());
            assert!(after.bounds().log_end > appended.first, "{number}");
            assert_eq!(value_at(&after, appended.first), format!("value {number}"));
        }
    }
}

#[test]
fn what_was_made_durable_survives_the_loss_of_all_that_was_not_synced() {
    let disk = disk();
    let config = LogConfig { segment_bytes: 200, ..LogConfig::default() };
    let partition = partition(&disk, config.clone());
    let committer = Committer::new(partition.clone(), None).expect("threads");
    for number in 0..40 {
        committer.append_and_wait(request(&partition, &[format!("value {number}")]), false).expect("an append");
        let durable = committer.make_durable().expect("nothing fails");
        let after = self::partition(&disk.crash(&mut |_| 0), config.clone());
        assert!(durable == partition.layout().segments.last().expect("a segment").base_offset(), "{number}");
        assert_eq!(after.bounds().log_end.get(), number + 1, "what the active segment holds is durable, too");
    }
    assert!(partition.layout().segments.len() > 10);
    committer.append_and_wait(request(&partition, &["unsynced".to_owned()]), false).expect("an append");
    disk.fail_at(1, Fault::Io);
    assert!(matches!(committer.make_durable(), Err(Error::Io { .. })));
    assert!(matches!(committer.make_durable(), Err(Error::Poisoned { .. })));
}

#[test]
fn a_failed_sync_answers_all_that_wait_and_ends_appending() {
    let disk = disk();
    let partition = partition(&disk, LogConfig::default());
    let committer = Committer::new(partition.clone(), None).expect("threads");
    committer.append_and_wait(request(&partition, &["kept".to_owned()]), true).expect("an append");
    committer.append_and_wait(request(&partition, &["unsynced".to_owned()]), false).expect("an append");
    disk.fail_at(1, Fault::Io);
    let (sender, receiver) = mpsc::channel();
    committer.sync(Box::new(move |result| sender.send(result).expect("somebody waits")));
    assert!(matches!(receiver.recv().expect("an answer"), Err(Error::Io { .. })), "who waited is told what the system said");
    // The kernel may have dropped what it could not write: a sync that would work now proves nothing.
    for durable in [false, true] {
        let refused = committer.append_and_wait(request(&partition, &["never".to_owned()]), durable);
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    }
    assert!(committer.poisoned().is_some());
    assert_eq!((partition.bounds().log_end.get(), value_at(&partition, Offset::ZERO)), (2, "kept".to_owned()), "reading goes on");
    assert!(matches!(committer.close(), Err(Error::Poisoned { .. })), "it was not closed well");
    assert!(!committer.take_said().is_empty());
}

#[test]
fn a_sync_behind_a_close_is_answered_by_the_close() {
    for fails in [false, true] {
        let disk = disk();
        let partition = partition(&disk, LogConfig::default());
        let committer = Committer::new(partition.clone(), None).expect("threads");
        committer.append_and_wait(request(&partition, &["unsynced".to_owned()]), false).expect("an append");
        if fails {
            disk.fail_at(1, Fault::Io);
        }
        assert_eq!(committer.close().is_err(), fails);
        let (sender, receiver) = mpsc::channel();
        committer.sync(Box::new(move |result| sender.send(result).expect("somebody waits")));
        let answer = receiver.recv_timeout(Duration::from_secs(60)).expect("an answer");
        assert_eq!(matches!(answer, Err(Error::Poisoned { .. })), fails, "{answer:?}");
    }
}

#[test]
fn an_opening_that_fails_is_tried_again_by_the_next_append() {
    let disk = disk();
    let partition = partition(&disk, LogConfig::default());
    let committer = Committer::new(partition.clone(), None).expect("threads");
    disk.fail_at(1, Fault::NoSpace);
    let refused = committer.append_and_wait(request(&partition, &["first".to_owned()]), false);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    let appended = committer.append_and_wait(request(&partition, &["second".to_owned()]), true).expect("room again");
    assert_eq!((appended.first, value_at(&partition, Offset::ZERO)), (Offset::ZERO, "second".to_owned()));
    committer.close().expect("a clean close");
}
