//! A writer that is stopped in the middle of its work, and the book that is kept of what it was told.
//!
//! The writer is a process of its own: the test program, started again by itself with [`WRITER`] as its first argument. It appends through the engine with
//! several threads and says of every record that was acknowledged where it stands. Every value tells which writer stored it, its number there, and
//! can be made anew, so that no wrong byte goes unnoticed. Numbers of one writer rise without a gap.

#[path = "random.rs"]
mod random;

use offsetfs::io::FileSystem;
use offsetfs::log::config::LogConfig;
use offsetfs::log::encode::NewRecord;
use offsetfs::log::prepare::prepare;
use offsetfs::log::walk::{Item, Look};
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::types::{Patience, TimestampMs};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(crate) use random::Random;

/// The first argument of the process that writes.
pub(crate) const WRITER: &str = "--writer";
/// So many threads append in it; those below the second number ask for an fsync with each request.
pub(crate) const THREADS: u64 = 3;
const DURABLE_THREADS: u64 = 2;
/// How long to wait for a process or a first answer before the test fails. Generous: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Small segments, so that rolls are struck, too.
pub(crate) const SEGMENT_BYTES: u64 = 8 << 10;

/// A number from the environment, for a longer run than the usual one.
pub(crate) fn asked(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable} takes a number")))
}

/// A record: its writer, and its number there.
pub(crate) type Id = (u64, u64);

/// The value of a record, without a line end.
pub(crate) fn value((writer, number): Id) -> Vec<u8> {
    let mut random = Random(writer << 32 ^ number);
    let most = [40, 40, 200, 200, 200, 3000][random.below(6) as usize];
    let mut text = format!("{writer}.{number}:").into_bytes();
    text.extend((0..random.below(most)).map(|_| b'a' + random.below(26) as u8));
    text
}

fn id_of(text: &[u8]) -> Option<Id> {
    let head = text.split(|b| *b == b':').next()?;
    let (writer, number) = std::str::from_utf8(head).ok()?.split_once('.')?;
    Some((writer.parse().ok()?, number.parse().ok()?))
}

/// The settings of the writers.
pub(crate) fn config() -> LogConfig {
    LogConfig { segment_bytes: SEGMENT_BYTES, segment_index_bytes: 240, index_interval_bytes: 500, ..LogConfig::default() }
}

/// The process that writes until it is stopped: `arguments` are the directory and the number of its first writer.
pub(crate) fn write(filesystem: &Arc<dyn FileSystem>, arguments: &[String]) -> ! {
    let [directory, first] = arguments else { panic!("{WRITER} takes a directory and a number") };
    let options = Options { wish: Wish::Writable, create: true, config: config() };
    let local = Local::open(filesystem, Path::new(directory), options).expect("the log opens at once");
    let first: u64 = first.parse().expect("a number");
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let local = &local;
            scope.spawn(move || append(local, first + thread, thread < DURABLE_THREADS));
        }
    });
    std::process::exit(1);
}

fn append(local: &Local, writer: u64, durable: bool) {
    let committer = local.committer().expect("a log for writing");
    let mut random = Random(writer);
    let mut number = 0;
    loop {
        let values: Vec<_> = (0..1 + random.below(4)).map(|i| value((writer, number + i))).collect();
        let timestamp = TimestampMs::new(1_700_000_000_000 + number as i64);
        let mut records = values.iter().map(|value| NewRecord { timestamp, key: None, value: Some(value), headers: &[] });
        let request = prepare(local.partition().config(), timestamp, &mut records).expect("small records");
        // The disk may have gone. Who stops the process looks whether it ended before.
        let Ok(appended) = committer.append_and_wait(request, durable) else { return };
        let mut said = String::new();
        for i in 0..values.len() as u64 {
            let strength = if durable { "synced" } else { "appended" };
            said.push_str(&format!("{strength} {writer} {} {}\n", number + i, appended.first.get() + i as i64));
        }
        number += values.len() as u64;
        // One write, so that what a reader gets of the last one is a whole line or none.
        io::stdout().lock().write_all(said.as_bytes()).expect("the pipe takes it");
    }
}

/// A record that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) id: Id,
    /// Where the writer was told that it stands; `None` where it was not told.
    pub(crate) offset: Option<i64>,
    /// Whether an fsync was behind it.
    pub(crate) synced: bool,
}

impl Acknowledged {
    fn read(line: &str) -> Option<Acknowledged> {
        let mut words = line.split_ascii_whitespace();
        let synced = words.next()? == "synced";
        let id = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Acknowledged { id, offset: words.next().map(|o| o.parse().expect("an offset")), synced })
    }
}

/// A child whose standard output is lines of what it was told.
#[derive(Debug)]
pub(crate) struct Writing {
    /// The process.
    pub(crate) child: Child,
    first: Receiver<()>,
    told: Arc<Mutex<Vec<Acknowledged>>>,
    reader: Option<JoinHandle<()>>,
}

