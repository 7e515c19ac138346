//! The numbers that the kernel knows nodes by.
//!
//! ```text
//! 1 ..= 31              fixed nodes of the root: itself, its directories, its texts; 32 n + 1 .. those of the n-th partition of a data directory
//! 2^32 ..               a table: links, real files, ranges, keys, and records that do not fit; kept until the kernel forgets them
//! 01 ff ss..s oooo...o  records: two bits of face, 16 bits of partition, 44 bits of offset; computed, so a million look-ups cost nothing
//! 001 l ss..s oooo...o  decoded segments: one bit of form, then the same; who follows one by name sees the same file again
//! 1 ccc...c             look-ups of an append file: a fresh number each, counted from a random start
//! ```
//!
//! A number is never given to a second node, so there are no generations. Two mounts agree on the numbers of their append files only by
//! chance of one in 2^63: whoever looks for an open descriptor by its number does not find another mount's.

use crate::types::Offset;
use crate::view::path::Lines;
use crate::view::{Face, Node, Place, TextFile};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The root's number, as the kernel has it.
pub(super) const ROOT: u64 = 1;
/// What a listing says of a name whose node has no number yet, as other file systems do.
pub(super) const UNKNOWN: u64 = 0xffff_ffff;
/// The first number of the table.
const TABLE_START: u64 = 1 << 32;
/// Each partition has so many numbers for its fixed nodes.
const FIXED_MOST: u64 = 32;
/// Partitions above this have no fixed numbers.
const FIXED_SLOTS: u64 = TABLE_START / FIXED_MOST;
/// Set in the numbers of append files.
const APPEND_BIT: u64 = 1 << 63;
/// Set in the numbers of records, where [`APPEND_BIT`] is not.
const RECORD_BIT: u64 = 1 << 62;
/// Set in the numbers of decoded segments, where neither of the others is.
const DECODED_BIT: u64 = 1 << 61;
/// How far the face of a record, or the form of a decoded segment, is shifted.
const FACE_SHIFT: u32 = 60;
/// How far the partition is shifted.
const SLOT_SHIFT: u32 = 44;
/// The bits of a partition, once shifted back.
const SLOT_MASK: u64 = (1 << (FACE_SHIFT - SLOT_SHIFT)) - 1;
/// The bits of a record's offset.
const OFFSET_MASK: u64 = (1 << SLOT_SHIFT) - 1;

/// Nodes whose number never changes, the first number being [`ROOT`].
const FIXED: [Node; 16] = [
    Node::Root,
    Node::ByOffset,
    Node::ByTime,
    Node::Segments,
    Node::DecodedDir,
    Node::Follow(Lines::Values),
    Node::Follow(Lines::Json),
    Node::Text(TextFile::Status),
    Node::Text(TextFile::StatusJson),
    Node::Text(TextFile::Config),
    Node::Text(TextFile::Errors),
    Node::Text(TextFile::Readme),
    Node::Text(TextFile::Metrics),
    Node::Text(TextFile::Check),
    Node::Ctl,
    Node::ByKey,
];

/// Faces in the order of their bits.
const FACES: [Face; 4] = [Face::Value, Face::Key, Face::Json, Face::Batch];

/// Nodes and their numbers.
#[derive(Debug)]
pub(super) struct Inodes {
    table: RwLock<Table>,
    next: AtomicU64,
    next_append: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    known: HashMap<u64, Known>,
    /// Only nodes that share a number while it is known: links, real files, records, ranges of the same offsets.
    by_place: HashMap<Place, u64>,
}

#[derive(Debug)]
struct Known {
    place: Place,
    /// How many look-ups the kernel has not given back yet.
    lookups: u64,
}

impl Inodes {
    /// An empty table.
    pub(super) fn new() -> Inodes {
        // The keys of a hasher are random, which saves asking the system for other random bits.
        Inodes::starting_at(RandomState::new().hash_one(std::process::id()))
    }

