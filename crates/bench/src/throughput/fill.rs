//! Keys that somebody used before: records as the service writes them, made by the server itself.
//!
//! Knows the table of records, which nobody but the framework's ledger knows otherwise: a fixture has to write rows that no
//! request could write in time. Invariant: the rows are those of one day of business (nothing of them is due to be purged
//! while a measurement runs), under random keys of the account that orders, so that new keys fall between old ones.

use anyhow::Context as _;

use crate::stack::Database;

/// Without indexes, which are built afterwards: half filled pages as random inserts leave them, without the hours that those
/// would take.
const WITHOUT_INDEXES: &str = "
ALTER TABLE workflow_steps DROP CONSTRAINT workflow_steps_account_id_key_fkey;
ALTER TABLE idempotency_records DROP CONSTRAINT idempotency_records_pkey;
DROP INDEX idempotency_records_key_expires_at";
const WITH_INDEXES: &str = "
ALTER TABLE idempotency_records
    ADD CONSTRAINT idempotency_records_pkey PRIMARY KEY (account_id, key) WITH (fillfactor = 70);
CREATE INDEX idempotency_records_key_expires_at ON idempotency_records (key_expires_at);
ALTER TABLE workflow_steps ADD CONSTRAINT workflow_steps_account_id_key_fkey
    FOREIGN KEY (account_id, key) REFERENCES idempotency_records (account_id, key) ON DELETE CASCADE";
/// Hint bits, visibility and statistics as in a table that has been there for a while.
const SETTLE: &str = "VACUUM (ANALYZE) idempotency_records";
const COUNT: &str = "SELECT count(*) FROM idempotency_records";

/// Stores finished records of orders made within the last 20 hours; returns how many there are.
pub async fn records(database: &Database, account: i64, count: u64) -> anyhow::Result<u64> {
    let rows = rows(account, count, "now() - random() * interval '20 hours'", "24 hours", "30 days");
    let work = async {
        for sql in [WITHOUT_INDEXES, &rows, WITH_INDEXES, SETTLE] {
            database.client.batch_execute(sql).await?;
        }
        database.client.query_one(COUNT, &[]).await
    };
    let stored: i64 = work.await.with_context(|| format!("storing {count} keys"))?.get(0);
    Ok(u64::try_from(stored)?)
}

/// Hint bits and the visibility map, as in rows that are old enough to go: else whoever reads them first writes every page of
/// the table, and not the reaper would be measured but that.
const AGED: &str = "VACUUM idempotency_records";
/// What the fill wrote is not written to disk later, while something is measured. It takes a privilege that the role on a
/// given server may lack.
const WRITTEN: &str = "CHECKPOINT";

/// Stores records that are past their key retention: work for the reaper.
pub async fn expired_records(database: &Database, account: i64, count: u64) -> anyhow::Result<()> {
    let rows = rows(account, count, "now() - interval '3 days'", "1 day", "2 days");
    for sql in [&rows, AGED] {
        database.client.batch_execute(sql).await.with_context(|| format!("storing {count} expired keys"))?;
    }
    if let Err(refused) = database.client.batch_execute(WRITTEN).await {
        eprintln!("no checkpoint before the measurement: {refused}");
    }
    Ok(())
}

/// How many records were ever deleted, as the server counts them (a second late at most). To count those that are left would
/// read the whole table each time, and be felt.
pub async fn forgotten(database: &Database) -> anyhow::Result<u64> {
    let sql = "SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'idempotency_records'";
    let count: i64 = database.client.query_one(sql, &[]).await?.get(0);
    Ok(u64::try_from(count)?)
}

/// How many records this account has.
pub async fn stored(database: &Database, account: i64) -> anyhow::Result<u64> {
    let sql = format!("{COUNT} WHERE account_id = $1");
    let count: i64 = database.client.query_one(&sql, &[&account]).await?.get(0);
    Ok(u64::try_from(count)?)
}

/// Gives the space of reaped rows back to the table.
pub async fn vacuum(database: &Database) -> anyhow::Result<()> {
    Ok(database.client.batch_execute(SETTLE).await?)
}

/// A row is about as large as that of a real order: 500 bytes.
fn rows(account: i64, count: u64, created: &str, result_kept: &str, key_kept: &str) -> String {
    format!(
        "INSERT INTO idempotency_records (account_id, key, request_path, request_hash, fingerprint_version, request_id,
             status, response_code, response_headers, response_body, created_at, updated_at, result_expires_at, key_expires_at)
         SELECT {account}, gen_random_uuid()::text, '/v1/orders', sha256(number::text::bytea), 1, gen_random_uuid(),
                'COMPLETED', 201, ARRAY['content-type', 'application/json', 'location', '/v1/orders/' || gen_random_uuid()],
                convert_to(rpad('{{\"id\":\"' || gen_random_uuid(), 300, 'x'), 'UTF8'), created, created,
                created + interval '{result_kept}', created + interval '{key_kept}'
           FROM (SELECT number, {created} AS created FROM generate_series(1, {count}) AS number) AS numbered"
    )
}
