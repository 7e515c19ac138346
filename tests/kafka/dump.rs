//! `offsetfs dump` shows every file that a real Kafka wrote as Kafka's own tool shows it, line for line, but for what [`argued`] lists.

use clap::Parser;
use offsetfs::cli::dump::{self, DumpArgs};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Parser)]
struct Dump {
    #[command(flatten)]
    args: DumpArgs,
}

/// What a tool shows of each file, and its complaints: a title and the lines under it.
#[derive(Default)]
struct Shown {
    files: Vec<Vec<String>>,
    complaints: BTreeMap<String, BTreeSet<String>>,
    /// The files at which it died.
    died: BTreeSet<usize>,
}

impl Shown {
    fn add(&mut self, files: &[PathBuf], stdout: &str, stderr: &str) {
        let mut expected = files.iter().map(|path| format!("Dumping {}", path.display())).peekable();
        for line in stdout.lines() {
            if expected.peek().is_some_and(|next| next == line) {
                expected.next();
                self.files.push(Vec::new());
            } else {
                self.files.last_mut().expect("the first line names a file").push(line.to_owned());
            }
        }
        let mut title = String::new();
        for line in stderr.lines().filter(|line| !line.starts_with("\tat ") && !line.starts_with("Exception in ")) {
            if line.starts_with(' ') || line.starts_with("Indexed offset") {
                self.complaints.entry(title.clone()).or_default().insert(line.to_owned());
            } else {
                title = line.to_owned();
                self.complaints.entry(title.clone()).or_default();
            }
        }
    }
}

fn by_kafka(files: &[PathBuf]) -> Shown {
    let mut shown = Shown::default();
    // It tells its complaints at the end, so where it dies of a file it has none of the files before.
    while shown.files.len() < files.len() {
        let rest = &files[shown.files.len()..];
        let (stdout, stderr, status) = super::kafka_dump(rest);
        let before = shown.files.len();
        shown.add(rest, &stdout, "");
        assert!(shown.files.len() > before, "Kafka shows nothing: {stderr}");
        if status != 0 {
            shown.died.insert(shown.files.len() - 1);
        }
    }
    let sound = files.iter().enumerate().filter(|(index, _)| !shown.died.contains(index));
    let sound: Vec<PathBuf> = sound.map(|(_, path)| path.clone()).collect();
    let (_, stderr, status) = super::kafka_dump(&sound);
    assert_eq!(status, 0, "{stderr}");
    shown.add(&[], "", &stderr);
    shown
}

fn by_us(options: &[&str], files: &[PathBuf]) -> (Shown, u8) {
    let words = ["dump".into()].into_iter().chain(options.iter().map(PathBuf::from)).chain(files.iter().cloned());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = dump::run(&Dump::parse_from(words).args, &mut out, &mut err).expect("a buffer can be written to");
    let mut shown = Shown::default();
    shown.add(files, &String::from_utf8(out).expect("UTF-8"), &String::from_utf8(err).expect("UTF-8"));
    (shown, code)
}

fn unpacked() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fixtures.tar.zst");
    let plain = zstd::stream::Decoder::new(fs::File::open(packed).expect("the fixtures")).expect("the fixtures are a zstd file");
    tar::Archive::new(plain).unpack(folder.path()).expect("the fixtures can be unpacked");
    folder
}

fn files_below(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files_below(&path, into) } else { into.push(path) }
    }
    into.sort();
}

/// Whether the file is a preallocated index without an entry.
fn is_without_entry(path: &Path) -> bool {
    path.extension().is_some_and(|suffix| suffix == "index" || suffix == "timeindex") && {
        let bytes = fs::read(path).expect("the index");
        bytes.len() > 24 && bytes[..24].iter().all(|byte| *byte == 0)
    }
}

/// The differences that are meant: why ours shows a file otherwise, if it may.
fn argued(path: &Path, kafka: &[String], ours: &[String], died: bool) -> Option<&'static str> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if died && ours.starts_with(kafka) && is_without_entry(path) {
        return Some("theirs dies of a preallocated index beside an empty log");
    }
    if kafka.is_empty() && name.ends_with("-checkpoint") {
        return Some("theirs does not know checkpoint files");
    }
    if kafka.is_empty() && name.ends_with(".deleted") {
        return Some("theirs does not look at what waits for its removal");
    }
    None
}

