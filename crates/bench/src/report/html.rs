//! Results as one page that needs nothing else: no script, no font, no picture from anywhere.
//!
//! Knows which plots tell what, from top to bottom: whether the floors are met, who is how fast, where the time goes, how it
//! grows. Invariant: all text is escaped, and every number on the page stands in the JSON too.

mod bars;
mod bullets;
mod lines;
mod svg;

use crate::systems::System;
use crate::throughput::{Phase, QUIET, Results, STORMY};
use lines::Line;
pub(super) use svg::escape;

pub(super) const STYLE: &str = include_str!("html/page.css");

/// The phases that are shown at once; all others are folded away.
const FRESH: &str = "fresh_real_16";
const REPLAYS: &str = "replays_real_16";
const ALONE: &str = "fresh_real_1";

/// The page.
pub fn html(results: &Results) -> String {
    let met = results.measures.iter().filter(|measure| measure.holds()).count();
    let reached = results.measures.iter().filter(|measure| measure.excels()).count();
    let all = results.measures.len();
    let mut body = format!(
        "<h1>What idempotency costs</h1><p class=\"machine\">{}</p>\
         <p class=\"verdict\"><b>{met} of {all}</b> floors are met, {reached} of {all} goals are reached.</p>",
        escape(&results.machine.line())
    );
    if !results.machine.release_build {
        body.push_str("<p class=\"verdict\">A debug build: these numbers mean nothing.</p>");
    }
    let invalid = results.invalid.iter();
    body.extend(
        invalid.map(|why| format!("<p><b>Invalid, and so without a number:</b> {}</p>", escape(why))),
    );
    body.push_str(&legend(&[
        ("good", "goal reached"),
        ("fair", "floor met"),
        ("bad", "floor missed"),
        ("ink", "line: floor; dashed: goal; thin: the rounds"),
    ]));
    body.push_str(&bullets::draw(&results.measures));
    body.push_str(&throughput(results));
    body.push_str(&latency(results));
    body.push_str(&cpu(results));
    body.push_str(&growth(results));
    body.push_str(&storm(results));
    body.push_str(&wire(results));
    body.push_str(&everything_else(results));
    body.push_str("<h2>How it was measured</h2><ul>");
    body.extend(results.method.iter().map(|line| format!("<li>{}</li>", escape(line))));
    body.push_str("</ul>");
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>What idempotency costs</title><style>{STYLE}</style><body>{body}</body></html>\n"
    )
}

fn legend(entries: &[(&str, &str)]) -> String {
    let entries = entries.iter().map(|(colour, text)| {
        format!("<span class=\"swatch\" style=\"background: var(--{colour})\"></span>{}", escape(text))
    });
    format!("<p class=\"legend\">{}</p>", entries.collect::<String>())
}

/// A title, a sentence, and a plot of each of these phases.
fn section(
    results: &Results,
    title: &str,
    text: &str,
    phases: &[&str],
    plot: fn(&Phase) -> String,
) -> String {
    let plots = phases.iter().filter_map(|id| results.phase(id)).map(|phase| titled(phase, plot));
    format!("<h2>{}</h2>{text}{}", escape(title), plots.collect::<String>())
}

fn titled(phase: &Phase, plot: fn(&Phase) -> String) -> String {
    format!("<h3>{}</h3>{}", escape(&phase.title), plot(phase))
}

fn throughput(results: &Results) -> String {
    let text = "<p class=\"legend\">Requests per second: the bar is the median, the thin line goes from the least to the greatest round. \
                The baselines without a key make a second order of every duplicate.</p>";
    section(results, "Who is how fast", text, &[FRESH, REPLAYS], bars::throughput)
}

fn latency(results: &Results) -> String {
    let text = "<p class=\"legend\">Full: p50. Hollow: p99. The scale is logarithmic.</p>";
    section(results, "How long one request takes", text, &[ALONE, FRESH, REPLAYS], bars::latency)
}

fn cpu(results: &Results) -> String {
    let text = legend(&[("ours", "service"), ("second", "PostgreSQL"), ("third", "Redis")]);
    section(results, "Where the time goes: CPU for each request", &text, &[FRESH, REPLAYS], bars::cpu)
}

