//! What a directory of the tree lists, from a cursor on, without keeping anything between two calls.

use crate::io::Kind;
use crate::types::{Offset, Patience};
use crate::view::error::{Error, ErrorKind};
use crate::view::node::{FileKind, Node, Sink};
use crate::view::partition::{LISTED_IN_ROOT, ROOT, Result, View, decoded_name};
use crate::view::path::{Face, Lines};
use crate::view::time::{TimeText, days_between};

/// `by-time` lists at most so many days.
const DAYS_MOST: usize = 1000;
/// The relative times that `by-time` lists where they lead somewhere.
const LISTED_TIMES: [&str; 5] = ["1h-ago", "1d-ago", "7d-ago", "today", "yesterday"];
/// Cursors below this belong to `first` and `last`; behind it they are offsets.
const CURSOR_OFFSETS: u64 = 16;

impl View {
    /// Lists a directory from a cursor on (0: from the start), without `.` and `..`. `sink` gets a name, its kind, its node where it is known without
    /// looking, and the cursor behind it; it says whether to go on.
    ///
    /// # Errors
    /// As [`View::lookup`].
    pub fn list(&self, dir: &Node, cursor: u64, patience: Patience, sink: &mut Sink<'_>) -> Result<()> {
        match dir {
            Node::Root => {
                let listed = if self.options.list_follow { ROOT.len() } else { LISTED_IN_ROOT };
                for (i, (name, node)) in ROOT.iter().enumerate().take(listed).skip(cursor as usize).filter(|(_, (_, node))| self.has(node))
                {
                    let is_directory = matches!(node, Node::ByOffset | Node::ByTime | Node::ByKey | Node::Segments | Node::DecodedDir);
                    let kind = if is_directory { FileKind::Directory } else { FileKind::File };
                    if !sink(name.as_bytes(), kind, Some(node), i as u64 + 1) {
                        break;
                    }
                }
                Ok(())
            }
            Node::ByOffset => self.list_offsets(cursor, patience, sink),
            Node::ByTime => {
                for (i, name) in self.listed_times(patience)?.iter().enumerate().skip(cursor as usize) {
                    if !sink(name.as_bytes(), FileKind::Link, None, i as u64 + 1) {
                        break;
                    }
                }
                Ok(())
            }
            Node::ByKey => self.list_keys(cursor, patience, sink),
            Node::DecodedDir => {
                let segments = self.source.segments(patience)?;
                let links = segments.last().map(|_| ["active.txt", "active.jsonl"]).into_iter().flatten();
                let files = segments.iter().flat_map(|s| [Lines::Values, Lines::Json].map(|lines| (s.base, lines)));
                let all = files
                    .map(|(base, lines)| (decoded_name(base, lines), FileKind::File, Some(Node::Decoded(base, lines))))
                    .chain(links.map(|name| (name.to_owned(), FileKind::Link, None)));
                for (i, (name, kind, node)) in all.enumerate().skip(cursor as usize) {
                    if !sink(name.as_bytes(), kind, node.as_ref(), i as u64 + 1) {
                        break;
                    }
                }
                Ok(())
            }
            Node::Segments => {
                let Some(files) = self.source.files() else { return Ok(()) };
                let entries = files.list().map_err(|e| crate::error::Error::io("list", files.path().display(), e))?;
                let mut names: Vec<_> = entries.into_iter().filter(|e| e.kind == Kind::File).map(|e| e.name).collect();
                names.sort();
                for (i, name) in names.iter().enumerate().skip(cursor as usize) {
                    if !sink(name.as_encoded_bytes(), FileKind::File, None, i as u64 + 1) {
                        break;
                    }
                }
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::NotDirectory, "it is no directory")),
        }
    }

    fn list_offsets(&self, cursor: u64, patience: Patience, sink: &mut Sink<'_>) -> Result<()> {
        if cursor < 2 {
            for (i, name) in [(0, "first"), (1, "last")].into_iter().skip(cursor as usize) {
                if self.source.first(patience)?.is_some() && !sink(name.as_bytes(), FileKind::Link, None, i + 1) {
                    return Ok(());
                }
            }
        }
        let from = cursor.checked_sub(CURSOR_OFFSETS).and_then(|n| i64::try_from(n).ok()).and_then(Offset::new).unwrap_or(Offset::ZERO);
        let mut name = Decimal::default();
        self.source.offsets(from, patience, &mut |offset| {
            let node = Node::Record(offset, Face::Value);
            sink(name.of(offset), FileKind::File, Some(&node), offset.next().get() as u64 + CURSOR_OFFSETS)
        })?;
        Ok(())
    }

    fn listed_times(&self, patience: Patience) -> Result<Vec<String>> {
        let mut days = Vec::new();
        for (first, last) in self.source.time_spans(patience)?.into_iter().rev() {
            days.extend(days_between(first, last, &self.options.zone, DAYS_MOST));
        }
        days.sort_unstable_by(|a, b| b.cmp(a));
        days.dedup();
        days.truncate(DAYS_MOST);
        let leads_somewhere = |name: &str| -> Result<bool> {
            match TimeText::parse(name.as_bytes()).and_then(|t| t.resolve(&self.options.zone, self.source.now())) {
                Ok(time) => Ok(self.source.offset_at(time, patience)?.is_some()),
                Err(_) => Ok(false),
            }
        };
        // The newest days may have markers of transactions and no record that is shown.
        let mut without = 0;
        while let Some(day) = days.get(without)
            && !leads_somewhere(day)?
        {
            without += 1;
        }
        days.drain(..without);
        for name in LISTED_TIMES {
            if leads_somewhere(name)? {
                days.push(name.to_owned());
            }
        }
        Ok(days)
    }
}

/// Writes numbers without allocating: a listing has millions.
#[derive(Default)]
struct Decimal {
    digits: [u8; 20],
}

impl Decimal {
    fn of(&mut self, offset: Offset) -> &[u8] {
        let (mut number, mut at) = (offset.get().unsigned_abs(), self.digits.len());
        loop {
            at -= 1;
            self.digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.digits[at..];
            }
        }
    }
}
