//! The JSON envelope of a record, both ways: one line with the member names and the order of kcat's `-J`.
//!
//! ```text
//! {"topic":"t","partition":0,"offset":7,"tstype":"create","ts":1700000000123,"headers":["k","v"],"key":null,"payload":"text"}
//! ```
//!
//! Bytes that are not UTF-8 stand in base64 (standard alphabet, padded) under `key_b64`, `payload_b64` and `headers_b64` instead of the text
//! member; `headers_b64` then has every name and value in base64. A control record has a last member `control`. [`parse_line`] reads the same
//! line back and takes from it what a producer may choose: time, key, value, headers. Lines are split elsewhere, in [`super::lines`].

mod base64;
mod read;
mod write;

pub use read::{BadLine, Header, ParsedRecord, parse_line};
pub use write::{Envelope, timestamp_type_word, write_line};

pub(crate) use base64::write_base64;
pub(crate) use write::{write_number, write_text};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Offset, TimestampMs, TimestampType};
    use proptest::prelude::*;

    fn envelope<'a>(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Envelope<'a> {
        Envelope {
            topic: "t",
            partition: 0,
            offset: Offset::new(7).unwrap(),
            timestamp_type: TimestampType::CreateTime,
            timestamp: TimestampMs::new(1_700_000_000_123),
            key,
            value,
            control: None,
        }
    }

    fn line(envelope: &Envelope<'_>, headers: &[Header]) -> String {
        let mut out = Vec::new();
        write_line(&mut out, envelope, headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())));
        String::from_utf8(out).unwrap()
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..100),
            "[ -~\n\"\\\\]{0,200}".prop_map(String::into_bytes),
            any::<String>().prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            key in proptest::option::of(bytes()),
            value in proptest::option::of(bytes()),
            headers in proptest::collection::vec((bytes(), proptest::option::of(bytes())), 0..4),
            timestamp: i64,
        ) {
            let timestamp = TimestampMs::new(timestamp);
            let text = line(&Envelope { timestamp, ..envelope(key.as_deref(), value.as_deref()) }, &headers);
            prop_assert_eq!(text.find('\n'), Some(text.len() - 1));
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
            let record = ParsedRecord { timestamp: Some(timestamp), key, value, headers };
            prop_assert_eq!(parse_line(text.trim_end().as_bytes()), Ok(Some(record)));
        }

        #[test]
        fn escapes_are_those_of_json(value: String, run in 0..70_usize) {
            let value = "x".repeat(run) + &value;
            let text = line(&envelope(None, Some(value.as_bytes())), &[]);
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read["payload"], &value);
        }
    }

    #[test]
    fn members_and_their_order() {
        let text = line(&envelope(None, Some(b"text")), &[]);
        let start = r#"{"topic":"t","partition":0,"offset":7,"tstype":"create","ts":1700000000123,"#;
        assert_eq!(text, format!("{start}\"headers\":[],\"key\":null,\"payload\":\"text\"}}\n"));
        let headers = [(b"a".to_vec(), Some(b"1".to_vec())), (b"".to_vec(), None)];
        let text = line(&envelope(Some(b""), None), &headers);
        assert_eq!(text, format!("{start}\"headers\":[\"a\",\"1\",\"\",null],\"key\":\"\",\"payload\":null}}\n"));
    }

    #[test]
    fn bytes_that_are_not_utf8_stand_in_base64() {
        let headers = [(b"a".to_vec(), Some(b"\xff".to_vec())), (b"b".to_vec(), None)];
        let text = line(&envelope(Some(b"\xff\xfe"), Some(b"\x80")), &headers);
        assert!(
            text.ends_with("\"headers_b64\":[\"YQ==\",\"/w==\",\"Yg==\",null],\"key_b64\":\"//4=\",\"payload_b64\":\"gA==\"}\n"),
            "{text}"
        );
        let text = line(&envelope(Some(b"k"), Some(b"\xc3")), &[(b"\xff".to_vec(), None)]);
        assert!(text.ends_with("\"headers_b64\":[\"/w==\",null],\"key\":\"k\",\"payload_b64\":\"ww==\"}\n"), "{text}");
    }

    #[test]
    fn a_control_record_says_so_last() {
        let control = Envelope { control: Some("commit"), timestamp_type: TimestampType::LogAppendTime, ..envelope(None, None) };
        let text = line(&control, &[]);
        assert!(
            text.contains("\"tstype\":\"logappend\"") && text.ends_with("\"key\":null,\"payload\":null,\"control\":\"commit\"}\n"),
            "{text}"
        );
    }

    #[test]
    fn the_ends_of_the_numbers() {
        let edge = Envelope {
            partition: i32::MAX,
            offset: Offset::MAX,
            timestamp: TimestampMs::new(i64::MIN),
            timestamp_type: TimestampType::None,
            ..envelope(None, None)
        };
        let text = line(&edge, &[]);
        let numbers = r#""partition":2147483647,"offset":9223372036854775807,"tstype":"unknown","ts":-9223372036854775808,"#;
        assert!(text.contains(numbers), "{text}");
        let none = Envelope { offset: Offset::ZERO, timestamp: TimestampMs::NONE, ..envelope(None, None) };
        assert!(line(&none, &[]).contains(r#""offset":0,"tstype":"create","ts":-1,"#));
    }

    #[test]
    fn every_control_character_is_escaped() {
        let all: Vec<u8> = (0..=0x7f).collect();
        let text = line(&envelope(None, Some(&all)), &[]);
        assert!(text.trim_end().bytes().all(|byte| byte >= 0x20));
        assert!(text.contains(r"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e"), "{text}");
        assert!(text.contains(r##" !\"#"##) && text.contains(r"[\\]"), "{text}");
    }
}
