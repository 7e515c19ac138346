//! Generated input from a number that is printed, so that each failure can be had again, and is made smaller before it is shown.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::time::{SystemTime, UNIX_EPOCH};

/// The environment variable that gives the first seed.
pub(crate) const SEED: &str = "OFFSETFS_TEST_SEED";
/// A failing input is made smaller in at most so many steps.
const SHRINK_MOST: usize = 400;

/// The first seed: what the environment says, else the time.
pub(crate) fn base() -> u64 {
    match std::env::var(SEED) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{SEED}={text}: it takes a number")),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs()),
    }
}

/// Tries one generated value. `Err` has the smallest value found that fails, and what the check said of it.
///
/// # Panics
/// Where the strategy gives no value.
pub(crate) fn hold<S: Strategy>(
    seed: u64,
    strategy: &S,
    mut check: impl FnMut(&S::Value) -> Result<(), String>,
) -> Result<(), (S::Value, String)> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let mut tree = strategy.new_tree(&mut runner).expect("the strategy gives a value");
    let Err(mut said) = check(&tree.current()) else { return Ok(()) };
    let mut smallest = tree.current();
    for _ in 0..SHRINK_MOST {
        let value = tree.current();
        let moved = match check(&value) {
            Err(reason) => {
                (smallest, said) = (value, reason);
                tree.simplify()
            }
            Ok(()) => tree.complicate(),
        };
        if !moved {
            break;
        }
    }
    Err((smallest, said))
}
