//! The Redis proxy in front of a real Redis, with raw clients and with the driver that the service uses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;

use deadpool_redis::redis::{Client, Script, cmd};
use testkit::{Action, Command, CommandMatch, Door, RedisProxy, Rule, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const BOUND: Duration = Duration::from_secs(10);

/// One server for this binary; it ends with the process. Tests share it: each uses keys of its own.
static SERVER: LazyLock<(devstack::Redis, devstack::TempDir)> = LazyLock::new(|| {
    let silent = |_: &str| {};
    let environment = devstack::Environment::of_this_process().expect("an environment");
    let program = devstack::RedisProgram::resolve(&environment, &silent).expect("a redis-server");
    let folder = devstack::TempDir::new("testkit-redis-").expect("a folder");
    let options = devstack::RedisOptions::default();
    (devstack::Redis::start(&program, folder.path(), options, &silent).expect("Redis to start"), folder)
});

fn server() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, SERVER.0.port()).into()
}

async fn proxy() -> RedisProxy {
    RedisProxy::start(server()).await.expect("a proxy")
}

/// A raw client: inline commands out, single-line and bulk replies in.
struct Raw(TcpStream);

impl Raw {
    async fn open(addr: SocketAddr) -> Raw {
        Raw(TcpStream::connect(addr).await.expect("a connection"))
    }

    async fn send(&mut self, command: &str) {
        self.0.write_all(format!("{command}\r\n").as_bytes()).await.expect("a command to be sent");
    }

    /// The next reply line, or how the connection ended.
    async fn line(&mut self) -> Result<String, std::io::ErrorKind> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let byte = timeout(BOUND, self.0.read_u8()).await.expect("a reply or an end");
            line.push(byte.map_err(|error| error.kind())?);
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    async fn ask(&mut self, command: &str) -> String {
        self.send(command).await;
        self.line().await.expect("a reply")
    }

    /// Nothing has arrived, although the proxy has had its turn: another connection has been served since.
    async fn is_silent(&mut self, proxy: &RedisProxy) -> bool {
        assert_eq!(Raw::open(proxy.addr()).await.ask("PING").await, "+PONG");
        timeout(Duration::ZERO, self.0.read_u8()).await.is_err()
    }
}

/// Whether the server has the key, asked past the proxy.
async fn exists(key: &str) -> bool {
    Raw::open(server()).await.ask(&format!("EXISTS {key}")).await == ":1"
}

const RESET: Result<String, std::io::ErrorKind> = Err(std::io::ErrorKind::ConnectionReset);

#[tokio::test]
async fn passes_and_logs_what_it_reads() {
    let proxy = proxy().await;
    let mut client = Raw::open(proxy.addr()).await;
    assert_eq!(client.ask("set passes 1").await, "+OK");
    assert_eq!(client.ask("EVALSHA ffff 1 passes a").await.split(' ').next(), Some("-NOSCRIPT"));
    let commands = proxy.commands();
    assert_eq!((commands[0].name.as_str(), commands[0].keys.as_slice()), ("SET", &["passes".to_owned()][..]));
    assert_eq!((commands[1].script.as_deref(), commands[1].answered), (Some("ffff"), true));
    proxy.clear_log();
    client.send("PING").await;
    let logged = proxy.log_until("the PING", |log| log.iter().any(|command| command.answered)).await;
    assert_eq!(logged.len(), 1);
    assert_eq!((proxy.open_connections(), proxy.accepted()), (1, 1));
    drop(client);
    until("the connection to be gone", BOUND, async || proxy.open_connections() == 0).await;
}

#[tokio::test]
async fn cut_before_forwards_only_what_was_earlier() {
    let proxy = proxy().await;
    let rule = proxy.once(CommandMatch::key_contains("cut-before-2"), Action::CutBefore);
    let mut client = Raw::open(proxy.addr()).await;
    client.send("SET cut-before-1 x\r\nSET cut-before-2 x\r\nSET cut-before-3 x").await;
    rule.reached().await;
    until("the first to be executed", BOUND, async || exists("cut-before-1").await).await;
    assert_eq!(client.line().await, RESET);
    assert!(!exists("cut-before-2").await && !exists("cut-before-3").await);
    assert_eq!(Raw::open(proxy.addr()).await.ask("SET cut-before-2 x").await, "+OK");
}

