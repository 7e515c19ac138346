//! May we write, and if not, why: the locks of a partition directory and of the data directory around it.
//!
//! Four steps, in this order: somebody holds a lock: refused. The files that an append would change have another name, as in a backup of hard links:
//! read-only. The directory belongs to a broker: read-only, unless it is taken over. Else writable. A mount that is asked to be read-only takes and tests
//! no lock at all. With a take-over goes the mark of the broker's clean stop, which is taken away before the first change and put back after a clean end.

use crate::error::{Error, Result};
use crate::io::{Directory, FileSystem, Kind, Open, lock, write_all_at};
use crate::log::names;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

/// What a caller asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// Only reading.
    ReadOnly,
    /// Writing where that is safe, else reading.
    #[default]
    Writable,
    /// Writing even where the directory belongs to a broker, whose lock is then ours.
    TakeOver,
}

/// Locks that are held, and what has to be put back at the end.
#[derive(Debug, Default)]
pub struct Locks {
    _directory: Option<lock::DirectoryLock>,
    _parent: Option<lock::DirectoryLock>,
    broker: Mutex<Option<lock::RecordLock>>,
    /// Whether the data directory around was taken over, whose lock is then ours.
    within_taken_over: bool,
}

/// What was decided.
#[derive(Debug)]
pub enum Access {
    /// Reading only, and why.
    ReadOnly(String),
    /// Writing.
    Writable(Locks),
}

/// The directory around a partition; `None` where it cannot be opened (a copy may lie anywhere).
pub fn parent_of(fs: &dyn FileSystem, path: &Path) -> Option<Arc<dyn Directory>> {
    fs.open_dir(path.parent()?).ok()
}

/// Decides what a partition directory may be opened for.
///
/// # Errors
/// [`Error::Locked`], naming who holds it; what the system says.
pub fn decide(dir: &Arc<dyn Directory>, parent: Option<&Arc<dyn Directory>>, wish: Wish) -> Result<Access> {
    if wish == Wish::ReadOnly {
        return Ok(Access::ReadOnly("it was asked for".to_owned()));
    }
    if let Some(parent) = parent {
        refuse_beside_a_broker(&**parent)?;
    }
    // A data directory is its own surrounding: its one lock is exclusive.
    let around_it = parent.filter(|p| !Arc::ptr_eq(p, dir));
    let shown = dir.path().display();
    let directory = dir.lock(lock::Kind::Exclusive).map_err(|e| Error::io("lock", &shown, e))?;
    let Some(directory) = directory else { return Err(held(dir)) };
    let around = match around_it.map(|p| p.lock(lock::Kind::Shared)) {
        Some(Ok(None)) => return Err(parent.map_or_else(|| held(dir), held)),
        Some(Ok(lock)) => lock,
        // A parent that we may not even read is no data directory that we could share.
        Some(Err(_)) | None => None,
    };
    // Before the broker's lock is taken: its file would be left behind.
    if let Some(reason) = another_name(&**dir)? {
        return Ok(Access::ReadOnly(reason));
    }
    let owned = [Some(dir), parent].into_iter().flatten().find(|d| d.metadata(OsStr::new(names::META_PROPERTIES)).is_ok());
    let mut broker = None;
    match (owned, wish) {
        (Some(place), Wish::Writable) => {
            let place = place.path().display();
            return Ok(Access::ReadOnly(format!(
                "{place} has {}: it belongs to a broker; --take-over writes all the same, while the broker is stopped",
                names::META_PROPERTIES
            )));
        }
        (Some(_), _) => {
            if let Some(parent) = parent {
                let lock = parent.take_record_lock(OsStr::new(names::BROKER_LOCK)).map_err(|e| Error::io("lock", names::BROKER_LOCK, e))?;
                broker = Some(lock.map_err(|holder| broker_holds(&**parent, &holder))?);
            }
        }
        (None, _) => {}
    }
    Ok(Access::Writable(Locks { _directory: Some(directory), _parent: around, broker: Mutex::new(broker), within_taken_over: false }))
}

