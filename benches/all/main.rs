//! Every figure of the project in one run and one table: ours, the other side, their ratio, its bound, held or not.
//!
//! ```text
//! cargo bench --bench all                        every section but the last two
//! cargo bench --bench all -- SECTION...          some: inside mount together growth memory knobs peers uring
//! cargo bench --bench all -- --rounds 5          so many rounds (default 5)
//! cargo bench --bench all -- --readme            puts the tables into README.md, between its two marks
//! OFFSETFS_BENCH_MIB=256                         log of a set in process
//! OFFSETFS_BENCH_RECORDS=10000000                records behind the mount
//! OFFSETFS_BENCH_GROWTH=8                        the longest log of `growth` has ten to this power records
//! ```
//! It wants root, `/dev/fuse`, `taskset`, `strace`, a quiet machine of two CPUs and 10 GiB of disk. Client and daemon share one CPU: placement alone changes
//! the latency of FUSE up to seven times. Both sides of a ratio are measured in the same round and follow a warm pass; the median of the rounds'
//! ratios is shown with both ends. A ratio is shown only if both sides did the same work: each tells what it did, in counts, bytes and a sum.
//! Beside the text it writes `target/bench/table.json`, `table.md` and `table.svg`.
//!
//! Through the mount a row holds if its time is at most 1.15 times (the null file system's for the same requests + that of the same work in
//! process). `null` is that file system, `client` what pins itself beside it, `bare` the limit in process; `growth` and `memory` have no other side,
//! `knobs` has a table and a plot of its own. `peers` fetches Kafka with Maven and builds two crates (Java 17, the network the first time).

mod bare;
mod client;
mod growth;
mod inside;
mod knobs;
mod memory;
mod mount;
mod null;
mod peers;
mod places;
mod table;
mod together;
mod uring;

use std::path::Path;
use table::Table;

const SECTIONS: [&str; 8] = ["inside", "mount", "together", "growth", "memory", "knobs", "peers", "uring"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.first().map(String::as_str) {
        Some("null") => return null::serve(Path::new(&arguments[1]), Path::new(&arguments[2])),
        Some("client") => return client::run(&arguments[1], &arguments[2..]),
        Some("child") => return memory::child(&arguments[1..]),
        _ => {}
    }
    let rounds = arguments.iter().position(|a| a == "--rounds").and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(5);
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| SECTIONS.contains(a)).collect();
    let wants = |section: &str| if wanted.is_empty() { !["peers", "uring"].contains(&section) } else { wanted.contains(&section) };
    let folder = places::Scratch::new();
    let mut table = Table::new(rounds);
    let mut section = |name: &str, run: fn(&mut Table, &Path)| {
        if wants(name) {
            eprintln!("{name} ...");
            run(&mut table, folder.path());
            // What was measured stays, whatever happens in a later section.
            table.write_files();
        }
    };
    section("inside", inside::run);
    section("mount", mount::run);
    section("together", together::run);
    section("growth", growth::run);
    section("memory", memory::run);
    section("peers", peers::run);
    section("uring", uring::run);
    let into_readme = arguments.iter().any(|a| a == "--readme");
    if wants("knobs") {
        eprintln!("knobs ...");
        knobs::run(folder.path(), table.rounds, into_readme);
    }
    if wanted != ["knobs"] {
        print!("{}", table.text());
        if into_readme {
            table.put_into_readme();
        }
    }
    drop(folder);
    // A row whose sides did different work has no ratio: that is a fault of the benches.
    std::process::exit(i32::from(table.is_unequal()));
}
