//! Request bodies: what is refused takes no key, what is the same request in another spelling is a replay, and what is
//! another request is never taken for the first.
//!
//! Knows JSON, media types, sizes and slow clients; nothing of the key's spelling (`keys`) or of other answers.

use serde_json::{Value, json};
use testkit::{Connection, Request};

use crate::answers::{assert_first, assert_problem, assert_replay};
use crate::harness::database::Effects;
use crate::harness::{App, in_every_world, order};

/// A POST of these bytes as JSON.
fn raw(app: &App, key: &str, body: impl Into<Vec<u8>>) -> Request {
    typed(app, key, Some("application/json"), body)
}

/// A POST of these bytes with this media type.
fn typed(app: &App, key: &str, media_type: Option<&str>, body: impl Into<Vec<u8>>) -> Request {
    let request = Request::post("/v1/orders")
        .header("Authorization", format!("Bearer {}", app.api_key))
        .header("Idempotency-Key", key);
    let typed = media_type.into_iter().fold(request, |request, kind| request.header("Content-Type", kind));
    typed.body(body)
}

/// A valid order in exactly so many bytes.
fn order_of(size: usize) -> Vec<u8> {
    let mut body = order(2).to_string().into_bytes();
    body.resize(size, b' ');
    body
}

/// An order with one item whose quantity is written like this.
fn quantity(literal: &str) -> String {
    format!(r#"{{"items":[{{"sku":"TEA-001","quantity":{literal}}}]}}"#)
}

/// Each of these is 400 with the field named, and its key is still free for a valid order.
async fn assert_refused(app: &App, bodies: &[(String, &str)]) {
    for (index, (body, field)) in bodies.iter().enumerate() {
        let (key, shown) = (format!("refused-{index}"), &body[..body.len().min(120)]);
        app.heal();
        let refused = app.send(&raw(app, &key, body.as_bytes())).await;
        assert_eq!(refused.status, 400, "{shown}: {}", refused.text());
        let problem = assert_problem(&refused, 400, "invalid-request");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains(field), "{shown} is at fault in {field:?}, and the caller reads {detail:?}");
        assert_eq!(app.effects(&key).await, Effects::NONE);
        app.strike();
        assert_first(&app.order(&key, 1).await, 201);
        assert_eq!(app.effects(&key).await, Effects::ONCE);
    }
}

in_every_world!(a_number_that_is_no_quantity_takes_no_key, |app| async move {
    let literals = [
        "0",
        "-1",
        "-0",
        "10001",
        "2.0",
        "2e0",
        "20e-1",
        "2.5",
        "\"2\"",
        "null",
        "true",
        "[2]",
        "{}",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551617",
        "9007199254740992.5",
    ];
    assert_refused(&app, &literals.map(|literal| (quantity(literal), "items[0].quantity"))).await;
    for accepted in ["1", "10000"] {
        assert_first(&app.send(&raw(&app, accepted, quantity(accepted))).await, 201);
    }
});

in_every_world!(a_number_beyond_any_float_takes_no_key_and_names_its_field, |app| async move {
    assert_refused(&app, &["1e400", "-1e400"].map(|literal| (quantity(literal), "items[0].quantity"))).await;
});

in_every_world!(a_body_outside_the_limits_takes_no_key, |app| async move {
    let items = |count: usize| json!({ "items": vec![json!({ "sku": "TEA-001", "quantity": 1 }); count] });
    let noted = |note: Value| json!({ "items": [{ "sku": "TEA-001", "quantity": 1 }], "note": note });
    let of_sku = |sku: Value| json!({ "items": [{ "sku": sku, "quantity": 1 }] });
    let limits = [
        (items(0), "items"),
        (items(101), "items"),
        (json!({}), "items"),
        (json!({ "items": null }), "items"),
        (json!({ "items": { "sku": "TEA-001", "quantity": 1 } }), "items"),
        (json!({ "items": [["TEA-001", 1]] }), "items[0]"),
        (json!({ "items": ["TEA-001"] }), "items[0]"),
        (json!({ "items": [{ "quantity": 1 }] }), "sku"),
        (json!({ "items": [{ "sku": "TEA-001" }] }), "quantity"),
        (json!({ "items": [{ "sku": "TEA-001", "quantity": 1, "foo": 1 }] }), "foo"),
        (json!({ "items": [{ "sku": "TEA-001", "quantity": 1 }], "foo": 1 }), "foo"),
        (json!({ "items": [{ "sku": "TEA-001", "quantity": 1 }], "id": "x" }), "id"),
        (of_sku(json!("")), "items[0].sku"),
        (of_sku(json!("x".repeat(101))), "items[0].sku"),
        (of_sku(json!(1)), "items[0].sku"),
        (of_sku(json!("a\0b")), "items[0].sku"),
        (noted(json!("é".repeat(1001))), "note"),
        (noted(json!(5)), "note"),
        (noted(json!(["x"])), "note"),
        (noted(json!("a\0b")), "note"),
    ];
    assert_refused(&app, &limits.map(|(body, field)| (body.to_string(), field))).await;
    for (key, body) in [("items", items(100)), ("note", noted(json!("é".repeat(1000))))] {
        assert_first(&app.post("/v1/orders", key, &body).await, 201);
    }
});

