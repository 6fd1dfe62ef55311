//! A real Redis: what a folder keeps, and what each way of ending it means.

mod support;

use std::time::{Duration, Instant};

use devstack::{Error, Redis, RedisOptions, TempDir, is_alive};
use support::{quiet, redis, redis_within, servers, uid_of};

fn folder() -> TempDir {
    TempDir::new("devstack-redis-").expect("a folder")
}

fn start(folder: &TempDir, options: RedisOptions) -> devstack::Result<Redis> {
    // A folder name that the configuration file must quote.
    Redis::start(&servers().redis, folder.path().join("a \"b\" c"), options, &quiet)
}

#[test]
fn a_second_start_finds_its_data() {
    let folder = folder();
    let mut first = start(&folder, RedisOptions::default()).expect("Redis");
    assert_eq!(redis(first.port(), "PING").expect("PING"), "+PONG");
    assert_eq!(redis(first.port(), "SET k kept").expect("SET"), "+OK");
    let pid = first.pid().expect("runs");
    if let Some(uid) = uid_of(pid) {
        assert_ne!(uid, 0);
    }
    first.stop().expect("stop");
    assert!(!is_alive(pid));
    drop(first);
    let second = start(&folder, RedisOptions::default()).expect("Redis");
    assert_eq!(redis(second.port(), "GET k").expect("GET"), "kept");
}

#[test]
fn killed_and_back_on_the_same_port() {
    let folder = folder();
    let settings = [("appendonly", "no"), ("maxmemory", "64mb")];
    let mut server = start(&folder, RedisOptions::default().settings(&settings)).expect("Redis");
    assert_eq!(redis(server.port(), "SET k gone").expect("SET"), "+OK");
    let (port, pid) = (server.port(), server.pid().expect("runs"));
    server.kill().expect("kill");
    assert!(!is_alive(pid));
    redis(port, "PING").expect_err("gone");
    server.restart().expect("restart");
    assert_eq!(server.port(), port);
    assert_eq!(redis(port, "GET k").expect("GET"), "$-1", "no file was kept: appendonly no");
}

#[test]
fn paused_it_answers_nothing_and_is_ended_all_the_same() {
    let folder = folder();
    let mut server = start(&folder, RedisOptions::default()).expect("Redis");
    server.pause();
    redis_within(server.port(), "PING", Duration::from_millis(300)).expect_err("paused");
    server.resume();
    assert_eq!(redis(server.port(), "PING").expect("PING"), "+PONG");
    let pid = server.pid().expect("runs");
    server.pause();
    server.stop().expect("stop");
    assert!(!is_alive(pid));
}

#[test]
fn a_folder_has_one_server_at_a_time() {
    let folder = folder();
    let first = start(&folder, RedisOptions::default()).expect("Redis");
    let begin = Instant::now();
    let error = start(&folder, RedisOptions::default()).expect_err("in use");
    assert!(matches!(error, Error::InUse(_)), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(10), "only a server without its starter is waited for");
    assert_eq!(redis(first.port(), "PING").expect("PING"), "+PONG");
}

#[test]
fn another_server_on_the_port_is_not_taken_for_ours() {
    let (folder, other_folder) = (folder(), folder());
    let other = start(&other_folder, RedisOptions::default()).expect("Redis");
    let options = RedisOptions { port: Some(other.port()), ..RedisOptions::default() };
    let error = start(&folder, options).expect_err("taken").to_string();
    assert!(error.contains("Address already in use"), "{error}");
}

/// By somebody else, so that we do not know: it is woken to be told.
#[test]
fn a_stopped_one_ends_in_order() {
    let folder = folder();
    let mut server = start(&folder, RedisOptions::default()).expect("Redis");
    let stop = format!("kill -s STOP {}", server.pid().expect("runs"));
    assert!(std::process::Command::new("sh").args(["-c", &stop]).status().expect("sh").success());
    server.stop().expect("stop");
    let log = std::fs::read_to_string(server.log()).expect("log");
    assert!(log.contains("ready to exit"), "{log}");
}

/// Below a folder that the servers' user cannot enter, as /root is. Only root has such a user.
#[test]
fn an_unreachable_folder_is_replaced_by_one_that_is_the_same_every_time() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).expect("chmod");
    let told = std::cell::RefCell::new(Vec::new());
    let start = || {
        let report = |line: &str| told.borrow_mut().push(line.to_owned());
        let place = folder.path().join("redis");
        Redis::start(&servers().redis, place, RedisOptions::default(), &report).expect("Redis")
    };
    let mut first = start();
    if first.folder().starts_with(folder.path()) {
        return; // Not root: the folder is our own.
    }
    assert_eq!(redis(first.port(), "SET k kept").expect("SET"), "+OK");
    let place = first.folder().to_owned();
    assert!(place.starts_with("/var/tmp"), "{}", place.display());
    assert!(told.borrow()[0].contains(&*place.to_string_lossy()), "{told:?}");
    first.stop().expect("stop");
    drop(first);
    let second = start();
    assert_eq!(redis(second.port(), "GET k").expect("GET"), "kept");
    drop(second);
    std::fs::remove_dir_all(&place).expect("clean up");
    // Everybody may create names in /var/tmp.
    std::fs::create_dir(&place).expect("mkdir");
    std::os::unix::fs::chown(&place, Some(65_534), None).expect("chown");
    let place_wanted = folder.path().join("redis");
    let error = Redis::start(&servers().redis, place_wanted, RedisOptions::default(), &quiet);
    let error = error.expect_err("somebody else's");
    assert!(matches!(error, Error::ForeignFolder { owner: 65_534, .. }), "{error}");
    std::fs::remove_dir(&place).expect("clean up");
}

/// First without, then with sudo, then without again: only root can play that here.
#[test]
fn data_of_a_user_is_served_by_that_user() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let folder = folder();
    let mut server = start(&folder, RedisOptions::default()).expect("Redis");
    assert_eq!(redis(server.port(), "SET k kept").expect("SET"), "+OK");
    let Some(0) = uid_of(std::process::id()) else { return };
    let place = server.folder().to_owned();
    server.stop().expect("stop");
    drop(server);
    let owner = 65_534;
    let give = |path: &std::path::Path| chown(path, Some(owner), Some(owner)).expect("chown");
    let mut below = vec![place.clone()];
    while let Some(path) = below.pop() {
        give(&path);
        if path.is_dir() {
            below.extend(std::fs::read_dir(&path).expect("read").map(|entry| entry.expect("entry").path()));
        }
    }
    let server = start(&folder, RedisOptions::default()).expect("Redis");
    assert_eq!(redis(server.port(), "GET k").expect("GET"), "kept");
    assert_eq!(uid_of(server.pid().expect("runs")), Some(owner));
    for name in ["lock", "redis.log", "redis.conf", "data"] {
        assert_eq!(std::fs::metadata(place.join(name)).expect(name).uid(), owner, "{name}");
    }
}