#[tokio::test]
async fn drop_reply_and_cut_executes() {
    let proxy = proxy().await;
    let rule = proxy.once(CommandMatch::name("set").nth(2), Action::DropReplyAndCut);
    let mut client = Raw::open(proxy.addr()).await;
    client.send("SET dropped-1 x\r\nSET dropped-2 x").await;
    rule.reached().await;
    assert!(exists("dropped-2").await);
    assert_eq!(client.line().await.as_deref(), Ok("+OK"));
    assert_eq!(client.line().await, RESET);
}

#[tokio::test]
async fn a_swallowed_reply_silences_its_connection_and_no_other() {
    let proxy = proxy().await;
    let rule = proxy.always(CommandMatch::key_contains("swallowed"), Action::SwallowReply);
    let mut client = Raw::open(proxy.addr()).await;
    client.send("SET swallowed x\r\nSET behind-it x").await;
    rule.reached().await;
    until("the second to be executed", BOUND, async || exists("behind-it").await).await;
    rule.release();
    proxy.clear_log();
    client.send("ECHO a").await;
    proxy.log_until("the answer to the ECHO", |log| log.iter().any(|command| command.answered)).await;
    assert!(exists("swallowed").await && client.is_silent(&proxy).await);
    assert_eq!(Raw::open(proxy.addr()).await.ask("SET swallowed y").await, "+OK");
}

#[tokio::test]
async fn hold_before_waits_for_its_release() {
    let proxy = proxy().await;
    let rule = proxy.once(CommandMatch::key_contains("held-before"), Action::HoldBefore);
    let mut client = Raw::open(proxy.addr()).await;
    client.send("SET held-before x\r\nECHO second").await;
    rule.reached().await;
    assert!(client.is_silent(&proxy).await && !exists("held-before").await);
    rule.release();
    assert_eq!(client.line().await.as_deref(), Ok("+OK"));
    assert_eq!(client.line().await.as_deref(), Ok("$6"));
    assert!(exists("held-before").await);
}

#[tokio::test]
async fn what_is_held_before_dies_with_its_client() {
    let proxy = proxy().await;
    for leave in [|client: Raw| drop(client), |client: Raw| client.0.set_zero_linger().expect("a socket")] {
        let rule = proxy.once(CommandMatch::key_contains("orphan"), Action::HoldBefore);
        let mut client = Raw::open(proxy.addr()).await;
        client.send("SET orphan x").await;
        rule.reached().await;
        leave(client);
        until("the connection to be gone", BOUND, async || proxy.open_connections() == 0).await;
        rule.release();
        // The server has served another connection of the proxy since: it would have got the command by now.
        assert_eq!(Raw::open(proxy.addr()).await.ask("PING").await, "+PONG");
        assert!(!exists("orphan").await);
    }
}

#[tokio::test]
async fn hold_reply_holds_it_and_all_behind_it() {
    let proxy = proxy().await;
    let rule = proxy.once(CommandMatch::key_contains("held-reply"), Action::HoldReply);
    let mut client = Raw::open(proxy.addr()).await;
    client.send("PING\r\nSET held-reply x\r\nPING").await;
    rule.reached().await;
    assert!(exists("held-reply").await);
    assert_eq!(client.line().await.as_deref(), Ok("+PONG"));
    assert!(client.is_silent(&proxy).await);
    rule.release();
    assert_eq!(client.line().await.as_deref(), Ok("+OK"));
    assert_eq!(client.line().await.as_deref(), Ok("+PONG"));
    assert_eq!(rule.times(), 1);
}

#[tokio::test]
async fn clearing_the_rules_releases_them() {
    let proxy = proxy().await;
    let held = proxy.always(CommandMatch::name("ECHO"), Action::HoldBefore);
    let mut client = Raw::open(proxy.addr()).await;
    client.send("ECHO a").await;
    held.reached().await;
    proxy.clear_rules();
    assert_eq!(client.line().await.as_deref(), Ok("$1"));
}

