//! Compaction and retention against Kafka's own code: generated logs, the same clock and settings on both sides, and the same files afterwards.
//!
//! Each log grows in rounds; Kafka's cleaner and ours clean copies of it, and the next round goes on from Kafka's. Where a batch was compressed anew
//! the bytes differ, as two libraries compress; then all batches with their fields and records must be the same.

use crate::folder::{copy_files, files, folder};
use crate::judge::{Cleaned, Judge};
use crate::keyed::{self, Making, Plan, Settings, logs};
use crate::plans::BEGINNING_MS;
use crate::seeds;
use offsetfs::io::os::OsFileSystem;
use offsetfs::io::sim::{SimClock, SimDisk};
use offsetfs::io::{Clock, Directory, FileSystem};
use offsetfs::log::batch::{BatchHeader, Step, verify_crc};
use offsetfs::log::config::{CleanupPolicy, LogConfig};
use offsetfs::log::record::{Records, decode};
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Compaction, Maintenance, Source};
use offsetfs::types::{Patience, TimestampMs};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The environment variable that says how many logs are tried.
const COUNT: &str = "OFFSETFS_CLEANING";
/// How many are tried otherwise.
const COUNT_DEFAULT: u64 = 25;
/// So many differences are enough to stop.
const SHOWN_MOST: usize = 5;
/// With a map of fewer slots the cleaner looks for work twice in each round.
const SLOTS_FEW: u32 = 10;
const PARTITION: &str = "t-0";
const CLEANER: &str = "cleaner-offset-checkpoint";
const LOG_START: &str = "log-start-offset-checkpoint";

const ALIKE: &str = "the same bytes";
const PACKED: &str = "the same batches and records, compressed otherwise";
/// A transaction that was aborted and lies below the log start as a whole.
pub(crate) const BELOW: &str = "an aborted transaction below the log start";
/// A log without leader epochs that is made ready for writing.
pub(crate) const FIRST_EPOCH: &str = "the first leader epoch of a log that is cleaned";
/// A checkpoint of the cleaner that the log start has overtaken.
pub(crate) const OVERTAKEN: &str = "a checkpoint of the cleaner below the log start";

/// The operating system's files under a clock that is set.
#[derive(Debug)]
struct Timed {
    clock: Arc<SimClock>,
}

impl FileSystem for Timed {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        OsFileSystem.open_dir(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        OsFileSystem.create_dir(path)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}

fn kafkas(settings: &Settings) -> String {
    let policy = match (settings.compacts, settings.deletes) {
        (true, true) => "compact;delete",
        (true, false) => "compact",
        (false, true) => "delete",
        (false, false) => "",
    };
    let max_lag = settings.max_lag_ms.map_or(i64::MAX, i64::from);
    let optional = |value: Option<u32>| value.map_or(-1, i64::from);
    format!(
        "cleanup.policy={},internal.segment.bytes={},index.interval.bytes={},segment.index.bytes=4096,min.cleanable.dirty.ratio={},\
         delete.retention.ms={},min.compaction.lag.ms={},max.compaction.lag.ms={},retention.ms={},retention.bytes={},segment.ms={}",
        policy,
        settings.segment_bytes,
        settings.interval,
        settings.ratio,
        settings.delete_retention_ms,
        settings.min_lag_ms,
        max_lag,
        optional(settings.retention_ms),
        optional(settings.retention_bytes),
        i64::MAX
    )
}

fn ours(settings: &Settings) -> LogConfig {
    LogConfig {
        cleanup_policy: CleanupPolicy { delete: settings.deletes, compact: settings.compacts },
        segment_bytes: u64::from(settings.segment_bytes),
        index_interval_bytes: u64::from(settings.interval),
        segment_index_bytes: 4096,
        segment_ms: i64::MAX as u64,
        min_cleanable_dirty_ratio: settings.ratio,
        delete_retention_ms: u64::from(settings.delete_retention_ms),
        min_compaction_lag_ms: u64::from(settings.min_lag_ms),
        max_compaction_lag_ms: settings.max_lag_ms.map_or(i64::MAX as u64, u64::from),
        retention_ms: settings.retention_ms.map_or(-1, i64::from),
        retention_bytes: settings.retention_bytes.map_or(-1, i64::from),
        dedupe_buffer_size: u64::from(map_bytes(settings)),
        producer_id_expiration_ms: u64::from(settings.producer_expiration_ms),
        ..LogConfig::default()
    }
}

fn map_bytes(settings: &Settings) -> u32 {
    settings.slots * 24
}

/// Two data directories with one partition each, and where the log stands.
struct Places {
    _folder: tempfile::TempDir,
    kafka: PathBuf,
    ours: PathBuf,
    clock: Arc<SimClock>,
    log_start: i64,
    /// Whether a transaction that was aborted lies below the log start as a whole.
    hides_aborted: bool,
}

impl Places {
    fn new() -> Places {
        let folder = folder();
        let [kafka, ours] = ["kafka", "ours"].map(|name| folder.path().join(name));
        for data in [&kafka, &ours] {
            fs::create_dir_all(data.join(PARTITION)).expect("a new folder");
            fs::write(data.join(CLEANER), "0\n0\n").expect("a checkpoint");
        }
        let clock = SimDisk::new().clock();
        clock.set(TimestampMs::new(BEGINNING_MS + 200_000));
        Places { _folder: folder, kafka, ours, clock, log_start: 0, hides_aborted: false }
    }

