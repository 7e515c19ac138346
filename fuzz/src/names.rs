//! Names of directories and files: what is accepted prints itself, and a data directory shows each partition exactly once.

use offsetfs::io::sim::SimDisk;
use offsetfs::log::config::LogConfig;
use offsetfs::log::names;
use offsetfs::source::access::Wish;
use offsetfs::source::data_dir::DataDir;
use offsetfs::types::{Patience, TopicPartition};
use offsetfs::view::forest::Forest;
use offsetfs::view::time::Zone;
use offsetfs::view::{Options, Place, Tree};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// No more directories than this are made of an input.
const MOST: usize = 12;

/// One input: names, separated by newlines.
pub fn run(input: &[u8]) {
    let all: BTreeSet<&[u8]> = input.split(|byte| *byte == b'\n').filter(|name| is_possible(name)).take(MOST).collect();
    for name in all.iter().filter_map(|name| std::str::from_utf8(name).ok()) {
        if let Some(partition) = TopicPartition::from_directory_name(name) {
            assert!(partition.partition >= 0 && !partition.topic.is_empty());
            assert_eq!(partition.to_string(), name, "a directory's name has one spelling");
        }
        if let Some((base, suffix)) = names::parse(name) {
            assert_eq!(names::of(base, suffix), name, "a file's name has one spelling");
        }
    }
    let disk = SimDisk::new();
    disk.write_file("/data/plain-0-file", b"x");
    for name in &all {
        let folder = Path::new("/data").join(OsStr::from_bytes(name));
        if folder != Path::new("/data/plain-0-file") {
            disk.write_file(folder.join("00000000000000000000.log"), b"");
        }
    }
    let data =
        DataDir::open(&disk.filesystem(), Path::new("/data"), Wish::ReadOnly, LogConfig::default().into()).expect("a data directory");
    let tree = Tree::Many(Box::new(Forest::new(Arc::new(data), Options { zone: Zone::utc(), ..Options::default() })));
    let listed = list(&tree, &Place::ROOT);
    let names: BTreeSet<&[u8]> = listed.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!(names.len(), listed.len(), "no name is listed twice");
    for (name, _) in &listed {
        tree.lookup(&Place::ROOT, name, Patience::MayBlock).expect("what is listed is found");
    }
    for name in all.iter().filter_map(|name| std::str::from_utf8(name).ok()) {
        let Some(partition) = TopicPartition::from_directory_name(name) else { continue };
        let taken = ["-delete", "-future", "-stray"].iter().any(|end| name.ends_with(end));
        if taken || name == "plain-0-file" || name.starts_with('+') {
            continue;
        }
        let path = format!("{}/{}", partition.topic, partition.partition);
        let place = tree.resolve(path.as_bytes(), Patience::MayBlock);
        let place = place.unwrap_or_else(|error| panic!("{path} is shown: {error:?}"));
        assert!(list(&tree, &place).iter().any(|(name, _)| name == b"by-offset"), "{path} has the tree of a partition");
        let topic = tree.lookup(&Place::ROOT, partition.topic.as_bytes(), Patience::MayBlock).expect("a topic is found");
        let number = partition.partition.to_string();
        assert_eq!(list(&tree, &topic).iter().filter(|(name, _)| name == number.as_bytes()).count(), 1, "{path} is listed once");
    }
}

fn is_possible(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= 255 && name != b"." && name != b".." && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

fn list(tree: &Tree, place: &Place) -> Vec<(Vec<u8>, bool)> {
    let mut names = Vec::new();
    tree.list(place, 0, Patience::MayBlock, &mut |name, _, node, _| {
        names.push((name.to_vec(), node.is_some()));
        true
    })
    .expect("a directory can be listed");
    names
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = [
        "orders-0\norders-1\norders-12",
        "a-b.c_d-7-0\nt--1\nt-01\nt-2147483647\nt-2147483648",
        "errors-0\nstatus-3\nmetrics-1\nREADME-0\n+files-0\n.other-0",
        "t-0.0123456789abcdef0123456789abcdef-delete\nt-1.x-future\nt-2.y-stray\nz-0-delete",
        "00000000000000000828.log\n00000000000000000828.log.deleted",
        "\u{e4}-0\n-0\n-\n0\nby-time-0\nt-0",
        "t\u{7}-0\nt\\-1\n a-0",
    ];
    all.map(|names| names.as_bytes().to_vec()).to_vec()
}
