//! How throughput changes with something: points on a line, equally far apart.

use super::svg::{Anchor, Svg};

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 34.0;

/// One line of a plot.
pub struct Line {
    pub class: &'static str,
    /// A value for each name on the axis.
    pub values: Vec<f64>,
}

/// Values from zero up; `names` stand below.
pub fn draw(title: &str, unit: &str, names: &[String], lines: &[Line]) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    let most = lines.iter().flat_map(|line| &line.values).copied().fold(f64::MIN_POSITIVE, f64::max) * 1.1;
    let steps = names.len().saturating_sub(1).max(1) as f64;
    let x = |index: usize| LEFT + 24.0 + (WIDTH - LEFT - RIGHT - 48.0) * index as f64 / steps;
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most;
    for part in [0.0, 0.5, 1.0] {
        let value = most / 1.1 * part;
        svg.line("axis", [LEFT, y(value), WIDTH - RIGHT, y(value)]);
        svg.text("faint", Anchor::End, [LEFT - 6.0, y(value) + 4.0], &format!("{value:.0}"));
    }
    svg.text("faint", Anchor::Start, [0.0, 10.0], unit);
    for (index, name) in names.iter().enumerate() {
        svg.text("faint", Anchor::Middle, [x(index), HEIGHT - 12.0], name);
    }
    for line in lines {
        let points: Vec<[f64; 2]> =
            line.values.iter().enumerate().map(|(index, value)| [x(index), y(*value)]).collect();
        svg.polyline(line.class, &points);
        for (point, value) in points.iter().zip(&line.values) {
            svg.circle(line.class, *point, 4.0);
            svg.text("", Anchor::Middle, [point[0], point[1] - 8.0], &format!("{value:.0}"));
        }
    }
    svg.end()
}
