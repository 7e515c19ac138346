//! The files of the tree that are about the log and not in it: `ctl`, `metrics`, `config`, `check`, and what `-o` lists and shows more.
//!
//! Most of it is asked of the view; where the kernel has a part in it, of a mount, which needs `/dev/fuse`.

mod common;
#[path = "files/exposition.rs"]
mod exposition;
#[path = "common/mounted.rs"]
mod mounted;

use common::encode::{Batch, crc32c, indexes};
use common::fixtures::{answers, facts, fixtures};
use common::partition::PartitionDir;
use mounted::Mounted;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::{Isolation, LogConfig};
use offsetfs::source::Control;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{self, Local};
use offsetfs::types::Patience::MayBlock;
use offsetfs::view::{ErrorKind, Node, Options, View};
use serde_json::Value;
use std::fs;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

/// 2023-11-14T22:13:20Z, in ms.
const T0: i64 = 1_700_000_000_000;

/// Offsets 0 to 9, in two batches of one segment.
fn ten_records() -> PartitionDir {
    let dir = PartitionDir::new("demo-0");
    let log = [Batch::plain(0, 5, T0).encode(), Batch::plain(5, 5, T0 + 5000).encode()].concat();
    let (index, timeindex) = indexes(0, &log, 4096);
    dir.segment(0, &log, &index, &timeindex);
    dir
}

/// The tree over a partition directory.
fn tree(path: &Path, wish: Wish, config: LogConfig, options: Options) -> View {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let local = Local::open(&fs, path, local::Options { wish, create: false, config }).expect("a partition");
    View::new(Arc::new(local), options)
}

fn writable(path: &Path) -> View {
    tree(path, Wish::Writable, LogConfig::default(), Options::default())
}

fn readable(path: &Path) -> View {
    tree(path, Wish::ReadOnly, LogConfig::default(), Options::default())
}

