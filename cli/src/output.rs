//! What is printed: tables for people, JSON for programs. Results go to stdout, everything else to stderr.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use selion_api::TimeMs;
use selion_api::lease::{NearestMiss, Resource};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::{Body, Done, Failure};
use crate::unit::{show_money, show_size, show_time};

/// Below this many columns a terminal gets plain tables.
const MIN_WIDTH: u16 = 60;

/// Whether people are told nothing beside results, since programs read us.
static QUIET: AtomicBool = AtomicBool::new(false);

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
        QUIET.store(format == Format::Json, Ordering::Relaxed);
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
        let rows: Vec<[String; N]> =
            rows.into_iter().map(|row| row.map(|cell| printable(&cell).into_owned())).collect();
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
        let _ = writeln!(stderr, "{}", told(body));
    }
}

/// A failure as people read it. Most of it may be a controller's, or of whoever answers in its place.
fn told(body: &Body) -> String {
    let mut told = vec![format!("error: {} [{}]", lines(&body.detail), printable(&body.code))];
    if let Some(near) = &body.nearest {
        told.push(format!("  nearest: {}", printable(&nearest(near))));
    }
    for names in &body.unmatched {
        let there = if names.there.is_empty() { "nothing".to_owned() } else { names.there.join(", ") };
        let (asked, there) = (names.asked.join(", "), printable(&there).into_owned());
        told.push(format!("  {}: {} matches nothing; there is: {there}", names.constraint.code(), printable(&asked)));
    }
    if let Some(blocking) = &body.blocking {
        told.push(format!("  {}", crate::command::quote_view::blocking(blocking)));
    }
    if let Some(means) = &body.means {
        let until = if means.grant_until_ms.0 == 0 {
            String::new()
        } else {
            format!(" until {}", show_time(means.grant_until_ms))
        };
        let (deposit, grant) = (show_money(means.deposit.0), show_money(means.grant.0));
        told.push(format!("  account: {deposit} free in the deposit; the grant may sign for {grant}{until}"));
    }
    told.push(format!("  next: {}", lines(&body.suggestion)));
    told.join("\n")
}

