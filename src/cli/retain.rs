//! `offsetfs retain`: which segments Kafka's rules would take, why, and what is left; and takes them.

use super::targets::{TakeArgs, Target};
use super::tree::output;
use super::{Failure, Outcome};
use crate::log::names;
use crate::source::{Maintenance, RetentionPlan, Source};
use std::io::{self, Write};

/// Says what goes, a segment a line, and takes it.
pub(super) fn run(args: &TakeArgs) -> Outcome {
    args.each(|target, local| {
        if args.dry_run {
            return print(target, &local.retention()?, "would remove");
        }
        let taken = local.retain();
        // Closing unlinks what was taken: this process does not stay to do it later.
        let closed = local.close();
        print(target, &taken?, "removed")?;
        Ok(closed?)
    })
}

fn print(target: &Target, plan: &RetentionPlan, verb: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut run = || -> io::Result<()> {
        for removal in &plan.removals {
            let log = names::of(removal.base, names::LOG);
            let (from, until, bytes, why) = (removal.base, removal.until, removal.bytes, removal.why);
            writeln!(out, "{}: {verb} {log} (offsets {from} to below {until}, {bytes} bytes): {why}", target.label())?;
        }
        match plan.first_kept() {
            Some(first) => writeln!(out, "{}: {verb} {} bytes; offsets begin at {first}", target.label(), plan.bytes())?,
            None => writeln!(out, "{}: nothing to remove", target.label())?,
        }
        out.flush()
    };
    output(run())
}
