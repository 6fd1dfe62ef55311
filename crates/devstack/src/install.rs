//! The system's package manager: the last resort, and only where it asks for no password.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use crate::account::own_uid;
use crate::command::run;
use crate::environment::Environment;
use crate::{Error, Report, Result};

const INSTALL_BOUND: Duration = Duration::from_secs(600);
const SUDO_BOUND: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Postgres,
    Redis,
}

impl Need {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Need::Postgres => "PostgreSQL 14 or newer",
            Need::Redis => "Redis 6.2 or newer, or Valkey,",
        }
    }
}

struct Manager {
    program: &'static str,
    /// Must have run once on a new machine, else nothing is known to install.
    update: &'static [&'static str],
    install: &'static [&'static str],
    postgres: &'static str,
    redis: &'static str,
    as_root: bool,
}

const MANAGERS: [Manager; 4] = [
    Manager {
        program: "apt-get",
        update: &["update"],
        install: &["install", "-y"],
        postgres: "postgresql",
        redis: "redis-server",
        as_root: true,
    },
    Manager {
        program: "dnf",
        update: &[],
        install: &["install", "-y"],
        postgres: "postgresql-server",
        // A file, not a package: it is in `redis` or `valkey-compat-redis`, by release.
        redis: "/usr/bin/redis-server",
        as_root: true,
    },
    Manager {
        program: "apk",
        update: &["update"],
        install: &["add"],
        postgres: "postgresql",
        redis: "redis",
        as_root: true,
    },
    Manager {
        program: "brew",
        update: &[],
        install: &["install"],
        postgres: "postgresql@17",
        redis: "redis",
        as_root: false,
    },
];

pub(crate) struct Installer<'a> {
    env: &'a Environment,
    updated: Cell<bool>,
}

impl<'a> Installer<'a> {
    pub(crate) fn new(env: &'a Environment) -> Self {
        Installer { env, updated: Cell::new(false) }
    }

    /// The exact line for this system that installs what is needed.
    pub(crate) fn command_line(&self, needs: &[Need]) -> Result<String> {
        let Some((manager, _)) = self.manager() else {
            let what: Vec<&str> = needs.iter().map(|need| need.text().trim_end_matches(',')).collect();
            return Ok(format!("install {} with this system's package manager", what.join(" and ")));
        };
        let sudo = if manager.as_root && own_uid()? != 0 { "sudo " } else { "" };
        let line = |words: &[&str]| format!("{sudo}{} {}", manager.program, words.join(" "));
        let packages = needs.iter().map(|need| manager.package(*need));
        let install = line(&manager.install.iter().copied().chain(packages).collect::<Vec<_>>());
        Ok(if manager.update.is_empty() { install } else { format!("{} && {install}", line(manager.update)) })
    }

    /// Installs if that needs no password; the reason if not, or if it failed.
    pub(crate) fn install(&self, need: Need, report: Report<'_>) -> Result<()> {
        let refuse = |output: String| Error::Command { doing: "the system's package manager".into(), output };
        let (manager, program) = self.manager().ok_or_else(|| refuse("none is known here".into()))?;
        let sudo = self.sudo(&manager)?;
        let command = |words: &[&str]| {
            let mut command = match &sudo {
                Some(sudo) => {
                    let mut command = self.env.command(sudo);
                    command.args(["-n", "env", "DEBIAN_FRONTEND=noninteractive"]).arg(&program);
                    command
                }
                None => self.env.command(&program),
            };
            command.env("DEBIAN_FRONTEND", "noninteractive").args(words);
            command
        };
        if !manager.update.is_empty() && !self.updated.replace(true) {
            report(&format!("running {} {}", manager.program, manager.update.join(" ")));
            // Without success the lists of last time may still do.
            let _ = run(&mut command(manager.update), INSTALL_BOUND);
        }
        let words: Vec<&str> = manager.install.iter().copied().chain([manager.package(need)]).collect();
        report(&format!("running {} {}", manager.program, words.join(" ")));
        match run(&mut command(&words), INSTALL_BOUND) {
            Ok(finished) if finished.success() => Ok(()),
            Ok(finished) => Err(refuse(format!("{} {}", manager.program, finished.reason()))),
            Err(error) => Err(refuse(format!("{}: {error}", manager.program))),
        }
    }

    fn manager(&self) -> Option<(Manager, PathBuf)> {
        let find = |manager: Manager| {
            let program = self.env.candidates(manager.program).into_iter().next()?;
            Some((manager, program))
        };
        MANAGERS.into_iter().find_map(find)
    }

    /// The `sudo` to put in front, if one is needed and asks for no password.
    fn sudo(&self, manager: &Manager) -> Result<Option<PathBuf>> {
        if !manager.as_root || own_uid()? == 0 {
            return Ok(None);
        }
        let sudo = self.env.candidates("sudo").into_iter().next();
        let works = |sudo: &PathBuf| {
            let result = run(self.env.command(sudo).args(["-n", "true"]), SUDO_BOUND);
            result.is_ok_and(|finished| finished.success())
        };
        sudo.filter(works).map(Some).ok_or_else(|| Error::Command {
            doing: manager.program.into(),
            output: "needs root, and sudo would ask for a password".into(),
        })
    }
}

impl Manager {
    fn package(&self, need: Need) -> &'static str {
        match need {
            Need::Postgres => self.postgres,
            Need::Redis => self.redis,
        }
    }
}
