//! What can be saved of a batch whose CRC is right and whose records cannot all be read: the records before the fault, in a batch of their own.

use crate::log::batch::{ATTRIBUTES, BATCH_LENGTH, BatchHeader, CRC, HEADER_SIZE, MAX_TIMESTAMP, RECORDS_COUNT};
use crate::log::config::LogConfig;
use crate::log::legacy::PREFIX_SIZE;
use crate::log::record::{Records, decode};
use crate::types::{TimestampMs, TimestampType};

/// The bits of the attributes that name the codec.
const CODEC_BITS: i16 = 0x07;

/// A batch made of the records that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Salvaged {
    /// Its bytes, uncompressed, with the offsets, times, producer and flags of the old one.
    pub(super) bytes: Vec<u8>,
    /// How many records it has, at least one.
    pub(super) records: i32,
}

/// Saves what can be saved; `None` where no record can be read, and for control batches and magic 0 and 1.
///
/// The count of the batch is not believed: records are read up to the first fault, or to the end.
pub(super) fn salvage(header: &BatchHeader, batch: &[u8]) -> Option<Salvaged> {
    if header.magic != 2 || header.attributes.is_control() {
        return None;
    }
    let decoded = match header.is_compressed() {
        true => Some(decode(header, batch, LogConfig::default().batch_decoded_max_bytes).ok()?),
        false => None,
    };
    let any_count = BatchHeader { records_count: i32::MAX, ..*header };
    let (records, body, begin) = match &decoded {
        Some(body) => (Records::in_decoded(&any_count, body), body.as_slice(), 0),
        None => (Records::in_batch(&any_count, batch), batch, HEADER_SIZE),
    };
    let (mut count, mut end, mut largest) = (0, begin, TimestampMs::NONE);
    for record in records.map_while(Result::ok) {
        // A record ends with its headers.
        (count, end) = (count + 1, record.headers.end as usize);
        largest = largest.max(record.timestamp);
    }
    if count == 0 {
        return None;
    }
    let mut bytes = batch.get(..HEADER_SIZE)?.to_vec();
    bytes.extend_from_slice(body.get(begin..end)?);
    let length = i32::try_from(bytes.len() - PREFIX_SIZE).ok()?;
    let max_timestamp = if header.timestamp_type() == TimestampType::LogAppendTime { header.max_timestamp } else { largest };
    put(&mut bytes, BATCH_LENGTH, &length.to_be_bytes());
    put(&mut bytes, ATTRIBUTES, &(header.attributes.raw() & !CODEC_BITS).to_be_bytes());
    put(&mut bytes, MAX_TIMESTAMP, &max_timestamp.get().to_be_bytes());
    put(&mut bytes, RECORDS_COUNT, &i32::to_be_bytes(count));
    let crc = crc32c::crc32c(bytes.get(ATTRIBUTES..)?);
    put(&mut bytes, CRC, &crc.to_be_bytes());
    Some(Salvaged { bytes, records: count })
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}
