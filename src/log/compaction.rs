//! Compaction: of the records of a key only the latest stays, by the rules of Kafka's cleaner (format reference 11).
//!
//! What is *dirty* was not compacted yet. The keys of the dirty part go into a map, as many as its memory holds; then all segments up to there are
//! written anew without the records that the map outdates, and small neighbours become one. Offsets never change. Each group of segments
//! is exchanged in one step (`output`), so that a crash leaves the old ones or the new one.
//!
//! The log itself is asked for everything, and every checksum is verified: a log with damage is not compacted. Nothing here decides *when*: see `source`.

mod batches;
mod filter;
mod history;
mod map;
mod output;

pub use filter::Gone;

use crate::error::{Error, Result};
use crate::io::Directory;
use crate::log::batch::{BatchHeader, Step};
use crate::log::check::files;
use crate::log::check::transactions::{ENTRY_LEN, Entry};
use crate::log::checkpoint;
use crate::log::leftovers::Names;
use crate::log::listing;
use crate::log::names;
use crate::log::partition::{Layout, Partition};
use crate::log::record::{Records, decode};
use crate::log::segment::Segment;
use crate::types::{Offset, Patience, TimestampMs};
use batches::Source;
use filter::{Fate, Rules};
use history::{Aborted, History, Passing};
use map::OffsetMap;
use output::Output;
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

/// Progress is told after so many bytes at the latest.
const PROGRESS_BYTES: u64 = 1 << 20;

/// What there is to compact.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The first offset that was not compacted yet.
    pub first_dirty: Offset,
    /// The first offset that may not be compacted: of the active segment, an open transaction, or what is too young or not durable.
    pub first_uncleanable: Offset,
    /// The bytes of the segments that begin before the first dirty offset.
    pub clean_bytes: u64,
    /// The bytes of the segments from there to the first one that may not be compacted.
    pub dirty_bytes: u64,
    /// Whether compaction is due.
    pub due: bool,
    /// Why it is, or why not: a sentence.
    pub why: String,
}

/// What a compaction came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What there was to do.
    pub plan: Plan,
    /// The offset up to which the log is compacted now; `None` where nothing was done.
    pub compacted_to: Option<Offset>,
    /// Segments that were written anew, and into how many.
    pub segments: (u64, u64),
    /// Their bytes before and after.
    pub bytes: (u64, u64),
    /// Their records that stay, markers among them.
    pub kept: u64,
    /// Those that go.
    pub gone: Gone,
}

impl Outcome {
    /// That of a compaction that is not due.
    pub(crate) fn nothing(plan: Plan) -> Outcome {
        Outcome { plan, compacted_to: None, segments: (0, 0), bytes: (0, 0), kept: 0, gone: Gone::default() }
    }
}

/// Told the bytes done and all of them; `false` ends the compaction.
pub type Progress<'p> = dyn FnMut(u64, u64) -> bool + 'p;

/// Does what must not meet an append, such as publishing another layout.
pub type Exclusively<'e> = dyn FnMut(&mut dyn FnMut()) -> Result<()> + 'e;

/// What is to be done with what compaction finds out.
pub enum Mode<'m> {
    /// Only to measure it.
    DryRun,
    /// To do it.
    Real {
        /// The log is durable below this offset, the base offset of a segment. What a crash may still take outdates nothing: the latest record of a key
        /// that was acknowledged would go with it.
        durable: Offset,
        /// How a new segment is put into the place of those that it was made of.
        exclusively: &'m mut Exclusively<'m>,
    },
}

impl std::fmt::Debug for Mode<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Mode::DryRun) { "DryRun" } else { "Real" })
    }
}

/// The places of the segments from the one that holds an offset to below another offset, as Kafka counts them: none where the two are the same.
fn between(layout: &Layout, from: Offset, to: Offset) -> Range<usize> {
    if from >= to {
        return 0..0;
    }
    let first = layout.floor(from).unwrap_or(0);
    let end = layout.segments.partition_point(|s| s.base_offset() < to);
    first..end.max(first)
}

/// Those of them that are not active.
fn inactive_from(layout: &Layout, from: Offset) -> Range<usize> {
    layout.segments.last().map_or(0..0, |active| between(layout, from, active.base_offset()))
}

