//! `overview.svg` and `overview.html`: that they are whole, say what is there, stay small, and read no more than headers.

mod common;
#[path = "common/mounted.rs"]
mod mounted;

use common::encode::{Batch, Record, indexes};
use common::fixtures::fixtures;
use common::partition::PartitionDir;
use mounted::Mounted;
use offsetfs::io::FileSystem;
use offsetfs::io::os::OsFileSystem;
use offsetfs::log::config::LogConfig;
use offsetfs::source::access::Wish;
use offsetfs::source::local::{self, Local};
use offsetfs::types::Patience::{AtOnce, MayBlock};
use offsetfs::view::time::Zone;
use offsetfs::view::{ErrorKind, Options, View};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// 2023-11-14T22:13:20Z, in ms.
const T0: i64 = 1_700_000_000_000;
/// What the picture of a log of any size may have, in bytes.
const BYTES_MOST: usize = 256 << 10;
/// The fill of what is known to be damaged, of an open transaction and of a gap.
const DAMAGE: &str = "#CC2222";
const OPEN: &str = "#EE8811";
const GAP: &str = "#E6DCC0";

fn tree(path: &Path) -> View {
    let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
    let options = local::Options { wish: Wish::ReadOnly, create: false, config: LogConfig::default() };
    let local = Local::open(&fs, path, options).expect("a partition");
    View::new(Arc::new(local), Options { zone: Zone::utc(), ..Options::default() })
}

