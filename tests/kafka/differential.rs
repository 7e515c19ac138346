//! The same directories, read by Kafka and by us: generated ones of every kind, and one answer, but for the differences that
//! `DIFFERENCES.md` lists.

use crate::build::{Built, Hit, INDEX_BYTES, Made, build};
use crate::differences::{EARLY, EPOCH, HIDDEN, INDEX, INNER, MAGIC, MIDDLE, OFFSET, START, SWAP, TAIL, TIME, TRANSACTION};
use crate::folder::{copy_files, files, folder};
use crate::judge::{Judge, Reading, Seen};
use crate::ours::{self, Ours};
use crate::plans::{BEGINNING_MS, Leftover, Plan, Tail, directories};
use crate::seeds;
use std::fs;
use std::path::{Path, PathBuf};

/// The environment variable that says how many directories are tried.
const COUNT: &str = "OFFSETFS_DIFFERENTIAL";
/// How many are tried otherwise.
const COUNT_DEFAULT: u64 = 300;
/// So many unlisted differences are enough to stop.
const SHOWN_MOST: usize = 10;
/// The time of the record that we append.
const APPENDED_MS: i64 = BEGINNING_MS + 50_000;

/// What Kafka is told of the settings.
fn settings(plan: &Plan) -> String {
    format!("index.interval.bytes={},segment.index.bytes={INDEX_BYTES},internal.segment.bytes=1000000", plan.interval)
}

/// Opens, reads and closes a directory with Kafka. It is asked for times and offsets.
fn kafka(
    judge: &mut Judge,
    plan: &Plan,
    directory: &Path,
    clean: bool,
    log_start: i64,
    asked: (&[i64], &[i64]),
) -> Result<Reading, String> {
    judge.open(directory, &settings(plan), clean, log_start)?;
    let reading = judge.read(asked.0, asked.1);
    judge.close()?;
    reading
}

/// The times that are asked for: around those of the records, and some that nobody has.
fn times(built: &Built) -> Vec<i64> {
    let mut times: Vec<i64> = built.made.iter().flat_map(|made| made.records.iter().map(|record| record.timestamp)).collect();
    times.sort_unstable();
    times.dedup();
    let step = times.len().div_ceil(12).max(1);
    let mut times: Vec<i64> = times.into_iter().step_by(step).flat_map(|time| [time, time + 1]).filter(|time| *time >= 0).collect();
    times.extend([0, BEGINNING_MS - 1, BEGINNING_MS + 200_000_000]);
    times
}

/// The offsets that are asked for: some of those between the first and the last batch, whether they have a record or not.
fn offsets(built: &Built) -> Vec<i64> {
    let (Some(first), Some(last)) = (built.made.first(), built.made.last()) else { return Vec::new() };
    let step = (last.offsets.1 - first.offsets.0) / 24 + 1;
    (first.offsets.0..=last.offsets.1).step_by(usize::try_from(step).unwrap_or(1)).collect()
}

/// What the agreement is about, with both sides where they differ.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, kafka: &T, ours: &T) -> Result<(), String> {
    if kafka == ours { Ok(()) } else { Err(format!("{what}: Kafka has {kafka:?}, we {ours:?}")) }
}

fn same_records(what: &str, kafka: &[Seen], ours: &[Seen]) -> Result<(), String> {
    let at = kafka.iter().zip(ours).take_while(|(kafka, ours)| kafka == ours).count();
    same(&format!("{what}, from number {at} on"), &kafka.get(at), &ours.get(at))
}

/// The records of Kafka's that are shown.
fn shown(reading: &Reading) -> Vec<Seen> {
    reading.records.iter().filter(|record| !record.control).cloned().collect()
}

/// What a reader of committed records sees.
fn same_committed(kafka: &Reading, records: &[Seen], ours: &Ours) -> Result<(), String> {
    let committed = records.iter().filter(|record| record.offset < kafka.last_stable && !kafka.is_aborted(record));
    same("the committed records", &committed.map(|record| record.offset).collect(), &ours.committed)
}

