//! The tree without a mount: `ls`, `cat`, `stat`, `append` ask the same view as a mount does.

use super::options::Options;
use super::{Exit, Failure, Outcome, SourceArgs};
use crate::io::os::OsFileSystem;
use crate::io::{File, FileSystem};
use crate::source::Source;
use crate::source::access::Wish;
use crate::source::local::{self, Local};
use crate::types::Patience::MayBlock;
use crate::types::TimestampMs;
use crate::view::time::rfc3339;
use crate::view::{Appender, Attr, ErrorKind, FileKind, Framing, Node, Reader, View};
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, mpsc};

/// The message of a failure that is only a reader who went away.
pub(super) const BROKEN_PIPE: &str = "the reader went away";
/// Files are read in pieces of this size, in bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Links are followed so many times at most.
const LINKS_MOST: usize = 8;

struct Tree {
    view: View,
    local: Arc<Local>,
}

fn open(args: &SourceArgs, wish: Wish, create: bool) -> Result<Tree, Failure> {
    let options = Options::parse(&args.options).map_err(|e| Failure::new(Exit::Usage, e))?;
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let source = std::path::absolute(&args.source)?;
    let local = Arc::new(Local::open(&fs, &source, local::Options { wish, create, config: options.config.clone() })?);
    let settings = options.mount_settings();
    Ok(Tree { view: View::new(local.clone(), options.zone, settings), local })
}

pub(super) fn output(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::Done, BROKEN_PIPE),
        _ => Failure::new(Exit::Io, format!("writing the output: {e}")),
    })
}

