//! The mount next to the null file system: what a request costs that cannot be avoided, and what we add. Values have 100 bytes, all the same.

use crate::client::{Mounted, VALUE_BYTES, aligned, ask};
use crate::places::{LOG, Random, append, local, number, view};
use crate::table::{Bound, Table};
use offsetfs::log::config::LogConfig;
use offsetfs::source::Source;
use offsetfs::source::access::Wish;
use offsetfs::types::Patience;
use offsetfs::view::{Framing, Node, View};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Look-ups of a round, and writes of a line.
const COUNT: u64 = 20_000;
/// Synced writes of a round.
const SYNCED: u64 = 200;
/// A mount costs no more than the null file system and the work itself, but for this.
const MOUNT: Bound = Bound::AtMost(1.15);

pub(crate) fn run(table: &mut Table, folder: &Path) {
    let records = number("OFFSETFS_BENCH_RECORDS", 10_000_000);
    let source = folder.join("mounted-0");
    fill(&source, records);
    let reads = view(&source, Wish::ReadOnly);
    let range_end = 1_000_000.min(records);
    let range = format!("by-offset/0..{range_end}");
    // What the null file system serves: the bytes of the real range, and a file as long as the real segment.
    let real = folder.join("real");
    fs::create_dir_all(&real).expect("a folder");
    copy(&reads, range.as_bytes(), &real.join("range"));
    let segment = folder.join("sealed-0");
    fill(&segment, range_end);
    fs::copy(segment.join(LOG), real.join("segment")).expect("a copy");
    let places = Places { source: &source, segment: &segment, folder, range: &range, records };
    for round in 0..table.rounds {
        self::round(table, &places, &reads, 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(round as u64 + 1));
    }
    listings(table, &places);
    drop(reads);
    for name in ["mounted-0", "sealed-0", "real"] {
        let _ = fs::remove_dir_all(folder.join(name));
    }
}

struct Places<'p> {
    source: &'p Path,
    segment: &'p Path,
    folder: &'p Path,
    range: &'p str,
    records: u64,
}

