//! `offsetfs tail`: the last records of a partition, and with `-f` those that come.

use super::tree::{open, output};
use super::{Exit, Failure, Outcome, SourceArgs};
use crate::io::process;
use crate::types::{Offset, Patience::MayBlock};
use crate::view::{Node, Span, Tree};
use clap::Args;
use std::io::{self, Write};
use std::time::Duration;

/// What is read at once, in bytes.
const PIECE_BYTES: usize = 256 << 10;
/// How often a log without news is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What the user typed.
#[derive(Debug, Args)]
pub(super) struct TailArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// So many records from the end.
    #[arg(short = 'n', value_name = "RECORDS", default_value_t = 10)]
    records: u32,
    /// Go on with the records that come.
    #[arg(short, long)]
    follow: bool,
    /// The JSON envelope of each record in place of its value.
    #[arg(long)]
    json: bool,
}

/// Prints the last records, a line each.
pub(super) fn run(args: &TailArgs) -> Outcome {
    let (tree, _) = open(&args.source)?;
    let Tree::One(view) = &tree else {
        let message = format!("{} is a data directory; give one of its partitions", args.source.source.display());
        return Err(Failure::new(Exit::No, message));
    };
    let from = if args.records == 0 { "latest".to_owned() } else { format!("-{}", args.records) };
    let suffix = if args.json { ".jsonl" } else { "" };
    let range = view.lookup(&Node::ByOffset, format!("{from}..{suffix}").as_bytes(), MayBlock)?;
    let reader = match &range {
        Node::Range(span) if args.follow => view.follow(Span { until: Offset::MAX, ..*span }),
        range => view.open(range, MayBlock)?,
    };
    let mut out = io::stdout().lock();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let n = reader.read(at, &mut piece, MayBlock)?;
        at += n as u64;
        output(out.write_all(&piece[..n]))?;
        if n > 0 {
            continue;
        }
        output(out.flush())?;
        // Whoever has read enough does not wait for the next record to be told.
        if !args.follow || process::wait_for_hangup(LOOK_INTERVAL) {
            return Ok(Exit::Done);
        }
    }
}
