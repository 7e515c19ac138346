//! Crashes and failures of the disk: whatever operation is struck and whatever subset of the unsynced changes survives, nothing acknowledged is lost
//! and nothing is invented.
//!
//! The writer is driven on one thread over the simulated disk, as `commit` drives it: a sync is acknowledged when every rolled segment is sealed
//! and the active one is synced. A state is one disk after a crash (or after crashes in a row, the later ones in the middle of recovery), looked at
//! by the oracle. Short workloads are gone through completely, longer ones are drawn. `OFFSETFS_CRASH_STATES` asks for more states than the usual
//! number, `OFFSETFS_CRASH_SEED` for others, `OFFSETFS_CRASH_LENGTH` for complete workloads of more steps. A case that fails is made as small as
//! it gets and printed as a test, which belongs at the end of this file.
//!
//! Records that were not acknowledged may be there or not, each for itself: behind bytes that were lost whole batches may have survived, and no reader
//! can tell them from good neighbours of a damaged stretch, so they stay.

#[path = "crash/case.rs"]
mod case;
#[path = "crash/compaction.rs"]
mod compaction;
#[path = "crash/exhaustive.rs"]
mod exhaustive;
#[path = "crash/judge.rs"]
mod judge;
#[path = "crash/lies.rs"]
mod lies;
#[path = "crash/process.rs"]
mod process;
#[path = "common/random.rs"]
mod random;
#[path = "crash/retention.rs"]
mod retention;

use case::{Case, End, Life, Shape, Step, Survives};
use exhaustive::Space;
use lies::Lie;
use offsetfs::io::sim::Fault;
use process::Verdict;
use random::Random;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// So many states are looked at where nobody asks for more.
const STATES: u64 = 2_000;
const SEED: u64 = 0x0FF5_E7F5;
/// After one life so many crashed disks are drawn.
const CRASHES_A_LIFE: u64 = 10;
/// So many smaller cases are tried before a failing one is printed.
const TRIES: usize = 5_000;

impl Random {
    fn within(&mut self, from: u64, end: u64) -> u64 {
        from + self.below(end - from)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// One life and the states that it leads to.
fn one(seed: u64, lie: Option<Lie>) -> Result<u64, Box<(Case, String)>> {
    let mut random = Random(seed);
    let life = Life::draw(&mut random);
    let lived = judge::live(&life, lie);
    for crash in 0..CRASHES_A_LIFE {
        let case = Case { life: life.clone(), end: End::draw(&mut random) };
        let verdict = match &lived {
            Ok((machine, ledger)) => judge::judge(machine, ledger, &case.end),
            Err(reason) => Err(reason.clone()),
        };
        verdict.map_err(|reason| Box::new((case, format!("seed {seed:#x}, crash {crash}: {reason}"))))?;
    }
    Ok(CRASHES_A_LIFE)
}

/// Calls `work` with the numbers from 0 to below `end` on all processors, until one fails.
fn on_all_processors(end: u64, work: impl Fn(u64) -> Verdict<()> + Sync) -> Verdict<()> {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end || failed.lock().expect("no panic").is_some() {
                        return;
                    }
                    if let Err(reason) = work(number) {
                        failed.lock().expect("no panic").get_or_insert(reason);
                    }
                }
            });
        }
    });
    failed.into_inner().expect("no panic").map_or(Ok(()), Err)
}

/// The beginning of a reason without its numbers: a smaller case has to fail for the same one.
fn kind(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_ascii_digit()).take(35).collect()
}

/// As many states as are asked for. The first failing case is shrunk and printed.
fn states(most: u64, seed: u64, lie: Option<Lie>) -> Verdict<u64> {
    let seen = AtomicU64::new(0);
    on_all_processors(most.div_ceil(CRASHES_A_LIFE), |number| {
        // The numbers that one generator would give, one behind the other.
        let seed = Random(seed.wrapping_add(number.wrapping_mul(Random::STEP))).next();
        let more = one(seed, lie).map_err(|failed| {
            let (case, reason) = *failed;
            let first = judge::case(&case, lie).err().unwrap_or_default();
            let shrunk = case.shrunk(TRIES, |case| judge::case(case, lie).is_err_and(|reason| kind(&reason) == kind(&first)));
            let shrunk_reason = judge::case(&shrunk, lie).err().unwrap_or_default();
            format!("{reason}\n\nThe smallest case found: {shrunk_reason}\n\n{shrunk}")
        })?;
        let before = seen.fetch_add(more, Ordering::Relaxed);
        if (before + more) / 100_000 > before / 100_000 {
            println!("{} states", before + more);
        }
        Ok(())
    })?;
    Ok(seen.into_inner())
}

