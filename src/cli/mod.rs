//! The command line: what the user typed becomes a checked plan, the plan is run, and the outcome becomes an exit status.
//!
//! 0: done. 1: the answer is no (findings, no such record, a mount refused). 2: the command line cannot be understood. 3: I/O failed.
//! Called as `mount.offsetfs`, or with a path where a command would stand, it takes mount(8)'s arguments, and failure is 32.

mod check;
mod compact;
pub mod dump;
mod manual;
mod mount;
mod options;
mod pretty;
mod recover;
mod retain;
mod sizes;
mod tail;
mod targets;
mod tree;

use crate::error::Error as EngineError;
use crate::view::ErrorKind;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Done = 0,
    No = 1,
    Usage = 2,
    Io = 3,
    MountFailed = 32,
}

/// A refusal or failure, and how the process ends because of it.
#[derive(Debug)]
struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        let exit = match &error {
            EngineError::NotAPartition { .. }
            | EngineError::Locked { .. }
            | EngineError::ReadOnly { .. }
            | EngineError::NotCompacted { .. }
            | EngineError::Settings { .. }
            | EngineError::RecordTooLarge { .. } => Exit::No,
            EngineError::Io { source, .. } if is_refusal(source) => Exit::No,
            _ => Exit::Io,
        };
        Failure::new(exit, error.to_string())
    }
}

/// Whether the system says that the command asks for what is not there or not allowed, rather than that a disk failed.
fn is_refusal(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied | ReadOnlyFilesystem)
}

impl From<crate::view::Error> for Failure {
    fn from(error: crate::view::Error) -> Failure {
        let exit = match error.kind() {
            ErrorKind::Damaged | ErrorKind::NoSpace => Exit::Io,
            ErrorKind::Invalid => Exit::Usage,
            _ => Exit::No,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(Exit::Io, error.to_string())
    }
}

type Outcome = Result<Exit, Failure>;

/// A Kafka-format log, as files.
#[derive(Debug, Parser)]
#[command(name = "offsetfs", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Mount a partition directory as a tree of files.
    Mount(MountArgs),
    /// Unmount a tree.
    Umount {
        /// Where it is mounted.
        mountpoint: PathBuf,
        /// Detach it now, even while files in it are open.
        #[arg(short, long)]
        lazy: bool,
    },
    /// List a directory of the tree, a name a line, without a mount.
    Ls {
        #[command(flatten)]
        source: SourceArgs,
        /// A path below the root of the tree.
        #[arg(default_value = "")]
        path: OsString,
        /// Mode, size and time before each name.
        #[arg(short)]
        long: bool,
    },
    /// Print files of the tree, without a mount.
    Cat {
        #[command(flatten)]
        source: SourceArgs,
        /// Paths below the root of the tree, such as by-offset/5 or by-time/2h-ago.
        #[arg(required = true)]
        paths: Vec<OsString>,
        /// Spread envelopes and other lines of JSON out, in colours on a terminal.
        #[arg(long)]
        pretty: bool,
    },
    /// Print the last records, a line each.
    Tail(tail::TailArgs),
    /// Say what a path of the tree is, or, without one, what the log is.
    Stat {
        #[command(flatten)]
        source: SourceArgs,
        /// A path below the root of the tree.
        path: Option<OsString>,
        /// Read the whole log and tell the sizes of records and batches, and what index.interval.bytes costs and gains on it. The source may be a
        /// data directory.
        #[arg(long, conflicts_with = "path")]
        sizes: bool,
        /// The sizes as a JSON object a line for each partition.
        #[arg(long, requires = "sizes")]
        json: bool,
    },
    /// Append standard input: each line becomes a record.
    Append {
        #[command(flatten)]
        source: SourceArgs,
        /// Make the partition if it is missing.
        #[arg(long)]
        create: bool,
        /// Write although the directory belongs to a broker, which must be stopped.
        #[arg(long)]
        take_over: bool,
        /// What a record is: a line (lines), an envelope (jsonl), all of the input (bin).
        #[arg(long, default_value = "lines", value_parser = ["lines", "jsonl", "bin"])]
        format: String,
    },
    /// Check every batch, index entry and side file, and say what is wrong and what to do.
    Check(check::CheckArgs),
    /// Show what stands in segment, index and state files, in the lines of Kafka's dump tool.
    Dump(dump::DumpArgs),
    /// Cut the torn tail, make indexes anew, finish what was interrupted.
    Recover(recover::RecoverArgs),
    /// Keep only the latest record of each key, by Kafka's rules.
    Compact(targets::TakeArgs),
    /// Remove old segments, by Kafka's rules of age, size and log start offset.
    Retain(targets::TakeArgs),
    /// Print what a shell needs to complete commands and options.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page in the format of man(1): offsetfs man | man -l -.
    Man {
        /// A command; without it the page of the program.
        command: Option<String>,
    },
}

