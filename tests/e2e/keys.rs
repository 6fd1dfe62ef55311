//! Who is calling, and under which key: what is refused takes nothing, and two keys never meet.
//!
//! Knows spellings of the header and credentials; what a valid key is answered is in `answers`.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use testkit::{Connection, Request, Response, send, until};
use uuid::Uuid;

use crate::answers::{assert_first, assert_problem, assert_replay};
use crate::harness::database::Effects;
use crate::harness::{App, World, in_every_world, order};

/// An order with these lines for the key, as they are.
fn with_lines<L: AsRef<[u8]>>(app: &App, lines: &[L]) -> Request {
    let request = Request::post("/v1/orders").header("Authorization", format!("Bearer {}", app.api_key));
    let keyed = |request: Request, line: &L| request.header_line(line.as_ref());
    lines.iter().fold(request, keyed).json(&order(2))
}

/// An order whose key is written like this.
fn spelled(app: &App, value: &str) -> Request {
    with_lines(app, &[format!("Idempotency-Key: {value}")])
}

/// So many random characters: a run of one letter would be compressed.
fn random_key(length: usize) -> String {
    let mut key = String::new();
    while key.len() < length {
        key.push_str(&Uuid::new_v4().simple().to_string());
    }
    key.truncate(length);
    key
}

/// Neither store knows of any key.
async fn assert_nothing_taken(app: &App) {
    let sql = "SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM idempotency_records)";
    assert_eq!(app.db.query_one(sql, &[]).await.expect("counts").get::<_, i64>(0), 0);
    if app.redis.is_some() {
        assert_eq!(app.redis::<Vec<String>>(&["KEYS", "*"]).await, Vec::<String>::new());
    }
}

/// The value in a list of lines for the key, for messages.
fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned()
}

in_every_world!(a_missing_or_malformed_key_takes_nothing, |app| async move {
    for _ in 0..2 {
        let missing = app.send(&with_lines::<&str>(&app, &[])).await;
        assert_problem(&missing, 400, "idempotency-key-missing");
    }
    let malformed: [&[&[u8]]; 21] = [
        &[b"Idempotency-Key:"],
        &[b"Idempotency-Key: \t  "],
        &[b"Idempotency-Key: \"\""],
        &[b"Idempotency-Key: K", b"Idempotency-Key: K"],
        &[b"Idempotency-Key: K", b"Idempotency-Key: L"],
        &[b"idempotency-key: K", b"Idempotency-Key: K"],
        &[b"Idempotency-Key: K", b"Idempotency-Key:"],
        &[b"Idempotency-Key: K, K"],
        &[b"Idempotency-Key: K,K"],
        &[b"Idempotency-Key: \"K\", \"K\""],
        &[b"Idempotency-Key: \"K"],
        &[b"Idempotency-Key: K\""],
        &[b"Idempotency-Key: \"K\";p=1"],
        &[b"Idempotency-Key: \"a\"b\""],
        &[b"Idempotency-Key: \"a\\nb\""],
        &[b"Idempotency-Key: K;p=1"],
        &[b"Idempotency-Key: K L"],
        &[b"Idempotency-Key: K\tL"],
        &[b"Idempotency-Key: \"K\tL\""],
        &["Idempotency-Key: clé".as_bytes()],
        &[b"Idempotency-Key: cl\xe9"],
    ];
    for lines in malformed {
        for _ in 0..2 {
            let refused = app.send(&with_lines(&app, lines)).await;
            assert_eq!(refused.status, 400, "{}", shown(lines[0]));
            assert_problem(&refused, 400, "idempotency-key-invalid");
        }
    }
    assert_nothing_taken(&app).await;
    app.strike();
    assert_first(&app.order("K", 2).await, 201);
});

