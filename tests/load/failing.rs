//! An fsync that fails: the kernel has marked the pages clean, so that a second one would lie. Nobody may be told so.

use crate::mounted::Mounted;
use crate::{fresh, traced};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;

/// So many writers wait for the fsync that fails; the last one does with `O_DSYNC`.
const WRITERS: usize = 8;

fn append(m: &Mounted, flags: i32) -> File {
    OpenOptions::new().append(true).custom_flags(flags).open(m.at("append")).expect("append")
}

fn number<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}

pub(crate) fn a_failed_fsync_reaches_all_who_wait() {
    let (folder, m) = fresh("tz=UTC");
    let mut first = append(&m, 0);
    first.write_all(b"kept\n").and_then(|()| first.sync_all()).expect("an fsync");

    // The first fdatasync fails, and takes its time over it; all others would work.
    let inject = "inject=fdatasync:error=EIO:when=1:delay_enter=300000";
    let mut answers = Vec::new();
    let calls = traced(m.daemon.id(), &["-e", "trace=fdatasync", "-e", inject], || {
        let all = Barrier::new(WRITERS);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (m, all) = (&m, &all);
                    scope.spawn(move || {
                        let by_flag = writer + 1 == WRITERS;
                        let mut file = append(m, if by_flag { libc::O_DSYNC } else { 0 });
                        let line = format!("writer {writer}\n");
                        if !by_flag {
                            file.write_all(line.as_bytes()).expect("a write into the page cache");
                        }
                        all.wait();
                        if by_flag { file.write_all(line.as_bytes()) } else { file.sync_all() }
                    })
                })
                .collect();
            answers = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        });
        assert!(answers.iter().all(|answer| number(answer) == Some(libc::EIO)), "{answers:?}");

        // From here on nothing is taken, and no fsync of what was written before works.
        assert_eq!(number(&first.sync_all()), Some(libc::EIO));
        assert_eq!(number(&first.write_all(b"never\n")), Some(libc::EIO));
        assert_eq!(number(&append(&m, 0).write_all(b"never\n")), Some(libc::EIO));
    });
    assert_eq!(calls.iter().filter(|call| call.contains("fdatasync(")).count(), 1, "it is not tried again: {calls:?}");

    // Readers go on, and the tree says why.
    assert_eq!(m.text("by-offset/0"), "kept");
    let values = m.text("by-offset/earliest..latest");
    assert!(values.starts_with("kept\nwriter ") && !values.contains("never"), "{values}");
    assert!(m.text("errors").contains("EIO"), "{}", m.text("errors"));
    drop(first);
    drop(m);

    // Mounted again it recovers from what is really on the disk, and takes appends.
    let source = folder.path().join("demo-0");
    let m = Mounted::new(&source, &[]);
    let before = m.text("by-offset/earliest..latest");
    assert!(before.starts_with("kept\n"), "{before}");
    let mut file = append(&m, 0);
    file.write_all(b"again\n").and_then(|()| file.sync_all()).expect("an fsync");
    assert_eq!(m.text("by-offset/earliest..latest"), format!("{before}again\n"));
    drop(file);
    drop(m);
    assert!(
        fs::read_dir(&source).expect("the source").all(|entry| !entry.expect("an entry").file_name().to_string_lossy().contains("cut-"))
    );
    let check = Command::new(env!("CARGO_BIN_EXE_offsetfs")).arg("check").arg(&source).stdout(Stdio::null()).status();
    assert!(check.expect("offsetfs can be started").success());
}
