//! Results that nobody measured, for tests of the pages.

use crate::systems::System;
use crate::throughput::example as made;
use crate::throughput::{Counted, Counts, Machine, Results, StoredKeys};

/// One floor missed, one met, one goal reached.
pub fn results() -> Results {
    let phases = vec![
        made::phase(
            "fresh_real_16",
            "New real orders, 16 connections",
            &[
                ("no-key", &[1000.0, 1100.0, 1200.0]),
                ("postgres-only", &[500.0, 500.0, 500.0]),
                ("order-service", &[700.0, 800.0, 900.0]),
            ],
        ),
        made::phase(
            "replays_real_16",
            "Replays of real orders, 16 connections",
            &[("order-service", &[18_000.0, 19_000.0]), ("bare-evalsha", &[20_000.0, 21_000.0])],
        ),
    ];
    let counts = Counts { postgresql_round_trips: 4.0, statements: 9.0, redis_round_trips: 2.0 };
    let replays = Counts { postgresql_round_trips: 0.0, statements: 0.0, redis_round_trips: 1.0 };
    let stored = made::phase(
        "fresh_stored_keys",
        "New real orders, stored keys",
        &[("1000 keys", &[1000.0]), ("100000 keys", &[920.0])],
    );
    let stored_keys = StoredKeys::measured(stored, vec![1000, 100_000]).expect("two sizes");
    let mut measures = made::measures(&phases);
    measures.push(stored_keys.measure.clone());
    Results {
        machine: Machine {
            cores: 2,
            processor: "A <processor>".to_owned(),
            memory_gib: 23.4,
            kernel: "6.1".to_owned(),
            postgresql: "15.18".to_owned(),
            redis: "7.0.15".to_owned(),
            release_build: true,
            load_before: 0.1,
            generator_pinned: false,
        },
        quick: true,
        method: vec!["In turns & rounds.".to_owned()],
        measures,
        replicas: made::phase("r", "Replicas", &[("1 replica", &[900.0]), ("2 replicas", &[950.0])]),
        bodies: vec![made::phase("b", "Bodies of 4.0 KiB", &[("order-service", &[700.0])])],
        phases,
        counts: vec![Counted { system: System::OrderService, fresh: Some(counts), replays: Some(replays) }],
        stored_keys,
        storm: Some(made::storm()),
        invalid: vec!["no-key <64>: 503".to_owned()],
    }
}
