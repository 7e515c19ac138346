//! The thorough pass over a `.log`: every batch with its CRC, and what to make of places that are not right.
//!
//! Look-ups do not come here; they trust an index entry once it was verified and a batch once its CRC was. Whoever meets bytes that
//! cannot be, recovers after an unclean stop, or has no usable index asks this pass, and gets indexes by Kafka's own rule, the damaged
//! stretches with the offsets they cost, and the torn tail. It judges one segment; whether a tail at its end is torn or damage depends on
//! the segments behind it, which the caller knows.
//!
//! A stretch is left behind only at a *right place*: a batch from which a chain of batches leads to the end of the segment, to a torn
//! tail or to a place that the offset index names. A value may contain a copy of a segment, so a right CRC alone proves nothing. Damaged batches on
//! the way do not break the chain as long as their headers lead on: look-ups, which verify what they serve and not what they pass over, find the same.

use crate::error::Fault;
use crate::log::batch::{ATTRIBUTES, BATCH_LENGTH, BatchHeader, CRC, HEADER_SIZE, PARTITION_LEADER_EPOCH, Step, verify_crc};
use crate::log::index::{IndexRule, OffsetIndex, TimeEntry, encode_offset_entry, encode_time_entry, fits};
use crate::log::record::{self, Records};
use crate::types::{Offset, Position, TimestampMs};
use std::collections::HashSet;

/// More damaged stretches than this in one segment are told as one.
const DAMAGE_MOST: usize = 65_536;

/// A batch whose length is wrong is recognised by its CRC up to this size, in bytes.
const REACH_MOST: usize = 2 << 20;
/// A wrapper of magic 0 or 1 behind a damaged stretch is decoded up to this, in bytes, to learn its first offset.
const WRAPPER_BYTES_MOST: u64 = 64 << 20;

/// A stretch of a `.log` that holds no readable batch, with good batches or the segment's end behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its first byte.
    pub from: Position,
    /// The byte behind it.
    pub to: Position,
    /// The offsets that it costs: the one behind the last good record, and the one before the next good record. `None` where they leave no room.
    pub offsets: Option<(Offset, Offset)>,
    /// What is wrong at its first byte.
    pub fault: Fault,
}

/// What stands behind the last good batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where it begins.
    pub from: Position,
    /// How many bytes it has.
    pub bytes: u64,
    /// Whether it is zeros only, as preallocation and some file systems leave it.
    pub zeros: bool,
    /// Why it is no batch.
    pub fault: Fault,
}

impl Tail {
    /// What it is, in words.
    pub fn kind(&self) -> &'static str {
        if self.zeros { "zeros" } else { "a torn tail" }
    }
}

/// What a pass over a `.log` found.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The bytes of an offset index by Kafka's rule.
    pub index: Vec<u8>,
    /// The bytes of a time index by Kafka's rule, with the entry that a sealed segment ends with.
    pub timeindex: Vec<u8>,
    /// The byte behind the last good batch.
    pub valid_end: Position,
    /// The offset behind the last good batch; the base offset where there is none.
    pub next_offset: Offset,
    /// The largest time, and the last offset of the batch that reached it first.
    pub largest: TimeEntry,
    /// The leader epoch of the last good v2 batch.
    pub last_epoch: Option<i32>,
    /// How many good batches there are.
    pub batches: u64,
    /// Damaged stretches before the last good batch, in order.
    pub damage: Vec<Damage>,
    /// What stands behind the last good batch and may be a torn write; `None` where nothing does.
    pub tail: Option<Tail>,
}

impl Scan {
    /// The damaged stretch that covers an offset.
    pub fn damage_at(&self, offset: Offset) -> Option<&Damage> {
        let at = self.damage.partition_point(|d| d.offsets.is_none_or(|(_, last)| last < offset));
        self.damage.get(at).filter(|d| d.offsets.is_some_and(|(first, _)| first <= offset))
    }

