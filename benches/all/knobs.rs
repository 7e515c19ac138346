//! What a setting costs and gains: `index.interval.bytes`, `segment.bytes`, `flush.messages`, `compression.type`, each value next to the default.
//!
//! All values of a setting are measured in turn within each round; a figure is the ratio to the default of the same round, as a median with both
//! ends. Look-ups and ranges are told in the time that their thread had a processor for, appends and openings, which wait for the disk, by the clock on
//! the wall. So a machine that others use spreads the figures and does not favour one value. What is counted (bytes, files) is not measured.
//! The table goes between its two marks in README.md, the plot is `benches/knobs.svg`.

use crate::places::{BASE_MS, Random, append, letters, local, offset, value_of};
use crate::table::{median, put_between};
use offsetfs::log::compression::Codec;
use offsetfs::log::config::LogConfig;
use offsetfs::source::access::Wish;
use offsetfs::source::local::Local;
use offsetfs::source::{Maintenance, Source};
use offsetfs::types::{Offset, Patience, TimestampMs};
use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

mod plot;

/// Look-ups of one measurement.
const LOOK_UPS: usize = 20_000;

/// A measure of a setting, for each of its values.
struct Measure {
    name: &'static str,
    /// The unit of its figures.
    unit: &'static str,
    /// Whether its ratios were measured in rounds, rather than counted.
    timed: bool,
    /// For each value its figure in each round.
    figures: Vec<Vec<f64>>,
}

impl Measure {
    fn new(name: &'static str, unit: &'static str, timed: bool, values: usize) -> Measure {
        Measure { name, unit, timed, figures: vec![Vec::new(); values] }
    }

