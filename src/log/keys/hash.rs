//! How the index knows a key: by a keyed hash of 128 bits. Kafka's own cleaner knows keys by such a hash, too.
//!
//! The key of the hash is drawn anew for each index and kept in its file, so that nobody can choose record keys that meet. Whoever follows an
//! entry compares the record's key all the same: where two keys did meet, the index is made anew with another seed.

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::{BuildHasher, Hasher, RandomState};

/// The bytes of a seed.
pub(super) const SEED_LEN: usize = 16;

/// The key of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seed {
    bytes: [u8; SEED_LEN],
    /// The bits of the hash that count; all of them but in tests.
    mask: u64,
}

/// The hash of a key; they are ordered by their first half, which also gives a key its place in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyHash {
    pub(super) high: u64,
    pub(super) low: u64,
}

impl KeyHash {
    /// No hash lies before it.
    pub(super) const FIRST: KeyHash = KeyHash { high: 0, low: 0 };
}

impl Seed {
    /// A seed that nobody knows.
    pub(super) fn random() -> Seed {
        // The keys of a hasher are random, which saves asking the system for other random bits.
        let half = || RandomState::new().hash_one(std::process::id()).to_be_bytes();
        let (first, second) = (half(), half());
        let mut bytes = [0; SEED_LEN];
        bytes[..8].copy_from_slice(&first);
        bytes[8..].copy_from_slice(&second);
        Seed::from_bytes(bytes)
    }

    /// A random number for a table.
    pub(super) fn number() -> u32 {
        RandomState::new().hash_one(std::process::id()) as u32
    }

    pub(super) fn from_bytes(bytes: [u8; SEED_LEN]) -> Seed {
        Seed { bytes, mask: u64::MAX }
    }

    /// A seed under which keys meet often.
    #[cfg(test)]
    pub(super) fn weak(bits: u32) -> Seed {
        Seed { bytes: [0; SEED_LEN], mask: !(u64::MAX >> bits) }
    }

    pub(super) fn bytes(&self) -> [u8; SEED_LEN] {
        self.bytes
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = SipHasher24::new_with_key(&self.bytes);
        hasher.write(key);
        let hash = hasher.finish128();
        KeyHash { high: hash.h1 & self.mask, low: if self.mask == u64::MAX { hash.h2 } else { 0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_hash_and_another_seed_another() {
        let (a, b) = (Seed::random(), Seed::random());
        assert_ne!(a, b);
        assert_eq!(a.hash(b"key"), Seed::from_bytes(a.bytes()).hash(b"key"));
        assert_ne!(a.hash(b"key"), b.hash(b"key"));
        assert_ne!(a.hash(b"key"), a.hash(b"kez"));
        assert_ne!(a.hash(b""), a.hash(b"\0"));
    }
}
