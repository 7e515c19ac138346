//! Batches and records as owned handles: the header, and shared bytes that outlive whatever they were found in.

use crate::error::{Fault, Result};
use crate::log::batch::BatchHeader;
use crate::log::bytes::Shared;
use crate::log::record::{Headers, RecordRef, Records, find_in_batch, find_in_decoded};
use crate::log::verified::Instance;
use crate::types::{Offset, TimestampMs};

/// A batch whose CRC is right, or of which only the header was asked for.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its header.
    pub header: BatchHeader,
    /// Where it begins in its `.log`.
    pub position: u64,
    /// The opened segment it was read from.
    pub instance: Instance,
    /// Its bytes as stored.
    pub stored: Shared,
}

/// A batch with its records readable: the stored bytes themselves, or decoded ones.
#[derive(Clone, Debug)]
pub struct Body {
    /// The header of the batch.
    pub header: BatchHeader,
    /// What record ranges refer to.
    pub bytes: Shared,
}

impl Body {
    /// The records in order.
    pub fn records(&self) -> Records<'_> {
        if self.header.is_compressed() {
            Records::in_decoded(&self.header, self.bytes.as_slice())
        } else {
            Records::in_batch(&self.header, self.bytes.as_slice())
        }
    }

    /// The record with just this offset.
    ///
    /// # Errors
    /// The fault, where the records are not what the format asks for; its position counts from the start of the body.
    #[inline]
    pub fn find(&self, offset: Offset) -> Result<Option<RecordRef>, Fault> {
        if self.header.is_compressed() {
            find_in_decoded(&self.header, self.bytes.as_slice(), offset)
        } else {
            find_in_batch(&self.header, self.bytes.as_slice(), offset)
        }
    }

    /// A record of this body as a handle of its own.
    #[inline]
    pub fn record(&self, reference: RecordRef) -> Record {
        Record { header: self.header, reference, bytes: self.bytes.clone() }
    }
}

/// A record: what its batch says, where its parts lie, and the bytes.
#[derive(Clone, Debug)]
pub struct Record {
    /// The header of its batch.
    pub header: BatchHeader,
    /// Its offset, its time and the ranges of its parts.
    pub reference: RecordRef,
    /// What the ranges refer to.
    pub bytes: Shared,
}

impl Record {
    /// Its offset.
    pub fn offset(&self) -> Offset {
        self.reference.offset
    }

    /// Its time; [`TimestampMs::NONE`] where it has none.
    pub fn timestamp(&self) -> TimestampMs {
        self.reference.timestamp
    }

    /// Its key; `None` is null.
    pub fn key(&self) -> Option<&[u8]> {
        self.reference.key.as_ref().map(|r| self.bytes.part(r))
    }

    /// Its value; `None` is null, a tombstone.
    pub fn value(&self) -> Option<&[u8]> {
        self.reference.value.as_ref().map(|r| self.bytes.part(r))
    }

    /// Its headers in order; one that does not follow the format ends them with a fault.
    pub fn headers(&self) -> Headers<'_> {
        Headers::new(self.bytes.as_slice(), &self.reference)
    }

    /// Whether the file lost bytes while it was read; then nothing that was read counts.
    pub fn is_broken(&self) -> bool {
        self.bytes.is_broken()
    }
}
