//! The key index: which offset holds the last record of a key, for `by-key`.
//!
//! It follows the log: each question first reads what was appended since the last one. What came lately is kept in memory; when that is much, it is
//! folded into a table in a file (`table`): beside the log once this process has written to the log (`file`), else in a nameless temporary
//! file, so that looking at a log changes nothing in its directory.
//!
//! It is a hint and never the answer: whoever is led to a record compares the key, and whether it is a tombstone. Where the two disagree, because the log
//! was cleaned, cut or written anew under the index, it is made anew from the log. A key whose last record cannot be read is damaged; the
//! record before that is not its value. A stretch of the log that cannot be read may hold a newer record of any key that is older.

mod file;
mod hash;
mod table;

use crate::error::{Corruption, Error, Fault, Result};
use crate::io::os::nameless_file;
use crate::log::handle::{Batch, Record};
use crate::log::names;
use crate::log::partition::{Bounds, Partition};
use crate::log::seek::{Absent, Found};
use crate::log::walk::{Item, Look};
use crate::types::{Offset, Patience, Position};
use file::{Head, LastBatch, segments_below};
use hash::{KeyHash, Seed};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use table::{Builder, Last, Spoilt, Table};

/// So many keys are kept in memory, some 30 MiB, before they are folded into a table.
const RECENT_MOST: usize = 1 << 19;
/// The file beside the log is written at a close when at least so many offsets would have to be read without it. Reading fewer takes no longer than
/// writing it, and until it is written the directory stays locked.
const SAVE_BEHIND: i64 = 100_000;
/// So many offsets are read by a question that should not wait.
const AT_ONCE_MOST: i64 = 256;
/// So many entries are taken at once for a listing.
const LISTED_AT_ONCE: usize = 256;
/// The index is made anew so many times for one question. Once is enough, unless the log changes again meanwhile.
const ANEW_MOST: usize = 3;
/// Cursors of a listing are the first half of a hash without its last bits, so that what is added to them keeps them positive.
const CURSOR_SHIFT: u32 = 2;

/// What the log has last of a key.
#[derive(Clone, Debug)]
pub enum Latest {
    /// A record with a value.
    Live(Record),
    /// A tombstone, at this offset.
    Deleted(Offset),
    /// Nothing at all, or nothing any more.
    Never,
}

/// Takes a live key, its last record, and the cursor behind it; says whether to go on.
pub type KeySink<'s> = dyn FnMut(&[u8], &Record, u64) -> bool + 's;

/// When things are written.
#[derive(Clone, Copy, Debug)]
struct Limits {
    recent_most: usize,
    save_behind: i64,
}

/// The key index of a partition. Making one reads nothing.
#[derive(Debug)]
pub struct KeyIndex {
    partition: Arc<Partition>,
    committed_only: bool,
    limits: Limits,
    state: RwLock<State>,
    /// A key that the listing under way could not show.
    unlisted: Mutex<Option<Corruption>>,
}

#[derive(Debug)]
struct State {
    /// Whether the file beside the log was looked for.
    started: bool,
    /// Rises each time the index is made anew.
    epoch: u64,
    seed: Seed,
    table: Option<Table>,
    /// What is not in the table, or newer than what is.
    recent: BTreeMap<KeyHash, Last>,
    /// Everything below it was read.
    covered: Offset,
    edition: Edition,
    last: Option<LastBatch>,
    /// Of the stretches that could not be read, the one that reaches furthest.
    blind: Option<Corruption>,
    /// The covered offset of the file beside the log, and how often segments had been exchanged when it was made: behind an exchange it is worthless.
    saved: Option<(Offset, u64)>,
}

/// What an index was made from: where it changes, records may have others before them than the index knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Edition {
    /// That of the bounds of the log.
    generation: u64,
    /// How often compaction took records of aborted transactions, which stood in the way of older ones.
    uncovered: u64,
}

impl State {
    fn empty(seed: Seed, epoch: u64) -> State {
        State {
            started: false,
            epoch,
            seed,
            table: None,
            recent: BTreeMap::new(),
            covered: Offset::ZERO,
            edition: Edition::default(),
            last: None,
            blind: None,
            saved: None,
        }
    }

    fn is_up_to(&self, edition: Edition, log_end: Offset) -> bool {
        self.started && self.edition == edition && self.covered >= log_end
    }

    fn find(&self, hash: KeyHash) -> Result<Option<Last>, Spoilt> {
        match (self.recent.get(&hash), &self.table) {
            (Some(last), _) => Ok(Some(*last)),
            (None, Some(table)) => table.find(hash),
            (None, None) => Ok(None),
        }
    }

