//! Readers that wait can be ended: a hundred tries of each way.

use super::{fresh, wait_for};
use rustix::process::{Pid, Signal, kill_process};
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
fn is_waiting(child: &Child) -> bool {
    let system_call = std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap_or_default();
    // The number of read(2) on x86-64 and on arm64.
    system_call.starts_with("0 0x3 ") || system_call.starts_with("63 0x3 ")
}

fn until_waiting(children: &[Child]) {
    let begin = Instant::now();
    while !children.iter().all(is_waiting) {
        assert!(begin.elapsed() < Duration::from_secs(20), "they do not come to read");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn a_reader_of_follow_can_be_ended() {
    let (_folder, m) = fresh("tz=UTC");
    m.sh("echo x > append");
    let start = || {
        let mut cat = Command::new("cat");
        cat.arg(m.at("follow")).stdout(Stdio::null()).spawn().expect("cat can be started")
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

pub(super) fn head_ends_with_its_line() {
    let (_folder, m) = fresh("tz=UTC");
    for script in ["exec head -n 1 follow", "cat follow | head -n 1"] {
        let mut times = Vec::new();
        while times.len() < TRIES {
            let mut heads: Vec<Child> = Vec::new();
            for _ in 0..TOGETHER {
                let mut head = Command::new("bash");
                let head = head.args(["-c", script]).current_dir(m.at("")).stdout(Stdio::null());
                heads.push(head.spawn().expect("bash can be started"));
            }
            // A record for the line, and one more for cat to meet the closed pipe; those who open late get the next ones.
            let begin = Instant::now();
            let mut left = heads;
            while !left.is_empty() {
                m.sh("echo x > append");
                let before = left.len();
                left.retain_mut(|head| head.try_wait().expect("the child").is_none());
                times.extend((left.len()..before).map(|_| begin.elapsed()));
                assert!(begin.elapsed() < Duration::from_secs(30), "{script}");
            }
        }
        judge(script, times);
    }
}
