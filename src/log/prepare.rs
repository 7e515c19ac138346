//! From records to encoded batches, before anything is locked or written: a request is prepared whole or refused whole.

use crate::error::{Error, Result};
use crate::log::config::LogConfig;
use crate::log::encode::{BatchEncoder, EncodedBatch, Encoding, NewRecord, one_record_batch_size};
use crate::types::{Offset, TimestampMs};

/// The batches of one request, back to back, without offsets yet.
#[derive(Debug, Default)]
pub struct Prepared {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// Where each lies in them.
    pub batches: Vec<EncodedBatch>,
    /// How many records they hold together.
    pub records: u64,
    /// The first offset, once the request was appended.
    pub first_offset: Option<Offset>,
}

/// Encodes records into batches of at most `batch.size`, each larger record alone in its own. `now` is the log's time for `LogAppendTime`.
///
/// # Errors
/// [`Error::RecordTooLarge`] for the first record beyond `max.message.bytes` or `segment.bytes`; what the codec says.
pub fn prepare<'a>(config: &LogConfig, now: TimestampMs, records: &mut (impl Iterator<Item = NewRecord<'a>> + ?Sized)) -> Result<Prepared> {
    let encoding = Encoding {
        codec: config.compression_type,
        level: config.compression_level(),
        log_append_time: config.log_append_time.then_some(now),
    };
    let batch_bytes = config.batch_size.min(config.segment_bytes) as usize;
    // A record of fewer bytes than this needs no closer look: what a batch adds to it is less than 128 bytes, without headers.
    let surely_small = config.max_message_bytes.min(config.segment_bytes).saturating_sub(128) as usize;
    let check = |record: &NewRecord<'_>| {
        let len = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        if record.headers.is_empty() && len < surely_small { Ok(()) } else { check_size(config, record) }
    };
    let mut prepared = Prepared::default();
    let mut next = records.next();
    while let Some(first) = next.take() {
        check(&first)?;
        let mut batch = BatchEncoder::new(&mut prepared.bytes, &encoding);
        batch.push(&first);
        for record in &mut *records {
            if !batch.push_within(&record, batch_bytes) {
                next = Some(record);
                break;
            }
            check(&record)?;
        }
        // What a codec makes larger than a segment is stored as it is.
        let batch = batch.finish(config.segment_bytes as usize).map_err(|e| Error::io("compress", "a batch", e))?;
        prepared.records += u64::from(batch.records_count);
        prepared.batches.push(batch);
    }
    Ok(prepared)
}

/// Encodes records into one batch, which is in the log whole or not at all, whatever happens.
///
/// # Errors
/// As [`prepare`]; [`Error::RecordTooLarge`], too, where a segment cannot hold them together.
pub fn prepare_as_one<'a>(
    config: &LogConfig,
    now: TimestampMs,
    records: &mut (impl Iterator<Item = NewRecord<'a>> + ?Sized),
) -> Result<Prepared> {
    let prepared = prepare(&LogConfig { batch_size: config.segment_bytes, ..config.clone() }, now, records)?;
    if prepared.batches.len() > 1 {
        let bytes = prepared.bytes.len() as u64;
        return Err(Error::RecordTooLarge { bytes, setting: "segment.bytes", limit: config.segment_bytes });
    }
    Ok(prepared)
}

#[cold]
fn check_size(config: &LogConfig, record: &NewRecord<'_>) -> Result<()> {
    let bytes = one_record_batch_size(record) as u64;
    for (setting, limit) in [("max.message.bytes", config.max_message_bytes), ("segment.bytes", config.segment_bytes)] {
        if bytes > limit {
            return Err(Error::RecordTooLarge { bytes, setting, limit });
        }
    }
    Ok(())
}
