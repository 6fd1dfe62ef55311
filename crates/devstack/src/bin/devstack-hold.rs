//! Starts both servers in a temporary folder (or in the one given), prints one line about each, and
//! holds them until its standard input ends. For the tests of what happens when it is killed; also
//! handy by hand.

use std::io::Read as _;
use std::path::PathBuf;

use devstack::{Environment, Error, Postgres, PostgresOptions, Redis, RedisOptions, Servers, TempDir};

fn main() -> Result<(), Error> {
    let report = |line: &str| eprintln!("{line}");
    let servers = Servers::resolve(&Environment::of_this_process()?, &report)?;
    let temporary = TempDir::new("devstack-hold-")?;
    let folder = std::env::args_os().nth(1).map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let postgres = PostgresOptions::default();
    let postgres = Postgres::start(&servers.postgres, folder.join("postgres"), postgres, &report)?;
    let redis = Redis::start(&servers.redis, folder.join("redis"), RedisOptions::default(), &report)?;
    println!("postgres {} {}", postgres.pid().unwrap_or(0), postgres.url());
    println!("redis {} {}", redis.pid().unwrap_or(0), redis.url());
    println!("folder {}", temporary.path().display());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
