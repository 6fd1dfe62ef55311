//! Shapes, as text. Knows coordinates and escaping; deliberately knows no result.
//!
//! Invariant: whatever text is put in comes out as text: nothing in it is read as markup.

use std::fmt::Write as _;

/// A drawing of a fixed inner size; the page scales it.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    title: String,
    shapes: String,
}

/// Where a text stands at its point.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// `title` is what a screen reader says.
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        Self { width, height, title: escape(title), shapes: String::new() }
    }

    pub fn rect(&mut self, class: &str, [x, y, width, height]: [f64; 4]) {
        let (width, height) = (width.max(0.0), height.max(0.0));
        let _ = write!(
            self.shapes,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
        );
    }

    pub fn line(&mut self, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
        let _ = write!(
            self.shapes,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    pub fn circle(&mut self, class: &str, [x, y]: [f64; 2], radius: f64) {
        let _ = write!(self.shapes, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"/>"#);
    }

    pub fn polyline(&mut self, class: &str, points: &[[f64; 2]]) {
        let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(self.shapes, r#"<polyline class="{class}" points="{}"/>"#, points.join(" "));
    }

    pub fn text(&mut self, class: &str, anchor: Anchor, [x, y]: [f64; 2], text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.shapes,
            r#"<text class="{class}" text-anchor="{anchor}" x="{x:.1}" y="{y:.1}">{}</text>"#,
            escape(text)
        );
    }

    pub fn end(self) -> String {
        let Self { width, height, title, shapes } = self;
        format!(r#"<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}">{shapes}</svg>"#)
    }
}

/// Text as HTML has to have it, in and outside attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let mut svg = Svg::new(10.0, 10.0, "a \"b\" <c>");
        svg.text("", Anchor::End, [1.0, 2.0], "<script>&'");
        let drawn = svg.end();
        assert!(drawn.contains("aria-label=\"a &quot;b&quot; &lt;c&gt;\""), "{drawn}");
        assert!(drawn.contains(">&lt;script&gt;&amp;&#39;</text>"), "{drawn}");
    }

    #[test]
    fn nothing_is_drawn_backwards() {
        let mut svg = Svg::new(10.0, 10.0, "t");
        svg.rect("x", [0.0, 0.0, -3.0, 1.0]);
        assert!(svg.end().contains(r#"width="0.0""#));
    }
}
