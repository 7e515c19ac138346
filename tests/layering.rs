//! The house rules that the compiler does not know: who may import whom, where `unsafe` may stand, how long a file may be.
//!
//! It reads `src/**/*.rs` as text. A small scanner takes comments and literals away, follows the module of every line, and resolves each
//! `use` and each path in an expression to the file it leads to. That is not a Rust parser: macros are read as they are written. The tests
//! at the end plant one offence of each kind, so that a rule that no longer bites is noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

#[path = "layering/scan.rs"]
mod scan;

use scan::{Reference, Source};

/// Each layer with the layers right below it. What lies further down may be imported, too; nothing else may.
const LAYERS: &[(&str, &[&str])] = &[
    ("cli", &["fuse"]),
    ("fuse", &["view"]),
    ("view", &["source"]),
    ("source", &["log", "cluster"]),
    ("log", &["io"]),
    ("cluster", &["types", "error"]),
    ("io", &["types", "error"]),
    ("error", &["types"]),
    ("types", &[]),
];

/// Layers in which the files must not import each other in a circle. A module and the files in its own folder are one room: it may use its
/// parts, and they may use it; but neither rooms nor the parts of one may go in a circle.
const ACYCLIC: &[&str] = &["log", "view"];

/// Words that `view` has no business with, as parts of identifiers.
const NOT_IN_VIEW: &[&str] = &["fuser", "libc", "errno", "inode"];

/// The most lines a source file may have.
const LINES_MAX: usize = 800;

/// Whether code of the layer `from` may name the layer `to`.
fn allowed(from: &str, to: &str) -> bool {
    let below = LAYERS.iter().find(|(name, _)| *name == from).map_or(&[] as &[&str], |(_, below)| below);
    below.iter().any(|layer| *layer == to || allowed(layer, to))
}

/// All offences in these sources, each a line `file:line: what is wrong`.
fn offences(sources: &[Source]) -> Vec<String> {
    let modules: BTreeSet<Vec<String>> = sources.iter().map(|source| source.module.clone()).collect();
    let mut found = Vec::new();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let only_for_tests: BTreeSet<Vec<String>> = sources.iter().flat_map(Source::test_modules).collect();
    for source in sources {
        if source.lines > LINES_MAX {
            found.push(format!("{}:{}: longer than {LINES_MAX} lines; split it by subject", source.path, source.lines));
        }
        found.extend(source.places_of_unsafe().into_iter().map(|(line, what)| format!("{}:{line}: {what}", source.path)));
        let Some(layer) = source.module.first() else { continue };
        if !LAYERS.iter().any(|(name, _)| name == layer) {
            found.push(format!("{}:1: `{layer}` is no layer; give it a place in tests/layering.rs", source.path));
            continue;
        }
        if layer == "view" {
            found.extend(source.words(NOT_IN_VIEW).into_iter().map(|(line, word)| format!("{}:{line}: view says `{word}`", source.path)));
        }
        let test_file = only_for_tests.iter().any(|module| source.module.starts_with(module));
        for Reference { line, path, in_test } in source.references(&modules) {
            let Some(to) = path.first().filter(|to| modules.contains(std::slice::from_ref(*to))) else {
                let name = path.join("::");
                found.push(format!("{}:{line}: `crate::{name}` hides its layer; name the module it lives in", source.path));
                continue;
            };
            if to != layer && !allowed(layer, to) {
                found.push(format!("{}:{line}: {layer} imports {to}", source.path));
            }
            if to == layer && ACYCLIC.contains(&layer.as_str()) && !in_test && !test_file {
                let target = (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|prefix| modules.contains(prefix));
                let target = target.expect("the layer itself is a module");
                if let Some((from, to)) = edge(&source.module, &target) {
                    graph.entry(from).or_default().insert(to);
                }
            }
        }
    }
    found.dedup();
    found.extend(circle(&graph).map(|names| format!("the files import each other in a circle: {}", names.join(" -> "))));
    found
}

/// The two modules right below the deepest one that two files share, by name; `None` where one of the files is that room itself.
fn edge(from: &[String], to: &[String]) -> Option<(String, String)> {
    let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let whole_layer = shared == 1;
    let name = |module: &[String]| (module.len() > shared || whole_layer).then(|| module[..module.len().min(shared + 1)].join("::"));
    Some((name(from)?, name(to)?)).filter(|(from, to)| from != to)
}

/// One circle of the graph, its first name repeated at the end.
fn circle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk<'g>(
        node: &'g String,
        graph: &'g BTreeMap<String, BTreeSet<String>>,
        trail: &mut Vec<&'g String>,
        done: &mut BTreeSet<&'g String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = trail.iter().position(|seen| *seen == node) {
            return Some(trail[start..].iter().copied().chain([node]).cloned().collect());
        }
        if !done.insert(node) {
            return None;
        }
        trail.push(node);
        let found = graph.get(node).into_iter().flatten().find_map(|next| walk(next, graph, trail, done));
        trail.pop();
        found
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|node| walk(node, graph, &mut Vec::new(), &mut done))
}

