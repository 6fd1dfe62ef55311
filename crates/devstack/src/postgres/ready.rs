//! Just enough of PostgreSQL's protocol to log in once: the proof that it is our server (nobody else
//! knows the password) and that it answers.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::start::Answer;

const TIMEOUT: Duration = Duration::from_secs(5);
const PROTOCOL_3_0: u32 = 196_608;
const MESSAGE_MAX: u32 = 64 * 1024;
const WRONG_PASSWORD: &str = "28P01";

pub(super) fn log_in(port: u16, password: &str) -> Answer {
    match converse(port, password) {
        Ok(Login::Ready) => Some(Ok(())),
        Ok(Login::Refused(state)) if state == WRONG_PASSWORD => {
            Some(Err("it refuses the password kept beside its data".into()))
        }
        // Starting up, or not listening yet.
        Ok(Login::Refused(_)) | Err(_) => None,
    }
}

enum Login {
    Ready,
    /// With this SQLSTATE.
    Refused(String),
}

fn converse(port: u16, password: &str) -> io::Result<Login> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut startup = PROTOCOL_3_0.to_be_bytes().to_vec();
    startup.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
    stream.write_all(&framed(None, &startup))?;
    loop {
        let (kind, body) = message(&mut stream)?;
        match kind {
            b'R' if body.starts_with(&3_u32.to_be_bytes()) => {
                let secret = [password.as_bytes(), b"\0"].concat();
                stream.write_all(&framed(Some(b'p'), &secret))?;
            }
            b'Z' => {
                stream.write_all(&framed(Some(b'X'), b""))?;
                return Ok(Login::Ready);
            }
            b'E' => return Ok(Login::Refused(sqlstate(&body))),
            _ => {}
        }
    }
}

fn framed(kind: Option<u8>, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    kind.into_iter().chain(length.to_be_bytes()).chain(body.iter().copied()).collect()
}

fn message(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    if !(4..MESSAGE_MAX).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length as usize - 4];
    stream.read_exact(&mut body)?;
    Ok((head[0], body))
}

/// The field `C` of an ErrorResponse.
fn sqlstate(body: &[u8]) -> String {
    let field = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&b'C'));
    field.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
}
