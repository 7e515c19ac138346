//! One segment: its batches, their records, its indexes, the epochs and transactions in it.

use crate::error::{Error, Fault, Result};
use crate::io::Directory;
use crate::log::batch::{BatchHeader, Step};
use crate::log::check::files::{self, Layout};
use crate::log::check::gaps::Gaps;
use crate::log::check::indexes::{OffsetWalk, TimeEnd, TimeWalk, Trim, look_at_trim, trim_of};
use crate::log::check::transactions::{self, Tracker};
use crate::log::check::{Finding, Report};
use crate::log::checkpoint::EpochEntry;
use crate::log::compression::DecodeError;
use crate::log::config::LogConfig;
use crate::log::index::{OFFSET_ENTRY_LEN, TIME_ENTRY_LEN, fits, used_offset_bytes, used_time_bytes};
use crate::log::names;
use crate::log::record::{Records, decode};
use crate::log::scan::Scan;
use crate::log::segment::LOG_LEN_MAX;
use crate::types::{Offset, TimestampMs, TimestampType};

const DROP: &str = "offsetfs recover --drop-damaged takes it out and keeps its neighbours and a copy of its bytes";
/// Progress is told each time so many bytes are done.
const PROGRESS_BYTES: u64 = 4 << 20;
/// So many batches of a segment whose records cannot be read are kept in mind for a repair.
const UNREADABLE_MOST: usize = 65_536;

/// What all segments are judged with.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) dir: &'a dyn Directory,
    /// `index.interval.bytes` for indexes that a repair makes.
    pub(crate) interval_bytes: u64,
    /// The leader epochs of the checkpoint; empty where it has none.
    pub(crate) epochs: &'a [EpochEntry],
}

/// What goes on from segment to segment.
#[derive(Debug, Default)]
pub(crate) struct Running {
    pub(crate) tracker: Tracker,
    next_offset: Option<Offset>,
    gaps: bool,
    holes: Vec<(String, Offset, Offset)>,
    /// The leader epochs as the batches have them, for a checkpoint made anew.
    pub(crate) epochs: Vec<EpochEntry>,
    /// Whether batches have other epochs than the checkpoint gives their offsets.
    pub(crate) epochs_differ: bool,
}

impl Running {
    /// The offset behind the last good batch; `None` without a segment.
    pub(crate) fn next_offset(&self) -> Option<Offset> {
        self.next_offset
    }

    /// Offsets between two segments: harmless in a compacted log, in any other the trace of a lost file.
    pub(crate) fn tell_holes(&self, report: &mut Report, cleaned: bool) {
        for (file, first, last) in &self.holes {
            let found = format!("offsets {first} to {last} in no segment");
            let expected = "a segment that goes on where the one before ends";
            report.add(if cleaned || self.gaps {
                Finding::note(file, expected, found).of(Some((*first, *last))).means("compaction leaves such gaps; readers pass over them")
            } else {
                Finding::wrong(file, expected, found)
                    .of(Some((*first, *last)))
                    .means("nothing else in this log was compacted, so the files of a segment are probably lost")
                    .advice("look for them in a backup or on a replica; readers pass over the offsets")
            });
        }
    }

    fn epoch(&mut self, header: &BatchHeader, known: &[EpochEntry]) -> bool {
        let epoch = header.partition_leader_epoch;
        if header.magic < 2 || epoch < 0 {
            return true;
        }
        if self.epochs.last().is_none_or(|last| last.epoch < epoch) {
            self.epochs.push(EpochEntry { epoch, start: header.base_offset });
        }
        let floor = known.partition_point(|e| e.start <= header.base_offset).checked_sub(1).and_then(|i| known.get(i));
        floor.is_none_or(|e| e.epoch == epoch)
    }
}

/// A batch whose CRC is right and whose records cannot all be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) header: BatchHeader,
    pub(crate) position: u64,
}

/// What is known of a segment behind its check.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) scan: Scan,
    pub(crate) unreadable: Vec<Unreadable>,
    /// Whether the two indexes can stay as they are.
    pub(crate) indexes_sound: bool,
    /// What the `.txnindex` should be; `None` where it can stay.
    pub(crate) txnindex: Option<Vec<transactions::Entry>>,
}

