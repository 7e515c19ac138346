//! The table: rows of two sides, figures without another side, and the forms in which they are written.

use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// What a side did, so that both can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) sum: u64,
}

impl Work {
    pub(crate) fn new(count: u64, bytes: u64, sum: u64) -> Work {
        Work { count, bytes, sum }
    }
}

/// A figure of one side, and the work that it was measured with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) value: f64,
    pub(crate) work: Work,
}

/// What a ratio of ours to the other side has to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing: it stands beside another row.
    Beside,
}

impl Bound {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Bound::AtLeast(least) => ratio >= least,
            Bound::AtMost(most) => ratio <= most,
            Bound::Beside => true,
        }
    }

    fn text(self) -> String {
        match self {
            Bound::AtLeast(least) => format!(">= {least:.2}"),
            Bound::AtMost(most) => format!("<= {most:.2}"),
            Bound::Beside => String::new(),
        }
    }
}

struct Row {
    figure: String,
    unit: &'static str,
    bound: Bound,
    ours: Vec<f64>,
    other: Vec<f64>,
    /// What the work costs in process, where the other side does none.
    beside: Vec<f64>,
    unequal: Option<(Work, Work)>,
}

impl Row {
    fn ratios(&self) -> Vec<f64> {
        let mut ratios: Vec<f64> = self.ours.iter().zip(&self.other).zip(&self.beside).map(|((o, n), p)| o / (n + p)).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    fn other_side(&self) -> f64 {
        median(&self.other) + median(&self.beside)
    }

    fn verdict(&self) -> &'static str {
        match self.unequal {
            Some(_) => "DIFFERENT WORK",
            None if matches!(self.bound, Bound::Beside) => "",
            None if self.bound.holds(median(&self.ratios())) => "held",
            None => "NOT held",
        }
    }
}

/// A figure without another side.
struct Fact {
    group: &'static str,
    name: String,
    value: String,
    held: Option<bool>,
}

