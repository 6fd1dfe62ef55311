//! The scenarios' results as JSON and as one page.
//!
//! Knows tables and verdicts. Invariant: all text is escaped, and the page says nothing that is not in the JSON too.

use serde_json::json;

use super::html::{STYLE, escape};
use crate::scenarios::{Report, Row, Verdict};

/// One document. Members may be added; those that are there keep their names and meanings.
pub fn json(servers: &str, reports: &[Report]) -> String {
    let scenarios: Vec<_> = reports
        .iter()
        .map(|report| {
            let mut scenario = json!(report);
            scenario["as_claimed"] = json!(report.is_as_claimed());
            scenario
        })
        .collect();
    format!("{:#}\n", json!({ "servers": servers, "scenarios": scenarios }))
}

/// The page.
pub fn html(servers: &str, reports: &[Report]) -> String {
    let as_claimed = reports.iter().filter(|report| report.is_as_claimed()).count();
    let body: String = reports.iter().map(section).collect();
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>What a retry does</title><style>{STYLE} td {{ text-align: left; }} .holds {{ color: var(--good); }} \
         .fails {{ color: var(--bad); }}</style><body><h1>What a retry does</h1><p class=\"machine\">{}</p>\
         <p class=\"verdict\"><b>{as_claimed} of {}</b> scenarios went as claimed.</p>{body}</body></html>\n",
        escape(servers),
        reports.len()
    )
}

fn section(report: &Report) -> String {
    let title = format!("<h2>{}: {}</h2>", escape(report.name), escape(report.title));
    if let Some(why) = &report.skipped {
        return format!("{title}<p class=\"legend\">Skipped: {}</p>", escape(why));
    }
    let head: String = std::iter::once("system")
        .chain(report.columns.iter().copied())
        .chain(["verdict"])
        .map(|name| format!("<th>{}</th>", escape(name)))
        .collect();
    let rows: String = report.rows.iter().map(row).collect();
    let notes: String =
        report.notes.iter().map(|note| format!("<p class=\"legend\">{}</p>", escape(note))).collect();
    format!("{title}<table><tr>{head}</tr>{rows}</table>{notes}")
}

fn row(row: &Row) -> String {
    let cells = std::iter::once(&row.label).chain(&row.cells);
    let cells: String = cells.map(|cell| format!("<td>{}</td>", escape(cell))).collect();
    format!("<tr>{cells}{}</tr>", judged(&row.verdict))
}

fn judged(verdict: &Verdict) -> String {
    let class = if verdict.holds { "holds" } else { "fails" };
    let unexpected = if verdict.as_claimed { "" } else { " (not as claimed)" };
    format!("<td class=\"{class}\">{}{unexpected}</td>", escape(&verdict.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Report {
        let verdict =
            Verdict { holds: false, as_claimed: true, text: "1 intent, 2 orders: <DUPLICATE>".into() };
        let row = Row { label: "no-key".into(), cells: vec!["2".into()], verdict };
        Report {
            name: "example",
            title: "a & b",
            columns: vec!["orders"],
            rows: vec![row],
            notes: &["a note"],
            skipped: None,
        }
    }

    #[test]
    fn json_has_every_row_and_its_verdict() {
        let document: serde_json::Value = serde_json::from_str(&json("servers", &[example()])).unwrap();
        let scenario = &document["scenarios"][0];
        assert_eq!((&scenario["name"], &scenario["as_claimed"]), (&json!("example"), &json!(true)));
        assert_eq!(scenario["rows"][0]["verdict"]["text"], "1 intent, 2 orders: <DUPLICATE>");
    }

    #[test]
    fn the_page_is_escaped() {
        let page = html("PostgreSQL <15>", &[example()]);
        assert!(page.contains("a &amp; b") && page.contains("PostgreSQL &lt;15&gt;"), "{page}");
        assert!(page.contains("<td class=\"fails\">1 intent, 2 orders: &lt;DUPLICATE&gt;</td>"), "{page}");
        assert!(page.contains("<b>1 of 1</b>"), "{page}");
    }
}