    /// Damage behind the last good batch.
    pub fn damage_at_end(&self) -> Option<&Damage> {
        self.damage.last().filter(|d| d.from >= self.valid_end)
    }

    /// The offset behind all that the segment held: behind the last good batch, or behind what damage at the end has cost.
    pub fn end_offset(&self) -> Offset {
        let lost = self.damage_at_end().and_then(|d| d.offsets);
        lost.map_or(self.next_offset, |(_, last)| last.next())
    }

    /// Makes what stands behind the last good batch damage, which costs the offsets up to `last`.
    pub(crate) fn seal_tail(&mut self, last: Offset) {
        if let Some(tail) = self.tail.take() {
            let offsets = Some((self.next_offset, last)).filter(|(first, last)| first <= last);
            self.damage.push(Damage { from: tail.from, to: tail.from.plus(tail.bytes), offsets, fault: tail.fault });
        }
    }

    /// The damaged stretch that a position lies in.
    pub fn damage_over(&self, position: u64) -> Option<&Damage> {
        let at = self.damage.partition_point(|d| d.to.get() <= position);
        self.damage.get(at).filter(|d| d.from.get() <= position)
    }

    /// The first damaged stretch that begins at a position or behind it.
    pub fn damage_behind(&self, position: u64) -> Option<&Damage> {
        self.damage.get(self.damage.partition_point(|d| d.from.get() < position))
    }

    /// The damaged stretch that begins at a position.
    pub fn damage_from(&self, position: u64) -> Option<&Damage> {
        let at = self.damage.binary_search_by_key(&position, |d| d.from.get()).ok()?;
        self.damage.get(at)
    }
}

/// What a pass is made with.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The base offset, from the file's name.
    pub base: Offset,
    /// The base offset of the next segment: no batch may reach it.
    pub limit: Option<Offset>,
    /// `index.interval.bytes` for the indexes that are made.
    pub interval_bytes: u64,
    /// The bytes of the offset index on disk, for its positions; it may lie.
    pub disk_index: &'a [u8],
}

/// A batch that is right as far as can be told before the next one was seen.
struct Pending {
    header: BatchHeader,
    at: u64,
    /// The first offset that it could have had.
    expected: Offset,
    /// The first and the last one that it has.
    offsets: (Offset, Offset),
}

struct Pass<'a> {
    log: &'a [u8],
    scope: Scope<'a>,
    rule: IndexRule,
    pending: Option<Pending>,
    failed_starts: HashSet<u64>,
    /// The places of the last chain that was followed to its goal, in order.
    proven: Vec<u64>,
    /// The positions and last offsets that the offset index names, in order, once a place had to be looked for. In the file half of them may have
    /// been lost, so that their order there means nothing.
    named: Option<Vec<(u64, Offset)>>,
    scan: Scan,
}

/// Looks at every batch of a `.log`, given its bytes up to the end of the file.
pub fn scan(log: &[u8], scope: Scope<'_>) -> Scan {
    let mut pass = Pass {
        log,
        scope,
        rule: IndexRule::new(scope.base, scope.interval_bytes),
        pending: None,
        failed_starts: HashSet::new(),
        proven: Vec::new(),
        named: None,
        scan: Scan {
            index: Vec::new(),
            timeindex: Vec::new(),
            valid_end: Position::ZERO,
            next_offset: scope.base,
            largest: TimeEntry { timestamp: TimestampMs::NONE, offset: scope.base },
            last_epoch: None,
            batches: 0,
            damage: Vec::new(),
            tail: None,
        },
    };
    pass.run();
    pass.scan
}