/// Whether a transaction that is open at the log start began below it.
fn reaches_below_start(built: &Built) -> bool {
    let mut open = Vec::new();
    for record in built.made.iter().flat_map(|made| &made.records).filter(|record| record.transactional && record.offset < built.log_start)
    {
        open.retain(|producer_id| *producer_id != record.producer_id);
        if !record.control {
            open.push(record.producer_id);
        }
    }
    !open.is_empty()
}

/// Every answer of ours against Kafka's.
fn agree(built: &Built, kafka: &Reading, ours: &Ours, met: &mut Vec<&'static str>) -> Result<(), String> {
    if let Some(stopped) = &kafka.stopped {
        return Err(format!("Kafka stopped at {stopped:?}"));
    }
    let records = shown(kafka);
    same("the log start", &kafka.start, &ours.start)?;
    same("the log end", &kafka.end, &ours.end)?;
    same_records("the records", &records, &ours.records)?;
    same("damage", &Vec::new(), &ours.damaged)?;
    if reaches_below_start(built) {
        met.push(TRANSACTION);
    } else {
        same("the last stable offset", &kafka.last_stable, &ours.last_stable)?;
        same_committed(kafka, &records, ours)?;
    }
    for (offset, first) in &kafka.offsets {
        let kafkas = kafka.records.iter().find(|record| record.offset == *offset);
        let found = ours.records.iter().any(|record| record.offset == *offset) || kafkas.is_some_and(|record| record.control);
        same(&format!("whether there is a record at {offset}"), &(*first == offset.to_string()), &found)?;
    }
    for ((time, kafkas), (_, ours)) in kafka.times.iter().zip(&ours.times) {
        let first = records.iter().find(|record| record.timestamp >= *time).map(|record| record.offset);
        same(&format!("the first record at {time}"), &first, ours)?;
        // Kafka's answer may be a control record; the link then leads to the first record behind it.
        let led = |from: i64| records.iter().find(|record| record.offset >= from && record.timestamp >= *time).map(|record| record.offset);
        match (kafkas.as_str(), first) {
            ("-", Some(first)) => {
                blinded(built, *time, first)?;
                met.push(TIME);
            }
            ("-", None) => {}
            (number, _) => match number.parse() {
                Ok(kafkas) => same(&format!("where {time} leads from Kafka's {kafkas}"), &led(kafkas), ours)?,
                Err(_) => return Err(format!("at {time} Kafka throws {number}")),
            },
        }
    }
    Ok(())
}

/// Kafka looks into one segment only: the first one whose largest time is not below the time asked for, where a segment without times counts as
/// late as its file. It finds nothing if what it looks for stands in a later segment.
fn blinded(built: &Built, time: i64, first: i64) -> Result<(), String> {
    let segment = built.segment_of(first).unwrap_or_default();
    let stops = |segment| built.largest_times(segment).into_iter().any(|largest| largest < 0 || largest >= time);
    if (0..segment).any(stops) { Ok(()) } else { Err(format!("Kafka does not find {first} at {time}")) }
}

/// The places of one comparison.
struct Places {
    _folder: tempfile::TempDir,
    ours: PathBuf,
    unclean: PathBuf,
    clean: PathBuf,
}

impl Places {
    /// The same directory three times, each in a data directory of its own.
    fn new(built: &Built) -> Places {
        let folder = folder();
        let [ours, unclean, clean] = ["ours", "unclean", "clean"].map(|name| folder.path().join(name).join("t-0"));
        fs::create_dir_all(&ours).expect("a new folder");
        for (name, bytes) in &built.files {
            fs::write(ours.join(name), bytes).expect("the file can be written");
        }
        copy_files(&ours, &unclean);
        copy_files(&ours, &clean);
        for place in [&ours, &unclean].into_iter().filter(|_| built.log_start > 0) {
            let checkpoint = place.with_file_name("log-start-offset-checkpoint");
            fs::write(checkpoint, format!("0\n1\nt 0 {}\n", built.log_start)).expect("the checkpoint can be written");
        }
        Places { _folder: folder, ours, unclean, clean }
    }
}

