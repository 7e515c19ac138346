//! What becomes of things when they are shown: the texts of the tree, and the JSON line of a record.

use crate::source::{ControlType, Record, Source, Status, control_type};
use crate::types::{TimestampMs, TopicPartition};
use crate::view::envelope::{Envelope, write_line};
use crate::view::journal::escaped;
use crate::view::time::{Zone, rfc3339};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// `status.json`: one object. `commands` are the last ones that `ctl` has carried out.
pub(crate) fn status_json(source: &dyn Source, status: &Status, commands: &[String]) -> Map<String, Value> {
    let time = |t: Option<TimestampMs>| t.map_or(Value::Null, |t| json!(t.get()));
    let name = source.name();
    let members = json!({
        "topic": name.topic,
        "partition": name.partition,
        "mode": if source.read_only().is_some() { "ro" } else { "rw" },
        "mode_reason": source.read_only(),
        "log_start_offset": status.log_start_offset,
        "log_end_offset": status.log_end_offset,
        "last_stable_offset": status.last_stable_offset,
        "segments": status.segments,
        "bytes": status.bytes,
        "records": Value::Null,
        "first_timestamp_ms": time(status.first_timestamp),
        "last_timestamp_ms": time(status.last_timestamp),
        "open_transactions": status.open_transactions.iter()
            .map(|t| json!({"producer_id": t.producer_id, "first_offset": t.first.get()})).collect::<Vec<_>>(),
        "leader_epoch": status.leader_epoch,
        "recovery": status.recovery.iter()
            .map(|r| json!({"file": r.file, "position": r.position, "bytes": r.bytes, "what": r.what})).collect::<Vec<_>>(),
        "recovered": status.recovered,
        "retention": status.retention.map(|r| json!({
            "segments": r.segments, "bytes": r.bytes, "log_start_offset": r.log_start.get(), "automatic": r.automatic
        })),
        "commands": commands,
        "warnings": status.warnings,
    });
    match members {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// `status`: the members of `status.json` in their order, a line each.
pub(crate) fn status_text(status: &Map<String, Value>, zone: &Zone) -> String {
    let mut text = String::new();
    for (name, value) in status {
        let shown = match value {
            Value::Null => "-".to_owned(),
            Value::String(s) => escaped(s),
            Value::Number(n) if name.ends_with("_timestamp_ms") => match n.as_i64() {
                Some(ms) => format!("{ms} ({})", rfc3339(TimestampMs::new(ms), zone)),
                None => n.to_string(),
            },
            Value::Array(items) if items.is_empty() => "-".to_owned(),
            Value::Array(items) => {
                for item in items {
                    let _ = writeln!(text, "{name}: {}", one_line(item));
                }
                continue;
            }
            Value::Object(_) => one_line(value),
            other => other.to_string(),
        };
        let _ = writeln!(text, "{name}: {shown}");
    }
    text
}

fn one_line(item: &Value) -> String {
    match item {
        Value::String(s) => escaped(s),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match value {
                Value::String(s) => format!("{name} {}", escaped(s)),
                other => format!("{name} {other}"),
            })
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    }
}

/// `README`: the grammar on one screen, with the mount's own zone and mode.
pub(crate) fn readme(source: &dyn Source, zone: &Zone) -> String {
    let name = source.name();
    let mode = source.read_only().map_or("read-write".to_owned(), |reason| format!("read-only: {reason}"));
    format!(
        "This is partition {} of topic {}, {mode}. Times without a zone are in {}.

append            echo hi >> append           each line becomes one record
append.jsonl      cat x.jsonl > append.jsonl  each line is an envelope: key, headers, ts, payload
append.bin        cat picture > append.bin    all bytes become one record
by-offset/N       the value of the record at offset N; N.key its key, N.json its envelope, N.batch its stored batch
by-offset/first, last, -k                     links to the first, the last, the k-th last record (last.json works, too)
by-offset/A..B    the values from A to before B, a line each; A.., ..B, A..=B (closed), A..B.jsonl (envelopes)
                  A and B: a number, -k, earliest, latest (the next offset), first, last
by-time/T         a link to the first record at or after T; T..U, T.., ..U link to a range (T..U.jsonl)
                  T: 2h-ago, 1d12h-ago, PT2H-ago, now, today, yesterday, 2026-11-29, 2026-11-29T10:15[:30[.123]][Z],
                  @1700000000 (seconds), 1700000000 (seconds), 1700000000123 (milliseconds)
by-key/K          the value of the last record with key K, K.offset its offset; there with -o by-key=ro|rw, or cleanup.policy=compact
                  by-key=rw: echo v > K (one record from open to close), >> adds to the value, rm K (a tombstone), mv K L (one batch)
                  %25 %2F %00 stand for % / NUL, % for the empty key, %@N for a key too long (N: its last record)
decoded/          each segment as values (.txt) and envelopes (.jsonl); tail -F decoded/active.jsonl follows the log
follow            blocks and gives the values that come from now on; follow.jsonl the envelopes; not listed
segments/         the real files, byte for byte
status, status.json   what it is; errors: why something was refused, last lines newest; metrics: counters for Prometheus
config            name=value a line; a line `# ...` before them says where the values come from
check             reading it checks every batch and index entry: a finding a line, then a summary; `# ...` tells how far it is
overview.svg      a picture of the segments: times, sizes, gaps, damage, open transactions; overview.html with its facts
ctl               echo roll > ctl; commands: sync, roll, delete-before N (records before N do not exist any more),
                  retain (segments that are too old or too many go), compact (of each key the latest record stays)

No record at N: no such file, and `errors` says why. Damaged: Input/output error, and `errors` says where.
A shell does not show the error of a failed close in a redirection: look into `errors` after > append.
",
        name.partition,
        escaped(&name.topic),
        zone.name()
    )
}

/// Copies what lies at a position; returns how many bytes.
pub(crate) fn copy_from(bytes: &[u8], at: u64, out: &mut [u8]) -> usize {
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let n = rest.len().min(out.len());
    out[..n].copy_from_slice(&rest[..n]);
    n
}

/// A record as a line of JSON. A control record has neither key nor value there, but says what it is.
pub(crate) fn json_line(out: &mut Vec<u8>, name: &TopicPartition, record: &Record) {
    let mut number = String::new();
    let is_control = record.header.magic >= 2 && record.header.attributes.is_control();
    let control = is_control.then(|| match control_type(record.key().unwrap_or_default()) {
        Ok(ControlType::Commit) => "commit",
        Ok(ControlType::Abort) => "abort",
        Ok(ControlType::Other(other)) => {
            number = other.to_string();
            &number
        }
        Err(_) => "unknown",
    });
    let envelope = Envelope {
        topic: &name.topic,
        partition: name.partition,
        offset: record.offset(),
        timestamp_type: record.reference.timestamp_type,
        timestamp: record.timestamp(),
        key: record.key().filter(|_| !is_control),
        value: record.value().filter(|_| !is_control),
        control,
    };
    write_line(out, &envelope, record.headers());
}
