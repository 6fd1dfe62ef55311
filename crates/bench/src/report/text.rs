//! Results for the terminal: the measures first, then what they are made of.
//!
//! Knows words and digits. Invariant: a measure that misses its floor is marked, whatever else is printed.

use super::table::aligned;
use crate::throughput::{
    Counted, Counts, Cycle, Measure, Phase, Point, QUIET, Results, STORMY, Series, Spread, Storm, Wanted,
};

/// Everything.
pub fn text(results: &Results) -> String {
    let mut lines = vec![String::new(), results.machine.line()];
    if !results.machine.release_build {
        lines.push("A DEBUG BUILD: these numbers mean nothing.".to_owned());
    }
    lines.extend(results.invalid.iter().map(|why| format!("\nINVALID, and so without a number: {why}")));
    section(&mut lines, "Measures", &measures(&results.measures));
    for phase in results.phases.iter().chain(&results.bodies) {
        section(&mut lines, &phase.title, &systems(phase));
    }
    section(&mut lines, &results.replicas.title, &systems(&results.replicas));
    section(&mut lines, &results.stored_keys.phase.title, &systems(&results.stored_keys.phase));
    lines.push(stored_keys(results));
    section(&mut lines, "On the wire, for each request (real order)", &counts(&results.counts));
    lines.push(String::new());
    lines.extend(storm_lines(results.storm.as_slice()));
    lines.push(String::new());
    lines.extend(results.method.iter().map(|line| format!("({line})")));
    lines.join("\n") + "\n"
}

/// Storms, side by side.
pub fn storms(storms: &[Storm]) -> String {
    storm_lines(storms).join("\n") + "\n"
}