/// Tries one directory in all ways; gives what kinds of agreement and difference were met. `Err` says what differs and is not listed.
pub(crate) fn compare(judge: &mut Judge, plan: &Plan) -> Result<Vec<&'static str>, String> {
    let mut met = Vec::new();
    let built = build(plan);
    let places = Places::new(&built);
    let (times, offsets) = (times(&built), offsets(&built));
    let asked = (times.as_slice(), offsets.as_slice());
    let said = |when: &'static str| move |said: String| format!("{when}: {said}");

    let ours = ours::read(&places.ours, plan.interval, &times).map_err(said("as it is"))?;
    let hit = |hit: Hit| built.made.iter().any(|made| made.hit == Some(hit));
    if hit(Hit::Offset) {
        met.push(OFFSET);
        return lying_offset(&built, &ours).map(|()| met);
    }
    if hit(Hit::Magic) {
        met.push(MAGIC);
        return good_records(&built, &ours, &mut met).map(|()| met);
    }
    let shows_inner = built.made.iter().any(|made| made.is_bad() && made.shows_inner);
    let swapped = matches!(plan.leftover, Some((_, Leftover::Swap | Leftover::SwapOnly)));
    let recovered = match kafka(judge, plan, &places.unclean, false, built.log_start, asked) {
        Err(said) if swapped && said.contains("CorruptRecordException") => {
            met.push(SWAP);
            return Ok(met);
        }
        Err(_) if built.made.iter().any(Made::is_bad) => {
            met.push(EARLY);
            return if shows_inner { Ok(met) } else { good_records(&built, &ours, &mut met).map(|()| met) };
        }
        recovered => recovered.map_err(said("Kafka's recovery"))?,
    };
    let after = ours::read(&places.unclean, plan.interval, &times).map_err(said("after Kafka's recovery"))?;
    agree(&built, &recovered, &after, &mut met).map_err(said("after Kafka's recovery"))?;
    match (recovered.leader_epoch, after.leader_epoch) {
        (kafkas, ours) if kafkas == ours || hit(Hit::Epoch) => {}
        (None, Some(_)) => met.push(EPOCH),
        (kafkas, ours) => same("after Kafka's recovery: the leader epoch", &kafkas, &ours)?,
    }
    if shows_inner {
        met.push(INNER);
        return Ok(met);
    }
    if built.damaged_in_the_middle() {
        met.push(MIDDLE);
        return around_damage(&built, &recovered, &ours, &mut met).map(|()| met);
    }
    agree(&built, &recovered, &ours, &mut met).map_err(said("as it is"))?;
    let believed = kafka(judge, plan, &places.clean, true, built.log_start, asked);
    let believed = believed.and_then(|believed| same_records("for a clean start of Kafka", &shown(&believed), &ours.records));
    match (believed, &plan.tail) {
        (Ok(()), _) => {}
        (Err(_), _) if !plan.spoilt.is_empty() => met.push(INDEX),
        (Err(said), Tail::Whole) if plan.flips.is_empty() => return Err(said),
        (Err(_), _) => met.push(TAIL),
    }
    if recovered.records.is_empty() && recovered.end == built.log_start && built.made.iter().any(|made| made.hit.is_some()) {
        met.push(START);
        return Ok(met);
    }

    let offset = ours::append(&places.ours, plan.interval, APPENDED_MS).map_err(said("our append"))?;
    same("the offset of the append", &recovered.end, &offset)?;
    let (kafkas, mut kept) = (files(&places.unclean, &[".log"]), files(&places.ours, &[".log"]));
    let kafkas_len = kafkas.last().map_or(0, |(_, bytes)| bytes.len());
    let appended = kept.last_mut().map(|(_, bytes)| bytes.split_off(kafkas_len.min(bytes.len())));
    same("what recovery keeps", &kafkas, &kept)?;
    if appended.is_none_or(|bytes| bytes.is_empty()) {
        return Err("nothing was appended".to_owned());
    }
    // Spoilt indexes of older segments stay as they are; Kafka would believe them.
    let clean = plan.spoilt.is_empty();
    let again = kafka(judge, plan, &places.ours, clean, built.log_start, asked).map_err(said("Kafka, after our append"))?;
    same("after our append: the end", &(offset + 1), &again.end)?;
    same_records("after our append", &recovered.records, &again.records[..again.records.len().saturating_sub(1)])?;
    same("the appended record", &Some(offset), &again.records.last().map(|record| record.offset))?;
    met.push("agreed in all");
    Ok(met)
}