    /// The stretch that may hold a newer record than the one at an offset.
    fn blind_behind(&self, offset: Option<Offset>, log_start: Offset) -> Option<&Corruption> {
        let from = offset.unwrap_or(log_start);
        self.blind.as_ref().filter(|blind| blind.offsets.is_some_and(|(_, last)| last >= from.max(log_start)))
    }

    fn meet(&mut self, damage: Corruption, log_end: Offset) {
        // Damage at the end of a log has no end of its own; what is appended later stands behind it.
        let offsets = damage.offsets.map(|(first, last)| (first, last.min(log_end.previous())));
        let Some((_, last)) = offsets else { return };
        if self.blind.as_ref().and_then(|b| b.offsets).is_none_or(|(_, known)| last >= known) {
            self.blind = Some(Corruption { offsets, ..damage });
        }
    }

    /// Every entry in the order of the hashes, the newer one where two have the same.
    fn merged(&self, from: KeyHash) -> impl Iterator<Item = Result<(KeyHash, Last), Spoilt>> + '_ {
        let mut table = self.table.as_ref().map(|t| t.sorted(from)).into_iter().flatten().peekable();
        let mut recent = self.recent.range(from..).map(|(h, l)| (*h, *l)).peekable();
        std::iter::from_fn(move || match (table.peek(), recent.peek()) {
            (Some(Err(spoilt)), _) => Some(Err(*spoilt)),
            (Some(Ok((old, _))), Some((new, _))) if old < new => table.next(),
            (Some(Ok((old, _))), Some((new, _))) => {
                if old == new {
                    table.next();
                }
                recent.next().map(Ok)
            }
            (None, Some(_)) => recent.next().map(Ok),
            (_, None) => table.next(),
        })
    }

    /// The entries of the next part of a listing, those of one cursor together.
    fn part(&self, cursor: u64) -> Result<Vec<(KeyHash, Last)>, Spoilt> {
        let mut part: Vec<(KeyHash, Last)> = Vec::new();
        let Some(high) = cursor.checked_mul(1 << CURSOR_SHIFT) else { return Ok(part) };
        for entry in self.merged(KeyHash { high, low: 0 }) {
            let entry = entry?;
            let cursor_of = |(hash, _): &(KeyHash, Last)| hash.high >> CURSOR_SHIFT;
            if part.len() >= LISTED_AT_ONCE && part.last().is_some_and(|last| cursor_of(last) != cursor_of(&entry)) {
                break;
            }
            part.push(entry);
        }
        Ok(part)
    }
}

/// What an entry led to.
enum Led {
    To(Latest),
    /// The index and the log disagree; whether two keys have one hash.
    Astray {
        collision: bool,
    },
}

impl KeyIndex {
    /// The index of a partition, over all records or over those that readers of committed records see.
    pub fn new(partition: Arc<Partition>, committed_only: bool) -> KeyIndex {
        let limits = Limits { recent_most: RECENT_MOST, save_behind: SAVE_BEHIND };
        let state = RwLock::new(State::empty(Seed::random(), 0));
        KeyIndex { partition, committed_only, limits, state, unlisted: Mutex::new(None) }
    }

    /// What the log is now. It is asked for before the log is read.
    fn edition(&self, bounds: Bounds) -> Edition {
        let uncovered = if self.committed_only { 0 } else { self.partition.uncovered() };
        Edition { generation: bounds.generation, uncovered }
    }