pub(crate) struct Table {
    pub(crate) rounds: usize,
    rows: Vec<Row>,
    facts: Vec<Fact>,
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Table {
    pub(crate) fn new(rounds: usize) -> Table {
        Table { rounds, rows: Vec::new(), facts: Vec::new() }
    }

    /// Adds a round of a row; `beside` is the time of the same work in process, where the other side does none.
    pub(crate) fn row(&mut self, figure: &str, unit: &'static str, bound: Bound, ours: Side, other: Side, beside: f64) {
        let at = self.rows.iter().position(|r| r.figure == figure).unwrap_or_else(|| {
            let (ours, other, beside) = (Vec::new(), Vec::new(), Vec::new());
            self.rows.push(Row { figure: figure.to_owned(), unit, bound, ours, other, beside, unequal: None });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        if ours.work != other.work {
            row.unequal = Some((ours.work, other.work));
        }
        row.ours.push(ours.value);
        row.other.push(other.value);
        row.beside.push(beside);
    }

    /// Adds a figure without another side, and whether it keeps its bound if it has one.
    pub(crate) fn fact(&mut self, group: &'static str, name: impl Into<String>, value: impl Into<String>, held: Option<bool>) {
        let fact = Fact { group, name: name.into(), value: value.into(), held };
        eprintln!("  {}: {} = {}", fact.group, fact.name, fact.value);
        // Behind the last one of its group.
        let at = self.facts.iter().rposition(|f| f.group == group).map_or(self.facts.len(), |at| at + 1);
        self.facts.insert(at, fact);
    }

    pub(crate) fn is_unequal(&self) -> bool {
        self.rows.iter().any(|r| r.unequal.is_some())
    }

    pub(crate) fn text(&self) -> String {
        let mut out = format!("{:50} {:>10} {:>10} {:6} {:>24}  bound\n", "figure", "ours", "other", "", "ratio (min - max)");
        for row in &self.rows {
            let ratios = row.ratios();
            let ratio = match (row.unequal, &ratios[..]) {
                (None, [low, .., high]) => format!("{:.2} ({low:.2} - {high:.2})", median(&ratios)),
                (None, _) => format!("{:.2}", median(&ratios)),
                (Some((ours, other)), _) => format!("none: {ours:?} and {other:?}"),
            };
            let (ours, other) = (median(&row.ours), row.other_side());
            let _ = writeln!(
                out,
                "{:50} {ours:>10.1} {other:>10.1} {:6} {ratio:>24}  {} {}",
                row.figure,
                row.unit,
                row.bound.text(),
                row.verdict()
            );
        }
        let mut group = "";
        for fact in &self.facts {
            if fact.group != group {
                group = fact.group;
                let _ = writeln!(out, "\n{group}");
            }
            let _ = writeln!(out, "  {:66} {}{}", fact.name, fact.value, told(fact.held));
        }
        out
    }

    fn markdown(&self) -> String {
        let mut out = String::new();
        if !self.rows.is_empty() {
            out.push_str("| figure | ratio (min - max) | bound | | ours | other side |\n|---|---|---|---|---:|---:|\n");
        }
        for row in &self.rows {
            let ratios = row.ratios();
            let ratio = match (row.unequal, &ratios[..]) {
                (None, [low, .., high]) => format!("**{:.2}** ({low:.2} - {high:.2})", median(&ratios)),
                (None, _) => format!("**{:.2}**", median(&ratios)),
                (Some(_), _) => "none".to_owned(),
            };
            let (ours, other) = (median(&row.ours), row.other_side());
            let _ = writeln!(
                out,
                "| {} | {ratio} | {} | {} | {ours:.1} {unit} | {other:.1} {unit} |",
                row.figure,
                row.bound.text(),
                row.verdict(),
                unit = row.unit
            );
        }
        let mut group = "";
        for fact in &self.facts {
            if fact.group != group {
                group = fact.group;
                let _ = write!(out, "\n| {group} | |\n|---|---|\n");
            }
            let _ = writeln!(out, "| {} | {}{} |", fact.name, fact.value, told(fact.held));
        }
        out
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "figure": row.figure, "unit": row.unit, "ours": row.ours, "other": row.other, "in_process": row.beside,
                    "ratios": row.ratios(), "ratio": median(&row.ratios()), "bound": row.bound.text(), "verdict": row.verdict(),
                })
            })
            .collect();
        let facts: Vec<Value> =
            self.facts.iter().map(|f| json!({ "group": f.group, "name": f.name, "value": f.value, "held": f.held })).collect();
        json!({ "rounds": self.rounds, "rows": rows, "facts": facts })
    }

    /// Each row as a bar of its ratio relative to its bound: what ends left of the line holds.
    fn plot(&self) -> String {
        let (line, left, unit) = (20, 380, 260.0);
        let height = self.rows.len() * line + 40;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{left}\" y=\"16\">cost relative to the bound (min, median, max); left of the line holds</text>\n"
        );
        for (i, row) in self.rows.iter().enumerate() {
            let y = 28 + i * line;
            // More is better in one half of the rows: turned over, so that in all of them less is.
            let cost = |ratio: f64| match row.bound {
                Bound::AtMost(most) => ratio / most,
                Bound::AtLeast(least) => least / ratio,
                Bound::Beside => ratio,
            };
            let place = |ratio: f64| left as f64 + (cost(ratio) * unit).min(600.0);
            let ratios = row.ratios();
            let (low, high) = (ratios.first().copied().unwrap_or(0.0), ratios.last().copied().unwrap_or(0.0));
            let middle = median(&ratios);
            let colour = match row.verdict() {
                "held" => "#2a7",
                "" => "#888",
                _ => "#c43",
            };
            let _ = write!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
                 <line x1=\"{:.1}\" y1=\"{c}\" x2=\"{:.1}\" y2=\"{c}\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
                 <circle cx=\"{:.1}\" cy=\"{c}\" r=\"4\" fill=\"{colour}\"/>\n\
                 <text x=\"{:.1}\" y=\"{}\" fill=\"#555\">{middle:.2}</text>\n",
                left - 8,
                y + 12,
                row.figure.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"),
                place(low),
                place(high),
                place(middle),
                place(low).max(place(high)) + 8.0,
                y + 12,
                c = y + 8
            );
        }
        let x = left as f64 + unit;
        let _ = writeln!(out, "<line x1=\"{x}\" y1=\"24\" x2=\"{x}\" y2=\"{height}\" stroke=\"black\" stroke-dasharray=\"4 3\"/>\n</svg>");
        out
    }

    pub(crate) fn write_files(&self) {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
        fs::create_dir_all(&target).expect("target/bench");
        let json = format!("{:#}\n", self.json());
        for (name, content) in [("table.txt", self.text()), ("table.json", json), ("table.md", self.markdown()), ("table.svg", self.plot())]
        {
            fs::write(target.join(name), content).expect("target/bench can be written");
        }
        eprintln!("written to {}", target.display());
    }

    /// Puts the tables between the two marks in README.md.
    pub(crate) fn put_into_readme(&self) {
        put_between("<!-- figures -->\n", "<!-- end of figures -->", &self.markdown());
    }
}

/// Puts a text between two marks in README.md.
pub(crate) fn put_between(begin: &str, end: &str, content: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(&path).expect("README.md");
    let (before, rest) = text.split_once(begin).expect("the first mark");
    let (_, after) = rest.split_once(end).expect("the second mark");
    fs::write(&path, format!("{before}{begin}{content}{end}{after}")).expect("README.md can be written");
}

fn told(held: Option<bool>) -> &'static str {
    match held {
        None => "",
        Some(true) => " (held)",
        Some(false) => " (NOT held)",
    }
}
