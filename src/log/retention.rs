//! Retention: which segments a log need not keep any more, by Kafka's rules, and how they go.
//!
//! Deciding writes nothing (format reference 10): from the oldest segment on, whole segments go while a rule names them, so that there is never a hole.
//! First those that lie below the log start offset, then those that make the log larger than `retention.bytes`, then those whose newest
//! record is older than `retention.ms`. The active segment goes only where all of it may; a new one is begun before.
//!
//! Nothing here decides *when*: no mount does this by itself unless it was told so in so many words.

use crate::error::{Error, Result};
use crate::log::checkpoint::{self, EpochEntry};
use crate::log::config::LogConfig;
use crate::log::partition::Partition;
use crate::log::writer::Writer;
use crate::types::{Offset, Patience, TimestampMs};
use std::fmt;
use std::sync::Arc;

/// Why a segment may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// All of it lies below the log start offset.
    LogStart(Offset),
    /// Without it the log still has `retention.bytes`.
    Size {
        /// The bytes of the log with it and all behind it.
        log_bytes: u64,
        /// The setting.
        retention_bytes: u64,
    },
    /// Its newest record is too old.
    Age {
        /// The time of that record; where no record has one, of the file.
        newest: TimestampMs,
        /// Whether it is the file's.
        of_file: bool,
        /// The setting.
        retention_ms: i64,
    },
}

/// As the end of a sentence about a segment.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::LogStart(start) => write!(f, "it lies below the log start offset {start}"),
            Why::Size { log_bytes, retention_bytes } => {
                write!(f, "from it on the log has {log_bytes} bytes, and retention.bytes={retention_bytes} are left without it")
            }
            Why::Age { newest, of_file, retention_ms } => {
                let whose = if *of_file { "no record has a time, and its file's" } else { "its newest record's time" };
                write!(f, "{whose}, {newest} ms, is longer ago than retention.ms={retention_ms}")
            }
        }
    }
}

/// A segment that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its base offset.
    pub base: Offset,
    /// The offset behind its last.
    pub until: Offset,
    /// The bytes of its `.log`.
    pub bytes: u64,
    /// Why it may.
    pub why: Why,
}

/// What retention would take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The segments, from the oldest on.
    pub removals: Vec<Removal>,
    /// Whether the active segment is among them, so that a new one has to be begun.
    pub takes_active: bool,
}

impl Plan {
    /// The bytes of all segments concerned.
    pub fn bytes(&self) -> u64 {
        self.removals.iter().map(|r| r.bytes).sum()
    }

    /// What would then be the first offset of the first segment; `None` where nothing goes.
    pub fn first_kept(&self) -> Option<Offset> {
        self.removals.last().map(|r| r.until)
    }
}

/// A segment as the rules see it: its base offset and the bytes of its log.
type Sizes = (Offset, u64);

/// Judges segments in order. `newest` is asked for the time of one's newest record, and whether it is the file's, only where that matters.
fn judge(
    segments: &[Sizes],
    bounds: (Offset, Offset),
    config: &LogConfig,
    now: TimestampMs,
    newest: &mut dyn FnMut(usize) -> Result<(TimestampMs, bool)>,
) -> Result<Plan> {
    let (log_start, log_end) = bounds;
    let until = |at: usize| segments.get(at + 1).map_or(log_end, |(base, _)| *base);
    let mut plan = Plan::default();
    let mut at = 0;
    let mut take = |at: usize, why: Why| {
        let (base, bytes) = segments[at];
        plan.removals.push(Removal { base, until: until(at), bytes, why });
        plan.takes_active = at + 1 == segments.len();
    };
    while segments.get(at + 1).is_some_and(|(next, _)| *next <= log_start) {
        take(at, Why::LogStart(log_start));
        at += 1;
    }
    // An empty last segment stays whatever the rules say.
    let may_go = |at: usize| segments.get(at).is_some_and(|(_, bytes)| *bytes > 0 || at + 1 < segments.len());
    if config.cleanup_policy.delete
        && let Ok(retention_bytes) = u64::try_from(config.retention_bytes)
    {
        let mut log_bytes: u64 = segments.iter().skip(at).map(|(_, bytes)| bytes).sum();
        while log_bytes >= retention_bytes && may_go(at) && log_bytes - retention_bytes >= segments[at].1 {
            take(at, Why::Size { log_bytes, retention_bytes });
            log_bytes -= segments[at].1;
            at += 1;
        }
    }
    if config.cleanup_policy.delete && config.retention_ms >= 0 {
        while may_go(at) {
            let (newest, of_file) = newest(at)?;
            if now.get().saturating_sub(newest.get()) <= config.retention_ms {
                break;
            }
            take(at, Why::Age { newest, of_file, retention_ms: config.retention_ms });
            at += 1;
        }
    }
    Ok(plan)
}

/// What retention would take now. Nothing is written.
///
/// # Errors
/// [`Error::WouldBlock`]; what the system says.
pub fn plan(partition: &Partition, patience: Patience) -> Result<Plan> {
    partition.refresh()?;
    let layout = partition.layout_full();
    let bounds = partition.bounds();
    let segments: Vec<Sizes> = layout.segments.iter().map(|s| (s.base_offset(), s.end())).collect();
    let mut newest = |at: usize| -> Result<(TimestampMs, bool)> {
        let largest = partition.largest_time(&layout, at, patience)?;
        let of_file = largest.get() < 0;
        Ok((if of_file { layout.segments[at].mtime() } else { largest }, of_file))
    };
    judge(&segments, (bounds.log_start, bounds.log_end), partition.config(), partition.clock().now(), &mut newest)
}

