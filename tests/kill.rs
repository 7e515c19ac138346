//! `kill -9` of a process that appends: the engine's, the command line's and the daemon of a mount with shells that write through it.
//!
//! No acknowledged record is lost or stands there twice, no byte is wrong, and the next opening works at once. A killed process leaves its writes in the page
//! cache, so an fsync proves nothing here: that is what `power` is for. `OFFSETFS_KILL_CYCLES` asks for more cycles than the usual number.
//!
//! This file is its own harness, since it starts itself again as the process that writes.

#[path = "kill/engine.rs"]
mod engine;
#[path = "common/ledger.rs"]
mod ledger;
#[path = "kill/mount.rs"]
mod mount;
#[path = "common/on_request.rs"]
mod on_request;

use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == ledger::WRITER) {
        let filesystem: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
        ledger::write(&filesystem, &arguments[1..]);
    }
    let engine = on_request::always(&[("a_killed_writer_loses_nothing", engine::a_killed_writer_loses_nothing)]);
    if engine != ExitCode::SUCCESS {
        return engine;
    }
    on_request::run("OFFSETFS_TEST_ROOT", "root and /dev/fuse", &[("a_killed_daemon_loses_nothing", mount::a_killed_daemon_loses_nothing)])
}