impl Pass<'_> {
    fn run(&mut self) {
        let mut at = 0;
        loop {
            match self.right(at, self.next_offset()) {
                Right::Yes(header) => {
                    self.settle();
                    let expected = self.scan.next_offset;
                    self.pending = Some(Pending { header, at, expected, offsets: offsets_in(self.log, &header, at) });
                    at += u64::from(header.size);
                }
                Right::End => break,
                Right::OutOfOrder(header, fault) if self.doubts_pending(&header, at) => {
                    let Some(pending) = self.pending.take() else { break };
                    let found = format!("{} to {}", pending.header.base_offset, pending.header.last_offset);
                    let expected = format!("a batch of offsets from {} to below {}", pending.expected, header.base_offset);
                    self.add_damage(pending.at, at, Fault::new(pending.at, expected, found));
                    if !self.fills(&pending, &header, at) {
                        // Either of the two may be the wrong one; neither is shown.
                        let next = at + u64::from(header.size);
                        self.add_damage(at, next, fault);
                        at = next;
                    }
                }
                Right::OutOfOrder(_, fault) | Right::No(_, fault) => {
                    self.settle();
                    match self.next_right_place(at) {
                        Some(next) => {
                            self.add_damage(at, next, fault);
                            at = next;
                        }
                        None => {
                            let rest = self.log.get(at as usize..).unwrap_or_default();
                            let zeros = rest.iter().all(|b| *b == 0);
                            self.scan.tail = Some(Tail { from: Position::new(at), bytes: rest.len() as u64, zeros, fault });
                            break;
                        }
                    }
                }
            }
        }
        self.settle();
        self.close_offsets();
        self.seal_whole_batches();
        if let Some(entry) = self.rule.time_entry() {
            self.scan.timeindex.extend(encode_time_entry(self.scope.base, entry).into_iter().flatten());
        }
        self.scan.largest = self.rule.largest();
    }

    /// The first offset that a batch at the present place may have.
    fn next_offset(&self) -> Offset {
        self.pending.as_ref().map_or(self.scan.next_offset, |p| p.header.next_offset())
    }

    /// Whether the pending batch, which stands behind a gap, may be what is wrong where the next one does not fit behind it: no CRC covers a
    /// base offset. A next one that no place in the segment would fit casts no doubt on others.
    fn doubts_pending(&self, next: &BatchHeader, at: u64) -> bool {
        let fits_before = |p: &Pending| offsets_in(self.log, next, at).0 > p.expected && in_order(next, p.expected, self.scope);
        self.pending.as_ref().is_some_and(|p| p.offsets.0 > p.expected && fits_before(p))
    }

    /// Whether the offsets between the last good batch and `next` are just as many as the pending batch has: then its base offset is the wrong one.
    fn fills(&self, pending: &Pending, next: &BatchHeader, at: u64) -> bool {
        let (first, last) = pending.offsets;
        offsets_in(self.log, next, at).0.delta_from(pending.expected) == last.delta_from(first).saturating_add(1)
    }

    fn right(&self, at: u64, expected: Offset) -> Right {
        right(self.log, at, expected, self.scope)
    }

    /// Takes the pending batch as good.
    fn settle(&mut self) {
        let Some(Pending { header, at, offsets, .. }) = self.pending.take() else { return };
        if self.scan.damage.last().is_some_and(|d| d.to.get() == at) {
            self.rule.make_due();
        }
        if let Some((offset, time)) = self.rule.batch(header.last_offset, Position::new(at), u64::from(header.size), header.max_timestamp) {
            if let Some(entry) = encode_offset_entry(self.scope.base, offset) {
                self.scan.index.extend_from_slice(&entry);
            }
            if let Some(entry) = time.and_then(|time| encode_time_entry(self.scope.base, time)) {
                self.scan.timeindex.extend_from_slice(&entry);
            }
        }
        if header.magic >= 2 {
            self.scan.last_epoch = Some(header.partition_leader_epoch);
        }
        self.scan.batches += 1;
        self.scan.next_offset = header.next_offset();
        self.scan.valid_end = Position::new(at + u64::from(header.size));
        if let Some(damage) = self.scan.damage.last_mut().filter(|d| d.to.get() == at) {
            let next = offsets.0;
            damage.offsets = damage.offsets.map(|(first, _)| (first, next.previous())).filter(|(first, _)| next > *first);
        }
    }

    fn add_damage(&mut self, from: u64, to: u64, fault: Fault) {
        let first = self.scan.next_offset;
        if self.scan.damage.len() >= DAMAGE_MOST {
            if let Some(last) = self.scan.damage.last_mut() {
                last.to = Position::new(to);
            }
            return;
        }
        match self.scan.damage.last_mut().filter(|d| d.to.get() == from) {
            Some(before) => before.to = Position::new(to),
            // The last offset is known when the next good batch is settled.
            None => self.scan.damage.push(Damage {
                from: Position::new(from),
                to: Position::new(to),
                offsets: Some((first, self.scope.limit.map_or(Offset::MAX, Offset::previous))),
                fault,
            }),
        }
    }

    /// Damage at the very end that no good batch follows is the tail.
    fn close_offsets(&mut self) {
        while let Some(last) = self.scan.damage.last().filter(|d| d.to > self.scan.valid_end) {
            let bytes = (self.log.len() as u64).saturating_sub(last.from.get());
            let zeros = self.log.get(last.from.get() as usize..).unwrap_or_default().iter().all(|b| *b == 0);
            self.scan.tail = Some(Tail { from: last.from, bytes, zeros, fault: last.fault.clone() });
            self.scan.damage.pop();
        }
    }

    /// A whole batch with a right CRC is no torn write, though its offsets do not rise: no CRC covers a base offset, so it may be an acknowledged batch
    /// that lost just that. What begins with one is damage. It costs the offsets up to the batch's last one or, where that cannot be, as many as
    /// the batch has, so that they are not given away again.
    fn seal_whole_batches(&mut self) {
        let Some(tail) = &self.scan.tail else { return };
        let mut at = tail.from.get();
        let mut next = self.scan.next_offset;
        while let Some(header) = whole(self.log, at) {
            let (first, last) = offsets_in(self.log, &header, at);
            let has = last.delta_from(first).saturating_add(1).max(1);
            next = if header.last_offset >= next && fits(self.scope.base, header.last_offset) {
                header.next_offset()
            } else {
                next.checked_add(has).unwrap_or(Offset::MAX)
            };
            at += u64::from(header.size);
        }
        if at > tail.from.get() {
            self.scan.seal_tail(self.scope.limit.unwrap_or(next).previous());
        }
    }

    /// Where reading can go on behind a bad place: what its own length says, then the places the index names, then any byte.
    fn next_right_place(&mut self, bad: u64) -> Option<u64> {
        let expected = self.scan.next_offset;
        if let Some(next) = self.own_end(bad)
            && self.leads_on(next, expected)
        {
            return Some(next);
        }
        let (log, scope) = (self.log, self.scope);
        let named = self.named();
        let is_right = |(position, offset): &(u64, Offset)| match right(log, *position, expected, scope) {
            // Older brokers name the first batch of an append, with the last offset of all; not one that may have lost its base offset (`leads_on`).
            Right::Yes(header) => header.last_offset == *offset || (header.last_offset < *offset && header.base_offset > expected),
            _ => false,
        };
        let behind = &named[named.partition_point(|(position, _)| *position <= bad)..];
        let by_index = behind.iter().find(|named| is_right(named)).map(|(position, _)| *position);
        let end = by_index.unwrap_or(self.log.len() as u64);
        if self.reaches(bad, end) {
            return by_index;
        }
        // A batch has its magic, 0 to 2, sixteen bytes behind its start; most bytes of a value are ruled out by that alone.
        let mut at = bad + 1;
        while at < end {
            if self.log.get(at as usize + 16).is_none() {
                break;
            }
            if self.log[at as usize + 16] <= 2 && self.plausible(at, expected) && self.leads_on(at, expected) {
                return Some(at);
            }
            at += 1;
        }
        by_index
    }

    /// Whether a bad place is surely one batch up to `end`, by its length or, where just that is wrong, by its CRC: what lies in it is then its
    /// records, whatever they look like.
    fn reaches(&self, bad: u64, end: u64) -> bool {
        if self.own_end(bad) == Some(end) {
            return true;
        }
        let bytes = self.log.get(bad as usize..end as usize).unwrap_or_default();
        let crc = bytes.get(CRC..ATTRIBUTES).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
        (HEADER_SIZE..=REACH_MOST).contains(&bytes.len()) && crc == Some(crc32c::crc32c(&bytes[ATTRIBUTES..]))
    }

    /// Where a bad place ends by its own length, whatever else is wrong with it.
    fn own_end(&self, bad: u64) -> Option<u64> {
        let length = self.log.get(bad as usize + BATCH_LENGTH..bad as usize + PARTITION_LEADER_EPOCH)?;
        let length = u64::try_from(i32::from_be_bytes(length.try_into().ok()?)).ok()?;
        Some(bad + PARTITION_LEADER_EPOCH as u64 + length).filter(|end| length > 0 && *end <= self.log.len() as u64)
    }

    /// A quick look before the CRC: a header that fits the segment.
    fn plausible(&self, at: u64, expected: Offset) -> bool {
        match BatchHeader::read(self.log, at as usize) {
            Ok(Step::Batch(header)) => in_order(&header, expected, self.scope),
            _ => false,
        }
    }

    /// Whether a chain of batches, the first of them right, leads from a place to the segment's end, a torn tail or a place the index names. Batches whose
    /// CRC alone is wrong do not break it: look-ups pass over them, too, by the same headers (`seek`).
    ///
    /// A stretch that cost no offset is unlikely: a batch behind it that claims the very next offset may have lost the bytes of its base offset,
    /// which no CRC covers, to a torn write. It counts only where the batch behind it agrees.
    fn leads_on(&mut self, start: u64, expected: Offset) -> bool {
        let mut seen = Vec::new();
        let (mut at, mut expected, mut good) = (start, expected, 0u64);
        let mut doubtful = None;
        let verdict = loop {
            if self.failed_starts.contains(&at) {
                break false;
            }
            seen.push(at);
            match self.right(at, expected) {
                Right::Yes(header) if doubtful.is_some_and(|next| next != header.base_offset) => {
                    // Only the start is refused by this: the batch behind it may be a good place.
                    seen.truncate(1);
                    break false;
                }
                Right::Yes(header) => {
                    if self.named().binary_search(&(at, header.last_offset)).is_ok() {
                        break true;
                    }
                    good += 1;
                    doubtful = (good == 1 && header.base_offset == expected).then(|| header.next_offset());
                    // Older brokers name the first batch of an append, with the last offset of all.
                    let least = if good == 1 { header.last_offset } else { expected };
                    if doubtful.is_none() && (self.names(at, least) || self.proven.binary_search(&at).is_ok()) {
                        break true;
                    }
                    expected = header.next_offset();
                    at += u64::from(header.size);
                }
                _ if doubtful.is_some() => break false,
                Right::End => break good > 0,
                Right::OutOfOrder(..) | Right::No(..) if good > 0 && self.names(at, expected) => break true,
                Right::No(Some(header), _) if good > 0 && header.base_offset >= expected => at += u64::from(header.size),
                Right::OutOfOrder(..) | Right::No(..) => break good > 0 && self.is_torn(at, expected),
            }
        };
        if verdict {
            self.proven = seen;
        } else {
            self.failed_starts.extend(seen);
        }
        verdict
    }

    /// Whether the index has an entry for a place, whatever stands there, whose offset lies behind what was before.
    fn names(&mut self, at: u64, expected: Offset) -> bool {
        let named = self.named();
        named[named.partition_point(|entry| *entry < (at, expected))..].first().is_some_and(|(position, _)| *position == at)
    }

    fn named(&mut self) -> &[(u64, Offset)] {
        let scope = self.scope;
        self.named.get_or_insert_with(|| {
            let index = OffsetIndex::new(scope.disk_index, scope.base);
            let mut named: Vec<_> = (0..index.len()).filter_map(|i| index.entry(i)).map(|e| (e.position.get(), e.offset)).collect();
            named.sort_unstable();
            named
        })
    }

    /// Whether the bytes from a place to the end look like a write that was cut: too few for a header, zeros, or a header in order whose batch
    /// reaches past the end.
    fn is_torn(&self, at: u64, expected: Offset) -> bool {
        let rest = self.log.get(at as usize..).unwrap_or_default();
        if rest.len() <= 17 || rest.iter().all(|b| *b == 0) {
            return true;
        }
        let field = |from: usize, len: usize| rest.get(from..from + len);
        let base = field(0, 8).and_then(|b| b.try_into().ok()).map(i64::from_be_bytes).and_then(Offset::new);
        let length = field(8, 4).and_then(|b| b.try_into().ok()).map_or(0, i32::from_be_bytes);
        base.is_some_and(|b| b >= expected && fits(self.scope.base, b) && self.scope.limit.is_none_or(|l| b < l))
            && rest[16] <= 2
            && i64::from(length) + 12 > rest.len() as i64
    }
}

