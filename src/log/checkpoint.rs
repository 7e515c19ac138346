//! Kafka's checkpoint files: a version, a count, a line an entry (format reference 6.3).
//!
//! `leader-epoch-checkpoint` lies in the partition directory, the others beside it in the data directory. They are written to a temporary
//! name, synced, renamed, and the directory is synced, so that a crash leaves the old file or the new one.

use crate::error::{Error, Fault, Result};
use crate::io::{Directory, Open, lock, read_up_to, write_all_at};
use crate::log::names;
use crate::types::{Offset, TopicPartition};
use std::ffi::OsStr;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// No checkpoint file is larger than this, in bytes; a larger one is refused rather than read.
const LARGEST: usize = 64 << 20;
/// How long another process that changes the same file is waited for, and how often it is asked.
const LOCK_WAIT_MOST: Duration = Duration::from_secs(5);
const LOCK_WAIT_STEP: Duration = Duration::from_millis(5);

/// An entry of `leader-epoch-checkpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: i32,
    /// The first offset written in it.
    pub start: Offset,
}

/// The lines of a checkpoint file as lists of fields; `None` where the file does not exist.
fn read_lines(dir: &dyn Directory, name: &str) -> Result<Option<Vec<Vec<String>>>> {
    let file = match dir.open(OsStr::new(name), Open::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("open", name, e)),
    };
    let bytes = read_up_to(&*file, 0, file.metadata().map_or(LARGEST, |m| (m.len as usize).min(LARGEST)))
        .map_err(|e| Error::io("read", name, e))?;
    parse(&bytes).map(Some).map_err(|fault| Error::corrupt(name, fault))
}

/// The beginning of a text for a message: a line may be as long as the file.
fn shown(text: &str) -> String {
    let head: String = text.chars().take(60).collect();
    let rest = if head.len() < text.len() { "..." } else { "" };
    format!("`{}{rest}`", head.escape_debug())
}

fn parse(bytes: &[u8]) -> Result<Vec<Vec<String>>, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|e| Fault::new(e.valid_up_to() as u64, "UTF-8 text", "other bytes"))?;
    let mut at = 0u64;
    let mut lines = text.split_inclusive('\n').map(|raw| {
        let start = at;
        at += raw.len() as u64;
        (start, raw.trim_end_matches('\n').trim_end_matches('\r'))
    });
    let Some((_, version)) = lines.next() else { return Ok(Vec::new()) };
    if version != "0" {
        return Err(Fault::new(0, "version 0", shown(version)));
    }
    let Some((count_at, count)) = lines.next() else { return Ok(Vec::new()) };
    let count: usize = count.parse().map_err(|_| Fault::new(count_at, "the number of entries", shown(count)))?;
    let mut entries = Vec::new();
    for (start, line) in lines {
        let fields: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        if fields.is_empty() || line.starts_with(|c: char| c.is_ascii_whitespace()) {
            return Err(Fault::new(start, "an entry", shown(line)));
        }
        entries.push(fields);
    }
    if entries.len() != count {
        return Err(Fault::new(count_at, format!("{count} entries"), format!("{}", entries.len())));
    }
    Ok(entries)
}

fn field<T: std::str::FromStr>(name: &str, fields: &[String], at: usize, what: &'static str) -> Result<T> {
    let text = fields.get(at).map_or("", String::as_str);
    text.parse().map_err(|_| Error::corrupt(name, Fault::new(0, what, shown(text))))
}

/// The name that a checkpoint has until it is whole; Kafka's.
fn temporary(name: &str) -> String {
    format!("{name}.tmp")
}

fn write(dir: &dyn Directory, name: &str, entries: &[String]) -> Result<()> {
    let mut text = format!("0\n{}\n", entries.len());
    for entry in entries {
        text.push_str(entry);
        text.push('\n');
    }
    replace(dir, name, text.as_bytes())
}

/// Gives a file new bytes, durably: a crash leaves the old ones or the new ones.
///
/// # Errors
/// What the system says.
pub(crate) fn replace(dir: &dyn Directory, name: &str, bytes: &[u8]) -> Result<()> {
    let temporary = temporary(name);
    let run = || -> io::Result<()> {
        let file = dir.open(OsStr::new(&temporary), Open::Create)?;
        file.set_len(0)?;
        write_all_at(&*file, bytes, 0)?;
        file.sync_data()?;
        dir.rename(OsStr::new(&temporary), OsStr::new(name))?;
        dir.sync()
    };
    run().map_err(|e| Error::io("write", name, e))
}

