//! How far a run is, on standard error: a bar that redraws itself on a terminal, else a line for each step.
//!
//! Deliberately unknown: what the steps do. The share is that of planned time, so the bar moves evenly.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Characters of the bar.
const WIDTH: usize = 24;

/// One run's bar.
#[derive(Debug)]
pub struct Progress {
    planned: Duration,
    done: Duration,
    began: Instant,
    redraws: bool,
    said: String,
}

impl Progress {
    /// For a run that is planned to take so long.
    pub fn new(planned: Duration) -> Self {
        let redraws = std::io::stderr().is_terminal();
        Self { planned, done: Duration::ZERO, began: Instant::now(), redraws, said: String::new() }
    }

    /// Something begins that is `detail` of `step`.
    pub fn show(&mut self, step: &str, detail: &str) {
        if self.redraws {
            let line = self.line(&format!("{step}: {detail}"));
            let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
        } else if self.said != step {
            eprintln!("{}", self.line(step));
            step.clone_into(&mut self.said);
        }
    }

    /// Something that was planned to take so long is over.
    pub fn advance(&mut self, planned: Duration) {
        self.done += planned;
    }

    /// Leaves the terminal's line free for what follows.
    pub fn end(&self) {
        if self.redraws {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }

    fn line(&self, text: &str) -> String {
        let share = (self.done.as_secs_f64() / self.planned.as_secs_f64().max(1e-9)).min(1.0);
        let full = (share * WIDTH as f64) as usize;
        let bar: String = (0..WIDTH).map(|at| if at < full { '█' } else { '░' }).collect();
        let seconds = self.began.elapsed().as_secs();
        format!("{bar} {:3.0} % {}:{:02}  {text}", share * 100.0, seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_with_planned_time_and_not_beyond() {
        let mut progress = Progress::new(Duration::from_secs(10));
        assert!(progress.line("x").starts_with("░░░░"));
        progress.advance(Duration::from_secs(5));
        let line = progress.line("fresh");
        assert_eq!(line.matches('█').count(), WIDTH / 2);
        assert!(line.contains("  50 % 0:00  fresh"), "{line}");
        progress.advance(Duration::from_secs(50));
        assert!(progress.line("x").contains(" 100 %"));
    }
}
