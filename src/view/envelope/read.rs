//! Envelope lines to records.

use super::base64::decode_base64;
use super::write::is_special;
use crate::types::TimestampMs;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// A header as it is stored: its name, and its value or null.
pub type Header = (Vec<u8>, Option<Vec<u8>>);

/// A record as a line of `append.jsonl` asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedRecord {
    /// Its time; `None` where the line leaves it to the moment of the append.
    pub timestamp: Option<TimestampMs>,
    /// Its key; `None` is null.
    pub key: Option<Vec<u8>>,
    /// Its value; `None` is null, a tombstone.
    pub value: Option<Vec<u8>>,
    /// Its headers, in their order.
    pub headers: Vec<Header>,
}

/// Why a line is no envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The byte at which reading stopped, from 1.
    pub column: usize,
    /// What is wrong there, without a final stop.
    pub reason: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.reason)
    }
}

impl std::error::Error for BadLine {}

/// Reads a line (without its newline) as an envelope; `None` for a blank one.
///
/// Required is `payload` or `payload_b64`; `ts`, `key` or `key_b64`, `headers` or `headers_b64` may be missing. Other members are ignored.
///
/// # Errors
/// [`BadLine`] where the line is no JSON object, a member has the wrong type, occurs twice or in both spellings, headers are not pairs or have a
/// null name, base64 is wrong, the value is missing, or values are nested deeper than 128.
pub fn parse_line(line: &[u8]) -> Result<Option<ParsedRecord>, BadLine> {
    let mut reader = LineReader { line, at: 0 };
    reader.skip_blanks();
    if reader.rest().is_empty() {
        return Ok(None);
    }
    let mut members = Members::default();
    reader.object(|reader, name, at| members.read(name, at, reader))?;
    reader.skip_blanks();
    if !reader.rest().is_empty() {
        return Err(reader.bad_here("something follows the object"));
    }
    let Some(value) = members.value else {
        return Err(reader.bad_here("payload or payload_b64 is missing (null for a tombstone)"));
    };
    Ok(Some(ParsedRecord { timestamp: members.timestamp, key: members.key.flatten(), value, headers: members.headers.unwrap_or_default() }))
}

/// The members read so far; the outer `None` is one that did not occur.
#[derive(Default)]
struct Members {
    timestamp: Option<TimestampMs>,
    key: Option<Option<Vec<u8>>>,
    value: Option<Option<Vec<u8>>>,
    headers: Option<Vec<Header>>,
}

impl Members {
    /// Reads the value of the member whose name began at `at`.
    fn read(&mut self, name: &str, at: usize, reader: &mut LineReader<'_>) -> Result<(), BadLine> {
        let again = match name {
            "ts" => self.timestamp.replace(reader.timestamp()?).is_some(),
            "key" => self.key.replace(reader.bytes(as_text)?).is_some(),
            "key_b64" => self.key.replace(reader.bytes(as_base64)?).is_some(),
            "payload" => self.value.replace(reader.bytes(as_text)?).is_some(),
            "payload_b64" => self.value.replace(reader.bytes(as_base64)?).is_some(),
            "headers" => self.headers.replace(reader.headers(as_text)?).is_some(),
            "headers_b64" => self.headers.replace(reader.headers(as_base64)?).is_some(),
            _ => {
                reader.skip(1)?;
                false
            }
        };
        if again { Err(bad_at(at, format!("{name} says again what an earlier member said"))) } else { Ok(()) }
    }
}

