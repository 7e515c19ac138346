//! Who may do what: each row of the README's table of threats is a test here, and the other way round.
//!
//! What lies outside of the source is watched by inotify while hostile entries are looked at, so "never opened" means that, and not only that nothing of it
//! was shown. Runs under `OFFSETFS_TEST_ROOT=1`: other users, devices, mounts and limits need root.

#[path = "common/encode.rs"]
#[allow(dead_code, reason = "other suites need more of it")]
mod encode;
#[path = "security/entries.rs"]
mod entries;
#[path = "security/hostile.rs"]
mod hostile;
#[path = "common/mounted.rs"]
mod mounted;
#[path = "security/names.rs"]
mod names;
#[path = "common/on_request.rs"]
mod on_request;
#[path = "common/partition.rs"]
#[allow(dead_code, unused_imports, reason = "other suites need more of it; its own tests run there")]
mod partition;
#[path = "common/program.rs"]
mod program;
#[path = "security/source.rs"]
mod source;
#[path = "security/users.rs"]
mod users;
#[path = "security/watch.rs"]
mod watch;

use encode::{Batch, Record};
use mounted::Mounted;
use on_request::Test;
use partition::PartitionDir;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

const T0: i64 = 1_700_000_000_000;

/// All rows.
const ROWS: &[Test] = &[
    ("other_users_without_allow_other", users::other_users_without_allow_other),
    ("other_users_with_allow_other", users::other_users_with_allow_other),
    ("no_suid_no_devices_no_programs", users::no_suid_no_devices_no_programs),
    ("a_user_who_is_not_root_mounts", users::a_user_who_is_not_root_mounts),
    ("symlinks_lead_nowhere", entries::symlinks_lead_nowhere),
    ("pipes_block_nobody", entries::pipes_block_nobody),
    ("devices_are_not_opened", entries::devices_are_not_opened),
    ("directories_are_no_segments", entries::directories_are_no_segments),
    ("hard_links_are_read_and_not_written", entries::hard_links_are_read_and_not_written),
    ("a_name_that_is_swapped_leads_nowhere_else", entries::a_name_that_is_swapped_leads_nowhere_else),
    ("a_source_that_is_replaced", source::a_source_that_is_replaced),
    ("a_live_brokers_lock", source::a_live_brokers_lock),
    ("a_mountpoint_inside_the_source", source::a_mountpoint_inside_the_source),
    ("a_full_disk_under_the_index_map", source::a_full_disk_under_the_index_map),
    ("files_truncated_under_the_mount", source::files_truncated_under_the_mount),
    ("the_mount_of_a_killed_daemon", source::the_mount_of_a_killed_daemon),
    ("hostile_sizes_and_counts", hostile::hostile_sizes_and_counts),
    ("decompression_bombs", hostile::decompression_bombs),
    ("control_characters_in_names", names::control_characters_in_names),
    ("commas_in_paths", names::commas_in_paths),
    ("options_in_paths", names::options_in_paths),
];

fn main() -> ExitCode {
    let told = on_request::always(&[("the_table_of_the_readme_names_each_row", the_table_of_the_readme_names_each_row)]);
    if told != ExitCode::SUCCESS {
        return told;
    }
    on_request::run("OFFSETFS_TEST_ROOT", "root, /dev/fuse, util-linux, fuse3", ROWS)
}

fn the_table_of_the_readme_names_each_row() {
    let readme = include_str!("../README.md");
    let table = readme.split_once("<!-- security rows -->").expect("a mark before the table").1;
    let table = table.split_once("<!-- end -->").expect("a mark behind the table").0;
    let told: BTreeSet<&str> = table.split('`').skip(1).step_by(2).filter(|name| ROWS.iter().any(|(row, _)| row == name)).collect();
    let rows: BTreeSet<&str> = ROWS.iter().map(|(row, _)| *row).collect();
    assert_eq!(told, rows, "a row for each test");
    assert_eq!(table.lines().filter(|line| line.starts_with("| ")).count(), ROWS.len() + 1, "and no other row");
}

/// A batch of records with these values.
fn batch(base_offset: i64, values: &[&str]) -> Vec<u8> {
    let record = |(n, value): (usize, &&str)| Record::new(n as i32, T0 + base_offset + n as i64, None, Some(value.as_bytes()));
    Batch::new(base_offset, values.iter().enumerate().map(record).collect()).encode()
}

/// `demo-0` with the records `a`, `b` and `c` in its only segment.
fn demo() -> PartitionDir {
    let dir = PartitionDir::new("demo-0");
    dir.segment(0, &batch(0, &["a", "b", "c"]), &[], &[]);
    dir
}

/// Runs the program.
fn offsetfs(arguments: &[&Path]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(env!("CARGO_BIN_EXE_offsetfs")).args(arguments).stdin(Stdio::null());
    command.output().expect("offsetfs can be started")
}

/// All that it printed.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Reads every file below the root of a mount, whatever it answers; all that was read. Nothing may take longer than a minute.
fn read_everything(m: &Mounted) -> Vec<u8> {
    let script = "find . -type f ! -name 'append*' ! -name ctl -print0 | xargs -0 -n 50 cat; cat by-offset/earliest..latest by-offset/earliest..latest.jsonl; true";
    let output = Command::new("timeout")
        .args(["60", "bash", "-c", script])
        .current_dir(m.at(""))
        .stdin(Stdio::null())
        .output()
        .expect("bash can be started");
    assert!(output.status.success(), "reading everything hangs: {:.2000}", said(&output));
    [output.stdout, output.stderr].concat()
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}