/// Looks at every byte of the segment at a place of the layout.
///
/// # Errors
/// What the system says; [`Error::Truncated`].
pub(crate) fn examine(
    scene: &Scene<'_>,
    layout: &Layout,
    at: usize,
    running: &mut Running,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<Examined>> {
    let Some(file) = layout.logs.get(at) else { return Ok(None) };
    let base = file.base_offset;
    let limit = layout.limit(at);
    let open_ended = limit.is_none();
    let name = file.name();
    // The indexes come first: a writer stores into the log before it stores into them.
    let index = files::map(scene.dir, &file.name_of(names::INDEX))?;
    let timeindex = files::map(scene.dir, &file.name_of(names::TIME_INDEX))?;
    let index_bytes = index.as_ref().map_or(&[][..], |m| m.bytes());
    let time_bytes = timeindex.as_ref().map_or(&[][..], |m| m.bytes());
    let (index_used, time_used) = (used_offset_bytes(index_bytes), used_time_bytes(time_bytes));
    let entries = index_bytes.get(..index_used).unwrap_or_default();
    let time_entries = time_bytes.get(..time_used).unwrap_or_default();
    let Some(log) = files::map(scene.dir, &name)? else {
        return Err(Error::io("open", name, std::io::ErrorKind::NotFound.into()));
    };
    let bytes = log.bytes();
    if file.metadata.len > LOG_LEN_MAX {
        report.add(
            Finding::wrong(&name, format!("at most {LOG_LEN_MAX} bytes"), format!("{}", file.metadata.len))
                .at(LOG_LEN_MAX)
                .means("positions are 31 bits wide; what lies beyond cannot be reached")
                .advice("split the file at a batch"),
        );
    }
    let mut scan = files::scan_log(bytes, base, limit, scene.interval_bytes, entries);
    log.still_whole()?;
    if !layout.is_end(at) {
        scan.seal_tail(limit.map_or(Offset::MAX, Offset::previous));
    }
    report.segments += 1;
    report.bytes += bytes.len() as u64;
    report.batches += scan.batches;
    tell_scan(&scan, &name, report);

    let index_trim = trim_of(index_bytes, index_used, OFFSET_ENTRY_LEN);
    let time_trim = trim_of(time_bytes, time_used, TIME_ENTRY_LEN);
    let unclean = scan.tail.is_some() || (open_ended && (index_trim == Trim::Zeros || time_trim == Trim::Zeros));
    let mut pass = Pass {
        scene,
        file: &name,
        base,
        log: bytes,
        scan: &scan,
        gaps: Gaps::new(base),
        offsets: OffsetWalk::new(&file.name_of(names::INDEX), entries, base, report),
        times: TimeWalk::new(&file.name_of(names::TIME_INDEX), time_entries, base, report),
        markers: transactions::Markers::default(),
        unreadable: Vec::new(),
        wrong_epochs: 0,
    };
    pass.run(running, report, progress);
    let Pass { gaps, offsets, times, markers, unreadable, wrong_epochs, .. } = pass;
    log.still_whole()?;

    gaps.tell(&name, report);
    running.gaps |= gaps.any();
    running.epochs_differ |= wrong_epochs > 0;
    // A sealed segment without a byte is what a cleaning leaves of one that it emptied.
    running.gaps |= bytes.is_empty() && limit.is_some();
    if let Some(before) = running.next_offset.filter(|next| *next < base) {
        running.holes.push((name.clone(), before, base.previous()));
    }
    running.next_offset = Some(scan.end_offset().max(running.next_offset.unwrap_or(base)));

    let mut sound = offsets.finish(scan.valid_end.get(), unclean, report);
    let end = TimeEnd { next_offset: scan.next_offset, open_ended, has_offset_entries: !entries.is_empty(), unclean };
    sound &= times.finish(&end, report);
    // A time index of zeros beside an offset index with entries lost its own.
    if open_ended && time_used == 0 && time_trim == Trim::Zeros && !entries.is_empty() && scan.largest.timestamp.get() >= 0 {
        report.add(
            Finding::wrong(file.name_of(names::TIME_INDEX), format!("entries up to time {}", scan.largest.timestamp), "zeros only")
                .at(0)
                .means("the offset index beside it has entries, so its own were lost; a broker's look-ups by time pass over the segment")
                .advice("offsetfs recover makes the index anew"),
        );
    }
    sound &= look_at_trim(&file.name_of(names::INDEX), index_bytes, index_used, index_trim, open_ended, report);
    sound &= look_at_trim(&file.name_of(names::TIME_INDEX), time_bytes, time_used, time_trim, open_ended, report);
    for (suffix, there, needed) in
        [(names::INDEX, index.is_some(), scan.batches > 0), (names::TIME_INDEX, timeindex.is_some(), scan.largest.timestamp.get() >= 0)]
    {
        if !there && needed {
            sound = false;
            report.add(
                Finding::wrong(file.name_of(suffix), "the index of the segment", "no such file")
                    .means("look-ups read the log instead; a broker recovers the segment at its start, or finds no time in it")
                    .advice("offsetfs recover makes the index anew"),
            );
        }
    }
    for map in [&index, &timeindex].into_iter().flatten() {
        map.still_whole()?;
    }
    let txnindex = transactions::look_at_index(scene.dir, file, limit, (bytes, &scan), &markers, report)?;
    progress(bytes.len() as u64);
    Ok(Some(Examined { scan, unreadable, indexes_sound: sound, txnindex }))
}

/// Tells of damaged stretches and of the tail.
fn tell_scan(scan: &Scan, name: &str, report: &mut Report) {
    for damage in &scan.damage {
        let bytes = damage.to.get().saturating_sub(damage.from.get());
        let found = format!("{}; {bytes} bytes hold no readable batch", damage.fault.found);
        let means = match damage.offsets {
            Some((first, last)) if first == last => {
                format!("offset {first} cannot be read; a broker that recovers cuts everything from here on")
            }
            Some((first, last)) => format!("offsets {first} to {last} cannot be read; a broker that recovers cuts everything from here on"),
            None => "no offset is lost, but a broker that recovers cuts everything from here on".to_owned(),
        };
        report.add(
            Finding::wrong(name, damage.fault.expected.clone(), found).at(damage.from.get()).of(damage.offsets).means(means).advice(DROP),
        );
    }
    if let Some(tail) = &scan.tail {
        let what = if tail.zeros { "zeros behind the last batch" } else { "bytes of a torn tail behind the last batch" };
        report.add(
            Finding::note(name, "the end of the log behind its last batch", format!("{} {what} ({})", tail.bytes, tail.fault))
                .at(tail.from.get())
                .means("a write was cut short, or the file was allocated ahead")
                .advice("the first append or offsetfs recover cuts them and keeps a copy"),
        );
    }
}

/// The pass over the records of the good batches.
struct Pass<'a> {
    scene: &'a Scene<'a>,
    file: &'a str,
    base: Offset,
    log: &'a [u8],
    scan: &'a Scan,
    gaps: Gaps,
    offsets: OffsetWalk<'a>,
    times: TimeWalk<'a>,
    markers: transactions::Markers,
    unreadable: Vec<Unreadable>,
    wrong_epochs: u64,
}

