//! P30, P33 to P37 and P44 to P46: what lasts. P31 and P32 need root and stand in `tests/load.rs`.

use super::common::encode::Batch;
use super::common::partition::PartitionDir;
use super::mounted::Mounted;
use super::{LOG, T0, errno, fresh, soon};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Everything that can be seen of the files of a directory without opening them, and of itself.
fn state(dir: &Path) -> Vec<(String, u64, i64, i64, i64, u64, u32)> {
    let mut all: Vec<_> = fs::read_dir(dir).expect("the source").map(|entry| entry.expect("an entry").path()).collect();
    all.push(dir.to_owned());
    all.sort();
    let look = |path: &std::path::PathBuf| {
        let m = fs::metadata(path).expect("a file");
        (path.display().to_string(), m.len(), m.mtime_nsec(), m.ctime(), m.ctime_nsec(), m.ino(), m.mode())
    };
    all.iter().map(look).collect()
}

#[test]
fn p30_a_killed_daemon_loses_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("demo-0");
    let mut expected = String::new();
    for round in 0..5 {
        let mut m = Mounted::new(&source, &["--create", "-o", "segment.bytes=5000"]);
        assert_eq!(m.text("by-offset/earliest..latest"), expected, "round {round}");
        m.sh(&format!("for n in $(seq 100); do echo {round} $n > append; done"));
        kill_process(Pid::from_child(&m.daemon), Signal::KILL).expect("it lives");
        m.daemon.wait().expect("it ends");
        assert_eq!(errno(fs::metadata(m.at("status"))), libc::ENOTCONN, "the mount is dead");
        expected.extend((1..=100).map(|n| format!("{round} {n}\n")));
    }
}

#[test]
fn p33_a_torn_tail_is_told_then_cut_and_kept() {
    let whole = [Batch::plain(0, 5, T0).encode(), Batch::plain(5, 5, T0).encode()].concat();
    let torn = &Batch::plain(10, 5, T0).encode()[..100];
    let dir = PartitionDir::new("demo-0");
    dir.segment(0, &[&whole, torn].concat(), &[], &[]);
    // The records are old: without this the append would go into a new segment.
    let m = Mounted::new(dir.path(), &["-o", "segment.ms=9223372036854775807"]);
    let told = m.text("status").lines().find(|line| line.starts_with("recovery: ")).expect("a line").to_owned();
    assert!(told.contains(LOG) && told.contains(&whole.len().to_string()) && told.contains("100"), "{told}");
    assert_eq!(m.text("by-offset/earliest..latest").lines().count(), 10);
    assert_eq!(fs::metadata(dir.path().join(LOG)).expect("the log").len(), whole.len() as u64 + 100);
    m.sh("echo next > append");
    assert_eq!(m.text("by-offset/10"), "next");
    assert_eq!(fs::read(dir.path().join(format!("{LOG}.cut-{}", whole.len()))).expect("what was cut"), torn);
    let log = fs::read(dir.path().join(LOG)).expect("the log");
    assert!(log.starts_with(&whole) && log[whole.len()..].starts_with(&10_i64.to_be_bytes()));
}

#[test]
fn p34_damage_in_the_middle_is_not_cut() {
    let batches = [0, 5, 10].map(|base| Batch::plain(base, 5, T0).encode());
    let mut log = batches.concat();
    log[batches[0].len() + 65] ^= 1;
    let dir = PartitionDir::new("demo-0");
    dir.segment(0, &log, &[], &[]);
    let m = Mounted::new(dir.path(), &[]);
    m.sh("echo next > append; sync append");
    assert_eq!(
        (m.text("by-offset/15"), m.text("by-offset/14"), m.text("by-offset/4")),
        ("next".to_owned(), "v14".to_owned(), "v4".to_owned())
    );
    assert_eq!(errno(fs::read(m.at("by-offset/7"))), libc::EIO);
    assert!(fs::read(dir.path().join(LOG)).expect("the log").starts_with(&log), "the damaged bytes are where they were");
}