impl Writing {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Writing {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a process can be started");
        let out = child.stdout.take().expect("a pipe");
        let (sender, first) = mpsc::channel();
        let told = Arc::new(Mutex::new(Vec::new()));
        let book = Arc::clone(&told);
        let reader = thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut line = String::new();
            // Half a line at the end is none.
            while out.read_line(&mut line).expect("its output is text") > 0 && line.ends_with('\n') {
                let entry = Acknowledged::read(&line).unwrap_or_else(|| panic!("what is this: {line}"));
                book.lock().expect("no reader panics").push(entry);
                // Who waits may have seen enough.
                let _ = sender.send(());
                line.clear();
            }
        });
        Writing { child, first, told, reader: Some(reader) }
    }

    /// The engine's writers, in a process of their own whose complaints go to `said`.
    pub(crate) fn engine(arguments: &[&str], directory: &Path, first: u64, said: Stdio) -> Writing {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        Writing::start(command.args(arguments).arg(directory).arg(first.to_string()).stdin(Stdio::null()).stderr(said))
    }

    /// Waits for a first acknowledged record.
    ///
    /// # Panics
    /// Where none comes.
    pub(crate) fn wait_for_first(&self) {
        self.first.recv_timeout(PATIENCE).expect("a first record is acknowledged");
    }

    /// What it was told so far, as far as that was read.
    pub(crate) fn told(&self) -> Vec<Acknowledged> {
        self.told.lock().expect("no reader panics").clone()
    }

    /// That nothing has stopped it so far.
    ///
    /// # Panics
    /// Where it ended by itself.
    pub(crate) fn still_writes(&mut self) {
        let ended = self.child.try_wait().expect("the child can be asked");
        assert!(ended.is_none(), "it ended by itself: {ended:?}");
    }

    /// Waits for its end and gives all that it was told.
    pub(crate) fn end(mut self) -> Vec<Acknowledged> {
        self.child.wait().expect("it ends");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("its output was read");
        }
        self.told()
    }

    /// Kills it, where it still runs, and gives all that it was told.
    pub(crate) fn kill(mut self) -> Vec<Acknowledged> {
        self.child.kill().expect("it can be killed");
        self.end()
    }
}

/// What was found to be stored.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By offset.
    stored: BTreeMap<i64, Id>,
    /// The number that the next record of a writer has.
    next_number: BTreeMap<u64, u64>,
}

impl Ledger {
    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.stored.len()
    }

    /// Looks at the whole log: what was there stays as it was, what is new is right and told once, and everything acknowledged is there. After a power cut
    /// (`cut`), records that were not synced may be missing, each for itself.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn look(&mut self, directory: &Path, acknowledged: &[Acknowledged], cut: bool) -> Result<(), String> {
        let found = read_all(directory, cut)?;
        for (offset, id) in &self.stored {
            if found.get(offset) != Some(id) {
                return Err(format!("offset {offset} held {id:?}, now {:?}", found.get(offset)));
            }
        }
        let mut places = BTreeMap::new();
        for (offset, id) in &found {
            if self.stored.contains_key(offset) {
                continue;
            }
            let next = self.next_number.entry(id.0).or_default();
            if id.1 < *next || (id.1 > *next && !cut) {
                return Err(format!("offset {offset} holds {id:?} where number {next} should follow"));
            }
            *next = id.1 + 1;
            places.insert(*id, *offset);
        }
        let end = self.stored.last_key_value().map_or(0, |(last, _)| last + 1);
        if !cut && let Some(gap) = (end..).zip(found.range(end..)).find(|(wanted, (offset, _))| wanted != *offset) {
            return Err(format!("no record at offset {}", gap.0));
        }
        for told in acknowledged.iter().filter(|told| told.synced || !cut) {
            match places.get(&told.id) {
                Some(offset) if told.offset.is_none_or(|told| told == *offset) => {}
                place => return Err(format!("{told:?} is lost: it stands at {place:?}")),
            }
        }
        self.stored = found;
        Ok(())
    }
}

/// All records of a log by offset; their values are looked at byte by byte.
fn read_all(directory: &Path, may_be_damaged: bool) -> Result<BTreeMap<i64, Id>, String> {
    let filesystem: Arc<dyn FileSystem> = Arc::new(offsetfs::io::os::OsFileSystem);
    let options = Options { wish: Wish::ReadOnly, create: false, config: config() };
    let local = match Local::open(&filesystem, directory, options) {
        Ok(local) => local,
        // The writer was stopped before it made anything.
        Err(offsetfs::error::Error::NotAPartition { .. }) => return Ok(BTreeMap::new()),
        Err(error) => return Err(format!("it cannot be opened: {error}")),
    };
    let partition = local.partition();
    let bounds = partition.bounds();
    let mut walk = partition.walk(bounds.log_start, bounds.log_end, Look::Batches, Patience::MayBlock);
    let mut found = BTreeMap::new();
    while let Some(item) = walk.next(partition).map_err(|e| format!("a walk fails: {e}"))? {
        match item {
            Item::Damaged(_) if may_be_damaged => {}
            Item::Damaged(damage) => return Err(format!("damage: {damage}")),
            Item::Batch(batch, file) => {
                let body = partition.body(&batch, &file, Patience::MayBlock).map_err(|e| format!("a body fails: {e}"))?;
                for record in body.records() {
                    let record = body.record(record.map_err(|e| format!("a record fails: {e}"))?);
                    let text = record.value().unwrap_or_default();
                    let id = id_of(text).filter(|id| value(*id) == text);
                    let id = id.ok_or_else(|| format!("offset {} holds wrong bytes: {}", record.offset(), text.escape_ascii()))?;
                    found.insert(record.offset().get(), id);
                }
            }
        }
    }
    Ok(found)
}
