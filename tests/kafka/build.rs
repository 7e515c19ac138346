//! The files of a planned directory, and what is known of it because it was made here: which batch lies where, and which of them were damaged.

use crate::encode::{Batch, Codec, Record, message, offset_index, time_index, wrapper};
use crate::judge::Seen;
use crate::plans::{BEGINNING_MS, BatchPlan, Leftover, Plan, Producer, RecordPlan, Spoil, Stamp, Tail};
use std::collections::BTreeMap;

/// `segment.index.bytes` of the directories.
pub(crate) const INDEX_BYTES: usize = 4096;

/// A batch that was written.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// The segment it is in, counted from 0.
    pub(crate) segment: usize,
    /// Where it begins in its log.
    pub(crate) position: usize,
    /// Its length in bytes.
    pub(crate) len: usize,
    /// Its first and its last offset.
    pub(crate) offsets: (i64, i64),
    /// The largest time of its records.
    pub(crate) max_timestamp: i64,
    /// Its records, control records among them.
    pub(crate) records: Vec<Seen>,
    /// Whether its inner messages stand in it as they would stand alone: all codecs here store, and the offsets are the absolute ones.
    pub(crate) shows_inner: bool,
    /// What a flipped bit hit.
    pub(crate) hit: Option<Hit>,
}

/// The part of a batch that lost its truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    /// The base offset (magic 0 and 1: the offset): no checksum covers it.
    Offset,
    /// The leader epoch: no checksum covers it, and no reader can tell.
    Epoch,
    /// The magic of a batch of magic 2: no checksum covers it.
    Magic,
    /// Anything that a checksum covers, the checksum, or the length.
    Checked,
    /// It is not there as a whole.
    Cut,
}

/// A directory that was made.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// Its files by name.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Its batches in order, as they were before anything happened to them.
    pub(crate) made: Vec<Made>,
    /// Whether something stands behind the last batch that is none.
    pub(crate) has_tail: bool,
    /// How many segments it has.
    pub(crate) segments: usize,
    /// The log start offset that the checkpoint has; 0 for none.
    pub(crate) log_start: i64,
}

impl Made {
    /// Whether its bytes are no more a batch that a checksum vouches for.
    pub(crate) fn is_bad(&self) -> bool {
        matches!(self.hit, Some(Hit::Checked | Hit::Magic | Hit::Cut))
    }
}

impl Built {
    /// What was hit: segment, position of the batch, the part.
    pub(crate) fn hits(&self) -> Vec<(usize, usize, Hit)> {
        self.made.iter().filter_map(|made| Some((made.segment, made.position, made.hit?))).collect()
    }

    /// Whether a good batch or another segment stands behind a bad batch.
    pub(crate) fn damaged_in_the_middle(&self) -> bool {
        let Some(at) = self.made.iter().position(Made::is_bad) else { return false };
        self.made[at].segment + 1 < self.segments || self.made[at..].iter().any(|made| !made.is_bad())
    }

    /// Whether a batch stands between two places of its segment that are no batches.
    pub(crate) fn is_between_damage(&self, batch: &Made) -> bool {
        let mut bad = self.made.iter().filter(|made| made.segment == batch.segment && made.is_bad()).map(|made| made.position);
        let before = bad.clone().any(|position| position < batch.position);
        before && (bad.any(|position| position > batch.position) || (self.has_tail && batch.segment + 1 == self.segments))
    }

    /// The largest time of a segment's batches, and of those before the first bad one; -1 for none.
    pub(crate) fn largest_times(&self, segment: usize) -> [i64; 2] {
        let of_it = || self.made.iter().filter(|made| made.segment == segment);
        let all = of_it().map(|made| made.max_timestamp).max();
        let before = of_it().take_while(|made| !made.is_bad()).map(|made| made.max_timestamp).max();
        [all, before].map(|largest| largest.unwrap_or(-1))
    }

    /// The segment of a record.
    pub(crate) fn segment_of(&self, offset: i64) -> Option<usize> {
        self.made.iter().find(|made| (made.offsets.0..=made.offsets.1).contains(&offset)).map(|made| made.segment)
    }
}

/// The state of the log while it is written.
struct Writing {
    next: i64,
    sequence: i32,
    /// The bytes of the segment that is written.
    bytes: Vec<u8>,
    made: Vec<Made>,
    segment: usize,
}

impl Writing {
    fn put(&mut self, bytes: &[u8], offsets: (i64, i64), max_timestamp: i64, records: Vec<Seen>) {
        let (segment, position) = (self.segment, self.bytes.len());
        self.made.push(Made { segment, position, len: bytes.len(), offsets, max_timestamp, records, shows_inner: false, hit: None });
        self.bytes.extend(bytes);
        self.next = offsets.1 + 1;
    }

