//! Thousands of opens of each kind of file leave no descriptor, no thread and no memory behind. `OFFSETFS_LOAD_OPENS` asks for more of them than usual.

use super::fresh;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::time::Instant;

/// So many opens of each kind where nobody asks for more.
const OPENS: u32 = 3_000;
/// What the allocator and the threads' buffers may take more after the first tenth, in KiB.
const GROWTH_MOST_KIB: u64 = 1024;

#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    anonymous_kib: u64,
}

fn held(pid: u32) -> Held {
    let count = |folder: &str| fs::read_dir(format!("/proc/{pid}/{folder}")).expect("the daemon lives").count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon lives");
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.parse().ok());
    Held { descriptors: count("fd"), threads: count("task"), anonymous_kib: anonymous.expect("a number") }
}

/// The same once what is closed late is closed.
fn settled(pid: u32, descriptors: usize) -> Held {
    let begin = Instant::now();
    loop {
        let now = held(pid);
        if now.descriptors <= descriptors || begin.elapsed().as_secs() > 10 {
            return now;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

pub(super) fn opens_leave_nothing() {
    let opens = std::env::var("OFFSETFS_LOAD_OPENS").map_or(OPENS, |text| text.parse().expect("OFFSETFS_LOAD_OPENS is a number"));
    let (_folder, m) = fresh("segment.bytes=2000");
    m.sh("seq 300 > append");
    let pid = m.daemon.id();
    for path in [
        "by-offset/77",
        "by-offset/77.key",
        "by-offset/77.json",
        "by-offset/77.batch",
        "by-offset/last",
        "by-offset/-3",
        "by-offset/70..80",
        "by-offset/-5..jsonl",
        "by-offset/301",
        "by-time/1h-ago",
        "by-time/1h-ago..2m-ago",
        "by-time/nonsense",
        "decoded/active.txt",
        "decoded/active.jsonl",
        "segments/00000000000000000000.log",
        "segments/leader-epoch-checkpoint",
        "status",
        "status.json",
        "config",
        "metrics",
        "errors",
        "README",
        "append",
        "append.jsonl",
        "append.bin",
        "follow",
        "follow.jsonl",
        "by-offset",
        "segments",
    ] {
        let (full, begin) = (m.at(path), Instant::now());
        let is_directory = full.is_dir();
        let mut before = held(pid);
        for round in 0..opens {
            if round == opens / 10 {
                before = settled(pid, before.descriptors);
            }
            if path.starts_with("append") {
                drop(OpenOptions::new().append(true).open(&full).expect(path));
            } else if is_directory {
                fs::read_dir(&full).expect(path).next().expect("an entry").expect("an entry");
            } else if let Ok(mut file) = File::open(&full)
                && !path.starts_with("follow")
            {
                let _ = file.read(&mut [0; 64]).expect(path);
            }
        }
        let after = settled(pid, before.descriptors);
        println!("{path}: {before:?} -> {after:?}, {:.0} us each", begin.elapsed().as_secs_f64() * 1e6 / f64::from(opens));
        assert!(after.descriptors <= before.descriptors && after.threads <= before.threads, "{path}");
        assert!(after.anonymous_kib <= before.anonymous_kib + GROWTH_MOST_KIB, "{path}");
    }
}
