//! A real broker serves what offsetfs wrote, by the recipe of the README, and goes on with it; and the other way round.

use crate::folder::files;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::{CleanupPolicy, LogConfig};
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::source::{Keys, Latest, Maintenance, NewRecord, Source};
use offsetfs::types::{Patience, TimestampMs};
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const TOPIC: &str = "served";
/// The topic whose log we compacted.
const COMPACTED: &str = "compacted";
const BEGINNING_MS: i64 = 1_700_000_000_000;
/// A broker that does not answer or does not stop within this time never will.
const PATIENCE: Duration = Duration::from_secs(120);

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/kafka.sh")
}

/// A one-node cluster on loopback; what is left of it goes with its folder.
#[derive(Debug)]
struct Cluster {
    folder: tempfile::TempDir,
    port: u16,
    broker: Option<Child>,
}

impl Cluster {
    /// Makes its data directory.
    fn new() -> Cluster {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [port, controller] = free_ports();
        let format = Command::new(script()).arg("format").arg(folder.path()).args([port.to_string(), controller.to_string()]).output();
        let format = format.expect("kafka.sh can be started");
        assert!(format.status.success(), "{}", text(&format.stderr));
        Cluster { folder, port, broker: None }
    }

    /// Starts the broker and waits until it takes connections.
    fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_file()).expect("a log file");
        let errors = log.try_clone().expect("a second handle");
        let command = Command::new(script()).arg("broker").arg(self.folder.path()).stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let mut broker = command.expect("kafka.sh can be started");
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = broker.try_wait().expect("a child can be asked");
            assert!(ended.is_none() && Instant::now() < until, "the broker does not answer ({ended:?}): {}", self.said());
            sleep(Duration::from_millis(100));
        }
        self.broker = Some(broker);
    }

    /// Stops the broker well.
    fn stop(&mut self) {
        let Some(mut broker) = self.broker.take() else { return };
        let sent = Command::new("kill").args(["-TERM", &broker.id().to_string()]).status().expect("kill can be started");
        assert!(sent.success());
        let until = Instant::now() + PATIENCE;
        while broker.try_wait().expect("a child can be asked").is_none() {
            assert!(Instant::now() < until, "the broker does not stop: {}", self.said());
            sleep(Duration::from_millis(100));
        }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("broker.log")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Runs one of Kafka's own tools against the broker.
    fn tool(&self, class: &str, arguments: &[&str], input: &str) -> String {
        let server = format!("127.0.0.1:{}", self.port);
        let mut command = Command::new(script());
        command.args(["run", &format!("org.apache.kafka.tools.{class}"), "--bootstrap-server", &server]).args(arguments);
        let output = run(&mut command, input.as_bytes());
        assert!(output.status.success(), "{class} {arguments:?}: {}{}{}", text(&output.stdout), text(&output.stderr), self.said());
        text(&output.stdout)
    }

    /// Everything in the partition, through Kafka's consumer, a line each.
    fn consume(&self, topic: &str, from: usize, count: usize) -> Vec<String> {
        let (from, count) = (from.to_string(), count.to_string());
        let shown = ["print.timestamp", "print.offset", "print.headers", "print.key"].map(|name| format!("{name}=true"));
        let mut arguments =
            vec!["--topic", topic, "--partition", "0", "--offset", &from, "--max-messages", &count, "--timeout-ms", "60000"];
        for property in &shown {
            arguments.extend(["--formatter-property", property]);
        }
        self.tool("consumer.ConsoleConsumer", &arguments, "").lines().map(str::to_owned).collect()
    }

    /// What Kafka says of a time: `latest`, `earliest`, or milliseconds.
    fn offset_at(&self, time: &str) -> String {
        let said = self.tool("GetOffsetShell", &["--topic-partitions", &format!("{TOPIC}:0"), "--time", time], "");
        said.trim().strip_prefix(&format!("{TOPIC}:0:")).expect("one partition").to_owned()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn partition(&self, topic: &str) -> PathBuf {
        self.data().join(format!("{topic}-0"))
    }

    /// Puts files into the place of what the broker made of a topic.
    fn put(&self, topic: &str, files: &[(String, Vec<u8>)]) {
        let partition = self.partition(topic);
        for entry in fs::read_dir(&partition).expect("the topic's directory") {
            let entry = entry.expect("an entry");
            if entry.file_name() != "partition.metadata" {
                fs::remove_file(entry.path()).expect("the file can be removed");
            }
        }
        files.iter().for_each(|(name, bytes)| fs::write(partition.join(name), bytes).expect("the file can be written"));
    }

    /// Takes the topics out of a checkpoint.
    fn forget_in(&self, checkpoint: &str) {
        let path = self.data().join(checkpoint);
        let before = fs::read_to_string(&path).expect("a clean stop writes checkpoints");
        let entries: Vec<&str> = before
            .lines()
            .skip(2)
            .filter(|line| ![TOPIC, COMPACTED].iter().any(|topic| line.starts_with(&format!("{topic} 0 "))))
            .collect();
        let after: String = ["0".to_owned(), entries.len().to_string()]
            .into_iter()
            .chain(entries.iter().map(|s| (*s).to_owned()))
            .map(|line| line + "\n")
            .collect();
        fs::write(path, after).expect("the checkpoint can be written");
    }
}

impl Drop for Cluster {
    /// A test that failed leaves no broker behind.
    fn drop(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            // It may be gone already; there is nobody to tell.
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }
}

/// Two ports that were free a moment ago.
fn free_ports() -> [u16; 2] {
    let listeners = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command with input.
fn run(command: &mut Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command can be started");
    let mut pipe = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        // A command that fails before it has read all says why itself.
        scope.spawn(move || pipe.write_all(input));
        child.wait_with_output().expect("the command ends")
    })
}