#[derive(Debug, Args)]
struct SourceArgs {
    /// The partition directory.
    source: PathBuf,
    /// Settings under Kafka's names, and options: name=value,name,...
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
}

#[derive(Clone, Debug, Args)]
struct MountArgs {
    /// The partition directory.
    source: PathBuf,
    /// Where the tree shall appear: an empty directory outside the source.
    mountpoint: PathBuf,
    /// Settings under Kafka's names, and options: name=value,name,...
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground.
    #[arg(short, long)]
    foreground: bool,
    /// Make the partition if it is missing.
    #[arg(long)]
    create: bool,
    /// Write although the directory belongs to a broker, which must be stopped.
    #[arg(long)]
    take_over: bool,
    /// Started by the foreground process, which waits for a word on standard output.
    #[arg(long, hide = true)]
    background: bool,
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let outcome = match mount::helper_arguments(&arguments) {
        Some(Ok(helper)) => mount::run_helper(helper),
        Some(Err(failure)) => Err(Failure { exit: Exit::MountFailed, ..failure }),
        None => match Cli::try_parse_from(&arguments) {
            Ok(cli) => run(cli.command),
            Err(error) => {
                // Help and version are no failure; clap knows which stream they belong on.
                let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
                let _ = error.print();
                return ExitCode::from(exit as u8);
            }
        },
    };
    match outcome {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => {
            // Nothing can be done where even that cannot be written.
            let _ = writeln!(std::io::stderr(), "offsetfs: {}", tame(&failure.message));
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn run(command: Command) -> Outcome {
    let outcome = match command {
        Command::Mount(args) => return mount::run(args),
        Command::Umount { mountpoint, lazy } => return mount::unmount(&mountpoint, lazy),
        Command::Ls { source, path, long } => tree::ls(&source, &path, long),
        Command::Cat { source, paths, pretty } => tree::cat(&source, &paths, pretty),
        Command::Tail(args) => tail::run(&args),
        Command::Stat { source, sizes: true, json, .. } => sizes::run(&source, json),
        Command::Stat { source, path, .. } => tree::stat(&source, path.as_deref()),
        Command::Check(args) => check::run(&args),
        Command::Dump(args) => dump::command(&args),
        Command::Recover(args) => recover::run(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Retain(args) => retain::run(&args),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { command } => manual::man(command.as_deref()),
        Command::Append { source, create, take_over, format } => tree::append(&source, create, take_over, &format),
    };
    match outcome {
        // A reader that has seen enough is no failure.
        Err(failure) if failure.message == tree::BROKEN_PIPE => Ok(Exit::Done),
        outcome => outcome,
    }
}

/// A text for a terminal: whatever a name on the disk holds, it begins no line and moves no cursor.
fn tame(text: &str) -> String {
    String::from_utf8_lossy(&tame_bytes(text.as_bytes())).into_owned()
}

/// The same for a name that may be no text.
fn tame_bytes(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &byte in name {
        if byte.is_ascii_control() { out.extend(byte.escape_ascii()) } else { out.push(byte) }
    }
    out
}
