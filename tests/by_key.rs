//! `by-key/` as a user sees it: a log of keys as a small store that any shell can use, and the same questions without a mount.
//!
//! The first half mounts, so it needs `/dev/fuse`, and fails where there is none.

mod common;
#[path = "common/mounted.rs"]
mod mounted;

use common::encode::{Batch, Record, indexes};
use common::partition::PartitionDir;
use mounted::Mounted;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const BEGINNING_MS: i64 = 1_700_000_000_000;

fn fresh(options: &str) -> (tempfile::TempDir, Mounted) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mounted = Mounted::new(&folder.path().join("demo-0"), &["--create", "-o", options]);
    (folder, mounted)
}

fn offsetfs(arguments: &[&str], source: &Path, behind: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    command.args(arguments).arg(source).args(behind).stdin(Stdio::null()).output().expect("offsetfs can be started")
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

/// The records of a log as `key=payload`, a tombstone as `key!`.
fn records(m: &Mounted) -> Vec<String> {
    let lines = m.text("by-offset/earliest..latest.jsonl");
    let plain = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("an envelope");
        let key = record["key"].as_str().expect("a key").to_owned();
        record["payload"].as_str().map_or(format!("{key}!"), |value| format!("{key}={value}"))
    };
    lines.lines().map(plain).collect()
}

#[test]
fn a_key_is_set_read_replaced_listed_renamed_and_removed() {
    let (_folder, m) = fresh("by-key=rw,tz=UTC");
    assert_eq!(m.sh("echo blue > by-key/sky; cat by-key/sky; cat by-key/sky.offset"), "blue\n0\n");
    assert_eq!(
        m.sh("echo grey > by-key/sky; echo green > by-key/grass; cat by-key/sky by-key/grass by-key/sky.offset"),
        "grey\ngreen\n1\n"
    );
    assert_eq!(m.sh("ls by-key"), "grass\nsky\n");
    assert_eq!(m.sh("mv by-key/sky by-key/sea; ls by-key; cat by-key/sea; test ! -e by-key/sky && echo gone"), "grass\nsea\ngrey\ngone\n");
    assert_eq!(m.sh("rm by-key/grass; ls by-key; test -e by-key/grass || echo gone"), "sea\ngone\n");
    assert_eq!(records(&m), ["sky=blue\n", "sky=grey\n", "grass=green\n", "sea=grey\n", "sky!", "grass!"]);
    m.sh("cmp by-offset/3.batch by-offset/4.batch");
    assert!(m.text("errors").contains("by-key/grass ENOENT - the key was deleted by the record at offset 5"), "{}", m.text("errors"));
    assert_eq!(errno(fs::remove_file(m.at("by-key/grass"))), libc_errno::ENOENT);
}

/// Numbers that every Linux has.
mod libc_errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOENT: i32 = 2;
    pub(super) const EIO: i32 = 5;
    pub(super) const EEXIST: i32 = 17;
    pub(super) const EXDEV: i32 = 18;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const EROFS: i32 = 30;
    pub(super) const ENAMETOOLONG: i32 = 36;
    pub(super) const EMSGSIZE: i32 = 90;
}

