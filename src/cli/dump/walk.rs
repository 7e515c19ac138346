//! The walk over the batches of a file, past whatever is damaged.
//!
//! It goes from batch to batch as Kafka does, by their lengths and without a look at the checksums. Only where that leads nowhere the thorough
//! pass ([`crate::log::scan`]) tells where reading can go on.

use super::file::Source;
use crate::error::Fault;
use crate::log::batch::{BatchHeader, Step, verify_crc};
use crate::log::names;
use crate::log::scan::{Scan, Scope, scan};
use crate::types::{Offset, Position};

/// What stands at a place of the file.
#[derive(Debug)]
pub(super) enum Item {
    /// A batch that lies whole in the file.
    Batch(BatchHeader, u64),
    /// Bytes that are no batch, with a good batch behind them.
    Damage {
        /// The first byte.
        from: u64,
        /// How many there are.
        bytes: u64,
        /// What is wrong with the first ones.
        fault: Fault,
        /// The first and the last offset that they cost, where that is known.
        offsets: Option<(Offset, Offset)>,
    },
    /// The last bytes of the file, of which no batch can be made.
    Tail {
        /// The first byte.
        from: u64,
        /// How many there are.
        bytes: u64,
        /// What is wrong; `None` for zeros and for a batch that was cut, which a stopped or running writer leaves.
        fault: Option<Fault>,
    },
}

/// Damaged bytes, from the first one to the good batch behind them.
struct Stretch {
    from: u64,
    to: u64,
    offsets: Option<(Offset, Offset)>,
}

/// A walk in progress.
pub(super) struct Walk<'a> {
    source: &'a Source,
    log: &'a [u8],
    at: u64,
    /// The batch before the present place.
    before: Option<(BatchHeader, u64)>,
    scan: Option<Scan>,
    populated: u64,
}

impl<'a> Walk<'a> {
    /// From the start of the file.
    pub(super) fn new(source: &'a Source) -> Walk<'a> {
        Walk { source, log: source.bytes(), at: 0, before: None, scan: None, populated: 0 }
    }

    /// What stands next; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Item> {
        if self.at >= self.populated {
            self.populated = self.source.populate(self.at);
        }
        match BatchHeader::read(self.log, self.at as usize) {
            Ok(Step::Batch(header)) => {
                let position = self.at;
                self.at += u64::from(header.size);
                self.before = Some((header, position));
                Some(Item::Batch(header, position))
            }
            Ok(Step::End { left: 0 }) => None,
            Ok(Step::End { left }) => {
                let fault = Fault::new(self.at, "a batch that ends in the file", format!("one that reaches beyond its last {left} bytes"));
                Some(self.past(fault, true))
            }
            Err(fault) => Some(self.past(fault, false)),
        }
    }

    /// Goes on behind bytes that are no batch.
    fn past(&mut self, fault: Fault, cut: bool) -> Item {
        let at = self.at;
        let rest = self.log.get(at as usize..).unwrap_or_default();
        let zeros = rest.iter().all(|byte| *byte == 0);
        if !zeros
            && rest.len() >= crate::log::legacy::PROBE_SIZE
            && let Some(Stretch { from, to, offsets }) = self.next_good(at)
        {
            self.at = to;
            self.before = None;
            return Item::Damage { from, bytes: to - from, fault, offsets };
        }
        self.at = self.log.len() as u64;
        Item::Tail { from: at, bytes: rest.len() as u64, fault: Some(fault).filter(|_| !zeros && !cut) }
    }

    /// The damaged stretch that ends at the next good batch. It begins before `at` where the batch before is wrong and led astray.
    fn next_good(&mut self, at: u64) -> Option<Stretch> {
        let begin = match &self.before {
            Some((header, position)) if !self.is_right(header, *position) => *position,
            _ => at,
        };
        let (log, source) = (self.log, self.source);
        let scan = self.scan.get_or_insert_with(|| {
            let index = source.sibling(names::INDEX);
            let base = source.base_offset().or_else(|| match BatchHeader::read(log, 0) {
                Ok(Step::Batch(header)) => Some(header.base_offset),
                _ => None,
            });
            let disk_index = index.as_ref().map_or(&[][..], Source::bytes);
            scan(log, Scope { base: base.unwrap_or(Offset::ZERO), limit: None, interval_bytes: u64::from(u32::MAX), disk_index })
        });
        let damage = scan.damage.iter().find(|damage| damage.to > Position::new(begin))?;
        let to = damage.to.get();
        Some(Stretch { from: if to > at { at } else { begin }, to, offsets: damage.offsets })
    }

    fn is_right(&self, header: &BatchHeader, position: u64) -> bool {
        let batch = self.log.get(position as usize..).and_then(|rest| rest.get(..header.size as usize));
        batch.is_some_and(|batch| verify_crc(header, batch).is_ok())
    }
}
