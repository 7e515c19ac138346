//! What the usual tools do with the files of the tree: the README's table, each cell tried.
//!
//! Runs under `OFFSETFS_TEST_ROOT=1` only, because a plain machine may not have all of them.

#[path = "common/mounted.rs"]
mod mounted;
#[path = "common/on_request.rs"]
mod on_request;

use mounted::Mounted;
use std::process::ExitCode;

fn main() -> ExitCode {
    on_request::run(
        "OFFSETFS_TEST_ROOT",
        "/dev/fuse, and busybox, dash, jq, less, python3, rsync, vim, zsh",
        &[
            ("readers_read", readers_read),
            ("copies_are_whole", copies_are_whole),
            ("writers_append", writers_append),
            ("shells_and_languages", shells_and_languages),
            ("what_cannot_work_fails_or_is_empty", what_cannot_work_fails_or_is_empty),
        ],
    )
}

/// Mounts a log with the values 1 to 10000 and tries each line in the root of the tree: a script and what it prints. `OUT` is
/// a folder outside.
fn try_all(lines: &[(&str, &str)]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let m = Mounted::new(&folder.path().join("demo-0"), &["--create", "-o", "segment.bytes=100000,tz=UTC"]);
    m.sh("seq 10000 > append");
    assert_eq!(m.text("by-offset/last"), "10000");
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("a new folder");
    for (script, expected) in lines {
        let script = script.replace("OUT", out.to_str().expect("a plain path"));
        assert_eq!(m.sh(&script), *expected, "{script}");
    }
}

fn readers_read() {
    try_all(&[
        ("cat by-offset/77", "78"),
        ("cat by-offset/{0..9999} | wc -c", "38894\n"),
        ("cat by-offset/earliest..latest | md5sum | cut -c1-8", "72d4ff27\n"),
        ("head -n 2 by-offset/..100; head -c 3 by-offset/..100", "1\n2\n1\n2"),
        ("tail -n 1 by-offset/earliest..latest; tail -c 6 by-offset/earliest..latest", "10000\n10000\n"),
        ("tail -n 1 decoded/active.txt; tail -n 1 decoded/active.jsonl | cut -d, -f3", "10000\n\"offset\":9999\n"),
        ("head -n 1 decoded/00000000000000000000.txt", "1\n"),
        (
            "grep -c 99 by-offset/earliest..latest; grep -l '^777$' by-offset/77*; grep -x 1000 decoded/0*.txt",
            "280\nby-offset/776\ndecoded/00000000000000000000.txt:1000\n",
        ),
        ("sed -n 5p by-offset/..10; awk 'END { print NR }' by-offset/earliest..", "5\n10000\n"),
        ("sort -rn by-offset/..10 | head -n 1; sort -u by-offset/..3 by-offset/..4 | wc -l", "10\n4\n"),
        (
            "wc by-offset/5 | xargs; wc -c < by-offset/earliest..latest; wc -l < decoded/active.txt | grep -c .",
            "0 1 1 by-offset/5\n48894\n1\n",
        ),
        ("less by-offset/..3 | cat; less +G -E decoded/active.txt | tail -n 1", "1\n2\n3\n10000\n"),
        ("find by-offset -newermt '1 hour ago' -type f -name '99?' | wc -l; find . -name '*.log' -size +90k | wc -l", "10\n1\n"),
        (
            "find by-offset -name 12 -printf '%s %m\\n'; stat -c '%s %F' by-offset/77 append",
            "2 444\n2 regular file\n0 regular empty file\n",
        ),
        ("stat -L -c %s by-offset/last; readlink by-offset/-10; realpath by-time/1h-ago | grep -o 'by-offset.*'", "5\n9990\nby-offset/0\n"),
        ("dd if=by-offset/..10 bs=1 count=4 status=none; dd if=by-offset/..10 bs=2 skip=3 count=1 status=none", "1\n2\n4\n"),
        ("od -An -tu1 -j16 -N1 segments/00000000000000000000.log | xargs; od -An -c by-offset/77 | xargs", "2\n7 8\n"),
        ("jq -r .offset by-offset/5..7.jsonl; jq -r .topic status.json; jq -s length by-offset/-20..jsonl", "5\n6\ndemo\n20\n"),
        ("vim -es -u NONE -c %p -c q! by-offset/..3; vim -es -u NONE -c %p -c q! by-offset/77 | tail -n 1", "1\n2\n3\n78\n"),
        (
            "ls by-offset | wc -l; ls -l by-offset/77 | cut -c1-10; ls decoded | head -n 1",
            "10002\n-r--r--r--\n00000000000000000000.jsonl\n",
        ),
        (
            "diff <(seq 5) by-offset/..5 && cmp by-offset/..5 by-offset/0..=4 && echo same; tac by-offset/..2; comm -12 by-offset/..2 by-offset/..2",
            "same\n2\n1\n1\n2\n",
        ),
    ]);
}

