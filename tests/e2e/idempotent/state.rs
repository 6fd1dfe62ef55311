//! What is there since a moment: every row that the service writes, and the money that moved at the gateway.
//!
//! Without what may differ between two good runs (how many executors it took, when). Invariant: an effect that is there twice, or
//! half, is seen here, whichever request made it.

use serde_json::{Value, json};

use crate::harness::App;
use crate::harness::sandbox::Sandbox;

const STATE_SQL: &str = "
WITH since AS (SELECT $1::text::timestamptz AS at)
SELECT jsonb_build_object(
    'records', (SELECT jsonb_agg(jsonb_build_object('path', request_path, 'status', status, 'code', response_code,
                                                    'command', command, 'body', response_body IS NOT NULL) ORDER BY created_at)
                  FROM idempotency_records, since WHERE created_at >= at),
    'steps', (SELECT jsonb_agg(jsonb_build_object('position', position, 'name', name, 'kind', kind, 'state', state)
                               ORDER BY begun_at)
                FROM workflow_steps, since WHERE begun_at >= at),
    'orders', (SELECT jsonb_agg(jsonb_build_object('status', status, 'total', total_amount, 'note', note) ORDER BY id)
                 FROM orders, since WHERE created_at >= at),
    'payments', (SELECT jsonb_agg(jsonb_build_object('status', status, 'amount', amount, 'decline', decline_code) ORDER BY id)
                   FROM payments, since WHERE created_at >= at),
    'refunds', (SELECT jsonb_agg(jsonb_build_object('status', status, 'amount', amount) ORDER BY id)
                  FROM refunds, since WHERE created_at >= at),
    'events', (SELECT jsonb_agg(type ORDER BY id) FROM events, since WHERE created_at >= at),
    'endpoints', (SELECT jsonb_agg(jsonb_build_object('url', url, 'secret_before_is_the_first', previous_secret = $2))
                    FROM webhook_endpoints, since WHERE created_at >= at),
    'gateway_events', (SELECT jsonb_agg(jsonb_build_object('type', type, 'data', data))
                         FROM gateway_events, since WHERE received_at >= at),
    'stock_without_order', (SELECT sum(initial_stock - stock)::int8 FROM products)
        - (SELECT COALESCE(sum(quantity), 0) FROM order_items JOIN orders ON orders.id = order_id WHERE status <> 'cancelled')
)::text";

/// A moment: of the database, and of the gateway's ledger.
pub struct Since {
    moment: String,
    charges: usize,
    refunds: usize,
}

impl Since {
    pub async fn now(app: &App, sandbox: &Sandbox) -> Self {
        let row = app.db.query_one("SELECT clock_timestamp()::text", &[]).await.expect("the time");
        let ledger = sandbox.ledger().await;
        let count = |what: &str| ledger[what].as_array().map_or(0, Vec::len);
        Self { moment: row.get(0), charges: count("charges"), refunds: count("refunds") }
    }
}

/// `secret`: the one that an endpoint was registered with.
pub async fn state(app: &App, sandbox: &Sandbox, since: &Since, secret: Option<&str>) -> Value {
    let row = app.db.query_one(STATE_SQL, &[&since.moment, &secret]).await.expect("the state");
    let database: Value = serde_json::from_str(row.get(0)).expect("JSON");
    let ledger = sandbox.ledger().await;
    // The newest come first.
    let amounts = |what: &str, before: usize| {
        let all = ledger[what].as_array().expect("a list");
        all.iter().take(all.len() - before).map(|line| line["amount"].clone()).collect::<Vec<_>>()
    };
    let (charges, refunds) = (amounts("charges", since.charges), amounts("refunds", since.refunds));
    json!({ "database": database, "gateway": { "charges": charges, "refunds": refunds } })
}
