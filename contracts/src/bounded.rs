//! The body of an HTTP answer, no longer than its reader can bear.

use reqwest::Response;

/// Why an answer was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// It broke off, or took too long.
    #[error(transparent)]
    Broken(#[from] reqwest::Error),
    /// It goes on after the longest that is read.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
}

/// The whole body, of at most so many bytes.
///
/// # Errors
///
/// [`Unread`]; of a body that is too long no more than that is read.
pub async fn body(mut answer: Response, most: usize) -> Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if bytes.len() + chunk.len() > most {
            return Err(Unread::TooLong(most));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
