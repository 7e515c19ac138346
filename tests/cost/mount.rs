//! What operations on a mount cost: requests as `metrics` counts them, system calls of the daemon as strace sees them.

use super::mounted::Mounted;
use super::traced::traced;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

const RECORDS: u32 = 4000;
/// Each operation is made so many times.
const TIMES: u32 = 200;

fn filled() -> (tempfile::TempDir, Mounted) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mounted = Mounted::new(&folder.path().join("demo-0"), &["--create", "-o", "tz=UTC"]);
    let lines: String = (0..RECORDS).map(|n| format!("{n:099}\n")).collect();
    OpenOptions::new().append(true).open(mounted.at("append")).and_then(|mut f| f.write_all(lines.as_bytes())).expect("appended");
    (folder, mounted)
}

type Requests = BTreeMap<String, f64>;

fn requests(m: &Mounted) -> Requests {
    let mut all = Requests::new();
    for line in m.text("metrics").lines() {
        let Some((labels, count)) =
            line.strip_prefix("offsetfs_requests_total{request=\"").and_then(|l| l.split_once("\"}").or(l.split_once("} ")))
        else {
            continue;
        };
        let name = labels.split('"').next().expect("a request's name");
        *all.entry(name.to_owned()).or_default() += count.trim().parse::<f64>().expect("a count");
    }
    // The kernel sends these when it likes.
    all.retain(|name, _| name != "release" && name != "forget");
    all
}

/// Requests of a kind that each operation makes; what reading `metrics` makes is taken off.
fn each(m: &Mounted, times: u32, mut operation: impl FnMut(u32)) -> Requests {
    let (first, before) = (requests(m), requests(m));
    (0..times).for_each(&mut operation);
    let mut made = requests(m);
    for (name, count) in &mut made {
        let of = |all: &Requests| all.get(name).copied().unwrap_or(0.0);
        *count = ((*count - of(&before) - (of(&before) - of(&first))) / f64::from(times) * 100.0).round() / 100.0;
    }
    made.retain(|_, count| *count != 0.0);
    made
}

/// A request more or less in twenty operations comes from a name that has just expired. The attributes of directories expire all the time, on a
/// slow machine more often than once in two operations.
fn check(what: &str, made: &Requests, expected: &[(&str, f64)]) {
    println!("{what}: {made:?}");
    let of = |name: &str| made.get(name).copied().unwrap_or(0.0);
    let wanted = |name: &str| expected.iter().find(|(n, _)| *n == name).map_or(0.0, |(_, count)| *count);
    for name in made.keys().map(String::as_str).chain(expected.iter().map(|(name, _)| *name)) {
        let slack = if name == "getattr" { 0.8 } else { 0.05 };
        assert!((of(name) - wanted(name)).abs() <= slack, "{what}: {} requests `{name}`, not {}: {made:?}", of(name), wanted(name));
    }
}

pub(super) fn each_operation_makes_its_requests_and_no_more() {
    let (_folder, m) = filled();
    let mut value = [0; 99];
    let made = each(&m, TIMES, |n| {
        let mut file = File::open(m.at(&format!("by-offset/{}", n * 17))).expect("a record");
        file.read_exact(&mut value).expect("its value");
    });
    check("open, read and close a record", &made, &[("lookup", 1.0), ("open", 1.0), ("read", 1.0)]);
    let made = each(&m, TIMES, |_| {
        let mut file = File::open(m.at("by-offset/17")).expect("a record");
        file.read_exact(&mut value).expect("its value");
    });
    check("the same record again", &made, &[("open", 1.0)]);
    let made = each(&m, TIMES, |n| {
        fs::metadata(m.at(&format!("by-offset/{}", n * 17 + 1))).expect("a record");
    });
    check("stat of a record", &made, &[("lookup", 1.0)]);
    let made = each(&m, TIMES, |_| drop(fs::read_link(m.at("by-offset/last")).expect("a link")));
    check("where last leads", &made, &[("lookup", 1.0), ("readlink", 1.0)]);
    let mut append = OpenOptions::new().append(true).open(m.at("append")).expect("append");
    let made = each(&m, TIMES, |n| writeln!(append, "{n}").expect("appended"));
    // A formatted write is one write(2) a piece: number and newline.
    check("a line on an open handle, in two pieces", &made, &[("write", 2.0)]);
    let made = each(&m, TIMES, |_| append.write_all(b"line\n").expect("appended"));
    check("a line on an open handle", &made, &[("write", 1.0)]);
    let again = |n: u32, options: &mut OpenOptions| {
        let file = options.create(true).open(m.at("append"));
        file.and_then(|mut file| file.write_all(format!("{n}\n").as_bytes())).expect("appended");
    };
    let made = each(&m, TIMES, |n| again(n, OpenOptions::new().append(true)));
    // The kernel asks whether the name still leads to the file of its last look-up, hears of another, and looks it up.
    let appending = [("lookup", 2.0), ("open", 1.0), ("write", 1.0), ("flush", 1.0)];
    check("echo line >> append", &made, &appending);
    // It asks for what a truncation would take from a file; the truncation itself comes with the open.
    let made = each(&m, TIMES, |n| again(n, OpenOptions::new().write(true).truncate(true)));
    check("echo line > append", &made, &[&appending[..], &[("getxattr", 1.0)]].concat());
    let range = File::open(m.at("by-offset/0..1000")).expect("a range");
    let mut piece = [0; 500];
    let made = each(&m, TIMES, |n| range.read_exact_at(&mut piece, u64::from(n) * 500).expect("a piece"));
    check("a piece of a range", &made, &[("read", 1.0)]);
}

