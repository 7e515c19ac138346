//! Shared bytes with an owner: a range of a mapped segment, or a decoded batch. They outlive the cache or the segment they came from.

use crate::io::Map;
use std::ops::Range;
use std::sync::Arc;

/// A range of bytes and what keeps them alive. A clone counts a reference and copies nothing.
#[derive(Clone, Debug)]
pub enum Shared {
    /// Bytes of a mapped file, below its published end.
    Mapped {
        /// The map.
        map: Arc<Map>,
        /// The first byte.
        start: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Bytes in memory.
    Buffer(Arc<Vec<u8>>),
}

impl Shared {
    /// The bytes. After the last read of mapped ones, [`Shared::is_broken`] tells whether they were there.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Shared::Mapped { map, start, len } => map.slice(*start..start.saturating_add(*len)).unwrap_or_default(),
            Shared::Buffer(bytes) => bytes,
        }
    }

    /// A part of the bytes; empty where it does not lie within them.
    #[inline]
    pub fn part(&self, range: &Range<u32>) -> &[u8] {
        self.as_slice().get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// Whether the file lost bytes under the map, so that what was read may be zeros that never stood there.
    #[inline]
    pub fn is_broken(&self) -> bool {
        match self {
            Shared::Mapped { map, .. } => map.is_broken(),
            Shared::Buffer(_) => false,
        }
    }
}
