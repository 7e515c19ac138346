//! The files of a partition as Kafka would see them, and their bytes through maps.

use crate::error::{Error, Result};
use crate::io::{Directory, Kind, Map, Open};
use crate::log::listing::{self, Listing, LogFile};
use crate::log::names;
use crate::log::scan::{Scan, Scope, scan};
use crate::log::segment::LOG_LEN_MAX;
use crate::types::Offset;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

impl LogFile {
    /// The name of the `.log`, or of its replacement.
    pub(crate) fn name(&self) -> String {
        self.name_of(names::LOG)
    }

    /// The name of the file that belongs to it and has this suffix.
    pub(crate) fn name_of(&self, suffix: &str) -> String {
        format!("{}{}", names::of(self.base_offset, suffix), self.suffix)
    }
}

/// The segments that count, in order.
#[derive(Debug)]
pub(crate) struct Layout {
    /// By rising base offset; a finished cleaning stands for what it replaces.
    pub(crate) logs: Vec<LogFile>,
    /// The segments that a finished cleaning replaces.
    pub(crate) replaced: Vec<LogFile>,
    /// The offsets that it replaces: the first, and the one behind the last.
    pub(crate) range: Option<(Offset, Offset)>,
}

impl Layout {
    /// The base offset of the segment behind a place: no batch of the one before may reach it.
    pub(crate) fn limit(&self, at: usize) -> Option<Offset> {
        self.logs.get(at + 1).map(|l| l.base_offset)
    }

    /// Whether no byte follows in a later segment, so that what is no batch at the end of this one may be a torn write.
    pub(crate) fn is_end(&self, at: usize) -> bool {
        self.logs.iter().skip(at + 1).all(|l| l.metadata.len == 0)
    }
}

/// Whether a listing has every log of the directory; one that could not be looked at is not simply missing, and what it holds is not lost.
///
/// # Errors
/// What the system says of a log that the listing left out.
pub(crate) fn is_complete(dir: &dyn Directory, found: &Listing) -> Result<bool> {
    let entries = dir.list().map_err(|e| Error::io("list", dir.path().display(), e))?;
    let parsed = |name: &OsStr| name.to_str().and_then(|name| names::parse(name).map(|(base, suffix)| (base, suffix.to_owned())));
    let named: Vec<(&OsStr, Offset, String)> = entries
        .iter()
        .filter(|e| e.kind == Kind::File)
        .filter_map(|e| parsed(&e.name).map(|(base, suffix)| (&*e.name, base, suffix)))
        .collect();
    let cleaned_from = named.iter().filter(|(.., suffix)| suffix.ends_with(names::CLEANED)).map(|(_, base, _)| *base).min();
    let swap = format!("{}{}", names::LOG, names::SWAP);
    for (name, base, suffix) in named {
        let listed = match suffix.as_str() {
            names::LOG => &found.logs,
            other if other == swap && cleaned_from.is_none_or(|from| base < from) => &found.swaps,
            _ => continue,
        };
        if listed.binary_search_by_key(&base, |l| l.base_offset).is_err() {
            match dir.metadata(name) {
                Ok(_) => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(e) => return Err(Error::io("look at", name.to_string_lossy(), e)),
            }
        }
    }
    Ok(true)
}

/// A listing that has every log of the directory, for who is going to change it.
///
/// # Errors
/// What the system says; a directory that changes meanwhile.
pub(crate) fn list_all(dir: &dyn Directory) -> Result<Listing> {
    let found = listing::list(dir)?;
    if is_complete(dir, &found)? {
        return Ok(found);
    }
    Err(Error::io("list", dir.path().display(), io::Error::other("it changed while it was looked at; try again")))
}

/// What counts in a directory (format reference 8, step 2).
///
/// # Errors
/// What the system says.
pub(crate) fn layout(dir: &dyn Directory, found: &Listing) -> Result<Layout> {
    let mut range = None;
    if let (Some(first), Some(last)) = (found.swaps.first(), found.swaps.last()) {
        let next = match map(dir, &last.name())? {
            Some(log) => scan_log(log.bytes(), last.base_offset, None, u64::MAX, &[]).end_offset(),
            None => last.base_offset,
        };
        range = Some((first.base_offset, next));
    }
    let (replaced, mut logs): (Vec<LogFile>, Vec<LogFile>) =
        found.logs.iter().cloned().partition(|l| found.is_replaced(l.base_offset, range));
    logs.extend(found.swaps.iter().cloned());
    logs.sort_by_key(|l| l.base_offset);
    Ok(Layout { logs, replaced, range })
}

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapped {
    map: Arc<Map>,
    name: String,
    len: u64,
}

impl Mapped {
    /// Its bytes, as many as it had when it was mapped; no more than positions can name.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.slice(0..self.len).unwrap_or_default()
    }

    /// That nothing vanished under the map: what was read before counts.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub(crate) fn still_whole(&self) -> Result<()> {
        if self.map.is_broken() { Err(Error::Truncated { file: self.name.clone() }) } else { Ok(()) }
    }
}

/// Maps a file; `None` where there is none, or no regular one.
///
/// # Errors
/// What else the system says.
pub(crate) fn map(dir: &dyn Directory, name: &str) -> Result<Option<Mapped>> {
    let run = || -> io::Result<Option<Mapped>> {
        let file = match dir.open(OsStr::new(name), Open::Read) {
            Ok(file) => file,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => return Ok(None),
            Err(e) => return Err(e),
        };
        let len = file.metadata()?.len.min(LOG_LEN_MAX);
        Ok(Some(Mapped { map: file.map(len)?, name: name.to_owned(), len }))
    };
    run().map_err(|e| Error::io("open", name, e))
}

/// Whether a file vanished or became shorter while it was looked at.
pub(crate) fn is_gone(error: &Error) -> bool {
    match error {
        Error::Truncated { .. } => true,
        Error::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

/// A thorough pass over the bytes of a `.log`. Where a segment stands behind it (`limit`), nothing at its end is a torn tail.
pub(crate) fn scan_log(log: &[u8], base: Offset, limit: Option<Offset>, interval_bytes: u64, disk_index: &[u8]) -> Scan {
    scan(log, Scope { base, limit, interval_bytes, disk_index })
}
