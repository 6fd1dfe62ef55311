//! What is ordered: the same bytes for every system.
//!
//! Deliberately unknown: who answers. A real order has one product of the demo catalogue, drawn anew for each request: all
//! systems contend for the same four rows of stock, and not so much that everybody only waits for locks (two products each
//! of four would let one order after the other through). The work of an order does not depend on how large its body is.

use crate::driver::Template;

/// The products of the service's seed. One that is missing makes a measurement invalid at once (422).
const SKUS: [&str; 4] = ["TEA-001", "TEA-002", "TEA-003", "TEAPOT-001"];
/// The longest note that an order may have, in characters.
const NOTE_MAX: usize = 1000;
/// Four bytes in UTF-8, one character.
const WIDE: &str = "🍵";

/// Which work a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Prices, order, items, stock, event.
    Real,
    /// One INSERT.
    Minimal,
    /// A payment gateway that takes 30 ms, and then a real order.
    Gateway,
    /// A real order in a body of so many bytes: by its note as far as that may go, then by white space, which has to be
    /// read and is not kept.
    Body(usize),
}

impl Shape {
    /// As it stands in the names of phases.
    pub fn name(self) -> String {
        match self {
            Self::Real => "real".to_owned(),
            Self::Minimal => "minimal".to_owned(),
            Self::Gateway => "gateway".to_owned(),
            Self::Body(bytes) => format!("body_{bytes}"),
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Real | Self::Body(_) => "/v1/orders",
            Self::Minimal => "/v1/minimal-orders",
            Self::Gateway => "/v1/gateway-orders",
        }
    }

    fn bodies(self) -> Vec<String> {
        match self {
            Self::Real | Self::Gateway => SKUS.map(|sku| order(sku, "")).to_vec(),
            Self::Minimal => vec![r#"{"amount":1290}"#.to_owned()],
            Self::Body(bytes) => SKUS.map(|sku| order_of(sku, bytes)).to_vec(),
        }
    }

    /// Requests of which one is drawn each time.
    pub fn templates(self, api_key: &str) -> Vec<Template> {
        self.bodies().iter().map(|body| Template::post(self.path(), api_key, body)).collect()
    }
}

fn order(sku: &str, note: &str) -> String {
    let note = if note.is_empty() { String::new() } else { format!(r#","note":"{note}""#) };
    format!(r#"{{"items":[{{"sku":"{sku}","quantity":1}}]{note}}}"#)
}

/// An order of exactly so many bytes, if it can be so small.
fn order_of(sku: &str, bytes: usize) -> String {
    let missing = (bytes + 1).saturating_sub(order(sku, "x").len());
    let plain = missing % WIDE.len();
    let wide = (missing / WIDE.len()).min(NOTE_MAX - plain);
    let body = order(sku, &(WIDE.repeat(wide) + &"x".repeat(plain)));
    let space = " ".repeat(bytes.saturating_sub(body.len()));
    body.replacen("],", &format!("],{space}"), 1)
}

/// An order whose note marks it, for a trigger to find.
pub fn marked(note: &str) -> String {
    order(SKUS[0], note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_its_size_and_stays_within_the_limits_of_an_order() {
        for bytes in [307, 4096, 65_536] {
            let bodies = Shape::Body(bytes).bodies();
            assert_eq!(bodies.len(), SKUS.len());
            for body in bodies {
                assert_eq!(body.len(), bytes);
                let order: serde_json::Value = serde_json::from_str(&body).unwrap();
                assert_eq!(order["items"].as_array().unwrap().len(), 1);
                assert!(order["note"].as_str().unwrap().chars().count() <= NOTE_MAX);
            }
        }
    }

    #[test]
    fn every_product_is_ordered_as_often_as_the_others() {
        let all = Shape::Real.bodies().concat();
        for sku in SKUS {
            assert_eq!(all.matches(&format!("\"{sku}\"")).count(), 1);
        }
    }
}
