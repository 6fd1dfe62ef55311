//! Rules: where a proxy breaks a connection, and how.
//!
//! A rule is a [`Matcher`] (which message), an [`Action`] (what happens there) and a repetition. It deliberately
//! does not know any protocol: a matcher judges whatever the proxy's session shows it.
//!
//! Invariant: a rule that ends ([`Rule::release`]) lets go of everything it holds and matches nothing any more.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::wait::{BOUND, within};

/// What happens at the point that a rule names. "Cut" is a reset (RST) towards the client; whatever else is in
/// flight on that connection dies with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Cut; the message never reaches the server.
    CutBefore,
    /// The server executes and answers; the answer is dropped and the connection cut. A lost acknowledgement.
    DropReplyAndCut,
    /// The server executes and answers; from this answer on the client gets nothing, and the connection stays open.
    SwallowReply,
    /// Neither this message nor a later one of its connection reaches the server before [`Rule::release`]. When
    /// the client leaves first they never do.
    HoldBefore,
    /// The server executes and answers; the answer and all later ones of its connection wait for [`Rule::release`].
    HoldReply,
}

impl Action {
    pub(crate) fn is_before(self) -> bool {
        matches!(self, Action::CutBefore | Action::HoldBefore)
    }
}

/// A predicate on messages, with the text that failing waits show.
pub struct Matcher<S> {
    text: String,
    matches: Box<dyn Fn(&S) -> bool + Send + Sync>,
    nth: u64,
}

impl<S: 'static> Matcher<S> {
    /// Any predicate; the protocols offer named ones.
    pub fn new(text: impl Into<String>, matches: impl Fn(&S) -> bool + Send + Sync + 'static) -> Matcher<S> {
        Matcher { text: text.into(), matches: Box::new(matches), nth: 1 }
    }

    /// Both must hold. The `nth` of both is forgotten: set it on the result.
    pub fn and(self, other: Matcher<S>) -> Matcher<S> {
        let text = format!("{} and {}", self.text, other.text);
        Matcher::new(text, move |subject| (self.matches)(subject) && (other.matches)(subject))
    }

    /// The rule begins with the `nth` match, counted from 1 over all connections.
    pub fn nth(mut self, nth: u64) -> Matcher<S> {
        self.nth = nth;
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Once,
    Always,
}

/// The test's handle on a rule. The rule lives on in the proxy when the handle is dropped.
#[derive(Clone)]
pub struct Rule(Arc<State>);

struct State {
    text: String,
    action: Action,
    reached: watch::Sender<u64>,
    ended: watch::Sender<bool>,
}

impl Rule {
    /// Waits until the named point has been reached. For the actions before the server: the message was read and
    /// is held, or its connection has been cut. For those on the reply: the server *has answered*.
    ///
    /// Panics after [`BOUND`] with the rule's text and the caller's line.
    #[track_caller]
    pub fn reached(&self) -> impl Future<Output = ()> + use<> {
        self.reached_times(1)
    }

    /// Waits until the named point has been reached `times` times.
    #[track_caller]
    pub fn reached_times(&self, times: u64) -> impl Future<Output = ()> + use<> {
        let caller = Location::caller();
        let what = format!("rule {self:?} reached {times} time(s), for the wait at {caller}");
        let mut reached = self.0.reached.subscribe();
        async move {
            // The rule itself keeps the sender alive only as long as a handle or the proxy does.
            let arrived = within(&what, BOUND, reached.wait_for(|count| *count >= times)).await;
            assert!(arrived.is_ok(), "the proxy is gone: {what}");
        }
    }

    /// How often the named point has been reached so far.
    pub fn times(&self) -> u64 {
        *self.0.reached.borrow()
    }

    /// Ends the rule: what it holds goes on, and it matches nothing any more.
    pub fn release(&self) {
        self.0.ended.send_replace(true);
    }

    pub(crate) fn action(&self) -> Action {
        self.0.action
    }

    pub(crate) fn is_released(&self) -> bool {
        *self.0.ended.borrow()
    }

