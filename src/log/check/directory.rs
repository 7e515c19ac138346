//! The directory itself: names, leftovers, the small files beside the segments, and what the data directory's checkpoints say.

use crate::error::{Error, Result};
use crate::io::{Directory, Kind, Open, read_up_to};
use crate::log::check::{Finding, Report};
use crate::log::checkpoint::{self, EpochEntry};
use crate::log::names;
use crate::types::{Offset, TopicPartition};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;

/// Files of a partition that have names of their own.
const KNOWN: &[&str] = &[
    names::LEADER_EPOCHS,
    names::PARTITION_METADATA,
    names::LOG_START,
    names::CLEANER,
    names::KEYS,
    names::KEYS_COMMITTED,
    "quorum-state",
    names::TOPIC_PROPERTIES,
];
/// The files that a segment has.
const SEGMENT_SUFFIXES: &[&str] = &[names::LOG, names::INDEX, names::TIME_INDEX, names::TXN_INDEX];
/// Where a topic id stands in `partition.metadata`.
const TOPIC_ID: &str = "topic_id: ";
/// No `partition.metadata` is longer, in bytes.
const METADATA_LEN_MOST: usize = 4096;
/// So many names that mean nothing are told one by one.
const STRANGE_MOST: usize = 16;

/// Looks at the names in a partition directory, and at `partition.metadata`.
///
/// # Errors
/// What the system says.
pub(super) fn look(dir: &dyn Directory, report: &mut Report) -> Result<()> {
    let mut entries = dir.list().map_err(|e| Error::io("list", dir.path().display(), e))?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let names: BTreeSet<String> = entries.iter().filter_map(|e| e.name.to_str().map(str::to_owned)).collect();
    let mut strange = 0;
    for entry in &entries {
        let name = entry.name.to_string_lossy();
        if KNOWN.contains(&&*name) {
            continue;
        }
        match names::parse(&name) {
            Some((base, suffix)) => look_at_name(&name, base, suffix, entry.kind, &names, report),
            None if is_checkpoint(&name) => {}
            None if claims_a_segment(&name) => report.add(
                Finding::wrong(&*name, "a base offset of 20 digits in the name", "another number of digits")
                    .means("a broker takes what stands before the first point for the base offset, and fails or reads the file as that segment")
                    .advice("give the file its right name, or move it away"),
            ),
            None => {
                strange += 1;
                if strange <= STRANGE_MOST {
                    report.add(Finding::note(&*name, "a file of a partition", "another name").means("brokers and readers ignore it"));
                }
            }
        }
    }
    tell_leftovers(&names, report);
    if strange > STRANGE_MOST {
        let found = format!("{} more other names", strange - STRANGE_MOST);
        report.add(Finding::note(".", "files of a partition", found).means("brokers and readers ignore them"));
    }
    if !names.contains(names::LEADER_EPOCHS) {
        report.add(
            Finding::note(names::LEADER_EPOCHS, "the leader epochs", "no such file")
                .means("a broker makes it; it then knows no epochs of old records"),
        );
    }
    look_at_metadata(dir, report)
}

/// A name with a 20-digit base offset.
fn look_at_name(name: &str, base: Offset, suffix: &str, kind: Kind, names_there: &BTreeSet<String>, report: &mut Report) {
    let is_part = |s: &str| SEGMENT_SUFFIXES.contains(&s) || s == names::SNAPSHOT;
    if is_part(suffix) {
        if kind != Kind::File {
            report.add(
                Finding::wrong(name, "a regular file", "a directory, a link or something else")
                    .means("it is left out, as if it were missing")
                    .advice("put the file itself into its place"),
            );
        } else if SEGMENT_SUFFIXES.contains(&suffix)
            && suffix != names::LOG
            && !names_there.contains(&names::of(base, names::LOG))
            && !names_there.contains(&format!("{}{}", names::of(base, names::LOG), names::SWAP))
        {
            report.add(
                Finding::wrong(name, "a .log of the same base offset", "none")
                    .of(Some((base, base)))
                    .means("the segment's records are missing; a broker deletes such an index at its start")
                    .advice("look for the .log in a backup or on a replica; offsetfs recover removes the index"),
            );
        }
        return;
    }
    let is_leftover = [names::CLEANED, names::SWAP, names::DELETED].iter().any(|s| suffix.ends_with(s));
    if is_leftover {
        // Those have a line for all of a kind.
    } else if suffix.starts_with(".log.cut-") {
        report.add(
            Finding::note(name, "no bytes that were cut from a log", "some that were kept")
                .means("nothing reads them")
                .advice("remove the file when they are not needed any more"),
        );
    } else if suffix.ends_with(".tmp") {
        report.add(
            Finding::note(name, "no file that was being written", "one")
                .means("its writer stopped; nothing reads it")
                .advice("offsetfs recover removes it"),
        );
    } else {
        report.add(Finding::note(name, "a file of a partition", "another suffix").means("brokers and readers ignore it"));
    }
}

/// What a cleaning or a deletion left, a line for each kind: a broker's directory may have hundreds of them.
fn tell_leftovers(names_there: &BTreeSet<String>, report: &mut Report) {
    const KINDS: [(&str, &str, &str, &str); 3] = [
        (names::SWAP, "of a cleaning that had finished", "readers see them in the place of what they replace", "puts them into place"),
        (names::CLEANED, "of a cleaning that had not finished", "they do not count, unless a broker cleans at this moment", "removes them"),
        (names::DELETED, "that wait to be removed", "they do not count", "removes them"),
    ];
    for (suffix, what, means, does) in KINDS {
        let mut left = names_there.iter().filter(|n| n.ends_with(suffix) && names::parse(n).is_some());
        let Some(first) = left.next() else { continue };
        let found = format!("{} {what}, this one first", left.count() + 1);
        report.add(
            Finding::note(first, "no leftover files", found)
                .means(means)
                .advice(format!("offsetfs recover, or the next start of a broker, {does}")),
        );
    }
}