/// Reads the sources below a folder.
fn read(folder: &Path, under: &str, into: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("the source folder can be listed") {
        let entry = entry.expect("the source folder can be listed");
        let name = entry.file_name().into_string().expect("source names are UTF-8");
        let path = format!("{under}/{name}");
        if entry.file_type().expect("an entry has a type").is_dir() {
            read(&entry.path(), &path, into);
        } else if name.ends_with(".rs") {
            into.push(Source::new(&path, &fs::read_to_string(entry.path()).expect("a source is UTF-8 text")));
        }
    }
}

#[test]
fn the_sources_keep_the_house_rules() {
    let mut sources = Vec::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "src", &mut sources);
    assert!(sources.iter().any(|source| source.path == "src/lib.rs"), "the sources were not found");
    let found = offences(&sources);
    assert!(found.is_empty(), "{} offences:\n{}", found.len(), found.join("\n"));
}

/// A tree without an offence, small enough to plant one.
const HOUSE: &[(&str, &str)] = &[
    ("src/lib.rs", "pub mod error; pub mod io; pub mod log; pub mod types; pub mod source; pub mod view; pub mod fuse; pub mod cli;"),
    ("src/main.rs", "fn main() { offsetfs::cli::run() }"),
    ("src/types.rs", "pub struct Offset;"),
    ("src/error.rs", "use crate::types::Offset;"),
    ("src/io/mod.rs", "pub mod mmap; pub use mmap::Map; use crate::{error::Error, types::{self, Offset}};"),
    ("src/io/mmap.rs", "use super::File; fn f() {\n    // SAFETY: the map is ours.\n    unsafe { g() } }"),
    ("src/log/mod.rs", "pub mod batch; pub mod segment; #[cfg(test)] mod tests;"),
    (
        "src/log/batch.rs",
        "//! Not crate::view.\nuse crate::io; /* crate::fuse */ const A: &str = \"crate::cli\"; const C: char = '\"'; fn f<'a>(_: &'a u8) {}",
    ),
    ("src/log/segment.rs", "use super::batch::Batch; #[cfg(test)] mod tests { use super::*; use crate::log::tests::t; }"),
    ("src/log/tests.rs", "use super::segment::Segment;"),
    ("src/source.rs", "use crate::log::segment; fn f() { segment::open(); }"),
    ("src/view/mod.rs", "mod path; /// No inode and no errno here.\nconst README: &str = r#\"say \"errno\" \"#;"),
    ("src/view/path.rs", "use crate::{source::Source, types::Offset};"),
    ("src/fuse/mod.rs", "use crate::view; fn f() {\n    // SAFETY: no pointers.\n    let id = unsafe { libc::getuid() };\n}"),
    ("src/cli/mod.rs", "use crate::{fuse, log::segment::dump};"),
];

/// The offences in the tree above once `text` is put at the end of `path`.
fn planted(path: &str, text: &str) -> Vec<String> {
    let mut files: BTreeMap<&str, String> = HOUSE.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
    let file = files.entry(path).or_default();
    file.push('\n');
    file.push_str(text);
    offences(&files.iter().map(|(path, text)| Source::new(path, text)).collect::<Vec<_>>())
}

#[test]
fn a_tree_without_offences_passes() {
    assert_eq!(planted("src/log/batch.rs", "// nothing"), Vec::<String>::new());
}

#[test]
fn an_upward_import_is_seen_in_every_spelling() {
    for (path, text, what) in [
        ("src/log/batch.rs", "use crate::view;", "log imports view"),
        ("src/log/batch.rs", "pub(crate) use crate::view::path::{self as p};", "log imports view"),
        ("src/log/batch.rs", "use crate::{io, types::{self, Offset}, source::{a, b::{c}}};", "log imports source"),
        ("src/log/batch.rs", "fn g() -> crate::fuse::Session { todo }", "log imports fuse"),
        ("src/log/batch.rs", "fn g() { let x = super::super::cli::run(); }", "log imports cli"),
        ("src/log/batch.rs", "#[cfg(test)]\nmod tests {\n    use super::super::super::view;\n}", "log imports view"),
        ("src/log/batch.rs", "use crate as root; fn g() { root::view::f() }", "log imports view"),
        ("src/log/batch.rs", "macro_rules! m { () => { $crate::view::f() } }", "log imports view"),
        ("src/io/mod.rs", "use crate::log::segment;", "io imports log"),
        ("src/io/mod.rs", "mod deep { mod deeper { use super::super::super::source; } }", "io imports source"),
        ("src/error.rs", "fn g(e: crate::io::Kind) {}", "error imports io"),
        ("src/types.rs", "use {std::fmt, crate::error::Error};", "types imports error"),
        ("src/view/path.rs", "use crate::fuse;", "view imports fuse"),
        ("src/cluster.rs", "use crate::io;", "cluster imports io"),
        ("src/cluster.rs", "use crate::log;", "cluster imports log"),
        ("src/log/mod.rs", "use crate::cluster;", "hides its layer"),
        ("src/log/batch.rs", "use crate::Everything;", "hides its layer"),
        ("src/log/batch.rs", "use crate::*;", "hides its layer"),
        ("src/extra.rs", "", "`extra` is no layer"),
    ] {
        let found = planted(path, text);
        assert!(found.len() == 1 && found[0].starts_with(path) && found[0].contains(what), "{text}: {found:?}");
    }
}

