//! Everything an endpoint can answer instead of success: the one file that knows status, code and remedy of each.

use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use selion_api::lease::{LeaseState, Refusal};
use selion_api::rest::{self, FieldError};
use selion_api::{LeaseId, Reason};
use selion_dataplane::StoreError as ContentError;

use super::explain::Explained;
use super::login_fault::LoginFault;
use super::refused::{not_relayed, refused};
use super::secrets::TokenFault;
use crate::relay::{RelayError, judge as relay};
use crate::sequencer::SubmitError;

/// Media type of every problem (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";
/// What the code is appended to: a name, not a page.
const PAGES: &str = "urn:selion:problem:";

/// A problem. The cause of an inner failure goes to the log, never to the caller.
#[derive(Debug)]
pub enum Problem {
    /// No bearer token.
    NoToken,
    /// A bearer token that is not good.
    BadToken(TokenFault),
    /// A good token of the wrong kind; names the right one.
    WrongCaller(&'static str),
    /// `POST /v1/auth/token` without a known API key.
    BadApiKey,
    /// Something about a login.
    Login(LoginFault),
    /// A signature that is not the account's; the pointer of the field that holds it.
    BadSignature(&'static str),
    /// There is no such thing; what, and the id as given.
    NotFound(&'static str, String),
    /// It belongs to another account; what, and the id as given.
    NotYours(&'static str, String),
    /// No such path.
    NoRoute(String),
    /// The path exists, the method does not.
    MethodNotAllowed(Method),
    /// The body is not JSON at all.
    NotJson(String),
    /// Another `Content-Type` than the endpoint takes; names those.
    MediaType(&'static str),
    /// Single fields are wrong.
    Fields(Vec<FieldError>),
    /// A query parameter is wrong.
    Query(String),
    /// A part of the path is not what it should be.
    Path(String),
    /// A header is wrong or missing: its name, and why.
    Header(&'static str, &'static str),
    /// The body passes the limit in bytes.
    TooLarge(u64),
    /// The range begins behind the end of a file of so many bytes.
    BadRange(u64),
    /// The body broke off.
    CutShort,
    /// The market said no.
    Refused(Refusal),
    /// The market said no, and more is known of it.
    Explained(Box<Explained>),
    /// The wanted state was not reached in time; where the lease stands.
    WaitTimeout(LeaseId, LeaseState),
    /// The wanted state can no longer be reached; how the lease ended.
    Unreachable(LeaseId, LeaseState, Option<Reason>),
    /// A dataset's block is not in the store; its CID.
    BlockMissing(String),
    /// The caller's allowance is used up; seconds until the next request.
    RateLimited(u64),
    /// The controller cannot answer this yet; what is missing.
    NotReady(&'static str),
    /// Too many requests at once.
    Overloaded,
    /// The caller has too much open at once.
    TooManyOpen,
    /// The request names a host that is not this controller; which.
    ForeignHost(String),
    /// A page of another site sent it; which.
    ForeignOrigin(String),
    /// The handler took too long.
    Timeout,
    /// The sequencer did not take the input.
    Submit(SubmitError),
    /// The content store failed.
    Content(ContentError),
    /// A call is not relayed.
    Relay(relay::Refusal),
    /// The database failed.
    Store(sqlx::Error),
    /// A handler panicked.
    Panicked,
    /// Something that should not be; the text is for the log.
    Internal(String),
}

/// What differs from problem to problem.
pub(super) struct Face {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    suggestion: &'static str,
    retryable: bool,
}

pub(super) const fn face(
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    suggestion: &'static str,
    retryable: bool,
) -> Face {
    Face { status, code, title, suggestion, retryable }
}

impl Problem {
    /// One faulty field.
    pub fn field(pointer: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Self {
        Self::Fields(vec![FieldError { pointer: pointer.into(), code: code.to_owned(), detail: detail.into() }])
    }

    /// A refusal with nothing but its reason.
    pub fn refused(reason: Reason) -> Self {
        Self::Refused(Refusal::plain(reason))
    }

    fn face(&self) -> Face {
        use StatusCode as S;
        const AGAIN: &str = "send the same request again in a moment";
        match self {
            Self::NoToken => face(
                S::UNAUTHORIZED,
                "no_token",
                "A bearer token is needed.",
                "log in with POST /v1/auth/siwe, or POST /v1/auth/token with an API key; then send `Authorization: Bearer <token>`",
                false,
            ),
            Self::BadToken(TokenFault::Expired) => face(
                S::UNAUTHORIZED,
                "token_expired",
                "The bearer token has lapsed.",
                "POST /v1/auth/refresh or /v1/auth/token for a new one and send the request again",
                true,
            ),
            Self::BadToken(TokenFault::Revoked) => face(
                S::UNAUTHORIZED,
                "token_revoked",
                "The login of this token was ended.",
                "log in again, or use an API key that was not revoked",
                false,
            ),
            Self::BadToken(TokenFault::Forged) => face(
                S::UNAUTHORIZED,
                "bad_token",
                "This pool's controller did not issue the bearer token.",
                "log in to this pool: POST /v1/auth/siwe, or POST /v1/auth/token with an API key of this pool",
                false,
            ),
            Self::WrongCaller(_) => face(
                S::FORBIDDEN,
                "wrong_caller",
                "The token is of the wrong kind for this endpoint.",
                "use the kind of token that the detail names",
                false,
            ),
            Self::BadApiKey => face(
                S::UNAUTHORIZED,
                "bad_api_key",
                "The API key is missing, unknown, lapsed or revoked.",
                "log in with the account's key (POST /v1/auth/nonce, then /v1/auth/siwe) and make a new one: POST /v1/api-keys",
                false,
            ),
            Self::Login(fault) => fault.face(),
            Self::BadSignature(_) => face(
                S::UNPROCESSABLE_ENTITY,
                "bad_signature",
                "The signature is not the account's over these bytes.",
                "sign with the account's own key, for this pool, exactly what is sent: every field, its salt or its time",
                false,
            ),
            Self::NotFound(..) => face(
                S::NOT_FOUND,
                "not_found",
                "There is no such thing in this pool.",
                "check the id; the list endpoints show what there is",
                false,
            ),
            Self::NotYours(..) => face(
                S::FORBIDDEN,
                "not_yours",
                "It belongs to another account.",
                "log in as the account that owns it",
                false,
            ),
            Self::NoRoute(_) => {
                face(S::NOT_FOUND, "no_such_path", "There is no such path.", "GET /openapi.json lists the paths", false)
            }
            Self::MethodNotAllowed(_) => face(
                S::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "The path does not take this method.",
                "the Allow header lists the methods",
                false,
            ),
            Self::NotJson(_) => {
                face(S::BAD_REQUEST, "not_json", "The body is not JSON.", "send one well-formed JSON object", false)
            }
            Self::MediaType(_) => face(
                S::UNSUPPORTED_MEDIA_TYPE,
                "media_type",
                "The endpoint does not take this Content-Type.",
                "send the Content-Type that the detail names",
                false,
            ),
            Self::Fields(_) => face(
                S::UNPROCESSABLE_ENTITY,
                "bad_fields",
                "Fields of the request are wrong.",
                "correct the fields in `errors`; GET /openapi.json has their form",
                false,
            ),
            Self::Query(_) => face(
                S::UNPROCESSABLE_ENTITY,
                "bad_query",
                "A query parameter is wrong.",
                "correct it; GET /openapi.json lists the parameters",
                false,
            ),
            Self::Path(_) => face(
                S::UNPROCESSABLE_ENTITY,
                "bad_path",
                "A part of the path is not an id of the right form.",
                "copy the id from an answer of this pool",
                false,
            ),
            Self::Header(..) => face(
                S::BAD_REQUEST,
                "bad_header",
                "A request header is missing or wrong.",
                "send the header that the detail names",
                false,
            ),
            Self::TooLarge(_) => face(
                S::PAYLOAD_TOO_LARGE,
                "too_large",
                "The body is too large.",
                "send less at once; data goes to POST /v1/datasets or PUT /ipfs/{cid}",
                false,
            ),
            Self::BadRange(_) => face(
                S::RANGE_NOT_SATISFIABLE,
                "bad_range",
                "The file ends before the range begins.",
                "ask for a range inside the file, or leave Range out",
                false,
            ),
            Self::CutShort => {
                face(S::BAD_REQUEST, "body_cut_short", "The body broke off.", "send the request again", true)
            }
            Self::Refused(refusal) => refused(refusal.reason),
            Self::Explained(told) => refused(told.refusal.reason),
            Self::Relay(refusal) => not_relayed(refusal),
            Self::WaitTimeout(..) => face(
                S::REQUEST_TIMEOUT,
                "wait_timeout",
                "The lease is not in the wanted state yet.",
                "wait again, or read its `waiting` and `reason`",
                true,
            ),
            Self::Unreachable(..) => face(
                S::CONFLICT,
                "state_unreachable",
                "The lease can no longer reach the wanted state.",
                "read its `reason` and `attempts`; ask for a new lease if you still need one",
                false,
            ),
            Self::BlockMissing(_) => face(
                S::UNPROCESSABLE_ENTITY,
                "block_missing",
                "A block of the dataset is not in the pool's store.",
                "PUT /ipfs/{cid} every block of the dataset, then name its root again",
                true,
            ),
            Self::RateLimited(_) => face(
                S::TOO_MANY_REQUESTS,
                "rate_limited",
                "Too many requests.",
                "wait as long as Retry-After says",
                true,
            ),
            Self::Overloaded => {
                face(S::SERVICE_UNAVAILABLE, "overloaded", "The controller is at its limit of requests.", AGAIN, true)
            }
            Self::TooManyOpen => face(
                S::TOO_MANY_REQUESTS,
                "too_many_open",
                "Too many requests of this caller are open at once.",
                "let some of them end first; an account with a deposit may have more open",
                true,
            ),
            Self::ForeignHost(_) => face(
                S::MISDIRECTED_REQUEST,
                "foreign_host",
                "The request is for another host.",
                "use the controller's own address; its operator sets it as public_url",
                false,
            ),
            Self::ForeignOrigin(_) => face(
                S::FORBIDDEN,
                "foreign_origin",
                "A page of another site may not do this.",
                "send it from a program, or from a page of the controller itself",
                false,
            ),
            Self::NotReady(_) => face(
                S::SERVICE_UNAVAILABLE,
                "not_ready",
                "The controller is not ready yet.",
                "wait until GET /readyz answers 200",
                true,
            ),
            Self::Timeout => face(
                S::GATEWAY_TIMEOUT,
                "timeout",
                "The controller took too long.",
                "send it again; with the same Idempotency-Key nothing happens twice",
                true,
            ),
            Self::Submit(SubmitError::Fenced(_)) => face(
                S::SERVICE_UNAVAILABLE,
                "fenced",
                "This controller may not decide now.",
                "try again later, or ask the pool's operator",
                true,
            ),
            Self::Submit(SubmitError::Unavailable(_) | SubmitError::Stopped) => {
                face(S::SERVICE_UNAVAILABLE, "log_unavailable", "The log could not be written.", AGAIN, true)
            }
            Self::Content(ContentError::Full { .. }) => face(
                S::INSUFFICIENT_STORAGE,
                "store_full",
                "The pool's content store has no room left.",
                "try again when the operator freed space",
                true,
            ),
            Self::Content(ContentError::OverAllowance { .. }) => face(
                S::PAYLOAD_TOO_LARGE,
                "storage_allowance",
                "The account's storage in this pool is used up.",
                "remove a dataset (DELETE /v1/datasets/{cid}), deposit if the account never did, or wait a day until unused blocks are collected",
                false,
            ),
            Self::Content(ContentError::Busy) => face(
                S::TOO_MANY_REQUESTS,
                "store_busy",
                "Too many datasets are being verified.",
                "send it again in a few seconds",
                true,
            ),
            Self::Content(ContentError::OverLimit { .. }) => face(
                S::PAYLOAD_TOO_LARGE,
                "dataset_too_large",
                "The dataset passes a limit of the pool.",
                "split it into several datasets",
                false,
            ),
            Self::Content(ContentError::Dag(_)) => face(
                S::UNPROCESSABLE_ENTITY,
                "bad_dataset",
                "The CID does not name a file or folder that this pool can mount.",
                "add it again as UnixFS with CIDv1 and SHA-256",
                false,
            ),
            Self::Content(_) | Self::Store(_) | Self::Panicked | Self::Internal(_) => face(
                S::INTERNAL_SERVER_ERROR,
                "internal",
                "The controller failed.",
                "try again; if it lasts, give the operator the trace_id",
                true,
            ),
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::NoToken => "the request has no `Authorization: Bearer` header".to_owned(),
            Self::BadToken(TokenFault::Expired) => "the token's time is over".to_owned(),
            Self::BadToken(TokenFault::Forged) => "the token's signature, pool or form is not this pool's".to_owned(),
            Self::BadToken(TokenFault::Revoked) => "a logout, a revocation or the operator ended it".to_owned(),
            Self::WrongCaller(wanted) => format!("this endpoint takes {wanted}"),
            Self::BadApiKey => "no live API key was presented as `Authorization: ApiKey <key>`".to_owned(),
            Self::Login(fault) => fault.detail(),
            Self::BadSignature(pointer) => format!("{pointer} was not made by the account's key"),
            Self::NotFound(what, id) => format!("no {what} `{id}`"),
            Self::NotYours(what, id) => format!("{what} `{id}` belongs to another account"),
            Self::NoRoute(path) => format!("`{path}` is not a path of this controller"),
            Self::MethodNotAllowed(method) => format!("{method} is not taken here"),
            Self::NotJson(why) | Self::Query(why) | Self::Path(why) => why.clone(),
            Self::MediaType(wanted) => format!("this endpoint takes {wanted}"),
            Self::Fields(errors) => match errors.as_slice() {
                [one] => format!("{}: {}", one.pointer, one.detail),
                many => format!("{} fields are wrong", many.len()),
            },
            Self::Header(name, why) => format!("{name}: {why}"),
            Self::TooLarge(limit) => format!("the body has more than {limit} bytes"),
            Self::BadRange(size) => format!("the file has {size} bytes"),
            Self::CutShort => "the body ended before its announced length".to_owned(),
            Self::Refused(refusal) => refusal.reason.text().to_owned(),
            Self::Explained(told) => told.detail(),
            Self::WaitTimeout(id, state) => format!("{id} is still `{}`", state.code()),
            Self::Unreachable(id, state, reason) => match reason {
                Some(reason) => format!("{id} is `{}`, because `{reason}`", state.code()),
                None => format!("{id} is `{}`", state.code()),
            },
            Self::BlockMissing(cid) => format!("block {cid} is not in the store"),
            Self::Relay(refusal) => refusal.to_string(),
            Self::RateLimited(seconds) => format!("the next request is accepted in {seconds} s"),
            Self::NotReady(missing) => (*missing).to_owned(),
            Self::Overloaded => "no room for another request now".to_owned(),
            Self::TooManyOpen => "answers count until they were read".to_owned(),
            Self::ForeignHost(host) => format!("`{host}` is not the name of this controller"),
            Self::ForeignOrigin(origin) => format!("the page came from `{origin}`"),
            Self::Timeout => "the answer was not ready in time".to_owned(),
            Self::Submit(SubmitError::Fenced(_)) => "another controller may have taken over".to_owned(),
            Self::Submit(SubmitError::Unavailable(_)) => "nothing was changed".to_owned(),
            Self::Submit(SubmitError::Stopped) => "the controller is stopping; nothing was changed".to_owned(),
            Self::Content(ContentError::Full { .. }) => "the disk of the content store is full".to_owned(),
            Self::Content(ContentError::OverLimit { limit, what, .. }) => format!("more than {limit} {what}"),
            Self::Content(error @ (ContentError::OverAllowance { .. } | ContentError::Busy)) => error.to_string(),
            Self::Content(ContentError::Dag(error)) => error.to_string(),
            Self::Content(_) | Self::Store(_) | Self::Panicked | Self::Internal(_) => {
                "the cause is in the controller's log under this trace_id".to_owned()
            }
        }
    }

    /// The cause, for the log; `None` where the answer says all.
    fn cause(&self) -> Option<String> {
        match self {
            Self::Store(error) => Some(error.to_string()),
            Self::Content(
                ContentError::OverLimit { .. }
                | ContentError::Dag(_)
                | ContentError::OverAllowance { .. }
                | ContentError::Busy,
            ) => None,
            Self::Content(error) => Some(error.to_string()),
            Self::Submit(error) => Some(error.to_string()),
            Self::Relay(relay::Refusal::NoAnswer { why }) => Some(why.clone()),
            Self::Internal(why) => Some(why.clone()),
            _ => None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if let Some(cause) = self.cause() {
            tracing::error!(cause, "a request failed");
        }
        let Face { status, code, title, suggestion, retryable } = self.face();
        let told = match &self {
            Self::Refused(refusal) => Explained::plain(refusal.clone()),
            Self::Explained(told) => (**told).clone(),
            _ => Explained::plain(Refusal::plain(Reason::BadRequest)),
        };
        let body = rest::Problem {
            kind: format!("{PAGES}{code}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: self.detail(),
            code: code.to_owned(),
            retryable,
            suggestion: suggestion.to_owned(),
            trace_id: None,
            nearest: told.refusal.nearest,
            blocking: told.blocking,
            unmatched: told.unmatched,
            means: told.means,
            errors: match self {
                Self::Fields(ref errors) => errors.clone(),
                _ => Vec::new(),
            },
        };
        let mut response = render(status, &body);
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        match self {
            Self::RateLimited(seconds) | Self::Relay(relay::Refusal::OverBudget { wait_s: seconds, .. }) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
            }
            Self::TooManyOpen => {
                headers.insert(RETRY_AFTER, HeaderValue::from(1_u64));
            }
            _ if status == StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from(1_u64));
            }
            _ => {}
        }
        // The outer layer knows the request's id and writes the body once more with it.
        response.extensions_mut().insert(body);
        response
    }
}

/// `body` as an answer.
pub(super) fn render(status: StatusCode, body: &rest::Problem) -> Response {
    // A struct of strings and numbers always serialises.
    let text = serde_json::to_string(body).unwrap_or_default();
    (status, [(CONTENT_TYPE, PROBLEM_JSON)], text).into_response()
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error)
    }
}

impl From<LoginFault> for Problem {
    fn from(fault: LoginFault) -> Self {
        Self::Login(fault)
    }
}

impl From<RelayError> for Problem {
    fn from(error: RelayError) -> Self {
        match error {
            RelayError::Refused(refusal) => Self::Relay(refusal),
            RelayError::Store(error) => Self::Store(error),
        }
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        Self::Submit(error)
    }
}

impl From<ContentError> for Problem {
    fn from(error: ContentError) -> Self {
        match error {
            ContentError::Missing { cid } => Self::BlockMissing(cid.to_string()),
            other => Self::Content(other),
        }
    }
}

impl From<QueryRejection> for Problem {
    fn from(_: QueryRejection) -> Self {
        Self::Query("the query is not of the form name=value&name=value".to_owned())
    }
}

impl From<BytesRejection> for Problem {
    fn from(rejection: BytesRejection) -> Self {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            Self::TooLarge(super::JSON_LIMIT as u64)
        } else {
            Self::CutShort
        }
    }
}
