//! The house rules that a compiler does not know: who may import what, how long a file may be, what a test may not do.
//!
//! Reads the sources as text. Each rule says what it protects; a rule that finds nothing to look at fails too.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file without a reason, in lines.
const LINES_MAX: usize = 400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Every file with this ending below a folder, as (path from the workspace, text).
fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let root = root();
    let mut open = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).expect("a text")));
            }
        }
    }
    assert!(!found.is_empty(), "nothing to look at in {folder}");
    found.sort();
    found
}

/// Lines of code: comments say what they like.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.starts_with("//"))
}

fn sources() -> Vec<(String, String)> {
    let mut all = files("crates", "rs");
    all.extend(files("tests", "rs"));
    all
}

#[test]
fn a_file_is_short_or_says_why_not() {
    for (name, text) in sources() {
        let lines = text.lines().count();
        assert!(
            lines <= LINES_MAX || text.lines().take(5).any(|line| line.contains("Long because")),
            "{name}: {lines}"
        );
    }
}

/// Expiry is decided by the stores' own clocks: a host whose clock is off takes nothing over and forgets nothing.
#[test]
fn no_decision_reads_the_wall_clock() {
    for folder in ["crates/idempotency/src", "crates/order-service/src"] {
        for (name, text) in files(folder, "rs") {
            for line in code(&text) {
                // It compares the clocks of both stores with this host's, and decides nothing.
                if name.starts_with("crates/order-service/src/admin/doctor") {
                    continue;
                }
                for clock in ["SystemTime::now", "now_utc()", "now_local()", "UNIX_EPOCH.elapsed"] {
                    assert!(!line.contains(clock), "{name}: {line}");
                }
            }
        }
    }
}

#[test]
fn a_module_says_what_it_is_for() {
    for (name, text) in sources() {
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//! ") && first.len() > 20, "{name} opens with {first:?}");
    }
}

/// In the framework: which module may know a driver. Everything else is pure and can be tested without a server.
#[test]
fn imports_go_one_way() {
    let framework = "crates/idempotency/src/";
    let rules: [(&str, &[&str], &[&str]); 3] = [
        ("actix", &["actix_web", "actix_http"], &["http"]),
        ("Redis", &["deadpool_redis", "redis::"], &["gate"]),
        (
            "PostgreSQL",
            &["tokio_postgres", "deadpool_postgres"],
            &["command", "database", "ledger", "operator", "outbox", "reaper", "relay", "sqlstate"],
        ),
    ];
    let engine_may_name = ["sqlstate::", "database_error"];
    for (name, text) in files(framework.trim_end_matches('/'), "rs") {
        let module =
            name.trim_start_matches(framework).split(['/', '.']).next().unwrap_or_default().to_owned();
        for (what, crates, allowed) in rules {
            if allowed.contains(&module.as_str()) {
                continue;
            }
            for line in code(&text) {
                let known = crates.iter().find(|driver| line.contains(**driver));
                // The engine passes errors on to the classifier; it never speaks to a server.
                let passes_on = module == "engine"
                    && (line.contains("tokio_postgres::Error")
                        || engine_may_name.iter().any(|word| line.contains(word)));
                assert!(known.is_none() || passes_on, "{name} knows {what}: {line}");
            }
        }
    }
}

/// The order service never looks at a key, and only the ledger's SQL touches records.
#[test]
fn records_belong_to_the_ledger() {
    for (name, text) in sources() {
        // Measurements fill the table from outside, as tests do.
        let outside = name.starts_with("tests/") || name.starts_with("crates/bench/");
        let belongs = outside || name.starts_with("crates/idempotency/src/ledger");
        let mentions = code(&text).find(|line| line.contains("idempotency_records"));
        assert!(belongs || mentions.is_none(), "{name}: {mentions:?}");
    }
    for (name, sql) in files("crates", "sql") {
        // What verifies them compares them with orders, and only reads.
        let belongs = name.starts_with("crates/idempotency/src/ledger/")
            || name.starts_with("crates/order-service/src/admin/verify/");
        assert!(belongs || !sql.contains("idempotency_records"), "{name}: SQL of records elsewhere");
        let upper = sql.to_uppercase();
        assert!(
            !upper.lines().any(|line| !line.starts_with("--") && line.contains("ON CONFLICT")),
            "{name}: the INSERT is the check"
        );
    }
}

/// `orders_idem_key` is the last layer: it raises, and no statement looks away.
#[test]
fn nobody_looks_away_from_the_last_layer() {
    for (name, text) in files("crates/order-service/src/orders", "rs") {
        assert!(!text.to_uppercase().contains("ON CONFLICT"), "{name}");
    }
    for (name, sql) in files("migrations", "sql") {
        for line in sql.lines().filter(|line| !line.trim_start().starts_with("--")) {
            let upper = line.to_uppercase();
            assert!(!upper.contains("DEFERRABLE"), "{name}: {line}");
            assert!(!(upper.contains("DROP") && upper.contains("IDEM_KEY")), "{name}: {line}");
        }
    }
}

/// Every command and workflow is failed, killed, repeated and paused at each of its steps.
#[test]
fn every_command_is_proven_idempotent() {
    const NAME: &str = "const NAME: &'static str = ";
    let proven: String = files("tests/e2e/idempotent", "rs").into_iter().map(|(_, text)| text).collect();
    let sources = files("crates/order-service/src", "rs");
    let names: Vec<&str> =
        sources.iter().flat_map(|(_, text)| code(text)).filter_map(|line| line.strip_prefix(NAME)).collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(
            proven.contains(&format!("{NAME}{name}")),
            "{name} stands in no file of tests/e2e/idempotent/"
        );
    }
}

/// Tests wait for a condition or a signal.
#[test]
fn no_test_sleeps_or_is_ignored() {
    for (name, text) in files("tests/e2e", "rs") {
        for line in code(&text) {
            for word in ["sleep(", "#[ignore", "thread::park"] {
                // pg_sleep is the server's work taking long, which is what such a case is about.
                assert!(!line.replace("pg_sleep(", "").contains(word), "{name}: {line}");
            }
        }
    }
}

/// Nothing in production code panics on purpose: `expect` says which invariant makes it impossible.
#[test]
fn production_code_does_not_unwrap() {
    for (name, text) in
        files("crates/idempotency/src", "rs").into_iter().chain(files("crates/order-service/src", "rs"))
    {
        if name.ends_with("tests.rs") {
            continue;
        }
        let production = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code(production) {
            for word in [".unwrap()", "todo!(", "unimplemented!(", "dbg!("] {
                assert!(!line.contains(word), "{name}: {line}");
            }
        }
    }
}

/// Two migrations with one number: the second would be left out wherever the first has been applied.
#[test]
fn migrations_have_numbers_of_their_own() {
    let mut numbers: Vec<String> = files("migrations", "sql")
        .iter()
        .map(|(name, _)| name.split("__").next().unwrap_or_default().to_owned())
        .collect();
    let all = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), all);
}
