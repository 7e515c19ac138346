//! The files that Kafka wrote, from `tests/fixtures`, for seeds.

use std::io::Read;

/// Of a file no more than this is taken, in bytes.
const HEAD: u64 = 4096;

/// The beginnings of the files whose path ends in `suffix`, each with its path, in order. `data/` is what a broker wrote and stopped well.
///
/// # Panics
/// Where the archive cannot be read.
pub(crate) fn heads(suffix: &str) -> Vec<(String, Vec<u8>)> {
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/fixtures.tar.zst");
    let packed = std::fs::File::open(packed).expect("the fixtures stand in tests/fixtures");
    let mut plain = zstd::stream::Decoder::new(packed).expect("the fixtures are a zstd file");
    plain.window_log_max(27).expect("a window of 128 MiB");
    let mut archive = tar::Archive::new(plain);
    let mut heads = Vec::new();
    for entry in archive.entries().expect("a tar archive") {
        let entry = entry.expect("an entry");
        let path = entry.path().expect("a path").to_string_lossy().into_owned();
        if path.starts_with("data/") && path.ends_with(suffix) {
            let mut head = Vec::new();
            entry.take(HEAD).read_to_end(&mut head).expect("a file of the archive");
            heads.push((path, head));
        }
    }
    heads.sort();
    heads
}

/// The batches at the beginning of each `.log`, whole ones only.
pub(crate) fn batches() -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    for (_, log) in heads(".log") {
        let mut at = 0;
        while let Ok(offsetfs::log::batch::Step::Batch(header)) = offsetfs::log::batch::BatchHeader::read(&log, at) {
            let end = at + header.size as usize;
            batches.push(log[at..end].to_vec());
            at = end;
        }
    }
    batches
}

/// At most `most` of them, spread over all.
pub(crate) fn some<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let step = all.len().div_ceil(most.max(1)).max(1);
    all.into_iter().step_by(step).collect()
}
