//! A case as data: what the process does, what strikes it, what survives. It can be drawn from a seed, made smaller, and printed as a test.

use crate::random::Random;
use offsetfs::io::sim::Fault;
use offsetfs::log::compression::Codec;
use offsetfs::log::config::{CleanupPolicy, LogConfig};
use std::fmt;

/// What the process does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Requests that come together; each number is a record with a value of so many bytes and a few more.
    Append(Vec<Vec<u16>>),
    /// Everything so far is synced and thereby acknowledged.
    Sync,
    /// The oldest rolled segment is sealed.
    Seal,
    Roll,
    /// The log is closed well and opened again.
    Close,
    /// The process dies and another one opens the log; what was written is in the page cache.
    Die,
    /// It dies, and `offsetfs recover` runs before the log is opened again.
    Repair,
    /// So many more records at the front are deleted.
    DeleteBefore(u8),
    /// Retention takes what is more than the log may have.
    Retain,
    /// Compaction leaves the latest record of each key; only in logs that have keys.
    Compact,
    /// Readers are asked what they see.
    Look,
}

/// The settings that decide where segments and index entries begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) segment_bytes: u64,
    pub(crate) segment_index_bytes: u64,
    pub(crate) index_interval_bytes: u64,
    pub(crate) batch_size: u64,
    pub(crate) lz4: bool,
    /// What retention leaves.
    pub(crate) retention_bytes: u16,
    /// Whether records have keys, and the log may be compacted.
    pub(crate) keyed: bool,
}

impl Shape {
    pub(crate) fn config(&self) -> LogConfig {
        LogConfig {
            segment_bytes: self.segment_bytes,
            segment_index_bytes: self.segment_index_bytes,
            index_interval_bytes: self.index_interval_bytes,
            batch_size: self.batch_size,
            compression_type: if self.lz4 { Codec::Lz4 } else { Codec::None },
            max_message_bytes: 1000,
            retention_bytes: i64::from(self.retention_bytes),
            retention_ms: -1,
            cleanup_policy: CleanupPolicy { delete: true, compact: self.keyed },
            min_cleanable_dirty_ratio: 0.0,
            ..LogConfig::default()
        }
    }
}

/// What survives a crash: for each uncertain change in turn an option, taken modulo their number; where the list ends, all is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survives {
    /// Names survive each for itself instead of up to one.
    pub(crate) reorder: bool,
    pub(crate) choices: Vec<u8>,
}

impl Survives {
    pub(crate) fn chooser(&self) -> impl FnMut(usize) -> usize {
        let mut choices = self.choices.iter();
        move |options| choices.next().map_or(0, |&choice| usize::from(choice) % options)
    }

    pub(crate) fn draw(random: &mut Random) -> Survives {
        // Mostly lost, mostly kept, or anything.
        let bias = random.below(4);
        let reorder = random.once_in(3);
        let choice = |random: &mut Random| match bias {
            0 if !random.once_in(5) => 0,
            1 if !random.once_in(5) => 1,
            _ => random.below(256) as u8,
        };
        Survives { reorder, choices: (0..80).map(|_| choice(random)).collect() }
    }
}

/// A recovery that is struck at an operation. After a crash another disk comes back, else the next recovery meets the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Struck {
    pub(crate) at: u64,
    pub(crate) fault: Fault,
    pub(crate) survives: Survives,
}

/// What comes behind the process: the crash, recoveries that are struck, and how the last opening ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) survives: Survives,
    pub(crate) recoveries: Vec<Struck>,
    /// The crash after the first sync behind the recovery; `None` for a clean close.
    pub(crate) last: Option<Survives>,
}

