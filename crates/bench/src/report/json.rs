//! Results as JSON, for programs that compare runs.
//!
//! Invariant: `measures[].name`, `value`, `unit`, `floor`, `goal`, `holds`, `spread` keep their names and meanings; members
//! may be added. What was not measured is null or absent, never zero.

use serde_json::{Value, json};

use crate::throughput::{
    Counted, Counts, Measure, Phase, QUIET, Results, STORMY, Series, Spread, StoredKeys, Storm, Wanted,
};

/// One document.
pub fn json(results: &Results) -> String {
    let document = json!({
        "machine": results.machine,
        "quick": results.quick,
        "method": results.method,
        "measures": results.measures.iter().map(measure).collect::<Vec<_>>(),
        "systems": systems(results),
        "growth": {
            "stored_keys": stored_keys(&results.stored_keys),
            "replicas": phase(&results.replicas),
            "bodies": results.bodies.iter().map(phase).collect::<Vec<_>>(),
        },
        "storm": results.storm.as_ref().map(storm),
        "invalid": results.invalid,
    });
    format!("{document:#}\n")
}

fn measure(measure: &Measure) -> Value {
    json!({
        "name": measure.name,
        "value": rounded(measure.value),
        "unit": "ratio",
        "wanted": if measure.wanted == Wanted::AtLeast { "at least" } else { "at most" },
        "floor": measure.floor,
        "goal": measure.goal,
        "holds": measure.holds(),
        "reaches_goal": measure.excels(),
        "spread": [rounded(measure.spread.0), rounded(measure.spread.1)],
    })
}

/// By system, then by phase.
fn systems(results: &Results) -> Value {
    let mut all = serde_json::Map::new();
    for counted in &results.counts {
        let name = counted.system.name();
        let mut phases = serde_json::Map::new();
        for phase in &results.phases {
            if let Some(series) = phase.series(name) {
                phases.insert(phase.id.clone(), figures(series));
            }
        }
        all.insert(name.to_owned(), json!({ "phases": phases, "on_the_wire": wire(counted) }));
    }
    Value::Object(all)
}

fn wire(counted: &Counted) -> Value {
    let counts = |counts: Option<Counts>| {
        counts.map(|counts| {
            json!({
                "postgresql_round_trips": counts.postgresql_round_trips,
                "statements": counts.statements,
                "redis_round_trips": counts.redis_round_trips,
            })
        })
    };
    json!({ "fresh": counts(counted.fresh), "replays": counts(counted.replays) })
}

fn phase(phase: &Phase) -> Value {
    let series: serde_json::Map<String, Value> =
        phase.series.iter().map(|series| (series.label.clone(), figures(series))).collect();
    json!({ "id": phase.id, "title": phase.title, "series": series })
}

fn figures(series: &Series) -> Value {
    let cpu = |value: Option<f64>| value.map(rounded);
    json!({
        "requests_per_s": spread(series.spread(|point| point.per_second)),
        "p50_ms": spread(series.spread(|point| point.p50_ms)),
        "p99_ms": spread(series.spread(|point| point.p99_ms)),
        "cpu_us_per_request": {
            "service": cpu(series.cpu(|cpu| Some(cpu.service))),
            "postgresql": cpu(series.cpu(|cpu| cpu.postgresql)),
            "redis": cpu(series.cpu(|cpu| cpu.redis)),
        },
    })
}

fn stored_keys(stored: &StoredKeys) -> Value {
    let mut value = phase(&stored.phase);
    value["stored"] = json!(stored.keys);
    value["extrapolated_to_10000000"] = json!(stored.extrapolated.map(rounded));
    value
}

fn storm(storm: &Storm) -> Value {
    let half = |label| storm.phase.series(label).map(figures);
    json!({
        "kind": storm.kind.name(),
        "fresh_orders_without": half(QUIET),
        "fresh_orders_beside": half(STORMY),
        "duplicates": { "keys": storm.sent.keys, "requests": storm.sent.requests, "refused": storm.sent.refused },
        "connections_at_most": { "open": storm.connections.open, "busy": storm.connections.busy },
    })
}

fn spread(spread: Spread) -> Value {
    json!({
        "median": rounded(spread.median),
        "least": rounded(spread.least),
        "greatest": rounded(spread.greatest),
    })
}

/// Four digits behind the point: more would only look exact.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_document_has_the_promised_shape() {
        let results = example::results();
        let document: Value = serde_json::from_str(&json(&results)).unwrap();
        assert!(document["machine"]["cores"].is_u64());
        let measures = document["measures"].as_array().unwrap();
        assert_eq!(measures.len(), results.measures.len());
        for measure in measures {
            for number in ["floor", "goal"] {
                assert!(measure[number].is_f64(), "{number} in {measure}");
            }
            let measured = measure["value"].is_f64();
            assert!(measured || (measure["value"].is_null() && measure["holds"] == false), "{measure}");
            assert!(
                measure["name"].is_string() && measure["unit"].is_string() && measure["holds"].is_boolean()
            );
            assert_eq!(measure["spread"].as_array().unwrap().len(), 2);
        }
        let ours = &document["systems"]["order-service"];
        let figures = &ours["phases"]["fresh_real_16"];
        for figure in ["requests_per_s", "p50_ms", "p99_ms"] {
            assert!(figures[figure]["median"].is_number(), "{figure} in {figures}");
        }
        assert_eq!(figures["cpu_us_per_request"]["postgresql"], 300.0);
        assert_eq!(figures["cpu_us_per_request"]["redis"], Value::Null, "what is not known is not zero");
        assert_eq!(ours["on_the_wire"]["replays"]["redis_round_trips"], 1.0);
        assert_eq!(document["growth"]["stored_keys"]["stored"], json!([1000, 100_000]));
        assert_eq!(document["invalid"], json!(["no-key <64>: 503"]));
        assert!(document["storm"]["fresh_orders_beside"]["p99_ms"]["median"].is_number());
    }

    #[test]
    fn holds_is_about_the_floor_alone() {
        let results = example::results();
        let document: Value = serde_json::from_str(&json(&results)).unwrap();
        let of = |part: &str| {
            let measures = document["measures"].as_array().unwrap().clone();
            measures
                .into_iter()
                .find(|m| m["name"].as_str().unwrap().contains(part) && m["value"].is_f64())
                .unwrap()
        };
        assert_eq!(of("against no-key")["holds"], false);
        let keys = of("stored keys");
        assert_eq!((keys["holds"].as_bool(), keys["reaches_goal"].as_bool()), (Some(true), Some(false)));
    }
}
