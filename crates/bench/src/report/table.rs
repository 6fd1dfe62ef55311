//! Tables for terminals: a title, aligned columns, notes, verdicts.
//!
//! Knows widths only. Invariant: every cell is printed whole.

use crate::scenarios::Report;

/// Prints one scenario.
pub fn print(report: &Report) {
    println!("\n{}", text(report));
}

fn text(report: &Report) -> String {
    let mut lines = vec![format!("## {}: {}", report.name, report.title)];
    if let Some(why) = &report.skipped {
        lines.push(format!("skipped: {why}"));
        return lines.join("\n");
    }
    let head = std::iter::once("system").chain(report.columns.iter().copied());
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
    rows.extend(
        report
            .rows
            .iter()
            .map(|row| std::iter::once(row.label.clone()).chain(row.cells.iter().cloned()).collect()),
    );
    lines.extend(aligned(&rows));
    lines.extend(report.rows.iter().map(|row| {
        let unexpected = if row.verdict.as_claimed { "" } else { "   <-- not as claimed" };
        format!("{}: {}{unexpected}", row.label, row.verdict.text)
    }));
    lines.extend(report.notes.iter().map(|note| format!("({note})")));
    lines.join("\n")
}

/// The first row is the head; its line is drawn under it.
pub fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join(" | ").trim_end().to_owned()
        })
        .collect();
    if !lines.is_empty() {
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        lines.insert(1, rule.join(" | "));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "bb"], ["ccc", "é"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows), ["a   | bb", "--- | --", "ccc | é"]);
    }
}