/// All sequences of up to so many steps; the recoveries of those shorter than that are struck once more.
fn complete(length: usize, lie: Option<Lie>) -> Verdict<Space> {
    let sequences: Vec<_> = (1..=length).flat_map(exhaustive::sequences).collect();
    let space = Mutex::new(Space::default());
    on_all_processors(sequences.len() as u64, |number| {
        let steps = &sequences[number as usize];
        let more = exhaustive::look(steps, steps.len() < length, lie)?;
        space.lock().expect("no panic").add(more);
        Ok(())
    })?;
    Ok(space.into_inner().expect("no panic"))
}

fn asked(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable} takes a number")))
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_invented() {
    let (most, seed) = (asked("OFFSETFS_CRASH_STATES", STATES), asked("OFFSETFS_CRASH_SEED", SEED));
    println!("OFFSETFS_CRASH_SEED={seed}");
    match states(most, seed, None) {
        Ok(seen) => println!("{seen} states"),
        Err(reason) => panic!("{reason}"),
    }
}

#[test]
fn short_workloads_completely() {
    let length = asked("OFFSETFS_CRASH_LENGTH", 1) as usize;
    match complete(length, None) {
        Ok(space) => println!("up to {length} steps: {space}"),
        Err(reason) => panic!("{reason}"),
    }
}

#[test]
fn a_missing_fsync_is_found_and_the_case_is_small() {
    for lie in [Lie::Data, Lie::Names] {
        let reason = states(5_000, SEED, Some(lie)).expect_err("a state that lost something");
        assert!(complete(2, Some(lie)).is_err(), "{lie:?}: short workloads show it, too");
        let printed = &reason[reason.find("#[test]").expect("a printed test")..];
        assert!(printed.lines().count() <= 30 && printed.matches("Step::").count() <= 3, "{lie:?}: {reason}");
        println!("{lie:?}: {reason}");
    }
}

/// The directory sync behind the first `delete-before` failed; the second one found its offset in the checkpoint, and acknowledged it without a sync.
#[test]
fn found_a_log_start_that_was_acknowledged_and_not_durable() {
    let case = Case {
        life: Life {
            shape: Shape {
                segment_bytes: 240,
                segment_index_bytes: 48,
                index_interval_bytes: 0,
                batch_size: 100,
                lz4: false,
                retention_bytes: 0,
                keyed: false,
            },
            steps: vec![Step::Append(vec![vec![5]]), Step::DeleteBefore(2), Step::DeleteBefore(2)],
            fault: Some((43, Fault::Io)),
        },
        end: End {
            survives: Survives { reorder: false, choices: vec![0, 0] },
            recoveries: vec![],
            last: Some(Survives { reorder: false, choices: vec![] }),
        },
    };
    assert_eq!(judge::case(&case, None), Ok(()));
}

/// A batch was cut off and a shorter one written in its place, behind which the log rolled. The old bytes and the new index entry survived: the batch that
/// the entry named reached into the next segment, and was shown beside it.
#[test]
fn found_a_batch_that_reaches_into_the_next_segment() {
    let case = Case {
        life: Life {
            shape: Shape {
                segment_bytes: 1500,
                segment_index_bytes: 256,
                index_interval_bytes: 173,
                batch_size: 250,
                lz4: false,
                retention_bytes: 0,
                keyed: false,
            },
            steps: vec![
                Step::Append(vec![vec![452, 348, 40, 17], vec![26], vec![16, 28, 16, 278]]),
                Step::Append(vec![vec![35, 20, 176], vec![5, 5]]),
                Step::DeleteBefore(6),
            ],
            fault: Some((54, Fault::Io)),
        },
        end: End {
            survives: Survives {
                reorder: true,
                choices: vec![
                    1, 1, 42, 1, 1, 1, 22, 1, 172, 1, 169, 1, 1, 202, 1, 206, 1, 1, 66, 1, 1, 1, 1, 1, 165, 1, 1, 16, 1, 1, 167, 233, 94,
                    1, 1, 1, 1, 1, 83, 1, 1, 1, 1, 1, 223, 1, 92, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 167, 138, 1, 1, 1, 1, 1, 1, 194, 26,
                    1, 93, 1, 44, 242, 1, 1, 252, 1, 1, 1,
                ],
            },
            recoveries: vec![],
            last: Some(Survives { reorder: false, choices: vec![] }),
        },
    };
    assert_eq!(judge::case(&case, None), Ok(()));
}

