//! Accounts and their API keys, as operators manage them.
//!
//! A key is `osk_{id}_{secret}`: the id is looked up, the secret is 256 random bits of which only the SHA-256 is stored.
//! Invariant: a secret is printed once and stored nowhere.

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};
use tokio_postgres::Client;

/// A key, taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApiKey<'a> {
    pub(crate) id: &'a str,
    secret: &'a str,
}

/// Longest key that is looked at, in bytes.
const KEY_LEN_MAX: usize = 128;

impl<'a> ApiKey<'a> {
    /// `None` for what cannot be a key.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (id, secret) = text.strip_prefix("osk_")?.split_once('_')?;
        let plausible = text.len() <= KEY_LEN_MAX && !id.is_empty() && !secret.is_empty();
        plausible.then_some(Self { id, secret })
    }

    /// What is stored of the secret.
    pub(crate) fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }
}

/// A new key, as text.
pub(crate) fn generate() -> anyhow::Result<String> {
    let mut random = [0_u8; 38];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok(format!("osk_{}_{}", hex(&random[..6]), hex(&random[6..])))
}

/// Makes the account unless it is there, and a new key for it.
pub(crate) async fn create(client: &Client, name: &str) -> anyhow::Result<String> {
    if name.is_empty() || name.chars().count() > 100 || name.chars().any(char::is_control) {
        bail!("the name of an account has 1 to 100 characters and no control characters");
    }
    let key = generate()?;
    store(client, name, &key).await?;
    Ok(key)
}

/// Stores a key (its hash) for an account that is made if need be.
pub(crate) async fn store(client: &Client, name: &str, key: &str) -> anyhow::Result<()> {
    let parts = ApiKey::parse(key).context("this is not an API key")?;
    client.execute("INSERT INTO accounts (name) VALUES ($1) ON CONFLICT (name) DO NOTHING", &[&name]).await?;
    client
        .execute(
            "INSERT INTO api_keys (id, account_id, secret_hash) SELECT $1, id, $2 FROM accounts WHERE name = $3 \
             ON CONFLICT (id) DO NOTHING",
            &[&parts.id, &parts.hash().as_slice(), &name],
        )
        .await?;
    Ok(())
}

/// One line a key.
pub(crate) async fn list(client: &Client) -> anyhow::Result<Vec<String>> {
    let rows = client
        .query(
            "SELECT accounts.id, name, api_keys.id, CASE WHEN revoked_at IS NULL THEN 'valid' ELSE 'revoked' END \
             FROM accounts LEFT JOIN api_keys ON account_id = accounts.id ORDER BY accounts.id, api_keys.created_at",
            &[],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| {
            let (account, name): (i64, &str) = (row.get(0), row.get(1));
            match row.get::<_, Option<&str>>(2) {
                Some(key) => format!("{account}\t{name}\t{key}\t{}", row.get::<_, &str>(3)),
                None => format!("{account}\t{name}\t-\tno key"),
            }
        })
        .collect())
}

/// Ends a key.
pub(crate) async fn revoke(client: &Client, key_id: &str) -> anyhow::Result<()> {
    // Also as the whole key has it: `osk_{id}_…`.
    let key_id = key_id.strip_prefix("osk_").and_then(|rest| rest.split('_').next()).unwrap_or(key_id);
    let revoked = client
        .execute("UPDATE api_keys SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL", &[&key_id])
        .await?;
    if revoked == 0 {
        bail!("there is no valid key with the id {key_id}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_is_parsed_back() {
        let (one, two) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one, two);
        let parts = ApiKey::parse(&one).unwrap();
        assert_eq!((parts.id.len(), parts.secret.len()), (12, 64));
        for bad in ["", "osk_", "osk_a", "osk__b", "osk_a_", "sk_a_b", &format!("osk_a_{}", "b".repeat(200))]
        {
            assert!(ApiKey::parse(bad).is_none(), "{bad:?}");
        }
    }
}