fn bytes_of(layout: &Layout, places: Range<usize>) -> u64 {
    layout.segments[places].iter().map(|s| s.end()).sum()
}

/// Says what there is to compact below an offset.
///
/// # Errors
/// A checkpoint that cannot be read; what the system says.
fn plan_up_to(partition: &Partition, layout: &Layout, most: Offset, now: TimestampMs) -> Result<Plan> {
    let (bounds, config) = (partition.bounds(), partition.config());
    let dir = &**partition.directory();
    let place = checkpoint::place(dir, partition.parent.as_deref(), names::CLEANER);
    let known = checkpoint::read_offset(place, names::CLEANER, partition.name())?.and_then(Offset::new);
    let first_dirty = known.filter(|o| *o >= bounds.log_start && *o <= bounds.log_end).unwrap_or(bounds.log_start);
    let Some(active) = layout.segments.last() else {
        let why = "the log is empty".to_owned();
        return Ok(Plan { first_dirty, first_uncleanable: first_dirty, clean_bytes: 0, dirty_bytes: 0, due: false, why });
    };
    let mut limit = most.min(active.base_offset());
    if config.min_compaction_lag_ms > 0 {
        for at in inactive_from(layout, first_dirty) {
            let largest = partition.largest_time(layout, at, Patience::MayBlock)?;
            let newest = if largest.get() >= 0 { largest } else { layout.segments[at].mtime() };
            if newest > now.earlier_by(config.min_compaction_lag_ms) {
                limit = limit.min(layout.segments[at].base_offset());
                break;
            }
        }
    }
    let limit = first_dirty.max(limit);
    let first_uncleanable = inactive_from(layout, limit).next().map_or(active.base_offset(), |at| layout.segments[at].base_offset());
    let clean_bytes = bytes_of(layout, 0..layout.segments.partition_point(|s| s.base_offset() < first_dirty));
    let dirty_bytes = bytes_of(layout, between(layout, first_dirty.min(first_uncleanable), first_uncleanable));
    let ratio = dirty_bytes as f64 / (clean_bytes + dirty_bytes) as f64;
    let mut oldest: Option<TimestampMs> = None;
    if config.max_compaction_lag_ms < i64::MAX as u64 {
        for at in inactive_from(layout, first_dirty) {
            let open = partition.open_segment(layout, at, Patience::MayBlock)?;
            let log = open.log.slice(0..layout.segments[at].end()).unwrap_or_default();
            if let Ok(Step::Batch(header)) = BatchHeader::read(log, 0)
                && header.max_timestamp.get() > 0
            {
                oldest = Some(oldest.map_or(header.max_timestamp, |o| o.min(header.max_timestamp)));
            }
        }
    }
    let (least, lag) = (config.min_cleanable_dirty_ratio, config.max_compaction_lag_ms);
    let overdue = dirty_bytes > 0 && oldest.is_some_and(|oldest| oldest < now.earlier_by(lag));
    let (due, why) = if dirty_bytes == 0 {
        let what = if first_uncleanable < active.base_offset() {
            "too young, of an open transaction, or not durable"
        } else {
            "in the active segment"
        };
        (false, format!("all that was not compacted yet is {what}"))
    } else if ratio > least {
        (true, format!("{:.0}% of the log were not compacted yet (min.cleanable.dirty.ratio={least})", ratio * 100.0))
    } else if overdue {
        (true, format!("a record that was not compacted yet is older than max.compaction.lag.ms={lag}"))
    } else {
        let share = ratio * 100.0;
        (
            false,
            format!(
                "{share:.0}% of the log were not compacted yet, and min.cleanable.dirty.ratio={least} asks for more; a smaller one compacts it"
            ),
        )
    };
    Ok(Plan { first_dirty, first_uncleanable, clean_bytes, dirty_bytes, due, why })
}

/// Whether compaction is due, and why. Nothing is written.
///
/// # Errors
/// [`Error::NotCompacted`] for a log that is not to be compacted; what the system says.
pub fn plan(partition: &Partition) -> Result<Plan> {
    must_be_asked_for(partition)?;
    partition.refresh()?;
    let stable = partition.last_stable_offset(Patience::MayBlock)?;
    plan_up_to(partition, &partition.layout_full(), stable, partition.clock().now())
}

