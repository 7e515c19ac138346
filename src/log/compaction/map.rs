//! The offset map of a compaction: for each key its latest offset, in memory that is bounded.
//!
//! A key is kept as a hash of 128 bits whose seeds nobody knows, so that no two keys of a log meet by chance or by design. It forgets nothing: where it
//! is full, whoever fills it stops there, and the rest is compacted the next time.

use crate::types::Offset;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// What a key takes, in bytes: its hash and its offset.
const SLOT_BYTES: u64 = 16 + 8;
const _: () = assert!(size_of::<Slot>() as u64 == SLOT_BYTES);
/// The slots to begin with.
const SLOTS_FIRST: usize = 1 << 10;
/// A table that may still grow does so when more than this share of it is taken.
const GROWS_ABOVE: f64 = 0.7;
/// Kafka's log.cleaner.io.buffer.load.factor: the share of the largest table that is used.
const LOAD_MOST: f64 = 0.9;

/// A hash and an offset; the offset -1 is an empty slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: [u64; 2],
    offset: i64,
}

const EMPTY: Slot = Slot { hash: [0; 2], offset: -1 };

/// The map.
#[derive(Debug)]
pub(super) struct OffsetMap {
    slots: Vec<Slot>,
    len: usize,
    slots_most: usize,
    keys_most: usize,
    seeds: [RandomState; 2],
}

impl OffsetMap {
    /// An empty one that takes at most so many bytes, and room for one key at least.
    pub(super) fn new(bytes_most: u64) -> OffsetMap {
        let slots_most = usize::try_from(bytes_most / SLOT_BYTES).unwrap_or(usize::MAX).max(2);
        OffsetMap {
            slots: vec![EMPTY; SLOTS_FIRST.min(slots_most)],
            len: 0,
            slots_most,
            keys_most: ((slots_most as f64 * LOAD_MOST) as usize).max(1),
            seeds: [RandomState::new(), RandomState::new()],
        }
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether no key can be put into it any more, not even one that it has: so Kafka asks before each.
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.keys_most
    }

    /// Notes a later offset of a key.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) {
        if self.slots.len() < self.slots_most && self.len as f64 >= self.slots.len() as f64 * GROWS_ABOVE {
            self.grow();
        }
        let hash = self.hash(key);
        let at = self.find(hash);
        if self.slots[at].offset < 0 {
            self.len += 1;
        }
        self.slots[at] = Slot { hash, offset: offset.get() };
    }

    /// The latest offset of a key; `None` for a key that it does not have.
    pub(super) fn get(&self, key: &[u8]) -> Option<i64> {
        Some(self.slots[self.find(self.hash(key))].offset).filter(|offset| *offset >= 0)
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.seeds[0].hash_one(key), self.seeds[1].hash_one(key)]
    }

    /// The slot of a hash, or the empty one where it would stand. There is always an empty one.
    fn find(&self, hash: [u64; 2]) -> usize {
        let mut at = (hash[0] % self.slots.len() as u64) as usize;
        while self.slots[at].offset >= 0 && self.slots[at].hash != hash {
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
        at
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; self.slots.len().saturating_mul(2).min(self.slots_most)];
        let before = std::mem::replace(&mut self.slots, larger);
        for slot in before.into_iter().filter(|slot| slot.offset >= 0) {
            let at = self.find(slot.hash);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn offset(n: i64) -> Offset {
        Offset::new(n).unwrap()
    }

    #[test]
    fn it_has_what_a_plain_map_has() {
        let mut map = OffsetMap::new(1 << 20);
        let mut plain = HashMap::new();
        for n in 0..30_000_i64 {
            let key = format!("key {}", n * n % 9973);
            map.put(key.as_bytes(), offset(n));
            plain.insert(key, n);
        }
        assert_eq!(map.len(), plain.len());
        assert!(plain.iter().all(|(key, offset)| map.get(key.as_bytes()) == Some(*offset)));
        assert_eq!((map.get(b"none"), map.get(b"")), (None, None));
        map.put(b"", offset(7));
        assert_eq!(map.get(b""), Some(7), "an empty key is a key");
    }

    #[test]
    fn it_is_full_at_nine_tenths_of_its_memory() {
        for (bytes, keys) in [(24 * 100, 90), (24 * 10 + 23, 9), (0, 1)] {
            let mut map = OffsetMap::new(bytes);
            let mut n = 0;
            while !map.is_full() {
                map.put(&i64::to_be_bytes(n), offset(n));
                n += 1;
            }
            assert_eq!(map.len(), keys);
            assert!(map.slots.len() as u64 * SLOT_BYTES <= bytes.max(48));
            assert!((0..n).all(|n| map.get(&n.to_be_bytes()) == Some(n)));
            assert_eq!(map.get(b"another"), None);
        }
    }
}
