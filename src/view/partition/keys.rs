//! `by-key/`: the last record of a key as a file, and where it is writable, keys that are made, written, removed and renamed.

use crate::source::{Keys, Latest, Record, Source};
use crate::types::{Offset, Patience, TimestampMs};
use crate::view::drafts::{Draft, Opening};
use crate::view::error::{Error, ErrorKind};
use crate::view::node::{Attr, FileKind, Lifetime, Node, Sink, Time};
use crate::view::options::{Keyed, Options};
use crate::view::partition::{Result, View};
use crate::view::path::{ByKey, KeyFace, NAME_MOST, name_of};
use crate::view::stream::Reader;
use std::sync::Arc;

/// The setting that says whether a log is compacted by key.
const CLEANUP_POLICY: &str = "cleanup.policy";

/// Whether a source has a `by-key/`.
pub(super) fn is_keyed(source: &dyn Source, options: &Options) -> bool {
    let compacted = || {
        let settings = source.settings();
        settings.iter().any(|s| s.name == CLEANUP_POLICY && s.value.split(',').any(|policy| policy.trim() == "compact"))
    };
    source.keys().is_some() && (options.keyed != Keyed::Compacted || compacted())
}

impl View {
    /// That keys may be written.
    ///
    /// # Errors
    /// Why not.
    pub fn keys_writable(&self) -> Result<()> {
        if self.options.keyed != Keyed::Writable {
            return Err(Error::new(ErrorKind::NotPermitted, "by-key/ is for reading; mount with -o by-key=rw to write keys"));
        }
        match self.source.read_only() {
            Some(reason) => Err(Error::new(ErrorKind::ReadOnly, format!("mounted read-only: {reason}"))),
            None => Ok(()),
        }
    }

    fn keys(&self) -> Result<&dyn Keys> {
        self.source.keys().ok_or_else(|| Error::not_found("this source knows no keys"))
    }

    /// The last record of a key.
    fn live(&self, key: &[u8], patience: Patience) -> Result<Record> {
        match self.keys()?.latest(key, patience)? {
            Latest::Live(record) => Ok(record),
            Latest::Deleted(offset) => Err(Error::not_found(format!("the key was deleted by the record at offset {offset}"))),
            Latest::Never => Err(Error::not_found("no record has that key")),
        }
    }