/// A file of the tree, whole.
fn bytes(view: &View, path: &str) -> Vec<u8> {
    let reader = view.open(&view.resolve(path.as_bytes(), MayBlock).expect(path), MayBlock).expect(path);
    let (mut bytes, mut piece) = (Vec::new(), [0; 777]);
    loop {
        match reader.read(bytes.len() as u64, &mut piece, MayBlock).expect(path) {
            0 => return bytes,
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// The same, of a file that is text.
fn text(view: &View, path: &str) -> String {
    String::from_utf8(bytes(view, path)).unwrap_or_else(|_| panic!("{path} is no text"))
}

fn list(view: &View, dir: &str) -> Vec<String> {
    let mut names = Vec::new();
    let dir = view.resolve(dir.as_bytes(), MayBlock).expect(dir);
    view.list(&dir, 0, MayBlock, &mut |name, _, _, _| {
        names.push(String::from_utf8_lossy(name).into_owned());
        true
    })
    .expect("a listing");
    names
}

/// The kind of the error that the commands end with.
fn refused(view: &View, commands: &str) -> ErrorKind {
    view.control(commands.as_bytes()).expect_err(commands).kind()
}

#[test]
fn delete_before_moves_the_log_start_at_once_and_for_good_and_never_back() {
    let dir = ten_records();
    let view = writable(dir.path());
    assert!(view.resolve(b"by-offset/3", MayBlock).is_ok());
    view.control(b"delete-before 4\n").expect("a command");
    assert_eq!(view.resolve(b"by-offset/3", MayBlock).expect_err("deleted").kind(), ErrorKind::NotFound);
    assert_eq!(list(&view, "by-offset")[..3], ["first", "last", "4"]);
    assert_eq!(view.resolve(b"by-offset/first", MayBlock), Ok(Node::Link("4".to_owned())));
    assert_eq!(text(&view, "by-offset/earliest..6"), "v4\nv5\n");
    view.control(b"delete-before 2").expect("a command that changes nothing");
    assert_eq!(fs::read_to_string(dir.path().join("log-start-offset-checkpoint")).expect("a checkpoint"), "0\n1\ndemo 0 4\n");
    assert_eq!(fs::metadata(dir.path().join("00000000000000000000.log")).expect("the log").len(), {
        (Batch::plain(0, 5, T0).encode().len() + Batch::plain(5, 5, T0).encode().len()) as u64
    });
    view.close().expect("a clean end");
    drop(view);
    let again = readable(dir.path());
    assert_eq!(text(&again, "by-offset/earliest.."), "v4\nv5\nv6\nv7\nv8\nv9\n");
    assert!(text(&again, "status").contains("log_start_offset: 4\n"));
}

#[test]
fn everything_may_be_deleted_and_the_next_record_goes_on() {
    let dir = ten_records();
    let view = writable(dir.path());
    assert_eq!(refused(&view, "delete-before 11"), ErrorKind::Invalid);
    view.control(b"delete-before 10").expect("the log end is no record yet");
    assert_eq!(text(&view, "by-offset/earliest.."), "");
    let appender = view.appender(offsetfs::view::Framing::Lines).expect("an append file");
    let (sender, receiver) = std::sync::mpsc::channel();
    appender.write(b"next\n", true, Box::new(move |result| sender.send(result).expect("somebody waits")));
    receiver.recv().expect("an answer").expect("a record");
    assert_eq!(text(&view, "by-offset/earliest..jsonl").matches("\"offset\":10,").count(), 1);
    assert_eq!(text(&view, "by-offset/earliest.."), "next\n");
}

#[test]
fn the_checkpoint_of_a_data_directory_gets_the_entry_and_keeps_the_others() {
    let dir = ten_records();
    let around = dir.parent().join("log-start-offset-checkpoint");
    fs::write(&around, "0\n2\nother 3 17\ndemo 0 1\n").expect("a checkpoint");
    let view = writable(dir.path());
    view.control(b"delete-before 6").expect("a command");
    assert_eq!(fs::read_to_string(&around).expect("the checkpoint"), "0\n2\nother 3 17\ndemo 0 6\n");
    assert!(!dir.path().join("log-start-offset-checkpoint").exists());
    fs::write(&around, "1\n0\n").expect("a checkpoint of another version");
    assert_eq!(refused(&view, "delete-before 7"), ErrorKind::Damaged);
    assert_eq!(fs::read_to_string(&around).expect("the checkpoint"), "1\n0\n", "what cannot be read is left alone");
    assert_eq!(text(&view, "by-offset/earliest..=6"), "v6\n");
}

#[test]
fn commands_are_understood_before_the_first_is_carried_out() {
    let dir = ten_records();
    let view = writable(dir.path());
    for (commands, kind) in [
        ("roll\nrol\n", ErrorKind::Invalid),
        ("roll\ndelete-before x", ErrorKind::Invalid),
        (&format!("roll\n{}", " ".repeat(5000)), ErrorKind::Invalid),
    ] {
        assert_eq!(refused(&view, commands), kind, "{commands}");
    }
    assert_eq!(view.control(b"roll\n\xff").expect_err("no text").kind(), ErrorKind::Invalid);
    assert_eq!(list(&view, "decoded").len(), 2 + 2, "nothing was rolled");
    assert!(
        text(&view, "errors").contains(" ctl EINVAL - `rol` is no command; ctl knows sync, roll, delete-before N, retain and compact\n")
    );
    view.control(b"\n roll \r\nsync\n\n").expect("blanks and empty lines do not count");
    assert_eq!(list(&view, "decoded").len(), 4 + 2);
    let status: Value = serde_json::from_str(&text(&view, "status.json")).expect("an object");
    let commands: Vec<&str> = status["commands"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(
        matches!(commands[..], [roll, sync] if roll.ends_with(" roll: a new segment was begun") && sync.contains(" sync: ")),
        "{commands:?}"
    );
    let view = readable(ten_records().path());
    assert_eq!(refused(&view, "sync"), ErrorKind::ReadOnly);
}

#[test]
fn commands_reach_the_log_through_a_mount() {
    let dir = ten_records();
    let m = Mounted::new(dir.path(), &[]);
    assert_eq!(m.sh("stat -c '%a %s' ctl"), "200 0\n");
    assert_eq!(
        m.sh("cat by-offset/3; echo delete-before 4 > ctl; cat by-offset/3 2>&1 || true"),
        "v3cat: by-offset/3: No such file or directory\n"
    );
    assert_eq!(m.sh("for c in nonsense 'delete-before 99' compact; do echo $c 2>&1 > ctl || true; done").replace("bash: line 1: ", ""), {
        "echo: write error: Invalid argument\necho: write error: Invalid argument\necho: write error: Invalid argument\n"
    });
    // The kernel may still know the name; opening asks.
    assert_eq!(
        m.sh("stat -L by-offset/first > /dev/null; : < by-offset/5; echo delete-before 6 > ctl; (: < by-offset/5) 2>&- || echo gone"),
        "gone\n"
    );
    assert_eq!(m.sh("echo roll >> ctl; printf sync > ctl; ls segments/*.log | wc -l; cat ctl"), "2\n");
    assert_eq!(m.sh("tail -n 3 errors | cut -d' ' -f2,3"), "ctl EINVAL\nctl EINVAL\nctl EINVAL\n");
}

#[test]
fn metrics_follow_the_exposition_grammar_and_count_what_is_done() {
    let dir = ten_records();
    let m = Mounted::new(dir.path(), &["-o", "segment.bytes=300"]);
    m.sh("echo a >> append; echo b >> append; cat by-offset/5 by-offset/6; cat by-offset/nothing 2>/dev/null || true");
    let series = exposition::parse(&m.text("metrics")).expect("the text format");
    let value = |name: &str| *series.get(name).unwrap_or_else(|| panic!("no {name}"));
    let here = "{topic=\"demo\",partition=\"0\"}";
    assert_eq!(value(&format!("offsetfs_log_start_offset{here}")), 0.0);
    assert_eq!(value(&format!("offsetfs_log_end_offset{here}")), 12.0);
    assert_eq!(value(&format!("offsetfs_appended_records_total{here}")), 2.0);
    assert_eq!(value(&format!("offsetfs_appended_bytes_total{here}")), 4.0);
    assert_eq!(value(&format!("offsetfs_log_segments{here}")), 2.0);
    assert_eq!(value("offsetfs_requests_total{request=\"write\",result=\"ok\"}"), 2.0);
    assert!(value("offsetfs_requests_total{request=\"lookup\",result=\"ENOENT\"}") >= 1.0);
    assert!(value("offsetfs_requests_total{request=\"read\",result=\"ok\"}") >= 2.0);
    assert!(value("offsetfs_request_duration_seconds_sum{request=\"open\"}") > 0.0);
    assert!(value("offsetfs_read_bytes_total") >= 4.0);
    let later = exposition::parse(&m.text("metrics")).expect("the text format");
    let all = |series: &exposition::Series| {
        series.iter().filter(|(name, _)| name.contains("_duration_seconds_count")).map(|(_, n)| n).sum::<f64>()
    };
    assert!(all(&later) > all(&series));
}

#[test]
fn the_metrics_of_a_data_directory_are_those_of_its_partitions() {
    let (a, b) = (ten_records(), ten_records());
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::rename(a.path(), folder.path().join("demo-0")).expect("a partition");
    fs::rename(b.path(), folder.path().join("de\"mo\\-1")).expect("a partition with an odd name");
    let m = Mounted::new(folder.path(), &[]);
    m.sh("cat demo/0/by-offset/1; cat 'de\"mo\\'/1/by-offset/1; echo delete-before 4 > demo/0/ctl");
    let series = exposition::parse(&m.text("metrics")).expect("the text format");
    assert_eq!(series.get("offsetfs_log_start_offset{topic=\"demo\",partition=\"0\"}"), Some(&4.0));
    assert_eq!(series.get("offsetfs_log_start_offset{topic=\"de\\\"mo\\\\\",partition=\"1\"}"), Some(&0.0));
    assert!(series.contains_key("offsetfs_requests_total{request=\"lookup\",result=\"ok\"}"));
    let one = exposition::parse(&m.text("demo/0/metrics")).expect("the text format");
    assert!(one.keys().all(|name| name.contains("topic=\"demo\"")), "a partition tells of itself");
    assert_eq!(m.text("+metrics").lines().next(), m.text("metrics").lines().next());
}

#[test]
fn config_says_where_each_value_comes_from() {
    let dir = ten_records();
    let m = Mounted::new(dir.path(), &["-o", "segment.bytes=20000,tz=UTC"]);
    let config = m.text("config");
    let group = |title: &str| -> Vec<&str> {
        let mut lines = config.lines().skip_while(|line| !line.starts_with(&format!("# {title}"))).skip(1);
        std::iter::from_fn(|| lines.next().filter(|line| !line.starts_with('#'))).collect()
    };
    assert_eq!(group("from -o"), ["segment.bytes=20000", "tz=UTC"]);
    assert_eq!(group("decided"), ["mode=rw"]);
    let defaults = group("defaults");
    assert!(defaults.contains(&"index.interval.bytes=4096") && defaults.contains(&"list-follow=off"), "{config}");
    assert!(config.lines().all(|line| line.starts_with("# ") || line.contains('=')));
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    assert!(m.text("config").contains("# decided at the opening: it was asked for\nmode=ro\n"));
}

#[test]
fn check_tells_findings_and_its_readers_share_one_run() {
    let dir = ten_records();
    let summary = |text: &str| text.lines().next_back().map(str::to_owned).unwrap_or_default();
    let view = readable(dir.path());
    assert!(summary(&text(&view, "check")).starts_with("0 findings, "), "{}", text(&view, "check"));
    let log = dir.path().join("00000000000000000000.log");
    let mut bytes = fs::read(&log).expect("the log");
    bytes[80] ^= 1;
    fs::write(&log, bytes).expect("the log, damaged");
    let view = readable(dir.path());
    let found = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| text(&view, "check"))).collect();
        readers.into_iter().map(|reader| reader.join().expect("a report")).collect::<Vec<String>>()
    });
    for text in found {
        assert!(text.contains("\nfinding: 00000000000000000000.log at position 0, offsets 0 to 4: "), "{text}");
        assert!(!summary(&text).starts_with("0 findings"), "{text}");
    }
    let m = Mounted::new(dir.path(), &["-o", "ro"]);
    assert_eq!(m.sh("grep -c ^finding check"), "1\n");
}