    fn now(&self) -> i64 {
        self.clock.now().get()
    }

    fn open_kafka(&self, judge: &mut Judge, settings: &Settings, clean: bool) -> Result<(), String> {
        judge.set_clock(self.now(), settings.producer_expiration_ms.try_into().expect("a small number"))?;
        judge.open(&self.kafka.join(PARTITION), &kafkas(settings), clean, self.log_start)
    }

    fn open_ours(&self, settings: &Settings) -> Result<Local, String> {
        let filesystem: Arc<dyn FileSystem> = Arc::new(Timed { clock: self.clock.clone() });
        let options = Options { wish: Wish::Writable, create: false, config: ours(settings) };
        Local::open(&filesystem, &self.ours.join(PARTITION), options).map_err(|error| format!("offsetfs cannot open: {error}"))
    }

    /// The names of the logs and their times of change.
    fn logs(&self, data: &Path) -> BTreeMap<String, i64> {
        let names = files(&data.join(PARTITION), &[".log"]).into_iter().map(|(name, _)| name);
        let time = |name: &str| {
            let modified = fs::metadata(data.join(PARTITION).join(name)).and_then(|metadata| metadata.modified()).expect("a time");
            i64::try_from(modified.duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("a small number")
        };
        names.map(|name| (name.clone(), time(&name))).collect()
    }

    /// What Kafka wrote just now gets a time of the clock that is set.
    fn stamp(&self, before: &BTreeMap<String, (usize, i64)>) {
        for (name, bytes) in files(&self.kafka.join(PARTITION), &[".log"]) {
            let base: i64 = name[..20].parse().expect("a base offset");
            let time = match before.get(&name) {
                Some((len, time)) if *len == bytes.len() => *time,
                _ => self.now() + base,
            };
            let file = fs::File::options().write(true).open(self.kafka.join(PARTITION).join(name)).expect("the log");
            file.set_modified(UNIX_EPOCH + Duration::from_millis(time.unsigned_abs())).expect("its time");
        }
    }

    fn sizes(&self) -> BTreeMap<String, (usize, i64)> {
        let times = self.logs(&self.kafka);
        files(&self.kafka.join(PARTITION), &[".log"]).into_iter().map(|(name, bytes)| (name.clone(), (bytes.len(), times[&name]))).collect()
    }

    /// Makes our directory what Kafka's is.
    fn copy(&self) {
        fs::remove_dir_all(self.ours.join(PARTITION)).expect("our folder");
        for leftover in fs::read_dir(self.kafka.join(PARTITION)).expect("Kafka's folder") {
            let path = leftover.expect("an entry").path();
            if path.extension().is_some_and(|suffix| suffix == "deleted") {
                fs::remove_file(path).expect("a file");
            }
        }
        copy_files(&self.kafka.join(PARTITION), &self.ours.join(PARTITION));
        fs::copy(self.kafka.join(CLEANER), self.ours.join(CLEANER)).expect("a checkpoint");
        fs::write(self.ours.join(LOG_START), format!("0\n1\nt 0 {}\n", self.log_start)).expect("a checkpoint");
    }
}

/// What both sides did, in a word.
fn verdict(kafka: &Result<Option<Cleaned>, String>, ours: &Result<Compaction, String>) -> Result<&'static str, String> {
    match (kafka, ours) {
        (Err(kafka), Err(ours))
            if kafka.contains("Empty batches are only supported for magic v2") && ours.contains("which only magic 2 has") =>
        {
            Ok("both refuse an old entry that would stay empty")
        }
        (Ok(None), Ok(done)) if done.compacted_to.is_none() => Ok("nothing is due"),
        (Ok(Some(cleaned)), Ok(done)) => {
            let plan = [
                done.plan.first_dirty.get(),
                done.plan.first_uncleanable.get(),
                done.plan.clean_bytes as i64,
                done.plan.dirty_bytes as i64,
            ];
            let end = done.compacted_to.map(|offset| offset.get());
            if (cleaned.plan, Some(cleaned.end)) == (plan, end) {
                Ok("cleaned alike")
            } else {
                Err(format!("what is to be cleaned: Kafka {cleaned:?}, we {plan:?} up to {end:?}"))
            }
        }
        (kafka, ours) => Err(format!("Kafka says {kafka:?}, we {ours:?}")),
    }
}

/// The batches of a log in words, without what compression changes: their fields, and all records. Where only those from an offset on count, markers
/// do not: what becomes of one hangs on the transaction before it.
fn batches(name: &str, log: &[u8], from: i64) -> Result<Vec<String>, String> {
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        let header = match BatchHeader::read(log, at).map_err(|fault| format!("{name}: {fault}"))? {
            Step::Batch(header) => header,
            Step::End { left: 0 } => return Ok(all),
            Step::End { left } => return Err(format!("{name}: {left} bytes that are no batch")),
        };
        let bytes = &log[at..at + header.size as usize];
        verify_crc(&header, bytes).map_err(|fault| format!("{name} at {at}: {fault}"))?;
        let packed = header.is_compressed() && header.records_count > 0;
        let body = if packed { decode(&header, bytes, 1 << 20).map_err(|e| format!("{name} at {at}: {e:?}"))? } else { bytes.to_vec() };
        let records = if packed { Records::in_decoded(&header, &body) } else { Records::in_batch(&header, &body) };
        let part = |range: &Option<std::ops::Range<u32>>| {
            range.as_ref().map(|r| body[r.start as usize..r.end as usize].escape_ascii().to_string())
        };
        let mut words = format!("{:?}", BatchHeader { size: 0, crc: 0, ..header });
        for record in records {
            let record = record.map_err(|fault| format!("{name} at {at}: {fault}"))?;
            let headers = part(&Some(record.headers.clone()));
            let (key, value) = (part(&record.key), part(&record.value));
            words += &format!("\n    {} {:?} {:?} {key:?} {value:?} {headers:?}", record.offset, record.timestamp, record.timestamp_type);
        }
        all.extend((from == 0 || (header.last_offset.get() >= from && !header.attributes.is_control())).then_some(words));
        at += header.size as usize;
    }
}

