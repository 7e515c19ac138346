//! Mounts and commands that are refused, each with its own line and its exit status.

use super::mounted::Mounted;
use super::{offsetfs, said};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder with a partition `demo-0` that has three records, and an empty `mnt`.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { folder: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(place.at("mnt")).expect("a new folder");
        place.append("demo-0");
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn append(&self, name: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
        command.args(["append", "--create"]).arg(self.at(name)).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("offsetfs can be started");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), b"a\nb\nc\n").expect("it reads");
        assert!(child.wait().expect("it ends").success());
    }

    /// What a refused mount says.
    fn refused(&self, exit: i32, source: &Path, point: &Path, arguments: &[&str]) -> String {
        let mut all: Vec<&std::ffi::OsStr> = vec!["mount".as_ref()];
        all.extend(arguments.iter().map(|argument| std::ffi::OsStr::new(*argument)));
        all.extend([source.as_os_str(), point.as_os_str()]);
        let output = offsetfs(&all);
        let words = said(&output);
        if output.status.success() {
            offsetfs(&["umount".as_ref(), "-l".as_ref(), point.as_os_str()]);
        }
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {words}");
        assert!(words.starts_with("offsetfs: ") && words.lines().count() == 1, "one line: {words}");
        words
    }
}

fn has(words: &str, parts: &[&str]) {
    for part in parts {
        assert!(words.contains(part), "{part:?} is not in {words:?}");
    }
}

#[test]
fn a_source_that_is_none() {
    let place = Place::new();
    let point = place.at("mnt");
    has(&place.refused(1, &place.at("missing-0"), &point, &[]), &["missing-0", "there is no such directory", "--create"]);
    has(&place.refused(1, &place.at("no/such-0"), &point, &["--create"]), &["no/such-0"]);
    fs::write(place.at("file"), "x").expect("a file");
    has(&place.refused(1, &place.at("file"), &point, &[]), &["it is a file"]);
    has(&place.refused(1, &place.at("file"), &point, &["--create"]), &["it is a file"]);
    fs::create_dir(place.at("other")).expect("a folder");
    fs::write(place.at("other/notes.txt"), "x").expect("a file");
    has(&place.refused(1, &place.at("other"), &point, &[]), &["no partition directory", "nothing was touched"]);
    has(&place.refused(1, &place.at("other"), &point, &["--create"]), &["no partition directory"]);
    assert_eq!(fs::read_dir(place.at("other")).expect("the folder").count(), 1, "nothing was made in it");
    fs::create_dir(place.at("empty-0")).expect("a folder");
    has(&place.refused(1, &place.at("empty-0"), &point, &[]), &["it is empty", "--create"]);
}

#[test]
fn a_mountpoint_that_is_none() {
    let place = Place::new();
    let source = place.at("demo-0");
    has(&place.refused(1, &source, &place.at("nowhere"), &[]), &["nowhere"]);
    fs::write(place.at("file"), "x").expect("a file");
    has(&place.refused(1, &source, &place.at("file"), &[]), &["file", "not a directory"]);
    fs::create_dir(source.join("inside")).expect("a folder");
    has(&place.refused(1, &source, &source.join("inside"), &[]), &["lie one in the other"]);
    has(&place.refused(1, &source, &source, &[]), &["lie one in the other"]);
    has(&place.refused(1, &source, place.folder.path(), &[]), &["lie one in the other"]);
    let mounted = Mounted::new(&source, &["-o", "ro"]);
    place.append("second-0");
    has(&place.refused(1, &place.at("second-0"), &mounted.at(""), &[]), &["has a mount already", "fuse.offsetfs", "demo-0"]);
    std::os::unix::fs::symlink(source.join("inside"), place.at("link")).expect("a link");
    has(&place.refused(1, &source, &place.at("link"), &[]), &["lie one in the other"]);
}

