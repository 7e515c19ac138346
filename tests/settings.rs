//! Settings files: `-o config=FILE`, and `topic.properties` beside the segments; which place counts, what `config` says of it, what is refused.

mod common;

use common::encode::{Batch, indexes};
use common::partition::PartitionDir;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// 2023-11-14T22:13:20Z, in ms.
const T0: i64 = 1_700_000_000_000;

fn one_batch() -> PartitionDir {
    let dir = PartitionDir::new("demo-0");
    let log = Batch::plain(0, 5, T0).encode();
    let (index, timeindex) = indexes(0, &log, 4096);
    dir.segment(0, &log, &index, &timeindex);
    dir
}

/// Runs the program to its end; `input` is what it reads.
fn offsetfs(arguments: &[&str], path: &Path, rest: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offsetfs"));
    command.args(arguments).arg(path).args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("offsetfs can be started");
    // One that refuses its arguments does not read.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("an end")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// The lines of `config` in the group whose title begins so.
fn group(path: &Path, options: &[&str], title: &str) -> Vec<String> {
    let output = offsetfs(&["cat"], path, &[&["config"], options].concat(), "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let config = text(&output.stdout);
    let lines = config.lines().skip_while(|l| !l.starts_with(&format!("# {title}"))).skip(1);
    lines.take_while(|l| !l.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn the_command_line_beats_its_file_and_that_beats_the_topic() {
    let dir = one_batch();
    fs::write(dir.path().join("topic.properties"), "segment.bytes=100\nflush.ms=100\nbatch.size=100\nretries=3\n").expect("a file");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("own.properties");
    fs::write(&file, "# mine\nsegment.bytes = 200\nflush.ms: 200\n").expect("a file");
    let options = format!("segment.bytes=300,config={}", file.display());
    let options = ["-o", options.as_str()];
    assert_eq!(group(dir.path(), &options, "from -o"), ["segment.bytes=300"]);
    assert_eq!(group(dir.path(), &options, &format!("from {}", file.display())), ["flush.ms=200"]);
    assert_eq!(group(dir.path(), &options, "from topic.properties"), ["batch.size=100"]);
    let defaults = group(dir.path(), &options, "defaults");
    assert!(defaults.contains(&"segment.ms=604800000".to_owned()) && !defaults.iter().any(|l| l.starts_with("flush.ms")), "{defaults:?}");
    // What a setting takes stands there, too.
    let config = text(&offsetfs(&["cat"], dir.path(), &["config"], "").stdout);
    assert!(config.contains("# index.interval.bytes: bytes, 0 to 2147483647 (4096): "), "{config}");
    // A broker has settings that mean nothing here.
    let errors = text(&offsetfs(&["cat"], dir.path(), &["errors"], "").stdout);
    assert!(errors.contains("topic.properties, line 4: retries is no setting of offsetfs; the line does nothing"), "{errors}");
}

#[test]
fn a_new_log_keeps_what_it_was_made_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("made-0");
    let file = folder.path().join("own.properties");
    fs::write(&file, "compression.type=zstd\nisolation=read_committed\n").expect("a file");
    let options = format!("segment.bytes=400,batch.size=1,config={}", file.display());
    let lines: String = (0..20).map(|i| format!("line number {i}\n")).collect();
    let output = offsetfs(&["append", "--create", "-o", &options], &path, &[], &lines);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let kept = fs::read_to_string(path.join("topic.properties")).expect("settings");
    for line in ["segment.bytes=400", "batch.size=1", "compression.type=zstd"] {
        assert!(kept.lines().any(|l| l == line), "{kept}");
    }
    assert!(!kept.contains("isolation"), "that is a reader's: {kept}");
    let segments = || {
        fs::read_dir(&path)
            .expect("a folder")
            .filter(|e| e.as_ref().expect("an entry").path().extension().is_some_and(|x| x == "log"))
            .count()
    };
    let before = segments();
    assert!(before > 2, "{before} segments");
    // The next writer says nothing, and rolls by the same size.
    assert!(offsetfs(&["append"], &path, &[], &lines).status.success());
    assert!(segments() > before + 2, "{} segments", segments());
    assert_eq!(group(&path, &[], "from topic.properties"), ["segment.bytes=400", "batch.size=1", "compression.type=zstd"]);
    // Nothing was given: nothing is written down.
    let plain = folder.path().join("plain-0");
    assert!(offsetfs(&["append", "--create"], &plain, &[], "x\n").status.success());
    assert!(!plain.join("topic.properties").exists());
}

#[test]
fn settings_alone_are_no_log_yet() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("made-0");
    fs::create_dir(&path).expect("a folder");
    fs::write(path.join("topic.properties"), "segment.bytes=500\n").expect("a file");
    let output = offsetfs(&["append"], &path, &[], "x\n");
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("--create"), "{}", text(&output.stderr));
    // A hand has written them: they count, and stay as they are.
    assert!(offsetfs(&["append", "--create", "-o", "batch.size=7"], &path, &[], "x\n").status.success());
    assert_eq!(fs::read_to_string(path.join("topic.properties")).expect("a file"), "segment.bytes=500\n");
    assert_eq!(group(&path, &[], "from topic.properties"), ["segment.bytes=500"]);
}

#[test]
fn what_cannot_be_taken_is_told_by_its_line() {
    let dir = one_batch();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("own.properties");
    let option = format!("config={}", file.display());
    let large = "#".repeat(65 << 10);
    for (content, line, says) in [
        ("\nsegment.byte=100\n", "line 2", "did you mean segment.bytes?"),
        ("a=1\nsegment.bytes=13\n", "line 2", "14 to 2147483647"),
        ("x=\\u12\n", "line 1", "four hexadecimal digits"),
        (&large, "", "larger than 65536 bytes"),
    ] {
        fs::write(&file, content).expect("a file");
        let output = offsetfs(&["cat", "-o", &option], dir.path(), &["config"], "");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(line) && said.contains(says), "{content:.40}: {said}");
    }
    let output = offsetfs(&["cat", "-o", "config=/no/such/file"], dir.path(), &["config"], "");
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("/no/such/file"), "{output:?}");
}

#[test]
fn bad_settings_of_a_topic_keep_writers_out_and_readers_not() {
    let dir = one_batch();
    let file = dir.path().join("topic.properties");
    let large = "#".repeat(65 << 10);
    for (content, says) in [("flush.ms=1\nsegment.bytes=many\n", "topic.properties, line 2: segment.bytes=many"), (&large, "larger than")] {
        fs::write(&file, content).expect("a file");
        let output = offsetfs(&["append"], dir.path(), &[], "x\n");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(says) && said.contains("-o ro"), "{said}");
        assert_eq!(text(&offsetfs(&["cat"], dir.path(), &["by-offset/0"], "").stdout), "v0");
        assert!(group(dir.path(), &[], "defaults").contains(&"flush.ms=9223372036854775807".to_owned()), "none of it counts");
        let errors = text(&offsetfs(&["cat"], dir.path(), &["errors"], "").stdout);
        assert!(errors.contains(says), "{errors}");
    }
    // A link may lead anywhere; it is not followed.
    fs::remove_file(&file).expect("the file");
    std::os::unix::fs::symlink("/dev/zero", &file).expect("a link");
    assert_eq!(offsetfs(&["append"], dir.path(), &[], "x\n").status.code(), Some(3));
}
