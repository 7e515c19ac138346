//! The tests' own encoder and fixtures, by themselves.

mod common;
