//! Just enough of the Redis protocol to know that the server on this port is ours and answers.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);
const INFO_MAX: usize = 64 * 1024;

/// While it still loads its data it answers `-LOADING`: not ready. Another server on the port, which
/// won the race for it, has another process id: ours is about to end by itself.
pub(super) fn ping(port: u16, pid: u32) -> bool {
    converse(port).is_ok_and(|answering| answering == Some(pid))
}

/// The process id of the server that answered, if it is ready.
fn converse(port: u16) -> io::Result<Option<u32>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(b"PING\r\nINFO server\r\n")?;
    let mut reader = BufReader::new(stream);
    if line(&mut reader)? != "+PONG" {
        return Ok(None);
    }
    let length = line(&mut reader)?.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
    let Some(length) = length.filter(|length| *length <= INFO_MAX) else { return Ok(None) };
    let mut info = vec![0; length];
    reader.read_exact(&mut info)?;
    let info = String::from_utf8_lossy(&info);
    Ok(info.lines().find_map(|line| line.strip_prefix("process_id:")?.trim().parse().ok()))
}

fn line(reader: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