#[test]
fn p35_looking_changes_nothing() {
    let (folder, m) = fresh("segment.bytes=2000");
    m.sh("seq 500 > append");
    drop(m);
    let source = folder.path().join("demo-0");
    let before = state(&source);
    for options in ["rw", "ro"] {
        let m = Mounted::new(&source, &["-o", options]);
        m.sh("ls -lR . > /dev/null; cat by-offset/earliest..latest decoded/*.jsonl segments/* status* config README errors > /dev/null; cat by-time/today.. > /dev/null");
        drop(m);
        assert_eq!(state(&source), before, "{options}");
    }
    fs::rename(source.join("00000000000000000000.timeindex"), folder.path().join("kept")).expect("an index goes");
    let before = state(&source);
    let m = Mounted::new(&source, &["-o", "ro"]);
    assert_eq!(m.text("by-offset/earliest..latest").lines().count(), 500);
    assert!(m.sh("! { echo x > append; } 2>&1").contains("Read-only file system"));
    drop(m);
    assert_eq!(state(&source), before, "a read-only mount makes no index");
}

#[test]
fn p36_one_writer() {
    let (folder, m) = fresh("tz=UTC");
    m.sh("echo a > append");
    let source = folder.path().join("demo-0");
    let output = Command::new(env!("CARGO_BIN_EXE_offsetfs")).arg("append").arg(&source).output().expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains(&format!("process {} ", m.daemon.id())) && said.contains("-o ro"), "{said}");
    let readers = [0; 3].map(|_| Mounted::new(&source, &["-o", "ro"]));
    m.sh("echo b > append");
    for reader in &readers {
        soon("the record", || reader.at("by-offset/1").exists());
        assert_eq!(reader.text("by-offset/earliest..latest"), "a\nb\n");
    }
}

#[test]
fn p37_a_signal_ends_it_well() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (folder, mut m) = fresh("tz=UTC");
        m.sh("seq 100 > append");
        let mut holder = Command::new("bash");
        let script = "exec 3>>append 4<by-offset/3 5<follow; printf begun >&3; touch \"$0\"; sleep 1000 & read -r line <&5; kill $!";
        let ready = folder.path().join("ready");
        let mut holder = holder.args(["-c", script]).arg(&ready).current_dir(m.at("")).spawn().expect("bash can be started");
        soon("it has them open", || ready.exists());
        kill_process(Pid::from_child(&m.daemon), signal).expect("it lives");
        soon("the daemon ends", || m.daemon.try_wait().expect("the child").is_some());
        assert_eq!(m.daemon.wait().expect("its status").code(), Some(0), "{signal:?}");
        assert_eq!(errno(fs::metadata(m.at("status"))), libc::ENOENT, "{signal:?}: the mount is gone");
        holder.wait().expect("its read of follow has ended");
        let source = folder.path().join("demo-0");
        assert!(fs::metadata(source.join("00000000000000000000.index")).expect("an index").len() < 4096, "{signal:?}: trimmed");
        assert_eq!(Mounted::new(&source, &["-o", "ro"]).text("by-offset/last"), "begun", "{signal:?}");
    }
}

#[test]
fn p44_nothing_goes_unless_it_was_told_to() {
    let old = |base: i64| Batch::plain(base, 5, T0 + base).encode();
    let dir = PartitionDir::new("demo-0");
    dir.segment(0, &old(0), &[], &[]);
    dir.segment(5, &old(5), &[], &[]);
    // Tried at once and every 50 ms, where it is tried at all.
    let often = "log.retention.check.interval.ms=50,retention.ms=1,retention.bytes=0";
    let m = Mounted::new(dir.path(), &["-o", often]);
    assert!(m.text("status").contains("retention: segments 2, bytes 240, log_start_offset 10, automatic false"), "{}", m.text("status"));
    m.sh("echo new > append");
    soon("a record", || m.text("by-offset/earliest..").ends_with("new\n"));
    assert_eq!(m.text("by-offset/earliest..").lines().count(), 11);
    drop(m);
    let m = Mounted::new(dir.path(), &["-o", &format!("maintenance=on,{often}")]);
    soon("an empty log", || m.text("status").contains("\nlog_start_offset: 11\n"));
    assert_eq!(m.text("by-offset/earliest.."), "");
}