fn round(table: &mut Table, p: &Places<'_>, reads: &View, seed: u64) {
    let (ours_at, null_at, fresh) = (p.folder.join("ours"), p.folder.join("null"), p.folder.join("fresh-0"));
    {
        let _ours = Mounted::ours(p.source, &ours_at, "tz=UTC", true);
        let _null = Mounted::null(&p.folder.join("real"), &null_at);
        let cold = |at: &Path, seed: u64| ask("cold", &[&at.join("by-offset").display(), &COUNT, &p.records, &seed]);
        // A first pass touches batches, so that their CRC is checked: the row is about the mount.
        cold(&ours_at, seed);
        let seed = seed ^ 0x5555;
        let beside = look_ups(reads, p.records, seed);
        table.row("cold open + read + close of by-offset/N", "ns", MOUNT, cold(&ours_at, seed), cold(&null_at, seed), beside);
        let again = |at: &Path| ask("again", &[&at.join("by-offset/77").display(), &COUNT]);
        table.row("the same name again, kernel-cached", "ns", MOUNT, again(&ours_at), again(&null_at), 0.0);
        let piece = 128 << 10;
        let sequential = |path: &Path, piece: u64| ask("sequential", &[&path.display(), &piece]);
        let (ours, null) = (sequential(&ours_at.join(p.range), piece), sequential(&null_at.join("range"), piece));
        table.row("range of values", "ns/B", MOUNT, ours, null, time_reads(reads, p.range));
    }
    {
        let _null = Mounted::null(&p.folder.join("real"), &null_at);
        let sequential = |path: &Path| ask("sequential", &[&path.display(), &(1 << 20)]);
        let native = || sequential(&p.segment.join(LOG));
        let ours = Mounted::ours(p.segment, &ours_at, "tz=UTC,ro", true);
        let raw = ours_at.join("segments").join(LOG);
        table.row("segments/*.log / the file itself", "ns/B", Bound::AtMost(1.0 / 0.95), sequential(&raw), native(), 0.0);
        let decoded = ours_at.join("decoded").join(LOG.replace(".log", ".txt"));
        let (mine, theirs) =
            (ask("sequential", &[&decoded.display(), &(128 << 10)]), ask("sequential", &[&null_at.join("range").display(), &(128 << 10)]));
        let beside = time_reads(&view(p.segment, Wish::ReadOnly), p.range);
        table.row("decoded/*.txt", "ns/B", MOUNT, mine, theirs, beside);
        drop(ours);
        let _ours = Mounted::ours(p.segment, &ours_at, "tz=UTC,ro,passthrough=off", true);
        let (mine, theirs) = (sequential(&raw), sequential(&null_at.join("segment")));
        table.row("segments/*.log without passthrough", "ns/B", Bound::AtMost(1.0 / 0.9), mine, theirs, 0.0);
    }
    let _ = fs::remove_dir_all(&fresh);
    let _ours = Mounted::ours(&fresh, &ours_at, "tz=UTC", true);
    let _null = Mounted::null(&p.folder.join("real"), &null_at);
    for (figure, bytes, count) in
        [("write of one 100-byte line", VALUE_BYTES as u64, COUNT), ("write of 128 KiB of lines", 1310 * VALUE_BYTES as u64, 1000)]
    {
        let write = |at: &Path| ask("write", &[&at.join("append").display(), &count, &bytes, &0]);
        write(&ours_at);
        let beside = appends(&p.folder.join("inside-0"), count, bytes);
        table.row(figure, "ns", MOUNT, write(&ours_at), write(&null_at), beside);
    }
    let synced = |file: &Path, bytes: u64, how: u64| {
        let write = |times: u64| ask("write", &[&file.display(), &times, &bytes, &how]);
        // What the rows before have written is made durable first: it is none of this row's work.
        write(1);
        write(SYNCED)
    };
    // As many bytes as a batch of one line has, and fdatasync, from the CPU of the daemon: another one is nearer to the disk's interrupts, or farther off.
    let plain = p.folder.join("plain");
    File::create(&plain).expect("a file");
    let beside = synced(&plain, (61 + VALUE_BYTES + 9) as u64, 2).value;
    let (ours, null) = [&ours_at, &null_at].map(|at| synced(&at.join("append"), VALUE_BYTES as u64, 1)).into();
    table.row("a line and its fsync, one writer", "ns", Bound::AtMost(1.0 / 0.8), ours, null, beside);
}

/// What is listed: no other side, bounds of its own.
fn listings(table: &mut Table, p: &Places<'_>) {
    let point = p.folder.join("ours");
    {
        let ours = Mounted::ours(p.source, &point, "tz=UTC", false);
        let before = ours.resident_kib();
        let at = point.join("by-offset");
        let first = ask("list", &[&at.display(), &10]).value;
        let bound = Some(first < 0.1);
        table.fact("listing", format!("first 10 names of {} records", p.records), format!("{:.1} ms", first * 1e3), bound);
        let all = ask("list", &[&at.display(), &u64::MAX]);
        let rate = all.work.count as f64 / all.value;
        let name = format!("names a second of {} records", p.records);
        table.fact("listing", name, format!("{:.2} million", rate / 1e6), Some(rate >= 1e6));
        let grown = ours.resident_kib().saturating_sub(before);
        table.fact("memory", format!("the daemon, after listing {} names", p.records), format!("+{grown} KiB"), Some(grown <= 32 << 10));
    }
    let short = p.folder.join("listed-0");
    fill(&short, 100_000);
    let _ours = Mounted::ours(&short, &point, "tz=UTC", false);
    let begin = Instant::now();
    let listed = Command::new("ls").args(["-l"]).arg(point.join("by-offset")).stdout(Stdio::piped()).output().expect("ls");
    let seconds = begin.elapsed().as_secs_f64();
    assert_eq!(listed.stdout.iter().filter(|b| **b == b'\n').count(), 100_003, "every name has its line");
    table.fact("listing", "ls -l of 100,000 records", format!("{seconds:.2} s"), Some(seconds <= 2.0));
    let _ = fs::remove_dir_all(&short);
}

