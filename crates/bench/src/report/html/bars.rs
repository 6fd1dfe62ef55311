//! Horizontal bars, one for each contestant: throughput with its spread, latencies, CPU time in parts.

use super::svg::{Anchor, Svg};
use crate::systems::System;
use crate::throughput::{Phase, Series};

const WIDTH: f64 = 900.0;
const LABEL: f64 = 150.0;
const BAR: f64 = 620.0;
const ROW: f64 = 26.0;

fn rows(phase: &Phase, title: &str, draw: impl Fn(&mut Svg, f64, &Series)) -> String {
    let mut svg = Svg::new(WIDTH, ROW * phase.series.len() as f64 + 4.0, title);
    for (index, series) in phase.series.iter().enumerate() {
        let top = ROW * index as f64 + 2.0;
        let class = if is_ours(series) { "strong" } else { "" };
        svg.text(class, Anchor::End, [LABEL - 10.0, top + 16.0], &series.label);
        draw(&mut svg, top, series);
    }
    svg.end()
}

fn is_ours(series: &Series) -> bool {
    series.label == System::OrderService.name()
}

fn class_of(series: &Series) -> &'static str {
    if is_ours(series) { "ours" } else { "other" }
}

/// The greatest figure of all, so that the longest bar is full.
fn greatest(phase: &Phase, figure: impl Fn(&Series) -> f64) -> f64 {
    phase.series.iter().map(figure).fold(f64::MIN_POSITIVE, f64::max)
}

/// Requests per second; the thin line goes from the least to the greatest round.
pub fn throughput(phase: &Phase) -> String {
    let rate = |series: &Series| series.spread(|point| point.per_second);
    let most = greatest(phase, |series| rate(series).greatest);
    rows(phase, &format!("Requests per second: {}", phase.title), |svg, top, series| {
        let rate = rate(series);
        let at = |value: f64| LABEL + BAR * value / most;
        svg.rect(class_of(series), [LABEL, top + 3.0, at(rate.median) - LABEL, 16.0]);
        svg.line("whisker", [at(rate.least), top + 11.0, at(rate.greatest), top + 11.0]);
        svg.text("", Anchor::Start, [at(rate.greatest) + 8.0, top + 16.0], &format!("{:.0}/s", rate.median));
    })
}

/// p50 (full) and p99 (hollow) in ms, on a logarithmic scale.
pub fn latency(phase: &Phase) -> String {
    let (p50, p99) = (
        |series: &Series| series.spread(|point| point.p50_ms).median,
        |series: &Series| series.spread(|point| point.p99_ms).median,
    );
    let most = greatest(phase, p99) * 1.05;
    let least = phase.series.iter().map(p50).fold(f64::MAX, f64::min) * 0.8;
    let at = |value: f64| LABEL + BAR * (value / least).ln() / (most / least).ln();
    rows(phase, &format!("Latency: {}", phase.title), |svg, top, series| {
        let (p50, p99, class) = (p50(series), p99(series), class_of(series));
        svg.line("axis", [LABEL, top + 11.0, LABEL + BAR, top + 11.0]);
        svg.circle(class, [at(p50), top + 11.0], 5.0);
        svg.circle(&format!("hollow {class}"), [at(p99), top + 11.0], 5.0);
        let text = format!("{p50:.2} / {p99:.2} ms");
        svg.text("", Anchor::Start, [LABEL + BAR + 12.0, top + 16.0], &text);
    })
}

/// Microseconds of CPU time for each request: service, PostgreSQL, Redis.
pub fn cpu(phase: &Phase) -> String {
    let parts = |series: &Series| {
        [
            ("service", series.cpu(|cpu| Some(cpu.service)).unwrap_or(0.0)),
            ("postgresql", series.cpu(|cpu| cpu.postgresql).unwrap_or(0.0)),
            ("redis", series.cpu(|cpu| cpu.redis).unwrap_or(0.0)),
        ]
    };
    let sum = |series: &Series| parts(series).iter().map(|(_, micros)| micros).sum::<f64>();
    // Room for the longer text behind the bar.
    let most = greatest(phase, sum) * 1.2;
    rows(phase, &format!("CPU time of a request: {}", phase.title), |svg, top, series| {
        let mut left = LABEL;
        for (class, micros) in parts(series) {
            let width = BAR * micros / most;
            svg.rect(class, [left, top + 3.0, width, 16.0]);
            left += width;
        }
        let [service, postgresql, redis] = parts(series).map(|(_, micros)| micros);
        let text = format!("{:.0} µs ({service:.0} + {postgresql:.0} + {redis:.0})", sum(series));
        svg.text("", Anchor::Start, [left + 8.0, top + 16.0], &text);
    })
}
