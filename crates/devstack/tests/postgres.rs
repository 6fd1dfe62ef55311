//! A real PostgreSQL: what a folder keeps, and what each way of ending it means.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use devstack::{Error, Postgres, PostgresOptions, TempDir, is_alive, wait_until};
use support::{BOUND, Session, postgres, postgres_with, query, quiet, servers, uid_of};

fn folder() -> TempDir {
    TempDir::new("devstack-postgres-").expect("a folder")
}

#[test]
fn a_second_start_finds_data_and_password() {
    let folder = folder();
    let mut first = postgres(&folder);
    query(&first, "CREATE TABLE t AS SELECT 'kept' AS x");
    let (password, pid) = (first.password().to_owned(), first.pid().expect("runs"));
    first.stop().expect("stop");
    assert!(!is_alive(pid));
    assert!(!first.is_running());
    drop(first);
    let second = postgres(&folder);
    assert_eq!(second.password(), password);
    assert_eq!(query(&second, "SELECT x FROM t"), ["kept"]);
    let mode = fs::metadata(second.folder().join("password")).expect("password").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn durable_utf8_and_large_enough() {
    let folder = folder();
    let settings = [("work_mem", "5MB"), ("application_name", "two words")];
    let postgres = postgres_with(&folder, PostgresOptions::default().settings(&settings));
    let setting = |name: &str| query(&postgres, &format!("SHOW {name}")).concat();
    for (name, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("server_encoding", "UTF8"),
        ("lc_collate", "C"),
        ("max_connections", "200"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("work_mem", "5MB"),
        ("application_name", "two words"),
    ] {
        // PostgreSQL 16 took the setting away: a locale belongs to each database.
        if name == "lc_collate" && query(&postgres, "SHOW server_version_num")[0].as_str() >= "160000" {
            continue;
        }
        assert_eq!(setting(name), value, "{name}");
    }
    assert!(postgres.url_for("a b").ends_with("/a%20b"));
}

#[test]
fn never_as_root() {
    let folder = folder();
    let postgres = postgres(&folder);
    if let Some(uid) = uid_of(postgres.pid().expect("runs")) {
        assert_ne!(uid, 0);
    }
}

#[test]
fn killed_and_back_on_the_same_port() {
    let folder = folder();
    let mut postgres = postgres(&folder);
    query(&postgres, "CREATE TABLE t AS SELECT 1 AS x");
    let mut session = Session::open(&postgres).expect("session");
    let backend: u32 = session.query("SELECT pg_backend_pid()").expect("pid")[0].parse().expect("number");
    // Busy, it would not notice that the postmaster is gone.
    session.begin("SELECT count(*) FROM generate_series(1, 1000000000000)").expect("sent");
    let active = "SELECT state FROM pg_stat_activity WHERE query LIKE 'SELECT count%generate%'";
    assert!(wait_until(BOUND, || query(&postgres, active).contains(&"active".to_owned())));
    let (port, pid) = (postgres.port(), postgres.pid().expect("runs"));
    postgres.kill().expect("kill");
    assert!(!is_alive(pid) && !is_alive(backend), "all of it is gone when kill returns");
    assert_eq!(postgres.pid(), None);
    postgres.restart().expect("restart");
    assert_eq!(postgres.port(), port);
    assert_eq!(query(&postgres, "SELECT x FROM t"), ["1"], "committed before the power cut");
    let after_kill = postgres.pid();
    postgres.restart().expect("restart of a running one");
    assert_ne!(postgres.pid(), after_kill);
    assert_eq!(query(&postgres, "SELECT x FROM t"), ["1"]);
}

#[test]
fn paused_it_answers_nothing_and_resumed_it_goes_on() {
    let folder = folder();
    let mut postgres = postgres(&folder);
    let mut session = Session::open(&postgres).expect("session");
    postgres.pause();
    session.set_timeout(Duration::from_millis(300));
    session.query("SELECT 1").expect_err("paused");
    postgres.resume();
    assert_eq!(query(&postgres, "SELECT 2"), ["2"]);
    // Ended while it is paused.
    let pid = postgres.pid().expect("runs");
    postgres.pause();
    postgres.stop().expect("stop");
    assert!(!is_alive(pid));
}

#[test]
fn a_folder_has_one_server_at_a_time() {
    let folder = folder();
    let first = postgres(&folder);
    let again = || {
        let place = folder.path().join("postgres");
        Postgres::start(&servers().postgres, place, PostgresOptions::default(), &quiet)
    };
    let error = again().expect_err("in use");
    assert!(matches!(error, Error::InUse(_)), "{error}");
    assert_eq!(query(&first, "SELECT 1"), ["1"], "the first is left alone");
    drop(first);
    again().expect("free again");
}

#[test]
fn a_process_id_that_is_somebody_elses_by_now_is_no_server() {
    let folder = folder();
    let mut first = postgres(&folder);
    let pid_file = first.folder().join("data/postmaster.pid");
    let text = fs::read_to_string(&pid_file).expect("postmaster.pid");
    let owner = fs::metadata(&pid_file).expect("metadata");
    first.kill().expect("kill");
    // As after a restart of the machine: the number now is that of another process of the same user,
    // here of a Redis.
    let redis = devstack::Redis::start(
        &servers().redis,
        folder.path().join("redis"),
        devstack::RedisOptions::default(),
        &quiet,
    )
    .expect("Redis");
    let rest = text.split_once('\n').expect("lines").1;
    fs::write(&pid_file, format!("{}\n{rest}", redis.pid().expect("runs"))).expect("write");
    std::os::unix::fs::chown(&pid_file, Some(std::os::unix::fs::MetadataExt::uid(&owner)), None)
        .expect("chown");
    first.restart().expect("it starts");
    assert_eq!(query(&first, "SELECT 1"), ["1"]);
}

#[test]
fn a_copy_of_a_template_is_a_server_of_its_own() {
    let folder = folder();
    let place = folder.path().join("template");
    let make = || Postgres::template(&servers().postgres, &place, &quiet).expect("template");
    let template = std::thread::scope(|scope| {
        let other = scope.spawn(make);
        (make(), other.join().expect("other")).0
    });
    let start = |name: &str| {
        let options = PostgresOptions { template: Some(template.clone()), ..PostgresOptions::default() };
        Postgres::start(&servers().postgres, folder.path().join(name), options, &quiet).expect("start")
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| start("b"));
        let (a, b) = (start("a"), other.join().expect("other"));
        query(&a, "CREATE TABLE only_a()");
        assert_eq!(query(&b, "SELECT count(*) FROM pg_tables WHERE tablename = 'only_a'"), ["0"]);
        assert_ne!(a.port(), b.port());
    });
}