/// That both directories hold the same, but for listed differences; and how much the same it is.
fn same(what: &str, places: &Places, bases_before: &[String]) -> Result<Vec<&'static str>, String> {
    let (kafka, ours) = (places.kafka.join(PARTITION), places.ours.join(PARTITION));
    let equal = |what: &str, kafka: String, ours: String| {
        if kafka == ours { Ok(()) } else { Err(format!("{what}: Kafka\n{kafka}\nwe\n{ours}")) }
    };
    equal(
        &format!("{what}, the logs and their times"),
        format!("{:?}", places.logs(&places.kafka)),
        format!("{:?}", places.logs(&places.ours)),
    )?;
    let (kafka_logs, our_logs) = (files(&kafka, &[".log"]), files(&ours, &[".log"]));
    let mut verdict = ALIKE;
    let from = if places.hides_aborted { places.log_start } else { 0 };
    for ((name, kafka_log), (_, our_log)) in kafka_logs.iter().zip(&our_logs) {
        let [kafka_batches, our_batches] = [kafka_log, our_log].map(|log| batches(name, log, from));
        let (kafka_batches, our_batches) = (kafka_batches.map_err(|e| format!("Kafka's: {e}"))?, our_batches?);
        equal(&format!("{what}, {name}"), kafka_batches.join("\n"), our_batches.join("\n"))?;
        if kafka_log != our_log {
            verdict = if places.hides_aborted { BELOW } else { PACKED };
            continue;
        }
        for suffix in ["index", "timeindex"] {
            let name = format!("{}.{suffix}", &name[..20]);
            let read = |folder: &Path| format!("{:02x?}", fs::read(folder.join(&name)).unwrap_or_default());
            equal(&format!("{what}, {name}"), read(&kafka), read(&ours))?;
        }
    }
    let mut met = vec![verdict];
    if verdict == BELOW {
        return Ok(met);
    }
    let listed =
        |folder: &Path| format!("{:02x?}", files(folder, &[".txnindex"]).into_iter().filter(|(_, b)| !b.is_empty()).collect::<Vec<_>>());
    equal(&format!("{what}, the aborted transactions"), listed(&kafka), listed(&ours))?;
    let [kafka_epochs, our_epochs] =
        [&kafka, &ours].map(|folder| fs::read_to_string(folder.join("leader-epoch-checkpoint")).unwrap_or_default());
    // A log without epochs gets the first one when we make it ready for writing.
    if kafka_epochs.is_empty() && our_epochs.starts_with("0\n1\n0 ") {
        met.push(FIRST_EPOCH);
    } else {
        equal(&format!("{what}, the leader epochs"), kafka_epochs, our_epochs)?;
    }
    // A snapshot that is no segment's, or not behind the log start, goes when Kafka opens the log.
    let snapshots = |folder: &Path| {
        let names = files(folder, &[".snapshot"]).into_iter().map(|(name, _)| name[..20].to_owned());
        format!(
            "{:?}",
            names.filter(|base| bases_before.contains(base) && **base > *format!("{:020}", places.log_start)).collect::<Vec<_>>()
        )
    };
    equal(&format!("{what}, the snapshots"), snapshots(&kafka), snapshots(&ours))?;
    let [kafka, ours] = [&places.kafka, &places.ours].map(|data| {
        let text = fs::read_to_string(data.join(CLEANER)).expect("a checkpoint");
        text.lines().find_map(|line| line.strip_prefix("t 0 ")).map_or(0, |offset| offset.parse::<i64>().expect("an offset"))
    });
    // Kafka writes it down at its next look, we at the next cleaning.
    if kafka != ours && ours < places.log_start && kafka == places.log_start {
        met.push(OVERTAKEN);
    } else {
        equal(&format!("{what}, the cleaner's checkpoint"), kafka.to_string(), ours.to_string())?;
    }
    Ok(met)
}

