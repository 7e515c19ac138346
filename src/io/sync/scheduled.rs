//! The scheduler's locks in the form of parking_lot's, and published values at whose every load and store another thread may be let go on.

use arc_swap::Guard;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// A lock.
pub(crate) struct Mutex<T> {
    inner: shuttle::sync::Mutex<T>,
}

/// A lock that is held.
pub(crate) struct MutexGuard<'a, T> {
    /// `None` only while it waits.
    inner: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex { inner: shuttle::sync::Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { inner: Some(self.inner.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock().ok().map(|guard| MutexGuard { inner: Some(guard) })
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is inside may be locked by another thread, which does not go on meanwhile.
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("it waits for nothing")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("it waits for nothing")
    }
}

/// Threads that wait until they are told.
#[derive(Debug)]
pub(crate) struct Condvar {
    inner: shuttle::sync::Condvar,
}

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar { inner: shuttle::sync::Condvar::new() }
    }

    pub(crate) fn notify_one(&self) {
        self.inner.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.inner.notify_all();
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.inner.take() {
            guard.inner = Some(self.inner.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Time stands still here: who waits is told, or waits for ever.
    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _deadline: Instant) {
        self.wait(guard);
    }

    /// As [`Condvar::wait_until`].
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _most: Duration) {
        self.wait(guard);
    }
}

/// A published value.
pub(crate) struct ArcSwap<T> {
    inner: arc_swap::ArcSwap<T>,
    turn: Turn,
}

impl<T> ArcSwap<T> {
    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        self.turn.over();
        self.inner.load()
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        self.turn.over();
        self.inner.load_full()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        self.turn.over();
        self.inner.store(value);
    }
}

impl<T: Default> Default for ArcSwap<T> {
    fn default() -> ArcSwap<T> {
        ArcSwap { inner: arc_swap::ArcSwap::default(), turn: Turn::default() }
    }
}

impl<T: fmt::Debug> fmt::Debug for ArcSwap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A published value that may be missing.
pub(crate) struct ArcSwapOption<T> {
    inner: arc_swap::ArcSwapOption<T>,
    turn: Turn,
}

impl<T> ArcSwapOption<T> {
    pub(crate) fn empty() -> ArcSwapOption<T> {
        ArcSwapOption { inner: arc_swap::ArcSwapOption::empty(), turn: Turn::default() }
    }

    pub(crate) fn load(&self) -> Guard<Option<Arc<T>>> {
        self.turn.over();
        self.inner.load()
    }

    pub(crate) fn load_full(&self) -> Option<Arc<T>> {
        self.turn.over();
        self.inner.load_full()
    }

    pub(crate) fn store(&self, value: Option<Arc<T>>) {
        self.turn.over();
        self.inner.store(value);
    }
}

impl<T: fmt::Debug> fmt::Debug for ArcSwapOption<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Lets the scheduler decide who goes on.
#[derive(Default)]
struct Turn(AtomicBool);

impl Turn {
    fn over(&self) {
        self.0.load(Ordering::SeqCst);
    }
}
