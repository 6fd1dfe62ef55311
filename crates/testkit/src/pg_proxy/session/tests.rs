//! The session without sockets: whole conversations, in one piece and byte by byte.

use super::*;
use crate::pg_proxy::SqlMatch;
use crate::proxy::{Action, Matcher};

fn message(kind: u8, body: &str) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body.as_bytes()].concat()
}

fn startup() -> Vec<u8> {
    [&14_u32.to_be_bytes()[..], &(3_u32 << 16).to_be_bytes(), b"user\0\0"].concat()
}

struct Talk {
    session: PgSession,
    log: Arc<Log<Flight>>,
    rules: Arc<RuleBook<Statement>>,
    /// The longest piece that arrives at once.
    piece: usize,
    from_client: Vec<u8>,
    from_server: Vec<u8>,
}

impl Talk {
    /// A conversation after its startup, whose flight is cleared.
    fn begin(piece: usize) -> Talk {
        let (rules, log) = (Arc::new(RuleBook::new()), Arc::new(Log::new()));
        let session = Postgres::session(7, rules.clone(), log.clone());
        let (from_client, from_server) = (Vec::new(), Vec::new());
        let mut talk = Talk { session, log, rules, piece, from_client, from_server };
        talk.client(&[startup(), message(b'p', "secret\0")]);
        talk.server(&[message(b'R', "\0\0\0\0"), message(b'Z', "I")]);
        assert!(talk.log.read()[0].is_startup() && talk.log.read()[0].answered);
        talk.log.clear();
        talk
    }

    fn rule(&self, matcher: Matcher<Statement>, action: Action) -> Rule {
        self.rules.add(matcher, action, crate::proxy::Repeat::Once)
    }

    /// The rules that the messages meet. What comes out is what went in.
    fn client(&mut self, messages: &[Vec<u8>]) -> Vec<Option<Action>> {
        let (bytes, mut out, mut met) = (messages.concat(), Vec::new(), Vec::new());
        for piece in bytes.chunks(self.piece) {
            self.from_client.extend_from_slice(piece);
            while let Some(request) = self.session.next_request(&mut self.from_client).unwrap() {
                out.extend(request.bytes);
                met.push(request.rule.map(|rule| rule.action()));
            }
        }
        assert!(out == bytes && self.from_client.is_empty());
        met
    }

    /// For each message, how many rules stand before it and how many it completes.
    fn server(&mut self, messages: &[Vec<u8>]) -> Vec<(usize, usize)> {
        let (bytes, mut out, mut seen) = (messages.concat(), Vec::new(), Vec::new());
        for piece in bytes.chunks(self.piece) {
            self.from_server.extend_from_slice(piece);
            while let Some(reply) = self.session.next_reply(&mut self.from_server).unwrap() {
                out.extend(reply.bytes);
                seen.push((reply.gates.len(), reply.completes.len()));
            }
        }
        assert!(out == bytes && self.from_server.is_empty());
        seen
    }
}

fn bind_and_execute(name: &str) -> [Vec<u8>; 3] {
    [message(b'B', &format!("\0{name}\0\0\0\0\0\0\0")), message(b'E', "\0\0\0\0\0"), message(b'S', "")]
}

fn ready() -> Vec<u8> {
    message(b'Z', "I")
}

#[test]
fn tells_flights_apart_in_pieces_of_any_size() {
    for piece in [1, 2, 3, 5, 1000] {
        let mut talk = Talk::begin(piece);
        talk.client(&[message(b'P', "s1\0INSERT\0\0\0"), message(b'D', "Ss1\0"), message(b'S', "")]);
        talk.server(&[message(b'1', ""), message(b't', "\0\0"), message(b'n', ""), ready()]);
        talk.client(&[message(b'Q', "BEGIN\0")]);
        talk.server(&[message(b'C', "BEGIN\0"), ready()]);
        talk.client(&bind_and_execute("s1"));
        talk.client(&[message(b'Q', "COMMIT\0")]);
        talk.server(&[message(b'2', ""), message(b'C', "INSERT 0 1\0"), ready()]);
        assert!(!talk.log.read()[2].answered);
        talk.server(&[message(b'C', "COMMIT\0"), ready()]);
        talk.client(&[message(b'C', "Ss1\0"), message(b'S', "")]);
        talk.server(&[message(b'3', ""), ready()]);
        talk.client(&bind_and_execute("s1"));
        talk.client(&[message(b'X', "")]);

        let flights = talk.log.read();
        let statements: Vec<&[String]> = flights.iter().map(|flight| flight.statements.as_slice()).collect();
        let unknown = "(unknown statement \"s1\")".to_owned();
        let expected: [&[String]; 5] =
            [&[], &["BEGIN".to_owned()], &["INSERT".to_owned(), "COMMIT".to_owned()], &[], &[unknown]];
        assert_eq!(statements, expected, "pieces of {piece}");
        assert_eq!(flights.iter().map(|flight| flight.syncs).collect::<Vec<_>>(), [1, 1, 2, 1, 1]);
        assert!(flights[0].is_prepare() && flights[0].prepared == ["INSERT"]);
        assert!(flights[3].is_close() && !flights[4].answered);
    }
}