/// Cleans both directories, which are the same, and compares what comes of it.
fn clean(judge: &mut Judge, plan: &Plan, places: &Places, met: &mut Vec<&'static str>) -> Result<bool, String> {
    let bases: Vec<String> = places.logs(&places.kafka).into_keys().map(|name| name[..20].to_owned()).collect();
    let settings = &plan.settings;
    places.open_kafka(judge, settings, true)?;
    let kafka = judge.clean(map_bytes(settings));
    judge.close()?;
    let log = places.open_ours(settings)?;
    if !settings.compacts {
        let refused = log.compact(&mut |_, _| {}).is_err();
        met.push("not to be cleaned");
        return if refused && kafka == Ok(None) { Ok(true) } else { Err(format!("Kafka says {kafka:?}; whether we refuse: {refused}")) };
    }
    let measured = log.measure_compaction(&mut |_, _| {}).map_err(|error| error.to_string());
    let done = log.compact(&mut |_, _| {}).map_err(|error| error.to_string());
    log.close().map_err(|error| format!("the close: {error}"))?;
    if measured.is_ok() && measured != done {
        return Err(format!("a dry run says {measured:?}, and then it is {done:?}"));
    }
    let said = verdict(&kafka, &done)?;
    met.push(said);
    if kafka.is_err() {
        return Ok(false);
    }
    let alike = same("after the cleaning", places, &bases)?;
    if alike.contains(&PACKED) && !plan.is_compressed() {
        return Err("nothing is compressed, and the bytes differ".to_owned());
    }
    let cleaned = said == "cleaned alike";
    met.extend(alike.into_iter().filter(|what| cleaned || ![ALIKE, PACKED].contains(what)));
    if cleaned {
        let gone = done.map(|done| done.gone).unwrap_or_default();
        for (count, what) in [
            (gone.outdated, "with outdated records"),
            (gone.tombstones, "with tombstones whose time had come"),
            (gone.aborted, "with aborted transactions"),
            (gone.markers, "with markers whose time had come"),
        ] {
            met.extend((count > 0).then_some(what));
        }
    }
    Ok(true)
}

