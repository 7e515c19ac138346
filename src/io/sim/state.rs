//! What the simulated disk holds, its operations, and the fault that may strike one of them.

use super::Fault;
use super::image::{Change, Choice, Image, Journal};
use crate::io::{Kind, Metadata};
use crate::types::TimestampMs;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The number of a file or directory. Numbers are never used again, and a crash keeps them.
pub(super) type NodeId = usize;

/// The root directory.
const ROOT: NodeId = 0;

/// What an operation asks of the disk; decides which faults can strike it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It changes nothing.
    Look,
    /// It changes something and may need room for that.
    TakeRoom,
    /// It writes bytes.
    Write,
    /// It changes something and needs no room, or syncs.
    Settle,
}

/// How an operation goes, where it does not fail at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Only half of the bytes go in.
    Short,
    /// It takes place as an unsynced change, and the caller never hears of it.
    Crashed,
}

impl Outcome {
    /// The operation's result once its change took place.
    pub(super) fn result<T>(self, value: T) -> io::Result<T> {
        if self == Outcome::Crashed { Err(errno(libc::EIO)) } else { Ok(value) }
    }
}

#[derive(Debug)]
pub(super) enum Node {
    File(FileNode),
    Directory(DirectoryNode),
}

#[derive(Debug, Default)]
pub(super) struct FileNode {
    /// The live image; `None` while nobody opened the file, so that it is the same as the durable one.
    live: Option<Arc<fs::File>>,
    /// The length of the live image.
    pub(super) len: u64,
    pub(super) journal: Journal,
    pub(super) mtime_ms: i64,
    pub(super) record_locked: bool,
}

#[derive(Debug, Default)]
pub(super) struct DirectoryNode {
    pub(super) live: BTreeMap<OsString, NodeId>,
    pub(super) durable: BTreeMap<OsString, NodeId>,
    pub(super) changes: Vec<NameChange>,
    pub(super) shared_locks: usize,
    pub(super) exclusive_lock: bool,
}

/// A change of the names in a directory.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Add(OsString, NodeId),
    Rename(OsString, OsString),
    Remove(OsString),
}

impl NameChange {
    /// Changes the names, as far as they allow it.
    fn apply(&self, names: &mut BTreeMap<OsString, NodeId>) {
        match self {
            NameChange::Add(name, node) => {
                names.insert(name.clone(), *node);
            }
            NameChange::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl DirectoryNode {
    pub(super) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.live);
        self.changes.push(change);
    }

    fn crash(&self, reorder: bool, choice: &mut Choice<'_>) -> BTreeMap<OsString, NodeId> {
        let mut names = self.durable.clone();
        if reorder {
            self.changes.iter().filter(|_| choice(2) == 1).for_each(|change| change.apply(&mut names));
        } else if !self.changes.is_empty() {
            let kept = choice(self.changes.len() + 1);
            self.changes[..kept].iter().for_each(|change| change.apply(&mut names));
        }
        names
    }
}

impl FileNode {
    pub(super) fn of(image: Image, mtime_ms: i64) -> FileNode {
        FileNode { live: None, len: image.len(), journal: Journal::new(image), mtime_ms, record_locked: false }
    }

    /// The live image, made of the durable one where nobody opened the file before.
    pub(super) fn live(&mut self) -> io::Result<Arc<fs::File>> {
        if let Some(live) = &self.live {
            return Ok(Arc::clone(live));
        }
        // SAFETY: the name ends with NUL; the call has just returned the descriptor, and nobody else has it.
        let live = unsafe {
            match libc::memfd_create(c"simulated file".as_ptr(), libc::MFD_CLOEXEC) {
                -1 => return Err(io::Error::last_os_error()),
                descriptor => fs::File::from(OwnedFd::from_raw_fd(descriptor)),
            }
        };
        fill(&live, self.journal.base())?;
        let live = Arc::new(live);
        self.live = Some(Arc::clone(&live));
        Ok(live)
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let Some(live) = &self.live else { return Ok(self.journal.base().to_vec()) };
        let mut bytes = vec![0; self.len as usize];
        live.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    pub(super) fn set_len(&mut self, len: u64, change: Change) -> io::Result<()> {
        self.live()?.set_len(len)?;
        self.len = len;
        self.journal.push(change);
        Ok(())
    }
}

/// Makes a live file hold an image. Its pages stay the same, so maps of it see the change.
pub(super) fn fill(live: &fs::File, image: &Image) -> io::Result<()> {
    let written = image.written();
    if live.metadata()?.len() > 0 {
        live.set_len(written.len() as u64)?;
    }
    live.write_all_at(written, 0)?;
    if image.len() > written.len() as u64 { live.set_len(image.len()) } else { Ok(()) }
}

/// All that a disk holds.
#[derive(Debug)]
pub(super) struct State {
    nodes: Vec<Node>,
    operations: u64,
    /// The number of the operation to strike, and the fault.
    armed: Option<(u64, Fault)>,
    pub(super) crashed: bool,
    reorder_names: bool,
}

impl State {
    pub(super) fn new() -> State {
        State { nodes: vec![Node::Directory(DirectoryNode::default())], operations: 0, armed: None, crashed: false, reorder_names: false }
    }

