//! The consistency check: silent on what a healthy Kafka leaves, and at the right file and position on what is damaged.

mod common;

use common::fixtures::fixtures;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::check::{Report, check};
use offsetfs::types::TopicPartition;
use std::path::Path;

fn report(path: &Path) -> Report {
    let dir = OsFileSystem.open_dir(path).expect("the directory");
    let parent = path.parent().map(|parent| OsFileSystem.open_dir(parent).expect("its parent"));
    let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
    let name = TopicPartition::from_directory_name(name).unwrap_or(TopicPartition { topic: name.to_owned(), partition: 0 });
    check(&dir, parent.as_ref(), &name, &mut |_, _| {}).expect("a report")
}

#[test]
fn what_kafka_leaves_has_no_finding() {
    for kind in ["data", "unclean"] {
        let mut partitions = 0;
        for entry in std::fs::read_dir(fixtures().join(kind)).expect("the data directory") {
            let path = entry.expect("an entry").path();
            if !path.is_dir() {
                continue;
            }
            partitions += 1;
            let report = report(&path);
            assert!(report.is_clean(), "{}: {report}", path.display());
        }
        assert!(partitions >= 28, "{kind}: {partitions}");
    }
}
