//! Times as people write them: what is accepted keeps its text and resolves to a moment that prints as a time that is read back.

use crate::input::Input;
use offsetfs::types::TimestampMs;
use offsetfs::view::time::{TimeText, Zone, day_of, days_between, rfc3339};
use std::sync::OnceLock;

fn zones() -> &'static [Zone] {
    static ZONES: OnceLock<Vec<Zone>> = OnceLock::new();
    ZONES.get_or_init(|| {
        let names = ["UTC", "+05:30", "-23:59", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"];
        names.iter().filter_map(|name| Zone::parse(name).ok()).collect()
    })
}

/// One input: a choice of zone, the present time, and a text.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let zone = &zones()[usize::from(input.byte()) % zones().len()];
    let now = TimestampMs::new(input.number());
    let text = input.rest();
    if let Ok(name) = std::str::from_utf8(text)
        && let Ok(zone) = Zone::parse(name)
    {
        printed(now, &zone);
        assert!(Zone::parse(zone.name()).is_ok(), "the name of a zone names it");
    }
    printed(now, zone);
    let Ok(time) = TimeText::parse(text) else { return };
    assert_eq!(time.as_str().as_bytes(), text, "a time keeps its text");
    assert_eq!(TimeText::parse(time.to_string().as_bytes()).as_ref(), Ok(&time));
    let Ok(moment) = time.resolve(zone, now) else { return };
    if !time.is_relative() {
        assert_eq!(time.resolve(zone, TimestampMs::new(0)), Ok(moment), "an absolute time does not depend on the present");
    } else {
        assert!(moment <= now, "a time that counts back from now lies before it");
    }
    printed(moment, zone);
}

/// A moment prints in a zone as a text that means it, where the calendar has it.
fn printed(moment: TimestampMs, zone: &Zone) {
    let text = rfc3339(moment, zone);
    if !text.starts_with('@') {
        let read = TimeText::parse(text.as_bytes()).and_then(|time| time.resolve(&Zone::utc(), TimestampMs::new(0)));
        assert_eq!(read, Ok(moment), "{text}");
    }
    if let Some(day) = day_of(moment, zone) {
        let begin = TimeText::parse(day.as_bytes()).and_then(|time| time.resolve(zone, moment));
        let begin = begin.expect("a day begins");
        assert!(begin <= moment && moment.get() - begin.get() < 50 * 3_600_000, "{day} begins at {begin}, and {moment} lies in it");
    }
    assert!(days_between(moment, TimestampMs::new(i64::MAX), zone, 3).len() <= 3);
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "2h-ago",
        "1d12h-ago",
        "2h30m-ago",
        "1w-ago",
        "500ms-ago",
        "PT2H-ago",
        "P1DT12H-ago",
        "P2W-ago",
        "now",
        "today",
        "yesterday",
        "2026-11-29",
        "2026-11-29T10:15",
        "2026-11-29_10-15-30",
        "2026-11-29T10:15:30.123456789Z",
        "2026-03-29T02:30:00",
        "2011-12-30",
        "2026-11-29T10:15:30-08:00",
        "@1700000000",
        "1700000000",
        "1700000000123",
        "-9999-01-01",
        "9999-12-31T23:59:59.999Z",
        "Europe/Berlin",
        "+05:30",
    ];
    let now = 1_700_000_000_000_i64.to_be_bytes();
    (0..).zip(texts).map(|(zone, text)| [&[zone], now.as_slice(), text.as_bytes()].concat()).collect()
}
