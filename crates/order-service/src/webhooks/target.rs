//! Which addresses webhooks may go to. Pure: a name is looked up when something is delivered, and what it leads to is judged
//! then, by `resolver`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Longest URL, in bytes.
pub(crate) const URL_MAX: usize = 2000;

/// Reads the URL of an endpoint; the error says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Url, &'static str> {
    if text.len() > URL_MAX {
        return Err("must have at most 2000 characters");
    }
    let url = Url::parse(text).map_err(|_| "must be an absolute URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not carry credentials");
    }
    match url.host() {
        None => Err("must have a host"),
        Some(_) => Ok(url),
    }
}

/// Whether the host, as it is written, is a special address.
pub(super) fn is_special(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => is_special_ip(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => is_special_ip(IpAddr::V6(address)),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost"
                || name.ends_with(".localhost")
                || name.ends_with(".local")
                || name.ends_with(".internal")
        }
        None => true,
    }
}

/// Whether an address is one that webhooks may not go to.
pub(super) fn is_special_ip(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_special_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped().or_else(|| embedded_v4(address)) {
            Some(inner) => is_special_v4(inner),
            None => is_special_v6(address),
        },
    }
}

fn is_special_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        // Carrier-grade NAT; protocol assignments; benchmarking.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0)
        || (a == 198 && (18..20).contains(&b))
}

fn is_special_v6(address: Ipv6Addr) -> bool {
    let first = address.segments()[0];
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        // Unique local, link-local, site-local, documentation.
        || (first & 0xfe00) == 0xfc00
        || (first & 0xff80) == 0xfe80
        || (first == 0x2001 && address.segments()[1] == 0x0db8)
}

/// 6to4 and NAT64 carry an IPv4 address.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let from = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0x2002, high, low, ..] => Some(from(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(from(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_known_in_every_spelling() {
        for special in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://[::1]/",
            "http://10.0.0.1",
            "http://192.168.1.1",
            "http://172.16.0.1",
            "http://169.254.169.254/latest",
            "http://[fe80::1]/",
            "http://[fc00::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://localhost",
            "http://LOCALHOST.",
            "http://a.localhost",
            "http://0.0.0.0",
            "http://100.64.0.1",
            "http://metadata.internal",
            "http://224.0.0.1",
        ] {
            assert!(is_special(&parse(special).unwrap()), "{special}");
        }
        for public in [
            "https://example.com/hook",
            "http://93.184.216.34",
            "https://[2606:4700::1111]/",
            "http://172.32.0.1",
        ] {
            assert!(!is_special(&parse(public).unwrap()), "{public}");
        }
        for bad in [
            "",
            "example.com",
            "ftp://example.com",
            "http://",
            "javascript:alert(1)",
            "http://u:p@example.com",
            "file:///etc/passwd",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
