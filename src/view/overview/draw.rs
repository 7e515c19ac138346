//! The picture itself: four panels over one another, a legend and a few words, as SVG with a bounded number of shapes.

use super::axis::Axis;
use super::{Scene, bytes_text, grouped};
use crate::source::Piece;
use crate::types::TimestampMs;
use crate::view::time::rfc3339;
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::prelude::{Cartesian2d, ChartBuilder, Color, DrawingArea, IntoDrawingArea, RGBColor, Rectangle, SVGBackend, Text, WHITE};
use plotters::style::{FontDesc, FontFamily, FontStyle, TextStyle};

const WIDTH: i32 = 1000;
const MARGIN: i32 = 16;
/// Room for what stands left of a panel.
const LEFT: u32 = 92;
const HEADER: i32 = 118;
/// Of each panel, in order, the height with its title and its labels.
const PANELS: [i32; 4] = [270, 190, 150, 210];
/// What stands below the panels.
const FOOTER: i32 = 8;
/// So many damaged stretches and open transactions are drawn each.
const MARKS_MOST: usize = 100;
/// The record rate is told for so many stretches of time.
const BUCKETS: usize = 200;
/// Ticks: along the panel, and up.
const TICKS_ACROSS: usize = 6;
const TICKS_UP: usize = 5;

const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const LINE: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
// Hues that eyes of all kinds tell apart.
const SEALED: RGBColor = RGBColor(0x44, 0x77, 0xaa);
const SEALED_TOO: RGBColor = RGBColor(0x88, 0xb4, 0xd8);
const ACTIVE: RGBColor = RGBColor(0x22, 0x88, 0x33);
const GAP: RGBColor = RGBColor(0xe6, 0xdc, 0xc0);
const DAMAGE: RGBColor = RGBColor(0xcc, 0x22, 0x22);
const OPEN: RGBColor = RGBColor(0xee, 0x88, 0x11);
const BEFORE: RGBColor = RGBColor(0x99, 0x99, 0x99);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), String>;

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Draws a scene.
///
/// # Errors
/// What the drawing crate says.
pub(super) fn svg(scene: &Scene<'_>) -> Result<String, String> {
    let mut text = String::new();
    let height = HEADER + PANELS.iter().sum::<i32>() + FOOTER;
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH as u32, height as u32)).into_drawing_area();
        root.fill(&WHITE).map_err(words)?;
        header(&root, scene)?;
        let mut top = HEADER;
        let draw = [over_time, sizes, fill, rate];
        for (panel, height) in draw.iter().zip(PANELS) {
            let area = root.clone().shrink((0, top), (WIDTH, height));
            panel(&area, scene)?;
            top += height;
        }
        root.present().map_err(words)?;
    }
    Ok(text)
}

fn font(size: i32) -> TextStyle<'static> {
    TextStyle::from(FontDesc::new(FontFamily::SansSerif, f64::from(size), FontStyle::Normal)).color(&INK)
}

fn bold(size: i32) -> TextStyle<'static> {
    TextStyle::from(FontDesc::new(FontFamily::SansSerif, f64::from(size), FontStyle::Bold)).color(&INK)
}

fn write(area: &Area<'_>, text: String, at: (i32, i32), style: TextStyle<'static>) -> Drawn {
    area.draw(&Text::new(text, at, style)).map_err(words)
}

