//! What the file `errors` shows: the last refused look-ups and the last faults, in words.
//!
//! Two bounded rings, so that a script that probes for names never pushes a damaged batch out. A refused look-up that is repeated is one
//! line with a count. Lines are `TIME PATH ERRNO FILE:POSITION REASON`, `-` for what there is none of, control characters escaped.

use crate::types::TimestampMs;
use crate::view::error::{Error, ErrorKind};
use crate::view::time::{Zone, rfc3339};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write;

/// How many lines each ring holds.
const LINES_MOST: usize = 1000;

#[derive(Clone, Debug)]
struct Line {
    time: TimestampMs,
    path: String,
    name: &'static str,
    place: String,
    reason: String,
    count: u64,
}

/// The two rings.
#[derive(Debug, Default)]
pub struct Journal {
    refused: Mutex<VecDeque<Line>>,
    faults: Mutex<VecDeque<Line>>,
}

impl Journal {
    /// Notes why a path had no answer.
    pub fn note(&self, time: TimestampMs, path: &str, error: &Error) {
        let is_refusal = matches!(
            error.kind(),
            ErrorKind::NotFound
                | ErrorKind::Invalid
                | ErrorKind::NotPermitted
                | ErrorKind::ReadOnly
                | ErrorKind::NotDirectory
                | ErrorKind::Exists
                | ErrorKind::NameTooLong
                | ErrorKind::CrossDevice
        );
        self.push(is_refusal, time, path, error);
    }

    /// Notes a refused write among the faults, whatever its kind: its writer may not have seen the error.
    pub fn note_write(&self, time: TimestampMs, path: &str, error: &Error) {
        self.push(false, time, path, error);
    }

    /// Notes an event that belongs to no path.
    pub fn note_event(&self, time: TimestampMs, sentence: &str) {
        let line = Line { time, path: "-".to_owned(), name: "-", place: "-".to_owned(), reason: escaped(sentence), count: 1 };
        push(&mut self.faults.lock(), line);
    }

    fn push(&self, is_refusal: bool, time: TimestampMs, path: &str, error: &Error) {
        let place = match error.place() {
            Some(place) => match place.position {
                Some(position) => format!("{}:{position}", escaped(&place.file)),
                None => escaped(&place.file),
            },
            None => "-".to_owned(),
        };
        let line = Line { time, path: escaped(path), name: error.kind().name(), place, reason: escaped(error.reason()), count: 1 };
        let ring = if is_refusal { &self.refused } else { &self.faults };
        let mut ring = ring.lock();
        // Two refused writes of one file have little in common; each keeps its words.
        let same =
            |l: &Line| l.path == line.path && l.name == line.name && l.place == line.place && (is_refusal || l.reason == line.reason);
        if let Some(at) = ring.iter().rposition(same) {
            if let Some(mut known) = ring.remove(at) {
                known.count += 1;
                known.time = time;
                known.reason = line.reason;
                ring.push_back(known);
            }
            return;
        }
        push(&mut ring, line);
    }

    /// All lines, oldest first.
    pub fn text(&self, zone: &Zone) -> String {
        let mut lines: Vec<Line> = self.refused.lock().iter().cloned().collect();
        lines.extend(self.faults.lock().iter().cloned());
        lines.sort_by_key(|l| l.time);
        let mut text = String::new();
        for line in lines {
            let _ = write!(text, "{} {} {} {} {}", rfc3339(line.time, zone), line.path, line.name, line.place, line.reason);
            if line.count > 1 {
                let _ = write!(text, " ({} times)", line.count);
            }
            text.push('\n');
        }
        text
    }
}

fn push(ring: &mut VecDeque<Line>, line: Line) {
    if ring.len() == LINES_MOST {
        ring.pop_front();
    }
    ring.push_back(line);
}

/// A text that cannot break its line or a terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_never_push_faults_out() {
        let journal = Journal::default();
        let damaged = Error::new(ErrorKind::Damaged, "damaged").at("0.log", Some(crate::types::Position::new(72)));
        journal.note(TimestampMs::new(1), "by-offset/2", &damaged);
        for i in 0..5000 {
            journal.note(TimestampMs::new(2 + i), &format!("by-offset/x{i}"), &Error::not_found("no number"));
        }
        let text = journal.text(&Zone::utc());
        assert_eq!(text.lines().count(), 1001);
        assert!(text.starts_with("1970-01-01T00:00:00.001Z by-offset/2 EIO 0.log:72 damaged\n"), "{}", &text[..100]);
    }

    #[test]
    fn refused_writes_are_merged_only_where_they_say_the_same() {
        let journal = Journal::default();
        for reason in ["line 1", "line 2", "line 2"] {
            journal.note_write(TimestampMs::new(1), "append.jsonl", &Error::new(ErrorKind::Invalid, reason));
        }
        let text = journal.text(&Zone::utc());
        assert!(text.contains(" line 1\n") && text.ends_with(" line 2 (2 times)\n"), "{text}");
    }

    #[test]
    fn repeats_are_counted_and_controls_escaped() {
        let journal = Journal::default();
        for i in 0..3 {
            journal.note(TimestampMs::new(i), "a\nb\x1b[0m", &Error::not_found("no"));
        }
        assert_eq!(journal.text(&Zone::utc()), "1970-01-01T00:00:00.002Z a\\nb\\u{1b}[0m ENOENT - no (3 times)\n");
    }
}