/// Damage with good batches behind it: Kafka keeps what is before it, we all that is good.
fn around_damage(built: &Built, kafka: &Reading, ours: &Ours, met: &mut Vec<&'static str>) -> Result<(), String> {
    if let Some(lost) = shown(kafka).iter().find(|record| !ours.records.contains(record)) {
        return Err(format!("Kafka has {lost:?}, we have not"));
    }
    good_records(built, ours, met)?;
    let bad = built.made.iter().filter(|made| made.is_bad()).flat_map(|made| &made.records);
    match bad.filter(|record| (ours.start..ours.end).contains(&record.offset)).find(|record| !ours.damaged.contains(&record.offset)) {
        Some(record) => Err(format!("{} is damaged, and we say that there is none", record.offset)),
        None => Ok(()),
    }
}

/// All records of the batches that nothing happened to, and no others. A good batch between two places that are not may be hidden: what only
/// leads from damage to damage could as well be a copy of a log in a value.
fn good_records(built: &Built, ours: &Ours, met: &mut Vec<&'static str>) -> Result<(), String> {
    let mut good = Vec::new();
    for made in built.made.iter().filter(|made| !made.is_bad()) {
        let expected: Vec<&Seen> = made.records.iter().filter(|record| !record.control && record.offset >= ours.start).collect();
        let hidden = expected.first().is_some_and(|first| !ours.records.iter().any(|record| record.offset == first.offset));
        if hidden && built.is_between_damage(made) {
            met.push(HIDDEN);
        } else {
            good.extend(expected.into_iter().cloned());
        }
    }
    same_records("the records of the good batches (for Kafka: as they were written)", &good, &ours.records)
}

/// A batch whose offset changed, which no checksum covers: whatever we take it for, the batches before it stay.
fn lying_offset(built: &Built, ours: &Ours) -> Result<(), String> {
    let before = built.made.iter().take_while(|made| made.hit.is_none()).flat_map(|made| &made.records);
    match before.filter(|record| !record.control && record.offset >= ours.start).find(|record| !ours.records.contains(record)) {
        Some(record) => Err(format!("a batch behind {} has another offset, and {} is gone", record.offset, record.offset)),
        None => Ok(()),
    }
}

/// Generated directories: Kafka and we say the same of each.
pub(crate) fn we_read_what_kafka_reads() {
    let mut judge = Judge::start();
    let compared = |plan: &Plan| {
        let mut met = compare(&mut judge, plan)?;
        met.sort_unstable();
        met.dedup();
        Ok(met)
    };
    let shown = |plan: &Plan| format!("{plan:?}\n    {:?}", build(plan).hits());
    let differing = seeds::sweep((COUNT, COUNT_DEFAULT), ("directories", SHOWN_MOST), &directories(), compared, shown);
    assert!(differing.is_empty(), "Kafka and we differ in a way that is not listed: seeds {differing:?}");
}
