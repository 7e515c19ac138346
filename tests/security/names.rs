//! Names and paths that a terminal, a mount table or an option parser could take for something else.

use crate::mounted::Mounted;
use crate::{PartitionDir, batch, demo, offsetfs, said};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A name that clears a terminal, goes on in another line, and is no UTF-8.
const EVIL: &[u8] = b"evil\x1b[2J\nERROR forged\x07\xff\x9b";

/// No control character but the newline at the end of a line, and no line that an entry's name has begun.
fn is_tame(what: &str, text: &[u8]) {
    let bad = text.iter().position(|&byte| byte != b'\n' && byte != b'\t' && (byte < 0x20 || byte == 0x7F));
    assert_eq!(bad, None, "{what}: {}", text.escape_ascii());
    assert!(!text.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"ERROR forged")), "{what}: {}", text.escape_ascii());
}

pub(crate) fn control_characters_in_names() {
    // In a partition's directory, in a data directory, as a topic, and in a value that a listing does not show.
    let evil = OsStr::from_bytes(EVIL);
    let source = demo();
    let with = |suffix: &str| {
        let mut name = evil.to_owned();
        name.push(suffix);
        name
    };
    for suffix in ["", ".log", ".index", "-0"] {
        fs::create_dir(source.parent().join(with(suffix))).expect("a folder");
        fs::write(source.path().join(with(suffix)), "x").expect("a file");
    }
    let partition = source.parent().join(with("-7"));
    fs::create_dir(&partition).expect("a folder");
    fs::write(partition.join("00000000000000000000.log"), batch(0, &["v"])).expect("a file");
    let torn = [batch(0, &["v"]), batch(1, &["w"])[..60].to_vec()].concat();
    fs::write(partition.join("00000000000000000001.log"), torn).expect("a file");
    let log = source.parent().join("said.log");
    let option = format!("log={}", log.display());

    for place in [source.path(), source.parent(), &partition] {
        let m = Mounted::new(place, &["-o", &option]);
        for file in ["errors", "status", "status.json", "metrics", "config", "check", "README"] {
            if m.at(file).exists() {
                is_tame(file, &fs::read(m.at(file)).expect("a text"));
            }
        }
        for name in [EVIL, b"by-offset/\x1b[2J", b"by-time/1\n2", b"\x1b]0;title\x07"] {
            fs::read(m.at("").join(OsStr::from_bytes(name))).expect_err("no such file");
        }
        is_tame("errors", &fs::read(m.at("errors")).expect("a text"));
        m.sh("find . -name append -exec sh -c 'echo x >> \"$1\"' _ {} \\; 2>/dev/null || true");
        is_tame("errors", &fs::read(m.at("errors")).expect("a text"));
    }
    is_tame("the log", &fs::read(&log).unwrap_or_default());

    for place in [source.path(), source.parent(), &partition] {
        for arguments in [
            vec!["ls".as_ref(), place],
            vec!["ls".as_ref(), "-l".as_ref(), place],
            vec!["ls".as_ref(), place, Path::new("segments")],
            vec!["ls".as_ref(), place, Path::new("+files")],
            vec!["stat".as_ref(), place],
            vec!["cat".as_ref(), place, Path::new("errors")],
            vec!["cat".as_ref(), place, Path::new(evil)],
            vec!["check".as_ref(), place],
            vec!["check".as_ref(), "--json".as_ref(), place],
            vec!["recover".as_ref(), "--dry-run".as_ref(), place],
            vec!["recover".as_ref(), place],
            vec!["mount".as_ref(), place, Path::new(evil)],
            vec!["umount".as_ref(), Path::new(evil)],
        ] {
            let output = offsetfs(&arguments);
            let shown: Vec<String> = arguments.iter().map(|argument| argument.as_os_str().as_bytes().escape_ascii().to_string()).collect();
            is_tame(&shown.join(" "), &[output.stdout, output.stderr].concat());
        }
    }
}

/// What a mount looks like from outside.
fn mounted_at(point: &Path) -> String {
    let output = Command::new("findmnt").args(["-n", "-o", "FSTYPE,OPTIONS", "--mountpoint"]).arg(point).output().expect("util-linux");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Mounts, appends, reads and unmounts with paths of odd names; what the mount table says.
fn round_trip(folder: &Path, source: &str, point: &str) -> String {
    let (source, point): (PathBuf, PathBuf) = (folder.join(source), folder.join(point));
    fs::create_dir_all(&point).expect("a new folder");
    let output = offsetfs(&["mount".as_ref(), "--create".as_ref(), &source, &point]);
    assert!(output.status.success(), "{}", said(&output));
    let told = mounted_at(&point);
    let text = fs::write(point.join("append"), "hello\n").and_then(|()| fs::read(point.join("by-offset/last")));
    let output = offsetfs(&["umount".as_ref(), &point]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(text.expect("the record"), b"hello");
    assert_eq!(mounted_at(&point), "", "the mount is gone");
    told
}

pub(crate) fn commas_in_paths() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (source, point) in [("a,b-0", "m,n"), ("back\\slash,-0", "back\\,slash"), ("blank and tab\t-0", "m n\t"), ("new\nline-0", "m\nn")] {
        assert!(round_trip(folder.path(), source, point).contains("fuse.offsetfs"), "{source:?}");
    }
}

pub(crate) fn options_in_paths() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for source in ["x,allow_other-0", "x,suid,dev,exec-0", "x,user_id=65534-0", "x,fd=0-0"] {
        let told = round_trip(folder.path(), source, "mnt,allow_other,suid");
        assert!(!told.contains("allow_other") && told.contains("nosuid,nodev,noexec") && told.contains("user_id=0"), "{source}: {told}");
    }
    // An option's value brings in no other one, and those that would weaken the mount are not known.
    let source = demo();
    let point = folder.path().join("mnt");
    fs::create_dir(&point).expect("a new folder");
    for options in ["fsname=x", "subtype=y", "allow_root", "fd=3", "rootmode=0", "user_id=0", "tz=UTC\u{0}suid", "blkdev", "log"] {
        let Ok(output) =
            Command::new(env!("CARGO_BIN_EXE_offsetfs")).args(["mount", "-o", options]).arg(source.path()).arg(&point).output()
        else {
            continue; // A NUL cannot be passed at all.
        };
        assert_eq!(output.status.code(), Some(2), "-o {options}: {}", said(&output));
    }
    let m = Mounted::new(source.path(), &["-o", "suid,dev,exec,defaults,user"]);
    let told = mounted_at(&m.at(""));
    assert!(told.contains("nosuid,nodev,noexec") && !told.contains("allow_other"), "{told}");
    // A value that looks like an option stays a value: mount(8)'s way of calling passes it on whole.
    let dir = PartitionDir::new("-o,ro-0");
    dir.segment(0, &batch(0, &["a"]), &[], &[]);
    let m = Mounted::new(dir.path(), &["--"]);
    m.sh("echo b >> append");
    assert_eq!(m.text("by-offset/earliest..latest"), "a\nb\n");
}
