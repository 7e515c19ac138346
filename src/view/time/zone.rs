//! Time zones, and times as they are printed.

use crate::types::TimestampMs;
use jiff::civil::{Date, DateTime, Time, date};
use jiff::tz::{AmbiguousOffset, Offset as ZoneOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use std::borrow::Cow;

/// 1970-01-01T00:00:00, whatever the zone.
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// The time zone of a mount.
#[derive(Clone, Debug)]
pub struct Zone {
    zone: TimeZone,
    name: Cow<'static, str>,
}

impl Zone {
    /// UTC.
    pub fn utc() -> Zone {
        Zone { zone: TimeZone::UTC, name: Cow::Borrowed("UTC") }
    }

    /// The system's zone (`TZ`, else `/etc/localtime`); UTC where the system names none.
    pub fn system() -> Zone {
        match TimeZone::try_system() {
            Ok(zone) => match zone.iana_name() {
                Some(name) => Zone { name: Cow::Owned(name.to_owned()), zone },
                None => Zone { name: Cow::Borrowed("local"), zone },
            },
            Err(_) => Zone::utc(),
        }
    }

    /// A zone by its name in the IANA database (`Europe/Berlin`), `UTC`, or as a fixed offset (`+05:30`, `-0800`).
    ///
    /// # Errors
    /// One sentence where there is no such zone.
    pub fn parse(text: &str) -> Result<Zone, String> {
        if text == "UTC" || text == "Z" {
            return Ok(Zone::utc());
        }
        if text.starts_with(['+', '-']) {
            let seconds = zone_offset_s(text.as_bytes()).and_then(|seconds| ZoneOffset::from_seconds(seconds).ok());
            let offset = seconds.ok_or_else(|| format!("{text:?} is no offset from UTC; write it as +05:30"))?;
            return Ok(Zone { zone: TimeZone::fixed(offset), name: Cow::Owned(text.to_owned()) });
        }
        match TimeZone::get(text) {
            Ok(zone) => Ok(Zone { name: Cow::Owned(zone.iana_name().unwrap_or(text).to_owned()), zone }),
            Err(_) => Err(format!("there is no time zone {text:?}; write a name such as Europe/Berlin, UTC or an offset such as +05:30")),
        }
    }

    /// The zone's name: as in the IANA database, the offset as it was given, or `local` for a system zone without a name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The date and time that a clock in this zone shows at `ts`, with its offset from UTC in seconds; `None` outside the years -9999 to 9999.
    pub(super) fn local_time(&self, ts: TimestampMs) -> Option<(DateTime, i32)> {
        // The calendar reaches a day further than the library's moments; at its rim the offset is that of the last moment.
        let near = Timestamp::from_second(ts.get().div_euclid(1_000).clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second())).ok()?;
        let offset_s = self.zone.to_offset(near).seconds();
        let local_ms = ts.get().checked_add(i64::from(offset_s).checked_mul(1_000)?)?;
        Some((EPOCH.checked_add(SignedDuration::from_millis(local_ms)).ok()?, offset_s))
    }

    /// How far a clock in this zone is ahead of UTC at `ts`, in milliseconds.
    pub(crate) fn offset_ms(&self, ts: TimestampMs) -> i64 {
        self.local_time(ts).map_or(0, |(_, offset_s)| i64::from(offset_s) * 1000)
    }

    /// The milliseconds since 1970 at which a clock in this zone shows `local`; see [`super`] for times skipped or repeated.
    pub(super) fn moment_of(&self, local: DateTime) -> Option<i64> {
        let offset = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => before,
        };
        moment(local, offset.seconds())
    }
}

/// `ts` in RFC 3339 with milliseconds, in the zone; `@<ms>ms` where the year has no four digits. A historical offset with odd seconds, which
/// RFC 3339 cannot write, gives the time in UTC.
pub fn rfc3339(ts: TimestampMs, zone: &Zone) -> String {
    let whole_minutes = |(_, offset_s): &(DateTime, i32)| offset_s % 60 == 0;
    let local = zone.local_time(ts).filter(whole_minutes).or_else(|| Zone::utc().local_time(ts));
    let Some((local, offset_s)) = local.filter(|(local, _)| local.year() >= 0) else {
        return format!("@{ts}ms");
    };
    let (year, month, day) = (local.year(), local.month(), local.day());
    let (hour, minute, second, ms) = (local.hour(), local.minute(), local.second(), local.millisecond());
    let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}");
    match offset_s {
        0 => text + "Z",
        _ => {
            let (sign, minutes) = (if offset_s < 0 { '-' } else { '+' }, offset_s.unsigned_abs() / 60);
            format!("{text}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
        }
    }
}