    fn starting_at(append: u64) -> Inodes {
        Inodes { table: RwLock::default(), next: AtomicU64::new(TABLE_START), next_append: AtomicU64::new(append) }
    }

    /// The number of a place for an answer to a look-up, counted until [`Inodes::forget`]. Append files get a fresh one
    /// each time. A range has that of its offsets, so that one whose end moves gets another when it has moved, and not between the stat and
    /// the open of cp, which would take that for another file.
    pub(super) fn look_up(&self, place: Place) -> u64 {
        if let Some(number) = computed(place.slot, &place.node) {
            return number;
        }
        let fresh = matches!(place.node, Node::Append(_));
        let mut table = self.table.write();
        if let Some(number) = table.by_place.get(&place).copied() {
            if let Some(known) = table.known.get_mut(&number) {
                known.lookups = known.lookups.saturating_add(1);
            }
            return number;
        }
        let number = match place.node {
            Node::Append(_) => APPEND_BIT | self.next_append.fetch_add(1, Ordering::Relaxed),
            _ => self.next.fetch_add(1, Ordering::Relaxed),
        };
        if !fresh {
            table.by_place.insert(place.clone(), number);
        }
        table.known.insert(number, Known { place, lookups: 1 });
        number
    }

    /// The number of a node of a partition as far as it needs no table, for a listing.
    pub(super) fn number(&self, slot: u32, node: Option<&Node>) -> u64 {
        node.and_then(|node| computed(slot, node)).unwrap_or(UNKNOWN)
    }

    /// The place of a number; `None` for one that was never given or was forgotten.
    pub(super) fn place(&self, number: u64) -> Option<Place> {
        if is_computed(number) {
            let offset = i64::try_from(number & OFFSET_MASK).ok().and_then(Offset::new)?;
            let slot = u32::try_from(number >> SLOT_SHIFT & SLOT_MASK).ok()?;
            let node = if number & RECORD_BIT != 0 {
                Node::Record(offset, *FACES.get(usize::try_from(number >> FACE_SHIFT & 0b11).ok()?)?)
            } else {
                Node::Decoded(offset, if number & 1 << FACE_SHIFT == 0 { Lines::Values } else { Lines::Json })
            };
            return Some(Place { slot, node });
        }
        if number < TABLE_START {
            let node = fixed(number)?.clone();
            return Some(Place { slot: u32::try_from(number / FIXED_MOST).ok()?, node });
        }
        self.table.read().known.get(&number).map(|known| known.place.clone())
    }

    /// A key was renamed: its file keeps its number under the new name, and the number that this name had before leads nowhere else.
    pub(super) fn moved(&self, from: &Place, to: Place) {
        let mut table = self.table.write();
        let Some(number) = table.by_place.remove(from) else { return };
        if let Some(known) = table.known.get_mut(&number) {
            known.place = to.clone();
            table.by_place.insert(to, number);
        }
    }

    /// Gives back `lookups` look-ups of a number; behind the last one the number means nothing any more.
    pub(super) fn forget(&self, number: u64, lookups: u64) {
        if number < TABLE_START || is_computed(number) {
            return;
        }
        let mut table = self.table.write();
        let Some(known) = table.known.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0
            && let Some(known) = table.known.remove(&number)
            && table.by_place.get(&known.place) == Some(&number)
        {
            table.by_place.remove(&known.place);
        }
    }
}

/// The fixed node of a number.
fn fixed(number: u64) -> Option<&'static Node> {
    FIXED.get(usize::try_from((number % FIXED_MOST).checked_sub(ROOT)?).ok()?).filter(|_| number < TABLE_START)
}

/// Whether a number is that of `follow` or `follow.jsonl`.
pub(super) fn is_follow(number: u64) -> bool {
    matches!(fixed(number), Some(Node::Follow(_)))
}

/// Whether a number carries an offset.
fn is_computed(number: u64) -> bool {
    number & APPEND_BIT == 0 && number & (RECORD_BIT | DECODED_BIT) != 0
}

