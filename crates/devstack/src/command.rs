//! Runs a program to its end, with a bound on its time.
//!
//! The program stays in our process group, so that Ctrl-C in a terminal ends a download too.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::poll::wait_for;

pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
}

impl Finished {
    pub(crate) fn success(&self) -> bool {
        self.status.success()
    }

    /// The last lines of the output as one line: where programs say why they failed.
    pub(crate) fn reason(&self) -> String {
        let tail = tail(&self.output, 5);
        if tail.is_empty() { self.status.to_string() } else { tail }
    }
}

/// Output of both streams; past `bound` the program is killed and the error is `TimedOut`.
pub(crate) fn run(command: &mut Command, bound: Duration) -> io::Result<Finished> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let output = Arc::new(Mutex::new(Vec::new()));
    let readers = [
        child.stdout.take().map(|stream| collect(stream, &output)),
        child.stderr.take().map(|stream| collect(stream, &output)),
    ];
    let Some(status) = wait_for(bound, || child.try_wait().transpose()) else {
        child.kill()?;
        child.wait()?;
        let text = format!("not done within {} s, killed", bound.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
    };
    // A grandchild left in the background may hold the pipes open for ever: do not wait for it.
    wait_for(Duration::from_secs(2), || {
        readers.iter().flatten().all(thread::JoinHandle::is_finished).then_some(())
    });
    let bytes = output.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Finished { status: status?, output: String::from_utf8_lossy(&bytes).into_owned() })
}

fn collect(mut stream: impl Read + Send + 'static, into: &Arc<Mutex<Vec<u8>>>) -> thread::JoinHandle<()> {
    let into = Arc::clone(into);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
        }
    })
}

/// The last `lines` non-empty lines, joined into one.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    all[all.len().saturating_sub(lines)..].join(" | ")
}