fn must_be_asked_for(partition: &Partition) -> Result<()> {
    if partition.config().cleanup_policy.compact {
        return Ok(());
    }
    let reason =
        "cleanup.policy does not say so; with cleanup.policy=compact every record without a key goes, and all but the latest of each key";
    Err(Error::NotCompacted { reason: reason.to_owned() })
}

/// What counts the bytes that are passed over.
struct Meter<'p> {
    progress: &'p mut Progress<'p>,
    done: u64,
    told: u64,
    total: u64,
}

impl Meter<'_> {
    fn add(&mut self, bytes: u64) -> Result<()> {
        self.done += bytes;
        if self.done - self.told < PROGRESS_BYTES {
            return Ok(());
        }
        self.told = self.done;
        if (self.progress)(self.done.min(self.total), self.total) { Ok(()) } else { Err(Error::Closed) }
    }
}

/// Compacts the log, if that is due. The caller holds the locks of a writer, and whoever takes segments from the log waits meanwhile; appends go on.
///
/// # Errors
/// [`Error::NotCompacted`] with what to do; damage; what the system says. What was exchanged before stays so, the rest is as it was.
pub fn run<'p>(partition: &Arc<Partition>, mut mode: Mode<'_>, progress: &'p mut Progress<'p>) -> Result<Outcome> {
    must_be_asked_for(partition)?;
    let now = partition.clock().now();
    let layout = partition.layout_full();
    let dir = partition.directory().clone();
    // A snapshot of producers may know of an open transaction whose records retention took, and which still may come to an end.
    let known = partition.last_stable_offset(Patience::MayBlock)?;
    let most = if let Mode::Real { durable, .. } = &mode { known.min(*durable) } else { known };
    // What the log itself says of open transactions can only leave less to do, so it is not read where there is nothing to do anyway.
    let plan = plan_up_to(partition, &layout, most, now)?;
    if !plan.due {
        return Ok(Outcome::nothing(plan));
    }
    let all = bytes_of(&layout, 0..layout.segments.len());
    let mut meter = Meter { progress, done: 0, told: 0, total: 3 * all };
    let mut history = History::new(&*dir, &listing::list(&*dir)?.snapshots, partition.bounds());
    for segment in &layout.segments {
        history.add(Source::open(&*dir, segment)?.batches())?;
        meter.add(segment.end())?;
    }
    let log_end = partition.bounds().log_end;
    let most = history.first_open().unwrap_or(log_end).min(most);
    let mut outcome = Outcome::nothing(plan_up_to(partition, &layout, most, now)?);
    if !outcome.plan.due {
        return Ok(outcome);
    }
    let (first_dirty, upper) = (outcome.plan.first_dirty, outcome.plan.first_uncleanable);
    let mut map = OffsetMap::new(partition.config().dedupe_buffer_size);
    let map_end = fill(partition, &layout, &history, &mut map, (first_dirty, upper), &mut meter)?;
    let end = map_end.map_or(Offset::ZERO, Offset::next);
    let config = partition.config();
    let rules = Rules {
        map: &map,
        map_end,
        upper,
        history: &history,
        now,
        delete_retention_ms: config.delete_retention_ms,
        producer_id_expiration_ms: config.producer_id_expiration_ms,
        decoded_bytes_most: config.batch_decoded_max_bytes,
    };
    let clean = layout.segments.partition_point(|s| s.base_offset() < first_dirty);
    // Tombstones of magic 0 and 1 have no horizon of their own: the time of the newest clean file stands for it.
    let old_horizon = match clean.checked_sub(1).and_then(|at| layout.segments.get(at)) {
        Some(segment) => segment.mtime().earlier_by(config.delete_retention_ms),
        None => TimestampMs::new(0),
    };
    let mut passing = Passing::new(&history, Offset::ZERO);
    let due = now.later_by(config.file_delete_delay_ms);
    if matches!(mode, Mode::Real { .. }) {
        clear(&*dir)?;
    }
    for group in groups(partition, &layout, end, upper)? {
        let sources = &layout.segments[group];
        let (Some(first), Some(last)) = (sources.first(), sources.last()) else { continue };
        let target = matches!(mode, Mode::Real { .. }).then_some(&*dir);
        let mut output = Output::begin(target, first.base_offset(), config.index_interval_bytes)?;
        let aborted_before = outcome.gone.aborted;
        let written = rewrite(&*dir, sources, &rules, &mut passing, old_horizon, &mut output, &mut outcome, &mut meter);
        outcome.segments = (outcome.segments.0 + sources.len() as u64, outcome.segments.1 + 1);
        outcome.bytes = (outcome.bytes.0 + sources.iter().map(|s| s.end()).sum::<u64>(), outcome.bytes.1 + output.size);
        let Mode::Real { exclusively, .. } = &mut mode else {
            written?;
            continue;
        };
        let uncovers = outcome.gone.aborted > aborted_before;
        let finished = written.and_then(|()| partition.may_write()).and_then(|()| output.finish(&*dir, last.mtime()));
        let finished = finished.and_then(|largest| if uncovers { forget_keys(&*dir).map(|()| largest) } else { Ok(largest) });
        let largest = match finished {
            Ok(largest) => largest,
            Err(error) => {
                output.discard(&*dir);
                return Err(error);
            }
        };
        let bases: Vec<Offset> = sources.iter().map(|s| s.base_offset()).collect();
        let metadata =
            output.swap(&*dir, &bases, partition.waste(), due).map_err(|error| Error::HalfCompacted { reason: error.to_string() })?;
        let made = Arc::new(Segment::new(first.base_offset(), "", &metadata));
        made.set_largest(largest);
        exclusively(&mut || partition.publish_exchanged(&bases, &made, uncovers))?;
    }
    if matches!(mode, Mode::Real { .. }) {
        let place = checkpoint::place(&*dir, partition.parent.as_deref(), names::CLEANER);
        checkpoint::set_offset(place, names::CLEANER, partition.name(), end)?;
    }
    outcome.compacted_to = Some(end);
    Ok(outcome)
}

