//! A table from the hash of a key to the offset of its last record, on disk or in memory; written once, in the order of the hashes, and then only read.
//!
//! It consists of blocks of 4096 bytes. A hash has a home block, by its first half, so that tables can be merged by reading both from front to
//! back; within the block it has a home place, by its second half. Where the block is full, the next one is gone on with. A block that came from a
//! file is checked by its CRC at its first touch, so opening a table reads none of them.
//!
//! ```text
//!     0  170 places of 24 bytes: hash 16 (the larger half first), then the offset + 1 in 63 bits, the first bit set where the key was deleted; 0: free
//!  4080  the number of the block     8
//!  4088  the number of the table     4
//!  4092  CRC-32C of the bytes before 4
//! ```

use super::hash::KeyHash;
use crate::io::Map;
use crate::types::Offset;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of a block.
pub(super) const BLOCK_LEN: usize = 4096;
/// The bytes of a place.
const PLACE_LEN: usize = 24;
/// The places of a block.
const PLACES: usize = 170;
/// Where a block says which one it is.
const NUMBER: usize = PLACES * PLACE_LEN;
const TABLE_NUMBER: usize = NUMBER + 8;
const CRC: usize = TABLE_NUMBER + 4;
const _: () = assert!(CRC + 4 == BLOCK_LEN);
/// Set in an offset whose record deletes its key.
const DELETED: u64 = 1 << 63;
/// So many of 100 places are filled.
const LOAD: u64 = 70;

/// The last record of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last {
    /// Its offset, below [`Offset::MAX`].
    pub(super) offset: Offset,
    /// Whether it is a tombstone.
    pub(super) deleted: bool,
}

impl Last {
    fn pack(self) -> u64 {
        (self.offset.get().unsigned_abs() + 1) | if self.deleted { DELETED } else { 0 }
    }

    /// `None` for a free place.
    fn unpack(word: u64) -> Option<Last> {
        let offset = i64::try_from((word & !DELETED).checked_sub(1)?).ok().and_then(Offset::new)?;
        Some(Last { offset, deleted: word & DELETED != 0 })
    }
}

/// What was read is not what was written: the table is worth nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spoilt;

/// Where the blocks of a table lie.
#[derive(Debug)]
pub(super) enum Bytes {
    /// In a mapped file, from a byte on.
    Mapped(Arc<Map>, u64),
    /// In memory.
    #[cfg(test)]
    Memory(Vec<u8>),
}

/// What one must know of a table to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// A number that was drawn for this table, in each of its blocks.
    pub(super) number: u32,
    /// Blocks that are somebody's home.
    pub(super) homes: u64,
    /// All blocks: behind the homes, what the last of them had no place for.
    pub(super) blocks: u64,
    /// Filled places.
    pub(super) entries: u64,
}

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Bytes,
    shape: Shape,
    /// A bit for each block whose CRC was right.
    checked: Vec<AtomicU64>,
}

impl Table {
    pub(super) fn new(bytes: Bytes, shape: Shape) -> Table {
        let words = shape.blocks.div_ceil(64) as usize;
        Table { bytes, shape, checked: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// A block; `None` behind the last one.
    #[inline]
    fn block(&self, number: u64) -> Result<Option<&[u8; BLOCK_LEN]>, Spoilt> {
        if number >= self.shape.blocks {
            return Ok(None);
        }
        let at = number * BLOCK_LEN as u64;
        let bytes = match &self.bytes {
            Bytes::Mapped(map, from) => map.slice(from + at..from + at + BLOCK_LEN as u64),
            #[cfg(test)]
            Bytes::Memory(bytes) => bytes.get(at as usize..at as usize + BLOCK_LEN),
        };
        let block: &[u8; BLOCK_LEN] = bytes.and_then(|b| b.try_into().ok()).ok_or(Spoilt)?;
        let word = self.checked.get((number / 64) as usize).ok_or(Spoilt)?;
        if word.load(Ordering::Relaxed) & 1 << (number % 64) == 0 {
            self.check(block, number)?;
            word.fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
        Ok(Some(block))
    }

    #[cold]
    fn check(&self, block: &[u8; BLOCK_LEN], number: u64) -> Result<(), Spoilt> {
        let is_right = crc32c::crc32c(&block[..CRC]).to_be_bytes() == block[CRC..]
            && block[NUMBER..TABLE_NUMBER] == number.to_be_bytes()
            && block[TABLE_NUMBER..CRC] == self.shape.number.to_be_bytes();
        if is_right { self.still_whole() } else { Err(Spoilt) }
    }

    /// That the file has not lost bytes under the map.
    fn still_whole(&self) -> Result<(), Spoilt> {
        match &self.bytes {
            Bytes::Mapped(map, _) if map.is_broken() => Err(Spoilt),
            _ => Ok(()),
        }
    }

    /// The last record of a key, by its hash.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash) -> Result<Option<Last>, Spoilt> {
        let mut number = home(hash, self.shape.homes);
        while let Some(block) = self.block(number)? {
            let first = first_place(hash);
            for place in (first..PLACES).chain(0..first) {
                let (stored, word) = read_place(block, place);
                if word == 0 {
                    self.still_whole()?;
                    return Ok(None);
                }
                if stored == hash {
                    self.still_whole()?;
                    return Last::unpack(word).map(Some).ok_or(Spoilt);
                }
            }
            number += 1;
        }
        Ok(None)
    }

    /// The entries from a hash on, in the order of the hashes.
    pub(super) fn sorted(&self, from: KeyHash) -> Sorted<'_> {
        Sorted { table: self, next: home(from, self.shape.homes), from, ready: VecDeque::new() }
    }
}

/// Entries of a table in the order of their hashes.
#[derive(Debug)]
pub(super) struct Sorted<'t> {
    table: &'t Table,
    next: u64,
    from: KeyHash,
    ready: VecDeque<(KeyHash, Last)>,
}

