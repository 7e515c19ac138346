//! Names in `by-key`: keys are any bytes, names are not, so what a name cannot hold is percent-encoded, each key in one spelling.
//!
//! `%`, `/` and NUL stand as `%25`, `%2F` and `%00`, everything else as it is. Three keys need more: the empty one is `%`, `.` is `%2E`, `..` is `%2E%2E`.
//! The suffix `.offset` belongs to the grammar, so a key that ends in it has `%2E` for that dot. A key whose name would be longer than a
//! directory can show is found as `%@N`, N being the offset of its last record.

use super::super::time::{Refusal, decimal};
use super::dots;
use crate::types::Offset;
use std::fmt;

/// The longest name that a directory can show, in bytes.
pub const NAME_MOST: usize = 255;
/// What follows the name of a key for the offset of its last record.
const OFFSET_SUFFIX: &[u8] = b".offset";
/// What stands before the offset of a key without a name.
const LONG: &[u8] = b"%@";
const DIGITS: [u8; 16] = *b"0123456789ABCDEF";

/// What of a key's last record a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyFace {
    /// No suffix: the value, byte exact.
    Value,
    /// `.offset`: the offset in decimal, and a newline.
    Offset,
}

/// A name in `by-key`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ByKey {
    /// A key, decoded.
    Key(Vec<u8>, KeyFace),
    /// `%@N`: the key of the record at that offset, which is too long for a name.
    Long(Offset, KeyFace),
}

impl ByKey {
    /// Reads a name of `by-key`.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for a name that is no key's one spelling; it says which one is.
    pub fn parse(name: &[u8]) -> Result<ByKey, Refusal> {
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|b| matches!(b, b'/' | 0)) {
            return Err(dots());
        }
        let (stem, face) = match name.strip_suffix(OFFSET_SUFFIX) {
            Some(b"") => return Err(Refusal::not_found("the offset of the empty key is %.offset; the key `.offset` is %2Eoffset")),
            Some(stem) => (stem, KeyFace::Offset),
            None => (name, KeyFace::Value),
        };
        if let Some(number) = stem.strip_prefix(LONG) {
            let offset = decimal(number).and_then(Offset::new);
            return offset.map(|o| ByKey::Long(o, face)).ok_or_else(|| Refusal::not_found("%@ needs an offset behind it"));
        }
        let Some(key) = decoded(stem) else {
            return Err(Refusal::not_found("% stands before two digits of a byte (0-9, A-F); % itself is %25"));
        };
        let canonical = encoded(&key);
        if canonical != stem {
            let canonical = String::from_utf8_lossy(&canonical).into_owned();
            return Err(Refusal::not_found(format!("the one name of this key is {canonical}")));
        }
        Ok(ByKey::Key(key, face))
    }

    /// The name of a key; of one that has none, `%@N` with the offset of its last record.
    pub fn of(key: &[u8], last: Offset) -> Vec<u8> {
        name_of(key).unwrap_or_else(|| ByKey::Long(last, KeyFace::Value).to_bytes())
    }

    /// The name.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (mut name, face) = match self {
            ByKey::Key(key, face) => (encoded(key), face),
            ByKey::Long(offset, face) => ([LONG, offset.to_string().as_bytes()].concat(), face),
        };
        if *face == KeyFace::Offset {
            name.extend_from_slice(OFFSET_SUFFIX);
        }
        name
    }
}

impl fmt::Display for ByKey {
    /// The name; bytes that are not UTF-8 stand as U+FFFD.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

/// The name of a key; `None` for one that is too long.
pub fn name_of(key: &[u8]) -> Option<Vec<u8>> {
    // No name is shorter than its key.
    if key.len() > NAME_MOST {
        return None;
    }
    Some(encoded(key)).filter(|name| name.len() <= NAME_MOST)
}

fn encoded(key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len());
    let only_dots = matches!(key, b"." | b"..");
    let suffix = if key.ends_with(OFFSET_SUFFIX) { Some(key.len() - OFFSET_SUFFIX.len()) } else { None };
    for (at, &byte) in key.iter().enumerate() {
        if matches!(byte, 0 | b'/' | b'%') || byte == b'.' && (only_dots || suffix == Some(at)) {
            name.push(b'%');
            name.extend([byte >> 4, byte & 15].iter().filter_map(|half| DIGITS.get(usize::from(*half))));
        } else {
            name.push(byte);
        }
    }
    if key.is_empty() { b"%".to_vec() } else { name }
}