#[test]
fn a_circle_of_files_is_seen_and_tests_may_close_one() {
    for (path, text) in [
        ("src/log/batch.rs", "use super::segment::Segment;"),
        ("src/log/batch.rs", "fn g() { crate::log::segment::open() }"),
        ("src/log/batch.rs", "use crate::log; fn g() { log::segment::open() }"),
        ("src/view/mod.rs", "use path::ViewPath; mod inner { use crate::view::path; }\nuse self::path::X; pub fn help() {}"),
    ] {
        let mut files: Vec<Source> = HOUSE.iter().filter(|file| file.0 != path).map(|(path, text)| Source::new(path, text)).collect();
        let before = HOUSE.iter().find(|file| file.0 == path).map_or("", |file| file.1);
        files.push(Source::new(path, &format!("{before}\n{text}")));
        files.retain(|file| file.path != "src/view/path.rs");
        files.push(Source::new("src/view/path.rs", "use super::help;"));
        let found = offences(&files);
        let circles = found.iter().filter(|line| line.contains("circle")).count();
        assert!(circles == 1 && found.len() == 1, "{text}: {found:?}");
    }
    let rooms = |parts: &[(&str, &str)]| {
        let files = HOUSE.iter().chain(parts).map(|(path, text)| Source::new(path, text));
        offences(&files.collect::<Vec<_>>())
    };
    let part = "src/log/index/time.rs";
    assert!(rooms(&[("src/log/index.rs", "mod time; use time::a;"), (part, "use super::b;")]).is_empty());
    assert_eq!(rooms(&[("src/log/index.rs", ""), (part, "use crate::log::scan;"), ("src/log/scan.rs", "use super::index::a;")]).len(), 1);
    assert_eq!(rooms(&[("src/log/index.rs", ""), (part, "use super::b::c;"), ("src/log/index/b.rs", "use super::time;")]).len(), 1);
    assert!(planted("src/log/batch.rs", "#[cfg(test)]\nmod tests { use super::super::segment::open; }").is_empty());
    assert!(planted("src/log/batch.rs", "#[cfg(test)]\nuse super::segment::{open, close};").is_empty());
    assert_eq!(planted("src/log/batch.rs", "#[cfg(test)]\nmod tests { }\nuse super::segment::open;").len(), 1);
}

#[test]
fn words_of_the_kernel_are_seen_in_view() {
    for text in ["use libc::c_int;", "fn inode_of() {}", "struct RawErrno;", "type T = fuser::FileType;", "const INODE: u8 = 1;"] {
        let found = planted("src/view/path.rs", text);
        assert!(found.len() == 1 && found[0].contains("view says"), "{text}: {found:?}");
    }
    assert!(planted("src/view/path.rs", "fn reinodes() {} /* errno */ const A: &[u8] = b\"inode\";").is_empty());
    assert!(planted("src/source.rs", "fn inode() {}").is_empty());
}

#[test]
fn unsafe_is_seen_where_it_may_not_stand() {
    for (path, text) in [
        ("src/log/batch.rs", "fn g() {\n    // SAFETY: none.\n    unsafe { libc::getuid() };\n}"),
        ("src/view/path.rs", "unsafe fn g() {}"),
        ("src/io/mmap.rs", "fn g() {\n    unsafe { h() }\n}"),
        ("src/io/mmap.rs", "// SAFETY: of another statement.\nlet a = b;\nunsafe impl Send for A {}"),
        ("src/fuse/mod.rs", "fn g() {\n    let x = unsafe { libc::getuid() };\n}"),
        ("src/fuse/mod.rs", "// SAFETY: two calls.\nfn g() { unsafe { libc::getuid(); libc::getgid() } }"),
        ("src/fuse/mod.rs", "// SAFETY: not libc.\nfn g() { unsafe { std::mem::zeroed() } }"),
        ("src/fuse/mod.rs", "// SAFETY: a whole function.\nunsafe fn g() {}"),
    ] {
        let found = planted(path, text);
        assert!(found.len() == 1 && found[0].contains("unsafe"), "{text}: {found:?}");
    }
    let good = "fn g() {\n    // SAFETY: the pointer is valid\n    // for the call.\n    let code =\n        unsafe { libc::poll(&raw mut fd, 1, f(50)) };\n}";
    assert!(planted("src/fuse/mod.rs", good).is_empty());
    assert!(planted("src/io/mmap.rs", "/// Maps.\n///\n/// # Safety\n/// The file must live.\npub unsafe fn g() {}").is_empty());
}

#[test]
fn a_long_file_is_seen() {
    assert_eq!(planted("src/log/batch.rs", &"\n".repeat(LINES_MAX)).len(), 1);
}
