//! The few things that a process does to itself: leaving its terminal's session, giving its standard streams up.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Begins a session of its own, so that a terminal that closes does not end the process.
///
/// # Errors
/// What the system says; the leader of a process group cannot.
pub fn leave_session() -> io::Result<()> {
    // SAFETY: setsid takes no argument and touches no memory of ours.
    if unsafe { libc::setsid() } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits until nobody can read any more what is written to standard output, as where the other end of a pipe was closed; `false` where that
/// does not happen within `timeout` (whole milliseconds of it), or where a signal comes first.
pub fn wait_for_hangup(timeout: Duration) -> bool {
    let mut output = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    let timeout_ms = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the structure lives through the call, which is told that there is one of it, and writes only into it.
    let ready = unsafe { libc::poll(&raw mut output, 1, timeout_ms) };
    ready > 0 && output.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0
}

/// Puts `/dev/null` in the place of standard input, output and error.
///
/// # Errors
/// What the system says.
pub fn silence() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for stream in 0..=2 {
        // SAFETY: both numbers are open descriptors; whoever uses the standard streams afterwards finds /dev/null there.
        if unsafe { libc::dup2(null.as_raw_fd(), stream) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Makes the allocator give large blocks back to the system as soon as they are free. glibc's would keep tens of MiB for each thread that once decoded
/// a large batch. Other C libraries do so anyway.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    {
        /// From here on, in bytes, a block is a map of its own.
        const LARGE: libc::c_int = 1 << 20;
        // SAFETY: mallopt takes numbers and may be called at any time; what it refuses stays as it was.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
        }
    }
}