/// The bytes that a name stands for, in whatever spelling; `None` where `%` stands before no byte.
fn decoded(name: &[u8]) -> Option<Vec<u8>> {
    if name == b"%" {
        return Some(Vec::new());
    }
    let half = |digit: u8| char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut key = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        key.push(match byte {
            b'%' => match behind {
                [high, low, behind @ ..] => {
                    rest = behind;
                    half(*high)? << 4 | half(*low)?
                }
                _ => return None,
            },
            plain => *plain,
        });
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(key: &[u8]) -> ByKey {
        ByKey::Key(key.to_vec(), KeyFace::Value)
    }

    #[test]
    fn names_of_keys() {
        let table: [(&[u8], &[u8]); 17] = [
            (b"plain", b"plain"),
            (b"", b"%"),
            (b".", b"%2E"),
            (b"..", b"%2E%2E"),
            (b"...", b"..."),
            (b".hidden", b".hidden"),
            (b"a/b", b"a%2Fb"),
            (b"50%", b"50%25"),
            (b"%", b"%25"),
            (b"%2F", b"%252F"),
            (b"\0", b"%00"),
            (b" \n\t\xff", b" \n\t\xff"),
            (b".offset", b"%2Eoffset"),
            (b"a.offset", b"a%2Eoffset"),
            (b"a.offset.offset", b"a.offset%2Eoffset"),
            (b"a.offsets", b"a.offsets"),
            (b"@5", b"@5"),
        ];
        for (bytes, name) in table {
            assert_eq!(name_of(bytes).as_deref(), Some(name), "{}", bytes.escape_ascii());
            assert_eq!(ByKey::parse(name), Ok(key(bytes)));
            let offset = ByKey::Key(bytes.to_vec(), KeyFace::Offset);
            assert_eq!(ByKey::parse(&offset.to_bytes()), Ok(offset));
        }
        assert_eq!(ByKey::parse(b"%@12.offset"), Ok(ByKey::Long(Offset::new(12).unwrap(), KeyFace::Offset)));
    }

    #[test]
    fn other_spellings_are_no_names() {
        let others: [&[u8]; 16] = [
            b"",
            b".",
            b"..",
            b"a/b",
            b"a\0",
            b"50%",
            b"%2f",
            b"%2E.",
            b"%41",
            b"%2Ehidden",
            b"%%",
            b"%2",
            b"%@",
            b"%@05",
            b".offset",
            b"%@-1",
        ];
        for name in others {
            assert!(matches!(ByKey::parse(name), Err(Refusal::NotFound(_))), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_key_too_long_has_the_offset_of_its_last_record() {
        let at = Offset::new(77).unwrap();
        assert_eq!(ByKey::of(&[b'x'; 255], at), [b'x'; 255]);
        assert_eq!(ByKey::of(&[b'x'; 256], at), b"%@77");
        assert_eq!(ByKey::of(&[b'/'; 86], at), b"%@77");
        assert_eq!(name_of(&[b'/'; 85]).map(|n| n.len()), Some(255));
    }

    proptest! {
        #[test]
        fn each_key_has_one_name_and_each_name_one_key(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'.'), Just(b'%'), Just(b'/')], 0..80)) {
            let name = name_of(&bytes);
            if let Some(name) = name {
                prop_assert!(!name.is_empty() && !name.iter().any(|b| matches!(b, b'/' | 0)) && name != b"." && name != b"..");
                prop_assert_eq!(ByKey::parse(&name), Ok(key(&bytes)));
            }
        }

        #[test]
        fn whatever_is_read_is_printed_the_same(name in "[%.@/a-fA-F0-9]{0,6}(\\.offset|%2Eoffset)?") {
            if let Ok(parsed) = ByKey::parse(name.as_bytes()) {
                prop_assert_eq!(parsed.to_bytes(), name.as_bytes());
            }
        }

        #[test]
        fn any_bytes_give_an_answer(name in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(parsed) = ByKey::parse(&name) {
                prop_assert_eq!(parsed.to_bytes(), name);
            }
        }
    }
}
