//! What clients of one mount do to one another: writers that sync at once share the sync, and who waits for a disk holds up nobody else.

use crate::client::{Mounted, VALUE_BYTES, ask, client, latencies};
use crate::mount::fill;
use crate::table::{Bound, Side, Table, Work, median};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Synced lines of each writer.
const SYNCED: u64 = 100;
const WRITERS: u64 = 8;
/// What a sync takes, in microseconds: the time of a common disk.
const SYNC_US: u64 = 2000;
/// Lines of a pass beside readers.
const LINES: u64 = 5000;
/// Look-ups of a reader, more than it comes to meanwhile.
const READ: u64 = 100_000;
/// Records behind the mount.
const RECORDS: u64 = 5_000_000;

pub(crate) fn run(table: &mut Table, folder: &Path) {
    syncs(table, folder);
    readers(table, folder);
}

/// One writer and eight, where strace holds up each fdatasync of the daemon and counts it.
fn syncs(table: &mut Table, folder: &Path) {
    let (point, log, mut shared) = (folder.join("ours"), folder.join("strace"), Vec::new());
    for _ in 0..table.rounds.min(3) {
        let source = folder.join("synced-0");
        let _ = fs::remove_dir_all(&source);
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "--seccomp-bpf",
            "-e",
            "trace=fdatasync",
            "-e",
            &format!("inject=fdatasync:delay_enter={SYNC_US}"),
            "-o",
        ]);
        strace.arg(&log);
        let _ours = Mounted::ours_under(strace, &source, &point, "tz=UTC");
        let append = point.join("append").display().to_string();
        let writer = || ask("write", &[&append, &SYNCED, &(VALUE_BYTES as u64), &1]);
        let syncs = || fs::read_to_string(&log).expect("strace writes").lines().filter(|line| line.contains("fdatasync(")).count();
        let rate = |writers: u64, slowest: f64| Side { value: (writers * SYNCED) as f64 / slowest, work: Work::new(SYNCED, 0, 0) };
        writer();
        let seconds = |side: Side| side.value * SYNCED as f64 / 1e9;
        let one = rate(1, seconds(writer()));
        let before = syncs();
        let all = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writer)).collect();
            writers.into_iter().map(|w| seconds(w.join().expect("a writer"))).fold(0.0, f64::max)
        });
        let (fsyncs, made) = (WRITERS * SYNCED, (syncs() - before) as u64);
        table.row("fsyncs of eight writers / of one, a sync of 2 ms", "/s", Bound::AtLeast(4.0), rate(WRITERS, all), one, 0.0);
        shared.push(fsyncs as f64 / made as f64);
    }
    let (figure, most) = ("fsyncs of eight writers that share one fdatasync, a sync of 2 ms", shared.iter().copied().fold(0.0, f64::max));
    let least = shared.iter().copied().fold(f64::MAX, f64::min);
    table.fact("syncs", figure, format!("{:.2} ({least:.2} - {most:.2})", median(&shared)), Some(median(&shared) >= 4.0));
}

/// How long a line takes to append alone, beside someone who reads records that lie in memory, and beside someone whose records do not.
fn readers(table: &mut Table, folder: &Path) {
    let (source, point) = (folder.join("read-0"), folder.join("ours"));
    fill(&source, RECORDS);
    let _ours = Mounted::ours(&source, &point, "tz=UTC", false);
    let (append, records) = (point.join("append").display().to_string(), point.join("by-offset").display().to_string());
    let mut told = |beside: &str| {
        let [median, late, slowest] = latencies(&append, LINES).map(|ns| ns / 1e3);
        let value = format!("{median:.0} us, 99 of 100 below {late:.0} us, slowest {slowest:.0} us");
        table.fact("a line appended", beside, value, None);
    };
    told("alone");
    for (beside, is_cold) in [("beside a reader of warm records", false), ("beside a reader of records that lie on the disk only", true)] {
        let _ = Command::new("sync").status();
        if is_cold && fs::write("/proc/sys/vm/drop_caches", "1").is_err() {
            return table.fact("a line appended", beside, "not measured: drop_caches takes root", None);
        }
        let mut reader =
            client("cold", &[&records, &READ, &RECORDS, &(7 + u64::from(is_cold))]).stdout(Stdio::null()).spawn().expect("a reader");
        // It has its names ready by then.
        thread::sleep(Duration::from_millis(100));
        told(beside);
        let still_read = reader.try_wait().expect("a child").is_none();
        reader.kill().and_then(|()| reader.wait()).expect("it ends");
        assert!(still_read, "the reader reads for as long as the writer writes");
    }
}
