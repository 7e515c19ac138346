//! What several test files share: the fixtures that a real Kafka wrote, an encoder of the format that has nothing in common with the
//! engine's own, and directories built with it.
//!
//! The tests in here are run with every test file that says `mod common;`: a helper that lies would make all of them lie.

pub(crate) mod encode;
mod encode_tests;
pub(crate) mod fixtures;
pub(crate) mod partition;
