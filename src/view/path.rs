//! The names of the tree: what stands below the root of one partition, parsed once into types that cannot be wrong.
//!
//! Every type here prints the canonical spelling of what it parsed, so that printing and parsing are inverses. Parsing works on bytes and is
//! strict: a number has one spelling (no sign, no leading zero, at most `i64::MAX`), digits are ASCII. Nothing here asks a log: whether there
//! is a record at an offset, or which offset a time leads to, is decided above. Time expressions are read by [`super::time`].

mod key;
mod tree;

pub use super::time::Refusal;
pub use key::{ByKey, KeyFace, NAME_MOST, name_of};
pub use tree::ViewPath;

use super::time::{TimeText, decimal};
use crate::types::Offset;
use std::fmt;

/// One end of a range of offsets, or the record that a link names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `N`: the offset itself.
    Number(Offset),
    /// `-k`: the k-th last existing record, `1..=i64::MAX`, counted in records; `-1` is the last one.
    FromEnd(u64),
    /// `earliest` (also `start`, `beginning`, `oldest`): the log start offset.
    Earliest,
    /// `latest` (also `end`, `newest`): the log end offset, the next one to be written.
    Latest,
    /// `first`: the first existing record.
    First,
    /// `last`: the last existing record.
    Last,
}

impl Endpoint {
    /// Reads an endpoint; `None` for any other text.
    fn parse(text: &[u8]) -> Option<Endpoint> {
        Some(match text {
            b"earliest" | b"start" | b"beginning" | b"oldest" => Endpoint::Earliest,
            b"latest" | b"end" | b"newest" => Endpoint::Latest,
            b"first" => Endpoint::First,
            b"last" => Endpoint::Last,
            [b'-', k @ ..] => Endpoint::FromEnd(decimal(k).filter(|&k| k >= 1)?.unsigned_abs()),
            number => Endpoint::Number(Offset::new(decimal(number)?)?),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Number(offset) => offset.fmt(f),
            Endpoint::FromEnd(k) => write!(f, "-{k}"),
            Endpoint::Earliest => f.write_str("earliest"),
            Endpoint::Latest => f.write_str("latest"),
            Endpoint::First => f.write_str("first"),
            Endpoint::Last => f.write_str("last"),
        }
    }
}

/// What of a record a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// No suffix: the value, byte exact.
    Value,
    /// `.key`: the key, byte exact.
    Key,
    /// `.json`: the JSON envelope, one line.
    Json,
    /// `.batch`: the bytes of the whole batch that holds the record.
    Batch,
}

impl Face {
    /// What follows the record's name, with its dot; empty for the value.
    pub const fn suffix(self) -> &'static str {
        match self {
            Face::Value => "",
            Face::Key => ".key",
            Face::Json => ".json",
            Face::Batch => ".batch",
        }
    }
}

/// What a range shows of each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lines {
    /// The values, each followed by a newline.
    Values,
    /// `.jsonl`: the JSON envelopes, a line each.
    Json,
}

impl Lines {
    /// What follows the range, with its dot; empty for values.
    pub const fn suffix(self) -> &'static str {
        match self {
            Lines::Values => "",
            Lines::Json => ".jsonl",
        }
    }
}

/// A range of offsets: `A..B`, `A..`, `..B`, `A..=B`, `..=B`, each with or without `.jsonl`. At least one end is there; `inclusive` only with `to`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OffsetRange {
    /// Where it begins; `None` is the log start offset.
    pub from: Option<Endpoint>,
    /// Where it ends; `None` is the log end offset.
    pub to: Option<Endpoint>,
    /// Whether the record at `to` belongs to it (`..=`).
    pub inclusive: bool,
    /// What is shown of each record.
    pub lines: Lines,
}

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(from) = &self.from {
            from.fmt(f)?;
        }
        f.write_str(if self.inclusive { "..=" } else { ".." })?;
        if let Some(to) = &self.to {
            to.fmt(f)?;
        }
        f.write_str(self.lines.suffix())
    }
}

/// A name in `by-offset`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ByOffset {
    /// `N` and its suffixes: a file of the record at that offset.
    Record(Offset, Face),
    /// `first`, `last`, `-k` and their suffixes: a symlink to the record's number. The endpoint is one of these three.
    Link(Endpoint, Face),
    /// A range, a file.
    Range(OffsetRange),
}

