//! What uses a mount: a process of its own, so that it can be pinned. Each figure prints its value, and what was done.

use crate::places::Random;
use crate::table::{Side, Work};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The CPU that daemon and client share.
pub(crate) const CPU: &str = "0";
/// The size of a value behind the mount.
pub(crate) const VALUE_BYTES: usize = 100;
const PAGE: usize = 4096;

/// Bytes that begin at a page.
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.len]
    }

    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}

pub(crate) fn aligned(len: usize) -> Aligned {
    let bytes = vec![1; len + PAGE];
    let from = bytes.as_ptr().align_offset(PAGE);
    Aligned { bytes, from, len }
}

/// Runs one figure: nanoseconds an operation, or a byte.
pub(crate) fn run(figure: &str, rest: &[String]) {
    let path = PathBuf::from(&rest[0]);
    let number = |i: usize| rest[i].parse::<u64>().expect("a number");
    let mut work = Work::default();
    let mut buffer = [0; VALUE_BYTES];
    let mut read_record = |path: &Path, work: &mut Work| {
        let mut file = File::open(path).expect("a record");
        let n = file.read(&mut buffer).expect("its value");
        *work = Work::new(work.count + 1, work.bytes + n as u64, work.sum.wrapping_add(u64::from(buffer[n - 1])));
    };
    let value = match figure {
        // DIR COUNT RECORDS SEED: a fresh name each time.
        "cold" => {
            let (count, records) = (number(1), number(2));
            let mut random = Random(number(3) | 1);
            let names: Vec<PathBuf> = (0..count).map(|_| path.join((random.next() % records).to_string())).collect();
            let begin = Instant::now();
            names.iter().for_each(|name| read_record(name, &mut work));
            begin.elapsed().as_nanos() as f64 / count as f64
        }
        // FILE COUNT: the same name each time.
        "again" => {
            let begin = Instant::now();
            (0..number(1)).for_each(|_| read_record(&path, &mut work));
            begin.elapsed().as_nanos() as f64 / number(1) as f64
        }
        // FILE COUNT BYTES SYNC: lines of 100 bytes, BYTES in a write, with an fsync behind each if SYNC is 1, an fdatasync if it is 2.
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
                match number(3) {
                    0 => {}
                    1 => file.sync_all().expect("synced"),
                    _ => file.sync_data().expect("synced"),
                }
                work = Work::new(work.count + 1, work.bytes + number(2), 0);
            }
            begin.elapsed().as_nanos() as f64 / number(1) as f64
        }
        // FILE COUNT: how long each append of a line takes: the middle, 99 of 100, the slowest.
        "latencies" => {
            let line = [vec![b'a'; VALUE_BYTES - 1], vec![b'\n']].concat();
            let mut file = OpenOptions::new().append(true).open(&path).expect("append");
            let mut times: Vec<u128> = (0..number(1))
                .map(|_| {
                    let begin = Instant::now();
                    file.write_all(&line).expect("written");
                    begin.elapsed().as_nanos()
                })
                .collect();
            times.sort_unstable();
            return println!("{} {} {}", times[times.len() / 2], times[times.len() * 99 / 100], times[times.len() - 1]);
        }
        // FILE PIECE: from start to end; summed in a pass that is not timed.
        "sequential" => {
            let mut buffer = aligned(number(1) as usize);
            let mut pass = |sums: bool| {
                let mut file = File::open(&path).expect("a file");
                let (begin, mut bytes, mut sum) = (Instant::now(), 0u64, 0u32);
                loop {
                    match file.read(buffer.get_mut()).expect("bytes") {
                        0 => break,
                        n => {
                            bytes += n as u64;
                            if sums {
                                sum = crc32c::crc32c_append(sum, &buffer.get()[..n]);
                            }
                        }
                    }
                }
                (begin.elapsed().as_nanos() as f64 / bytes as f64, bytes, sum)
            };
            let sum = pass(true).2;
            let (value, bytes, _) = pass(false);
            work = Work::new(1, bytes, u64::from(sum));
            value
        }
        // DIR COUNT: a stat of each of the first COUNT records.
        "stat" => {
            let begin = Instant::now();
            for n in 0..number(1) {
                work.bytes += fs::metadata(path.join(n.to_string())).expect("a record").len();
                work.count += 1;
            }
            begin.elapsed().as_nanos() as f64 / number(1) as f64
        }
        // DIR MOST: names in a second; the first MOST.
        "list" => {
            let begin = Instant::now();
            for entry in fs::read_dir(&path).expect("a directory").take(number(1) as usize) {
                work.bytes += entry.expect("an entry").file_name().len() as u64;
                work.count += 1;
            }
            begin.elapsed().as_secs_f64()
        }
        _ => panic!("no figure {figure}"),
    };
    println!("{value} {} {} {}", work.count, work.bytes, work.sum);
}

