//! Random names and passwords. Unix only, as the whole crate: the kernel's generator is a file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::Result;
use crate::error::Doing as _;

/// 16 random bytes as 32 hexadecimal digits.
pub(crate) fn hex() -> Result<String> {
    Ok(bytes()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A number below `limit`; the tiny bias of the remainder does not matter for choosing ports.
pub(crate) fn below(limit: u16) -> Result<u16> {
    let bytes = bytes()?;
    Ok(u16::from_le_bytes([bytes[0], bytes[1]]) % limit)
}

fn bytes() -> Result<[u8; 16]> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).doing("reading", source)?;
    Ok(bytes)
}
