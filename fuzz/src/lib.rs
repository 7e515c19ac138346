//! What the fuzz targets do, a module a target: bytes in, a panic where a promise is broken.
//!
//! Each module has `run`, which takes the bytes of one input, and `seeds`, inputs to begin with (from the directories that Kafka wrote, in
//! `tests/fixtures`, or made here). Nothing here touches the disk: partitions lie on the engine's own simulated disk, in memory. What all targets
//! promise beside their own: no panic, an end, and memory that is bounded by what comes out and never by what the bytes claim.

pub mod batch;
pub mod checkpoint;
pub mod codec;
pub mod directory;
pub mod envelope;
mod fixtures;
mod input;
mod logs;
mod memory;
pub mod message_set;
pub mod names;
pub mod offset_index;
pub mod path;
pub mod snapshot;
pub mod time;
pub mod time_index;
pub mod txnindex;

pub use codec::{gzip, lz4, snappy, zstd};

/// Makes a target of a module. With `OFFSETFS_FUZZ_SEEDS=FOLDER` it writes its seeds there and ends.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        libfuzzer_sys::fuzz_target!(init: $crate::begin($crate::$name::seeds), |input: &[u8]| $crate::$name::run(input));
    };
}

/// What a target does before its first input.
///
/// # Panics
/// Where the seeds cannot be written.
pub fn begin(seeds: fn() -> Vec<Vec<u8>>) {
    let Some(folder) = std::env::var_os("OFFSETFS_FUZZ_SEEDS") else { return };
    for (number, seed) in seeds().iter().enumerate() {
        let path = std::path::Path::new(&folder).join(format!("seed-{number:03}"));
        std::fs::write(path, seed).expect("the folder for the seeds can be written");
    }
    std::process::exit(0);
}