/// What a partition may be opened for whose data directory we hold: its own lock comes on top.
///
/// # Errors
/// As [`decide`].
pub(crate) fn within(dir: &Arc<dyn Directory>, data_dir: &Locks) -> Result<Access> {
    let lock = dir.lock(lock::Kind::Exclusive).map_err(|e| Error::io("lock", dir.path().display(), e))?;
    let Some(lock) = lock else { return Err(held(dir)) };
    if let Some(reason) = another_name(&**dir)? {
        return Ok(Access::ReadOnly(reason));
    }
    Ok(Access::Writable(Locks { _directory: Some(lock), _parent: None, broker: Mutex::new(None), within_taken_over: data_dir.took_over() }))
}

/// Why nothing may be appended where a file of the newest segment has another name (a hard link): it would change there, too. The older segments are
/// never changed in place after a clean stop.
fn another_name(dir: &dyn Directory) -> Result<Option<String>> {
    let entries = dir.list().map_err(|e| Error::io("list", dir.path().display(), e))?;
    let bases = entries.iter().filter_map(|entry| names::parse(entry.name.to_str()?)).filter(|(_, suffix)| *suffix == names::LOG);
    let Some(newest) = bases.map(|(base, _)| base).max() else { return Ok(None) };
    for suffix in [names::LOG, names::INDEX, names::TIME_INDEX] {
        let name = names::of(newest, suffix);
        // What is no plain file, or not there, is judged where it is opened.
        if dir.metadata(OsStr::new(&name)).is_ok_and(|m| m.kind == Kind::File && m.links > 1) {
            return Ok(Some(format!(
                "{} has another name (a hard link, as in a backup made with cp -al), under which it would change, too; to append, give the files \
                 here bytes of their own: for f in *; do cp -p $f $f.own && mv $f.own $f; done",
                dir.path().join(name).display()
            )));
        }
    }
    Ok(None)
}

/// Tests the lock of a broker, without taking it.
///
/// # Errors
/// [`Error::Locked`] where somebody holds it.
pub fn refuse_beside_a_broker(parent: &dyn Directory) -> Result<()> {
    match parent.record_lock_holder(OsStr::new(names::BROKER_LOCK)) {
        Ok(Some(holder)) => Err(broker_holds(parent, &holder)),
        Ok(None) => Ok(()),
        // No such file, or none that we may read: nobody that we could see holds it.
        Err(_) => Ok(()),
    }
}

fn broker_holds(parent: &dyn Directory, holder: &lock::Holder) -> Error {
    Error::Locked {
        path: parent.path().join(names::BROKER_LOCK).display().to_string(),
        holder: format!("a broker's lock is held by {holder}"),
    }
}

fn held(dir: &Arc<dyn Directory>) -> Error {
    let holder = dir.own_metadata().map(|m| lock::flock_holder(&m).to_string());
    let holder = holder.unwrap_or_else(|_| "another process".to_owned());
    Error::Locked { path: dir.path().display().to_string(), holder: format!("{holder} writes to it") }
}

impl Locks {
    /// Whether we hold the broker's own lock.
    pub fn took_over(&self) -> bool {
        self.within_taken_over || self.broker.lock().is_some()
    }

    /// Gives the broker's lock back, and removes its file if we made it.
    pub fn release_broker(&self) {
        if let Some(mut lock) = self.broker.lock().take()
            && let Err(error) = lock.remove_made_file()
        {
            log::warn!("removing {}: {error}", names::BROKER_LOCK);
        }
    }
}

/// Takes away the mark of a broker's clean stop before we change what it vouches for.
pub(crate) fn take_clean_mark(parent: Option<Arc<dyn Directory>>, taken: Arc<Mutex<bool>>) -> Box<dyn FnOnce() -> Result<()> + Send> {
    Box::new(move || {
        let Some(parent) = parent else { return Ok(()) };
        let mark = OsStr::new(names::CLEAN_SHUTDOWN);
        match parent.remove(mark) {
            Ok(()) => *taken.lock() = true,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Error::io("remove", names::CLEAN_SHUTDOWN, e)),
        }
        parent.sync().map_err(|e| Error::io("sync", parent.path().display(), e))
    })
}

/// Puts the mark of a clean stop back, durably.
pub(crate) fn put_clean_mark(parent: &dyn Directory) -> Result<()> {
    let run = || -> std::io::Result<()> {
        let file = parent.open(OsStr::new(names::CLEAN_SHUTDOWN), Open::Create)?;
        write_all_at(&*file, b"{\"version\":0,\"brokerEpoch\":-1}", 0)?;
        file.sync_data()?;
        parent.sync()
    };
    run().map_err(|e| Error::io("write", names::CLEAN_SHUTDOWN, e))
}
