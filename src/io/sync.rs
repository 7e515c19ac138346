//! Locks, waiting, threads and published values, in one place for all that more than one thread of the engine touches.
//!
//! They are parking_lot's, arc_swap's and the standard library's own. With the feature `shuttle`, which only the tests named `schedules` ask for, they
//! are those of a scheduler that runs the threads one at a time and decides at each of these operations who goes on, so that the same code is
//! tried in thousands of orders.

#[cfg(feature = "shuttle")]
mod scheduled;

#[cfg(not(feature = "shuttle"))]
pub(crate) use {
    arc_swap::{ArcSwap, ArcSwapOption},
    parking_lot::{Condvar, Mutex, MutexGuard},
    std::sync::{atomic, mpsc},
    std::thread,
};

#[cfg(feature = "shuttle")]
pub(crate) use {
    scheduled::{ArcSwap, ArcSwapOption, Condvar, Mutex, MutexGuard},
    shuttle::sync::{atomic, mpsc},
    shuttle::thread,
};