/// The text as a terminal may be given it: what would move a cursor, change a title or end the line is shown as an escape.
/// For everything that somebody else wrote.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Beside control characters: marks that turn the direction of writing, and line separators of Unicode.
    let hidden = |char: char| {
        char.is_control() || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let escape = |char: char| if hidden(char) { char.escape_default().to_string() } else { char.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Several lines, each as [`printable`].
fn lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Tells people what becomes of a call that is under way.
pub fn notice(text: &str) {
    if !QUIET.load(Ordering::Relaxed) {
        // Nobody can be told that stderr is gone.
        let _ = writeln!(std::io::stderr(), "{}", lines(text));
    }
}

/// The candidate that came closest, and by how much it missed, in the unit of its reason.
pub fn nearest(near: &NearestMiss) -> String {
    let gpu = near.gpu.map(|gpu| format!("{gpu} of ")).unwrap_or_default();
    let Some(resource) = near.resource else {
        return format!("{gpu}node {}, {}", near.node, near.reason);
    };
    match short_of(resource, near.need, near.have) {
        (Side::Renter, why) => why,
        (Side::Node, why) => format!("{gpu}node {}, {why}", near.node),
    }
}

/// Whom a shortage is about.
enum Side {
    /// What the account has: it is short wherever the lease goes.
    Renter,
    /// What the candidate has.
    Node,
}

/// So much is asked of something, so much there is, in the units that the command line takes.
fn short_of(resource: Resource, need: u64, have: u64) -> (Side, String) {
    use Resource as R;
    let node = |what: &str, need: String, have: String| (Side::Node, format!("{need} {what} asked for, {have} there"));
    let cores = |milli: u64| {
        format!("{}.{:03}", milli / 1_000, milli % 1_000).trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let count = |what| node(what, need.to_string(), have.to_string());
    match resource {
        R::CpuMilli => node("CPU cores", cores(need), cores(have)),
        R::RamBytes => node("of memory", show_size(need), show_size(have)),
        R::DiskBytes => node("of disk", show_size(need), show_size(have)),
        R::GpuMemBytes => node("of GPU memory", show_size(need), show_size(have)),
        R::ComputePermille => node("of a GPU's compute", format!("{need}‰"), format!("{have}‰")),
        R::NetMbps => count("Mbit/s of network bandwidth"),
        R::Ports => count("ports"),
        R::Gpus => count("GPUs"),
        R::MigSlices => count("MIG memory slices"),
        R::Slots => count("slices of that kind"),
        R::Members => count("members that want the same"),
        R::Nodes => count("nodes"),
        R::Datasets => count("datasets"),
        R::Seats => {
            let seats = if need == 1 { "seat" } else { "seats" };
            (Side::Renter, format!("it needs {need} {seats}, there are {have}"))
        }
        R::LatencyUs if have >= u64::from(u32::MAX) => {
            (Side::Node, format!("at most {need} us apart is asked for; how far it is was not measured"))
        }
        R::LatencyUs => (Side::Node, format!("at most {need} us apart is asked for, it is {have} us")),
        R::Rate => (
            Side::Node,
            format!("asks {} an hour, the limit is {}", show_money(need.max(have)), show_money(need.min(have))),
        ),
        R::Deposit => {
            let (need, have) = (show_money(need), show_money(have));
            (Side::Renter, format!("it needs {need} free in the deposit, there is {have}"))
        }
        R::Grant if have == 0 => {
            (Side::Renter, format!("it needs a grant of {} to the pool's key, there is none", show_money(need)))
        }
        R::Grant => {
            let (need, have) = (show_money(need), show_money(have));
            (Side::Renter, format!("it needs {need} of the grant to the pool's key, {have} is left of it"))
        }
        R::GrantUntilMs => {
            let (need, have) = (show_time(TimeMs(need)), show_time(TimeMs(have)));
            (Side::Renter, format!("it may run until {need}, the grant to the pool's key ends at {have}"))
        }
        R::FreeUse => {
            let (need, have) = (show_money(need), show_money(have));
            (Side::Renter, format!("{need} worth was had without a bill in a day, the deposit allows {have}"))
        }
        R::TimeMs => {
            let (need, have) = (show_time(TimeMs(need)), show_time(TimeMs(have)));
            (Side::Node, format!("it would end by {need}, the place is booked from {have}"))
        }
    }
}

/// Prints a line on stdout.
pub fn line(text: &str) -> Done {
    bytes(format!("{text}\n").as_bytes())
}

/// Prints bytes on stdout.
pub fn bytes(text: &[u8]) -> Done {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text).and_then(|()| stdout.flush());
    // A reader that has enough, such as `head`, is no fault worth words.
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::remote(Exit::Failure.code()),
        _ => Failure::new(Exit::Failure, "stdout", error, "check where stdout goes"),
    })
}

#[cfg(test)]
mod tests {
    use selion_api::blocking::Constraint;
    use selion_api::rest::Unmatched;

    use super::*;

    #[test]
    fn what_somebody_else_wrote_cannot_move_the_cursor_or_end_the_line() {
        assert_eq!(printable("H100 80GB, caf\u{e9}"), "H100 80GB, caf\u{e9}");
        assert_eq!(printable("\u{1b}]0;owned\u{7}a\nb\rc\u{202e}"), "\\u{1b}]0;owned\\u{7}a\\nb\\rc\\u{202e}");
        let output = Output { format: Format::Table, plain: true };
        let text = output.table(["REGION"], vec![["eu\u{1b}[2J\n0 attacker".into()]], "none");
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn no_part_of_a_controllers_problem_reaches_the_terminal_as_it_is() {
        let evil = || "s\u{1b}]0;owned\u{7}\u{1b}[2J".to_owned();
        let unmatched = vec![Unmatched { constraint: Constraint::Models, asked: vec![evil()], there: vec![evil()] }];
        let (errors, nearest, blocking, means, trace_id) = (Vec::new(), None, None, None, None);
        let (code, detail, suggestion) = (evil(), evil(), evil());
        let text =
            told(&Body { exit: 5, code, detail, suggestion, errors, nearest, blocking, unmatched, means, trace_id });
        assert!(!text.contains(['\u{1b}', '\u{7}']) && text.contains("owned"), "{text:?}");
        assert_eq!(text.lines().count(), 3, "{text:?}");
    }

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