/// The node of a path, links followed.
fn resolve(view: &View, path: &OsStr) -> Result<Node, Failure> {
    let mut path = path.as_bytes().to_vec();
    for _ in 0..LINKS_MOST {
        let node = view.resolve(&path, MayBlock)?;
        let Node::Link(target) = node else { return Ok(node) };
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
    let tree = open(args, Wish::ReadOnly, false)?;
    let node = tree.view.resolve(path.as_bytes(), MayBlock)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if tree.view.attr(&node, MayBlock)?.kind != FileKind::Directory {
        let name = path.as_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default();
        output(print_entry(&tree.view, &mut out, name, &node, long))?;
        output(out.flush())?;
        return Ok(Exit::Done);
    }
    let mut failed = Ok(());
    tree.view.list(&node, 0, MayBlock, &mut |name, _, known, _| {
        failed = match (long, known) {
            (false, _) => out.write_all(name).and_then(|()| out.write_all(b"\n")),
            (true, Some(known)) => print_entry(&tree.view, &mut out, name, known, true),
            (true, None) => match tree.view.lookup(&node, name, MayBlock) {
                Ok(found) => print_entry(&tree.view, &mut out, name, &found, true),
                // It went between the listing and the look.
                Err(_) => Ok(()),
            },
        };
        failed.is_ok()
    })?;
    output(failed)?;
    output(out.flush())?;
    Ok(Exit::Done)
}

fn print_entry(view: &View, out: &mut impl Write, name: &[u8], node: &Node, long: bool) -> io::Result<()> {
    if long {
        match view.attr(node, MayBlock) {
            Ok(attr) => write!(out, "{} {:>12} {} ", mode_text(&attr), attr.size, time_text(view, &attr))?,
            Err(error) => write!(out, "?????????? {:>12} {:24} ", "-", error.kind().name())?,
        }
    }
    out.write_all(name)?;
    if let (true, Node::Link(target)) = (long, node) {
        write!(out, " -> {target}")?;
    }
    out.write_all(b"\n")
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

fn time_text(view: &View, attr: &Attr) -> String {
    let ms = attr.mtime.seconds.saturating_mul(1000).saturating_add(i64::from(attr.mtime.nanos / 1_000_000));
    rfc3339(TimestampMs::new(ms), view.zone())
}

pub(super) fn cat(args: &SourceArgs, paths: &[std::ffi::OsString]) -> Outcome {
    let tree = open(args, Wish::ReadOnly, false)?;
    let mut out = io::stdout().lock();
    for path in paths {
        let node = resolve(&tree.view, path).map_err(|f| Failure::new(f.exit, format!("{}: {}", path.to_string_lossy(), f.message)))?;
        copy(&tree.view, &node, &mut out).map_err(|f| match f.message.as_str() {
            BROKEN_PIPE => f,
            _ => Failure::new(f.exit, format!("{}: {}", path.to_string_lossy(), f.message)),
        })?;
    }
    output(out.flush())?;
    Ok(Exit::Done)
}

/// Where the bytes of a node come from.
enum Bytes {
    Record(crate::types::Offset, crate::view::Face),
    Reader(Reader),
    File(Arc<dyn File>),
}

fn copy(view: &View, node: &Node, out: &mut impl Write) -> Result<(), Failure> {
    let bytes = match node {
        Node::Record(offset, face) => Bytes::Record(*offset, *face),
        Node::Range(_) | Node::Text(_) | Node::Decoded(..) => Bytes::Reader(view.open(node, MayBlock)?),
        Node::SegmentFile(name) => Bytes::File(view.file(name)?),
        Node::Append(_) => return Ok(()),
        Node::Follow(_) => return Err(Failure::new(Exit::No, "it has no end; mount the log to follow it")),
        Node::Root | Node::ByOffset | Node::ByTime | Node::Segments | Node::DecodedDir => {
            return Err(Failure::new(Exit::No, "it is a directory; ls lists it"));
        }
        Node::Link(_) => return Err(Failure::new(Exit::No, "it is a link")),
    };
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let n = match &bytes {
            Bytes::Record(offset, face) => view.read_record(*offset, *face, at, &mut piece, MayBlock)?,
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
    let tree = open(args, Wish::ReadOnly, false)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let Some(path) = path else {
        copy(&tree.view, &Node::Text(crate::view::TextFile::Status), &mut out)?;
        output(out.flush())?;
        return Ok(Exit::Done);
    };
    let node = tree.view.resolve(path.as_bytes(), MayBlock)?;
    let attr = tree.view.attr(&node, MayBlock)?;
    let kind = match attr.kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Link => "link",
    };
    let mut lines = vec![
        ("path", path.to_string_lossy().into_owned()),
        ("type", kind.to_owned()),
        ("size", attr.size.to_string()),
        ("mtime", time_text(&tree.view, &attr)),
    ];
    match &node {
        Node::Link(target) => lines.push(("target", target.clone())),
        Node::Record(offset, _) => {
            lines.push(("offset", offset.to_string()));
            if let Ok((batch, file)) = tree.local.partition().batch_at(*offset, MayBlock)? {
                lines.push(("segment file", file.to_string()));
                lines.push(("position", batch.position.to_string()));
            }
        }
        Node::Range(span) => lines.push(("range", span.to_string())),
        _ => {}
    }
    for (name, value) in lines {
        output(writeln!(out, "{name}: {value}"))?;
    }
    output(out.flush())?;
    Ok(Exit::Done)
}

pub(super) fn append(args: &SourceArgs, create: bool, take_over: bool, format: &str) -> Outcome {
    let wish = if take_over { Wish::TakeOver } else { Wish::Writable };
    let tree = open(args, wish, create)?;
    let framing = match format {
        "jsonl" => Framing::Json,
        "bin" => Framing::Binary,
        _ => Framing::Lines,
    };
    let appender = tree.view.appender(framing)?;
    if io::stdin().is_terminal() {
        output(writeln!(io::stderr(), "offsetfs: reading lines from the terminal; end with Ctrl-D"))?;
    }
    let before = tree.local.partition().bounds().log_end;
    let result = feed(&appender);
    let closed = tree.local.close();
    result?;
    closed?;
    let after = tree.local.partition().bounds().log_end;
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
