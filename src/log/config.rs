//! The settings of a log: Kafka 4.3.1's names, meanings and defaults, with wide lower bounds so that small logs can be tried.
//!
//! A setting has one row in [`SETTINGS`], from which parsing, listing and the documentation of bounds follow. What belongs to a mount rather
//! than to a log (owner, zone, caches of the kernel) is not here.

use crate::log::compression::Codec;

/// Whose records a reader sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All of them (Kafka's default).
    #[default]
    ReadUncommitted,
    /// Not those of aborted and open transactions.
    ReadCommitted,
}

/// What becomes of old records: `cleanup.policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Segments go by age and size (Kafka's default).
    pub delete: bool,
    /// Of the records of a key only the latest stays.
    pub compact: bool,
}

impl Default for CleanupPolicy {
    fn default() -> CleanupPolicy {
        CleanupPolicy { delete: true, compact: false }
    }
}

impl CleanupPolicy {
    /// Reads a list of names with commas between them; it may be empty.
    fn parse(text: &str) -> Option<CleanupPolicy> {
        let mut policy = CleanupPolicy { delete: false, compact: false };
        for name in text.split([',', '+']).map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "delete" => policy.delete = true,
                "compact" => policy.compact = true,
                _ => return None,
            }
        }
        Some(policy)
    }

    fn text(self) -> String {
        let names = [("compact", self.compact), ("delete", self.delete)];
        names.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect::<Vec<_>>().join(",")
    }
}

/// The settings of a log. Every field is named after Kafka's setting.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: the largest `.log` file, in bytes. Default 1 GiB, 14 to 2^31-1.
    pub segment_bytes: u64,
    /// `segment.ms`: a segment is rolled when its records span more than this, in milliseconds. Default 7 days, at least 1.
    pub segment_ms: u64,
    /// `segment.jitter.ms`: up to this much is taken off `segment.ms`, drawn once a segment. Default 0.
    pub segment_jitter_ms: u64,
    /// `segment.index.bytes`: the length an index file is made with, in bytes. Default 10 MiB, at least 4.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`: an index entry is due behind more than so many bytes of batches. Default 4096.
    pub index_interval_bytes: u64,
    /// `max.message.bytes`: the largest record, as its one-record batch uncompressed, in bytes. Default 1048588.
    pub max_message_bytes: u64,
    /// `batch.size`: lines of one write are put into batches of at most so many bytes. Default 16384 (Kafka's producer). At least 1.
    pub batch_size: u64,
    /// `compression.type`: the codec of batches we write. Default none (`producer` and `uncompressed` mean none).
    pub compression_type: Codec,
    /// `compression.gzip.level`: 1 to 9, or -1 for zlib's default (default).
    pub compression_gzip_level: i32,
    /// `compression.zstd.level`: -131072 to 22, default 3.
    pub compression_zstd_level: i32,
    /// `message.timestamp.type` is `LogAppendTime`: the log gives the time. Default: the producer does (`CreateTime`).
    pub log_append_time: bool,
    /// `flush.messages`: an fsync is forced after so many records. Default never (2^63-1), at least 1.
    pub flush_messages: u64,
    /// `flush.ms`: records lie unsynced for at most so many milliseconds. Default forever (2^63-1).
    pub flush_ms: u64,
    /// `cleanup.policy`: what becomes of old records, once maintenance is asked for. Default `delete`; `compact`, both, or none.
    pub cleanup_policy: CleanupPolicy,
    /// `retention.ms`: a segment whose newest record is older than this may go, in milliseconds. Default 7 days, at least -1 (never).
    pub retention_ms: i64,
    /// `retention.bytes`: the oldest segments may go while the others have so many bytes. Default -1 (never); any negative number means that.
    pub retention_bytes: i64,
    /// `file.delete.delay.ms`: the files of a segment that went are unlinked so many milliseconds later. Default 60000.
    pub file_delete_delay_ms: u64,
    /// `delete.retention.ms`: tombstones and markers stay so many milliseconds after the first compaction that met them. Default 1 day.
    pub delete_retention_ms: u64,
    /// `min.compaction.lag.ms`: records younger than this are not compacted, in milliseconds. Default 0.
    pub min_compaction_lag_ms: u64,
    /// `max.compaction.lag.ms`: a record older than this makes compaction due, in milliseconds. Default never (2^63-1), at least 1.
    pub max_compaction_lag_ms: u64,
    /// `min.cleanable.dirty.ratio`: compaction is due when more than this share of the log was not compacted yet. Default 0.5, 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// `log.cleaner.dedupe.buffer.size`: the memory for the keys of one compaction, in bytes; a key takes 24. Default 128 MiB, at least 1024.
    pub dedupe_buffer_size: u64,
    /// `producer.id.expiration.ms`: the last batch of a producer that wrote nothing for so many milliseconds is not kept for its sake. Default 1 day,
    /// at least 1.
    pub producer_id_expiration_ms: u64,
    /// `log.retention.check.interval.ms`: how often maintenance looks for segments that may go, in milliseconds. Default 5 minutes, at least 1.
    pub retention_check_interval_ms: u64,
    /// `log.cleaner.backoff.ms`: how often maintenance looks whether compaction is due, in milliseconds. Default 15 seconds, at least 1.
    pub cleaner_backoff_ms: u64,
    /// `maintenance`: a writable mount deletes and compacts by itself, as the settings above say. Default off: it never does.
    pub maintenance: bool,
    /// `isolation`: what readers see.
    pub isolation: Isolation,
    /// `batch.decoded.max.bytes`: a compressed batch larger than this once decoded is refused. Default 64 MiB. At least 1024.
    pub batch_decoded_max_bytes: u64,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            max_message_bytes: (1 << 20) + 12,
            batch_size: 16384,
            compression_type: Codec::None,
            compression_gzip_level: -1,
            compression_zstd_level: 3,
            log_append_time: false,
            flush_messages: i64::MAX as u64,
            flush_ms: i64::MAX as u64,
            cleanup_policy: CleanupPolicy::default(),
            retention_ms: 7 * 24 * 60 * 60 * 1000,
            retention_bytes: -1,
            file_delete_delay_ms: 60_000,
            delete_retention_ms: 24 * 60 * 60 * 1000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX as u64,
            min_cleanable_dirty_ratio: 0.5,
            dedupe_buffer_size: 128 << 20,
            producer_id_expiration_ms: 24 * 60 * 60 * 1000,
            retention_check_interval_ms: 5 * 60 * 1000,
            cleaner_backoff_ms: 15_000,
            maintenance: false,
            isolation: Isolation::ReadUncommitted,
            batch_decoded_max_bytes: 64 << 20,
        }
    }
}

