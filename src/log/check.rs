//! The consistency check of a partition directory: every batch, every record, every index entry, the state beside them. It reads only.
//!
//! It does not repair (`repair` does, with what is examined here) and trusts nothing: not an index, not a count, not a length. Harmless things of
//! a healthy broker's directory are notes; what costs records or answers, or makes a broker cut or delete, is a finding. Memory stays
//! bounded: one segment at a time, through maps, and a report that counts what it no longer lists.

mod directory;
pub(crate) mod files;
mod gaps;
mod indexes;
pub(crate) mod segment;
pub(crate) mod transactions;

use crate::error::{Error, Fault, Result};
use crate::io::Directory;
use crate::log::checkpoint;
use crate::log::config::LogConfig;
use crate::log::listing;
use crate::log::names;
use crate::types::{Offset, Position, TopicPartition};
use segment::{Running, Scene};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// So many findings, and so many notes, are listed; the rest is counted.
const LISTED_MOST: usize = 10_000;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing, and harmless: a healthy broker's directory may have it.
    Note,
    /// Damage, or what leads to wrong answers.
    Finding,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Finding => "finding",
        })
    }
}

/// One thing that the check has to say. As text it is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Note or finding.
    pub severity: Severity,
    /// The file's name in the partition directory; a checkpoint of the data directory has its own name.
    pub file: String,
    /// Where in the file: the first byte of the batch, entry or stretch concerned. `None` where it is about the whole file.
    pub position: Option<Position>,
    /// The first and the last offset concerned, where they are known.
    pub offsets: Option<(Offset, Offset)>,
    /// What should be there.
    pub expected: Cow<'static, str>,
    /// What is there.
    pub found: Cow<'static, str>,
    /// What follows from it.
    pub meaning: Cow<'static, str>,
    /// What to do about it.
    pub advice: Cow<'static, str>,
}

impl Finding {
    fn new(
        severity: Severity,
        file: impl Into<String>,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<Cow<'static, str>>,
    ) -> Finding {
        Finding {
            severity,
            file: file.into(),
            position: None,
            offsets: None,
            expected: expected.into(),
            found: found.into(),
            meaning: Cow::Borrowed(""),
            advice: Cow::Borrowed("nothing"),
        }
    }

    fn wrong(file: impl Into<String>, expected: impl Into<Cow<'static, str>>, found: impl Into<Cow<'static, str>>) -> Finding {
        Finding::new(Severity::Finding, file, expected, found)
    }

    fn note(file: impl Into<String>, expected: impl Into<Cow<'static, str>>, found: impl Into<Cow<'static, str>>) -> Finding {
        Finding::new(Severity::Note, file, expected, found)
    }

    /// What a fault says, at its position.
    fn of_fault(file: impl Into<String>, fault: Fault) -> Finding {
        let Fault { position, expected, found } = fault;
        Finding::wrong(file, expected, found).at(position.get())
    }

    fn at(mut self, position: u64) -> Finding {
        self.position = Some(Position::new(position));
        self
    }

    fn of(mut self, offsets: Option<(Offset, Offset)>) -> Finding {
        self.offsets = offsets;
        self
    }

    fn means(mut self, meaning: impl Into<Cow<'static, str>>) -> Finding {
        self.meaning = meaning.into();
        self
    }

    fn advice(mut self, advice: impl Into<Cow<'static, str>>) -> Finding {
        self.advice = advice.into();
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.file.escape_debug())?;
        if let Some(position) = self.position {
            write!(f, " at position {position}")?;
        }
        match self.offsets {
            Some((first, last)) if first == last => write!(f, ", offset {first}")?,
            Some((first, last)) => write!(f, ", offsets {first} to {last}")?,
            None => {}
        }
        write!(f, ": expected {}, found {}; {}", self.expected, self.found, self.meaning)?;
        if self.advice != "nothing" {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}

/// What a check found, in the order in which it looked.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What there is to say; at most 10,000 findings and as many notes.
    pub findings: Vec<Finding>,
    /// Findings beyond those listed.
    pub findings_unlisted: u64,
    /// Notes beyond those listed.
    pub notes_unlisted: u64,
    /// Segments looked at.
    pub segments: u64,
    /// Good batches.
    pub batches: u64,
    /// Records read, control records among them.
    pub records: u64,
    /// Bytes of `.log` files.
    pub bytes: u64,
    listed: [usize; 2],
}

impl Report {
    /// Whether there are notes at most.
    pub fn is_clean(&self) -> bool {
        self.findings_unlisted == 0 && self.listed[1] == 0
    }

    /// How many findings there are, listed or not.
    pub fn findings_count(&self) -> u64 {
        self.findings_unlisted + self.listed[1] as u64
    }

