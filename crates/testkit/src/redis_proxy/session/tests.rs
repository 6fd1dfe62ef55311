//! The session without sockets: pairs replies with commands, in one piece and byte by byte.

use super::*;
use crate::proxy::{Action, Repeat};
use crate::redis_proxy::CommandMatch;

struct Talk {
    session: RedisSession,
    log: Arc<Log<Command>>,
    rules: Arc<RuleBook<Command>>,
}

fn begin() -> Talk {
    let (rules, log) = (Arc::new(RuleBook::new()), Arc::new(Log::new()));
    Talk { session: Redis::session(3, rules.clone(), log.clone()), log, rules }
}

impl Talk {
    fn client(&mut self, text: &str, piece: usize) -> Vec<Option<Action>> {
        let (mut input, mut out, mut met) = (Vec::new(), Vec::new(), Vec::new());
        for bytes in text.as_bytes().chunks(piece) {
            input.extend_from_slice(bytes);
            while let Some(request) = self.session.next_request(&mut input).unwrap() {
                out.extend(request.bytes);
                met.push(request.rule.map(|rule| rule.action()));
            }
        }
        assert_eq!(String::from_utf8_lossy(&out), text);
        met
    }

    fn server(&mut self, text: &str, piece: usize) -> Vec<(usize, usize)> {
        let (mut input, mut out, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        for bytes in text.as_bytes().chunks(piece) {
            input.extend_from_slice(bytes);
            while let Some(reply) = self.session.next_reply(&mut input).unwrap() {
                out.extend(reply.bytes);
                seen.push((reply.gates.len(), reply.completes.len()));
            }
        }
        assert_eq!(String::from_utf8_lossy(&out), text);
        seen
    }

    fn answered(&self) -> Vec<bool> {
        self.log.read().iter().map(|command| command.answered).collect()
    }
}

#[test]
fn pairs_in_order_in_pieces_of_any_size_and_pushes_with_nothing() {
    for piece in [1, 2, 3, 1000] {
        let mut talk = begin();
        talk.client("*2\r\n$3\r\nGET\r\n$1\r\na\r\n\r\nPING\r\n*1\r\n$4\r\nTIME\r\n", piece);
        assert_eq!(talk.answered(), [false; 3]);
        talk.server(">1\r\n+invalidate\r\n$1\r\n1\r\n", piece);
        assert_eq!(talk.answered(), [true, false, false]);
        talk.server("+PONG\r\n*2\r\n:1\r\n:2\r\n", piece);
        assert_eq!(talk.answered(), [true; 3]);
        assert_eq!(talk.log.read()[0].connection, 3);
    }
}

#[test]
fn a_reply_rule_belongs_to_its_own_reply() {
    let mut talk = begin();
    talk.rules.add(CommandMatch::key_contains("b"), Action::HoldReply, Repeat::Always);
    assert_eq!(talk.client("GET a\r\nGET b\r\nGET c\r\n", 1000), [None, Some(Action::HoldReply), None]);
    assert_eq!(talk.server("+1\r\n+2\r\n+3\r\n", 1000), [(0, 0), (1, 1), (0, 0)]);
}

#[test]
fn a_script_that_is_not_there_is_no_match_for_a_reply_rule() {
    let mut talk = begin();
    talk.rules.add(CommandMatch::script(["a", "b"]), Action::DropReplyAndCut, Repeat::Once);
    talk.client("EVALSHA b 0\r\n", 1000);
    assert_eq!(talk.server("-NOSCRIPT No matching script\r\n", 1000), [(0, 0)]);
    assert_eq!(talk.client("EVALSHA b 0\r\n", 1000), [Some(Action::DropReplyAndCut)]);
    assert_eq!(talk.server("+1\r\n", 1000), [(1, 1)]);
}
