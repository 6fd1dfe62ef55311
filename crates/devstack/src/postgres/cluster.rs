//! The data folder of PostgreSQL: made by initdb or as a copy, and its `postmaster.pid`.
//!
//! Invariant: `data` is complete if it exists; it is filled under another name and renamed.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::account::{Account, run_as};
use crate::command::run;
use crate::error::Doing as _;
use crate::home::{Home, open_beside};
use crate::locate::PostgresProgram;
use crate::poll::wait_for;
use crate::{Error, Report, Result, processes, random};

const INITDB_BOUND: Duration = Duration::from_secs(120);
/// Another process may just be making the same template.
const TEMPLATE_BOUND: Duration = Duration::from_secs(150);

/// Makes the data folder if there is none. Returns the superuser's password.
pub(super) fn ensure(
    program: &PostgresProgram,
    home: &Home,
    template: Option<&Path>,
    report: Report<'_>,
) -> Result<String> {
    if !home.data().exists() {
        match template.filter(|template| template.join("data").exists()) {
            Some(template) => copy_template(program, template, home)?,
            None => {
                let (version, folder) = (program.version(), home.folder.display());
                report(&format!("creating a data folder of {version} in {folder}"));
                init(program, home, true)?;
            }
        }
    }
    check_version(program, &home.data())?;
    password(home)
}

/// Makes the template unless it is there, of this version.
pub(super) fn template(program: &PostgresProgram, folder: &Path, report: Report<'_>) -> Result<PathBuf> {
    let open = || match Home::open(folder, "initdb.log", report) {
        Err(Error::InUse(_)) => None,
        done => Some(done),
    };
    let home = wait_for(TEMPLATE_BOUND, open).ok_or_else(|| Error::InUse(folder.to_owned()))??;
    if check_version(program, &home.data()).is_err() {
        if home.data().exists() {
            fs::remove_dir_all(home.data()).doing("removing", &home.data())?;
        }
        // Not worth syncing to disk: after a crash of the machine tests start anew.
        init(program, &home, false)?;
    }
    Ok(home.folder.clone())
}

/// Whether the server with this process id takes connections.
pub(super) fn is_ready(data: &Path, pid: u32) -> bool {
    let text = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.first().is_some_and(|line| line.parse() == Ok(pid)) && lines.get(7) == Some(&"ready")
}

/// PostgreSQL takes the recorded process id for a server on this data if it is a zombie (killed, and
/// not reaped by a slow or careless init) or, after a power cut, somebody else's by now. Our locks say
/// that none of ours runs; one started by hand is left to PostgreSQL, which refuses.
pub(super) fn remove_stale_pid_file(data: &Path) {
    let path = data.join("postmaster.pid");
    let pid = fs::read_to_string(&path).ok().and_then(|text| text.lines().next()?.trim().parse().ok());
    let Some(pid) = pid else { return };
    let another = || processes::program(pid).is_some_and(|name| !name.starts_with("postgres"));
    if processes::is_zombie(pid) || another() {
        // If it fails, PostgreSQL refuses to start and says why.
        let _ = fs::remove_file(&path);
    }
}

/// Data of another major version cannot be read.
fn check_version(program: &PostgresProgram, data: &Path) -> Result<()> {
    match version_of(data) {
        Some(version) if version == program.major.to_string() => Ok(()),
        other => Err(Error::OtherVersion {
            folder: data.to_owned(),
            data: other.unwrap_or_else(|| "unknown version".into()),
            server: program.version().to_owned(),
        }),
    }
}

fn version_of(data: &Path) -> Option<String> {
    fs::read_to_string(data.join("PG_VERSION")).ok().map(|text| text.trim().to_owned())
}

fn init(program: &PostgresProgram, home: &Home, durable: bool) -> Result<()> {
    let fresh = home.fresh()?;
    // initdb reads the password as the server's user, whom our own file is closed to.
    let for_initdb = fresh.with_extension("password");
    write_secret(&for_initdb, &password(home)?, home.account.as_ref())?;
    let mut initdb = std::process::Command::new(program.bin.join("initdb"));
    initdb.args(["-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=password", "-D"]).arg(&fresh);
    initdb.arg("--pwfile").arg(&for_initdb);
    if !durable {
        initdb.arg("--no-sync");
    }
    initdb.env("LC_ALL", "C").current_dir(&home.folder);
    let result = run(run_as(&mut initdb, home.account.as_ref()), INITDB_BOUND);
    let _ = fs::remove_file(&for_initdb);
    match result {
        Ok(finished) if finished.success() => home.adopt(&fresh),
        Ok(finished) => Err(Error::Command { doing: "initdb".into(), output: finished.reason() }),
        Err(source) => Err(source).doing("running initdb for", &fresh),
    }
}

/// Several may copy at once; a process that is just making the template is waited for.
fn copy_template(program: &PostgresProgram, template: &Path, home: &Home) -> Result<()> {
    let lock = open_beside(&template.join("lock"), 0o600)?;
    lock.lock_shared().doing("locking", template)?;
    let source = template.join("data");
    check_version(program, &source)?;
    if source.join("postmaster.pid").exists() {
        return Err(Error::InUse(source));
    }
    let fresh = home.fresh()?;
    copy(&source, &fresh)?;
    home.give(&fresh)?;
    // The password first: with data but another password nobody would get in.
    let secret = read_password(&template.join("password")).doing("reading the password of", template)?;
    store_password(home, &secret)?;
    home.adopt(&fresh)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).doing("reading", from)? {
        let entry = entry.doing("reading", from)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().doing("reading", &source)?.is_dir() {
            fs::create_dir(&target).doing("creating", &target)?;
            fs::set_permissions(&target, Permissions::from_mode(0o700)).doing("creating", &target)?;
            copy(&source, &target)?;
        } else {
            fs::copy(&source, &target).doing("copying", &source)?;
        }
    }
    Ok(())
}

/// The folder's password, made at the first call.
fn password(home: &Home) -> Result<String> {
    let path = home.folder.join("password");
    match read_password(&path) {
        Ok(password) => Ok(password),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let password = random::hex()?;
            store_password(home, &password)?;
            Ok(password)
        }
        Err(error) => Err(error).doing("reading", &path),
    }
}

fn read_password(path: &Path) -> std::io::Result<String> {
    fs::read_to_string(path).map(|text| text.trim().to_owned())
}

/// Replaced as a whole: a crash leaves the old or the new one.
fn store_password(home: &Home, password: &str) -> Result<()> {
    let new = home.folder.join(format!("password-{}", random::hex()?));
    write_secret(&new, password, None)?;
    let path = home.folder.join("password");
    fs::rename(&new, &path).doing("writing", &path)
}

fn write_secret(path: &Path, secret: &str, account: Option<&Account>) -> Result<()> {
    let mut file: File = open_beside(path, 0o600)?;
    writeln!(file, "{secret}").and_then(|()| file.sync_all()).doing("writing", path)?;
    match account {
        Some(account) => chown(path, Some(account.uid), Some(account.gid)).doing("chown of", path),
        None => Ok(()),
    }
}