/// Whether a place holds a right batch.
enum Right {
    Yes(BatchHeader),
    /// Nothing more.
    End,
    /// Right in itself, but its offsets do not fit where it stands.
    OutOfOrder(BatchHeader, Fault),
    /// Not right; the header where it could be read.
    No(Option<BatchHeader>, Fault),
}

/// The first and the last offset that a batch holds. The header of a wrapper tells its last one only, so that the wrapper is decoded.
pub(crate) fn offsets_in(log: &[u8], header: &BatchHeader, at: u64) -> (Offset, Offset) {
    let told = (header.base_offset, header.last_offset);
    if !header.is_wrapper() {
        return told;
    }
    let bytes = log.get(at as usize..at as usize + header.size as usize).unwrap_or_default();
    let Ok(body) = record::decode(header, bytes, WRAPPER_BYTES_MOST) else { return told };
    let mut offsets = Records::in_decoded(header, &body).map_while(Result::ok).map(|r| r.offset);
    offsets.next().map_or(told, |first| (first, offsets.last().unwrap_or(first)))
}

/// The header of a whole batch whose CRC is right, whatever its offsets are.
fn whole(log: &[u8], at: u64) -> Option<BatchHeader> {
    let Ok(Step::Batch(header)) = BatchHeader::read(log, at as usize) else { return None };
    verify_crc(&header, log.get(at as usize..at as usize + header.size as usize)?).ok()?;
    Some(header)
}