fn copies_are_whole() {
    try_all(&[
        (
            "cp by-offset/77 by-offset/earliest..latest by-offset/-10..jsonl segments/*.log status decoded/00000000000000000000.txt OUT; cat OUT/77; wc -l < OUT/earliest..latest; wc -l < OUT/-10..jsonl; diff -s status OUT/status | grep -o identical",
            "7810000\n10\nidentical\n",
        ),
        (
            "cmp segments/00000000000000000000.log OUT/00000000000000000000.log; cmp decoded/00000000000000000000.txt OUT/00000000000000000000.txt; cp -a by-offset/78 OUT && stat -c %Y OUT/78 | cmp - <(stat -c %Y by-offset/78)",
            "",
        ),
        ("cp -r segments OUT/segments; diff -r segments OUT/segments && echo same", "same\n"),
        (
            "rsync -a segments/ OUT/rsync/; diff -r segments OUT/rsync && echo same; rsync -a by-offset/1? OUT/records/; ls OUT/records | wc -l; rsync -ai by-offset/1? OUT/records/ | wc -l",
            "same\n10\n0\n",
        ),
        ("rsync by-offset/earliest..latest OUT/range; wc -l < OUT/range", "10000\n"),
        (
            "tar cf OUT/t.tar segments by-offset/77 by-offset/..50; tar xf OUT/t.tar -C OUT --one-top-level=t; diff -r segments OUT/t/segments && cat OUT/t/by-offset/77; wc -l < OUT/t/by-offset/..50",
            "7850\n",
        ),
        (
            "busybox cp by-offset/..9 OUT/b1; busybox cp by-offset/77 OUT/b2; cat OUT/b1 OUT/b2 | wc -l; busybox cp segments/00000000000000000000.log OUT/b3; cmp OUT/b3 segments/00000000000000000000.log",
            "9\n",
        ),
        (
            "cat by-offset/earliest..latest > OUT/big; dd if=by-offset/earliest..latest of=OUT/dd status=none; cmp OUT/big OUT/dd && echo same",
            "same\n",
        ),
    ]);
}

fn writers_append() {
    try_all(&[
        ("echo echo > append; printf '%s\\n' a b >> append; cat by-offset/10000..", "echo\na\nb\n"),
        ("echo x > OUT/x; cp OUT/x append; cat by-offset/last; cat OUT/x > append; cat by-offset/last", "xx"),
        ("echo y | tee append | cat; cat by-offset/last; echo z | dd of=append status=none; cat by-offset/last", "y\nyz"),
        ("dd if=/dev/zero of=append.bin bs=16k count=4 status=none; stat -Lc %s by-offset/last", "65536\n"),
        (
            "sed s/^/s/ by-offset/..2 > append; awk '{ print \"a\" $0 }' by-offset/..2 > append; sort -r by-offset/..2 > append; cat by-offset/-6..",
            "s1\ns2\na1\na2\n2\n1\n",
        ),
        ("jq -c 'select(.offset == 3) | .key = \"k\"' by-offset/..5.jsonl > append.jsonl; cat by-offset/last by-offset/last.key", "4k"),
        (
            "vim -es -u NONE -c 'w >> append' -c q! by-offset/..3; cat by-offset/-3..; vim -es -u NONE -c 'w! append' -c q! by-offset/..2; cat by-offset/-2..",
            "1\n2\n3\n1\n2\n",
        ),
        (
            "rsync --inplace by-offset/77 append 2> /dev/null; cat by-offset/last; find . -maxdepth 1 -name append -exec sh -c 'echo found > {}' ';'; cat by-offset/last",
            "78found",
        ),
    ]);
}

