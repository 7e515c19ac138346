//! The files that a repair writes, each so that a crash leaves the old one or the new one.

use crate::error::{Error, Result};
use crate::io::{Directory, File, Open, read_up_to, write_all_at};
use crate::log::batch::{BatchHeader, Step};
use crate::log::check::files;
use crate::log::names;
use crate::log::repair::salvage::salvage;
use crate::log::repair::{Cut, Options};
use crate::types::Offset;
use std::ffi::OsStr;
use std::io;

/// Bytes are copied in pieces of this size.
const COPY_BYTES: u64 = 1 << 20;

/// Takes stretches out of a segment's log and makes its indexes anew.
///
/// A crash at any point leaves a log whose indexes fit it or are missing: a broker that starts then makes the missing ones itself.
pub(super) fn segment(dir: &dyn Directory, base: Offset, limit: Option<Offset>, cuts: &[Cut], options: &Options) -> Result<()> {
    let name = names::of(base, names::LOG);
    let log = dir.open(OsStr::new(&name), Open::Write).map_err(|e| Error::io("open", &name, e))?;
    if !cuts.is_empty() {
        if !options.discard {
            for cut in cuts {
                keep(dir, &name, &*log, cut)?;
            }
        }
        for suffix in [names::INDEX, names::TIME_INDEX] {
            let index = names::of(base, suffix);
            match dir.remove(OsStr::new(&index)) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::io("remove", index, e)),
            }
        }
        dir.sync().map_err(|e| Error::io("sync", dir.path().display(), e))?;
        let len = log.metadata().map_err(|e| Error::io("look at", &name, e))?.len;
        match cuts {
            [end] if end.to.get() >= len && !end.salvaged => log.set_len(end.from.get()).map_err(|e| Error::io("cut", &name, e))?,
            _ => without(dir, &name, &*log, len, cuts)?,
        }
    }
    // An index without its zero tail says that its log is on the disk.
    let log = dir.open(OsStr::new(&name), Open::Write).map_err(|e| Error::io("open", &name, e))?;
    log.sync_data().map_err(|e| Error::io("sync", &name, e))?;
    let Some(map) = files::map(dir, &name)? else { return Err(Error::io("open", name, io::ErrorKind::NotFound.into())) };
    let scan = files::scan_log(map.bytes(), base, limit, options.index_interval_bytes, &[]);
    map.still_whole()?;
    replace(dir, &names::of(base, names::INDEX), &scan.index)?;
    replace(dir, &names::of(base, names::TIME_INDEX), &scan.timeindex)
}

/// Copies a stretch into a file beside the log, durably. What an earlier run kept there stays, too.
fn keep(dir: &dyn Directory, log_name: &str, log: &dyn File, cut: &Cut) -> Result<()> {
    let wanted = format!("{log_name}.cut-{}", cut.from);
    let temporary = format!("{wanted}.tmp");
    let run = || -> io::Result<()> {
        let file = dir.open(OsStr::new(&temporary), Open::Create)?;
        file.set_len(0)?;
        // Zeros are kept as a hole of their length.
        file.set_len(cut.bytes())?;
        if !cut.zeros {
            copy(log, cut.from.get(), cut.to.get(), &*file, 0)?;
        }
        file.sync_data()?;
        dir.rename(OsStr::new(&temporary), OsStr::new(&free_name(dir, &wanted, &*file)?))?;
        dir.sync()
    };
    run().map_err(|e| Error::io("keep the cut bytes of", log_name, e))
}

/// The name itself where nothing or the same bytes stand there, else one with a number behind it.
fn free_name(dir: &dyn Directory, wanted: &str, file: &dyn File) -> io::Result<String> {
    let mut name = wanted.to_owned();
    for number in 2u64.. {
        match dir.open(OsStr::new(&name), Open::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => break,
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
            Err(e) => return Err(e),
            Ok(there) if same(&*there, file)? => break,
            Ok(_) => {}
        }
        name = format!("{wanted}.{number}");
    }
    Ok(name)
}

fn same(a: &dyn File, b: &dyn File) -> io::Result<bool> {
    let len = a.metadata()?.len;
    if len != b.metadata()?.len {
        return Ok(false);
    }
    let mut at = 0;
    while at < len {
        let piece = read_up_to(a, at, COPY_BYTES as usize)?;
        if piece.is_empty() || piece != read_up_to(b, at, COPY_BYTES as usize)? {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

/// Puts a log without the stretches, or with what was saved of them, into the place of the log.
fn without(dir: &dyn Directory, name: &str, log: &dyn File, len: u64, cuts: &[Cut]) -> Result<()> {
    let temporary = format!("{name}.tmp");
    let run = || -> io::Result<()> {
        let file = dir.open(OsStr::new(&temporary), Open::Create)?;
        file.set_len(0)?;
        let (mut from, mut to) = (0, 0);
        for cut in cuts {
            to = copy(log, from, cut.from.get(), &*file, to)?;
            from = cut.to.get().max(from);
            if cut.salvaged {
                let batch = read_up_to(log, cut.from.get(), usize::try_from(cut.bytes()).unwrap_or(usize::MAX))?;
                if let Ok(Step::Batch(header)) = BatchHeader::read(&batch, 0)
                    && let Some(saved) = salvage(&header, &batch)
                {
                    write_all_at(&*file, &saved.bytes, to)?;
                    to += saved.bytes.len() as u64;
                }
            }
        }
        copy(log, from, len, &*file, to)?;
        file.sync_data()?;
        dir.rename(OsStr::new(&temporary), OsStr::new(name))?;
        dir.sync()
    };
    run().map_err(|e| Error::io("rewrite", name, e))
}

/// Copies the bytes `[from, end)` of one file to a place of another; returns the place behind them.
fn copy(source: &dyn File, mut from: u64, end: u64, target: &dyn File, mut to: u64) -> io::Result<u64> {
    while from < end {
        let piece = read_up_to(source, from, (end - from).min(COPY_BYTES) as usize)?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        write_all_at(target, &piece, to)?;
        from += piece.len() as u64;
        to += piece.len() as u64;
    }
    Ok(to)
}

/// Puts a small file into the place of another; its bytes are durable, its name is once the directory is synced.
pub(super) fn replace(dir: &dyn Directory, name: &str, bytes: &[u8]) -> Result<()> {
    let temporary = format!("{name}.tmp");
    let run = || -> io::Result<()> {
        let file = dir.open(OsStr::new(&temporary), Open::Create)?;
        file.set_len(0)?;
        write_all_at(&*file, bytes, 0)?;
        file.sync_data()?;
        dir.rename(OsStr::new(&temporary), OsStr::new(name))
    };
    run().map_err(|e| Error::io("write", name, e))
}
