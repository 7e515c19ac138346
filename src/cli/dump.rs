//! `offsetfs dump FILE...`: what stands in the files of a partition, a line for each thing, in the shape of Kafka's own dump tool.
//!
//! The lines are those of `kafka-dump-log --deep-iteration --print-data-log`, so that what reads one reads the other. What Kafka's tool dies of
//! is shown here in its place, as a line that begins with `damage:`, and the rest of the file follows. Nothing is repaired, and nothing beyond
//! the files given (and the `.log` beside an index) is looked at: that is `check`. Source: kafka-format, section 12.

mod file;
mod index;
mod json;
mod lines;
mod log;
mod output;
mod selection;
mod state;
mod text;
mod walk;

use crate::error::{Error, Result};
use crate::io::{Clock, os};
use crate::log::decoders::Topic;
use crate::view::path::{ByOffset, ByTime, Endpoint, Face, Lines as RangeLines, OffsetRange};
use crate::view::time::{TimeText, Zone};
use file::{Kind, Source};
use lines::Lines;
use output::Output;
use selection::Selection;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The exit code where all was shown and nothing is wrong.
pub const EXIT_SOUND: u8 = 0;
/// The exit code where some file is damaged.
pub const EXIT_DAMAGED: u8 = 1;
/// The exit code where some file could not be read.
pub const EXIT_UNREADABLE: u8 = 3;

/// What `offsetfs dump` is told.
#[derive(Clone, Debug, clap::Args)]
pub struct DumpArgs {
    /// Files to show: .log, .checkpoint, .index, .timeindex, .txnindex, .snapshot (also with .deleted, .swap or .cleaned behind it),
    /// leader-epoch-checkpoint, and the *-offset-checkpoint files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Only these offsets: A..B, A.., ..B, A..=B, or one; first, last and -k count within each file
    #[arg(long, value_name = "A..B", value_parser = parse_offsets, allow_hyphen_values = true)]
    pub offsets: Option<OffsetRange>,

    /// Only records with a time at or after T and before U: 2h-ago.., 2026-11-29..2026-11-30T12:00
    #[arg(long, value_name = "T..U", value_parser = parse_times)]
    pub times: Option<TimeRange>,

    /// The time zone of times that have none (default: the system's)
    #[arg(long, value_name = "ZONE", value_parser = Zone::parse)]
    pub tz: Option<Zone>,

    /// Print JSON, a line for each thing; records in the shape of kcat -J
    #[arg(long)]
    pub json: bool,

    /// Show keys and values of Kafka's own topics by their fields (default: none, with --json: auto)
    #[arg(long, value_name = "AS", value_enum)]
    pub decode: Option<Decode>,
}

/// How keys and values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Decode {
    /// As they are.
    None,
    /// By the topic that the directory's name gives.
    Auto,
    /// As those of __consumer_offsets.
    Offsets,
    /// As those of __transaction_state.
    Transactions,
    /// As those of __cluster_metadata.
    Metadata,
}

/// A range of times as it was typed; either end may be open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The earliest time that is shown.
    pub from: Option<TimeText>,
    /// The earliest time that is not shown any more.
    pub to: Option<TimeText>,
}

fn parse_offsets(text: &str) -> Result<OffsetRange, String> {
    match ByOffset::parse(text.as_bytes()).map_err(|refusal| refusal.reason().to_owned())? {
        ByOffset::Range(range) if range.lines == RangeLines::Values => Ok(range),
        ByOffset::Record(offset, Face::Value) => Ok(one(Endpoint::Number(offset))),
        ByOffset::Link(endpoint, Face::Value) => Ok(one(endpoint)),
        _ => Err("write A..B, A.., ..B, A..=B or one offset, without a suffix".to_owned()),
    }
}

/// The range of one record.
fn one(endpoint: Endpoint) -> OffsetRange {
    OffsetRange { from: Some(endpoint.clone()), to: Some(endpoint), inclusive: true, lines: RangeLines::Values }
}

fn parse_times(text: &str) -> Result<TimeRange, String> {
    match ByTime::parse(text.as_bytes()).map_err(|refusal| refusal.reason().to_owned())? {
        ByTime::Range { from, to, lines: RangeLines::Values } => Ok(TimeRange { from, to }),
        _ => Err("write T..U, T.. or ..U, without a suffix".to_owned()),
    }
}

