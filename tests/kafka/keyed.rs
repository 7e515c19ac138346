//! Generated logs of keys for the cleaner and for retention: what is in them, how they grow round by round, and the settings; and the batches made of it.

use crate::encode::{Batch, Codec, Record, crc32, message, wrapper};
use crate::plans::BEGINNING_MS;
use proptest::prelude::*;
use std::collections::HashMap;

/// The keys, by number.
const KEYS: [&[u8]; 7] = [b"", b"a", b"b", b"c", b"d", b"a rather long key of forty bytes in all..", b"\xff\0"];
/// The producers of transactions are these and up.
const TRANSACTIONAL: i64 = 7;
/// The producers without are these and up.
const IDEMPOTENT: i64 = 100;

/// A log, and what is done to it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    /// What stands there from the beginning, a segment each.
    pub(crate) first: Vec<Vec<Item>>,
    /// How much time passes behind it, in ms.
    pub(crate) wait_ms: u32,
    pub(crate) rounds: Vec<Round>,
}

/// What happens between two cleanings.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// A new segment is begun before what is appended.
    pub(crate) rolls: bool,
    pub(crate) items: Vec<Item>,
    pub(crate) rolls_behind: bool,
    /// Where in the log (of 256 parts) the log start offset is moved to.
    pub(crate) log_start: Option<u8>,
    pub(crate) wait_ms: u32,
}

/// Kafka's settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) deletes: bool,
    pub(crate) compacts: bool,
    pub(crate) interval: u32,
    pub(crate) segment_bytes: u32,
    pub(crate) ratio: f64,
    pub(crate) delete_retention_ms: u32,
    pub(crate) min_lag_ms: u32,
    pub(crate) max_lag_ms: Option<u32>,
    pub(crate) retention_ms: Option<u32>,
    pub(crate) retention_bytes: Option<u32>,
    /// The slots of the map of keys.
    pub(crate) slots: u32,
    pub(crate) producer_expiration_ms: u32,
}

/// A batch.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Data {
        codec: Codec,
        gap: u8,
        tail_gap: u8,
        append_time: bool,
        who: Who,
        records: Vec<Rec>,
    },
    /// The end of a transaction, in the producer's epoch or in the next one.
    Marker {
        producer: u8,
        commit: bool,
        bumps: bool,
    },
    Old {
        magic: i8,
        codec: Codec,
        gap: u8,
        append_time: bool,
        records: Vec<Rec>,
    },
}

/// Who wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Nobody,
    Idempotent(u8),
    Transaction(u8),
}

/// A record: offsets that are missing before it, its time, the number of its key, the length of its value.
#[derive(Clone, Debug)]
pub(crate) struct Rec {
    pub(crate) gap: u8,
    pub(crate) time: Option<i32>,
    pub(crate) key: Option<u8>,
    pub(crate) value: Option<u8>,
    pub(crate) header: bool,
}

impl Plan {
    /// Whether a batch is compressed, or may come out of the cleaner so.
    pub(crate) fn is_compressed(&self) -> bool {
        let packed = |item: &Item| match item {
            Item::Data { codec, .. } | Item::Old { codec, .. } => *codec != Codec::None,
            Item::Marker { .. } => false,
        };
        self.first.iter().flatten().chain(self.rounds.iter().flat_map(|round| &round.items)).any(packed)
    }
}

/// Makes batches one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Making {
    /// The offset of the next batch.
    pub(crate) next: i64,
    /// The next sequence number of each producer.
    sequences: HashMap<i64, i32>,
    epochs: HashMap<i64, i16>,
    /// The offsets of the markers of aborted transactions.
    pub(crate) aborts: Vec<i64>,
}

impl Making {
    /// The bytes of the batches, each alone.
    pub(crate) fn batches(&mut self, items: &[Item]) -> Vec<Vec<u8>> {
        items.iter().flat_map(|item| self.make(item)).collect()
    }

    fn time(rec: &Rec) -> i64 {
        rec.time.map_or(-1, |time| BEGINNING_MS + i64::from(time))
    }

    fn content(rec: &Rec) -> (Option<&'static [u8]>, Option<Vec<u8>>) {
        (rec.key.map(|n| KEYS[usize::from(n) % KEYS.len()]), rec.value.map(|len| vec![b'v'; usize::from(len)]))
    }