in_every_world!(a_body_with_two_meanings_or_none_takes_no_key, |app| async move {
    let whole = quantity("1");
    let bodies = [
        (r#"{"items":[{"sku":"TEA-001","quantity":1,"quantity":5}]}"#.to_owned(), "items[0].quantity"),
        (
            r#"{"items":[{"sku":"TEA-001","quantity":1}],"items":[{"sku":"TEA-001","quantity":1}]}"#
                .to_owned(),
            "items",
        ),
        (r#"{"items":[{"sku":"TEA-001","quantity":1}],"note":"a","not\u0065":"a"}"#.to_owned(), "note"),
        (String::new(), ""),
        ("{".to_owned(), ""),
        ("nonsense".to_owned(), ""),
        ("null".to_owned(), "object"),
        ("[]".to_owned(), "object"),
        (format!("[{whole}]"), "object"),
        (format!("{whole}{whole}"), ""),
        (format!("\u{feff}{whole}"), ""),
        (whole.replace("TEA", r"\ud800"), "items[0].sku"),
        (whole.replace('"', "'"), ""),
        (quantity("01"), ""),
        (quantity("+1"), ""),
        (quantity("1,"), ""),
        (quantity("NaN"), ""),
        (format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), ""),
    ];
    assert_refused(&app, &bodies).await;
    let invalid = app.send(&raw(&app, "K", b"{\"items\":\"\xff\"}".as_slice())).await;
    assert_problem(&invalid, 400, "invalid-request");
    assert_first(&app.order("K", 1).await, 201);
});

in_every_world!(another_spelling_is_a_replay_and_another_value_is_not, |app| async move {
    let written =
        r#"{"items":[{"sku":"TEA-001","quantity":2},{"sku":"TEA-002","quantity":1}],"note":"caf\u00e9/"}"#;
    let first = app.send(&raw(&app, "K", written)).await;
    assert_first(&first, 201);
    assert_eq!(first.json()["note"], "café/");
    let same = [
        r#"{"note":"café\/","items":[{"quantity":2,"sku":"TEA-001"},{"quantity":1,"sku":"TEA-002"}]}"#,
        "\r\n{ \"items\" : [ {\"sku\":\"TEA\\u002D001\", \"quantity\":2},\t{\"sku\":\"TEA-002\",\"quantity\":1} ] ,\"note\":\"caf\\u00E9/\" }\n",
        r#"{"\u0069tems":[{"sku":"TEA-001","quantity":2},{"sku":"TEA-002","quantity":1}],"note":"café/"}"#,
    ];
    for body in same {
        app.heal();
        app.strike();
        assert_replay(&first, &app.send(&raw(&app, "K", body)).await);
    }
    let (tea, green) = (r#"{"sku":"TEA-001","quantity":2}"#, r#"{"sku":"TEA-002","quantity":1}"#);
    let note = r#","note":"café/""#;
    let others = [
        format!(r#"{{"items":[{green},{tea}]{note}}}"#),
        format!(r#"{{"items":[{tea}]{note}}}"#),
        format!(r#"{{"items":[{tea},{green},{green}]{note}}}"#),
        format!(r#"{{"items":[{tea},{green}]}}"#),
        format!(r#"{{"items":[{tea},{green}],"note":null}}"#),
        format!(r#"{{"items":[{tea},{green}],"note":""}}"#),
        format!(r#"{{"items":[{tea},{green}],"note":"café/ "}}"#),
        format!(r#"{{"items":[{tea},{green}],"note":"cafe/"}}"#),
        format!("{{\"items\":[{tea},{green}],\"note\":\"cafe\u{301}/\"}}"),
        written.replace("\"quantity\":2", "\"quantity\":3"),
        written.replace("\"quantity\":1", "\"quantity\":2"),
        written.replace("TEA-001", "TEA-003"),
        written.replace("TEA-002", "TEA-001"),
        written.replace("TEA-001", "tea-001"),
    ];
    for body in others {
        app.heal();
        app.strike();
        let refused = app.send(&raw(&app, "K", body.as_str())).await;
        assert_eq!(refused.status, 422, "{body}");
        assert_problem(&refused, 422, "idempotency-key-reused");
    }
    for invalid in [
        written.replace("\"quantity\":2", "\"quantity\":2.0"),
        written.replace("\"quantity\":2", "\"quantity\":2,\"quantity\":2"),
        written.replace("{\"items\"", "{\"foo\":1,\"items\""),
    ] {
        assert_problem(&app.send(&raw(&app, "K", invalid)).await, 400, "invalid-request");
    }
    assert_eq!(app.effects("K").await, Effects::ONCE);
    let null = json!({ "items": [{ "sku": "TEA-001", "quantity": 2 }], "note": null });
    assert_first(&app.order("no-note", 2).await, 201);
    assert_problem(&app.post("/v1/orders", "no-note", &null).await, 422, "idempotency-key-reused");
});

in_every_world!(text_is_kept_as_it_was_written, |app| async move {
    for (key, note) in
        [("composed", "\u{e9}"), ("decomposed", "e\u{301}"), ("controls", "\u{1}\u{7f}\u{85}\n\t")]
    {
        let body = json!({ "items": [{ "sku": "TEA-001", "quantity": 1 }], "note": note });
        let first = app.post("/v1/orders", key, &body).await;
        assert_first(&first, 201);
        assert_eq!(first.json()["note"], note);
        let read = app.get(first.header("location").expect("a Location")).await;
        assert_eq!(read.json()["note"], note);
        assert_replay(&first, &app.post("/v1/orders", key, &body).await);
    }
});

in_every_world!(
    a_body_too_large_is_answered_and_takes_no_key,
    |builder| builder.env("BODY_MAX", "64KiB"),
    |app| async move {
        const LIMIT: usize = 64 * 1024;
        let framed = |key: &str, size: usize| {
            let whole = raw(&app, key, order_of(size));
            [whole.clone(), whole.chunked(16 * 1024)]
        };
        assert_first(&app.send(&framed("whole", LIMIT)[0]).await, 201);
        app.strike();
        assert_first(&app.send(&framed("chunked", LIMIT)[1]).await, 201);
        for request in framed("K", LIMIT + 1).iter().chain(&framed("K", 20 * 1024 * 1024)) {
            // A client that reads nothing until it has sent everything.
            let mut connection = Connection::open(app.replica().api).await.expect("a connection");
            connection.send(request).await.expect("it may send all");
            assert_problem(&connection.read().await.expect("the answer"), 413, "body-too-large");
        }
        assert_eq!(app.effects("K").await, Effects::NONE);
        app.strike();
        assert_first(&app.order("K", 2).await, 201);
    }
);

in_every_world!(
    a_client_that_asks_first_is_told_before_it_sends,
    |builder| builder.env("BODY_MAX", "64KiB"),
    |app| async move {
        let expecting = |request: Request| request.header("Expect", "100-continue");
        let valid = expecting(app.request("/v1/orders", "K", &order(2)));
        let mut connection = Connection::open(app.replica().api).await.expect("a connection");
        connection.send_part(&valid, 0).await.expect("the head");
        assert_eq!(connection.read_any().await.expect("an interim answer").status, 100);
        connection.send_rest(&valid, 0).await.expect("the body");
        assert_first(&connection.read().await.expect("an answer"), 201);
        let keyless = Request::post("/v1/orders")
            .header("Authorization", format!("Bearer {}", app.api_key))
            .json(&order(2));
        let too_large = raw(&app, "L", order_of(64 * 1024 + 1));
        let refused = [(keyless, 400, "idempotency-key-missing"), (too_large, 413, "body-too-large")];
        for (request, status, code) in refused {
            let mut connection = Connection::open(app.replica().api).await.expect("a connection");
            connection.send_part(&expecting(request), 0).await.expect("the head");
            assert_problem(&connection.read().await.expect("an answer"), status, code);
        }
        app.heal();
        assert_eq!(app.effects("K").await, Effects::ONCE);
        assert_eq!(app.effects("L").await, Effects::NONE);
    }
);

in_every_world!(a_stalled_body_holds_up_nobody, |app| async move {
    let request = app.request("/v1/orders", "K", &order(2));
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut connection = Connection::open(app.replica().api).await.expect("a connection");
        connection.send_part(&request, 10).await.expect("the head and half of the body");
        stalled.push(connection);
    }
    let first = app.order("K", 2).await;
    assert_first(&first, 201);
    let mut late = stalled.pop().expect("one of them");
    late.send_rest(&request, 10).await.expect("the other half");
    assert_replay(&first, &late.read().await.expect("an answer"));
    stalled.into_iter().for_each(Connection::reset);
    assert_eq!(app.effects("K").await, Effects::ONCE);
});

in_every_world!(a_body_is_json_or_nothing, |app| async move {
    let written = order(2).to_string();
    let first = app.send(&raw(&app, "K", written.as_str())).await;
    assert_first(&first, 201);
    for same in ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"] {
        app.strike();
        assert_replay(&first, &app.send(&typed(&app, "K", Some(same), written.as_str())).await);
    }
    let kinds = [
        None,
        Some(""),
        Some("text/plain"),
        Some("application/jsonp"),
        Some("application/x-www-form-urlencoded"),
    ];
    for kind in kinds {
        for key in ["K", "fresh"] {
            let refused = app.send(&typed(&app, key, kind, written.as_str())).await;
            assert_eq!(refused.status, 415, "{kind:?}");
            assert_problem(&refused, 415, "unsupported-media-type");
        }
    }
    for encoding in ["gzip", "identity, gzip", "br"] {
        let encoded = raw(&app, "fresh", written.as_str()).header("Content-Encoding", encoding);
        assert_problem(&app.send(&encoded).await, 415, "unsupported-media-type");
    }
    let twice = raw(&app, "fresh", written.as_str()).header("Content-Type", "text/plain");
    assert_problem(&app.send(&twice).await, 415, "unsupported-media-type");
    assert_eq!(app.effects("fresh").await, Effects::NONE);
    app.strike();
    let identity = raw(&app, "fresh", written.as_str()).header("Content-Encoding", "identity");
    assert_first(&app.send(&identity).await, 201);
});

in_every_world!(no_body_is_an_empty_object_and_names_nothing_of_the_path, |app| async move {
    let made = app.order("made", 2).await;
    let id = made.json()["id"].clone();
    let cancel = format!("{}/cancel", made.header("location").expect("a Location"));
    for named in [json!({ "id": id }), json!({ "id": "x" })] {
        let refused = app.post(&cancel, "K", &named).await;
        assert!(assert_problem(&refused, 400, "invalid-request")["detail"].to_string().contains("id"));
    }
    let bare = Request::post(&cancel)
        .header("Authorization", format!("Bearer {}", app.api_key))
        .header("Idempotency-Key", "K");
    app.strike();
    let first = app.send(&bare).await;
    assert_first(&first, 200);
    for same in [bare.clone().header("Content-Length", "0"), app.request(&cancel, "K", &json!({}))] {
        assert_replay(&first, &app.send(&same).await);
    }
});

in_every_world!(a_replay_does_not_depend_on_what_the_client_accepts, |app| async move {
    for (key, kinds) in [("K1", [None, Some("gzip")]), ("K2", [Some("gzip, br"), None])] {
        app.heal();
        app.strike();
        let asking = |kind: Option<&str>| {
            let request = app.request("/v1/orders", key, &order(2));
            kind.into_iter().fold(request, |request, kind| request.header("Accept-Encoding", kind))
        };
        let first = app.send(&asking(kinds[0])).await;
        assert_first(&first, 201);
        let again = app.send(&asking(kinds[1])).await;
        assert_replay(&first, &again);
        for answer in [first, again] {
            let length = answer.body.len().to_string();
            assert_eq!(answer.header("content-length"), Some(length.as_str()));
            assert!(answer.header("date").is_some());
            for absent in ["set-cookie", "content-encoding", "transfer-encoding"] {
                assert_eq!(answer.header(absent), None, "{absent}");
            }
        }
    }
});
