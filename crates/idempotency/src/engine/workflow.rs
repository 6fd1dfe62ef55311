//! A workflow's way through the protocol: its record is committed first, then it is carried out step by step.
//!
//! Knows what each end of a run means for the record and for the caller. Invariants: only the holder of the lease runs; a record
//! that is not finished is never left with a lease that nobody renews; what is answered as final is committed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::{After, Engine, OUTCOME_OPEN, RERUN_PAUSE, RUNS_MAX, Run, jitter, unavailable};
use crate::answer::Answer;
use crate::attempt::Attempt;
use crate::command::{Abort, Done, Effects, database_error};
use crate::gate::Claim;
use crate::ledger::{Ended, Lease, LedgerError, RECORD_KEY, Resolved, SERIAL_KEY, Step};
use crate::record::{Status, Verdict, decide};
use crate::reply::StoredReply;
use crate::sqlstate::{self, Trouble};
use crate::telemetry;
use crate::workflow::{Flow, FlowEnd, Job};

/// A record that is held by this executor.
pub(crate) struct Held {
    pub(crate) lease: Lease,
    /// What is journaled; `None` if it has to be read.
    pub(crate) journal: Option<Vec<Step>>,
    /// Whether a caller was told 202.
    pub(crate) background: bool,
    /// Whether to give it up if this run makes no progress.
    pub(crate) stuck: bool,
}

/// The record is committed, and the work has begun.
#[derive(Debug, Clone, Copy)]
struct Begun {
    claim: Claim,
    operation: Uuid,
    /// Whether the record says already that a caller was told 202.
    background: bool,
}

/// What a run of a workflow works on.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) job: &'a dyn Job,
    pub(super) claim: Claim,
    pub(super) lease: Lease,
}

const STEP_UNDONE: Answer =
    Answer::Unavailable("a step could not be done; the same request goes on from where it was");

impl Engine {
    /// Walks the attempt in its own task. A caller that prefers it, or has waited for long enough, is told where to look.
    pub(super) async fn begin_workflow(
        self: &Arc<Self>,
        attempt: &Arc<Attempt>,
        job: &Arc<dyn Job>,
        asynchronous: bool,
    ) -> Answer {
        let (told, mut begun) = watch::channel(None);
        let task = {
            let (engine, attempt, job) = (Arc::clone(self), Arc::clone(attempt), Arc::clone(job));
            self.shutdown.tasks().spawn(async move {
                let answer = Box::pin(engine.walk(&attempt, job.as_ref(), asynchronous, &told)).await;
                engine.waiting.publish(&attempt, &answer);
                answer
            })
        };
        let deadline = Instant::now() + self.policy.inline_max;
        let hand_over = async {
            let begun = begun.wait_for(Option::is_some).await.ok().and_then(|begun| *begun);
            let Some(begun) = begun else { return std::future::pending().await };
            if !asynchronous && !begun.background {
                tokio::time::sleep_until(deadline).await;
            }
            begun
        };
        let mut task = std::pin::pin!(task);
        let Begun { claim, operation, background } = tokio::select! {
            biased;
            answer = &mut task => return answer.unwrap_or(OUTCOME_OPEN),
            begun = hand_over => begun,
        };
        // Both are told before the caller is, so that its next attempt hears the same.
        if !background && matches!(self.ledger.in_background(attempt, operation).await, Ok(false)) {
            return task.await.unwrap_or(OUTCOME_OPEN);
        }
        self.gate.in_background(attempt, claim, operation).await;
        Answer::Accepted { operation }
    }

    async fn walk(
        &self,
        attempt: &Attempt,
        job: &dyn Job,
        asynchronous: bool,
        told: &watch::Sender<Option<Begun>>,
    ) -> Answer {
        let claim = match self.acquire(attempt).await {
            Ok(claim) => claim,
            Err(answer) => return answer,
        };
        let work = async {
            let held = match self.take(attempt, job, claim, asynchronous).await {
                Ok(held) => held,
                Err(answered) => return answered,
            };
            let operation = held.lease.operation;
            told.send_replace(Some(Begun { claim, operation, background: held.background }));
            self.carry_out(attempt, job, claim, held).await
        };
        let (answer, after) = self.with_place(attempt, claim, work).await;
        if let After::Release = after {
            self.gate.release(attempt, claim).await;
        }
        answer
    }

