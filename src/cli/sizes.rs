//! `offsetfs stat --sizes`: record and batch sizes, and what `index.interval.bytes` costs and gains on this log.

use super::options::Options;
use super::targets::{self, Target, targets, with_bar};
use super::tree::output;
use super::{Exit, Failure, Outcome, SourceArgs};
use crate::io::FileSystem;
use crate::io::os::OsFileSystem;
use crate::log::sizes::{Distribution, IntervalCost, Sizes};
use crate::source::access::Wish;
use crate::source::{Maintenance, Storage};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;

/// The largest bar of a distribution has so many blocks.
const BLOCKS: u64 = 40;
/// What is told of each distribution beside its ends and its mean.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// Reads each partition and prints what was counted, as text or as an object a line.
pub(super) fn run(args: &SourceArgs, as_json: bool) -> Outcome {
    let typed = Options::parse(&args.options).map_err(|e| Failure::new(Exit::Usage, e))?;
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    for target in targets(&fs, &args.source)? {
        let local = targets::open(&fs, &target, Wish::ReadOnly, &typed.settings)?;
        let interval = local.partition().config().index_interval_bytes;
        let mut intervals = vec![interval / 2, interval, interval * 2];
        intervals.dedup();
        let sizes = with_bar(&target, |progress| local.partition().sizes(&intervals, progress));
        let (sizes, storage) = (sizes?, local.storage()?);
        let mut out = io::BufWriter::new(io::stdout().lock());
        output(if as_json {
            writeln!(out, "{}", object(&target, interval, &sizes, &storage))
        } else {
            print(&mut out, &target, interval, &sizes, &storage)
        })?;
        output(out.flush())?;
    }
    Ok(Exit::Done)
}

fn print(out: &mut impl Write, target: &Target, interval: u64, sizes: &Sizes, storage: &Storage) -> io::Result<()> {
    let (batches, records) = (sizes.batch_bytes.count(), sizes.record_bytes.count());
    writeln!(out, "{}", target.label())?;
    writeln!(out, "segments: {}", sizes.segments)?;
    writeln!(out, "batches: {batches}, {} of them control batches; {} bytes", sizes.control_batches, sizes.bytes)?;
    writeln!(out, "records: {records}")?;
    if sizes.unreadable > 0 {
        writeln!(out, "left out, because they cannot be read: {} (offsetfs check tells which)", sizes.unreadable)?;
    }
    let rows = [("record, bytes", &sizes.record_bytes), ("batch, bytes", &sizes.batch_bytes), ("batch, records", &sizes.batch_records)];
    writeln!(out, "\n{:16}{:>10}{:>12}{:>10}{:>10}{:>10}{:>12}", "", "least", "mean", "p50", "p90", "p99", "largest")?;
    for (name, numbers) in rows {
        write!(out, "{name:16}{:>10}{:>12.1}", numbers.least(), numbers.mean())?;
        for (_, share) in QUANTILES {
            write!(out, "{:>10}", numbers.quantile(share))?;
        }
        writeln!(out, "{:>12}", numbers.largest())?;
    }
    for (name, numbers) in rows {
        bars(out, name, numbers)?;
    }
    let (entries, log) = (storage.offset_index_entries, storage.log_bytes);
    match entries {
        0 => writeln!(out, "\nthe index files have no entries")?,
        _ => writeln!(out, "\nthe index files have {entries} entries, one for {:.0} bytes of log", per(log, entries))?,
    }
    writeln!(out, "index.interval.bytes={interval} is in force; a log written with")?;
    let headings = ["interval", "entries", "log/entry", "index, bytes", "of log", "headers read", "(most)", "bytes passed", "(most)"];
    for heading in headings {
        write!(out, "{heading:>13}")?;
    }
    writeln!(out)?;
    for cost in &sizes.intervals {
        let of_log = format!("{:.3} %", per(cost.index_bytes(), sizes.bytes) * 100.0);
        write!(out, "{:>13}{:>13}{:>13.0}", cost.interval_bytes, cost.offset_entries, per(sizes.bytes, cost.offset_entries))?;
        write!(out, "{:>13}{of_log:>13}{:>13.2}{:>13}", cost.index_bytes(), cost.headers_mean, cost.headers_most)?;
        writeln!(out, "{:>13.0}{:>13}", cost.passed_mean, cost.passed_most)?;
    }
    if let Some(now) = sizes.intervals.iter().find(|c| c.interval_bytes == interval) {
        for other in sizes.intervals.iter().filter(|c| c.interval_bytes != interval) {
            writeln!(out, "{}", compared(now, other))?;
        }
    }
    Ok(())
}