/// Removes the files of a compaction that failed and could not: beside them recovery would take this one's for unfinished, too.
fn clear(dir: &dyn Directory) -> Result<()> {
    let names = Names::of(dir)?;
    let mut left = names.unfinished().peekable();
    if left.peek().is_none() {
        return Ok(());
    }
    for name in left {
        dir.remove(OsStr::new(name)).map_err(|e| Error::io("remove", name, e))?;
    }
    dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))
}

/// Removes the index of keys over all records: it may lead to records of aborted transactions that go now.
fn forget_keys(dir: &dyn Directory) -> Result<()> {
    match dir.remove(OsStr::new(names::KEYS)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", names::KEYS, e)),
        _ => Ok(()),
    }
}

/// Fills the map with the keys of the dirty part, until it is full. Returns the last offset that it has seen.
fn fill(
    partition: &Partition,
    layout: &Layout,
    history: &History,
    map: &mut OffsetMap,
    (from, upper): (Offset, Offset),
    meter: &mut Meter<'_>,
) -> Result<Option<Offset>> {
    let mut passing = Passing::new(history, from);
    let mut seen = None;
    let dirty = between(layout, from, upper);
    for at in dirty.clone() {
        let source = Source::open(&**partition.directory(), &layout.segments[at])?;
        let mut batches = source.batches();
        while let Some((header, batch, position)) = batches.next()? {
            meter.add(u64::from(header.size))?;
            if header.last_offset < from {
                continue;
            }
            if header.magic >= 2 && header.attributes.is_control() {
                passing.control(&header, history::control_of(&header, batch, batches.file(), position)?);
            } else if !passing.data(&header) && header.records_count != 0 {
                let decoded;
                let (body, records) = if header.is_compressed() {
                    let most = partition.config().batch_decoded_max_bytes;
                    decoded = decode(&header, batch, most).map_err(|error| filter::of_decode(error, batches.file(), position))?;
                    (decoded.as_slice(), Records::in_decoded(&header, &decoded))
                } else {
                    (batch, Records::in_batch(&header, batch))
                };
                for record in records {
                    let record = record.map_err(|fault| batches.corrupt(fault.at(crate::types::Position::new(position))))?;
                    let Some(key) = record.key.and_then(|k| body.get(k.start as usize..k.end as usize)).filter(|_| record.offset >= from)
                    else {
                        continue;
                    };
                    if map.is_full() {
                        log::info!("{}: the keys are more than {} and are compacted in several passes", partition.name(), map.len());
                        return Ok(seen);
                    }
                    map.put(key, record.offset);
                    seen = Some(record.offset);
                }
            }
            seen = Some(header.last_offset);
        }
        // Behind a gap at the end of a segment nothing can come any more.
        seen = Some(layout.limit(at).filter(|_| at + 1 < dirty.end).unwrap_or(upper).previous());
    }
    Ok(seen)
}