#[test]
fn follow_is_listed_on_request() {
    let dir = ten_records();
    let view = readable(dir.path());
    assert!(!list(&view, "").iter().any(|name| name.starts_with("follow")));
    assert!(view.resolve(b"follow", MayBlock).is_ok());
    let view = tree(dir.path(), Wish::ReadOnly, LogConfig::default(), Options { list_follow: true, ..Options::default() });
    assert_eq!(list(&view, "").iter().filter(|name| name.starts_with("follow")).count(), 2);
}

/// The lines of all decoded segments, and whether each file had the size that it was said to have.
fn decoded(view: &View, suffix: &str) -> Vec<Value> {
    let mut lines = Vec::new();
    for name in list(view, "decoded").iter().filter(|name| name.ends_with(suffix) && !name.starts_with("active")) {
        let path = format!("decoded/{name}");
        let shown = bytes(view, &path);
        let size = view.attr(&view.resolve(path.as_bytes(), MayBlock).expect(name), MayBlock).expect(name).size;
        assert!(size == 0 || size == shown.len() as u64, "{path}: {size} and {}", shown.len());
        if suffix == "jsonl" {
            lines.extend(shown.lines().map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("an envelope")));
        }
    }
    lines
}

#[test]
fn control_records_are_shown_on_request_and_only_as_envelopes() {
    for (name, isolation, words) in [
        ("txn-0", Isolation::ReadUncommitted, &["commit", "abort"][..]),
        ("txn-0", Isolation::ReadCommitted, &["commit", "abort"]),
        ("codec-none-0", Isolation::ReadUncommitted, &[]),
    ] {
        let path = fixtures().join("data").join(name);
        let config = || LogConfig { isolation, ..LogConfig::default() };
        let offsets = |lines: &[Value]| lines.iter().map(|line| line["offset"].as_i64().expect("an offset")).collect::<Vec<i64>>();
        let expected = match isolation {
            Isolation::ReadUncommitted => answers(name).iter().map(|answer| answer.offset).collect(),
            Isolation::ReadCommitted => facts(name).expect("a served partition").committed_offsets,
        };
        let hidden = tree(&path, Wish::ReadOnly, config(), Options::default());
        assert_eq!(offsets(&decoded(&hidden, "jsonl")), expected, "{name}");
        let shown = tree(&path, Wish::ReadOnly, config(), Options { control: Control::Show, ..Options::default() });
        let (control, records): (Vec<Value>, Vec<Value>) =
            decoded(&shown, "jsonl").into_iter().partition(|line| line.get("control").is_some());
        assert_eq!(offsets(&records), expected, "{name}");
        assert!(control.iter().all(|line| line["key"].is_null() && line["payload"].is_null()), "{control:?}");
        for word in words {
            assert!(control.iter().any(|line| line["control"] == **word), "{name}: no {word}");
        }
        let stable = shown.source().bounds(MayBlock).expect("bounds").log_end.get();
        assert!(offsets(&control).iter().all(|offset| *offset < stable), "{name}");
        assert_eq!(control.is_empty(), words.is_empty(), "{name}");
        decoded(&shown, "txt");
        assert_eq!(text(&shown, "by-offset/earliest..jsonl"), text(&hidden, "by-offset/earliest..jsonl"), "ranges show records only");
    }
}

