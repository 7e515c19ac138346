//! `-o name=value,name,...`: settings of the log under Kafka's names, and options of the mount. An unknown name is refused with the nearest known one.

use crate::log::config::{LogConfig, SETTINGS};
use crate::source::access::Wish;
use crate::view::time::Zone;
use std::path::PathBuf;

/// Options that mount(8) and fstab bring along and that change nothing here: the mount is nosuid, nodev and noexec in any case.
const ACCEPTED: &[&str] = &[
    "defaults",
    "nofail",
    "fail",
    "noauto",
    "auto",
    "_netdev",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "diratime",
    "nodiratime",
    "async",
    "default_permissions",
    "nonempty",
];
/// Options of the mount, for the search of the nearest name.
const OWN: &[&str] = &["ro", "rw", "allow_other", "uid", "gid", "umask", "tz", "log", "passthrough", "threads", "take-over"];

/// What `-o` said.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// The settings of the log.
    pub config: LogConfig,
    /// Reading, writing, taking over.
    pub wish: Wish,
    /// Other users may see the mount.
    pub allow_other: bool,
    /// The owner shown.
    pub uid: Option<u32>,
    /// The group shown.
    pub gid: Option<u32>,
    /// Permission bits taken away.
    pub umask: Option<u32>,
    /// The zone of times without one.
    pub zone: Zone,
    /// Where the log messages of the background go.
    pub log: Option<PathBuf>,
    /// Whether the kernel may read real files without asking us.
    pub passthrough: bool,
    /// Event threads.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            config: LogConfig::default(),
            wish: Wish::default(),
            allow_other: false,
            uid: None,
            gid: None,
            umask: None,
            zone: Zone::system(),
            log: None,
            passthrough: true,
            threads: 2,
        }
    }
}

impl Options {
    /// Reads every `-o` argument.
    ///
    /// # Errors
    /// A sentence for the user: the unknown name with the nearest known one, or the values that a name takes.
    pub(super) fn parse(arguments: &[String]) -> Result<Options, String> {
        let mut options = Options::default();
        for option in arguments.iter().flat_map(|a| a.split(',')).filter(|o| !o.is_empty()) {
            options.set(option)?;
        }
        Ok(options)
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        let needs = || value.ok_or_else(|| format!("-o {name} needs a value: {name}=..."));
        match name {
            "ro" => self.wish = Wish::ReadOnly,
            "rw" => {}
            "take-over" => self.wish = Wish::TakeOver,
            "allow_other" => self.allow_other = true,
            "uid" => self.uid = Some(number(name, needs()?, 10)?),
            "gid" => self.gid = Some(number(name, needs()?, 10)?),
            "umask" => self.umask = Some(number(name, needs()?, 8)?),
            "tz" => self.zone = Zone::parse(needs()?).map_err(|e| format!("-o tz: {e}"))?,
            "log" => self.log = Some(PathBuf::from(needs()?)),
            "passthrough" => self.passthrough = on_off(name, needs()?)?,
            "threads" => self.threads = number::<usize>(name, needs()?, 10)?.clamp(1, 16),
            _ if name.starts_with("x-") || ACCEPTED.contains(&name) => {}
            _ => match value.map(|v| self.config.set(name, v)) {
                Some(Ok(true)) => {}
                Some(Err(takes)) => return Err(format!("-o {takes}")),
                None if SETTINGS.iter().any(|s| s.name == name) => {
                    needs()?;
                }
                Some(Ok(false)) | None => return Err(unknown(name)),
            },
        }
        Ok(())
    }

    /// The settings that are not the log's, for the file `config`.
    pub(super) fn mount_settings(&self) -> Vec<(String, String)> {
        vec![
            ("mode".to_owned(), if self.wish == Wish::ReadOnly { "ro" } else { "rw" }.to_owned()),
            ("tz".to_owned(), self.zone.name().to_owned()),
            ("allow_other".to_owned(), self.allow_other.to_string()),
        ]
    }
}

trait FromRadix: Sized {
    fn from_radix(text: &str, radix: u32) -> Option<Self>;
}

impl FromRadix for u32 {
    fn from_radix(text: &str, radix: u32) -> Option<u32> {
        u32::from_str_radix(text, radix).ok()
    }
}

impl FromRadix for usize {
    fn from_radix(text: &str, radix: u32) -> Option<usize> {
        usize::from_str_radix(text, radix).ok()
    }
}

fn number<T: FromRadix>(name: &str, text: &str, radix: u32) -> Result<T, String> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let words = if radix == 8 { "an octal number" } else { "a number" };
    T::from_radix(text, radix).filter(|_| digits).ok_or_else(|| format!("-o {name}={text}: it takes {words}"))
}

fn on_off(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("-o {name}={text}: it takes on or off")),
    }
}

fn unknown(name: &str) -> String {
    let known = SETTINGS.iter().map(|s| s.name).chain(OWN.iter().copied()).chain(ACCEPTED.iter().copied());
    match known.min_by_key(|k| distance(name, k)) {
        Some(nearest) => format!("-o {name}: there is no such option; did you mean {nearest}?"),
        None => format!("-o {name}: there is no such option"),
    }
}

/// How many letters have to be changed, added or taken away.
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

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(&[text.to_owned()])
    }

    #[test]
    fn kafka_names_and_mount_options_mix() {
        let options = parse("ro,segment.bytes=20000,defaults,nofail,x-systemd.automount,tz=UTC,umask=022").expect("known options");
        assert_eq!((options.wish, options.config.segment_bytes, options.umask), (Wish::ReadOnly, 20000, Some(0o22)));
    }

    #[test]
    fn the_nearest_name_is_told() {
        assert_eq!(parse("segment.byte=1").unwrap_err(), "-o segment.byte: there is no such option; did you mean segment.bytes?");
        assert_eq!(parse("allow-other").unwrap_err(), "-o allow-other: there is no such option; did you mean allow_other?");
        assert!(parse("segment.bytes=13").unwrap_err().contains("14 to 2147483647"));
        assert!(parse("segment.bytes").unwrap_err().contains("needs a value"));
    }
}
