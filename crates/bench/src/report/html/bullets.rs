//! The measures as bullet bars: how far the value is, where floor and goal are.

use super::svg::{Anchor, Svg};
use crate::throughput::{Measure, Wanted};

const WIDTH: f64 = 900.0;
const ROW: f64 = 46.0;
const BAR_AT: f64 = 0.0;
const BAR: f64 = 640.0;
/// How much of the scale lies beyond the goal.
const BEYOND: f64 = 1.25;

/// One row for each measure.
pub fn draw(measures: &[Measure]) -> String {
    let mut svg = Svg::new(WIDTH, ROW * measures.len() as f64, "Measures with their floors and goals");
    for (index, measure) in measures.iter().enumerate() {
        row(&mut svg, ROW * index as f64, measure);
    }
    svg.end()
}

fn row(svg: &mut Svg, top: f64, measure: &Measure) {
    let most = measure.floor.max(measure.goal).max(measure.value.min(measure.goal * 2.0));
    let at = |value: f64| BAR_AT + BAR * (value / (most * BEYOND)).clamp(0.0, 1.0);
    let class = match (measure.holds(), measure.excels()) {
        (false, _) => "bad",
        (true, false) => "fair",
        (true, true) => "good",
    };
    svg.text("", Anchor::Start, [BAR_AT, top + 14.0], &measure.name);
    svg.rect("track", [BAR_AT, top + 20.0, BAR, 16.0]);
    if measure.value.is_nan() {
        svg.text("strong bad", Anchor::Start, [BAR_AT + BAR + 14.0, top + 33.0], "not measured");
        return;
    }
    svg.rect(class, [BAR_AT, top + 23.0, at(measure.value) - BAR_AT, 10.0]);
    svg.line("whisker", [at(measure.spread.0), top + 28.0, at(measure.spread.1), top + 28.0]);
    for (bound, class) in [(measure.floor, "floor"), (measure.goal, "goal")] {
        svg.line(class, [at(bound), top + 18.0, at(bound), top + 38.0]);
    }
    svg.text(
        &format!("strong {class}"),
        Anchor::Start,
        [BAR_AT + BAR + 14.0, top + 33.0],
        &format!("{:.2}", measure.value),
    );
    let sign = if measure.wanted == Wanted::AtLeast { "≥" } else { "≤" };
    let wanted = format!("floor {sign} {}, goal {sign} {}", measure.floor, measure.goal);
    svg.text("faint", Anchor::End, [WIDTH, top + 33.0], &wanted);
}
