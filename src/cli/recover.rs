//! `offsetfs recover`: says what an unclean stop, an interrupted cleaning or damage makes necessary, and does it.

use super::options::Options as TypedOptions;
use super::targets::{Target, targets, with_bar};
use super::tree::output;
use super::{Exit, Failure, Outcome};
use crate::io::FileSystem;
use crate::io::os::OsFileSystem;
use crate::log::repair::{self, Options, Plan};
use crate::source::access::{self, Access, Wish};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// What the user typed.
#[derive(Debug, Args)]
pub(super) struct RecoverArgs {
    /// A partition directory, or a data directory.
    source: PathBuf,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take damage in the middle of a log out, too. Good records behind it stay, and so does what can be read of a bad batch.
    #[arg(long)]
    drop_damaged: bool,
    /// Keep no copy of the bytes that leave a log.
    #[arg(long)]
    discard: bool,
    /// Write although the directory belongs to a broker, which must be stopped.
    #[arg(long)]
    take_over: bool,
    /// Settings under Kafka's names; index.interval.bytes counts for new indexes: name=value,...
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Plans, prints the plan, and carries it out. Damage that was not asked for stays and is told.
pub(super) fn run(args: &RecoverArgs) -> Outcome {
    let typed = TypedOptions::parse(&args.options).map_err(|e| Failure::new(Exit::Usage, e))?;
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    for target in targets(&fs, &args.source)? {
        let mut settings = typed.settings.clone();
        settings.take_topic(&*target.dir)?;
        let index_interval_bytes = settings.config().index_interval_bytes;
        let options = Options { drop_damaged: args.drop_damaged, discard: args.discard, index_interval_bytes };
        if args.dry_run {
            let plan = plan(&target, &options)?;
            print(&target, &plan, "would ")?;
            continue;
        }
        let wish = if args.take_over { Wish::TakeOver } else { Wish::Writable };
        let locks = match access::decide(&target.dir, target.parent.as_ref(), wish)? {
            Access::Writable(locks) => locks,
            Access::ReadOnly(reason) => return Err(Failure::new(Exit::No, reason)),
        };
        repair::settle(&*target.dir, target.parent.as_ref(), &target.name)?;
        let repaired = repair(&target, &options);
        locks.release_broker();
        if repaired? > 0 {
            output(writeln!(io::stdout(), "{}: done", target.label()))?;
        }
    }
    Ok(Exit::Done)
}

/// What is left behind a repair is looked at anew; more often than this it is not.
const ROUNDS_MOST: usize = 16;

/// Plans and carries out until nothing is left to do; returns the number of steps. Markers behind damage are in doubt until it is out, and bytes
/// before a torn tail may be one, too, once that is cut.
fn repair(target: &Target, options: &Options) -> Result<usize, Failure> {
    let mut done = 0;
    for round in 0..ROUNDS_MOST {
        let plan = plan(target, options)?;
        if round == 0 || !plan.is_empty() {
            print(target, &plan, "will ")?;
        }
        if plan.is_empty() {
            break;
        }
        repair::apply(&*target.dir, &plan, options, &mut |_| done += 1)?;
    }
    Ok(done)
}

fn plan(target: &Target, options: &Options) -> Result<Plan, Failure> {
    Ok(with_bar(target, |progress| repair::plan(&*target.dir, options, progress))?)
}

fn print(target: &Target, plan: &Plan, tense: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut run = || -> io::Result<()> {
        for step in plan.steps() {
            for line in step.to_string().lines() {
                writeln!(out, "{}: {tense}{line}", target.label())?;
            }
        }
        for line in &plan.left {
            writeln!(out, "{}: leaves {line}; --drop-damaged takes it out", target.label())?;
        }
        if plan.is_empty() {
            writeln!(out, "{}: nothing to do", target.label())?;
        }
        out.flush()
    };
    output(run())
}
