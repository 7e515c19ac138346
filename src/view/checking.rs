//! The file `check`: the consistency check of a partition, run once for all who read it at the same time.
//!
//! It runs on a thread of its own. Whoever reads before it is over gets a line `# ...` with how far it is about twice a second: a read that
//! nothing answers cannot be interrupted.

use crate::source::{Report, Severity, Source};
use crate::types::Patience;
use crate::view::error::{Error, ErrorKind};
use crate::view::render::copy_from;
use parking_lot::{Condvar, Mutex};
use std::io::Write;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// A read waits no longer than this for the next bytes.
const READ_WAIT_MOST: Duration = Duration::from_millis(500);

/// Of the last check so many findings are remembered.
const REMEMBERED_MOST: usize = 1000;

/// A check that runs or has ended.
#[derive(Debug, Default)]
pub(crate) struct Check {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    text: Vec<u8>,
    looked_at_bytes: u64,
    all_bytes: u64,
    /// How it ended.
    over: Option<Result<(), Error>>,
}

/// Ends a check whatever becomes of its thread: readers must not wait for ever.
struct Ending(Arc<Check>);

impl Drop for Ending {
    fn drop(&mut self) {
        let failed = || Err(Error::new(ErrorKind::Damaged, "the check failed; this is a fault of the program"));
        self.0.state.lock().over.get_or_insert_with(failed);
        self.0.changed.notify_all();
    }
}

impl Check {
    fn start(source: &Arc<dyn Source>, last: Arc<Mutex<Option<Arc<Report>>>>) -> Result<Arc<Check>, Error> {
        let check: Arc<Check> = Arc::default();
        let (ending, source) = (Ending(Arc::clone(&check)), Arc::clone(source));
        let run = move || {
            let Ending(check) = &ending;
            let result = match source.maintenance() {
                Some(maintenance) => maintenance.check(&mut |done, all| {
                    let mut state = check.state.lock();
                    (state.looked_at_bytes, state.all_bytes) = (done, all);
                }),
                None => Ok(Default::default()),
            };
            let mut state = check.state.lock();
            state.over = Some(match result {
                Ok(mut report) => {
                    state.text.extend_from_slice(report.to_string().as_bytes());
                    report.findings.retain(|f| f.severity > Severity::Note);
                    report.findings.truncate(REMEMBERED_MOST);
                    *last.lock() = Some(Arc::new(report));
                    Ok(())
                }
                Err(error) => Err(error.into()),
            });
        };
        let started = thread::Builder::new().name("offsetfs-check".to_owned()).spawn(run);
        started.map_err(|error| Error::from(crate::source::Error::io("start", "a thread", error)))?;
        Ok(check)
    }

    fn is_over(&self) -> bool {
        self.state.lock().over.is_some()
    }

    /// Copies what lies at a position, or waits a little for it; 0 at the end.
    ///
    /// # Errors
    /// What kept the check from going on; [`ErrorKind::WouldBlock`].
    pub(crate) fn read(&self, at: u64, out: &mut [u8], patience: Patience) -> Result<usize, Error> {
        let mut state = self.state.lock();
        loop {
            let n = copy_from(&state.text, at, out);
            if n > 0 || out.is_empty() {
                return Ok(n);
            }
            match &state.over {
                Some(result) => return result.clone().map(|()| 0),
                None if patience == Patience::AtOnce => return Err(Error::new(ErrorKind::WouldBlock, "the check runs")),
                None => {}
            }
            if self.changed.wait_for(&mut state, READ_WAIT_MOST).timed_out() && state.over.is_none() {
                let (looked_at, all) = (state.looked_at_bytes, state.all_bytes);
                // Writing into memory does not fail.
                let _ = writeln!(state.text, "# {looked_at} of {all} bytes looked at");
            }
        }
    }
}

/// The check of a partition that runs at the moment, if one does, and what the last one has found.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    running: Mutex<Weak<Check>>,
    last: Arc<Mutex<Option<Arc<Report>>>>,
}

impl Checks {
    /// The check that runs, or a new one.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub(crate) fn join_or_start(&self, source: &Arc<dyn Source>) -> Result<Arc<Check>, Error> {
        let mut running = self.running.lock();
        if let Some(check) = running.upgrade().filter(|check| !check.is_over()) {
            return Ok(check);
        }
        let check = Check::start(source, self.last.clone())?;
        *running = Arc::downgrade(&check);
        Ok(check)
    }

    /// What the last check that came to its end has found, its notes left out.
    pub(crate) fn last_report(&self) -> Option<Arc<Report>> {
        self.last.lock().clone()
    }
}
