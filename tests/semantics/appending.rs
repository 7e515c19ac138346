//! P1 to P12: what is appended.

use super::{errno, fresh, soon};
use rustix::fs::getxattr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;

fn open(path: PathBuf) -> File {
    OpenOptions::new().append(true).open(path).expect("it can be opened for appending")
}

#[test]
fn p1_a_line_is_a_record() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("echo one > append; echo two >> append; : > append; printf '\\nx\\r\\n' > append; truncate -s 0 append");
    let values = [0, 1, 2, 3].map(|n| m.text(&format!("by-offset/{n}")));
    assert_eq!(values, ["one", "two", "", "x\r"]);
    assert!(!m.at("by-offset/4").exists());
}

#[test]
fn p2_what_was_written_is_found_at_once() {
    let (_folder, m) = fresh("segment.bytes=2000");
    let mut append = open(m.at("append"));
    for n in 0..200 {
        writeln!(append, "{n}").expect("a write");
        assert_eq!(m.text(&format!("by-offset/{n}")), n.to_string());
        assert_eq!(m.text("by-offset/last"), n.to_string());
        assert_eq!(m.text("by-offset/-1.."), format!("{n}\n"));
    }
    assert!(m.text("status").contains("log_end_offset: 200\n"));
}

#[test]
fn p3_a_request_is_one_stretch() {
    let (_folder, m) = fresh("segment.bytes=50000,batch.size=200");
    thread::scope(|scope| {
        for writer in 0..8 {
            let mut append = open(m.at("append"));
            scope.spawn(move || {
                for n in 0..50 {
                    let lines: String = (0..20).map(|line| format!("{writer} {n} {line}\n")).collect();
                    append.write_all(lines.as_bytes()).expect("a write");
                }
            });
        }
    });
    let text = m.text("by-offset/earliest..latest");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8 * 50 * 20);
    for stretch in lines.chunks(20) {
        let (request, _) = stretch[0].rsplit_once(' ').expect("three words");
        let expected: Vec<String> = (0..20).map(|line| format!("{request} {line}")).collect();
        assert_eq!(stretch, expected);
    }
}

#[test]
fn p4_a_request_is_stored_whole_or_not_at_all() {
    let (_folder, m) = fresh("max.message.bytes=200,batch.size=100");
    let long = "x".repeat(300);
    assert_eq!(errno(open(m.at("append")).write_all(format!("a\nb\n{long}\nc\n").as_bytes())), libc::EMSGSIZE);
    assert_eq!(errno(open(m.at("append.jsonl")).write_all(b"{\"payload\":\"a\"}\n{\"payload\":1}\n")), libc::EINVAL);
    assert!(!m.at("by-offset/0").exists());
    let errors = m.text("errors");
    assert!(errors.contains("append EMSGSIZE ") && errors.contains("append.jsonl EINVAL ") && errors.contains("line 2"), "{errors}");
}

#[test]
fn p5_no_piece_of_a_refused_line_is_stored() {
    let (_folder, m) = fresh("max.message.bytes=200");
    let mut append = open(m.at("append"));
    let long = [b'x'; 300];
    for piece in [&long[..], &b"more of it"[..], &b"and its end\n"[..]] {
        assert_eq!(errno(append.write_all(piece)), libc::EMSGSIZE);
    }
    append.write_all(b"next\n").expect("the next line is taken");
    assert_eq!(m.text("by-offset/earliest..latest"), "next\n");
}

#[test]
fn p6_a_beginning_becomes_a_record_at_fsync_and_at_the_last_close() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("exec 3>append; printf synced >&3; test ! -e by-offset/0; sync /dev/fd/3; test $(cat by-offset/0) = synced; exec 3>&-; test ! -e by-offset/1");
    m.sh("exec 3>append; printf closed >&3; exec 4>&3; exec 3>&-; test ! -e by-offset/1; exec 4>&-; test $(cat by-offset/1) = closed");
    m.sh("exec 3>append; printf elsewhere >&3; sleep 0.5 & exec 3>&-; test ! -e by-offset/2; wait; exec 3>&-");
    soon("the last close in another process", || m.at("by-offset/2").exists());
    assert_eq!(m.text("by-offset/2"), "elsewhere");
}

#[test]
fn p7_whoever_writes_on_goes_on_with_the_line() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("exec 3>append; printf one >&3; bash -c 'printf \" two\" >&3'; exec 4>&3; printf ' three' >&4; printf ' four' > /dev/fd/3; echo ' five' >&3");
    assert_eq!(m.text("by-offset/earliest..latest"), "one two three four five\n");
    m.sh("{ printf 'a '; cat segments/leader-epoch-checkpoint > /dev/null; echo b; } > append");
    assert_eq!(m.text("by-offset/1"), "a b");
}

