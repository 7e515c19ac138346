//! Directories that Apache Kafka 4.3.1 wrote, and what Kafka itself said of them. `tests/fixtures/README.md` says what is in them.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The folder with `data/`, `unclean/` and `answers/`: unpacked once per process, for reading. A test that writes takes a copy.
///
/// # Panics
/// Where the archive cannot be unpacked.
pub(crate) fn fixtures() -> &'static Path {
    static UNPACKED: OnceLock<PathBuf> = OnceLock::new();
    UNPACKED.get_or_init(|| {
        let shared = Path::new(env!("CARGO_TARGET_TMPDIR"));
        remove_those_of_ended_processes(shared);
        let folder = shared.join(format!("fixtures-{}", std::process::id()));
        let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fixtures.tar.zst");
        let packed = fs::File::open(packed).expect("the fixtures stand in tests/fixtures");
        let plain = zstd::stream::Decoder::new(packed).expect("the fixtures are a zstd file");
        tar::Archive::new(plain).unpack(&folder).expect("the fixtures can be unpacked");
        folder
    })
}

/// A process cannot remove its own fixtures when it ends (tests have no end that they would see), so the next one does.
fn remove_those_of_ended_processes(shared: &Path) {
    for entry in fs::read_dir(shared).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix("fixtures-")).and_then(|id| id.parse::<u32>().ok());
        if let Some(owner) = owner
            && (owner == std::process::id() || !Path::new(&format!("/proc/{owner}")).exists())
        {
            // Another process may be removing it, too: what is left is nobody's loss.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A record as Kafka's consumer gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its offset.
    pub(crate) offset: i64,
    /// Its time in ms; -1 for none.
    pub(crate) timestamp: i64,
    /// `CreateTime`, `LogAppendTime` or `NoTimestampType`.
    pub(crate) timestamp_type: String,
    /// The leader epoch of its batch; -1 for none.
    pub(crate) leader_epoch: i32,
    /// Its key.
    pub(crate) key: Option<Vec<u8>>,
    /// Its value.
    pub(crate) value: Option<Vec<u8>>,
    /// Names and values of its headers.
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

/// What the broker said of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The first offset that can be read.
    pub(crate) log_start_offset: i64,
    /// The offset that the next record gets.
    pub(crate) log_end_offset: i64,
    /// The end of what a read_committed consumer may see.
    pub(crate) last_stable_offset: i64,
    /// The offsets that a read_committed consumer gets.
    pub(crate) committed_offsets: Vec<i64>,
    /// A time, and offset and time of the first record at or after it as ListOffsets names it; the offset is -1 for none.
    pub(crate) first_at_or_after: Vec<(i64, i64, i64)>,
}

/// The partition directories of `data/` that have answers, by name.
pub(crate) fn partitions() -> Vec<String> {
    let entries = fs::read_dir(fixtures().join("answers")).expect("the answers can be listed");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"));
    let mut names: Vec<String> = names.filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned)).collect();
    names.sort();
    names
}

/// Every record of a partition, in order, as a read_uncommitted consumer got it.
pub(crate) fn answers(partition: &str) -> Vec<Answer> {
    let text = fs::read_to_string(fixtures().join(format!("answers/{partition}.jsonl"))).expect("the partition has answers");
    text.lines().map(answer).collect()
}

/// What the broker said of a partition; `None` for the ones that no broker served.
pub(crate) fn facts(partition: &str) -> Option<Facts> {
    let text = fs::read_to_string(fixtures().join(format!("answers/{partition}.json"))).ok()?;
    let json: Value = serde_json::from_str(&text).expect("the facts are JSON");
    let triple = |of: &Value| (number(&of[0]), number(&of[1]), number(&of[2]));
    let facts = Facts {
        log_start_offset: number(&json["log_start_offset"]),
        log_end_offset: number(&json["log_end_offset"]),
        last_stable_offset: number(&json["last_stable_offset"]),
        committed_offsets: list(&json["committed_offsets"]).iter().map(number).collect(),
        first_at_or_after: list(&json["first_at_or_after"]).iter().map(triple).collect(),
    };
    assert_eq!(number(&json["records"]), answers(partition).len() as i64, "{partition}: the answers are whole");
    Some(facts)
}

