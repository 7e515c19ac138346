//! What a disk may hold of one file after a crash: an image that is certain and, in order, the changes that are not.
//!
//! This is arithmetic on bytes; it knows no descriptor, no name and no fault.

use std::sync::Arc;

/// The size of a sector in bytes: a write is torn between two of them, never inside one.
const SECTOR: u64 = 512;
/// The size of a page in bytes: what the kernel writes out at a time, in any order.
const PAGE: u64 = 4096;
/// A write of more sectors than this is not torn into any subset of them, but of its pages.
const SECTORS_MOST: usize = 8;

/// Picks one of a number of options, by its number from 0.
pub(super) type Choice<'a> = dyn FnMut(usize) -> usize + 'a;

/// The content of a file, sparse at its end: bytes behind those that are kept are zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// Shared between the disks that crashes of one disk give, until one of them changes it.
    bytes: Arc<Vec<u8>>,
    len: u64,
}

impl Image {
    pub(super) fn new(bytes: &[u8]) -> Image {
        Image { bytes: Arc::new(bytes.to_vec()), len: bytes.len() as u64 }
    }

    /// The length of the file in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes up to the last that was ever written, at most the length.
    pub(super) fn written(&self) -> &[u8] {
        &self.bytes
    }

    /// All bytes, the zeros at the end included.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut all = self.bytes.to_vec();
        all.resize(self.len as usize, 0);
        all
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (start, end) = (at as usize, at as usize + bytes.len());
        let kept = Arc::make_mut(&mut self.bytes);
        if kept.len() < end {
            kept.resize(end, 0);
        }
        kept[start..end].copy_from_slice(bytes);
        self.len = self.len.max(end as u64);
    }

    fn set_len(&mut self, len: u64) {
        if (self.bytes.len() as u64) > len {
            Arc::make_mut(&mut self.bytes).truncate(len as usize);
        }
        self.len = len;
    }
}

/// A change of a file.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Bytes at a position.
    Bytes {
        /// The position of the first.
        at: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// A new length, shorter or longer.
    SetLen(u64),
    /// Room up to here: the length becomes at least this.
    Grow(u64),
}

/// Whether a change is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certainty {
    /// Nobody asked yet.
    Unsynced,
    /// The sync that should have written it failed: the kernel takes it for written and will not try again.
    Failed,
    /// It is there. It stays in the list only while an uncertain one stands before it.
    Synced,
}

/// The certain image of a file and the changes since, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    base: Image,
    changes: Vec<(Change, Certainty)>,
}

impl Journal {
    /// A journal without changes.
    pub(super) fn new(base: Image) -> Journal {
        Journal { base, changes: Vec::new() }
    }

    /// The image under the changes.
    pub(super) fn base(&self) -> &Image {
        &self.base
    }

    pub(super) fn push(&mut self, change: Change) {
        self.changes.push((change, Certainty::Unsynced));
    }

    /// A sync that works: all changes are certain but those that an earlier sync failed to write.
    pub(super) fn sync(&mut self) {
        for (_, certainty) in &mut self.changes {
            if *certainty == Certainty::Unsynced {
                *certainty = Certainty::Synced;
            }
        }
        let settled = self.changes.iter().take_while(|(_, certainty)| *certainty == Certainty::Synced).count();
        for (change, _) in self.changes.drain(..settled) {
            apply(&mut self.base, &change);
        }
    }

    /// A sync that fails: what it should have written may be lost, whatever later syncs say.
    pub(super) fn fail_sync(&mut self) {
        for (_, certainty) in &mut self.changes {
            if *certainty == Certainty::Unsynced {
                *certainty = Certainty::Failed;
            }
        }
    }

    /// Gives up the bytes of failed syncs, as dropping the page cache does: the length stays what it was in memory. Returns what a
    /// reader sees from then on.
    pub(super) fn forget_failed(&mut self) -> Image {
        for (change, certainty) in &mut self.changes {
            if let (Change::Bytes { at, bytes }, Certainty::Failed) = (&*change, *certainty) {
                *change = Change::Grow(at + bytes.len() as u64);
            }
        }
        let mut image = self.base.clone();
        self.changes.iter().for_each(|(change, _)| apply(&mut image, change));
        image
    }

