//! The few words that every layer shares: offsets, byte positions, times, the name of a partition.
//!
//! Nothing here touches a file or knows the layout of one. An [`Offset`] counts records, a [`Position`] counts bytes in a
//! file; the two never convert into each other.

use std::fmt;

/// The number of a record in its partition, `0..=i64::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(i64);

impl Offset {
    /// The first offset a partition can have.
    pub const ZERO: Offset = Offset(0);
    /// The greatest offset the format can hold.
    pub const MAX: Offset = Offset(i64::MAX);

    /// An offset from its number; `None` for a negative one, which no record has.
    #[inline]
    pub const fn new(number: i64) -> Option<Offset> {
        if number < 0 { None } else { Some(Offset(number)) }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The offset behind this one; stays at [`Offset::MAX`] there.
    #[inline]
    pub const fn next(self) -> Offset {
        Offset(self.0.saturating_add(1))
    }

    /// The offset before this one; stays at zero there.
    #[inline]
    pub const fn previous(self) -> Offset {
        Offset(if self.0 == 0 { 0 } else { self.0 - 1 })
    }

    /// `self + delta`, or `None` where that is no offset.
    #[inline]
    pub const fn checked_add(self, delta: i64) -> Option<Offset> {
        match self.0.checked_add(delta) {
            Some(number) => Offset::new(number),
            None => None,
        }
    }

    /// How far this offset lies behind `base`; negative where it lies before it.
    #[inline]
    pub const fn delta_from(self, base: Offset) -> i64 {
        self.0 - base.0
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A byte place in a file, from 0. Never called an offset: that word is the record's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

impl Position {
    /// The first byte.
    pub const ZERO: Position = Position(0);

    /// A position from its number of bytes.
    #[inline]
    pub const fn new(bytes: u64) -> Position {
        Position(bytes)
    }

    /// The number of bytes before this place.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The place `bytes` further on; stays at `u64::MAX` there.
    #[inline]
    pub const fn plus(self, bytes: u64) -> Position {
        Position(self.0.saturating_add(bytes))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A time in milliseconds since 1970-01-01T00:00:00Z, as records store it. Negative values occur; -1 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimestampMs(i64);

impl TimestampMs {
    /// What a record without a time has.
    pub const NONE: TimestampMs = TimestampMs(-1);

    /// A time from its number of milliseconds.
    #[inline]
    pub const fn new(ms: i64) -> TimestampMs {
        TimestampMs(ms)
    }

    /// The number of milliseconds.
    #[inline]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// So many milliseconds later, or the latest time there is.
    pub fn later_by(self, ms: u64) -> TimestampMs {
        TimestampMs(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// So many milliseconds earlier, or the earliest time there is.
    pub fn earlier_by(self, ms: u64) -> TimestampMs {
        TimestampMs(self.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for TimestampMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether the caller can wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It cannot: what is not in memory is answered by "would block", and the same question is asked again from another thread.
    AtOnce,
    /// It can.
    MayBlock,
}

/// Who gave a record its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// Magic 0 stores no time.
    None,
    /// The producer.
    CreateTime,
    /// The log, at the append.
    LogAppendTime,
}

/// The name of a topic and the number of one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: String,
    /// The partition, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Splits the name of a partition directory at its last hyphen, as Kafka does; `None` where that gives no topic and number. `.` and `..` are
    /// no topics, to Kafka neither: no path could lead to one.
    pub fn from_directory_name(name: &str) -> Option<TopicPartition> {
        let (topic, number) = name.rsplit_once('-')?;
        let canonical = number == "0" || (!number.starts_with('0') && number.bytes().all(|b| b.is_ascii_digit()));
        if matches!(topic, "" | "." | "..") || number.is_empty() || !canonical {
            return None;
        }
        Some(TopicPartition { topic: topic.to_owned(), partition: number.parse().ok()? })
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_split_at_the_last_hyphen() {
        let of = |name| TopicPartition::from_directory_name(name).map(|t| (t.topic, t.partition));
        assert_eq!(of("a-b.c_d-7-0"), Some(("a-b.c_d-7".to_owned(), 0)));
        assert_eq!(of("t-12"), Some(("t".to_owned(), 12)));
        for none in [".-0", "..-1", "t", "-0", "t-", "t-01", "t-x", "t-+1", "t--1x", "t-99999999999"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
