//! `offsetfs compact`: keeps of the records of a key only the latest, by Kafka's rules, and says what was gained.

use super::targets::{TakeArgs, Target, with_bar};
use super::tree::output;
use super::{Failure, Outcome};
use crate::source::{Compaction, Maintenance, Source};
use std::io::{self, Write};

/// Compacts each partition that is due, and says what became of it.
pub(super) fn run(args: &TakeArgs) -> Outcome {
    args.each(|target, local| {
        let done = with_bar(target, |progress| if args.dry_run { local.measure_compaction(progress) } else { local.compact(progress) });
        let closed = local.close();
        print(target, &done?, args.dry_run)?;
        Ok(closed?)
    })
}

fn print(target: &Target, done: &Compaction, dry_run: bool) -> Result<(), Failure> {
    let name = target.label();
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