/// The leader epochs of a partition in rising order; empty where the file is missing.
///
/// # Errors
/// What the system says; a file that does not follow the grammar, or whose epochs or offsets do not rise.
pub fn read_leader_epochs(dir: &dyn Directory) -> Result<Vec<EpochEntry>> {
    let name = names::LEADER_EPOCHS;
    let mut entries: Vec<EpochEntry> = Vec::new();
    for fields in read_lines(dir, name)?.unwrap_or_default() {
        let epoch: i32 = field(name, &fields, 0, "an epoch")?;
        let start: i64 = field(name, &fields, 1, "a start offset")?;
        let start = Offset::new(start).ok_or_else(|| Error::corrupt(name, Fault::new(0, "a start offset", format!("{start}"))))?;
        if entries.last().is_some_and(|last| last.epoch >= epoch || last.start > start) {
            return Err(Error::corrupt(name, Fault::new(0, "rising epochs and offsets", format!("epoch {epoch} at {start}"))));
        }
        entries.push(EpochEntry { epoch, start });
    }
    Ok(entries)
}

/// Writes the leader epochs of a partition.
///
/// # Errors
/// What the system says.
pub fn write_leader_epochs(dir: &dyn Directory, entries: &[EpochEntry]) -> Result<()> {
    let lines: Vec<String> = entries.iter().map(|e| format!("{} {}", e.epoch, e.start)).collect();
    write(dir, names::LEADER_EPOCHS, &lines)
}

/// What a checkpoint of a data directory says of a partition: of several entries the last counts; `None` where there is none.
///
/// # Errors
/// What the system says; a file that does not follow the grammar.
pub fn read_offset(dir: &dyn Directory, name: &str, partition: &TopicPartition) -> Result<Option<i64>> {
    let mut found = None;
    for fields in read_lines(dir, name)?.unwrap_or_default() {
        if fields.len() != 3 {
            return Err(Error::corrupt(name, Fault::new(0, "topic, partition and offset", format!("{} fields", fields.len()))));
        }
        let number: i32 = field(name, &fields, 1, "a partition number")?;
        let offset: i64 = field(name, &fields, 2, "an offset")?;
        if fields[0] == partition.topic && number == partition.partition {
            found = Some(offset);
        }
    }
    Ok(found)
}

/// Raises what a checkpoint of a data directory, or of a partition outside one, says of a partition; a larger offset that is there already
/// stays. Entries of other partitions stay as they are. The file is read, changed and renamed while its temporary name is locked, so that two
/// processes that have partitions in one directory do not lose each other's entry.
///
/// # Errors
/// [`Error::TopicName`]; [`Error::Locked`] where another process keeps the lock for seconds; what the system says; a file that does not follow
/// the grammar, which is left as it is.
pub fn raise_offset(dir: &dyn Directory, name: &str, partition: &TopicPartition, offset: Offset) -> Result<()> {
    change_offset(dir, name, partition, offset, |known| known < offset.get())
}

/// Sets what a checkpoint says of a partition, to a smaller offset, too; else as [`raise_offset`].
///
/// # Errors
/// As [`raise_offset`].
pub fn set_offset(dir: &dyn Directory, name: &str, partition: &TopicPartition, offset: Offset) -> Result<()> {
    change_offset(dir, name, partition, offset, |known| known != offset.get())
}

/// The directory whose checkpoint of this name counts for a partition: the data directory around it, if it is one or has that file, else its own.
pub(crate) fn place<'d>(dir: &'d dyn Directory, parent: Option<&'d dyn Directory>, name: &str) -> &'d dyn Directory {
    parent.filter(|p| [names::META_PROPERTIES, name].iter().any(|n| p.metadata(OsStr::new(n)).is_ok())).unwrap_or(dir)
}