/// The title, what the log is in numbers, what deserves a look, and the legend.
fn header(root: &Area<'_>, scene: &Scene<'_>) -> Drawn {
    let outline = &scene.outline;
    write(root, scene.title.clone(), (MARGIN, 12), bold(22))?;
    let (start, end) = (outline.log_start.get(), outline.log_end.get());
    let size = format!("{} in {}", bytes_text(outline.bytes), count(outline.segments, "segment"));
    write(root, format!("offsets {} to {}; {size}; {}", grouped(start), grouped(end), scene.mode), (MARGIN, 42), font(14))?;
    let time = |t: TimestampMs| rfc3339(t, scene.zone);
    let times = scene.times().map_or("no record has a time".to_owned(), |(a, b)| format!("times {} to {}", time(a), time(b)));
    let drawn = format!("drawn {}", time(scene.now));
    let ahead = scene.times().is_some_and(|(from, to)| to.get() > time_most(scene, from));
    let ahead = if ahead { "; times over a day ahead of the clock are drawn at the right edge" } else { "" };
    write(root, format!("{times}; {drawn}{ahead}"), (MARGIN, 61), font(14))?;
    let mut at = MARGIN;
    let segments = match outline.pieces.iter().map(|p| p.segments).max() {
        Some(together) if together > 1 => format!("{together} segments each"),
        _ => "segments in turn".to_owned(),
    };
    let legend: [(&[RGBColor], &str); 6] = [
        (&[SEALED, SEALED_TOO], &segments),
        (&[ACTIVE], "active segment"),
        (&[GAP], "offsets without a record"),
        (&[DAMAGE], "damage, as far as known"),
        (&[OPEN], "open transaction"),
        (&[BEFORE], "before the log start"),
    ];
    for (colours, label) in legend {
        for colour in colours {
            root.draw(&Rectangle::new([(at, 88), (at + 12, 100)], colour.filled())).map_err(words)?;
            at += 12;
        }
        write(root, label.to_owned(), (at + 5, 88), font(13))?;
        at += 5 + label.chars().count() as i32 * 13 / 2 + 17;
    }
    Ok(())
}

/// A number of things in words.
pub(super) fn count(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", grouped(i64::try_from(number).unwrap_or(i64::MAX)))
}

/// An empty panel: its title, its scales, a grid.
fn chart<'a, 'b>(area: &'a Area<'b>, title: &str, x: Axis, y: Axis) -> Result<Chart<'a, 'b>, String> {
    write(area, title.to_owned(), (MARGIN, 8), bold(14))?;
    let mut builder = ChartBuilder::on(area);
    builder.margin_top(32).margin_right(MARGIN + 24).margin_left(MARGIN).margin_bottom(10);
    builder.x_label_area_size(26).y_label_area_size(LEFT);
    let mut chart = builder.build_cartesian_2d(x, y).map_err(words)?;
    let mut mesh = chart.configure_mesh();
    mesh.label_style(font(12)).axis_style(INK).bold_line_style(LINE).light_line_style(WHITE.mix(0.0));
    mesh.draw().map_err(words)?;
    Ok(chart)
}

/// A filled rectangle between two corners, at least so many pixels wide and high, within the panel.
fn fill_between(chart: &mut Chart<'_, '_>, from: (i64, i64), to: (i64, i64), at_least: (i32, i32), colour: impl Color) -> Drawn {
    let (a, b) = (chart.backend_coord(&from), chart.backend_coord(&to));
    let area = chart.plotting_area().strip_coord_spec();
    let ((base_x, base_y), (width, height)) = (area.get_base_pixel(), area.dim_in_pixel());
    let spread = |low: i32, high: i32, least: i32, edge: i32| {
        if high - low >= least { (low, high) } else { (low.min(edge - least), low.min(edge - least) + least) }
    };
    let (left, right) = spread(a.0.min(b.0), a.0.max(b.0), at_least.0, base_x + width as i32);
    let (top, bottom) = spread(a.1.min(b.1), a.1.max(b.1), at_least.1, base_y + height as i32);
    // The area of a panel counts pixels from its own corner.
    let corners = [(left - base_x, top - base_y), (right - base_x, bottom - base_y)];
    area.draw(&Rectangle::new(corners, colour.filled())).map_err(words)
}

fn colour_of(pieces: &[Piece], at: usize) -> RGBColor {
    match at {
        at if at + 1 == pieces.len() && pieces[at].segments == 1 => ACTIVE,
        at if at % 2 == 0 => SEALED,
        _ => SEALED_TOO,
    }
}

/// The range of the offsets that segments cover, the log start included.
fn offset_range(scene: &Scene<'_>) -> (i64, i64) {
    let outline = &scene.outline;
    let first = outline.pieces.first().map_or(outline.log_start, |p| p.base.min(outline.log_start));
    (first.get(), outline.log_end.get())
}

fn across_offsets(scene: &Scene<'_>) -> Axis {
    let (from, to) = offset_range(scene);
    Axis::offsets(from, to, if to > 1_000_000_000_000 { TICKS_ACROSS - 2 } else { TICKS_ACROSS })
}

/// The last time that a scale which begins at `from` shows.
fn time_most(scene: &Scene<'_>, from: TimestampMs) -> i64 {
    scene.now.get().max(from.get()).saturating_add(24 * 60 * 60 * 1000)
}