impl End {
    pub(crate) fn draw(random: &mut Random) -> End {
        let survives = Survives::draw(random);
        let mut recoveries = Vec::new();
        while random.once_in(3) && recoveries.len() < 5 {
            let fault = [Fault::Crash, Fault::Crash, Fault::Crash, Fault::Io, Fault::NoSpace, Fault::ShortWrite][random.below(6) as usize];
            recoveries.push(Struck { at: random.within(1, 60), fault, survives: Survives::draw(random) });
        }
        End { survives, recoveries, last: if random.once_in(4) { None } else { Some(Survives::draw(random)) } }
    }
}

/// What a process does, and what strikes it at which of the disk's operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) shape: Shape,
    pub(crate) steps: Vec<Step>,
    pub(crate) fault: Option<(u64, Fault)>,
}

impl Life {
    pub(crate) fn draw(random: &mut Random) -> Life {
        let shape = Shape {
            segment_bytes: if random.once_in(2) { random.within(700, 1500) } else { 1500 },
            segment_index_bytes: if random.once_in(4) { random.within(4, 40) } else { 256 },
            index_interval_bytes: random.below(200),
            batch_size: random.within(1, 600),
            lz4: random.once_in(5),
            retention_bytes: random.below(4000) as u16,
            keyed: random.once_in(2),
        };
        let size = |random: &mut Random| if random.once_in(3) { random.below(500) as u16 } else { random.below(40) as u16 };
        let request = |random: &mut Random| (0..random.within(1, 5)).map(|_| size(random)).collect();
        let step = |random: &mut Random| match random.below(18) {
            0..7 => Step::Append((0..random.within(1, 4)).map(|_| request(random)).collect()),
            7..9 => Step::Sync,
            9 => Step::Seal,
            10 => Step::Roll,
            11 => Step::Close,
            12 => Step::Die,
            13 => Step::DeleteBefore(random.below(8) as u8),
            14 => Step::Look,
            15 if shape.keyed => Step::Compact,
            16 => [Step::Retain, Step::Compact][usize::from(shape.keyed)].clone(),
            17 => Step::Retain,
            _ => [Step::Repair, Step::Die][random.below(2) as usize].clone(),
        };
        let steps = (0..random.within(2, 14)).map(|_| step(random)).collect();
        let fault = match random.below(6) {
            0..3 => Some(Fault::Crash),
            3 => Some(Fault::Io),
            4 => Some([Fault::NoSpace, Fault::ShortWrite][random.below(2) as usize]),
            _ => None,
        };
        Life { shape, steps, fault: fault.map(|fault| (random.within(1, 150), fault)) }
    }
}

/// A whole case. Its `Display` is a test that can be put into `tests/crash.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) life: Life,
    pub(crate) end: End,
}

impl Case {
    /// Cases that are a little simpler, the simplest first.
    fn simpler(&self) -> Vec<Case> {
        let mut all = Vec::new();
        let mut push = |change: &dyn Fn(&mut Case)| {
            let mut case = self.clone();
            change(&mut case);
            if case != *self {
                all.push(case);
            }
        };
        for at in 0..self.life.steps.len() {
            push(&|case| {
                case.life.steps.remove(at);
            });
            // What strikes later strikes as much earlier as the step was long.
            for sooner in 1..24 {
                push(&|case| {
                    case.life.steps.remove(at);
                    case.life.fault = case.life.fault.map(|(n, fault)| (n.saturating_sub(sooner).max(1), fault));
                });
            }
        }
        push(&|case| case.life.fault = None);
        push(&|case| case.end.recoveries.clear());
        for at in 0..self.end.recoveries.len() {
            push(&|case| {
                case.end.recoveries.remove(at);
            });
        }
        push(&|case| case.end.last = None);
        push(&|case| case.end.last = Some(Survives::default()));
        for (at, step) in self.life.steps.iter().enumerate() {
            let Step::Append(requests) = step else { continue };
            for request in 0..requests.len() {
                push(&|case| {
                    edit(case, at, |requests| {
                        requests.remove(request);
                    });
                });
                for record in 0..requests[request].len() {
                    push(&|case| {
                        edit(case, at, |requests| {
                            requests[request].remove(record);
                        });
                    });
                    push(&|case| edit(case, at, |requests| requests[request][record] = 0));
                    push(&|case| edit(case, at, |requests| requests[request][record] /= 2));
                }
            }
        }
        for draw in 0..self.draws().len() {
            push(&|case| case.draws_mut()[draw].reorder = false);
            push(&|case| case.draws_mut()[draw].choices.clear());
            let len = self.draws()[draw].choices.len();
            push(&|case| case.draws_mut()[draw].choices.truncate(len / 2));
            push(&|case| {
                case.draws_mut()[draw].choices.pop();
            });
            for at in 0..len {
                push(&|case| case.draws_mut()[draw].choices[at] = 0);
                push(&|case| case.draws_mut()[draw].choices[at] = 1);
            }
        }
        push(&|case| case.life.shape.lz4 = false);
        push(&|case| case.life.shape.keyed = false);
        all
    }

