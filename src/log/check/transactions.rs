//! Transactions: which are open along the log, the `.txnindex` of a segment against its markers, producer snapshots.
//!
//! The log is the judge. Where it cannot be (damage before, records that compaction or retention took), what the index says is let be.

use crate::error::{Error, Fault, Result};
use crate::io::Directory;
use crate::log::batch::{BatchHeader, HEADER_SIZE, Step};
use crate::log::check::files::{self, Layout};
use crate::log::check::{Finding, Report};
use crate::log::listing::LogFile;
use crate::log::names;
use crate::log::record::{ControlType, control_type};
use crate::log::scan::Scan;
use crate::log::transactions::read_snapshot;
use crate::types::Offset;
use std::collections::HashMap;

// An entry of a .txnindex; numbers are big-endian.
//
//   version 2 | producer id 8 | first offset 8 | last offset 8 | last stable offset 8

const PRODUCER_ID: usize = 2;
const FIRST_OFFSET: usize = PRODUCER_ID + 8;
const LAST_OFFSET: usize = FIRST_OFFSET + 8;
const LAST_STABLE_OFFSET: usize = LAST_OFFSET + 8;
/// The size of an entry in bytes.
pub(crate) const ENTRY_LEN: usize = LAST_STABLE_OFFSET + 8;
const _: () = assert!(ENTRY_LEN == 34);

/// With more open transactions, or more markers in a segment, than this nothing is said of them.
const MOST: usize = 1 << 20;
/// So many wrong entries of an index are told one by one.
const TOLD_MOST: usize = 8;

const REBUILD: &str = "offsetfs recover makes the index anew";

/// An aborted transaction as a `.txnindex` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) producer_id: i64,
    /// The first offset of its first batch.
    pub(crate) first: i64,
    /// The offset of its marker.
    pub(crate) last: i64,
    /// The last stable offset when the marker was written.
    pub(crate) last_stable: i64,
}

impl Entry {
    /// Reads one.
    ///
    /// # Errors
    /// Another version, or offsets that no transaction has.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Entry, Fault> {
        let number = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(-1, i64::from_be_bytes);
        let entry = Entry {
            producer_id: number(PRODUCER_ID),
            first: number(FIRST_OFFSET),
            last: number(LAST_OFFSET),
            last_stable: number(LAST_STABLE_OFFSET),
        };
        match bytes.get(..PRODUCER_ID) {
            // Kafka looks at the first byte only.
            Some([0, _]) => {}
            other => return Err(Fault::new(0, "version 0", format!("{:?}", other.unwrap_or_default()))),
        }
        if entry.first < 0 || entry.last < entry.first || entry.last_stable < 0 {
            let found = format!("{}, {} and {}", entry.first, entry.last, entry.last_stable);
            return Err(Fault::new(0, "first, last and last stable offset of a transaction", found));
        }
        Ok(entry)
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        for (at, number) in
            [(PRODUCER_ID, self.producer_id), (FIRST_OFFSET, self.first), (LAST_OFFSET, self.last), (LAST_STABLE_OFFSET, self.last_stable)]
        {
            bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }
}

/// The transactions that are open at a place of the log.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    /// Of each producer the first offset of its transaction, and whether a record of it is there.
    open: HashMap<i64, (Offset, bool)>,
    /// Batches were lost, so that what is known may be wrong.
    doubted: bool,
}

impl Tracker {
    /// From now on nothing is concluded from what was seen.
    pub(crate) fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Takes a data batch into account.
    pub(crate) fn batch(&mut self, header: &BatchHeader) {
        if header.magic < 2 || !header.attributes.is_transactional() || header.attributes.is_control() {
            return;
        }
        if self.open.len() >= MOST {
            self.doubted = true;
            return;
        }
        let (_, has_records) = self.open.entry(header.producer_id).or_insert((header.base_offset, false));
        *has_records |= header.records_count > 0;
    }

    fn first_of_others(&self, producer_id: i64) -> Option<Offset> {
        self.open.iter().filter(|(id, _)| **id != producer_id).map(|(_, (first, _))| *first).min()
    }
}

/// An abort marker.
#[derive(Clone, Copy, Debug)]
struct Marker {
    entry: Entry,
    /// Whether records of the transaction stand in the log before it, so that an index entry must hide them.
    needed: bool,
    doubted: bool,
}

/// The abort markers of a segment, in order.
#[derive(Debug, Default)]
pub(crate) struct Markers {
    markers: Vec<Marker>,
    too_many: bool,
}

