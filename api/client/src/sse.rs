//! Server-sent events, as far as our streams use them. Format: WHATWG HTML §9.2.6.

/// Longest line that is believed, in bytes: a log record of 1 MiB, each byte of it escaped.
const MAX_LINE: usize = 8 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// `event:`.
    pub kind: String,
    /// `data:`, its lines joined.
    pub data: String,
    /// `id:`, if the event had one.
    pub id: Option<String>,
}

/// Bytes in, events out.
#[derive(Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    after_cr: bool,
    event: Event,
    any: bool,
}

/// A line that does not end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Parser {
    /// The events that `bytes` complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            // CR, LF and CR LF all end a line.
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\n' | b'\r' => {
                    self.after_cr = *byte == b'\r';
                    events.extend(self.end_line());
                }
                byte => {
                    self.after_cr = false;
                    if self.line.len() >= MAX_LINE {
                        return Err(TooLong);
                    }
                    self.line.push(*byte);
                }
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.any).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.kind = value.to_owned(),
            "id" => self.event.id = Some(value.to_owned()),
            "data" => {
                if self.any {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.any = true;
            }
            // Comments and fields that we do not use.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let text = ": keep-alive\n\nevent: line\r\nid: 1.0.7\r\ndata: {\"a\":1}\r\n\r\ndata:x\ndata: y\n\n";
        let whole = Parser::default().feed(text.as_bytes()).unwrap();
        let mut parser = Parser::default();
        let single: Vec<Event> = text.as_bytes().chunks(1).flat_map(|byte| parser.feed(byte).unwrap()).collect();
        assert_eq!(whole, single);
        let line = Event { kind: "line".to_owned(), data: "{\"a\":1}".to_owned(), id: Some("1.0.7".to_owned()) };
        let plain = Event { data: "x\ny".to_owned(), ..Event::default() };
        assert_eq!(whole, [line, plain]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        assert_eq!(Parser::default().feed(&vec![b'x'; MAX_LINE + 1]), Err(TooLong));
    }
}