/// The same, in front of segments that were lost: the recovery saw that the batch could not be, and readers before it did not.
#[test]
fn found_a_batch_that_only_the_recovery_refused() {
    let case = Case {
        life: Life {
            shape: Shape {
                segment_bytes: 1035,
                segment_index_bytes: 256,
                index_interval_bytes: 168,
                batch_size: 545,
                lz4: false,
                retention_bytes: 0,
                keyed: false,
            },
            steps: vec![
                Step::Append(vec![vec![497]]),
                Step::Append(vec![vec![6, 23, 71]]),
                Step::DeleteBefore(4),
                Step::Append(vec![vec![13, 87, 21, 32], vec![12, 20, 11], vec![16, 154, 125]]),
                Step::Append(vec![vec![20], vec![2]]),
                Step::DeleteBefore(1),
                Step::Append(vec![vec![420, 290], vec![3, 425, 12]]),
                Step::Append(vec![vec![12, 497, 259, 1]]),
            ],
            fault: Some((48, Fault::NoSpace)),
        },
        end: End {
            survives: Survives {
                reorder: true,
                choices: vec![
                    182, 128, 9, 129, 155, 246, 4, 198, 14, 201, 215, 103, 33, 187, 99, 222, 133, 86, 81, 58, 241, 137, 96, 175, 67, 2,
                    138, 218, 86, 84, 70, 153, 116, 9, 172, 210, 142, 23, 126, 34, 53, 176, 255, 98, 43, 221, 1, 62, 164, 35, 171, 5, 88,
                    109, 32, 115, 158, 248, 61, 141, 6, 218, 95, 1, 47, 233, 159, 181, 9, 112, 204, 141, 198, 85, 12, 194, 97, 157, 46, 62,
                ],
            },
            recoveries: vec![],
            last: None,
        },
    };
    assert_eq!(judge::case(&case, None), Ok(()));
}

/// The oracle was wrong: a sync that follows a recovery whose first fsync failed speaks for what the second one found, no more.
#[test]
fn found_an_oracle_that_expected_what_a_failed_fsync_had_lost() {
    let case = Case {
        life: Life {
            shape: Shape {
                segment_bytes: 1500,
                segment_index_bytes: 256,
                index_interval_bytes: 103,
                batch_size: 63,
                lz4: false,
                retention_bytes: 0,
                keyed: false,
            },
            steps: vec![
                Step::Append(vec![vec![349]]),
                Step::Append(vec![vec![36], vec![114, 497], vec![41, 38, 21, 22]]),
                Step::Die,
                Step::DeleteBefore(0),
                Step::Roll,
                Step::Sync,
                Step::Append(vec![vec![25, 21], vec![4, 33, 45], vec![393]]),
            ],
            fault: Some((105, Fault::Io)),
        },
        end: End {
            survives: Survives {
                reorder: false,
                choices: vec![
                    14, 110, 191, 161, 125, 169, 204, 216, 166, 125, 252, 38, 161, 29, 168, 50, 241, 230, 145, 120, 48, 31, 143, 242, 130,
                    36, 101, 181, 160, 62, 150, 237, 223, 123, 212, 50, 234, 61, 219, 154, 158, 3, 196, 157, 200, 126, 151, 178, 51, 0,
                    152, 108, 180, 143, 118, 23, 99, 191, 53, 100, 36, 119, 130, 252, 0, 184, 102, 80, 2, 70, 25, 114, 189, 251, 126, 11,
                    167, 142, 170, 79,
                ],
            },
            recoveries: vec![],
            last: None,
        },
    };
    assert_eq!(judge::case(&case, None), Ok(()));
}

/// Behind a batch whose body was lost stood a good one, and behind that one that was no batch any more. Readers passed over the first by its header where no
/// index entry led there, and saw the good one; a thorough pass did not.
#[test]
fn found_a_batch_that_only_the_recovered_log_showed() {
    let case = Case {
        life: Life {
            shape: Shape {
                segment_bytes: 1500,
                segment_index_bytes: 256,
                index_interval_bytes: 61,
                batch_size: 292,
                lz4: false,
                retention_bytes: 1959,
                keyed: true,
            },
            steps: vec![
                Step::Append(vec![vec![101, 29, 24]]),
                Step::Sync,
                Step::Append(vec![vec![24, 319]]),
                Step::Append(vec![vec![15, 224, 10, 36], vec![244, 444]]),
                Step::Append(vec![vec![30, 26], vec![48, 0, 53, 26], vec![19]]),
                Step::Append(vec![vec![28], vec![345, 34, 3]]),
                Step::Roll,
                Step::Append(vec![vec![8, 37], vec![31, 25, 13, 28], vec![1, 479, 26, 22]]),
                Step::Retain,
                Step::DeleteBefore(2),
            ],
            fault: None,
        },
        end: End {
            survives: Survives {
                reorder: false,
                choices: vec![
                    199, 117, 253, 56, 114, 102, 26, 70, 223, 76, 243, 237, 61, 72, 227, 37, 19, 78, 220, 64, 230, 132, 202, 52, 37, 29,
                    201, 101, 53, 18, 54, 87, 195, 249, 19, 167, 251, 139, 96, 60, 136, 125, 1, 122, 138, 66, 32, 112, 122, 189, 23, 225,
                    254, 180, 85, 169, 158, 219, 23, 242, 154, 41, 148, 2, 110, 143, 124, 53, 118, 147, 185, 175, 244, 22, 199, 86, 61,
                    248, 22, 79,
                ],
            },
            recoveries: vec![],
            last: None,
        },
    };
    assert_eq!(judge::case(&case, None), Ok(()));
}