impl Markers {
    /// Takes a control record into account.
    ///
    /// # Errors
    /// A key that no control record has.
    pub(crate) fn record(&mut self, header: &BatchHeader, offset: Offset, key: &[u8], tracker: &mut Tracker) -> Result<(), Fault> {
        let aborts = match control_type(key)? {
            ControlType::Commit => false,
            ControlType::Abort => true,
            ControlType::Other(_) => return Ok(()),
        };
        let before = tracker.open.remove(&header.producer_id);
        if !aborts {
            return Ok(());
        }
        if self.markers.len() >= MOST {
            self.too_many = true;
            return Ok(());
        }
        let first = before.map_or(offset, |(first, _)| first);
        let last_stable = tracker.first_of_others(header.producer_id).unwrap_or(offset.next());
        let entry = Entry { producer_id: header.producer_id, first: first.get(), last: offset.get(), last_stable: last_stable.get() };
        self.markers.push(Marker { entry, needed: before.is_some_and(|(_, has_records)| has_records), doubted: tracker.doubted });
        Ok(())
    }

    fn at(&self, offset: i64) -> Option<&Marker> {
        let at = self.markers.binary_search_by_key(&offset, |m| m.entry.last).ok()?;
        self.markers.get(at)
    }
}

/// Those of the offsets, in order, that a good batch holds.
fn held_by_batches(log: &[u8], scan: &Scan, offsets: &[i64]) -> Vec<i64> {
    let (mut held, mut at) = (Vec::new(), 0);
    while at < scan.valid_end.get() {
        if let Some(damage) = scan.damage_from(at) {
            at = damage.to.get();
            continue;
        }
        let Ok(Step::Batch(header)) = BatchHeader::read(log, at as usize) else { break };
        let from = offsets.partition_point(|o| *o < header.base_offset.get());
        held.extend(offsets.iter().skip(from).take_while(|o| **o <= header.last_offset.get()));
        at += u64::from(header.size);
    }
    held
}

/// Compares a segment's `.txnindex` with its markers. Returns what it should be, or `None` where it can stay.
pub(crate) fn look_at_index(
    dir: &dyn Directory,
    file: &LogFile,
    limit: Option<Offset>,
    (log, scan): (&[u8], &Scan),
    markers: &Markers,
    report: &mut Report,
) -> Result<Option<Vec<Entry>>> {
    let name = file.name_of(names::TXN_INDEX);
    let map = files::map(dir, &name)?;
    let bytes = map.as_ref().map_or(&[][..], |m| m.bytes());
    let mut right: Vec<Entry> = Vec::new();
    let mut wrong = 0;
    let mut tell = |finding: Finding| {
        wrong += 1;
        if wrong <= TOLD_MOST {
            report.add(finding.advice(REBUILD));
        }
    };
    // A marker is a batch of its own, so more entries than batches fit into the log cannot be; they are not looked at one by one.
    let most = (log.len() / HEADER_SIZE).saturating_mul(ENTRY_LEN);
    let bytes = match bytes.get(..most) {
        Some(possible) if possible.len() < bytes.len() => {
            let found = format!("{} bytes", bytes.len());
            let finding = Finding::wrong(&name, "no more entries than batches", found).at(most as u64);
            tell(finding.means("a broker reads transactions that never were"));
            possible
        }
        _ => bytes,
    };
    // Offsets that are said to have a marker and have none, if a batch holds them; compaction and a repair may have taken the batch.
    let claims = bytes.chunks_exact(ENTRY_LEN).filter_map(|chunk| Entry::parse(chunk).ok()).map(|e| e.last);
    let mut claims: Vec<i64> = claims.filter(|last| markers.at(*last).is_none()).collect();
    claims.sort_unstable();
    let held = if claims.is_empty() { Vec::new() } else { held_by_batches(log, scan, &claims) };
    let within = |offset: i64| offset >= file.base_offset.get() && limit.is_none_or(|l| offset < l.get());
    for (i, chunk) in bytes.chunks(ENTRY_LEN).enumerate() {
        let at = (i * ENTRY_LEN) as u64;
        let entry = match Entry::parse(chunk) {
            _ if chunk.len() < ENTRY_LEN => {
                let found = format!("{} bytes", chunk.len());
                tell(
                    Finding::wrong(&name, "an entry of 34 bytes", found)
                        .at(at)
                        .means("the last write to the index was cut short; a broker ignores it"),
                );
                continue;
            }
            Ok(entry) => entry,
            Err(fault) => {
                tell(Finding::of_fault(&name, fault.moved(at)).means("a broker reads a transaction that never was"));
                continue;
            }
        };
        let offsets = Offset::new(entry.first).zip(Offset::new(entry.last));
        let about = |expected: &'static str, found: String| Finding::wrong(&name, expected, found).at(at).of(offsets);
        if !within(entry.last) {
            let found = format!("offset {}", entry.last);
            tell(about("the offset of a marker in this segment", found).means("a broker recovers the segment at its start"));
        } else if limit.is_none() && scan.damage_at_end().is_none() && entry.last >= scan.end_offset().get() {
            let found = format!("offset {}", entry.last);
            let means = "what is written there later, a broker's readers of committed records take for aborted";
            tell(about("a marker before the log end", found).means(means));
        } else if right.last().is_some_and(|before| before.last >= entry.last) {
            let found = format!("offset {} behind a greater one", entry.last);
            tell(about("rising marker offsets", found).means("a broker may leave aborted transactions out"));
        } else if let Some(marker) = markers.at(entry.last) {
            if marker.entry.producer_id != entry.producer_id {
                let found = format!("producer {}; the marker is of producer {}", entry.producer_id, marker.entry.producer_id);
                tell(about("the producer of the marker", found).means("readers of committed records see aborted ones and miss others"));
            } else if marker.needed && !marker.doubted && marker.entry.first < entry.first {
                let found = format!("offset {}; the transaction began at {}", entry.first, marker.entry.first);
                tell(about("the first offset of the transaction", found).means("readers of committed records see aborted ones"));
                right.push(marker.entry);
            } else {
                right.push(entry);
            }
        } else if markers.too_many || held.binary_search(&entry.last).is_err() {
            // Its marker may have stood in what is damaged, gone or not looked at.
            right.push(entry);
        } else {
            let found = format!("none at offset {}", entry.last);
            tell(about("an abort marker", found).means("readers of committed records miss records that were never aborted"));
        }
    }
    for marker in markers.markers.iter().filter(|m| m.needed && !m.doubted) {
        if right.binary_search_by_key(&marker.entry.last, |e| e.last).is_err() {
            let found = if map.is_some() { "none" } else { "no such file" };
            let finding = Finding::wrong(&name, format!("an entry for the abort marker at offset {}", marker.entry.last), found);
            let offsets = Offset::new(marker.entry.first).zip(Offset::new(marker.entry.last));
            tell(finding.of(offsets).means("a broker's readers of committed records see the records of the aborted transaction"));
            let at = right.partition_point(|e| e.last < marker.entry.last);
            right.insert(at, marker.entry);
        }
    }
    if wrong > TOLD_MOST {
        let more = format!("{} more that are wrong or missing", wrong - TOLD_MOST);
        report.add(Finding::wrong(&name, "entries that tell the truth", more).means("as above").advice(REBUILD));
    }
    if let Some(map) = &map {
        map.still_whole()?;
    }
    Ok((wrong > 0).then_some(right))
}

