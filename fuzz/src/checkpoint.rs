//! Checkpoint files: what is accepted is written and read again as the same, and an opened log has sane bounds.

use crate::input::Input;
use crate::logs::{DIRECTORY, offset, open};
use crate::txnindex::{END, disk};
use offsetfs::io::sim::SimDisk;
use offsetfs::log::checkpoint::{raise_offset, read_leader_epochs, read_offset, write_leader_epochs};
use offsetfs::log::config::LogConfig;
use offsetfs::log::names;
use offsetfs::source::Source;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{Local, Options};
use offsetfs::types::{Offset, Patience, TopicPartition};
use std::path::Path;

const FILES: [&str; 5] = [names::LEADER_EPOCHS, names::LOG_START, names::RECOVERY_POINT, names::HIGH_WATERMARK, names::CLEANER];

/// One input: which file, where it lies, and its bytes.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let (which, outside) = (input.byte(), input.byte() & 1 != 0);
    let name = FILES[usize::from(which) % FILES.len()];
    let bytes = input.rest();
    alone(name, bytes);
    let disk = if outside { disk("partition.metadata", b"") } else { disk(name, bytes) };
    if outside {
        disk.write_file(format!("/{name}"), bytes);
    }
    if let Ok(partition) = open(&disk, &LogConfig::default()) {
        let bounds = partition.bounds();
        assert!(bounds.log_start <= bounds.log_end);
    }
    let options = Options { wish: Wish::ReadOnly, ..Options::default() };
    if let Ok(local) = Local::open(&disk.filesystem(), Path::new(DIRECTORY), options) {
        let bounds = local.bounds(Patience::MayBlock).expect("no file of the log is damaged");
        assert!(bounds.log_start <= bounds.log_end && bounds.log_end.get() >= END);
        local.status(Patience::MayBlock).expect("a status");
    }
}

/// The file for itself, on a disk of its own.
fn alone(name: &str, bytes: &[u8]) {
    let disk = SimDisk::new();
    disk.write_file(format!("/d/{name}"), bytes);
    let directory = disk.filesystem().open_dir(Path::new("/d")).expect("the directory is there");
    if name == names::LEADER_EPOCHS {
        if let Ok(epochs) = read_leader_epochs(&*directory) {
            assert!(epochs.windows(2).all(|pair| pair[0].epoch < pair[1].epoch && pair[0].start <= pair[1].start));
            write_leader_epochs(&*directory, &epochs).expect("it can be written");
            assert_eq!(read_leader_epochs(&*directory).expect("what was written is read"), epochs);
        }
        return;
    }
    let partition = |topic: &str, partition| TopicPartition { topic: topic.to_owned(), partition };
    let ours = partition("t", 0);
    // One of the same number, and one of the same topic.
    let others = [partition("other", 0), partition("t", 7)];
    let read = |partition: &TopicPartition| read_offset(&*directory, name, partition);
    let Ok(before) = read(&ours) else { return };
    let of_others = others.each_ref().map(|other| read(other).expect("a file that was accepted is accepted"));
    let wanted = offset(1000);
    raise_offset(&*directory, name, &ours, wanted).expect("a file that was accepted can be changed");
    let after = read(&ours).expect("what was written is read");
    assert_eq!(after, Some(before.unwrap_or(0).max(wanted.get())), "an offset only rises");
    assert_eq!(others.each_ref().map(|other| read(other).expect("what was written is read")), of_others, "other entries stay");
    raise_offset(&*directory, name, &others[1], Offset::MAX).expect("it can be changed");
    assert_eq!(read(&others[1]).expect("what was written is read"), Some(Offset::MAX.get()));
    assert_eq!(read(&ours).expect("what was written is read"), after);
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, name) in (0..).zip(FILES) {
        for (_, bytes) in crate::fixtures::some(crate::fixtures::heads(name), 3) {
            seeds.push([&[number, number & 1], bytes.as_slice()].concat());
        }
        let entries = if number == 0 { "0\n2\n0 0\n3 7\n" } else { "0\n3\nt 0 5\nother 0 9\nt 7 11\n" };
        seeds.push([&[number, 0], entries.as_bytes()].concat());
        seeds.push([&[number, 1], entries.as_bytes()].concat());
    }
    seeds
}
