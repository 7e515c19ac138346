//! Generated partition directories of every kind that a Kafka log can have or come to: what a directory shall be, as data that can be made
//! smaller. `build` makes the files of it.

use crate::encode::Codec;
use proptest::prelude::*;
use std::fmt;

/// The time that the records' times lie around, in ms.
pub(crate) const BEGINNING_MS: i64 = 1_700_000_000_000;

/// A directory.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The base offset of the first segment.
    pub(crate) base_offset: u16,
    /// The batches of each segment.
    pub(crate) segments: Vec<Vec<BatchPlan>>,
    /// `index.interval.bytes` while it was written and while it is recovered.
    pub(crate) interval: u32,
    /// Where in the log (of 256 parts) the log start offset lies that the checkpoint has.
    pub(crate) log_start: Option<u8>,
    /// What became of index files: which one, and what.
    pub(crate) spoilt: Vec<(u8, Spoil)>,
    /// Bits that flipped: where in all logs (of 65536 parts), and which bit.
    pub(crate) flips: Vec<(u16, u8)>,
    /// What the end of the last log is like.
    pub(crate) tail: Tail,
    /// What an interrupted cleaning or deletion left.
    pub(crate) leftover: Option<(u8, Leftover)>,
}

/// A batch, or an entry of the old formats.
#[derive(Clone, Debug)]
pub(crate) enum BatchPlan {
    /// One of magic 2 with records.
    Data {
        codec: Codec,
        /// Offsets that are missing before it.
        gap: u8,
        /// Offsets that are missing at its end.
        tail_gap: u8,
        stamp: Stamp,
        producer: Producer,
        epoch: u8,
        records: Vec<RecordPlan>,
    },
    /// The end of a transaction of a producer, which may have none open.
    Marker { producer: u8, commit: bool },
    /// One that compaction emptied: a header that spans so many offsets.
    Emptied { gap: u8, span: u8 },
    /// One message or a wrapper of magic 0 or 1.
    Old { magic: i8, codec: Codec, gap: u8, append_time: bool, records: Vec<RecordPlan> },
}

/// Who gave the records their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    Create,
    Append,
    /// The producer, in a batch with a delete horizon.
    Horizon,
}

/// Who wrote a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Producer {
    None,
    /// One with sequence numbers but no transactions.
    Idempotent,
    /// A transaction of this one.
    Transaction(u8),
}

/// A record: offsets that are missing before it, its time from [`BEGINNING_MS`] on (`None`: it has none), and what it holds.
#[derive(Clone)]
pub(crate) struct RecordPlan {
    pub(crate) gap: u8,
    pub(crate) time: Option<i32>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) header: Option<Option<Vec<u8>>>,
}

impl fmt::Debug for RecordPlan {
    /// In short: what it holds seldom matters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(Vec::len);
        write!(
            f,
            "(gap {}, time {:?}, key {:?}, value {:?}, header {:?})",
            self.gap,
            self.time,
            len(&self.key),
            len(&self.value),
            self.header.is_some()
        )
    }
}

/// What became of an index file.
#[derive(Clone, Debug)]
pub(crate) enum Spoil {
    Removed,
    /// It ends after so many of 256 parts, perhaps within an entry.
    Cut(u8),
    /// Its newest entries, half of them, were never written.
    Stale,
    /// It was not trimmed: zeros follow.
    Untrimmed,
    /// One byte of it (of 256 parts) is another.
    Lie(u8, u8),
    /// It is something else.
    Replaced(Vec<u8>),
}

/// The end of the last log.
#[derive(Clone, Debug)]
pub(crate) enum Tail {
    Whole,
    /// So many bytes of a batch that would be right.
    Torn(u16),
    Zeros(u16),
    Noise(Vec<u8>),
    /// So many bytes are missing.
    Cut(u16),
}

/// Files of an interrupted cleaning or deletion, made of the segment that stands beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Its files once more under names that end in `.deleted`.
    Deleted,
    /// The same in `.cleaned`.
    Cleaned,
    /// A whole cleaned segment in `.swap`, and the old one still there.
    Swap,
    /// The same, and the old one is gone.
    SwapOnly,
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => (0..most).prop_map(|n| vec![b'v'; n]), 1 => prop::collection::vec(any::<u8>(), 0..12)]
}

fn record() -> impl Strategy<Value = RecordPlan> {
    let gap = prop_oneof![6 => Just(0), 1 => 0..4_u8];
    let time = prop_oneof![8 => (0..100_000_i32).prop_map(Some), 1 => Just(None), 1 => Just(Some(0))];
    let header = prop::option::weighted(0.15, prop::option::of(bytes(9)));
    (gap, time, prop::option::of(bytes(8)), prop::option::weighted(0.85, bytes(120)), header)
        .prop_map(|(gap, time, key, value, header)| RecordPlan { gap, time, key, value, header })
}