/// The time scale of the panels: times that lie ahead of the clock, as mistaken producers set them, are drawn at its end.
fn time_range(scene: &Scene<'_>) -> Option<(i64, i64)> {
    let (from, to) = scene.times()?;
    let (from, to) = (from.get(), to.get().min(time_most(scene, from)));
    // A log of one moment has room around it.
    Some(if to - from < 1000 { ((from - 500).max(0), to.saturating_add(500)) } else { (from, to) })
}

fn nothing(area: &Area<'_>, title: &str, why: &str) -> Drawn {
    chart(area, title, Axis::offsets(0, 1, 2), Axis::offsets(0, 1, 2)).map(drop)?;
    write(area, why.to_owned(), (WIDTH / 2 - 60, 70), font(14))
}

/// Segments as boxes of offsets (up) and time (across): a log that grows steadily is a staircase.
fn over_time(area: &Area<'_>, scene: &Scene<'_>) -> Drawn {
    let title = format!("Segments: offsets over time ({})", scene.zone.name());
    let Some((begin, end)) = time_range(scene) else { return nothing(area, &title, "no record has a time") };
    let (low, high) = offset_range(scene);
    let mut chart = chart(area, &title, Axis::times(begin, end, scene.zone, TICKS_ACROSS), Axis::offsets(low, high, TICKS_UP))?;
    let pieces = &scene.outline.pieces;
    for (at, piece) in pieces.iter().enumerate() {
        let (Some(first), Some(last)) = (piece.first_time.or(piece.last_time), piece.last_time.or(piece.first_time)) else { continue };
        let (first, last) = (first.get().min(last.get()), last.get());
        fill_between(&mut chart, (first, piece.base.get()), (last, piece.until.get()), (3, 2), colour_of(pieces, at))?;
    }
    let start = scene.outline.log_start.get();
    if start > low {
        fill_between(&mut chart, (begin, low), (end, start), (1, 1), BEFORE.mix(0.45))?;
    }
    for transaction in scene.outline.open_transactions.iter().flatten().take(MARKS_MOST) {
        let first = transaction.first.get();
        fill_between(&mut chart, (begin, first), (end, high), (1, 1), OPEN.mix(0.15))?;
        fill_between(&mut chart, (begin, first), (end, first), (1, 2), OPEN)?;
    }
    for (first, last) in scene.damage().into_iter().take(MARKS_MOST) {
        fill_between(&mut chart, (begin, first), (end, last.saturating_add(1)), (1, 3), DAMAGE.mix(0.7))?;
    }
    Ok(())
}

/// What stands in every panel whose scale across is offsets.
fn marks(chart: &mut Chart<'_, '_>, scene: &Scene<'_>, top: i64) -> Drawn {
    let (low, high) = offset_range(scene);
    let start = scene.outline.log_start.get();
    if start > low {
        fill_between(chart, (low, 0), (start, top), (1, 1), BEFORE.mix(0.45))?;
    }
    for transaction in scene.outline.open_transactions.iter().flatten().take(MARKS_MOST) {
        fill_between(chart, (transaction.first.get(), top), (high, top), (3, 4), OPEN)?;
    }
    for (first, last) in scene.damage().into_iter().take(MARKS_MOST) {
        fill_between(chart, (first, 0), (last.saturating_add(1), top), (3, 1), DAMAGE.mix(0.7))?;
    }
    Ok(())
}

/// The bytes of each piece, over offsets.
fn sizes(area: &Area<'_>, scene: &Scene<'_>) -> Drawn {
    let pieces = &scene.outline.pieces;
    let largest = pieces.iter().map(|p| p.bytes).max().unwrap_or(0);
    let top = i64::try_from(largest + largest / 8).unwrap_or(i64::MAX);
    let title =
        if pieces.iter().all(|p| p.segments == 1) { "Bytes of each segment, over offsets" } else { "Bytes of segments, over offsets" };
    let mut chart = chart(area, title, across_offsets(scene), Axis::bytes(top.unsigned_abs(), TICKS_UP))?;
    for (at, piece) in pieces.iter().enumerate() {
        let bytes = i64::try_from(piece.bytes).unwrap_or(i64::MAX);
        fill_between(&mut chart, (piece.base.get(), 0), (piece.until.get(), bytes), (1, 1), colour_of(pieces, at))?;
    }
    marks(&mut chart, scene, top)
}

