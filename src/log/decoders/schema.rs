//! How a message is laid out: a table of its fields, each with the versions that have it, and the walk over its bytes.
//!
//! Numbers are big-endian. Up to a version of its own a message has lengths of two or four bytes; from there on it is *flexible*: lengths are
//! unsigned varints one larger than the length (0 is null), and each structure ends with tagged fields, which may be left out.

/// Takes what is found in a message, in the order of the tables.
pub trait Visitor {
    /// A structure begins.
    fn begin_object(&mut self);
    /// The structure ends.
    fn end_object(&mut self);
    /// A list begins.
    fn begin_list(&mut self);
    /// The list ends.
    fn end_list(&mut self);
    /// The next value of the structure has this name.
    fn member(&mut self, name: &str);
    /// Null.
    fn null(&mut self);
    /// A truth value.
    fn boolean(&mut self, value: bool);
    /// An integer.
    fn integer(&mut self, value: i64);
    /// A number with a fraction.
    fn float(&mut self, value: f64);
    /// A text; its bytes should be UTF-8.
    fn text(&mut self, bytes: &[u8]);
    /// Bytes of any kind.
    fn bytes(&mut self, bytes: &[u8]);
    /// A universally unique identifier.
    fn uuid(&mut self, bytes: &[u8; 16]);
}

/// The kind of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Int64,
    Float64,
    Text,
    Bytes,
    Uuid,
    /// The protocol type of a group: it says whether its members' [`Kind::Protocol`] fields are messages.
    ProtocolType,
    /// Bytes that in a group of consumers are a version and a message of their own.
    Protocol(&'static Schema),
    Array(&'static Kind),
    Struct(&'static [Field]),
}

/// Stands for a version that never comes.
pub(super) const NEVER: i16 = i16::MAX;

/// A field of a message or structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    name: &'static str,
    kind: Kind,
    first: i16,
    last: i16,
    nullable_from: i16,
    tag: Option<u32>,
}

/// A field that all versions have, that is not null and not tagged.
pub(super) const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, first: 0, last: NEVER, nullable_from: NEVER, tag: None }
}

impl Field {
    /// The first version that has the field.
    pub(super) const fn since(mut self, version: i16) -> Field {
        self.first = version;
        self
    }

    /// The last version that has the field.
    pub(super) const fn until(mut self, version: i16) -> Field {
        self.last = version;
        self
    }

    /// The first version in which it may be null.
    pub(super) const fn nullable(mut self, version: i16) -> Field {
        self.nullable_from = version;
        self
    }

    /// The tag by which it stands behind the other fields.
    pub(super) const fn tagged(mut self, tag: u32) -> Field {
        self.tag = Some(tag);
        self
    }

    fn is_in(&self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }
}

/// A message: which versions are known, from which on they are flexible, and the fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema {
    /// The first and the last known version.
    pub(super) versions: (i16, i16),
    /// The first flexible version.
    pub(super) flexible_from: i16,
    /// The fields in the order in which they are told.
    pub(super) fields: &'static [Field],
}

impl Schema {
    /// Whether `bytes` hold a message of this version to its end. What stands behind it is passed over, as Kafka does.
    pub(super) fn is_sound(&self, bytes: &[u8], version: i16) -> bool {
        (self.versions.0..=self.versions.1).contains(&version) && self.walk(bytes, version, &mut Nobody).is_some()
    }

    /// Tells the fields of a message that is sound.
    pub(super) fn visit(&self, bytes: &[u8], version: i16, visitor: &mut dyn Visitor) {
        self.walk(bytes, version, visitor);
    }

    fn walk(&self, bytes: &[u8], version: i16, visitor: &mut dyn Visitor) -> Option<()> {
        let mut walk = Walk { bytes, at: 0, version, flexible: version >= self.flexible_from, of_consumers: false };
        walk.structure(self.fields, visitor)
    }
}

/// The most tagged fields of a structure of which the places are remembered.
const TAGS_MOST: usize = 16;

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    version: i16,
    flexible: bool,
    of_consumers: bool,
}

impl<'a> Walk<'a> {
    fn structure(&mut self, fields: &'static [Field], visitor: &mut dyn Visitor) -> Option<()> {
        let (begin, version) = (self.at, self.version);
        let fields = || fields.iter().filter(move |field| field.is_in(version));
        let (mut tags, mut end) = ([(u32::MAX, 0); TAGS_MOST], None);
        if self.flexible && fields().any(|field| field.tag.is_some()) {
            // Tagged fields stand at the end but are told in their order, so their places come first.
            for field in fields().filter(|field| field.tag.is_none()) {
                self.value(&field.kind, field.nullable_from <= version, &mut Nobody)?;
            }
            self.tags(|index, tag, at| {
                if let Some(place) = tags.get_mut(index) {
                    *place = (tag, at);
                }
            })?;
            end = Some(self.at);
            self.at = begin;
        }
        visitor.begin_object();
        for field in fields() {
            let nullable = field.nullable_from <= version;
            match field.tag.filter(|_| self.flexible) {
                None => {
                    visitor.member(field.name);
                    self.value(&field.kind, nullable, visitor)?;
                }
                Some(tag) => {
                    let Some(&(_, at)) = tags.iter().find(|(found, _)| *found == tag) else { continue };
                    let back = std::mem::replace(&mut self.at, at);
                    visitor.member(field.name);
                    self.value(&field.kind, nullable, visitor)?;
                    self.at = back;
                }
            }
        }
        visitor.end_object();
        match end {
            Some(end) => self.at = end,
            None if self.flexible => self.tags(|_, _, _| ())?,
            None => {}
        }
        Some(())
    }

