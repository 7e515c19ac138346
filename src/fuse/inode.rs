//! The numbers that the kernel knows nodes by.
//!
//! ```text
//! 1 ..= 15              fixed nodes: the root, its directories, its texts
//! 1024 ..               a table: links, real files, ranges, and records whose offset does not fit; kept until the kernel forgets them
//! 01 ff oooo...o        records: two bits of face, then 60 bits of offset; computed, so a million look-ups cost nothing
//! 001 l oooo...o        decoded segments: one bit of form, then 60 bits of base offset; who follows one by name sees the same file again
//! 1 ccc...c             look-ups of an append file: a fresh number each, counted from a random start
//! ```
//!
//! A number is never given to a second node, so there are no generations. Two mounts agree on the numbers of their append files only by
//! chance of one in 2^63: whoever looks for an open descriptor by its number does not find another mount's.

use crate::types::Offset;
use crate::view::path::Lines;
use crate::view::{Face, Node, TextFile};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The root's number, as the kernel has it.
pub(super) const ROOT: u64 = 1;
/// What a listing says of a name whose node has no number yet, as other file systems do.
pub(super) const UNKNOWN: u64 = 0xffff_ffff;
/// The first number of the table.
const TABLE_START: u64 = 1024;
/// Set in the numbers of append files.
const APPEND_BIT: u64 = 1 << 63;
/// Set in the numbers of records, where [`APPEND_BIT`] is not.
const RECORD_BIT: u64 = 1 << 62;
/// Set in the numbers of decoded segments, where neither of the others is.
const DECODED_BIT: u64 = 1 << 61;
/// How far the face of a record, or the form of a decoded segment, is shifted.
const FACE_SHIFT: u32 = 60;
/// The bits of a record's offset.
const OFFSET_MASK: u64 = (1 << FACE_SHIFT) - 1;

/// Nodes whose number never changes, the first number being [`ROOT`].
const FIXED: [Node; 12] = [
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
    /// Only nodes that share a number while it is known: links, real files, records.
    by_node: HashMap<Node, u64>,
}

#[derive(Debug)]
struct Known {
    node: Node,
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

    /// The number of a node for an answer to a look-up, counted until [`Inodes::forget`]. Append files and ranges get a fresh one each time.
    pub(super) fn look_up(&self, node: Node) -> u64 {
        if let Some(number) = computed(&node) {
            return number;
        }
        let fresh = matches!(node, Node::Append(_) | Node::Range(_));
        let mut table = self.table.write();
        if let Some(number) = table.by_node.get(&node).copied() {
            if let Some(known) = table.known.get_mut(&number) {
                known.lookups = known.lookups.saturating_add(1);
            }
            return number;
        }
        let number = match node {
            Node::Append(_) => APPEND_BIT | self.next_append.fetch_add(1, Ordering::Relaxed),
            _ => self.next.fetch_add(1, Ordering::Relaxed),
        };
        if !fresh {
            table.by_node.insert(node.clone(), number);
        }
        table.known.insert(number, Known { node, lookups: 1 });
        number
    }

    /// The number of a node as far as it has one, for a listing.
    pub(super) fn number(&self, node: Option<&Node>) -> u64 {
        let Some(node) = node else { return UNKNOWN };
        computed(node).or_else(|| self.table.read().by_node.get(node).copied()).unwrap_or(UNKNOWN)
    }

    /// The node of a number; `None` for one that was never given or was forgotten.
    pub(super) fn node(&self, number: u64) -> Option<Node> {
        if is_computed(number) {
            let offset = i64::try_from(number & OFFSET_MASK).ok().and_then(Offset::new)?;
            return Some(if number & RECORD_BIT != 0 {
                Node::Record(offset, *FACES.get(usize::try_from(number >> FACE_SHIFT & 0b11).ok()?)?)
            } else {
                Node::Decoded(offset, if number & 1 << FACE_SHIFT == 0 { Lines::Values } else { Lines::Json })
            });
        }
        if number < TABLE_START {
            return FIXED.get(usize::try_from(number.checked_sub(ROOT)?).ok()?).cloned();
        }
        self.table.read().known.get(&number).map(|known| known.node.clone())
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
            && table.by_node.get(&known.node) == Some(&number)
        {
            table.by_node.remove(&known.node);
        }
    }
}

/// Whether a number is that of `follow` or `follow.jsonl`.
pub(super) fn is_follow(number: u64) -> bool {
    let fixed = number.checked_sub(ROOT).and_then(|place| FIXED.get(usize::try_from(place).ok()?));
    matches!(fixed, Some(Node::Follow(_)))
}

/// Whether a number carries an offset.
fn is_computed(number: u64) -> bool {
    number & APPEND_BIT == 0 && number & (RECORD_BIT | DECODED_BIT) != 0
}