/// Appends `records` values of 100 bytes, in batches as a producer sends them.
pub(crate) fn fill(source: &Path, records: u64) {
    let log = local(source, &LogConfig::default(), Wish::Writable);
    let values = [vec![b'x'; VALUE_BYTES]];
    let mut from = 0;
    while from < records {
        let count = (records - from).min(100_000);
        append(&log, &values, from as i64, count as usize);
        from += count;
    }
    log.close().expect("closed");
}

fn copy(view: &View, name: &[u8], to: &Path) {
    let node = view.resolve(name, Patience::MayBlock).expect("a range");
    let reader = view.open(&node, Patience::MayBlock).expect("opened");
    let (mut file, mut piece, mut at) = (File::create(to).expect("a copy"), vec![0; 1 << 20], 0);
    loop {
        match reader.read(at, &mut piece, Patience::MayBlock).expect("bytes") {
            0 => break,
            n => {
                file.write_all(&piece[..n]).expect("written");
                at += n as u64;
            }
        }
    }
    // Read once, so that it lies in memory.
    std::io::copy(&mut File::open(to).expect("the copy").take(u64::MAX), &mut std::io::sink()).expect("read");
}

/// The same work in process: what LOOKUP, OPEN and READ ask of the view.
fn look_ups(view: &View, records: u64, seed: u64) -> f64 {
    let mut random = Random(seed | 1);
    let names: Vec<String> = (0..COUNT).map(|_| (random.next() % records).to_string()).collect();
    let mut buffer = [0; VALUE_BYTES];
    let mut run = || {
        let begin = Instant::now();
        for name in &names {
            let (node, attr) = view.lookup_with_attr(&Node::ByOffset, name.as_bytes(), Patience::MayBlock).expect("a record");
            black_box(attr);
            let Node::Record(offset, face) = node else { panic!("{node:?}") };
            black_box(view.open_record(offset, Patience::MayBlock).expect("opened"));
            assert_eq!(view.read_record(offset, face, 0, &mut buffer, Patience::MayBlock).expect("its value"), VALUE_BYTES);
        }
        begin.elapsed().as_nanos() as f64 / COUNT as f64
    };
    run();
    run()
}

fn time_reads(view: &View, name: &str) -> f64 {
    let node = view.resolve(name.as_bytes(), Patience::MayBlock).expect("a range");
    let mut piece = aligned(128 << 10);
    let mut run = || {
        let reader = view.open(&node, Patience::MayBlock).expect("opened");
        let (begin, mut at) = (Instant::now(), 0u64);
        loop {
            match reader.read(at, piece.get_mut(), Patience::MayBlock).expect("bytes") {
                0 => return begin.elapsed().as_nanos() as f64 / at as f64,
                n => at += n as u64,
            }
        }
    };
    run();
    run()
}

fn appends(source: &Path, count: u64, bytes: u64) -> f64 {
    let _ = fs::remove_dir_all(source);
    let view = view(source, Wish::Writable);
    let appender = view.appender(Framing::Lines).expect("an appender");
    let line: Vec<u8> = [vec![b'a'; VALUE_BYTES - 1], vec![b'\n']].concat();
    let data = line.repeat((bytes as usize).div_ceil(VALUE_BYTES));
    let write = || {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        appender.write(&data[..bytes as usize], false, Box::new(move |result| sender.send(result).expect("somebody waits")));
        receiver.recv().expect("an answer").expect("appended");
    };
    (0..count.min(1000)).for_each(|_| write());
    let begin = Instant::now();
    (0..count).for_each(|_| write());
    let elapsed = begin.elapsed().as_nanos() as f64 / count as f64;
    view.close().expect("closed");
    let _ = fs::remove_dir_all(source);
    elapsed
}