#[tokio::test]
async fn a_closed_door_refuses_on_the_same_port_and_opens_again() {
    let proxy = proxy().await;
    let mut before = Raw::open(proxy.addr()).await;
    assert_eq!(before.ask("PING").await, "+PONG");
    for _ in 0..20 {
        proxy.down().await;
        let refused = TcpStream::connect(proxy.addr()).await.map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(std::io::ErrorKind::ConnectionRefused));
        assert_eq!(proxy.open_connections(), 0);
        proxy.up().await;
        assert_eq!(Raw::open(proxy.addr()).await.ask("PING").await, "+PONG");
    }
    assert_eq!(before.line().await, RESET);
}

#[tokio::test]
async fn a_door_that_resets_and_cut_all() {
    let proxy = proxy().await;
    let mut open = Raw::open(proxy.addr()).await;
    assert_eq!(open.ask("PING").await, "+PONG");
    proxy.door(Door::Reset).await;
    let mut new = Raw::open(proxy.addr()).await;
    assert_eq!(new.line().await, RESET);
    assert_eq!(open.ask("PING").await, "+PONG");
    proxy.cut_all().await;
    assert_eq!(open.line().await, RESET);
}

#[tokio::test]
async fn a_black_hole_takes_open_connections_too_and_heals() {
    let proxy = proxy().await;
    let mut open = Raw::open(proxy.addr()).await;
    assert_eq!(open.ask("PING").await, "+PONG");
    proxy.door(Door::BlackHole).await;
    let mut new = Raw::open(proxy.addr()).await;
    let mut gone = Raw::open(proxy.addr()).await;
    open.send("SET hole-open x").await;
    new.send("SET hole-new x").await;
    gone.send("SET hole-gone x").await;
    until("all to be connected", BOUND, async || proxy.open_connections() == 3).await;
    drop(gone);
    until("one to be gone", BOUND, async || proxy.open_connections() == 2).await;
    assert!(!exists("hole-open").await && !exists("hole-new").await);
    proxy.up().await;
    assert_eq!(open.line().await.as_deref(), Ok("+OK"));
    assert_eq!(new.line().await.as_deref(), Ok("+OK"));
    assert!(!exists("hole-gone").await);
}

#[tokio::test]
async fn a_delay_adds_to_the_latency_and_not_to_itself() {
    let proxy = proxy().await;
    let delay = Duration::from_millis(100);
    proxy.delay(delay);
    let mut client = Raw::open(proxy.addr()).await;
    let begin = std::time::Instant::now();
    client.send(&["PING"; 50].join("\r\n")).await;
    for _ in 0..50 {
        assert_eq!(client.line().await.as_deref(), Ok("+PONG"));
    }
    assert!((delay..delay * 49).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn the_driver_loads_a_script_and_a_rule_waits_for_the_one_that_runs() {
    let proxy = proxy().await;
    let client = Client::open(format!("redis://{}/?protocol=resp3", proxy.addr())).expect("a client");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let script = Script::new("redis.call('SET', KEYS[1], 'x'); return {1, KEYS[1]}");
    let wanted = CommandMatch::script([script.get_hash()]).and(CommandMatch::key_contains("scripted"));
    let held = proxy.once(wanted, Action::HoldReply);
    let mut other = connection.clone();
    let call =
        tokio::spawn(async move { script.key("scripted").invoke_async::<(i64, String)>(&mut other).await });
    held.reached().await;
    assert!(exists("scripted").await && !call.is_finished());
    held.release();
    assert_eq!(call.await.expect("a call").expect("a reply"), (1, "scripted".to_owned()));
    let evals = |log: &[Command]| log.iter().filter(|command| command.name == "EVALSHA").count();
    assert_eq!(evals(&proxy.commands()), 2, "{:?}", proxy.commands());

    let cut: Rule = proxy.once(CommandMatch::name("INCR"), Action::DropReplyAndCut);
    let lost: Result<i64, _> = cmd("INCR").arg("driver-incr").query_async(&mut connection).await;
    assert!(lost.is_err_and(|error| error.is_connection_dropped() || error.is_io_error()));
    cut.reached().await;
    assert_eq!(Raw::open(server()).await.ask("INCR driver-incr").await, ":2");
}