/// Lets retention look at both directories.
fn retain(judge: &mut Judge, settings: &Settings, places: &mut Places, met: &mut Vec<&'static str>) -> Result<(), String> {
    let bases: Vec<String> = places.logs(&places.kafka).into_keys().map(|name| name[..20].to_owned()).collect();
    places.open_kafka(judge, settings, true)?;
    let kafka = judge.retain();
    judge.close()?;
    let kafka = kafka?;
    let log = places.open_ours(settings)?;
    let planned = log.retention().map_err(|error| error.to_string())?;
    let taken = log.retain().map_err(|error| error.to_string())?;
    if planned != taken {
        return Err(format!("a dry run says {planned:?}, and then it is {taken:?}"));
    }
    let start = log.bounds(Patience::MayBlock).map_err(|error| error.to_string())?.log_start.get();
    log.close().map_err(|error| format!("the close: {error}"))?;
    if kafka != start {
        return Err(format!("after retention the log begins at {kafka} for Kafka, at {start} for us"));
    }
    met.push(if taken.removals.is_empty() { "retention takes nothing" } else { "retention takes the same segments" });
    if taken.takes_active {
        met.push("retention takes all");
    }
    places.log_start = start;
    let times = |places: &Places, data: &Path| {
        let mut logs = places.logs(data);
        // The new segment of a log of which all went has the time of its making.
        logs.retain(|name, _| bases.contains(&name[..20].to_owned()));
        format!("{logs:?}")
    };
    let (kafka, ours) = (times(places, &places.kafka), times(places, &places.ours));
    if kafka != ours {
        return Err(format!("after retention: Kafka\n{kafka}\nwe\n{ours}"));
    }
    if !taken.takes_active {
        met.extend(same("after retention", places, &bases)?.into_iter().filter(|what| ![ALIKE, PACKED].contains(what)));
    }
    Ok(())
}

/// One log from its beginning to its end; gives what was met on the way.
pub(crate) fn compare(judge: &mut Judge, plan: &Plan) -> Result<Vec<&'static str>, String> {
    let mut places = Places::new();
    let mut making = Making::default();
    let mut met = Vec::new();
    for (name, bytes) in keyed::files(plan, &mut making) {
        fs::write(places.kafka.join(PARTITION).join(name), bytes).expect("the file can be written");
    }
    // Kafka makes the snapshots of producers and the lists of aborted transactions.
    let growing = Settings { segment_bytes: 1_000_000, ..plan.settings.clone() };
    places.open_kafka(judge, &growing, false)?;
    judge.close()?;
    places.stamp(&BTreeMap::new());
    for round in std::iter::once(None).chain(plan.rounds.iter().map(Some)) {
        let wait_ms = match round {
            None => plan.wait_ms,
            Some(round) => {
                let before = places.sizes();
                places.open_kafka(judge, &growing, true)?;
                let grown = (|| {
                    let batches = making.batches(&round.items);
                    if round.rolls {
                        judge.roll()?;
                    }
                    batches.iter().try_for_each(|batch| judge.append(&[batch]))?;
                    if round.rolls_behind && !batches.is_empty() { judge.roll() } else { Ok(()) }
                })();
                judge.close()?;
                grown?;
                places.stamp(&before);
                if let Some(parts) = round.log_start {
                    places.log_start = places.log_start.max(making.next * i64::from(parts) / 256);
                    // Kafka cuts the leader epochs when it learns of it.
                    places.open_kafka(judge, &growing, true)?;
                    judge.close()?;
                }
                round.wait_ms
            }
        };
        places.clock.advance(i64::from(wait_ms));
        places.hides_aborted = making.aborts.iter().any(|marker| *marker < places.log_start);
        for _ in 0..if plan.settings.slots < SLOTS_FEW { 2 } else { 1 } {
            places.copy();
            if !clean(judge, plan, &places, &mut met)? {
                return Ok(met);
            }
        }
        places.copy();
        retain(judge, &plan.settings, &mut places, &mut met)?;
    }
    Ok(met)
}

/// Generated logs: Kafka's cleaner and ours, Kafka's retention and ours, come to the same.
pub(crate) fn we_clean_as_kafka_does() {
    let mut judge = Judge::start();
    let compared = |plan: &Plan| compare(&mut judge, plan);
    let differing = seeds::sweep((COUNT, COUNT_DEFAULT), ("logs", SHOWN_MOST), &logs(), compared, |plan| format!("{plan:?}"));
    assert!(differing.is_empty(), "Kafka and we clean a log in different ways: seeds {differing:?}");
}
