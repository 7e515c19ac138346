//! The engine: record batches, indexes, segments, look-up, recovery and the single writer of a partition. It knows no tree and no kernel.
//!
//! Reading, from the outside in: [`partition`] publishes a layout of [`segment`]s; [`seek`] finds a record by its offset, [`times`] an offset by a
//! time, [`walk`] goes over batches; [`keys`] finds the last record of a key; [`scan`] is the thorough pass for everything that is not as it should be; [`transactions`] tells what
//! is committed. [`config`] and [`settings`] say how it is written. Below them stand the formats: [`mod@index`], [`batch`], [`record`], [`legacy`], [`compression`], [`checkpoint`], [`names`].

mod active;
pub mod batch;
pub mod bytes;
pub mod check;
pub mod checkpoint;
pub mod commit;
pub mod compaction;
pub mod compression;
pub mod config;
pub mod counters;
pub mod decoded;
pub mod decoders;
pub mod encode;
pub mod handle;
pub mod index;
pub mod isolation;
pub mod keys;
mod leftovers;
pub mod legacy;
pub mod listing;
pub mod names;
pub mod outline;
pub mod partition;
pub mod prepare;
pub mod properties;
pub mod record;
mod recovery;
pub mod removal;
pub mod repair;
pub mod retention;
pub mod scan;
pub mod seek;
pub mod segment;
pub mod settings;
pub mod sizes;
pub mod times;
pub mod transactions;
pub mod verified;
pub mod walk;
pub mod writer;
