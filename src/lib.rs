//! A Kafka-format log, as files: the library behind the `offsetfs` program.
//!
//! The layers, from the top; an arrow is the only direction in which a layer imports another, and a test holds it:
//!
//! ```text
//! cli -> fuse -> view -> source -> log -> io -> {types, error}
//! ```
//!
//! | layer | what it is |
//! |---|---|
//! | [`cli`] | what the user typed, run, and made an exit status |
//! | [`fuse`] | the kernel's questions, converted, asked of the view, and answered |
//! | [`view`] | the pure tree: paths to nodes to bytes; no kernel, no inode |
//! | [`source`] | what the view asks of whoever holds the records |
//! | [`log`] | the engine: batches, indexes, segments, look-up, recovery, the writer |
//! | [`io`] | the seam for files, maps, locks and the clock, real or simulated |
//! | [`types`], [`error`] | offsets, positions, times; what can go wrong |
//!
//! ```no_run
//! use offsetfs::io::{FileSystem, os::OsFileSystem};
//! use offsetfs::source::{Found, Source, local::{Local, Options}};
//! use offsetfs::types::{Offset, Patience};
//! use std::{path::Path, sync::Arc};
//!
//! let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
//! let log = Local::open(&fs, Path::new("/var/lib/kafka/orders-0"), Options::default())?;
//! if let Found::Record(record) = log.record(Offset::ZERO, Patience::MayBlock)? {
//!     println!("{:?}", record.value());
//! }
//! # Ok::<(), offsetfs::error::Error>(())
//! ```

pub mod cli;
pub mod error;
pub mod fuse;
pub mod io;
pub mod log;
pub mod source;
pub mod types;
pub mod view;