/// The number of a node that needs no table.
fn computed(node: &Node) -> Option<u64> {
    let with_offset = |offset: &Offset, bits: u64| {
        let offset = u64::try_from(offset.get()).ok().filter(|offset| *offset <= OFFSET_MASK)?;
        Some(bits | offset)
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
        Node::Append(_) | Node::Link(_) | Node::Range(_) | Node::SegmentFile(_) => None,
        Node::Root | Node::ByOffset | Node::ByTime | Node::Segments | Node::DecodedDir | Node::Follow(_) | Node::Text(_) => {
            FIXED.iter().position(|fixed| fixed == node).and_then(|place| u64::try_from(place).ok()).map(|place| ROOT + place)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Framing, Span};

    fn offset(number: i64) -> Offset {
        Offset::new(number).unwrap()
    }

    #[test]
    fn fixed_nodes_have_small_numbers_and_the_root_has_one() {
        let inodes = Inodes::new();
        assert_eq!(inodes.look_up(Node::Root), ROOT);
        for node in FIXED {
            let number = inodes.look_up(node.clone());
            assert!((ROOT..16).contains(&number), "{node:?}");
            inodes.forget(number, 1);
            assert_eq!(is_follow(number), matches!(node, Node::Follow(_)));
            assert_eq!(inodes.node(number), Some(node));
        }
        assert!(!is_follow(0) && !is_follow(u64::MAX));
        assert_eq!(inodes.node(0), None);
        assert_eq!(inodes.node(16), None);
    }

    #[test]
    fn records_are_computed_and_survive_forgetting() {
        let inodes = Inodes::new();
        for face in FACES {
            for number in [0, 1, 12_350, (1 << 60) - 1] {
                let node = Node::Record(offset(number), face);
                let inode = inodes.look_up(node.clone());
                assert_eq!(inode >> 62, 1, "{node:?}");
                inodes.forget(inode, 1);
                assert_eq!(inodes.node(inode), Some(node));
            }
        }
        for lines in [Lines::Values, Lines::Json] {
            for number in [0, 7, (1 << 60) - 1] {
                let node = Node::Decoded(offset(number), lines);
                let inode = inodes.look_up(node.clone());
                assert_eq!(inode >> 61, 1, "{node:?}");
                inodes.forget(inode, 1);
                assert_eq!(inodes.node(inode), Some(node));
            }
        }
        assert!(inodes.table.read().known.is_empty());
    }

    #[test]
    fn offsets_that_do_not_fit_go_through_the_table() {
        let inodes = Inodes::new();
        for number in [1 << 60, i64::MAX] {
            let node = Node::Record(offset(number), Face::Json);
            let inode = inodes.look_up(node.clone());
            assert_eq!(inodes.node(inode).as_ref(), Some(&node));
            assert_eq!(inodes.look_up(node), inode);
            inodes.forget(inode, 1);
            assert!(inodes.node(inode).is_some());
            inodes.forget(inode, 1);
            assert_eq!(inodes.node(inode), None);
        }
    }

    #[test]
    fn every_look_up_of_append_and_of_a_range_is_its_own() {
        let inodes = Inodes::new();
        let range = Node::Range(Span { from: offset(0), until: offset(5), lines: Lines::Values });
        for node in [Node::Append(Framing::Lines), range] {
            let (a, b) = (inodes.look_up(node.clone()), inodes.look_up(node.clone()));
            assert_ne!(a, b);
            assert_eq!(inodes.number(Some(&node)), UNKNOWN);
            inodes.forget(a, 1);
            assert_eq!((inodes.node(a), inodes.node(b)), (None, Some(node)));
        }
    }

    #[test]
    fn append_numbers_begin_anywhere_and_keep_their_bit() {
        let inodes = Inodes::starting_at(u64::MAX);
        let numbers: Vec<u64> = (0..3).map(|_| inodes.look_up(Node::Append(Framing::Json))).collect();
        assert_eq!(numbers, [u64::MAX, APPEND_BIT, APPEND_BIT + 1]);
        for number in numbers {
            assert_eq!(inodes.node(number), Some(Node::Append(Framing::Json)));
        }
        assert_ne!(Inodes::new().look_up(Node::Append(Framing::Lines)), Inodes::new().look_up(Node::Append(Framing::Lines)));
    }

    #[test]
    fn a_known_link_or_file_keeps_its_number_and_a_forgotten_one_gets_another() {
        let inodes = Inodes::new();
        for node in [Node::Link("5".to_owned()), Node::SegmentFile("00000000000000000000.log".into())] {
            let first = inodes.look_up(node.clone());
            assert_eq!(inodes.look_up(node.clone()), first);
            assert_eq!(inodes.number(Some(&node)), first);
            inodes.forget(first, 2);
            assert_eq!(inodes.node(first), None);
            assert_ne!(inodes.look_up(node), first);
        }
    }
}
