//! The records of a log by their keys: the last one of each.

use crate::error::Result;
use crate::log::commit::{Appended, Done};
use crate::log::encode::NewRecord;
use crate::log::keys::{KeySink, Latest};
use crate::log::prepare::prepare_as_one;
use crate::source::Source;
use crate::source::local::Local;
use crate::types::Patience;

/// A source whose records can be found by key.
pub trait Keys {
    /// The last record of a key that a reader sees.
    ///
    /// # Errors
    /// [`crate::source::Error::Corrupt`] where it is damaged, or a damaged stretch may hold it; [`crate::source::Error::WouldBlock`]; what the source says.
    fn latest(&self, key: &[u8], patience: Patience) -> Result<Latest>;

    /// The live keys from a cursor on (0: from the start) with their last records.
    ///
    /// # Errors
    /// As [`Keys::latest`]; what cannot be read is told at the end.
    fn live(&self, cursor: u64, patience: Patience, sink: &mut KeySink<'_>) -> Result<()>;

    /// Appends records as one batch: whatever happens, the log has all of them or none.
    ///
    /// # Errors
    /// As [`Source::append`].
    fn append_as_one(&self, records: &mut dyn Iterator<Item = NewRecord<'_>>, done: Done<Appended>) -> Result<()>;
}

impl Keys for Local {
    fn latest(&self, key: &[u8], patience: Patience) -> Result<Latest> {
        self.key_index().latest(key, self.bounds(patience)?, patience)
    }

    fn live(&self, cursor: u64, patience: Patience, sink: &mut KeySink<'_>) -> Result<()> {
        self.key_index().list(cursor, self.bounds(patience)?, patience, sink)
    }

    fn append_as_one(&self, records: &mut dyn Iterator<Item = NewRecord<'_>>, done: Done<Appended>) -> Result<()> {
        let committer = self.writing()?;
        committer.append(prepare_as_one(self.partition().config(), self.now(), records)?, false, done);
        Ok(())
    }
}