/// A row of the table of settings.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Kafka's name.
    pub name: &'static str,
    /// What values it takes, in words.
    pub values: &'static str,
    /// What it does, in a sentence.
    pub meaning: &'static str,
    set: fn(&mut LogConfig, &str) -> Option<()>,
    get: fn(&LogConfig) -> String,
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").field("name", &self.name).field("values", &self.values).finish_non_exhaustive()
    }
}

fn number(text: &str, from: u64, to: u64) -> Option<u64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|n| (from..=to).contains(n))
}

fn signed(text: &str, from: i64) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|n| *n >= from)
}

fn level(text: &str, from: i32, to: i32) -> Option<i32> {
    text.parse().ok().filter(|n| (from..=to).contains(n))
}

const FOREVER: u64 = i64::MAX as u64;

/// Every setting, in the order in which `config` lists them.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "segment.bytes",
        values: "bytes, 14 to 2147483647",
        meaning: "the largest .log file",
        set: |c, t| number(t, 14, i32::MAX as u64).map(|n| c.segment_bytes = n),
        get: |c| c.segment_bytes.to_string(),
    },
    Setting {
        name: "segment.ms",
        values: "milliseconds, from 1",
        meaning: "a segment whose records span more than this is rolled",
        set: |c, t| number(t, 1, FOREVER).map(|n| c.segment_ms = n),
        get: |c| c.segment_ms.to_string(),
    },
    Setting {
        name: "segment.jitter.ms",
        values: "milliseconds, from 0",
        meaning: "up to this much is taken off segment.ms, drawn once a segment",
        set: |c, t| number(t, 0, FOREVER).map(|n| c.segment_jitter_ms = n),
        get: |c| c.segment_jitter_ms.to_string(),
    },
    Setting {
        name: "segment.index.bytes",
        values: "bytes, 4 to 2147483647",
        meaning: "the length an index file is made with; a full index rolls the segment",
        set: |c, t| number(t, 4, i32::MAX as u64).map(|n| c.segment_index_bytes = n),
        get: |c| c.segment_index_bytes.to_string(),
    },
    Setting {
        name: "index.interval.bytes",
        values: "bytes, 0 to 2147483647",
        meaning: "an index entry is due behind more than so many bytes of batches",
        set: |c, t| number(t, 0, i32::MAX as u64).map(|n| c.index_interval_bytes = n),
        get: |c| c.index_interval_bytes.to_string(),
    },
    Setting {
        name: "max.message.bytes",
        values: "bytes, 0 to 2147483647",
        meaning: "the largest record, as its one-record batch uncompressed; a larger one is EMSGSIZE",
        set: |c, t| number(t, 0, i32::MAX as u64).map(|n| c.max_message_bytes = n),
        get: |c| c.max_message_bytes.to_string(),
    },
    Setting {
        name: "batch.size",
        values: "bytes, 1 to 2147483647",
        meaning: "the lines of one write are put into batches of at most so many bytes",
        set: |c, t| number(t, 1, i32::MAX as u64).map(|n| c.batch_size = n),
        get: |c| c.batch_size.to_string(),
    },
    Setting {
        name: "compression.type",
        values: "none, gzip, snappy, lz4, zstd (uncompressed, producer: none)",
        meaning: "the codec of the batches that are written",
        set: |c, t| Codec::parse(t).map(|codec| c.compression_type = codec),
        get: |c| c.compression_type.name().to_owned(),
    },
    Setting {
        name: "compression.gzip.level",
        values: "1 to 9, or -1",
        meaning: "the effort of gzip; -1 is zlib's default",
        set: |c, t| level(t, -1, 9).filter(|n| *n != 0).map(|n| c.compression_gzip_level = n),
        get: |c| c.compression_gzip_level.to_string(),
    },
    Setting {
        name: "compression.zstd.level",
        values: "-131072 to 22",
        meaning: "the effort of zstd",
        set: |c, t| level(t, -131_072, 22).map(|n| c.compression_zstd_level = n),
        get: |c| c.compression_zstd_level.to_string(),
    },
    Setting {
        name: "message.timestamp.type",
        values: "CreateTime, LogAppendTime",
        meaning: "who gives a record its time",
        set: |c, t| {
            match t {
                "CreateTime" => Some(false),
                "LogAppendTime" => Some(true),
                _ => None,
            }
            .map(|by_log| c.log_append_time = by_log)
        },
        get: |c| if c.log_append_time { "LogAppendTime" } else { "CreateTime" }.to_owned(),
    },
    Setting {
        name: "flush.messages",
        values: "records, from 1",
        meaning: "an fsync is forced after so many records",
        set: |c, t| number(t, 1, FOREVER).map(|n| c.flush_messages = n),
        get: |c| c.flush_messages.to_string(),
    },
    Setting {
        name: "flush.ms",
        values: "milliseconds, from 0",
        meaning: "records lie unsynced for at most so long",
        set: |c, t| number(t, 0, FOREVER).map(|n| c.flush_ms = n),
        get: |c| c.flush_ms.to_string(),
    },
    Setting {
        name: "cleanup.policy",
        values: "delete, compact, compact+delete, or nothing",
        meaning: "what becomes of old records where maintenance is asked for",
        set: |c, t| CleanupPolicy::parse(t).map(|policy| c.cleanup_policy = policy),
        get: |c| c.cleanup_policy.text(),
    },
    Setting {
        name: "retention.ms",
        values: "milliseconds, from -1 (never)",
        meaning: "a segment whose newest record is older than this may go",
        set: |c, t| signed(t, -1).map(|n| c.retention_ms = n),
        get: |c| c.retention_ms.to_string(),
    },
    Setting {
        name: "retention.bytes",
        values: "bytes; below 0: never",
        meaning: "the oldest segments may go while the others have so many bytes",
        set: |c, t| signed(t, i64::MIN).map(|n| c.retention_bytes = n),
        get: |c| c.retention_bytes.to_string(),
    },
    Setting {
        name: "file.delete.delay.ms",
        values: "milliseconds, from 0",
        meaning: "the files of a segment that went are unlinked so much later",
        set: |c, t| number(t, 0, FOREVER).map(|n| c.file_delete_delay_ms = n),
        get: |c| c.file_delete_delay_ms.to_string(),
    },
    Setting {
        name: "delete.retention.ms",
        values: "milliseconds, from 0",
        meaning: "tombstones and markers stay so long after the first compaction that met them",
        set: |c, t| number(t, 0, FOREVER).map(|n| c.delete_retention_ms = n),
        get: |c| c.delete_retention_ms.to_string(),
    },
    Setting {
        name: "min.compaction.lag.ms",
        values: "milliseconds, from 0",
        meaning: "records younger than this are not compacted",
        set: |c, t| number(t, 0, FOREVER).map(|n| c.min_compaction_lag_ms = n),
        get: |c| c.min_compaction_lag_ms.to_string(),
    },
    Setting {
        name: "max.compaction.lag.ms",
        values: "milliseconds, from 1",
        meaning: "a record older than this that was not compacted makes compaction due",
        set: |c, t| number(t, 1, FOREVER).map(|n| c.max_compaction_lag_ms = n),
        get: |c| c.max_compaction_lag_ms.to_string(),
    },
    Setting {
        name: "min.cleanable.dirty.ratio",
        values: "0 to 1",
        meaning: "compaction is due when more than this share of the log was not compacted yet",
        set: |c, t| t.parse().ok().filter(|n| (0.0..=1.0).contains(n)).map(|n| c.min_cleanable_dirty_ratio = n),
        get: |c| c.min_cleanable_dirty_ratio.to_string(),
    },
    Setting {
        name: "log.cleaner.dedupe.buffer.size",
        values: "bytes, from 1024",
        meaning: "the memory for the keys of one compaction; a key takes 24 bytes",
        set: |c, t| number(t, 1024, FOREVER).map(|n| c.dedupe_buffer_size = n),
        get: |c| c.dedupe_buffer_size.to_string(),
    },
    Setting {
        name: "producer.id.expiration.ms",
        values: "milliseconds, from 1",
        meaning: "the last batch of a producer that wrote nothing for so long is not kept for its sake",
        set: |c, t| number(t, 1, FOREVER).map(|n| c.producer_id_expiration_ms = n),
        get: |c| c.producer_id_expiration_ms.to_string(),
    },
    Setting {
        name: "log.retention.check.interval.ms",
        values: "milliseconds, from 1",
        meaning: "how often maintenance looks for segments that may go",
        set: |c, t| number(t, 1, FOREVER).map(|n| c.retention_check_interval_ms = n),
        get: |c| c.retention_check_interval_ms.to_string(),
    },
    Setting {
        name: "log.cleaner.backoff.ms",
        values: "milliseconds, from 1",
        meaning: "how often maintenance looks whether compaction is due",
        set: |c, t| number(t, 1, FOREVER).map(|n| c.cleaner_backoff_ms = n),
        get: |c| c.cleaner_backoff_ms.to_string(),
    },
    Setting {
        name: "maintenance",
        values: "on, off",
        meaning: "whether a writable mount deletes and compacts by itself",
        set: |c, t| ["off", "on"].iter().position(|word| *word == t).map(|at| c.maintenance = at == 1),
        get: |c| if c.maintenance { "on" } else { "off" }.to_owned(),
    },
    Setting {
        name: "isolation",
        values: "read_uncommitted, read_committed",
        meaning: "whether records of aborted and open transactions are shown",
        set: |c, t| {
            match t {
                "read_uncommitted" => Some(Isolation::ReadUncommitted),
                "read_committed" => Some(Isolation::ReadCommitted),
                _ => None,
            }
            .map(|isolation| c.isolation = isolation)
        },
        get: |c| match c.isolation {
            Isolation::ReadUncommitted => "read_uncommitted".to_owned(),
            Isolation::ReadCommitted => "read_committed".to_owned(),
        },
    },
    Setting {
        name: "batch.decoded.max.bytes",
        values: "bytes, from 1024 to 2147483647",
        meaning: "a compressed batch larger than this once decoded is refused",
        set: |c, t| number(t, 1024, i32::MAX as u64).map(|n| c.batch_decoded_max_bytes = n),
        get: |c| c.batch_decoded_max_bytes.to_string(),
    },
];