fn change_offset(dir: &dyn Directory, name: &str, partition: &TopicPartition, offset: Offset, changes: impl Fn(i64) -> bool) -> Result<()> {
    if partition.topic.chars().any(char::is_whitespace) {
        return Err(Error::TopicName { topic: partition.topic.escape_debug().to_string() });
    }
    let _lock = lock_temporary(dir, name)?;
    let is_there = read_offset(dir, name, partition)?.is_some_and(|known| !changes(known));
    let number = partition.partition.to_string();
    let mut entries = read_lines(dir, name)?.unwrap_or_default();
    if !is_there {
        entries.retain(|fields| !(fields.first() == Some(&partition.topic) && fields.get(1) == Some(&number)));
    }
    let mut lines: Vec<String> = entries.iter().map(|fields| fields.join(" ")).collect();
    if !is_there {
        lines.push(format!("{} {number} {offset}", partition.topic));
    }
    // Also where the offset is there: whoever wrote it may have failed or died between the rename and the sync, and then it is not durable.
    write(dir, name, &lines)
}

/// Locks the temporary name of a checkpoint, which is made where it is missing.
fn lock_temporary(dir: &dyn Directory, name: &str) -> Result<lock::RecordLock> {
    let temporary = temporary(name);
    let deadline = Instant::now() + LOCK_WAIT_MOST;
    loop {
        match dir.take_record_lock(OsStr::new(&temporary)).map_err(|e| Error::io("lock", &temporary, e))? {
            Ok(lock) => return Ok(lock),
            Err(holder) if Instant::now() >= deadline => {
                let path = dir.path().join(&temporary).display().to_string();
                return Err(Error::Locked { path, holder: format!("{holder} changes it") });
            }
            Err(_) => thread::sleep(LOCK_WAIT_STEP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::os::OsFileSystem;
    use crate::io::{FileSystem, sim::SimDisk};
    use std::sync::Arc;

    #[test]
    fn what_kafka_reads_is_read() {
        let of = |text: &str| parse(text.as_bytes());
        assert_eq!(of("").map(|l| l.len()), Ok(0));
        assert_eq!(of("0\n").map(|l| l.len()), Ok(0));
        assert_eq!(of("0\n1\nt 0 7\n"), Ok(vec![vec!["t".to_owned(), "0".to_owned(), "7".to_owned()]]));
        assert_eq!(of("0\r\n1\r\nt\t0   7 ").map(|l| l.len()), Ok(1), "CRLF, tabs, a blank at the end, no last newline");
        for bad in ["1\n0\n", "0\nx\n", "0\n2\nt 0 7\n", "0\n1\n t 0 7\n", "0\n1\nt 0 7\n\n", " 0\n0\n"] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
    fn partition(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.to_owned(), partition }
    }

    fn offset(number: i64) -> Offset {
        Offset::new(number).unwrap()
    }

    #[test]
    fn an_offset_is_raised_and_never_lowered_and_other_entries_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(names::LOG_START);
        let dir = OsFileSystem.open_dir(folder.path()).unwrap();
        std::fs::write(&path, "0\n3\na 0 7\na 1 5\nb 0 9\n").unwrap();
        raise_offset(&*dir, names::LOG_START, &partition("a", 0), offset(8)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n3\na 1 5\nb 0 9\na 0 8\n");
        raise_offset(&*dir, names::LOG_START, &partition("a", 1), offset(4)).unwrap();
        raise_offset(&*dir, names::LOG_START, &partition("c", 2), offset(0)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n4\na 1 5\nb 0 9\na 0 8\nc 2 0\n");
        assert_eq!(dir.list().unwrap().len(), 1, "no temporary file is left");
        assert!(matches!(raise_offset(&*dir, names::LOG_START, &partition("a b", 0), offset(1)), Err(Error::TopicName { .. })));
        std::fs::write(&path, "no checkpoint").unwrap();
        assert!(matches!(raise_offset(&*dir, names::LOG_START, &partition("a", 0), offset(9)), Err(Error::Corrupt(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "no checkpoint");
    }

    #[test]
    fn writers_of_one_checkpoint_do_not_lose_each_others_entries() {
        let disk = SimDisk::new();
        disk.create_dir("/data".as_ref()).unwrap();
        let dir: Arc<dyn Directory> = disk.open_dir("/data".as_ref()).unwrap();
        std::thread::scope(|scope| {
            for topic in ["a", "b", "c"] {
                let dir = dir.clone();
                scope.spawn(move || {
                    for n in 1..=20 {
                        raise_offset(&*dir, names::LOG_START, &partition(topic, 0), offset(n)).unwrap();
                    }
                });
            }
        });
        for topic in ["a", "b", "c"] {
            assert_eq!(read_offset(&*dir, names::LOG_START, &partition(topic, 0)).unwrap(), Some(20), "{topic}");
        }
    }
}
