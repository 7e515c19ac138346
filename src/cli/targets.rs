//! What a command of maintenance works on: one partition directory, or each one of a data directory; and its progress bar.

use super::options::Options as TypedOptions;
use super::{Exit, Failure, Outcome};
use crate::io::os::OsFileSystem;
use crate::io::{Directory, FileSystem, Kind};
use crate::log::listing;
use crate::log::segment::OpenSegments;
use crate::log::settings::Settings;
use crate::source::access::{self, Access, Wish, parent_of};
use crate::source::data_dir::DataDir;
use crate::source::local::{Local, OPEN_SEGMENTS_MOST};
use crate::types::TopicPartition;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A partition directory.
#[derive(Debug)]
pub(super) struct Target {
    /// The name of its directory within the data directory; `None` where the source is the partition itself.
    pub(super) within: Option<String>,
    pub(super) dir: Arc<dyn Directory>,
    pub(super) parent: Option<Arc<dyn Directory>>,
    pub(super) name: TopicPartition,
}

impl Target {
    /// What it is called in the output.
    pub(super) fn label(&self) -> String {
        super::tame(&self.name.to_string())
    }

    /// What stands before a file's name in the output.
    pub(super) fn prefix(&self) -> String {
        self.within.as_ref().map_or_else(String::new, |name| format!("{name}/"))
    }
}

/// What the user typed behind a command that takes records away.
#[derive(Debug, Args)]
pub(super) struct TakeArgs {
    /// A partition directory, or a data directory.
    source: PathBuf,
    /// Say what would go, and do nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Write although the directory belongs to a broker, which must be stopped.
    #[arg(long)]
    take_over: bool,
    /// Settings under Kafka's names, such as retention.ms=1000 or cleanup.policy=compact: name=value,...
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
}

impl TakeArgs {
    /// Opens each partition, for reading if nothing is to be done, and works on it.
    pub(super) fn each(&self, mut work: impl FnMut(&Target, Local) -> Result<(), Failure>) -> Outcome {
        let typed = TypedOptions::parse(&self.options).map_err(|e| Failure::new(Exit::Usage, e))?;
        let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
        let wish = match (self.dry_run, self.take_over) {
            (true, _) => Wish::ReadOnly,
            (false, true) => Wish::TakeOver,
            (false, false) => Wish::Writable,
        };
        for target in targets(&fs, &self.source)? {
            work(&target, open(&fs, &target, wish, &typed.settings)?)?;
        }
        Ok(Exit::Done)
    }
}

/// The partitions of a source, by name.
///
/// # Errors
/// A path that leads to no partition and no data directory: [`Exit::Usage`]; what the system says.
pub(super) fn targets(fs: &Arc<dyn FileSystem>, source: &Path) -> Result<Vec<Target>, Failure> {
    let path = std::path::absolute(source)?;
    let shown = path.display();
    let dir = fs.open_dir(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::new(Exit::Usage, format!("{shown}: there is no such directory")),
        std::io::ErrorKind::NotADirectory => {
            Failure::new(Exit::Usage, format!("{shown}: it is a file; give the partition directory that it lies in"))
        }
        _ => Failure::new(Exit::Io, format!("open {shown}: {e}")),
    })?;
    if DataDir::is_data_dir(&**fs, &path) {
        let mut names: Vec<String> =
            dir.list()?.into_iter().filter(|e| e.kind == Kind::Directory).filter_map(|e| e.name.into_string().ok()).collect();
        names.sort();
        let mut found = Vec::new();
        for within in names {
            let Some(name) = TopicPartition::from_directory_name(&within) else { continue };
            let partition = dir.open_dir(OsStr::new(&within)).map_err(|e| Failure::new(Exit::Io, format!("open {shown}/{within}: {e}")))?;
            found.push(Target { within: Some(within), dir: partition, parent: Some(dir.clone()), name });
        }
        return Ok(found);
    }
    if !listing::list(&*dir)?.is_partition {
        return Err(Failure::new(Exit::Usage, format!("{shown}: it is no partition directory: no .log file in it; nothing was touched")));
    }
    let name = path.file_name().map_or_else(|| "log".into(), |n| n.to_string_lossy());
    let name = TopicPartition::from_directory_name(&name).unwrap_or(TopicPartition { topic: name.into_owned(), partition: 0 });
    Ok(vec![Target { within: None, dir, parent: parent_of(&**fs, &path), name }])
}

/// The partition of a target as a source: for reading, or with the locks of a writer where its directory may be written to.
///
/// # Errors
/// Who holds it, or why it is not to be written to: [`Exit::No`]; what the system says.
pub(super) fn open(fs: &Arc<dyn FileSystem>, target: &Target, wish: Wish, settings: &Settings) -> Result<Local, Failure> {
    let access = access::decide(&target.dir, target.parent.as_ref(), wish)?;
    if let (Access::ReadOnly(reason), false) = (&access, wish == Wish::ReadOnly) {
        return Err(Failure::new(Exit::No, reason));
    }
    let opened = Arc::new(OpenSegments::new(OPEN_SEGMENTS_MOST));
    // What is asked for is done here and now, and nothing else by itself.
    let settings = settings.clone().without_maintenance();
    Ok(Local::with_access(target.dir.clone(), target.parent.clone(), target.name.clone(), settings, fs.clock(), opened, access)?)
}

/// Does something to a target under a bar of bytes on standard error, if that is a terminal.
pub(super) fn with_bar<T>(target: &Target, work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let bar = bar();
    bar.set_message(target.label());
    let done = work(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    done
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