/// The segments up to an offset in groups, each of which becomes one segment.
fn groups(partition: &Partition, layout: &Layout, end: Offset, upper: Offset) -> Result<Vec<Range<usize>>> {
    let config = partition.config();
    let rewritten = layout.segments.partition_point(|s| s.base_offset() < end);
    let sizes = |at: usize| -> Result<[u64; 3]> {
        let open = partition.open_segment(layout, at, Patience::MayBlock)?;
        Ok([layout.segments[at].end(), open.index.entries().len() as u64, open.timeindex.entries().len() as u64])
    };
    let most = [config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes];
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut sum = [0; 3];
    for at in 0..rewritten {
        let size = sizes(at)?;
        let joins = found.last().is_some_and(|group| {
            let next = if at + 1 < rewritten { layout.limit(at).unwrap_or(upper) } else { upper };
            let span = next.previous().delta_from(layout.segments[group.start].base_offset());
            (0..3).all(|i| sum[i] + size[i] <= most[i]) && (size[0] == 0 || span <= i64::from(i32::MAX))
        });
        match found.last_mut().filter(|_| joins) {
            Some(group) => {
                group.end = at + 1;
                (0..3).for_each(|i| sum[i] += size[i]);
            }
            None => {
                found.push(at..at + 1);
                sum = size;
            }
        }
    }
    Ok(found)
}

/// Writes the batches of a group, or what stays of them, to the output.
#[expect(clippy::too_many_arguments, reason = "the one place where what is known and what is written come together")]
fn rewrite<'h>(
    dir: &dyn Directory,
    sources: &[Arc<Segment>],
    rules: &Rules<'h>,
    passing: &mut Passing<'h>,
    old_horizon: TimestampMs,
    output: &mut Output,
    outcome: &mut Outcome,
    meter: &mut Meter<'_>,
) -> Result<()> {
    for segment in sources {
        let source = Source::open(dir, segment)?;
        let listed = listed_aborted(dir, segment)?;
        let keeps_old_tombstones = segment.mtime() > old_horizon;
        let mut batches = source.batches();
        while let Some((header, batch, position)) = batches.next()? {
            let judged = rules.judge((&header, batch, position), batches.file(), passing, keeps_old_tombstones)?;
            outcome.kept += judged.kept;
            outcome.gone.add(&judged.gone);
            if let Some(aborted) = judged.ends {
                output.aborted(&entry_of(aborted, &listed).encode());
            }
            match judged.fate {
                Fate::Goes => {}
                Fate::Stays => output.add(&header, batch)?,
                Fate::Becomes(anew) => output.add(&filter::header_of(&anew).map_err(|fault| batches.corrupt(fault))?, &anew)?,
            }
            meter.add(u64::from(header.size))?;
        }
    }
    Ok(())
}

/// The entries of a segment's `.txnindex`; those that cannot be read are left out.
fn listed_aborted(dir: &dyn Directory, segment: &Segment) -> Result<Vec<Entry>> {
    let Some(map) = files::map(dir, &names::of(segment.base_offset(), names::TXN_INDEX))? else { return Ok(Vec::new()) };
    let entries = map.bytes().chunks_exact(ENTRY_LEN).filter_map(|chunk| Entry::parse(chunk).ok()).collect();
    map.still_whole()?;
    Ok(entries)
}

/// The entry that a broker finds an aborted transaction by: as it stood, where it says what the log says.
fn entry_of(aborted: &Aborted, listed: &[Entry]) -> Entry {
    let (producer_id, first, last) = (aborted.producer_id, aborted.first.get(), aborted.last.get());
    let known = listed.iter().find(|e| e.producer_id == producer_id && e.last == last && e.first <= first);
    known.copied().unwrap_or(Entry { producer_id, first, last, last_stable: aborted.last_stable.get() })
}

#[cfg(test)]
mod tests;
