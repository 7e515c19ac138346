//! The whole tree of a mount: one partition at the root, or a data directory with many below `<topic>/<n>`. A place in it is a node and the
//! partition that the node belongs to; the tree of a partition is the same value in both.

use crate::io::{Directory, File, Space};
use crate::types::{Offset, Patience};
use crate::view::appender::{Appender, Finished};
use crate::view::drafts::{Draft, Opening};
use crate::view::error::{Error, ErrorKind};
use crate::view::forest::Forest;
use crate::view::lines::Framing;
use crate::view::metrics::RequestCounters;
use crate::view::node::{Attr, Lifetime, Node, Place, Sink};
use crate::view::partition::View;
use crate::view::path::KeyFace;
use crate::view::stream::Reader;

use std::sync::Arc;

type Result<T> = std::result::Result<T, Error>;

/// The tree.
#[derive(Debug)]
pub enum Tree {
    /// One partition.
    One(Arc<View>),
    /// A data directory.
    Many(Box<Forest>),
}

impl Tree {
    /// The partition that a place belongs to; `None` for what stands beside the partitions.
    ///
    /// # Errors
    /// Where the partition is gone or cannot be opened.
    fn view(&self, slot: u32, patience: Patience) -> Result<Option<Arc<View>>> {
        match self {
            Tree::One(view) => Ok(Some(view.clone())),
            Tree::Many(_) if slot == 0 => Ok(None),
            Tree::Many(forest) => forest.view(slot, patience).map(Some),
        }
    }

    fn forest(&self) -> Result<&Forest> {
        match self {
            Tree::Many(forest) => Ok(forest),
            Tree::One(_) => Err(Error::not_found("there is no such file")),
        }
    }

    /// As [`View::lookup`], over the whole tree.
    ///
    /// # Errors
    /// As there.
    pub fn lookup(&self, dir: &Place, name: &[u8], patience: Patience) -> Result<Place> {
        match self.view(dir.slot, patience)? {
            Some(view) => Ok(Place { slot: dir.slot, node: view.lookup(&dir.node, name, patience)? }),
            None => self.forest()?.lookup(&dir.node, name, patience),
        }
    }

    /// As [`View::lookup_with_attr`], over the whole tree.
    ///
    /// # Errors
    /// As there.
    pub fn lookup_with_attr(&self, dir: &Place, name: &[u8], patience: Patience) -> Result<(Place, Attr)> {
        if let Some(view) = self.view(dir.slot, patience)? {
            let (node, attr) = view.lookup_with_attr(&dir.node, name, patience)?;
            return Ok((Place { slot: dir.slot, node }, attr));
        }
        // What stands beside the partitions may lead into one.
        let place = self.forest()?.lookup(&dir.node, name, patience)?;
        let attr = self.attr(&place, patience)?;
        Ok((place, attr))
    }

