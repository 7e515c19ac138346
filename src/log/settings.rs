//! Where the settings of a log come from: what a command line said, a file that it named, `topic.properties` beside the segments, the defaults.
//!
//! The stronger one counts, in that order, whichever was read first. What each setting takes is in `config`, the grammar of the files in
//! `properties`.

use crate::error::Result;
use crate::io::Directory;
use crate::log::checkpoint;
use crate::log::config::{LogConfig, SETTINGS, Setting};
use crate::log::names;
use crate::log::properties::{self, Property, Wrong};
use std::collections::BTreeMap;
use std::sync::Arc;

const MAINTENANCE: &str = "maintenance";

/// Settings that belong to a mount or a reader, not to a log: `--create` does not write them down. Above all the leave to delete and compact
/// is given anew each time, or by a hand that writes it into the file.
const OF_A_MOUNT: &[&str] = &[MAINTENANCE, "isolation", "batch.decoded.max.bytes"];

/// So many lines of a file that do nothing are told one by one.
const TOLD_MOST: usize = 16;

/// Where a value comes from, the weakest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody said otherwise.
    #[default]
    Default,
    /// `topic.properties` in the partition directory.
    Topic,
    /// The file that `-o config=` names.
    File(Arc<str>),
    /// `-o name=value`, or the program itself.
    Given,
}

impl Origin {
    fn strength(&self) -> u8 {
        match self {
            Origin::Default => 0,
            Origin::Topic => 1,
            Origin::File(_) => 2,
            Origin::Given => 3,
        }
    }
}

/// A setting as it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Kafka's name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Where that comes from.
    pub origin: Origin,
    /// The value that it has where nobody says otherwise.
    pub default: String,
    /// What values it takes, with unit and bounds.
    pub values: &'static str,
    /// What it does, in a sentence.
    pub meaning: &'static str,
}

/// The settings of a log, and where each comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    config: LogConfig,
    /// Of those that are not defaults.
    origins: BTreeMap<&'static str, Origin>,
}

/// Settings that a program made: where a value differs from its default, it was given.
impl From<LogConfig> for Settings {
    fn from(config: LogConfig) -> Settings {
        let defaults = LogConfig::default();
        let given = config.list().zip(defaults.list()).filter(|((_, value), (_, default))| value != default);
        let origins = given.map(|((name, _), _)| (name, Origin::Given)).collect();
        Settings { config, origins }
    }
}

impl Settings {
    /// The values in force.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Where the value of a setting comes from.
    pub fn origin(&self, name: &str) -> Origin {
        self.origins.get(name).cloned().unwrap_or_default()
    }

    /// Sets a setting by its name, unless a stronger place has set it. `Ok(false)`: there is no such setting.
    ///
    /// # Errors
    /// What values it takes, where the text is none of them.
    pub fn set(&mut self, name: &str, text: &str, origin: Origin) -> Result<bool, String> {
        let mut changed = self.config.clone();
        if !changed.set(name, text)? {
            return Ok(false);
        }
        let Some(setting) = SETTINGS.iter().find(|s| s.name == name) else { return Ok(false) };
        if origin.strength() >= self.origin(name).strength() {
            self.config = changed;
            self.origins.insert(setting.name, origin);
        }
        Ok(true)
    }

    /// The same settings for a command that does what it was asked for and nothing by itself, whatever a file says.
    pub fn without_maintenance(mut self) -> Settings {
        self.config.maintenance = false;
        self.origins.insert(MAINTENANCE, Origin::Given);
        self
    }

    /// Takes the lines of a file; those whose names are no settings come back.
    ///
    /// # Errors
    /// The first line whose value its setting does not take. Nothing of the file is taken then.
    pub fn take(&mut self, lines: Vec<Property>, origin: &Origin) -> Result<Vec<Property>, Wrong> {
        let mut changed = self.clone();
        let mut unknown = Vec::new();
        for line in lines {
            let Some(setting) = SETTINGS.iter().find(|s| s.name == line.name) else {
                unknown.push(line);
                continue;
            };
            if changed.set(setting.name, &line.value, origin.clone()).is_err() {
                let reason = format!("{}={}: it takes {}", setting.name, line.shown_value(), setting.values);
                return Err(Wrong::of_line(line.line, reason));
            }
        }
        *self = changed;
        Ok(unknown)
    }

    /// Takes what `topic.properties` in a partition directory says. Names that are no settings here, as a broker has many, come back in words.
    ///
    /// # Errors
    /// [`crate::error::Error::Settings`] for a file that is too large or a line that cannot be taken, and then nothing of it is; what the system says.
    pub fn take_topic(&mut self, dir: &dyn Directory) -> Result<Vec<String>> {
        let Some(lines) = properties::read_topic(dir)? else { return Ok(Vec::new()) };
        let unknown = self.take(lines, &Origin::Topic).map_err(|wrong| wrong.within(names::TOPIC_PROPERTIES))?;
        let file = names::TOPIC_PROPERTIES;
        let words = |p: &Property| format!("{file}, line {}: {} is no setting of offsetfs; the line does nothing", p.line, p.shown_name());
        let mut said: Vec<String> = unknown.iter().take(TOLD_MOST).map(words).collect();
        if let Some(more) = unknown.len().checked_sub(TOLD_MOST).filter(|n| *n > 0) {
            said.push(format!("{file}: {more} more lines do nothing"));
        }
        Ok(said)
    }