fn growth(results: &Results) -> String {
    let rates = |phase: &Phase| -> Vec<f64> {
        phase.series.iter().map(|series| series.spread(|point| point.per_second).median).collect()
    };
    let one = |phase: &Phase| vec![Line { class: "ours", values: rates(phase) }];
    let names = |phase: &Phase| phase.series.iter().map(|series| series.label.clone()).collect::<Vec<_>>();
    let (keys, replicas) = (&results.stored_keys.phase, &results.replicas);
    let sizes: Vec<String> = results.bodies.iter().map(|phase| phase.title.clone()).collect();
    let sizes: Vec<String> =
        sizes.iter().map(|title| title.rsplit("of ").next().unwrap_or_default().to_owned()).collect();
    let by_size = |system: System| {
        let of = |phase: &Phase| {
            phase.series(system.name()).map(|series| series.spread(|point| point.per_second).median)
        };
        results.bodies.iter().filter_map(of).collect()
    };
    let bodies = [
        Line { class: "other", values: by_size(System::NoKeyPipelined) },
        Line { class: "ours", values: by_size(System::OrderService) },
    ];
    let extrapolated = results.stored_keys.extrapolated.map_or(String::new(), |value| {
        format!("<p class=\"legend\">Extrapolated to ten million keys: {value:.2} of the throughput with the fewest.</p>")
    });
    let legend = legend(&[("ours", "order-service"), ("other", "no-key-pipelined")]);
    format!(
        "<h2>How the cost grows</h2><p class=\"legend\">New real orders per second, everywhere from zero up.</p>{legend}{extrapolated}<div class=\"columns\">\
         <div><h3>Stored keys</h3>{}</div><div><h3>Replicas on this machine</h3>{}</div><div><h3>Size of the body</h3>{}</div></div>",
        lines::draw("Throughput by stored keys", "orders/s", &names(keys), &one(keys)),
        lines::draw("Throughput by replicas", "orders/s", &names(replicas), &one(replicas)),
        lines::draw("Throughput by size of body", "orders/s", &sizes, &bodies),
    )
}

fn storm(results: &Results) -> String {
    let Some(storm) = &results.storm else { return String::new() };
    let half = |label: &str| {
        storm.phase.series(label).map(|series| {
            let middle = |figure: fn(&crate::throughput::Point) -> f64| series.spread(figure).median;
            format!("p50 {:.1} ms, p99 {:.1} ms", middle(|point| point.p50_ms), middle(|point| point.p99_ms))
        })
    };
    format!(
        "<h2>A storm of duplicates</h2><p>Fresh orders alone: <b>{}</b>. Beside a thousand clients that send one key of a slow order again \
         and again: <b>{}</b>. The clients sent {} requests for {} keys and got one answer for each key.</p>",
        half(QUIET).unwrap_or_default(),
        half(STORMY).unwrap_or_default(),
        storm.sent.requests,
        storm.sent.keys
    )
}

fn wire(results: &Results) -> String {
    let mut rows = String::new();
    for counted in &results.counts {
        for (kind, counts) in [("new order", counted.fresh), ("replay", counted.replays)] {
            if let Some(counts) = counts {
                rows.push_str(&format!(
                    "<tr><td>{}, {kind}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td></tr>",
                    escape(counted.system.name()),
                    counts.postgresql_round_trips,
                    counts.statements,
                    counts.redis_round_trips
                ));
            }
        }
    }
    format!(
        "<h2>On the wire, for each request</h2><table><tr><th></th><th>PostgreSQL round trips</th><th>statements</th>\
         <th>Redis round trips</th></tr>{rows}</table>"
    )
}

fn everything_else(results: &Results) -> String {
    let shown = [FRESH, REPLAYS];
    let others =
        results.phases.iter().filter(|phase| !shown.contains(&phase.id.as_str())).chain(&results.bodies);
    let plots: String = others.map(|phase| titled(phase, bars::throughput) + &bars::latency(phase)).collect();
    format!("<details><summary>Everything else that was measured</summary>{plots}</details>")
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_page_is_whole_and_needs_nothing_from_elsewhere() {
        let page = html(&example::results());
        for part in [
            "<b>3 of 8</b> floors",
            "order-service",
            "Stored keys",
            "no-key &lt;64&gt;: 503",
            "not measured",
            "Redis round trips",
            "In turns &amp; rounds.",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for foreign in ["<script", "src=", "href=", "@import", "url(", "http"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        for tag in ["svg", "text", "div", "table", "p", "h2", "details"] {
            let (opened, closed) = (
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count(),
                page.matches(&format!("</{tag}>")).count(),
            );
            assert_eq!(opened, closed, "<{tag}>");
        }
        assert!(!page.contains("NaN"));
    }

    #[test]
    fn what_a_machine_is_called_is_text() {
        let page = html(&example::results());
        assert!(page.contains("A &lt;processor&gt;") && !page.contains("<processor>"));
    }
}
