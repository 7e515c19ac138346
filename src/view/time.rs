//! Times as people write them in paths, and as the tree prints them.
//!
//! A [`TimeText`] is the checked text of a time; [`TimeText::resolve`] makes milliseconds of it, given the mount's zone and the present time.
//! Nothing here reads the clock. Which record a time leads to is not decided here.
//!
//! - `2h-ago`, `1d12h-ago`, `PT2H-ago`, `P1DT12H-ago`: so long before now. A day is 24 hours and a week seven days, whatever the calendar does.
//! - `now`; `today` and `yesterday`: the first moment of that calendar day in the zone.
//! - `2026-11-29`, `2026-11-29T10:15:30.123`, with `Z` or an offset, else in the zone. `_` may stand for `T`, and `-` for both `:`. Fractions
//!   have one to nine digits and are cut to milliseconds.
//! - `@1700000000`, ten bare digits: seconds since 1970. Thirteen bare digits: milliseconds.
//!
//! A local time that the zone skips (the gap of a change to summer time) is read with the offset before the change, so it lies as far behind
//! the gap's start as the text says; one that occurs twice is the first of the two.

mod refusal;
mod zone;

pub use refusal::Refusal;
pub(crate) use zone::year_start;
pub use zone::{Zone, day_of, days_between, rfc3339};

use crate::types::TimestampMs;
use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Timestamp};
use std::fmt;
use zone::{moment, zone_offset_s};

/// The name of a unit of length, and its milliseconds.
type Unit = (&'static [u8], i64);

const WEEK_MS: i64 = 604_800_000;
const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;

/// The units of `-ago` in falling order.
const UNITS: [Unit; 6] = [(b"w", WEEK_MS), (b"d", DAY_MS), (b"h", HOUR_MS), (b"m", MINUTE_MS), (b"s", 1_000), (b"ms", 1)];
/// The unit of an ISO 8601 duration in weeks, which has no other part.
const ISO_WEEKS: [Unit; 1] = [(b"W", WEEK_MS)];
/// The units before the `T` of an ISO 8601 duration.
const ISO_DAYS: [Unit; 1] = [(b"D", DAY_MS)];
/// The units behind the `T` of an ISO 8601 duration.
const ISO_HOURS: [Unit; 3] = [(b"H", HOUR_MS), (b"M", MINUTE_MS), (b"S", 1_000)];

/// The text of a time, checked. Two texts of one moment are two values: the text is what a link was asked by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimeText {
    text: String,
    form: Form,
}

/// What the text says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Now,
    /// The first moment of the calendar day so many days before today.
    DayBefore(i64),
    /// So many milliseconds before now.
    Ago(i64),
    /// A date and time of the mount's zone.
    Local(DateTime),
    /// Milliseconds since 1970.
    Instant(i64),
}

