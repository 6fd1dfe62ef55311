//! Whether Redis says something that PostgreSQL contradicts.
//!
//! Looks at some of what Redis holds, as it comes, and then at the records: what Redis said before was committed before. Knows nothing of
//! what is done about it. Invariant: a value that the service would not believe (of another generation, not readable) is no contradiction.

use super::{Operator, OperatorError};
use crate::gate::Gate;
use crate::generation::CurrentGeneration;
use crate::key::{AccountId, IdempotencyKey, of_redis_name};
use crate::reply::Finished;
use crate::value;

const COMPARE_SQL: &str = include_str!("../ledger/compare.sql");

/// What came of it.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Answers that were compared.
    pub compared: usize,
    /// Those that PostgreSQL contradicts, each with what is wrong.
    pub contradictions: Vec<String>,
}

/// An answer in Redis.
struct Held {
    name: String,
    account: AccountId,
    key: IdempotencyKey,
    value: Vec<u8>,
    finished: Finished,
}

impl Operator {
    /// Compares up to `max` answers that Redis holds with their records. `generation` is that of this operator's database.
    ///
    /// # Errors
    /// [`OperatorError::Database`]; [`OperatorError::Refused`] when Redis cannot be asked.
    pub async fn compare(
        &self,
        gate: &Gate,
        generation: &CurrentGeneration,
        max: usize,
    ) -> Result<Comparison, OperatorError> {
        self.database.refresh_generation().await?;
        let held = held(gate, generation, max).await.map_err(OperatorError::Refused)?;
        let accounts: Vec<i64> = held.iter().map(|held| held.account.0).collect();
        let keys: Vec<&str> = held.iter().map(|held| held.key.as_str()).collect();
        let rows = self.database.read(COMPARE_SQL, &[&accounts, &keys]).await?;
        let mut comparison = Comparison { compared: held.len(), ..Comparison::default() };
        for row in rows {
            let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
            let Some(Held { name, value, finished, .. }) = held.get(place) else { continue };
            let status: Option<&str> = row.get(1);
            let (version, digest): (Option<i16>, Option<&[u8]>) = (row.get(2), row.get(3));
            let (code, body): (Option<i16>, Option<&[u8]>) = (row.get(4), row.get(5));
            let is_other = version == Some(i16::from(value[10]))
                && digest.is_some_and(|digest| digest != &value[11..43]);
            let other_code = code.map(i32::from) != Some(i32::from(finished.reply.status));
            let headers: Option<Vec<&str>> = row.get(6);
            let told =
                || finished.reply.headers.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]);
            let other_headers = headers.is_some_and(|headers| !headers.into_iter().eq(told()));
            let other_body = finished.kept && body.is_some_and(|body| body != finished.reply.body);
            let wrong = match status {
                None => "there is no record",
                Some("IN_PROGRESS") => "the record is still running",
                Some(_) if is_other => "the record is of another request",
                Some(_) if other_code || other_headers || other_body => "the record has another answer",
                Some(_) => continue,
            };
            comparison.contradictions.push(format!("{name}: {wrong}"));
        }
        Ok(comparison)
    }
}

/// The answers among up to `max` values that the service would believe.
async fn held(gate: &Gate, generation: &CurrentGeneration, max: usize) -> Result<Vec<Held>, String> {
    let mut answers = Vec::new();
    let Some(current) = generation.get() else { return Ok(answers) };
    for name in gate.names(max).await? {
        let Some((account, key)) = of_redis_name(&name) else { continue };
        // What has run out meanwhile, or is something else, says nothing.
        let Ok(Some(value)) = gate.value(&name).await else { continue };
        if value.get(2..10) != Some(&current.0.to_be_bytes()) {
            continue;
        }
        if let Some(finished) = value::finished(&value, account, &key) {
            answers.push(Held { name, account, key, value, finished });
        }
    }
    Ok(answers)
}