    /// The ratios of a value to the default, in order.
    fn ratios(&self, at: usize, default: usize) -> Vec<f64> {
        let mut ratios: Vec<f64> = self.figures[at].iter().zip(&self.figures[default]).map(|(ours, other)| ours / other).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    fn ratio(&self, at: usize, default: usize) -> f64 {
        median(&self.ratios(at, default))
    }

    fn cell(&self, at: usize, default: usize) -> String {
        let figure = figure_text(median(&self.figures[at]), self.unit);
        match self.ratios(at, default)[..] {
            _ if at == default => format!("**1** ({figure})"),
            [ref low, .., ref high] if self.timed => format!("**{}** ({} - {})", short(self.ratio(at, default)), short(*low), short(*high)),
            _ => format!("**{}** ({figure})", short(self.ratio(at, default))),
        }
    }
}

/// A ratio with as many digits as tell something.
fn short(ratio: f64) -> String {
    match ratio {
        ..0.01 => format!("{ratio:.4}"),
        ..0.1 => format!("{ratio:.3}"),
        10.0.. => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}

fn figure_text(figure: f64, unit: &str) -> String {
    match unit {
        "KiB" => format!("{:.0} KiB", figure / 1024.0),
        "%" => format!("{figure:.2} %"),
        "files" => format!("{figure:.0}"),
        unit => format!("{figure:.0} {unit}"),
    }
}

/// A setting, its values and what was measured.
struct Knob {
    setting: &'static str,
    /// What was written, in words.
    about: &'static str,
    values: Vec<String>,
    /// Whether the values are steps on a way, which a line shows.
    ordered: bool,
    default: usize,
    measures: Vec<Measure>,
}

pub(crate) fn run(folder: &Path, rounds: usize, into_readme: bool) {
    let knobs = [intervals(folder, rounds), segments(folder, rounds), flushes(folder, rounds), codecs(folder, rounds)];
    let table = markdown(&knobs, rounds);
    print!("{table}");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = manifest.join("target/bench");
    fs::create_dir_all(&target).expect("target/bench");
    fs::write(target.join("knobs.md"), &table).expect("target/bench can be written");
    let svg = plot::svg(&knobs);
    fs::write(target.join("knobs.svg"), &svg).expect("target/bench can be written");
    if into_readme {
        fs::write(manifest.join("benches/knobs.svg"), &svg).expect("benches can be written");
        put_between("<!-- knobs -->\n", "<!-- end of knobs -->", &table);
    }
}

fn markdown(knobs: &[Knob], rounds: usize) -> String {
    let mut out = String::new();
    for knob in knobs {
        let _ = write!(out, "\n| `{}` |", knob.setting);
        knob.measures.iter().for_each(|m| out.push_str(&format!(" {} |", m.name)));
        out.push_str("\n|---:|");
        knob.measures.iter().for_each(|_| out.push_str("---|"));
        out.push('\n');
        for (at, value) in knob.values.iter().enumerate() {
            let default = if at == knob.default { " (default)" } else { "" };
            let _ = write!(out, "| {value}{default} |");
            knob.measures.iter().for_each(|m| out.push_str(&format!(" {} |", m.cell(at, knob.default))));
            out.push('\n');
        }
        let _ = writeln!(out, "\n{}", knob.about);
    }
    let _ = writeln!(
        out,
        "\nMedians of {rounds} rounds, and the least and the largest ratio of a round. Of rates more is better, of everything else less."
    );
    out
}

/// The time that this thread has had a processor for, in nanoseconds: what others do on the machine counts less in it than in the clock on the wall.
fn processor_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds a look-up of random records.
fn look_ups(end: u64, round: usize, mut look_up: impl FnMut(u64)) -> f64 {
    let mut random = Random(0x2545_f491_4f6c_dd1d + round as u64);
    let targets: Vec<u64> = (0..LOOK_UPS).map(|_| random.next() % end).collect();
    let begin = processor_ns();
    targets.iter().for_each(|n| look_up(*n));
    (processor_ns() - begin) / LOOK_UPS as f64
}

fn by_offset(log: &Local, end: u64, round: usize) -> f64 {
    look_ups(end, round, |n| {
        black_box(value_of(log, n));
    })
}

fn by_time(log: &Local, end: u64, round: usize) -> f64 {
    look_ups(end, round, |n| {
        black_box(log.offset_at(TimestampMs::new(BASE_MS + n as i64), Patience::MayBlock).expect("readable"));
    })
}

/// A log of so many records, written in calls of so many.
fn write(source: &Path, config: &LogConfig, values: &[Vec<u8>], records: usize, a_call: usize) -> f64 {
    let _ = fs::remove_dir_all(source);
    let log = local(source, config, Wish::Writable);
    // The first call makes the files; it is not timed.
    append(&log, values, 0, a_call);
    let begin = Instant::now();
    for from in (a_call..records).step_by(a_call) {
        append(&log, values, from as i64, a_call.min(records - from));
    }
    let seconds = begin.elapsed().as_secs_f64();
    log.close().expect("closed");
    (records - a_call) as f64 / seconds
}

/// Reads all records once: look-ups of touched batches are what is compared.
fn touched(source: &Path, config: &LogConfig, end: u64) -> Local {
    let log = local(source, config, Wish::ReadOnly);
    let mut batches = log.batches(Offset::ZERO, offset(end));
    while batches.next(Patience::MayBlock).expect("a batch").is_some() {}
    drop(batches);
    log
}

fn sources(folder: &Path, values: usize) -> Vec<PathBuf> {
    (0..values).map(|at| folder.join(format!("knob-{at}"))).collect()
}

fn remove(sources: &[PathBuf]) {
    for source in sources {
        let _ = fs::remove_dir_all(source);
    }
}

fn index_bytes(source: &Path) -> f64 {
    let entries = fs::read_dir(source).expect("a folder").map(|e| e.expect("an entry"));
    let is_index = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with("index");
    entries.filter(|e| is_index(&e.file_name())).map(|e| e.metadata().expect("a file").len()).sum::<u64>() as f64
}

fn intervals(folder: &Path, rounds: usize) -> Knob {
    let settings: [u64; 6] = [256, 1024, 4096, 16_384, 65_536, 262_144];
    let (records, values) = (200_000, letters(64, 100));
    let sources = sources(folder, settings.len());
    let config = |at: usize| LogConfig { index_interval_bytes: settings[at], batch_size: 1, ..LogConfig::default() };
    let mut measures = [("look-up by offset", "ns"), ("look-up by time", "ns")]
        .map(|(name, unit)| Measure::new(name, unit, true, settings.len()))
        .into_iter()
        .collect::<Vec<_>>();
    let mut size = Measure::new("both indexes, bytes", "KiB", false, settings.len());
    let logs: Vec<Local> = sources
        .iter()
        .enumerate()
        .map(|(at, source)| {
            write(source, &config(at), &values, records, 20_000);
            size.figures[at].push(index_bytes(source));
            touched(source, &config(at), records as u64)
        })
        .collect();
    for round in 0..=rounds {
        for (at, log) in logs.iter().enumerate() {
            let figures = [by_offset(log, records as u64, round), by_time(log, records as u64, round)];
            // The first round warms.
            if round > 0 {
                measures.iter_mut().zip(figures).for_each(|(measure, figure)| measure.figures[at].push(figure));
            }
        }
    }
    drop(logs);
    remove(&sources);
    measures.push(size);
    Knob {
        setting: "index.interval.bytes",
        about: "200,000 records of 100 bytes, one a batch, so that an interval has many headers; look-ups at random.",
        values: settings.map(|n| n.to_string()).into_iter().collect::<Vec<_>>(),
        ordered: true,
        default: 2,
        measures,
    }
}

fn segments(folder: &Path, rounds: usize) -> Knob {
    let settings: [(u64, &str); 4] = [(1 << 20, "1 MiB"), (4 << 20, "4 MiB"), (16 << 20, "16 MiB"), (1 << 30, "1 GiB")];
    let (records, values) = (160_000, letters(64, 200));
    let sources = sources(folder, settings.len());
    let config = |at: usize| LogConfig { segment_bytes: settings[at].0, ..LogConfig::default() };
    let names = [("append rate", "records/s"), ("opening", "us"), ("look-up by offset", "ns"), ("look-up by time", "ns")];
    let mut measures = names.map(|(name, unit)| Measure::new(name, unit, true, settings.len())).into_iter().collect::<Vec<_>>();
    let mut files = Measure::new("segments", "files", false, settings.len());
    for round in 0..=rounds {
        for (at, source) in sources.iter().enumerate() {
            let appended = write(source, &config(at), &values, records, 20_000);
            let begin = Instant::now();
            let log = local(source, &config(at), Wish::ReadOnly);
            let opened = begin.elapsed().as_secs_f64() * 1e6;
            let segments = log.storage().expect("numbers").segments as f64;
            drop(log);
            let log = touched(source, &config(at), records as u64);
            let figures = [appended, opened, by_offset(&log, records as u64, round), by_time(&log, records as u64, round)];
            if round > 0 {
                measures.iter_mut().zip(figures).for_each(|(measure, figure)| measure.figures[at].push(figure));
                files.figures[at].push(segments);
            }
        }
    }
    remove(&sources);
    measures.push(files);
    Knob {
        setting: "segment.bytes",
        about: "160,000 records of 200 bytes in default batches, each log with all its rolls and their syncs; look-ups at random.",
        values: settings.map(|(_, name)| name.to_owned()).into_iter().collect::<Vec<_>>(),
        ordered: true,
        default: 3,
        measures,
    }
}

fn flushes(folder: &Path, rounds: usize) -> Knob {
    let settings: [(u64, &str); 5] = [(1, "1"), (10, "10"), (100, "100"), (1000, "1000"), (i64::MAX as u64, "never")];
    let values = letters(64, 100);
    let sources = sources(folder, 1);
    let mut measure = Measure::new("append rate", "records/s", true, settings.len());
    for round in 0..=rounds {
        for (at, (flush_messages, _)) in settings.iter().enumerate() {
            let config = LogConfig { flush_messages: *flush_messages, ..LogConfig::default() };
            // As many syncs as tell something, and no more than a slow disk can bear.
            let records = if *flush_messages < 10 { 300 } else { 3000 };
            let appended = write(&sources[0], &config, &values, records, 1);
            if round > 0 {
                measure.figures[at].push(appended);
            }
        }
    }
    remove(&sources);
    Knob {
        setting: "flush.messages",
        about: "One writer of records of 100 bytes, each in a call of its own, which waits for the sync that its record makes due.",
        values: settings.map(|(_, name)| name.to_owned()).into_iter().collect::<Vec<_>>(),
        ordered: true,
        default: 4,
        measures: vec![measure],
    }
}

fn codecs(folder: &Path, rounds: usize) -> Knob {
    let settings = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    // A quarter of each value repeats, as fields of real records do.
    let values: Vec<Vec<u8>> = letters(256, 96).into_iter().map(|v| [&v[..], b"{\"kind\":\"a field that repeats\"}"].concat()).collect();
    let records = 400_000;
    let sources = sources(folder, settings.len());
    let config = |at: usize| LogConfig { compression_type: settings[at], ..LogConfig::default() };
    let names = [("append rate", "records/s"), ("range rate", "MB/s"), ("look-up by offset", "ns")];
    let mut measures = names.map(|(name, unit)| Measure::new(name, unit, true, settings.len())).into_iter().collect::<Vec<_>>();
    let mut stored = Measure::new("log, bytes", "KiB", false, settings.len());
    for round in 0..=rounds {
        for (at, source) in sources.iter().enumerate() {
            let appended = write(source, &config(at), &values, records, 20_000);
            let log = touched(source, &config(at), records as u64);
            let begin = processor_ns();
            let (mut batches, mut bytes) = (log.batches(Offset::ZERO, offset(records as u64)), 0u64);
            while let Some(body) = batches.next(Patience::MayBlock).expect("a batch") {
                bytes += body.records().map(|r| r.expect("a record").value.map_or(0, |v| u64::from(v.end - v.start))).sum::<u64>();
            }
            let range = bytes as f64 * 1e3 / (processor_ns() - begin);
            let figures = [appended, range, by_offset(&log, records as u64, round)];
            if round > 0 {
                measures.iter_mut().zip(figures).for_each(|(measure, figure)| measure.figures[at].push(figure));
                stored.figures[at].push(log.storage().expect("numbers").log_bytes as f64);
            }
        }
    }
    remove(&sources);
    measures.push(stored);
    Knob {
        setting: "compression.type",
        about: "400,000 records of 128 bytes, a quarter of each repeating, in default batches; look-ups at random, in more than the cache of decoded batches holds.",
        values: settings.map(|c| c.name().to_owned()).into_iter().collect::<Vec<_>>(),
        ordered: false,
        default: 0,
        measures,
    }
}
