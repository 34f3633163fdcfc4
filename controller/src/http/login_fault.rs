//! What can be wrong with a login: the faults of [`Problem::Login`](super::Problem), each with its face.

use axum::http::StatusCode as S;
use selion_api::rest::Scope;

use super::problem::{Face, face};
use super::siwe::SiweFault;
use crate::store::api_key::MOST;

/// Why somebody is not let in, or not further.
#[derive(Debug, PartialEq, Eq)]
pub enum LoginFault {
    /// A signed message that proves nothing here.
    Message(SiweFault),
    /// The nonce is not ours, was used, or has lapsed.
    BadNonce,
    /// The refresh token is unknown, lapsed, or of a session that ended.
    BadRefresh,
    /// The refresh token was used before.
    Reused,
    /// The login may not do this.
    MissingScope(Scope),
    /// The account has as many API keys as it may.
    TooManyKeys,
    /// Nobody decided on the device yet.
    Pending,
    /// The same, and the device asks too often.
    SlowDown,
    /// Somebody denied the device.
    Denied,
    /// The device's time is over.
    Lapsed,
    /// No such device waits.
    NoDevice,
}

impl LoginFault {
    pub(super) const fn face(&self) -> Face {
        const SIGN_AGAIN: &str = "POST /v1/auth/nonce with the account, sign the message that it gives, byte for byte";
        const START_AGAIN: &str = "start again: POST /v1/auth/device, or `selion login --device`";
        match self {
            Self::Message(SiweFault::Malformed(_)) => face(
                S::UNPROCESSABLE_ENTITY,
                "bad_message",
                "The message is not a login of EIP-4361.",
                SIGN_AGAIN,
                false,
            ),
            Self::Message(SiweFault::ForeignDomain { .. }) => face(
                S::UNAUTHORIZED,
                "foreign_domain",
                "The message was made for another site.",
                "if a page of another site asked you to sign it, do not go there again; log in at this controller's own \
                 address. Operators: public_url is the address that callers use",
                false,
            ),
            Self::Message(SiweFault::ForeignChain { .. }) => {
                face(S::UNAUTHORIZED, "foreign_chain", "The message is for another chain.", SIGN_AGAIN, false)
            }
            Self::Message(SiweFault::ForeignResource(_) | SiweFault::NoDevice) => {
                face(S::UNAUTHORIZED, "foreign_resource", "The message is about something else.", SIGN_AGAIN, false)
            }
            Self::Message(SiweFault::Expired(_)) => {
                face(S::UNAUTHORIZED, "message_expired", "The message's time is over.", SIGN_AGAIN, false)
            }
            Self::Message(SiweFault::TooEarly(_)) => face(
                S::UNAUTHORIZED,
                "message_early",
                "The message's time has not come.",
                "set the clock of the machine that made it, then sign a new one",
                false,
            ),
            Self::Message(SiweFault::Forged(_)) => face(
                S::UNPROCESSABLE_ENTITY,
                "bad_signature",
                "The signature is not the account's over these bytes.",
                SIGN_AGAIN,
                false,
            ),
            Self::BadNonce => face(
                S::UNAUTHORIZED,
                "bad_nonce",
                "The nonce is not this controller's, was used, or has lapsed.",
                "POST /v1/auth/nonce for a new one and sign its message within five minutes",
                false,
            ),
            Self::BadRefresh => face(
                S::UNAUTHORIZED,
                "bad_refresh_token",
                "The refresh token opens nothing any more.",
                "log in again: POST /v1/auth/nonce, sign, POST /v1/auth/siwe",
                false,
            ),
            Self::Reused => face(
                S::UNAUTHORIZED,
                "refresh_token_reused",
                "The refresh token was used before, so its session has been ended.",
                "log in again; if it was not you who used it, somebody has read your credentials: \
                 POST /v1/auth/logout-all, and revoke API keys",
                false,
            ),
            Self::MissingScope(_) => face(
                S::FORBIDDEN,
                "missing_scope",
                "This login may not do that.",
                "use a login or an API key with the scope that the detail names",
                false,
            ),
            Self::TooManyKeys => face(
                S::CONFLICT,
                "too_many_api_keys",
                "The account has as many API keys as it may.",
                "DELETE /v1/api-keys/{id} those that nobody uses; `used_ms` tells",
                false,
            ),
            Self::Pending => face(
                S::BAD_REQUEST,
                "authorization_pending",
                "Nobody has decided on this device yet.",
                "ask again after the interval",
                true,
            ),
            Self::SlowDown => face(
                S::BAD_REQUEST,
                "slow_down",
                "Nobody has decided on this device yet, and it asks too often.",
                "add five seconds to the interval, then ask again",
                true,
            ),
            Self::Denied => face(S::BAD_REQUEST, "access_denied", "The device was denied.", START_AGAIN, false),
            Self::Lapsed => {
                face(S::BAD_REQUEST, "expired_token", "The device's codes have lapsed.", START_AGAIN, false)
            }
            Self::NoDevice => face(
                S::NOT_FOUND,
                "no_such_device",
                "No device of that code waits.",
                "read the code again; it lapses after ten minutes and counts once",
                false,
            ),
        }
    }

    pub(super) fn detail(&self) -> String {
        match self {
            Self::Message(fault) => fault.to_string(),
            Self::BadNonce => "the nonce is not one that this controller gave and nobody used yet".to_owned(),
            Self::BadRefresh => "the refresh token is unknown, lapsed, or of a session that ended".to_owned(),
            Self::Reused => "each refresh token counts once, and this one was exchanged before".to_owned(),
            Self::MissingScope(scope) => format!("this takes the scope `{}`", scope.code()),
            Self::TooManyKeys => format!("{MOST} API keys are live"),
            Self::Pending | Self::SlowDown => "the code waits to be approved".to_owned(),
            Self::Denied => "whoever owns the account said no".to_owned(),
            Self::Lapsed => "the codes were good for ten minutes".to_owned(),
            Self::NoDevice => "the code is unknown, lapsed, or was decided on".to_owned(),
        }
    }
}
