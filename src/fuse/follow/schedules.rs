//! Parked reads and the bell under a scheduler that tries the orders of their threads. Time stands still there: only the bell tells of a record, and
//! a wake-up that is lost is somebody who waits for ever.

use super::*;
use crate::error::Error;
use crate::io::sim::SimDisk;
use crate::log::config::LogConfig;
use crate::log::encode::NewRecord;
use crate::source::Source;
use crate::source::local::{self, Local};
use crate::types::{Offset, TimestampMs};
use crate::view::path::Lines;
use crate::view::time::Zone;
use crate::view::{Options, Span, View};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::mpsc;
use shuttle::{Config, Runner};
use std::path::Path;

/// So many schedules of each kind are tried where nobody asks for more.
const SCHEDULES: usize = 1_000;

fn in_many_orders(test: impl Fn() + Send + Sync + 'static) {
    let asked = std::env::var("OFFSETFS_SCHEDULES").ok().map(|text| text.parse().expect("OFFSETFS_SCHEDULES is a number"));
    let count = asked.unwrap_or(SCHEDULES);
    fn run(scheduler: impl Scheduler + 'static, test: Arc<impl Fn() + Send + Sync + 'static>) {
        let mut config = Config::new();
        config.stack_size = 512 << 10;
        Runner::new(scheduler, config).run(move || test());
    }
    let test = Arc::new(test);
    run(RandomScheduler::new(count), test.clone());
    run(PctScheduler::new(3, count), test);
}

/// A reply that a test waits for.
#[derive(Debug)]
struct Told(mpsc::Sender<Result<Vec<u8>, i32>>);

impl Fail for Told {
    fn fail(self, errno: Errno) {
        self.late(errno);
    }
}

impl Answer for Told {
    fn bytes(self, bytes: &[u8]) {
        self.0.send(Ok(bytes.to_vec())).expect("who reads waits");
    }

    fn late(self, errno: Errno) {
        self.0.send(Err(i32::from(errno))).expect("who reads waits");
    }
}

fn log() -> Arc<dyn Source> {
    let disk = SimDisk::new();
    let config = LogConfig { segment_bytes: 200, ..LogConfig::default() };
    let options = local::Options { create: true, config, ..local::Options::default() };
    let fs: Arc<dyn crate::io::FileSystem> = disk.filesystem();
    Arc::new(Local::open(&fs, Path::new("/t-0"), options).expect("a partition"))
}

fn follower(source: &Arc<dyn Source>) -> Arc<Follower> {
    let view = View::new(source.clone(), Options { zone: Zone::utc(), ..Options::default() });
    Arc::new(Follower::new(1, view.follow(Span { from: Offset::ZERO, until: Offset::MAX, lines: Lines::Values })))
}

/// Appends a line, and rings when it is answered, as the mount does.
fn append(source: &Arc<dyn Source>, line: &str, bell: &Bell<Told>) {
    let record = NewRecord { timestamp: TimestampMs::new(1000), key: None, value: Some(line.as_bytes()), headers: &[] };
    let (sender, receiver) = mpsc::channel();
    let bell = bell.clone();
    let done = Box::new(move |answer: Result<_, Error>| {
        sender.send(answer.map(drop)).expect("who appended waits");
        bell.ring();
    });
    source.append(&mut std::iter::once(record), false, done).expect("a record");
    receiver.recv().expect("an answer").expect("an append");
}

/// Reads as a process does: what there is, else parked until there is something.
fn read(waiters: &Waiters<Told>, follower: &Arc<Follower>) -> Result<Vec<u8>, i32> {
    let mut buffer = [0; 20];
    match follower.read(&mut buffer, Patience::MayBlock) {
        Ok(0) | Err(Failure::WouldBlock) => {}
        Ok(n) => return Ok(buffer[..n].to_vec()),
        Err(Failure::Errno(errno)) => return Err(i32::from(errno)),
    }
    let (sender, receiver) = mpsc::channel();
    waiters.park(follower.clone(), buffer.len(), 0, Told(sender));
    receiver.recv().expect("every read is answered")
}

#[test]
fn every_parked_read_gets_what_an_append_rings_for() {
    in_many_orders(|| {
        const LINES: usize = 3;
        let expected: String = (0..LINES).map(|number| format!("line {number}\n")).collect();
        let source = log();
        let waiters = Arc::new(Waiters::<Told>::new().expect("a thread"));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (waiters, follower, expected) = (waiters.clone(), follower(&source), expected.clone());
                thread::spawn(move || {
                    let mut got = Vec::new();
                    while got.len() < expected.len() {
                        got.extend(read(&waiters, &follower).expect("nothing is damaged"));
                        assert!(expected.as_bytes().starts_with(&got), "{}", got.escape_ascii());
                    }
                })
            })
            .collect();
        for number in 0..LINES {
            append(&source, &format!("line {number}"), &waiters.bell());
        }
        for reader in readers {
            reader.join().expect("no panic");
        }
        source.close().expect("a clean close");
    });
}

#[test]
fn the_end_of_the_mount_answers_every_parked_read() {
    in_many_orders(|| {
        let source = log();
        let waiters = Arc::new(Waiters::<Told>::new().expect("a thread"));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (waiters, follower) = (waiters.clone(), follower(&source));
                thread::spawn(move || {
                    loop {
                        match read(&waiters, &follower) {
                            Ok(bytes) => assert_eq!(bytes, b"line\n"),
                            Err(errno) => return assert_eq!(errno, libc::ENOTCONN),
                        }
                    }
                })
            })
            .collect();
        append(&source, "line", &waiters.bell());
        waiters.close();
        for reader in readers {
            reader.join().expect("no panic");
        }
        source.close().expect("a clean close");
    });
}
