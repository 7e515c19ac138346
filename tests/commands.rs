//! Commands that ask the tree without a mount: `tail`, `cat --pretty`, `ls` of data directories; and what shells and man(1) are told.

mod common;

use common::encode::{Batch, indexes};
use common::fixtures::fixtures;
use common::partition::PartitionDir;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// 2023-11-14T22:13:20Z, in ms.
const T0: i64 = 1_700_000_000_000;

/// Offsets 0 to 4 and 10 to 12 (compaction took those between).
fn with_a_gap() -> PartitionDir {
    let dir = PartitionDir::new("demo-0");
    let log = [Batch::plain(0, 5, T0).encode(), Batch::plain(10, 3, T0 + 10_000).encode()].concat();
    let (index, timeindex) = indexes(0, &log, 4096);
    dir.segment(0, &log, &index, &timeindex);
    dir
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    command.stdin(Stdio::null());
    command
}

/// Runs the program to its end.
fn offsetfs<A: AsRef<OsStr>>(arguments: &[A]) -> Output {
    program().args(arguments).output().expect("offsetfs can be started")
}

/// What the program prints, which must say nothing else.
fn printed<A: AsRef<OsStr>>(arguments: &[A]) -> String {
    let output = offsetfs(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// What bash prints, with the program as `$1` and a path as `$2`.
fn bash(script: &str, path: &Path) -> Output {
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_offsetfs")]).arg(path).stdin(Stdio::null());
    command.output().expect("bash can be started")
}

#[test]
fn tail_counts_records_and_not_offsets() {
    let dir = with_a_gap();
    let path = dir.path().to_str().expect("a plain path");
    assert_eq!(printed(&["tail", path]), "v0\nv1\nv2\nv3\nv4\nv10\nv11\nv12\n");
    assert_eq!(printed(&["tail", "-n", "4", path]), "v4\nv10\nv11\nv12\n");
    assert_eq!(printed(&["tail", path, "-n0"]), "");
    assert_eq!(printed(&["tail", "--json", "-n", "2", path]), printed(&["cat", path, "by-offset/11.json", "by-offset/last.json"]));
}

#[test]
fn tail_follows_what_another_process_appends() {
    let dir = with_a_gap();
    let mut tail =
        program().args(["tail", "-f", "-n", "1"]).arg(dir.path()).stdout(Stdio::piped()).spawn().expect("offsetfs can be started");
    let mut lines = BufReader::new(tail.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("another line").expect("text");
    assert_eq!(next(), "v12");
    for word in ["one", "two"] {
        let mut append =
            program().arg("append").arg(dir.path()).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("offsetfs can be started");
        writeln!(append.stdin.take().expect("a pipe"), "{word}").expect("offsetfs reads");
        assert!(append.wait().expect("an end").success());
        assert_eq!(next(), word);
    }
    tail.kill().expect("it runs");
    tail.wait().expect("an end");
}

#[test]
fn a_reader_who_goes_away_ends_a_command_quietly() {
    let dir = with_a_gap();
    for command in ["tail -f -n 3", "tail -f -n 3 --json", "cat"] {
        // What cat prints is larger than any pipe.
        let paths = if command == "cat" { "$(printf 'by-offset/earliest.. %.0s' {1..5000})" } else { "" };
        let output = bash(&format!("\"$1\" {command} \"$2\" {paths} | head -n 1; echo ${{PIPESTATUS[0]}}"), dir.path());
        let lines = String::from_utf8(output.stdout).expect("text");
        assert!(lines.ends_with("\n0\n") && lines.lines().count() == 2, "{command}: {lines}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{command}");
    }
}

#[test]
fn pretty_spreads_envelopes_out_without_colours_in_a_pipe() {
    let dir = with_a_gap();
    let path = dir.path().to_str().expect("a plain path");
    let plain = printed(&["cat", path, "by-offset/10..12.jsonl"]);
    let pretty = printed(&["cat", "--pretty", path, "by-offset/10..12.jsonl"]);
    let values = |text: &str| -> Vec<serde_json::Value> {
        serde_json::Deserializer::from_str(text).into_iter().map(|value| value.expect("JSON")).collect()
    };
    assert_eq!(values(&pretty), values(&plain));
    assert!(
        pretty.starts_with("{\n  \"topic\": \"demo\",\n  \"partition\": 0,\n  \"offset\": 10,\n") && !pretty.contains('\x1b'),
        "{pretty}"
    );
    assert_eq!(printed(&["cat", "--pretty", path, "by-offset/10..12"]), "v10\nv11\n");
}

#[test]
fn a_data_directory_lists_no_name_twice_and_none_that_no_path_leads_to() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["+files-0", "+errors-3", ".-0", "..-1", ".other-0", "demo-0", "demo-1.0123-delete"] {
        fs::rename(with_a_gap().path(), folder.path().join(name)).expect("a partition");
    }
    let path = folder.path().to_str().expect("a plain path");
    assert_eq!(printed(&["ls", path]), ".other\ndemo\n+files\nerrors\nstatus\nstatus.json\nmetrics\nREADME\n");
    let errors = printed(&["cat", path, "errors"]);
    for name in ["+files-0", "+errors-3", ".-0", "..-1"] {
        assert!(errors.contains(&format!("{name}: a folder that is named like no partition")), "{name}: {errors}");
    }
}

#[test]
fn a_recovery_that_drops_damage_leaves_nothing_for_another_one() {
    let copy = PartitionDir::copy_of(&fixtures().join("data/txn-0"));
    let path = copy.path().to_str().expect("a plain path");
    for name in copy.names().iter().filter(|name| name.ends_with(".txnindex")) {
        fs::remove_file(copy.path().join(name)).expect("an index goes");
    }
    let first = copy.names().into_iter().find(|name| name.ends_with(".log")).expect("a segment");
    let mut bytes = fs::read(copy.path().join(&first)).expect("the segment");
    bytes[80] ^= 1;
    copy.file(&first, &bytes);
    let done = printed(&["recover", "--drop-damaged", path]);
    assert!(done.contains("damaged") && done.contains(".txnindex anew"), "{done}");
    assert_eq!(printed(&["recover", "--drop-damaged", path]), "txn-0: nothing to do\n");
    let check = program().args(["check", path]).output().expect("offsetfs can be started");
    let report = String::from_utf8_lossy(&check.stdout);
    assert!(!report.contains(".txnindex"), "{report}");
}

#[test]
fn a_data_directory_is_listed_and_read_by_topic_and_partition() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["demo-0", "demo-1", "a-b-7"] {
        fs::rename(with_a_gap().path(), folder.path().join(name)).expect("a partition");
    }
    let path = folder.path().to_str().expect("a plain path");
    assert_eq!(printed(&["ls", path]), "a-b\ndemo\n+files\nerrors\nstatus\nstatus.json\nmetrics\nREADME\n");
    assert_eq!(printed(&["ls", path, "demo"]), "0\n1\nby-time\n");
    let long = printed(&["ls", "-l", path, "demo"]);
    assert!(long.lines().all(|line| line.starts_with("dr-xr-xr-x ")) && long.lines().count() == 3, "{long}");
    assert!(printed(&["ls", path, "a-b/7/by-offset"]).starts_with("first\nlast\n0\n1\n"));
    assert_eq!(printed(&["cat", path, "demo/1/by-offset/last", "a-b/7/by-offset/0"]), "v12v0");
    let refused = offsetfs(&["tail", path]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("give one of its partitions"));
}

#[test]
fn shells_and_man_are_told_of_every_command() {
    let commands = ["mount", "umount", "ls", "cat", "tail", "stat", "append", "check", "dump", "recover", "completions", "man"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = printed(&["completions", shell]);
        assert!(commands.iter().all(|command| completions.contains(command)), "{shell}");
    }
    let page = printed(&["man"]);
    assert!(page.contains(".TH offsetfs 1") && commands.iter().all(|command| page.contains(&format!("offsetfs\\-{command}(1)"))));
    for command in commands {
        assert!(printed(&["man", command]).contains(&format!(".TH offsetfs-{command} 1")), "{command}");
    }
    for unknown in [["man", "nothing"], ["completions", "nothing"]] {
        assert_eq!(offsetfs(&unknown).status.code(), Some(2), "{unknown:?}");
    }
}
