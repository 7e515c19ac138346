//! The tree without a mount: `ls`, `cat`, `stat`, `append` ask the same view as a mount does.

use super::options::Options;
use super::pretty::Pretty;
use super::{Exit, Failure, Outcome, SourceArgs};
use crate::io::os::OsFileSystem;
use crate::io::{File, FileSystem};
use crate::source::Source;
use crate::source::access::Wish;
use crate::source::data_dir::DataDir;
use crate::source::local::{self, Local};
use crate::types::Patience::MayBlock;
use crate::types::TimestampMs;
use crate::view::forest::Forest;
use crate::view::time::{Zone, rfc3339};
use crate::view::{Appender, Attr, ErrorKind, FileKind, Framing, Node, Place, Reader, Tree, View};
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, mpsc};

/// The message of a failure that is only a reader who went away.
pub(super) const BROKEN_PIPE: &str = "the reader went away";
/// Files are read in pieces of this size, in bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Links are followed so many times at most.
const LINKS_MOST: usize = 8;

/// A source for reading, as a tree: a partition or a data directory.
pub(super) fn open(args: &SourceArgs) -> Result<(Tree, Zone), Failure> {
    let options = Options::parse(&args.options).map_err(|e| Failure::new(Exit::Usage, e))?;
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let source = std::path::absolute(&args.source)?;
    let zone = options.zone.clone();
    Ok((plant(&fs, &source, &Options { wish: Wish::ReadOnly, ..options }, false)?.0, zone))
}

/// The tree over a source, and why nothing can be appended to it.
pub(super) fn plant(fs: &Arc<dyn FileSystem>, source: &Path, options: &Options, create: bool) -> Result<(Tree, Option<String>), Failure> {
    if DataDir::is_data_dir(&**fs, source) {
        let data = DataDir::open(fs, source, options.wish, options.settings.clone())?;
        let read_only = data.read_only().map(str::to_owned);
        return Ok((Tree::Many(Box::new(Forest::new(Arc::new(data), options.view()))), read_only));
    }
    let local = Local::open(fs, source, local::Options { wish: options.wish, create, config: options.settings.clone() })?;
    let read_only = local.read_only().map(str::to_owned);
    Ok((Tree::One(Arc::new(View::new(Arc::new(local), options.view()))), read_only))
}

pub(super) fn output(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::Done, BROKEN_PIPE),
        _ => Failure::new(Exit::Io, format!("writing the output: {e}")),
    })
}

/// The place of a path, links followed.
fn resolve(tree: &Tree, path: &OsStr) -> Result<Place, Failure> {
    let mut path = path.as_bytes().to_vec();
    for _ in 0..LINKS_MOST {
        let place = tree.resolve(&path, MayBlock)?;
        let Node::Link(target) = place.node else { return Ok(place) };
        let mut names: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect();
        names.pop();
        for name in target.split('/') {
            match name {
                ".." => {
                    names.pop();
                }
                name => names.push(name.as_bytes()),
            }
        }
        path = names.join(&b'/');
    }
    Err(Failure::new(Exit::No, "too many links"))
}

pub(super) fn ls(args: &SourceArgs, path: &OsStr, long: bool) -> Outcome {
    let (tree, zone) = open(args)?;
    let dir = tree.resolve(path.as_bytes(), MayBlock)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut print = |name: &[u8], place: Option<&Place>| -> io::Result<()> {
        if let (true, Some(place)) = (long, place) {
            match tree.attr(place, MayBlock) {
                Ok(attr) => write!(out, "{} {:>12} {} ", mode_text(&attr), attr.size, time_text(&zone, &attr))?,
                Err(error) => write!(out, "?????????? {:>12} {:24} ", "-", error.kind().name())?,
            }
        }
        out.write_all(&super::tame_bytes(name))?;
        if let (true, Some(Node::Link(target))) = (long, place.map(|p| &p.node)) {
            write!(out, " -> {target}")?;
        }
        out.write_all(b"\n")
    };
    if tree.attr(&dir, MayBlock)?.kind != FileKind::Directory {
        let name = path.as_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default();
        output(print(name, Some(&dir)))?;
    } else {
        let mut failed = Ok(());
        tree.list(&dir, 0, MayBlock, &mut |name, _, known, _| {
            let known = known.map(|node| Place { slot: dir.slot, node: node.clone() });
            failed = match known {
                _ if !long => print(name, None),
                Some(known) => print(name, Some(&known)),
                None => match tree.lookup(&dir, name, MayBlock) {
                    Ok(found) => print(name, Some(&found)),
                    // It went between the listing and the look.
                    Err(_) => Ok(()),
                },
            };
            failed.is_ok()
        })?;
        output(failed)?;
    }
    output(out.flush())?;
    Ok(Exit::Done)
}

fn mode_text(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Link => 'l',
    };
    let bits = (0..9).map(|i| if attr.mode & (0o400 >> i) == 0 { '-' } else { ['r', 'w', 'x'][i % 3] });
    std::iter::once(kind).chain(bits).collect()
}

fn time_text(zone: &Zone, attr: &Attr) -> String {
    let ms = attr.mtime.seconds.saturating_mul(1000).saturating_add(i64::from(attr.mtime.nanos / 1_000_000));
    rfc3339(TimestampMs::new(ms), zone)
}

pub(super) fn cat(args: &SourceArgs, paths: &[std::ffi::OsString], pretty: bool) -> Outcome {
    let (tree, _) = open(args)?;
    let mut out = io::stdout().lock();
    if pretty {
        let colours = out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut out = Pretty::new(io::BufWriter::new(out), colours);
        copy_all(&tree, paths, &mut out)?;
        output(out.finish())?;
    } else {
        copy_all(&tree, paths, &mut out)?;
        output(out.flush())?;
    }
    Ok(Exit::Done)
}