    fn draws(&self) -> Vec<&Survives> {
        let end = &self.end;
        [&end.survives].into_iter().chain(end.recoveries.iter().map(|struck| &struck.survives)).chain(&end.last).collect()
    }

    fn draws_mut(&mut self) -> Vec<&mut Survives> {
        let end = &mut self.end;
        [&mut end.survives].into_iter().chain(end.recoveries.iter_mut().map(|struck| &mut struck.survives)).chain(&mut end.last).collect()
    }

    /// The simplest case that can be reached from this one and still fails, after at most so many tries.
    pub(crate) fn shrunk(self, tries: usize, fails: impl Fn(&Case) -> bool) -> Case {
        let (mut best, mut tries) = (self, tries);
        'again: loop {
            for case in best.simpler() {
                if tries == 0 {
                    return best;
                }
                tries -= 1;
                if fails(&case) {
                    best = case;
                    continue 'again;
                }
            }
            return best;
        }
    }
}

/// Changes the requests of one step.
fn edit(case: &mut Case, at: usize, change: impl Fn(&mut Vec<Vec<u16>>)) {
    if let Step::Append(requests) = &mut case.life.steps[at] {
        change(requests);
        requests.retain(|request| !request.is_empty());
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let survives = |s: &Survives| format!("Survives {{ reorder: {}, choices: vec!{:?} }}", s.reorder, s.choices);
        let fault = |fault: &Fault| format!("Fault::{fault:?}");
        let Life { shape, steps, fault: struck } = &self.life;
        writeln!(f, "#[test]\nfn found_() {{\n    let case = Case {{\n        life: Life {{")?;
        writeln!(f, "            shape: {shape:?},")?;
        writeln!(f, "            steps: vec![")?;
        for step in steps {
            match step {
                Step::Append(requests) => {
                    let requests: Vec<String> = requests.iter().map(|sizes| format!("vec!{sizes:?}")).collect();
                    writeln!(f, "                Step::Append(vec![{}]),", requests.join(", "))?;
                }
                other => writeln!(f, "                Step::{other:?},")?,
            }
        }
        let struck = struck.map_or("None".to_owned(), |(at, kind)| format!("Some(({at}, {}))", fault(&kind)));
        writeln!(f, "            ],\n            fault: {struck},\n        }},\n        end: End {{")?;
        writeln!(f, "            survives: {},", survives(&self.end.survives))?;
        writeln!(f, "            recoveries: vec![")?;
        for s in &self.end.recoveries {
            writeln!(f, "                Struck {{ at: {}, fault: {}, survives: {} }},", s.at, fault(&s.fault), survives(&s.survives))?;
        }
        let last = self.end.last.as_ref().map_or("None".to_owned(), |last| format!("Some({})", survives(last)));
        write!(f, "            ],\n            last: {last},\n        }},\n    }};\n    assert_eq!(judge::case(&case, None), Ok(()));\n}}")
    }
}