/// How the bytes of a string are meant; `None` where it means none.
type Decode = fn(Cow<'_, str>) -> Option<Vec<u8>>;

/// What a string stands for in a member without `_b64`.
fn as_text(text: Cow<'_, str>) -> Option<Vec<u8>> {
    Some(text.into_owned().into_bytes())
}

/// What a string stands for in a member with `_b64`; `None` where it is no base64.
fn as_base64(text: Cow<'_, str>) -> Option<Vec<u8>> {
    decode_base64(text.as_bytes())
}

/// A value without values inside.
enum Scalar<'a> {
    Null,
    Text(Cow<'a, str>),
    /// A number, `true` or `false`.
    Other(Value),
}

/// How deep values may be nested, the outer object included.
const MOST_DEPTH: usize = 128;

/// A line that is read from the left, from `at`. It walks objects and arrays itself: a parsed object no longer knows which member occurred twice,
/// and an ignored member must not cost memory. Strings, numbers and literals are the library's.
struct LineReader<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> LineReader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.line.get(self.at..).unwrap_or_default()
    }

    fn bad_here(&self, reason: impl Into<String>) -> BadLine {
        bad_at(self.at, reason)
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
    }

    /// Takes this byte if it is the next one that is not blank.
    fn eat(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let there = self.rest().first() == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), BadLine> {
        if self.eat(byte) { Ok(()) } else { Err(self.bad_here(format!("expected {what}"))) }
    }

    /// Walks an object; `member` reads each value, given the name and where the name began.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &str, usize) -> Result<(), BadLine>) -> Result<(), BadLine> {
        self.expect(b'{', "an object")?;
        if self.eat(b'}') {
            return Ok(());
        }
        loop {
            self.skip_blanks();
            let at = self.at;
            let Scalar::Text(name) = self.scalar()? else {
                return Err(bad_at(at, "expected the name of a member"));
            };
            self.expect(b':', "a colon")?;
            member(self, &name, at)?;
            if self.eat(b'}') {
                return Ok(());
            }
            self.expect(b',', "a comma or the end of the object")?;
        }
    }

    /// Walks an array; `element` reads each value.
    fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<(), BadLine>) -> Result<(), BadLine> {
        self.expect(b'[', "an array")?;
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            element(self)?;
            if self.eat(b']') {
                return Ok(());
            }
            self.expect(b',', "a comma or the end of the array")?;
        }
    }

    /// Walks any value inside `depth` others and forgets it.
    fn skip(&mut self, depth: usize) -> Result<(), BadLine> {
        self.skip_blanks();
        let deeper = depth.saturating_add(1);
        match self.rest().first() {
            Some(b'{' | b'[') if depth >= MOST_DEPTH => Err(self.bad_here("values are nested too deep")),
            Some(b'{') => self.object(|reader, _, _| reader.skip(deeper)),
            Some(b'[') => self.array(|reader| reader.skip(deeper)),
            _ => self.scalar().map(drop),
        }
    }

    /// Reads a string, a number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Result<Scalar<'a>, BadLine> {
        self.skip_blanks();
        if let Some(text) = self.plain_string() {
            return Ok(Scalar::Text(Cow::Borrowed(text)));
        }
        if matches!(self.rest().first(), Some(b'{' | b'[')) {
            return Err(self.bad_here("an object or array cannot stand here"));
        }
        let mut values = serde_json::Deserializer::from_slice(self.rest()).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                self.at += values.byte_offset();
                Ok(match value {
                    Value::String(text) => Scalar::Text(Cow::Owned(text)),
                    Value::Null => Scalar::Null,
                    value => Scalar::Other(value),
                })
            }
            Some(Err(error)) => {
                let place = format!(" at line {} column {}", error.line(), error.column());
                let reason = error.to_string();
                Err(bad_at(self.at + error.column().saturating_sub(1), reason.strip_suffix(&place).unwrap_or(&reason)))
            }
            None => Err(self.bad_here("the line ends inside the object")),
        }
    }

    /// Takes a string without escapes as it stands in the line: names are such strings nearly always, and most values.
    fn plain_string(&mut self) -> Option<&'a str> {
        let inside = self.rest().strip_prefix(b"\"")?;
        let length = inside.iter().position(|&byte| is_special(byte))?;
        let (text, end) = inside.split_at(length);
        let text = std::str::from_utf8(text).ok().filter(|_| end.starts_with(b"\""))?;
        self.at += length.saturating_add(2);
        Some(text)
    }

    fn timestamp(&mut self) -> Result<TimestampMs, BadLine> {
        self.skip_blanks();
        let at = self.at;
        match self.scalar()? {
            Scalar::Other(value) => value.as_i64().map(TimestampMs::new),
            Scalar::Null | Scalar::Text(_) => None,
        }
        .ok_or_else(|| bad_at(at, "expected a time as a whole number of milliseconds"))
    }

    /// Reads a string that `decode` makes bytes of, or null.
    fn bytes(&mut self, decode: Decode) -> Result<Option<Vec<u8>>, BadLine> {
        self.skip_blanks();
        let at = self.at;
        match self.scalar()? {
            Scalar::Null => Ok(None),
            Scalar::Text(text) => decode(text).map(Some).ok_or_else(|| bad_at(at, "the string is no base64 (standard alphabet, padded)")),
            Scalar::Other(_) => Err(bad_at(at, "expected a string or null")),
        }
    }

    /// Reads an array of names and values in turn.
    fn headers(&mut self, decode: Decode) -> Result<Vec<Header>, BadLine> {
        let (mut headers, mut name) = (Vec::new(), None);
        self.skip_blanks();
        let at = self.at;
        self.array(|reader| {
            reader.skip_blanks();
            let at = reader.at;
            let bytes = reader.bytes(decode)?;
            match name.take() {
                None => name = Some(bytes.ok_or_else(|| bad_at(at, "the name of a header cannot be null"))?),
                Some(name) => headers.push((name, bytes)),
            }
            Ok(())
        })?;
        if name.is_some() { Err(bad_at(at, "headers are names and values in turn; the last name has no value")) } else { Ok(headers) }
    }
}

