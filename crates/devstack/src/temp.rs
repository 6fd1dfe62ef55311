//! A folder that is removed when its owner drops it, and also when its process dies.
//!
//! For the second a shell waits, as the watchdog of a server does, on a pipe that ends with us. It
//! tries until the folder is gone: servers in it may still be ending.

use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::account::Account;
use crate::error::Doing as _;
use crate::poll::wait_until;
use crate::{Result, random};

const JANITOR: &str = r#"
trap '' HUP INT TERM
read -r _ && exit
tries=0
while [ -e "$0" ] && [ "$tries" -lt 30 ]; do
    rm -rf "$0" && break
    sleep 1
    tries=$((tries + 1))
done
"#;

#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    janitor: Child,
}

impl TempDir {
    /// An empty folder `prefix` + random; when we are root, one that the servers' user can enter.
    pub fn new(prefix: &str) -> Result<TempDir> {
        let account = Account::to_drop_to()?;
        let mut base = std::env::temp_dir();
        if account.is_some_and(|account| !account.reaches(&base)) {
            base = PathBuf::from("/var/tmp");
        }
        let path = base.join(format!("{prefix}{}", random::hex()?));
        fs::DirBuilder::new().mode(0o711).create(&path).doing("creating", &path)?;
        // The umask may have taken bits away.
        fs::set_permissions(&path, Permissions::from_mode(0o711)).doing("creating", &path)?;
        let janitor = Command::new("sh")
            .args(["-c", JANITOR])
            .arg(&path)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .doing("starting the janitor of", &path)?;
        Ok(TempDir { path, janitor })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // More than one try: a server that is still ending may add a file under our hands.
        let _ = wait_until(Duration::from_secs(5), || {
            fs::remove_dir_all(&self.path).is_ok() || !self.path.exists()
        });
        // The pipe ends, and with it the janitor, whose turn it is if something is left.
        drop(self.janitor.stdin.take());
        if !self.path.exists() {
            let _ = self.janitor.wait();
        }
    }
}