    /// Makes the record, or takes over one that nobody runs any more; or answers with what stands in the way.
    async fn take(
        &self,
        attempt: &Attempt,
        job: &dyn Job,
        claim: Claim,
        asynchronous: bool,
    ) -> Result<Held, (Answer, After)> {
        for run in 1..=RUNS_MAX {
            match self.take_once(attempt, job, claim, asynchronous, run + 2 > RUNS_MAX).await {
                Ok(held) => return Ok(held),
                Err(Run::Answered(answer, after)) => return Err((answer, after)),
                Err(Run::Again(cause)) => {
                    tracing::info!(workflow = job.name(), run, %cause, "not begun; again");
                }
            }
            telemetry::rerun();
            tokio::time::sleep(jitter(RERUN_PAUSE * 2_u32.pow(run - 1))).await;
        }
        Err((Answer::Unavailable("the work could not be begun"), After::Release))
    }

    async fn take_once(
        &self,
        attempt: &Attempt,
        job: &dyn Job,
        claim: Claim,
        asynchronous: bool,
        fresh: bool,
    ) -> Result<Held, Run> {
        let entered =
            self.ledger.enter(attempt, None, fresh).await.map_err(|error| self.not_begun(&error))?;
        let token = Uuid::new_v4();
        if let (true, Some(record)) = (entered.locked, &entered.record)
            && let Verdict::Resume { token: last, background } = decide(Some(record), &attempt.asked)
        {
            let lease = Lease { operation: record.request_id, token };
            let taken = self.ledger.take_over(entered.transaction, attempt, last, lease).await;
            // A retry gives up as the completer does, which may never come to it while retries hold the lease.
            let stuck = matches!(taken, Ended::Committed(Some(true)));
            return match taken {
                // If COMMIT was not answered, the compare that reads the journal tells whose it is.
                Ended::Committed(Some(_)) | Ended::Unknown => {
                    tracing::info!(workflow = job.name(), operation = %lease.operation, "taken over by a retry");
                    Ok(Held { lease, journal: None, background, stuck })
                }
                Ended::Committed(None) => Err(Run::Answered(Answer::InProgress, After::Release)),
                Ended::RolledBack(error) => Err(self.not_begun(&LedgerError::Database(error))),
            };
        }
        let (transaction, _) = self.admit(attempt, claim, entered).await?;
        let lease = Lease { operation: attempt.request_id, token };
        let held = Held { lease, journal: Some(Vec::new()), background: asynchronous, stuck: false };
        let request = (job.name(), job.request());
        match self.ledger.start(transaction, attempt, request, lease, asynchronous).await {
            Ended::Committed(()) => Ok(held),
            Ended::RolledBack(error) => match sqlstate::violated_unique(&error) {
                Some(SERIAL_KEY) => Err(Run::Answered(Answer::CallerBusy, After::Release)),
                Some(RECORD_KEY) => Err(Run::Again(error.to_string())),
                _ => Err(self.not_begun(&LedgerError::Database(error))),
            },
            Ended::Unknown => match self.ledger.resolve(attempt).await {
                Ok(Resolved::Gone) => Err(Run::Again("the commit was lost with its connection".to_owned())),
                Ok(Resolved::Found(record)) if record.workflow.and_then(|w| w.token) == Some(token) => {
                    Ok(held)
                }
                Ok(Resolved::Found(record)) => {
                    let verdict = decide(Some(&record), &attempt.asked);
                    let (answer, after) = self.decided(attempt, claim, Some(&record), verdict).await;
                    Err(Run::Answered(answer, after))
                }
                Err(error) => Err(Run::Answered(unavailable(&error), After::Leave)),
            },
        }
    }

    /// Carries out what the completer holds; whoever waits for it in this process is told.
    pub(crate) async fn resume(&self, attempt: &Attempt, job: &dyn Job, held: Held) -> Answer {
        let (answer, _) = self.carry_out(attempt, job, Claim::none(), held).await;
        self.waiting.publish(attempt, &answer);
        answer
    }

    /// Runs what is held until there is an answer, renewing the lease for as long as it takes.
    async fn carry_out(&self, attempt: &Attempt, job: &dyn Job, claim: Claim, held: Held) -> (Answer, After) {
        let lease = held.lease;
        let beat = || {
            let (ledger, attempt) = (self.ledger.clone(), attempt.clone());
            tokio::spawn(async move { ledger.renew(&attempt, lease).await });
        };
        let case = Case { attempt, job, claim, lease };
        // Boxed: it is the deepest part of the protocol, and would make every future around it as large.
        self.with_heartbeat(Box::pin(self.run_until_finished(case, held.journal, held.stuck)), beat).await
    }

