//! `mount` and `umount`: the plan of a mount, the process in the background, and mount(8)'s way of calling.

use super::options::Options;
use super::{Exit, Failure, MountArgs, Outcome};
use crate::fuse::{self, MountConfig, MountError};
use crate::io::FileSystem;
use crate::io::os::OsFileSystem;
use crate::io::process;
use crate::source::access::Wish;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// What the background process says on its standard output once the mount answers.
const READY: &str = "mounted";

/// Arguments in the manner of mount(8), where the process was called in that way: as `mount.offsetfs`, or with a path in the place of a command.
pub(super) fn helper_arguments(arguments: &[OsString]) -> Option<Result<Option<MountArgs>, Failure>> {
    let called = arguments.first().map(PathBuf::from)?;
    let as_helper = called.file_name().is_some_and(|n| n.to_string_lossy().starts_with("mount."));
    let first = arguments.get(1)?.to_string_lossy().into_owned();
    let is_path = first.contains('/') && !first.starts_with('-');
    if !as_helper && !is_path {
        return None;
    }
    Some(parse_helper(&arguments[1..]))
}

fn parse_helper(arguments: &[OsString]) -> Result<Option<MountArgs>, Failure> {
    let usage =
        |message: &str| Failure::new(Exit::Usage, format!("{message}; usage: mount.offsetfs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS]"));
    let (mut paths, mut options, mut fake) = (Vec::new(), Vec::new(), false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_string_lossy().as_ref() {
            "-o" => options.push(rest.next().ok_or_else(|| usage("-o needs options"))?.to_string_lossy().into_owned()),
            "-t" => {
                rest.next();
            }
            flags if flags.len() > 1 && flags.starts_with('-') => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        's' | 'n' | 'v' => {}
                        'f' => fake = true,
                        other => return Err(usage(&format!("-{other} is not known"))),
                    }
                }
            }
            _ => paths.push(PathBuf::from(argument)),
        }
    }
    let mut paths = paths.into_iter();
    match (paths.next(), paths.next(), paths.next()) {
        (Some(_), Some(_), None) if fake => Ok(None),
        (Some(source), Some(mountpoint), None) => {
            Ok(Some(MountArgs { source, mountpoint, options, foreground: false, create: false, take_over: false, background: false }))
        }
        _ => Err(usage("it takes a source and a mountpoint")),
    }
}

/// Mounts as mount(8) asks; whatever fails is exit status 32.
pub(super) fn run_helper(args: Option<MountArgs>) -> Outcome {
    let Some(args) = args else { return Ok(Exit::Done) };
    run(args).map_err(|failure| Failure { exit: Exit::MountFailed, ..failure })
}

/// Mounts, in the foreground or in a process of its own that goes on when this one ends.
pub(super) fn run(args: MountArgs) -> Outcome {
    let options = Options::parse(&args.options).map_err(|e| Failure::new(Exit::Usage, e))?;
    if args.foreground || args.background { serve(&args, options) } else { start_background(&args) }
}

/// Starts the same mount in the background and waits for its word.
fn start_background(args: &MountArgs) -> Outcome {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg("mount").arg("--background").arg(&args.source).arg(&args.mountpoint);
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    for (given, flag) in [(args.create, "--create"), (args.take_over, "--take-over")] {
        if given {
            command.arg(flag);
        }
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            if line == READY {
                return Ok(Exit::Done);
            }
            // Nothing can be done where even that cannot be written.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    let status = child.wait()?;
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut said)?;
    }
    let said = said.trim_end();
    let message = said.strip_prefix("offsetfs: ").unwrap_or(said);
    let exit = match status.code() {
        Some(1) => Exit::No,
        Some(2) => Exit::Usage,
        _ => Exit::Io,
    };
    let message =
        if message.is_empty() { format!("the background process ended before the mount answered ({status})") } else { message.to_owned() };
    Err(Failure::new(exit, message))
}

/// Serves the mount until it is unmounted.
fn serve(args: &MountArgs, options: Options) -> Outcome {
    // Every thread inherits the mask: only the one that waits for signals may get them.
    fuse::block_signals()?;
    process::return_large_blocks();
    let source = canonical(&args.source)?;
    let mountpoint = args.mountpoint.canonicalize().unwrap_or_else(|_| args.mountpoint.clone());
    let wish = if args.take_over { Wish::TakeOver } else { options.wish };
    let mut config = MountConfig {
        source: source.clone(),
        mountpoint,
        read_only: wish == Wish::ReadOnly,
        allow_other: options.allow_other,
        uid: options.uid,
        gid: options.gid,
        umask: options.umask,
        threads: options.threads,
        passthrough: options.passthrough,
    };
    fuse::check(&config).map_err(|e| Failure::new(Exit::No, e.to_string()))?;
    start_log(args, &options)?;
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let (tree, read_only) = super::tree::plant(&fs, &source, &Options { wish, ..options.clone() }, args.create)?;
    if let (Some(reason), false) = (read_only, wish == Wish::ReadOnly) {
        config.read_only = true;
        let line = format!("offsetfs: mounted read-only: {reason}");
        // In the background the starter has the terminal, and passes on what is said before the word. Who does not listen misses a line.
        let _ = if args.background { writeln!(std::io::stdout(), "{line}") } else { writeln!(std::io::stderr(), "{line}") };
        log::warn!("mounted read-only: {reason}");
    }
    let background = args.background;
    let ready = move || {
        if background {
            let mut out = std::io::stdout();
            // The starter may be gone; the mount goes on without it.
            let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
            if let Err(error) = process::leave_session().and_then(|()| process::silence()).and_then(|()| std::env::set_current_dir("/")) {
                log::warn!("going into the background: {error}");
            }
        }
    };
    fuse::mount(config, Arc::new(tree), ready).map_err(|error| {
        let exit = if matches!(error, MountError::Close(_)) { Exit::Io } else { Exit::No };
        Failure::new(exit, error.to_string())
    })?;
    Ok(Exit::Done)
}

/// The source's path without links; what is to be created has a parent that exists.
fn canonical(source: &Path) -> Result<PathBuf, Failure> {
    if let Ok(path) = source.canonicalize() {
        return Ok(path);
    }
    let absolute = std::path::absolute(source)?;
    match (absolute.parent().map(Path::canonicalize), absolute.file_name()) {
        (Some(Ok(parent)), Some(name)) => Ok(parent.join(name)),
        _ => Ok(absolute),
    }
}

/// Sends the messages of the log to standard error, or to the file of `-o log=`.
fn start_log(args: &MountArgs, options: &Options) -> Result<(), Failure> {
    let mut logger = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn,fuser=off"));
    match &options.log {
        Some(path) => {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|e| Failure::new(Exit::Io, format!("-o log={}: {e}", path.display())))?;
            logger.target(env_logger::Target::Pipe(Box::new(file)));
        }
        // In the background nobody would see it.
        None if args.background => return Ok(()),
        None => {}
    }
    // A second start in one process (a test) keeps the first logger.
    let _ = logger.try_init();
    Ok(())
}

/// Unmounts.
pub(super) fn unmount(mountpoint: &Path, lazy: bool) -> Outcome {
    fuse::unmount(mountpoint, lazy).map_err(|e| Failure::new(Exit::No, e.to_string()))?;
    Ok(Exit::Done)
}
