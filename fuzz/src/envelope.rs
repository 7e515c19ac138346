//! The JSON envelope: a line that is accepted becomes a record whose line is JSON and becomes the same record.

use offsetfs::types::{Offset, TimestampMs, TimestampType};
use offsetfs::view::envelope::{Envelope, ParsedRecord, parse_line, write_line};
use serde_json::Value;

/// One input: a line.
pub fn run(input: &[u8]) {
    match parse_line(input) {
        Ok(None) => assert!(input.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))),
        Ok(Some(record)) => {
            assert!(serde_json::from_slice::<Value>(input).is_ok_and(|value| value.is_object()), "what is accepted is a JSON object");
            written_again(record);
        }
        Err(bad) => assert!(bad.column >= 1 && bad.column <= input.len() + 1 && !bad.reason.is_empty(), "{bad}"),
    }
    // Any bytes are a value, a key, a header.
    let (head, tail) = input.split_at(input.len() / 2);
    let headers = vec![(head.to_vec(), Some(tail.to_vec())), (tail.to_vec(), None)];
    written_again(ParsedRecord { timestamp: Some(TimestampMs::NONE), key: Some(tail.to_vec()), value: Some(input.to_vec()), headers });
}

fn written_again(record: ParsedRecord) {
    let envelope = Envelope {
        topic: "t",
        partition: 0,
        offset: Offset::ZERO,
        timestamp_type: TimestampType::CreateTime,
        timestamp: record.timestamp.unwrap_or(TimestampMs::NONE),
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        control: None,
    };
    let mut line = Vec::new();
    write_line(&mut line, &envelope, record.headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())));
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "an envelope is one line");
    line.pop();
    assert!(serde_json::from_slice::<Value>(&line).is_ok_and(|value| value.is_object()), "{}", line.escape_ascii());
    let again = parse_line(&line).expect("what was written is accepted").expect("it is not blank");
    assert_eq!(again, ParsedRecord { timestamp: Some(envelope.timestamp), ..record.clone() }, "what was written is read");
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let lines = [
        r#"{"payload":"v"}"#,
        r#"{"topic":"t","partition":0,"offset":7,"tstype":"create","ts":1700000000123,"headers":["k","v","n",null],"key":null,"payload":"text"}"#,
        r#"{"headers_b64":["YQ==","MQ=="],"key_b64":"/w==","payload_b64":null,"ts":-1}"#,
        r#" { "payload" : "a\n\u00fc\ud83d\ude00\"" , "x":{"y":[1,2.5e3,{}]} } "#,
        r#"{"pa\u0079load":"","key":"\\"}"#,
        "",
    ];
    lines.map(|line| line.as_bytes().to_vec()).to_vec()
}
