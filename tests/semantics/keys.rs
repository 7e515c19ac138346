//! P38 to P43: keys. `tests/by_key.rs` has the many cases of each.

use super::common::encode::{Batch, Record, indexes};
use super::common::partition::PartitionDir;
use super::mounted::Mounted;
use super::{LOG, T0, errno, fresh};
use std::fs;

#[test]
fn p38_a_key_is_its_last_record() {
    let (_folder, m) = fresh("by-key=rw");
    let lines =
        [r#"{"key":"k","payload":"1"}"#, r#"{"key":null,"payload":"x"}"#, r#"{"key":"k","payload":"2"}"#, r#"{"key":"l","payload":null}"#];
    for (line, value) in lines.iter().zip(["1", "1", "2", "2"]) {
        fs::write(m.at("append.jsonl"), format!("{line}\n")).expect("an envelope");
        assert_eq!(m.text("by-key/k"), value);
    }
    assert_eq!(errno(fs::metadata(m.at("by-key/l"))), libc::ENOENT);
    assert_eq!(m.sh("ls by-key; rm by-key/k; ls by-key"), "k\n");
}

#[test]
fn p39_from_open_to_close_is_one_record() {
    let (_folder, m) = fresh("by-key=rw,max.message.bytes=5000");
    // In a shell: here another test may start a program at any time, which holds what is open until it runs, and so puts off the close.
    let seen = m.sh("echo old > by-key/k; exec 3> by-key/k; for part in a b c; do printf $part >&3; cat by-key/k; done; exec 3>&-; cat by-key/k by-key/k.offset");
    assert_eq!(seen, "old\nold\nold\nabc1\n");
    assert_eq!(errno(fs::write(m.at("by-key/k"), vec![b'x'; 6000])), libc::EMSGSIZE);
    assert_eq!(m.text("by-key/k"), "abc");
}

#[test]
fn p40_a_rename_is_one_batch() {
    let (_folder, m) = fresh("by-key=rw,batch.size=100");
    m.sh("head -c 50000 /dev/urandom > by-key/a; cp by-key/a /tmp/$$; mv by-key/a by-key/b; cmp by-key/b /tmp/$$; rm /tmp/$$; test ! -e by-key/a");
    m.sh("cmp by-offset/1.batch by-offset/2.batch");
    assert_eq!(m.sh("getfattr --only-values -n user.kafka.null by-offset/2"), "1");
}

#[test]
fn p41_one_name_a_key_one_key_a_name() {
    let (_folder, m) = fresh("by-key=rw");
    m.sh("for name in plain % %2E %2E%2E a%2Fb 50%25 x%2Eoffset $'new\\nline'; do printf v > \"by-key/$name\"; done");
    let keys = m.sh("cat by-offset/earliest..latest.jsonl | jq -c .key");
    assert_eq!(keys, "\"plain\"\n\"\"\n\".\"\n\"..\"\n\"a/b\"\n\"50%\"\n\"x.offset\"\n\"new\\nline\"\n");
    for other in ["a%2fb", "50%", "%70lain", "%2E."] {
        assert_eq!(errno(fs::write(m.at(&format!("by-key/{other}")), "v")), libc::EINVAL, "{other}");
        assert_eq!(errno(fs::metadata(m.at(&format!("by-key/{other}")))), libc::ENOENT, "{other}");
    }
}

/// A log of one batch a record, with the keys `a`, `b`, `a`, ...
fn log_of_keys(records: i64) -> PartitionDir {
    let folder = PartitionDir::new("demo-0");
    let record = |n: i64| Record::new(0, T0, Some(if n % 2 == 0 { b"a" } else { b"b" }), Some(n.to_string().as_bytes()));
    let log: Vec<u8> = (0..records).flat_map(|n| Batch::new(n, vec![record(n)]).encode()).collect();
    let (index, timeindex) = indexes(0, &log, 4096);
    folder.segment(0, &log, &index, &timeindex);
    folder
}

#[test]
fn p42_a_damaged_last_record_is_no_older_value() {
    let folder = log_of_keys(4);
    let mut log = fs::read(folder.path().join(LOG)).expect("the log");
    let at = log.len() / 4 * 3 - 2;
    log[at] ^= 1;
    fs::write(folder.path().join(LOG), log).expect("the damaged log");
    let m = Mounted::new(folder.path(), &["-o", "by-key=ro"]);
    assert_eq!(errno(fs::read(m.at("by-key/a"))), libc::EIO);
    assert_eq!(m.text("by-key/b"), "3");
}

#[test]
fn p43_an_index_of_keys_is_a_hint() {
    let folder = log_of_keys(4);
    let m = Mounted::new(folder.path(), &["-o", "by-key=rw"]);
    m.sh(r#"seq 110000 | awk '{ printf "{\"key\":\"k%d\",\"payload\":\"%d\"}\n", $1 % 11000, $1 }' > append.jsonl; ls by-key | wc -l; rm by-key/k5"#);
    drop(m);
    let index = folder.path().join("by-key.offsetfs");
    let kept = fs::read(&index).expect("the index is kept");
    let mut spoilt = kept.clone();
    (4200..spoilt.len()).step_by(500).for_each(|at| spoilt[at] ^= 0x40);
    for bytes in [Some(&kept[..]), Some(&spoilt[..]), Some(&kept[..5000]), Some(b""), None] {
        match bytes {
            Some(bytes) => fs::write(&index, bytes).expect("an index"),
            None => fs::remove_file(&index).expect("it goes"),
        }
        let m = Mounted::new(folder.path(), &["-o", "by-key=ro"]);
        assert_eq!(m.sh("ls by-key | wc -l; cat by-key/a by-key/b by-key/k7 by-key/k10999; test ! -e by-key/k5"), "11001\n2399007109999");
    }
}