/// The latest record of a key was in the page cache only when compaction took the one before it, which was acknowledged: a crash lost both.
#[test]
fn found_a_compaction_that_outdated_by_what_was_not_durable() {
    let case = Case {
        life: Life {
            shape: Shape {
                segment_bytes: 966,
                segment_index_bytes: 256,
                index_interval_bytes: 8,
                batch_size: 128,
                lz4: false,
                retention_bytes: 1118,
                keyed: true,
            },
            steps: vec![
                Step::Append(vec![vec![449, 94, 16], vec![397]]),
                Step::Sync,
                Step::Append(vec![vec![264, 36, 218], vec![10, 16, 24, 23]]),
                Step::Compact,
            ],
            fault: Some((143, Fault::Crash)),
        },
        end: End {
            survives: Survives {
                reorder: false,
                choices: vec![
                    0, 0, 0, 202, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 63, 0, 0, 0, 38, 0, 51, 0, 0, 0, 98, 0, 0, 0, 159, 0, 0, 0, 0, 0, 0, 0, 0,
                    249, 0, 0, 0, 0, 116, 78, 0, 0, 0, 0, 0, 0, 0, 0, 0, 129, 211, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 63,
                    0, 0, 0, 196, 0, 0, 0,
                ],
            },
            recoveries: vec![],
            last: None,
        },
    };
    assert_eq!(judge::case(&case, None), Ok(()));
}

/// The oracle was wrong: a log start whose sync failed may be the one that the next process finds.
#[test]
fn found_an_oracle_that_forgot_a_log_start_whose_sync_failed() {
    let case = Case {
        life: Life {
            shape: Shape {
                segment_bytes: 1096,
                segment_index_bytes: 256,
                index_interval_bytes: 187,
                batch_size: 499,
                lz4: false,
                retention_bytes: 2021,
                keyed: true,
            },
            steps: vec![
                Step::Append(vec![vec![443, 24, 422, 17], vec![75, 30, 4, 14], vec![20, 30, 23]]),
                Step::DeleteBefore(4),
                Step::Close,
                Step::Retain,
            ],
            fault: Some((64, Fault::Io)),
        },
        end: End { survives: Survives::default(), recoveries: vec![], last: None },
    };
    assert_eq!(judge::case(&case, None), Ok(()));
}

/// A batch that lost its base offset claimed the first one, and an index entry that names it with its true offset vouched for it.
#[test]
fn found_a_batch_that_an_entry_of_another_offset_vouched_for() {
    let case = Case {
        life: Life {
            shape: Shape {
                segment_bytes: 1213,
                segment_index_bytes: 256,
                index_interval_bytes: 10,
                batch_size: 432,
                lz4: false,
                retention_bytes: 3489,
                keyed: true,
            },
            steps: vec![Step::Append(vec![vec![13, 16, 296, 13], vec![227, 8]]), Step::Append(vec![vec![11], vec![18, 39]])],
            fault: None,
        },
        end: End {
            survives: Survives {
                reorder: true,
                choices: vec![
                    39, 135, 119, 240, 153, 11, 192, 29, 214, 173, 239, 118, 26, 215, 65, 30, 108, 188, 188, 229, 29, 191, 184, 124, 246,
                    168, 144, 117, 4, 226, 91, 59, 212, 211, 179, 11, 177, 127, 28, 167, 233, 46, 68, 200, 128, 63, 205, 193, 224, 138, 2,
                    167, 5, 204, 126, 14, 51, 198, 112, 20, 141, 89, 43, 134, 155, 198, 171, 106, 43, 71, 111, 161, 238, 128, 77, 107, 241,
                    244, 49, 203,
                ],
            },
            recoveries: vec![],
            last: Some(Survives::default()),
        },
    };
    assert_eq!(judge::case(&case, None), Ok(()));
}