/// A fault at a byte of the line, counted from 0.
fn bad_at(at: usize, reason: impl Into<String>) -> BadLine {
    BadLine { column: at.saturating_add(1), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> ParsedRecord {
        parse_line(line.as_bytes()).unwrap().unwrap()
    }

    fn value(text: &str) -> ParsedRecord {
        ParsedRecord { value: Some(text.as_bytes().to_vec()), ..ParsedRecord::default() }
    }

    #[test]
    fn lines_that_are_records() {
        assert_eq!(parse(r#"{"payload":"v"}"#), value("v"));
        assert_eq!(parse(r#"{"payload":null}"#), ParsedRecord::default());
        assert_eq!(parse(r#"{"payload_b64":null}"#), ParsedRecord::default());
        assert_eq!(parse(r#"{"payload_b64":"","key_b64":"/w=="}"#), ParsedRecord { key: Some(vec![0xff]), ..value("") });
        assert_eq!(parse("\t{ \"payload\" :\r \"a\\n\\u00fc\\ud83d\\ude00\\\"\" , \"key\" : null } \r"), value("a\nü😀\""));
        assert_eq!(parse(r#"{"pa\u0079load":"v"}"#), value("v"));
        let headers = vec![(b"a".to_vec(), Some(b"1".to_vec())), (b"a".to_vec(), None), (b"".to_vec(), Some(b"".to_vec()))];
        let whole = r#"{"topic":"t","partition":0,"offset":1,"tstype":"create","ts":-1,"headers":["a","1","a",null,"",""],"key":"k","payload":"v"}"#;
        assert_eq!(
            parse(whole),
            ParsedRecord { timestamp: Some(TimestampMs::NONE), key: Some(b"k".to_vec()), headers: headers.clone(), ..value("v") }
        );
        assert_eq!(parse(r#"{"headers_b64":["YQ==","MQ==","YQ==",null,"",""],"payload":"v"}"#), ParsedRecord { headers, ..value("v") });
        assert_eq!(
            parse(r#"{"ts":1700000000123,"payload":"v","x":{"payload":[1,{"y":[]},"]}"],"z":1e9},"x":true,"topic":7}"#).timestamp,
            Some(TimestampMs::new(1_700_000_000_123))
        );
    }

    #[test]
    fn blank_lines_are_none() {
        for line in ["", " ", "\t \r"] {
            assert_eq!(parse_line(line.as_bytes()), Ok(None));
        }
    }

    #[test]
    fn bad_lines_say_where() {
        let table = [
            ("{broken", 2),
            ("x", 1),
            ("[]", 1),
            ("null", 1),
            ("\"payload\"", 1),
            ("{}", 3),
            ("{\"key\":\"k\"}", 12),
            ("{\"payload\":\"v\"", 15),
            ("{\"payload\":\"v\",", 16),
            ("{\"payload\":\"v\",}", 16),
            ("{\"payload\":\"v\"}x", 16),
            ("{\"payload\":\"v\"}{}", 16),
            ("{\"payload\" \"v\"}", 12),
            ("{\"payload\":7}", 12),
            ("{\"payload\":[]}", 12),
            ("{\"payload\":{}}", 12),
            ("{\"payload\":true}", 12),
            ("{\"payload\":\"v\",\"payload\":\"v\"}", 16),
            ("{\"payload\":\"v\",\"payload_b64\":null}", 16),
            ("{\"payload\":null,\"payload\":null}", 17),
            ("{\"key\":null,\"payload\":\"v\",\"key_b64\":\"\"}", 27),
            ("{\"ts\":1,\"payload\":\"v\",\"ts\":1}", 23),
            ("{\"headers\":[],\"payload\":\"v\",\"headers_b64\":[]}", 29),
            ("{\"headers\":{\"a\":\"1\"},\"payload\":\"v\"}", 12),
            ("{\"headers\":null,\"payload\":\"v\"}", 12),
            ("{\"headers\":[\"a\"],\"payload\":\"v\"}", 12),
            ("{\"headers\":[null,\"a\"],\"payload\":\"v\"}", 13),
            ("{\"headers\":[\"a\",1],\"payload\":\"v\"}", 17),
            ("{\"headers\":[\"a\",\"b\",],\"payload\":\"v\"}", 21),
            ("{\"headers_b64\":[\"YQ==\",\"?\"],\"payload\":\"v\"}", 24),
            ("{\"payload_b64\":\"YQ\"}", 16),
            ("{\"ts\":\"1\",\"payload\":\"v\"}", 7),
            ("{\"ts\":1.5,\"payload\":\"v\"}", 7),
            ("{\"ts\":null,\"payload\":\"v\"}", 7),
            ("{\"ts\":9223372036854775808,\"payload\":\"v\"}", 7),
            ("{\"x\":[1,,2],\"payload\":\"v\"}", 9),
            ("{\"x\":{1:2},\"payload\":\"v\"}", 7),
            ("{\"x\":[1,\"payload\":\"v\"}", 18),
            ("{7:1}", 2),
        ];
        for (line, column) in table {
            let bad = parse_line(line.as_bytes()).unwrap_err();
            assert_eq!(bad.column, column, "{line}: {bad}");
            assert!(!bad.reason.contains(" at line "), "{bad}");
        }
        for line in [
            &b"{\"payload\":\"\xff\"}"[..],
            b"{\"payload\":\"\\ud800\"}",
            b"{\"payload\":\"a\tb\"}",
            b"{\"payload\":\"\\x\"}",
            b"{\"payload\":01}",
            b"\xef\xbb\xbf{\"payload\":\"\"}",
        ] {
            assert!(parse_line(line).is_err(), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{{\"payload\":\"v\",\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(parse(&nested(MOST_DEPTH - 1)), value("v"));
        assert!(parse_line(nested(MOST_DEPTH).as_bytes()).unwrap_err().reason.contains("too deep"));
        assert!(parse_line(nested(1_000_000).as_bytes()).is_err());
        assert!(parse_line(("{\"x\":".repeat(100_000)).as_bytes()).is_err());
    }
}