/// Shows the files on `out`, and on `err` what is to be said of them: gaps in the offsets, indexes that differ from their log, files that
/// cannot be read. Gives the exit code: [`EXIT_SOUND`], [`EXIT_DAMAGED`] or [`EXIT_UNREADABLE`], the greatest that holds.
///
/// A reader that closes `out` early ends the work without a word.
///
/// # Errors
/// `out` cannot be written to; a time in the arguments lies outside the calendar.
pub fn run(args: &DumpArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8> {
    let now = os::SystemClock.now();
    let zone = args.tz.clone().unwrap_or_else(Zone::system);
    let resolve = |time: &Option<TimeText>| match time {
        None => Ok(None),
        Some(text) => text
            .resolve(&zone, now)
            .map(Some)
            .map_err(|refusal| Error::io("resolve", text, io::Error::new(io::ErrorKind::InvalidInput, refusal.reason().to_owned()))),
    };
    let times = match &args.times {
        None => None,
        Some(range) => Some((resolve(&range.from)?, resolve(&range.to)?)),
    };
    let selection = Selection::new(args.offsets.clone(), times);
    let mut lines = Lines::new(Output::new(out), err, args.json);
    let mut unreadable = false;
    let mut work = || -> io::Result<()> {
        for path in &args.files {
            match dump_file(path, args, &selection, &mut lines) {
                Ok(()) => {}
                Err(Failure::Output(error)) => return Err(error),
                Err(Failure::File(error)) => {
                    unreadable = true;
                    lines.complain(&[format!("offsetfs: {error}")])?;
                }
            }
        }
        lines.finish()
    };
    match work() {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => return Err(Error::io("write", "the output", error)),
    }
    Ok(match (unreadable, lines.is_damaged()) {
        (true, _) => EXIT_UNREADABLE,
        (false, true) => EXIT_DAMAGED,
        (false, false) => EXIT_SOUND,
    })
}

/// Runs the command on the standard output, which is written to without the standard library's buffer: its lines would be cut anew there.
pub(super) fn command(args: &DumpArgs) -> super::Outcome {
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    Ok(match run(args, &mut out, &mut io::stderr())? {
        EXIT_SOUND => super::Exit::Done,
        EXIT_DAMAGED => super::Exit::No,
        _ => super::Exit::Io,
    })
}

/// Why a file was not shown to its end.
#[derive(Debug)]
enum Failure {
    /// The output takes nothing more: all work ends.
    Output(io::Error),
    /// The file cannot be read: the next one follows.
    File(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::File(error)
    }
}

fn dump_file(path: &Path, args: &DumpArgs, selection: &Selection, lines: &mut Lines<'_>) -> Result<(), Failure> {
    let kind = Kind::of(path);
    lines.begin_file(path)?;
    match kind {
        Kind::Unknown => return Ok(lines.ignore(path)?),
        Kind::Log | Kind::Checkpoint => log::dump(&Source::open(path)?, kind, topic(path, kind, args), selection, lines)?,
        Kind::Index => index::dump_offsets(&Source::open(path)?, selection, lines)?,
        Kind::TimeIndex => index::dump_times(&Source::open(path)?, selection, lines)?,
        Kind::TxnIndex => state::dump_transactions(&Source::open(path)?, selection, lines)?,
        Kind::Snapshot => state::dump_producers(&Source::open(path)?, lines)?,
        Kind::LeaderEpochs => state::dump_entries(&Source::open(path)?, &["epoch", "startOffset"], lines)?,
        Kind::Offsets => state::dump_entries(&Source::open(path)?, &["topic", "partition", "offset"], lines)?,
    }
    Ok(())
}

/// The topic as whose records those of a file are shown.
fn topic(path: &Path, kind: Kind, args: &DumpArgs) -> Option<Topic> {
    match args.decode.unwrap_or(if args.json { Decode::Auto } else { Decode::None }) {
        Decode::None => None,
        Decode::Offsets => Some(Topic::ConsumerOffsets),
        Decode::Transactions => Some(Topic::TransactionState),
        Decode::Metadata => Some(Topic::ClusterMetadata),
        Decode::Auto if kind == Kind::Checkpoint => Some(Topic::ClusterMetadata),
        Decode::Auto => Topic::of(&file::partition_of(path).topic),
    }
}