in_every_world!(a_key_has_1_to_255_characters, |app| async move {
    let long = random_key(300);
    let (one, two) = (format!("{}a", &long[..299]), format!("{}b", &long[..299]));
    for key in
        [random_key(256), one, two, random_key(3000), random_key(60_000), format!("\"{}\"", random_key(256))]
    {
        assert_problem(&app.send(&spelled(&app, &key)).await, 400, "idempotency-key-invalid");
    }
    // So long a head may be refused by the HTTP parser, before there is a request at all.
    if let Ok(refused) = send(app.replica().api, &spelled(&app, &random_key(200_000))).await {
        assert!((400..500).contains(&refused.status), "{}", refused.status);
    }
    assert_nothing_taken(&app).await;
    app.strike();
    let longest = random_key(254);
    // 255 escaped characters are 510 on the wire: the length is that of the key, not of its spelling.
    let escaped = format!("\"{}\"", "\\\\".repeat(255));
    let mut ids = BTreeSet::new();
    for key in [random_key(1), format!("{longest}a"), format!("{longest}b"), escaped] {
        let first = app.send(&spelled(&app, &key)).await;
        assert_first(&first, 201);
        assert_replay(&first, &app.send(&spelled(&app, &key)).await);
        ids.insert(first.json()["id"].to_string());
    }
    assert_eq!(ids.len(), 4);
});

in_every_world!(a_key_that_is_wrong_in_two_ways_gets_one_code_every_time, |app| async move {
    let key = random_key(300);
    for value in [String::new(), format!("{key};p=1"), format!("\"{key}"), format!("{key} {key}")] {
        let request = spelled(&app, &value);
        let mut connection = Connection::open(app.replica().api).await.expect("a connection");
        let mut details = BTreeSet::new();
        for _ in 0..100 {
            let refused = connection.exchange(&request).await.expect("an answer");
            details.insert(assert_problem(&refused, 400, "idempotency-key-invalid")["detail"].to_string());
        }
        assert_eq!(details.len(), 1, "{details:?}");
    }
    assert_nothing_taken(&app).await;
});

