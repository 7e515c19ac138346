//! The standing of a local log, put together: `status` of the tree.

use crate::error::{Error, Result};
use crate::log::commit::Committer;
use crate::log::seek::Found;
use crate::log::{checkpoint, names, retention};
use crate::source::local::Local;
use crate::source::{Outlook, RecoveryStep, Source, Status};
use crate::types::{Offset, Patience, TimestampMs};

/// A record whose time lies this far ahead of the clock is worth a warning, in milliseconds.
const AHEAD_MS: i64 = 24 * 60 * 60 * 1000;

/// What [`Source::status`] tells.
///
/// # Errors
/// [`Error::WouldBlock`]; what the system says.
pub(crate) fn of(local: &Local, patience: Patience) -> Result<Status> {
    let partition = local.partition();
    partition.refresh()?;
    let bounds = partition.bounds();
    let layout = partition.layout_full();
    let time_of = |offset: Option<Offset>| -> Result<Option<TimestampMs>> {
        let Some(offset) = offset else { return Ok(None) };
        match local.record(offset, patience) {
            Ok(Found::Record(record)) => Ok(Some(record.timestamp()).filter(|t| *t != TimestampMs::NONE)),
            Ok(Found::Absent(_)) | Err(Error::Corrupt(_) | Error::DecodedTooLarge { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let mut status = Status {
        log_start_offset: bounds.log_start.get(),
        log_end_offset: bounds.log_end.get(),
        last_stable_offset: partition.last_stable_offset(patience)?.get(),
        segments: layout.segments.len() as u64,
        bytes: layout.segments.iter().map(|s| s.end()).sum(),
        first_timestamp: time_of(local.first(patience)?)?,
        last_timestamp: time_of(local.nth_last(1, patience)?)?,
        open_transactions: partition.open_transactions(patience)?,
        leader_epoch: checkpoint::read_leader_epochs(&**partition.directory())
            .ok()
            .and_then(|e| e.last().map(|e| e.epoch))
            .or(partition.last_epoch()),
        ..Status::default()
    };
    if let Some((file, tail)) = partition.torn_tail() {
        let what = tail.kind();
        status.recovery.push(RecoveryStep {
            file,
            position: tail.from.get(),
            bytes: tail.bytes,
            what: format!(
                "{} bytes behind the last good batch are {what} ({}); an append cuts them and keeps them in a .cut- file",
                tail.bytes, tail.fault
            ),
        });
    }
    if let (Some(from), Some(_)) = (partition.unclean_from(), local.committer()) {
        status.recovery.push(RecoveryStep {
            file: names::of(from, names::LOG),
            position: 0,
            bytes: layout.segments.iter().filter(|s| s.base_offset() >= from).map(|s| s.end()).sum(),
            what: "not closed well: the first append checks from here on and makes the indexes anew".to_owned(),
        });
    }
    let plan = retention::plan(partition, patience)?;
    if let Some(log_start) = plan.first_kept() {
        let automatic = local.committer().is_some() && partition.config().maintenance;
        let segments = plan.removals.len() as u64;
        status.retention = Some(Outlook { segments, bytes: plan.bytes(), log_start, automatic });
    }
    for segment in &layout.segments {
        let Some(open) = segment.opened() else { continue };
        for damage in open.as_ref().and_then(|o| o.scan.as_ref()).map(|s| s.damage.as_slice()).unwrap_or_default() {
            let offsets = damage.offsets.map_or(String::new(), |(a, b)| format!("; offsets {a} to {b} are unreadable"));
            status.warnings.push(format!("{} at position {}: damaged ({}){offsets}", segment.log_name(), damage.from, damage.fault));
        }
    }
    if let Some(last) = status.last_timestamp.filter(|t| t.get() > local.now().get().saturating_add(AHEAD_MS)) {
        status.warnings.push(format!("the last record's time, {last} ms, lies over a day ahead of the clock"));
    }
    if let Some(reason) = local.committer().and_then(Committer::poisoned) {
        status.warnings.push(format!("appends are refused: {reason}"));
    }
    Ok(status)
}
