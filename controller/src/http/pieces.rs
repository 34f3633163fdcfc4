//! Long answers from the log, made as they are read: a piece is fetched when the one before has gone out. A reader that
//! stops keeps one piece in memory and no connection to the database.

use std::future::Future;

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};

/// Bytes of stored entries after which a piece ends: 64 KiB. One entry may be longer by itself.
const PIECE_BYTES: u64 = 64 << 10;

/// Entries that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the first.
    pub from: u64,
    /// How many.
    pub count: u32,
}

/// Cuts entries from `from` on, of these sizes in bytes, into pieces.
pub fn cut(from: u64, sizes: &[u64]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut bytes = 0_u64;
    for (seq, size) in (from..).zip(sizes) {
        bytes = bytes.saturating_add(*size);
        match pieces.last_mut() {
            Some(piece) if bytes <= PIECE_BYTES => piece.count += 1,
            _ => {
                bytes = *size;
                pieces.push(Piece { from: seq, count: 1 });
            }
        }
    }
    pieces
}

/// How many of the first entries of these sizes have at most `most` bytes together; at least one if there is any.
pub fn fitting(sizes: &[u64], most: u64) -> usize {
    let mut bytes = 0_u64;
    let fit = sizes.iter().take_while(|size| {
        bytes = bytes.saturating_add(**size);
        bytes <= most
    });
    fit.count().max(1).min(sizes.len())
}

/// A body of `head`, what `fetch` makes of each piece, and `tail`. A failure breaks the answer off, which its reader
/// sees: the body does not end as it should.
pub fn body<F, R>(head: Vec<u8>, pieces: Vec<Piece>, tail: Vec<u8>, fetch: F) -> Body
where
    F: Fn(Piece) -> R + Send + 'static,
    R: Future<Output = sqlx::Result<Vec<u8>>> + Send + 'static,
{
    let middle = stream::iter(pieces).then(move |piece| {
        let fetched = fetch(piece);
        async move { fetched.await.inspect_err(|error| tracing::error!(%error, ?piece, "a long answer broke off")) }
    });
    let whole = stream::iter([Ok(head)]).chain(middle).chain(stream::iter([Ok(tail)]));
    Body::from_stream(whole.map(|bytes| bytes.map(Bytes::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_every_entry_once_and_none_is_long_unless_its_entry_is() {
        let piece = |from, count| Piece { from, count };
        assert_eq!(cut(7, &[]), []);
        assert_eq!(cut(7, &[10, 20, 30]), [piece(7, 3)]);
        let half = PIECE_BYTES / 2;
        assert_eq!(cut(0, &[half, half, 1, 9 * half, 1, 1]), [piece(0, 2), piece(2, 1), piece(3, 1), piece(4, 2)]);
    }

    #[test]
    fn a_page_has_one_entry_at_least_and_no_more_bytes_than_it_may() {
        assert_eq!(fitting(&[], 10), 0);
        assert_eq!(fitting(&[99], 10), 1);
        assert_eq!(fitting(&[4, 6, 1], 10), 2);
    }
}