in_every_world!(every_spelling_of_a_key_is_the_same_key, |app| async move {
    let first = app.send(&spelled(&app, "K")).await;
    assert_first(&first, 201);
    for line in
        ["Idempotency-Key: \"K\"", "Idempotency-Key: \t  K  \t", "IDEMPOTENCY-KEY: K", "idempotency-key:K"]
    {
        app.strike();
        assert_replay(&first, &app.send(&with_lines(&app, &[line])).await);
    }
    let quoted = app.send(&spelled(&app, r#""a\"b, c; d\\e""#)).await;
    assert_first(&quoted, 201);
    assert_replay(&quoted, &app.send(&spelled(&app, r#""a\"b, c; d\\e""#)).await);
    assert_eq!(app.effects("K").await, Effects::ONCE);
    assert_eq!(app.effects(r#"a"b, c; d\e"#).await, Effects::ONCE);
});

in_every_world!(keys_that_only_look_alike_are_different_keys, |app| async move {
    let keys = [
        "K",
        "k",
        "K%20",
        "AbC",
        "aBc",
        "orders:1",
        "1:orders",
        ":",
        "a:b",
        "a/b",
        "a|b",
        "a%3Ab",
        "a%3ab",
        "{}",
        "}{",
        "%7B%7D",
        "a{b}c",
        "a%7Bb%7Dc",
        "..",
        "a\\b",
        "'",
        "K\"",
        "*",
        "a_b",
        "a%b",
    ];
    let written = |key: &str| format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
    let mut firsts: Vec<(String, Response)> = Vec::new();
    for key in keys {
        app.heal();
        app.strike();
        let first = app.send(&spelled(&app, &written(key))).await;
        assert_first(&first, 201);
        firsts.push((written(key), first));
    }
    let ids: BTreeSet<String> = firsts.iter().map(|(_, first)| first.json()["id"].to_string()).collect();
    assert_eq!(ids.len(), keys.len());
    for (value, first) in &firsts {
        assert_replay(first, &app.send(&spelled(&app, value)).await);
    }
});

in_every_world!(a_key_belongs_to_its_first_payload_path_and_command, |app| async move {
    let first = app.order("K", 2).await;
    assert_first(&first, 201);
    let cancel = format!("{}/cancel", first.header("location").expect("a Location"));
    let others = [
        ("/v1/orders", order(3)),
        ("/v1/orders?source=app", order(2)),
        (cancel.as_str(), json!({})),
        ("/v1/probes", json!({ "then": "empty_object" })),
    ];
    for (path, body) in others {
        app.strike();
        let refused = app.post(path, "K", &body).await;
        assert_problem(&refused, 422, "idempotency-key-reused");
        assert!(
            !refused.text().contains("TEA-001"),
            "the first payload is nobody's business: {}",
            refused.text()
        );
        assert_replay(&first, &app.order("K", 2).await);
    }
    let stored = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM idempotency_records)";
    assert_eq!(app.db.query_one(stored, &[]).await.expect("counts").get::<_, i64>(0), 2);
    assert_eq!(app.effects("K").await, Effects::ONCE);
});

in_every_world!(a_done_key_stays_done_while_nothing_can_be_written, |app| async move {
    let first = app.order("K", 2).await;
    assert_first(&first, 201);
    if app.redis.is_some() {
        let _: () = app.redis(&["FLUSHALL"]).await;
    }
    let broken = "ALTER TABLE orders ADD CONSTRAINT broken CHECK (false) NOT VALID";
    app.db.batch_execute(broken).await.expect("a constraint");
    app.strike();
    assert_replay(&first, &app.order("K", 2).await);
    app.db.batch_execute("ALTER TABLE orders DROP CONSTRAINT broken").await.expect("no constraint");
    assert_replay(&first, &app.order("K", 2).await);
    assert_eq!(app.effects("K").await, Effects::ONCE);
});

in_every_world!(an_order_without_its_record_is_named_and_never_made_again, |app| async move {
    let (id, account) = (Uuid::now_v7(), app.account().await);
    let planted = "INSERT INTO orders (id, account_id, idem_key, status, total_amount, currency, note)
                   VALUES ($1, $2, $3, 'pending_payment', 1290, 'EUR', 'planted')";
    app.db.execute(planted, &[&id, &account, &format!("{account}:K")]).await.expect("an order");
    let stock = "SELECT sum(stock)::int8 FROM products";
    let before: i64 = app.db.query_one(stock, &[]).await.expect("stock").get(0);
    let unknown = json!({ "items": [{ "sku": "NOPE", "quantity": 1 }] });
    for body in [order(1), order(2), unknown] {
        app.heal();
        app.strike();
        let refused = app.post("/v1/orders", "K", &body).await;
        assert_problem(&refused, 409, "already-completed");
        assert_eq!(refused.header("location"), Some(format!("/v1/orders/{id}").as_str()));
        if app.redis.is_some() {
            let held: Option<Vec<u8>> = app.redis(&["GET", &app.redis_name("K").await]).await;
            assert!(held.is_none_or(|value| value[1] != b'D'), "Redis holds an answer that nobody gave");
        }
    }
    assert_eq!(app.get(&format!("/v1/orders/{id}")).await.json()["id"], id.to_string());
    assert_eq!(app.db.query_one(stock, &[]).await.expect("stock").get::<_, i64>(0), before);
    assert_eq!(app.effects("K").await, Effects { orders: 1, events: 0, records: 0 });
    assert_first(&app.order("fresh", 1).await, 201);
});

in_every_world!(the_same_body_under_two_keys_is_two_orders, |app| async move {
    let (one, two) = tokio::join!(app.order("K1", 2), app.order("K2", 2));
    assert_first(&one, 201);
    assert_first(&two, 201);
    assert_ne!(one.header("location"), two.header("location"));
    assert_first(&app.order("K3", 2).await, 201);
    for key in ["K1", "K2", "K3"] {
        assert_eq!(app.effects(key).await, Effects::ONCE);
    }
});

in_every_world!(accounts_do_not_meet_in_a_key, |app| async move {
    let other = |quantity| {
        Request::post("/v1/orders")
            .header("Authorization", format!("Bearer {}", app.other_api_key))
            .header("Idempotency-Key", "K")
            .json(&order(quantity))
    };
    let ours = app.order("K", 2).await;
    assert_first(&ours, 201);
    app.strike();
    let theirs = app.send(&other(3)).await;
    assert_first(&theirs, 201);
    assert_ne!(theirs.json()["id"], ours.json()["id"]);
    assert_replay(&theirs, &app.send(&other(3)).await);
    assert_replay(&ours, &app.order("K", 2).await);
    assert_problem(&app.send(&other(2)).await, 422, "idempotency-key-reused");
    assert_eq!(app.effects("K").await, Effects { orders: 2, events: 2, records: 2 });
});

in_every_world!(credentials_are_checked_before_anything_else, |app| async move {
    let key = &app.api_key;
    let (known, secret) = key.rsplit_once('_').expect("osk_{id}_{secret}");
    let mirrored: String = secret.chars().rev().collect();
    // The right one first, so that it is known to the process when the wrong ones come.
    let right = app.get("/v1/orders").await;
    assert_eq!((right.status, &right.json()["data"]), (200, &json!([])));
    let wrong: [&[String]; 11] = [
        &[],
        &[String::new()],
        &["Bearer".to_owned()],
        &["Bearer ".to_owned()],
        std::slice::from_ref(key),
        &[format!("Basic {key}")],
        &["Bearer osk_".to_owned()],
        &[format!("Bearer {known}_{mirrored}")],
        &[format!("Bearer {key}0")],
        &[format!("Bearer osk_000000000000_{secret}")],
        &[format!("Bearer {key}"), format!("Bearer {key}")],
    ];
    for values in wrong {
        let signed = |request: Request| {
            values.iter().fold(request, |request, value| request.header("Authorization", value))
        };
        let orderly = Request::post("/v1/orders").header("Idempotency-Key", "K").json(&order(2));
        let hopeless = Request::post("/v1/orders")
            .header("Idempotency-Key", "")
            .header("Content-Type", "text/plain")
            .body("x".repeat(2 * 1024 * 1024));
        for request in [orderly, hopeless, Request::get("/v1/orders")] {
            let refused = app.send(&signed(request)).await;
            assert_problem(&refused, 401, "unauthenticated");
            let challenge = refused.header("www-authenticate").unwrap_or_default();
            assert!(challenge.starts_with("Bearer"), "{challenge:?} for {values:?}");
        }
    }
    assert_nothing_taken(&app).await;
    app.strike();
    assert_first(&app.order("K", 2).await, 201);
});

in_every_world!(a_read_ignores_the_key_and_is_never_stored, |app| async move {
    let location = app.order("made", 2).await.header("location").expect("a Location").to_owned();
    let read = |method| {
        Request::new(method, &location)
            .header("Authorization", format!("Bearer {}", app.api_key))
            .header("Idempotency-Key", "K")
            .header("Idempotency-Key", "")
    };
    for status in ["pending_payment", "cancelled"] {
        let got = app.send(&read("GET")).await;
        assert_eq!((got.status, got.json()["status"].as_str()), (200, Some(status)));
        let head = app.send(&read("HEAD")).await;
        assert_eq!((head.status, head.text().as_str()), (200, ""));
        assert_eq!(head.header("content-length"), got.header("content-length"));
        for answer in [&got, &head] {
            assert_eq!((answer.header("idempotent-replayed"), answer.header("x-cache-lookup")), (None, None));
        }
        app.send(&read("OPTIONS")).await;
        app.post(&format!("{location}/cancel"), "cancel", &json!({})).await;
    }
    assert_eq!(app.effects("K").await, Effects::NONE);
    if app.redis.is_some() {
        let held: i64 = app.redis(&["EXISTS", &app.redis_name("K").await]).await;
        assert_eq!(held, 0);
    }
    assert_first(&app.order("K", 2).await, 201);
});

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_revoked_credential_is_refused_within_five_seconds() {
    let app = App::builder(World::Up).start().await;
    let operate = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_service-under-test"));
        let output =
            command.args(arguments).env("DATABASE_URL", &app.database_url).output().expect("a command");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
    };
    let key = operate(&["accounts", "create", "demo"]);
    let id = key.split('_').nth(1).expect("osk_{id}_{secret}").to_owned();
    let request = Request::get("/v1/orders").header("Authorization", format!("Bearer {key}"));
    assert_eq!(app.send(&request).await.status, 200);
    operate(&["accounts", "revoke", &id]);
    until("the revoked key is refused", Duration::from_secs(5), || async {
        app.send(&request).await.status == 401
    })
    .await;
    assert_problem(&app.send(&request).await, 401, "unauthenticated");
    assert_eq!(app.get("/v1/orders").await.status, 200, "the account's other key is still good");
}
