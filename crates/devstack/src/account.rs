//! As which user the servers run.
//!
//! PostgreSQL refuses to run as root, so root drops to `postgres`, else `nobody`; everybody else runs
//! the servers as themselves. Data that already belongs to a user is served by that user: a folder
//! first used by its owner and then with sudo works again for its owner.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::{Error, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Our effective user. Asked of `id`, since std cannot say.
pub(crate) fn own_uid() -> Result<u32> {
    static UID: OnceLock<u32> = OnceLock::new();
    if let Some(uid) = UID.get() {
        return Ok(*uid);
    }
    let output = Command::new("id").arg("-u").stdin(Stdio::null()).output();
    let output = output.map_err(|source| Error::Io { doing: "running `id -u`".into(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let uid = text
        .trim()
        .parse()
        .map_err(|_| Error::Command { doing: "`id -u`".into(), output: format!("{text:?} is no number") })?;
    Ok(*UID.get_or_init(|| uid))
}

impl Account {
    /// The account to drop to; `None` when we are not root.
    pub(crate) fn to_drop_to() -> Result<Option<Account>> {
        if own_uid()? != 0 {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        ["postgres", "nobody"].iter().find_map(|name| find(&passwd, name)).map(Some).ok_or_else(|| {
            Error::Command {
                doing: "choosing a user for the servers".into(),
                output:
                    "PostgreSQL does not run as root, and /etc/passwd has neither `postgres` nor `nobody`"
                        .into(),
            }
        })
    }

    /// The owner of existing data, unless that is root.
    pub(crate) fn owning(data: &Metadata) -> Option<Account> {
        (data.uid() != 0).then(|| Account {
            name: format!("user {}", data.uid()),
            uid: data.uid(),
            gid: data.gid(),
        })
    }

    /// Whether this account can enter the folder; tried, since modes alone do not tell (ACLs, mounts).
    pub(crate) fn reaches(&self, folder: &Path) -> bool {
        let mut cd = Command::new("sh");
        cd.args(["-c", "cd \"$0\""]).arg(folder).current_dir("/");
        cd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        run_as(&mut cd, Some(self)).status().is_ok_and(|status| status.success())
    }
}

/// Makes the command run as the account, without our other groups.
pub(crate) fn run_as<'a>(command: &'a mut Command, account: Option<&Account>) -> &'a mut Command {
    match account {
        Some(account) => command.uid(account.uid).gid(account.gid),
        None => command,
    }
}

fn find(passwd: &str, name: &str) -> Option<Account> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    // macOS writes the ids of `nobody` as -2.
    let mut id = || fields.next()?.parse::<i64>().ok().and_then(|id| u32::try_from(id & 0xffff_ffff).ok());
    let (uid, gid) = (id()?, id()?);
    (uid != 0).then(|| Account { name: name.to_owned(), uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_passwd_also_with_negative_ids() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:*:-2:-2:Unprivileged:/var/empty:/usr/bin/false\n";
        let nobody = find(passwd, "nobody").expect("nobody is listed");
        assert_eq!((nobody.uid, nobody.gid), (4_294_967_294, 4_294_967_294));
        assert_eq!(find(passwd, "postgres"), None);
        assert_eq!(find(passwd, "root"), None, "root is never an account to drop to");
    }
}