/// Takes what the rules name, durably: the log start offset is raised first, so that nothing that was gone comes back after a crash. The files keep
/// existing under `.deleted` until `file.delete.delay.ms` has passed.
///
/// Only what an `earlier` plan named goes, too: the caller has synced the log since, so that no crash takes records which it counted as kept. Returns
/// what went.
///
/// # Errors
/// What the system says; [`Error::TopicName`].
pub fn carry_out(partition: &Arc<Partition>, writer: &mut Writer, earlier: &Plan) -> Result<Plan> {
    partition.may_write()?;
    let mut plan = plan(partition, Patience::MayBlock)?;
    let agreed = plan
        .removals
        .iter()
        .zip(&earlier.removals)
        .take_while(|(now, before)| (now.base, now.until) == (before.base, before.until))
        .count();
    plan.takes_active &= agreed == plan.removals.len();
    plan.removals.truncate(agreed);
    let Some(first_kept) = plan.first_kept() else { return Ok(plan) };
    if plan.takes_active {
        writer.roll_now()?;
    }
    partition.delete_before(first_kept)?;
    let dir = partition.directory();
    forget_epochs(partition, first_kept)?;
    partition.publish_without(first_kept);
    let due = partition.clock().now().later_by(partition.config().file_delete_delay_ms);
    for removal in &plan.removals {
        partition.waste.take_segment(&**dir, removal.base, true, due)?;
    }
    dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))?;
    Ok(plan)
}

/// The epochs that began at or before the first offset become one that begins there, as in Kafka. A file that cannot be read stays as it is.
fn forget_epochs(partition: &Partition, first: Offset) -> Result<()> {
    let dir = partition.directory();
    let epochs = match checkpoint::read_leader_epochs(&**dir) {
        Ok(epochs) => epochs,
        Err(Error::Corrupt(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(before) = epochs.iter().rposition(|e| e.start <= first) else { return Ok(()) };
    let mut kept: Vec<EpochEntry> = epochs[before..].to_vec();
    if let Some(entry) = kept.first_mut() {
        entry.start = first;
    }
    if kept == epochs { Ok(()) } else { checkpoint::write_leader_epochs(&**dir, &kept) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::config::CleanupPolicy;

    fn offset(n: i64) -> Offset {
        Offset::new(n).unwrap()
    }

    /// Segments of 10 offsets each: their bytes and the times of their newest records.
    fn taken(segments: &[(u64, i64)], log_start: i64, now: i64, config: &LogConfig) -> (usize, bool) {
        let sizes: Vec<Sizes> = segments.iter().enumerate().map(|(i, (bytes, _))| (offset(i as i64 * 10), *bytes)).collect();
        let end = offset(segments.len() as i64 * 10);
        let mut newest = |at: usize| Ok((TimestampMs::new(segments[at].1), false));
        let plan = judge(&sizes, (offset(log_start), end), config, TimestampMs::new(now), &mut newest).unwrap();
        assert!(plan.removals.iter().zip(&sizes).all(|(removal, size)| removal.base == size.0), "from the oldest on, without a hole");
        (plan.removals.len(), plan.takes_active)
    }

    fn by_size(retention_bytes: i64) -> LogConfig {
        LogConfig { retention_bytes, retention_ms: -1, ..LogConfig::default() }
    }

    fn by_age(retention_ms: i64) -> LogConfig {
        LogConfig { retention_ms, ..LogConfig::default() }
    }

    #[test]
    fn size_takes_what_is_too_much_and_never_more() {
        let three = [(70, 0), (70, 0), (70, 0)];
        for (bytes, expected) in [
            (-1, (0, false)),
            (0, (3, true)),
            (1, (2, false)),
            (69, (2, false)),
            (70, (2, false)),
            (71, (1, false)),
            (140, (1, false)),
            (141, (0, false)),
            (i64::MAX, (0, false)),
        ] {
            assert_eq!(taken(&three, 0, 0, &by_size(bytes)), expected, "retention.bytes={bytes}");
        }
        assert_eq!(taken(&[(70, 0), (0, 0)], 0, 0, &by_size(0)), (1, false), "an empty last segment stays");
    }

    #[test]
    fn age_is_exceeded_strictly_and_stops_at_the_first_that_is_young() {
        let segments = [(70, 100), (70, 500), (70, 200), (70, 900)];
        assert_eq!(taken(&segments, 0, 1100, &by_age(1000)), (0, false));
        assert_eq!(taken(&segments, 0, 1101, &by_age(1000)), (1, false));
        assert_eq!(taken(&segments, 0, 1500, &by_age(1000)), (1, false), "a young segment keeps older ones behind it");
        assert_eq!(taken(&segments, 0, 1501, &by_age(1000)), (3, false));
        assert_eq!(taken(&segments, 0, 1901, &by_age(1000)), (4, true), "the active one, too, once all is old");
        assert_eq!(taken(&segments, 0, i64::MAX, &by_age(-1)), (0, false));
        assert_eq!(taken(&[(70, i64::MAX)], 0, 0, &by_age(0)), (0, false), "a record from the future");
        assert_eq!(taken(&[(70, i64::MIN)], 0, i64::MAX, &by_age(i64::MAX)), (0, false));
    }

    #[test]
    fn what_lies_below_the_log_start_goes_whatever_the_policy() {
        let segments = [(70, 0), (70, 0), (70, 0)];
        for policy in [CleanupPolicy { delete: false, compact: true }, CleanupPolicy { delete: false, compact: false }] {
            let config = LogConfig { cleanup_policy: policy, retention_bytes: 0, retention_ms: 0, ..LogConfig::default() };
            for (start, expected) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)] {
                assert_eq!(taken(&segments, start, i64::MAX, &config), (expected, false), "{policy:?} {start}");
            }
        }
        // Each rule judges what the one before has left.
        assert_eq!(taken(&segments, 10, 0, &by_size(70)), (2, false));
    }
}
