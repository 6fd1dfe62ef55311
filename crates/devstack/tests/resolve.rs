//! Which servers are used, in environments made for each test.

mod support;

use std::path::Path;

use devstack::{
    Environment, Error, Postgres, PostgresOptions, PostgresProgram, Redis, RedisOptions, RedisProgram,
    Servers, TempDir, write_script,
};
use support::{query, quiet, redis};

fn folder() -> TempDir {
    TempDir::new("devstack-resolve-").expect("a folder")
}

/// A machine with nothing on it but what is in `bin`, and on which nothing may be fetched.
fn bare(bin: &Path) -> Environment {
    let mut env = Environment::of_this_process().expect("environment");
    env.path = bin.into();
    env.folders = Vec::new();
    env.servers = None;
    env.no_install = true;
    env.cache = Some(bin.join("cache"));
    env
}

fn script(path: &Path, text: &str) {
    write_script(path, text).expect("a script");
}

#[test]
fn forbidden_to_install_it_names_the_exact_command() {
    for (manager, expected) in [
        ("apt-get", "apt-get update && ~apt-get install -y postgresql redis-server"),
        ("dnf", "dnf install -y postgresql-server /usr/bin/redis-server"),
        ("apk", "apk update && ~apk add postgresql redis"),
        ("brew", "brew install postgresql@17 redis"),
    ] {
        let folder = folder();
        let told = folder.path().join("was-called");
        script(&folder.path().join(manager), &format!("echo called >{}", told.display()));
        let error = Servers::resolve(&bare(folder.path()), &quiet).expect_err("nothing here");
        let Error::Missing { command, .. } = &error else { panic!("{error}") };
        assert_eq!(command.replace("sudo ", ""), expected.replace('~', ""));
        assert!(error.to_string().contains(command));
        assert!(!error.to_string().contains('\n'), "one line: {error}");
        assert!(!told.exists(), "{manager} was called");
    }
}

#[test]
fn an_unknown_choice_is_refused() {
    let folder = folder();
    let mut env = bare(folder.path());
    env.servers = Some("docker".into());
    let error = Servers::resolve(&env, &quiet).expect_err("unknown");
    assert!(matches!(&error, Error::UnknownChoice(choice) if choice == "docker"), "{error}");
}

#[test]
fn what_does_not_run_or_is_too_old_is_skipped_with_a_reason() {
    let (broken, old, good) = (folder(), folder(), folder());
    script(&broken.path().join("redis-server"), "exit 1");
    script(&old.path().join("redis-server"), "echo Redis server v=5.0.7 sha=00");
    script(&old.path().join("postgres"), "echo 'postgres (PostgreSQL) 12.3'");
    script(&old.path().join("initdb"), "echo 'initdb (PostgreSQL) 12.3'");
    // Without its initdb it is of no use.
    script(&broken.path().join("postgres"), "echo 'postgres (PostgreSQL) 16.1'");
    let mut env = bare(broken.path());
    env.folders = vec![old.path().to_owned()];
    let error = RedisProgram::resolve(&env, &quiet).expect_err("none").to_string();
    assert!(error.contains("does not run") && error.contains("5.0.7, older than 6.2"), "{error}");
    let error = PostgresProgram::resolve(&env, &quiet).expect_err("none").to_string();
    assert!(error.contains("initdb does not run") && error.contains("12.3, older than 14"), "{error}");

    script(&good.path().join("redis-server"), "echo Redis server v=6.2.0 sha=00");
    // A link from a folder on PATH to where the programs really are, as Homebrew has them.
    script(&good.path().join("postgres"), "echo 'postgres (PostgreSQL) 16.1'");
    script(&good.path().join("initdb"), "echo 'initdb (PostgreSQL) 16.1'");
    let links = folder();
    std::os::unix::fs::symlink(good.path().join("postgres"), links.path().join("postgres")).expect("link");
    env.folders.extend([good.path().to_owned(), links.path().to_owned()]);
    assert_eq!(RedisProgram::resolve(&env, &quiet).expect("found").version(), "Redis 6.2.0");
    env.path = links.path().into();
    let found = PostgresProgram::resolve(&env, &quiet).expect("found");
    assert_eq!((found.version(), found.bin()), ("PostgreSQL 16.1", good.path()));
}

/// Fetches about 15 MB once; with ORDER_SERVICE_NO_INSTALL=1 the cached ones must be there.
#[test]
fn the_embedded_servers_start() {
    let mut env = Environment::of_this_process().expect("environment");
    if env.platform.is_none() {
        eprintln!("no embedded servers are built for this system: nothing to test");
        return;
    }
    env.servers = Some("embedded".into());
    let servers = Servers::resolve(&env, &|line| eprintln!("{line}")).expect("embedded servers");
    assert!(servers.redis.version().starts_with("Valkey"), "{}", servers.redis.version());
    let folder = folder();
    let postgres = folder.path().join("postgres");
    let mut postgres =
        Postgres::start(&servers.postgres, postgres, PostgresOptions::default(), &quiet).expect("PostgreSQL");
    assert!(query(&postgres, "SHOW server_version")[0].starts_with("18."));
    let valkey = folder.path().join("valkey");
    let mut valkey = Redis::start(&servers.redis, valkey, RedisOptions::default(), &quiet).expect("Valkey");
    assert_eq!(redis(valkey.port(), "PING").expect("PING"), "+PONG");
    valkey.stop().expect("stop");
    postgres.stop().expect("stop");
}
