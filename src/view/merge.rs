//! The partitions of a topic as one stream of envelopes, merged by time, in memory that does not grow with the range.
//!
//! Within a partition records keep the order of their offsets, whatever their times; between partitions the record with the smaller time
//! comes first, of equal ones that of the smaller partition.

use crate::source::{Batches, Body, Source};
use crate::types::{Offset, Patience};
use crate::view::error::{Error, ErrorKind};
use crate::view::node::Merged;
use crate::view::render::{copy_from, json_line};
use std::sync::Arc;

/// One partition of a merge.
#[derive(Debug)]
struct Branch {
    source: Arc<dyn Source>,
    from: Offset,
    until: Offset,
    batches: Box<dyn Batches>,
    body: Option<Body>,
    /// The records of the batch at hand that were not handed out, the next one last.
    records: Vec<crate::log::record::RecordRef>,
}

impl Branch {
    fn new(source: Arc<dyn Source>, merged: &Merged) -> Result<Branch, Error> {
        let bounds = source.bounds(Patience::MayBlock)?;
        let at = |time| source.offset_at(time, Patience::MayBlock).map(|o| o.unwrap_or(bounds.log_end));
        let until = merged.until.map_or(Ok(bounds.log_end), at)?;
        let from = merged.from.map_or(Ok(bounds.log_start), at)?;
        let batches = source.batches(from, until.max(from));
        Ok(Branch { source, from, until, batches, body: None, records: Vec::new() })
    }

    /// Makes sure that the next record is at hand, if there is one.
    fn fill(&mut self) -> Result<(), Error> {
        while self.records.is_empty() {
            let Some(body) = self.batches.next(Patience::MayBlock)? else {
                self.body = None;
                return Ok(());
            };
            for record in body.records() {
                let record = record.map_err(|fault| Error::new(ErrorKind::Damaged, format!("damaged: {fault}")))?;
                if record.offset >= self.from && record.offset < self.until {
                    self.records.push(record);
                }
            }
            self.records.reverse();
            self.body = Some(body);
        }
        Ok(())
    }
}

/// The merged stream.
#[derive(Debug)]
pub(crate) struct Merge {
    merged: Merged,
    sources: Vec<Arc<dyn Source>>,
    branches: Vec<Branch>,
    line: Vec<u8>,
    line_at: usize,
    at: u64,
    failed: Option<Error>,
}

impl Merge {
    pub(crate) fn new(sources: Vec<Arc<dyn Source>>, merged: Merged) -> Result<Merge, Error> {
        let mut merge = Merge { merged, sources, branches: Vec::new(), line: Vec::new(), line_at: 0, at: 0, failed: None };
        merge.restart()?;
        Ok(merge)
    }

    fn restart(&mut self) -> Result<(), Error> {
        self.branches.clear();
        for source in &self.sources {
            self.branches.push(Branch::new(source.clone(), &self.merged)?);
        }
        (self.line, self.line_at, self.at, self.failed) = (Vec::new(), 0, 0, None);
        Ok(())
    }

    pub(crate) fn read(&mut self, at: u64, out: &mut [u8]) -> Result<usize, Error> {
        if at < self.at {
            self.restart()?;
        }
        while self.at < at {
            let mut dropped = [0; 4096];
            let wanted = (at - self.at).min(dropped.len() as u64) as usize;
            if self.some(&mut dropped[..wanted])? == 0 {
                return Ok(0);
            }
        }
        self.some(out)
    }

    fn some(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < out.len() {
            if self.line_at < self.line.len() {
                let n = copy_from(&self.line, self.line_at as u64, &mut out[filled..]);
                (self.line_at, filled) = (self.line_at + n, filled + n);
                continue;
            }
            if let Some(error) = &self.failed {
                if filled == 0 {
                    return Err(error.clone());
                }
                break;
            }
            match self.next_line() {
                Ok(true) => {}
                Ok(false) => break,
                // What was read so far is handed out; the error comes with the next read.
                Err(error) => self.failed = Some(error),
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }

    /// Makes the line of the earliest record; `false` at the end.
    fn next_line(&mut self) -> Result<bool, Error> {
        (self.line_at, self.line) = (0, std::mem::take(&mut self.line));
        self.line.clear();
        for branch in &mut self.branches {
            branch.fill()?;
        }
        let earliest = self.branches.iter().enumerate().filter_map(|(i, b)| b.records.last().map(|r| (r.timestamp, i))).min();
        let Some((_, i)) = earliest else { return Ok(false) };
        let branch = &mut self.branches[i];
        if let (Some(record), Some(body)) = (branch.records.pop(), &branch.body) {
            let record = body.record(record);
            json_line(&mut self.line, branch.source.name(), &record);
            if record.is_broken() {
                self.line.clear();
                return Err(Error::new(ErrorKind::Damaged, "a segment became shorter while it was read; read again"));
            }
        }
        Ok(true)
    }
}
