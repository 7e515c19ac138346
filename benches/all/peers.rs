//! Others that do the same work: Kafka's own log layer and its dump tool (fetched as the tests do that ask Kafka), commitlog and mrecordlog (built from
//! `benches/peers`). Asked for by name only: `cargo bench --bench all -- peers`.

use crate::bare;
use crate::inside::{BATCHES_A_CALL, LookUps, SETS, Set, calls, fill, ours_appends, pin, range, recovery, to_batch, to_offset, to_value};
use crate::places::{LOG, append, built, letters, local, number};
use crate::table::{Bound, Side, Table, Work};
use offsetfs::log::batch::{BatchHeader, Step};
use offsetfs::log::config::LogConfig;
use offsetfs::log::record::Records;
use offsetfs::source::Source;
use offsetfs::source::access::Wish;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Look-ups of each kind.
const COUNT: usize = 20_000;

/// Runs a command to its end; seconds to its first line and to its end, and how many of its lines begin like this.
fn lines(command: &mut Command, start: &str) -> (f64, f64, u64) {
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("it can be started");
    let mut out = BufReader::with_capacity(1 << 20, child.stdout.take().expect("its output"));
    let (mut first, mut count, mut line) = (None, 0, Vec::new());
    loop {
        line.clear();
        if out.read_until(b'\n', &mut line).expect("its output") == 0 {
            break;
        }
        first.get_or_insert_with(|| begin.elapsed().as_secs_f64());
        count += u64::from(line.starts_with(start.as_bytes()));
    }
    assert!(child.wait().expect("it ends").success(), "{command:?}");
    (first.unwrap_or(f64::NAN), begin.elapsed().as_secs_f64(), count)
}

pub(crate) fn run(table: &mut Table, folder: &Path) {
    dumps(table, folder);
    pin();
    let logs = built("peers").join("offsetfs-peers");
    for set in &SETS {
        let source = folder.join(format!("{}-0", set.name));
        fill(&source, set, number("OFFSETFS_BENCH_MIB", 256) << 20);
        let values = folder.join("values");
        fs::write(&values, set.values().concat()).expect("the values");
        for _ in 0..table.rounds.min(3) {
            if set.per_batch > 1 {
                appends(table, set, folder, &values, &logs);
            }
            reads(table, set, folder, &source);
        }
        let _ = fs::remove_dir_all(&source);
    }
}

/// The figures that a peer prints, by name.
fn told(command: &mut Command) -> HashMap<String, Side> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("it runs");
    assert!(output.status.success(), "{command:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    let side = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        let [name, value, count, bytes, sum] = words[..] else { panic!("{line:?}") };
        let whole = |word: &str| word.parse().expect("a number");
        (name.to_owned(), Side { value: value.parse().expect("a figure"), work: Work::new(whole(count), whole(bytes), whole(sum)) })
    };
    said.lines().map(side).collect()
}

fn kafka(arguments: &[&dyn std::fmt::Display]) -> HashMap<String, Side> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("bash");
    command.arg(root.join("tests/kafka/kafka.sh")).arg("run").arg(root.join("benches/peers/Peer.java")).env("KAFKA_HEAP", "2g");
    told(command.args(arguments.iter().map(|a| a.to_string())))
}

/// From values to bytes in the page cache, with a checksum. No side syncs. How many batches go into a write is each side's own affair.
fn appends(table: &mut Table, set: &Set, folder: &Path, values: &Path, logs: &Path) {
    let ours = ours_appends(set, folder);
    let stored = fs::read(folder.join("append-0").join(LOG)).expect("what was written");
    let (mut count, mut bytes, mut sum) = (0, 0, 0);
    for batch in bare::batches(&stored) {
        let Ok(Step::Batch(header)) = BatchHeader::read(batch, 0) else { panic!("a batch") };
        for record in Records::in_batch(&header, batch) {
            let value = record.expect("a record").value.expect("a value");
            let value = &batch[value.start as usize..value.end as usize];
            (count, bytes, sum) = (count + 1, bytes + value.len() as u64, crc32c::crc32c_append(sum, value));
        }
    }
    let ours = Side { work: Work::new(count, bytes, u64::from(sum)), ..ours };
    let batches = calls(set) * BATCHES_A_CALL;
    let others =
        told(Command::new(logs).arg(folder).arg(values).args([set.value_bytes, set.per_batch, batches, COUNT].map(|n| n.to_string())));
    let kafka = kafka(&[&"append", &folder.display(), &values.display(), &set.value_bytes, &set.per_batch, &batches]);
    for (name, side) in [
        ("Kafka's log layer", kafka["kafka append"]),
        ("commitlog", others["commitlog append"]),
        ("mrecordlog", others["mrecordlog append"]),
    ] {
        table.row(&format!("{}: append / {name}", set.name), "MB/s", Bound::AtLeast(1.0), ours, side, 0.0);
    }
    // The same values at the same offsets in a log of ours.
    let log = local(&folder.join("append-0"), &set.config(), Wish::ReadOnly);
    let look_ups = LookUps::new(count as i64, COUNT);
    let value = look_ups.time(&mut |n| to_value(&log, n));
    table.row(&format!("{}: offset -> value / commitlog", set.name), "ns", Bound::AtMost(1.0), value, others["commitlog value"], 0.0);
}

