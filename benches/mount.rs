//! The mount next to the null file system, in one run: what a request costs that cannot be avoided, and what we add.
//!
//! ```text
//! cargo bench --bench mount                       all rows, 5 rounds
//! cargo bench --bench mount -- ROUNDS [ROW...]    some rows: cold reread write write128 range segment
//! OFFSETFS_BENCH_RECORDS=1000000                  how long the log is
//! ```
//! Needs root, `/dev/fuse`, `taskset`. Daemon and client are pinned to one CPU: placement alone changes FUSE latency up to seven times. Both
//! sides of a ratio are measured in the same round, warm, with page-aligned buffers; the median of the rounds is printed with both ends.
//! A row holds if its time is at most 1.15 times (the null file system's time for the same requests + the time of the same work in process).

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags,
    ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, SessionACL, WriteFlags,
};
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::source::NewRecord;
use offsetfs::source::local::{Local, Options};
use offsetfs::types::{Patience, TimestampMs};
use offsetfs::view::{self, Node, View, time::Zone};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

const CPU: &str = "0";
const VALUE_BYTES: usize = 100;
const ALIGN: usize = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.first().map(String::as_str) {
        Some("null") => null_file_system(Path::new(&arguments[1]), Path::new(&arguments[2])),
        Some("client") => println!("{}", client(&arguments[1], &arguments[2..])),
        _ => table(&arguments),
    }
}

// ---- the null file system ------------------------------------------------------------------------------------------------------------

/// Answers each request with the least work that gives a correct answer. `by-offset/N` has 100 bytes for every N, `append` takes and drops, `range`
/// has the bytes of the real range, `segment` those of the real segment, answered by a handler.
struct Null {
    real: File,
    len: u64,
}

const ROOT: u64 = 1;
const BY_OFFSET: u64 = 2;
const APPEND: u64 = 3;
const RANGE: u64 = 4;
const RECORDS: u64 = 1 << 62;
const TTL: Duration = Duration::from_secs(10);
static VALUE: [u8; VALUE_BYTES] = [b'x'; VALUE_BYTES];

impl Null {
    fn attr(&self, ino: u64) -> FileAttr {
        let (kind, size) = match ino {
            ROOT | BY_OFFSET => (FileType::Directory, 0),
            APPEND => (FileType::RegularFile, 0),
            RANGE => (FileType::RegularFile, 0),
            _ => (FileType::RegularFile, VALUE_BYTES as u64),
        };
        let zero = UNIX_EPOCH;
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: 1,
            atime: zero,
            mtime: zero,
            ctime: zero,
            crtime: zero,
            kind,
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Null {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = match (parent.0, name.as_bytes()) {
            (ROOT, b"by-offset") => BY_OFFSET,
            (ROOT, b"append") => APPEND,
            (ROOT, b"range") => RANGE,
            (BY_OFFSET, name) => match std::str::from_utf8(name).ok().and_then(|n| n.parse::<u64>().ok()) {
                Some(n) => RECORDS + n,
                None => return reply.error(Errno::ENOENT),
            },
            _ => return reply.error(Errno::ENOENT),
        };
        reply.entry(&TTL, &self.attr(ino), Generation(0));
    }
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino.0));
    }
    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = match ino.0 {
            APPEND | RANGE => FopenFlags::FOPEN_DIRECT_IO,
            _ => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
        };
        reply.opened(FileHandle(0), flags);
    }
    fn read(&self, _: &Request, ino: INodeNo, _: FileHandle, at: u64, size: u32, _: OpenFlags, _: Option<LockOwner>, reply: ReplyData) {
        if ino.0 == RANGE {
            let mut buffer = aligned(size as usize);
            let n = self.real.read_at(buffer.get_mut(), at.min(self.len)).unwrap_or(0);
            return reply.data(&buffer.get()[..n]);
        }
        let from = (at as usize).min(VALUE_BYTES);
        reply.data(&VALUE[from..]);
    }
    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(data.len() as u32);
    }
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

fn null_file_system(mountpoint: &Path, real: &Path) {
    let real = File::open(real).expect("the real range");
    let len = real.metadata().expect("its length").len();
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("null".to_owned())];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(2);
    config.clone_fd = true;
    let session = fuser::spawn_mount(Null { real, len }, mountpoint, &config).expect("the null file system mounts");
    println!("ready");
    // It ends when somebody unmounts it.
    session.join().expect("the session ends");
}

// ---- buffers that begin at a page ------------------------------------------------------------------------------------------------------

struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    fn get(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.len]
    }
    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}

