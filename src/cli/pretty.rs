//! JSON lines on more than one line each, indented, and in colours on a terminal. What is no JSON passes as it is.
//!
//! Nothing is read into numbers and written again: a line is known to be JSON, and then its own characters are spread out.

use serde_json::Value;
use std::io::{self, Write};
use std::mem;

/// A longer line passes as it is, in bytes.
const LINE_MOST: usize = 64 << 20;
/// What each level is indented by.
const INDENT: &[u8] = b"  ";
const KEY: &str = "\x1b[1;34m";
const TEXT: &str = "\x1b[32m";
const WORD: &str = "\x1b[33m";
const NULL: &str = "\x1b[90m";
const PLAIN: &str = "\x1b[0m";

/// Takes lines and writes them spread out. [`Pretty::finish`] writes the last one, which may have no newline.
#[derive(Debug)]
pub(super) struct Pretty<W> {
    out: W,
    colours: bool,
    line: Vec<u8>,
}

impl<W: Write> Pretty<W> {
    /// Writes to `out`, with colours or without.
    pub(super) fn new(out: W, colours: bool) -> Pretty<W> {
        Pretty { out, colours, line: Vec::new() }
    }

    /// Writes what has no newline yet.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let line = mem::take(&mut self.line);
        self.write_line(&line)?;
        self.out.flush()
    }

    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let is_container = |value: Value| value.is_object() || value.is_array();
        match serde_json::from_slice(line).is_ok_and(is_container) {
            true => {
                spread(&mut self.out, line, self.colours)?;
                self.out.write_all(b"\n")
            }
            false => self.out.write_all(line),
        }
    }
}

impl<W: Write> Write for Pretty<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() > LINE_MOST {
                let mut line = mem::take(&mut self.line);
                self.write_line(&line)?;
                line.clear();
                self.line = line;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes the characters of a JSON text, indented.
fn spread(out: &mut impl Write, json: &[u8], colours: bool) -> io::Result<()> {
    let mut depth = 0_usize;
    let mut rest = json;
    let painted = |out: &mut dyn Write, colour: &str, token: &[u8]| -> io::Result<()> {
        if !colours {
            return out.write_all(token);
        }
        out.write_all(colour.as_bytes())?;
        out.write_all(token)?;
        out.write_all(PLAIN.as_bytes())
    };
    let new_line = |out: &mut dyn Write, depth: usize| -> io::Result<()> {
        out.write_all(b"\n")?;
        (0..depth).try_for_each(|_| out.write_all(INDENT))
    };
    while let Some((&byte, behind)) = rest.split_first() {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => rest = behind,
            b'{' | b'[' => {
                let inside = behind.trim_ascii_start();
                if let [close @ (b'}' | b']'), behind @ ..] = inside {
                    out.write_all(&[byte, *close])?;
                    rest = behind;
                    continue;
                }
                depth += 1;
                out.write_all(&[byte])?;
                new_line(out, depth)?;
                rest = behind;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(out, depth)?;
                out.write_all(&[byte])?;
                rest = behind;
            }
            b',' => {
                out.write_all(b",")?;
                new_line(out, depth)?;
                rest = behind;
            }
            b':' => {
                out.write_all(b": ")?;
                rest = behind;
            }
            b'"' => {
                let (text, behind) = rest.split_at(string_len(rest));
                let colour = if behind.trim_ascii_start().starts_with(b":") { KEY } else { TEXT };
                painted(out, colour, harmless(text).as_bytes())?;
                rest = behind;
            }
            _ => {
                let len = rest.iter().position(|b| b",]} \t\r\n".contains(b)).unwrap_or(rest.len());
                let (word, behind) = rest.split_at(len.max(1));
                painted(out, if word == b"null" { NULL } else { WORD }, word)?;
                rest = behind;
            }
        }
    }
    Ok(())
}

/// The length of the string that a JSON text begins with, quotes included.
fn string_len(json: &[u8]) -> usize {
    let mut escaped = false;
    for (at, byte) in json.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

/// The string with the control characters escaped that JSON allows and a terminal would obey.
fn harmless(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for character in String::from_utf8_lossy(text).chars() {
        if character.is_control() {
            out.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pretty(text: &str, colours: bool) -> String {
        let mut out = Vec::new();
        let mut pretty = Pretty::new(&mut out, colours);
        // In pieces, as reads come.
        text.as_bytes().chunks(3).for_each(|piece| pretty.write_all(piece).unwrap());
        pretty.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_envelope_is_spread_out_and_says_the_same() {
        let line = r#"{"offset":12345678901234567890.10,"headers":[],"key":null,"payload":"{\"a\": [1, 2]} \\","o":{ "x" : [true , {}]}}"#;
        let spread_out = pretty(&format!("{line}\n"), false);
        let expected = "{\n  \"offset\": 12345678901234567890.10,\n  \"headers\": [],\n  \"key\": null,\n  \"payload\": \"{\\\"a\\\": [1, 2]} \\\\\",\n  \
                        \"o\": {\n    \"x\": [\n      true,\n      {}\n    ]\n  }\n}\n";
        assert_eq!(spread_out, expected);
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(value(&spread_out), value(line));
    }

    #[test]
    fn what_is_no_json_passes_as_it_is() {
        for text in ["", "\n", "plain\n", "17\n\"text\"\n", "{\"a\":1\n}", "{} x\n", "last without newline"] {
            assert_eq!(pretty(text, true), text, "{text}");
        }
        assert_eq!(pretty("{\"a\":1}", false), "{\n  \"a\": 1\n}\n");
    }

    #[test]
    fn colours_tell_keys_from_texts_and_no_control_character_reaches_a_terminal() {
        assert_eq!(
            pretty("{\"k\":\"a\u{9b}b\u{7f}\",\"n\":null,\"i\":-1}\n", true),
            "{\n  \x1b[1;34m\"k\"\x1b[0m: \x1b[32m\"a\\u009bb\\u007f\"\x1b[0m,\n  \x1b[1;34m\"n\"\x1b[0m: \x1b[90mnull\x1b[0m,\n  \
             \x1b[1;34m\"i\"\x1b[0m: \x1b[33m-1\x1b[0m\n}\n"
        );
    }
}