#[test]
fn a_message_begun_before_the_answer_belongs_to_the_same_flight() {
    let mut talk = Talk::begin(1000);
    talk.client(&[message(b'Q', "INSERT\0")]);
    let commit = message(b'Q', "COMMIT\0");
    talk.from_client.extend_from_slice(&commit[..3]);
    assert!(talk.session.next_request(&mut talk.from_client).unwrap().is_none());
    talk.server(&[ready()]);
    talk.from_client.extend_from_slice(&commit[3..]);
    assert!(talk.session.next_request(&mut talk.from_client).unwrap().is_some());
    assert!(!talk.log.read()[0].answered);
    talk.server(&[ready()]);
    talk.client(&[message(b'Q', "BEGIN\0")]);
    assert_eq!(talk.log.read()[0].statements, ["INSERT", "COMMIT"]);
    assert_eq!(talk.log.read()[1].statements, ["BEGIN"]);
}

#[test]
fn an_unsynced_message_keeps_its_flight_open() {
    let mut talk = Talk::begin(1000);
    talk.client(&[message(b'Q', "INSERT\0"), message(b'P', "\0SELECT\0\0\0")]);
    talk.server(&[ready()]);
    assert!(!talk.log.read()[0].answered);
    talk.client(&bind_and_execute(""));
    talk.server(&[ready()]);
    assert_eq!(talk.log.read().len(), 1);
    assert_eq!(talk.log.read()[0].statements, ["INSERT", "SELECT"]);
}

#[test]
fn a_reply_rule_gates_the_flights_unsent_replies_and_completes_with_its_own_answer() {
    let mut talk = Talk::begin(1000);
    let rule = talk.rule(SqlMatch::executes("COMMIT"), Action::HoldReply);
    talk.client(&[message(b'Q', "INSERT\0")]);
    assert_eq!(
        talk.client(&[message(b'Q', "COMMIT\0"), message(b'Q', "SELECT\0")]),
        [Some(rule.action()), None]
    );
    let (insert, commit, select) = (ready(), ready(), ready());
    assert_eq!(talk.server(&[insert, commit, select]), [(1, 0), (0, 1), (0, 0)]);
}

#[test]
fn a_rule_meets_a_prepared_statement_where_it_is_bound() {
    let mut talk = Talk::begin(1000);
    talk.rule(SqlMatch::executes("INSERT"), Action::CutBefore);
    talk.rule(SqlMatch::prepares("INSERT").nth(2), Action::CutBefore);
    assert_eq!(talk.client(&[message(b'P', "s1\0INSERT\0\0\0"), message(b'S', "")]), [None, None]);
    talk.server(&[message(b'1', ""), ready()]);
    assert_eq!(talk.client(&bind_and_execute("s1")), [Some(Action::CutBefore), None, None]);
    assert_eq!(talk.client(&[message(b'P', "s2\0INSERT\0\0\0")]), [Some(Action::CutBefore)]);
}

#[test]
fn encryption_is_answered_by_one_byte_and_never_by_yes() {
    let request = [8_u32.to_be_bytes(), 80_877_103_u32.to_be_bytes()].concat();
    let begin = || Postgres::session(0, Arc::new(RuleBook::new()), Arc::new(Log::new()));
    let mut session = begin();
    let mut input = [request.clone(), startup()].concat();
    assert_eq!(session.next_request(&mut input).unwrap().unwrap().bytes, request);
    assert!(session.next_request(&mut input).unwrap().is_none(), "the startup waits for the answer");
    assert_eq!(session.next_reply(&mut b"N".to_vec()).unwrap().unwrap().bytes, b"N");
    assert_eq!(session.next_request(&mut input).unwrap().unwrap().bytes, startup());
    let mut session = begin();
    session.next_request(&mut request.clone()).unwrap();
    assert!(session.next_reply(&mut b"S".to_vec()).is_err());
}