fn in_order(header: &BatchHeader, expected: Offset, scope: Scope<'_>) -> bool {
    header.base_offset >= expected && ends_within(header, scope.base, scope.limit)
}

/// Whether the last offset of a batch is one that the segment can hold: an index can express it, and the next segment does not begin before it.
pub(crate) fn ends_within(header: &BatchHeader, base: Offset, limit: Option<Offset>) -> bool {
    fits(base, header.last_offset) && limit.is_none_or(|limit| header.last_offset < limit)
}

fn right(log: &[u8], at: u64, expected: Offset, scope: Scope<'_>) -> Right {
    match BatchHeader::read(log, at as usize) {
        Ok(Step::End { left: 0 }) => Right::End,
        Ok(Step::End { left }) => Right::No(None, Fault::new(at, "a whole batch", format!("{left} bytes of one, or of something else"))),
        Err(fault) => Right::No(None, fault),
        Ok(Step::Batch(header)) => {
            let bytes = log.get(at as usize..at as usize + header.size as usize).unwrap_or_default();
            if let Err(fault) = verify_crc(&header, bytes) {
                return Right::No(Some(header), fault.moved(at));
            }
            let (first, last) = offsets_in(log, &header, at);
            if first < expected || last != header.last_offset || !in_order(&header, expected, scope) {
                let limit = scope.limit.map_or(String::new(), |l| format!(" and below {l}"));
                let fault = Fault::new(at, format!("offsets from {expected} on{limit}"), format!("{first} to {}", header.last_offset));
                return Right::OutOfOrder(header, fault);
            }
            Right::Yes(header)
        }
    }
}

#[cfg(test)]
mod tests;
