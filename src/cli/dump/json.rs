//! The same lines as JSON: one object a line, its `kind` first. Records have the members of kcat's `-J` and what a dump knows besides.

use super::lines::{Control, Pair, RecordLine, Value, batch_pairs};
use crate::error::Fault;
use crate::log::batch::BatchHeader;
use crate::log::decoders::{self, Message, Type, Visitor};
use crate::log::record::Headers;
use crate::types::{Offset, TopicPartition};
use crate::view::envelope::{Envelope, timestamp_type_word, write_base64, write_line, write_number, write_text};

/// The line before all others of a file.
pub(super) fn file(out: &mut Vec<u8>, name: &str) {
    begin(out, "file");
    out.extend_from_slice(b",\"file\":");
    write_text(out, name);
    out.extend_from_slice(b"}\n");
}

fn begin(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(b"{\"kind\":");
    write_text(out, kind);
}

/// A line of names and values.
pub(super) fn pairs(out: &mut Vec<u8>, kind: &str, pairs: &[Pair<'_>]) {
    begin(out, kind);
    members(out, pairs);
    out.extend_from_slice(b"}\n");
}

fn members(out: &mut Vec<u8>, pairs: &[Pair<'_>]) {
    for (name, value) in pairs {
        out.push(b',');
        write_text(out, name);
        out.push(b':');
        match value {
            Value::Number(number) | Value::Optional(Some(number)) => write_number(out, *number),
            Value::Truth(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
            Value::Optional(None) => out.extend_from_slice(b"null"),
            Value::Word(word) => write_text(out, word),
        }
    }
}

/// The line of a batch.
pub(super) fn batch(out: &mut Vec<u8>, header: &BatchHeader, position: u64, is_valid: bool) {
    begin(out, "batch");
    batch_pairs(header, position, is_valid, "maxTimestamp", |found| members(out, found));
    out.extend_from_slice(b",\"tstype\":");
    write_text(out, timestamp_type_word(header.timestamp_type()));
    out.extend_from_slice(b"}\n");
}

/// The line of a record. A control record has no key and no payload, but `control`.
///
/// # Errors
/// A control record that does not say what it is; its line is without `control`.
pub(super) fn record(out: &mut Vec<u8>, line: &RecordLine<'_>, partition: &TopicPartition) -> Result<(), Fault> {
    let (header, record) = (line.header, line.record);
    let control = header.attributes.is_control().then(|| Control::read(line)).transpose();
    let number;
    let word = match &control {
        Ok(Some(Control { number: 0, .. })) => Some("abort"),
        Ok(Some(Control { number: 1, .. })) => Some("commit"),
        Ok(Some(other)) => {
            number = other.number.to_string();
            Some(number.as_str())
        }
        _ => None,
    };
    let is_data = !header.attributes.is_control();
    let (key, value) = (line.key().filter(|_| is_data), line.value().filter(|_| is_data));
    begin(out, "record");
    let comma = out.len();
    let envelope = Envelope {
        topic: &partition.topic,
        partition: partition.partition,
        offset: record.offset,
        timestamp_type: header.timestamp_type(),
        timestamp: record.timestamp,
        key,
        value,
        control: word,
    };
    write_line(out, &envelope, Headers::new(line.body, record));
    // The envelope is a line of its own: its opening becomes a comma, its end is taken off, and more members follow.
    if let Some(opening) = out.get_mut(comma) {
        *opening = b',';
    }
    out.truncate(out.len().saturating_sub(2));
    match line.crc {
        None => members(out, &[("sequence", Value::Number(i64::from(record.sequence)))]),
        Some((crc, is_valid)) => members(out, &[("crc", Value::Number(i64::from(crc))), ("isvalid", Value::Truth(is_valid))]),
    }
    if let Some(topic) = line.topic.filter(|_| is_data) {
        if let Some(key) = key {
            out.extend_from_slice(b",\"decoded_key\":");
            message(out, &topic.key(key), false);
        }
        if let Some(value) = value {
            out.extend_from_slice(b",\"decoded_payload\":");
            message(out, &topic.value(key, value), false);
        }
    }
    if let Ok(Some(control)) = &control {
        match control.coordinator_epoch {
            Some(epoch) => members(out, &[("coordinatorEpoch", Value::Number(i64::from(epoch)))]),
            None => {
                out.extend_from_slice(b",\"decoded_payload\":");
                fields(out, &decoders::control(control.number, line.value().unwrap_or_default()));
            }
        }
    }
    out.extend_from_slice(b"}\n");
    control.map(drop)
}

/// Bytes that are not what they should be.
pub(super) fn damage(out: &mut Vec<u8>, bytes: Option<u64>, fault: &Fault, offsets: Option<(Offset, Offset)>) {
    begin(out, "damage");
    members(out, &[("position", Value::Number(fault.position.get() as i64))]);
    if let Some(bytes) = bytes {
        members(out, &[("size", Value::Number(bytes as i64))]);
    }
    if let Some((first, last)) = offsets {
        members(out, &[("firstOffset", Value::Number(first.get())), ("lastOffset", Value::Number(last.get()))]);
    }
    members(out, &[("expected", Value::Word(&fault.expected)), ("found", Value::Word(&fault.found))]);
    out.extend_from_slice(b"}\n");
}

/// A message with its type and version: `{"type":...,"version":...,"data":{...}}`, or `data_b64` with all of its bytes where its fields are not
/// known. Kafka's tool writes the numbers of the coordinators' messages as text.
pub(super) fn message(out: &mut Vec<u8>, message: &Message<'_>, as_text: bool) {
    let number = |out: &mut Vec<u8>, number: i64| {
        if as_text {
            out.push(b'"');
        }
        write_number(out, number);
        if as_text {
            out.push(b'"');
        }
    };
    out.push(b'{');
    match message.message_type {
        Some(Type::Number(value)) => {
            out.extend_from_slice(b"\"type\":");
            number(out, value);
            out.push(b',');
        }
        Some(Type::Name(name)) => {
            out.extend_from_slice(b"\"type\":");
            write_text(out, name);
            out.push(b',');
        }
        None => {}
    }
    if let Some(version) = message.version {
        out.extend_from_slice(b"\"version\":");
        number(out, version);
        out.push(b',');
    }
    if message.has_fields() {
        out.extend_from_slice(b"\"data\":");
        fields(out, message);
    } else {
        out.extend_from_slice(b"\"data_b64\":");
        write_base64(out, message.bytes);
    }
    out.push(b'}');
}

/// The fields of a message as an object, or its bytes in base64 where they are not known.
pub(super) fn fields(out: &mut Vec<u8>, message: &Message<'_>) {
    if message.has_fields() {
        let begin = out.len();
        message.visit(&mut Writer { out, begin });
    } else {
        write_base64(out, message.bytes);
    }
}

/// Writes what it is told as JSON.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    begin: usize,
}

impl Writer<'_> {
    /// Puts a comma before whatever is not the first of its list, or the value of a member.
    fn next(&mut self) {
        if self.out.len() > self.begin && !matches!(self.out.last(), Some(b'{' | b'[' | b':')) {
            self.out.push(b',');
        }
    }
}

impl Visitor for Writer<'_> {
    fn begin_object(&mut self) {
        self.next();
        self.out.push(b'{');
    }

    fn end_object(&mut self) {
        self.out.push(b'}');
    }

    fn begin_list(&mut self) {
        self.next();
        self.out.push(b'[');
    }

    fn end_list(&mut self) {
        self.out.push(b']');
    }

    fn member(&mut self, name: &str) {
        self.next();
        write_text(self.out, name);
        self.out.push(b':');
    }

    fn null(&mut self) {
        self.next();
        self.out.extend_from_slice(b"null");
    }

    fn boolean(&mut self, value: bool) {
        self.next();
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn integer(&mut self, value: i64) {
        self.next();
        write_number(self.out, value);
    }

    fn float(&mut self, value: f64) {
        self.next();
        if !value.is_finite() {
            // JSON has no such numbers.
            write_text(
                self.out,
                if value.is_nan() {
                    "NaN"
                } else if value < 0.0 {
                    "-Infinity"
                } else {
                    "Infinity"
                },
            );
        } else if value == 0.0 || (1e-3..1e7).contains(&value.abs()) {
            self.out.extend_from_slice(format!("{value:?}").as_bytes());
        } else {
            // Java's form: one digit, a point, at least one digit, E.
            let text = format!("{value:E}");
            let (digits, exponent) = text.split_once('E').unwrap_or((&text, "0"));
            let point = if digits.contains('.') { "" } else { ".0" };
            self.out.extend_from_slice(format!("{digits}{point}E{exponent}").as_bytes());
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        self.next();
        write_text(self.out, &String::from_utf8_lossy(bytes));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.next();
        write_base64(self.out, bytes);
    }

    /// In base64 as Kafka prints it: with the alphabet of URLs, without padding.
    fn uuid(&mut self, bytes: &[u8; 16]) {
        self.next();
        let begin = self.out.len();
        write_base64(self.out, bytes);
        self.out.truncate(self.out.len().saturating_sub(3));
        self.out.push(b'"');
        for byte in self.out.iter_mut().skip(begin) {
            match byte {
                b'+' => *byte = b'-',
                b'/' => *byte = b'_',
                _ => {}
            }
        }
    }
}
