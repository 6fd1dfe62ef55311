//! The `Prefer` header (RFC 7240), as far as it is understood here: `wait=N` and `respond-async`.
//!
//! Pure. Invariant: a preference that cannot be read is ignored, as the RFC wants it; it never refuses a request.

use std::time::Duration;

/// What a caller prefers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preferences {
    /// How long a duplicate should wait for the first one; zero never waits.
    pub wait: Option<Duration>,
    /// Whether a workflow should be answered at once, and go on in the background.
    pub respond_async: bool,
}

impl Preferences {
    /// From the field lines of the header. The first `wait` counts (RFC 7240, 2).
    pub fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut preferences = Self::default();
        for line in lines {
            let Ok(line) = std::str::from_utf8(line) else { continue };
            for preference in line.split(',') {
                // Parameters behind a semicolon change nothing about the preference itself.
                let preference = preference.split(';').next().unwrap_or_default();
                let Some((name, value)) = preference.split_once('=') else {
                    preferences.respond_async |= preference.trim().eq_ignore_ascii_case("respond-async");
                    continue;
                };
                if name.trim().eq_ignore_ascii_case("wait") && preferences.wait.is_none() {
                    let seconds = value.trim().trim_matches('"').parse::<u32>();
                    preferences.wait = seconds.ok().map(|seconds| Duration::from_secs(u64::from(seconds)));
                }
            }
        }
        preferences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_read_in_every_spelling_and_nothing_else_is() {
        let wait = |lines: &[&str]| {
            Preferences::parse(lines.iter().map(|line| line.as_bytes())).wait.map(|w| w.as_secs())
        };
        assert_eq!(wait(&["wait=10"]), Some(10));
        assert_eq!(wait(&["respond-async, WAIT = \"3\" ; x=1"]), Some(3));
        let asynchronous = |line: &str| Preferences::parse(std::iter::once(line.as_bytes())).respond_async;
        assert!(asynchronous("wait=1, Respond-Async ;x") && asynchronous("respond-async"));
        assert!(
            !asynchronous("respond")
                && !asynchronous("respond-async=1")
                && !asynchronous("wait=1;respond-async")
        );
        assert_eq!(wait(&["return=minimal", "wait=0", "wait=9"]), Some(0));
        for ignored in [
            "",
            "wait",
            "wait=",
            "wait=-1",
            "wait=1.5",
            "wait=x",
            "respond-async;wait=5",
            "waiting=5",
            "wait=99999999999",
        ] {
            assert_eq!(wait(&[ignored]), None, "{ignored:?}");
        }
    }
}