fn records() -> impl Strategy<Value = Vec<RecordPlan>> {
    prop::collection::vec(record(), 1..6)
}

fn any_gap() -> impl Strategy<Value = u8> {
    prop_oneof![8 => Just(0), 1 => 0..9_u8]
}

fn data(transactions: bool) -> impl Strategy<Value = BatchPlan> {
    let codec = prop_oneof![
        5 => Just(Codec::None),
        3 => prop::sample::select(vec![
            Codec::Gzip, Codec::SnappyRaw, Codec::SnappyStream, Codec::SnappyStreamLittleEndian, Codec::Lz4, Codec::Zstd, Codec::ZstdTwoFrames
        ]),
    ];
    let stamp = prop_oneof![6 => Just(Stamp::Create), 1 => Just(Stamp::Append), 1 => Just(Stamp::Horizon)];
    let in_transaction = if transactions { 6 } else { 1 };
    let producer = prop_oneof![
        4 => Just(Producer::None),
        1 => Just(Producer::Idempotent),
        in_transaction => (0..3_u8).prop_map(Producer::Transaction),
    ];
    let epoch = prop_oneof![4 => Just(0), 1 => 0..2_u8];
    (codec, any_gap(), any_gap(), stamp, producer, epoch, records()).prop_map(|(codec, gap, tail_gap, stamp, producer, epoch, records)| {
        BatchPlan::Data { codec, gap, tail_gap, stamp, producer, epoch, records }
    })
}

fn old() -> impl Strategy<Value = BatchPlan> {
    let codec = prop_oneof![1 => Just(Codec::None), 2 => prop::sample::select(vec![Codec::Gzip, Codec::SnappyRaw, Codec::SnappyStream, Codec::Lz4])];
    (0..2_i8, codec, any_gap(), prop::bool::weighted(0.2), records()).prop_map(|(magic, codec, gap, append_time, records)| BatchPlan::Old {
        magic,
        codec,
        gap,
        append_time,
        records,
    })
}

fn marker() -> impl Strategy<Value = BatchPlan> {
    (0..3_u8, any::<bool>()).prop_map(|(producer, commit)| BatchPlan::Marker { producer, commit })
}

fn emptied() -> impl Strategy<Value = BatchPlan> {
    (any_gap(), 0..5_u8).prop_map(|(gap, span)| BatchPlan::Emptied { gap, span })
}

/// The batches of the segments: today's log, one with transactions, one of the old formats, or one that was upgraded.
fn segments() -> impl Strategy<Value = Vec<Vec<BatchPlan>>> {
    let of = |batch: BoxedStrategy<BatchPlan>| prop::collection::vec(prop::collection::vec(batch, 0..7), 1..5);
    prop_oneof![
        4 => of(prop_oneof![9 => data(false), 1 => emptied()].boxed()),
        3 => of(prop_oneof![5 => data(true), 3 => marker(), 1 => emptied()].boxed()),
        1 => of(old().boxed()),
        1 => of(prop_oneof![old(), data(false)].boxed()),
    ]
}

fn spoil() -> impl Strategy<Value = Spoil> {
    prop_oneof![
        2 => Just(Spoil::Removed),
        1 => any::<u8>().prop_map(Spoil::Cut),
        2 => Just(Spoil::Stale),
        2 => Just(Spoil::Untrimmed),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(at, xor)| Spoil::Lie(at, xor)),
        1 => prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..60).prop_map(Spoil::Replaced),
    ]
}

/// Directories of every kind.
pub(crate) fn directories() -> impl Strategy<Value = Plan> {
    let base_offset = prop_oneof![1 => Just(0), 1 => any::<u16>()];
    let spoilt = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec((any::<u8>(), spoil()), 1..4)];
    let flips = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec((any::<u16>(), 0..8_u8), 1..3)];
    let tail = prop_oneof![
        4 => Just(Tail::Whole),
        1 => (1..200_u16).prop_map(Tail::Torn),
        1 => (1..400_u16).prop_map(Tail::Zeros),
        1 => prop::collection::vec(any::<u8>(), 1..100).prop_map(Tail::Noise),
        1 => (1..300_u16).prop_map(Tail::Cut),
    ];
    let kind = prop::sample::select(vec![Leftover::Deleted, Leftover::Cleaned, Leftover::Swap, Leftover::SwapOnly]);
    let leftover = prop::option::weighted(0.15, (any::<u8>(), kind));
    (base_offset, segments(), 0..500_u32, prop::option::weighted(0.2, any::<u8>()), spoilt, flips, tail, leftover).prop_map(
        |(base_offset, segments, interval, log_start, spoilt, flips, tail, leftover)| Plan {
            base_offset,
            segments,
            interval,
            log_start,
            spoilt,
            flips,
            tail,
            leftover,
        },
    )
}
