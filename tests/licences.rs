//! The licences of the crates that are linked into the program: each can be distributed with it, and the README lists them as they are.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Licences that ask for no more than their text in the distribution.
const TAKEN: &[&str] = &["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Zlib", "Unicode-3.0", "Unlicense"];
/// The platform whose dependencies count: `cargo metadata` would otherwise list those of every other one.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// The crates below the program, build scripts and tests aside, by licence.
fn linked() -> BTreeMap<String, BTreeSet<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", PLATFORM]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let root = text(&metadata["resolve"]["root"]);
    let (mut seen, mut next) = (BTreeSet::new(), vec![root.clone()]);
    while let Some(id) = next.pop() {
        if seen.insert(id.clone()) {
            let needed =
                list(&nodes[&id]["deps"]).into_iter().filter(|dep| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()));
            next.extend(needed.map(|dep| text(&dep["pkg"])));
        }
    }
    seen.remove(&root);
    let mut licences: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in list(&metadata["packages"]).iter().filter(|package| seen.contains(&text(&package["id"]))) {
        // An old form of `OR`.
        let licence = text(&package["license"]).replace('/', " OR ");
        licences.entry(licence).or_default().insert(text(&package["name"]));
    }
    licences
}

/// Whether an expression of licences can be met with those that are taken.
fn is_taken(expression: &str) -> bool {
    let one = |licence: &str| TAKEN.contains(&licence.trim_matches(['(', ')', ' ']));
    expression.split(" AND ").all(|part| part.split(" OR ").any(one))
}

#[test]
fn each_licence_can_be_met() {
    for (licence, crates) in linked() {
        assert!(is_taken(&licence), "{licence}: {crates:?}");
    }
    assert!(is_taken("GPL-3.0 OR MIT") && !is_taken("GPL-3.0") && !is_taken("MIT AND GPL-3.0") && !is_taken(""));
}

#[test]
fn the_readme_lists_them() {
    let readme = include_str!("../README.md");
    let table = readme.split_once("<!-- licences -->\n").expect("a mark before the table").1;
    let table = table.split_once("<!-- end -->").expect("a mark behind the table").0.trim();
    let mut rows: Vec<_> = linked().into_iter().collect();
    rows.sort_by_key(|(licence, crates)| (usize::MAX - crates.len(), licence.clone()));
    let rows =
        rows.iter().map(|(licence, crates)| format!("| {licence} | {} |\n", Vec::from_iter(crates.iter().map(String::as_str)).join(", ")));
    let wanted = format!("| Licence | Crates |\n|---|---|\n{}", rows.collect::<String>());
    assert_eq!(table, wanted.trim(), "the table of the README should be\n\n{wanted}");
}
