//! Readers that wait can be ended: a hundred tries of each way.

use super::{fresh, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const TRIES: usize = 100;
/// So many readers wait at a time.
const TOGETHER: usize = 10;
/// The slowest may take so long on a busy machine; 200 ms are promised on one that is not.
const MOST: Duration = Duration::from_secs(3);

/// Prints how long it took, and demands the bound.
fn judge(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    let late = times.iter().filter(|time| **time > Duration::from_millis(200)).count();
    println!("{what}: {} tries, median {median:?}, slowest {most:?}, {late} over 200 ms", times.len());
    assert!(times.len() == TRIES && most < MOST, "{what}");
}

/// A process that waits in a read of `follow`: its wait channel or its state says so.
fn is_waiting(pid: u32) -> bool {
    let system_call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    // The number of read(2) on x86-64 and on arm64.
    system_call.starts_with("0 0x3 ") || system_call.starts_with("63 0x3 ")
}

fn until_waiting(children: &[Child]) {
    let begin = Instant::now();
    while !children.iter().all(|child| is_waiting(child.id())) {
        assert!(begin.elapsed() < Duration::from_secs(20), "they do not come to read");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn a_reader_of_follow_can_be_ended() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("echo x > append");
    let start = || {
        // A shell that starts the tests in its background lets them, and whom they start, ignore Ctrl-C; nohup the end of a terminal.
        let mut cat = Command::new("env");
        cat.args(["--default-signal=INT,HUP,TERM", "cat"]).arg(m.at("follow")).stdout(Stdio::null()).spawn().expect("cat can be started")
    };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        let mut times = Vec::new();
        while times.len() < TRIES {
            let mut children: Vec<Child> = (0..TOGETHER).map(|_| start()).collect();
            until_waiting(&children);
            for child in &mut children {
                kill_process(Pid::from_child(child), signal).expect("it waits");
                times.push(wait_for("a reader", child));
            }
        }
        judge(&format!("cat follow, {signal:?}"), times);
    }
    let mut times = Vec::new();
    while times.len() < TRIES {
        let begin = Instant::now();
        let limited = |_| Command::new("timeout").args(["1", "cat"]).arg(m.at("follow")).spawn().expect("timeout can be started");
        let mut children: Vec<Child> = (0..TOGETHER).map(limited).collect();
        for child in &mut children {
            wait_for("timeout", child);
            times.push(begin.elapsed().saturating_sub(Duration::from_secs(1)));
        }
    }
    judge("timeout 1 cat follow", times);
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The process that reads `follow` under a shell: the shell itself after `exec`, or its child.
fn reader_under(shell: u32) -> Option<u32> {
    let is_reader = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with("follow\0"));
    children(shell).into_iter().chain([shell]).find(is_reader)
}

pub(super) fn head_ends_with_its_line() {
    let (_folder, m) = fresh("tz=UTC");
    let mut append = OpenOptions::new().append(true).open(m.at("append")).expect("append can be opened");
    for script in ["exec head -n 1 follow", "cat follow | head -n 1"] {
        let mut times = Vec::new();
        while times.len() < TRIES {
            let mut shell = Command::new("bash");
            let mut shell = shell.args(["-c", script]).current_dir(m.at("")).stdout(Stdio::null()).spawn().expect("bash can be started");
            let begin = Instant::now();
            let reader = loop {
                assert!(begin.elapsed() < Duration::from_secs(20), "{script} does not come to read");
                match reader_under(shell.id()) {
                    Some(pid) if is_waiting(pid) => break pid,
                    _ => thread::sleep(Duration::from_millis(1)),
                }
            };
            let mut say = || append.write_all(b"x\n").expect("a line is taken");
            say();
            let mut took = Duration::ZERO;
            if reader != shell.id() {
                // Under a pipe the line ends head; cat meets the closed pipe at its next one.
                let begin = Instant::now();
                while children(shell.id()).len() > 1 {
                    assert!(begin.elapsed() < MOST, "{script}: head does not end");
                    thread::sleep(Duration::from_millis(1));
                }
                took = begin.elapsed();
                say();
            }
            times.push(took.max(wait_for(script, &mut shell)));
        }
        judge(script, times);
    }
}
