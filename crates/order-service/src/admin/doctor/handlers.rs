//! How long handlers take, beside the lease: a place in Redis should outlive its owner's pauses between two heartbeats.
//!
//! Asks a running service's metrics; nobody else knows. Invariant: without a running service the check is skipped, never ok.

use idempotency::telemetry::DURATION;

use super::DoctorArgs;
use crate::admin::asking::ASK_MAX;
use crate::admin::report::Check;

const NAME: &str = "lease";

pub(super) async fn check(arguments: &DoctorArgs) -> Check {
    let lease = arguments.idempotency_lease;
    let text = match metrics(arguments).await {
        Ok(text) => text,
        Err(why) => {
            return Check::skipped(
                NAME,
                format!("the metrics of a running service cannot be read at ADMIN_BIND: {why}"),
            );
        }
    };
    match p99(&text) {
        None => Check::skipped(NAME, "the service has executed nothing yet"),
        Some(seconds) => {
            let longer = seconds < lease.as_secs_f64();
            Check::that(NAME, longer, format!("{lease:?}; 99 of 100 handlers took at most {seconds} s"))
        }
    }
}

async fn metrics(arguments: &DoctorArgs) -> Result<String, reqwest::Error> {
    // A client wants a TLS provider and certificates also where it speaks without; a slim image has none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(ASK_MAX).no_proxy().tls_certs_only([]).build()?;
    let mut request = client.get(format!("http://{}/metrics", arguments.admin_bind));
    if let Some(token) = &arguments.admin_token {
        request = request.bearer_auth(token);
    }
    request.send().await?.error_for_status()?.text().await
}

/// The upper bound, in seconds, of the class in which the 99th of a hundred handlers ended; infinite above the last one.
fn p99(metrics: &str) -> Option<f64> {
    let prefix = format!("{DURATION}_bucket{{phase=\"execute\",le=\"");
    let mut classes: Vec<(f64, f64)> = metrics
        .lines()
        .filter_map(|line| {
            let (bound, count) = line.strip_prefix(&prefix)?.split_once("\"} ")?;
            // "+Inf" is read as what it means.
            Some((bound.parse().ok()?, count.parse().ok()?))
        })
        .collect();
    classes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let all = classes.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
    classes.iter().find(|(_, count)| *count >= all * 0.99).map(|(bound, _)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_the_99th_of_a_hundred() {
        let line = |phase: &str, le: &str, count: u32| {
            format!("{DURATION}_bucket{{phase=\"{phase}\",le=\"{le}\"}} {count}\n")
        };
        let text = [
            line("enter", "0.1", 9),
            line("execute", "0.5", 99),
            line("execute", "0.1", 90),
            line("execute", "+Inf", 100),
        ];
        assert_eq!(p99(&text.concat()), Some(0.5));
        assert_eq!(
            p99(&[line("execute", "0.5", 98), line("execute", "+Inf", 100)].concat()),
            Some(f64::INFINITY)
        );
        assert_eq!(p99(&line("execute", "+Inf", 0)), None);
        assert_eq!(p99(""), None);
    }
}
