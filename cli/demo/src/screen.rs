//! What people see: a line for each step, live where there is a terminal; plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::fault::Fault;

/// How often the sign of life moves.
const BEAT: Duration = Duration::from_millis(80);

/// Where lines go: stdout for people; stderr when stdout is for programs.
pub(crate) struct Screen {
    json: bool,
    live: bool,
    spinner: Mutex<Option<ProgressBar>>,
}

impl Screen {
    pub fn new(json: bool) -> Self {
        let live = !json && std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { json, live, spinner: Mutex::default() }
    }

    /// Whether colours make sense.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// One line, or several. Nobody may be reading any more; the story goes on.
    pub fn say(&self, text: &str) {
        let spinner = self.spinner();
        match spinner.as_ref() {
            Some(spinner) => spinner.suspend(|| self.print(text)),
            None => self.print(text),
        }
    }

    /// Something beside the steps: a renter's log line.
    pub fn aside(&self, text: &str) {
        if self.live {
            self.say(&format!("    \u{1b}[2m{text}\u{1b}[0m"));
        } else {
            self.say(&format!("    {text}"));
        }
    }

    /// A picture or a table for people; programs find the same in the JSON.
    pub fn show(&self, text: &str) {
        if !self.json {
            self.say(text);
        }
    }

    /// A step begins.
    pub fn begin(&self, title: &str) {
        if !self.live {
            return;
        }
        let spinner = ProgressBar::new_spinner().with_message(title.to_owned());
        if let Ok(style) = ProgressStyle::with_template("{spinner:.cyan} {msg} {elapsed:.dim}") {
            spinner.set_style(style);
        }
        spinner.enable_steady_tick(BEAT);
        *self.spinner() = Some(spinner);
    }

    /// The step held.
    pub fn held(&self, title: &str, ms: u64) {
        self.end();
        let mark = if self.live { "\u{1b}[32m✓\u{1b}[0m" } else { "ok    " };
        self.print(&format!("{mark} {title} ({})", seconds(ms)));
    }

    /// The step did not hold.
    pub fn failed(&self, title: &str, ms: u64, fault: &Fault) {
        self.end();
        let mark = if self.live { "\u{1b}[31m✗\u{1b}[0m" } else { "FAILED" };
        self.print(&format!(
            "{mark} {title} ({})\n  expected: {}\n  found:    {}",
            seconds(ms),
            fault.expected,
            fault.found
        ));
    }

    /// The step is over, or cut short.
    pub fn end(&self) {
        if let Some(spinner) = self.spinner().take() {
            spinner.finish_and_clear();
        }
    }

    fn spinner(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        self.spinner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn print(&self, text: &str) {
        let _ = if self.json { writeln!(std::io::stderr(), "{text}") } else { writeln!(std::io::stdout(), "{text}") };
    }
}

/// `1.24 s`.
pub(crate) fn seconds(ms: u64) -> String {
    format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10)
}

/// Token base units of six decimals, as `1.25`: exact, at least two decimals.
pub(crate) fn money(base_units: u64) -> String {
    let part = format!("{:06}", base_units % 1_000_000);
    format!("{}.{:0<2}", base_units / 1_000_000, part.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_money_are_written_exactly() {
        assert_eq!(seconds(1_249), "1.24 s");
        assert_eq!(money(0), "0.00");
        assert_eq!(money(1), "0.000001");
        assert_eq!(money(12_500_000), "12.50");
    }
}