/// The moment at which a year begins in a zone; `None` outside the years -9999 to 9999.
pub(crate) fn year_start(year: i16, zone: &Zone) -> Option<i64> {
    zone.moment_of(Date::new(year, 1, 1).ok()?.to_datetime(Time::midnight()))
}

/// The calendar day of `ts` in the zone, `YYYY-MM-DD`; `None` where its year has no four digits.
pub fn day_of(ts: TimestampMs, zone: &Zone) -> Option<String> {
    let (local, _) = zone.local_time(ts)?;
    day_name(local.date())
}

/// The calendar days from that of `first` to that of `last`, both included, newest first, at most `most` of them. Times outside the years 0000 to
/// 9999 count as the nearest day inside; an empty list where `last` lies before `first`.
pub fn days_between(first: TimestampMs, last: TimestampMs, zone: &Zone, most: usize) -> Vec<String> {
    let day = |ts: TimestampMs| match zone.local_time(ts) {
        Some((local, _)) => local.date().max(date(0, 1, 1)),
        None if ts.get() < 0 => date(0, 1, 1),
        None => date(9999, 12, 31),
    };
    if last < first {
        return Vec::new();
    }
    let (first, mut next) = (day(first), Some(day(last)));
    std::iter::from_fn(|| {
        let day = next.filter(|&day| day >= first)?;
        next = day.yesterday().ok();
        day_name(day)
    })
    .take(most)
    .collect()
}

fn day_name(day: Date) -> Option<String> {
    (day.year() >= 0).then(|| format!("{:04}-{:02}-{:02}", day.year(), day.month(), day.day()))
}

/// The milliseconds since 1970 of a local date and time at an offset.
pub(super) fn moment(local: DateTime, offset_s: i32) -> Option<i64> {
    let local_ms = i64::try_from(local.duration_since(EPOCH).as_millis()).ok()?;
    local_ms.checked_sub(i64::from(offset_s).checked_mul(1_000)?)
}

/// `+05:30`, `+0530` or `+05` in seconds.
pub(super) fn zone_offset_s(text: &[u8]) -> Option<i32> {
    let (sign, hour, minute) = match text {
        [sign @ (b'+' | b'-'), a, b] => (sign, [a, b], [&b'0', &b'0']),
        [sign @ (b'+' | b'-'), a, b, c, d] | [sign @ (b'+' | b'-'), a, b, b':', c, d] => (sign, [a, b], [c, d]),
        _ => return None,
    };
    let number = |[tens, ones]: [&u8; 2], most: i32| {
        let both = tens.is_ascii_digit() && ones.is_ascii_digit();
        both.then(|| i32::from(tens - b'0') * 10 + i32::from(ones - b'0')).filter(|&number| number <= most)
    };
    let seconds = number(hour, 23)? * 3_600 + number(minute, 59)? * 60;
    Some(if *sign == b'-' { -seconds } else { seconds })
}

#[cfg(test)]
mod tests {
    use super::super::TimeText;
    use super::*;
    use proptest::prelude::*;

    /// Central Europe as a rule, so that no test depends on the machine's database.
    fn berlin() -> Zone {
        Zone { zone: TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap(), name: Cow::Borrowed("CET") }
    }

    fn resolve(text: &str, zone: &Zone) -> i64 {
        TimeText::parse(text.as_bytes()).unwrap().resolve(zone, TimestampMs::new(0)).unwrap().get()
    }

    #[test]
    fn a_change_of_the_clock() {
        let table = [
            ("2026-03-29T01:59", "2026-03-29T01:59+01:00"),
            ("2026-03-29T02:30", "2026-03-29T03:30+02:00"),
            ("2026-03-29T03:00", "2026-03-29T03:00+02:00"),
            ("2026-10-25T02:30", "2026-10-25T02:30+02:00"),
            ("2026-10-25T03:00", "2026-10-25T03:00+01:00"),
        ];
        for (local, exact) in table {
            assert_eq!(resolve(local, &berlin()), resolve(exact, &berlin()), "{local}");
        }
    }

    #[test]
    fn days_of_23_and_25_hours() {
        let at = |text, now| TimeText::parse(text).unwrap().resolve(&berlin(), TimestampMs::new(now)).unwrap().get();
        for (noon, hours) in [("2026-03-29T12:00", 23), ("2026-10-25T12:00", 25)] {
            let noon = resolve(noon, &berlin());
            let next_noon = noon + 24 * 3_600_000;
            assert_eq!(at(b"today", next_noon) - at(b"yesterday", next_noon), hours * 3_600_000);
            assert_eq!(at(b"today", noon), at(b"yesterday", next_noon));
            assert_eq!(next_noon - at(b"1d-ago", next_noon), 24 * 3_600_000);
        }
    }

