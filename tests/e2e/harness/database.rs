//! What a test looks up in the database, and how it stands in the service's way there.

use tokio_postgres::{Client, NoTls};

/// A session of the test's own.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    client
}

/// Counts of one key: orders, `order.created` events of those orders, records.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Effects {
    pub orders: i64,
    pub events: i64,
    pub records: i64,
}

impl Effects {
    /// One order, its event, its record.
    pub const ONCE: Self = Self { orders: 1, events: 1, records: 1 };
    /// Nothing at all.
    pub const NONE: Self = Self { orders: 0, events: 0, records: 0 };
}

/// What is there under a client key, over all accounts.
pub async fn effects(client: &Client, key: &str) -> Effects {
    let row = client
        .query_one(
            "WITH mine AS (SELECT id FROM orders WHERE substr(idem_key, strpos(idem_key, ':') + 1) = $1)
             SELECT (SELECT count(*) FROM mine),
                    (SELECT count(*) FROM events WHERE type = 'order.created' AND (data->>'id')::uuid IN (SELECT id FROM mine)),
                    (SELECT count(*) FROM idempotency_records WHERE key = $1)",
            &[&key],
        )
        .await
        .expect("the counts");
    Effects { orders: row.get(0), events: row.get(1), records: row.get(2) }
}

/// Makes every INSERT into `orders` run a PL/pgSQL body first. `attempts` (a sequence) counts them, also those that are
/// rolled back; `NEW.idem_key` names the key.
pub async fn before_insert(client: &Client, body: &str) {
    client
        .batch_execute(&format!(
            "CREATE SEQUENCE IF NOT EXISTS attempts;
             CREATE OR REPLACE FUNCTION interfere() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM nextval('attempts'); {body} RETURN NEW; END $$;
             CREATE OR REPLACE TRIGGER interfere BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION interfere();"
        ))
        .await
        .expect("a trigger");
}

/// Makes COMMIT of a transaction that wrote an order run a PL/pgSQL body.
pub async fn at_commit(client: &Client, body: &str) {
    client
        .batch_execute(&format!(
            "CREATE OR REPLACE FUNCTION delay_commit() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN {body} RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER delay_commit AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION delay_commit();"
        ))
        .await
        .expect("a trigger");
}

/// Removes what [`before_insert`] and [`at_commit`] put there.
pub async fn remove_triggers(client: &Client) {
    client
        .batch_execute(
            "DROP TRIGGER IF EXISTS interfere ON orders; DROP TRIGGER IF EXISTS delay_commit ON orders;",
        )
        .await
        .expect("no triggers");
}

/// How often an INSERT into `orders` was tried.
pub async fn attempts(client: &Client) -> i64 {
    let row =
        client.query_one("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM attempts", &[]).await;
    row.expect("the sequence").get(0)
}

/// Sessions of the service that wait for a lock in this database.
pub async fn waiting_for_lock(client: &Client) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    client.query_one(sql, &[]).await.expect("activity").get(0)
}

/// Sessions that sit in a transaction without doing anything.
pub async fn idle_in_transaction(client: &Client) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    client.query_one(sql, &[]).await.expect("activity").get(0)
}

/// A frozen table: orders can be read and not written, until it is thawed.
pub struct Frozen(Client);

/// Takes the lock that stops every INSERT into `orders`.
pub async fn freeze(url: &str) -> Frozen {
    let client = connect(url).await;
    client.batch_execute("BEGIN; LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE").await.expect("frozen");
    Frozen(client)
}

impl Frozen {
    /// Lets the writers go on.
    pub async fn thaw(self) {
        self.0.batch_execute("ROLLBACK").await.expect("thawed");
    }
}