/// Copies files one behind the other; an error names the path that it is about.
fn copy_all(tree: &Tree, paths: &[std::ffi::OsString], out: &mut impl Write) -> Result<(), Failure> {
    for path in paths {
        let place = resolve(tree, path).map_err(|f| Failure::new(f.exit, format!("{}: {}", path.to_string_lossy(), f.message)))?;
        copy(tree, &place, out).map_err(|f| match f.message.as_str() {
            BROKEN_PIPE => f,
            _ => Failure::new(f.exit, format!("{}: {}", path.to_string_lossy(), f.message)),
        })?;
    }
    Ok(())
}

/// Where the bytes of a place come from.
enum Bytes {
    Record,
    Reader(Reader),
    File(Arc<dyn File>),
}

fn copy(tree: &Tree, place: &Place, out: &mut impl Write) -> Result<(), Failure> {
    let bytes = match &place.node {
        Node::Record(..) => Bytes::Record,
        Node::Range(_) | Node::Text(_) | Node::Decoded(..) | Node::Merged(_) | Node::Key(..) => Bytes::Reader(tree.open(place, MayBlock)?),
        Node::SegmentFile(_) => Bytes::File(tree.file(place)?),
        Node::Append(_) | Node::Ctl => return Ok(()),
        Node::Follow(_) => return Err(Failure::new(Exit::No, "it has no end; tail -f follows a log")),
        Node::Link(_) => return Err(Failure::new(Exit::No, "it is a link")),
        _ => return Err(Failure::new(Exit::No, "it is a directory; ls lists it")),
    };
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let n = match &bytes {
            Bytes::Record => tree.read_record(place, at, &mut piece, MayBlock)?,
            Bytes::Reader(reader) => reader.read(at, &mut piece, MayBlock)?,
            Bytes::File(file) => file.read_at(&mut piece, at)?,
        };
        if n == 0 {
            return Ok(());
        }
        output(out.write_all(&piece[..n]))?;
        at += n as u64;
    }
}

pub(super) fn stat(args: &SourceArgs, path: Option<&OsStr>) -> Outcome {
    let (tree, zone) = open(args)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let Some(path) = path else {
        copy(&tree, &tree.resolve(b"status", MayBlock)?, &mut out)?;
        output(out.flush())?;
        return Ok(Exit::Done);
    };
    let place = tree.resolve(path.as_bytes(), MayBlock)?;
    let attr = tree.attr(&place, MayBlock)?;
    let kind = match attr.kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Link => "link",
    };
    let mut lines = vec![
        ("path", path.to_string_lossy().into_owned()),
        ("type", kind.to_owned()),
        ("size", attr.size.to_string()),
        ("mtime", time_text(&zone, &attr)),
    ];
    match &place.node {
        Node::Link(target) => lines.push(("target", target.clone())),
        Node::Record(..) | Node::Key(..) => {
            lines.extend(tree.offset_of(&place, MayBlock)?.map(|offset| ("offset", offset.to_string())));
            if let Some((file, position)) = tree.stored_at(&place, MayBlock)? {
                lines.push(("segment file", file));
                lines.push(("position", position.to_string()));
            }
        }
        Node::Range(span) => lines.push(("range", span.to_string())),
        _ => {}
    }
    for (name, value) in lines {
        output(writeln!(out, "{name}: {}", super::tame(&value)))?;
    }
    output(out.flush())?;
    Ok(Exit::Done)
}

pub(super) fn append(args: &SourceArgs, create: bool, take_over: bool, format: &str) -> Outcome {
    let wish = if take_over { Wish::TakeOver } else { Wish::Writable };
    let options = Options::parse(&args.options).map_err(|e| Failure::new(Exit::Usage, e))?;
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let source = std::path::absolute(&args.source)?;
    let local = Arc::new(Local::open(&fs, &source, local::Options { wish, create, config: options.settings.clone() })?);
    let view = View::new(local.clone(), options.view());
    let framing = match format {
        "jsonl" => Framing::Json,
        "bin" => Framing::Binary,
        _ => Framing::Lines,
    };
    let appender = view.appender(framing)?;
    if io::stdin().is_terminal() {
        output(writeln!(io::stderr(), "offsetfs: reading lines from the terminal; end with Ctrl-D"))?;
    }
    let before = local.partition().bounds().log_end;
    let result = feed(&appender);
    let closed = local.close();
    result?;
    closed?;
    let after = local.partition().bounds().log_end;
    if after > before {
        output(writeln!(io::stdout(), "{before}..={}", after.previous()))?;
    }
    Ok(Exit::Done)
}

/// Appends standard input to its end.
fn feed(appender: &Appender) -> Result<(), Failure> {
    let mut input = io::stdin().lock();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let n = match input.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(Failure::new(Exit::Io, format!("reading standard input: {e}"))),
        };
        wait(|done| appender.write(&piece[..n], false, done))?;
    }
    wait(|done| appender.commit_tail(false, done))?;
    wait(|done| appender.sync(done))
}

fn wait(start: impl FnOnce(crate::view::Finished)) -> Result<(), Failure> {
    let (sender, receiver) = mpsc::sync_channel(1);
    start(Box::new(move |result| {
        // The receiver waits right below.
        let _ = sender.send(result);
    }));
    match receiver.recv() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.kind() == ErrorKind::Invalid => Err(Failure::new(Exit::No, error.to_string())),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Failure::new(Exit::Io, "the log did not answer")),
    }
}