/// The name of a metadata snapshot: offset, epoch, and what state it is in.
fn is_checkpoint(name: &str) -> bool {
    let Some((numbers, state)) = name.split_once(".checkpoint") else { return false };
    let digits = |s: &str, len: usize| s.len() == len && s.bytes().all(|b| b.is_ascii_digit());
    numbers.split_once('-').is_some_and(|(offset, epoch)| digits(offset, 20) && digits(epoch, 10))
        && matches!(state, "" | ".part" | names::DELETED)
}

/// Whether a broker would take a name for a segment, though it has not the right number of digits.
fn claims_a_segment(name: &str) -> bool {
    let Some((number, _)) = name.split_once('.') else { return false };
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && SEGMENT_SUFFIXES.iter().any(|s| name.ends_with(s))
}

fn look_at_metadata(dir: &dyn Directory, report: &mut Report) -> Result<()> {
    let name = names::PARTITION_METADATA;
    let bytes = match dir.open(OsStr::new(name), Open::Read) {
        Ok(file) => read_up_to(&*file, 0, METADATA_LEN_MOST).map_err(|e| Error::io("read", name, e))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            report.add(
                Finding::note(name, "the topic's id", "no such file")
                    .means("a broker of version 4 moves such a directory aside as -stray")
                    .advice("put the segment files beside the topic's own partition.metadata to hand them to a broker"),
            );
            return Ok(());
        }
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Vec::new(),
        Err(e) => return Err(Error::io("open", name, e)),
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let version = lines.next().and_then(|l| l.strip_prefix("version: ")).and_then(|v| v.parse::<u32>().ok());
    let id = lines.next().and_then(|l| l.strip_prefix(TOPIC_ID)).unwrap_or_default();
    let is_id = id.len() == 22 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') && id.bytes().any(|b| b != b'A');
    if version.is_none() || !is_id {
        report.add(
            Finding::wrong(name, "lines `version: 0` and `topic_id: ` with 22 characters", format!("`{}`", text.escape_debug()))
                .at(0)
                .means("a broker stops at it")
                .advice("write the topic's id into it, as kafka-topics --describe shows it, or remove the file"),
        );
    }
    Ok(())
}

/// Leader epochs that begin behind the log's end.
pub(super) fn look_at_epochs(epochs: &[EpochEntry], end: Option<Offset>, report: &mut Report) {
    let end = end.unwrap_or_default();
    if let Some(entry) = epochs.iter().find(|e| e.start > end) {
        report.add(
            Finding::note(
                names::LEADER_EPOCHS,
                format!("epochs that begin at or before the log end {end}"),
                format!("epoch {} at {}", entry.epoch, entry.start),
            )
            .means("the log lost its end since; a broker drops the entry at its start"),
        );
    }
}

/// The checkpoints that we keep beside a log without a data directory: they must be readable.
///
/// # Errors
/// What the system says.
pub(super) fn look_at_own_checkpoints(dir: &dyn Directory, name: &TopicPartition, report: &mut Report) -> Result<()> {
    for (file, means, advice) in [
        (
            names::LOG_START,
            "the log cannot be opened",
            "remove the file: the log then begins with its first segment; `delete-before N` in ctl sets another",
        ),
        (names::CLEANER, "the log cannot be compacted", "remove the file: the next compaction then looks at the whole log"),
    ] {
        stored(dir, file, name, (means, advice), report)?;
    }
    Ok(())
}

/// What a checkpoint says of the partition. One that does not follow the grammar is a finding; one that is no file, or not ours to read, says nothing.
fn stored(
    dir: &dyn Directory,
    file: &'static str,
    name: &TopicPartition,
    (means, advice): (&'static str, &'static str),
    report: &mut Report,
) -> Result<Option<i64>> {
    match checkpoint::read_offset(dir, file, name) {
        Err(Error::Corrupt(corruption)) => {
            report.add(Finding::of_fault(file, corruption.fault).means(means).advice(advice));
            Ok(None)
        }
        Err(Error::Io { source, .. }) if matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(None),
        read => read,
    }
}

/// What the checkpoints of the data directory say of the partition.
///
/// # Errors
/// What the system says.
pub(super) fn look_at_checkpoints(parent: &dyn Directory, name: &TopicPartition, end: Option<Offset>, report: &mut Report) -> Result<()> {
    for file in [names::LOG_START, names::RECOVERY_POINT, names::HIGH_WATERMARK, names::CLEANER] {
        let means = "a broker takes 0 for every partition of the data directory, or stops";
        let advice = "remove the file: it holds nothing that cannot be lost but log start offsets";
        let Some(stored) = stored(parent, file, name, (means, advice), report)? else { continue };
        let end = end.unwrap_or_default().get();
        if stored <= end {
            continue;
        }
        let (expected, found) = (format!("an offset of at most the log end {end}"), format!("{stored} for {name}"));
        report.add(if file == names::LOG_START {
            Finding::wrong(file, expected, found)
                .means("a broker deletes every segment of the partition at its start and begins the log there")
                .advice("correct the line if the records are still wanted")
        } else {
            Finding::note(file, expected, found).means("the log lost its end since; a broker corrects it at its start")
        });
    }
    Ok(())
}
