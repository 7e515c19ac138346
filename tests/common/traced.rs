//! The system calls of a running process, as strace tells them.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs `work` while strace looks at a process; gives strace's lines.
///
/// # Panics
/// Where strace is missing or may not attach.
pub(crate) fn traced(pid: u32, arguments: &[&str], work: impl FnOnce()) -> Vec<String> {
    let out = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(out.path()).args(arguments).args(["-p", &pid.to_string()]);
    let mut strace = strace.stdin(Stdio::null()).stderr(Stdio::inherit()).spawn().expect("strace is installed");
    let begin = Instant::now();
    let is_traced = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
        status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
    };
    while !is_traced() {
        assert!(begin.elapsed() < Duration::from_secs(20), "strace does not attach");
        thread::sleep(Duration::from_millis(5));
    }
    work();
    let id = rustix::process::Pid::from_child(&strace);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("strace runs");
    strace.wait().expect("strace ends");
    fs::read_to_string(out.path()).expect("strace wrote").lines().map(str::to_owned).collect()
}
