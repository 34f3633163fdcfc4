//! A body that holds something until it was sent or given up: a place, a count, an allowance of bytes.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};

/// `body`, with what is let go of when it ends.
pub struct Held<T> {
    body: Body,
    _held: T,
}

impl<T: Send + Unpin + 'static> Held<T> {
    /// `body`; `held` is dropped with it.
    pub fn body(body: Body, held: T) -> Body {
        Body::new(Self { body, _held: held })
    }
}

impl<T: Unpin> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
