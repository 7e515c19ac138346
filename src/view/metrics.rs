//! The file `metrics`: counters and gauges in the text format of Prometheus, and the counters of requests that whoever serves the tree keeps.
//!
//! Counting a request takes no lock and no memory. Latencies are kept in buckets whose bounds are powers of two nanoseconds, so that finding
//! the bucket is counting leading zeros.

use crate::source::{Counters, Storage, batches_known_and_computed};
use crate::types::TopicPartition;
use crate::view::error::ErrorKind;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is asked of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the request of its name")]
pub enum Request {
    Lookup,
    Forget,
    Getattr,
    Setattr,
    Readlink,
    Open,
    Read,
    Write,
    Flush,
    Fsync,
    Release,
    Readdir,
    Readdirplus,
    Statfs,
    Getxattr,
    Listxattr,
    Poll,
    Create,
    Unlink,
    Rename,
}

impl Request {
    /// All of them, in the order of their declaration.
    pub const ALL: [Request; 20] = [
        Request::Lookup,
        Request::Forget,
        Request::Getattr,
        Request::Setattr,
        Request::Readlink,
        Request::Open,
        Request::Read,
        Request::Write,
        Request::Flush,
        Request::Fsync,
        Request::Release,
        Request::Readdir,
        Request::Readdirplus,
        Request::Statfs,
        Request::Getxattr,
        Request::Listxattr,
        Request::Poll,
        Request::Create,
        Request::Unlink,
        Request::Rename,
    ];

    /// Its name in `metrics` and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Request::Lookup => "lookup",
            Request::Forget => "forget",
            Request::Getattr => "getattr",
            Request::Setattr => "setattr",
            Request::Readlink => "readlink",
            Request::Open => "open",
            Request::Read => "read",
            Request::Write => "write",
            Request::Flush => "flush",
            Request::Fsync => "fsync",
            Request::Release => "release",
            Request::Readdir => "readdir",
            Request::Readdirplus => "readdirplus",
            Request::Statfs => "statfs",
            Request::Getxattr => "getxattr",
            Request::Listxattr => "listxattr",
            Request::Poll => "poll",
            Request::Create => "create",
            Request::Unlink => "unlink",
            Request::Rename => "rename",
        }
    }
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With what it asked for.
    Done,
    /// With a refusal or fault of a kind that the tree knows.
    Refused(ErrorKind),
    /// With another error.
    Other,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Outcome::Done => "ok",
            Outcome::Refused(kind) => kind.name(),
            Outcome::Other => "other",
        }
    }
}

/// The bound of the first bucket is 2 to the power of this, in nanoseconds: a microsecond.
const FIRST_BOUND_LOG2: u32 = 10;
/// The bound of the last bucket that has one: a second.
const LAST_BOUND_LOG2: u32 = 30;
/// Buckets of latencies, the last of which has no bound.
const BUCKETS: usize = (LAST_BOUND_LOG2 - FIRST_BOUND_LOG2) as usize + 2;
/// Kinds of errors, and all other errors.
const ERRORS: usize = ErrorKind::ALL.len() + 1;
/// The counters of one kind of request: buckets, the sum of latencies in nanoseconds, errors.
const SUM: usize = BUCKETS;
const FIRST_ERROR: usize = SUM + 1;
const PER_REQUEST: usize = FIRST_ERROR + ERRORS;
/// The bytes that were read stand behind the counters of requests.
const READ_BYTES: usize = PER_REQUEST * Request::ALL.len();

/// What was asked of a tree, how it was answered and how long that took.
#[derive(Debug, Default)]
pub struct RequestCounters {
    counters: Counters<{ READ_BYTES + 1 }>,
}

impl RequestCounters {
    /// Counts a request that was answered after so many nanoseconds.
    #[inline]
    pub fn answered(&self, request: Request, outcome: Outcome, nanoseconds: u64) {
        let first = request as usize * PER_REQUEST;
        self.counters.add(first + bucket(nanoseconds), 1);
        self.counters.add(first + SUM, nanoseconds);
        let error = match outcome {
            Outcome::Done => return,
            Outcome::Refused(kind) => kind as usize,
            Outcome::Other => ERRORS - 1,
        };
        self.counters.add(first + FIRST_ERROR + error, 1);
    }

    /// Counts bytes that a read was answered with.
    #[inline]
    pub fn read(&self, bytes: u64) {
        self.counters.add(READ_BYTES, bytes);
    }

    /// The counters in the format of `metrics`.
    pub fn text(&self) -> String {
        exposition(Some(self), &[])
    }

    fn get(&self, request: Request, counter: usize) -> u64 {
        self.counters.get(request as usize * PER_REQUEST + counter)
    }
}

