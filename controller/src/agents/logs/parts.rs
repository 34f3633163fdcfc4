//! A record that is longer than a message comes in parts.

use selion_api::agent::{LogChunk, MAX_RECORD};

/// The record of a link whose parts come at present: at most one.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    begun: Option<LogChunk>,
}

impl Parts {
    /// The chunk with its records whole. `None` for a part that is not the last, and for one whose beginning is not here:
    /// the agent sends that again.
    ///
    /// # Errors
    ///
    /// What the agent did that no agent of ours does.
    pub(crate) fn join(&mut self, mut chunk: LogChunk) -> Result<Option<LogChunk>, &'static str> {
        if chunk.from > 0 {
            let Some(mut begun) = self.begun.take().filter(|begun| continues(begun, &chunk)) else { return Ok(None) };
            let (Some(whole), Some(part)) = (begun.records.first_mut(), chunk.records.first_mut()) else {
                return Ok(None);
            };
            whole.bytes.append(&mut part.bytes);
            if whole.bytes.len() > MAX_RECORD {
                return Err("a log record above its limit");
            }
            std::mem::swap(whole, part);
            chunk.from = 0;
        }
        if !chunk.more {
            return Ok(Some(chunk));
        }
        if chunk.records.len() != 1 {
            return Err("a part of a log record among others");
        }
        self.begun = Some(chunk);
        Ok(None)
    }
}

/// Whether `chunk` goes on where `begun` ended.
fn continues(begun: &LogChunk, chunk: &LogChunk) -> bool {
    let of = |chunk: &LogChunk| (chunk.lease, chunk.attempt, chunk.member, chunk.first);
    let source = |chunk: &LogChunk| chunk.records.first().map(|record| record.source);
    let len = begun.records.first().map(|record| record.bytes.len());
    of(begun) == of(chunk) && source(begun) == source(chunk) && len == usize::try_from(chunk.from).ok()
}

#[cfg(test)]
mod tests {
    use selion_api::LeaseId;
    use selion_api::agent::{LogRecord, LogSource};

    use super::*;

    fn part(from: u32, more: bool, text: &str) -> LogChunk {
        let records = vec![LogRecord { source: LogSource::Stdout, bytes: text.as_bytes().to_vec() }];
        let lease = LeaseId { seq: 1, index: 0 };
        LogChunk { lease, attempt: 1, member: 0, first: 7, from, more, records, end: false }
    }

    #[test]
    fn parts_in_order_are_one_record() {
        let mut parts = Parts::default();
        assert_eq!(parts.join(part(0, true, "one ")), Ok(None));
        assert_eq!(parts.join(part(4, true, "long ")), Ok(None));
        let other = LogChunk { member: 1, ..part(0, false, "in between\n") };
        assert_eq!(parts.join(other.clone()), Ok(Some(other)));
        assert_eq!(parts.join(part(9, false, "line\n")), Ok(Some(part(0, false, "one long line\n"))));
        assert_eq!(parts.join(part(0, false, "short\n")), Ok(Some(part(0, false, "short\n"))));
    }

    #[test]
    fn a_part_without_its_beginning_is_left_and_none_grows_for_ever() {
        let mut parts = Parts::default();
        assert_eq!(parts.join(part(4, false, "line\n")), Ok(None));
        assert_eq!(parts.join(part(0, true, "one ")), Ok(None));
        assert_eq!(parts.join(part(3, false, "line\n")), Ok(None));
        let half = "x".repeat(MAX_RECORD / 2);
        assert_eq!(parts.join(part(0, true, &half)), Ok(None));
        assert_eq!(parts.join(part(MAX_RECORD as u32 / 2, true, &half)), Ok(None));
        assert!(parts.join(part(MAX_RECORD as u32, true, "x")).is_err());
    }
}