impl TimeText {
    /// Reads a time expression.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] where the text is none, or names a day, time or length that does not exist or does not fit.
    pub fn parse(text: &[u8]) -> Result<TimeText, Refusal> {
        let form = match text {
            b"now" => Form::Now,
            b"today" => Form::DayBefore(0),
            b"yesterday" => Form::DayBefore(1),
            [b'@', seconds @ ..] => decimal(seconds).and_then(|s| s.checked_mul(1_000)).map(Form::Instant).ok_or_else(unreadable)?,
            _ if text.iter().all(u8::is_ascii_digit) => bare_digits(text)?,
            _ => match text.strip_suffix(b"-ago") {
                Some([b'P', length @ ..]) => Form::Ago(iso_length(length).ok_or_else(unreadable)?),
                Some(length) => Form::Ago(length_of(length, &UNITS).ok_or_else(unreadable)?),
                None => calendar(text).ok_or_else(unreadable)?,
            },
        };
        // Every accepted byte is ASCII, so the text is UTF-8.
        let text = String::from_utf8(text.to_vec()).map_err(|_| unreadable())?;
        Ok(TimeText { text, form })
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the same text means another moment later: all forms that count from now.
    pub fn is_relative(&self) -> bool {
        matches!(self.form, Form::Now | Form::DayBefore(_) | Form::Ago(_))
    }

    /// The moment that the text means.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] where it lies before the year -9999, or `now` lies outside the calendar.
    pub fn resolve(&self, zone: &Zone, now: TimestampMs) -> Result<TimestampMs, Refusal> {
        let outside = || Refusal::invalid("the time lies outside the years that can be counted");
        let ms = match self.form {
            Form::Now => Some(now.get()),
            Form::Instant(ms) => Some(ms),
            Form::Ago(length) => now.get().checked_sub(length).filter(|&ms| ms >= Timestamp::MIN.as_millisecond()),
            Form::Local(local) => zone.moment_of(local),
            Form::DayBefore(days) => zone.local_time(now).and_then(|(local, _)| {
                let length = SignedDuration::from_hours(24_i64.checked_mul(days)?);
                zone.moment_of(local.date().checked_sub(length).ok()?.to_datetime(Time::midnight()))
            }),
        };
        ms.map(TimestampMs::new).ok_or_else(outside)
    }
}

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unreadable() -> Refusal {
    Refusal::invalid(
        "no time; write 2h-ago, 1d12h-ago, PT2H-ago, now, today, yesterday, 2026-11-29, 2026-11-29T10:15:30Z, @seconds, or 10 or 13 digits",
    )
}

fn bare_digits(text: &[u8]) -> Result<Form, Refusal> {
    let ms_each = match text.len() {
        10 => 1_000,
        13 => 1,
        _ => {
            return Err(Refusal::invalid(
                "bare digits are a time only with 10 (seconds) or 13 (milliseconds) of them; write @ before other seconds",
            ));
        }
    };
    let number = text.iter().fold(0_i64, |number, &digit| number * 10 + i64::from(digit - b'0'));
    Ok(Form::Instant(number * ms_each))
}

/// `1d12h`: at least one number with its unit, each of these units at most once, in their order.
fn length_of(text: &[u8], mut units: &[Unit]) -> Option<i64> {
    let (mut scan, mut total_ms) = (Scan(text), 0_i64);
    loop {
        let number = scan.number()?;
        let word = scan.word(u8::is_ascii_alphabetic);
        let at = units.iter().position(|(unit, _)| *unit == word)?;
        let ((_, ms_each), smaller) = units.get(at..)?.split_first()?;
        units = smaller;
        total_ms = total_ms.checked_add(number.checked_mul(*ms_each)?)?;
        if scan.0.is_empty() {
            return Some(total_ms);
        }
    }
}

/// What stands behind the `P` of an ISO 8601 duration: `2W`, or `1DT2H3M4S` with any part left out. Years and months have no fixed length.
fn iso_length(text: &[u8]) -> Option<i64> {
    let Some(at) = text.iter().position(|&byte| byte == b'T') else {
        return length_of(text, &ISO_WEEKS).or_else(|| length_of(text, &ISO_DAYS));
    };
    let (days, hours) = (text.get(..at)?, text.get(at.checked_add(1)?..)?);
    let days_ms = if days.is_empty() { 0 } else { length_of(days, &ISO_DAYS)? };
    days_ms.checked_add(length_of(hours, &ISO_HOURS)?)
}

/// A date, or a date with a time, with or without a zone.
fn calendar(text: &[u8]) -> Option<Form> {
    let mut scan = Scan(text);
    let year = scan.digits(4)?;
    let month = scan.after(b'-')?.digits(2)?;
    let day = scan.after(b'-')?.digits(2)?;
    let day = Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let time = match scan.0 {
        [b'T' | b'_', rest @ ..] => {
            scan.0 = rest;
            time_of_day(&mut scan)?
        }
        _ => Time::midnight(),
    };
    let local = day.to_datetime(time);
    match scan.0 {
        b"" => Some(Form::Local(local)),
        b"Z" => moment(local, 0).map(Form::Instant),
        offset => moment(local, zone_offset_s(offset)?).map(Form::Instant),
    }
}

/// `HH:MM[:SS[.fraction]]`, or the same with `-` for `:`. What stands behind it stays in the scan.
fn time_of_day(scan: &mut Scan<'_>) -> Option<Time> {
    let hour = scan.digits(2)?;
    let separator = *scan.0.first().filter(|byte| matches!(byte, b':' | b'-'))?;
    let minute = scan.after(separator)?.digits(2)?;
    let (mut second, mut ns) = (0, 0);
    // In 10-15-30 the last part is the seconds; in 10-15-0530 and 10-15-05:30 it is an offset from UTC.
    let seconds_follow = match scan.0 {
        [sign, a, b, rest @ ..] if *sign == separator && a.is_ascii_digit() && b.is_ascii_digit() => {
            !matches!(rest.first(), Some(b':' | b'0'..=b'9'))
        }
        _ => false,
    };
    if seconds_follow {
        second = scan.after(separator)?.digits(2)?;
        if scan.0.starts_with(b".") {
            let fraction = scan.after(b'.')?.word(u8::is_ascii_digit);
            if !(1..=9).contains(&fraction.len()) {
                return None;
            }
            let ms = fraction.iter().chain(b"00").take(3).fold(0, |ms, &digit| ms * 10 + i32::from(digit - b'0'));
            ns = ms * 1_000_000;
        }
    }
    // Time::new accepts no 60th second.
    Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, i8::try_from(second).ok()?, ns).ok()
}

