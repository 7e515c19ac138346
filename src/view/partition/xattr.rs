//! The extended attributes of records, `user.kafka.*`: what the batch and the record say beside key and value.

use crate::types::Patience;
use crate::view::envelope;
use crate::view::error::{Error, ErrorKind};
use crate::view::node::Node;
use crate::view::partition::{Result, View};
use crate::view::path::{Face, KeyFace};

/// A value larger than this is no extended attribute, in bytes.
const XATTR_VALUE_MOST: usize = 64 << 10;
/// A name longer than this is no extended attribute, in bytes.
const XATTR_NAME_MOST: usize = 255;

impl View {
    /// An extended attribute.
    ///
    /// # Errors
    /// [`ErrorKind::NoAttribute`] where there is none of that name, [`ErrorKind::NotSupported`] in other namespaces than `user.` (`ls -l` asks for
    /// two such attributes of each name, unless it hears that the file system has none); as [`View::lookup`].
    pub fn xattr(&self, node: &Node, name: &[u8], patience: Patience) -> Result<Vec<u8>> {
        if !name.starts_with(b"user.") {
            return Err(Error::new(ErrorKind::NotSupported, "only attributes of the namespace user are kept"));
        }
        let none = || Error::new(ErrorKind::NoAttribute, "there is no such attribute");
        if !name.starts_with(b"user.kafka.") || !matches!(node, Node::Record(..) | Node::Key(_, KeyFace::Value)) {
            return Err(none());
        }
        self.xattrs(node, patience)?.into_iter().find(|(n, _)| n == name).map(|(_, value)| value).ok_or_else(none)
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// As [`View::lookup`].
    pub fn xattr_names(&self, node: &Node, patience: Patience) -> Result<Vec<Vec<u8>>> {
        Ok(self.xattrs(node, patience)?.into_iter().map(|(name, _)| name).collect())
    }

    fn xattrs(&self, node: &Node, patience: Patience) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (record, face) = match node {
            Node::Record(offset, face) => (self.record(*offset, patience)?, *face),
            Node::Key(key, KeyFace::Value) => match self.live_or_new(key, patience)? {
                Some(record) => (record, Face::Value),
                None => return Ok(Vec::new()),
            },
            _ => return Ok(Vec::new()),
        };
        let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let is_null = match face {
            Face::Value => record.value().is_none(),
            Face::Key => record.key().is_none(),
            Face::Json | Face::Batch => false,
        };
        if is_null {
            all.push((b"user.kafka.null".to_vec(), b"1".to_vec()));
        }
        if face == Face::Value {
            let mut add = |name: &str, value: Vec<u8>| {
                if value.len() <= XATTR_VALUE_MOST {
                    all.push((format!("user.kafka.{name}").into_bytes(), value));
                }
            };
            add("offset", record.offset().to_string().into());
            add("timestamp", record.timestamp().to_string().into());
            add("timestamp_type", envelope::timestamp_type_word(record.reference.timestamp_type).into());
            if let Some(key) = record.key() {
                add("key", key.to_vec());
            }
            add("partition_leader_epoch", record.header.partition_leader_epoch.to_string().into());
            add("producer_id", record.header.producer_id.to_string().into());
            add("codec", record.header.attributes.codec().map_or("invalid", |c| c.name()).into());
            for (n, (name, value)) in record.headers().enumerate() {
                let full = [format!("user.kafka.header.{n}.").as_bytes(), name].concat();
                if let Some(value) = value.filter(|v| v.len() <= XATTR_VALUE_MOST && full.len() <= XATTR_NAME_MOST && !name.contains(&0)) {
                    all.push((full, value.to_vec()));
                }
            }
        }
        if record.is_broken() {
            return Err(Error::new(ErrorKind::Damaged, "a segment became shorter while it was read; read again"));
        }
        Ok(all)
    }
}
