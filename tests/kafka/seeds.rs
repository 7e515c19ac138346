//! Generated input from a number that is printed, so that each failure can be had again, and is made smaller before it is shown.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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

/// Compares many generated values, as many as the environment variable says, one seed behind the other. Prints the smallest value of each
/// difference, with what `shown` says of it, and how often each kind was met; gives the seeds that differ, at most `most` of them.
///
/// # Panics
/// Where the variable is no number.
pub(crate) fn sweep<S: Strategy>(
    (variable, otherwise): (&str, u64),
    (what, most): (&str, usize),
    strategy: &S,
    mut compare: impl FnMut(&S::Value) -> Result<Vec<&'static str>, String>,
    shown: impl Fn(&S::Value) -> String,
) -> Vec<u64> {
    let asked = std::env::var(variable);
    let count = asked.map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}: it takes a number")));
    let (seed, began, mut tally) = (base(), Instant::now(), BTreeMap::<&str, u64>::new());
    let mut differing = Vec::new();
    for n in 0..count {
        let mut first = None;
        let found = hold(seed + n, strategy, |value| {
            let result = compare(value);
            first.get_or_insert_with(|| result.clone().unwrap_or_default());
            result.map(|_| ())
        });
        first.unwrap_or_default().into_iter().for_each(|kind| *tally.entry(kind).or_default() += 1);
        if let Err((value, difference)) = found {
            println!("    {SEED}={} {variable}=1: {difference}\n    {}", seed + n, shown(&value));
            differing.push(seed + n);
        }
        if differing.len() >= most {
            break;
        }
    }
    println!("    {count} {what} from seed {seed} in {} s, {} differ", began.elapsed().as_secs(), differing.len());
    for (kind, times) in &tally {
        println!("    {times:6} {kind}");
    }
    differing
}
