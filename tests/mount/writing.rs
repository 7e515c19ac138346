//! What is appended, through every door, and what a refused write leaves.

use super::errno;
use super::mounted::Mounted;
use rustix::fs::getxattr;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::thread;

fn fresh(options: &str) -> (tempfile::TempDir, Mounted) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mounted = Mounted::new(&folder.path().join("demo-0"), &["--create", "-o", options]);
    (folder, mounted)
}

fn append(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(bytes)
}

#[test]
fn every_redirection_appends_and_none_truncates() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("echo one > append; echo two >> append; : > append; set -C; echo three >> append; set +C; printf '\\n' > append; printf 'x\\r\\n' >> append");
    assert_eq!(m.text("by-offset/earliest..latest"), "one\ntwo\nthree\n\nx\r\n");
    assert_eq!(m.text("append"), "");
    assert_eq!(m.sh("touch append; truncate -s 0 append; stat -c %s append"), "0\n");
    assert!(m.text("status").contains("log_end_offset: 5\n"));
}

#[test]
fn a_hundred_thousand_lines_come_back_in_order() {
    let (_folder, m) = fresh("segment.bytes=100000,index.interval.bytes=1000");
    m.sh("seq 100000 > append; seq 100000 | cmp - by-offset/earliest..latest");
    assert_eq!(m.text("by-offset/99999"), "100000");
    assert_eq!(m.text("by-offset/54320..54323"), "54321\n54322\n54323\n");
    assert!(m.sh("ls segments/*.log | wc -l").trim().parse::<usize>().expect("a number") > 5);
    assert_eq!(m.sh("cat segments/*.log | wc -c"), m.sh("awk '/^bytes:/ { print $2 }' status"));
}

#[test]
fn twenty_writers_lose_nothing_and_mix_nothing() {
    const WRITERS: usize = 20;
    const LINES: usize = 300;
    let (_folder, m) = fresh("segment.bytes=100000");
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = m.at("append");
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).expect("append can be opened");
                for n in 0..LINES {
                    file.write_all(format!("{writer} {n} first\n{writer} {n} second\n").as_bytes()).expect("a write");
                }
            });
        }
    });
    let text = m.text("by-offset/earliest..latest");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), WRITERS * LINES * 2);
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    for pair in lines.chunks(2) {
        let writer = pair[0].split(' ').next().expect("a writer");
        let n = next.entry(writer).or_default();
        assert_eq!(pair, [format!("{writer} {n} first"), format!("{writer} {n} second")], "one write is one stretch");
        *n += 1;
    }
    assert_eq!(next.len(), WRITERS);
}

#[test]
fn a_tail_is_one_record_whoever_finishes_it() {
    let (folder, m) = fresh("tz=UTC");
    fs::write(folder.path().join("body"), "a\nbody").expect("a file");
    m.sh("exec 3>>append; printf par >&3; printf 'tial\\n' >&3; exec 3>&-");
    m.sh(&format!("{{ cat {}/body; echo; }} >> append", folder.path().display()));
    m.sh("{ printf 'by '; bash -c 'printf \"two \"'; printf 'processes'; } >> append");
    m.sh("printf x >> append; test \"$(cat by-offset/last)\" = x");
    m.sh("exec 3>>append; printf kept >&3; exec 4>&3 3>&-; test ! -e by-offset/5; exec 4>&-; test \"$(cat by-offset/5)\" = kept");
    assert_eq!(m.text("by-offset/earliest.."), "partial\na\nbody\nby two processes\nx\nkept\n");
}

#[test]
fn a_program_can_be_started_while_a_tail_waits() {
    let (_folder, m) = fresh("tz=UTC");
    let mut file = OpenOptions::new().append(true).open(m.at("append")).expect("append");
    for n in 0..20 {
        write!(file, "{n} ").expect("a write");
        // The program's start closes the descriptor that it inherits, in the middle of execve.
        assert!(Command::new("true").status().expect("it can be started").success());
    }
    assert!(!m.at("by-offset/0").exists(), "the tail still waits");
    file.write_all(b"end\n").expect("a write");
    assert!(m.text("by-offset/0").ends_with("18 19 end"));
}

#[test]
fn a_killed_writer_leaves_what_it_wrote() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("bash -c 'exec 3>>append; printf \"last words\" >&3; kill -9 $$' || true");
    m.sh("for n in $(seq 100); do test -e by-offset/0 && break; sleep 0.05; done");
    assert_eq!(m.text("by-offset/0"), "last words");
}

#[test]
fn a_file_opened_for_both_tells_the_offsets() {
    let (_folder, m) = fresh("tz=UTC");
    assert_eq!(m.sh("exec 3<>append; echo a >&3; read -r x <&3; printf 'b\\nc\\n' >&3; read -r y <&3; read -r z <&3; read -r w <&3 || echo $x $y $z end"), "0 1 2 end\n");
    let mut both = OpenOptions::new().read(true).append(true).open(m.at("append.jsonl")).expect("both ways");
    both.write_all(b"{\"payload\":\"d\"}\n").expect("a write");
    let mut given = [0; 100];
    let n = both.read(&mut given).expect("the offset");
    assert_eq!(&given[..n], b"3\n");
    assert_eq!(both.read(&mut given).expect("nothing waits"), 0);
}