    #[test]
    fn printing() {
        let table = [
            (1_700_000_000_123, "+05:30", "2023-11-15T03:43:20.123+05:30"),
            (1_700_000_000_000, "UTC", "2023-11-14T22:13:20.000Z"),
            (1_700_000_000_000, "-0800", "2023-11-14T14:13:20.000-08:00"),
            (-1, "UTC", "1969-12-31T23:59:59.999Z"),
            (253_402_300_799_999, "UTC", "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "UTC", "@253402300800000ms"),
            (-62_167_219_200_000, "UTC", "0000-01-01T00:00:00.000Z"),
            (-62_167_219_200_001, "UTC", "@-62167219200001ms"),
            (i64::MAX, "+23:59", "@9223372036854775807ms"),
            (i64::MIN, "-23:59", "@-9223372036854775808ms"),
        ];
        for (ms, zone, text) in table {
            assert_eq!(rfc3339(TimestampMs::new(ms), &Zone::parse(zone).unwrap()), text);
        }
        let odd = Zone { zone: TimeZone::fixed(ZoneOffset::from_seconds(3_208).unwrap()), name: Cow::Borrowed("LMT") };
        assert_eq!(rfc3339(TimestampMs::new(0), &odd), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn days() {
        let (zone, ms) = (Zone::parse("+05:30").unwrap(), TimestampMs::new);
        assert_eq!(day_of(ms(1_700_000_000_000), &zone).as_deref(), Some("2023-11-15"));
        assert_eq!(day_of(ms(i64::MAX), &zone), None);
        let (first, last) = (ms(1_699_900_000_000), ms(1_700_100_000_000));
        assert_eq!(days_between(first, last, &zone, 1_000), ["2023-11-16", "2023-11-15", "2023-11-14", "2023-11-13"]);
        assert_eq!(days_between(first, last, &zone, 2), ["2023-11-16", "2023-11-15"]);
        assert_eq!(days_between(first, first, &zone, 9), ["2023-11-13"]);
        assert_eq!(days_between(last, first, &zone, 9), [""; 0]);
        assert_eq!(days_between(ms(i64::MIN), ms(-62_200_000_000_000), &zone, 9), ["0000-01-01"]);
        assert_eq!(days_between(ms(i64::MIN), ms(i64::MAX), &zone, 2), ["9999-12-31", "9999-12-30"]);
        assert_eq!(days_between(ms(i64::MIN), ms(-62_167_200_000_000), &zone, 9).last().map(String::as_str), Some("0000-01-01"));
    }

    #[test]
    fn names_of_zones() {
        for (text, name) in [("UTC", "UTC"), ("Z", "UTC"), ("+05:30", "+05:30"), ("-0800", "-0800")] {
            assert_eq!(Zone::parse(text).unwrap().name(), name);
        }
        for text in ["", "+", "+5", "+24:00", "05:30", "Nowhere/Atall", "+05:30:00", "../etc/passwd", "Europe/Berlin\0"] {
            let refused = Zone::parse(text).map(|zone| zone.name().to_owned());
            assert!(refused.is_err(), "{text:?}");
        }
        assert!(!Zone::system().name().is_empty());
    }

    proptest! {
        #[test]
        fn printed_times_are_read_back(ms in -62_167_219_200_000_i64..253_402_300_800_000, minutes in -1_439_i32..=1_439, dst: bool) {
            let fixed = || Zone { zone: TimeZone::fixed(ZoneOffset::from_seconds(minutes * 60).unwrap()), name: Cow::Borrowed("fixed") };
            let zone = if dst { berlin() } else { fixed() };
            let text = rfc3339(TimestampMs::new(ms), &zone);
            if !text.starts_with('@') {
                prop_assert_eq!(resolve(&text, &Zone::utc()), ms);
            }
        }

        #[test]
        fn a_day_begins_on_itself(ms in -62_000_000_000_000_i64..253_000_000_000_000) {
            let day = day_of(TimestampMs::new(ms), &berlin()).unwrap();
            let begin = resolve(&day, &berlin());
            prop_assert!(begin <= ms && ms - begin < 25 * 3_600_000);
            prop_assert_eq!(day_of(TimestampMs::new(begin), &berlin()), Some(day));
        }

        #[test]
        fn any_time_is_printed(ms: i64) {
            for zone in [Zone::utc(), berlin(), Zone::parse("-23:59").unwrap()] {
                prop_assert!(!rfc3339(TimestampMs::new(ms), &zone).is_empty());
                prop_assert!(days_between(TimestampMs::new(ms), TimestampMs::new(i64::MAX), &zone, 3).len() <= 3);
            }
        }
    }
}