    async fn run_until_finished(
        &self,
        case: Case<'_>,
        mut journal: Option<Vec<Step>>,
        stuck: bool,
    ) -> (Answer, After) {
        for run in 1..=RUNS_MAX {
            let fresh = run + 2 > RUNS_MAX;
            let read = match journal.take() {
                Some(journal) => Ok(Some(journal)),
                // Under the record's lock, so that a step whose COMMIT was never answered is decided, not guessed.
                None => self.ledger.steps(case.attempt, case.lease, fresh).await,
            };
            let ran = match read {
                Ok(Some(journal)) => Box::pin(self.run_flow(case, journal, fresh, stuck)).await,
                Ok(None) => self.overtaken(case).await,
                Err(error) => self.undone(case, &error).await,
            };
            match ran {
                Run::Answered(answer, after) => return (answer, after),
                Run::Again(cause) => {
                    tracing::info!(workflow = case.job.name(), run, %cause, "a step was undone; going on from the last one");
                }
            }
            telemetry::rerun();
            tokio::time::sleep(jitter(RERUN_PAUSE * 2_u32.pow(run - 1))).await;
        }
        match self.put_off(case, "a step met conflicts too often".to_owned(), STEP_UNDONE).await {
            Run::Answered(answer, after) => (answer, after),
            Run::Again(_) => (STEP_UNDONE, After::Release),
        }
    }

    /// One run of the workflow's code, from the top; finished steps are passed over.
    async fn run_flow(&self, case: Case<'_>, journal: Vec<Step>, fresh: bool, stuck: bool) -> Run {
        let Case { attempt, job, lease, .. } = case;
        let limits = (self.policy.execute_max, job.call_max());
        let mut flow = Flow::new(attempt, &self.ledger, lease, limits, journal).on_fresh_connections(fresh);
        let run = AssertUnwindSafe(job.run(&mut flow)).catch_unwind();
        let ran = tokio::time::timeout(self.policy.stuck_after, run).await;
        let (end, unmet, progress) = flow.into_outcome();
        let ended = match (end, ran) {
            (Some(FlowEnd::Stale), _) => return self.overtaken(case).await,
            (Some(FlowEnd::Unknown), _) => {
                return self.unknown(case, "a foreign call was not answered").await;
            }
            (Some(FlowEnd::Diverged(why)), _) => Err((why, Answer::Diverged)),
            (Some(FlowEnd::Lost), _) => return Run::Again("no answer to a step's COMMIT".to_owned()),
            (Some(FlowEnd::Failed(error)), _) => match self.undone_by(&error) {
                Ok(again) => return again,
                Err(failed) => Err(failed),
            },
            (Some(FlowEnd::TooLong), _) => {
                Err(("a step took longer than EXECUTE_MAX".to_owned(), STEP_UNDONE))
            }
            (Some(FlowEnd::NotSent(why)), _) => Err((why, STEP_UNDONE)),
            (_, Err(_elapsed)) => Err(("the run took too long".to_owned(), STEP_UNDONE)),
            (_, Ok(Err(_panic))) => Err(("the workflow panicked".to_owned(), Answer::Interrupted)),
            (_, Ok(Ok(Err(Abort::Fail(failure))))) => match database_error(failure.as_ref()) {
                Some(error) if sqlstate::classify(error) == Trouble::Again => {
                    return Run::Again(error.to_string());
                }
                Some(error) if sqlstate::classify(error) == Trouble::Unavailable => {
                    Err((sqlstate::explain(error), STEP_UNDONE))
                }
                _ => Err((sqlstate::explain(failure.as_ref()), Answer::Interrupted)),
            },
            (Some(FlowEnd::Closed), Ok(Ok(Ok(_)))) => Err((
                "the workflow went on after a step that did not end well".to_owned(),
                Answer::Interrupted,
            )),
            (_, Ok(Ok(_))) if unmet.is_some() => Err((unmet.unwrap_or_default(), Answer::Diverged)),
            (_, Ok(Ok(Ok((reply, kept))))) => Ok((Status::Completed, reply, kept)),
            (_, Ok(Ok(Err(Abort::Reject(problem))))) => {
                Ok((Status::Failed, problem.seal(attempt.request_id), true))
            }
        };
        match ended {
            Ok((status, reply, kept)) => {
                let kept = kept && reply.body.len() <= self.policy.stored_body_max;
                self.finish(case, status, reply, kept).await
            }
            Err((why, _)) if stuck && !progress => self.give_up(case, why).await,
            Err((why, answer)) => self.put_off(case, why, answer).await,
        }
    }

    /// Stores the answer. If its COMMIT is not answered, the record tells in the next round.
    async fn finish(&self, case: Case<'_>, status: Status, reply: StoredReply, kept: bool) -> Run {
        match self.ledger.open_step(case.attempt, case.lease, false).await {
            Ok(Some(transaction)) => {
                let done = Done { reply, kept, effects: Effects::default() };
                self.conclude_workflow(case, transaction, status, done).await
            }
            Ok(None) => self.overtaken(case).await,
            Err(error) => self.undone(case, &error).await,
        }
    }
}
