//! Decompressed batches, kept for neighbouring look-ups; bounded by bytes, the least recently used go first.

use crate::io::sync::Mutex;
use crate::log::verified::Instance;
use lru::LruCache;
use std::sync::Arc;

/// How many decoded bytes are kept; one larger batch is kept alone.
const BYTES_MOST: usize = 32 << 20;

#[derive(Debug)]
struct Kept {
    batches: LruCache<(Instance, u64), Arc<Vec<u8>>>,
    bytes: usize,
    hits: u64,
    misses: u64,
}

/// How a cache has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// How often something was found in it.
    pub hits: u64,
    /// How often something had to be made, which it then kept.
    pub misses: u64,
    /// The bytes that it holds now.
    pub bytes: u64,
}

/// The cache of a partition.
#[derive(Debug)]
pub struct DecodedBatches {
    kept: Mutex<Kept>,
}

impl Default for DecodedBatches {
    fn default() -> DecodedBatches {
        DecodedBatches { kept: Mutex::new(Kept { batches: LruCache::unbounded(), bytes: 0, hits: 0, misses: 0 }) }
    }
}

impl DecodedBatches {
    /// The decoded bytes of the batch at a position of an opened segment.
    pub fn get(&self, instance: Instance, position: u64) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.kept.lock();
        let found = kept.batches.get(&(instance, position)).cloned();
        kept.hits += u64::from(found.is_some());
        found
    }

    /// How often a batch was found here, and how many bytes are kept.
    pub fn counts(&self) -> CacheCounts {
        let kept = self.kept.lock();
        CacheCounts { hits: kept.hits, misses: kept.misses, bytes: kept.bytes as u64 }
    }

    /// Keeps decoded bytes.
    pub fn put(&self, instance: Instance, position: u64, bytes: Arc<Vec<u8>>) {
        let mut kept = self.kept.lock();
        kept.misses += 1;
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