pub(super) fn ls_asks_for_no_attribute_of_each_name() {
    let (_folder, m) = filled();
    let made = each(&m, 1, |_| assert_eq!(m.sh("ls -lU by-offset | wc -l").trim(), (RECORDS + 3).to_string()));
    println!("ls -lU of {RECORDS} records: {made:?}");
    let of = |name: &str| made.get(name).copied().unwrap_or(0.0);
    assert!(of("getxattr") <= 20.0, "an attribute that no name has is asked for once: {made:?}");
    // The links, what is listed before the kernel has noticed that attributes are wanted, and names that expired meanwhile.
    assert!(of("lookup") + of("getattr") <= f64::from(RECORDS) / 4.0, "attributes come with the names: {made:?}");
    assert!(of("readdir") + of("readdirplus") <= f64::from(RECORDS) / 20.0, "many names a request: {made:?}");
}

pub(super) fn a_warm_record_costs_a_read_and_a_write_a_request() {
    let (_folder, m) = filled();
    let pid = m.daemon.id();
    // Every batch is touched, no record of those below is.
    for n in (0..RECORDS).step_by(10) {
        fs::metadata(m.at(&format!("by-offset/{n}"))).expect("a record");
    }
    let transferred = || {
        let text = fs::read_to_string(format!("/proc/{pid}/io")).expect("the daemon lives");
        let field = |name| text.lines().find_map(|l: &str| l.strip_prefix(name)?.trim().parse::<u64>().ok()).expect("a number");
        (field("rchar:"), field("wchar:"))
    };
    let look_up = |n: u32| assert_eq!(fs::read(m.at(&format!("by-offset/{n}"))).expect("a record").len(), 99);
    let before = transferred();
    (0..TIMES).for_each(|n| look_up(n * 10 + 1));
    let after = transferred();
    let (read, written) = ((after.0 - before.0) / u64::from(TIMES), (after.1 - before.1) / u64::from(TIMES));
    println!("a cold name of a warm record: {read} bytes read, {written} written by the daemon");
    assert!(read <= 400 && written <= 500, "{read} bytes read, {written} written: four requests and their answers, nothing of the log");

    let lines = traced(pid, &[], || (0..TIMES).for_each(|n| look_up(n * 10 + 2)));
    let mut calls: BTreeMap<&str, f64> = BTreeMap::new();
    for line in &lines {
        // PID NAME(...; what strace found under way or left so is a thread that waits.
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        if let Some((name, _)) = call.split_once('(').filter(|(name, _)| !name.is_empty()) {
            *calls.entry(name).or_default() += 1.0;
        }
    }
    println!("{TIMES} look-ups of warm records: {calls:?}");
    for (name, count) in &calls {
        let of_each = count / f64::from(TIMES);
        // A futex now and then wakes the other event thread; a call of our own for each record would be 1 and more.
        let most = if matches!(*name, "read" | "writev") { 4.3 } else { 0.2 };
        assert!(of_each <= most, "{of_each} calls of {name} for each record: {calls:?}");
    }
}
