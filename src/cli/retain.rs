//! `offsetfs retain`: which segments Kafka's rules would take, why, and what is left; and takes them.

use super::options::Options as TypedOptions;
use super::targets::{self, Target, targets};
use super::tree::output;
use super::{Exit, Failure, Outcome};
use crate::io::FileSystem;
use crate::io::os::OsFileSystem;
use crate::log::names;
use crate::source::access::Wish;
use crate::source::{Maintenance, RetentionPlan, Source};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// What the user typed.
#[derive(Debug, Args)]
pub(super) struct RetainArgs {
    /// A partition directory, or a data directory.
    source: PathBuf,
    /// Say what would go, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write although the directory belongs to a broker, which must be stopped.
    #[arg(long)]
    take_over: bool,
    /// Settings under Kafka's names, such as retention.ms and retention.bytes: name=value,...
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Says what goes, a segment a line, and takes it.
pub(super) fn run(args: &RetainArgs) -> Outcome {
    let typed = TypedOptions::parse(&args.options).map_err(|e| Failure::new(Exit::Usage, e))?;
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    for target in targets(&fs, &args.source)? {
        let wish = match (args.dry_run, args.take_over) {
            (true, _) => Wish::ReadOnly,
            (false, true) => Wish::TakeOver,
            (false, false) => Wish::Writable,
        };
        let local = targets::open(&fs, &target, wish, &typed.settings)?;
        if args.dry_run {
            print(&target, &local.retention()?, "would remove")?;
            continue;
        }
        let taken = local.retain();
        // Closing unlinks what was taken: this process does not stay to do it later.
        let closed = local.close();
        print(&target, &taken?, "removed")?;
        closed?;
    }
    Ok(Exit::Done)
}

fn print(target: &Target, plan: &RetentionPlan, verb: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut run = || -> io::Result<()> {
        for removal in &plan.removals {
            let log = names::of(removal.base, names::LOG);
            let (from, until, bytes, why) = (removal.base, removal.until, removal.bytes, removal.why);
            writeln!(out, "{}: {verb} {log} (offsets {from} to below {until}, {bytes} bytes): {why}", target.name)?;
        }
        match plan.first_kept() {
            Some(first) => writeln!(out, "{}: {verb} {} bytes; offsets begin at {first}", target.name, plan.bytes())?,
            None => writeln!(out, "{}: nothing to remove", target.name)?,
        }
        out.flush()
    };
    output(run())
}
