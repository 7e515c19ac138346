//! What happens before the first append: traces of an interrupted cleaning are finished, what an unclean stop left is checked batch by batch, the
//! torn tail is cut and kept beside the log, indexes are made anew. Opening alone does none of this.
//!
//! Only a torn tail is cut: bytes behind which no whole, right batch follows. Damage in the middle stays where it is; its good
//! neighbours stay readable. Every step can be interrupted and done again: cut bytes are durable before the `.log` is cut, a `.log` is synced
//! before its index loses the zero tail that marks an unclean stop, and new indexes take the place of old ones by a rename.

use crate::error::{Error, Result};
use crate::io::{Directory, File, Kind, Open, write_all_at};
use crate::log::check::files;
use crate::log::index::{OFFSET_ENTRY_LEN, OffsetIndex, TIME_ENTRY_LEN, TimeIndex};
use crate::log::leftovers::{self, Names};
use crate::log::names;
use crate::log::partition::Partition;
use crate::log::scan::{Scan, Tail};
use crate::log::segment::{OpenSegment, Role, Segment};
use crate::types::{Patience, TimestampMs};
use std::ffi::OsStr;
use std::sync::Arc;

/// Bytes that are cut are copied in pieces of this size.
const COPY_BYTES: usize = 1 << 20;

/// Gets a partition ready for its writer; the caller holds the lock. Returns what was done, in words.
///
/// # Errors
/// What the system says; the directory is then as good as it was.
pub(crate) fn recover(partition: &Partition) -> Result<Vec<String>> {
    let mut said = Vec::new();
    let dir = partition.directory().clone();
    if finish_cleaning(&*dir, &mut said)? {
        partition.look_again()?;
    }
    let layout = partition.layout_full();
    let from = partition.unclean_from();
    let count = layout.segments.len();
    let mut changed = false;
    for (at, segment) in layout.segments.iter().enumerate() {
        let last = at + 1 == count;
        let unclean = from.is_some_and(|from| segment.base_offset() >= from);
        let torn = if last { partition.end().tail } else { None };
        if !unclean && torn.is_none() && !(last && needs_indexes(partition, segment)?) {
            continue;
        }
        changed = true;
        let log = dir.open(OsStr::new(segment.log_name()), Open::Write).map_err(|e| Error::io("open", segment.log_name(), e))?;
        if unclean {
            // What the page cache holds may never have reached the disk: a failed fsync marks pages clean.
            log.sync_data().map_err(|e| Error::io("sync", segment.log_name(), e))?;
            segment.close();
            log.drop_cached(0).map_err(|e| Error::io("drop the cached pages of", segment.log_name(), e))?;
        }
        let file_len = log.metadata().map_err(|e| Error::io("look at", segment.log_name(), e))?.len;
        let published = segment.end();
        segment.publish(file_len, None);
        let open = segment.open(&*dir, if last { Role::Last } else { Role::Sealed }, file_len, &partition.opened)?;
        // What a power cut leaves where the log rolled just before: nothing but empty segments behind a torn write.
        let is_end = layout.segments.iter().skip(at + 1).all(|later| later.end() == 0);
        let scan = partition.scan_segment(segment, &open, layout.limit(at), is_end);
        segment.publish(published, None);
        let scan = scan?;
        if let Some(tail) = &scan.tail {
            cut_tail(&*dir, segment, &*log, tail, &mut said)?;
        }
        log.sync_data().map_err(|e| Error::io("sync", segment.log_name(), e))?;
        replace_indexes(&*dir, segment, &scan)?;
        if unclean {
            said.push(format!("{}: indexes made anew after an unclean stop ({} batches)", segment.log_name(), scan.batches));
        }
        for damage in &scan.damage {
            said.push(match damage.offsets {
                Some((first, last)) => format!(
                    "{} at position {}: {} bytes are damaged ({}); offsets {first} to {last} are unreadable, their neighbours stay",
                    segment.log_name(),
                    damage.from,
                    damage.to.get() - damage.from.get(),
                    damage.fault
                ),
                None => format!(
                    "{} at position {}: {} bytes are no batch ({})",
                    segment.log_name(),
                    damage.from,
                    damage.to.get() - damage.from.get(),
                    damage.fault
                ),
            });
        }
        segment.close();
        segment.forget_largest();
    }
    if changed {
        dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))?;
        partition.look_again()?;
    }
    Ok(said)
}

/// Finishes what Kafka would finish at its start: a complete `.swap` takes the place of the segments it stands for, `.cleaned` and `.deleted` go.
/// Whether anything was done.
fn finish_cleaning(dir: &dyn Directory, said: &mut Vec<String>) -> Result<bool> {
    let found = files::list_all(dir)?;
    if !found.leftovers {
        return Ok(false);
    }
    let before = said.len();
    for group in leftovers::cleaning(&Names::of(dir)?, &found, &files::layout(dir, &found)?) {
        for step in &group {
            step.run(dir)?;
            said.push(step.told());
        }
        if !group.is_empty() {
            dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))?;
        }
    }
    Ok(said.len() > before)
}