#[test]
fn a_log_that_another_process_writes() {
    let place = Place::new();
    let source = place.at("demo-0");
    let writer = Mounted::new(&source, &[]);
    let holder = format!("process {} (offsetfs)", writer.daemon.id());
    has(&place.refused(1, &source, &place.at("mnt"), &[]), &["is in use", &holder, "-o ro"]);
    has(&place.refused(1, &source, &place.at("mnt"), &["--take-over"]), &["is in use", &holder]);
    let output = offsetfs(&["append".as_ref(), source.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    has(&said(&output), &["is in use", &holder]);
    let reader = Mounted::new(&source, &["-o", "ro"]);
    writer.sh("echo new > append");
    reader.sh("for n in $(seq 200); do test -e by-offset/3 && break; sleep 0.05; done; test $(cat by-offset/3) = new");
}

#[test]
fn a_log_that_a_live_broker_holds() {
    let place = Place::new();
    let source = place.at("demo-0");
    fs::write(place.at("meta.properties"), "version=1\n").expect("a file");
    let lock = File::create(place.at(".lock")).expect("a file");
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).expect("the broker's kind of lock");
    let words = place.refused(1, &source, &place.at("mnt"), &[]);
    has(&words, &[".lock", &std::process::id().to_string(), "-o ro"]);
    has(&place.refused(1, &source, &place.at("mnt"), &["--take-over"]), &[&std::process::id().to_string()]);
    let reader = Mounted::new(&source, &["-o", "ro"]);
    assert_eq!(reader.text("by-offset/earliest..latest"), "a\nb\nc\n");
    drop(reader);
    fcntl_lock(&lock, FlockOperation::Unlock).expect("the broker has gone");
    drop(lock);
    let reader = Mounted::new(&source, &[]);
    assert!(reader.sh("! echo x 2>&1 >> append").contains("Read-only file system"));
    has(&reader.text("status"), &["mode: ro\n", "meta.properties"]);
    drop(reader);
    let output = offsetfs(&["append".as_ref(), source.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    has(&said(&output), &["meta.properties", "--take-over"]);
    let writer = Mounted::new(&source, &["--take-over"]);
    writer.sh("echo d > append");
    assert_eq!(writer.text("by-offset/earliest..latest"), "a\nb\nc\nd\n");
}

#[test]
fn options_are_refused_with_the_nearest_name() {
    let place = Place::new();
    let (source, point) = (place.at("demo-0"), place.at("mnt"));
    for (options, parts) in [
        ("segment.byte=100", &["segment.byte:", "did you mean segment.bytes?"][..]),
        ("allow-other", &["did you mean allow_other?"]),
        ("retention.msx=1", &["there is no such option"]),
        ("segment.bytes=13", &["segment.bytes=13", "14 to 2147483647"]),
        ("segment.bytes=many", &["segment.bytes=many"]),
        ("segment.bytes", &["segment.bytes needs a value"]),
        ("compression.type=brotli", &["compression.type", "zstd"]),
        ("isolation=dirty", &["isolation", "read_committed"]),
        ("tz=Mars", &["Mars", "Europe/Berlin"]),
        ("umask=9", &["umask=9", "octal"]),
        ("uid=root", &["uid=root", "number"]),
    ] {
        has(&place.refused(2, &source, &point, &["-o", options]), parts);
        has(&said(&offsetfs(&["ls".as_ref(), "-o".as_ref(), options.as_ref(), source.as_os_str()])), parts);
    }
}

#[test]
fn a_command_line_that_is_none() {
    let place = Place::new();
    let source = place.at("demo-0").display().to_string();
    for arguments in
        [&["frobnicate"][..], &[], &["mount"], &["mount", &source], &["mount", "--frob", &source, "x"], &["cat", &source], &["umount"]]
    {
        let output = offsetfs(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains("Usage: "), "{arguments:?}: {}", said(&output));
    }
    for arguments in [["--help"], ["--version"]] {
        assert_eq!(offsetfs(&arguments).status.code(), Some(0));
    }
    for (path, exit, part) in [
        ("by-offset/9", 1, "the log ends at 3"),
        ("by-offset/+1", 1, "no sign"),
        ("nope", 1, "no such file"),
        ("by-offset", 1, "directory"),
    ] {
        let output = offsetfs(&["cat", &source, path]);
        assert_eq!(output.status.code(), Some(exit), "{path}");
        has(&said(&output), &[path, part]);
    }
    let output = offsetfs(&["umount".as_ref(), place.at("mnt").as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    has(&said(&output), &["nothing is mounted at"]);
    let output = offsetfs(&["umount", "/proc"]);
    assert_eq!(output.status.code(), Some(1));
    has(&said(&output), &["/proc is no mount of offsetfs", "proc"]);
}
