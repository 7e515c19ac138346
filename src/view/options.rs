//! How a tree is shown: the zone of times, what is listed and shown beyond the usual, and the file `config`.

use crate::source::{Control, InForce, Origin, Source};
use crate::view::time::Zone;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Whether there is a `by-key/`, and what it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keyed {
    /// For reading, where the log's own `cleanup.policy` has `compact`.
    #[default]
    Compacted,
    /// For reading.
    ReadOnly,
    /// For reading, writing, removing and renaming.
    Writable,
}

/// How a tree is shown.
#[derive(Clone, Debug)]
pub struct Options {
    /// The zone of times without one. Default: the system's.
    pub zone: Zone,
    /// Whether `decoded/*.jsonl` shows control records. Default: it does not.
    pub control: Control,
    /// Whether `follow` and `follow.jsonl` are listed, in which a recursive `grep` hangs. Default: they are not.
    pub list_follow: bool,
    /// Whether there is a `by-key/`. Default: for reading, where `cleanup.policy` has `compact`.
    pub keyed: Keyed,
    /// Settings that are not the log's, name and value, shown in `config` behind those.
    pub settings: Vec<(String, String)>,
    /// The names of those that were given; all others have their defaults.
    pub given: BTreeSet<String>,
}

impl Default for Options {
    fn default() -> Options {
        let zone = Zone::system();
        Options { zone, control: Control::Hide, list_follow: false, keyed: Keyed::default(), settings: Vec::new(), given: BTreeSet::new() }
    }
}

/// `config`: a line `name=value` for each setting in force, in groups by where the value comes from, the strongest place first; a line `# ...`
/// begins a group. At the end stands what each setting takes, in comments.
pub(crate) fn config_text(source: &dyn Source, options: &Options) -> String {
    let settings = source.settings();
    let mut groups: BTreeMap<Reverse<Origin>, Vec<(&str, &str)>> = BTreeMap::new();
    for setting in &settings {
        groups.entry(Reverse(setting.origin.clone())).or_default().push((setting.name, &setting.value));
    }
    for (name, value) in &options.settings {
        let origin = if options.given.contains(name) { Origin::Given } else { Origin::Default };
        groups.entry(Reverse(origin)).or_default().push((name, value));
    }
    let (mode, why) = match source.read_only() {
        Some(reason) => ("ro", reason),
        None => ("rw", "nothing speaks against writing"),
    };
    let defaults = groups.remove(&Reverse(Origin::Default)).unwrap_or_default();
    let mut text = String::new();
    let mut group = |title: &str, settings: &[(&str, &str)]| {
        if !settings.is_empty() {
            let _ = writeln!(text, "# {}", title.escape_debug());
        }
        for (name, value) in settings {
            let _ = writeln!(text, "{name}={}", value.escape_debug());
        }
    };
    for (Reverse(origin), settings) in &groups {
        let title = match origin {
            Origin::Given => "from -o",
            Origin::File(path) => &format!("from {path} (-o config)"),
            Origin::Topic => "from topic.properties beside the segments",
            Origin::Default => continue,
        };
        group(title, settings);
    }
    group(&format!("decided at the opening: {why}"), &[("mode", mode)]);
    group("defaults", &defaults);
    let _ = writeln!(text, "# what a setting takes, and its default");
    for InForce { name, values, default, meaning, .. } in &settings {
        let _ = writeln!(text, "# {name}: {values} ({default}): {meaning}");
    }
    text
}
