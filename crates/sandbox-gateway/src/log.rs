//! The append-only file: one JSON object a line, synced before anyone hears of it.
//!
//! Knows nothing of what the lines mean. Crash contract: once [`Log::append`] returns, the line is there after any crash
//! of the process or the machine; until then it is there whole or not at all.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long a predecessor may take to end: one whose parent was killed has only just heard of it.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_EVERY: Duration = Duration::from_millis(20);
/// Name of the file in the store's folder.
const FILE: &str = "ledger.jsonl";

pub(crate) struct Log {
    file: File,
    /// Length of what is known to be whole, in bytes.
    length: u64,
    /// Whether something half written may stand behind that.
    torn: bool,
}

impl Log {
    /// Opens or makes the file, for this process alone, and reads it. A torn last line was never answered: it goes.
    pub(crate) fn open<T: DeserializeOwned>(folder: &Path) -> io::Result<(Self, Vec<T>)> {
        fs::create_dir_all(folder)?;
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(folder.join(FILE))?;
        lock(&file)?;
        // The name of a new file is data, too.
        File::open(folder)?.sync_all()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut entries = Vec::new();
        for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let number = entries.len() + 1;
            let broken = |error| io::Error::other(format!("line {number} of {FILE} is broken: {error}"));
            entries.push(serde_json::from_slice(line).map_err(broken)?);
        }
        let mut log = Self { file, length: whole as u64, torn: true };
        log.mend()?;
        Ok((log, entries))
    }

    /// Appends one line and syncs it.
    pub(crate) fn append(&mut self, entry: &impl Serialize) -> io::Result<()> {
        self.mend()?;
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.torn = true;
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        self.torn = false;
        self.length += line.len() as u64;
        Ok(())
    }

    /// What was half written must not stand before the next line.
    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.length)?;
            self.file.seek(SeekFrom::Start(self.length))?;
            self.file.sync_data()?;
            self.torn = false;
        }
        Ok(())
    }
}

fn lock(file: &File) -> io::Result<()> {
    let give_up = Instant::now() + LOCK_WAIT;
    while let Err(error) = file.try_lock() {
        match error {
            TryLockError::WouldBlock if Instant::now() < give_up => std::thread::sleep(LOCK_EVERY),
            TryLockError::WouldBlock => return Err(io::Error::other("another sandbox uses it")),
            TryLockError::Error(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_goes_and_the_rest_stays() {
        let folder = devstack::TempDir::new("sandbox-log-").unwrap();
        let open = || Log::open::<String>(folder.path());
        let (mut log, _) = open().unwrap();
        log.append(&"first").unwrap();
        assert!(open().is_err(), "one process at a time");
        drop(log);

        let path = folder.path().join(FILE);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"\"torn").unwrap();
        let (mut log, entries) = open().unwrap();
        assert_eq!(entries, ["first"]);
        log.append(&"second").unwrap();
        drop(log);
        assert_eq!(open().unwrap().1, ["first", "second"]);

        fs::write(&path, "\"first\"\n{broken\n\"third\"\n").unwrap();
        assert!(open().err().unwrap().to_string().contains("line 2"));
    }
}
