//! Records to envelope lines.

use super::base64::write_base64;
use crate::types::{Offset, TimestampMs, TimestampType};

/// What the envelope says of a record, without its headers.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition, from 0.
    pub partition: i32,
    /// The record's offset.
    pub offset: Offset,
    /// Who gave the record its time.
    pub timestamp_type: TimestampType,
    /// The stored time; [`TimestampMs::NONE`] stands as -1.
    pub timestamp: TimestampMs,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null, a tombstone.
    pub value: Option<&'a [u8]>,
    /// For a control record its kind: `commit`, `abort` or the type's number.
    pub control: Option<&'a str>,
}

/// The envelope's word for who gave a record its time: `create`, `logappend`, or `unknown` where the format stores none.
pub const fn timestamp_type_word(timestamp_type: TimestampType) -> &'static str {
    match timestamp_type {
        TimestampType::None => "unknown",
        TimestampType::CreateTime => "create",
        TimestampType::LogAppendTime => "logappend",
    }
}

/// Appends the record's line to `out`, newline included. `headers` gives the headers in their order, name and value (`None` is null); it is
/// cloned once, because whether all are UTF-8 has to be known before the first is written.
pub fn write_line<'h, H>(out: &mut Vec<u8>, envelope: &Envelope<'_>, headers: H)
where
    H: Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
{
    out.extend_from_slice(b"{\"topic\":");
    write_text(out, envelope.topic);
    out.extend_from_slice(b",\"partition\":");
    write_number(out, i64::from(envelope.partition));
    out.extend_from_slice(b",\"offset\":");
    write_number(out, envelope.offset.get());
    out.extend_from_slice(b",\"tstype\":\"");
    out.extend_from_slice(timestamp_type_word(envelope.timestamp_type).as_bytes());
    out.extend_from_slice(b"\",\"ts\":");
    write_number(out, envelope.timestamp.get());
    write_headers(out, headers);
    write_member(out, b"key", envelope.key);
    write_member(out, b"payload", envelope.value);
    if let Some(control) = envelope.control {
        out.extend_from_slice(b",\"control\":");
        write_text(out, control);
    }
    out.extend_from_slice(b"}\n");
}

fn write_headers<'h, H>(out: &mut Vec<u8>, headers: H)
where
    H: Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
{
    let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
    let all_text = headers.clone().all(|(name, value)| is_text(name) && value.is_none_or(is_text));
    out.extend_from_slice(if all_text { b",\"headers\":[" } else { b",\"headers_b64\":[" });
    let write = |out: &mut Vec<u8>, bytes: Option<&[u8]>| match bytes {
        None => out.extend_from_slice(b"null"),
        Some(bytes) if all_text => write_escaped(out, bytes),
        Some(bytes) => write_base64(out, bytes),
    };
    for (index, (name, value)) in headers.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, Some(name));
        out.push(b',');
        write(out, value);
    }
    out.push(b']');
}

fn write_member(out: &mut Vec<u8>, name: &[u8], bytes: Option<&[u8]>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name);
    match bytes {
        None => out.extend_from_slice(b"\":null"),
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => {
                out.extend_from_slice(b"\":");
                write_text(out, text);
            }
            Err(_) => {
                out.extend_from_slice(b"_b64\":");
                write_base64(out, bytes);
            }
        },
    }
}

pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    write_escaped(out, text.as_bytes());
}

/// Whether JSON wants this byte escaped.
#[inline]
pub(super) const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// What JSON writes for a byte: the first `length` of two bytes, or, where `length` is 0, `\u00XX`.
#[derive(Clone, Copy)]
struct Escape {
    bytes: [u8; 2],
    length: u8,
}

/// For each byte what JSON writes for it.
static ESCAPES: [Escape; 256] = {
    let mut escapes = [Escape { bytes: [0; 2], length: 0 }; 256];
    let mut byte = 0x20;
    while byte < 256 {
        escapes[byte] = Escape { bytes: [byte as u8, 0], length: 1 };
        byte += 1;
    }
    let short = [(b'"', b'"'), (b'\\', b'\\'), (0x08, b'b'), (0x09, b't'), (0x0a, b'n'), (0x0c, b'f'), (0x0d, b'r')];
    let mut index = 0;
    while index < short.len() {
        let (byte, letter): (u8, u8) = short[index];
        escapes[byte as usize] = Escape { bytes: [b'\\', letter], length: 2 };
        index += 1;
    }
    escapes
};

/// Bytes that the escaping looks at together: without a branch inside, the compiler compares them in vector registers.
const STRIDE: usize = 32;

/// Appends a JSON string of bytes that are UTF-8. Strides without a special byte are copied whole.
fn write_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len().saturating_add(2));
    out.push(b'"');
    let mut rest = bytes;
    while !rest.is_empty() {
        let is_clean = |stride: &&[u8]| !stride.iter().fold(false, |any, &byte| any | is_special(byte));
        let clean_strides = rest.chunks(STRIDE).take_while(is_clean).count();
        let (clean, unclear) = rest.split_at(rest.len().min(clean_strides.saturating_mul(STRIDE)));
        out.extend_from_slice(clean);
        let (stride, behind) = unclear.split_at(unclear.len().min(STRIDE));
        write_stride(out, stride);
        rest = behind;
    }
    out.push(b'"');
}

/// Appends at most [`STRIDE`] bytes, escaped. Quotes come so densely in values that are JSON themselves that a branch at each would cost more than
/// writing two bytes for every byte and stepping on by one or two.
fn write_stride(out: &mut Vec<u8>, stride: &[u8]) {
    let (mut escaped, mut length, mut short) = ([0_u8; 2 * STRIDE], 0, true);
    for &byte in stride {
        let escape = &ESCAPES[usize::from(byte)];
        // Two bytes each: every byte of a stride finds its place.
        let Some(place) = escaped[length..].first_chunk_mut() else { break };
        *place = escape.bytes;
        length += usize::from(escape.length);
        short &= escape.length != 0;
    }
    if short {
        out.extend_from_slice(&escaped[..length]);
        return;
    }
    for &byte in stride {
        match &ESCAPES[usize::from(byte)] {
            Escape { length: 0, .. } => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            Escape { bytes: [only, _], length: 1 } => out.push(*only),
            Escape { bytes, .. } => out.extend_from_slice(bytes),
        }
    }
}

/// Appends a decimal number.
pub(crate) fn write_number(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0_u8; 20];
    let (mut rest, mut at) = (number.unsigned_abs(), digits.len());
    loop {
        at -= 1;
        // A digit is below ten, and twenty of them hold every u64.
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}
