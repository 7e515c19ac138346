//! The buffer before the output: lines are put together in it, and it is written a number of whole pages at a time.

use std::io::{self, Write};

/// Nothing is written that is no multiple of this, but for the end of all.
const PAGE: usize = 4096;
/// The most that the buffer waits for. Half a second-level cache: what is put in is still there when it is written.
const FULL_MOST: usize = 128 << 10;

/// A buffered output. The first page is written as soon as it is full, so that a reader sees something at once; then ever more at a time.
pub(super) struct Output<'w> {
    out: &'w mut dyn Write,
    buffer: Vec<u8>,
    full: usize,
}

impl<'w> Output<'w> {
    /// Nothing is written yet.
    pub(super) fn new(out: &'w mut dyn Write) -> Output<'w> {
        Output { out, buffer: Vec::with_capacity(FULL_MOST + PAGE), full: PAGE }
    }

    /// Where lines are put.
    #[inline]
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Whether enough is there to write.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.buffer.len() >= self.full
    }

    /// Writes the whole pages that are there.
    pub(super) fn write_pages(&mut self) -> io::Result<()> {
        let whole = self.buffer.len() - self.buffer.len() % PAGE;
        self.out.write_all(self.buffer.get(..whole).unwrap_or_default())?;
        self.buffer.drain(..whole);
        self.buffer.shrink_to(FULL_MOST + PAGE);
        self.full = (self.full * 2).min(FULL_MOST);
        Ok(())
    }

    /// Writes all that is there.
    pub(super) fn write_all(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        self.out.flush()
    }
}
