//! The file `ctl`: commands, one a line, each carried out before the write that brought it returns.
//!
//! A write is one or more whole lines. All of them are understood before the first is carried out, so that a slip of the pen does nothing.

use crate::source::{Maintenance, Source};
use crate::types::{Offset, TimestampMs};
use crate::view::error::{Error, ErrorKind};
use crate::view::time::{Zone, decimal, rfc3339};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, mpsc};

/// A write of more bytes than this is no list of commands.
const WRITE_MOST: usize = 4096;
/// So many carried out commands are shown in `status`.
const DONE_MOST: usize = 16;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// Make everything appended so far durable.
    Sync,
    /// End the active segment and begin the next one.
    Roll,
    /// Raise the log start offset.
    DeleteBefore(Offset),
    /// Take the segments that retention names.
    Retain,
    /// Keep only the latest record of each key.
    Compact,
}

/// What there is, for who typed something else.
const KNOWN: &str = "sync, roll, delete-before N, retain and compact";

impl Command {
    fn parse(line: &str) -> Result<Command, Error> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["sync"] => Ok(Command::Sync),
            ["roll"] => Ok(Command::Roll),
            ["delete-before", number] => match decimal(number.as_bytes()).and_then(Offset::new) {
                Some(offset) => Ok(Command::DeleteBefore(offset)),
                None => Err(Error::new(ErrorKind::Invalid, format!("delete-before takes an offset (decimal, no sign), not `{number}`"))),
            },
            ["retain"] => Ok(Command::Retain),
            ["compact"] => Ok(Command::Compact),
            _ => Err(Error::new(ErrorKind::Invalid, format!("`{line}` is no command; ctl knows {KNOWN}"))),
        }
    }

    fn carry_out(self, source: &Arc<dyn Source>, maintenance: &dyn Maintenance) -> Result<String, Error> {
        match self {
            Command::Sync => {
                let (sender, receiver) = mpsc::sync_channel(1);
                source.sync(Box::new(move |result| {
                    // The receiver waits right below.
                    let _ = sender.send(result);
                }));
                receiver.recv().unwrap_or(Err(crate::source::Error::Closed))?;
                Ok("everything appended is on the disk".to_owned())
            }
            Command::Roll => Ok(match maintenance.roll()? {
                true => "a new segment was begun",
                false => "the active segment is empty and stays",
            }
            .to_owned()),
            Command::DeleteBefore(offset) => {
                let start = maintenance.delete_before(offset)?;
                Ok(format!("the log start offset is {start}"))
            }
            Command::Compact => {
                let done = maintenance.compact(&mut |_, _| {})?;
                Ok(match done.compacted_to {
                    Some(end) => format!(
                        "compacted up to offset {end}: {} segments of {} bytes became {} of {}; {} records stay, {} went: {}",
                        done.segments.0,
                        done.bytes.0,
                        done.segments.1,
                        done.bytes.1,
                        done.kept,
                        done.gone.total(),
                        done.gone
                    ),
                    None => format!("nothing to do: {}", done.plan.why),
                })
            }
            Command::Retain => {
                let taken = maintenance.retain()?;
                Ok(match taken.first_kept() {
                    Some(first) => format!("{} segments of {} bytes went; offsets begin at {first}", taken.removals.len(), taken.bytes()),
                    None => "no segment may go".to_owned(),
                })
            }
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Sync => f.write_str("sync"),
            Command::Roll => f.write_str("roll"),
            Command::DeleteBefore(offset) => write!(f, "delete-before {offset}"),
            Command::Retain => f.write_str("retain"),
            Command::Compact => f.write_str("compact"),
        }
    }
}

/// The last commands that were carried out.
#[derive(Debug, Default)]
pub(crate) struct Done {
    last: Mutex<VecDeque<(TimestampMs, String)>>,
}

impl Done {
    fn note(&self, time: TimestampMs, sentence: String) {
        let mut last = self.last.lock();
        if last.len() == DONE_MOST {
            last.pop_front();
        }
        last.push_back((time, sentence));
    }

    /// In words, oldest first.
    pub(crate) fn sentences(&self, zone: &Zone) -> Vec<String> {
        self.last.lock().iter().map(|(time, sentence)| format!("{} {sentence}", rfc3339(*time, zone))).collect()
    }
}

/// Carries out the commands of one write, in order. It may wait for the disk.
///
/// # Errors
/// Of the first command that cannot be understood, before any is carried out; of the first that fails, behind those before it.
pub(crate) fn carry_out(source: &Arc<dyn Source>, done: &Done, data: &[u8]) -> Result<(), Error> {
    let none = || Error::not_found("this source takes no commands");
    let maintenance = source.maintenance().ok_or_else(none)?;
    if let Some(reason) = source.read_only() {
        return Err(Error::new(ErrorKind::ReadOnly, format!("opened read-only: {reason}")));
    }
    let text = std::str::from_utf8(data).ok().filter(|text| text.len() <= WRITE_MOST);
    let no_text = || Error::new(ErrorKind::Invalid, format!("commands are text of at most {WRITE_MOST} bytes a write"));
    let lines = text.ok_or_else(no_text)?.lines().map(str::trim).filter(|line| !line.is_empty());
    let commands = lines.map(Command::parse).collect::<Result<Vec<Command>, Error>>()?;
    for (n, command) in commands.iter().enumerate() {
        let outcome = command.carry_out(source, maintenance).map_err(|error| {
            let before = if n == 0 { "" } else { "; the commands before it were carried out" };
            error.explained(|reason| format!("{command}: {reason}{before}"))
        })?;
        log::info!("{}: {command}: {outcome}", source.name());
        done.note(source.now(), format!("{command}: {outcome}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_strictly() {
        let offset = |n| Offset::new(n).unwrap();
        for (line, command) in [
            ("sync", Command::Sync),
            ("roll", Command::Roll),
            ("delete-before 0", Command::DeleteBefore(offset(0))),
            ("delete-before   12350", Command::DeleteBefore(offset(12_350))),
            ("retain", Command::Retain),
            ("compact", Command::Compact),
        ] {
            assert_eq!(Command::parse(line), Ok(command), "{line}");
        }
        for line in [
            "Sync",
            "sync now",
            "delete-before",
            "delete-before -1",
            "delete-before 007",
            "delete-before 1 2",
            "rm -rf",
            "roll;",
            "retain all",
            "compact 5",
        ] {
            assert_eq!(Command::parse(line).unwrap_err().kind(), ErrorKind::Invalid, "{line}");
        }
        assert!(Command::parse("no such").unwrap_err().reason().contains(KNOWN));
    }
}
