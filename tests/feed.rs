//! The state machine behind `append`, `append.jsonl` and `append.bin`, told as stories and against a naive model.

use offsetfs::view::lines::{Feed, Framing, Limits, Offered, Refused, RefusedKind, Rejection};
use proptest::prelude::*;

const LIMIT: u64 = 16;

fn feed(framing: Framing) -> Feed {
    Feed::new(framing, Limits { max_record_bytes: LIMIT })
}

/// The values offered; a null one is `<null>`.
fn values(offered: Offered<'_>) -> Vec<Vec<u8>> {
    match offered {
        Offered::Values(values) => values.map(<[u8]>::to_vec).collect(),
        Offered::Records(records) => records.into_iter().map(|record| record.value.unwrap_or_else(|| b"<null>".to_vec())).collect(),
    }
}

/// What happens to a feed.
#[derive(Clone, Debug)]
enum Step {
    /// A write request that is stored if it is not refused.
    Write(&'static [u8]),
    /// A write request that the log refuses as too large.
    WriteRefused(&'static [u8]),
    /// A write request that meets a full disk.
    WriteFailed(&'static [u8]),
    /// An fsync.
    Sync,
    /// An fsync that meets a full disk.
    SyncFailed,
    /// The last close, after the tail's commit.
    Close,
}

use Step::{Close, Sync, SyncFailed, Write, WriteFailed, WriteRefused};

/// What came of a step: the values stored, or `too large`, `bad line`, `failed`.
fn run(feed: &mut Feed, step: &Step) -> Result<Vec<Vec<u8>>, &'static str> {
    let word = |refused: Refused| match refused.kind {
        RefusedKind::TooLarge => "too large",
        RefusedKind::BadLine => "bad line",
    };
    match step {
        Write(data) => {
            let stored = values(feed.offer(data).map_err(word)?);
            feed.accept();
            Ok(stored)
        }
        WriteRefused(data) => {
            feed.offer(data).map_err(word)?;
            feed.reject(Rejection::Refused(RefusedKind::TooLarge));
            Err("too large")
        }
        WriteFailed(data) => {
            feed.offer(data).map_err(word)?;
            feed.reject(Rejection::Failed);
            Err("failed")
        }
        Sync | Close => {
            let stored = feed.offer_tail().map(values).map_err(word);
            if stored.is_ok() {
                feed.accept();
            }
            if let Close = step {
                feed.close();
            }
            stored
        }
        SyncFailed => {
            feed.offer_tail().map_err(word)?;
            feed.reject(Rejection::Failed);
            Err("failed")
        }
    }
}

type Outcome = Result<&'static [&'static str], &'static str>;

fn tell(framing: Framing, story: &[(Step, Outcome)]) {
    let mut feed = feed(framing);
    for (number, (step, outcome)) in story.iter().enumerate() {
        let wanted = outcome.map(|values| values.iter().map(|value| value.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(run(&mut feed, step), wanted, "step {number}, {step:?}");
    }
}

#[test]
fn each_line_is_a_value() {
    tell(
        Framing::Lines,
        &[
            (Write(b"a\nb\n\nd\n"), Ok(&["a", "b", "", "d"])),
            (Write(b""), Ok(&[])),
            (Write(b"\n"), Ok(&[""])),
            (Write(b"a\0\r\n"), Ok(&["a\0\r"])),
            (Write(b"0123456789012345\n"), Ok(&["0123456789012345"])),
            (Sync, Ok(&[])),
            (Close, Ok(&[])),
        ],
    );
}

#[test]
fn a_tail_waits_for_its_newline() {
    tell(
        Framing::Lines,
        &[
            (Write(b"par"), Ok(&[])),
            (Write(b"ti"), Ok(&[])),
            (Write(b"al\nnext\nmo"), Ok(&["partial", "next"])),
            (Write(b"re\n"), Ok(&["more"])),
            (Write(b"x"), Ok(&[])),
            (Write(b"\n"), Ok(&["x"])),
            (Write(b"y"), Ok(&[])),
            (Close, Ok(&["y"])),
            (Close, Ok(&[])),
        ],
    );
}

#[test]
fn fsync_makes_the_tail_a_record() {
    tell(Framing::Lines, &[(Write(b"a\npar"), Ok(&["a"])), (Sync, Ok(&["par"])), (Write(b"tial\n"), Ok(&["tial"])), (Sync, Ok(&[]))]);
    tell(
        Framing::Binary,
        &[(Write(b"a\nb"), Ok(&[])), (Sync, Ok(&["a\nb"])), (Write(b"c\n"), Ok(&[])), (Close, Ok(&["c\n"])), (Close, Ok(&[]))],
    );
}

#[test]
fn a_failure_leaves_the_tail_for_a_retry() {
    tell(
        Framing::Lines,
        &[
            (Write(b"par"), Ok(&[])),
            (WriteFailed(b"tial\nb\nc"), Err("failed")),
            (WriteFailed(b"more"), Err("failed")),
            (SyncFailed, Err("failed")),
            (Write(b"tial\nb\nc"), Ok(&["partial", "b"])),
            (SyncFailed, Err("failed")),
            (Sync, Ok(&["c"])),
        ],
    );
}

#[test]
fn a_refused_request_that_ended_skips_nothing() {
    tell(Framing::Lines, &[(Write(b"tail"), Ok(&[])), (WriteRefused(b"too long\nb\n"), Err("too large")), (Write(b"c\n"), Ok(&["c"]))]);
}

#[test]
fn no_piece_of_a_refused_line_becomes_a_record() {
    tell(
        Framing::Lines,
        &[
            (WriteRefused(b"a\nlong"), Err("too large")),
            (Write(b"middle"), Err("too large")),
            (Sync, Ok(&[])),
            (Write(b"end\nb\nnot en"), Err("too large")),
            (Write(b"ded\nc\n"), Err("too large")),
            (Write(b"d\n"), Ok(&["d"])),
        ],
    );
    tell(Framing::Lines, &[(WriteRefused(b"long"), Err("too large")), (Close, Ok(&[])), (Write(b"a\n"), Ok(&["a"]))]);
}

#[test]
fn a_tail_beyond_the_limit_is_refused_at_once() {
    let story = [
        (Write(b"0123456789"), Ok(&[][..])),
        (Write(b"0123456"), Err("too large")),
        (Write(b"789\n"), Err("too large")),
        (Write(b"a\n01234567890123456"), Err("too large")),
        (Write(b"\n"), Err("too large")),
        (Write(b"0123456789012345"), Ok(&[])),
        (Write(b"\n"), Ok(&["0123456789012345"])),
    ];
    tell(Framing::Lines, &story);
    tell(
        Framing::Binary,
        &[
            (Write(b"0123456789\n"), Ok(&[])),
            (Write(b"012345"), Err("too large")),
            (Write(b"a\n"), Err("too large")),
            (Sync, Ok(&[])),
            (Write(b"b"), Err("too large")),
            (Close, Ok(&[])),
            (Write(b"c"), Ok(&[])),
            (Close, Ok(&["c"])),
        ],
    );
}

#[test]
fn envelopes_pass_whole_or_not_at_all() {
    tell(
        Framing::Json,
        &[
            (Write(b"{\"payload\":\"a\"}\n\n \r\n{\"payload\":null}\n"), Ok(&["a", "<null>"])),
            (Write(b"{\"payload\""), Ok(&[])),
            (Write(b":\"b\"}\n{"), Ok(&["b"])),
            (Write(b"\"payload\":\"c\"}"), Ok(&[])),
            (Sync, Ok(&["c"])),
            (Write(b"{\"payload\":\"never\"}\n{broken\n"), Err("bad line")),
            (Write(b"{\"payload\":\"d\"}\n  "), Ok(&["d"])),
            (Sync, Ok(&[])),
            (Write(b"{broken"), Ok(&[])),
            (Sync, Err("bad line")),
            (Write(b"{\"payload\":\"e\"}\n{\"payload\":"), Err("bad line")),
            (Write(b"\"f\"}\n"), Err("bad line")),
            (Write(b"{\"payload\":\"g\"}\n"), Ok(&["g"])),
            (Write(b"{broken"), Ok(&[])),
            (Close, Err("bad line")),
            (Write(b"{\"payload\":\"h\"}"), Ok(&[])),
            (Close, Ok(&["h"])),
        ],
    );
}

#[test]
fn an_envelope_may_be_eight_times_as_long() {
    let line = |length: usize| format!("{{\"payload\":\"{}\"}}\n", "x".repeat(length - 14)).into_bytes();
    let mut feed = feed(Framing::Json);
    assert_eq!(values(feed.offer(&line(128)).unwrap()).len(), 1);
    feed.accept();
    let refused = feed.offer(&line(129)).unwrap_err();
    assert_eq!(refused.kind, RefusedKind::TooLarge);
    assert!(refused.reason.starts_with("line 2: "), "{refused}");
    assert_eq!(feed.offer(&line(129)[..129]).unwrap_err().kind, RefusedKind::TooLarge);
}

#[test]
fn lines_are_counted_from_the_opening() {
    let (good, mut feed) = (&b"{\"payload\":\"a\"}\n"[..], feed(Framing::Json));
    for _ in 0..3 {
        feed.offer(good).unwrap();
        feed.accept();
    }
    feed.offer(good).unwrap();
    feed.reject(Rejection::Failed);
    assert_eq!(feed.lines_stored(), 3);
    let two = [good, b"{\"payload\":7}\n", good].concat();
    let refused = feed.offer(&two).unwrap_err();
    assert_eq!((refused.kind, feed.lines_stored()), (RefusedKind::BadLine, 3));
    assert!(refused.reason.starts_with("line 5, column 12: "), "{refused}");
    feed.offer(b"\n").unwrap();
    feed.accept();
    assert_eq!(feed.lines_stored(), 7);
    let refused = feed.offer(b"{\n").unwrap_err();
    assert!(refused.reason.starts_with("line 8, column "), "{refused}");
    feed.close();
    assert!(feed.offer(b"{\n").unwrap_err().reason.starts_with("line 1, column "));
    assert_eq!(feed.lines_stored(), 0);
}

#[test]
fn an_offer_left_open_counts_as_failed() {
    let mut feed = feed(Framing::Lines);
    feed.offer(b"a").unwrap();
    feed.accept();
    feed.offer(b"b\nc").unwrap();
    assert_eq!(values(feed.offer(b"d\n").unwrap()), [b"ad"]);
    assert_eq!(values(feed.offer_tail().unwrap()), [b"a"]);
    assert_eq!(feed.close(), 1);
    assert!(!feed.tail_pending());
}

#[test]
fn an_offer_knows_whether_it_is_empty() {
    let mut feed = feed(Framing::Lines);
    assert!(feed.offer_tail().unwrap().is_empty());
    assert!(feed.offer(b"a").unwrap().is_empty());
    assert!(!feed.offer(b"\n").unwrap().is_empty());
}

/// The rules as one would write them down, with every byte in its own vector.
#[derive(Default)]
struct Model {
    tail: Vec<u8>,
    skipping: bool,
}

impl Model {
    fn write(&mut self, data: &[u8], fate: Fate) -> Result<Vec<Vec<u8>>, ()> {
        let ended = data.ends_with(b"\n");
        if self.skipping {
            self.skipping = !ended;
            return Err(());
        }
        let mut lines: Vec<Vec<u8>> = [self.tail.as_slice(), data].concat().split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        let tail = lines.pop().unwrap_or_default();
        let refused = tail.len() as u64 > LIMIT || fate == Fate::Refused;
        if refused {
            self.tail.clear();
            self.skipping = !ended;
            return Err(());
        }
        if fate == Fate::Failed {
            return Err(());
        }
        self.tail = tail;
        Ok(lines)
    }

    fn sync(&mut self, fate: Fate) -> Result<Vec<Vec<u8>>, ()> {
        match fate {
            Fate::Failed => Err(()),
            Fate::Refused => {
                self.skipping = !self.tail.is_empty() || self.skipping;
                self.tail.clear();
                Err(())
            }
            Fate::Stored if self.tail.is_empty() => Ok(Vec::new()),
            Fate::Stored => Ok(vec![std::mem::take(&mut self.tail)]),
        }
    }
}

/// What the log does with an offer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Stored,
    Refused,
    Failed,
}

fn settle(feed: &mut Feed, offered: Result<Vec<Vec<u8>>, Refused>, fate: Fate) -> Result<Vec<Vec<u8>>, ()> {
    let values = offered.map_err(drop)?;
    match fate {
        Fate::Stored => feed.accept(),
        Fate::Refused => feed.reject(Rejection::Refused(RefusedKind::TooLarge)),
        Fate::Failed => feed.reject(Rejection::Failed),
    }
    if fate == Fate::Stored { Ok(values) } else { Err(()) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_feed_of_lines_does_as_the_model(
        requests in proptest::collection::vec(
            (proptest::option::weighted(0.8, "[a\n]{0,12}|[a-c]{0,20}\n?"), prop_oneof![4 => Just(Fate::Stored), 1 => Just(Fate::Refused), 1 => Just(Fate::Failed)]),
            0..20,
        )
    ) {
        let (mut feed, mut model) = (feed(Framing::Lines), Model::default());
        for (data, fate) in &requests {
            match data {
                Some(data) => {
                    let offered = feed.offer(data.as_bytes()).map(values);
                    prop_assert_eq!(settle(&mut feed, offered, *fate), model.write(data.as_bytes(), *fate));
                }
                None => {
                    let offered = feed.offer_tail().map(values);
                    prop_assert_eq!(settle(&mut feed, offered, *fate), model.sync(*fate));
                }
            }
            prop_assert_eq!(feed.tail_pending(), !model.tail.is_empty());
        }
        let offered = feed.offer_tail().map(values);
        prop_assert_eq!(settle(&mut feed, offered, Fate::Stored), model.sync(Fate::Stored));
    }

    #[test]
    fn cuts_make_no_difference(text in "[a-c\n]{0,600}", cuts in proptest::collection::vec(0..600_usize, 0..6)) {
        let mut feed = Feed::new(Framing::Lines, Limits { max_record_bytes: 1_000 });
        let (mut stored, mut from) = (Vec::new(), 0);
        let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([text.len()]).collect();
        ends.sort_unstable();
        for end in ends {
            stored.extend(values(feed.offer(&text.as_bytes()[from..end]).unwrap()));
            feed.accept();
            from = end;
        }
        stored.extend(values(feed.offer_tail().unwrap()));
        let whole: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
        prop_assert_eq!(stored, whole);
    }
}
