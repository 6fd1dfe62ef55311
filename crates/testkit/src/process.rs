//! A child process under test: its lines, its signals, its end.
//!
//! It deliberately does not know what the process is, nor when it is ready: that is a line or a probe which the
//! test awaits.
//!
//! Invariant: no process outlives its [`Process`], not even a stopped one; and no wait for a line outlives the
//! process that would have to write it.

use std::collections::VecDeque;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::sync::watch;

use crate::wait::{BOUND, until, within};

/// Lines kept; beyond it the oldest are forgotten.
const MAX_LINES: usize = 10_000;

/// Lines shown when a wait for another one fails.
const SHOWN_LINES: usize = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Freezes the process; [`Process::signal`] returns once it is frozen.
    Stop,
    Cont,
    /// The polite request to shut down.
    Term,
    Kill,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Stop => "-STOP",
            Signal::Cont => "-CONT",
            Signal::Term => "-TERM",
            Signal::Kill => "-KILL",
        }
    }
}

/// Standard output and standard error, interleaved as they arrived.
#[derive(Default)]
struct Output {
    lines: VecDeque<String>,
    /// Lines that ever came, so that a mark stays valid when old lines are forgotten.
    count: usize,
    open_pipes: usize,
}

impl Output {
    fn push(&mut self, line: String) {
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.count += 1;
    }

    fn since(&self, mark: usize) -> impl Iterator<Item = &String> {
        let forgotten = self.count - self.lines.len();
        self.lines.iter().skip(mark.saturating_sub(forgotten))
    }
}

pub struct Process {
    child: Child,
    pid: u32,
    output: Arc<watch::Sender<Output>>,
}

impl Process {
    /// Starts the command with its output captured and its input empty.
    pub fn spawn(mut command: Command) -> io::Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let pid = child.id().ok_or_else(|| io::Error::other("a child without a pid"))?;
        let output = Arc::new(watch::Sender::new(Output { open_pipes: 2, ..Output::default() }));
        tokio::spawn(collect(child.stdout.take(), output.clone()));
        tokio::spawn(collect(child.stderr.take(), output.clone()));
        Ok(Process { child, pid, output })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Every line still kept, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.output.borrow().lines.iter().cloned().collect()
    }

    /// How many lines have come; with [`Process::line_since`] it tells a new line from an old one.
    pub fn mark(&self) -> usize {
        self.output.borrow().count
    }

    /// The first line that contains `text`, from the start of the process on.
    pub async fn line_containing(&self, text: &str) -> String {
        self.line_since(0, text).await
    }

    /// The first line after `mark` that contains `text`. Panics, with the last lines, after [`BOUND`] or as soon
    /// as the process has closed its output without writing it.
    pub async fn line_since(&self, mark: usize, text: &str) -> String {
        let mut output = self.output.subscribe();
        let found = |output: &Output| output.since(mark).find(|line| line.contains(text)).cloned();
        let awaited = output.wait_for(|output| output.open_pipes == 0 || found(output).is_some());
        if let Ok(Ok(output)) = tokio::time::timeout(BOUND, awaited).await
            && let Some(line) = found(&output)
        {
            return line;
        }
        panic!("process {} wrote no line with {text:?}; its last lines:\n{}", self.pid, self.tail());
    }

    /// Sends the signal. Fails when the process has already been waited for.
    pub async fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.child.id().is_none() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
        }
        let mut kill = tokio::process::Command::new("kill");
        let status = kill.arg(signal.name()).arg(self.pid.to_string()).status().await?;
        if !status.success() {
            return Err(io::Error::other(format!("kill {} {}: {status}", signal.name(), self.pid)));
        }
        if signal == Signal::Stop {
            // `kill` returns before the kernel has stopped a thread that runs on another core.
            until("the process is stopped", BOUND, async || self.is_stopped()).await;
        }
        Ok(())
    }

    /// Waits for the end; panics, with the last lines, when it does not come within `bound`.
    pub async fn wait_exit(&mut self, bound: Duration) -> ExitStatus {
        let what = format!("the end of process {}", self.pid);
        match within(&what, bound, self.child.wait()).await {
            Ok(status) => status,
            Err(error) => panic!("{what}: {error}; its last lines:\n{}", self.tail()),
        }
    }

    /// Whether every thread is stopped. The third field of `stat` follows the command's closing parenthesis.
    fn is_stopped(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        threads.flatten().all(|thread| {
            std::fs::read_to_string(thread.path().join("stat"))
                .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
        })
    }

    fn tail(&self) -> String {
        let output = self.output.borrow();
        let skipped = output.lines.len().saturating_sub(SHOWN_LINES);
        output.lines.iter().skip(skipped).map(|line| format!("  {line}\n")).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A pid that has not been waited for cannot have been given to another process.
        if let Ok(None) = self.child.try_wait() {
            let mut kill = Command::new("kill");
            let _ = kill.arg("-CONT").arg(self.pid.to_string()).stderr(Stdio::null()).status();
            let _ = self.child.start_kill();
        }
    }
}

