//! The signals that end a mount: blocked in every thread, taken by one.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// INT, TERM and HUP; blocked by [`block`] and taken by [`Signals::wait`]. SIGBUS is not among them: a fault in a map needs its handler.
pub(super) struct Signals {
    set: MaybeUninit<libc::sigset_t>,
}

/// Blocks the signals in this thread and in all threads that it starts from now on.
///
/// # Errors
/// What the system says.
pub(super) fn block() -> io::Result<Signals> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is valid for writing, and the call initialises it.
    check(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the set was initialised above.
        check(unsafe { libc::sigaddset(set.as_mut_ptr(), signal) })?;
    }
    // SAFETY: the set was initialised above, and the old mask may be left out.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) } {
        0 => Ok(Signals { set }),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Signals {
    /// Waits for one of the signals and takes it.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn wait(&self) -> io::Result<libc::c_int> {
        let mut signal = 0;
        // SAFETY: the set is initialised since `block`, and the number is valid for writing.
        match unsafe { libc::sigwait(self.set.as_ptr(), &raw mut signal) } {
            0 => Ok(signal),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// A thread that can be woken from [`Signals::wait`].
#[derive(Clone, Copy)]
pub(super) struct Waiter(libc::pthread_t);

impl Waiter {
    /// This thread. It must not end before the last [`Waiter::wake`].
    pub(super) fn this_thread() -> Waiter {
        // SAFETY: the call has no conditions.
        Waiter(unsafe { libc::pthread_self() })
    }

    /// Sends one of the signals to the thread alone. Why it is woken has to stand somewhere else.
    pub(super) fn wake(self) {
        // SAFETY: the thread lives, as `this_thread` asks, and blocks the signal, so that it interrupts nothing.
        unsafe { libc::pthread_kill(self.0, libc::SIGTERM) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_thread_is_woken_by_another_and_the_signal_kills_nobody() {
        let signals = block().unwrap();
        let waiter = Waiter::this_thread();
        let other = thread::spawn(move || waiter.wake());
        assert_eq!(signals.wait().unwrap(), libc::SIGTERM);
        other.join().unwrap();
    }
}
