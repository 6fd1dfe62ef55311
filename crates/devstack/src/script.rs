//! A script that may be executed at once, also by a process whose other threads start processes.
//!
//! For tests, which put stand-ins for `python3`, `postgres` or a package manager on a `PATH`. Deliberately unknown here:
//! what the script does. Invariant: this process never has the script open for writing. A process that another thread
//! forks would inherit that for a moment, and whoever executes the script in it is told "text file busy".

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;
use crate::error::Doing as _;

/// Writes `path`, which everybody may read and execute: a script of `sh` with these lines.
pub fn write_script(path: &Path, lines: &str) -> Result<()> {
    write_by_another_process(path, lines).doing("writing", path)
}

fn write_by_another_process(path: &Path, lines: &str) -> io::Result<()> {
    let mut writer = Command::new("sh")
        .args(["-c", r#"cat >"$0" && chmod 755 "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut pipe = writer.stdin.take().expect("it was asked for");
    writeln!(pipe, "#!/bin/sh\n{lines}")?;
    drop(pipe);
    let ended = writer.wait()?;
    if ended.success() { Ok(()) } else { Err(io::Error::other(format!("sh: {ended}"))) }
}
