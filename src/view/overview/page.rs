//! The page around the picture: the same picture, and its facts as tables that can be searched and copied. It loads nothing and runs nothing.

use super::draw::count;
use super::{Scene, bytes_text, grouped, shown};
use crate::source::Severity;
use crate::types::TimestampMs;
use crate::view::time::rfc3339;
use std::fmt::Write;

/// So many lines of damage, and so many of open transactions, are listed.
const LISTED_MOST: usize = 100;

const STYLE: &str = "body{font:14px sans-serif;color:#333;margin:1em auto;max-width:1032px;padding:0 16px}svg{max-width:100%;height:auto}\
table{border-collapse:collapse;margin:.5em 0 1.5em}th,td{padding:2px 12px 2px 0;text-align:left;border-bottom:1px solid #ddd;\
vertical-align:top}td.n,th.n{text-align:right}";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// A table; columns whose heading begins with `#` hold numbers.
fn table(out: &mut String, headings: &[&str], rows: &mut dyn Iterator<Item = Vec<String>>) {
    let class = |heading: &str| if heading.starts_with('#') { " class=\"n\"" } else { "" };
    out.push_str("<table><tr>");
    for heading in headings {
        let _ = write!(out, "<th{}>{}</th>", class(heading), escaped(heading.trim_start_matches('#')));
    }
    out.push_str("</tr>\n");
    for row in rows {
        out.push_str("<tr>");
        for (cell, heading) in row.iter().zip(headings) {
            let _ = write!(out, "<td{}>{}</td>", class(heading), escaped(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

/// The page.
pub(super) fn html(scene: &Scene<'_>, svg: &str) -> String {
    let outline = &scene.outline;
    let title = escaped(&scene.title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>{title}</title><style>{STYLE}</style></head><body>\n<figure style=\"margin:0\">\n{svg}</figure>\n"
    );
    out.push_str("<h2>Open transactions</h2>\n");
    match &outline.open_transactions {
        Some(open) if open.is_empty() => out.push_str("<p>None.</p>\n"),
        Some(open) => {
            let mut rows = open.iter().take(LISTED_MOST).map(|t| vec![grouped(t.first.get()), t.producer_id.to_string()]);
            table(&mut out, &["#first offset", "#producer id"], &mut rows);
            if open.len() > LISTED_MOST {
                let _ = writeln!(out, "<p>{} more.</p>", open.len() - LISTED_MOST);
            }
        }
        None => out.push_str("<p>Not looked for yet, as the log is large: reading <code>status</code> does it.</p>\n"),
    }
    damage(&mut out, scene);
    out.push_str("<h2>Segments</h2>\n");
    let time = |t: Option<TimestampMs>| t.map_or("-".to_owned(), |t| rfc3339(t, scene.zone));
    let mut rows = outline.pieces.iter().map(|p| {
        let share = match p.fill() {
            Some(share) => format!("{}{:.1} %", if p.whole { "" } else { "about " }, share * 100.0),
            None => "-".to_owned(),
        };
        vec![
            grouped(p.base.get()),
            grouped(p.until.get()),
            p.segments.to_string(),
            bytes_text(p.bytes),
            share,
            time(p.first_time),
            time(p.last_time),
        ]
    });
    let headings = ["#base offset", "#up to", "#segments", "#bytes", "#offsets with a record", "first time", "largest time"];
    table(&mut out, &headings, &mut rows);
    out.push_str("</body></html>\n");
    out
}

/// What is known to be damaged, and how it is known.
fn damage(out: &mut String, scene: &Scene<'_>) {
    out.push_str("<h2>Damage</h2>\n");
    if let Some((file, tail)) = &scene.outline.torn_tail {
        let what = tail.kind();
        let _ = writeln!(out, "<p>{} at position {}: {} of {what}.</p>", escaped(file), tail.from, count(tail.bytes, "byte"));
    }
    let known = scene.damage();
    if known.is_empty() {
        out.push_str("<p>None is known.</p>\n");
    } else {
        let mut rows = known.iter().take(LISTED_MOST).map(|(first, last)| vec![grouped(*first), grouped(*last)]);
        table(out, &["#first offset", "#last offset"], &mut rows);
        if known.len() > LISTED_MOST {
            let _ = writeln!(out, "<p>{} more.</p>", known.len() - LISTED_MOST);
        }
    }
    match scene.report {
        None => out.push_str("<p>No check has run in this mount: reading <code>check</code> looks at every batch.</p>\n"),
        Some(report) => {
            let findings = report.findings.iter().filter(|f| f.severity > Severity::Note).take(LISTED_MOST);
            let _ = writeln!(out, "<p>The last check: {}.</p>", escaped(&report.summary().to_string()));
            let mut rows =
                findings.map(|f| vec![shown(&f.file), f.position.map_or("-".to_owned(), |p| p.to_string()), f.meaning.to_string()]);
            table(out, &["file", "#position", "what it means"], &mut rows);
        }
    }
}
