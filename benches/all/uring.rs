//! An experiment: the same look-ups over FUSE on io_uring (`benches/uring`), next to the product, which reads requests from `/dev/fuse`. Asked for by
//! name only; the kernel's switch for it is set for as long as it runs.

use crate::client::{Mounted, ask_where};
use crate::mount::fill;
use crate::table::{Bound, Table};
use std::fs;
use std::path::Path;
use std::process::Command;

const RECORDS: u64 = 1_000_000;
const COUNT: u64 = 20_000;
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

pub(crate) fn run(table: &mut Table, folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("target/uring");
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(root.join("benches/uring/Cargo.toml"))
        .env("CARGO_TARGET_DIR", &target);
    assert!(build.status().expect("cargo").success(), "{build:?}");
    let before = fs::read_to_string(SWITCH).expect("a kernel with FUSE on io_uring");
    fs::write(SWITCH, "Y").expect("root");
    let source = folder.join("uring-0");
    fill(&source, RECORDS);
    let (ours_at, uring_at) = (folder.join("ours"), folder.join("uring"));
    fs::create_dir_all(&uring_at).expect("a mount point");
    for is_pinned in [true, false] {
        let place = if is_pinned { "daemon and client on one CPU" } else { "anywhere" };
        for round in 0..table.rounds as u64 {
            let _ours = Mounted::ours(&source, &ours_at, "tz=UTC,ro", is_pinned);
            let mut uring = Mounted::runner(is_pinned);
            uring.arg(target.join("release/offsetfs-uring")).arg(&source).arg(&uring_at);
            let _uring = Mounted::start(uring, &uring_at);
            let cold = |at: &Path, seed: u64| {
                ask_where(is_pinned, "cold", &[&at.join("by-offset").display(), &COUNT, &RECORDS, &(2 * round + seed)])
            };
            // Batches are verified first.
            for at in [&ours_at, &uring_at] {
                cold(at, 1001);
            }
            let (ours, other) = (cold(&ours_at, 1), cold(&uring_at, 1));
            table.row(&format!("by-offset/N by /dev/fuse / by io_uring, {place}"), "ns", Bound::Beside, ours, other, 0.0);
        }
    }
    fs::write(SWITCH, before.trim()).expect("as it was");
    let _ = fs::remove_dir_all(&source);
}
