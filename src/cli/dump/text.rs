//! The lines of Kafka's dump tool.

use super::json;
use super::lines::{Control, Pair, RecordLine, Value, batch_pairs};
use crate::error::Fault;
use crate::log::batch::BatchHeader;
use crate::log::decoders::{self, Topic};
use crate::log::record::Headers;
use crate::types::{Offset, TimestampType};
use crate::view::envelope::write_number;

/// Appends bytes.
pub(super) fn words(out: &mut Vec<u8>, words: &[&[u8]]) {
    for word in words {
        out.extend_from_slice(word);
    }
}

/// `name: value` for each pair, with blanks between, and the end of the line.
pub(super) fn pairs(out: &mut Vec<u8>, pairs: &[Pair<'_>]) {
    for (index, (name, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        words(out, &[name.as_bytes(), b": "]);
        match value {
            Value::Number(number) => write_number(out, *number),
            Value::Truth(true) => out.extend_from_slice(b"true"),
            Value::Truth(false) => out.extend_from_slice(b"false"),
            Value::Optional(None) => out.extend_from_slice(b"OptionalLong.empty"),
            Value::Optional(Some(number)) => {
                out.extend_from_slice(b"OptionalLong[");
                write_number(out, *number);
                out.push(b']');
            }
            Value::Word(word) => out.extend_from_slice(word.as_bytes()),
        }
    }
    out.push(b'\n');
}

/// The line of a batch.
pub(super) fn batch(out: &mut Vec<u8>, header: &BatchHeader, position: u64, is_valid: bool) {
    batch_pairs(header, position, is_valid, time_word(header), |found| pairs(out, found));
}

/// Kafka's word for who gave the records their time.
fn time_word(header: &BatchHeader) -> &'static str {
    match header.timestamp_type() {
        TimestampType::None => "NoTimestampType",
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

/// The line of a record.
///
/// # Errors
/// A control record that does not say what it is; the line ends before that.
#[inline]
pub(super) fn record(out: &mut Vec<u8>, line: &RecordLine<'_>) -> Result<(), Fault> {
    let (header, record) = (line.header, line.record);
    out.extend_from_slice(b"| offset: ");
    write_number(out, record.offset.get());
    words(out, &[b" ", time_word(header).as_bytes(), b": "]);
    write_number(out, record.timestamp.get());
    let (key, value) = (line.key(), line.value());
    out.extend_from_slice(b" keySize: ");
    write_number(out, key.map_or(-1, |key| key.len() as i64));
    out.extend_from_slice(b" valueSize: ");
    write_number(out, value.map_or(-1, |value| value.len() as i64));
    match line.crc {
        None => {
            out.extend_from_slice(b" sequence: ");
            write_number(out, i64::from(record.sequence));
            out.extend_from_slice(b" headerKeys: [");
            if record.headers_count > 0 {
                header_keys(out, line);
            }
            out.push(b']');
        }
        Some((crc, is_valid)) => {
            out.extend_from_slice(if is_valid { b" isValid: true crc: " } else { b" isValid: false crc: " });
            write_number(out, i64::from(crc));
        }
    }
    let mut told = Ok(());
    if header.attributes.is_control() {
        told = control(out, line);
    } else {
        contents(out, line, key, value);
    }
    out.push(b'\n');
    told
}

#[inline(never)]
fn header_keys(out: &mut Vec<u8>, line: &RecordLine<'_>) {
    for (index, (name, _)) in Headers::new(line.body, line.record).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text(out, name);
    }
}

#[inline]
fn contents(out: &mut Vec<u8>, line: &RecordLine<'_>, key: Option<&[u8]>, value: Option<&[u8]>) {
    if let Some(topic) = line.topic {
        return typed_contents(out, topic, key, value);
    }
    if let Some(key) = key {
        out.extend_from_slice(b" key: ");
        text(out, key);
    }
    if let Some(value) = value {
        out.extend_from_slice(b" payload: ");
        text(out, value);
    }
}

fn typed_contents(out: &mut Vec<u8>, topic: Topic, key: Option<&[u8]>, value: Option<&[u8]>) {
    if let Some(key) = key {
        out.extend_from_slice(b" key: ");
        if topic == Topic::ClusterMetadata { text(out, key) } else { json::message(out, &topic.key(key), true) }
    }
    match value {
        Some(value) => {
            out.extend_from_slice(b" payload: ");
            json::message(out, &topic.value(key, value), topic != Topic::ClusterMetadata);
        }
        None if topic != Topic::ClusterMetadata => out.extend_from_slice(b" payload: <DELETE>"),
        None => {}
    }
}

fn control(out: &mut Vec<u8>, line: &RecordLine<'_>) -> Result<(), Fault> {
    let told = Control::read(line)?;
    if let Some(epoch) = told.coordinator_epoch {
        out.extend_from_slice(if told.number == 0 { b" endTxnMarker: ABORT" } else { b" endTxnMarker: COMMIT" });
        out.extend_from_slice(b" coordinatorEpoch: ");
        write_number(out, i64::from(epoch));
        return Ok(());
    }
    let word: &[u8] = match told.number {
        2 => b" LeaderChange: ",
        3 => b" SnapshotHeader ",
        4 => b" SnapshotFooter ",
        5 => b" KRaftVersion ",
        6 => b" KRaftVoters ",
        _ => {
            out.extend_from_slice(b" controlType: UNKNOWN(");
            write_number(out, i64::from(told.number));
            out.push(b')');
            return Ok(());
        }
    };
    out.extend_from_slice(word);
    json::fields(out, &decoders::control(told.number, line.value().unwrap_or_default()));
    Ok(())
}

/// Bytes that are not what they should be.
pub(super) fn damage(out: &mut Vec<u8>, inside: bool, bytes: Option<u64>, fault: &Fault, offsets: Option<(Offset, Offset)>) {
    out.extend_from_slice(if inside { b"| damage: position: " } else { b"damage: position: " });
    out.extend_from_slice(fault.position.to_string().as_bytes());
    if let Some(bytes) = bytes {
        out.extend_from_slice(format!(" size: {bytes}").as_bytes());
    }
    if let Some((first, last)) = offsets {
        out.extend_from_slice(format!(" offsets: {first} to {last}").as_bytes());
    }
    words(out, &[b" expected: ", fault.expected.as_bytes(), b" found: ", fault.found.as_bytes(), b"\n"]);
}

/// Appends bytes as text: what is no UTF-8 becomes U+FFFD, as often as Java puts it there.
#[inline]
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(_) => out.extend_from_slice(bytes),
        Err(_) => replaced(out, bytes),
    }
}