/// This program as a client, on any CPU.
pub(crate) fn client(figure: &str, arguments: &[&dyn std::fmt::Display]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["client", figure]).args(arguments.iter().map(|a| a.to_string()));
    command
}

fn numbers<T: std::str::FromStr>(command: &mut Command) -> Vec<T> {
    let output = command.output().expect("the client runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    said.split_whitespace().map(|word| word.parse().ok().expect("a number")).collect()
}

/// Asks a client, pinned beside the daemon.
pub(crate) fn ask(figure: &str, arguments: &[&dyn std::fmt::Display]) -> Side {
    ask_where(true, figure, arguments)
}

/// Asks a client, pinned or wherever the system puts it.
pub(crate) fn ask_where(pinned: bool, figure: &str, arguments: &[&dyn std::fmt::Display]) -> Side {
    let plain = client(figure, arguments);
    let mut command = Mounted::runner(pinned);
    command.arg(plain.get_program()).args(plain.get_args());
    let said: Vec<String> = numbers(&mut command);
    let whole = |i: usize| said[i].parse().expect("a number");
    Side { value: said[0].parse().expect("a figure"), work: Work::new(whole(1), whole(2), whole(3)) }
}

/// Nanoseconds an append of a line takes on any CPU: the middle one, what 99 of 100 stay below, the slowest.
pub(crate) fn latencies(append: &str, count: u64) -> [f64; 3] {
    numbers(&mut client("latencies", &[&append, &count])).try_into().expect("three numbers")
}

/// A mount that is served by a child.
pub(crate) struct Mounted {
    pub(crate) daemon: Child,
    point: PathBuf,
    /// From the start of the child to the mount.
    pub(crate) took: Duration,
}

impl Mounted {
    pub(crate) fn start(mut command: Command, point: &Path) -> Mounted {
        let begin = Instant::now();
        let daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a daemon");
        while !fs::read_to_string("/proc/self/mountinfo").expect("mountinfo").contains(point.to_str().expect("text")) {
            assert!(begin.elapsed() < Duration::from_secs(120), "no mount");
            std::thread::sleep(Duration::from_micros(500));
        }
        Mounted { daemon, point: point.to_owned(), took: begin.elapsed() }
    }

    /// Ours, of a source; `pinned` or wherever the system puts it.
    pub(crate) fn ours(source: &Path, point: &Path, options: &str, pinned: bool) -> Mounted {
        Mounted::ours_under(Mounted::runner(pinned), source, point, options)
    }

    /// What starts a command on the CPU that daemon and client share, or anywhere.
    pub(crate) fn runner(pinned: bool) -> Command {
        let mut runner = Command::new(if pinned { "taskset" } else { "env" });
        if pinned {
            runner.args(["-c", CPU]);
        }
        runner
    }

    /// Ours, started by another program that takes a command behind its own arguments.
    pub(crate) fn ours_under(mut runner: Command, source: &Path, point: &Path, options: &str) -> Mounted {
        fs::create_dir_all(point).expect("a mount point");
        runner.args([env!("CARGO_BIN_EXE_offsetfs"), "mount", "-f", "--create"]).arg(source).arg(point).args(["-o", options]);
        Mounted::start(runner, point)
    }

    /// The null file system over real files in a folder.
    pub(crate) fn null(folder: &Path, point: &Path) -> Mounted {
        fs::create_dir_all(point).expect("a mount point");
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new("taskset");
        command.args(["-c", CPU]).arg(program).arg("null").arg(point).arg(folder);
        Mounted::start(command, point)
    }

    /// What the daemon holds beside pages of files, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        resident_kib(&format!("/proc/{}/status", self.daemon.id()))
    }
}

pub(crate) fn resident_kib(status: &str) -> u64 {
    let text = fs::read_to_string(status).expect("the process lives");
    text.lines().find_map(|l| l.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.parse().ok()).expect("a number")
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        let _ = self.daemon.wait();
    }
}
