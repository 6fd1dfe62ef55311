//! Names to addresses that webhooks may go to: what is looked up here is what is connected to.
//!
//! A name that was public when it was registered may name another address now (rebinding), so addresses are judged at the one
//! place that hands them to the connection. Invariant: unless private addresses are allowed, no special one gets through.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::target;

/// The system's resolver, with a filter behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resolver {
    pub(super) private_too: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the name leads to no address that webhooks may go to")]
struct NowhereAllowed;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let private_too = self.private_too;
        Box::pin(async move {
            // The port of the URL takes the place of this one.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> =
                found.filter(|address| private_too || !target::is_special_ip(address.ip())).collect();
            if allowed.is_empty() {
                return Err(NowhereAllowed.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}
