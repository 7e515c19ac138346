//! Counters that many threads count with and few read: a thread counts in a cache line that it shares with few others.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// So many threads count without meeting each other.
const SHARDS: usize = 8;

/// `N` counters that only grow. Counting takes no lock and costs a few nanoseconds.
#[derive(Debug)]
pub struct Counters<const N: usize> {
    shards: [Shard<N>; SHARDS],
}

/// Alone in its cache lines; processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Shard<const N: usize> {
    cells: [AtomicU64; N],
}

impl<const N: usize> Counters<N> {
    /// All at zero.
    pub const fn new() -> Counters<N> {
        Counters { shards: [const { Shard { cells: [const { AtomicU64::new(0) }; N] } }; SHARDS] }
    }

    /// Adds to a counter; one that does not exist counts nothing.
    #[inline]
    pub fn add(&self, counter: usize, n: u64) {
        if let Some(cell) = self.shards.get(shard()).and_then(|s| s.cells.get(counter)) {
            cell.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// What was counted so far; what other threads count at this moment may be missing.
    pub fn get(&self, counter: usize) -> u64 {
        let cells = self.shards.iter().filter_map(|s| s.cells.get(counter));
        cells.fold(0, |sum, cell| sum.wrapping_add(cell.load(Ordering::Relaxed)))
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Counters<N> {
        Counters::new()
    }
}

/// The shard of this thread.
#[inline]
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    SHARD.try_with(|shard| *shard).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let counters = Counters::<3>::new();
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| (0..1000).for_each(|_| counters.add(1, 2)));
            }
        });
        counters.add(3, 1);
        assert_eq!((0..4).map(|n| counters.get(n)).collect::<Vec<_>>(), [0, 2 * 1000 * 2 * SHARDS as u64, 0, 0]);
    }
}
