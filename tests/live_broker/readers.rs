//! Everybody who reads beside the broker. Each goes on until the watch is over, and panics where an answer is neither right nor a clean error.

use crate::mounted::Mounted;
use crate::{COMPACTED, ROLLED, Watch, line, status};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// A reader.
pub(crate) type Reader = fn(&Mounted, &Watch);

/// All of them.
pub(crate) const ALL: [Reader; 8] = [records, ranges, compacted, follower, tail, programs, held_segments, times];

/// Reads a whole file; what came before an error is kept.
fn read(path: &Path) -> (Vec<u8>, Option<std::io::Error>) {
    let mut bytes = Vec::new();
    let result = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    (bytes, result.err())
}

/// Single records, all over the log: what is at offset n is line n.
fn records(m: &Mounted, watch: &Watch) {
    let mut n = 0;
    while watch.goes_on() {
        let (start, end) = (status(m, ROLLED, "log_start_offset"), status(m, ROLLED, "log_end_offset"));
        for offset in [start, end - 1, end, start + n % (end - start), start.saturating_sub(n % 1000)] {
            match read(&m.at(&format!("{ROLLED}/0/by-offset/{offset}"))) {
                (bytes, None) => {
                    assert_eq!(String::from_utf8_lossy(&bytes), line(offset), "offset {offset}");
                    watch.saw(1);
                }
                (_, Some(error)) => watch.refused("a record", &error),
            }
        }
        n += 7919;
    }
}

/// The whole log: one line behind the other, none missing, none twice.
fn ranges(m: &Mounted, watch: &Watch) {
    while watch.goes_on() {
        let (bytes, error) = read(&m.at(&format!("{ROLLED}/0/by-offset/earliest..latest")));
        let text = String::from_utf8(bytes).expect("lines are text");
        let mut lines = text.lines().peekable();
        let first: u64 = lines.peek().and_then(|first| first.get(..10)?.parse().ok()).unwrap_or(0);
        let mut count = 0;
        for (n, found) in (first..).zip(lines) {
            assert_eq!(found, line(n), "a range from {first}");
            count += 1;
        }
        watch.saw(count);
        if let Some(error) = error {
            watch.refused("a range", &error);
        }
    }
}

/// The compacted log as JSON: rising offsets, each with the line that was produced as that one.
fn compacted(m: &Mounted, watch: &Watch) {
    while watch.goes_on() {
        let (bytes, error) = read(&m.at(&format!("{COMPACTED}/0/by-offset/earliest..latest.jsonl")));
        let mut before = None;
        for json in bytes.split_inclusive(|byte| *byte == b'\n') {
            let json: serde_json::Value = serde_json::from_slice(json).expect("a range breaks off between two lines only");
            let offset = json["offset"].as_u64().expect("an offset");
            assert!(before < Some(offset), "{offset} behind {before:?}");
            assert_eq!(json["payload"].as_str(), Some(line(offset).as_str()));
            assert_eq!(json["key"].as_str(), Some((offset % crate::KEYS).to_string().as_str()));
            before = Some(offset);
            watch.saw(1);
        }
        if let Some(error) = error {
            watch.refused("a compacted range", &error);
        }
    }
}

/// `follow`: one line behind the other from its opening on.
fn follower(m: &Mounted, watch: &Watch) {
    // Without waiting: when the watch is over, nothing may come any more.
    let mut follow = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(m.at(&format!("{ROLLED}/0/follow"))).expect("follow");
    let (mut next, mut rest, mut buffer) = (None, Vec::new(), vec![0; 65536]);
    while watch.goes_on() {
        match follow.read(&mut buffer) {
            Ok(0) => panic!("follow has no end"),
            Ok(n) => rest.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            Err(error) => panic!("follow: {error}"),
        }
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let found = String::from_utf8(rest.drain(..=end).collect()).expect("a line is text");
            let n = next.unwrap_or_else(|| found[..10].parse().expect("a number"));
            assert_eq!(found.trim_end(), line(n), "follow");
            next = Some(n + 1);
            watch.saw(1);
        }
    }
}