    /// What is on the disk for certain.
    pub(super) fn durable(&self) -> Image {
        self.crash(&mut |_| 0)
    }

    /// What is on the disk after a crash. For each uncertain change one option is chosen:
    ///
    /// - bytes: 0 lost, 1 whole, then for each sector boundary inside them one where only what lies before it is there, then for
    ///   each boundary one where only what lies behind it is there, then, with two boundaries or more, one where each sector
    ///   (of a long write each page) is a choice of its own: 0 lost, 1 there, and last, where they lengthen the file, one where
    ///   it is longer and they are zeros;
    /// - a length: 0 lost, 1 there.
    pub(super) fn crash(&self, choice: &mut Choice<'_>) -> Image {
        let mut image = self.base.clone();
        // Where a cut was lost, the old bytes behind it are still in their old place, and what was written there later was to
        // go elsewhere: it cannot be there without the cut.
        let mut lost_cut = u64::MAX;
        for (change, certainty) in &self.changes {
            if *certainty == Certainty::Synced {
                apply(&mut image, change);
                continue;
            }
            match change {
                Change::Bytes { at, bytes } if *at < lost_cut => {
                    let len = (lost_cut - at).min(bytes.len() as u64) as usize;
                    crash_bytes(&mut image, *at, &bytes[..len], choice);
                }
                Change::Bytes { .. } => {}
                Change::SetLen(len) | Change::Grow(len) => {
                    if choice(2) == 1 {
                        apply(&mut image, change);
                    } else if matches!(change, Change::SetLen(_)) && *len < image.len {
                        lost_cut = lost_cut.min(*len);
                    }
                }
            }
        }
        image
    }
}

fn apply(image: &mut Image, change: &Change) {
    match change {
        Change::Bytes { at, bytes } => image.write(*at, bytes),
        Change::SetLen(len) => image.set_len(*len),
        Change::Grow(len) => image.set_len((*len).max(image.len)),
    }
}