    /// The last record of a key; `None` for one that is being made.
    pub(super) fn live_or_new(&self, key: &[u8], patience: Patience) -> Result<Option<Record>> {
        match self.live(key, patience) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.drafts.size_of_new(key, patience)?.is_some() => Ok(None),
            found => found.map(Some),
        }
    }

    /// What a name stands for, without a look whether the key is there.
    fn key_of(&self, name: &[u8], patience: Patience) -> Result<(Arc<[u8]>, KeyFace)> {
        if name.len() > NAME_MOST {
            return Err(Error::new(ErrorKind::NameTooLong, format!("a name has at most {NAME_MOST} bytes; a longer key is found as %@N")));
        }
        match ByKey::parse(name)? {
            ByKey::Key(key, face) => Ok((key.into(), face)),
            ByKey::Long(offset, face) => {
                let record = self.record(offset, patience)?;
                let key: Arc<[u8]> = record.key().ok_or_else(|| Error::not_found("the record at that offset has no key"))?.into();
                if let Some(name) = name_of(&key) {
                    return Err(Error::not_found(format!("that key has a name of its own: {}", String::from_utf8_lossy(&name))));
                }
                match self.live(&key, patience)?.offset() {
                    last if last == offset => Ok((key, face)),
                    last => Err(Error::not_found(format!("the last record of that key is at offset {last} now"))),
                }
            }
        }
    }

    pub(super) fn in_by_key(&self, name: &[u8], patience: Patience) -> Result<Node> {
        let (key, face) = self.key_of(name, patience)?;
        match face {
            KeyFace::Value => drop(self.live_or_new(&key, patience)?),
            KeyFace::Offset => drop(self.live(&key, patience)?),
        }
        Ok(Node::Key(key, face))
    }

    pub(super) fn key_attr(&self, key: &[u8], face: KeyFace, patience: Patience) -> Result<Attr> {
        let writable = face == KeyFace::Value && self.keys_writable().is_ok();
        let mode = self.source.readable() | if writable { 0o222 } else { 0 };
        let attr = |size, mtime| Attr { kind: FileKind::File, size, mtime: Time::from_ms(mtime), mode, lifetime: Lifetime::Moving };
        let Some(record) = self.live_or_new(key, patience)? else {
            return Ok(attr(self.drafts.size_of_new(key, patience)?.unwrap_or(0), self.source.now()));
        };
        let size = match face {
            KeyFace::Value => record.value().unwrap_or_default().len(),
            KeyFace::Offset => offset_text(&record).len(),
        };
        let time = record.timestamp();
        Ok(attr(size as u64, if time == TimestampMs::NONE { self.source.modified(record.offset()) } else { time }))
    }

    /// Opens a key for reading: what it has now, whatever is written later.
    pub(super) fn open_key(&self, key: &[u8], face: KeyFace, patience: Patience) -> Result<Reader> {
        let Some(record) = self.live_or_new(key, patience)? else { return Ok(Reader::text(Vec::new())) };
        let bytes = match face {
            KeyFace::Value => record.value().unwrap_or_default().to_vec(),
            KeyFace::Offset => offset_text(&record).into_bytes(),
        };
        if record.is_broken() {
            return Err(Error::new(ErrorKind::Damaged, "a segment became shorter while it was read; read again"));
        }
        Ok(Reader::text(bytes))
    }

    pub(super) fn list_keys(&self, cursor: u64, patience: Patience, sink: &mut Sink<'_>) -> Result<()> {
        let mut show = |key: &[u8], record: &Record, behind: u64| sink(&ByKey::of(key, record.offset()), FileKind::File, None, behind);
        Ok(self.keys()?.live(cursor, patience, &mut show)?)
    }

    /// The offset of the last record of a key.
    ///
    /// # Errors
    /// As [`View::lookup`].
    pub fn offset_of(&self, key: &[u8], patience: Patience) -> Result<Offset> {
        Ok(self.live(key, patience)?.offset())
    }

    /// The key that a name in `by-key/` would be made as.
    fn key_to_make(&self, name: &[u8]) -> Result<Arc<[u8]>> {
        self.keys_writable()?;
        let invalid = |reason: String| Error::new(ErrorKind::Invalid, reason);
        if name.len() > NAME_MOST {
            return Err(Error::new(ErrorKind::NameTooLong, "a longer key can be written through append.jsonl"));
        }
        match ByKey::parse(name) {
            Ok(ByKey::Key(key, KeyFace::Value)) => Ok(key.into()),
            Ok(ByKey::Key(_, KeyFace::Offset)) => {
                Err(invalid("K.offset tells the offset of K; a key that ends in .offset is written %2Eoffset".to_owned()))
            }
            Ok(ByKey::Long(..)) => Err(invalid("%@N is the name of a key that is there; % itself is %25".to_owned())),
            Err(refusal) => Err(invalid(refusal.reason().to_owned())),
        }
    }

    /// Notes why a change of a key was refused.
    fn noted<T>(&self, name: &[u8], result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.journal.note_write(self.source.now(), &format!("by-key/{}", String::from_utf8_lossy(name)), error))
    }

    /// Opens a key for writing. It may wait for the disk, as all that follows here.
    ///
    /// # Errors
    /// [`ErrorKind::NotPermitted`] or [`ErrorKind::ReadOnly`] where keys cannot be written; [`ErrorKind::NotFound`]; what the source says.
    pub fn draft(&self, key: &Arc<[u8]>, opening: Opening) -> Result<Arc<Draft>> {
        let name = ByKey::Key(key.to_vec(), KeyFace::Value).to_bytes();
        self.noted(&name, self.keys_writable().and_then(|()| self.drafts.open(key.clone(), opening)))
    }

    /// Makes a key and opens it for writing; it is in the log once the file is closed.
    ///
    /// # Errors
    /// As [`View::draft`]; [`ErrorKind::Invalid`] for a name that is no key's own; [`ErrorKind::Exists`] where it must be new.
    pub fn create(&self, dir: &Node, name: &[u8], opening: Opening) -> Result<(Node, Arc<Draft>)> {
        if *dir != Node::ByKey {
            return Err(Error::new(ErrorKind::NotPermitted, "nothing can be made here"));
        }
        let made = self.key_to_make(name).and_then(|key| Ok((key.clone(), self.drafts.open(key, opening)?)));
        let (key, draft) = self.noted(name, made)?;
        Ok((Node::Key(key, KeyFace::Value), draft))
    }

    /// Removes a key: appends its tombstone.
    ///
    /// # Errors
    /// [`ErrorKind::NotPermitted`] where nothing can be removed; [`ErrorKind::NotFound`]; what the source says.
    pub fn remove(&self, dir: &Node, name: &[u8]) -> Result<()> {
        if *dir != Node::ByKey {
            return Err(Error::new(ErrorKind::NotPermitted, "nothing can be removed here"));
        }
        let removed = self.keys_writable().and_then(|()| match self.key_of(name, Patience::MayBlock)? {
            (key, KeyFace::Value) => self.drafts.remove(&key),
            (_, KeyFace::Offset) => Err(Error::new(ErrorKind::NotPermitted, "K.offset goes with K")),
        });
        self.noted(name, removed)
    }

    /// Gives what a key has to another one, in one batch.
    ///
    /// # Errors
    /// As [`View::remove`]; [`ErrorKind::Exists`] with `no_replace`; [`ErrorKind::Invalid`] for a new name that is no key's own.
    pub fn rename(&self, name: &[u8], to: &[u8], no_replace: bool) -> Result<(Node, Node)> {
        let renamed = self.key_to_make(to).and_then(|to| match self.key_of(name, Patience::MayBlock)? {
            (from, KeyFace::Value) => {
                self.drafts.rename(&from, &to, no_replace)?;
                Ok((Node::Key(from, KeyFace::Value), Node::Key(to, KeyFace::Value)))
            }
            (_, KeyFace::Offset) => Err(Error::new(ErrorKind::NotPermitted, "K.offset goes with K")),
        });
        self.noted(name, renamed)
    }
}

fn offset_text(record: &Record) -> String {
    format!("{}\n", record.offset())
}
