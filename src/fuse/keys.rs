//! Open keys of `by-key/`: which handle writes which draft, and when its record is due.
//!
//! A draft belongs to one opening, and its record is due at the last close of that opening. A close that is not the last one, as when a shell closes the
//! descriptor that it has duplicated, is told from the last by looking who else holds the file open for writing. Where that
//! cannot be told the record is stored at the release, whose errors no writer sees.

use super::holders::{self, Others, SEARCH_MOST};
use crate::view::{Draft, Error};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// Handles of keys that are open for writing.
#[derive(Debug, Default)]
pub(super) struct KeyHandles {
    open: RwLock<HashMap<u64, Arc<KeyHandle>>>,
}

/// A key that is open for writing.
#[derive(Debug)]
pub(super) struct KeyHandle {
    /// The number of its file.
    pub(super) number: u64,
    pub(super) draft: Arc<Draft>,
    /// Whether the writer asked at the opening that all it writes is on the disk.
    pub(super) durable: bool,
}

impl KeyHandles {
    pub(super) fn insert(&self, handle: u64, key: KeyHandle) {
        self.open.write().insert(handle, Arc::new(key));
    }

    pub(super) fn get(&self, handle: u64) -> Option<Arc<KeyHandle>> {
        self.open.read().get(&handle).cloned()
    }

    pub(super) fn remove(&self, handle: u64) -> Option<Arc<KeyHandle>> {
        self.open.write().remove(&handle)
    }
}

impl KeyHandle {
    /// At a close: stores the record if this was the last one. It may wait.
    pub(super) fn close(&self, closer: u32) -> Result<(), Error> {
        match holders::other_writers(self.number, closer, SEARCH_MOST) {
            Others::None => self.draft.commit(self.durable),
            Others::Some | Others::Unknown => Ok(()),
        }
    }

    /// Writes a piece; with O_APPEND at the end, whatever the kernel takes for it.
    pub(super) fn write(&self, at: u64, append: bool, data: &[u8]) -> Result<(), Error> {
        self.draft.write(if append { None } else { Some(at) }, data)
    }
}