    /// How many notes there are, listed or not.
    pub fn notes_count(&self) -> u64 {
        self.notes_unlisted + self.listed[0] as u64
    }

    /// The numbers in one line.
    pub fn summary(&self) -> String {
        let counted = |n: u64, one: &str, more: &str| format!("{n} {}", if n == 1 { one } else { more });
        let mut text = format!(
            "{}, {}; {}, {}, {}, {} bytes looked at",
            counted(self.findings_count(), "finding", "findings"),
            counted(self.notes_count(), "note", "notes"),
            counted(self.segments, "segment", "segments"),
            counted(self.batches, "batch", "batches"),
            counted(self.records, "record", "records"),
            self.bytes
        );
        if self.findings_unlisted + self.notes_unlisted > 0 {
            text.push_str(&format!(" ({} findings and {} notes are not listed)", self.findings_unlisted, self.notes_unlisted));
        }
        text
    }

    fn add(&mut self, finding: Finding) {
        let (kind, unlisted) = match finding.severity {
            Severity::Note => (0, &mut self.notes_unlisted),
            Severity::Finding => (1, &mut self.findings_unlisted),
        };
        if self.listed[kind] < LISTED_MOST {
            self.listed[kind] += 1;
            self.findings.push(finding);
        } else {
            *unlisted += 1;
        }
    }
}

/// A line a finding, and one with the numbers at the end.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        writeln!(f, "{}", self.summary())
    }
}

/// Checks a partition directory. `parent` is the directory around it, whose checkpoints count; `progress` is told the bytes done and all of them.
///
/// # Errors
/// What the system says of a file; damage is no error but a finding. A file that vanished or became shorter meanwhile, as under a running
/// broker, is a note.
pub fn check(
    dir: &Arc<dyn Directory>,
    parent: Option<&Arc<dyn Directory>>,
    name: &TopicPartition,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let mut report = Report::default();
    let found = listing::list(&**dir)?;
    directory::look(&**dir, &mut report)?;
    let parent = parent.map(|p| &**p);
    // One that came or went since the listing is a running broker's; one that cannot be looked at is an error.
    files::is_complete(&**dir, &found)?;
    let layout = files::layout(&**dir, &found)?;
    for file in &layout.replaced {
        report.add(
            Finding::note(file.name(), "no segment that a finished cleaning replaces", "one")
                .means("a cleaning was interrupted after it had finished; readers see the replacement")
                .advice("offsetfs recover, or the next start of a broker, puts the replacement into place"),
        );
    }
    let epochs = match checkpoint::read_leader_epochs(&**dir) {
        Ok(epochs) => epochs,
        Err(Error::Corrupt(corruption)) => {
            report.add(
                Finding::of_fault(corruption.file, corruption.fault)
                    .means("a broker cannot load the partition's leader epochs")
                    .advice("offsetfs recover makes the file anew from the batches"),
            );
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let scene = Scene { dir: &**dir, interval_bytes: LogConfig::default().index_interval_bytes, epochs: &epochs };
    let mut running = Running::default();
    let total: u64 = layout.logs.iter().map(|l| l.metadata.len).sum();
    let mut done = 0;
    for at in 0..layout.logs.len() {
        let mut within = |bytes: u64| progress((done + bytes).min(total), total);
        match segment::examine(&scene, &layout, at, &mut running, &mut report, &mut within) {
            Ok(_) => {}
            Err(error) if files::is_gone(&error) => report.add(
                Finding::note(layout.logs[at].name(), "a file that stays", error.to_string())
                    .means("somebody else changes the directory at this moment"),
            ),
            Err(error) => return Err(error),
        }
        done += layout.logs[at].metadata.len;
        progress(done, total);
    }
    running.tell_holes(&mut report, has_been_cleaned(&**dir, parent, name));
    directory::look_at_epochs(&epochs, running.next_offset(), &mut report);
    transactions::look_at_snapshots(&**dir, &found.snapshots, &layout, running.next_offset(), &running.tracker, &mut report)?;
    directory::look_at_own_checkpoints(&**dir, name, &mut report)?;
    if let Some(parent) = parent {
        directory::look_at_checkpoints(parent, name, running.next_offset(), &mut report)?;
    }
    Ok(report)
}

/// Whether the data directory, or we beside the log, say that the partition was compacted.
fn has_been_cleaned(dir: &dyn Directory, parent: Option<&dyn Directory>, name: &TopicPartition) -> bool {
    let says = |dir: &dyn Directory| matches!(checkpoint::read_offset(dir, names::CLEANER, name), Ok(Some(offset)) if offset > 0);
    says(dir) || parent.is_some_and(says)
}