#[test]
fn a_thousand_keys_from_two_shells() {
    for shell in ["bash", "dash"] {
        let (_folder, m) = fresh("by-key=rw");
        let script = "
            i=0; while [ $i -lt 1000 ]; do echo \"value $i\" > by-key/key-$i; i=$((i+1)); done
            i=0; while [ $i -lt 1000 ]; do [ \"$(cat by-key/key-$i)\" = \"value $i\" ] || exit 1; i=$((i+7)); done
            i=0; while [ $i -lt 1000 ]; do rm by-key/key-$i; i=$((i+2)); done
            mv by-key/key-1 by-key/one
            ls by-key | wc -l; cat by-key/* | wc -l; cat by-key/one by-key/key-999";
        let run = Command::new(shell).args(["-ec", script]).current_dir(m.at("")).env("LC_ALL", "C").output().expect("a shell");
        assert_eq!(out(&run), "500\n500\nvalue 1\nvalue 999\n", "{shell}");
        assert_eq!(m.sh("ls by-offset | grep -c '^[0-9]'"), "1502\n");
    }
}

#[test]
fn from_open_to_close_is_one_record() {
    let (_folder, m) = fresh("by-key=rw");
    m.sh("{ echo a; date +%Y > /dev/null; echo b; } > by-key/group; (echo c; bash -c 'echo d') > by-key/child; exec 3> by-key/late; printf e >&3; test ! -s by-offset/2; printf f >&3; exec 3>&-");
    m.sh(": > by-key/empty; touch by-key/touched; touch by-key/group; printf x | tee by-key/tee > /dev/null");
    assert_eq!(records(&m), ["group=a\nb\n", "child=c\nd\n", "late=ef", "empty=", "touched=", "tee=x"]);
    assert_eq!(m.sh("stat -c %s by-key/group by-key/empty"), "4\n0\n");
    let file = File::create(m.at("by-key/open")).expect("a new key");
    assert_eq!(errno(OpenOptions::new().write(true).create_new(true).open(m.at("by-key/open"))), libc_errno::EEXIST);
    file.write_all_at(b"tail", 4).expect("a write");
    file.write_all_at(b"head", 0).expect("a write");
    assert_eq!(fs::read(m.at("by-key/open")).expect("it is there"), b"", "nothing of it before the close");
    drop(file);
    assert_eq!(m.text("by-key/open"), "headtail");
    m.sh("truncate -s 4 by-key/open; cat by-key/open; printf XX | dd of=by-key/open bs=1 seek=1 conv=notrunc status=none");
    assert_eq!(m.text("by-key/open"), "hXXd");
}

#[test]
fn appending_to_a_key_adds_to_what_it_has_at_the_close() {
    let (_folder, m) = fresh("by-key=rw");
    m.sh("echo one > by-key/list; echo two >> by-key/list; echo new >> by-key/fresh");
    assert_eq!(m.sh("cat by-key/list by-key/fresh"), "one\ntwo\nnew\n");
    let open = || OpenOptions::new().append(true).open(m.at("by-key/list")).expect("a key");
    let (mut a, mut b) = (open(), open());
    a.write_all(b"a\n").expect("a write");
    b.write_all(b"b\n").expect("a write");
    drop(a);
    // While another writer has the key open, a close leaves the record to the release, which comes a moment later.
    let begin = std::time::Instant::now();
    while m.text("by-key/list") != "one\ntwo\na\n" {
        assert!(begin.elapsed().as_secs() < 20, "{}", m.text("by-key/list"));
        std::thread::yield_now();
    }
    drop(b);
    assert_eq!(m.text("by-key/list"), "one\ntwo\na\nb\n");
    m.sh("for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5; do echo $i$j >> by-key/many; done) & done; wait");
    assert_eq!(m.sh("sort by-key/many | uniq | wc -l"), "40\n");
}

#[test]
fn what_is_removed_or_renamed_while_it_is_written() {
    let (_folder, m) = fresh("by-key=rw");
    m.sh("exec 3> by-key/a; echo 1 >&3; rm by-key/a; exec 3>&-; test ! -e by-key/a");
    m.sh("exec 3> by-key/b; echo 2 >&3; mv by-key/b by-key/c; exec 3>&-; test ! -e by-key/b; cat by-key/c");
    m.sh("echo old > by-key/d; exec 3> by-key/d; echo lost >&3; mv by-key/c by-key/d; exec 3>&-");
    assert_eq!(records(&m), ["c=2\n", "d=old\n", "d=2\n", "c!"]);
    assert_eq!(m.sh("set -C; echo x > by-key/d || echo kept") + &m.text("by-key/d"), "kept\n2\n");
}

#[test]
fn a_synced_key_is_a_record_and_more_of_it_another() {
    let (_folder, m) = fresh("by-key=rw");
    m.sh("printf v | dd of=by-key/k conv=fsync status=none; printf w | dd of=by-key/k oflag=dsync status=none");
    let mut file = File::create(m.at("by-key/k")).expect("a key");
    file.write_all(b"x").expect("a write");
    file.sync_all().expect("a sync");
    assert_eq!(m.text("by-key/k"), "x");
    file.write_all(b"y").expect("a write");
    drop(file);
    assert_eq!(records(&m), ["k=v", "k=w", "k=x", "k=xy"]);
}

#[test]
fn what_a_key_is_written_with_can_be_read_through_the_same_handle() {
    let (_folder, m) = fresh("by-key=rw");
    m.sh("echo hello > by-key/k");
    let mut file = OpenOptions::new().read(true).write(true).open(m.at("by-key/k")).expect("a key");
    file.write_all_at(b"J", 0).expect("a write");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("a read");
    assert_eq!(text, "Jello\n");
    assert_eq!(m.text("by-key/k"), "hello\n");
    file.set_len(4).expect("a truncation");
    drop(file);
    assert_eq!(m.text("by-key/k"), "Jell");
}

#[test]
fn a_value_that_is_too_large_is_refused_whole() {
    let (_folder, m) = fresh("by-key=rw,max.message.bytes=1000");
    m.sh("echo small > by-key/k");
    let mut file = File::create(m.at("by-key/k")).expect("a key");
    file.write_all(&[b'x'; 700]).expect("a write");
    assert_eq!(errno(file.write_all(&[b'x'; 700])), libc_errno::EMSGSIZE);
    drop(file);
    assert_eq!(m.text("by-key/k"), "small\n");
    // What only shows when the record is made reaches close(2).
    let script = "head -c 990 /dev/zero > /tmp/$$; { cp /tmp/$$ by-key/k 2>&1 || true; } | grep -o 'Message too long'; rm /tmp/$$";
    assert_eq!(m.sh(script), "Message too long\n");
    assert_eq!(m.text("by-key/k"), "small\n");
    assert!(m.text("errors").contains("by-key/k EMSGSIZE"), "{}", m.text("errors"));
}

#[test]
fn keys_that_are_no_names_are_percent_encoded_in_one_spelling() {
    let (_folder, m) = fresh("by-key=rw");
    let keys = ["a/b", "50%", ".", "..", "", "x.offset", " \n", "ümlaut", "%2F"];
    let lines: String = keys.iter().map(|key| format!("{}\n", serde_json::json!({"key": key, "payload": key}))).collect();
    fs::write(m.at("append.jsonl"), lines).expect("envelopes");
    let mut names: Vec<String> =
        fs::read_dir(m.at("by-key")).expect("a listing").map(|e| e.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    assert_eq!(names, [" \n", "%", "%252F", "%2E", "%2E%2E", "50%25", "a%2Fb", "x%2Eoffset", "ümlaut"]);
    for (name, key) in [("a%2Fb", "a/b"), ("50%25", "50%"), ("%2E%2E", ".."), ("%", ""), ("x%2Eoffset", "x.offset"), ("%252F", "%2F")] {
        assert_eq!(m.text(&format!("by-key/{name}")), key);
    }
    assert_eq!(m.text("by-key/x%2Eoffset.offset"), "5\n");
    for other in ["a%2fb", "50%", "%61", "x.offset"] {
        assert_eq!(errno(fs::read(m.at(&format!("by-key/{other}")))), libc_errno::ENOENT, "{other}");
        assert_eq!(errno(File::create(m.at(&format!("by-key/{other}")))), libc_errno::EINVAL, "{other}");
    }
    m.sh("mv by-key/a%2Fb by-key/c%2Fd; rm by-key/%; echo new > by-key/%2E");
    assert_eq!(records(&m)[9..], ["c/d=a/b", "a/b!", "!", ".=new\n"]);
}

#[test]
fn a_key_too_long_for_a_name_is_found_by_the_offset_of_its_last_record() {
    let (_folder, m) = fresh("by-key=rw");
    let key = "k".repeat(300);
    for value in ["one", "two"] {
        fs::write(m.at("append.jsonl"), format!("{}\n", serde_json::json!({"key": key, "payload": value}))).expect("an envelope");
    }
    assert_eq!(m.sh("ls by-key; cat by-key/%@1 by-key/%@1.offset"), "%@1\ntwo1\n");
    assert_eq!(errno(fs::read(m.at("by-key/%@0"))), libc_errno::ENOENT);
    assert_eq!(errno(fs::read(m.at(&format!("by-key/{key}")))), libc_errno::ENAMETOOLONG);
    m.sh("mv by-key/%@1 by-key/short; cat by-key/short; ! cat by-key/%@1 2> /dev/null");
    assert_eq!(records(&m)[2..], ["short=two".to_owned(), format!("{key}!")]);
    assert_eq!(m.sh("ls by-key"), "short\n");
}

#[test]
fn tools_that_replace_files_work_on_keys() {
    let (folder, m) = fresh("by-key=rw,tz=UTC");
    let other = folder.path().join("files");
    fs::create_dir(&other).expect("a folder");
    for n in 0..20 {
        fs::write(other.join(format!("f{n}")), format!("content {n}\n")).expect("a file");
    }
    let files = other.display();
    m.sh(&format!(
        "cp -r {files}/* by-key/; diff -r {files} by-key; cp -a {files}/f1 by-key/copy; sed -i s/content/text/ by-key/f1; cat by-key/f1"
    ));
    m.sh(
        "test \"$(cat by-key/f1)\" = 'text 1'; sort -r -o by-key/f2 by-key/f2; install -m 600 by-key/f3 by-key/f4; cmp by-key/f3 by-key/f4",
    );
    m.sh(&format!("! which rsync || rsync -a {files}/ by-key/; cmp {files}/f1 by-key/f1; ls -A by-key | grep -c '^f'"));
    m.sh("! which vim || { vim -es -u NONE -c '%s/content/vim/' -c wq by-key/f5 < /dev/null; test \"$(cat by-key/f5)\" = 'vim 5'; }");
    m.sh("echo 'sed is done' > /tmp/$$; mv /tmp/$$ by-key/f6; grep -q done by-key/f6; python3 -c 'import os; open(\"by-key/p\", \"a\").write(\"a\"); os.replace(\"by-key/p\", \"by-key/f7\")'; cat by-key/f7");
    assert_eq!(m.text("by-key/f7"), "a");
    assert_eq!(m.sh("find by-key -type f -newermt '1 hour ago' | wc -l"), "21\n");
    let inode = fs::metadata(m.at("by-key/f8")).expect("a key").ino();
    m.sh("mv by-key/f8 by-key/g8");
    assert_eq!(fs::metadata(m.at("by-key/g8")).expect("a key").ino(), inode);
    m.sh("rm -rf by-key/* by-key/.[!.]*; test -z \"$(ls -A by-key)\"");
}

#[test]
fn what_by_key_does_not_do() {
    let (_folder, m) = fresh("by-key=rw");
    m.sh("echo v > by-key/k");
    assert_eq!(errno(fs::create_dir(m.at("by-key/d"))), libc_errno::EPERM);
    assert_eq!(errno(std::os::unix::fs::symlink("k", m.at("by-key/l"))), libc_errno::EPERM);
    assert_eq!(errno(fs::hard_link(m.at("by-key/k"), m.at("by-key/l"))), libc_errno::EPERM);
    assert_eq!(errno(fs::remove_file(m.at("by-key/k.offset"))), libc_errno::EPERM);
    assert_eq!(errno(fs::rename(m.at("by-key/k"), m.at("k"))), libc_errno::EXDEV);
    assert_eq!(errno(fs::rename(m.at("by-offset/0"), m.at("by-key/x"))), libc_errno::EXDEV);
    assert_eq!(errno(fs::remove_file(m.at("by-offset/0"))), libc_errno::EPERM);
    assert_eq!(errno(fs::rename(m.at("status"), m.at("by-offset/x"))), libc_errno::EPERM);
    assert_eq!(errno(File::create(m.at("by-offset/7"))), libc_errno::EPERM);
    assert_eq!(m.text("by-key/k"), "v\n");
}

#[test]
fn a_mount_that_may_not_write_keys() {
    let (folder, m) = fresh("by-key=rw");
    m.sh("echo v > by-key/k; echo plain > append");
    drop(m);
    let source = folder.path().join("demo-0");
    let names = || PartitionDir::copy_of(&source).names();
    let before = names();
    for (options, number) in [("by-key=ro", libc_errno::EPERM), ("by-key=rw,ro", libc_errno::EROFS), ("by-key=ro,ro", libc_errno::EROFS)] {
        let m = Mounted::new(&source, &["-o", options]);
        assert_eq!(m.sh("ls by-key; cat by-key/k; getfattr --only-values -n user.kafka.key by-key/k"), "k\nv\nk");
        assert_eq!(errno(File::create(m.at("by-key/new"))), number, "{options}");
        assert_eq!(errno(OpenOptions::new().write(true).open(m.at("by-key/k"))), number, "{options}");
        assert_eq!(errno(fs::remove_file(m.at("by-key/k"))), number, "{options}");
        assert_eq!(errno(fs::rename(m.at("by-key/k"), m.at("by-key/l"))), number, "{options}");
    }
    let m = Mounted::new(&source, &[]);
    assert_eq!(errno(fs::metadata(m.at("by-key"))), libc_errno::ENOENT);
    assert!(m.text("errors").contains("by-key/ is there with -o by-key=ro or rw"));
    drop(m);
    assert_eq!(names(), before, "looking changes nothing");
}

#[test]
fn an_index_is_kept_beside_a_longer_log_and_nobody_depends_on_it() {
    let (folder, m) = fresh("by-key=rw");
    let source = folder.path().join("demo-0");
    let lines: String =
        (0..120_000).map(|n| format!("{}\n", serde_json::json!({"key": format!("k{}", n % 5000), "payload": n.to_string()}))).collect();
    fs::write(m.at("append.jsonl"), lines).expect("envelopes");
    assert_eq!(m.sh("rm by-key/k7; ls by-key | wc -l; cat by-key/k1999 by-key/k2000"), "4999\n116999117000");
    drop(m);
    let index = source.join("by-key.offsetfs");
    let kept = fs::read(&index).expect("the index is kept");
    let check = offsetfs(&["check"], &source, &[]);
    assert!(check.status.success() && !out(&check).contains("by-key"), "{check:?}");
    let looks = || {
        let m = Mounted::new(&source, &["-o", "by-key=ro"]);
        assert_eq!(
            m.sh("ls by-key | wc -l; cat by-key/k1999 by-key/k2000; test -f segments/by-key.offsetfs; test ! -e by-key/k7"),
            "4999\n116999117000"
        );
    };
    looks();
    for spoilt in [&b""[..], &kept[..kept.len() / 2], &[0xff; 20_000]] {
        fs::write(&index, spoilt).expect("a spoilt index");
        looks();
        assert_eq!(fs::read(&index).expect("it stays"), spoilt, "a reader writes nothing");
    }
}

#[test]
fn the_same_names_without_a_mount() {
    let folder = PartitionDir::new("demo-0");
    let record = |n: i32, key: &str, value: Option<&str>| Record::new(n, BEGINNING_MS, Some(key.as_bytes()), value.map(str::as_bytes));
    let batch = Batch::new(0, vec![record(0, "a", Some("1")), record(1, "b", Some("2")), record(2, "a", Some("3")), record(3, "b", None)]);
    segment(&folder, &[batch]);
    let before = folder.names();
    let run = |command: &str, path: &str| offsetfs(&[command, "-o", "by-key=ro"], folder.path(), &[path]);
    assert_eq!(out(&run("ls", "by-key")), "a\n");
    assert_eq!(out(&run("cat", "by-key/a")), "3");
    assert_eq!(out(&run("cat", "by-key/a.offset")), "2\n");
    let stat = out(&run("stat", "by-key/a"));
    assert!(
        stat.contains("type: file\nsize: 1\n") && stat.contains("offset: 2\nsegment file: 00000000000000000000.log\nposition: 0\n"),
        "{stat}"
    );
    let gone = run("cat", "by-key/b");
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("deleted by the record at offset 3"), "{gone:?}");
    assert!(String::from_utf8_lossy(&offsetfs(&["cat"], folder.path(), &["by-key/a"]).stderr).contains("-o by-key=ro"));
    assert_eq!(offsetfs(&["ls", "-o", "by-key=maybe"], folder.path(), &[]).status.code(), Some(2));
    assert_eq!(folder.names(), before);
}

fn segment(folder: &PartitionDir, batches: &[Batch]) {
    let log: Vec<u8> = batches.iter().flat_map(Batch::encode).collect();
    let (index, timeindex) = indexes(0, &log, 100);
    folder.segment(0, &log, &index, &timeindex);
}

/// A batch of one record in a transaction of a producer.
fn transactional(offset: i64, producer_id: i64, key: &str, value: Option<&str>) -> Batch {
    let record = Record::new(0, BEGINNING_MS, Some(key.as_bytes()), value.map(str::as_bytes));
    Batch { attributes: Batch::TRANSACTIONAL, producer_id, producer_epoch: 0, ..Batch::new(offset, vec![record]) }
}

#[test]
fn readers_of_committed_records_get_the_last_committed_one() {
    let folder = PartitionDir::new("demo-0");
    let end = |offset, producer, commit| Batch::end_of_transaction(offset, producer, 0, BEGINNING_MS, commit);
    let plain = |offset, key: &str, value: &str| {
        Batch::new(offset, vec![Record::new(0, BEGINNING_MS, Some(key.as_bytes()), Some(value.as_bytes()))])
    };
    let batches = [
        plain(0, "a", "1"),
        transactional(1, 7, "a", Some("aborted")),
        transactional(2, 8, "b", Some("committed")),
        end(3, 7, false),
        end(4, 8, true),
        transactional(5, 9, "c", None),
        plain(6, "c", "0"),
        end(7, 9, false),
        transactional(8, 10, "b", Some("open")),
        plain(9, "d", "behind the last stable offset"),
    ];
    segment(&folder, &batches);
    let cat = |options: &str, key: &str| offsetfs(&["cat", "-o", options], folder.path(), &[&format!("by-key/{key}")]);
    for (key, uncommitted, committed) in [
        ("a", Some("aborted"), Some("1")),
        ("b", Some("open"), Some("committed")),
        ("c", Some("0"), Some("0")),
        ("d", Some("behind the last stable offset"), None),
    ] {
        for (options, expected) in [("by-key=ro", uncommitted), ("by-key=ro,isolation=read_committed", committed)] {
            let output = cat(options, key);
            assert_eq!(
                (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
                (Some(i32::from(expected.is_none())), expected.unwrap_or("")),
                "{options} {key}"
            );
        }
    }
    assert_eq!(out(&offsetfs(&["ls", "-o", "by-key=ro,isolation=read_committed"], folder.path(), &["by-key"])).lines().count(), 3);
}

#[test]
fn a_damaged_last_record_is_an_error_and_never_the_older_value() {
    let folder = PartitionDir::new("demo-0");
    let plain = |offset, key: &str| Batch::new(offset, vec![Record::new(0, BEGINNING_MS, Some(key.as_bytes()), Some(b"value"))]);
    segment(&folder, &[plain(0, "a"), plain(1, "b"), plain(2, "a"), plain(3, "c")]);
    let path = folder.path().join("00000000000000000000.log");
    let mut log = fs::read(&path).expect("the log");
    let batch = log.len() / 4;
    log[3 * batch - 3] ^= 1;
    fs::write(&path, log).expect("the damaged log");
    let m = Mounted::new(folder.path(), &["-o", "by-key=ro"]);
    assert_eq!(m.text("by-key/c"), "value");
    for key in ["a", "b", "never"] {
        assert_eq!(errno(fs::read(m.at(&format!("by-key/{key}")))), libc_errno::EIO, "{key}");
    }
    assert!(m.text("errors").contains("by-key/a EIO 00000000000000000000.log:"), "{}", m.text("errors"));
    assert_eq!(
        m.sh("ls by-key 2>&1 || true").lines().filter(|line| !line.is_empty()).collect::<Vec<_>>(),
        ["ls: reading directory 'by-key': Input/output error", "c"]
    );
}