/// The complaints of theirs that are meant to be missing in ours.
fn argued_complaint(title: &str, lines: &mut BTreeSet<String>, files: &[PathBuf]) -> Option<&'static str> {
    if let Some(path) = title.strip_prefix("Ignoring unknown file ") {
        return (path.ends_with("-checkpoint") || path.ends_with(".deleted")).then_some("theirs ignores a file that ours shows");
    }
    if lines.iter().any(|line| line.starts_with("  -1 is followed by ")) {
        lines.retain(|line| !line.starts_with("  -1 is followed by "));
        return Some("theirs takes a file that does not begin at offset 0 for one with a gap");
    }
    let about = files.iter().any(|path| title.ends_with(&path.display().to_string()) && is_without_entry(path));
    if about {
        lines.clear();
    }
    about.then_some("theirs takes the zeros of a preallocated index for an entry")
}

pub(crate) fn dump_shows_what_kafkas_own_tool_shows() {
    let folder = unpacked();
    let mut files = Vec::new();
    files_below(&folder.path().join("data"), &mut files);
    files_below(&folder.path().join("unclean"), &mut files);
    let (kafka, (ours, code)) = (by_kafka(&files), by_us(&[], &files));
    assert_eq!(code, dump::EXIT_SOUND, "nothing in the fixtures is damaged");
    assert_eq!(ours.files.len(), files.len());
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lines = 0;
    for (index, path) in files.iter().enumerate() {
        let (theirs, ours) = (&kafka.files[index], &ours.files[index]);
        if theirs == ours {
            lines += ours.len();
        } else if let Some(reason) = argued(path, theirs, ours, kafka.died.contains(&index)) {
            *reasons.entry(reason).or_default() += 1;
        } else {
            let at = theirs.iter().zip(ours).take_while(|(a, b)| a == b).count();
            panic!("{} line {at}:\nKafka {:?}\nours  {:?}", path.display(), theirs.get(at), ours.get(at));
        }
    }
    assert!(lines > 20_000, "{lines} equal lines are too few to tell");
    let mut expected = BTreeMap::new();
    for (title, mut lines) in kafka.complaints {
        let has_lines = !lines.is_empty();
        let reason = argued_complaint(&title, &mut lines, &files);
        *reasons.entry(reason.unwrap_or("equal complaints")).or_default() += 1;
        if !lines.is_empty() || (!has_lines && reason.is_none()) {
            expected.insert(title, lines);
        }
    }
    let about_unknown = |title: &String| title.ends_with(".deleted");
    let found: BTreeMap<_, _> = ours.complaints.into_iter().filter(|(title, _)| !about_unknown(title)).collect();
    for title in expected.keys().chain(found.keys()) {
        assert_eq!(found.get(title), expected.get(title), "{title}: ours, Kafka's");
    }
    for (reason, count) in &reasons {
        println!("    {count} files: {reason}");
    }
    assert_eq!(reasons.len(), 7, "a difference that no fixture has any more: {reasons:?}");
}

pub(crate) fn dump_decodes_kafkas_own_topics_as_kafka_does() {
    let folder = unpacked();
    for (decode, option, topic) in [
        ("offsets", "--offsets-decoder", "__consumer_offsets-1"),
        ("transactions", "--transaction-log-decoder", "__transaction_state-0"),
        ("transactions", "--transaction-log-decoder", "__transaction_state-1"),
        ("metadata", "--cluster-metadata-decoder", "__cluster_metadata-0"),
    ] {
        let file = folder.path().join("data").join(topic).join("00000000000000000000.log");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/kafka.sh");
        let words = ["run", "org.apache.kafka.tools.DumpLogSegments", option, "--files"];
        let output = std::process::Command::new(script).args(words).arg(&file).output().expect("kafka.sh can be started");
        let mut kafka = Shown::default();
        let files = [file];
        kafka.add(&files, &String::from_utf8_lossy(&output.stdout), "");
        let (ours, code) = by_us(&["--decode", decode], &files);
        assert_eq!(code, dump::EXIT_SOUND);
        assert!(kafka.files[0].len() > 10, "{topic}");
        assert!(kafka.files == ours.files, "{topic}");
    }
}