#[cold]
fn replaced(out: &mut Vec<u8>, mut rest: &[u8]) {
    while let Err(error) = std::str::from_utf8(rest) {
        let (right, wrong) = rest.split_at(error.valid_up_to());
        out.extend_from_slice(right);
        out.extend_from_slice("\u{FFFD}".as_bytes());
        let is_next = |byte: &u8| byte & 0xC0 == 0x80;
        let length = match wrong {
            // Half of a surrogate pair is one wrong character to Java, three to Rust.
            [0xED, 0xA0..=0xBF, third, ..] if is_next(third) => 3,
            [0xED, 0xA0..=0xBF, ..] => 2,
            _ => error.error_len().unwrap_or(wrong.len()),
        };
        rest = wrong.get(length..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_bytes_are_replaced_as_in_java() {
        for (bytes, shown) in [
            (&b"plain \xC3\xA4"[..], "plain \u{e4}"),
            (b"a\xFFb", "a\u{FFFD}b"),
            (b"\xE2\x82", "\u{FFFD}"),
            (b"\xE2\x82A", "\u{FFFD}A"),
            (b"\xE0\x80\x80", "\u{FFFD}\u{FFFD}\u{FFFD}"),
            (b"\xED\xA0\x80x", "\u{FFFD}x"),
            (b"\xED\xA0x", "\u{FFFD}x"),
            (b"\xED\xA0", "\u{FFFD}"),
            (b"\xF0\x9F\x98", "\u{FFFD}"),
            (b"\xF0\x9Fx\xF5", "\u{FFFD}x\u{FFFD}"),
            (b"\xF4\x90\x80\x80", "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}"),
        ] {
            let mut out = Vec::new();
            text(&mut out, bytes);
            assert_eq!(String::from_utf8(out).as_deref(), Ok(shown), "{bytes:?}");
        }
    }
}