    /// Every setting as it is in force, in the order of [`SETTINGS`].
    pub fn in_force(&self) -> Vec<InForce> {
        let defaults = LogConfig::default();
        let of = |(setting, ((name, value), (_, default))): (&Setting, _)| InForce {
            name,
            value,
            origin: self.origin(name),
            default,
            values: setting.values,
            meaning: setting.meaning,
        };
        SETTINGS.iter().zip(self.config.list().zip(defaults.list())).map(of).collect()
    }

    /// Writes down, durably, what a new log was made with: `topic.properties` with the settings that were given and belong to a log. Nothing is
    /// written where there are none.
    ///
    /// # Errors
    /// What the system says.
    pub fn write_topic(&self, dir: &dyn Directory) -> Result<()> {
        let mut text = String::new();
        for setting in self.in_force().into_iter().filter(|s| s.origin.strength() > Origin::Topic.strength()) {
            if !OF_A_MOUNT.contains(&setting.name) {
                text.push_str(&format!("# {}: {}\n{}={}\n", setting.meaning, setting.values, setting.name, setting.value));
            }
        }
        if text.is_empty() {
            return Ok(());
        }
        checkpoint::replace(dir, names::TOPIC_PROPERTIES, text.as_bytes())
    }
}

/// The known name that is nearest to another: the fewest letters have to be changed, added or taken away.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    known.min_by_key(|k| distance(name, k))
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = if x == *y { before } else { 1 + before.min(row[j]).min(row[j + 1]) };
            before = row[j + 1];
            row[j + 1] = cost;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sim::SimDisk;
    use std::path::Path;

    fn lines(text: &str) -> Vec<Property> {
        properties::parse(text.as_bytes()).expect("properties")
    }

    #[test]
    fn the_stronger_place_counts_whatever_comes_first() {
        let file = Origin::File("f".into());
        let texts = [("segment.bytes=100\nflush.ms=1\nbatch.size=1", Origin::Topic), ("segment.bytes=200\nflush.ms=2", file.clone())];
        for order in [[0, 1], [1, 0]] {
            let mut settings = Settings::default();
            settings.set("segment.bytes", "300", Origin::Given).expect("a value");
            for at in order {
                let (text, origin) = &texts[at];
                assert_eq!(settings.take(lines(text), origin), Ok(Vec::new()));
            }
            let config = settings.config();
            assert_eq!((config.segment_bytes, config.flush_ms, config.batch_size), (300, 2, 1));
            let origins = ["segment.bytes", "flush.ms", "batch.size", "segment.ms"].map(|name| settings.origin(name));
            assert_eq!(origins, [Origin::Given, file.clone(), Origin::Topic, Origin::Default]);
        }
    }

    #[test]
    fn a_bad_line_takes_nothing_and_unknown_names_come_back() {
        let mut settings = Settings::default();
        let wrong = settings.take(lines("flush.ms=5\n\nsegment.bytes=1\n"), &Origin::Topic).expect_err("13 is the bound");
        assert_eq!(wrong.line, Some(3));
        assert_eq!(settings, Settings::default());
        // A value that a stronger place overrides must be one all the same.
        settings.set("flush.ms", "9", Origin::Given).expect("a value");
        assert!(settings.take(lines("flush.ms=soon"), &Origin::Topic).is_err());
        let unknown = settings.take(lines("unclean.leader.election.enable=false\nflush.ms=5"), &Origin::Topic).expect("lines");
        assert_eq!(unknown.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["unclean.leader.election.enable"]);
        assert_eq!(settings.config().flush_ms, 9);
    }

    #[test]
    fn what_is_written_is_taken_back_except_what_belongs_to_a_mount() {
        let disk = SimDisk::new();
        disk.filesystem().create_dir(Path::new("/log")).expect("a directory");
        let dir = disk.filesystem().open_dir(Path::new("/log")).expect("a directory");
        Settings::default().write_topic(&*dir).expect("nothing to write");
        assert!(dir.list().expect("a list").is_empty());
        let mut made = Settings::default();
        for (name, value) in [("segment.bytes", "1000"), ("compression.type", "zstd"), ("isolation", "read_committed")] {
            made.set(name, value, Origin::Given).expect("a value");
        }
        made.write_topic(&*dir).expect("written");
        let mut read = Settings::default();
        assert_eq!(read.take_topic(&*dir).expect("read"), Vec::<String>::new());
        assert_eq!((read.config().segment_bytes, read.config().compression_type), (1000, made.config().compression_type));
        assert_eq!(read.config().isolation, LogConfig::default().isolation);
    }

    #[test]
    fn a_program_gives_what_differs_from_the_defaults() {
        let settings = Settings::from(LogConfig { batch_size: 5, ..LogConfig::default() });
        assert_eq!((settings.origin("batch.size"), settings.origin("flush.ms")), (Origin::Given, Origin::Default));
        assert_eq!(settings.in_force().len(), SETTINGS.len());
    }

    #[test]
    fn names_have_neighbours() {
        let known = || SETTINGS.iter().map(|s| s.name);
        assert_eq!(nearest("segment.byte", known()), Some("segment.bytes"));
        assert_eq!(nearest("log.flush.ms", known()), Some("flush.ms"));
        assert_eq!(nearest("x", std::iter::empty()), None);
    }
}
