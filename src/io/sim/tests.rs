//! The promises of the simulated disk, each with the test that it can break.

use super::*;
use crate::io::{File, Kind, Open, lock, read_up_to, write_all_at};
use std::collections::BTreeSet;

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

/// A disk with a durable directory, and that directory.
fn disk() -> (SimDisk, Arc<dyn Directory>) {
    let disk = SimDisk::new();
    disk.filesystem().create_dir(Path::new("/d")).unwrap();
    let directory = disk.filesystem().open_dir(Path::new("/d")).unwrap();
    (disk, directory)
}

/// A file that was there before, open for writing.
fn disk_with(bytes: &[u8]) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new();
    disk.write_file("/d/f", bytes);
    let file = disk.filesystem().open_dir(Path::new("d")).unwrap().open(name("f"), Open::Write).unwrap();
    (disk, file)
}

/// What every possible crash leaves of a file.
fn states(disk: &SimDisk, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    let mut choices = Choices::default();
    let mut states = BTreeSet::new();
    loop {
        states.insert(disk.crash(&mut |options| choices.choose(options)).read_file(path));
        if !choices.advance() {
            return states;
        }
    }
}

#[test]
fn choices_go_through_all_combinations_once() {
    let mut choices = Choices::default();
    let mut seen = Vec::new();
    loop {
        let first = choices.choose(2);
        seen.push((first, if first == 1 { choices.choose(3) } else { 9 }));
        if !choices.advance() {
            break;
        }
    }
    assert_eq!(seen, [(0, 9), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn bytes_are_durable_after_their_sync_and_not_before() {
    let (disk, file) = disk_with(b"old");
    write_all_at(&*file, b"new", 0).unwrap();
    assert_eq!(disk.read_file("/d/f").unwrap(), b"new");
    assert_eq!(disk.durable_file("/d/f").unwrap(), b"old");
    assert_eq!(states(&disk, "/d/f"), [Some(b"old".to_vec()), Some(b"new".to_vec())].into());
    file.sync_data().unwrap();
    assert_eq!(disk.durable_file("/d/f").unwrap(), b"new");
    assert_eq!(states(&disk, "/d/f"), [Some(b"new".to_vec())].into());
}

#[test]
fn a_name_is_durable_after_its_directory_is_synced_and_not_before() {
    let (disk, directory) = disk();
    let file = directory.open(name("f"), Open::Create).unwrap();
    write_all_at(&*file, b"x", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(states(&disk, "/d/f"), [None, Some(b"x".to_vec())].into());
    directory.sync().unwrap();
    assert_eq!(states(&disk, "/d/f"), [Some(b"x".to_vec())].into());
}

/// The rite of replacing a file, with or without the sync that keeps its bytes: the disk must tell the two apart.
#[test]
fn a_missing_sync_before_a_rename_loses_data_in_some_state() {
    for syncs in [true, false] {
        let (disk, directory) = disk();
        disk.write_file("/d/f", b"old");
        let new = directory.open(name("f.tmp"), Open::Create).unwrap();
        write_all_at(&*new, b"new", 0).unwrap();
        if syncs {
            new.sync_data().unwrap();
        }
        directory.rename(name("f.tmp"), name("f")).unwrap();
        directory.sync().unwrap();
        let sound = states(&disk, "/d/f").iter().all(|state| state.as_deref() == Some(b"new"));
        assert_eq!(sound, syncs);
    }
}

#[test]
fn names_survive_in_order_unless_told_otherwise() {
    let (disk, directory) = disk();
    directory.open(name("a"), Open::Create).unwrap();
    directory.open(name("b"), Open::Create).unwrap();
    let lists = |disk: &SimDisk| {
        let (mut choices, mut lists) = (Choices::default(), BTreeSet::new());
        loop {
            lists.insert(disk.crash(&mut |options| choices.choose(options)).list("/d"));
            if !choices.advance() {
                return lists;
            }
        }
    };
    assert_eq!(lists(&disk), [vec![], vec!["a".to_owned()], vec!["a".to_owned(), "b".to_owned()]].into());
    disk.reorder_names(true);
    assert!(lists(&disk).contains(&vec!["b".to_owned()]));
}

#[test]
fn each_store_through_an_index_map_may_survive_alone() {
    let (disk, file) = disk_with(b"");
    file.allocate(0, 1 << 20).unwrap();
    file.sync_data().unwrap();
    let index = file.map_index(1 << 20).unwrap();
    index.put(0, b"A");
    index.put(1, b"B");
    assert_eq!(index.map().slice(0..2).unwrap(), b"AB");
    let heads: BTreeSet<_> = states(&disk, "/d/f").into_iter().map(|state| state.unwrap()[..2].to_vec()).collect();
    assert_eq!(heads, [*b"\0\0", *b"A\0", *b"\0B", *b"AB"].map(|head| head.to_vec()).into());
    index.sync().unwrap();
    assert_eq!(disk.durable_file("/d/f").unwrap()[..2], *b"AB");
}

#[test]
#[should_panic(expected = "allocate first")]
fn a_store_behind_the_end_of_the_file_is_a_bug() {
    let (_disk, file) = disk_with(b"");
    file.map_index(4096).unwrap().put(0, b"x");
}

#[test]
fn maps_of_a_file_see_later_writes() {
    let (_disk, file) = disk_with(b"ab");
    let map = file.map(1 << 31).unwrap();
    write_all_at(&*file, b"cd", 2).unwrap();
    assert_eq!(map.slice(0..4).unwrap(), b"abcd");
}

#[test]
fn the_nth_operation_fails_once() {
    let (disk, file) = disk_with(b"12345");
    disk.fail_at(2, Fault::Io);
    let before = disk.operations();
    assert_eq!(read_up_to(&*file, 0, 5).unwrap(), b"12345");
    assert_eq!(file.metadata().unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(file.metadata().unwrap().len, 5);
    assert_eq!(disk.operations() - before, 3);
}

#[test]
fn a_full_disk_strikes_what_takes_room() {
    let (disk, file) = disk_with(b"12345");
    disk.fail_at(1, Fault::NoSpace);
    file.metadata().unwrap();
    file.sync_data().unwrap();
    assert_eq!(write_all_at(&*file, b"x", 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.read_file("/d/f").unwrap(), b"12345");
    disk.fail_at(1, Fault::NoSpace);
    assert_eq!(file.allocate(0, 4096).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.metadata().unwrap().len, 5);
}

#[test]
fn a_short_write_is_followed_by_a_full_disk() {
    let (disk, file) = disk_with(b"");
    disk.fail_at(1, Fault::ShortWrite);
    let parts = [io::IoSlice::new(b"abc"), io::IoSlice::new(b"defgh")];
    assert_eq!(file.write_at(&parts, 0).unwrap(), 4);
    assert_eq!(disk.read_file("/d/f").unwrap(), b"abcd");
    assert_eq!(file.write_at(&parts, 4).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.write_at(&parts, 4).unwrap(), 8);
}

#[test]
fn the_operation_that_a_crash_meets_may_have_taken_place() {
    let (disk, file) = disk_with(b"old");
    disk.fail_at(1, Fault::Crash);
    assert!(write_all_at(&*file, b"new", 0).is_err());
    assert!(file.metadata().is_err() && file.sync_data().is_err() && disk.filesystem().open_dir(Path::new("/")).is_err());
    assert_eq!(states(&disk, "/d/f"), [Some(b"old".to_vec()), Some(b"new".to_vec())].into());
    let after = disk.crash(&mut |_| 0);
    assert!(after.filesystem().open_dir(Path::new("/d")).is_ok());
}

#[test]
fn a_sync_that_crashes_promises_nothing() {
    let (disk, file) = disk_with(b"old");
    write_all_at(&*file, b"new", 0).unwrap();
    disk.fail_at(1, Fault::Crash);
    assert!(file.sync_data().is_err());
    assert_eq!(states(&disk, "/d/f").len(), 2);
}

#[test]
fn a_failed_sync_leaves_its_writes_uncertain_whatever_later_syncs_say() {
    let (disk, file) = disk_with(b"old");
    write_all_at(&*file, b"new", 0).unwrap();
    disk.fail_at(1, Fault::Io);
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert_eq!(disk.read_file("/d/f").unwrap(), b"new", "the cache still shows them");
    assert_eq!(states(&disk, "/d/f"), [Some(b"old".to_vec()), Some(b"new".to_vec())].into());
    file.drop_cached(0).unwrap();
    assert_eq!(disk.read_file("/d/f").unwrap(), b"old", "the disk does not have them");
}

#[test]
fn a_removed_file_comes_back_unless_its_directory_was_synced() {
    let (disk, directory) = disk();
    disk.write_file("/d/f", b"x");
    directory.remove(name("f")).unwrap();
    assert_eq!(disk.read_file("/d/f"), None);
    assert_eq!(states(&disk, "/d/f"), [None, Some(b"x".to_vec())].into());
    directory.sync().unwrap();
    assert_eq!(states(&disk, "/d/f"), [None].into());
}

#[test]
fn a_disk_after_a_crash_works_and_leaves_the_first_alone() {
    let (disk, file) = disk_with(b"old");
    write_all_at(&*file, b"new", 0).unwrap();
    let after = disk.crash(&mut |_| 1);
    let directory = after.filesystem().open_dir(Path::new("/d")).unwrap();
    let file = directory.open(name("f"), Open::Write).unwrap();
    write_all_at(&*file, b"er", 3).unwrap();
    file.sync_data().unwrap();
    assert_eq!(after.durable_file("/d/f").unwrap(), b"newer");
    assert_eq!(disk.read_file("/d/f").unwrap(), b"new");
}

#[test]
fn directories_and_handles_behave_as_real_ones() {
    let (disk, directory) = disk();
    assert_eq!(directory.open(name("none"), Open::Read).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(directory.open(name("../d"), Open::Create).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    disk.filesystem().create_dir(Path::new("/d/sub")).unwrap();
    assert_eq!(directory.open(name("sub"), Open::Read).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(disk.filesystem().create_dir(Path::new("/d/sub")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(directory.list().unwrap(), [crate::io::Entry { name: "sub".into(), kind: Kind::Directory }]);
    directory.open(name("f"), Open::Create).unwrap();
    let reader = directory.open(name("f"), Open::Read).unwrap();
    assert!(write_all_at(&*reader, b"x", 0).is_err() && reader.map_index(1).is_err());
    assert!(directory.open_dir(name("sub")).unwrap().list().unwrap().is_empty());
}

#[test]
fn times_come_from_the_clock_that_the_test_sets() {
    let (disk, file) = disk_with(b"");
    disk.clock().advance(5);
    write_all_at(&*file, b"x", 0).unwrap();
    assert_eq!(file.metadata().unwrap().mtime_ns, 1_700_000_000_005_000_000);
    disk.clock().set(TimestampMs::new(7));
    assert_eq!(disk.filesystem().clock().now(), TimestampMs::new(7));
}

#[test]
fn locks_shut_each_other_out_and_end_with_their_handles() {
    let (disk, directory) = disk();
    let shared = directory.lock(lock::Kind::Shared).unwrap().unwrap();
    assert!(directory.lock(lock::Kind::Exclusive).unwrap().is_none());
    drop(shared);
    let exclusive = directory.lock(lock::Kind::Exclusive).unwrap().unwrap();
    assert!(directory.lock(lock::Kind::Shared).unwrap().is_none());
    drop(exclusive);
    let mut lock = directory.take_record_lock(name(".lock")).unwrap().unwrap();
    assert!(lock.made_file() && directory.record_lock_holder(name(".lock")).unwrap().is_some());
    assert!(directory.take_record_lock(name(".lock")).unwrap().is_err());
    lock.remove_made_file().unwrap();
    assert!(disk.list("/d").is_empty());
    drop(lock);
    assert_eq!(directory.record_lock_holder(name(".lock")).unwrap(), None);
}

#[test]
fn a_crash_that_meets_a_lock_is_an_error_and_not_a_deadlock() {
    let (disk, directory) = disk();
    disk.fail_at(1, Fault::Crash);
    assert!(directory.lock(lock::Kind::Shared).is_err());
    let after = disk.crash(&mut |_| 0);
    let directory = after.filesystem().open_dir(Path::new("/d")).unwrap();
    after.fail_at(1, Fault::Crash);
    assert!(directory.take_record_lock(name(".lock")).is_err());
}