#[test]
fn p45_a_compaction_keeps_the_last_record_of_every_key_under_its_offset() {
    let keyed = "cleanup.policy=compact,by-key=rw,log.cleaner.backoff.ms=50";
    let (folder, m) = fresh(keyed);
    let source = folder.path().join("demo-0");
    m.sh("cd by-key; echo 1 > a; echo 1 > b; echo 2 > a; rm b; echo without a key > ../append; echo roll > ../ctl");
    assert_eq!(m.sh("echo compact > ctl; ls by-offset | tr '\\n' ' '"), "2 3 first last ");
    assert_eq!((m.text("by-offset/2"), m.text("by-key/a")), ("2\n".to_owned(), "2\n".to_owned()));
    assert_eq!(m.sh("ls by-key"), "a\n");
    assert!(!m.at("by-offset/4").exists(), "a record without a key");
    m.sh("cd by-key; echo 3 > a; echo roll > ../ctl");
    drop(m);
    let m = Mounted::new(&source, &["-o", "cleanup.policy=delete"]);
    m.sh("! echo compact > ctl; grep -q 'cleanup.policy=compact' errors");
    assert_eq!(m.text("by-offset/2"), "2\n");
    drop(m);
    let m = Mounted::new(&source, &["-o", &format!("maintenance=on,min.cleanable.dirty.ratio=0,{keyed}")]);
    soon("a compaction", || !m.sh("ls by-offset").lines().any(|name| name == "2"));
    assert_eq!(m.text("by-key/a"), "3\n");
}

#[test]
fn p46_what_is_open_keeps_its_bytes() {
    const SETTINGS: &str = "cleanup.policy=compact,by-key=rw,file.delete.delay.ms=0,segment.bytes=1000,batch.size=1";
    for takes in ["retain", "delete-before 6", "compact"] {
        let (folder, m) = fresh(
            &SETTINGS.replace("compact,by-key", if takes == "retain" { "delete,retention.bytes=0,by-key" } else { "compact,by-key" }),
        );
        for n in 0..6 {
            m.sh(&format!("echo {n} > by-key/k"));
        }
        m.sh("echo roll > ctl; echo z > by-key/z");
        // Opened, and not read: nothing of it is in the page cache.
        let mut open: Vec<(&str, fs::File, String)> = Vec::new();
        for (name, whole) in [("1", "1\n"), ("2.key", "k"), ("3.json", ""), ("0..5", "0\n\n1\n\n2\n\n3\n\n4\n\n"), ("4.batch", "")] {
            let file = fs::File::open(m.at("by-offset").join(name)).expect(name);
            open.push((name, file, whole.to_owned()));
        }
        let log = fs::read(folder.path().join("demo-0").join(LOG)).expect("the log");
        m.sh(&format!("echo {takes} > ctl"));
        assert!(!m.sh("ls by-offset").lines().any(|name| name == "1"), "{takes}");
        for (name, file, whole) in &mut open {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap_or_else(|error| panic!("{takes} {name}: {error}"));
            match *name {
                "3.json" => assert!(String::from_utf8_lossy(&bytes).contains("\"offset\":3,"), "{takes}"),
                "4.batch" => assert!(!bytes.is_empty() && log.windows(bytes.len()).any(|window| window == bytes), "{takes}"),
                _ => assert_eq!(String::from_utf8_lossy(&bytes), *whole, "{takes} {name}"),
            }
        }
        drop(open);
        soon("who comes later finds nothing", || fs::read(m.at("by-offset/5")).is_err() || takes == "compact");
        assert!(fs::read(m.at("by-offset/2.json")).is_err(), "{takes}");
    }
}