/// The number of a node of a partition that needs no table.
fn computed(slot: u32, node: &Node) -> Option<u64> {
    let with_offset = |offset: &Offset, bits: u64| {
        let offset = u64::try_from(offset.get()).ok().filter(|offset| *offset <= OFFSET_MASK)?;
        let slot = Some(u64::from(slot)).filter(|slot| *slot <= SLOT_MASK)?;
        Some(bits | slot << SLOT_SHIFT | offset)
    };
    match node {
        Node::Record(offset, face) => {
            let face = match face {
                Face::Value => 0,
                Face::Key => 1,
                Face::Json => 2,
                Face::Batch => 3,
            };
            with_offset(offset, RECORD_BIT | face << FACE_SHIFT)
        }
        Node::Decoded(base, Lines::Values) => with_offset(base, DECODED_BIT),
        Node::Decoded(base, Lines::Json) => with_offset(base, DECODED_BIT | 1 << FACE_SHIFT),
        Node::Append(_) | Node::Link(_) | Node::Range(_) | Node::SegmentFile(_) | Node::Key(..) => None,
        Node::Topic(_) | Node::Apart | Node::TopicTimes(_) | Node::Merged(_) => None,
        Node::Root | Node::ByOffset | Node::ByTime | Node::ByKey | Node::Segments | Node::DecodedDir => fixed_number(slot, node),
        Node::Follow(_) | Node::Text(_) | Node::Ctl => fixed_number(slot, node),
    }
}

