//! What an operation costs, in counts: requests to the daemon, system calls, allocations, batches whose CRC is computed, bytes. Times cannot be
//! demanded of a busy machine; a step too many on the way to a record shows here all the same.
//!
//! What needs a mount or strace runs under `OFFSETFS_TEST_ROOT=1` only.

#[path = "cost/inside.rs"]
mod inside;
#[path = "cost/mount.rs"]
mod mount;
#[path = "common/mounted.rs"]
mod mounted;
#[path = "common/on_request.rs"]
mod on_request;
#[path = "common/traced.rs"]
mod traced;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, rest @ ..] = &arguments[..]
        && word == inside::CHILD
    {
        return inside::child(rest);
    }
    let inside = on_request::always(&[
        ("inside::a_look_up_of_a_touched_batch_allocates_nothing", inside::a_look_up_of_a_touched_batch_allocates_nothing),
        ("inside::a_first_look_up_reads_two_batches_at_most", inside::a_first_look_up_reads_two_batches_at_most),
        ("inside::a_line_of_many_allocates_nothing_of_its_own", inside::a_line_of_many_allocates_nothing_of_its_own),
    ]);
    let asked = on_request::run(
        "OFFSETFS_TEST_ROOT",
        "root, /dev/fuse, strace",
        &[
            ("inside::a_look_up_of_a_touched_batch_makes_no_system_call", inside::a_look_up_of_a_touched_batch_makes_no_system_call),
            ("mount::each_operation_makes_its_requests_and_no_more", mount::each_operation_makes_its_requests_and_no_more),
            ("mount::ls_asks_for_no_attribute_of_each_name", mount::ls_asks_for_no_attribute_of_each_name),
            ("mount::a_warm_record_costs_a_read_and_a_write_a_request", mount::a_warm_record_costs_a_read_and_a_write_a_request),
        ],
    );
    if inside == ExitCode::SUCCESS { asked } else { inside }
}
