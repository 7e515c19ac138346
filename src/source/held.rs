//! The records that somebody has open: when retention or compaction takes one of them, its bytes stay until it is closed.
//!
//! A record's file has no state of its own: each read looks the record up. So whoever is about to take records says so before, and those that are open
//! are then kept as handles on the maps of their segments, whose bytes stay for as long as the maps do.

use crate::log::bytes::Shared;
use crate::log::handle::Record;
use crate::log::partition::Partition;
use crate::log::seek::Found;
use crate::types::{Offset, Patience};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;

/// A record that was taken from the log while it was open, and the stored bytes of its batch.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The record.
    pub record: Record,
    /// Its batch.
    pub batch: Shared,
}

#[derive(Debug, Default)]
struct Open {
    times: usize,
    kept: Option<Kept>,
}

/// How often each record is open.
#[derive(Debug, Default)]
pub(crate) struct Held {
    open: Mutex<HashMap<Offset, Open>>,
}

impl Held {
    /// Somebody opens a record.
    pub(crate) fn open(&self, offset: Offset) {
        self.open.lock().entry(offset).or_default().times += 1;
    }

    /// Somebody who has opened it closes it.
    pub(crate) fn close(&self, offset: Offset) {
        let mut open = self.open.lock();
        let Some(held) = open.get_mut(&offset) else { return };
        held.times -= 1;
        if held.times == 0 {
            open.remove(&offset);
        }
    }

    /// The record as it was when it was taken.
    pub(crate) fn kept(&self, offset: Offset) -> Option<Kept> {
        self.open.lock().get(&offset)?.kept.clone()
    }

    /// Keeps the open records of a range that is about to lose some. One that cannot be read is left out: it could not be read before.
    pub(crate) fn keep(&self, partition: &Partition, range: Range<Offset>) {
        let open: Vec<Offset> =
            self.open.lock().iter().filter(|(o, held)| range.contains(o) && held.kept.is_none()).map(|(o, _)| *o).collect();
        for offset in open {
            let Ok(Found::Record(record)) = partition.current_record(offset, Patience::MayBlock) else { continue };
            let Ok(Ok((batch, _))) = partition.batch_at(offset, Patience::MayBlock) else { continue };
            if let Some(held) = self.open.lock().get_mut(&offset) {
                held.kept = Some(Kept { record, batch: batch.stored });
            }
        }
    }
}