/// What Kafka's own log layer reads of a copy of the same directory.
fn reads(table: &mut Table, set: &Set, folder: &Path, source: &Path) {
    let log = local(source, &set.config(), Wish::ReadOnly);
    let end = log.partition().bounds().log_end.get();
    let look_ups = LookUps::new(end, COUNT);
    let stored = fs::metadata(source.join(LOG)).expect("the log").len();
    let index = fs::read(source.join(LOG).with_extension("index")).expect("an index");
    let batch = look_ups.time(&mut |n| to_batch(&log, n));
    let value = look_ups.time(&mut |n| to_value(&log, n));
    let time = look_ups.time(&mut |n| to_offset(&log, n));
    let range = range(&log, false);
    let recovery = Side { work: Work::new(0, stored, 0), ..recovery(source, &index) };
    drop(log);
    let copy = folder.join("copy").join(source.file_name().expect("a name"));
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir_all(&copy).expect("a folder");
    for suffix in ["log", "index", "timeindex"] {
        let file = Path::new(LOG).with_extension(suffix);
        fs::copy(source.join(&file), copy.join(&file)).expect("a copy");
    }
    let kafka = kafka(&[&"read", &copy.display(), &COUNT]);
    let mut row = |what: &str, unit, bound, ours, name: &str| {
        table.row(&format!("{}: {what} / Kafka's log layer", set.name), unit, bound, ours, kafka[name], 0.0);
    };
    row("offset -> batch", "ns", Bound::AtMost(1.0), batch, "kafka batch");
    row("offset -> value", "ns", Bound::AtMost(1.0), value, "kafka value");
    row("time -> offset", "ns", Bound::AtMost(1.0), time, "kafka time");
    row("range of values, CRC verified", "MB/s", Bound::AtLeast(1.0), range, "kafka range");
    row("recovery scan", "MB/s", Bound::AtLeast(1.0), recovery, "kafka recover");
    fs::remove_dir_all(folder.join("copy")).expect("it goes");
}

fn dumps(table: &mut Table, folder: &Path) {
    let source = folder.join("dumped-0");
    let kafka = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/kafka.sh");
    for (name, bytes, records) in [("1k", 1024, 200_000i64), ("100", 100, 1_000_000)] {
        let _ = fs::remove_dir_all(&source);
        let config = LogConfig { batch_size: 64 << 10, ..LogConfig::default() };
        let log = local(&source, &config, Wish::Writable);
        let values = letters(256, bytes);
        (0..records / 20_000).for_each(|n| append(&log, &values, n * 20_000, 20_000));
        log.close().expect("closed");
        let file = source.join(LOG);
        let stored = fs::metadata(&file).expect("the log").len();
        for _ in 0..table.rounds.min(3) {
            let side = |(first, all, count): (f64, f64, u64)| {
                assert_eq!(count, records as u64, "a line a record");
                let work = Work::new(count, stored, 0);
                (Side { value: first * 1e3, work }, Side { value: stored as f64 / 1e6 / all, work })
            };
            let ours = side(lines(Command::new(env!("CARGO_BIN_EXE_offsetfs")).arg("dump").arg(&file), "| offset:"));
            let theirs = side(lines(Command::new("bash").arg(&kafka).arg("dump").arg(&file), "| offset:"));
            table.row(&format!("{name}: dump / Kafka's dump tool"), "MB/s", Bound::AtLeast(8.0), ours.1, theirs.1, 0.0);
            table.row(&format!("{name}: first line of dump"), "ms", Bound::AtMost(5.0 / 130.0), ours.0, theirs.0, 0.0);
            let mut cat = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
            cat.arg("cat").arg(&source).arg("by-offset/earliest..latest.jsonl");
            let json = side(lines(&mut cat, "{"));
            table.row(&format!("{name}: lines of a range as JSON / of the dump tool"), "MB/s", Bound::AtLeast(8.0), json.1, theirs.1, 0.0);
        }
    }
    let _ = fs::remove_dir_all(&source);
}
