//! A hint to the processor: bytes that will be asked for soon. It changes nothing but when they arrive.

/// What processors mostly fetch at once, in bytes.
pub const CACHE_LINE: usize = 64;

/// Has the line of memory fetched that holds the byte at a place, where there is one. A page that is not in memory is not brought there.
#[inline(always)]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is a part of x86-64; the instruction reads nothing that a program could see and faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}
