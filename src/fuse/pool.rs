//! A few threads for what may sleep: reads that the disk must answer first, and the search for other holders of a descriptor.
//!
//! The event threads never wait for it: where its queue is full, the job runs on the thread that brings it, which slows that thread down
//! instead of letting a queue grow without bound.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads behind a bounded queue. Dropping it lets the threads end once the queue is empty; it does not wait for them.
pub(super) struct Pool {
    shared: Arc<Shared>,
    capacity: usize,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts the threads. `capacity` jobs may wait.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub(super) fn new(threads: usize, capacity: usize) -> io::Result<Pool> {
        let pool = Pool { shared: Arc::default(), capacity };
        for n in 0..threads {
            let shared = Arc::clone(&pool.shared);
            thread::Builder::new().name(format!("offsetfs-wait-{n}")).spawn(move || shared.work())?;
        }
        Ok(pool)
    }

    /// Runs a job on one of the threads, or at once on this one where the queue is full. A job that panics takes its thread along,
    /// so it has to catch what it may raise.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        if queue.jobs.len() >= self.capacity {
            drop(queue);
            return job();
        }
        queue.jobs.push_back(Box::new(job));
        drop(queue);
        self.shared.changed.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            match queue.jobs.pop_front() {
                Some(job) => {
                    drop(queue);
                    job();
                    queue = self.queue.lock();
                }
                None if queue.closed => return,
                None => self.changed.wait(&mut queue),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn every_job_runs_on_a_thread_of_the_pool() {
        let (sender, receiver) = mpsc::channel();
        let pool = Pool::new(2, 100).unwrap();
        for n in 0..50 {
            let sender = sender.clone();
            pool.run(move || sender.send((n, thread::current().id())).unwrap());
        }
        let mut ran: Vec<_> = (0..50).map(|_| receiver.recv().unwrap()).collect();
        ran.sort_unstable_by_key(|(n, _)| *n);
        assert!(ran.iter().map(|(n, _)| *n).eq(0..50));
        assert!(ran.iter().all(|(_, id)| *id != thread::current().id()));
    }

    #[test]
    fn a_full_queue_runs_the_job_here() {
        let (release, held) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        let pool = Pool::new(1, 1).unwrap();
        pool.run(move || {
            started.send(()).unwrap();
            held.recv().unwrap();
        });
        has_started.recv().unwrap();
        let (sender, receiver) = mpsc::channel();
        let waits = sender.clone();
        pool.run(move || waits.send(thread::current().id()).unwrap());
        pool.run(move || sender.send(thread::current().id()).unwrap());
        assert_eq!(receiver.try_recv(), Ok(thread::current().id()));
        assert!(receiver.try_recv().is_err());
        release.send(()).unwrap();
        assert_ne!(receiver.recv().unwrap(), thread::current().id());
    }

    #[test]
    fn what_waits_still_runs_after_the_pool_is_dropped() {
        let (sender, receiver) = mpsc::channel();
        let pool = Pool::new(1, 10).unwrap();
        for n in 0..10 {
            let sender = sender.clone();
            pool.run(move || sender.send(n).unwrap());
        }
        drop((pool, sender));
        assert!(receiver.iter().eq(0..10));
    }
}
