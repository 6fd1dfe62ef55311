//! Shared by the tests of this crate: the servers of this machine, and clients just large enough.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use devstack::{Environment, Postgres, PostgresOptions, Servers, TempDir};

pub(crate) const BOUND: Duration = Duration::from_secs(30);

pub(crate) fn quiet(_: &str) {}

pub(crate) fn servers() -> &'static Servers {
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let env = Environment::of_this_process().expect("environment");
        Servers::resolve(&env, &|line| eprintln!("{line}")).expect("servers")
    })
}

pub(crate) fn postgres(folder: &TempDir) -> Postgres {
    postgres_with(folder, PostgresOptions::default())
}

pub(crate) fn postgres_with(folder: &TempDir, mut options: PostgresOptions) -> Postgres {
    // Never dropped; its janitor removes it when the test process ends.
    static TEMPLATE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, template) = TEMPLATE.get_or_init(|| {
        let folder = TempDir::new("devstack-template-").expect("a folder");
        let made = Postgres::template(&servers().postgres, folder.path().join("it"), &quiet);
        (folder, made.expect("template"))
    });
    options.template.get_or_insert_with(|| template.clone());
    let folder = folder.path().join("postgres");
    Postgres::start(&servers().postgres, folder, options, &quiet).expect("PostgreSQL")
}

/// An open session.
pub(crate) struct Session(TcpStream);

impl Session {
    pub(crate) fn open(postgres: &Postgres) -> std::io::Result<Session> {
        let stream = TcpStream::connect(("127.0.0.1", postgres.port()))?;
        stream.set_read_timeout(Some(BOUND))?;
        let mut session = Session(stream);
        session.send(None, b"\0\x03\0\0user\0postgres\0database\0postgres\0\0")?;
        session.send(Some(b'p'), format!("{}\0", postgres.password()).as_bytes())?;
        session.rows()?;
        Ok(session)
    }

    /// The first column of all rows.
    pub(crate) fn query(&mut self, sql: &str) -> std::io::Result<Vec<String>> {
        self.begin(sql)?;
        self.rows()
    }

    /// Sends it and does not wait for the answer.
    pub(crate) fn begin(&mut self, sql: &str) -> std::io::Result<()> {
        self.send(Some(b'Q'), format!("{sql}\0").as_bytes())
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.0.set_read_timeout(Some(timeout)).expect("timeout");
    }

    fn send(&mut self, kind: Option<u8>, body: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
        self.0.write_all(&kind.into_iter().chain(length).chain(body.iter().copied()).collect::<Vec<_>>())
    }

    fn rows(&mut self) -> std::io::Result<Vec<String>> {
        let mut rows = Vec::new();
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let mut body = vec![0; length - 4];
            self.0.read_exact(&mut body)?;
            match head[0] {
                b'D' => {
                    let length = u32::from_be_bytes([body[2], body[3], body[4], body[5]]) as usize;
                    rows.push(String::from_utf8_lossy(&body[6..6 + length]).into_owned());
                }
                b'E' => return Err(std::io::Error::other(String::from_utf8_lossy(&body).into_owned())),
                b'Z' => return Ok(rows),
                _ => {}
            }
        }
    }
}

/// One query in a session of its own.
pub(crate) fn query(postgres: &Postgres, sql: &str) -> Vec<String> {
    Session::open(postgres).and_then(|mut session| session.query(sql)).expect("query")
}

/// One inline command; the first line of the answer.
pub(crate) fn redis(port: u16, command: &str) -> std::io::Result<String> {
    redis_within(port, command, BOUND)
}

pub(crate) fn redis_within(port: u16, command: &str, timeout: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if line.starts_with('$') && !line.starts_with("$-1") {
        line.clear();
        reader.read_line(&mut line)?;
    }
    Ok(line.trim_end().to_owned())
}

/// The effective user of a process, where /proc tells.
pub(crate) fn uid_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
