//! Free ports of 127.0.0.1.
//!
//! A port that is free now may be taken before the server binds it: callers retry with another one.

use std::net::{Ipv4Addr, TcpListener};

use crate::{Error, Result, random};

/// Below the range from which systems take the ports of outgoing connections (Linux from 32768): a
/// server that was killed can come back on its port although clients connected elsewhere meanwhile.
const FIRST: u16 = 15_000;
const COUNT: u16 = 17_000;
const TRIES: usize = 200;

pub(crate) fn free() -> Result<u16> {
    for _ in 0..TRIES {
        let port = FIRST + random::below(COUNT)?;
        if is_free(port) {
            return Ok(port);
        }
    }
    let last = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    last.map(|address| address.port())
        .map_err(|source| Error::Io { doing: "looking for a free port of 127.0.0.1".into(), source })
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
