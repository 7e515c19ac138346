//! A real Kafka's log in a JVM beside the test: it opens directories, appends batches, and says what it reads. `Judge.java` is the other side.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A record as Kafka hands it to a consumer; keys, values and headers are in hexadecimal as `Judge.java` prints them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its offset.
    pub(crate) offset: i64,
    /// Kafka's name of the kind of its time.
    pub(crate) timestamp_type: String,
    /// Whether it ends a transaction or is another record that is no data.
    pub(crate) control: bool,
    /// Whether it is part of a transaction.
    pub(crate) transactional: bool,
    /// Its producer; -1 for none.
    pub(crate) producer_id: i64,
    /// Its time in ms; -1 for none.
    pub(crate) timestamp: i64,
    /// Key, value and headers.
    pub(crate) content: [String; 3],
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { offset, timestamp_type, control, transactional, producer_id, timestamp, content } = self;
        let kind = if *control { " control" } else { "" };
        let transaction = if *transactional { " in a transaction" } else { "" };
        write!(f, "({offset}{kind}, {timestamp_type} {timestamp}, producer {producer_id}{transaction}, {})", content.join(" "))
    }
}

/// A transaction in Kafka's list of aborted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aborted {
    /// Its producer.
    pub(crate) producer_id: i64,
    /// Its first offset.
    pub(crate) first: i64,
    /// The offset of its marker.
    pub(crate) last: i64,
}

/// What Kafka says of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The log start offset.
    pub(crate) start: i64,
    /// The log end offset.
    pub(crate) end: i64,
    /// The last stable offset.
    pub(crate) last_stable: i64,
    /// The latest leader epoch.
    pub(crate) leader_epoch: Option<i32>,
    /// Its records in order, control records among them.
    pub(crate) records: Vec<Seen>,
    /// Where reading them stopped before the end, and why.
    pub(crate) stopped: Option<(i64, String)>,
    /// The aborted transactions.
    pub(crate) aborted: Vec<Aborted>,
    /// For each time asked: the first offset, `-` for none, or the name of what was thrown.
    pub(crate) times: Vec<(i64, String)>,
    /// For each offset asked: that of the first record at or behind it, `-` for none, or the name of what was thrown.
    pub(crate) offsets: Vec<(i64, String)>,
}

impl Reading {
    /// Whether the record at an offset belongs to an aborted transaction.
    pub(crate) fn is_aborted(&self, record: &Seen) -> bool {
        let of_it =
            |aborted: &&Aborted| aborted.producer_id == record.producer_id && (aborted.first..=aborted.last).contains(&record.offset);
        record.transactional && self.aborted.iter().find(of_it).is_some()
    }
}

/// What the cleaner did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cleaned {
    /// The first dirty and the first uncleanable offset, the clean and the cleanable bytes.
    pub(crate) plan: [i64; 4],
    /// The offset up to which the log is clean now.
    pub(crate) end: i64,
}

/// The numbers behind the word that a line begins with.
fn numbers<const N: usize>(line: &str) -> [i64; N] {
    let numbers: Vec<i64> = line.split('\t').skip(1).map_while(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("not an answer: {line}"))
}

