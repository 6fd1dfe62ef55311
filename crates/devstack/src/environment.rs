//! What the choice of servers depends on, as one value: tests make their own, and nothing else of
//! this crate reads environment variables for it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::{Account, own_uid, run_as};
use crate::embedded::Platform;
use crate::locate::version_in;
use crate::{Error, Result};

#[derive(Clone, Debug)]
pub struct Environment {
    /// `PATH`: servers, python3 and package managers are looked up in it.
    pub path: OsString,
    /// Further folders that may hold servers, best first.
    pub folders: Vec<PathBuf>,
    /// `ORDER_SERVICE_SERVERS`.
    pub servers: Option<String>,
    /// `ORDER_SERVICE_NO_INSTALL`: nothing is fetched or installed.
    pub no_install: bool,
    /// Where embedded servers are kept; `None` when no such folder is known.
    pub cache: Option<PathBuf>,
    /// For which embedded servers exist; `None` elsewhere.
    pub platform: Option<Platform>,
    /// Whom the servers run as when we are root.
    pub(crate) account: Option<Account>,
}

impl Environment {
    pub fn of_this_process() -> Result<Environment> {
        let text = |name| env::var_os(name).filter(|value| !value.is_empty());
        Ok(Environment {
            path: env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
            folders: well_known_folders(),
            servers: text("ORDER_SERVICE_SERVERS").map(|value| value.to_string_lossy().into_owned()),
            no_install: text("ORDER_SERVICE_NO_INSTALL").is_some_and(|value| value != "0"),
            cache: cache_folder(own_uid()?),
            platform: Platform::of_this_machine(),
            account: Account::to_drop_to()?,
        })
    }

    /// Whether only embedded servers may be used.
    pub(crate) fn embedded_only(&self) -> Result<bool> {
        match self.servers.as_deref() {
            None | Some("" | "found") => Ok(false),
            Some("embedded") => Ok(true),
            Some(other) => Err(Error::UnknownChoice(other.to_owned())),
        }
    }

    /// All files of this name in `PATH` and then in the well-known folders.
    pub(crate) fn candidates(&self, program: &str) -> Vec<PathBuf> {
        let all = env::split_paths(&self.path).chain(self.folders.iter().cloned());
        let absolute = all.filter(|folder| folder.is_absolute());
        absolute.map(|folder| folder.join(program)).filter(|file| file.is_file()).collect()
    }

    /// A command that sees this environment's `PATH`.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", &self.path);
        command
    }

    /// The same, run as the user that the servers run as.
    pub(crate) fn server_command(&self, program: &Path) -> Command {
        let mut command = self.command(program);
        command.current_dir("/");
        run_as(&mut command, self.account.as_ref());
        command
    }
}

fn cache_folder(uid: u32) -> Option<PathBuf> {
    // The servers then run as a user that cannot enter root's home.
    if uid == 0 {
        return Some("/var/cache/order-service".into());
    }
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| {
        let below = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
        absolute("HOME").map(|home| home.join(below))
    });
    base.map(|base| base.join("order-service"))
}

/// Where packages put servers without putting them on `PATH`; of several versions the highest first.
fn well_known_folders() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (parent, prefix) in [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/usr/libexec", "postgresql"),
        ("/opt/homebrew/opt", "postgresql"),
        ("/usr/local/opt", "postgresql"),
    ] {
        let mut names: Vec<String> = fs::read_dir(parent)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with(prefix))
            .collect();
        names.sort_by_key(|name| std::cmp::Reverse(version_in(name)));
        for name in names {
            let folder = Path::new(parent).join(name);
            // Alpine keeps the programs in the folder itself.
            found.extend([folder.join("bin"), folder].into_iter().filter(|folder| folder.is_dir()));
        }
    }
    found.extend(["/opt/homebrew/bin", "/usr/local/bin", "/usr/bin", "/usr/sbin"].map(PathBuf::from));
    found
}
