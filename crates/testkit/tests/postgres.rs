//! The PostgreSQL proxy in front of a real PostgreSQL, with the driver that the service uses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;

use testkit::{Action, PgProxy, SqlMatch, until, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls};

const BOUND: Duration = Duration::from_secs(10);

/// One server for this binary; it ends with the process. Tests share it: each uses a table of its own.
static SERVER: LazyLock<(devstack::Postgres, devstack::TempDir)> = LazyLock::new(|| {
    let silent = |_: &str| {};
    let environment = devstack::Environment::of_this_process().expect("an environment");
    let program = devstack::PostgresProgram::resolve(&environment, &silent).expect("a postgres");
    let folder = devstack::TempDir::new("testkit-postgres-").expect("a folder");
    let options = devstack::PostgresOptions::default().settings(&[("fsync", "off"), ("ssl", "off")]);
    (devstack::Postgres::start(&program, folder.path(), options, &silent).expect("a server"), folder)
});

async fn connect(addr: SocketAddr) -> Client {
    connect_with_task(addr).await.0
}

/// The task owns the socket: aborted, it hangs up as a process that dies does.
async fn connect_with_task(addr: SocketAddr) -> (Client, AbortHandle) {
    let mut config = Config::new();
    config.host("127.0.0.1").port(addr.port()).user("postgres").password(SERVER.0.password());
    let (client, connection) = config.connect(NoTls).await.expect("a connection");
    (client, tokio::spawn(connection).abort_handle())
}

fn server() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, SERVER.0.port()).into()
}

/// A proxy, a client through it and one past it, and a table `t_<name>`.
async fn set_up(name: &str) -> (PgProxy, Client, Client) {
    let proxy = PgProxy::start(server()).await.expect("a proxy");
    let (client, direct) = (connect(proxy.addr()).await, connect(server()).await);
    direct.batch_execute(&format!("CREATE TABLE t_{name} (id int)")).await.expect("a table");
    (proxy, client, direct)
}

async fn count(direct: &Client, table: &str) -> i64 {
    direct.query_one(&format!("SELECT count(*) FROM t_{table}"), &[]).await.expect("a count").get(0)
}

async fn backend(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.expect("a pid").get(0)
}

async fn is_so(direct: &Client, question: &str, pid: i32) -> bool {
    direct.query_one(question, &[&pid]).await.expect("an answer").get(0)
}

const SLEEPS: &str = "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $1 AND query LIKE '%pg_sleep%' AND state = 'active'";

#[tokio::test]
async fn counts_flights_and_statements() {
    let (proxy, client, _direct) = set_up("counted").await;
    let flights = proxy.flights();
    assert_eq!(flights.len(), 1);
    assert!(flights[0].is_startup() && flights[0].answered && flights[0].statements.is_empty());

    proxy.clear_log();
    let insert = client.prepare("INSERT INTO t_counted VALUES ($1)").await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    let (inserted, committed) = tokio::join!(client.execute(&insert, &[&1]), client.batch_execute("COMMIT"));
    assert_eq!((inserted.unwrap(), committed.is_ok()), (1, true));
    let flights = proxy.flights();
    assert_eq!(flights.len(), 3, "{flights:?}");
    assert!(flights[0].is_prepare() && !flights[0].is_close());
    assert_eq!(flights[0].prepared, ["INSERT INTO t_counted VALUES ($1)"]);
    assert_eq!(flights[2].statements, ["INSERT INTO t_counted VALUES ($1)", "COMMIT"]);
    assert_eq!(
        (flights[2].syncs, flights[2].answered, flights[2].connection),
        (2, true, flights[0].connection)
    );
    assert_eq!(proxy.queries(), ["BEGIN", "INSERT INTO t_counted VALUES ($1)", "COMMIT"]);

    proxy.clear_log();
    drop(insert);
    let closed = proxy.log_until("the statement's end", |log| log.iter().any(|flight| flight.answered)).await;
    assert!(closed[0].is_close() && closed[0].closed == 1);
}

#[tokio::test]
async fn a_large_flight_in_many_segments_is_one() {
    let (proxy, client, direct) = set_up("large").await;
    direct.batch_execute("ALTER TABLE t_large ADD COLUMN body bytea").await.unwrap();
    let insert = client.prepare("INSERT INTO t_large VALUES ($1, $2)").await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    proxy.clear_log();
    let body = vec![7_u8; 3 << 20];
    let parameters: [&(dyn ToSql + Sync); 2] = [&1, &body];
    let (inserted, committed) =
        tokio::join!(client.execute(&insert, &parameters), client.batch_execute("COMMIT"));
    assert!(inserted.is_ok() && committed.is_ok());
    let stored: Vec<u8> = client.query_one("SELECT body FROM t_large", &[]).await.unwrap().get(0);
    assert!(stored == body);
    assert_eq!(proxy.round_trips()[0].statements.len(), 2, "{:?}", proxy.round_trips());
}