/// The JVM.
#[derive(Debug)]
pub(crate) struct Judge {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Judge {
    /// Starts it.
    ///
    /// # Panics
    /// Where Kafka cannot be had; `kafka.sh` says on standard error what is missing.
    pub(crate) fn start() -> Judge {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka");
        let mut child = Command::new(folder.join("kafka.sh"))
            .env("KAFKA_LOG", "off")
            .arg("run")
            .arg(folder.join("Judge.java"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("kafka.sh can be started");
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Judge { child, commands, answers }
    }

    /// Opens a directory; `Err` has what Kafka threw.
    pub(crate) fn open(&mut self, directory: &Path, settings: &str, clean: bool, log_start: i64) -> Result<(), String> {
        let clean = if clean { "clean" } else { "unclean" };
        self.ask(&format!("open\t{}\t{settings}\t{clean}\t{log_start}", directory.display())).map(|_| ())
    }

    /// Appends batches with the offsets that they have.
    pub(crate) fn append(&mut self, batches: &[&[u8]]) -> Result<(), String> {
        let mut command = String::from("append");
        for batch in batches {
            command.push('\t');
            batch.iter().for_each(|byte| command.push_str(&format!("{byte:02x}")));
        }
        self.ask(&command).map(|_| ())
    }

    /// Begins a new segment.
    pub(crate) fn roll(&mut self) -> Result<(), String> {
        self.ask("roll").map(|_| ())
    }

    /// Closes the log as a clean stop does.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        self.ask("close").map(|_| ())
    }

    /// Sets the time, and how long producers are known without a batch, for all that comes.
    pub(crate) fn set_clock(&mut self, now_ms: i64, producer_expiration_ms: i32) -> Result<(), String> {
        self.ask(&format!("clock\t{now_ms}\t{producer_expiration_ms}")).map(|_| ())
    }

    /// Lets the cleaner look for work once, with a map of keys of so many bytes.
    pub(crate) fn clean(&mut self, map_bytes: u32) -> Result<Option<Cleaned>, String> {
        let lines = self.ask(&format!("clean\t{map_bytes}"))?;
        let [cleaning, cleaned] = &lines[..] else { return Ok(None) };
        Ok(Some(Cleaned { plan: numbers(cleaning), end: numbers::<1>(cleaned)[0] }))
    }

    /// Lets retention look once; gives the log start offset behind it.
    pub(crate) fn retain(&mut self) -> Result<i64, String> {
        self.ask("retain").map(|lines| numbers::<1>(&lines[0])[0])
    }

    /// Reads the open log.
    pub(crate) fn read(&mut self, times: &[i64], offsets: &[i64]) -> Result<Reading, String> {
        let list = |numbers: &[i64]| {
            let words: Vec<String> = numbers.iter().map(i64::to_string).collect();
            if words.is_empty() { "-".to_owned() } else { words.join(",") }
        };
        let lines = self.ask(&format!("read\t{}\t{}", list(times), list(offsets)))?;
        let mut reading = Reading::default();
        for line in &lines {
            let words: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| words[at].parse::<i64>().unwrap_or_else(|_| panic!("a number is missing in {line}"));
            match words[0] {
                "bounds" => {
                    (reading.start, reading.end, reading.last_stable) = (number(1), number(2), number(3));
                    reading.leader_epoch = words[4].parse().ok();
                }
                "record" => reading.records.push(Seen {
                    offset: number(1),
                    timestamp_type: words[2].to_owned(),
                    control: words[3] == "true",
                    transactional: words[4] == "true",
                    producer_id: number(5),
                    timestamp: number(6),
                    content: [7, 8, 9].map(|at| words[at].to_owned()),
                }),
                "stopped" => reading.stopped = Some((number(1), words[2..].join(" "))),
                "aborted" => reading.aborted.push(Aborted { producer_id: number(1), first: number(2), last: number(3) }),
                "time" => reading.times.push((number(1), words[2].to_owned())),
                "offset" => reading.offsets.push((number(1), words[2].to_owned())),
                _ => panic!("not an answer: {line}"),
            }
        }
        Ok(reading)
    }

    /// Sends a command and takes its answer.
    fn ask(&mut self, command: &str) -> Result<Vec<String>, String> {
        let commands = self.commands.as_mut().expect("the pipe is open until the end");
        commands.write_all(command.as_bytes()).and_then(|()| commands.write_all(b"\n")).expect("the JVM takes commands");
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.answers.read_line(&mut line).expect("the JVM answers in text");
            assert!(read > 0, "Kafka was asked for and is not there");
            match line.trim_end_matches('\n') {
                "." => break,
                line => lines.push(line.to_owned()),
            }
        }
        match lines.iter().find_map(|line| line.strip_prefix("fail\t")) {
            Some(failure) => Err(failure.to_owned()),
            None => Ok(lines),
        }
    }
}

impl Drop for Judge {
    /// The end of its input ends it.
    fn drop(&mut self) {
        drop(self.commands.take());
        // It may have ended already; there is nobody to tell.
        let _ = self.child.wait();
    }
}