#[test]
fn p8_a_killed_writer_leaves_what_it_wrote() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("bash -c 'exec 3>append; printf \"whole\\nbegun\" >&3; kill -KILL $$' || true");
    soon("what it wrote", || m.at("by-offset/1").exists());
    assert_eq!(m.text("by-offset/earliest..latest"), "whole\nbegun\n");
}

#[test]
fn p9_all_bytes_of_an_opening_are_a_record() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("{ printf 'a\\n'; printf 'b\\n'; head -c 200000 /dev/zero; } > append.bin; : > append.bin; printf c > append.bin");
    assert_eq!(fs::metadata(m.at("by-offset/0")).expect("a record").len(), 200_004);
    assert_eq!(m.text("by-offset/1"), "c");
    assert!(!m.at("by-offset/2").exists());
}

#[test]
fn p10_a_copied_log_is_the_same_log() {
    let (_a, a) = fresh("tz=UTC");
    let (_b, b) = fresh("compression.type=gzip");
    let lines = concat!(
        r#"{"ts":1700000000000,"key":"k","headers":["a","1","a",null,"b",""],"payload":"v\u0000\u00e4"}"#,
        "\n",
        r#"{"ts":1600000000000,"key_b64":"/w==","headers_b64":["aA==","/w=="],"payload_b64":"//4="}"#,
        "\n",
        r#"{"ts":-1,"key":"","payload":null}"#,
        "\n",
        r#"{"ts":0,"key":null,"payload":""}"#,
        "\n"
    );
    open(a.at("append.jsonl")).write_all(lines.as_bytes()).expect("four envelopes");
    a.sh(&format!("cat by-offset/earliest..latest.jsonl > '{}'", b.at("append.jsonl").display()));
    let copied = b.text("by-offset/earliest..latest.jsonl");
    assert_eq!(copied, a.text("by-offset/earliest..latest.jsonl"));
    assert_eq!(copied.lines().count(), 4);
    for n in 0..4 {
        for face in ["", ".key", ".json"] {
            let name = format!("by-offset/{n}{face}");
            assert_eq!(fs::read(a.at(&name)).expect("a"), fs::read(b.at(&name)).expect("b"), "{name}");
        }
    }
    assert_eq!(getxattr(b.at("by-offset/2"), "user.kafka.null", &mut [0; 8][..]).expect("a null stays one"), 1);
}

#[test]
fn p11_offsets_come_back() {
    let (_folder, m) = fresh("tz=UTC");
    let mut both = OpenOptions::new().read(true).append(true).open(m.at("append")).expect("both ways");
    let mut other = open(m.at("append"));
    let mut text = String::new();
    both.write_all(b"a\nb\n").expect("a write");
    other.write_all(b"of another\n").expect("a write");
    both.write_all(b"c\n").expect("a write");
    both.read_to_string(&mut text).expect("the offsets up to the end of file");
    assert_eq!(text, "0\n1\n3\n");
    assert_eq!(errno(both.seek(std::io::SeekFrom::Start(0))), libc::ESPIPE);
    assert_eq!(m.sh("exec 3<>append; echo d >&3; read -r offset <&3; cat by-offset/$offset"), "d");
}

#[test]
fn p12_there_is_no_other_way_in() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("echo a > append");
    let refused = [
        ("create", errno(File::create_new(m.at("by-offset/new")))),
        ("mkdir", errno(fs::create_dir(m.at("new")))),
        ("remove", errno(fs::remove_file(m.at("by-offset/0")))),
        ("rmdir", errno(fs::remove_dir(m.at("segments")))),
        ("rename", errno(fs::rename(m.at("append"), m.at("append.old")))),
        ("symlink", errno(std::os::unix::fs::symlink("append", m.at("link")))),
        ("link", errno(fs::hard_link(m.at("append"), m.at("link")))),
        ("chmod", errno(fs::set_permissions(m.at("append"), fs::Permissions::from_mode(0o777)))),
        ("chown", errno(std::os::unix::fs::chown(m.at("by-offset/0"), Some(1), None))),
    ];
    assert_eq!(refused.iter().filter(|(_, number)| *number != libc::EPERM).collect::<Vec<_>>(), Vec::<&(&str, i32)>::new());
    for path in
        ["by-offset/0", "by-offset/last", "by-offset/0..", "segments/00000000000000000000.log", "status", "config", "errors", "README"]
    {
        let number = errno(OpenOptions::new().write(true).open(m.at(path)));
        assert!([libc::EPERM, libc::EACCES].contains(&number), "{path}: {number}");
    }
    assert_eq!(m.text("by-offset/earliest..latest"), "a\n");
}