impl Iterator for Sorted<'_> {
    type Item = Result<(KeyHash, Last), Spoilt>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut found = Vec::new();
        while self.ready.is_empty() {
            let block = match self.table.block(self.next) {
                Ok(Some(block)) => block,
                Ok(None) => break,
                Err(spoilt) => return Some(Err(spoilt)),
            };
            self.next += 1;
            let mut is_full = true;
            for place in 0..PLACES {
                match read_place(block, place) {
                    (_, 0) => is_full = false,
                    (hash, word) => match Last::unpack(word) {
                        Some(last) if hash >= self.from => found.push((hash, last)),
                        Some(_) => {}
                        None => return Some(Err(Spoilt)),
                    },
                }
            }
            // What had no place in a full block stands in the next one; behind one that is not full nothing of its hashes follows.
            if !is_full || self.next == self.table.shape.blocks {
                if let Err(spoilt) = self.table.still_whole() {
                    return Some(Err(spoilt));
                }
                found.sort_unstable_by_key(|(hash, _)| *hash);
                self.ready.extend(found.drain(..));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

#[inline]
fn home(hash: KeyHash, homes: u64) -> u64 {
    ((u128::from(hash.high) * u128::from(homes)) >> 64) as u64
}

#[inline]
fn first_place(hash: KeyHash) -> usize {
    (hash.low % PLACES as u64) as usize
}

#[inline]
fn read_place(block: &[u8; BLOCK_LEN], place: usize) -> (KeyHash, u64) {
    let at = place * PLACE_LEN;
    let word = |from: usize| block.get(from..from + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes);
    (KeyHash { high: word(at), low: word(at + 8) }, word(at + 16))
}

/// Writes a table from front to back; entries come in the order of their hashes, each hash once.
pub(super) struct Builder<'w> {
    out: &'w mut dyn FnMut(&[u8]) -> io::Result<()>,
    shape: Shape,
    block: Box<[u8; BLOCK_LEN]>,
    used: usize,
    /// What the block at hand has no place for.
    rest: VecDeque<(KeyHash, u64)>,
}

impl<'w> Builder<'w> {
    /// A table for at most so many entries. `out` gets its blocks, one behind the other.
    pub(super) fn new(number: u32, entries_most: u64, out: &'w mut dyn FnMut(&[u8]) -> io::Result<()>) -> Builder<'w> {
        let homes = (entries_most.saturating_mul(100) / LOAD).div_ceil(PLACES as u64).max(1);
        let shape = Shape { number, homes, blocks: 0, entries: 0 };
        Builder { out, shape, block: Box::new([0; BLOCK_LEN]), used: 0, rest: VecDeque::new() }
    }

    pub(super) fn push(&mut self, hash: KeyHash, last: Last) -> io::Result<()> {
        let home = home(hash, self.shape.homes);
        while self.shape.blocks < home {
            self.finish_block()?;
        }
        self.shape.entries += 1;
        if self.used < PLACES {
            self.put(hash, last.pack())
        } else {
            self.rest.push_back((hash, last.pack()))
        }
        Ok(())
    }

    fn put(&mut self, hash: KeyHash, word: u64) {
        let first = first_place(hash);
        let free = (first..PLACES).chain(0..first).find(|place| read_place(&self.block, *place).1 == 0);
        if let Some(at) = free.map(|place| place * PLACE_LEN) {
            self.block[at..at + 8].copy_from_slice(&hash.high.to_be_bytes());
            self.block[at + 8..at + 16].copy_from_slice(&hash.low.to_be_bytes());
            self.block[at + 16..at + 24].copy_from_slice(&word.to_be_bytes());
            self.used += 1;
        }
    }

    fn finish_block(&mut self) -> io::Result<()> {
        self.block[NUMBER..TABLE_NUMBER].copy_from_slice(&self.shape.blocks.to_be_bytes());
        self.block[TABLE_NUMBER..CRC].copy_from_slice(&self.shape.number.to_be_bytes());
        let crc = crc32c::crc32c(&self.block[..CRC]);
        self.block[CRC..].copy_from_slice(&crc.to_be_bytes());
        (self.out)(&self.block[..])?;
        self.shape.blocks += 1;
        self.block.fill(0);
        self.used = 0;
        while self.used < PLACES
            && let Some((hash, word)) = self.rest.pop_front()
        {
            self.put(hash, word);
        }
        Ok(())
    }

    /// Writes what is left, and says what the table has become.
    pub(super) fn finish(mut self) -> io::Result<Shape> {
        loop {
            self.finish_block()?;
            if self.shape.blocks >= self.shape.homes && self.used == 0 {
                return Ok(self.shape);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn built(entries: &BTreeMap<KeyHash, Last>, room: u64) -> Table {
        let mut bytes = Vec::new();
        let mut out = |block: &[u8]| {
            bytes.extend_from_slice(block);
            Ok(())
        };
        let mut builder = Builder::new(7, room, &mut out);
        for (hash, last) in entries {
            builder.push(*hash, *last).unwrap();
        }
        let shape = builder.finish().unwrap();
        assert_eq!(bytes.len() as u64, shape.blocks * BLOCK_LEN as u64);
        Table::new(Bytes::Memory(bytes), shape)
    }

    fn entries(highs: impl Iterator<Item = u64>) -> BTreeMap<KeyHash, Last> {
        let entry = |(i, high): (usize, u64)| {
            (KeyHash { high, low: i as u64 * 3 }, Last { offset: Offset::new(i as i64).unwrap(), deleted: i % 3 == 0 })
        };
        highs.enumerate().map(entry).collect()
    }

    fn assert_holds(table: &Table, entries: &BTreeMap<KeyHash, Last>) {
        for (hash, last) in entries {
            assert_eq!(table.find(*hash), Ok(Some(*last)));
            assert_eq!(table.find(KeyHash { low: hash.low + 1, ..*hash }), Ok(None));
        }
        let listed: Vec<_> = table.sorted(KeyHash::FIRST).map(Result::unwrap).collect();
        assert_eq!(listed, entries.iter().map(|(h, l)| (*h, *l)).collect::<Vec<_>>());
    }

    #[test]
    fn hashes_that_all_live_in_one_block_run_over_into_the_next_ones() {
        for highs in [0, u64::MAX, u64::MAX / 2] {
            let entries = entries((0..1000).map(|_| highs));
            assert_holds(&built(&entries, 1000), &entries);
        }
    }

    #[test]
    fn the_greatest_offset_and_none_at_all() {
        let last = Last { offset: Offset::new(i64::MAX - 1).unwrap(), deleted: true };
        let entries: BTreeMap<_, _> = [(KeyHash::FIRST, last)].into();
        assert_holds(&built(&entries, 1), &entries);
        let none = built(&BTreeMap::new(), 0);
        assert_eq!((none.find(KeyHash { high: 3, low: 4 }), none.shape().blocks), (Ok(None), 1));
    }

    proptest! {
        #[test]
        fn a_table_holds_what_was_put_in(highs in proptest::collection::vec(any::<u64>(), 0..1500), room in 0u64..2000, from in any::<u64>()) {
            let entries = entries(highs.into_iter());
            let table = built(&entries, room);
            assert_holds(&table, &entries);
            let from = KeyHash { high: from, low: 0 };
            prop_assert!(table.sorted(from).map(Result::unwrap).eq(entries.range(from..).map(|(h, l)| (*h, *l))));
        }

        #[test]
        fn a_changed_byte_is_noticed(highs in proptest::collection::vec(any::<u64>(), 1..400), at in any::<prop::sample::Index>(), bits in 1u8..) {
            let entries = entries(highs.into_iter());
            let Table { bytes: Bytes::Memory(mut bytes), shape, .. } = built(&entries, 400) else { unreachable!() };
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            let table = Table::new(Bytes::Memory(bytes), shape);
            prop_assert!(table.sorted(KeyHash::FIRST).any(|e| e.is_err()));
            for (hash, last) in &entries {
                let found = table.find(*hash);
                prop_assert!(found == Err(Spoilt) || found == Ok(Some(*last)));
            }
        }
    }
}