async fn collect(pipe: Option<impl AsyncRead + Unpin>, output: Arc<watch::Sender<Output>>) {
    if let Some(pipe) = pipe {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        // Bytes, not `lines()`: a line that is not UTF-8 must not end the capture.
        while let Ok(1..) = reader.read_until(b'\n', &mut line).await {
            let text = String::from_utf8_lossy(&line);
            output.send_modify(|output| output.push(text.trim_end_matches(['\r', '\n']).to_owned()));
            line.clear();
        }
    }
    output.send_modify(|output| output.open_pipes -= 1);
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).env("GREETING", "hello");
        Process::spawn(command).unwrap()
    }

    #[tokio::test]
    async fn captures_both_streams_and_the_exit() {
        let mut process =
            shell(r#"echo "$GREETING out"; echo "$GREETING err" >&2; printf 'bad \377 byte\n'; exit 3"#);
        assert_eq!(process.line_containing("out").await, "hello out");
        assert_eq!(process.line_containing("err").await, "hello err");
        assert!(process.line_containing("bad").await.ends_with("byte"));
        assert_eq!(process.wait_exit(BOUND).await.code(), Some(3));
        assert!(process.signal(Signal::Term).await.is_err());
    }

    #[tokio::test]
    async fn a_mark_tells_new_lines_from_old() {
        let process = shell("trap 'echo tick' TERM; echo tick; echo ready; while :; do sleep 0.01; done");
        process.line_containing("ready").await;
        let mark = process.mark();
        process.signal(Signal::Term).await.unwrap();
        assert_eq!(process.line_since(mark, "tick").await, "tick");
        assert_eq!(process.lines().iter().filter(|line| *line == "tick").count(), 2);
    }

    #[tokio::test]
    async fn stops_continues_and_ends_by_signal() {
        let mut process = shell("echo ready; exec sleep 60");
        process.line_containing("ready").await;
        process.signal(Signal::Stop).await.unwrap();
        assert!(process.is_stopped());
        process.signal(Signal::Cont).await.unwrap();
        until("the process runs again", BOUND, async || !process.is_stopped()).await;
        process.signal(Signal::Term).await.unwrap();
        assert_eq!(process.wait_exit(BOUND).await.signal(), Some(15));
    }

    #[tokio::test]
    async fn a_stopped_process_dies_with_its_handle() {
        let process = shell("echo ready; exec sleep 60");
        process.line_containing("ready").await;
        process.signal(Signal::Stop).await.unwrap();
        let stat = format!("/proc/{}/stat", process.pid());
        drop(process);
        let gone = async || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        until("the process is gone", BOUND, gone).await;
    }

    #[tokio::test]
    #[should_panic(expected = "wrote no line with \"ready\"; its last lines:\n  broken\n")]
    async fn a_line_that_cannot_come_any_more_is_not_awaited() {
        shell("echo broken").line_containing("ready").await;
    }

    #[tokio::test]
    async fn forgets_the_oldest_lines_and_keeps_marks_valid() {
        let mut output = Output::default();
        for number in 0..MAX_LINES + 10 {
            output.push(number.to_string());
        }
        assert_eq!(output.lines.len(), MAX_LINES);
        assert_eq!(output.since(0).next().map(String::as_str), Some("10"));
        assert_eq!(output.since(MAX_LINES + 9).count(), 1);
        assert_eq!(output.since(MAX_LINES + 10).count(), 0);
    }
}
