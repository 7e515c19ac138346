//! What lies in a partition directory: its segments as Kafka would see them, and the traces of what was interrupted.
//!
//! Nothing is renamed or removed here. A finished cleaning (`.swap`) stands for the segments that it replaces, an unfinished one
//! (`.cleaned`) and what waits to be removed (`.deleted`) do not exist (format reference 8, steps 1 and 2).

use crate::error::{Error, Result};
use crate::io::{Directory, Kind, Metadata, Open, read_up_to};
use crate::log::checkpoint;
use crate::log::index::{OFFSET_ENTRY_LEN, TIME_ENTRY_LEN};
use crate::log::names;
use crate::types::{Offset, TopicPartition};
use std::ffi::OsStr;

/// A segment's `.log` in the directory.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// The offset in its name.
    pub base_offset: Offset,
    /// Empty, or `.swap`.
    pub suffix: &'static str,
    /// What the system says of it.
    pub metadata: Metadata,
}

/// What a pass over the directory found.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The plain segments by base offset.
    pub logs: Vec<LogFile>,
    /// Segments of a finished cleaning that were not renamed yet, by base offset.
    pub swaps: Vec<LogFile>,
    /// The offsets that have a producer snapshot, in rising order.
    pub snapshots: Vec<Offset>,
    /// Whether one of the files that only a partition has is there.
    pub is_partition: bool,
    /// Whether there is no entry at all, but perhaps settings.
    pub is_empty: bool,
    /// Names that look like parts of a segment but are no regular files; each is told once.
    pub strange: Vec<String>,
    /// Whether there are leftovers of a cleaning or a deletion.
    pub leftovers: bool,
}

impl Listing {
    /// The `.log` of a segment by its base offset and by what follows its usual name.
    pub(crate) fn file_of(&self, base: Offset, suffix: &str) -> Option<&LogFile> {
        let files = if suffix.is_empty() { &self.logs } else { &self.swaps };
        files.get(files.binary_search_by_key(&base, |f| f.base_offset).ok()?)
    }

    /// Whether a finished cleaning replaces the segment at a base offset; `range` is what its replacements cover.
    pub(crate) fn is_replaced(&self, base: Offset, range: Option<(Offset, Offset)>) -> bool {
        range.is_some_and(|(first, next)| base >= first && base < next) || self.file_of(base, names::SWAP).is_some()
    }
}

/// Lists a partition directory.
///
/// # Errors
/// What the system says of the directory itself or of a segment in it; an entry that vanishes meanwhile is passed over.
pub fn list(dir: &dyn Directory) -> Result<Listing> {
    let mut found = Listing { is_empty: true, ..Listing::default() };
    let mut cleaned_from: Option<Offset> = None;
    let entries = dir.list().map_err(|e| Error::io("list", dir.path().display(), e))?;
    for entry in entries {
        // Settings alone are no log yet: they lie there before a new one begins.
        found.is_empty &= entry.name.to_str().is_some_and(|n| n.strip_suffix(".tmp").unwrap_or(n) == names::TOPIC_PROPERTIES);
        let Some(name) = entry.name.to_str() else { continue };
        if name == names::LEADER_EPOCHS || name == names::PARTITION_METADATA {
            found.is_partition = true;
        }
        let Some((base_offset, suffix)) = names::parse(name) else { continue };
        if suffix.ends_with(names::CLEANED) {
            cleaned_from = Some(cleaned_from.map_or(base_offset, |o| o.min(base_offset)));
        }
        found.leftovers |= [names::CLEANED, names::SWAP, names::DELETED].iter().any(|s| suffix.ends_with(s));
        let swap = match suffix {
            names::LOG => "",
            ".log.swap" => names::SWAP,
            names::SNAPSHOT => {
                found.snapshots.push(base_offset);
                continue;
            }
            _ => continue,
        };
        found.is_partition = true;
        if entry.kind != Kind::File {
            found.strange.push(format!("{name} is no regular file; it is left out"));
            continue;
        }
        match dir.metadata(&entry.name) {
            Ok(metadata) if metadata.kind == Kind::File => {
                let file = LogFile { base_offset, suffix: swap, metadata };
                if swap.is_empty() { found.logs.push(file) } else { found.swaps.push(file) }
            }
            Ok(_) => found.strange.push(format!("{name} is no regular file; it is left out")),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            // A segment that cannot be looked at is there all the same: without it, its offsets would be given away again.
            Err(e) => return Err(Error::io("look at", name, e)),
        }
    }
    if let Some(from) = cleaned_from {
        found.swaps.retain(|s| s.base_offset < from);
    }
    found.logs.sort_by_key(|l| l.base_offset);
    found.swaps.sort_by_key(|l| l.base_offset);
    found.snapshots.sort();
    Ok(found)
}

/// The base offset of the first segment whose files were not closed well, by the mark that indexes are trimmed only after their `.log` was
/// synced; `None` after a clean stop. What the data directory says counts where it says more.
///
/// # Errors
/// What the system says of the index files.
pub fn unclean_from(
    dir: &dyn Directory,
    parent: Option<&dyn Directory>,
    logs: &[LogFile],
    name: &TopicPartition,
) -> Result<Option<Offset>> {
    if parent.is_some_and(|p| p.metadata(OsStr::new(names::CLEAN_SHUTDOWN)).is_ok()) {
        return Ok(None);
    }
    let recovery_point = match parent {
        Some(parent) => checkpoint::read_offset(parent, names::RECOVERY_POINT, name).unwrap_or(None).and_then(Offset::new),
        None => None,
    };
    if let Some(point) = recovery_point {
        let floor = logs.iter().rev().find(|l| l.base_offset <= point).or(logs.first());
        return Ok(floor.map(|l| l.base_offset));
    }
    for log in logs {
        for (suffix, entry_len) in [(names::INDEX, OFFSET_ENTRY_LEN), (names::TIME_INDEX, TIME_ENTRY_LEN)] {
            if is_untrimmed(dir, &format!("{}{}", names::of(log.base_offset, suffix), log.suffix), entry_len)? {
                return Ok(Some(log.base_offset));
            }
        }
    }
    Ok(None)
}

/// Whether an index file still has the zero tail that it was allocated with.
fn is_untrimmed(dir: &dyn Directory, name: &str, entry_len: usize) -> Result<bool> {
    let run = || {
        let file = match dir.open(OsStr::new(name), Open::Read) {
            Ok(file) => file,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::InvalidInput) => return Ok(false),
            Err(e) => return Err(e),
        };
        let len = file.metadata()?.len;
        if len < entry_len as u64 {
            return Ok(false);
        }
        // A time index of one entry may be all zeros: the time 0 at the base offset. The offset index beside it tells.
        if len == entry_len as u64 && entry_len == TIME_ENTRY_LEN {
            return Ok(false);
        }
        let last = read_up_to(&*file, len - entry_len as u64, entry_len)?;
        Ok(last.iter().all(|b| *b == 0))
    };
    run().map_err(|e| Error::io("read", name, e))
}

/// The log start offset that checkpoints give a partition: the larger one of the data directory's and of the partition's own; 0 without any.
///
/// # Errors
/// A checkpoint that cannot be read: guessing would show records that were deleted.
pub fn checkpointed_log_start(dir: &dyn Directory, parent: Option<&dyn Directory>, name: &TopicPartition) -> Result<Offset> {
    let mut start = 0;
    for place in parent.into_iter().chain([dir]) {
        start = start.max(checkpoint::read_offset(place, names::LOG_START, name)?.unwrap_or(0));
    }
    Ok(Offset::new(start).unwrap_or(Offset::ZERO))
}