/// Reaper cycles, side by side.
pub fn cycles(cycles: &[Cycle]) -> String {
    let head = ["cycle", "orders alone p50/p99/max ms", "while keys go", "gone meanwhile", "all gone after"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(cycles.iter().enumerate().map(|(index, cycle)| {
        vec![
            (index + 1).to_string(),
            times(&cycle.quiet),
            times(&cycle.reaping),
            format!("{} of {}", cycle.forgotten_meanwhile, cycle.expired),
            format!("{:.0} s", cycle.all_gone.as_secs_f64()),
        ]
    }));
    aligned(&rows).join("\n") + "\n"
}

fn section(lines: &mut Vec<String>, title: &str, rows: &[Vec<String>]) {
    lines.push(String::new());
    lines.push(format!("## {title}"));
    lines.extend(aligned(rows));
}

fn measures(measures: &[Measure]) -> Vec<Vec<String>> {
    let mut rows = vec![["measure", "value", "floor", "goal", "rounds", ""].map(str::to_owned).to_vec()];
    rows.extend(measures.iter().map(|measure| {
        let sign = if measure.wanted == Wanted::AtLeast { "≥" } else { "≤" };
        let digits = |value: f64, digits: usize| {
            if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
        };
        let verdict = match (measure.holds(), measure.excels()) {
            _ if measure.value.is_nan() => "NOT MEASURED",
            (false, _) => "FLOOR MISSED",
            (true, false) => "holds",
            (true, true) => "goal reached",
        };
        vec![
            measure.name.clone(),
            digits(measure.value, 3),
            format!("{sign} {}", measure.floor),
            format!("{sign} {}", measure.goal),
            format!("{}–{}", digits(measure.spread.0, 2), digits(measure.spread.1, 2)),
            verdict.to_owned(),
        ]
    }));
    rows
}

fn systems(phase: &Phase) -> Vec<Vec<String>> {
    let head = ["", "requests/s", "rounds", "p50 ms", "p99 ms", "CPU µs: service", "PostgreSQL", "Redis"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(phase.series.iter().map(|series| {
        let rate = series.spread(|point| point.per_second);
        let whole = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.0}"));
        vec![
            series.label.clone(),
            format!("{:.0}", rate.median),
            format!("{:.0}–{:.0}", rate.least, rate.greatest),
            middle(series, |point| point.p50_ms),
            middle(series, |point| point.p99_ms),
            whole(series.cpu(|cpu| Some(cpu.service))),
            whole(series.cpu(|cpu| cpu.postgresql)),
            whole(series.cpu(|cpu| cpu.redis)),
        ]
    }));
    rows
}

fn middle(series: &Series, figure: fn(&Point) -> f64) -> String {
    format!("{:.2}", series.spread(figure).median)
}

fn stored_keys(results: &Results) -> String {
    let keys: Vec<String> = results.stored_keys.keys.iter().map(u64::to_string).collect();
    match results.stored_keys.extrapolated {
        None => format!("(really stored: {}; nothing is extrapolated)", keys.join(", ")),
        Some(value) => format!(
            "(really stored: {}; extrapolated to 10000000 over the logarithm of the number: {value:.2})",
            keys.join(", ")
        ),
    }
}

fn counts(all: &[Counted]) -> Vec<Vec<String>> {
    let head = ["", "PostgreSQL round trips", "statements", "Redis round trips"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for counted in all {
        let kinds = [("new", counted.fresh), ("replay", counted.replays)];
        rows.extend(kinds.into_iter().filter_map(|(kind, counts)| {
            let Counts { postgresql_round_trips, statements, redis_round_trips } = counts?;
            let figures = [postgresql_round_trips, statements, redis_round_trips];
            let name = format!("{}, {kind}", counted.system);
            Some(std::iter::once(name).chain(figures.map(|figure| format!("{figure:.1}"))).collect())
        }));
    }
    rows
}

fn storm_lines(storms: &[Storm]) -> Vec<String> {
    let head = ["duplicates of a slow order", "fresh orders without: p50/p99/max ms", "beside the storm"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows[0]
        .extend(["p99 ratio", "requests", "told to come again", "connections open/busy"].map(str::to_owned));
    rows.extend(storms.iter().map(|storm| {
        let half = |label| storm.phase.series(label).map_or(String::new(), medians);
        let ratio = storm.phase.ratio(STORMY, QUIET, |point| point.p99_ms);
        let Spread { median, least, greatest } = ratio.unwrap_or(Spread::UNKNOWN);
        vec![
            storm.kind.name().to_owned(),
            half(QUIET),
            half(STORMY),
            format!("{median:.2} ({least:.2}–{greatest:.2})"),
            storm.sent.requests.to_string(),
            storm.sent.refused.to_string(),
            format!("{}/{} of 2 × 16", storm.connections.open, storm.connections.busy),
        ]
    }));
    let mut lines =
        vec!["## Fresh orders at 50/s beside 1000 duplicates of one slow order, two replicas".to_owned()];
    lines.extend(aligned(&rows));
    lines
}

/// Of a phase of several rounds.
fn medians(series: &Series) -> String {
    let middle = |figure: fn(&Point) -> f64| series.spread(figure).median;
    let worst = series.spread(|point| point.max_ms).greatest;
    format!("{:.1}/{:.1}/{worst:.1}", middle(|point| point.p50_ms), middle(|point| point.p99_ms))
}

fn times(point: &Point) -> String {
    format!("{:.1}/{:.1}/{:.1}", point.p50_ms, point.p99_ms, point.max_ms)
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn a_missed_floor_is_marked_and_everything_stands_there() {
        let results = example::results();
        let text = text(&results);
        let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_default().to_owned();
        assert!(line("against no-key ").contains("FLOOR MISSED"), "{text}");
        assert!(line("against postgres-only").contains("goal reached"), "{text}");
        assert!(line("against naive-hybrid").contains("NOT MEASURED"), "{text}");
        assert!(line("INVALID").contains("no-key <64>: 503"), "{text}");
        for part in
            ["New real orders, 16 connections", "order-service, replay", "extrapolated to 10000000", "reject"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
