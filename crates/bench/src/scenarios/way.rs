//! A way to a store that can be broken at a named point: a proxy, and the store's URL through it.

use std::net::SocketAddr;

use anyhow::Context as _;
use testkit::{PgProxy, RedisProxy};

/// A proxy before the PostgreSQL of this URL, and the URL through it.
pub async fn to_postgres(url: &str) -> anyhow::Result<(PgProxy, String)> {
    let proxy = PgProxy::start(resolve(url).await?).await?;
    let through = through(url, proxy.addr())?;
    Ok((proxy, through))
}

/// A proxy before the Redis of this URL, and the URL through it.
pub async fn to_redis(url: &str) -> anyhow::Result<(RedisProxy, String)> {
    anyhow::ensure!(url.starts_with("redis://"), "only redis:// can be led through a proxy");
    let proxy = RedisProxy::start(resolve(url).await?).await?;
    let through = through(url, proxy.addr())?;
    Ok((proxy, through))
}

/// Start and end of host and port.
fn authority(url: &str) -> anyhow::Result<(usize, usize)> {
    let start = url.find("://").context("not a URL")? + 3;
    let end = url[start..].find(['/', '?']).map_or(url.len(), |length| start + length);
    let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    Ok((start, end))
}

async fn resolve(url: &str) -> anyhow::Result<SocketAddr> {
    let (start, end) = authority(url)?;
    let address = tokio::net::lookup_host(&url[start..end]).await.context("host:port is needed")?.next();
    address.with_context(|| format!("{} has no address", &url[start..end]))
}

fn through(url: &str, proxy: SocketAddr) -> anyhow::Result<String> {
    let (start, end) = authority(url)?;
    Ok(format!("{}{proxy}{}", &url[..start], &url[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_and_port_are_replaced() {
        let proxy = SocketAddr::from(([127, 0, 0, 1], 9));
        for (url, expected) in [
            ("postgres://u:p@h:1/db?a=b", "postgres://u:p@127.0.0.1:9/db?a=b"),
            ("redis://localhost:6379", "redis://127.0.0.1:9"),
            ("redis://:p%40@h:1/0", "redis://:p%40@127.0.0.1:9/0"),
        ] {
            assert_eq!(through(url, proxy).unwrap(), expected);
        }
    }
}