    /// The name of the file beside the log.
    fn name(&self) -> &'static str {
        if self.committed_only { names::KEYS_COMMITTED } else { names::KEYS }
    }

    fn read(&self, patience: Patience) -> Result<RwLockReadGuard<'_, State>> {
        match patience {
            Patience::AtOnce => self.state.try_read().ok_or(Error::WouldBlock),
            Patience::MayBlock => Ok(self.state.read()),
        }
    }

    fn write(&self, patience: Patience) -> Result<RwLockWriteGuard<'_, State>> {
        match patience {
            Patience::AtOnce => self.state.try_write().ok_or(Error::WouldBlock),
            Patience::MayBlock => Ok(self.state.write()),
        }
    }

    /// The last record of a key within bounds that were just asked for; for readers of committed records they end at the last stable offset.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the last record is damaged, or where a damaged stretch may hold it; [`Error::WouldBlock`]; what the system says.
    pub fn latest(&self, key: &[u8], bounds: Bounds, patience: Patience) -> Result<Latest> {
        for _ in 0..=ANEW_MOST {
            self.follow(bounds, patience)?;
            let state = self.read(patience)?;
            let epoch = state.epoch;
            let found = state.find(state.seed.hash(key)).map(|found| {
                let found = found.filter(|last| last.offset >= bounds.log_start);
                (found, state.blind_behind(found.map(|last| last.offset), bounds.log_start).cloned())
            });
            drop(state);
            let led = match found {
                Err(Spoilt) => Led::Astray { collision: false },
                Ok((_, Some(blind))) => return Err(Error::Corrupt(blind)),
                Ok((None, None)) => return Ok(Latest::Never),
                Ok((Some(last), None)) => self.led(key, last, patience)?,
            };
            match led {
                Led::To(latest) => return Ok(latest),
                Led::Astray { collision } => self.begin_anew(epoch, collision, patience)?,
            }
        }
        Err(self.restless())
    }

    fn led(&self, key: &[u8], last: Last, patience: Patience) -> Result<Led> {
        Ok(match self.record(last.offset, patience)? {
            Found::Record(record) if record.key() != Some(key) => {
                let seed = self.read(patience)?.seed;
                Led::Astray { collision: record.key().is_some_and(|other| seed.hash(other) == seed.hash(key)) }
            }
            Found::Record(record) if record.value().is_none() != last.deleted => Led::Astray { collision: false },
            Found::Record(_) if last.deleted => Led::To(Latest::Deleted(last.offset)),
            Found::Record(record) => Led::To(Latest::Live(record)),
            // Retention went over it meanwhile, and so over all that is older.
            Found::Absent(Absent::BeforeLogStart(_)) => Led::To(Latest::Never),
            Found::Absent(_) => Led::Astray { collision: false },
        })
    }

    fn record(&self, offset: Offset, patience: Patience) -> Result<Found> {
        match self.partition.current_record(offset, patience) {
            Ok(Found::Record(record)) if record.is_broken() => Err(Error::Truncated { file: "a segment".to_owned() }),
            found => found,
        }
    }

    fn restless(&self) -> Error {
        let reason = std::io::Error::other("the log was changed again and again while its keys were read; try again");
        Error::io("look up a key in", self.partition.name(), reason)
    }

    /// The live keys from a cursor on (0: from the start), in an order of the index's own that stays while the log grows. Keys whose last record
    /// cannot be read are passed over, and told as an error at the end.
    ///
    /// # Errors
    /// As [`KeyIndex::latest`].
    pub fn list(&self, cursor: u64, bounds: Bounds, patience: Patience, sink: &mut KeySink<'_>) -> Result<()> {
        if cursor == 0 {
            *self.unlisted.lock() = None;
        }
        let (mut cursor, mut anew) = (cursor, 0);
        loop {
            self.follow(bounds, patience)?;
            let state = self.read(patience)?;
            let (epoch, part) = (state.epoch, state.part(cursor));
            let blind = state.blind_behind(None, bounds.log_start).cloned();
            drop(state);
            let agreed = match part {
                Err(Spoilt) => false,
                Ok(part) if part.is_empty() => {
                    return self.unlisted.lock().take().or(blind).map_or(Ok(()), |damage| Err(Error::Corrupt(damage)));
                }
                Ok(part) => match self.show(&part, &mut cursor, blind.as_ref(), bounds, patience, sink)? {
                    Shown::All => true,
                    Shown::Enough => return Ok(()),
                    Shown::Astray => false,
                },
            };
            if !agreed {
                anew += 1;
                if anew > ANEW_MOST {
                    return Err(self.restless());
                }
                self.begin_anew(epoch, false, patience)?;
            }
        }
    }

    fn show(
        &self,
        part: &[(KeyHash, Last)],
        cursor: &mut u64,
        blind: Option<&Corruption>,
        bounds: Bounds,
        patience: Patience,
        sink: &mut KeySink<'_>,
    ) -> Result<Shown> {
        let seed = self.read(patience)?.seed;
        for (hash, last) in part {
            let behind = (hash.high >> CURSOR_SHIFT) + 1;
            let hidden = blind.and_then(|b| b.offsets).is_some_and(|(_, end)| end > last.offset);
            if !last.deleted && last.offset >= bounds.log_start && !hidden {
                match self.record(last.offset, patience) {
                    Ok(Found::Record(record)) => {
                        let key = record.key().filter(|key| seed.hash(key) == *hash && record.value().is_some());
                        let Some(key) = key else { return Ok(Shown::Astray) };
                        if !sink(key, &record, behind) {
                            return Ok(Shown::Enough);
                        }
                    }
                    Ok(Found::Absent(Absent::BeforeLogStart(_))) => {}
                    Ok(Found::Absent(_)) => return Ok(Shown::Astray),
                    Err(Error::Corrupt(damage)) => *self.unlisted.lock() = Some(damage),
                    Err(error) => return Err(error),
                }
            }
            *cursor = behind;
        }
        Ok(Shown::All)
    }

    /// Reads what the log holds behind the covered offset.
    fn follow(&self, bounds: Bounds, patience: Patience) -> Result<()> {
        let edition = self.edition(bounds);
        if self.read(patience)?.is_up_to(edition, bounds.log_end) {
            return Ok(());
        }
        let mut state = self.write(patience)?;
        let is_far = !state.started || state.edition != edition || bounds.log_end.delta_from(state.covered) > AT_ONCE_MOST;
        if patience == Patience::AtOnce && is_far {
            return Err(Error::WouldBlock);
        }
        self.catch_up(&mut state, bounds, patience)
    }

    /// Forgets an index that led astray, unless somebody has done so already, and begins again with the log alone.
    fn begin_anew(&self, epoch: u64, collision: bool, patience: Patience) -> Result<()> {
        if patience == Patience::AtOnce {
            return Err(Error::WouldBlock);
        }
        let mut state = self.state.write();
        if state.epoch == epoch {
            // The order of a listing under way stays with the seed.
            let seed = if collision { Seed::random() } else { state.seed };
            log::info!("{}: the key index does not agree with the log; it is made anew", self.partition.name());
            let edition = self.edition(self.partition.bounds());
            *state = State { started: true, edition, ..State::empty(seed, epoch + 1) };
        }
        Ok(())
    }

    fn catch_up(&self, state: &mut State, bounds: Bounds, patience: Patience) -> Result<()> {
        let edition = self.edition(bounds);
        if state.is_up_to(edition, bounds.log_end) {
            return Ok(());
        }
        if !state.started {
            let exchanges = self.partition.exchanges();
            if let Some((head, table)) = file::load(&self.partition, self.name()) {
                (state.seed, state.covered, state.last) = (head.seed, head.covered, Some(head.last));
                (state.table, state.saved) = (Some(table), Some((head.covered, exchanges)));
            }
            (state.started, state.edition) = (true, edition);
        }
        let replaced =
            || self.partition.is_foreign() && state.last.is_some_and(|last| last.base >= bounds.log_start && !last.is_in(&self.partition));
        if state.edition != edition || replaced() {
            *state = State { started: true, edition, ..State::empty(state.seed, state.epoch + 1) };
        }
        let epoch = state.epoch;
        let mut found = Vec::new();
        let mut walk = self.partition.walk(state.covered.max(bounds.log_start), bounds.log_end, Look::Batches, patience);
        loop {
            match walk.next(&self.partition) {
                Ok(None) => break,
                Ok(Some(Item::Damaged(damage))) | Err(Error::Corrupt(damage)) => state.meet(damage, bounds.log_end),
                Ok(Some(Item::Batch(batch, file))) => {
                    found.clear();
                    let damage = self.keys_of(&batch, &file, state.seed, bounds, patience, &mut found)?;
                    state.recent.extend(found.iter().copied());
                    if let Some(damage) = damage {
                        state.meet(damage, bounds.log_end);
                    }
                    state.covered = state.covered.max(batch.header.next_offset());
                    state.last = Some(LastBatch { base: batch.header.base_offset, crc: batch.header.crc });
                    if state.recent.len() >= self.limits.recent_most {
                        self.fold(state, bounds)?;
                        if state.epoch != epoch {
                            return self.catch_up(state, bounds, patience);
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        state.covered = state.covered.max(bounds.log_end);
        Ok(())
    }

    /// The keys of a batch in the order of their records, and what of it cannot be read.
    fn keys_of(
        &self,
        batch: &Batch,
        file: &Arc<str>,
        seed: Seed,
        bounds: Bounds,
        patience: Patience,
        found: &mut Vec<(KeyHash, Last)>,
    ) -> Result<Option<Corruption>> {
        let header = &batch.header;
        if header.magic >= 2 && header.attributes.is_control() {
            return Ok(None);
        }
        if self.committed_only && !self.partition.is_committed(header, header.base_offset, patience)? {
            return Ok(None);
        }
        let whole = Some((header.base_offset, header.last_offset));
        let body = match self.partition.body(batch, file, patience) {
            Ok(body) => body,
            Err(Error::Corrupt(damage)) => return Ok(Some(Corruption { offsets: whole, ..damage })),
            Err(Error::DecodedTooLarge { file, position, limit }) => {
                let fault =
                    Fault::new(0, format!("a batch of at most {limit} bytes once decoded (batch.decoded.max.bytes)"), "a larger one");
                return Ok(Some(Corruption { file, fault: fault.at(position), offsets: whole }));
            }
            Err(error) => return Err(error),
        };
        let mut damage = None;
        let mut next = header.base_offset;
        for record in body.records() {
            let record = match record {
                Ok(record) => record,
                Err(fault) => {
                    let fault = fault.at(Position::new(batch.position));
                    damage = Some(Corruption { file: file.to_string(), fault, offsets: Some((next, header.last_offset)) });
                    break;
                }
            };
            next = record.offset.next();
            if record.offset < bounds.log_start || record.offset >= bounds.log_end {
                continue;
            }
            if let Some(key) = &record.key {
                let last = Last { offset: record.offset, deleted: record.value.is_none() };
                found.push((seed.hash(body.bytes.part(key)), last));
            }
        }
        if body.bytes.is_broken() || batch.stored.is_broken() {
            return Err(Error::Truncated { file: file.to_string() });
        }
        Ok(damage)
    }

    /// Folds what is in memory into the table.
    fn fold(&self, state: &mut State, bounds: Bounds) -> Result<()> {
        if self.partition.was_written() && self.save_state(state, bounds)? {
            return Ok(());
        }
        let file = nameless_file().map_err(|e| Error::io("make", "a temporary file for the key index", e))?;
        let table = self.filled(state, bounds, |most, fill| file::write_nameless(&file, most, fill))?;
        if let Some(table) = table {
            (state.table, state.recent) = (Some(table), BTreeMap::new());
        }
        Ok(())
    }

    /// Writes the index beside the log; `false` where it cannot be vouched for.
    fn save_state(&self, state: &mut State, bounds: Bounds) -> Result<bool> {
        let (Some(last), None) = (state.last, &state.blind) else { return Ok(false) };
        let exchanges = self.partition.exchanges();
        let segments = segments_below(&self.partition, state.covered);
        let head = Head { seed: state.seed, covered: state.covered, last, segments };
        let dir = self.partition.directory().clone();
        match self.filled(state, bounds, |most, fill| file::save(&*dir, self.name(), &head, most, fill)) {
            Ok(Some(table)) => {
                (state.table, state.recent, state.saved) = (Some(table), BTreeMap::new(), Some((state.covered, exchanges)));
                Ok(true)
            }
            // It is only a hint: without it the next opening reads the log.
            Err(error) => {
                log::warn!("{}: the key index is not kept: {error}", self.partition.name());
                Ok(false)
            }
            Ok(None) => Ok(true),
        }
    }

    /// Has a table made of all entries. `None` where the table of before was spoilt: the index is then empty, and begins again.
    fn filled(
        &self,
        state: &mut State,
        bounds: Bounds,
        write: impl FnOnce(u64, &mut file::Fill<'_>) -> Result<Table>,
    ) -> Result<Option<Table>> {
        let most = state.table.as_ref().map_or(0, |t| t.shape().entries) + state.recent.len() as u64;
        let mut spoilt = false;
        let result = write(most, &mut |builder: &mut Builder<'_>| {
            for entry in state.merged(KeyHash::FIRST) {
                let Ok((hash, last)) = entry else {
                    spoilt = true;
                    return Err(Error::Truncated { file: self.name().to_owned() });
                };
                // What lies before the log start is gone, and all that is older, too.
                if last.offset >= bounds.log_start {
                    builder.push(hash, last).map_err(|e| Error::io("write", self.name(), e))?;
                }
            }
            Ok(())
        });
        if spoilt {
            *state = State { started: true, edition: state.edition, ..State::empty(state.seed, state.epoch + 1) };
            return Ok(None);
        }
        result.map(Some)
    }

    /// Writes the index beside the log at the end, if it was used, if this process has written to the log, and if it saves enough reading.
    pub fn save(&self, bounds: Bounds) {
        let mut state = self.state.write();
        if !state.started || !self.partition.was_written() {
            return;
        }
        let kept = self.catch_up(&mut state, bounds, Patience::MayBlock).and_then(|()| {
            let saved = state.saved.filter(|(_, exchanges)| *exchanges == self.partition.exchanges());
            let behind = state.covered.delta_from(saved.map_or(bounds.log_start, |(covered, _)| covered));
            if behind >= self.limits.save_behind { self.save_state(&mut state, bounds).map(|_| ()) } else { Ok(()) }
        });
        if let Err(error) = kept {
            log::warn!("{}: the key index is not kept: {error}", self.partition.name());
        }
    }
}

/// How far a part of a listing came.
enum Shown {
    All,
    Enough,
    Astray,
}

#[cfg(test)]
mod tests;
