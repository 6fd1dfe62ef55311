//! What is printed and written about a run. Knows results; deliberately knows no system and no server.

#[cfg(test)]
mod example;
mod html;
mod json;
pub mod table;
mod text;
pub mod verdicts;

pub use html::html;
pub use json::json;
pub use text::{cycles, storms, text};
