//! How a mount begins: in the background, as mount(8) calls it, with which mode and owner.

use super::mounted::Mounted;
use super::{offsetfs, said};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The options of the mount at a path, or nothing where there is none, out of `/proc/self/mounts`.
fn mounted_with(point: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == point.to_str() && line.contains(" fuse.offsetfs "))?;
    line.split(' ').nth(3).map(str::to_owned)
}

/// Waits until the log can be locked again, as it can once its daemon has ended.
fn until_closed(source: &Path) {
    let begin = Instant::now();
    while !offsetfs(&["append".as_ref(), source.as_os_str()]).status.success() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the daemon does not end");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Makes a partition with a record.
fn make(source: &Path) {
    Mounted::new(source, &["--create"]).sh("echo first > append");
}

fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().canonicalize().expect("a path without links");
    let (source, point) = (root.join("demo-0"), root.join("mnt"));
    fs::create_dir(&point).expect("a new folder");
    (folder, source, point)
}

#[test]
fn the_command_returns_when_the_mount_answers() {
    let (_folder, source, point) = place();
    let log = source.with_file_name("log");
    let options = format!("log={}", log.display());
    let arguments: [&OsStr; 6] =
        ["mount".as_ref(), "--create".as_ref(), "-o".as_ref(), options.as_ref(), source.as_os_str(), point.as_os_str()];
    let output = offsetfs(&arguments);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "");
    let hello = Command::new("sh").args(["-c", "echo hello > append"]).current_dir(&point).status();
    assert!(hello.expect("sh can be started").success(), "it answers at once");
    let options = mounted_with(&point).expect("it is mounted");
    for option in ["rw", "nosuid", "nodev", "noexec"] {
        assert!(options.split(',').any(|given| given == option), "{option} is not in {options}");
    }
    let output = offsetfs(&["umount".as_ref(), point.as_os_str()]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(mounted_with(&point), None);
    until_closed(&source);
    assert!(log.exists(), "the log was opened");
    let index = fs::metadata(source.join("00000000000000000000.index")).expect("the index");
    assert_eq!(index.len(), 0, "a clean end trims the indexes");
}

#[test]
fn a_mount_that_is_made_read_only_says_so() {
    let (_folder, source, point) = place();
    make(&source);
    fs::write(source.with_file_name("meta.properties"), "version=1\n").expect("a file");
    let output = offsetfs(&["mount".as_ref(), source.as_os_str(), point.as_os_str()]);
    assert!(output.status.success());
    let options = mounted_with(&point);
    offsetfs(&["umount".as_ref(), point.as_os_str()]);
    assert!(options.expect("it is mounted").starts_with("ro,"));
    assert!(said(&output).contains("mounted read-only") && said(&output).contains("meta.properties"), "{}", said(&output));
}

#[test]
fn it_takes_the_arguments_of_mount() {
    let (_folder, source, point) = place();
    make(&source);
    let helper = source.with_file_name("mount.offsetfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_offsetfs"), &helper).expect("a link");
    let run = |program: &Path, arguments: &[&str]| {
        let arguments = arguments.iter().map(|argument| match *argument {
            "SOURCE" => source.as_os_str(),
            "MNT" => point.as_os_str(),
            other => OsStr::new(other),
        });
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("it can be started");
        let mode = mounted_with(&point).map(|options| options[..2].to_owned());
        if mode.is_some() {
            offsetfs(&["umount".as_ref(), point.as_os_str()]);
            until_closed(&source);
        }
        (output.status.code(), mode, said(&output))
    };
    let itself = Path::new(env!("CARGO_BIN_EXE_offsetfs"));
    let fstab = "rw,defaults,nofail,noauto,_netdev,user,x-systemd.automount,x-gvfs-show,dev,suid,exec,atime,relatime,nodev,nosuid,noexec";
    for (program, arguments, mode) in [
        (&*helper, &["SOURCE", "MNT"][..], Some("rw")),
        (&helper, &["SOURCE", "MNT", "-o", "ro"], Some("ro")),
        (&helper, &["SOURCE", "MNT", "-sn", "-v", "-o", fstab], Some("rw")),
        (&helper, &["SOURCE", "MNT", "-f"], None),
        (&helper, &["-o", "ro", "SOURCE", "MNT"], Some("ro")),
        (itself, &["SOURCE", "MNT", "-o", "ro"], Some("ro")),
        (itself, &["SOURCE", "MNT", "-n", "-o", "rw"], Some("rw")),
    ] {
        let (code, found, words) = run(program, arguments);
        assert_eq!((code, found.as_deref()), (Some(0), mode), "{arguments:?}: {words}");
    }
    for (arguments, part) in [
        (&["SOURCE"][..], "usage: mount.offsetfs SOURCE MOUNTPOINT"),
        (&["SOURCE", "MNT", "-q"], "-q is not known"),
        (&["SOURCE", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["/nowhere/at/all-0", "MNT"], "there is no such directory"),
        (&["SOURCE", "MNT", "-o", "frobnicate"], "there is no such option"),
        (&["SOURCE", "SOURCE"], "lie one in the other"),
    ] {
        let (code, mode, words) = run(&helper, arguments);
        assert_eq!((code, mode), (Some(32), None), "{arguments:?}: {words}");
        assert!(words.contains(part), "{words}");
    }
}

#[test]
fn modes_and_owner_are_those_of_the_source() {
    let (_folder, source, _) = place();
    make(&source);
    fs::set_permissions(&source, std::os::unix::fs::PermissionsExt::from_mode(0o750)).expect("a mode");
    let m = Mounted::new(&source, &[]);
    m.sh("echo x > append");
    let of = |path: &str| fs::metadata(m.at(path)).expect(path).mode() & 0o7777;
    assert_eq!((of("append") & 0o007, of("by-offset") & 0o007, of("by-offset/0") & 0o007), (0, 0, 0), "others may do nothing");
    assert_eq!(of("by-offset/0") & 0o222, 0, "records are read-only");
    drop(m);
    let m = Mounted::new(&source, &["-o", "uid=12,gid=34,umask=027"]);
    let metadata = fs::metadata(m.at("by-offset/0")).expect("a record");
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (12, 34, 0o440));
}

#[test]
fn looking_touches_nothing() {
    let (_folder, source, _) = place();
    let first = Mounted::new(&source, &["--create", "-o", "segment.bytes=2000"]);
    first.sh("seq 1000 > append");
    drop(first);
    let state = || {
        let mut files: Vec<_> = fs::read_dir(&source).expect("the source").map(|entry| entry.expect("an entry").path()).collect();
        files.push(source.clone());
        files.sort();
        let look = |path: &PathBuf| {
            let metadata = fs::metadata(path).expect("a file");
            (path.clone(), metadata.len(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec(), metadata.ino())
        };
        files.iter().map(look).collect::<Vec<_>>()
    };
    let before = state();
    for options in ["ro", "rw"] {
        let m = Mounted::new(&source, &["-o", options]);
        m.sh("ls -lR . > /dev/null; cat by-offset/earliest..latest decoded/*.jsonl segments/* status* config README errors > /dev/null; : >> append || true");
        assert_eq!(m.text("by-offset/500"), "501");
        drop(m);
        assert_eq!(state(), before, "{options}");
    }
}
