//! The files `overview.svg` and `overview.html`: a picture of a partition, drawn from the shape of its log.
//!
//! `draw` makes the picture, `axis` its scales, `page` the page around it. What is drawn is kept for a moment, so that the size that `stat`
//! tells is that of the bytes that are read next: browsers believe it.

mod axis;
mod draw;
mod page;

use crate::source::{Outline, Report, Source};
use crate::types::{Patience, TimestampMs};
use crate::view::error::{Error, ErrorKind};
use crate::view::time::Zone;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The picture shows the segments in at most so many pieces.
const PIECES_MOST: usize = 240;
/// How long a picture is kept.
const KEPT: Duration = Duration::from_secs(1);
/// Of how many partitions pictures are kept at once.
const KEPT_MOST: NonZeroUsize = NonZeroUsize::new(8).unwrap();
/// A name in the picture has at most so many characters.
const NAME_MOST: usize = 80;

/// In which form a picture is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Svg,
    Html,
}

/// A picture in both forms.
#[derive(Clone, Debug)]
struct Picture {
    drawn: Instant,
    svg: Arc<str>,
    html: Arc<str>,
}

/// Pictures that were drawn a moment ago, of one partition or of many.
#[derive(Debug)]
pub(crate) struct Pictures {
    kept: Mutex<LruCache<String, Picture>>,
}

impl Default for Pictures {
    fn default() -> Pictures {
        Pictures { kept: Mutex::new(LruCache::new(KEPT_MOST)) }
    }
}

impl Pictures {
    /// The picture of a partition. `report` is what the last check has found.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`]; [`ErrorKind::NotFound`] for a source that has no segments; what the source says.
    pub(crate) fn get(
        &self,
        source: &dyn Source,
        report: Option<&Report>,
        zone: &Zone,
        form: Form,
        patience: Patience,
    ) -> Result<Arc<str>, Error> {
        let of = |picture: &Picture| if form == Form::Svg { picture.svg.clone() } else { picture.html.clone() };
        let name = source.name().to_string();
        if let Some(picture) = self.kept.lock().get(&name).filter(|p| p.drawn.elapsed() < KEPT) {
            return Ok(of(picture));
        }
        if patience == Patience::AtOnce {
            return Err(Error::new(ErrorKind::WouldBlock, "not drawn yet"));
        }
        let maintenance = source.maintenance().ok_or_else(|| Error::not_found("this source has no segments"))?;
        let outline = maintenance.outline(PIECES_MOST)?;
        let scene = Scene { title: shown(&name), outline, report, zone, now: source.now(), mode: mode(source) };
        let svg: Arc<str> = draw::svg(&scene).map_err(|words| Error::new(ErrorKind::Damaged, format!("drawing failed: {words}")))?.into();
        let html = page::html(&scene, &svg).into();
        let picture = Picture { drawn: Instant::now(), svg, html };
        let answer = of(&picture);
        self.kept.lock().put(name, picture);
        Ok(answer)
    }
}

fn mode(source: &dyn Source) -> String {
    source.read_only().map_or("read-write".to_owned(), |reason| format!("read-only: {}", shown(reason)))
}

/// All that a picture shows.
#[derive(Debug)]
struct Scene<'a> {
    title: String,
    outline: Outline,
    report: Option<&'a Report>,
    zone: &'a Zone,
    now: TimestampMs,
    mode: String,
}

impl Scene<'_> {
    /// The first and the last time of all pieces; `None` where no record has one.
    fn times(&self) -> Option<(TimestampMs, TimestampMs)> {
        let pieces = || self.outline.pieces.iter();
        let all = || pieces().flat_map(|p| [p.first_time, p.last_time]).flatten().chain(self.outline.points.iter().map(|(_, t)| *t));
        Some((all().min()?, all().max()?))
    }

    /// Stretches of offsets that are known to be damaged: by look-ups, by headers that could not be, by the last check.
    fn damage(&self) -> Vec<(i64, i64)> {
        let pieces = &self.outline.pieces;
        let known = pieces.iter().flat_map(|p| &p.damage).map(|(a, b)| (a.get(), b.get()));
        let stopped = pieces.iter().filter(|p| p.damage.is_empty()).filter_map(|p| p.stopped_at).map(|o| (o.get(), o.get()));
        let findings = self.report.into_iter().flat_map(|r| &r.findings).filter(|f| f.severity > crate::source::Severity::Note);
        let found = findings.filter_map(|f| f.offsets).map(|(a, b)| (a.get(), b.get()));
        let mut all: Vec<_> = known.chain(stopped).chain(found).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A text that a name gave, as it can stand in a picture: control characters and what XML does not know are escaped, and it is not too long.
fn shown(text: &str) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == NAME_MOST {
            out.push('…');
            break;
        }
        match c {
            c if c.is_control()
                || matches!(c, '\u{fffe}' | '\u{ffff}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                out.extend(c.escape_unicode());
            }
            c => out.push(c),
        }
    }
    out
}

/// A number of bytes in a unit that leaves few digits.
fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).clamp(1, 6);
    let number = bytes as f64 / 1024f64.powi(power as i32);
    let unit = UNITS[power as usize - 1];
    if number >= 100.0 || number.fract() == 0.0 { format!("{number:.0} {unit}") } else { format!("{number:.1} {unit}") }
}

/// A number with a comma before each three digits.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = if number < 0 { "-".to_owned() } else { String::new() };
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let table = [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (u64::MAX, "16 EiB")];
        for (bytes, text) in table {
            assert_eq!(bytes_text(bytes), text);
        }
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (i64::MAX, "9,223,372,036,854,775,807"), (-1234, "-1,234")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(shown("a\u{1}\n\u{ffff}\u{202e}b"), "a\\u{1}\\u{a}\\u{ffff}\\u{202e}b");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), NAME_MOST + 1);
    }
}
