//! An experiment: the same look-ups over FUSE on io_uring (`benches/uring`), next to the product, which reads requests from `/dev/fuse`. Asked for by
//! name only; the kernel's switch for it is set for as long as it runs.

use crate::client::{Mounted, ask_where};
use crate::mount::fill;
use crate::places::built;
use crate::table::{Bound, Table};
use std::fs;
use std::path::Path;

const RECORDS: u64 = 1_000_000;
const COUNT: u64 = 20_000;
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

pub(crate) fn run(table: &mut Table, folder: &Path) {
    let program = built("uring").join("offsetfs-uring");
    let _switched = Switched::on();
    let source = folder.join("uring-0");
    fill(&source, RECORDS);
    let (ours_at, uring_at) = (folder.join("ours"), folder.join("uring"));
    fs::create_dir_all(&uring_at).expect("a mount point");
    for is_pinned in [true, false] {
        let place = if is_pinned { "daemon and client on one CPU" } else { "anywhere" };
        for round in 0..table.rounds as u64 {
            let _ours = Mounted::ours(&source, &ours_at, "tz=UTC,ro", is_pinned);
            let mut uring = Mounted::runner(is_pinned);
            uring.arg(&program).arg(&source).arg(&uring_at);
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
    let _ = fs::remove_dir_all(&source);
}

/// The kernel's switch, which is what it was again at the end, whatever happens.
struct Switched(String);

impl Switched {
    fn on() -> Switched {
        let before = fs::read_to_string(SWITCH).expect("a kernel with FUSE on io_uring");
        fs::write(SWITCH, "Y").expect("root");
        Switched(before)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, self.0.trim());
    }
}
