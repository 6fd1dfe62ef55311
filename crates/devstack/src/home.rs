//! The folder of one server: `data` (the server's own), beside it its log, its password, its locks.
//!
//! Two locks, both of the kind that the kernel drops when their holders die:
//! - `lock` is held by the process that started the server. Taken: another `dev` runs here.
//! - the log is locked too, and handed as standard error to the watchdog and so to every process of
//!   the server. Taken while `lock` is free: the former starter died and its server is just being
//!   ended by the watchdog; it is waited for.
//!
//! So whoever has a [`Home`] knows that no server of ours runs on its data.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::account::{Account, own_uid};
use crate::error::Doing as _;
use crate::poll::wait_for;
use crate::{Error, Report, Result, random};

/// A former server gets this long to end: more than the longest plan of a watchdog.
const FORMER_SERVER: Duration = Duration::from_secs(20);
const LOG_MAX: u64 = 8 * 1024 * 1024;
const FRESH: &str = "data.new-";

#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) folder: PathBuf,
    pub(crate) account: Option<Account>,
    pub(crate) log: File,
    pub(crate) log_path: PathBuf,
    _lock: File,
}

impl Home {
    /// Takes the folder, creating it when it is not there.
    pub(crate) fn open(wanted: &Path, log_name: &str, report: Report<'_>) -> Result<Home> {
        let (folder, account) = place(wanted, report)?;
        let data = folder.join("data");
        refuse_foreign(&data)?;
        let lock = open_beside(&folder.join("lock"), 0o600)?;
        try_lock(&lock, &folder)?;
        let log_path = folder.join(log_name);
        let log = open_beside(&log_path, 0o600)?;
        match wait_for(FORMER_SERVER, || match log.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            done => Some(done),
        }) {
            Some(done) => done.map_err(std::io::Error::from).doing("locking", &log_path)?,
            None => return Err(Error::InUse(folder)),
        }
        if log.metadata().is_ok_and(|metadata| metadata.len() > LOG_MAX) {
            log.set_len(0).doing("shortening", &log_path)?;
        }
        let home = Home { folder, account, log, log_path, _lock: lock };
        // Data of root's, from elsewhere: as root it would not be served.
        if owner_of(&data) == Some(0) {
            home.give(&data)?;
        }
        home.sweep();
        Ok(home)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// An empty folder of the server's user, to be filled and then renamed to `data` at once: a crash
    /// half-way leaves no half-made data.
    pub(crate) fn fresh(&self) -> Result<PathBuf> {
        let fresh = self.folder.join(format!("{FRESH}{}", random::hex()?));
        fs::create_dir(&fresh).doing("creating", &fresh)?;
        fs::set_permissions(&fresh, Permissions::from_mode(0o700)).doing("creating", &fresh)?;
        self.give(&fresh)?;
        Ok(fresh)
    }

    pub(crate) fn adopt(&self, fresh: &Path) -> Result<()> {
        fs::rename(fresh, self.data()).doing("renaming", fresh)
    }

    /// Gives a path, with all below it, to the server's user.
    pub(crate) fn give(&self, path: &Path) -> Result<()> {
        match &self.account {
            Some(account) => give(path, account),
            None => Ok(()),
        }
    }

    /// What was logged from `offset` on.
    pub(crate) fn logged_since(&self, offset: u64) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.log_path)
            && file.seek(SeekFrom::Start(offset)).is_ok()
        {
            let _ = file.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn log_length(&self) -> u64 {
        self.log.metadata().map_or(0, |metadata| metadata.len())
    }

    fn sweep(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(FRESH.as_bytes()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Not root: data of another user is of no use, and root's files beside it cannot even be opened.
fn refuse_foreign(data: &Path) -> Result<()> {
    let own = own_uid()?;
    match owner_of(data) {
        Some(owner) if own != 0 && owner != own => {
            Err(Error::ForeignFolder { folder: data.to_owned(), owner })
        }
        _ => Ok(()),
    }
}

fn owner_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|metadata| metadata.uid())
}

/// Opens or creates a file of ours for reading and appending. What root creates in somebody's folder
/// belongs to that somebody, who could not open it otherwise.
pub(crate) fn open_beside(path: &Path, mode: u32) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(mode);
    let file = options.open(path).doing("opening", path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let owner = fs::metadata(folder).doing("reading", folder)?;
    if own_uid()? == 0 && owner.uid() != 0 {
        fchown(&file, Some(owner.uid()), Some(owner.gid())).doing("chown of", path)?;
    }
    Ok(file)
}

fn try_lock(lock: &File, folder: &Path) -> Result<()> {
    match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(folder.to_owned())),
        Err(TryLockError::Error(source)) => Err(source).doing("locking", folder),
    }
}

/// The folder itself; or, where the server's user cannot enter that (below /root, for example), one
/// in /var/tmp that is always the same for this path.
fn place(wanted: &Path, report: Report<'_>) -> Result<(PathBuf, Option<Account>)> {
    fs::create_dir_all(wanted).doing("creating", wanted)?;
    let folder = fs::canonicalize(wanted).doing("reading", wanted)?;
    let Some(default) = Account::to_drop_to()? else { return Ok((folder, None)) };
    let account = owner_of_data(&folder).unwrap_or_else(|| default.clone());
    admit(&folder)?;
    if account.reaches(&folder) {
        return Ok((folder, Some(account)));
    }
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let other = Path::new("/var/tmp").join(format!("order-service-{name}"));
    report(&format!("{} cannot enter {}: using {} instead", account.name, folder.display(), other.display()));
    if let Err(error) = fs::create_dir(&other)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(error).doing("creating", &other);
    }
    // Everybody may create names in /var/tmp: a folder or link that somebody prepared is refused.
    let found = fs::symlink_metadata(&other).doing("reading", &other)?;
    if found.uid() != 0 || !found.is_dir() {
        return Err(Error::ForeignFolder { folder: other, owner: found.uid() });
    }
    admit(&other)?;
    let account = owner_of_data(&other).unwrap_or(default);
    Ok((other, Some(account)))
}

fn owner_of_data(folder: &Path) -> Option<Account> {
    fs::metadata(folder.join("data")).ok().as_ref().and_then(Account::owning)
}

/// Lets other users pass through a folder of root's, but not list it.
fn admit(folder: &Path) -> Result<()> {
    let metadata = fs::metadata(folder).doing("reading", folder)?;
    if metadata.uid() == 0 {
        let mode = metadata.permissions().mode() | 0o711;
        fs::set_permissions(folder, Permissions::from_mode(mode)).doing("chmod of", folder)?;
    }
    Ok(())
}

fn give(path: &Path, account: &Account) -> Result<()> {
    let metadata = fs::symlink_metadata(path).doing("reading", path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path).doing("reading", path)? {
            give(&entry.doing("reading", path)?.path(), account)?;
        }
    }
    chown(path, Some(account.uid), Some(account.gid)).doing("chown of", path)
}
