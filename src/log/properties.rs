//! Java's properties files, as Kafka's settings are kept in: `name=value` a line, `#` and `!` for comments, `\` to go on in the next line.
//!
//! It follows `java.util.Properties.load`: Latin-1, `=`, `:` or blanks behind the name, escapes, any end of line. What a name means is not
//! known here; that is in `settings`. (The crate `java-properties` drops a last line that ends in `\`, and refuses comments with `\u` in them.)

use crate::error::{Error, Result};
use crate::io::{Directory, Open, read_up_to};
use crate::log::names;
use std::ffi::OsStr;
use std::io;

/// No settings file is larger, in bytes; a larger one is refused rather than read.
pub const LARGEST: usize = 64 << 10;

/// Of a name or value so many characters are shown in messages.
const SHOWN_MOST: usize = 80;

/// A line that sets something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The line that it begins in, from 1.
    pub line: usize,
    /// The name.
    pub name: String,
    /// The value, without blanks around it, as Kafka reads it.
    pub value: String,
}

impl Property {
    /// The name as it can stand in a message: control characters escaped, no longer than a name may sensibly be.
    pub fn shown_name(&self) -> String {
        shown(&self.name)
    }

    /// The value likewise.
    pub fn shown_value(&self) -> String {
        shown(&self.value)
    }
}

fn shown(text: &str) -> String {
    text.escape_debug().take(SHOWN_MOST).collect()
}

/// What is wrong with a settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The line, from 1; `None` where it is the file as a whole.
    pub line: Option<usize>,
    /// In words.
    pub reason: String,
}

impl Wrong {
    pub(crate) fn of_line(line: usize, reason: impl Into<String>) -> Wrong {
        Wrong { line: Some(line), reason: reason.into() }
    }

    fn of_file(reason: impl Into<String>) -> Wrong {
        Wrong { line: None, reason: reason.into() }
    }

    /// The same as an error about a file.
    pub(crate) fn within(self, file: impl Into<String>) -> Error {
        Error::Settings { file: file.into(), line: self.line, reason: self.reason }
    }
}

/// The lines of a file that set something, in order; of a name that stands twice the later line counts.
///
/// # Errors
/// A file above [`LARGEST`]; an escape `\u` without four hexadecimal digits, or half of a surrogate pair.
pub fn parse(bytes: &[u8]) -> Result<Vec<Property>, Wrong> {
    if bytes.len() > LARGEST {
        return Err(Wrong::of_file(format!("it is larger than {LARGEST} bytes, which no file of settings is")));
    }
    let mut lines = natural_lines(bytes).enumerate();
    let mut found = Vec::new();
    while let Some((before, line)) = lines.next() {
        let line = line.trim_ascii_start();
        if matches!(line, [] | [b'#' | b'!', ..]) {
            continue;
        }
        let mut logical = line.to_vec();
        while ends_escaped(&logical) {
            logical.pop();
            let Some((_, next)) = lines.next() else { break };
            logical.extend_from_slice(next.trim_ascii_start());
        }
        let number = before + 1;
        let (name, value) = split(&logical);
        let text = |escaped| unescape(escaped).map_err(|reason| Wrong::of_line(number, reason));
        found.push(Property { line: number, name: text(name)?, value: text(value)?.trim().to_owned() });
    }
    Ok(found)
}

/// Lines by any end: `\n`, `\r`, `\r\n`.
fn natural_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) else { return rest.take() };
        let behind = if bytes[end..].starts_with(b"\r\n") { end + 2 } else { end + 1 };
        rest = bytes.get(behind..);
        bytes.get(..end)
    })
}

/// Whether a line goes on: it ends with a backslash that is not itself escaped.
fn ends_escaped(line: &[u8]) -> bool {
    line.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\x0c')
}

/// The name and the value of a logical line, still escaped.
fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let mut escaped = false;
    let end = line.iter().position(|b| {
        let ends = !escaped && (matches!(b, b'=' | b':') || is_blank(*b));
        escaped = !escaped && *b == b'\\';
        ends
    });
    let (name, rest) = line.split_at(end.unwrap_or(line.len()));
    let blanks = |bytes: &[u8]| bytes.iter().take_while(|b| is_blank(**b)).count();
    let rest = &rest[blanks(rest)..];
    let rest = match rest {
        [b'=' | b':', value @ ..] => &value[blanks(value)..],
        value => value,
    };
    (name, rest)
}