impl LogConfig {
    /// Sets a setting by its name. `Ok(false)`: there is no such setting.
    ///
    /// # Errors
    /// What values it takes, where the text is none of them.
    pub fn set(&mut self, name: &str, text: &str) -> Result<bool, String> {
        let Some(setting) = SETTINGS.iter().find(|s| s.name == name) else { return Ok(false) };
        match (setting.set)(self, text) {
            Some(()) => Ok(true),
            None => Err(format!("{name}={text}: it takes {}", setting.values)),
        }
    }

    /// All settings with their values in force.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        SETTINGS.iter().map(|s| (s.name, (s.get)(self)))
    }

    /// The level for the codec in force; `None` for its default.
    pub fn compression_level(&self) -> Option<i32> {
        match self.compression_type {
            Codec::Gzip if self.compression_gzip_level != -1 => Some(self.compression_gzip_level),
            Codec::Zstd => Some(self.compression_zstd_level),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_takes_back_what_it_lists() {
        let config = LogConfig::default();
        let mut copy = LogConfig { segment_bytes: 14, ..LogConfig::default() };
        for (name, value) in config.list() {
            assert_eq!(copy.set(name, &value), Ok(true), "{name}={value}");
        }
        assert_eq!(copy, config);
    }

    #[test]
    fn bounds_hold() {
        let mut config = LogConfig::default();
        assert_eq!(config.set("no.such.setting", "1"), Ok(false));
        for (name, bad) in [
            ("segment.bytes", "13"),
            ("segment.bytes", "+14"),
            ("segment.bytes", "2147483648"),
            ("compression.type", "brotli"),
            ("compression.gzip.level", "0"),
            ("retention.ms", "-2"),
            ("retention.ms", "+1"),
            ("cleanup.policy", "Compact"),
            ("min.cleanable.dirty.ratio", "1.1"),
            ("min.cleanable.dirty.ratio", "NaN"),
            ("maintenance", "yes"),
        ] {
            assert!(config.set(name, bad).is_err(), "{name}={bad}");
        }
        assert_eq!(config, LogConfig::default());
    }
}
