//! What keeps a shortened file from killing the process: a handler for SIGBUS that knows the ranges of our own maps.
//!
//! Reading a mapped page that lies beyond the end of its file raises SIGBUS, and another process may shorten a file at any time.
//! The handler covers the rest of that map with zero pages, marks the map broken and lets the reader go on; the reader finds the
//! mark before it uses what it read. A SIGBUS anywhere else is none of our business and ends as it would have ended without us.
//!
//! This is not the map itself: [`Map`](super::Map) is, and it holds a [`Registration`] for as long as it is mapped.

use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// How many maps can be guarded at a time. The kernel's default for `vm.max_map_count` is 65530, so its own limit comes first.
const CAPACITY: usize = 65_536;

/// A guarded range. The handler reads it without a lock: `sequence` is odd while the other members change, and grows with every
/// change, so a reader that finds the same even number before and after has read members that belong together.
struct Slot {
    sequence: AtomicUsize,
    /// The first address; 0 in a free slot.
    start: AtomicUsize,
    /// The address behind the last page.
    end: AtomicUsize,
    /// Whether the pages may be stored to.
    writable: AtomicBool,
    broken: AtomicBool,
}

impl Slot {
    const fn free() -> Slot {
        Slot {
            sequence: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            writable: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    /// Changes the slot. Only one thread at a time does: the one that owns the slot.
    fn set(&self, pages: Range<usize>, writable: bool) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(pages.start, Ordering::Relaxed);
        self.end.store(pages.end, Ordering::Relaxed);
        self.writable.store(writable, Ordering::Relaxed);
        self.broken.store(false, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// The range and whether it is writable, where the slot is taken and not being changed. A thread that faults in a map keeps
    /// that map alive, so the slot it looks for never changes meanwhile; those that do are some other map's.
    fn get(&self) -> Option<(Range<usize>, bool)> {
        let before = self.sequence.load(Ordering::Acquire);
        let pages = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        let writable = self.writable.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let stable = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        (stable && pages.start != 0).then_some((pages, writable))
    }
}

static SLOTS: [Slot; CAPACITY] = [const { Slot::free() }; CAPACITY];
/// Slots from here on were never used; the handler need not look at them.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
/// Slots below [`SLOTS_USED`] that are free again. The handler does not touch it.
static SLOTS_FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The size of a page in bytes; 0 until the handler is installed.
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(0);
/// What SIGBUS did before us.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static INSTALLED: Mutex<bool> = Mutex::new(false);

/// The size of a page in bytes.
pub(super) fn page_size() -> usize {
    match PAGE_SIZE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf takes a number and touches no memory of ours.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let size = usize::try_from(size).unwrap_or(4096);
            PAGE_SIZE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}

/// A range of addresses that the handler knows. Dropping it makes the handler forget the range; that has to happen before the
/// range is unmapped, and no thread may be reading it then.
#[derive(Debug)]
pub(super) struct Registration {
    slot: usize,
}

impl Registration {
    /// Guards a mapped range that begins at a page. The handler is installed at the first call.
    ///
    /// # Errors
    /// ENOMEM where no slot is free; what `sigaction` says.
    pub(super) fn new(start: usize, len: usize, writable: bool) -> io::Result<Registration> {
        install()?;
        let slot = {
            let mut free = SLOTS_FREE.lock();
            match free.pop() {
                Some(slot) => slot,
                None => {
                    let used = SLOTS_USED.load(Ordering::Relaxed);
                    if used == CAPACITY {
                        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
                    }
                    SLOTS_USED.store(used + 1, Ordering::Release);
                    used
                }
            }
        };
        SLOTS[slot].set(start..start + len.next_multiple_of(page_size()), writable);
        Ok(Registration { slot })
    }

    /// Whether a page of the range was lost since the range is guarded. Whoever read the range asks afterwards.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        // The reads of the range come before this read of the mark, as the mark is set before zero pages appear.
        fence(Ordering::Acquire);
        SLOTS[self.slot].broken.load(Ordering::Relaxed)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        SLOTS[self.slot].set(0..0, false);
        SLOTS_FREE.lock().push(self.slot);
    }
}

/// Installs the handler, once in the life of the process.
fn install() -> io::Result<()> {
    let mut installed = INSTALLED.lock();
    if *installed {
        return Ok(());
    }
    page_size();
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    // SAFETY: both structures are plain data for which zero is a valid value, and live through the calls; the handler has the
    // signature that SA_SIGINFO asks for and does only what a signal handler may. PREVIOUS is set before the handler can run.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) != 0 {
            return Err(io::Error::last_os_error());
        }
        PREVIOUS.get_or_init(|| previous);
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = handler as libc::sighandler_t;
        // Without SA_NODEFER a fault inside the handler kills the process instead of recursing.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut ours.sa_mask);
        if libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    *installed = true;
    Ok(())
}

/// The handler. It uses atomics, `mmap`, `sigaction` and `raise` only: no lock, no allocation, no panic.
extern "C" fn on_sigbus(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t; for a SIGBUS that it raised itself (a positive code) the address member is
    // set. errno belongs to this thread and is put back, since the interrupted code may be about to read its own.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let raised_by_kernel = (*info).si_code > 0;
        if !(raised_by_kernel && cover((*info).si_addr() as usize)) {
            // Back to what was there before us. A real fault repeats as soon as we return; a sent signal does not.
            match PREVIOUS.get() {
                Some(previous) => libc::sigaction(libc::SIGBUS, previous, ptr::null_mut()),
                None => libc::sigaction(libc::SIGBUS, &std::mem::zeroed(), ptr::null_mut()),
            };
            if !raised_by_kernel {
                libc::raise(libc::SIGBUS);
            }
        }
        *errno = saved;
    }
}

/// Covers the guarded range around a faulting address with zero pages, from its page on; false where there is none.
fn cover(address: usize) -> bool {
    let page = address & !(PAGE_SIZE.load(Ordering::Relaxed) - 1);
    let used = SLOTS_USED.load(Ordering::Acquire);
    for slot in SLOTS.iter().take(used) {
        let Some((pages, writable)) = slot.get() else { continue };
        if !pages.contains(&address) {
            continue;
        }
        // First the mark, then the zeros: whoever sees a zero page sees the mark.
        slot.broken.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // The second try covers the whole map: it splits no mapping, so it works at the limit of vm.max_map_count, too.
        return zero_pages(page..pages.end, writable) || zero_pages(pages, writable);
    }
    false
}

/// Puts anonymous pages in the place of mapped ones.
fn zero_pages(pages: Range<usize>, writable: bool) -> bool {
    let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the range is a part of a registered map, which is whole pages that are ours alone and stay mapped while registered.
    // Readers of it hold slices of bytes that may change under them anyway, and find the broken mark before they use them.
    let mapped = unsafe { libc::mmap(pages.start as *mut libc::c_void, pages.len(), protection, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_reads_as_it_was_set_and_is_empty_while_it_changes() {
        let slot = Slot::free();
        assert!(slot.get().is_none());
        slot.set(4096..8192, true);
        assert_eq!(slot.get(), Some((4096..8192, true)));
        slot.sequence.fetch_add(1, Ordering::Relaxed);
        assert!(slot.get().is_none(), "an odd sequence number is a change under way");
    }

    #[test]
    fn an_address_outside_every_range_is_not_covered() {
        install().unwrap();
        assert!(!cover(1));
    }
}
