//! The batches of a segment that is compacted, one behind the other. Compaction is for sound logs only: anything else ends it.

use crate::error::{Error, Fault, Result};
use crate::io::Directory;
use crate::log::batch::{BatchHeader, Step, verify_crc};
use crate::log::check::files::{self, Mapped};
use crate::log::index::fits;
use crate::log::segment::Segment;
use crate::types::Offset;

/// The bytes of a segment, up to its published end.
#[derive(Debug)]
pub(super) struct Source {
    map: Mapped,
    file: String,
    base: Offset,
    end: usize,
}

impl Source {
    /// Maps the `.log` of a segment.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(dir: &dyn Directory, segment: &Segment) -> Result<Source> {
        let file = segment.log_name().to_owned();
        let map = files::map(dir, &file)?.ok_or_else(|| Error::io("open", &file, std::io::ErrorKind::NotFound.into()))?;
        let end = usize::try_from(segment.end()).unwrap_or(usize::MAX).min(map.bytes().len());
        Ok(Source { map, file, base: segment.base_offset(), end })
    }

    /// Its batches from the first on.
    pub(super) fn batches(&self) -> Batches<'_> {
        Batches { source: self, at: 0, next: self.base }
    }
}

/// A walk over them.
#[derive(Debug)]
pub(super) struct Batches<'s> {
    source: &'s Source,
    at: usize,
    next: Offset,
}

/// A batch: its header, its bytes, and where it begins.
pub(super) type Found<'s> = (BatchHeader, &'s [u8], u64);

impl<'s> Batches<'s> {
    /// The name of the file.
    pub(super) fn file(&self) -> &'s str {
        &self.source.file
    }

    /// The next batch, its checksum not looked at; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for bytes that are no batch, or offsets that do not rise; a file that became shorter.
    pub(super) fn next_header(&mut self) -> Result<Option<Found<'s>>> {
        let log = self.source.map.bytes().get(..self.source.end).unwrap_or_default();
        let step = BatchHeader::read(log, self.at);
        self.source.map.still_whole()?;
        let header = match step {
            Ok(Step::Batch(header)) => header,
            Ok(Step::End { left: 0 }) => return Ok(None),
            Ok(Step::End { left }) => {
                return Err(self.corrupt(Fault::new(
                    self.at as u64,
                    "a whole batch",
                    format!("{left} bytes of one, or of something else"),
                )));
            }
            Err(fault) => return Err(self.corrupt(fault)),
        };
        if header.base_offset < self.next || !fits(self.source.base, header.last_offset) {
            let found = format!("{} to {}", header.base_offset, header.last_offset);
            return Err(self.corrupt(Fault::new(self.at as u64, format!("offsets from {} on", self.next), found)));
        }
        let position = self.at as u64;
        let batch = log.get(self.at..self.at + header.size as usize).unwrap_or_default();
        (self.at, self.next) = (self.at + header.size as usize, header.next_offset());
        Ok(Some((header, batch, position)))
    }

    /// The next batch, with a right checksum.
    ///
    /// # Errors
    /// As [`Batches::next_header`]; a checksum that differs.
    pub(super) fn next(&mut self) -> Result<Option<Found<'s>>> {
        let Some((header, batch, position)) = self.next_header()? else { return Ok(None) };
        let verified = verify_crc(&header, batch);
        self.source.map.still_whole()?;
        verified.map_err(|fault| self.corrupt(fault.moved(position)))?;
        Ok(Some((header, batch, position)))
    }

    /// An error that names this file.
    pub(super) fn corrupt(&self, fault: Fault) -> Error {
        Error::corrupt(&*self.source.file, fault)
    }
}
