//! Others that do the same work: Kafka's dump tool, which is fetched as the tests do that ask Kafka. Asked for by name only.

use crate::places::{LOG, append, letters, local};
use crate::table::{Bound, Side, Table, Work};
use offsetfs::log::config::LogConfig;
use offsetfs::source::Source;
use offsetfs::source::access::Wish;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

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
            let ours =
                side(lines(Command::new(env!("CARGO_BIN_EXE_offsetfs")).arg("dump").arg("--print-data-log").arg(&file), "| offset:"));
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
