//! Which server to use: one found on the machine, else an embedded one, else an installed one.
//!
//! PostgreSQL and Redis are resolved independently; a found one and an embedded one mix well.

use crate::environment::Environment;
use crate::install::{Installer, Need};
use crate::locate::{PostgresProgram, RedisProgram};
use crate::{Error, Report, Result, embedded};

/// Both programs, ready to be started any number of times.
#[derive(Clone, Debug)]
pub struct Servers {
    pub postgres: PostgresProgram,
    pub redis: RedisProgram,
}

impl Servers {
    /// Looks for both, and gets what is missing unless that is forbidden.
    pub fn resolve(env: &Environment, report: Report<'_>) -> Result<Servers> {
        let installer = Installer::new(env);
        let postgres = resolve_postgres(env, &installer, report);
        let redis = resolve_redis(env, &installer, report);
        match (postgres, redis) {
            (Ok(postgres), Ok(redis)) => Ok(Servers { postgres, redis }),
            // One command for both, so that nobody runs two in turn.
            (Err(Error::Missing { reason: first, .. }), Err(Error::Missing { reason: second, .. })) => {
                Err(Error::Missing {
                    what: "PostgreSQL and Redis".into(),
                    reason: format!("{first}; {second}"),
                    command: installer.command_line(&[Need::Postgres, Need::Redis])?,
                })
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }
}

impl PostgresProgram {
    pub fn resolve(env: &Environment, report: Report<'_>) -> Result<PostgresProgram> {
        resolve_postgres(env, &Installer::new(env), report)
    }
}

impl RedisProgram {
    pub fn resolve(env: &Environment, report: Report<'_>) -> Result<RedisProgram> {
        resolve_redis(env, &Installer::new(env), report)
    }
}

fn resolve_postgres(
    env: &Environment,
    installer: &Installer<'_>,
    report: Report<'_>,
) -> Result<PostgresProgram> {
    let find = || PostgresProgram::find(env);
    resolve(env, installer, Need::Postgres, report, find, || embedded::postgres(env, report))
}

fn resolve_redis(env: &Environment, installer: &Installer<'_>, report: Report<'_>) -> Result<RedisProgram> {
    let find = || RedisProgram::find(env);
    resolve(env, installer, Need::Redis, report, find, || embedded::valkey(env, report))
}

fn resolve<T>(
    env: &Environment,
    installer: &Installer<'_>,
    need: Need,
    report: Report<'_>,
    find: impl Fn() -> std::result::Result<T, String>,
    embedded: impl Fn() -> Result<T>,
) -> Result<T> {
    if env.embedded_only()? {
        return embedded();
    }
    let mut reasons = match find() {
        Ok(found) => return Ok(found),
        Err(reason) => vec![format!("{} {reason}", need.text())],
    };
    match embedded() {
        Ok(program) => return Ok(program),
        Err(error) => reasons.push(error.to_string()),
    }
    if !env.no_install {
        match installer.install(need, report) {
            Ok(()) => match find() {
                Ok(found) => return Ok(found),
                Err(reason) => reasons.push(format!("after the installation {reason}")),
            },
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(Error::Missing {
        what: need.text().trim_end_matches(',').into(),
        reason: reasons.join("; "),
        command: installer.command_line(&[need])?,
    })
}
