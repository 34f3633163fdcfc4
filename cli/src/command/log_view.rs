//! What members print, where it belongs: stdout to stdout, stderr to stderr, the agent's own words to stderr.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use selion_api::agent::LogSource;
use selion_api::rest::LogLine;

use crate::failure::Done;
use crate::output::{Output, bytes, printable};

/// Longest unfinished line of a gang's member that is held back, in bytes.
const LONGEST_HELD: usize = 1 << 20;

/// Prints lines. A program that reads us gets the bytes as they were printed; a terminal gets no control characters, for
/// they could do to it what they like; members of a gang are told apart line by line. `--raw` gives every reader the
/// bytes.
pub struct Printer {
    out: Output,
    raw: bool,
    gang: bool,
    /// Whether stdout, and stderr, is a terminal.
    terminals: [bool; 2],
    /// Of a gang: lines that are not finished yet.
    held: BTreeMap<(u16, LogSource), Vec<u8>>,
    attempt: Option<u32>,
}

impl Printer {
    /// A printer of what the members of one lease print.
    pub fn new(out: Output, gang: bool, raw: bool) -> Self {
        let terminals = [std::io::stdout().is_terminal(), std::io::stderr().is_terminal()];
        Self { out, raw, gang, terminals, held: BTreeMap::new(), attempt: None }
    }

    /// Prints one.
    pub fn print(&mut self, log: &LogLine) -> Done {
        if self.out.is_json() {
            return self.out.json(log);
        }
        let earlier = self.attempt.replace(log.attempt);
        if earlier.is_some_and(|earlier| earlier != log.attempt) {
            self.out.note(format!("run {} begins", log.attempt));
        }
        if log.source == LogSource::Agent {
            self.out.note(format!("agent: {}", printable(&log.text)));
            return Ok(());
        }
        let text = text_of(log);
        if !self.gang || self.raw {
            return self.write(log.source, &text);
        }
        let held = self.held.entry((log.member, log.source)).or_default();
        held.extend_from_slice(&text);
        if log.partial && held.len() < LONGEST_HELD {
            return Ok(());
        }
        let whole = std::mem::take(held);
        self.write_of_member(log.member, log.source, whole)
    }

    /// Prints what was held back: nothing follows it.
    pub fn finish(&mut self) -> Done {
        for ((member, source), rest) in std::mem::take(&mut self.held) {
            if !rest.is_empty() {
                self.write_of_member(member, source, rest)?;
            }
        }
        Ok(())
    }

    fn write_of_member(&self, member: u16, source: LogSource, mut line: Vec<u8>) -> Done {
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        let mut text = format!("[{member}] ").into_bytes();
        text.append(&mut line);
        self.write(source, &text)
    }

    fn write(&self, source: LogSource, text: &[u8]) -> Done {
        let [stdout, stderr] = self.terminals;
        if source == LogSource::Stdout {
            return bytes(&shown(text, stdout && !self.raw));
        }
        // Nobody can be told that stderr is gone.
        let _ = std::io::stderr().write_all(&shown(text, stderr && !self.raw));
        Ok(())
    }
}

/// The bytes that were printed.
fn text_of(log: &LogLine) -> Vec<u8> {
    use base64::Engine;
    let decoded = |text: &String| base64::engine::general_purpose::STANDARD.decode(text).ok();
    let mut bytes = log.bytes_base64.as_ref().and_then(decoded).unwrap_or_else(|| log.text.clone().into_bytes());
    if !log.partial {
        bytes.push(b'\n');
    }
    bytes
}

/// For a terminal without control characters but those of lines and columns; for others as it is.
fn shown(text: &[u8], terminal: bool) -> std::borrow::Cow<'_, [u8]> {
    if !terminal {
        return text.into();
    }
    let lossy = String::from_utf8_lossy(text);
    let mut shown = String::with_capacity(lossy.len());
    // A carriage return draws a progress bar anew; it can do no more than that.
    for part in lossy.split_inclusive(['\n', '\r', '\t']) {
        let body = part.trim_end_matches(['\n', '\r', '\t']);
        shown.push_str(&printable(body));
        shown.push_str(&part[body.len()..]);
    }
    shown.into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, partial: bool, bytes_base64: Option<&str>) -> LogLine {
        LogLine {
            attempt: 1,
            member: 0,
            line: 0,
            source: LogSource::Stdout,
            text: text.into(),
            partial,
            bytes_base64: bytes_base64.map(Into::into),
        }
    }

    #[test]
    fn the_bytes_come_back_as_they_were_printed() {
        assert_eq!(text_of(&line("a\r", false, None)), b"a\r\n");
        assert_eq!(text_of(&line("\r 10%", true, None)), b"\r 10%");
        assert_eq!(text_of(&line("a\u{fffd}", false, Some("Yf8="))), b"a\xff\n");
    }

    #[test]
    fn a_terminal_gets_no_escapes_and_everybody_else_the_bytes() {
        let evil = b"\x1b]0;owned\x07\x9bred\ttab\r 10%\xff\n";
        assert_eq!(&*shown(evil, false), evil);
        let safe = String::from_utf8(shown(evil, true).into_owned()).unwrap();
        assert!(!safe.chars().any(|letter| letter.is_control() && !['\n', '\r', '\t'].contains(&letter)), "{safe:?}");
        assert!(safe.contains("owned") && safe.ends_with('\n') && safe.contains("\ttab\r 10%"), "{safe:?}");
    }
}