impl Pass<'_> {
    fn run(&mut self, running: &mut Running, report: &mut Report, progress: &mut dyn FnMut(u64)) {
        let (mut at, mut told) = (0, 0);
        while at < self.scan.valid_end.get() {
            if let Some(damage) = self.scan.damage_from(at) {
                at = damage.to.get();
                self.offsets.skip_to(at, report);
                if let Some((_, last)) = damage.offsets {
                    self.times.skip_to(last.next(), report);
                    self.gaps.skip_to(last.next());
                }
                running.tracker.doubt();
                continue;
            }
            let Ok(Step::Batch(header)) = BatchHeader::read(self.log, at as usize) else { break };
            let size = u64::from(header.size);
            let bytes = self.log.get(at as usize..(at + size) as usize).unwrap_or_default();
            self.batch(&header, at, bytes, running, report);
            at += size;
            if at - told >= PROGRESS_BYTES {
                told = at;
                progress(at);
            }
        }
        if self.scan.damage_at_end().is_some() {
            running.tracker.doubt();
        }
    }

    fn batch(&mut self, header: &BatchHeader, at: u64, bytes: &[u8], running: &mut Running, report: &mut Report) {
        self.offsets.batch(header, at, report);
        self.times.batch(header, report);
        if !running.epoch(header, self.scene.epochs) {
            self.wrong_epochs += 1;
            if self.wrong_epochs == 1 {
                report.add(
                    Finding::wrong(
                        self.file,
                        "the leader epoch that the checkpoint gives these offsets",
                        format!("{}", header.partition_leader_epoch),
                    )
                    .at(at)
                    .of(Some((header.base_offset, header.last_offset)))
                    .means("replicas compare epochs to find where their logs part; with a wrong one they may cut too much or too little")
                    .advice("offsetfs recover makes leader-epoch-checkpoint anew from the batches"),
                );
            }
        }
        if !fits(self.base, header.last_offset) {
            let found = format!("{}", header.last_offset);
            report.add(
                Finding::wrong(self.file, "an offset that fits the segment's indexes", found)
                    .at(at)
                    .means("a broker splits the segment at its start"),
            );
        }
        let limit = LogConfig::default().batch_decoded_max_bytes;
        let decoded = if header.is_compressed() { decode(header, bytes, limit).map(Some) } else { Ok(None) };
        let body = match decoded {
            Ok(body) => body,
            Err(DecodeError::TooLarge { limit }) => {
                report.add(
                    Finding::note(self.file, format!("a batch of at most {limit} bytes once decoded"), "a larger one")
                        .at(at)
                        .of(Some((header.base_offset, header.last_offset)))
                        .means("its records were not looked at"),
                );
                running.tracker.batch(header);
                self.gaps.skip_to(header.next_offset());
                return;
            }
            Err(DecodeError::Damaged(fault)) => return self.unreadable(header, at, 0, fault, running, report),
        };
        let records = match &body {
            Some(body) => Records::in_decoded(header, body),
            None => Records::in_batch(header, bytes),
        };
        let body = body.as_deref().unwrap_or(bytes);
        running.tracker.batch(header);
        let (mut count, mut largest) = (0, TimestampMs::NONE);
        for record in records {
            let record = match record {
                Ok(record) => record,
                Err(fault) => return self.unreadable(header, at, count, fault, running, report),
            };
            count += 1;
            largest = largest.max(record.timestamp);
            self.gaps.record(record.offset);
            if header.attributes.is_control() && header.magic >= 2 {
                let key = record.key.as_ref().and_then(|r| body.get(r.start as usize..r.end as usize)).unwrap_or_default();
                if let Err(fault) = self.markers.record(header, record.offset, key, &mut running.tracker) {
                    report.add(
                        Finding::wrong(self.file, fault.expected, fault.found)
                            .at(at)
                            .of(Some((record.offset, record.offset)))
                            .means("a control record that a broker refuses: it stops loading the partition"),
                    );
                }
            }
        }
        report.records += count;
        self.gaps.end_of_batch(header.last_offset, count == 0);
        if count > 0 && header.timestamp_type() == TimestampType::CreateTime && largest != header.max_timestamp {
            self.tell_times(header, at, largest, report);
        }
    }

    fn tell_times(&self, header: &BatchHeader, at: u64, largest: TimestampMs, report: &mut Report) {
        let (expected, found) = (format!("largest time {largest}, as its records have it"), format!("{}", header.max_timestamp));
        let finding = if largest > header.max_timestamp {
            Finding::wrong(self.file, expected, found).means("look-ups by time pass over this batch, though it has later records")
        } else {
            Finding::note(self.file, expected, found).means("look-ups by time look into this batch for nothing")
        };
        report.add(finding.at(at).of(Some((header.base_offset, header.last_offset))));
    }

    fn unreadable(&mut self, header: &BatchHeader, at: u64, readable: u64, fault: Fault, running: &mut Running, report: &mut Report) {
        report.records += readable;
        let found =
            format!("{}, {} bytes into its records or header; {readable} records before it can be read", fault.found, fault.position);
        report.add(
            Finding::wrong(self.file, fault.expected, found)
                .at(at)
                .of(Some((header.base_offset, header.last_offset)))
                .means("the CRC is right, so it was written like this; consumers stop at it")
                .advice(DROP),
        );
        self.gaps.skip_to(header.next_offset());
        running.tracker.doubt();
        if self.unreadable.len() < UNREADABLE_MOST {
            self.unreadable.push(Unreadable { header: *header, position: at });
        }
    }
}
