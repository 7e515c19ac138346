//! The logs commitlog and mrecordlog, asked to do what the benches of offsetfs do.
//!
//! `offsetfs-peers FOLDER VALUES VALUE_BYTES PER_BATCH BATCHES COUNT`: the file VALUES has values of VALUE_BYTES bytes, one behind the other, which
//! are appended in turn, PER_BATCH a call, BATCHES times; then COUNT of them are looked up at random. Each line of the output is a figure: its name,
//! a tab, its value, and what was done (how many, bytes, a sum), with a tab before each.
//!
//! Both keep their defaults, but for segments so large that nothing rolls and syncs so rare that none happens: what is measured is the same work.

use commitlog::message::{MessageBuf, MessageSet};
use commitlog::{CommitLog, LogOptions, ReadLimit};
use mrecordlog::{MultiRecordLog, SyncPolicy};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that commitlog puts before a value.
const COMMITLOG_HEADER: usize = 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, values, numbers @ ..] = &arguments[..] else { panic!("FOLDER VALUES VALUE_BYTES PER_BATCH BATCHES COUNT") };
    let numbers: Vec<usize> = numbers.iter().map(|n| n.parse().expect("a number")).collect();
    let [value_bytes, per_batch, batches, count] = numbers[..] else { panic!("VALUE_BYTES PER_BATCH BATCHES COUNT") };
    let bytes = fs::read(values).expect("the values");
    let values: Vec<&[u8]> = bytes.chunks_exact(value_bytes).collect();
    let plan = Plan { values, per_batch, batches };
    // The first pass touches memory and code.
    for is_measured in [false, true] {
        in_folder(folder, |place| commitlog(place, &plan, if is_measured { count } else { 0 }));
        in_folder(folder, |place| mrecordlog(place, &plan, is_measured));
    }
}

struct Plan<'v> {
    values: Vec<&'v [u8]>,
    per_batch: usize,
    batches: usize,
}

impl Plan<'_> {
    /// The values of each call, as the benches take them: each call begins with the first value.
    fn call(&self, n: usize) -> impl Iterator<Item = &[u8]> {
        // The engine is given 64 batches a call, whose values follow one another.
        let from = n % 64 * self.per_batch;
        (from..from + self.per_batch).map(|i| self.values[i % self.values.len()])
    }

    fn records(&self) -> usize {
        self.per_batch * self.batches
    }
}

/// What was read back: its count, bytes and CRC.
#[derive(Default)]
struct Sum(u64, u64, u32);

impl Sum {
    fn add(&mut self, value: &[u8]) {
        *self = Sum(self.0 + 1, self.1 + value.len() as u64, crc32c::crc32c_append(self.2, value));
    }
}

fn told(figure: &str, value: f64, count: u64, bytes: u64, sum: u64) {
    println!("{figure}\t{value}\t{count}\t{bytes}\t{sum}");
}

fn in_folder(folder: &str, work: impl FnOnce(&Path)) {
    let place = Path::new(folder).join("peer");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("a folder");
    work(&place);
    fs::remove_dir_all(&place).expect("it goes");
}

/// MB/s of values since a moment.
fn rate(plan: &Plan<'_>, begin: Instant) -> f64 {
    (plan.records() * plan.values[0].len()) as f64 / 1e6 / begin.elapsed().as_secs_f64()
}

fn commitlog(place: &Path, plan: &Plan<'_>, look_ups: usize) {
    let mut options = LogOptions::new(place);
    options.segment_max_bytes(2 << 30);
    let mut log = CommitLog::new(options).expect("a log");
    let mut messages = MessageBuf::default();
    let begin = Instant::now();
    for n in 0..plan.batches {
        messages.clear();
        plan.call(n).for_each(|value| messages.push(value).expect("room"));
        log.append(&mut messages).expect("appended");
    }
    let append = rate(plan, begin);
    if look_ups == 0 {
        return;
    }
    let (mut sum, mut at) = (Sum::default(), 0u64);
    while at < plan.records() as u64 {
        for message in log.read(at, ReadLimit::max_bytes(1 << 20)).expect("readable").iter() {
            sum.add(message.payload());
            at = message.offset() + 1;
        }
    }
    told("commitlog append", append, sum.0, sum.1, sum.2.into());
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let targets: Vec<u64> = (0..look_ups).map(|_| next(&mut random) % plan.records() as u64).collect();
    let limit = plan.values[0].len() + COMMITLOG_HEADER;
    let pass = || {
        let begin = Instant::now();
        let mut sum = 0u64;
        for target in &targets {
            let read = log.read(*target, ReadLimit::max_bytes(limit)).expect("readable");
            let message = read.iter().next().expect("a message");
            assert_eq!(message.offset(), *target);
            sum = sum.wrapping_add(message.payload().len() as u64 + u64::from(message.payload()[0]));
        }
        (begin.elapsed().as_nanos() as f64 / look_ups as f64, sum)
    };
    pass();
    let (value, sum) = pass();
    told("commitlog value", value, look_ups as u64, 0, sum);
}

/// The numbers of the benches, in the same order.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Looking up is not asked: it keeps all records in memory and reads no file for it.
fn mrecordlog(place: &Path, plan: &Plan<'_>, is_measured: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let never = SyncPolicy::OnDelay(Duration::from_secs(3600));
        let mut log = MultiRecordLog::open_with_prefs(place, never).await.expect("a log");
        log.create_queue("queue").await.expect("a queue");
        let begin = Instant::now();
        for n in 0..plan.batches {
            log.append_records("queue", None, plan.call(n)).await.expect("appended");
        }
        let append = rate(plan, begin);
        if is_measured {
            let mut sum = Sum::default();
            log.range("queue", ..).expect("readable").for_each(|(_, value)| sum.add(&value));
            told("mrecordlog append", append, sum.0, sum.1, sum.2.into());
        }
    });
}
