//! The few things that a process does to itself: leaving its terminal's session, giving its standard streams up.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;

/// Begins a session of its own, so that a terminal that closes does not end the process.
///
/// # Errors
/// What the system says; the leader of a process group cannot.
pub fn leave_session() -> io::Result<()> {
    // SAFETY: setsid takes no argument and touches no memory of ours.
    if unsafe { libc::setsid() } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
