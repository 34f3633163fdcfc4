//! The framing of records in the journal file: `length | check of length | check of payload | payload`.
//!
//! The length has a check of its own: else one damaged length would make all that follows look like a torn
//! tail, and acknowledged records would be dropped in silence.

use revm::primitives::keccak256;

/// First bytes of the file: name and version of the format.
pub(crate) const MAGIC: &[u8; 16] = b"selion-devchain\x01";
const HEADER: usize = 16;

/// The next thing in the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A sound payload, and the bytes after its frame.
    Payload(&'a [u8], &'a [u8]),
    /// Nothing more.
    End,
    /// A write that was cut short. It was never acknowledged.
    Torn,
    /// Damage to something that was once whole.
    Corrupt(&'static str),
}

/// The frame of `payload`. `None` if it is over 4 GiB.
pub(crate) fn frame(payload: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(payload.len()).ok()?.to_le_bytes();
    Some([&length[..], &keccak256(length)[..4], &keccak256(payload)[..8], payload].concat())
}

/// Reads the frame at the start of `bytes`.
pub(crate) fn next(bytes: &[u8]) -> Next<'_> {
    if bytes.is_empty() {
        return Next::End;
    }
    // After a power cut a file may have grown by zeros that were never filled. A true frame is never all zero.
    if bytes.iter().all(|byte| *byte == 0) {
        return Next::Torn;
    }
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
        return Next::Torn;
    };
    let [a, b, c, d, ..] = *header;
    let length = [a, b, c, d];
    if keccak256(length)[..4] != header[4..8] {
        return Next::Corrupt("has a damaged length");
    }
    let Some((payload, after)) =
        usize::try_from(u32::from_le_bytes(length)).ok().and_then(|at| rest.split_at_checked(at))
    else {
        return Next::Torn;
    };
    if keccak256(payload)[..8] != header[8..16] {
        return Next::Corrupt("does not match its checksum");
    }
    Next::Payload(payload, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_and_every_shorter_one_is_torn() {
        let frame = frame(b"some payload").unwrap();
        assert_eq!(next(&frame), Next::Payload(b"some payload", b""));
        for cut in 1..frame.len() {
            assert_eq!(next(&frame[..cut]), Next::Torn, "cut at {cut}");
        }
    }

    #[test]
    fn every_flipped_bit_is_seen_as_damage() {
        let frame = frame(b"some payload").unwrap();
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(next(&damaged), Next::Corrupt(_)), "bit {bit}");
        }
    }

    #[test]
    fn zeros_that_were_never_filled_are_a_torn_write() {
        assert_eq!(next(&[0; 300]), Next::Torn);
    }
}
