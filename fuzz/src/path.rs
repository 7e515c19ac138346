//! The grammar of paths: what is accepted prints its canonical text, which is accepted as the same.

use offsetfs::view::path::{ByOffset, ByTime, ViewPath};

/// One input: a path below a partition's root.
pub fn run(input: &[u8]) {
    if let Ok(path) = ViewPath::parse(input) {
        let printed = path.to_bytes();
        assert_eq!(ViewPath::parse(&printed).as_ref(), Ok(&path), "{}", printed.escape_ascii());
        assert!(!printed.windows(2).any(|pair| pair == b"//") && !printed.starts_with(b"/") && !printed.ends_with(b"/"));
        // Component by component is the same way.
        let names = input.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let walked = names.fold(Ok(ViewPath::Root), |here, name| here.and_then(|here| here.child(name)));
        assert_eq!(walked.as_ref(), Ok(&path));
    }
    if let Ok(name) = ByOffset::parse(input) {
        let printed = name.to_string();
        assert_eq!(ByOffset::parse(printed.as_bytes()).as_ref(), Ok(&name), "{printed}");
        // A number has one spelling: what differs from its canonical text does so by a synonym or by the dot of an open end.
        if input != printed.as_bytes() {
            let synonym = ["start", "beginning", "oldest", "end", "newest"].iter().any(|word| contains(input, word.as_bytes()));
            assert!(synonym || input.ends_with(b"..jsonl"), "{} is another spelling of {printed}", input.escape_ascii());
        }
    }
    if let Ok(name) = ByTime::parse(input) {
        let printed = name.to_string();
        assert_eq!(ByTime::parse(printed.as_bytes()).as_ref(), Ok(&name), "{printed}");
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<String> = ViewPath::root_entries().iter().map(|(name, _)| (*name).to_owned()).collect();
    let names = [
        "by-offset/5.json",
        "by-offset/-10...jsonl",
        "by-offset/earliest..latest.jsonl",
        "by-offset/5..=9",
        "by-offset/..-1",
        "by-offset/first",
        "by-time/2h-ago..now",
        "by-time/2026-11-29T10:15:30.123+05:30",
        "by-time/..yesterday.jsonl",
        "by-key/k%2F",
        "decoded/active.jsonl",
        "segments/00000000000000000000.log",
        "5.batch",
        "-3.key",
        "9223372036854775807",
        "start..newest",
        "-5..jsonl",
        "1d12h-ago",
        "PT2H-ago..",
        "@1700000000",
        "1700000000123..",
    ];
    seeds.extend(names.map(str::to_owned));
    seeds.into_iter().map(String::into_bytes).collect()
}
