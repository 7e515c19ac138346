//! `offsetfs compact`: keeps of the records of a key only the latest, by Kafka's rules, and says what was gained.

use super::options::Options as TypedOptions;
use super::targets::{self, Target, bar, targets};
use super::tree::output;
use super::{Exit, Failure, Outcome};
use crate::io::FileSystem;
use crate::io::os::OsFileSystem;
use crate::source::access::Wish;
use crate::source::{Compaction, Maintenance, Source};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// What the user typed.
#[derive(Debug, Args)]
pub(super) struct CompactArgs {
    /// A partition directory, or a data directory.
    source: PathBuf,
    /// Say what would be gained, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write although the directory belongs to a broker, which must be stopped.
    #[arg(long)]
    take_over: bool,
    /// Settings under Kafka's names, such as cleanup.policy=compact (without it nothing is compacted): name=value,...
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Compacts each partition that is due, and says what became of it.
pub(super) fn run(args: &CompactArgs) -> Outcome {
    let typed = TypedOptions::parse(&args.options).map_err(|e| Failure::new(Exit::Usage, e))?;
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    for target in targets(&fs, &args.source)? {
        let wish = match (args.dry_run, args.take_over) {
            (true, _) => Wish::ReadOnly,
            (false, true) => Wish::TakeOver,
            (false, false) => Wish::Writable,
        };
        let local = targets::open(&fs, &target, wish, &typed.settings)?;
        let bar = bar();
        bar.set_message(target.name.to_string());
        let mut progress = |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        };
        let done = if args.dry_run { local.measure_compaction(&mut progress) } else { local.compact(&mut progress) };
        bar.finish_and_clear();
        let closed = local.close();
        print(&target, &done?, args.dry_run)?;
        closed?;
    }
    Ok(Exit::Done)
}

fn print(target: &Target, done: &Compaction, dry_run: bool) -> Result<(), Failure> {
    let name = &target.name;
    let mut out = io::stdout().lock();
    let mut run = || -> io::Result<()> {
        let Some(end) = done.compacted_to else { return writeln!(out, "{name}: nothing to compact: {}", done.plan.why) };
        let (compacted, became, goes) =
            if dry_run { ("would be compacted", "would become", "would go") } else { ("compacted", "became", "went") };
        let ((segments, into), (before, after)) = (done.segments, done.bytes);
        let gained = before.saturating_sub(after);
        let percent = if before == 0 { 0.0 } else { gained as f64 * 100.0 / before as f64 };
        writeln!(out, "{name}: {compacted} up to offset {end}: {}", done.plan.why)?;
        writeln!(out, "{name}: {} records stay, {} {goes}: {}", done.kept, done.gone.total(), done.gone)?;
        writeln!(out, "{name}: {segments} segments of {before} bytes {became} {into} of {after}: {gained} bytes gained ({percent:.0}%)")?;
        out.flush()
    };
    output(run())
}