#[test]
fn envelopes_carry_keys_headers_times_and_nulls() {
    let (_folder, m) = fresh("tz=UTC");
    let lines = concat!(
        r#"{"ts":1700000000000,"key":"k","headers":["a","1","a",null],"payload":"v"}"#,
        "\n\n",
        r#"{"ts":1700000001000,"key_b64":"/w==","headers_b64":["aA==","/w=="],"payload_b64":"AP8="}"#,
        "\n",
        r#"{"ts":-1,"payload":null}"#
    );
    append(&m.at("append.jsonl"), lines.as_bytes()).expect("three envelopes");
    assert_eq!(
        m.text("by-offset/..3.jsonl"),
        concat!(
            r#"{"topic":"demo","partition":0,"offset":0,"tstype":"create","ts":1700000000000,"headers":["a","1","a",null],"key":"k","payload":"v"}"#,
            "\n",
            r#"{"topic":"demo","partition":0,"offset":1,"tstype":"create","ts":1700000001000,"headers_b64":["aA==","/w=="],"key_b64":"/w==","payload_b64":"AP8="}"#,
            "\n",
            r#"{"topic":"demo","partition":0,"offset":2,"tstype":"create","ts":-1,"headers":[],"key":null,"payload":null}"#,
            "\n"
        )
    );
    assert_eq!(fs::read(m.at("by-offset/1")).expect("a value"), [0, 0xFF]);
    assert_eq!(fs::read(m.at("by-offset/1.key")).expect("a key"), [0xFF]);
    let xattr = |name: &str, path: &str| {
        let mut value = [0; 64];
        getxattr(m.at(path), name, &mut value[..]).map(|n| value[..n].to_vec())
    };
    assert_eq!(xattr("user.kafka.null", "by-offset/2").expect("a tombstone is marked"), b"1");
    assert_eq!(xattr("user.kafka.null", "by-offset/2.key").expect("no key"), b"1");
    assert_eq!(xattr("user.kafka.null", "by-offset/0").expect_err("a value is not").raw_os_error(), libc::ENODATA);
    for (name, value) in [
        ("offset", "0"),
        ("timestamp", "1700000000000"),
        ("timestamp_type", "create"),
        ("key", "k"),
        ("codec", "none"),
        ("header.0.a", "1"),
    ] {
        assert_eq!(xattr(&format!("user.kafka.{name}"), "by-offset/0").expect(name), value.as_bytes(), "{name}");
    }
    // `ls -l` asks for these names of each file, unless it hears that they are not supported.
    assert_eq!(xattr("security.selinux", "by-offset/0").expect_err("another namespace").raw_os_error(), libc::ENOTSUP);
}

#[test]
fn the_whole_log_goes_into_another_one_and_stays_itself() {
    let (_folder, a) = fresh("tz=UTC");
    let (_other, b) = fresh("compression.type=zstd");
    a.sh(r#"echo plain > append; printf '{"key":"k","headers":["h","v"],"ts":5,"payload":"p"}\n{"key":"k","payload":null}\n' > append.jsonl"#);
    a.sh("head -c 100000 /dev/urandom > append.bin");
    let copy = format!("cat by-offset/earliest..latest.jsonl > '{}'", b.at("append.jsonl").display());
    a.sh(&copy);
    assert_eq!(a.text("by-offset/earliest..latest.jsonl"), b.text("by-offset/earliest..latest.jsonl"));
    assert_eq!(fs::read(a.at("by-offset/3")).expect("a picture"), fs::read(b.at("by-offset/3")).expect("the same"));
}

#[test]
fn all_bytes_of_an_opening_are_one_record() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("printf 'a\\nb\\n' > append.bin; : > append.bin; head -c 300000 /dev/zero > append.bin; (printf a; printf b) > append.bin");
    assert_eq!(m.text("by-offset/0"), "a\nb\n");
    assert_eq!(fs::metadata(m.at("by-offset/1")).expect("a record").len(), 300_000);
    assert_eq!(m.text("by-offset/2"), "ab");
    m.sh("exec 3>append.bin; printf first >&3; sync /dev/fd/3; test \"$(cat by-offset/3)\" = first; printf second >&3; exec 3>&-");
    assert_eq!(m.text("by-offset/4"), "second");
}