#[tokio::test]
async fn a_lost_commit_acknowledgement() {
    let (proxy, client, direct) = set_up("lost").await;
    let rule = proxy.once(SqlMatch::executes("COMMIT"), Action::DropReplyAndCut);
    client.batch_execute("BEGIN").await.unwrap();
    let insert = client.prepare("INSERT INTO t_lost VALUES (1)").await.unwrap();
    let (inserted, committed) = tokio::join!(client.execute(&insert, &[]), client.batch_execute("COMMIT"));
    rule.reached().await;
    assert!(inserted.is_err(), "no reply of the flight may come through");
    assert!(committed.is_err() && client.is_closed());
    assert_eq!(count(&direct, "lost").await, 1);
}

#[tokio::test]
async fn cut_before_the_commit_loses_the_work() {
    let (proxy, client, direct) = set_up("cut").await;
    let rule = proxy.once(SqlMatch::executes("COMMIT"), Action::CutBefore);
    client.batch_execute("BEGIN").await.unwrap();
    let insert = client.prepare("INSERT INTO t_cut VALUES (1)").await.unwrap();
    let (_, committed) = tokio::join!(client.execute(&insert, &[]), client.batch_execute("COMMIT"));
    rule.reached().await;
    assert!(committed.is_err());
    // The lock is granted once the server has noticed and rolled back.
    direct.batch_execute("BEGIN; SET LOCAL lock_timeout = '10s'; LOCK TABLE t_cut; COMMIT").await.unwrap();
    assert_eq!(count(&direct, "cut").await, 0);
}

#[tokio::test]
async fn hold_before_forwards_what_was_earlier_in_the_flight() {
    let (proxy, client, direct) = set_up("before").await;
    let rule = proxy.once(SqlMatch::executes("COMMIT"), Action::HoldBefore);
    let client = std::sync::Arc::new(client);
    client.batch_execute("BEGIN").await.unwrap();
    let writer = client.clone();
    let commit = tokio::spawn(async move {
        tokio::join!(writer.batch_execute("INSERT INTO t_before VALUES (1)"), writer.batch_execute("COMMIT"))
    });
    rule.reached().await;
    let inserted =
        "SELECT count(*) FROM pg_locks WHERE relation = 't_before'::regclass AND mode = 'RowExclusiveLock'";
    let locks = async || direct.query_one(inserted, &[]).await.unwrap().get::<_, i64>(0) > 0;
    until("the insert to be executed", BOUND, locks).await;
    assert_eq!(count(&direct, "before").await, 0);
    rule.release();
    let (inserted, committed) = commit.await.unwrap();
    assert!(inserted.is_ok() && committed.is_ok());
    assert_eq!(count(&direct, "before").await, 1);
}

#[tokio::test]
async fn what_is_held_before_dies_with_its_client() {
    let (proxy, _client, direct) = set_up("orphan").await;
    let (client, socket) = connect_with_task(proxy.addr()).await;
    let pid = backend(&client).await;
    let rule = proxy.once(SqlMatch::executes("INSERT"), Action::HoldBefore);
    let write = tokio::spawn(async move { client.batch_execute("INSERT INTO t_orphan VALUES (1)").await });
    rule.reached().await;
    socket.abort();
    assert!(write.await.unwrap().is_err());
    until("the connection to be gone", BOUND, async || proxy.open_connections() == 1).await;
    rule.release();
    let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $1";
    until("the server to be rid of it", BOUND, async || is_so(&direct, gone, pid).await).await;
    assert_eq!(count(&direct, "orphan").await, 0);
}

#[tokio::test]
async fn hold_reply_holds_the_whole_flight() {
    let (proxy, client, direct) = set_up("reply").await;
    let rule = proxy.once(SqlMatch::executes("COMMIT"), Action::HoldReply);
    client.batch_execute("BEGIN").await.unwrap();
    let flight = async {
        tokio::join!(
            async { (client.batch_execute("INSERT INTO t_reply VALUES (1)").await, rule.times()) },
            client.batch_execute("COMMIT"),
            async {
                rule.reached().await;
                let committed = count(&direct, "reply").await;
                rule.release();
                committed
            },
        )
    };
    let ((inserted, reached_by_then), committed, visible) = flight.await;
    assert!(inserted.is_ok() && committed.is_ok());
    assert_eq!((reached_by_then, visible), (1, 1), "the INSERT's reply came after the COMMIT's was held");
}