/// `tail -F` of the newest segment: whole lines, rising.
fn tail(m: &Mounted, watch: &Watch) {
    let mut tail = Command::new("tail");
    tail.args(["-n", "1", "-s", "0.1", "--max-unchanged-stats=1", "-F"]).arg(m.at(&format!("{ROLLED}/0/decoded/active.txt")));
    let mut tail = tail.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("tail can be started");
    let lines = BufReader::new(tail.stdout.take().expect("a pipe")).lines();
    thread::scope(|scope| {
        scope.spawn(|| {
            while watch.goes_on() {
                thread::sleep(Duration::from_millis(20));
            }
            // Nobody reads its pipe any more, so it may have been faster than the signal.
            tail.kill().expect("a child can be killed");
            let end = tail.wait().expect("tail ends").signal();
            assert!([libc::SIGKILL, libc::SIGPIPE].map(Some).contains(&end), "tail goes on as long as it may: {end:?}");
        });
        let mut before = None;
        // The last line may be cut off by the end of tail.
        for found in lines.map(|found| found.expect("a line")).take_while(|_| watch.goes_on()) {
            let n: u64 = found.get(..10).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("tail -F: {found}"));
            assert_eq!(found, line(n), "tail -F");
            assert!(before < Some(n), "tail -F: {n} behind {before:?}");
            before = Some(n);
            watch.saw(1);
        }
    });
}

/// Programs that map, copy and search: they may fail, but not by a signal.
fn programs(m: &Mounted, watch: &Watch) {
    let scripts = [
        format!("grep -c 7777 {ROLLED}/0/decoded/*.txt"),
        format!("cat {ROLLED}/0/segments/* {COMPACTED}/0/segments/* > /dev/null"),
        format!("grep -ac aaaa {ROLLED}/0/segments/*.log {COMPACTED}/0/segments/*.log"),
        format!("ls -lR {ROLLED}/0/segments {ROLLED}/0/decoded {COMPACTED}/0/segments > /dev/null"),
        format!("tail -n 3 {ROLLED}/0/decoded/active.jsonl | grep -c payload"),
        format!("cmp -n 100000 {ROLLED}/0/segments/*0.log {COMPACTED}/0/segments/*0.log"),
    ];
    for script in scripts.iter().cycle() {
        if !watch.goes_on() {
            return;
        }
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", script]).current_dir(m.at("")).stdin(Stdio::null()).output().expect("bash can be started");
        let code = output.status.code().unwrap_or(-1);
        assert!(output.status.signal().is_none() && code < 128, "{script}: {:?}", output.status);
        watch.saw(1);
    }
}

/// A segment that is held open while retention takes it: its bytes stay what they were.
fn held_segments(m: &Mounted, watch: &Watch) {
    let folder = m.at(&format!("{ROLLED}/0/segments"));
    while watch.goes_on() {
        let names = fs::read_dir(&folder).expect("segments").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut logs: Vec<String> = names.filter(|name| name.ends_with(".log")).collect();
        logs.sort();
        let Some(path) = logs.first().map(|name| folder.join(name)) else { continue };
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) => {
                watch.refused("a segment", &error);
                continue;
            }
        };
        let mut head = vec![0; 100_000];
        let n = file.read(&mut head).expect("its beginning");
        head.truncate(n);
        while watch.goes_on() && path.exists() {
            thread::sleep(Duration::from_millis(50));
        }
        let mut again = vec![0; head.len()];
        let read = file.read_exact_at(&mut again, 0);
        match read {
            Ok(()) => {
                assert!(again == head, "a deleted segment changed");
                watch.saw(1);
            }
            Err(error) => watch.refused("a deleted segment", &error),
        }
    }
}

/// Times: a link leads to a record that is there, or was.
fn times(m: &Mounted, watch: &Watch) {
    while watch.goes_on() {
        for time in ["1s-ago", "3s-ago", "1h-ago", "today"] {
            let (bytes, error) = read(&m.at(&format!("{ROLLED}/0/by-time/{time}")));
            match error {
                None => {
                    let text = String::from_utf8(bytes).expect("a line is text");
                    assert_eq!(text, line(text[..10].parse().expect("a number")), "{time}");
                    watch.saw(1);
                }
                Some(error) => watch.refused("a time", &error),
            }
        }
    }
}

/// The daemon has nothing of the directory open for writing.
pub(crate) fn opened_read_only(pid: u32, data: &Path) {
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd")).expect("the daemon lives").flatten() {
        let Ok(target) = fs::read_link(descriptor.path()) else { continue };
        let number = descriptor.file_name().into_string().expect("a number");
        let Ok(info) = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")) else { continue };
        let flags = info.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok()).expect("flags");
        assert!(!target.starts_with(data) || flags & libc::O_ACCMODE == libc::O_RDONLY, "{} is open for writing", target.display());
    }
}
