//! A socket with messages on it, and why a link ends.

use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use selion_api::Reason;
use selion_api::agent::{SILENCE_MS, ToAgent, ToController};
use selion_api::commit::canonical;
use tokio::time::timeout;

use super::core::CoreError;
use super::hello::Refused;
use crate::sequencer::SubmitError;

/// How long one message may take to leave.
const SEND_WITHIN: Duration = Duration::from_millis(SILENCE_MS);

/// Why a link ended.
#[derive(Debug)]
pub(super) enum End {
    /// The agent is to be told why.
    Refused(Refused),
    /// The socket closed, failed or was too slow; or the controller lets it go.
    Closed(String),
}

impl End {
    pub(super) fn why(&self) -> &str {
        match self {
            Self::Refused(refused) => &refused.detail,
            Self::Closed(why) => why,
        }
    }
}

impl From<CoreError> for End {
    fn from(error: CoreError) -> Self {
        Self::Closed(error.to_string())
    }
}

impl From<SubmitError> for End {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Fenced(_) => Self::Refused(Refused::new(Reason::StaleFence, error.to_string())),
            SubmitError::Unavailable(_) | SubmitError::Stopped => Self::Closed(error.to_string()),
        }
    }
}

/// Messages over a socket.
pub(super) struct Wire(pub(super) WebSocket);

/// What came over a socket.
pub(super) struct Came {
    /// `None` for a frame that only shows that the agent is there.
    pub(super) message: Option<ToController>,
    /// Its length.
    pub(super) bytes: usize,
}

impl Wire {
    pub(super) async fn send(&mut self, message: &ToAgent) -> Result<(), End> {
        let frame = Message::Binary(canonical(message).into());
        match timeout(SEND_WITHIN, self.0.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(End::Closed(error.to_string())),
            Err(_) => Err(End::Closed("the agent does not read".into())),
        }
    }

    /// What comes next.
    pub(super) async fn next(&mut self) -> Result<Came, End> {
        let frame = self.0.recv().await;
        match frame {
            None | Some(Ok(Message::Close(_))) => Err(End::Closed("the agent closed it".into())),
            Some(Err(error)) => Err(End::Closed(error.to_string())),
            Some(Ok(Message::Ping(sign) | Message::Pong(sign))) => Ok(Came { message: None, bytes: sign.len() }),
            Some(Ok(Message::Text(_))) => Err(malformed("a text frame")),
            Some(Ok(Message::Binary(bytes))) => Ok(Came { message: Some(decode(&bytes)?), bytes: bytes.len() }),
        }
    }

    /// Tells why, where there is something to tell, and closes.
    pub(super) async fn farewell(&mut self, end: End) {
        if let End::Refused(Refused { reason, detail }) = end {
            // An agent that is gone cannot be told.
            drop(self.send(&ToAgent::Refused { reason, detail }).await);
        }
        drop(timeout(SEND_WITHIN, self.0.send(Message::Close(None))).await);
    }
}

/// The message in these bytes, if it is no longer than its kind may be.
fn decode(bytes: &[u8]) -> Result<ToController, End> {
    let most = bytes.first().and_then(|kind| ToController::most_bytes(*kind));
    match most {
        Some(most) if bytes.len() > most => {
            Err(malformed(&format!("a message of {} bytes where {most} are the most", bytes.len())))
        }
        Some(_) => borsh::from_slice(bytes).map_err(|_| malformed("bytes that are no message of this version")),
        None => Err(malformed("bytes that are no message of this version")),
    }
}

pub(super) fn malformed(what: &str) -> End {
    End::Refused(Refused::new(Reason::BadRequest, format!("the agent sent {what}; run the same release on both sides")))
}