/// The bucket of a latency: the first whose bound is not below it.
#[inline]
fn bucket(nanoseconds: u64) -> usize {
    let log2 = u64::BITS - nanoseconds.saturating_sub(1).leading_zeros();
    (log2.clamp(FIRST_BOUND_LOG2, LAST_BOUND_LOG2 + 1) - FIRST_BOUND_LOG2) as usize
}

/// What was appended through a tree.
#[derive(Debug, Default)]
pub(crate) struct AppendCounters {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl AppendCounters {
    pub(crate) fn appended(&self, records: u64, bytes: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What a partition looks like at one moment.
#[derive(Debug)]
pub(crate) struct Sample {
    labels: String,
    log_start_offset: i64,
    log_end_offset: i64,
    appended_records: u64,
    appended_bytes: u64,
    storage: Option<Storage>,
}

impl Sample {
    pub(crate) fn new(name: &TopicPartition, bounds: crate::source::Bounds, appended: &AppendCounters, storage: Option<Storage>) -> Sample {
        Sample {
            labels: format!("{{topic=\"{}\",partition=\"{}\"}}", label_value(&name.topic), name.partition),
            log_start_offset: bounds.log_start.get(),
            log_end_offset: bounds.log_end.get(),
            appended_records: appended.records.load(Ordering::Relaxed),
            appended_bytes: appended.bytes.load(Ordering::Relaxed),
            storage,
        }
    }
}

/// A text between the quotes of a label.
fn label_value(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            // The format has no escape for the others, and a terminal must not see them.
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// A family of metrics that each partition has one of.
type Family = (&'static str, &'static str, &'static str, fn(&Sample) -> Option<String>);

fn stored(sample: &Sample, of: fn(&Storage) -> u64) -> Option<String> {
    sample.storage.as_ref().map(|storage| of(storage).to_string())
}

const FAMILIES: &[Family] = &[
    ("offsetfs_log_start_offset", "gauge", "The first offset that can be read.", |s| Some(s.log_start_offset.to_string())),
    ("offsetfs_log_end_offset", "gauge", "The offset that the next record gets.", |s| Some(s.log_end_offset.to_string())),
    ("offsetfs_log_segments", "gauge", "Segments.", |s| stored(s, |g| g.segments)),
    ("offsetfs_log_open_segments", "gauge", "Segments whose files are open.", |s| stored(s, |g| g.open_segments)),
    ("offsetfs_log_bytes", "gauge", "Bytes of all .log files.", |s| stored(s, |g| g.log_bytes)),
    ("offsetfs_offset_index_entries", "gauge", "Entries of all offset indexes.", |s| stored(s, |g| g.offset_index_entries)),
    ("offsetfs_time_index_entries", "gauge", "Entries of all time indexes.", |s| stored(s, |g| g.time_index_entries)),
    ("offsetfs_log_bytes_per_offset_index_entry", "gauge", "Bytes of log behind each entry of an offset index.", |s| {
        let storage = s.storage.as_ref().filter(|g| g.offset_index_entries > 0)?;
        Some((storage.log_bytes / storage.offset_index_entries).to_string())
    }),
    ("offsetfs_appended_records_total", "counter", "Records appended through this tree.", |s| Some(s.appended_records.to_string())),
    ("offsetfs_appended_bytes_total", "counter", "Bytes of the writes to append files that were taken.", |s| {
        Some(s.appended_bytes.to_string())
    }),
    ("offsetfs_log_syncs_total", "counter", "Syncs of the active segment; one serves all who wait.", |s| stored(s, |g| g.syncs)),
    ("offsetfs_decoded_batches_hits_total", "counter", "Compressed batches found decoded.", |s| stored(s, |g| g.decoded.hits)),
    ("offsetfs_decoded_batches_misses_total", "counter", "Compressed batches that had to be decoded.", |s| stored(s, |g| g.decoded.misses)),
    ("offsetfs_decoded_batches_bytes", "gauge", "Bytes of decoded batches that are kept.", |s| stored(s, |g| g.decoded.bytes)),
];

/// `metrics`: the requests of the whole tree, where they are asked for, and the partitions.
pub(crate) fn exposition(requests: Option<&RequestCounters>, samples: &[Sample]) -> String {
    let mut text = String::new();
    if let Some(requests) = requests {
        request_families(&mut text, requests);
        let (known, computed) = batches_known_and_computed();
        head(&mut text, "offsetfs_verified_batches_hits_total", "counter", "Batches that were known to be right.");
        let _ = writeln!(text, "offsetfs_verified_batches_hits_total {known}");
        head(&mut text, "offsetfs_verified_batches_misses_total", "counter", "Batches whose CRC was computed.");
        let _ = writeln!(text, "offsetfs_verified_batches_misses_total {computed}");
    }
    for (name, kind, help, value) in FAMILIES {
        let values: Vec<(&str, String)> = samples.iter().filter_map(|s| Some((s.labels.as_str(), value(s)?))).collect();
        if !values.is_empty() {
            head(&mut text, name, kind, help);
        }
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn request_families(text: &mut String, requests: &RequestCounters) {
    let name = "offsetfs_requests_total";
    head(text, name, "counter", "Requests by what they ask for and how they were answered.");
    for request in Request::ALL {
        let all: u64 = (0..BUCKETS).map(|n| requests.get(request, n)).sum();
        let errors: Vec<u64> = (0..ERRORS).map(|n| requests.get(request, FIRST_ERROR + n)).collect();
        let mut line = |outcome: Outcome, n: u64| {
            let _ = writeln!(text, "{name}{{request=\"{}\",result=\"{}\"}} {n}", request.name(), outcome.name());
        };
        // A request that is counted at this moment may have its error, but not its place among all of them.
        line(Outcome::Done, all.saturating_sub(errors.iter().sum()));
        let outcomes = ErrorKind::ALL.map(Outcome::Refused).into_iter().chain([Outcome::Other]);
        outcomes.zip(errors).filter(|(_, n)| *n > 0).for_each(|(outcome, n)| line(outcome, n));
    }
    let name = "offsetfs_request_duration_seconds";
    head(text, name, "histogram", "How long requests took until their answer, by what they ask for.");
    for request in Request::ALL {
        let label = request.name();
        let mut count = 0;
        for n in 0..BUCKETS {
            count += requests.get(request, n);
            let bound = match FIRST_BOUND_LOG2 + n as u32 {
                log2 if log2 <= LAST_BOUND_LOG2 => seconds(1 << log2),
                _ => "+Inf".to_owned(),
            };
            let _ = writeln!(text, "{name}_bucket{{request=\"{label}\",le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(text, "{name}_sum{{request=\"{label}\"}} {}", seconds(requests.get(request, SUM)));
        let _ = writeln!(text, "{name}_count{{request=\"{label}\"}} {count}");
    }
    let name = "offsetfs_read_bytes_total";
    head(text, name, "counter", "Bytes that reads were answered with.");
    let _ = writeln!(text, "{name} {}", requests.counters.get(READ_BYTES));
}

/// Nanoseconds as seconds, exactly.
fn seconds(nanoseconds: u64) -> String {
    let text = format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_where_their_kinds_say() {
        assert!(Request::ALL.iter().enumerate().all(|(n, request)| *request as usize == n));
        assert!(ErrorKind::ALL.iter().enumerate().all(|(n, kind)| *kind as usize == n));
    }

    #[test]
    fn a_latency_is_in_the_first_bucket_whose_bound_is_not_below_it() {
        for (nanoseconds, of) in [
            (0, 0),
            (1, 0),
            (1024, 0),
            (1025, 1),
            (2048, 1),
            (2049, 2),
            (1 << 30, BUCKETS - 2),
            ((1 << 30) + 1, BUCKETS - 1),
            (u64::MAX, BUCKETS - 1),
        ] {
            assert_eq!(bucket(nanoseconds), of, "{nanoseconds}");
        }
    }

    #[test]
    fn seconds_are_exact() {
        for (nanoseconds, text) in [(0, "0"), (1024, "0.000001024"), (1_500_000_000, "1.5"), (20_000_000_000, "20")] {
            assert_eq!(seconds(nanoseconds), text);
        }
    }

    #[test]
    fn what_was_counted_is_shown() {
        let requests = RequestCounters::default();
        requests.answered(Request::Read, Outcome::Done, 1500);
        requests.answered(Request::Read, Outcome::Refused(ErrorKind::Access), 3_000_000_000);
        requests.read(4096);
        let text = requests.text();
        for line in [
            "offsetfs_requests_total{request=\"read\",result=\"ok\"} 1",
            "offsetfs_requests_total{request=\"read\",result=\"EACCES\"} 1",
            "offsetfs_request_duration_seconds_bucket{request=\"read\",le=\"0.000001024\"} 0",
            "offsetfs_request_duration_seconds_bucket{request=\"read\",le=\"0.000002048\"} 1",
            "offsetfs_request_duration_seconds_bucket{request=\"read\",le=\"1.073741824\"} 1",
            "offsetfs_request_duration_seconds_bucket{request=\"read\",le=\"+Inf\"} 2",
            "offsetfs_request_duration_seconds_sum{request=\"read\"} 3.0000015",
            "offsetfs_request_duration_seconds_count{request=\"read\"} 2",
            "offsetfs_read_bytes_total 4096",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }
}