    /// Goes over the tagged fields at the end of a structure, giving the number, the tag and the place of each.
    fn tags(&mut self, mut found: impl FnMut(usize, u32, usize)) -> Option<()> {
        let count = self.unsigned_varint()?;
        if usize::try_from(count).ok()? > self.left() {
            return None;
        }
        for index in 0..count {
            let tag = self.unsigned_varint()?;
            let length = usize::try_from(self.unsigned_varint()?).ok()?;
            found(index as usize, tag, self.at);
            self.take(length)?;
        }
        Some(())
    }

    fn value(&mut self, kind: &Kind, nullable: bool, visitor: &mut dyn Visitor) -> Option<()> {
        match kind {
            Kind::Bool => visitor.boolean(self.fixed::<1>()? != [0]),
            Kind::Int8 => visitor.integer(i64::from(i8::from_be_bytes(self.fixed()?))),
            Kind::Int16 => visitor.integer(i64::from(i16::from_be_bytes(self.fixed()?))),
            Kind::Uint16 => visitor.integer(i64::from(u16::from_be_bytes(self.fixed()?))),
            Kind::Int32 => visitor.integer(i64::from(i32::from_be_bytes(self.fixed()?))),
            Kind::Int64 => visitor.integer(i64::from_be_bytes(self.fixed()?)),
            Kind::Float64 => visitor.float(f64::from_be_bytes(self.fixed()?)),
            Kind::Uuid => visitor.uuid(&self.fixed()?),
            Kind::Text | Kind::ProtocolType => {
                let length = if self.flexible { self.compact()? } else { i64::from(i16::from_be_bytes(self.fixed()?)) };
                match self.sized(length, nullable)? {
                    None => visitor.null(),
                    Some(text) => {
                        self.of_consumers |= matches!(kind, Kind::ProtocolType) && text == b"consumer";
                        visitor.text(text);
                    }
                }
            }
            Kind::Bytes | Kind::Protocol(_) => {
                let length = self.length()?;
                match self.sized(length, nullable)? {
                    None => visitor.null(),
                    Some(bytes) => self.protocol_or_bytes(kind, bytes, visitor),
                }
            }
            Kind::Array(item) => {
                let count = self.length()?;
                if count < 0 {
                    nullable.then(|| visitor.null())?;
                    return Some(());
                }
                // Every item has at least one byte, so that no count makes a walk longer than the bytes are.
                if usize::try_from(count).ok()? > self.left() {
                    return None;
                }
                visitor.begin_list();
                for _ in 0..count {
                    self.value(item, false, visitor)?;
                }
                visitor.end_list();
            }
            Kind::Struct(fields) => {
                if nullable && i8::from_be_bytes(self.fixed()?) < 0 {
                    visitor.null();
                } else {
                    self.structure(fields, visitor)?;
                }
            }
        }
        Some(())
    }

    /// The message in a member's bytes, where the group is one of consumers and the message is known.
    fn protocol_or_bytes(&self, kind: &Kind, bytes: &[u8], visitor: &mut dyn Visitor) {
        if let Kind::Protocol(schema) = kind
            && self.of_consumers
            && let Some((version, message)) = bytes.split_first_chunk().map(|(version, rest)| (i16::from_be_bytes(*version), rest))
            && schema.is_sound(message, version)
        {
            schema.visit(message, version, visitor);
        } else {
            visitor.bytes(bytes);
        }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A length of bytes or a count of items; negative is null.
    fn length(&mut self) -> Option<i64> {
        if self.flexible { self.compact() } else { Some(i64::from(i32::from_be_bytes(self.fixed()?))) }
    }

    fn compact(&mut self) -> Option<i64> {
        Some(i64::from(self.unsigned_varint()?) - 1)
    }

    /// So many bytes; `Some(None)` is null.
    fn sized(&mut self, length: i64, nullable: bool) -> Option<Option<&'a [u8]>> {
        if length < 0 {
            return nullable.then_some(None);
        }
        self.take(usize::try_from(length).ok()?).map(Some)
    }

    fn unsigned_varint(&mut self) -> Option<u32> {
        unsigned_varint(self.bytes, &mut self.at)
    }
}

/// Reads seven bits a byte, the lowest first, of at most five bytes, and steps behind them.
pub(super) fn unsigned_varint(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = u32::from(*bytes.get(*at)?);
        *at += 1;
        value |= (byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Takes nothing: what checks a message or looks for places in it walks with this one.
struct Nobody;

impl Visitor for Nobody {
    fn begin_object(&mut self) {}
    fn end_object(&mut self) {}
    fn begin_list(&mut self) {}
    fn end_list(&mut self) {}
    fn member(&mut self, _: &str) {}
    fn null(&mut self) {}
    fn boolean(&mut self, _: bool) {}
    fn integer(&mut self, _: i64) {}
    fn float(&mut self, _: f64) {}
    fn text(&mut self, _: &[u8]) {}
    fn bytes(&mut self, _: &[u8]) {}
    fn uuid(&mut self, _: &[u8; 16]) {}
}