    pub(super) fn fail_at(&mut self, n: u64, fault: Fault) {
        self.armed = Some((self.operations.saturating_add(n.max(1)), fault));
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn reorder_names(&mut self, reorder: bool) {
        self.reorder_names = reorder;
    }

    /// Counts an operation and lets the armed fault strike it.
    pub(super) fn step(&mut self, action: Action) -> io::Result<Outcome> {
        if self.crashed {
            return Err(errno(libc::EIO));
        }
        self.operations += 1;
        let Some((at, fault)) = self.armed.filter(|(at, _)| self.operations >= *at) else { return Ok(Outcome::Done) };
        let strikes = match fault {
            Fault::Io | Fault::Crash => true,
            Fault::NoSpace => matches!(action, Action::TakeRoom | Action::Write),
            Fault::ShortWrite => action == Action::Write,
        };
        if !strikes {
            return Ok(Outcome::Done);
        }
        self.armed = None;
        match fault {
            Fault::Io => Err(errno(libc::EIO)),
            Fault::NoSpace => Err(errno(libc::ENOSPC)),
            Fault::ShortWrite => {
                self.armed = Some((at + 1, Fault::NoSpace));
                Ok(Outcome::Short)
            }
            Fault::Crash => {
                self.crashed = true;
                Ok(Outcome::Crashed)
            }
        }
    }

    pub(super) fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub(super) fn directory(&mut self, id: NodeId) -> io::Result<&mut DirectoryNode> {
        match &mut self.nodes[id] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(errno(libc::ENOTDIR)),
        }
    }

    pub(super) fn file(&mut self, id: NodeId) -> io::Result<&mut FileNode> {
        match &mut self.nodes[id] {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        }
    }

    /// What a name in a directory leads to.
    pub(super) fn entry(&mut self, directory: NodeId, name: &OsStr) -> io::Result<NodeId> {
        self.directory(directory)?.live.get(name).copied().ok_or_else(|| errno(libc::ENOENT))
    }

    pub(super) fn walk(&mut self, names: &[&OsStr]) -> io::Result<NodeId> {
        names.iter().try_fold(ROOT, |directory, name| self.entry(directory, name))
    }

    pub(super) fn create_dir(&mut self, names: &[&OsStr]) -> io::Result<()> {
        let outcome = self.step(Action::TakeRoom)?;
        let Some((name, parent)) = names.split_last() else { return Err(errno(libc::EEXIST)) };
        let parent = self.walk(parent)?;
        if self.directory(parent)?.live.contains_key(*name) {
            return Err(errno(libc::EEXIST));
        }
        let node = self.add(Node::Directory(DirectoryNode::default()));
        self.directory(parent)?.change(NameChange::Add((*name).to_owned(), node));
        outcome.result(())
    }

    pub(super) fn read_file(&mut self, names: &[&OsStr]) -> Option<Vec<u8>> {
        let node = self.walk(names).ok()?;
        self.file(node).ok()?.read().ok()
    }

    pub(super) fn durable_file(&mut self, names: &[&OsStr]) -> Option<Vec<u8>> {
        let mut node = ROOT;
        for name in names {
            node = *self.directory(node).ok()?.durable.get(*name)?;
        }
        Some(self.file(node).ok()?.journal.durable().to_vec())
    }

    pub(super) fn write_file(&mut self, names: &[&OsStr], bytes: &[u8], now: TimestampMs) {
        let (name, directories) = names.split_last().expect("a path with a name");
        let mut parent = ROOT;
        for name in directories {
            parent = match self.entry(parent, name) {
                Ok(node) => node,
                Err(_) => {
                    let node = self.add(Node::Directory(DirectoryNode::default()));
                    self.add_durably(parent, name, node);
                    node
                }
            };
        }
        let node = self.add(Node::File(FileNode::of(Image::new(bytes), now.get())));
        self.add_durably(parent, name, node);
    }

    fn add_durably(&mut self, directory: NodeId, name: &OsStr, node: NodeId) {
        let directory = self.directory(directory).expect("a directory on the way to a file");
        directory.live.insert(name.to_owned(), node);
        directory.durable.insert(name.to_owned(), node);
    }

    pub(super) fn list(&mut self, names: &[&OsStr]) -> Vec<String> {
        let Ok(node) = self.walk(names) else { return Vec::new() };
        let Ok(directory) = self.directory(node) else { return Vec::new() };
        directory.live.keys().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// The disk after a crash. Names are chosen first, from the root on, and then the bytes of the files that have one.
    pub(super) fn crash(&self, choice: &mut Choice<'_>) -> State {
        let mut after: Vec<Node> = self.nodes.iter().map(|_| Node::File(FileNode::default())).collect();
        let mut directories = vec![ROOT];
        let mut files = Vec::new();
        while let Some(id) = directories.pop() {
            let Node::Directory(directory) = &self.nodes[id] else { continue };
            let names = directory.crash(self.reorder_names, choice);
            for &child in names.values() {
                match &self.nodes[child] {
                    Node::File(_) => files.push(child),
                    Node::Directory(_) => directories.push(child),
                }
            }
            after[id] = Node::Directory(DirectoryNode { live: names.clone(), durable: names, ..DirectoryNode::default() });
        }
        for id in files {
            if let Node::File(file) = &self.nodes[id] {
                after[id] = Node::File(FileNode::of(file.journal.crash(choice), file.mtime_ms));
            }
        }
        State { nodes: after, operations: 0, armed: None, crashed: false, reorder_names: self.reorder_names }
    }

    pub(super) fn metadata(&self, id: NodeId) -> Metadata {
        let (kind, len, mtime_ms, mode) = match &self.nodes[id] {
            Node::File(file) => (Kind::File, file.len, file.mtime_ms, 0o644),
            Node::Directory(_) => (Kind::Directory, 0, 0, 0o755),
        };
        Metadata {
            kind,
            len,
            mtime_ns: mtime_ms.saturating_mul(1_000_000),
            inode: id as u64 + 1,
            device: 0,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
        }
    }
}

pub(super) fn errno(number: libc::c_int) -> io::Error {
    io::Error::from_raw_os_error(number)
}
