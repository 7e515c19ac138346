//! `-o name=value,name,...`: settings of the log under Kafka's names, and options of the mount. An unknown name is refused with the nearest known one.

use crate::log::config::SETTINGS;
use crate::log::properties;
use crate::log::settings::{Origin, Settings, nearest};
use crate::source::Control;
use crate::source::access::Wish;
use crate::view::time::Zone;
use crate::view::{self, Keyed};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
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
const OWN: &[&str] = &[
    "ro",
    "rw",
    "allow_other",
    "uid",
    "gid",
    "umask",
    "tz",
    "config",
    "log",
    "passthrough",
    "threads",
    "take-over",
    "control",
    "list-follow",
    "by-key",
];

/// What `-o` said.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// The settings of the log, and where each comes from.
    pub settings: Settings,
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
    /// Whether decoded segments show control records.
    pub control: Control,
    /// Whether `follow` is listed.
    pub list_follow: bool,
    /// Whether there is a `by-key/`.
    pub keyed: Keyed,
    /// The names that were given.
    pub given: BTreeSet<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            settings: Settings::default(),
            wish: Wish::default(),
            allow_other: false,
            uid: None,
            gid: None,
            umask: None,
            zone: Zone::system(),
            log: None,
            passthrough: true,
            threads: 2,
            control: Control::Hide,
            list_follow: false,
            keyed: Keyed::default(),
            given: BTreeSet::new(),
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
            "config" => self.read_file(needs()?)?,
            "log" => self.log = Some(PathBuf::from(needs()?)),
            "passthrough" => self.passthrough = on_off(name, needs()?)?,
            "control" => self.control = control(needs()?)?,
            "list-follow" => self.list_follow = true,
            "by-key" => self.keyed = keyed(needs()?)?,
            "threads" => self.threads = number::<usize>(name, needs()?, 10)?.clamp(1, 16),
            _ if name.starts_with("x-") || ACCEPTED.contains(&name) => {}
            _ => match value.map(|v| self.settings.set(name, v, Origin::Given)) {
                Some(Ok(true)) => {}
                Some(Err(takes)) => return Err(format!("-o {takes}")),
                None if SETTINGS.iter().any(|s| s.name == name) => {
                    needs()?;
                }
                Some(Ok(false)) | None => return Err(unknown(name)),
            },
        }
        self.given.insert(name.to_owned());
        Ok(())
    }

    /// Takes the settings of a file, all or none.
    fn read_file(&mut self, path: &str) -> Result<(), String> {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            // A byte more than is taken shows that there are too many.
            File::open(path)?.take(properties::LARGEST as u64 + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|e| format!("-o config={path}: {e}"))?;
        let unknown = properties::parse(&bytes).and_then(|lines| self.settings.take(lines, &Origin::File(path.into())));
        let unknown = unknown.map_err(|wrong| match wrong.line {
            Some(line) => format!("-o config={path}: line {line}: {}", wrong.reason),
            None => format!("-o config={path}: {}", wrong.reason),
        })?;
        let Some(line) = unknown.first() else { return Ok(()) };
        let name = line.shown_name();
        let hint = nearest(&name, SETTINGS.iter().map(|s| s.name)).unwrap_or_default();
        Err(format!("-o config={path}: line {}: {name}: there is no such setting; did you mean {hint}?", line.line))
    }

    /// How the tree is to be shown.
    pub(super) fn view(&self) -> view::Options {
        let on_off = |on| if on { "on" } else { "off" }.to_owned();
        let number = |n: Option<u32>| n.map_or_else(|| "as the source".to_owned(), |n| n.to_string());
        let settings = [
            ("tz", self.zone.name().to_owned()),
            ("control", if self.control == Control::Show { "show" } else { "hide" }.to_owned()),
            ("list-follow", on_off(self.list_follow)),
            ("by-key", keyed_word(self.keyed).to_owned()),
            ("allow_other", on_off(self.allow_other)),
            ("uid", number(self.uid)),
            ("gid", number(self.gid)),
            ("umask", self.umask.map_or_else(|| "as the source".to_owned(), |mask| format!("{mask:03o}"))),
            ("passthrough", on_off(self.passthrough)),
            ("threads", self.threads.to_string()),
        ];
        view::Options {
            zone: self.zone.clone(),
            control: self.control,
            list_follow: self.list_follow,
            keyed: self.keyed,
            settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
            given: self.given.clone(),
        }
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

fn control(text: &str) -> Result<Control, String> {
    match text {
        "show" => Ok(Control::Show),
        "hide" => Ok(Control::Hide),
        _ => Err(format!("-o control={text}: it takes show or hide")),
    }
}

fn keyed(text: &str) -> Result<Keyed, String> {
    match text {
        "ro" => Ok(Keyed::ReadOnly),
        "rw" => Ok(Keyed::Writable),
        _ => Err(format!("-o by-key={text}: it takes ro or rw")),
    }
}

fn keyed_word(keyed: Keyed) -> &'static str {
    match keyed {
        Keyed::Compacted => "ro where cleanup.policy has compact",
        Keyed::ReadOnly => "ro",
        Keyed::Writable => "rw",
    }
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
    match nearest(name, known) {
        Some(nearest) => format!("-o {name}: there is no such option; did you mean {nearest}?"),
        None => format!("-o {name}: there is no such option"),
    }
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
        assert_eq!((options.wish, options.settings.config().segment_bytes, options.umask), (Wish::ReadOnly, 20000, Some(0o22)));
    }

    #[test]
    fn the_nearest_name_is_told() {
        assert_eq!(parse("segment.byte=1").unwrap_err(), "-o segment.byte: there is no such option; did you mean segment.bytes?");
        assert_eq!(parse("allow-other").unwrap_err(), "-o allow-other: there is no such option; did you mean allow_other?");
        assert!(parse("segment.bytes=13").unwrap_err().contains("14 to 2147483647"));
        assert!(parse("segment.bytes").unwrap_err().contains("needs a value"));
    }
}