/// A decimal number in its only spelling, `0..=i64::MAX`.
pub(super) fn decimal(text: &[u8]) -> Option<i64> {
    if text.is_empty() || (text.len() > 1 && text.starts_with(b"0")) {
        return None;
    }
    text.iter().try_fold(0_i64, |number, &byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(i64::from(byte - b'0')),
        _ => None,
    })
}

/// The rest of a text that is read from the left.
struct Scan<'a>(&'a [u8]);

impl<'a> Scan<'a> {
    /// Takes the longest run of such bytes, perhaps none.
    fn word(&mut self, is: impl Fn(&u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|byte| !is(byte)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    /// Takes a number in its only spelling.
    fn number(&mut self) -> Option<i64> {
        decimal(self.word(u8::is_ascii_digit))
    }

    /// Takes exactly `count` digits, at most four; a further digit may follow.
    fn digits(&mut self, count: usize) -> Option<i32> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i32::from(digit - b'0')))
    }

    /// Takes this byte.
    fn after(&mut self, byte: u8) -> Option<&mut Self> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2023-11-14T22:13:20Z.
    const NOW: TimestampMs = TimestampMs::new(1_700_000_000_000);

    fn resolve(text: &str, zone: &Zone) -> Result<i64, Refusal> {
        TimeText::parse(text.as_bytes())?.resolve(zone, NOW).map(TimestampMs::get)
    }

    #[test]
    fn lengths_before_now() {
        let table = [
            ("now", 0),
            ("0s-ago", 0),
            ("0w0d-ago", 0),
            ("2h-ago", 7_200_000),
            ("90s-ago", 90_000),
            ("90000ms-ago", 90_000),
            ("1d12h-ago", 129_600_000),
            ("2h30m-ago", 9_000_000),
            ("1m1ms-ago", 60_001),
            ("1w2d3h4m5s6ms-ago", 788_645_006),
            ("PT2H-ago", 7_200_000),
            ("P1DT12H-ago", 129_600_000),
            ("P1D-ago", 86_400_000),
            ("P2W-ago", 1_209_600_000),
            ("PT1H2M3S-ago", 3_723_000),
            ("PT0S-ago", 0),
        ];
        for (text, before_ms) in table {
            assert_eq!(resolve(text, &Zone::utc()), Ok(NOW.get() - before_ms), "{text}");
            assert!(TimeText::parse(text.as_bytes()).unwrap().is_relative());
        }
    }

    #[test]
    fn moments() {
        let ist = Zone::parse("+05:30").unwrap();
        let table = [
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14T22:13Z", 1_699_999_980_000),
            ("2023-11-14_22-13-20Z", 1_700_000_000_000),
            ("2023-11-14T22-13-20.5Z", 1_700_000_000_500),
            ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123),
            ("2023-11-14T22:13:20.9999Z", 1_700_000_000_999),
            ("2023-11-15T03:43:20+05:30", 1_700_000_000_000),
            ("2023-11-15T03:43:20+0530", 1_700_000_000_000),
            ("2023-11-14T14:13:20-08", 1_700_000_000_000),
            ("2023-11-14T14:13-08:00", 1_699_999_980_000),
            ("2023-11-14T14-13-0800", 1_699_999_980_000),
            ("2023-11-14T14-13-08:00", 1_699_999_980_000),
            ("2023-11-14T14-13-20-0800", 1_700_000_000_000),
            ("2023-11-15T03:43:20", 1_700_000_000_000),
            ("2023-11-15", 1_699_986_600_000),
            ("2023-11-15Z", 1_700_006_400_000),
            ("today", 1_699_986_600_000),
            ("yesterday", 1_699_900_200_000),
            ("@1700000000", 1_700_000_000_000),
            ("@0", 0),
            ("@9223372036854775", 9_223_372_036_854_775_000),
            ("1700000000", 1_700_000_000_000),
            ("1700000000123", 1_700_000_000_123),
            ("0000000000", 0),
            ("1969-12-31T23:59:59.999Z", -1),
            ("0000-01-01T00:00Z", -62_167_219_200_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
            ("9999-12-31T23:59:59.999-23:59", 253_402_387_139_999),
            ("2024-02-29Z", 1_709_164_800_000),
        ];
        for (text, ms) in table {
            assert_eq!(resolve(text, &ist), Ok(ms), "{text}");
            assert_eq!(TimeText::parse(text.as_bytes()).unwrap().to_string(), text);
        }
    }

    #[test]
    fn no_times() {
        let lengths = [
            "-ago",
            "2-ago",
            "h-ago",
            "2h",
            "2H-ago",
            "2h-Ago",
            "02h-ago",
            "+2h-ago",
            "-2h-ago",
            "1h1d-ago",
            "1h2h-ago",
            "1ms1s-ago",
            "1.5h-ago",
        ];
        let large = [
            "99999999999999999999d-ago",
            "9223372036854775807w-ago",
            "99999999999d-ago",
            "P9223372036854775807D-ago",
            "@9223372036854775807",
        ];
        let iso = [
            "P-ago",
            "PT-ago",
            "P1DT-ago",
            "P1H-ago",
            "PT1D-ago",
            "PT1S1M-ago",
            "P1Y-ago",
            "P1M-ago",
            "P1WT1H-ago",
            "P1W1D-ago",
            "PT1.5H-ago",
            "PT2H",
            "PT5MS-ago",
            "pt2h-ago",
        ];
        let digits =
            ["", "1", "170000000", "17000000000", "170000000012", "17000000001234", "٣٣٣٣٣", "@", "@-1", "@+1", "@01", "@1.5", "@ 1"];
        let dates = [
            "2026",
            "2026-11",
            "2026-1-29",
            "2026-13-01",
            "2026-00-01",
            "2026-02-29",
            "2026-11-31",
            "26-11-29",
            "+2026-11-29",
            "-2026-11-29",
            "12026-11-29",
            "2026/11/29",
            "2026-11-29 ",
            "2026-11-29T",
        ];
        let times = [
            "2026-11-29T10",
            "2026-11-29T1:15",
            "2026-11-29T24:00",
            "2026-11-29T10:60",
            "2026-11-29T10:15:60Z",
            "2026-12-31T23:59:60Z",
            "2026-11-29t10:15",
            "2026-11-29 10:15",
            "2026-11-29T10:15:30.",
            "2026-11-29T10:15:30,5",
            "2026-11-29T10:15:30.1234567890",
            "2026-11-29T10:15.5",
            "2026-11-29T10:15-30-30",
            "2026-11-29T10-15:30",
            "2026-11-29T1015",
            "2026-11-29T10:15z",
            "2026-11-29T10:15+24:00",
            "2026-11-29T10:15+05:60",
            "2026-11-29T10:15+5",
            "2026-11-29T10:15+053",
            "2026-11-29T10:15ZZ",
            "2026-11-29T10:15[Europe/Berlin]",
            "2026-11-29T10:15+05-30",
        ];
        let words = ["Now", "tomorrow", "now ", " now", "today-ago", "teatime", "latest", "now\0", "now\n", "nоw"];
        for text in lengths.iter().chain(&large).chain(&iso).chain(&digits).chain(&dates).chain(&times).chain(&words) {
            assert!(matches!(resolve(text, &Zone::utc()), Err(Refusal::Invalid(_))), "{text:?}");
        }
        assert!(matches!(TimeText::parse(b"now\xff"), Err(Refusal::Invalid(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(text in proptest::collection::vec(any::<u8>(), 0..300), now: i64) {
            if let Ok(time) = TimeText::parse(&text) {
                prop_assert_eq!(time.as_str().as_bytes(), text.as_slice());
                let _ = time.resolve(&Zone::utc(), TimestampMs::new(now));
            }
        }

        #[test]
        fn any_likely_text_gives_an_answer(
            text in "(@?[0-9]{1,20}|P?T?([0-9]{1,20}[wdhmsDHMS]{1,2}){1,3}-ago|[0-9]{4}-[0-9]{2}-[0-9]{2}([T_][0-9]{2}[-:][0-9]{2}([-:][0-9]{2})?(\\.[0-9]{1,10})?)?(Z|[-+][0-9]{2}:?[0-9]{2})?|today|yesterday)",
            now: i64,
            zone in proptest::sample::select(vec!["UTC", "+23:59", "-2359"]),
        ) {
            if let Ok(time) = TimeText::parse(text.as_bytes()) {
                let _ = time.resolve(&Zone::parse(zone).unwrap(), TimestampMs::new(now));
            }
        }
    }
}
