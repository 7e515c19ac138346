//! Every story of `mount-examples/` runs, ends well, and shows what it is about.
//!
//! Runs under `OFFSETFS_TEST_ROOT=1` only, because the stories use tools that a plain machine may not have.

#[path = "common/on_request.rs"]
mod on_request;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// A script, and lines that it must print.
const STORIES: [(&str, &[&str]); 8] = [
    ("incident-by-time.sh", &["../by-offset/3690", "12", "ERROR payment refused 36960", "360"]),
    ("tail-and-alert.sh", &["ALERT ERROR disk 50", "ALERT ERROR disk 200"]),
    ("copy-between-logs.sh", &["the same", "late"]),
    ("resume-a-consumer.sh", &["stopped; the next is 3", "did 0: job a", "did 2: job c", "did 3: job d", "did 6: job g"]),
    ("inspect-a-backup.sh", &["audit-log", "orders/1/: 0 to 5, 245 bytes", "cluster.id=demo", "sound"]),
    (
        "build-log/run.sh",
        &["report made of 2 and those before it", "make: 'report.txt' is up to date.", "report made of 3 and those before it"],
    ),
    ("watch-a-live-broker.sh", &["event 1", "event 5", "mode: ro", "log_end_offset: 6"]),
    ("service/run.sh", &["stopped with 0", "nothing is left mounted", "a line", "half a line"]),
];

fn main() -> ExitCode {
    on_request::run(
        "OFFSETFS_TEST_ROOT",
        "root, /dev/fuse, jq, make, util-linux",
        &[("every_story_shows_what_it_is_about", every_story_shows_what_it_is_about), ("every_script_is_a_story", every_script_is_a_story)],
    )
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/mount-examples"))
}

fn every_story_shows_what_it_is_about() {
    for (script, lines) in STORIES {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let mut bash = Command::new("bash");
        bash.arg(folder().join(script)).env("OFFSETFS", env!("CARGO_BIN_EXE_offsetfs")).env("TMPDIR", temporary.path()).env("LC_ALL", "C");
        let output = bash.stdin(Stdio::null()).output().expect("bash can be started");
        let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}: {}\n{out}{said}", output.status);
        let mut rest = out.lines();
        for line in lines {
            assert!(rest.any(|printed| printed == *line), "{script} does not print {line:?} (behind those before it)\n{out}{said}");
        }
        let left: Vec<_> = fs::read_dir(temporary.path()).expect("the folder").flatten().collect();
        assert!(left.is_empty(), "{script} leaves {left:?}");
    }
}

/// A script that nobody runs would rot.
fn every_script_is_a_story() {
    let scripts = |folder: &Path| -> BTreeSet<String> {
        let names =
            fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
        names.filter(|name| name.ends_with(".sh")).collect()
    };
    let mut found = scripts(folder());
    for part in ["build-log", "service"] {
        found.extend(scripts(&folder().join(part)).into_iter().map(|name| format!("{part}/{name}")));
    }
    // Sourced by the others; run by service/run.sh; run by the quick start of the README and of the continuous integration.
    let parts = ["common.sh", "service/contained.sh", "quickstart.sh"].map(str::to_owned);
    let known: BTreeSet<String> = STORIES.iter().map(|(script, _)| (*script).to_owned()).chain(parts).collect();
    assert_eq!(found, known);
}
