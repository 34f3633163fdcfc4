//! What is printed: tables for people, JSON for programs. Results go to stdout, everything else to stderr.

use std::io::{IsTerminal, Write};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use selion_api::Reason;
use selion_api::lease::NearestMiss;
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::unit::show_money;

/// Below this many columns a terminal gets plain tables.
const MIN_WIDTH: u16 = 60;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON value, or one a line where results come one by one.
    Json,
}

/// Where results go, and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The form.
    pub format: Format,
    plain: bool,
}

impl Output {
    /// Tables have lines only on a terminal that did not ask for plain text (`NO_COLOR`).
    pub fn new(format: Format) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { format, plain: no_color || !std::io::stdout().is_terminal() }
    }

    /// Whether programs read us.
    pub fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Prints `value`: as JSON, or as the text that `human` makes of it.
    pub fn show<T: Serialize>(self, value: &T, human: impl FnOnce(&T) -> String) -> Done {
        if self.is_json() { self.json(value) } else { line(human(value).trim_end()) }
    }

    /// Prints one line of JSON.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Done {
        let text = serde_json::to_string(value)
            .map_err(|error| Failure::new(Exit::Failure, "internal", error, "report this"))?;
        line(&text)
    }

    /// A table; without rows the sentence `empty`.
    pub fn table<const N: usize>(self, head: [&str; N], rows: Vec<[String; N]>, empty: &str) -> String {
        if rows.is_empty() {
            return empty.to_owned();
        }
        let mut table = Table::new();
        table.set_header(head).add_rows(&rows);
        // Some terminals do not know their width.
        let fits = !self.plain && table.width().is_some_and(|width| width >= MIN_WIDTH);
        if fits {
            table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
            // Sentences may wrap; ids must stay whole, to be copied.
            for (at, column) in table.column_iter_mut().enumerate() {
                if !rows.iter().any(|row| row[at].contains(' ')) {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        } else {
            // Programs cut at the header: each row is one line, however long.
            table.load_style(presets::NOTHING).force_no_tty().set_content_arrangement(ContentArrangement::Disabled);
            table.column_iter_mut().for_each(|column| {
                column.set_padding((0, 2));
            });
        }
        table.trim_fmt()
    }

    /// Tells people something beside the result.
    pub fn note(self, text: impl std::fmt::Display) {
        if !self.is_json() {
            // Nobody can be told that stderr is gone.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Shows a failure. `on_stdout`: as JSON there, where a result would have come; else on stderr.
    pub fn failure(self, failure: &Failure, on_stdout: bool) {
        if failure.is_silent() {
            return;
        }
        let body = failure.body();
        let mut stderr = std::io::stderr();
        if self.is_json() {
            let text = serde_json::json!({ "error": body }).to_string();
            let _ = if on_stdout { writeln!(std::io::stdout(), "{text}") } else { writeln!(stderr, "{text}") };
            return;
        }
        let _ = writeln!(stderr, "error: {} [{}]", body.detail, body.code);
        if let Some(near) = &body.nearest {
            let _ = writeln!(stderr, "  nearest: {}", nearest(near));
        }
        let _ = writeln!(stderr, "  next: {}", body.suggestion);
    }
}

/// The candidate that came closest, and by how much it missed, in the unit of its reason.
pub fn nearest(near: &NearestMiss) -> String {
    let gpu = near.gpu.map(|gpu| format!("{gpu} of ")).unwrap_or_default();
    let why = match (near.reason, near.need, near.have) {
        (Reason::PriceAboveMax, need, have) => {
            format!("asks {} an hour, the limit is {}", show_money(need.max(have)), show_money(need.min(have)))
        }
        (Reason::PaymentRequired, need, have) => {
            format!("it needs {} free in the deposit, there is {}", show_money(need), show_money(have))
        }
        (Reason::NoSeat | Reason::NoLicence, need, have) => {
            return format!("it needs {need} {}, there are {have}", if need == 1 { "seat" } else { "seats" });
        }
        (Reason::TooFar, need, have) if have >= u64::from(u32::MAX) => {
            format!("at most {need} us apart is asked for; how far it is was not measured")
        }
        (Reason::TooFar, need, have) => format!("at most {need} us apart is asked for, it is {have} us"),
        (reason, 0, 0) => reason.to_string(),
        (reason, need, have) => format!("{reason}, needs {need} and has {have}"),
    };
    format!("{gpu}node {}, {why}", near.node)
}

/// Prints a line on stdout.
pub fn line(text: &str) -> Done {
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    // A reader that has enough, such as `head`, is no fault worth words.
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::remote(Exit::Failure.code()),
        _ => Failure::new(Exit::Failure, "stdout", error, "check where stdout goes"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_table_has_no_borders_and_keeps_long_words_whole() {
        let output = Output { format: Format::Table, plain: true };
        let long = "x".repeat(300);
        let text = output.table(["ID", "NAME"], vec![["1".into(), long.clone()]], "none");
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains(&long) && !text.contains('─') && !text.contains('|'), "{text}");
        assert_eq!(output.table(["ID"], Vec::new(), "no leases yet"), "no leases yet");
    }
}
