//! The built program, mounting a source for as long as a test needs it.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a mount may take to answer, and a daemon to end, before the test fails. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mount at a folder of its own, served in the foreground by a child of the test. Dropping it unmounts, whatever is still open.
#[derive(Debug)]
pub(crate) struct Mounted {
    folder: tempfile::TempDir,
    /// The process that serves it.
    pub(crate) daemon: Child,
}

impl Mounted {
    /// Mounts a source; `arguments` are those of `offsetfs mount` that stand before the source.
    ///
    /// # Panics
    /// Where nothing is mounted, with what the program said: a machine without `/dev/fuse` fails here.
    pub(crate) fn new(source: &Path, arguments: &[&str]) -> Mounted {
        Mounted::under(&[], source, arguments)
    }

    /// The same with the program started by another one, which passes on its process: `prlimit`, for example.
    ///
    /// # Panics
    /// As [`Mounted::new`].
    pub(crate) fn under(starter: &[&str], source: &Path, arguments: &[&str]) -> Mounted {
        let words = [starter, &[env!("CARGO_BIN_EXE_offsetfs")]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let point = folder.path().join("mnt");
        fs::create_dir(&point).expect("a new folder");
        command.arg("mount").arg("-f").args(arguments).arg(source).arg(&point);
        let daemon = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("offsetfs can be started");
        let mut mounted = Mounted { folder, daemon };
        let begin = Instant::now();
        while fs::metadata(mounted.at("status")).is_err() {
            if let Some(status) = mounted.daemon.try_wait().expect("the child can be asked") {
                let mut said = String::new();
                let stderr = mounted.daemon.stderr.as_mut().expect("a pipe");
                stderr.read_to_string(&mut said).expect("its errors are text");
                panic!("{} was not mounted ({status}): {said}", source.display());
            }
            assert!(begin.elapsed() < PATIENCE, "the mount of {} does not answer", source.display());
            thread::sleep(Duration::from_millis(5));
        }
        mounted
    }

    /// A path in the tree.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("mnt").join(path)
    }

    /// A file of the tree, whole.
    ///
    /// # Panics
    /// Where it cannot be read, or is no text.
    pub(crate) fn text(&self, path: &str) -> String {
        let bytes = fs::read(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.errors()));
        String::from_utf8(bytes).unwrap_or_else(|_| panic!("{path} is no text"))
    }

    /// What bash prints that runs a script in the root of the tree.
    ///
    /// # Panics
    /// Where the script fails.
    pub(crate) fn sh(&self, script: &str) -> String {
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-ec", script]).current_dir(self.at("")).env("LC_ALL", "C").env("TZ", "UTC");
        let output = command.stdin(Stdio::null()).output().expect("bash can be started");
        let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}\n{}: {out}{said}{}", output.status, self.errors());
        out.into_owned()
    }

    /// What the tree says of its last refusals, for the message of a failed test.
    fn errors(&self) -> String {
        fs::read_to_string(self.at("errors")).unwrap_or_default()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It may be unmounted already, and a failing test must not panic twice: what is left over is the next line's task.
        let point = self.at("");
        let _ = Command::new(env!("CARGO_BIN_EXE_offsetfs")).args(["umount", "-l"]).arg(point).stderr(Stdio::null()).status();
        let begin = Instant::now();
        while let Ok(None) = self.daemon.try_wait() {
            if begin.elapsed() > PATIENCE {
                let _ = self.daemon.kill();
                let _ = self.daemon.wait();
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}