    pub(crate) async fn released(&self) {
        // An error would mean that the sender is gone, but `self` owns it.
        let _ = self.0.ended.subscribe().wait_for(|ended| *ended).await;
    }

    pub(crate) fn announce(&self) {
        self.0.reached.send_modify(|count| *count += 1);
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} on {}", self.0.action, self.0.text)
    }
}

/// The rules of one proxy, in the order in which they were set.
pub struct RuleBook<S>(Mutex<Vec<Entry<S>>>);

struct Entry<S> {
    matcher: Matcher<S>,
    repeat: Repeat,
    seen: u64,
    rule: Rule,
}

impl<S> RuleBook<S> {
    pub(crate) fn new() -> RuleBook<S> {
        RuleBook(Mutex::new(Vec::new()))
    }

    pub(crate) fn add(&self, matcher: Matcher<S>, action: Action, repeat: Repeat) -> Rule {
        let state = State {
            text: matcher.text.clone(),
            action,
            reached: watch::Sender::new(0),
            ended: watch::Sender::new(false),
        };
        let rule = Rule(Arc::new(state));
        self.entries().push(Entry { matcher, repeat, seen: 0, rule: rule.clone() });
        rule
    }

    /// The rule that applies to this message: the first one that is due. Later ones do not see the message.
    pub(crate) fn judge(&self, subject: &S) -> Option<Rule> {
        self.entries().iter_mut().find_map(|entry| entry.judge(subject))
    }

    /// Takes back a match whose message turned out not to have been executed.
    pub(crate) fn take_back(&self, rule: &Rule) {
        for entry in self.entries().iter_mut().filter(|entry| Arc::ptr_eq(&entry.rule.0, &rule.0)) {
            entry.seen = entry.seen.saturating_sub(1);
        }
    }

    pub(crate) fn release_all(&self) {
        for entry in self.entries().drain(..) {
            entry.rule.release();
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry<S>>> {
        // A predicate that panics fails its own test; the list itself is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Entry<S> {
    fn judge(&mut self, subject: &S) -> Option<Rule> {
        if self.rule.is_released() || !(self.matcher.matches)(subject) {
            return None;
        }
        self.seen += 1;
        let due = match self.repeat {
            Repeat::Once => self.seen == self.matcher.nth,
            Repeat::Always => self.seen >= self.matcher.nth,
        };
        due.then(|| self.rule.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(wanted: u8) -> Matcher<u8> {
        Matcher::new(format!("the number {wanted}"), move |number| *number == wanted)
    }

    #[test]
    fn once_is_the_nth_match_and_always_begins_with_it() {
        let book = RuleBook::new();
        book.add(is(1).nth(2), Action::CutBefore, Repeat::Once);
        book.add(is(2).nth(2), Action::CutBefore, Repeat::Always);
        let hits: Vec<bool> =
            [1, 1, 1, 2, 2, 2, 3].iter().map(|number| book.judge(number).is_some()).collect();
        assert_eq!(hits, [false, true, false, false, true, true, false]);
    }

    #[test]
    fn the_first_rule_wins_and_a_released_one_is_over() {
        let book = RuleBook::new();
        let first = book.add(is(1), Action::CutBefore, Repeat::Always);
        book.add(is(1), Action::HoldReply, Repeat::Always);
        assert_eq!(book.judge(&1).map(|rule| rule.action()), Some(Action::CutBefore));
        first.release();
        assert_eq!(book.judge(&1).map(|rule| rule.action()), Some(Action::HoldReply));
        book.release_all();
        assert!(book.judge(&1).is_none());
    }

    #[test]
    fn a_match_taken_back_can_happen_again() {
        let book = RuleBook::new();
        let rule = book.add(is(1), Action::HoldReply, Repeat::Once);
        assert!(book.judge(&1).is_some());
        book.take_back(&rule);
        assert!(book.judge(&1).is_some() && book.judge(&1).is_none());
    }

    #[test]
    fn both_predicates_must_hold() {
        let book = RuleBook::new();
        book.add(is(1).and(Matcher::new("never", |_| false)), Action::CutBefore, Repeat::Always);
        assert!(book.judge(&1).is_none());
    }
}
