//! The demo shop: a small catalogue and one account. Can be repeated without changing what is there.

use tokio_postgres::Client;

use crate::accounts;

/// The demo account's name.
pub(crate) const ACCOUNT: &str = "demo";
/// What every demo product has in stock.
const STOCK: i64 = 1_000_000;
/// Sku, name, price in cents. Lists are sorted by sku, and `TEA-001` comes first.
const PRODUCTS: [(&str, &str, i64); 4] = [
    ("TEA-001", "Assam, 250 g", 1290),
    ("TEA-002", "Darjeeling, 100 g", 1850),
    ("TEA-003", "Sencha, 100 g", 1490),
    ("TEAPOT-001", "Teapot, 1 l", 3900),
];

/// Puts the demo products in, where they are missing.
pub(crate) async fn catalogue(client: &Client) -> anyhow::Result<()> {
    for (sku, name, unit_price) in PRODUCTS {
        client
            .execute(
                "INSERT INTO products (sku, name, unit_price, currency, initial_stock, stock) \
                 VALUES ($1, $2, $3, 'EUR', $4, $4) ON CONFLICT (sku) DO NOTHING",
                &[&sku, &name, &unit_price, &STOCK],
            )
            .await?;
    }
    Ok(())
}

/// Makes the demo account with a key, unless it has one; the key is only known now.
pub(crate) async fn account(client: &Client) -> anyhow::Result<Option<String>> {
    let has_key = client
        .query_opt(
            "SELECT 1 FROM accounts JOIN api_keys ON account_id = accounts.id WHERE name = $1 LIMIT 1",
            &[&ACCOUNT],
        )
        .await?
        .is_some();
    if has_key { Ok(None) } else { accounts::create(client, ACCOUNT).await.map(Some) }
}