    /// The place that a path below the root leads to; links are not followed.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn resolve(&self, path: &[u8], patience: Patience) -> Result<Place> {
        let mut place = Place::ROOT;
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".") {
            place = self.lookup(&place, name, patience)?;
        }
        Ok(place)
    }

    /// As [`View::attr`].
    ///
    /// # Errors
    /// As there.
    pub fn attr(&self, place: &Place, patience: Patience) -> Result<Attr> {
        match self.view(place.slot, patience)? {
            Some(view) => view.attr(&place.node, patience),
            None => self.forest()?.attr(&place.node, patience),
        }
    }

    /// As [`View::list`]; the nodes that the sink gets belong to the same partition as the directory.
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, dir: &Place, cursor: u64, patience: Patience, sink: &mut Sink<'_>) -> Result<()> {
        match self.view(dir.slot, patience)? {
            Some(view) => view.list(&dir.node, cursor, patience, sink),
            None => self.forest()?.list(&dir.node, cursor, sink),
        }
    }

    /// As [`View::open_record`].
    ///
    /// # Errors
    /// As there.
    pub fn open_record(&self, place: &Place, patience: Patience) -> Result<Lifetime> {
        match (&place.node, self.view(place.slot, patience)?) {
            (Node::Record(offset, _), Some(view)) => view.open_record(*offset, patience),
            _ => Err(Error::not_found("it is no record")),
        }
    }

    /// As [`View::close_record`].
    pub fn close_record(&self, place: &Place) {
        // A partition that cannot be had now has no record open.
        if let (Node::Record(offset, _), Ok(Some(view))) = (&place.node, self.view(place.slot, Patience::AtOnce)) {
            view.close_record(*offset);
        }
    }

    /// Reads from a record's file, as [`View::read_record`].
    ///
    /// # Errors
    /// As there.
    pub fn read_record(&self, place: &Place, at: u64, out: &mut [u8], patience: Patience) -> Result<usize> {
        match (&place.node, self.view(place.slot, patience)?) {
            (Node::Record(offset, face), Some(view)) => view.read_record(*offset, *face, at, out, patience),
            _ => Err(Error::not_found("it is no record")),
        }
    }

    /// The file and the position of the batch that holds a record; `None` for everything else.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn stored_at(&self, place: &Place, patience: Patience) -> Result<Option<(String, u64)>> {
        match (&place.node, self.view(place.slot, patience)?) {
            (Node::Record(offset, _), Some(view)) => Ok(view.source().stored_at(*offset, patience)?),
            (Node::Key(key, _), Some(view)) => Ok(view.source().stored_at(view.offset_of(key, patience)?, patience)?),
            _ => Ok(None),
        }
    }

    /// The offset of the record that a place shows; `None` for everything that shows none.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn offset_of(&self, place: &Place, patience: Patience) -> Result<Option<Offset>> {
        match (&place.node, self.view(place.slot, patience)?) {
            (Node::Record(offset, _), _) => Ok(Some(*offset)),
            (Node::Key(key, _), Some(view)) => view.offset_of(key, patience).map(Some),
            _ => Ok(None),
        }
    }

    /// As [`View::draft`].
    ///
    /// # Errors
    /// As there.
    pub fn draft(&self, place: &Place, opening: Opening) -> Result<Arc<Draft>> {
        match (&place.node, self.view(place.slot, Patience::MayBlock)?) {
            (Node::Key(key, KeyFace::Value), Some(view)) => view.draft(key, opening),
            _ => Err(Error::new(ErrorKind::NotPermitted, "it is no key")),
        }
    }

    /// That the keys beside a place may be written.
    ///
    /// # Errors
    /// Why not.
    pub fn keys_writable(&self, place: &Place) -> Result<()> {
        match self.view(place.slot, Patience::MayBlock)? {
            Some(view) => view.keys_writable(),
            None => Err(Error::new(ErrorKind::NotPermitted, "it is no key")),
        }
    }

    /// As [`View::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(&self, dir: &Place, name: &[u8], opening: Opening) -> Result<(Place, Arc<Draft>)> {
        let view =
            self.view(dir.slot, Patience::MayBlock)?.ok_or_else(|| Error::new(ErrorKind::NotPermitted, "nothing can be made here"))?;
        let (node, draft) = view.create(&dir.node, name, opening)?;
        Ok((Place { slot: dir.slot, node }, draft))
    }

    /// As [`View::remove`].
    ///
    /// # Errors
    /// As there.
    pub fn remove(&self, dir: &Place, name: &[u8]) -> Result<()> {
        match self.view(dir.slot, Patience::MayBlock)? {
            Some(view) => view.remove(&dir.node, name),
            None => Err(Error::new(ErrorKind::NotPermitted, "nothing can be removed here")),
        }
    }

    /// Gives the name `to` in a directory to what has another one, as [`View::rename`]; returns the two places.
    ///
    /// # Errors
    /// As there; [`ErrorKind::CrossDevice`] for another directory.
    pub fn rename(&self, dir: &Place, name: &[u8], to_dir: &Place, to: &[u8], no_replace: bool) -> Result<(Place, Place)> {
        match (self.view(dir.slot, Patience::MayBlock)?, dir == to_dir) {
            (Some(view), true) if dir.node == Node::ByKey => {
                let (from, to) = view.rename(name, to, no_replace)?;
                Ok((Place { slot: dir.slot, node: from }, Place { slot: dir.slot, node: to }))
            }
            (_, false) if dir.node == Node::ByKey || to_dir.node == Node::ByKey => {
                Err(Error::new(ErrorKind::CrossDevice, "keys are renamed within their by-key/ only; copy and remove"))
            }
            _ => Err(Error::new(ErrorKind::NotPermitted, "nothing can be renamed here")),
        }
    }

    /// As [`View::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, place: &Place, patience: Patience) -> Result<Reader> {
        match self.view(place.slot, patience)? {
            Some(view) => view.open(&place.node, patience),
            None => self.forest()?.open(&place.node, patience),
        }
    }

    /// Opens a real file for reading.
    ///
    /// # Errors
    /// What the system says.
    pub fn file(&self, place: &Place) -> Result<Arc<dyn File>> {
        match (&place.node, self.view(place.slot, Patience::MayBlock)?) {
            (Node::SegmentFile(name), Some(view)) => view.file(name),
            (Node::SegmentFile(name), None) => self.forest()?.file(name),
            _ => Err(Error::not_found("it is no real file")),
        }
    }

    /// A new look-up of an append file.
    ///
    /// # Errors
    /// As [`View::appender`].
    pub fn appender(&self, place: &Place, framing: Framing) -> Result<Appender> {
        match self.view(place.slot, Patience::MayBlock)? {
            Some(view) => view.appender(framing),
            None => Err(Error::not_found("it is no append file")),
        }
    }

    /// As [`View::sync`], of the partition that a place belongs to; nothing is to be done outside of one.
    pub fn sync(&self, place: &Place, finished: Finished) {
        match self.view(place.slot, Patience::MayBlock) {
            Ok(Some(view)) => view.sync(finished),
            Ok(None) => finished(Ok(())),
            Err(error) => finished(Err(error)),
        }
    }

    /// As [`View::control`].
    ///
    /// # Errors
    /// As there.
    pub fn control(&self, place: &Place, data: &[u8]) -> Result<()> {
        match (&place.node, self.view(place.slot, Patience::MayBlock)?) {
            (Node::Ctl, Some(view)) => view.control(data),
            _ => Err(Error::not_found("it takes no commands")),
        }
    }

    /// What was asked of the tree, to be counted by whoever serves it.
    pub fn requests(&self) -> Arc<RequestCounters> {
        match self {
            Tree::One(view) => view.requests().cloned().unwrap_or_default(),
            Tree::Many(forest) => Arc::clone(forest.requests()),
        }
    }

    /// As [`View::xattr`].
    ///
    /// # Errors
    /// As there.
    pub fn xattr(&self, place: &Place, name: &[u8], patience: Patience) -> Result<Vec<u8>> {
        match self.view(place.slot, patience)? {
            Some(view) => view.xattr(&place.node, name, patience),
            None => Err(Error::new(ErrorKind::NoAttribute, "there is no such attribute")),
        }
    }

    /// As [`View::xattr_names`].
    ///
    /// # Errors
    /// As there.
    pub fn xattr_names(&self, place: &Place, patience: Patience) -> Result<Vec<Vec<u8>>> {
        match self.view(place.slot, patience)? {
            Some(view) => view.xattr_names(&place.node, patience),
            None => Ok(Vec::new()),
        }
    }

    /// The directory whose owner and permissions the tree has.
    pub fn directory(&self) -> Option<&Arc<dyn Directory>> {
        match self {
            Tree::One(view) => view.source().files(),
            Tree::Many(forest) => Some(forest.directory()),
        }
    }

    /// Room on the file system of the source.
    pub fn space(&self) -> Space {
        match self {
            Tree::One(view) => view.space(),
            Tree::Many(forest) => forest.directory().space().unwrap_or_default(),
        }
    }

    /// Notes for `errors` that a handler failed in a way that no error describes.
    pub fn note_event(&self, sentence: &str) {
        match self {
            Tree::One(view) => view.note_event(sentence),
            Tree::Many(forest) => forest.note_event(sentence),
        }
    }

    /// Ends appending and closes every log well.
    ///
    /// # Errors
    /// What the source says.
    pub fn close(&self) -> Result<()> {
        match self {
            Tree::One(view) => view.close(),
            Tree::Many(forest) => forest.close(),
        }
    }
}