#[test]
fn a_marker_behind_an_open_transaction_is_not_stable() {
    let dir = PartitionDir::new("demo-0");
    let of = |batch: Batch, producer_id: i64| Batch { attributes: Batch::TRANSACTIONAL, producer_id, producer_epoch: 0, ..batch };
    let open = of(Batch::plain(0, 1, T0), 1).encode();
    let log = [open, of(Batch::plain(1, 1, T0), 2).encode(), Batch::end_of_transaction(2, 2, 0, T0, true).encode()].concat();
    let (index, timeindex) = indexes(0, &log, 4096);
    dir.segment(0, &log, &index, &timeindex);
    for (isolation, shown) in [(Isolation::ReadUncommitted, 3), (Isolation::ReadCommitted, 0)] {
        let options = Options { control: Control::Show, ..Options::default() };
        let view = tree(dir.path(), Wish::ReadOnly, LogConfig { isolation, ..LogConfig::default() }, options);
        assert_eq!(decoded(&view, "jsonl").len(), shown, "{isolation:?}");
    }
}

/// A snapshot saves a walk over what lies before it, and says nothing of what lies behind.
#[test]
fn transactions_go_on_behind_a_snapshot_and_begin_below_the_log_start() {
    let of = |batch: Batch, producer_id: i64| Batch { attributes: Batch::TRANSACTIONAL, producer_id, producer_epoch: 0, ..batch };
    let log = |aborted: bool| {
        let begun = [of(Batch::plain(0, 2, T0), 1).encode(), of(Batch::plain(2, 2, T0), 2).encode()];
        let ended = [Batch::end_of_transaction(4, 1, 0, T0, !aborted).encode(), of(Batch::plain(5, 1, T0), 3).encode()];
        [begun.concat(), ended.concat(), Batch::end_of_transaction(6, 2, 0, T0, true).encode()].concat()
    };
    // What a broker that stopped at offset 4 knew: two open transactions.
    let mut snapshot = 2_u32.to_be_bytes().to_vec();
    for (producer_id, first) in [(1_i64, 0_i64), (2, 2)] {
        for (number, bytes) in [(producer_id, 8), (0, 2), (-1, 4), (first, 8), (0, 4), (T0, 8), (-1, 4), (first, 8)] {
            snapshot.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
        }
    }
    let snapshot = [&1_u16.to_be_bytes()[..], &crc32c(&snapshot).to_be_bytes(), &snapshot].concat();
    for (aborted, log_start, seen) in
        [(false, 0, "v0\nv1\nv2\nv3\n"), (true, 0, "v2\nv3\n"), (false, 1, "v1\nv2\nv3\n"), (true, 1, "v2\nv3\n")]
    {
        for with_snapshot in [false, true] {
            let dir = PartitionDir::new("demo-0");
            let log = log(aborted);
            let (index, timeindex) = indexes(0, &log, 4096);
            dir.segment(0, &log, &index, &timeindex);
            dir.file("log-start-offset-checkpoint", format!("0\n1\ndemo 0 {log_start}\n").as_bytes());
            if with_snapshot {
                dir.file("00000000000000000004.snapshot", &snapshot);
            }
            let config = LogConfig { isolation: Isolation::ReadCommitted, ..LogConfig::default() };
            let view = tree(dir.path(), Wish::ReadOnly, config, Options::default());
            let place = format!("aborted {aborted}, log start {log_start}, snapshot {with_snapshot}");
            assert!(text(&view, "status").contains("last_stable_offset: 5\n"), "{place}: {}", text(&view, "status"));
            assert_eq!(text(&view, "by-offset/earliest..latest"), seen, "{place}");
        }
    }
}

#[test]
fn control_records_of_other_kinds_have_the_number_of_their_type() {
    let path = fixtures().join("data/__cluster_metadata-0");
    let view = tree(&path, Wish::ReadOnly, LogConfig::default(), Options { control: Control::Show, ..Options::default() });
    let lines = decoded(&view, "jsonl");
    let types: Vec<&str> = lines.iter().filter_map(|line| line.get("control")?.as_str()).collect();
    assert!(!types.is_empty() && types.iter().all(|kind| kind.parse::<i16>().is_ok_and(|kind| kind >= 2)), "{types:?}");
}
