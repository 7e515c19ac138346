//! The names of the files in a partition directory, in one place: the 20-digit base offset and the suffixes (format reference 6.2).
//!
//! Names are data from a directory that anybody may have written to: everything that does not follow the grammar exactly is simply
//! another file, listed under `segments/` and left alone.

use crate::types::Offset;

/// The records of a segment.
pub const LOG: &str = ".log";
/// Its offset index.
pub const INDEX: &str = ".index";
/// Its time index.
pub const TIME_INDEX: &str = ".timeindex";
/// Its aborted transactions.
pub const TXN_INDEX: &str = ".txnindex";
/// The state of producers at an offset.
pub const SNAPSHOT: &str = ".snapshot";
/// Written by a cleaning that has not finished: does not exist for a reader.
pub const CLEANED: &str = ".cleaned";
/// Written by a finished cleaning: stands for the segments that it replaces.
pub const SWAP: &str = ".swap";
/// Waits to be removed: does not exist for a reader.
pub const DELETED: &str = ".deleted";
/// The leader epochs of the partition.
pub const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// The log start offsets of a data directory, or of a partition outside one.
pub const LOG_START: &str = "log-start-offset-checkpoint";
/// What is known to be on the disk, for each partition of a data directory.
pub const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
/// The high watermarks of a data directory.
pub const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
/// The first offsets that were not compacted yet, in a data directory.
pub const CLEANER: &str = "cleaner-offset-checkpoint";
/// Stands in a data directory after a clean stop of its broker.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Says that a directory belongs to a broker.
pub const META_PROPERTIES: &str = "meta.properties";
/// The file that a broker locks.
pub const BROKER_LOCK: &str = ".lock";
/// Settings that lie in a partition directory; brokers ignore them.
pub const TOPIC_PROPERTIES: &str = "topic.properties";
/// The topic id of a partition.
pub const PARTITION_METADATA: &str = "partition.metadata";

/// Our own index of keys; brokers ignore it.
pub const KEYS: &str = "by-key.offsetfs";
/// The same over committed records.
pub const KEYS_COMMITTED: &str = "by-key-committed.offsetfs";

const DIGITS: usize = 20;

/// The name of a file of the segment or state at an offset.
pub fn of(base: Offset, suffix: &str) -> String {
    format!("{:020}{suffix}", base.get())
}

/// Splits a name into its 20-digit offset and what follows; `None` for every other name.
pub fn parse(name: &str) -> Option<(Offset, &str)> {
    let (digits, suffix) = name.split_at_checked(DIGITS)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) || !suffix.starts_with('.') {
        return None;
    }
    Some((Offset::new(digits.parse().ok()?)?, suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_twenty_digits() {
        assert_eq!(of(Offset::ZERO, LOG), "00000000000000000000.log");
        assert_eq!(parse("00000000000000000828.index"), Some((Offset::new(828).expect("offset"), ".index")));
        assert_eq!(parse("00000000000000000000.log.deleted").map(|p| p.1), Some(".log.deleted"));
        for other in
            ["0.log", "+0000000000000000001.log", "99999999999999999999.log", "00000000000000000000", "ä0000000000000000000.log", ""]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
