//! The whole path below a partition's root.

use super::{ByKey, ByOffset, ByTime, Refusal, dots, is_dots};
use std::fmt;

/// A path below the root of one partition's tree. Whether the mount has all of it (`by-key`, `ctl`) is decided above.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ViewPath {
    /// The root of the partition's tree.
    Root,
    /// `append`: each line written becomes a record.
    Append,
    /// `append.jsonl`: each line written is a record in the JSON envelope.
    AppendJson,
    /// `append.bin`: all bytes written between open and close are one record.
    AppendBinary,
    /// The directory `by-offset`.
    ByOffsetDir,
    /// A name in `by-offset`.
    ByOffset(ByOffset),
    /// The directory `by-time`.
    ByTimeDir,
    /// A name in `by-time`.
    ByTime(ByTime),
    /// The directory `by-key`.
    ByKeyDir,
    /// A name in `by-key`.
    ByKey(ByKey),
    /// The directory `decoded`.
    DecodedDir,
    /// A name in `decoded`, as bytes of one path component.
    Decoded(Vec<u8>),
    /// The directory `segments`.
    SegmentsDir,
    /// A name in `segments`, as bytes of one path component.
    Segment(Vec<u8>),
    /// `status`.
    Status,
    /// `status.json`.
    StatusJson,
    /// `metrics`.
    Metrics,
    /// `config`.
    Config,
    /// `check`.
    Check,
    /// `errors`.
    Errors,
    /// `ctl`.
    Ctl,
    /// `README`.
    Readme,
    /// `follow`: reading blocks and returns values as they arrive.
    Follow,
    /// `follow.jsonl`: the same as JSON envelopes.
    FollowJson,
}

/// The entries of the root with their names, in the order in which they are listed.
const ROOT: [(&str, ViewPath); 18] = [
    ("append", ViewPath::Append),
    ("append.jsonl", ViewPath::AppendJson),
    ("append.bin", ViewPath::AppendBinary),
    ("by-offset", ViewPath::ByOffsetDir),
    ("by-time", ViewPath::ByTimeDir),
    ("by-key", ViewPath::ByKeyDir),
    ("decoded", ViewPath::DecodedDir),
    ("segments", ViewPath::SegmentsDir),
    ("status", ViewPath::Status),
    ("status.json", ViewPath::StatusJson),
    ("metrics", ViewPath::Metrics),
    ("config", ViewPath::Config),
    ("check", ViewPath::Check),
    ("errors", ViewPath::Errors),
    ("ctl", ViewPath::Ctl),
    ("README", ViewPath::Readme),
    ("follow", ViewPath::Follow),
    ("follow.jsonl", ViewPath::FollowJson),
];