fn aligned(len: usize) -> Aligned {
    let bytes = vec![1; len + ALIGN];
    let from = bytes.as_ptr().align_offset(ALIGN);
    Aligned { bytes, from, len }
}

// ---- the client, in a process of its own so that it can be pinned ------------------------------------------------------------------------

/// Runs one figure; nanoseconds an operation, or a byte.
fn client(figure: &str, rest: &[String]) -> f64 {
    let path = PathBuf::from(&rest[0]);
    let number = |i: usize| rest[i].parse::<u64>().expect("a number");
    match figure {
        // DIR COUNT RECORDS SEED: a fresh name each time.
        "cold" => {
            let (count, records) = (number(1), number(2));
            let mut random = Random(number(3) | 1);
            let names: Vec<PathBuf> = (0..count).map(|_| path.join((random.next() % records).to_string())).collect();
            let mut buffer = [0; VALUE_BYTES];
            let begin = Instant::now();
            for name in &names {
                let mut file = File::open(name).expect("a record");
                assert_eq!(file.read(&mut buffer).expect("its value"), VALUE_BYTES);
            }
            begin.elapsed().as_nanos() as f64 / count as f64
        }
        // FILE COUNT: the same name each time.
        "reread" => {
            let mut buffer = [0; VALUE_BYTES];
            let begin = Instant::now();
            for _ in 0..number(1) {
                let mut file = File::open(&path).expect("a record");
                assert_eq!(file.read(&mut buffer).expect("its value"), VALUE_BYTES);
            }
            begin.elapsed().as_nanos() as f64 / number(1) as f64
        }
        // FILE COUNT BYTES: lines of 100 bytes, BYTES in a write.
        "write" => {
            let mut buffer = aligned(number(2) as usize);
            for line in buffer.get_mut().chunks_mut(VALUE_BYTES) {
                line.fill(b'a');
                if let Some(last) = line.last_mut() {
                    *last = b'\n';
                }
            }
            let mut file = OpenOptions::new().append(true).open(&path).expect("append");
            let begin = Instant::now();
            for _ in 0..number(1) {
                file.write_all(buffer.get()).expect("written");
            }
            begin.elapsed().as_nanos() as f64 / number(1) as f64
        }
        // FILE BYTES: from start to end in pieces; a byte.
        "sequential" => {
            let mut buffer = aligned(number(1) as usize);
            let mut file = File::open(&path).expect("a file");
            let (begin, mut total) = (Instant::now(), 0);
            loop {
                match file.read(buffer.get_mut()).expect("bytes") {
                    0 => break,
                    n => total += n,
                }
            }
            begin.elapsed().as_nanos() as f64 / total as f64
        }
        _ => panic!("no figure {figure}"),
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn ask(figure: &str, arguments: &[&dyn std::fmt::Display]) -> f64 {
    let program = std::env::current_exe().expect("this program");
    let arguments = arguments.iter().map(|a| a.to_string());
    let output =
        Command::new("taskset").args(["-c", CPU]).arg(program).args(["client", figure]).args(arguments).output().expect("the client runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a figure")
}

// ---- the table -------------------------------------------------------------------------------------------------------------------------

struct Mounted {
    daemon: Child,
    point: PathBuf,
}

impl Mounted {
    fn new(mut command: Command, point: &Path) -> Mounted {
        let daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a daemon");
        let mounted = Mounted { daemon, point: point.to_owned() };
        let end = Instant::now() + Duration::from_secs(60);
        while !fs::read_to_string("/proc/self/mountinfo").expect("mountinfo").contains(point.to_str().expect("text")) {
            assert!(Instant::now() < end, "no mount");
            std::thread::sleep(Duration::from_millis(5));
        }
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        let _ = self.daemon.wait();
    }
}

/// Both sides of a row, round by round.
#[derive(Default)]
struct Row {
    what: &'static str,
    unit: &'static str,
    ours: Vec<f64>,
    null: Vec<f64>,
    in_process: Vec<f64>,
    bound: f64,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Row {
    fn print(&self) {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.null).zip(&self.in_process).map(|((o, n), p)| o / (n + p)).collect();
        let ends = ratios.iter().fold((f64::MAX, 0f64), |(low, high), r| (low.min(*r), high.max(*r)));
        let middle = median(&ratios);
        let held = if middle <= self.bound { "held" } else { "NOT held" };
        println!(
            "{:34} {:>10.2} {:>10.2} {:>10.2} {:6} {:>7.3} ({:.3} - {:.3})  <= {:.2} {held}",
            self.what,
            median(&self.ours),
            median(&self.null),
            median(&self.in_process),
            self.unit,
            middle,
            ends.0,
            ends.1,
            self.bound
        );
    }
}

fn table(arguments: &[String]) {
    let rounds: usize = arguments.first().and_then(|a| a.parse().ok()).unwrap_or(5);
    let wanted: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    let wants = |row: &str| wanted.is_empty() || wanted.contains(&row);
    let records: u64 = std::env::var("OFFSETFS_BENCH_RECORDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let folder = std::env::temp_dir().join(format!("offsetfs-bench-{}", std::process::id()));
    let (source, fresh) = (folder.join("bench-0"), folder.join("fresh-0"));
    let (ours, null) = (folder.join("ours"), folder.join("null"));
    for dir in [&folder, &ours, &null] {
        fs::create_dir_all(dir).expect("a folder");
    }
    eprintln!("{records} records of {VALUE_BYTES} bytes, {rounds} rounds, CPU {CPU}; times are medians");
    fill(&source, records);
    let view = open(&source, false);
    let range = folder.join("range");
    copy_range(&view, &range);
    let program = std::env::current_exe().expect("this program");
    let mut rows: Vec<Row> = Vec::new();
    let mut note = |what: &'static str, unit: &'static str, bound: f64, values: (f64, f64, f64)| {
        let at = rows.iter().position(|r| r.what == what).unwrap_or_else(|| {
            rows.push(Row { what, unit, bound, ..Row::default() });
            rows.len() - 1
        });
        rows[at].ours.push(values.0);
        rows[at].null.push(values.1);
        rows[at].in_process.push(values.2);
    };
    for round in 0..rounds {
        let seed = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(round as u64 + 1);
        let _ = fs::remove_dir_all(&fresh);
        let mount = |source: &Path, options: &str| {
            let mut command = Command::new("taskset");
            command
                .args(["-c", CPU, env!("CARGO_BIN_EXE_offsetfs"), "mount", "-f", "--create"])
                .arg(source)
                .arg(&ours)
                .args(["-o", options]);
            Mounted::new(command, &ours)
        };
        let nothing = || {
            let mut command = Command::new("taskset");
            command.args(["-c", CPU]).arg(&program).arg("null").arg(&null).arg(&range);
            Mounted::new(command, &null)
        };
        {
            let _ours = mount(&source, "tz=UTC");
            let _null = nothing();
            let count = 20_000u64;
            if wants("cold") {
                let theirs = ask("cold", &[&null.join("by-offset").display(), &count, &records, &seed]);
                // A first pass touches the batches, so that CRCs are checked: the row is about the mount.
                ask("cold", &[&ours.join("by-offset").display(), &count, &records, &seed]);
                let seed = seed ^ 0x5555;
                let mine = ask("cold", &[&ours.join("by-offset").display(), &count, &records, &seed]);
                note("cold open+read+close by-offset/N", "ns", 1.15, (mine, theirs, look_ups(&view, count, records, seed)));
            }
            if wants("reread") {
                let theirs = ask("reread", &[&null.join("by-offset/77").display(), &count]);
                let mine = ask("reread", &[&ours.join("by-offset/77").display(), &count]);
                note("the same name again", "ns", 1.15, (mine, theirs, 0.0));
            }
            if wants("range") {
                let piece = 128 << 10;
                let theirs = ask("sequential", &[&null.join("range").display(), &piece]);
                let mine = ask("sequential", &[&ours.join("by-offset/earliest..").display(), &piece]);
                note("range of all values", "ns/B", 1.15, (mine, theirs, time_range(&view)));
            }
            if wants("segment") {
                let segment = "00000000000000000000.log";
                let native = ask("sequential", &[&source.join(segment).display(), &(1 << 20)]);
                let mine = ask("sequential", &[&ours.join("segments").join(segment).display(), &(1 << 20)]);
                note("segments/*.log (null = native)", "ns/B", 1.0 / 0.95, (mine, native, 0.0));
            }
        }
        if wants("write") || wants("write128") {
            let _ours = mount(&fresh, "tz=UTC");
            let _null = nothing();
            for (row, what, bytes, count) in
                [("write", "write of one 100-byte line", 100u64, 20_000u64), ("write128", "write of 128 KiB of lines", 131_000, 1_000)]
            {
                if wants(row) {
                    let theirs = ask("write", &[&null.join("append").display(), &count, &bytes]);
                    let mine = ask("write", &[&ours.join("append").display(), &count, &bytes]);
                    note(what, "ns", 1.15, (mine, theirs, appends(&folder.join("inside-0"), count, bytes)));
                }
            }
        }
    }
    println!("{:34} {:>10} {:>10} {:>10} {:6} {:>7}", "figure", "ours", "null", "in process", "", "ratio");
    for row in &rows {
        row.print();
    }
    drop(view);
    let _ = fs::remove_dir_all(&folder);
}

fn open(source: &Path, create: bool) -> View {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let wish = if create { offsetfs::source::access::Wish::Writable } else { offsetfs::source::access::Wish::ReadOnly };
    let local = Local::open(&fs, source, Options { create, wish, ..Options::default() }).expect("a partition");
    View::new(Arc::new(local), view::Options { zone: Zone::utc(), ..view::Options::default() })
}

/// Appends `records` values of 100 bytes, in batches as a producer sends them.
fn fill(source: &Path, records: u64) {
    let view = open(source, true);
    let value = [b'x'; VALUE_BYTES];
    let record = NewRecord { timestamp: TimestampMs::new(1_700_000_000_000), key: None, value: Some(&value), headers: &[] };
    let mut left = records;
    while left > 0 {
        let count = left.min(100_000);
        let (sender, receiver) = std::sync::mpsc::channel();
        let done = Box::new(move |result| sender.send(result).expect("somebody waits"));
        view.source().append(&mut (0..count).map(|_| record), false, done).expect("accepted");
        receiver.recv().expect("an answer").expect("appended");
        left -= count;
    }
    view.close().expect("closed");
}

fn copy_range(view: &View, to: &Path) {
    let node = view.resolve(b"by-offset/earliest..", Patience::MayBlock).expect("a range");
    let reader = view.open(&node, Patience::MayBlock).expect("opened");
    let mut file = File::create(to).expect("a copy");
    let (mut piece, mut at) = (vec![0; 1 << 20], 0);
    loop {
        match reader.read(at, &mut piece, Patience::MayBlock).expect("bytes") {
            0 => break,
            n => file.write_all(&piece[..n]).expect("written"),
        }
        at = file.metadata().expect("length").len();
    }
}

/// The same work in process: what LOOKUP and READ ask of the view.
fn look_ups(view: &View, count: u64, records: u64, seed: u64) -> f64 {
    let offsets = |seed: u64| {
        let mut random = Random(seed | 1);
        (0..count).map(move |_| random.next() % records)
    };
    let names: Vec<String> = offsets(seed).map(|n| n.to_string()).collect();
    let mut buffer = [0; VALUE_BYTES];
    let mut run = || {
        let begin = Instant::now();
        for name in &names {
            let node = view.lookup(&Node::ByOffset, name.as_bytes(), Patience::MayBlock).expect("a record");
            black_box(view.attr(&node, Patience::MayBlock).expect("its attributes"));
            if let Node::Record(offset, face) = node {
                assert_eq!(view.read_record(offset, face, 0, &mut buffer, Patience::MayBlock).expect("its value"), VALUE_BYTES);
            }
        }
        begin.elapsed().as_nanos() as f64 / count as f64
    };
    run();
    run()
}

fn time_range(view: &View) -> f64 {
    let node = view.resolve(b"by-offset/earliest..", Patience::MayBlock).expect("a range");
    let mut piece = aligned(128 << 10);
    let mut run = || {
        let reader = view.open(&node, Patience::MayBlock).expect("opened");
        let (begin, mut at) = (Instant::now(), 0u64);
        loop {
            match reader.read(at, piece.get_mut(), Patience::MayBlock).expect("bytes") {
                0 => return begin.elapsed().as_nanos() as f64 / at as f64,
                n => at += n as u64,
            }
        }
    };
    run();
    run()
}

fn appends(source: &Path, count: u64, bytes: u64) -> f64 {
    let _ = fs::remove_dir_all(source);
    let view = open(source, true);
    let appender = view.appender(offsetfs::view::Framing::Lines).expect("an appender");
    let line: Vec<u8> = [vec![b'a'; VALUE_BYTES - 1], vec![b'\n']].concat();
    let data = line.repeat((bytes as usize).div_ceil(VALUE_BYTES));
    let data = &data[..bytes as usize];
    let write = || {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        appender.write(data, false, Box::new(move |result| sender.send(result).expect("somebody waits")));
        receiver.recv().expect("an answer").expect("appended");
    };
    write();
    let begin = Instant::now();
    for _ in 0..count {
        write();
    }
    let elapsed = begin.elapsed().as_nanos() as f64 / count as f64;
    view.close().expect("closed");
    elapsed
}