fn shells_and_languages() {
    // Each reads 10,000 records in a loop, appends, and learns the offset of its record.
    let mut lines = Vec::new();
    for (n, shell) in ["bash", "dash", "zsh", "busybox sh"].iter().enumerate() {
        let script = "n=0; while read -r line; do n=$((n + line)); done < by-offset/0..10000; echo $n; echo hello > append; cat by-offset/last; exec 3<>append; echo hi >&3; read -r at <&3; echo \" $at\"; printf tail >> append; cat by-offset/last";
        let at = 10001 + n * 3;
        lines.push((format!("{shell} -c '{script}'"), format!("50005000\nhello {at}\ntail")));
    }
    lines.push(("zsh -c 'setopt noclobber; echo a >| append; print b >> append; cat by-offset/-2..'".to_owned(), "a\nb\n".to_owned()));
    lines.push(("bash -c 'set -C; echo c >> append; cat by-offset/last'".to_owned(), "c".to_owned()));
    for applet in ["cat", "head -n 9", "tail -n 9", "grep .", "sed p -n", "sort", "awk 1"] {
        lines.push((format!("busybox {applet} by-offset/..9 | md5sum | cmp - <(seq 9 | md5sum)"), String::new()));
    }
    let python = r#"import os
total = sum(int(line) for line in open("by-offset/earliest..10000"))
with open("append", "a") as f: f.write("py\n")
print(total, open("by-offset/last").read(), os.stat("by-offset/77").st_size)
f = open("append", "r+b", buffering=0)
f.write(b"a\nb\n")
print(len(f.read().split()))
print(os.getxattr("by-offset/3", "user.kafka.offset").decode(), os.listxattr("by-offset/3")[0])
import mmap
f = open("by-offset/77")
print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:].decode())
"#;
    lines.push((format!("python3 -c '{python}'"), "50005000 py 2\n2\n3 user.kafka.offset\n78\n".to_owned()));
    let lines: Vec<(&str, &str)> = lines.iter().map(|(script, expected)| (script.as_str(), expected.as_str())).collect();
    try_all(&lines);
}

fn what_cannot_work_fails_or_is_empty() {
    try_all(&[
        // A size that is not told: programs that believe it copy nothing. `cat FILE > COPY` is the way.
        (
            "rsync status OUT/status; { tar cf - status 2> /dev/null || true; } | tar xOf - | wc -c; busybox cp config OUT/config; stat -c %s OUT/status OUT/config",
            "0\n0\n0\n",
        ),
        ("rsync decoded/00000000000000000000.txt OUT/d; stat -c %s OUT/d", "0\n"),
        // What would replace or remove a file.
        ("echo x > OUT/x; ! mv OUT/x append 2> /dev/null; test -e OUT/x; ! mv by-offset/1 OUT/ 2> /dev/null; cat by-offset/1", "2"),
        (
            "! sed -i s/1/2/ by-offset/1 2> /dev/null; ! sort -o by-offset/1 by-offset/1 2> /dev/null; ! rsync OUT/x append 2> /dev/null; ! vim -es -u NONE -c 'normal ix' -c w! -c q! by-offset/5; cat by-offset/5",
            "6",
        ),
        ("! cp -a OUT/x append 2> OUT/said; grep -c 'preserving' OUT/said; cat by-offset/last", "1\nx"),
        // A map that is shared with the kernel's pages: not of what is read anew each time.
        (
            "! python3 -c 'import mmap; f = open(\"by-offset/..9\"); mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)' 2> OUT/said; grep -c 'No such device' OUT/said",
            "1\n",
        ),
        // A stream has no position.
        ("! python3 -c 'open(\"append\", \"r+\").write(\"a\")' 2> OUT/said; grep -c 'not seekable' OUT/said", "1\n"),
    ]);
}