fn offsetfs(arguments: &[&str], partition: &Path, rest: &[&str], input: &str) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_offsetfs")).args(arguments).arg(partition).args(rest), input.as_bytes())
}

/// The n-th record as a line of `append.jsonl`, and as Kafka's console consumer prints it.
fn record(n: usize) -> (String, String) {
    let timestamp = BEGINNING_MS + n as i64 * 1000 + if n % 13 == 5 { -7500 } else { 0 };
    let (key, key_shown) =
        if n.is_multiple_of(3) { ("null".to_owned(), "null".to_owned()) } else { (format!("\"k{n}\""), format!("k{n}")) };
    let (headers, headers_shown) = if n.is_multiple_of(5) { ("\"h\",\"1\",\"h\",\"2\"", "h:1,h:2") } else { ("", "NO_HEADERS") };
    let value = "v".repeat(n % 90);
    let line = format!("{{\"ts\":{timestamp},\"headers\":[{headers}],\"key\":{key},\"payload\":\"{value}\"}}\n");
    (line, format!("CreateTime:{timestamp}\tOffset:{n}\t{headers_shown}\t{key_shown}\t{value}"))
}

/// Lines of one append, as records n on; and what a consumer prints of them.
fn records(numbers: std::ops::Range<usize>) -> (String, Vec<String>) {
    numbers.map(record).unzip()
}