#[tokio::test]
async fn a_swallowed_reply_never_comes_and_the_connection_stays() {
    let (proxy, client, direct) = set_up("swallowed").await;
    let rule = proxy.once(SqlMatch::executes("INSERT"), Action::SwallowReply);
    let write = tokio::spawn(async move { client.batch_execute("INSERT INTO t_swallowed VALUES (1)").await });
    rule.reached().await;
    assert_eq!(count(&direct, "swallowed").await, 1);
    let other = connect(proxy.addr()).await;
    other.batch_execute("SELECT 1").await.unwrap();
    assert!(!write.is_finished());
    assert_eq!(proxy.open_connections(), 2);
    write.abort();
}

#[tokio::test]
async fn a_rule_waits_for_the_execution_unless_it_is_about_preparing() {
    let (proxy, client, direct) = set_up("prepared").await;
    let executed = proxy.always(SqlMatch::executes("INSERT").nth(2), Action::CutBefore);
    let insert = client.prepare("INSERT INTO t_prepared VALUES (1)").await.unwrap();
    assert_eq!(client.execute(&insert, &[]).await.unwrap(), 1);
    assert!(client.execute(&insert, &[]).await.is_err());
    executed.reached().await;
    executed.release();
    assert_eq!(count(&direct, "prepared").await, 1);

    let client = connect(proxy.addr()).await;
    let prepared = proxy.once(SqlMatch::prepares("INSERT"), Action::DropReplyAndCut);
    assert!(client.prepare("INSERT INTO t_prepared VALUES (1)").await.is_err());
    prepared.reached().await;
}

#[tokio::test]
async fn an_error_of_the_server_completes_a_flight_like_an_answer() {
    let (proxy, client, _direct) = set_up("error").await;
    let rule = proxy.once(SqlMatch::executes("nowhere"), Action::DropReplyAndCut);
    assert!(client.batch_execute("SELECT * FROM nowhere").await.unwrap_err().is_closed());
    rule.reached().await;
}

#[tokio::test]
async fn a_server_that_dies_before_its_answer_cuts_the_client() {
    let (proxy, client, direct) = set_up("dies").await;
    let pid = backend(&client).await;
    let rule = proxy.once(SqlMatch::executes("pg_sleep"), Action::DropReplyAndCut);
    let sleep = tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(60)").await });
    until("the sleep", BOUND, async || is_so(&direct, SLEEPS, pid).await).await;
    direct.query_one("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    assert!(within("the client to be cut", BOUND, sleep).await.unwrap().is_err());
    assert_eq!(rule.times(), 0);
}

#[tokio::test]
async fn a_cancel_request_passes() {
    let (proxy, client, direct) = set_up("cancel").await;
    let pid = backend(&client).await;
    let token = client.cancel_token();
    let sleep = tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(60)").await });
    until("the sleep", BOUND, async || is_so(&direct, SLEEPS, pid).await).await;
    token.cancel_query(NoTls).await.unwrap();
    let error = sleep.await.unwrap().unwrap_err();
    assert_eq!(error.code().map(SqlState::code), Some("57014"));
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn a_refused_request_for_encryption_is_followed_by_another_opening() {
    let proxy = PgProxy::start(server()).await.expect("a proxy");
    let mut raw = TcpStream::connect(proxy.addr()).await.unwrap();
    raw.write_all(&[8_u32.to_be_bytes(), 80_877_103_u32.to_be_bytes()].concat()).await.unwrap();
    assert_eq!(within("a single byte", BOUND, raw.read_u8()).await.unwrap(), b'N');
    let startup = b"\0\x03\0\0user\0postgres\0\0";
    let length = u32::try_from(startup.len() + 4).unwrap().to_be_bytes();
    raw.write_all(&[&length[..], startup].concat()).await.unwrap();
    assert_eq!(within("a request for a password", BOUND, raw.read_u8()).await.unwrap(), b'R');
    assert!(proxy.flights()[0].is_startup() && !proxy.flights()[0].answered);
}

#[tokio::test]
async fn a_closed_door_and_an_open_one() {
    let (proxy, client, _direct) = set_up("door").await;
    proxy.down().await;
    assert!(client.batch_execute("SELECT 1").await.is_err());
    proxy.up().await;
    connect(proxy.addr()).await.batch_execute("SELECT 1").await.unwrap();
}
