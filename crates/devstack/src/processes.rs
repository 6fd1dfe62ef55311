//! Other processes: who lives, whose child, and signals to them.
//!
//! Signals go through the shell's own `kill`: std has none without `unsafe`, and slim images have no
//! `kill` program. A process that has ended but is not reaped yet counts as gone.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::poll::wait_until;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    parent: u32,
    state: char,
}

/// Whether the process runs (or is stopped); false also for a zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| !is_ended(state))
}

/// Ended, but its parent has not asked yet: the number still counts as taken.
pub(crate) fn is_zombie(pid: u32) -> bool {
    state(pid).is_some_and(is_ended)
}

fn is_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

pub(crate) fn is_stopped(pid: u32) -> bool {
    state(pid).is_none_or(|state| is_ended(state) || matches!(state, 'T' | 't'))
}

fn state(pid: u32) -> Option<char> {
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        return parse_stat(pid, &stat).map(|process| process.state);
    }
    if Path::new("/proc/self/stat").exists() {
        return None;
    }
    all().into_iter().find(|process| process.pid == pid).map(|process| process.state)
}

/// Children, their children, and so on; without the process itself.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let all = all();
    let mut found = vec![of];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(all.iter().filter(|p| p.parent == parent && p.pid != parent).map(|p| p.pid));
        next += 1;
    }
    found.split_off(1)
}

/// The name of the program that the process runs, without its folder.
pub(crate) fn program(pid: u32) -> Option<String> {
    if let Ok(name) = fs::read_to_string(format!("/proc/{pid}/comm")) {
        return Some(name.trim().to_owned());
    }
    let output = Command::new("ps").args(["-o", "comm=", "-p", &pid.to_string()]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Sends the signal (`KILL`, `STOP`, …) to all; those already gone are passed over.
pub(crate) fn signal(name: &str, pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    let mut kill = Command::new("sh");
    kill.args(["-c", "for p; do kill -s \"$0\" \"$p\"; done", name]);
    kill.args(pids.iter().map(u32::to_string));
    // Nothing to do about a failure: every caller then waits, bounded, for the effect.
    let _ = kill.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Stops the process, then all its descendants: a stopped parent cannot fork a further one meanwhile.
pub(crate) fn freeze(pid: u32) -> Vec<u32> {
    const BOUND: Duration = Duration::from_secs(5);
    signal("STOP", &[pid]);
    let _ = wait_until(BOUND, || is_stopped(pid));
    let children = descendants(pid);
    signal("STOP", &children);
    let _ = wait_until(BOUND, || children.iter().all(|child| is_stopped(*child)));
    children
}

fn all() -> Vec<Process> {
    match fs::read_dir("/proc") {
        Ok(entries) => entries
            .filter_map(|entry| {
                let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
                parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
            })
            .collect(),
        // macOS.
        Err(_) => match Command::new("ps").args(["-A", "-o", "pid=,ppid=,state="]).output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).lines().filter_map(parse_ps).collect(),
            Err(_) => Vec::new(),
        },
    }
}

fn parse_stat(pid: u32, stat: &str) -> Option<Process> {
    // The program's name stands in parentheses and may itself hold some, and spaces.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some(Process { pid, parent: fields.next()?.parse().ok()?, state })
}

fn parse_ps(line: &str) -> Option<Process> {
    let mut fields = line.split_whitespace();
    let (pid, parent) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Process { pid, parent, state: fields.next()?.chars().next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_process_lists() {
        let linux = parse_stat(7, "7 (a (b) c) T 3 7 7 0 -1");
        assert_eq!(linux, Some(Process { pid: 7, parent: 3, state: 'T' }));
        assert_eq!(parse_ps("  7     3 Ss+"), Some(Process { pid: 7, parent: 3, state: 'S' }));
    }

    #[test]
    fn a_reaped_child_is_gone() {
        let mut child = Command::new("sh").args(["-c", "read _"]).stdin(Stdio::piped()).spawn().expect("sh");
        assert!(is_alive(child.id()));
        assert!(descendants(std::process::id()).contains(&child.id()));
        child.kill().expect("kill");
        assert!(wait_until(Duration::from_secs(5), || !is_alive(child.id())), "a zombie counts as gone");
        child.wait().expect("wait");
        assert!(!is_alive(child.id()));
    }
}
