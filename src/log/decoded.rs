//! Decompressed batches, kept for neighbouring look-ups; bounded by bytes, the least recently used go first.

use crate::log::verified::Instance;
use lru::LruCache;
use parking_lot::Mutex;
use std::sync::Arc;

/// How many decoded bytes are kept; one larger batch is kept alone.
const BYTES_MOST: usize = 32 << 20;

#[derive(Debug)]
struct Kept {
    batches: LruCache<(Instance, u64), Arc<Vec<u8>>>,
    bytes: usize,
}

/// The cache of a partition.
#[derive(Debug)]
pub struct DecodedBatches {
    kept: Mutex<Kept>,
}

impl Default for DecodedBatches {
    fn default() -> DecodedBatches {
        DecodedBatches { kept: Mutex::new(Kept { batches: LruCache::unbounded(), bytes: 0 }) }
    }
}

impl DecodedBatches {
    /// The decoded bytes of the batch at a position of an opened segment.
    pub fn get(&self, instance: Instance, position: u64) -> Option<Arc<Vec<u8>>> {
        self.kept.lock().batches.get(&(instance, position)).cloned()
    }

    /// Keeps decoded bytes.
    pub fn put(&self, instance: Instance, position: u64, bytes: Arc<Vec<u8>>) {
        let mut kept = self.kept.lock();
        kept.bytes += bytes.len();
        if let Some(old) = kept.batches.put((instance, position), bytes) {
            kept.bytes -= old.len();
        }
        while kept.bytes > BYTES_MOST && kept.batches.len() > 1 {
            match kept.batches.pop_lru() {
                Some((_, old)) => kept.bytes -= old.len(),
                None => break,
            }
        }
    }
}