impl ByOffset {
    /// Reads a name of `by-offset`.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for every other name, numbers beyond `i64::MAX` and other spellings of a number included.
    pub fn parse(name: &[u8]) -> Result<ByOffset, Refusal> {
        if is_dots(name) {
            return Err(dots());
        }
        if let Some((from, rest)) = split_range(name) {
            return range_of_offsets(from, rest).map(ByOffset::Range);
        }
        let (record, face) = match name.iter().position(|&byte| byte == b'.') {
            None => (name, Face::Value),
            Some(dot) => match name.split_at(dot) {
                (record, b".key") => (record, Face::Key),
                (record, b".json") => (record, Face::Json),
                (record, b".batch") => (record, Face::Batch),
                _ => return Err(Refusal::not_found("by-offset knows the suffixes .key, .json and .batch, and .jsonl behind a range")),
            },
        };
        match Endpoint::parse(record) {
            Some(Endpoint::Number(offset)) => Ok(ByOffset::Record(offset, face)),
            Some(link @ (Endpoint::FromEnd(_) | Endpoint::First | Endpoint::Last)) => Ok(ByOffset::Link(link, face)),
            Some(Endpoint::Earliest | Endpoint::Latest) => {
                Err(Refusal::not_found("earliest and latest name no record, only the ends of a range; ask for first or last"))
            }
            None => Err(not_an_endpoint()),
        }
    }
}

impl fmt::Display for ByOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ByOffset::Record(offset, face) => write!(f, "{offset}{}", face.suffix()),
            ByOffset::Link(endpoint, face) => write!(f, "{endpoint}{}", face.suffix()),
            ByOffset::Range(range) => range.fmt(f),
        }
    }
}

/// A name in `by-time`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ByTime {
    /// `T`: a symlink to the first record at or after that time.
    Point(TimeText),
    /// `T..U`, `T..`, `..U`, each with or without `.jsonl`: a symlink to the range of offsets between two look-ups. At least one end is there.
    Range {
        /// Where it begins; `None` is the log start offset.
        from: Option<TimeText>,
        /// Where it ends; `None` is the log end offset.
        to: Option<TimeText>,
        /// What is shown of each record.
        lines: Lines,
    },
}

impl ByTime {
    /// Reads a name of `by-time`. The syntax of both times is checked; what they resolve to is not.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] where the text is no time or range of times; [`Refusal::NotFound`] for `.` and `..`.
    pub fn parse(name: &[u8]) -> Result<ByTime, Refusal> {
        if is_dots(name) {
            return Err(dots());
        }
        let Some((from, rest)) = split_range(name) else {
            return TimeText::parse(name).map(ByTime::Point);
        };
        let (to, lines) = split_lines(rest);
        if from.is_empty() && to.is_empty() {
            return Err(Refusal::invalid("a range of times needs a time at one end"));
        }
        Ok(ByTime::Range { from: optional_time(from)?, to: optional_time(to)?, lines })
    }
}

impl fmt::Display for ByTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ByTime::Point(time) => time.fmt(f),
            ByTime::Range { from, to, lines } => {
                if let Some(from) = from {
                    from.fmt(f)?;
                }
                f.write_str("..")?;
                if let Some(to) = to {
                    to.fmt(f)?;
                }
                f.write_str(lines.suffix())
            }
        }
    }
}

/// Whether `name` is one of the two names that every directory keeps for itself.
fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn dots() -> Refusal {
    Refusal::not_found("`.`, `..`, the empty name and names with a slash or NUL are no entries; the whole log is earliest..")
}

fn not_an_endpoint() -> Refusal {
    Refusal::not_found(
        "neither an offset (decimal, no sign, no leading zero, at most 9223372036854775807) nor -k, first, last, earliest, latest",
    )
}

/// Splits at the first `..`; `None` where there is none. No endpoint and no time contains two dots in a row.
fn split_range(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = name.windows(2).position(|pair| pair == b"..")?;
    Some((name.get(..at)?, name.get(at.saturating_add(2)..)?))
}

/// Takes `.jsonl` off the right side of a range. With an open end its dot may be the range's own: `5..jsonl` is `5...jsonl`.
fn split_lines(rest: &[u8]) -> (&[u8], Lines) {
    match rest.strip_suffix(b".jsonl") {
        Some(to) => (to, Lines::Json),
        None if rest == b"jsonl" => (b"", Lines::Json),
        None => (rest, Lines::Values),
    }
}

