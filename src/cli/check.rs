//! `offsetfs check`: the consistency check of a partition directory, or of each one of a data directory.

use super::targets::{Target, targets, with_bar};
use super::tree::output;
use super::{Exit, Outcome};
use crate::io::FileSystem;
use crate::io::os::OsFileSystem;
use crate::log::check::{Finding, Report, check};
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// What the user typed.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// A partition directory, or a data directory.
    source: PathBuf,
    /// A JSON object a line for each finding and note, and nothing else.
    #[arg(long)]
    json: bool,
}

/// Prints what there is to say. Exit 1 where there is a finding.
pub(super) fn run(args: &CheckArgs) -> Outcome {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let mut exit = Exit::Done;
    for target in targets(&fs, &args.source)? {
        let report = with_bar(&target, |progress| check(&target.dir, target.parent.as_ref(), &target.name, progress))?;
        if !report.is_clean() {
            exit = Exit::No;
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        output(if args.json { print_json(&mut out, &target, &report) } else { print(&mut out, &target, &report) })?;
        output(out.flush())?;
    }
    Ok(exit)
}

fn print(out: &mut impl Write, target: &Target, report: &Report) -> io::Result<()> {
    let prefix = target.prefix();
    for finding in &report.findings {
        let file = format!("{prefix}{}", finding.file);
        writeln!(out, "{}", super::tame(&Finding { file, ..finding.clone() }.to_string()))?;
    }
    writeln!(out, "{}: {}", target.label(), report.summary())
}

fn print_json(out: &mut impl Write, target: &Target, report: &Report) -> io::Result<()> {
    for finding in &report.findings {
        writeln!(out, "{}", object(target, finding))?;
    }
    Ok(())
}

fn object(target: &Target, finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.to_string(),
        "topic": target.name.topic,
        "partition": target.name.partition,
        "file": finding.file,
        "position": finding.position.map(|p| p.get()),
        "first_offset": finding.offsets.map(|o| o.0.get()),
        "last_offset": finding.offsets.map(|o| o.1.get()),
        "expected": finding.expected,
        "found": finding.found,
        "meaning": finding.meaning,
        "advice": finding.advice,
    })
}