#[test]
fn a_refused_write_stores_nothing_and_says_why() {
    let (_folder, m) = fresh("max.message.bytes=200");
    let long = [b'x'; 300];
    let refused = append(&m.at("append"), &[b"good\n", &long[..], b"\n"].concat());
    assert_eq!(errno(refused), libc::EMSGSIZE);
    let mut file = File::options().append(true).open(m.at("append")).expect("append");
    assert_eq!(errno(file.write_all(&long)), libc::EMSGSIZE, "without its newline");
    assert_eq!(errno(file.write_all(b"the rest of it\n")), libc::EMSGSIZE, "no piece of a refused line becomes a record");
    file.write_all(b"next\n").expect("the line behind it is taken");
    drop(file);
    let two = "{\"payload\":\"a\"}\n{\"payload\":\"b\",\"headers\":[\"x\"]}\n";
    assert_eq!(errno(append(&m.at("append.jsonl"), two.as_bytes())), libc::EINVAL);
    for broken in [
        "{\"payload\":1}\n",
        "{}\n",
        "[]\n",
        "{\"payload\":\"a\",\"payload_b64\":\"YQ==\"}\n",
        "{\"payload\":\"a\",\"headers\":{}}\n",
        "not json\n",
    ] {
        assert_eq!(errno(append(&m.at("append.jsonl"), broken.as_bytes())), libc::EINVAL, "{broken}");
    }
    assert_eq!(m.text("by-offset/earliest.."), "next\n");
    let errors = m.text("errors");
    for word in ["append EMSGSIZE", "max.message.bytes=200", "append.jsonl EINVAL", "line 2, column 26"] {
        assert!(errors.contains(word), "{word} is not in\n{errors}");
    }
}

#[test]
fn errors_reach_the_programs_that_look_at_close() {
    let (folder, m) = fresh("max.message.bytes=200");
    fs::write(folder.path().join("long"), [b'x'; 300]).expect("a file");
    let long = folder.path().join("long");
    for script in ["cat LONG > append", "dd if=LONG of=append status=none", "tee append < LONG > /dev/null", "cp LONG append"] {
        let script = script.replace("LONG", &long.display().to_string());
        assert!(m.sh(&format!("! {{ {script}; }} 2>&1")).contains("Message too long"), "{script}");
    }
    assert!(m.text("status").contains("log_end_offset: 0\n"));
}

#[test]
fn every_way_to_sync_is_taken_and_reaches_the_disk() {
    let (_folder, m) = fresh("tz=UTC");
    let syncs = || -> u64 {
        let metrics = m.text("metrics");
        let count = metrics.lines().find_map(|line| line.strip_prefix("offsetfs_log_syncs_total")?.rsplit(' ').next());
        count.expect("a counter").parse().expect("a number")
    };
    for (way, is_one) in [
        ("echo a >> append", false),
        ("echo b | dd of=append conv=fsync,notrunc status=none", true),
        ("echo c | dd of=append conv=fdatasync status=none", true),
        ("echo d | dd of=append oflag=sync status=none", true),
        ("echo e | dd of=append oflag=dsync,append conv=notrunc status=none", true),
        ("echo f >> append; sync append", true),
        ("echo g >> append; sync -d append", true),
        ("printf 'h\n' >> append.bin; sync append.bin", true),
        ("echo i >> append; sync by-offset/last", true),
    ] {
        let before = syncs();
        m.sh(way);
        assert_eq!(syncs() > before, is_one, "{way}");
    }
    assert_eq!(m.text("by-offset/earliest.."), "a\nb\nc\nd\ne\nf\ng\nh\n\ni\n");
}

#[test]
fn every_codec_is_read_back() {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"] {
        let (_folder, m) = fresh(&format!("compression.type={codec},segment.bytes=20000"));
        m.sh("seq 20000 > append; seq 20000 | cmp - by-offset/earliest..latest");
        let name = if ["uncompressed", "producer"].contains(&codec) { "none" } else { codec };
        let mut value = [0; 16];
        let n = getxattr(m.at("by-offset/777"), "user.kafka.codec", &mut value[..]).expect("a codec");
        assert_eq!(&value[..n], name.as_bytes());
    }
}

#[test]
fn what_is_no_door_is_shut() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("echo a > append");
    let eperm = |what: &str, result: std::io::Result<()>| assert_eq!(errno(result), libc::EPERM, "{what}");
    eperm("create", File::create_new(m.at("new")).map(drop));
    eperm("mkdir", fs::create_dir(m.at("by-offset/d")));
    eperm("unlink", fs::remove_file(m.at("append")));
    eperm("unlink of a record", fs::remove_file(m.at("by-offset/0")));
    eperm("rmdir", fs::remove_dir(m.at("by-offset")));
    eperm("rename", fs::rename(m.at("append"), m.at("other")));
    eperm("rename of a record", fs::rename(m.at("by-offset/0"), m.at("by-offset/1")));
    eperm("symlink", std::os::unix::fs::symlink("a", m.at("link")));
    eperm("link", fs::hard_link(m.at("append"), m.at("other")));
    eperm("chmod", fs::set_permissions(m.at("append"), std::os::unix::fs::PermissionsExt::from_mode(0o600)));
    eperm("chown", std::os::unix::fs::chown(m.at("append"), Some(12), None));
    for path in ["by-offset/0", "status", "segments/00000000000000000000.log", "README", "errors"] {
        let refused = OpenOptions::new().write(true).open(m.at(path)).map(drop);
        assert!([libc::EPERM, libc::EACCES].contains(&errno(refused)), "{path}");
    }
    assert_eq!(m.text("by-offset/earliest.."), "a\n");
}