#[test]
fn data_of_another_version_is_refused_and_kept() {
    let folder = folder();
    let mut first = postgres(&folder);
    first.stop().expect("stop");
    let version = first.folder().join("data/PG_VERSION");
    drop(first);
    fs::write(&version, "9\n").expect("write");
    let place = folder.path().join("postgres");
    let error = Postgres::start(&servers().postgres, place, PostgresOptions::default(), &quiet)
        .expect_err("another version");
    assert!(matches!(error, Error::OtherVersion { .. }), "{error}");
    assert!(version.exists());
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let folder = folder();
    let options = PostgresOptions::default().settings(&[("shared_buffers", "nonsense")]);
    let place = folder.path().join("postgres");
    let error = Postgres::start(&servers().postgres, place, options, &quiet).expect_err("bad setting");
    assert!(error.to_string().contains("shared_buffers"), "{error}");
    assert!(!error.to_string().contains('\n'), "one line: {error}");
}

#[test]
fn a_taken_fixed_port_is_an_error_and_one_that_comes_free_is_waited_for() {
    let folder = folder();
    let mut postgres = postgres(&folder);
    postgres.stop().expect("stop");
    let listener = std::net::TcpListener::bind(("127.0.0.1", postgres.port())).expect("port");
    let error = postgres.restart().expect_err("taken").to_string();
    assert!(error.contains("Address already in use"), "{error}");
    drop(listener);
    postgres.restart().expect("free again");
}

#[test]
fn one_that_dies_by_itself_leaves_no_watchdog() {
    let folder = folder();
    let mut postgres = postgres(&folder);
    let before = watchdogs(&folder);
    assert!(before > 0);
    let mut session = Session::open(&postgres).expect("session");
    // The postmaster ends by itself when its lock file is somebody else's; quicker: tell it to.
    let pid = postgres.pid().expect("runs");
    std::process::Command::new("sh").args(["-c", &format!("kill -INT {pid}")]).status().expect("kill");
    assert!(wait_until(BOUND, || !postgres.is_running()));
    session.query("SELECT 1").expect_err("gone");
    assert!(wait_until(BOUND, || watchdogs(&folder) == 0), "{} left", watchdogs(&folder));
}

/// Processes that name the folder's PostgreSQL in their command line.
fn watchdogs(folder: &TempDir) -> usize {
    let name = format!("{}/postgres/data", folder.path().display());
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let lines = entries.flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(&name)).count()
}
