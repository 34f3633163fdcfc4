//! From a pipe to lines.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest line in bytes; a longer one is cut into pieces of this length.
pub const MAX_LINE: usize = 8 << 10;

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
    /// True after a piece of a long line was given out: the rest of it may be empty and is then no line.
    cut: bool,
}

impl Lines {
    /// Takes `bytes`, gives every line that is whole now, without its line end. What is not UTF-8 is replaced.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(String)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (body, ends) = match part.strip_suffix(b"\n") {
                Some(body) => (body, true),
                None => (part, false),
            };
            self.partial.extend_from_slice(body);
            while self.partial.len() > MAX_LINE {
                let rest = self.partial.split_off(char_start(&self.partial, MAX_LINE));
                line(text(&std::mem::replace(&mut self.partial, rest)));
                self.cut = true;
            }
            if ends {
                self.end(&mut line);
            }
        }
    }

    /// The stream is over: gives the last line if it had no line end.
    pub fn finish(&mut self, mut line: impl FnMut(String)) {
        if !self.partial.is_empty() {
            self.end(&mut line);
        }
    }

    fn end(&mut self, line: &mut impl FnMut(String)) {
        let body = std::mem::take(&mut self.partial);
        if !(std::mem::take(&mut self.cut) && body.is_empty()) {
            line(text(body.strip_suffix(b"\r").unwrap_or(&body)));
        }
    }
}

/// Reads `from` to its end and gives every line to `line`.
pub async fn read_lines(mut from: impl AsyncRead + Unpin, mut line: impl FnMut(String)) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; 16 << 10];
    // A pipe that fails is over.
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        lines.push(&buffer[..read], &mut line);
    }
    lines.finish(&mut line);
}

/// The last place at or before `at` where a UTF-8 character begins, but at most 3 bytes earlier.
fn char_start(bytes: &[u8], at: usize) -> usize {
    let is_inside = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (at.saturating_sub(3)..=at).rev().find(|at| !is_inside(at)).unwrap_or(at)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(chunk, |line| out.push(line));
        }
        lines.finish(|line| out.push(line));
        out
    }

    #[test]
    fn a_line_may_come_in_pieces_and_the_last_needs_no_end() {
        assert_eq!(cut(&[b"on", b"e\ntwo\r\n\nthr", b"ee"]), ["one", "two", "", "three"]);
    }

    #[test]
    fn a_line_without_end_is_cut_and_memory_stays_bounded() {
        let long = vec![b'x'; MAX_LINE * 2 + 5];
        let lines = cut(&[&long, b"\n", b"next\n"]);
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [MAX_LINE, MAX_LINE, 5, 4]);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_one_line() {
        let mut exact = vec![b'x'; MAX_LINE];
        exact.push(b'\n');
        assert_eq!(cut(&[&exact]).len(), 1);
    }

    #[test]
    fn a_cut_does_not_split_a_character() {
        let mut text = "x".repeat(MAX_LINE - 1);
        text.push('é');
        text.push('y');
        let lines = cut(&[text.as_bytes()]);
        assert_eq!(lines[0].len(), MAX_LINE - 1);
        assert_eq!(lines[1], "éy");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(cut(&[b"a\xffb\n"]), ["a\u{fffd}b"]);
    }

    #[tokio::test]
    async fn a_stream_is_read_to_its_end() {
        let mut out = Vec::new();
        read_lines(&b"a\nb"[..], |line| out.push(line)).await;
        assert_eq!(out, ["a", "b"]);
    }
}
