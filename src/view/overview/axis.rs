//! The scales of the picture: whole numbers over a range, with ticks where a person would put them.

use super::{bytes_text, grouped};
use crate::types::TimestampMs;
use crate::view::time::{Zone, rfc3339, year_start};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// The distances between ticks of time, in milliseconds. Above them years come.
const TIME_STEPS: [i64; 28] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    30 * DAY,
    90 * DAY,
];
const YEAR: i64 = 365 * DAY;

/// A scale.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    from: i64,
    to: i64,
    ticks: Vec<(i64, String)>,
}

/// The smallest of 1, 2, 5, 10, 20, ... that cuts a span into at most `most` parts.
fn decimal_step(span: i128, most: i128) -> i128 {
    let mut unit = 1;
    loop {
        for step in [unit, 2 * unit, 5 * unit] {
            if span / step < most {
                return step;
            }
        }
        unit *= 10;
    }
}

/// The multiples of a step within a range, counted from `zero`.
fn multiples(from: i64, to: i64, zero: i64, step: i128) -> impl Iterator<Item = i64> {
    let (from, zero) = (i128::from(from), i128::from(zero));
    let first = zero + (from - zero).div_euclid(step) * step;
    let first = if first < from { first + step } else { first };
    (0..).map_while(move |i| i64::try_from(first + i * step).ok().filter(|t| *t <= to))
}

impl Axis {
    fn new(from: i64, to: i64, ticks: Vec<(i64, String)>) -> Axis {
        Axis { from, to, ticks }
    }

    fn span(from: i64, to: i64) -> i128 {
        (i128::from(to) - i128::from(from)).max(1)
    }

    /// Offsets from `from` to `to`, with at most `most` ticks.
    pub(super) fn offsets(from: i64, to: i64, most: usize) -> Axis {
        let to = to.max(from.saturating_add(1));
        let step = decimal_step(Axis::span(from, to), most as i128);
        Axis::new(from, to, multiples(from, to, 0, step).map(|t| (t, grouped(t))).collect())
    }

    /// Bytes from 0 to `to`, with ticks at powers of two.
    pub(super) fn bytes(to: u64, most: usize) -> Axis {
        let to = i64::try_from(to).unwrap_or(i64::MAX).max(1);
        let mut step = 1i128;
        while i128::from(to) / step >= most as i128 {
            step *= 2;
        }
        Axis::new(0, to, multiples(0, to, 0, step).map(|t| (t, bytes_text(t.unsigned_abs()))).collect())
    }

    /// Hundredths from none to all.
    pub(super) fn percent() -> Axis {
        Axis::new(0, 100, [0, 25, 50, 75, 100].map(|t| (t, format!("{t} %"))).into())
    }

    /// Thousandths of something from 0 to `to`, labelled as whole and broken numbers.
    pub(super) fn thousandths(to: i64, most: usize) -> Axis {
        let to = to.max(1);
        let step = decimal_step(Axis::span(0, to), most as i128);
        let label = |t: i64| match t % 1000 {
            0 => grouped(t / 1000),
            rest => format!("{}.{}", grouped(t / 1000), format!("{rest:03}").trim_end_matches('0')),
        };
        Axis::new(0, to, multiples(0, to, 0, step).map(|t| (t, label(t))).collect())
    }

    /// Times from `from` to `to`, in milliseconds, with ticks at round times of a zone.
    pub(super) fn times(from: i64, to: i64, zone: &Zone, most: usize) -> Axis {
        let to = to.max(from.saturating_add(1));
        let span = Axis::span(from, to);
        let fits = |step: &i128| span / *step < most as i128;
        let Some(step) = TIME_STEPS.into_iter().map(i128::from).find(fits) else { return Axis::years(from, to, zone, most) };
        // Round where the clock of the zone is round at the start of the range.
        let zero = -zone.offset_ms(TimestampMs::new(from));
        let label = |t: i64| {
            let text = rfc3339(TimestampMs::new(t), zone);
            let part = match step {
                s if s >= i128::from(DAY) => text.get(..10),
                s if s >= i128::from(MINUTE) => text.get(5..16),
                s if s >= i128::from(SECOND) => text.get(11..19),
                _ => text.get(11..23),
            };
            part.unwrap_or(&text).replace('T', " ")
        };
        Axis::new(from, to, multiples(from, to, zero, step).map(|t| (t, label(t))).collect())
    }

    /// Ticks where years begin.
    fn years(from: i64, to: i64, zone: &Zone, most: usize) -> Axis {
        let step = decimal_step(Axis::span(from, to) / i128::from(YEAR) + 1, most as i128) as usize;
        let begin = |year: &i16| year_start(*year, zone).map(|t| (t, format!("{year:04}")));
        let starts = (0..=9999).step_by(step).filter_map(|year| begin(&year));
        Axis::new(from, to, starts.filter(|(t, _)| (from..=to).contains(t)).collect())
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = i64;

    fn map(&self, value: &i64, (low, high): (i32, i32)) -> i32 {
        let part = i128::from((*value).clamp(self.from, self.to)) - i128::from(self.from);
        low + (part * i128::from(high - low) / Axis::span(self.from, self.to)) as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<i64> {
        // Every tick is a bold one; asked for those between them, there are none more.
        let _ = hint;
        self.ticks.iter().map(|(tick, _)| *tick).collect()
    }

    fn range(&self) -> Range<i64> {
        self.from..self.to
    }
}

impl ValueFormatter<i64> for Axis {
    fn format_ext(&self, value: &i64) -> String {
        self.ticks.iter().find(|(tick, _)| tick == value).map_or_else(String::new, |(_, label)| label.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(labels(&Axis::offsets(130, 1020, 5)), ["200", "400", "600", "800", "1,000"]);
        assert_eq!(labels(&Axis::offsets(7, 7, 5)), ["7", "8"]);
        assert_eq!(labels(&Axis::bytes(2100, 5)), ["0 B", "512 B", "1 KiB", "1.5 KiB", "2 KiB"]);
        assert_eq!(labels(&Axis::thousandths(2400, 5)), ["0", "0.5", "1", "1.5", "2"]);
        let day = 1_700_000_000_000;
        assert_eq!(
            labels(&Axis::times(day, day + 4 * HOUR, &Zone::utc(), 6)),
            ["11-14 23:00", "11-15 00:00", "11-15 01:00", "11-15 02:00"]
        );
        assert_eq!(labels(&Axis::times(0, day, &Zone::utc(), 6)), ["1970", "1980", "1990", "2000", "2010", "2020"]);
        let india = Zone::parse("+05:30").expect("an offset");
        assert_eq!(labels(&Axis::times(day, day + 3 * DAY, &india, 4)), ["2023-11-16", "2023-11-17", "2023-11-18"]);
    }

    #[test]
    fn any_range_has_a_scale() {
        for (from, to) in [(0, 0), (0, i64::MAX), (i64::MAX, i64::MAX), (i64::MAX - 1, i64::MAX), (0, 1)] {
            for axis in [Axis::offsets(from, to, 6), Axis::times(from, to, &Zone::utc(), 6), Axis::bytes(to.unsigned_abs(), 6)] {
                assert!(axis.ticks.len() <= 7, "{axis:?}");
                for value in [i64::MIN, 0, from, to, i64::MAX] {
                    assert!((10..=900).contains(&axis.map(&value, (10, 900))), "{value} on {axis:?}");
                }
            }
        }
    }
}