    fn make(&mut self, item: &Item) -> Vec<Vec<u8>> {
        match item {
            Item::Data { codec, gap, tail_gap, append_time, who, records } => {
                let base = self.next + i64::from(*gap);
                let mut delta = -1;
                let mut made = Vec::new();
                for rec in records {
                    delta += 1 + i32::from(rec.gap);
                    let (key, value) = Making::content(rec);
                    let record = Record::new(delta, Making::time(rec), key, value.as_deref());
                    made.push(if rec.header { record.header(b"h", None).header(b"i", Some(b"1")) } else { record });
                }
                let last = delta + i32::from(*tail_gap);
                let mut batch = Batch { codec: *codec, last_offset_delta: Some(last), ..Batch::new(base, made) };
                if *append_time {
                    batch.attributes |= Batch::LOG_APPEND_TIME;
                    batch.max_timestamp = Some(BEGINNING_MS + base * 10);
                }
                let producer_id = match who {
                    Who::Nobody => -1,
                    Who::Idempotent(n) => IDEMPOTENT + i64::from(*n),
                    Who::Transaction(n) => TRANSACTIONAL + i64::from(*n),
                };
                if producer_id >= 0 {
                    let sequence = self.sequences.entry(producer_id).or_default();
                    (batch.producer_id, batch.base_sequence) = (producer_id, *sequence);
                    batch.producer_epoch = *self.epochs.entry(producer_id).or_default();
                    *sequence += last + 1;
                }
                if matches!(who, Who::Transaction(_)) {
                    batch.attributes |= Batch::TRANSACTIONAL;
                }
                self.next = base + i64::from(last) + 1;
                vec![batch.encode()]
            }
            Item::Marker { producer, commit, bumps } => {
                let producer_id = TRANSACTIONAL + i64::from(*producer);
                let epoch = self.epochs.entry(producer_id).or_default();
                if *bumps {
                    *epoch += 1;
                    self.sequences.remove(&producer_id);
                }
                self.aborts.extend((!commit).then_some(self.next));
                let batch = Batch::end_of_transaction(self.next, producer_id, *epoch, BEGINNING_MS + self.next * 10, *commit);
                self.next += 1;
                vec![batch.encode()]
            }
            Item::Old { magic, codec, gap, append_time, records } => self.old(*magic, *codec, *gap, *append_time && *magic > 0, records),
        }
    }

    fn old(&mut self, magic: i8, codec: Codec, gap: u8, append_time: bool, records: &[Rec]) -> Vec<Vec<u8>> {
        let base = self.next + i64::from(gap);
        let time = |rec: &Rec| if magic == 0 { -1 } else { Making::time(rec) };
        let (mut offset, log_time, flags) = (base, BEGINNING_MS + base * 10, if append_time { 8 } else { 0 });
        let mut made = Vec::new();
        for rec in records {
            offset += i64::from(rec.gap);
            let (key, value) = Making::content(rec);
            made.push(if codec == Codec::None {
                message(offset, magic, flags, if append_time { log_time } else { time(rec) }, key, value.as_deref())
            } else {
                // Under magic 1 the inner offsets count from the first one.
                message(if magic == 0 { offset } else { offset - base }, magic, 0, time(rec), key, value.as_deref())
            });
            offset += 1;
        }
        self.next = offset;
        if codec == Codec::None {
            return made;
        }
        let codec = if magic == 0 && codec == Codec::Lz4 { Codec::Lz4OfMagic0 } else { codec };
        let newest = if append_time { log_time } else { records.iter().map(time).max().unwrap_or(-1) };
        let mut bytes = wrapper(offset - 1, magic, codec, newest, &made.concat());
        if append_time {
            bytes[17] |= 8;
            let sum = crc32(&bytes[16..]);
            bytes[12..16].copy_from_slice(&sum.to_be_bytes());
        }
        vec![bytes]
    }
}

/// The logs of the first segments, the first of which begins at 0; Kafka makes what belongs to them.
pub(crate) fn files(plan: &Plan, making: &mut Making) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut base = 0;
    for (at, items) in plan.first.iter().enumerate() {
        if at > 0 {
            // An empty segment keeps its name by a gap behind it.
            base = making.next.max(base + 1);
        }
        making.next = base;
        let log = making.batches(items).concat();
        files.push((format!("{base:020}.log"), log));
    }
    files
}

fn rec() -> impl Strategy<Value = Rec> {
    let gap = prop_oneof![9 => Just(0), 1 => 0..4_u8];
    let time = prop_oneof![8 => (0..100_000_i32).prop_map(Some), 1 => Just(None), 1 => Just(Some(0))];
    let key = prop::option::weighted(0.92, 0..7_u8);
    (gap, time, key, prop::option::weighted(0.7, 0..60_u8), prop::bool::weighted(0.1)).prop_map(|(gap, time, key, value, header)| Rec {
        gap,
        time,
        key,
        value,
        header,
    })
}

fn recs() -> impl Strategy<Value = Vec<Rec>> {
    prop::collection::vec(rec(), 1..5)
}

fn any_gap() -> impl Strategy<Value = u8> {
    prop_oneof![9 => Just(0), 1 => 0..5_u8]
}

fn any_codec(packed: bool, codecs: Vec<Codec>) -> BoxedStrategy<Codec> {
    if packed { prop_oneof![1 => Just(Codec::None), 2 => prop::sample::select(codecs)].boxed() } else { Just(Codec::None).boxed() }
}

