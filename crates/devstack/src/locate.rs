//! Finds servers that are already on this machine, and makes sure that they really run.
//!
//! A candidate counts only after it printed its version as the user that will run it. What does not
//! run, or is too old, is skipped with a reason that the final error shows if nothing else is found.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::run;
use crate::environment::Environment;

const VERSION_BOUND: Duration = Duration::from_secs(20);
const POSTGRES_MIN: Version = (14, 0);
const REDIS_MIN: Version = (6, 2);

/// Major and minor.
pub(crate) type Version = (u32, u32);

/// A PostgreSQL that runs here.
#[derive(Clone, Debug)]
pub struct PostgresProgram {
    pub(crate) bin: PathBuf,
    pub(crate) major: u32,
    version: String,
}

/// A Redis or Valkey that runs here.
#[derive(Clone, Debug)]
pub struct RedisProgram {
    pub(crate) program: PathBuf,
    version: String,
}

impl PostgresProgram {
    /// For people: `PostgreSQL 15.18`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The folder with `postgres`, `initdb` and mostly `psql`.
    #[must_use]
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// Checks a folder that should hold `postgres` and `initdb`.
    pub(crate) fn check(bin: &Path, env: &Environment) -> Result<PostgresProgram, String> {
        let text = version_text(&bin.join("postgres"), env)?;
        version_text(&bin.join("initdb"), env)?;
        let version = version_in(&text);
        if version < POSTGRES_MIN {
            return Err(format!("{} is {text}, older than {}", bin.display(), POSTGRES_MIN.0));
        }
        let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let version_text = format!("PostgreSQL {}", number.unwrap_or("of unknown version"));
        Ok(PostgresProgram { bin: bin.to_owned(), major: version.0, version: version_text })
    }

    pub(crate) fn find(env: &Environment) -> Result<PostgresProgram, String> {
        first(env.candidates("postgres"), |program| {
            let real =
                fs::canonicalize(program).map_err(|error| format!("{}: {error}", program.display()))?;
            let bin = real.parent().unwrap_or(Path::new("/"));
            PostgresProgram::check(bin, env)
        })
    }
}

impl RedisProgram {
    /// For people: `Redis 7.0.15`, `Valkey 9.1.2`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn check(program: &Path, env: &Environment) -> Result<RedisProgram, String> {
        let text = version_text(program, env)?;
        let valkey = text.to_ascii_lowercase().contains("valkey");
        let number = text.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or_default();
        if !valkey && version_in(number) < REDIS_MIN {
            let (major, minor) = REDIS_MIN;
            return Err(format!("{} is {number}, older than {major}.{minor}", program.display()));
        }
        let name = if valkey { "Valkey" } else { "Redis" };
        Ok(RedisProgram { program: program.to_owned(), version: format!("{name} {number}") })
    }

    pub(crate) fn find(env: &Environment) -> Result<RedisProgram, String> {
        let candidates = [env.candidates("redis-server"), env.candidates("valkey-server")].concat();
        first(candidates, |program| {
            let real =
                fs::canonicalize(program).map_err(|error| format!("{}: {error}", program.display()))?;
            // Some systems link one program to several names and look at the name they are called by.
            RedisProgram::check(&real, env).or_else(|_| RedisProgram::check(program, env))
        })
    }
}

/// The first candidate that passes; else why none did.
fn first<T>(candidates: Vec<PathBuf>, check: impl Fn(&Path) -> Result<T, String>) -> Result<T, String> {
    let mut skipped: Vec<String> = Vec::new();
    for candidate in candidates {
        match check(&candidate) {
            Ok(found) => return Ok(found),
            Err(reason) if skipped.contains(&reason) => {}
            Err(reason) => skipped.push(reason),
        }
    }
    if skipped.is_empty() {
        Err("not found on PATH or where packages put it".into())
    } else {
        Err(format!("skipped: {}", skipped.join("; ")))
    }
}

fn version_text(program: &Path, env: &Environment) -> Result<String, String> {
    let result = run(env.server_command(program).arg("--version"), VERSION_BOUND);
    match result {
        Ok(finished) if finished.success() && !finished.output.trim().is_empty() => {
            Ok(finished.output.trim().to_owned())
        }
        Ok(finished) => Err(format!("{} does not run: {}", program.display(), finished.reason())),
        Err(error) => Err(format!("{} does not run: {error}", program.display())),
    }
}

/// The first number in a text: `postgres (PostgreSQL) 17beta1` is (17, 0), `postgresql@16` (16, 0).
pub(crate) fn version_in(text: &str) -> Version {
    let start = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
    let mut numbers = text[start..].split('.').map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().unwrap_or(0)
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions() {
        assert_eq!(version_in("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), (15, 18));
        assert_eq!(version_in("postgres (PostgreSQL) 17beta1"), (17, 0));
        assert_eq!(version_in("postgresql@16"), (16, 0));
        assert_eq!(version_in("postgresql"), (0, 0));
        assert!(version_in("9.6") < version_in("10"));
    }
}