fn answer(line: &str) -> Answer {
    let json: Value = serde_json::from_str(line).expect("an answer is JSON");
    let text = |of: &Value| of.as_str().expect("a text").to_owned();
    Answer {
        offset: number(&json["offset"]),
        timestamp: number(&json["ts"]),
        timestamp_type: text(&json["tstype"]),
        leader_epoch: i32::try_from(number(&json["epoch"])).expect("an epoch has 32 bits"),
        key: bytes(&json["key"]),
        value: bytes(&json["value"]),
        headers: list(&json["headers"]).iter().map(|header| (text(&header[0]), bytes(&header[1]))).collect(),
    }
}

fn number(of: &Value) -> i64 {
    of.as_i64().expect("a number")
}

fn list(of: &Value) -> &[Value] {
    of.as_array().expect("a list")
}

/// Base64 or null.
fn bytes(of: &Value) -> Option<Vec<u8>> {
    of.as_str().map(|text| base64(text).expect("base64 with padding"))
}

/// The bytes of a base64 text (RFC 4648, section 4, padded); `None` where it is none.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut out, mut bits, mut count) = (Vec::with_capacity(text.len() / 4 * 3), 0_u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xFF) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::encode::indexes;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn base64_is_read_and_other_texts_are_refused() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob"), ("+/+/", "\u{fffd}")] {
            let read = base64(text).expect(text);
            assert!(if text == "+/+/" { read == [0xFB, 0xFF, 0xBF] } else { read == bytes.as_bytes() }, "{text}");
        }
        for text in ["Z", "Zg", "Zg=", "Zg===", "====", "Z!==", "Zm9v\n"] {
            assert_eq!(base64(text), None, "{text}");
        }
    }

    #[test]
    fn answers_fit_the_directories() {
        let partitions = partitions();
        assert_eq!(partitions.len(), 30);
        for name in &partitions {
            assert!(fixtures().join("data").join(name).is_dir(), "{name}");
            let answers = answers(name);
            assert!(answers.is_sorted_by_key(|answer| answer.offset), "{name}");
            let Some(facts) = facts(name) else {
                assert!(name.starts_with("old-"), "{name} has no facts");
                continue;
            };
            let inside = facts.log_start_offset..facts.log_end_offset;
            assert!(answers.iter().all(|answer| inside.contains(&answer.offset)), "{name}");
            assert!(facts.committed_offsets.iter().all(|offset| (0..facts.last_stable_offset).contains(offset)), "{name}");
            assert!(facts.first_at_or_after.iter().all(|(time, offset, found)| *offset == -1 || time <= found), "{name}");
        }
        let first = &answers("codec-none-0")[0];
        assert_eq!((first.timestamp_type.as_str(), first.leader_epoch, first.key.as_deref()), ("CreateTime", 0, None));
        assert!(first.timestamp > 0 && first.value.is_none() && first.headers[1].0 == "trace");
    }

    #[test]
    fn the_unclean_indexes_are_long_and_sparse() {
        let index = fixtures().join("unclean/codec-none-0/00000000000000000160.index");
        let metadata = fs::metadata(index).expect("the index of the active segment");
        assert_eq!(metadata.size(), 10_485_760);
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
    }

    #[test]
    fn kafkas_own_indexes_follow_the_rule_that_the_encoder_follows() {
        let folder = fixtures().join("data/segments-0");
        let mut entries = 0;
        for entry in fs::read_dir(&folder).expect("the directory can be listed") {
            let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
            let Some(base) = name.strip_suffix(".log") else { continue };
            let read = |suffix: &str| fs::read(folder.join(format!("{base}.{suffix}"))).expect("the segment is whole");
            let (index, timeindex) = indexes(base.parse().expect("a base offset"), &read("log"), 256);
            assert!((read("index"), read("timeindex")) == (index.clone(), timeindex), "{base}");
            entries += index.len() / 8;
        }
        assert!(entries >= 100, "{entries} entries are too few to tell");
    }
}