fn range_of_offsets(from: &[u8], rest: &[u8]) -> Result<OffsetRange, Refusal> {
    let (to, lines) = split_lines(rest);
    let (to, inclusive) = match to.strip_prefix(b"=") {
        Some(b"") => return Err(Refusal::not_found("..= needs an offset behind it")),
        Some(to) => (to, true),
        None => (to, false),
    };
    if from.is_empty() && to.is_empty() {
        return Err(Refusal::not_found("a range needs an offset at one end; the whole log is earliest.."));
    }
    let end = |text: &[u8]| match text {
        b"" => Ok(None),
        text => Endpoint::parse(text).map(Some).ok_or_else(not_an_endpoint),
    };
    Ok(OffsetRange { from: end(from)?, to: end(to)?, inclusive, lines })
}

fn optional_time(text: &[u8]) -> Result<Option<TimeText>, Refusal> {
    if text.is_empty() { Ok(None) } else { TimeText::parse(text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(number: i64) -> Offset {
        Offset::new(number).unwrap()
    }

    fn range(from: Option<Endpoint>, to: Option<Endpoint>, inclusive: bool, lines: Lines) -> ByOffset {
        ByOffset::Range(OffsetRange { from, to, inclusive, lines })
    }

    #[test]
    fn names_of_by_offset() {
        use Endpoint::{Earliest, First, FromEnd, Last, Latest, Number};
        let n = |offset| Some(Number(number(offset)));
        let table = [
            ("0", ByOffset::Record(Offset::ZERO, Face::Value)),
            ("12350", ByOffset::Record(number(12350), Face::Value)),
            ("9223372036854775807", ByOffset::Record(Offset::MAX, Face::Value)),
            ("5.key", ByOffset::Record(number(5), Face::Key)),
            ("5.json", ByOffset::Record(number(5), Face::Json)),
            ("5.batch", ByOffset::Record(number(5), Face::Batch)),
            ("first", ByOffset::Link(First, Face::Value)),
            ("last.json", ByOffset::Link(Last, Face::Json)),
            ("-1", ByOffset::Link(FromEnd(1), Face::Value)),
            ("-9223372036854775807.key", ByOffset::Link(FromEnd(i64::MAX.unsigned_abs()), Face::Key)),
            ("5..9", range(n(5), n(9), false, Lines::Values)),
            ("5..", range(n(5), None, false, Lines::Values)),
            ("..9", range(None, n(9), false, Lines::Values)),
            ("5..=9", range(n(5), n(9), true, Lines::Values)),
            ("..=9", range(None, n(9), true, Lines::Values)),
            ("9..5", range(n(9), n(5), false, Lines::Values)),
            ("-10..", range(Some(FromEnd(10)), None, false, Lines::Values)),
            ("first..-2", range(Some(First), Some(FromEnd(2)), false, Lines::Values)),
            ("earliest..latest", range(Some(Earliest), Some(Latest), false, Lines::Values)),
            ("5..9.jsonl", range(n(5), n(9), false, Lines::Json)),
            ("..=last.jsonl", range(None, Some(Last), true, Lines::Json)),
            ("-10..latest.jsonl", range(Some(FromEnd(10)), Some(Latest), false, Lines::Json)),
            ("-10...jsonl", range(Some(FromEnd(10)), None, false, Lines::Json)),
        ];
        for (text, name) in table {
            assert_eq!(ByOffset::parse(text.as_bytes()), Ok(name.clone()), "{text}");
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn other_spellings_print_the_canonical_one() {
        let table = [
            ("-10..jsonl", "-10...jsonl"),
            ("start..end", "earliest..latest"),
            ("beginning..newest", "earliest..latest"),
            ("oldest..=-1.jsonl", "earliest..=-1.jsonl"),
        ];
        for (text, canonical) in table {
            assert_eq!(ByOffset::parse(text.as_bytes()).unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn no_names_of_by_offset() {
        let numbers = [
            "+5",
            "005",
            "00",
            "-0",
            "-",
            "--1",
            "-01",
            "9223372036854775808",
            "18446744073709551616",
            "-9223372036854775808",
            "1_0",
            "0x5",
        ];
        let records = [
            "",
            " 5",
            "5 ",
            "5\n",
            "5\0",
            "٣",
            "５",
            "5.",
            "5.value",
            "5.JSON",
            "5.key.json",
            "5.jsonl",
            ".key",
            "latest",
            "earliest.json",
            "FIRST",
        ];
        let ranges = [
            ".",
            "..",
            "...",
            "....",
            "..=",
            "5..=",
            "..jsonl",
            "...jsonl",
            "..=.jsonl",
            "5..=.jsonl",
            "5..=jsonl",
            "5..9.json",
            "5..9..",
            "5..==9",
        ];
        let more = ["5...9", "+1..2", "1..02", "a..b", "1..2.jsonl.jsonl", "1 ..2", "5..6..7", "1..2.key"];
        for name in numbers.iter().chain(&records).chain(&ranges).chain(&more) {
            assert!(matches!(ByOffset::parse(name.as_bytes()), Err(Refusal::NotFound(_))), "{name:?}");
        }
        assert!(matches!(ByOffset::parse(b"5\xff"), Err(Refusal::NotFound(_))));
    }

    #[test]
    fn names_of_by_time() {
        let time = |text: &str| TimeText::parse(text.as_bytes()).unwrap();
        let table = [
            ("2h-ago", ByTime::Point(time("2h-ago"))),
            ("2h-ago..", ByTime::Range { from: Some(time("2h-ago")), to: None, lines: Lines::Values }),
            ("..today", ByTime::Range { from: None, to: Some(time("today")), lines: Lines::Values }),
            ("2h-ago...jsonl", ByTime::Range { from: Some(time("2h-ago")), to: None, lines: Lines::Json }),
            (
                "2026-11-29T10:15:30.123..2026-11-29T10:15:30.5Z.jsonl",
                ByTime::Range { from: Some(time("2026-11-29T10:15:30.123")), to: Some(time("2026-11-29T10:15:30.5Z")), lines: Lines::Json },
            ),
        ];
        for (text, name) in table {
            assert_eq!(ByTime::parse(text.as_bytes()), Ok(name.clone()), "{text}");
            assert_eq!(name.to_string(), text);
        }
        assert_eq!(ByTime::parse(b"1h-ago..jsonl"), ByTime::parse(b"1h-ago...jsonl"));
        for name in ["...jsonl", "..jsonl", "....", "now.json", "now.jsonl", "now..=now", "now..now..now", "now..x", "x..now", "", "5"] {
            assert!(matches!(ByTime::parse(name.as_bytes()), Err(Refusal::Invalid(_))), "{name:?}");
        }
        for name in [".", ".."] {
            assert!(matches!(ByTime::parse(name.as_bytes()), Err(Refusal::NotFound(_))), "{name:?}");
        }
    }

    fn endpoint() -> impl Strategy<Value = Endpoint> {
        prop_oneof![
            (0..=i64::MAX).prop_map(|offset| Endpoint::Number(number(offset))),
            (1..=i64::MAX.unsigned_abs()).prop_map(Endpoint::FromEnd),
            proptest::sample::select(vec![Endpoint::Earliest, Endpoint::Latest, Endpoint::First, Endpoint::Last]),
        ]
    }

    fn by_offset() -> impl Strategy<Value = ByOffset> {
        let face = proptest::sample::select(vec![Face::Value, Face::Key, Face::Json, Face::Batch]);
        let lines = proptest::sample::select(vec![Lines::Values, Lines::Json]);
        prop_oneof![
            (endpoint(), face).prop_filter_map("names no record", |(endpoint, face)| match endpoint {
                Endpoint::Number(offset) => Some(ByOffset::Record(offset, face)),
                Endpoint::Earliest | Endpoint::Latest => None,
                link => Some(ByOffset::Link(link, face)),
            }),
            (proptest::option::of(endpoint()), proptest::option::of(endpoint()), any::<bool>(), lines).prop_filter_map(
                "needs an end",
                |(from, to, inclusive, lines)| {
                    (from.is_some() || to.is_some()).then(|| range(from, to.clone(), inclusive && to.is_some(), lines))
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn parsing_undoes_printing(name in by_offset()) {
            prop_assert_eq!(ByOffset::parse(name.to_string().as_bytes()), Ok(name));
        }

        #[test]
        fn what_is_accepted_prints_a_canonical_name(text in "[-0-9]{0,3}(\\.\\.|\\.\\.=)?(first|end|[-0-9]{0,3})(\\.jsonl|jsonl|\\.json|\\.key)?") {
            if let Ok(name) = ByOffset::parse(text.as_bytes()) {
                let canonical = name.to_string();
                prop_assert_eq!(ByOffset::parse(canonical.as_bytes()), Ok(name));
                let synonyms = text.replace("end", "latest").replace("..jsonl", "...jsonl").replace("....", "...");
                prop_assert_eq!(canonical, synonyms);
            }
        }

        #[test]
        fn any_bytes_give_an_answer(name in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(parsed) = ByOffset::parse(&name) {
                prop_assert_eq!(ByOffset::parse(parsed.to_string().as_bytes()), Ok(parsed));
            }
            if let Ok(parsed) = ByTime::parse(&name) {
                prop_assert_eq!(parsed.to_string().into_bytes(), name);
            }
        }
    }
}