/// Reads every producer snapshot, and compares the newest with the transactions that the log leaves open.
pub(crate) fn look_at_snapshots(
    dir: &dyn Directory,
    snapshots: &[Offset],
    layout: &Layout,
    end: Option<Offset>,
    tracker: &Tracker,
    report: &mut Report,
) -> Result<()> {
    let first_base = layout.logs.first().map(|l| l.base_offset).unwrap_or_default();
    let mut newest = true;
    for offset in snapshots.iter().rev() {
        let name = names::of(*offset, names::SNAPSHOT);
        let open = match read_snapshot(dir, *offset) {
            Ok(open) => open,
            Err(Error::Corrupt(corruption)) => {
                report.add(
                    Finding::of_fault(name, corruption.fault)
                        .of(Some((*offset, *offset)))
                        .means("a broker deletes it and reads an older one, or the log from its start")
                        .advice("offsetfs recover removes it"),
                );
                continue;
            }
            Err(Error::Io { source, .. }) if matches!(source.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::InvalidInput) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        let at_base = layout.logs.iter().chain(&layout.replaced).any(|l| l.base_offset == *offset);
        if end.is_some_and(|end| *offset > end) {
            let expected = format!("a state at or before the log end {}", end.unwrap_or_default());
            report.add(Finding::note(&name, expected, format!("one at {offset}")).means("a broker deletes it at its start"));
            continue;
        }
        if !newest && !at_base {
            report.add(
                Finding::note(&name, "a state at the base offset of a segment, or the newest", "another")
                    .means("a broker deletes it at its start"),
            );
        }
        if newest && !tracker.doubted {
            for (producer_id, first) in open.iter().map(|t| (t.producer_id, t.first)) {
                let by_log = tracker.open.get(&producer_id).map(|(first, _)| *first);
                if by_log.is_some_and(|by_log| by_log < *offset && by_log != first && first >= first_base) {
                    let expected = format!("the transaction of producer {producer_id} to begin at {}", by_log.unwrap_or_default());
                    report.add(
                        Finding::wrong(&name, expected, format!("{first}"))
                            .of(Some((first, first)))
                            .means("a broker computes another last stable offset from it"),
                    );
                }
            }
            let mut missing: Vec<(Offset, i64)> =
                tracker.open.iter().filter(|(_, (first, _))| first < offset).map(|(id, (first, _))| (*first, *id)).collect();
            missing.retain(|(_, id)| open.iter().all(|t| t.producer_id != *id));
            missing.sort();
            for (first, producer_id) in missing.into_iter().take(TOLD_MOST) {
                let expected = format!("the open transaction of producer {producer_id}");
                report.add(
                    Finding::wrong(&name, expected, "none")
                        .of(Some((first, first)))
                        .means("a broker that starts from it shows records of an open transaction as committed"),
                );
            }
        }
        newest = false;
    }
    Ok(())
}
