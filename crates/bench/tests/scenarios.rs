//! The baselines fail where they must, and the service holds: three quick scenarios on private servers.
//!
//! Runs the program as a user would and reads what it prints. A baseline that holds where it should fail is as wrong as the
//! service failing: it would be no baseline.

use std::process::Command;

#[test]
fn baselines_fail_where_they_must_and_the_service_holds() {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["scenarios", "--only", "amount", "--only", "evicted", "--only", "other-user"])
        .output()
        .expect("bench runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = format!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for verdict in [
        "no-key: 1 intent, 2 orders: DUPLICATE, THE CHANGE IS NOT DETECTED",
        "naive-hybrid: 1 intent, 1 order: THE CHANGE IS NOT DETECTED",
        "redis-only: 1 intent, 2 orders, 2 charges: DUPLICATE, CHARGED TOO OFTEN",
        "naive-hybrid: 2 intents, 1 order: NO ORDER, ANOTHER USER'S ANSWER",
    ] {
        assert!(text.lines().any(|line| line == verdict), "{verdict:?} is missing in:\n{all}");
    }
    let holds = |line: &&str| line.starts_with("order-service: ") && line.ends_with(": holds");
    assert_eq!(text.lines().filter(holds).count(), 3, "{all}");
    assert!(text.contains("3 of 3 scenarios went as claimed."), "{all}");
    assert!(output.status.success(), "{all}");
}