/// Applies what survives of a write.
fn crash_bytes(image: &mut Image, at: u64, bytes: &[u8], choice: &mut Choice<'_>) {
    let end = at + bytes.len() as u64;
    let first_boundary = (at / SECTOR + 1) * SECTOR;
    let boundaries = end.saturating_sub(first_boundary).div_ceil(SECTOR) as usize;
    let lengthens = end > image.len;
    let scattered = usize::from(boundaries > 1);
    let chosen = choice(2 + 2 * boundaries + scattered + usize::from(lengthens));
    let boundary = |number: usize| (first_boundary - at) as usize + number * SECTOR as usize;
    match chosen {
        0 => {}
        1 => image.write(at, bytes),
        n if n < 2 + boundaries => image.write(at, &bytes[..boundary(n - 2)]),
        n if n < 2 + 2 * boundaries => {
            let from = boundary(n - 2 - boundaries);
            image.write(at + from as u64, &bytes[from..]);
        }
        n if n == 2 + 2 * boundaries && scattered == 1 => {
            let unit = if boundaries >= SECTORS_MOST { PAGE } else { SECTOR };
            let mut from = at;
            while from < end {
                let to = ((from / unit + 1) * unit).min(end);
                if choice(2) == 1 {
                    image.write(from, &bytes[(from - at) as usize..(to - at) as usize]);
                }
                from = to;
            }
        }
        _ => image.set_len(end.max(image.len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn bytes(at: u64, bytes: &[u8]) -> Change {
        Change::Bytes { at, bytes: bytes.into() }
    }

    /// Every image that a crash may leave.
    fn states(journal: &Journal) -> BTreeSet<Vec<u8>> {
        let mut choices = super::super::Choices::default();
        let mut states = BTreeSet::new();
        loop {
            states.insert(journal.crash(&mut |options| choices.choose(options)).to_vec());
            if !choices.advance() {
                return states;
            }
        }
    }

    #[test]
    fn writes_survive_without_earlier_ones_and_gaps_read_as_zeros() {
        let mut journal = Journal::new(Image::new(b"ab"));
        journal.push(bytes(2, b"cd"));
        journal.push(bytes(4, b"e"));
        let expected: [&[u8]; 5] = [b"ab", b"abcd", b"abcde", b"ab\0\0", b"ab\0\0e"];
        for state in expected {
            assert!(states(&journal).contains(state), "{state:?}");
        }
        assert!(!states(&journal).contains(b"abc".as_slice()), "no tear inside a sector");
    }

    #[test]
    fn a_write_is_torn_at_sector_boundaries_of_the_file_only() {
        let mut journal = Journal::new(Image::new(&[1; 2000]));
        journal.push(bytes(500, &[2; 600]));
        let states = states(&journal);
        let with = |from: usize, to: usize| {
            let mut state = vec![1; 2000];
            state[from..to].fill(2);
            state
        };
        let mut expected: BTreeSet<_> =
            [(0, 0), (500, 1100), (500, 512), (500, 1024), (512, 1100), (1024, 1100), (512, 1024)].map(|(a, b)| with(a, b)).into();
        let mut without_the_middle = with(500, 1100);
        without_the_middle[512..1024].fill(1);
        expected.insert(without_the_middle);
        assert_eq!(states, expected, "any subset of its sectors");
        let mut one = Journal::default();
        one.push(bytes(0, &[2; 512]));
        assert!(
            one.crash(&mut |options| {
                assert_eq!(options, 3);
                1
            })
            .to_vec()
                == [2; 512],
            "the end of a write is no boundary in it"
        );
    }

    #[test]
    fn a_long_write_survives_as_any_subset_of_its_pages() {
        let mut journal = Journal::new(Image::new(&[1; 3 * PAGE as usize]));
        journal.push(bytes(100, &vec![2; 2 * PAGE as usize]));
        let boundaries = 2 * PAGE as usize / SECTOR as usize;
        let mut chosen = [2 + 2 * boundaries, 1, 0, 1].into_iter();
        let state = journal.crash(&mut |_| chosen.next().unwrap()).to_vec();
        let pages = [(0, 100, 1), (100, 4096, 2), (4096, 8192, 1), (8192, 8292, 2), (8292, 12288, 1)];
        assert!(pages.iter().all(|&(from, to, byte)| state[from..to].iter().all(|b| *b == byte)));
    }

    #[test]
    fn a_failed_sync_is_not_made_up_for_by_a_later_one() {
        let mut journal = Journal::default();
        journal.push(bytes(0, b"aa"));
        journal.fail_sync();
        journal.push(bytes(1, b"b"));
        journal.sync();
        assert_eq!(journal.durable().to_vec(), b"\0b");
        let states = states(&journal);
        assert!(states.contains(b"ab".as_slice()) && states.contains(b"\0b".as_slice()));
        assert!(!states.contains(b"aa".as_slice()), "the synced write lies over the failed one");
        assert_eq!(journal.forget_failed().to_vec(), b"\0b");
    }

    #[test]
    fn a_lost_cut_takes_what_was_written_behind_it_along() {
        let mut journal = Journal::new(Image::new(b"old old"));
        journal.push(Change::SetLen(3));
        journal.push(bytes(3, b"NEW"));
        let expected: [&[u8]; 4] = [b"old old", b"old", b"oldNEW", b"old\0\0\0"];
        assert_eq!(states(&journal), expected.map(<[u8]>::to_vec).into());
        let mut across = Journal::new(Image::new(b"old old"));
        across.push(Change::SetLen(3));
        across.push(bytes(2, b"DNE"));
        across.push(bytes(5, b"W"));
        assert!(states(&across).contains(b"olDNEW".as_slice()));
        assert!(states(&across).contains(b"olD old".as_slice()), "what lies before the cut stands on its own");
        assert!(states(&across).iter().all(|state| state.len() < 7 || state[3..] == *b" old"));
    }

    #[test]
    fn a_sparse_file_keeps_only_what_was_written() {
        let mut journal = Journal::default();
        journal.push(Change::Grow(10 << 20));
        journal.push(bytes(0, &[7; 8]));
        journal.sync();
        assert_eq!((journal.base().written().len(), journal.base().len()), (8, 10 << 20));
    }
}
