//! Where log lines go: stderr, as text on a terminal and as JSON elsewhere (`LOG_FORMAT`), filtered by `RUST_LOG`.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Starts logging; a second call does nothing.
pub(crate) fn start(format: Option<LogFormat>) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new("info,actix_server=warn,tokio_postgres=warn,deadpool.postgres=error")
    });
    let text = format.map_or_else(|| std::io::stderr().is_terminal(), |format| format == LogFormat::Text);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = if text {
        lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init()
    } else {
        lines.json().flatten_event(true).try_init()
    };
}
