//! One disturbance at one step: the request is sent, met there, and brought to its end by retries.
//!
//! Knows signals and the proxy. Invariants: what is held is let go only after whatever was to happen meanwhile has happened; a
//! request that is answered without having passed the step fails the test.

use std::io;

use tokio::task::JoinHandle;

use super::answer::{is_final, settled, shown};
use super::step::{Point, Step};
use super::{BOUND, Disturbance, Subject};
use crate::http::{self, Response};
use crate::process::Signal;
use crate::proxy::Rule;
use crate::wait::within;

/// Returns the final answers that were given, in the order of their arrival.
pub(super) async fn disturb<S: Subject>(
    subject: &mut S,
    case: &S::Case,
    disturbance: Disturbance,
    step: &Step,
    point: Point,
    what: &str,
) -> Vec<Response> {
    let rule = step.rule(subject.postgres(), point, disturbance == Disturbance::Failed);
    match disturbance {
        Disturbance::Failed => {
            let answer = settled(subject, case, subject.api(), what).await;
            assert!(rule.times() > 0, "{what}: the request was answered without passing this step");
            vec![answer]
        }
        Disturbance::Killed => killed(subject, case, &rule, what).await,
        Disturbance::Repeated => repeated(subject, case, &rule, what).await,
        Disturbance::Paused => paused(subject, case, &rule, what).await,
    }
}

async fn killed<S: Subject>(subject: &mut S, case: &S::Case, rule: &Rule, what: &str) -> Vec<Response> {
    let first = held(subject, case, rule, what).await;
    subject.kill().await;
    assert!(ended(first, what).await.is_err(), "{what}: answered although it was killed before");
    // What was held before the server dies with its sender; what was held behind it is let go.
    subject.postgres().clear_rules();
    subject.restart().await;
    vec![settled(subject, case, subject.api(), what).await]
}

async fn repeated<S: Subject>(subject: &mut S, case: &S::Case, rule: &Rule, what: &str) -> Vec<Response> {
    let first = held(subject, case, rule, what).await;
    let mut answers = Vec::new();
    for api in [subject.api(), subject.other_api()] {
        let duplicate = http::send(api, &subject.request(case)).await;
        answers.push(duplicate.unwrap_or_else(|error| panic!("{what}: the duplicate: {error}")));
    }
    rule.release();
    let answered = ended(first, what).await;
    answers.push(answered.unwrap_or_else(|error| panic!("{what}: the first: {error}")));
    answers.push(settled(subject, case, subject.api(), what).await);
    answers.retain(|answer| is_final(answer, what));
    answers
}

async fn paused<S: Subject>(subject: &mut S, case: &S::Case, rule: &Rule, what: &str) -> Vec<Response> {
    let first = held(subject, case, rule, what).await;
    subject.process().signal(Signal::Stop).await.expect("SIGSTOP");
    let mut answers = vec![settled(subject, case, subject.other_api(), what).await];
    // It goes on where it stood, and its next statement arrives late.
    rule.release();
    subject.process().signal(Signal::Cont).await.expect("SIGCONT");
    answers.extend(ended(first, what).await.ok().filter(|answer| is_final(answer, what)));
    answers
}

/// Sends the request; returns once it is held at its step.
async fn held<S: Subject>(
    subject: &S,
    case: &S::Case,
    rule: &Rule,
    what: &str,
) -> JoinHandle<io::Result<Response>> {
    let (api, request) = (subject.api(), subject.request(case));
    let mut first = tokio::spawn(async move { http::send(api, &request).await });
    tokio::select! {
        biased;
        () = rule.reached() => first,
        answer = &mut first => {
            let answer = answer.expect("sending does not panic").map(|answer| shown(&answer));
            panic!("{what}: the request was answered without passing this step: {answer:?}");
        }
    }
}

/// The end of the first request, whatever it was.
async fn ended(first: JoinHandle<io::Result<Response>>, what: &str) -> io::Result<Response> {
    within(&format!("{what}: the end of the first request"), BOUND, first)
        .await
        .expect("sending does not panic")
}
