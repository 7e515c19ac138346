//! Runs tests that are there only when an environment variable asks for them.
//!
//! A test that returns early would count as passed. A file that is built without the usual harness (`harness = false`) and calls [`run`] says
//! in one line what was not asked for, and once it was asked, what is missing is a failure.

use std::panic;
use std::process::ExitCode;

/// A test and its name.
pub(crate) type Test = (&'static str, fn());

/// Runs the tests if `variable` is `1`; otherwise says that they were not asked for, and what they need.
pub(crate) fn run(variable: &str, needs: &str, tests: &[Test]) -> ExitCode {
    if std::env::var_os(variable).is_none_or(|value| value != "1") {
        println!("\n{} tests not asked for; {variable}=1 runs them ({needs})\n", tests.len());
        return ExitCode::SUCCESS;
    }
    always(tests)
}

/// Runs the tests, in a file that has a reason of its own for not being built with the usual harness.
pub(crate) fn always(tests: &[Test]) -> ExitCode {
    let filters = filters(std::env::args().skip(1));
    let chosen: Vec<&Test> =
        tests.iter().filter(|(name, _)| filters.is_empty() || filters.iter().any(|part| name.contains(part))).collect();
    println!("\nrunning {} tests", chosen.len());
    let mut failed = Vec::new();
    for (name, test) in &chosen {
        let outcome = panic::catch_unwind(test);
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {} failed; {} filtered out",
        chosen.len() - failed.len(),
        failed.len(),
        tests.len() - chosen.len()
    );
    for name in &failed {
        println!("    {name}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The parts of names that `cargo test NAME` passes on, without the options of the usual harness.
fn filters(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut filters = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        if matches!(argument.as_str(), "--skip" | "--test-threads" | "--format" | "--color" | "--logfile" | "-Z") {
            arguments.next();
        } else if !argument.starts_with('-') {
            filters.push(argument);
        }
    }
    filters
}
