//! What an undisturbed request is answered and leaves behind, and whether a disturbed one came to the same.
//!
//! Learned from two runs, so that nobody has to write down what is generated. Invariant: of a case all final successes are the
//! same to the byte, whoever got them.

use serde_json::{Value, json};

use super::likeness::{common, difference};
use super::step::{self, Step};
use super::{Again, Subject, answer};
use crate::http::Response;

/// What became of a case.
pub(super) struct Seen {
    /// Final answers, in the order in which they came; the last one is a retry when all was over.
    answers: Vec<Response>,
    state: Value,
}

/// What has to become of every case.
#[derive(Clone)]
pub(super) struct Expected {
    /// The answer of the request that did the work.
    first: Value,
    /// The answer of a retry: a replay, or a reference to what was done.
    again: Value,
    state: Value,
}

/// Two runs that nothing disturbs.
pub(super) async fn undisturbed<S: Subject>(subject: &S) -> (Expected, Vec<Step>) {
    let (one, its_steps) = run(subject, "undisturbed-1").await;
    let (other, steps) = run(subject, "undisturbed-2").await;
    let steps = step::common(&its_steps, steps);
    assert!(!steps.is_empty(), "{}: no step of it goes through the proxy", S::NAME);
    let both = |what: &str, one: &Value, other: &Value| {
        common(one, other, what)
            .unwrap_or_else(|why| panic!("{}: two undisturbed runs are not alike: {why}", S::NAME))
    };
    let expected = Expected {
        first: both("answer", &one.shown(0), &other.shown(0)),
        again: both("retry", &one.shown(1), &other.shown(1)),
        state: both("state", &one.state, &other.state),
    };
    if let Some(wrong) = [&one, &other].into_iter().find_map(|seen| not_documented::<S>(seen)) {
        panic!("{}, undisturbed: {wrong}", S::NAME);
    }
    (expected, steps)
}

/// Whether first answer and retry are what the protocol promises; else what they are.
fn not_documented<S: Subject>(seen: &Seen) -> Option<String> {
    let (first, again) = (seen.shown(0), seen.shown(1));
    let replayed = json!({ "status": first["status"], "location": first["location"], "body": first["body"], "replayed": true });
    let documented = match S::AGAIN {
        Again::Replay => again == replayed,
        // A success would be a second execution, and without a place nobody finds what was done.
        Again::Reference => again["status"] == 409 && again["location"].is_string(),
    };
    let is_first = first["replayed"] == false;
    (!documented || !is_first)
        .then(|| format!("no {:?} of the first answer\n{first}\nbut\n{again}", S::AGAIN))
}

async fn run<S: Subject>(subject: &S, key: &str) -> (Seen, Vec<Step>) {
    let (case, what) = (subject.prepare(key).await, format!("{}, undisturbed", S::NAME));
    subject.postgres().clear_log();
    let first = answer::settled(subject, &case, subject.api(), &what).await;
    let flights = subject.postgres().flights();
    let seen = observed(subject, &case, vec![first], &what).await;
    (seen, step::steps(&flights, S::is_step))
}

/// One more retry, and then what is there.
pub(super) async fn observed<S: Subject>(
    subject: &S,
    case: &S::Case,
    mut answers: Vec<Response>,
    what: &str,
) -> Seen {
    answers.push(answer::settled(subject, case, subject.api(), what).await);
    Seen { answers, state: subject.state(case).await }
}

impl Seen {
    fn shown(&self, index: usize) -> Value {
        answer::shown(&self.answers[index])
    }
}

impl Expected {
    /// What is not as it has to be.
    pub(super) fn difference(&self, seen: &Seen) -> Option<String> {
        let (last, before) = seen.answers.split_last()?;
        // An answer may have been lost on its way: then a retry is the first that the client gets to see.
        let given = before.iter().find_map(|given| {
            let shown = answer::shown(given);
            difference(&self.again, &shown, "answer").and(difference(&self.first, &shown, "answer"))
        });
        given
            .or_else(|| difference(&self.again, &answer::shown(last), "retry"))
            .or_else(|| difference(&self.state, &seen.state, "state"))
            .or_else(|| one_success(&seen.answers))
    }
}

/// Two successes with other bytes: one of them is not the first one's.
fn one_success(answers: &[Response]) -> Option<String> {
    let mut successes = answers.iter().filter(|answer| answer.status < 300);
    let first = successes.next()?;
    let other = successes.find(|answer| (answer.status, &answer.body) != (first.status, &first.body))?;
    Some(format!(
        "two different successes: {} {}\nand {} {}",
        first.status,
        first.text(),
        other.status,
        other.text()
    ))
}