/// The number of a fixed node of a partition.
fn fixed_number(slot: u32, node: &Node) -> Option<u64> {
    let place = FIXED.iter().position(|fixed| fixed == node).and_then(|place| u64::try_from(place).ok())?;
    Some(u64::from(slot)).filter(|slot| *slot < FIXED_SLOTS).map(|slot| slot * FIXED_MOST + ROOT + place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Framing, KeyFace, Span};

    fn look_up(inodes: &Inodes, node: Node) -> u64 {
        inodes.look_up(Place { slot: 0, node })
    }

    fn node_of(inodes: &Inodes, number: u64) -> Option<Node> {
        inodes.place(number).filter(|place| place.slot == 0).map(|place| place.node)
    }

    fn offset(number: i64) -> Offset {
        Offset::new(number).unwrap()
    }

    #[test]
    fn fixed_nodes_have_small_numbers_and_the_root_has_one() {
        let inodes = Inodes::new();
        assert_eq!(look_up(&inodes, Node::Root), ROOT);
        for node in FIXED {
            let number = look_up(&inodes, node.clone());
            assert!((ROOT..FIXED_MOST).contains(&number), "{node:?}");
            inodes.forget(number, 1);
            assert_eq!(is_follow(number), matches!(node, Node::Follow(_)));
            assert_eq!(node_of(&inodes, number), Some(node));
        }
        assert!(!is_follow(0) && !is_follow(u64::MAX));
        assert_eq!(node_of(&inodes, 0), None);
        assert_eq!(node_of(&inodes, FIXED_MOST), None);
        // Those of a partition of a data directory stand behind them.
        let place = Place { slot: 3, node: Node::ByTime };
        let number = inodes.look_up(place.clone());
        assert_eq!((number, inodes.place(number)), (FIXED_MOST * 3 + 3, Some(place)));
        let place = Place { slot: 65_535, node: Node::Record(offset(7), Face::Key) };
        assert_eq!(inodes.place(inodes.look_up(place.clone())), Some(place));
    }

    #[test]
    fn records_are_computed_and_survive_forgetting() {
        let inodes = Inodes::new();
        for face in FACES {
            for number in [0, 1, 12_350, (1 << 44) - 1] {
                let node = Node::Record(offset(number), face);
                let inode = look_up(&inodes, node.clone());
                assert_eq!(inode >> 62, 1, "{node:?}");
                inodes.forget(inode, 1);
                assert_eq!(node_of(&inodes, inode), Some(node));
            }
        }
        for lines in [Lines::Values, Lines::Json] {
            for number in [0, 7, (1 << 44) - 1] {
                let node = Node::Decoded(offset(number), lines);
                let inode = look_up(&inodes, node.clone());
                assert_eq!(inode >> 61, 1, "{node:?}");
                inodes.forget(inode, 1);
                assert_eq!(node_of(&inodes, inode), Some(node));
            }
        }
        assert!(inodes.table.read().known.is_empty());
    }

    #[test]
    fn offsets_that_do_not_fit_go_through_the_table() {
        let inodes = Inodes::new();
        for number in [1 << 44, i64::MAX] {
            let node = Node::Record(offset(number), Face::Json);
            let inode = look_up(&inodes, node.clone());
            assert_eq!(node_of(&inodes, inode).as_ref(), Some(&node));
            assert_eq!(look_up(&inodes, node), inode);
            inodes.forget(inode, 1);
            assert!(node_of(&inodes, inode).is_some());
            inodes.forget(inode, 1);
            assert_eq!(node_of(&inodes, inode), None);
        }
    }

    #[test]
    fn every_look_up_of_append_is_its_own() {
        let inodes = Inodes::new();
        let node = Node::Append(Framing::Lines);
        let (a, b) = (look_up(&inodes, node.clone()), look_up(&inodes, node.clone()));
        assert_ne!(a, b);
        assert_eq!(inodes.number(0, Some(&node)), UNKNOWN);
        inodes.forget(a, 1);
        assert_eq!((node_of(&inodes, a), node_of(&inodes, b)), (None, Some(node)));
    }

    #[test]
    fn a_range_has_the_number_of_its_offsets() {
        let inodes = Inodes::new();
        let until = |end| Node::Range(Span { from: offset(0), until: offset(end), lines: Lines::Values });
        let five = look_up(&inodes, until(5));
        assert_eq!(look_up(&inodes, until(5)), five);
        assert_ne!(look_up(&inodes, until(6)), five);
    }

    #[test]
    fn a_renamed_key_keeps_its_number() {
        let inodes = Inodes::new();
        let key = |name: &[u8]| Place { slot: 0, node: Node::Key(name.into(), KeyFace::Value) };
        let (a, b) = (inodes.look_up(key(b"a")), inodes.look_up(key(b"b")));
        inodes.moved(&key(b"a"), key(b"b"));
        assert_eq!((inodes.place(a), inodes.look_up(key(b"b"))), (Some(key(b"b")), a));
        inodes.forget(b, 1);
        assert_eq!(inodes.look_up(key(b"b")), a);
        assert_ne!(inodes.look_up(key(b"a")), a);
        inodes.moved(&key(b"unknown"), key(b"a"));
        inodes.forget(a, 3);
        assert_eq!(inodes.place(a), None);
    }

    #[test]
    fn append_numbers_begin_anywhere_and_keep_their_bit() {
        let inodes = Inodes::starting_at(u64::MAX);
        let numbers: Vec<u64> = (0..3).map(|_| look_up(&inodes, Node::Append(Framing::Json))).collect();
        assert_eq!(numbers, [u64::MAX, APPEND_BIT, APPEND_BIT + 1]);
        for number in numbers {
            assert_eq!(node_of(&inodes, number), Some(Node::Append(Framing::Json)));
        }
        assert_ne!(look_up(&Inodes::new(), Node::Append(Framing::Lines)), look_up(&Inodes::new(), Node::Append(Framing::Lines)));
    }

    #[test]
    fn a_known_link_or_file_keeps_its_number_and_a_forgotten_one_gets_another() {
        let inodes = Inodes::new();
        for node in [Node::Link("5".to_owned()), Node::SegmentFile("00000000000000000000.log".into())] {
            let first = look_up(&inodes, node.clone());
            assert_eq!(look_up(&inodes, node.clone()), first);
            inodes.forget(first, 2);
            assert_eq!(node_of(&inodes, first), None);
            assert_ne!(look_up(&inodes, node), first);
        }
    }
}