fn bars(out: &mut impl Write, name: &str, numbers: &Distribution) -> io::Result<()> {
    let powers = numbers.powers();
    let most = powers.iter().map(|(_, _, count)| *count).max().unwrap_or(0);
    if most > 0 {
        writeln!(out, "\n{name}")?;
    }
    for (from, to, count) in powers {
        let blocks = (u128::from(count) * u128::from(BLOCKS)).div_ceil(u128::from(most)) as usize;
        let range = if from == to { from.to_string() } else { format!("{from} to {to}") };
        writeln!(out, "{range:>24} {:>6.2} % {}", per(count, numbers.count()) * 100.0, "#".repeat(blocks))?;
    }
    Ok(())
}

/// What another interval would cost and gain, in words.
fn compared(now: &IntervalCost, other: &IntervalCost) -> String {
    let name = if other.interval_bytes < now.interval_bytes { "half" } else { "twice" };
    let bytes = i128::from(other.index_bytes()) - i128::from(now.index_bytes());
    let headers = other.headers_mean - now.headers_mean;
    let change = |difference: f64, of: f64| if of == 0.0 { String::new() } else { format!(" ({:+.0} %)", difference / of * 100.0) };
    if bytes == 0 && headers == 0.0 {
        return format!("{name} the interval ({}) changes nothing on this log", other.interval_bytes);
    }
    format!(
        "{name} the interval ({}): {bytes:+} bytes of index{}, {headers:+.2} headers a look-up{}",
        other.interval_bytes,
        change(bytes as f64, now.index_bytes() as f64),
        change(headers, now.headers_mean),
    )
}

fn per(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

fn object(target: &Target, interval: u64, sizes: &Sizes, storage: &Storage) -> Value {
    let intervals = sizes.intervals.iter().map(|cost| {
        json!({
            "interval_bytes": cost.interval_bytes,
            "offset_entries": cost.offset_entries,
            "time_entries": cost.time_entries,
            "index_bytes": cost.index_bytes(),
            "log_bytes_per_entry": per(sizes.bytes, cost.offset_entries),
            "headers_read_mean": cost.headers_mean,
            "headers_read_most": cost.headers_most,
            "bytes_passed_mean": cost.passed_mean,
            "bytes_passed_most": cost.passed_most,
        })
    });
    json!({
        "topic": target.name.topic,
        "partition": target.name.partition,
        "segments": sizes.segments,
        "bytes": sizes.bytes,
        "batches": sizes.batch_bytes.count(),
        "control_batches": sizes.control_batches,
        "records": sizes.record_bytes.count(),
        "unreadable": sizes.unreadable,
        "record_bytes": distribution(&sizes.record_bytes),
        "batch_bytes": distribution(&sizes.batch_bytes),
        "batch_records": distribution(&sizes.batch_records),
        "index": {
            "interval_bytes": interval,
            "offset_entries": storage.offset_index_entries,
            "time_entries": storage.time_index_entries,
            "log_bytes_per_entry": per(storage.log_bytes, storage.offset_index_entries),
        },
        "intervals": intervals.collect::<Vec<_>>(),
    })
}

fn distribution(numbers: &Distribution) -> Value {
    let powers = numbers.powers();
    let mut object = json!({
        "count": numbers.count(),
        "least": numbers.least(),
        "mean": numbers.mean(),
        "largest": numbers.largest(),
        "distribution": powers.iter().map(|(from, to, count)| json!({"from": from, "to": to, "count": count})).collect::<Vec<_>>(),
    });
    for (name, share) in QUANTILES {
        object[name] = json!(numbers.quantile(share));
    }
    object
}