impl ViewPath {
    /// Every entry that the root can have, with its name, in the order of the contract; `follow` and `follow.jsonl` come last.
    pub fn root_entries() -> &'static [(&'static str, ViewPath)] {
        &ROOT
    }

    /// Reads a whole path relative to the partition's root, components separated by `/`. Repeated slashes count as one, the empty path is the root.
    ///
    /// # Errors
    /// What [`ViewPath::child`] refuses on the way; [`Refusal::NotFound`] for a slash behind what is no directory.
    pub fn parse(path: &[u8]) -> Result<ViewPath, Refusal> {
        let mut here = ViewPath::Root;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            here = here.child(name)?;
        }
        if path.ends_with(b"/") && !here.is_directory() {
            return Err(Refusal::not_found("a slash stands behind the name of a file"));
        }
        Ok(here)
    }

    /// The path of `name` in this directory.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where this is no directory, or has no such name; [`Refusal::Invalid`] for a name in `by-time` that is no time.
    pub fn child(&self, name: &[u8]) -> Result<ViewPath, Refusal> {
        let free_name = || match name {
            name if name.is_empty() || is_dots(name) || name.iter().any(|&byte| matches!(byte, 0 | b'/')) => Err(dots()),
            name => Ok(name.to_vec()),
        };
        match self {
            ViewPath::Root => match ROOT.iter().find(|(entry, _)| entry.as_bytes() == name) {
                Some((_, path)) => Ok(path.clone()),
                None => Err(Refusal::not_found("the root of a partition has no such name; see README")),
            },
            ViewPath::ByOffsetDir => ByOffset::parse(name).map(ViewPath::ByOffset),
            ViewPath::ByTimeDir => ByTime::parse(name).map(ViewPath::ByTime),
            ViewPath::ByKeyDir => ByKey::parse(name).map(ViewPath::ByKey),
            ViewPath::DecodedDir => free_name().map(ViewPath::Decoded),
            ViewPath::SegmentsDir => free_name().map(ViewPath::Segment),
            _ => Err(Refusal::not_found("what stands before the slash is no directory")),
        }
    }

    /// Whether this path is one of the tree's directories.
    pub fn is_directory(&self) -> bool {
        matches!(
            self,
            ViewPath::Root
                | ViewPath::ByOffsetDir
                | ViewPath::ByTimeDir
                | ViewPath::ByKeyDir
                | ViewPath::DecodedDir
                | ViewPath::SegmentsDir
        )
    }

    /// The canonical text of the path, the inverse of [`ViewPath::parse`], empty for the root.
    pub fn to_bytes(&self) -> Vec<u8> {
        let below = |directory: &str, name: &[u8]| [directory.as_bytes(), b"/", name].concat();
        match self {
            ViewPath::Root => Vec::new(),
            ViewPath::ByOffset(name) => below("by-offset", name.to_string().as_bytes()),
            ViewPath::ByTime(name) => below("by-time", name.to_string().as_bytes()),
            ViewPath::ByKey(name) => below("by-key", &name.to_bytes()),
            ViewPath::Decoded(name) => below("decoded", name),
            ViewPath::Segment(name) => below("segments", name),
            fixed => ROOT.iter().find(|(_, path)| path == fixed).map_or_else(Vec::new, |(name, _)| name.as_bytes().to_vec()),
        }
    }
}

impl fmt::Display for ViewPath {
    /// The text of [`ViewPath::to_bytes`]; bytes that are not UTF-8 stand as U+FFFD.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_root_is_found_by_its_name() {
        for (name, path) in ViewPath::root_entries() {
            assert_eq!(ViewPath::parse(name.as_bytes()).as_ref(), Ok(path));
            assert_eq!(path.to_string(), *name);
        }
        assert_eq!(ViewPath::parse(b""), Ok(ViewPath::Root));
        assert_eq!(ViewPath::Root.to_string(), "");
    }

    #[test]
    fn paths_print_as_they_are_parsed() {
        let names: [&[u8]; 8] = [
            b"by-offset/5.json",
            b"by-offset/-10...jsonl",
            b"by-time/2h-ago..now",
            b"by-key/k\xff\n",
            b"by-key/...",
            b"decoded/active.jsonl",
            b"segments/00000000000000000000.log",
            b"segments",
        ];
        for name in names {
            assert_eq!(ViewPath::parse(name).unwrap().to_bytes(), name);
        }
        assert_eq!(ViewPath::parse(b"/by-offset//5").unwrap().to_bytes(), b"by-offset/5");
        assert_eq!(ViewPath::parse(b"by-offset/"), Ok(ViewPath::ByOffsetDir));
        assert_eq!(ViewPath::parse(b"by-key/\xff").unwrap().to_string(), "by-key/\u{fffd}");
    }

    #[test]
    fn no_paths() {
        let none: [&[u8]; 12] = [
            b"Append",
            b"append.json",
            b".",
            b"..",
            b"by-offset/..",
            b"by-offset/.",
            b"segments/..",
            b"by-key/a\0",
            b"status/x",
            b"status/",
            b"by-offset/5/6",
            b"by-offset/5/",
        ];
        for name in none {
            assert!(matches!(ViewPath::parse(name), Err(Refusal::NotFound(_))), "{}", name.escape_ascii());
        }
        assert!(matches!(ViewPath::parse(b"by-time/teatime"), Err(Refusal::Invalid(_))));
        for name in [&b"a/b"[..], b""] {
            assert!(matches!(ViewPath::ByKeyDir.child(name), Err(Refusal::NotFound(_))));
        }
    }
}