fn unescape(bytes: &[u8]) -> Result<String, &'static str> {
    let mut units: Vec<u16> = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        let escaped = if *byte == b'\\' { rest.next() } else { None };
        units.push(match escaped {
            None => u16::from(*byte),
            Some(b't') => u16::from(b'\t'),
            Some(b'n') => u16::from(b'\n'),
            Some(b'r') => u16::from(b'\r'),
            Some(b'f') => 0x0c,
            Some(b'u') => {
                let digits = rest.as_slice().get(..4).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
                let unit = digits.and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u16::from_str_radix(d, 16).ok());
                rest.nth(3);
                unit.ok_or("\\u needs four hexadecimal digits behind it")?
            }
            Some(other) => u16::from(*other),
        });
    }
    String::from_utf16(&units).map_err(|_| "\\u names half of a surrogate pair")
}

/// The settings that lie in a partition directory; `None` where there are none.
///
/// # Errors
/// [`Error::Settings`] for a file that is too large; what the system says.
pub fn read_topic(dir: &dyn Directory) -> Result<Option<Vec<Property>>> {
    let name = names::TOPIC_PROPERTIES;
    let file = match dir.open(OsStr::new(name), Open::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("open", name, e)),
    };
    let bytes = read_up_to(&*file, 0, LARGEST + 1).map_err(|e| Error::io("read", name, e))?;
    parse(&bytes).map(Some).map_err(|wrong| wrong.within(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(usize, String, String)> {
        parse(text.as_bytes()).expect("properties").into_iter().map(|p| (p.line, p.name, p.value)).collect()
    }

    #[test]
    fn lines_are_read_as_java_reads_them() {
        type Row = (&'static str, &'static [(usize, &'static str, &'static str)]);
        let table: &[Row] = &[
            ("", &[]),
            ("a=1", &[(1, "a", "1")]),
            ("a = 1 \r\nb:2\rc 3\n\nd", &[(1, "a", "1"), (2, "b", "2"), (3, "c", "3"), (5, "d", "")]),
            ("# C:\\users\n  ! x=1\na=b", &[(3, "a", "b")]),
            ("a=1,\\\n   2\\\n\nb=3", &[(1, "a", "1,2"), (4, "b", "3")]),
            ("a=1\\", &[(1, "a", "1")]),
            ("a\\=b\\ c=d=e:f", &[(1, "a=b c", "d=e:f")]),
            ("a=\\u0041\\\\\\q\\t.", &[(1, "a", "A\\q\t.")]),
            ("a=\\ud83d\\ude00", &[(1, "a", "😀")]),
            ("=v", &[(1, "", "v")]),
            ("a==b", &[(1, "a", "=b")]),
            ("a\\\n#b=c", &[(1, "a#b", "c")]),
        ];
        for (text, want) in table {
            let want: Vec<_> = want.iter().map(|(line, name, value)| (*line, (*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(pairs(text), want, "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line() {
        for text in ["\n#\na=\\u12", "\n#\na=\\u12g4", "\n#\na\\u+123=1", "\n#\na=\\ud83d"] {
            assert_eq!(parse(text.as_bytes()).expect_err(text).line, Some(3), "{text:?}");
        }
        let large = vec![b'\n'; LARGEST + 1];
        assert_eq!(parse(&large).expect_err("too large").line, None);
        assert_eq!(parse(&large[1..]), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(found) = parse(&bytes) {
                prop_assert!(found.windows(2).all(|w| w[0].line < w[1].line));
            }
        }

        #[test]
        fn words_come_back(words in prop::collection::vec(("[a-z.]{1,12}", "[a-z0-9.,-]{0,12}"), 0..9)) {
            let text: String = words.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
            let read: Vec<_> = pairs(&text).into_iter().map(|(_, name, value)| (name, value)).collect();
            prop_assert_eq!(read, words);
        }
    }
}