fn text(view: &View, path: &str) -> String {
    let reader = view.open(&view.resolve(path.as_bytes(), MayBlock).expect(path), MayBlock).expect(path);
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match reader.read(bytes.len() as u64, &mut piece, MayBlock).expect(path) {
            0 => return String::from_utf8(bytes).expect("text"),
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// The words of a picture, and how many shapes have a fill. Panics where it is no well-formed XML, or draws beyond its edge.
struct Picture {
    words: Vec<String>,
    fills: Vec<String>,
}

impl Picture {
    fn of(svg: &str) -> Picture {
        let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}\n{svg:.2000}"));
        let root = document.root_element();
        let number = |node: roxmltree::Node<'_, '_>, name| node.attribute(name).map_or(0.0, |n| n.parse::<f64>().expect("a number"));
        let (width, height) = (number(root, "width"), number(root, "height"));
        for node in root.descendants().filter(|n| n.has_tag_name("rect")) {
            let (x, y) = (number(node, "x"), number(node, "y"));
            assert!(x >= 0.0 && y >= 0.0 && x + number(node, "width") <= width + 4.0 && y + number(node, "height") <= height, "{node:?}");
        }
        let words = root.descendants().filter(|n| n.has_tag_name("text")).filter_map(|n| n.text()).map(|t| t.trim().to_owned());
        let fills = root.descendants().filter(|n| n.has_tag_name("rect")).filter_map(|n| n.attribute("fill")).map(str::to_owned);
        Picture { words: words.collect(), fills: fills.collect() }
    }

    fn says(&self, words: &str) -> bool {
        self.words.iter().any(|w| w.contains(words))
    }

    /// How many shapes have a colour, the one in the legend left out.
    fn drawn(&self, colour: &str) -> usize {
        self.fills.iter().filter(|f| *f == colour).count() - 1
    }
}

#[test]
fn every_fixture_has_a_picture_of_its_own() {
    let mut seen = 0;
    for entry in fs::read_dir(fixtures().join("data")).expect("fixtures") {
        let entry = entry.expect("fixtures");
        if !entry.path().is_dir() {
            continue;
        }
        seen += 1;
        let name = entry.file_name().into_string().expect("a plain name");
        let view = tree(&entry.path());
        let svg = text(&view, "overview.svg");
        let picture = Picture::of(&svg);
        for title in ["Segments: offsets over time", "Bytes of each segment, over offsets", "Offsets that hold a record", "over time"] {
            assert!(picture.says(title), "{name}: {title}");
        }
        assert!(picture.says(&name), "{name}");
        let html = text(&view, "overview.html");
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(&html, options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(html.contains("<svg") && html.contains("<h2>Segments</h2>"), "{name}");
    }
    assert!(seen > 20, "{seen} fixtures");
}

#[test]
fn names_that_are_markup_stay_words() {
    for name in ["<script>alert(1)</script>-0", "a&b\"'\u{1}\u{ffff}\n-3", "]]>&amp;-1"] {
        let name = name.replace('/', "|");
        let dir = PartitionDir::new(&name);
        let log = Batch::plain(0, 5, T0).encode();
        dir.segment(0, &log, &[], &[]);
        let view = tree(dir.path());
        let picture = Picture::of(&text(&view, "overview.svg"));
        let plain: String = name.chars().take_while(|c| !c.is_control()).collect();
        assert!(picture.says(&plain), "{:?}", picture.words);
        let html = text(&view, "overview.html");
        assert!(!html.contains("<script"), "{html:.1000}");
        roxmltree::Document::parse_with_options(&html, roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() }).expect(&name);
    }
}

#[test]
fn gaps_transactions_and_damage_are_seen() {
    let dir = PartitionDir::new("demo-0");
    let mut open = Batch::new(40, vec![Record::new(0, T0 + 9000, None, Some(b"open"))]);
    open.producer_id = 7;
    open.producer_epoch = 0;
    open.attributes |= 0x10;
    let mut log = [Batch::plain(0, 10, T0).encode(), Batch::plain(30, 10, T0 + 5000).encode()].concat();
    let damaged_at = log.len() - 3;
    log.extend(open.encode());
    let (index, timeindex) = indexes(0, &log, 4096);
    dir.segment(0, &log, &index, &timeindex);
    // The last segment is looked at when the log is opened; the damage is to be in another.
    dir.segment(41, &Batch::plain(41, 2, T0 + 10_000).encode(), &[], &[]);
    let view = tree(dir.path());
    let svg = text(&view, "overview.svg");
    let picture = Picture::of(&svg);
    assert!(picture.drawn(GAP) == 1 && picture.drawn(OPEN) >= 3 && picture.drawn(DAMAGE) == 0, "{:?}", picture.fills);
    // 21 of 41 offsets hold a record.
    assert!(text(&view, "overview.html").contains("51.2 %"));

    // A byte of a record goes bad. The picture checks nothing; the check tells it.
    log[damaged_at] ^= 1;
    dir.segment(0, &log, &index, &timeindex);
    let view = tree(dir.path());
    assert_eq!(Picture::of(&text(&view, "overview.svg")).drawn(DAMAGE), 0);
    let said = text(&view, "check");
    assert!(said.contains("1 finding, "), "{said}");
    let later = std::time::Instant::now();
    while Picture::of(&text(&view, "overview.svg")).drawn(DAMAGE) < 3 {
        assert!(later.elapsed().as_secs() < 30, "the picture shows no damage");
    }
    assert!(text(&view, "overview.html").contains("The last check: 1 finding"));
}

#[test]
fn ten_thousand_segments_make_no_larger_a_picture() {
    let dir = PartitionDir::new("many-0");
    for base in 0..10_000 {
        let log = Batch::plain(base * 3, 2, T0 + base * 1000).encode();
        fs::write(dir.path().join(format!("{:020}.log", base * 3)), log).expect("a file");
    }
    let view = tree(dir.path());
    for file in ["overview.svg", "overview.html"] {
        let drawn = text(&view, file);
        assert!(drawn.len() < BYTES_MOST, "{file} has {} bytes", drawn.len());
    }
    let picture = Picture::of(&text(&view, "overview.svg"));
    assert!(picture.says("10,000 segments") && picture.says("42 segments each") && picture.says("from samples"), "{:?}", picture.words);
}

#[test]
fn its_size_is_what_is_read_then() {
    let dir = PartitionDir::new("demo-0");
    dir.segment(0, &Batch::plain(0, 5, T0).encode(), &[], &[]);
    let view = tree(dir.path());
    let node = view.resolve(b"overview.svg", MayBlock).expect("a file");
    assert_eq!(view.attr(&node, AtOnce).expect_err("nothing is drawn by an event thread").kind(), ErrorKind::WouldBlock);
    let mount = Mounted::new(dir.path(), &["-o", "ro"]);
    for file in ["overview.svg", "overview.html"] {
        let told = fs::metadata(mount.at(file)).expect("a file").len();
        assert_eq!(told, mount.text(file).len() as u64, "{file}");
    }
    assert!(mount.sh("ls").contains("overview.svg\n"));
}