/// Whether the last segment, though closed well, lacks indexes that can be gone on with.
fn needs_indexes(partition: &Partition, segment: &Arc<Segment>) -> Result<bool> {
    let dir = partition.directory();
    let missing = |suffix| dir.metadata(OsStr::new(&names::of(segment.base_offset(), suffix))).map_or(true, |m| m.kind != Kind::File);
    if segment.end() > 0 && (missing(names::INDEX) || missing(names::TIME_INDEX)) {
        return Ok(true);
    }
    let layout = partition.layout_full();
    let Some(at) = layout.segments.len().checked_sub(1) else { return Ok(false) };
    let largest = partition.largest_time(&layout, at, Patience::MayBlock)?;
    let open = partition.open_segment(&layout, at, Patience::MayBlock)?;
    // A clean close stores the largest time last; without it, what is appended would be thought to be later than all that is there.
    let stored = TimeIndex::new(open.timeindex.entries(), segment.base_offset()).last().map_or(TimestampMs::NONE, |e| e.timestamp);
    Ok(open.scan.is_some() || !indexes_rise(&open, segment) || stored != largest)
}

/// Whether index entries rise and stay within the log: all that can be told without reading the log.
fn indexes_rise(open: &OpenSegment, segment: &Segment) -> bool {
    let index = OffsetIndex::new(open.index.entries(), segment.base_offset());
    let times = TimeIndex::new(open.timeindex.entries(), segment.base_offset());
    let entries: Option<Vec<_>> = (0..index.len()).map(|i| index.entry(i)).collect();
    let time_entries: Option<Vec<_>> = (0..times.len()).map(|i| times.entry(i)).collect();
    let (Some(entries), Some(time_entries)) = (entries, time_entries) else { return false };
    entries.windows(2).all(|w| w[0].offset < w[1].offset && w[0].position < w[1].position)
        && entries.last().is_none_or(|e| e.position.get() < segment.end())
        && time_entries.windows(2).all(|w| w[0].timestamp < w[1].timestamp && w[0].offset <= w[1].offset)
        && open.index.entries().len().is_multiple_of(OFFSET_ENTRY_LEN)
        && open.timeindex.entries().len().is_multiple_of(TIME_ENTRY_LEN)
}

/// Cuts the torn tail of the last segment that holds anything; its bytes stay in a file beside it, which Kafka ignores.
fn cut_tail(dir: &dyn Directory, segment: &Segment, log: &dyn File, tail: &Tail, said: &mut Vec<String>) -> Result<()> {
    let name = format!("{}.cut-{}", segment.log_name(), tail.from);
    let run = || -> std::io::Result<()> {
        let kept = dir.open(OsStr::new(&name), Open::Create)?;
        kept.set_len(0)?;
        // Zeros are kept as a hole of their length.
        kept.set_len(tail.bytes)?;
        let mut done = 0;
        while !tail.zeros && done < tail.bytes {
            let piece = crate::io::read_up_to(log, tail.from.get() + done, COPY_BYTES.min((tail.bytes - done) as usize))?;
            if piece.is_empty() {
                break;
            }
            write_all_at(&*kept, &piece, done)?;
            done += piece.len() as u64;
        }
        kept.sync_data()?;
        dir.sync()?;
        log.set_len(tail.from.get())
    };
    run().map_err(|e| Error::io("cut the torn tail of", segment.log_name(), e))?;
    let what = tail.kind();
    said.push(format!(
        "{} at position {}: {} bytes cut, {what} behind the last good batch ({}); they are kept in {name}",
        segment.log_name(),
        tail.from,
        tail.bytes,
        tail.fault
    ));
    Ok(())
}

/// Puts new indexes in the place of the old ones, each by a rename.
fn replace_indexes(dir: &dyn Directory, segment: &Segment, scan: &Scan) -> Result<()> {
    for (suffix, bytes) in [(names::INDEX, &scan.index), (names::TIME_INDEX, &scan.timeindex)] {
        let name = names::of(segment.base_offset(), suffix);
        let temporary = format!("{name}.tmp");
        let run = || -> std::io::Result<()> {
            let file = dir.open(OsStr::new(&temporary), Open::Create)?;
            file.set_len(0)?;
            write_all_at(&*file, bytes, 0)?;
            file.sync_data()?;
            dir.rename(OsStr::new(&temporary), OsStr::new(&name))
        };
        run().map_err(|e| Error::io("write", &name, e))?;
    }
    Ok(())
}