fn data(packed: bool, who: BoxedStrategy<Who>) -> impl Strategy<Value = Item> {
    let codecs = vec![Codec::Gzip, Codec::SnappyRaw, Codec::SnappyStream, Codec::Lz4, Codec::Zstd];
    let codec = any_codec(packed, codecs);
    (codec, any_gap(), any_gap(), prop::bool::weighted(0.1), who, recs())
        .prop_map(|(codec, gap, tail_gap, append_time, who, records)| Item::Data { codec, gap, tail_gap, append_time, who, records })
}

fn marker() -> impl Strategy<Value = Item> {
    (0..3_u8, any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(producer, commit, bumps)| Item::Marker { producer, commit, bumps })
}

fn old(packed: bool) -> impl Strategy<Value = Item> {
    let codec = any_codec(packed, vec![Codec::Gzip, Codec::SnappyRaw, Codec::SnappyStream, Codec::Lz4]);
    (0..2_i8, codec, any_gap(), prop::bool::weighted(0.1), recs()).prop_map(|(magic, codec, gap, append_time, records)| Item::Old {
        magic,
        codec,
        gap,
        append_time,
        records,
    })
}

/// Plain batches, idempotent producers, transactions.
fn of_today(packed: bool, transactions: bool) -> BoxedStrategy<Item> {
    if !transactions {
        let who = prop_oneof![4 => Just(Who::Nobody), 1 => (0..2_u8).prop_map(Who::Idempotent)];
        return data(packed, who.boxed()).boxed();
    }
    let who = prop_oneof![1 => Just(Who::Nobody), 1 => (0..2_u8).prop_map(Who::Idempotent), 4 => (0..3_u8).prop_map(Who::Transaction)];
    prop_oneof![5 => data(packed, who.boxed()), 3 => marker()].boxed()
}

fn settings() -> impl Strategy<Value = Settings> {
    let policies = prop_oneof![12 => Just((false, true)), 6 => Just((true, true)), 2 => Just((true, false)), 1 => Just((false, false))];
    let lag = prop_oneof![4 => Just(0), 1 => 1..200_000_u32];
    let segment_bytes = prop_oneof![1 => 150..3000_u32, 1 => Just(1_000_000)];
    let ratio = prop_oneof![3 => Just(0.0), 1 => 0.0..=1.0];
    let delete_retention_ms = prop_oneof![3 => Just(0), 3 => 0..300_000_u32, 1 => Just(86_400_000)];
    let max_lag_ms = prop::option::weighted(0.2, 1..300_000_u32);
    let retention = (prop::option::weighted(0.5, 0..400_000_u32), prop::option::weighted(0.3, 0..2000_u32));
    let slots = prop_oneof![4 => Just(1000), 1 => 2..9_u32];
    let expiration = prop_oneof![3 => Just(2_000_000_000), 1 => 1..600_000_u32];
    (policies, 0..500_u32, segment_bytes, ratio, delete_retention_ms, lag, max_lag_ms, retention, slots, expiration).prop_map(
        |(
            (deletes, compacts),
            interval,
            segment_bytes,
            ratio,
            delete_retention_ms,
            min_lag_ms,
            max_lag_ms,
            retention,
            slots,
            expiration,
        )| {
            Settings {
                deletes,
                compacts,
                interval,
                segment_bytes,
                ratio,
                delete_retention_ms,
                min_lag_ms,
                max_lag_ms,
                retention_ms: retention.0,
                retention_bytes: retention.1,
                slots,
                producer_expiration_ms: expiration,
            }
        },
    )
}

fn wait() -> impl Strategy<Value = u32> {
    prop_oneof![1 => 0..2000_u32, 2 => 0..400_000_u32, 1 => Just(100_000_000)]
}

fn round(item: BoxedStrategy<Item>) -> impl Strategy<Value = Round> {
    let items = prop::collection::vec(item, 0..6);
    (any::<bool>(), items, prop::bool::weighted(0.6), prop::option::weighted(0.1, any::<u8>()), wait())
        .prop_map(|(rolls, items, rolls_behind, log_start, wait_ms)| Round { rolls, items, rolls_behind, log_start, wait_ms })
}

/// Logs of keys: today's, with transactions, or one that begins with the old formats; compressed or not.
pub(crate) fn logs() -> impl Strategy<Value = Plan> {
    let kinds = prop_oneof![3 => Just((false, false)), 5 => Just((true, false)), 1 => Just((false, true)), 1 => Just((true, true))];
    (kinds, prop::bool::weighted(0.3)).prop_flat_map(|((transactions, is_old), packed)| {
        let today = of_today(packed, transactions);
        let first = if is_old { prop_oneof![3 => old(packed), 1 => today.clone()].boxed() } else { today.clone() };
        let first = prop::collection::vec(prop::collection::vec(first, 0..6), 1..5);
        (settings(), first, wait(), prop::collection::vec(round(today), 0..7)).prop_map(|(settings, first, wait_ms, rounds)| Plan {
            settings,
            first,
            wait_ms,
            rounds,
        })
    })
}