/// The share of the offsets that hold a record, over offsets: what compaction has taken is a gap.
fn fill(area: &Area<'_>, scene: &Scene<'_>) -> Drawn {
    let pieces = &scene.outline.pieces;
    let how = if pieces.iter().all(|p| p.whole && p.segments == 1) { "" } else { ", from samples" };
    let title = format!("Offsets that hold a record{how} (compaction leaves gaps)");
    let mut chart = chart(area, &title, across_offsets(scene), Axis::percent())?;
    for (at, piece) in pieces.iter().enumerate() {
        let Some(share) = piece.fill() else { continue };
        // Only a piece without any gap is shown as full, and only one without records as empty.
        let share = if share < 1.0 { ((share * 100.0) as i64).clamp(i64::from(share > 0.0), 99) } else { 100 };
        if share < 100 {
            fill_between(&mut chart, (piece.base.get(), share), (piece.until.get(), 100), (1, 0), GAP)?;
        }
        fill_between(&mut chart, (piece.base.get(), 0), (piece.until.get(), share), (1, 0), colour_of(pieces, at))?;
    }
    marks(&mut chart, scene, 100)
}

/// Units of a rate, by the milliseconds that they have.
const RATE_UNITS: [(&str, i64); 4] = [("second", 1000), ("minute", 60_000), ("hour", 3_600_000), ("day", 86_400_000)];

/// Records over time. Between two points of the log whose times are known they are spread evenly.
fn rate(area: &Area<'_>, scene: &Scene<'_>) -> Drawn {
    let Some((begin, end)) = time_range(scene) else { return nothing(area, "Records over time", "no record has a time") };
    let counts = records_in_buckets(scene, begin, end);
    let bucket_ms = (end - begin) as f64 / BUCKETS as f64;
    let most = counts.iter().copied().fold(0.0, f64::max);
    let fits = |(_, ms): &&(&str, i64)| most * *ms as f64 / bucket_ms >= 1.0;
    let (unit, unit_ms) = RATE_UNITS.iter().find(fits).unwrap_or(&RATE_UNITS[3]);
    let thousandths = |count: f64| (count * *unit_ms as f64 / bucket_ms * 1000.0) as i64;
    let title = format!("Records per {unit}, over time ({})", scene.zone.name());
    let top = thousandths(most * 1.1);
    let mut chart = chart(area, &title, Axis::times(begin, end, scene.zone, TICKS_ACROSS), Axis::thousandths(top, TICKS_UP))?;
    for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        let edge = |at: usize| begin + (bucket_ms * at as f64) as i64;
        fill_between(&mut chart, (edge(at), 0), (edge(at + 1), thousandths(*count)), (1, 1), SEALED)?;
    }
    Ok(())
}

fn records_in_buckets(scene: &Scene<'_>, begin: i64, end: i64) -> Vec<f64> {
    let mut counts = vec![0.0; BUCKETS];
    let bucket_of = |time: i64| ((time - begin) as f64 / (end - begin) as f64 * BUCKETS as f64).clamp(0.0, BUCKETS as f64);
    let pieces = &scene.outline.pieces;
    let first = pieces.first().and_then(|p| Some((p.base.get(), p.first_time?.get())));
    let (mut before, mut before_time) = first.unwrap_or((scene.outline.log_start.get(), begin));
    for (offset, time) in &scene.outline.points {
        // Times may fall; what came until then counts where the largest one stood.
        let time = time.get().max(before_time);
        let piece = pieces.partition_point(|p| p.base <= *offset).checked_sub(1).and_then(|at| pieces.get(at));
        let records = (offset.get() - before).max(0) as f64 * piece.and_then(Piece::fill).unwrap_or(1.0);
        let (from, to) = (bucket_of(before_time), bucket_of(time));
        if to - from < 1e-9 {
            counts[(to as usize).min(BUCKETS - 1)] += records;
        } else {
            for (at, count) in counts.iter_mut().enumerate().take(to.ceil() as usize).skip(from as usize) {
                let covered = (to.min(at as f64 + 1.0) - from.max(at as f64)).max(0.0);
                *count += records * covered / (to - from);
            }
        }
        (before, before_time) = (offset.get(), time);
    }
    counts
}