fn append(partition: &Path, codec: &str, extra: &str, lines: &str) {
    let settings = format!("compression.type={codec},segment.bytes=8000,index.interval.bytes=500,batch.size=1000");
    let output = offsetfs(&["append", extra, "--format", "jsonl", "-o", &settings], partition, &[], lines);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// So many records of [`KEYS_COUNT`] keys, from which on an index of keys is kept beside a log.
const KEYED: usize = 102_000;
const KEYS_COUNT: usize = 600;
/// The index.
const KEYS: &str = "by-key.offsetfs";

/// A log of keys that was compacted, with the index of its keys beside it: every third key ends deleted.
fn compacted_log(path: &Path) {
    let filesystem: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let cleanup_policy = CleanupPolicy { delete: false, compact: true };
    let config = LogConfig { cleanup_policy, segment_bytes: 1_000_000, ..LogConfig::default() };
    let log = Local::open(&filesystem, path, Options { wish: Wish::Writable, create: true, config }).expect("a new log");
    let records: Vec<(String, Option<String>)> = (0..KEYED)
        .map(|n| (format!("key {}", n % KEYS_COUNT), (n + KEYS_COUNT < KEYED || n % 3 != 0).then(|| format!("value {n}"))))
        .collect();
    let mut new = records.iter().enumerate().map(|(n, (key, value))| NewRecord {
        timestamp: TimestampMs::new(BEGINNING_MS + n as i64),
        key: Some(key.as_bytes()),
        value: value.as_ref().map(String::as_bytes),
        headers: &[],
    });
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    log.append(&mut new, false, Box::new(move |result| sender.send(result).expect("somebody waits"))).expect("small records");
    receiver.recv().expect("an answer").expect("an append");
    log.roll().expect("a roll");
    let done = log.compact(&mut |_, _| {}).expect("a compaction");
    assert_eq!((done.kept, done.gone.outdated), (KEYS_COUNT as u64, (KEYED - KEYS_COUNT) as u64));
    assert!(matches!(log.latest(b"key 0", Patience::MayBlock), Ok(Latest::Deleted(_))));
    log.close().expect("a clean close");
    assert!(path.join(KEYS).exists(), "the index is kept");
}

/// A line of JSON as Kafka's console consumer prints the record.
fn shown_by_the_consumer(line: &str) -> String {
    let record: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
    let text = |name: &str| record[name].as_str().unwrap_or("null").to_owned();
    format!("CreateTime:{}\tOffset:{}\tNO_HEADERS\t{}\t{}", record["ts"], record["offset"], text("key"), text("payload"))
}

/// Kafka's consumer gets every record that offsetfs wrote, offsetfs every record that Kafka's producer added, and again.
pub(crate) fn a_broker_serves_what_we_wrote() {
    const EACH: usize = 500;
    let ours = tempfile::tempdir().expect("a temporary folder");
    let ours = ours.path().join(format!("{TOPIC}-0"));
    let mut expected = Vec::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let (lines, shown) = records(expected.len()..expected.len() + EACH);
        append(&ours, codec, "--create", &lines);
        expected.extend(shown);
    }
    assert!(files(&ours, &[".log"]).len() > 5, "several segments");
    let keyed = tempfile::tempdir().expect("a temporary folder");
    let keyed = keyed.path().join(format!("{COMPACTED}-0"));
    compacted_log(&keyed);

    let mut cluster = Cluster::new();
    cluster.start();
    cluster.tool("TopicCommand", &["--create", "--topic", TOPIC, "--partitions", "1", "--replication-factor", "1"], "");
    let compact = ["--config", "cleanup.policy=compact"];
    cluster.tool(
        "TopicCommand",
        &[&["--create", "--topic", COMPACTED, "--partitions", "1", "--replication-factor", "1"], &compact[..]].concat(),
        "",
    );
    cluster.stop();
    let partition = cluster.partition(TOPIC);
    cluster.put(TOPIC, &files(&ours, &[".log", ".index", ".timeindex", "leader-epoch-checkpoint"]));
    cluster.put(COMPACTED, &files(&keyed, &[".log", ".index", ".timeindex", "leader-epoch-checkpoint", KEYS]));
    cluster.forget_in("recovery-point-offset-checkpoint");
    cluster.forget_in("replication-offset-checkpoint");

    cluster.start();
    assert_eq!(cluster.offset_at("latest"), expected.len().to_string());
    assert!(cluster.consume(TOPIC, 0, expected.len()) == expected, "the consumer's records are not those that were appended");
    assert_eq!(cluster.consume(TOPIC, 1234, 1), expected[1234..1235], "a look-up by offset");
    let kept = text(&offsetfs(&["cat"], &keyed, &["by-offset/earliest..latest.jsonl"], "").stdout);
    let kept: Vec<String> = kept.lines().map(shown_by_the_consumer).collect();
    assert!(kept.len() == KEYS_COUNT, "{} records were kept", kept.len());
    assert!(cluster.consume(COMPACTED, 0, kept.len()) == kept, "the consumer's records are not those that compaction left");
    let time = BEGINNING_MS + 777 * 1000;
    assert_eq!(cluster.offset_at(&time.to_string()), "777", "a look-up by time");
    let produced: Vec<String> = (0..EACH).map(|n| format!("produced {n}")).collect();
    cluster.tool("ConsoleProducer", &["--topic", TOPIC], &(produced.join("\n") + "\n"));
    cluster.stop();

    let index = |folder: &Path| fs::read(folder.join(KEYS)).expect("the index of keys");
    assert!(index(&cluster.partition(COMPACTED)) == index(&keyed), "the broker leaves our index alone");
    let found = offsetfs(&["cat", "-o", "by-key=ro"], &cluster.partition(COMPACTED), &["by-key/key 7"], "");
    assert_eq!(text(&found.stdout), format!("value {}", KEYED - KEYS_COUNT + 7), "{}", text(&found.stderr));

    let range = format!("by-offset/{}..latest", expected.len());
    let read = offsetfs(&["cat"], &partition, &[&range], "");
    assert_eq!(text(&read.stdout), produced.join("\n") + "\n", "{}", text(&read.stderr));
    let all = offsetfs(&["cat"], &partition, &["by-offset/earliest..latest.jsonl"], "");
    assert_eq!(text(&all.stdout).lines().count(), expected.len() + EACH, "{}", text(&all.stderr));
    let refused = offsetfs(&["append"], &partition, &[], "without being told so\n");
    assert_eq!(refused.status.code(), Some(1), "a broker's directory is not written to: {}", text(&refused.stderr));
    let more = expected.len() + EACH;
    let (lines, shown) = records(more..more + EACH);
    append(&partition, "lz4", "--take-over", &lines);

    cluster.start();
    assert_eq!(cluster.offset_at("latest"), (more + EACH).to_string());
    let consumed = cluster.consume(TOPIC, 0, more + EACH);
    assert!(consumed[..expected.len()] == expected[..] && consumed[more..] == shown[..], "what was appended is not what is consumed");
    let values: Vec<&str> = consumed[expected.len()..more].iter().filter_map(|line| line.split('\t').next_back()).collect();
    assert_eq!(values, produced);
    cluster.tool("ConsoleProducer", &["--topic", TOPIC], "the last one\n");
    cluster.stop();
    let last = offsetfs(&["cat"], &partition, &["by-offset/last"], "");
    assert_eq!(text(&last.stdout), "the last one", "{}", text(&last.stderr));
}
