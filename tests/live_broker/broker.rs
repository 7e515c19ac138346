//! A one-node cluster on loopback that cleans up more eagerly than a broker usually does.

use crate::Watch;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A broker that does not answer or does not stop within this time never will.
const PATIENCE: Duration = Duration::from_secs(120);
/// So many lines are produced at a time, and then the producer rests.
const BURST: u64 = 150;
const REST: Duration = Duration::from_millis(50);

/// It and its folder go when it is dropped.
#[derive(Debug)]
pub(crate) struct Broker {
    folder: tempfile::TempDir,
    port: u16,
    process: Child,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/kafka.sh")
}

impl Broker {
    /// Starts it, and waits until it takes connections.
    pub(crate) fn start() -> Broker {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let listeners = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a free port"));
        let [port, controller] = listeners.map(|listener| listener.local_addr().expect("an address").port());
        let format = Command::new(script()).arg("format").arg(folder.path()).args([port.to_string(), controller.to_string()]).output();
        let format = format.expect("kafka.sh can be started");
        assert!(format.status.success(), "{}", String::from_utf8_lossy(&format.stderr));
        let mut settings = File::options().append(true).open(folder.path().join("server.properties")).expect("the settings");
        let eager = "log.retention.check.interval.ms=500\nlog.cleaner.backoff.ms=500\nlog.initial.task.delay.ms=500\nlog.cleaner.dedupe.buffer.size=4194304\n";
        settings.write_all(eager.as_bytes()).expect("the settings can be written");
        let log = File::create(folder.path().join("broker.log")).expect("a log file");
        let errors = log.try_clone().expect("a second handle");
        let process = Command::new(script()).arg("broker").arg(folder.path()).stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let mut broker = Broker { folder, port, process: process.expect("kafka.sh can be started") };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = broker.process.try_wait().expect("a child can be asked");
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "the broker does not answer ({ended:?}): {}", broker.said());
            thread::sleep(Duration::from_millis(100));
        }
        broker
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What it printed.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("broker.log")).unwrap_or_default()
    }

    fn tool(&self, class: &str) -> Command {
        let mut command = Command::new(script());
        command.args(["run", &format!("org.apache.kafka.tools.{class}"), "--bootstrap-server", &format!("127.0.0.1:{}", self.port)]);
        command
    }

    /// Creates a topic of one partition.
    pub(crate) fn create(&self, topic: &str, settings: &[&str]) {
        let mut command = self.tool("TopicCommand");
        command.args(["--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1"]);
        for setting in settings {
            command.args(["--config", setting]);
        }
        let output = command.output().expect("kafka.sh can be started");
        assert!(output.status.success(), "{topic}: {}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }

    /// Produces line after line until the watch is over; a tab in a line stands behind its key.
    pub(crate) fn produce(&self, topic: &str, watch: &Watch, line: impl Fn(u64) -> String) {
        let mut command = self.tool("ConsoleProducer");
        command.args(["--topic", topic]);
        if line(0).contains('\t') {
            command.args(["--reader-property", "parse.key=true"]);
        }
        let mut producer = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("kafka.sh can be started");
        let mut input = producer.stdin.take().expect("a pipe");
        let mut n = 0;
        while watch.goes_on() {
            let burst: String = (n..n + BURST).map(|n| line(n) + "\n").collect();
            input.write_all(burst.as_bytes()).expect("the producer reads");
            n += BURST;
            thread::sleep(REST);
        }
        drop(input);
        assert!(producer.wait().expect("the producer ends").success());
    }

    /// Stops it well.
    pub(crate) fn stop(&mut self) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), rustix::process::Signal::TERM).expect("it runs");
        let begin = Instant::now();
        while self.process.try_wait().expect("a child can be asked").is_none() {
            assert!(begin.elapsed() < PATIENCE, "the broker does not stop: {}", self.said());
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Broker {
    /// A test that failed leaves no broker behind.
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
