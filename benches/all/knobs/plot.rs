//! The plot of the knobs: a panel for each setting, ratios to the default on a logarithmic scale over the values of the setting.

use super::{Knob, short};
use plotters::prelude::{
    ChartBuilder, Circle, Color, EmptyElement, IntoDrawingArea, IntoLogRange, PathElement, RGBColor, Rectangle, SVGBackend, Text, WHITE,
};
use plotters::style::{FontDesc, FontFamily, FontStyle, TextStyle};

const SIZE: (u32, u32) = (1000, 760);
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const LINE: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
// Hues that eyes of all kinds tell apart.
const HUES: [RGBColor; 5] = [
    RGBColor(0x44, 0x77, 0xaa),
    RGBColor(0xee, 0x88, 0x11),
    RGBColor(0x22, 0x88, 0x33),
    RGBColor(0xaa, 0x33, 0x77),
    RGBColor(0x77, 0x77, 0x77),
];

fn font(size: f64, style: FontStyle) -> TextStyle<'static> {
    TextStyle::from(FontDesc::new(FontFamily::SansSerif, size, style)).color(&INK)
}

pub(super) fn svg(knobs: &[Knob]) -> String {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE).expect("drawn");
        let title = "Each value of a setting next to its default (= 1): of rates more is better, of everything else less";
        root.draw(&Text::new(title, (16, 10), font(18.0, FontStyle::Bold))).expect("drawn");
        let (_, below) = root.split_vertically(40);
        for (area, knob) in below.split_evenly((2, 2)).iter().zip(knobs) {
            panel(area, knob);
        }
        root.present().expect("drawn");
    }
    text
}

fn panel(area: &plotters::drawing::DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, knob: &Knob) {
    let ratios = |m: usize| (0..knob.values.len()).map(move |at| knob.measures[m].ratio(at, knob.default));
    let all = || knob.measures.iter().flat_map(|m| (0..knob.values.len()).flat_map(|at| m.ratios(at, knob.default)));
    let (low, high) = (all().fold(1.0, f64::min) / 1.3, all().fold(1.0, f64::max) * 1.3);
    area.draw(&Text::new(knob.setting, (16, 6), font(14.0, FontStyle::Bold))).expect("drawn");
    let mut at = 16;
    for (measure, hue) in knob.measures.iter().zip(HUES) {
        area.draw(&Rectangle::new([(at, 30), (at + 10, 40)], hue.filled())).expect("drawn");
        area.draw(&Text::new(measure.name, (at + 14, 28), font(12.0, FontStyle::Normal))).expect("drawn");
        at += 14 + measure.name.len() as i32 * 11 / 2 + 18;
    }
    let last = knob.values.len() as f64 - 1.0;
    let mut builder = ChartBuilder::on(area);
    builder.margin_top(52).margin_right(24).margin_left(8).margin_bottom(8).x_label_area_size(26).y_label_area_size(56);
    let mut chart = builder.build_cartesian_2d(-0.3..last + 0.3, (low..high).log_scale()).expect("scales");
    let mut mesh = chart.configure_mesh();
    let value_at = |x: &f64| {
        let nearest = x.round();
        let label = if (x - nearest).abs() < 1e-6 && nearest >= 0.0 { knob.values.get(nearest as usize) } else { None };
        label.cloned().unwrap_or_default()
    };
    mesh.x_labels(knob.values.len() * 2).x_label_formatter(&value_at).y_label_formatter(&|y| short(*y)).y_labels(6);
    mesh.disable_x_mesh().label_style(font(12.0, FontStyle::Normal)).axis_style(INK).bold_line_style(LINE).light_line_style(WHITE.mix(0.0));
    mesh.draw().expect("drawn");
    for (m, hue) in (0..knob.measures.len()).zip(HUES) {
        let points: Vec<(f64, f64)> = ratios(m).enumerate().map(|(at, ratio)| (at as f64, ratio)).collect();
        if knob.ordered {
            chart.plotting_area().draw(&PathElement::new(points.clone(), hue.stroke_width(2))).expect("drawn");
        }
        for (at, point) in points.into_iter().enumerate() {
            // How far the rounds lie apart.
            let ratios = knob.measures[m].ratios(at, knob.default);
            let ends = [ratios.first(), ratios.last()].map(|ratio| (point.0, ratio.copied().unwrap_or(point.1)));
            chart.plotting_area().draw(&PathElement::new(ends, hue.stroke_width(1))).expect("drawn");
            chart.plotting_area().draw(&(EmptyElement::at(point) + Circle::new((0, 0), 4, hue.filled()))).expect("drawn");
        }
    }
}