    fn add(&mut self, plan: &BatchPlan) {
        match plan {
            BatchPlan::Data { codec, gap, tail_gap, stamp, producer, epoch, records } => {
                self.data(*codec, self.next + i64::from(*gap), *tail_gap, *stamp, *producer, *epoch, records);
            }
            BatchPlan::Marker { producer, commit } => {
                let (offset, pid, timestamp) = (self.next, i64::from(*producer), BEGINNING_MS + self.next);
                let batch = Batch::end_of_transaction(offset, pid, 0, timestamp, *commit);
                let content = [hex(Some(&[0, 0, 0, u8::from(*commit)])), hex(Some(&[0, 0, 0, 0, 0, 7])), "=".to_owned()];
                let seen = Seen {
                    offset,
                    timestamp_type: "CreateTime".to_owned(),
                    control: true,
                    transactional: true,
                    producer_id: pid,
                    timestamp,
                    content,
                };
                self.put(&batch.encode(), (offset, offset), timestamp, vec![seen]);
            }
            BatchPlan::Emptied { gap, span } => {
                let base = self.next + i64::from(*gap);
                let max_timestamp = BEGINNING_MS + base;
                let batch = Batch {
                    last_offset_delta: Some(i32::from(*span)),
                    base_timestamp: Some(-1),
                    max_timestamp: Some(max_timestamp),
                    ..Batch::new(base, Vec::new())
                };
                self.put(&batch.encode(), (base, base + i64::from(*span)), max_timestamp, Vec::new());
            }
            BatchPlan::Old { magic, codec, gap, append_time, records } => {
                self.old(*magic, *codec, self.next + i64::from(*gap), *append_time && *magic > 0, records);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a plan, taken apart by its match")]
    fn data(&mut self, codec: Codec, base: i64, tail_gap: u8, stamp: Stamp, producer: Producer, epoch: u8, plans: &[RecordPlan]) {
        let mut delta = -1;
        let mut records = Vec::new();
        for plan in plans {
            delta += 1 + i32::from(plan.gap);
            let mut record = Record::new(delta, time_of(plan), plan.key.as_deref(), plan.value.as_deref());
            if let Some(value) = &plan.header {
                record = record.header(b"h", value.as_deref()).header(b"i", None);
            }
            records.push(record);
        }
        let last_delta = delta + i32::from(tail_gap);
        let mut max_timestamp = records.iter().map(|record| record.timestamp).max().unwrap_or(-1);
        let mut batch = Batch { codec, last_offset_delta: Some(last_delta), ..Batch::new(base, records) };
        batch.partition_leader_epoch = i32::from(epoch);
        match stamp {
            Stamp::Create => {}
            Stamp::Append => {
                batch.attributes |= Batch::LOG_APPEND_TIME;
                max_timestamp = BEGINNING_MS + base * 10;
                batch.max_timestamp = Some(max_timestamp);
            }
            Stamp::Horizon => {
                batch.attributes |= Batch::DELETE_HORIZON;
                batch.base_timestamp = Some(BEGINNING_MS + 86_400_000);
            }
        }
        let (producer_id, transactional) = match producer {
            Producer::None => (-1, false),
            Producer::Idempotent => (100, false),
            Producer::Transaction(n) => (i64::from(n), true),
        };
        if producer_id >= 0 {
            (batch.producer_id, batch.producer_epoch, batch.base_sequence) = (producer_id, 0, self.sequence);
            self.sequence += last_delta + 1;
        }
        if transactional {
            batch.attributes |= Batch::TRANSACTIONAL;
        }
        let seen = batch.records.iter().map(|record| Seen {
            offset: base + i64::from(record.offset_delta),
            timestamp_type: if stamp == Stamp::Append { "LogAppendTime" } else { "CreateTime" }.to_owned(),
            control: false,
            transactional,
            producer_id,
            timestamp: if stamp == Stamp::Append { max_timestamp } else { record.timestamp },
            content: [hex(record.key.as_deref()), hex(record.value.as_deref()), headers(&record.headers)],
        });
        let seen = seen.collect();
        self.put(&batch.encode(), (base, base + i64::from(last_delta)), max_timestamp, seen);
    }

    fn old(&mut self, magic: i8, codec: Codec, base: i64, append_time: bool, plans: &[RecordPlan]) {
        let codec = if magic == 0 && codec == Codec::Lz4 { Codec::Lz4OfMagic0 } else { codec };
        let time = |plan: &RecordPlan| if magic == 0 { -1 } else { time_of(plan) };
        let kind = match (magic, append_time) {
            (0, _) => "NoTimestampType",
            (_, true) => "LogAppendTime",
            _ => "CreateTime",
        };
        let see = |offset: i64, timestamp: i64, plan: &RecordPlan| Seen {
            offset,
            timestamp_type: kind.to_owned(),
            control: false,
            transactional: false,
            producer_id: -1,
            timestamp,
            content: [hex(plan.key.as_deref()), hex(plan.value.as_deref()), "=".to_owned()],
        };
        let log_time = BEGINNING_MS + base * 10;
        let attributes = if append_time { 8 } else { 0 };
        if codec == Codec::None {
            let mut offset = base;
            for plan in plans {
                offset += i64::from(plan.gap);
                let timestamp = if append_time { log_time } else { time(plan) };
                let bytes = message(offset, magic, attributes, timestamp, plan.key.as_deref(), plan.value.as_deref());
                self.put(&bytes, (offset, offset), timestamp, vec![see(offset, timestamp, plan)]);
                offset += 1;
            }
            return;
        }
        let (mut inner, mut seen, mut offset) = (Vec::new(), Vec::new(), base);
        for plan in plans {
            offset += i64::from(plan.gap);
            // Under magic 1 the inner offsets count from the first one.
            let stored = if magic == 0 { offset } else { offset - base };
            inner.extend(message(stored, magic, 0, time(plan), plan.key.as_deref(), plan.value.as_deref()));
            seen.push(see(offset, if append_time { log_time } else { time(plan) }, plan));
            offset += 1;
        }
        let timestamp = if append_time { log_time } else { plans.iter().map(time).max().unwrap_or(-1) };
        let mut bytes = wrapper(offset - 1, magic, codec, timestamp, &inner);
        if append_time {
            bytes[17] |= 8;
            let sum = crate::encode::crc32(&bytes[16..]);
            bytes[12..16].copy_from_slice(&sum.to_be_bytes());
        }
        let first = seen.first().map_or(base, |seen| seen.offset);
        self.put(&bytes, (first, offset - 1), timestamp, seen);
        if let Some(made) = self.made.last_mut() {
            made.shows_inner = magic == 0 || base == 0;
        }
    }
}

fn time_of(plan: &RecordPlan) -> i64 {
    plan.time.map_or(-1, |time| BEGINNING_MS + i64::from(time))
}

/// Bytes as `Judge.java` prints them.
pub(crate) fn hex(bytes: Option<&[u8]>) -> String {
    bytes.map_or("-".to_owned(), |bytes| bytes.iter().fold("x".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}

/// Headers as `Judge.java` prints them.
pub(crate) fn headers<N: AsRef<[u8]>, V: AsRef<[u8]>>(headers: &[(N, Option<V>)]) -> String {
    let text = |(name, value): &(N, Option<V>)| format!("{}:{};", &hex(Some(name.as_ref()))[1..], hex(value.as_ref().map(AsRef::as_ref)));
    headers.iter().fold("=".to_owned(), |all, header| all + &text(header))
}

/// The indexes that Kafka's rule gives.
fn indexes(base_offset: i64, made: &[Made], interval: u32) -> (Vec<u8>, Vec<u8>) {
    let mut offsets: Vec<(i64, u32)> = Vec::new();
    let mut times: Vec<(i64, i64)> = Vec::new();
    let (mut largest, mut indexed) = ((-1, base_offset), 0);
    let add_time = |times: &mut Vec<(i64, i64)>, (time, offset): (i64, i64)| {
        if time > times.last().map_or(-1, |(last, _)| *last) {
            times.push((time, offset));
        }
    };
    for batch in made {
        if batch.max_timestamp > largest.0 {
            largest = (batch.max_timestamp, batch.offsets.1);
        }
        if batch.position - indexed > interval as usize {
            offsets.push((batch.offsets.1, batch.position as u32));
            add_time(&mut times, largest);
            indexed = batch.position;
        }
    }
    add_time(&mut times, largest);
    (offset_index(base_offset, &offsets), time_index(base_offset, &times))
}

fn name(base: i64, suffix: &str) -> String {
    format!("{base:020}.{suffix}")
}

fn spoil(bytes: &mut Vec<u8>, entry: usize, spoil: &Spoil) {
    match spoil {
        Spoil::Removed => unreachable!("the caller removes the file"),
        Spoil::Cut(parts) => bytes.truncate(bytes.len() * usize::from(*parts) / 256),
        Spoil::Stale => bytes.truncate(bytes.len() / entry / 2 * entry),
        Spoil::Untrimmed => bytes.resize(INDEX_BYTES / entry * entry, 0),
        Spoil::Lie(at, xor) => {
            let at = bytes.len() * usize::from(*at) / 256;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= xor;
            }
        }
        Spoil::Replaced(other) => bytes.clone_from(other),
    }
}

/// Makes the directory.
pub(crate) fn build(plan: &Plan) -> Built {
    let base_offset = i64::from(plan.base_offset);
    let mut writing = Writing { next: base_offset, sequence: 0, bytes: Vec::new(), made: Vec::new(), segment: 0 };
    let mut logs: Vec<(i64, Vec<u8>)> = Vec::new();
    for (segment, batches) in plan.segments.iter().enumerate() {
        // An empty segment keeps its name by a gap behind it.
        let base = logs.last().map_or(base_offset, |(base, _)| writing.next.max(base + 1));
        (writing.segment, writing.next) = (segment, base);
        batches.iter().for_each(|batch| writing.add(batch));
        logs.push((base, std::mem::take(&mut writing.bytes)));
    }
    let Writing { next, mut made, .. } = writing;
    let log_start = plan.log_start.map_or(0, |parts| base_offset + (next - base_offset) * i64::from(parts) / 256);
    let mut files = BTreeMap::new();
    for (segment, (base, _)) in logs.iter().enumerate() {
        let of_it: Vec<Made> = made.iter().filter(|made| made.segment == segment).cloned().collect();
        let (index, timeindex) = indexes(*base, &of_it, plan.interval);
        files.insert(name(*base, "index"), index);
        files.insert(name(*base, "timeindex"), timeindex);
    }
    let names: Vec<String> = files.keys().cloned().collect();
    for (which, how) in &plan.spoilt {
        let name = &names[usize::from(*which) % names.len()];
        let entry = if name.ends_with("timeindex") { 12 } else { 8 };
        match (how, files.get_mut(name)) {
            (Spoil::Removed, _) => drop(files.remove(name)),
            (how, Some(bytes)) => spoil(bytes, entry, how),
            (_, None) => {}
        }
    }
    flip(plan, &mut logs, &mut made);
    let last = logs.len() - 1;
    let end = &mut logs[last].1;
    match &plan.tail {
        Tail::Whole => {}
        Tail::Torn(bytes) => {
            let batch = Batch::plain(next, 4, BEGINNING_MS).encode();
            end.extend(&batch[..usize::from(*bytes).min(batch.len() - 1)]);
        }
        Tail::Zeros(bytes) => end.resize(end.len() + usize::from(*bytes), 0),
        Tail::Noise(bytes) => end.extend(bytes),
        Tail::Cut(bytes) => {
            end.truncate(end.len().saturating_sub(usize::from(*bytes)));
            let cut = |made: &&mut Made| made.segment == last && made.position + made.len > end.len();
            made.iter_mut().filter(cut).for_each(|made| made.hit = Some(Hit::Cut));
        }
    }
    for (base, bytes) in &logs {
        files.insert(name(*base, "log"), bytes.clone());
    }
    if let Some((which, leftover)) = &plan.leftover {
        leave(*leftover, logs[usize::from(*which) % logs.len()].0, &mut files);
    }
    Built { files, made, has_tail: !matches!(plan.tail, Tail::Whole), segments: logs.len(), log_start }
}

/// Flips bits in the logs, one a batch at most, and notes what they hit.
fn flip(plan: &Plan, logs: &mut [(i64, Vec<u8>)], made: &mut [Made]) {
    let all: usize = logs.iter().map(|(_, bytes)| bytes.len()).sum();
    for (place, bit) in &plan.flips {
        let mut at = all * usize::from(*place) / 65536;
        for (segment, (_, bytes)) in logs.iter_mut().enumerate() {
            if at >= bytes.len() {
                at -= bytes.len();
                continue;
            }
            let hit = |made: &&mut Made| made.segment == segment && (made.position..made.position + made.len).contains(&at);
            if let Some(batch) = made.iter_mut().find(hit).filter(|batch| batch.hit.is_none()) {
                bytes[at] ^= 1 << bit;
                let v2 = bytes[batch.position + 16] >= 2 || at == batch.position + 16;
                batch.hit = Some(match at - batch.position {
                    0..8 => Hit::Offset,
                    12..16 if v2 => Hit::Epoch,
                    16 if v2 => Hit::Magic,
                    _ => Hit::Checked,
                });
            }
            break;
        }
    }
}

/// Adds the leftover files of a segment.
fn leave(leftover: Leftover, base: i64, files: &mut BTreeMap<String, Vec<u8>>) {
    let suffix = match leftover {
        Leftover::Deleted => ".deleted",
        Leftover::Cleaned => ".cleaned",
        Leftover::Swap | Leftover::SwapOnly => ".swap",
    };
    for kind in ["log", "index", "timeindex"] {
        let plain = name(base, kind);
        let Some(bytes) = files.get(&plain).cloned() else { continue };
        files.insert(format!("{plain}{suffix}"), bytes);
        if leftover == Leftover::SwapOnly {
            files.remove(&plain);
        }
    }
}
