//! What a reader of committed records sees: walks the log for the state of transactions, and goes on from there when the log has grown.

use crate::error::{Error, Result};
use crate::log::batch::BatchHeader;
use crate::log::partition::Partition;
use crate::log::transactions::{OpenTransaction, Transactions, read_snapshot};
use crate::log::walk::{Item, Look};
use crate::types::{Offset, Patience};

impl Partition {
    /// Brings the state up to the log end. `whole` asks for all aborted transactions, not only the open ones.
    fn follow_transactions(&self, whole: bool, patience: Patience) -> Result<()> {
        let bounds = self.bounds();
        let mut state = match patience {
            Patience::MayBlock => self.transactions.lock(),
            Patience::AtOnce => self.transactions.try_lock().ok_or(Error::WouldBlock)?,
        };
        if state.started && state.up_to >= bounds.log_end && (state.whole || !whole) {
            return Ok(());
        }
        if patience == Patience::AtOnce {
            return Err(Error::WouldBlock);
        }
        if !state.started || (whole && !state.whole) {
            *state = Transactions { started: true, whole, up_to: bounds.log_start, ..Transactions::default() };
            // A transaction may have begun below the log start, as long as its bytes are there.
            state.up_to = self.layout().segments.first().map_or(bounds.log_start, |s| s.base_offset());
            if !whole {
                self.begin_at_snapshot(&mut state, bounds.log_end);
            }
        }
        let from = state.up_to;
        let mut walk = self.walk(from, bounds.log_end, Look::Headers, Patience::MayBlock);
        while let Some(item) = walk.next(self)? {
            if let Item::Batch(batch, file) = item
                && batch.header.base_offset >= from
            {
                state.add(&batch.header, || self.body(&batch, &file, Patience::MayBlock))?;
            }
        }
        state.up_to = bounds.log_end;
        Ok(())
    }

    /// Takes over the newest producer snapshot that can be read; an unreadable one is passed over for an older one.
    fn begin_at_snapshot(&self, state: &mut Transactions, log_end: Offset) {
        let Ok(found) = crate::log::listing::list(&*self.dir) else { return };
        for offset in found.snapshots.into_iter().rev().filter(|o| *o <= log_end && *o >= state.up_to) {
            if let Ok(open) = read_snapshot(&*self.dir, offset) {
                state.open = open.into_iter().map(|t| (t.producer_id, t.first)).collect();
                state.up_to = offset;
                return;
            }
        }
    }

    /// The last stable offset: the first offset of the oldest open transaction, else the log end.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]; what the system says.
    pub fn last_stable_offset(&self, patience: Patience) -> Result<Offset> {
        self.follow_transactions(false, patience)?;
        Ok(self.transactions.lock().last_stable_offset(self.bounds().log_end))
    }

    /// The transactions that are open, by their first offset.
    ///
    /// # Errors
    /// As [`Partition::last_stable_offset`].
    pub fn open_transactions(&self, patience: Patience) -> Result<Vec<OpenTransaction>> {
        self.follow_transactions(false, patience)?;
        let state = self.transactions.lock();
        let mut open: Vec<_> = state.open.iter().map(|(&producer_id, &first)| OpenTransaction { producer_id, first }).collect();
        open.sort_by_key(|t| (t.first, t.producer_id));
        Ok(open)
    }

    /// Whether a reader of committed records sees the record of a batch at an offset: it is below the last stable offset and not aborted.
    ///
    /// # Errors
    /// As [`Partition::last_stable_offset`].
    pub fn is_committed(&self, header: &BatchHeader, offset: Offset, patience: Patience) -> Result<bool> {
        self.follow_transactions(true, patience)?;
        let state = self.transactions.lock();
        if offset >= state.last_stable_offset(self.bounds().log_end) {
            return Ok(false);
        }
        Ok(header.magic < 2 || !header.attributes.is_transactional() || !state.is_aborted(header.producer_id, offset))
    }
}
