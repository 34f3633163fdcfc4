//! Reading a request: bodies, paths and queries whose every fault is a problem with its place.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::Problem;

/// A JSON body. Unknown fields are refused by the types themselves.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !has_type(request.headers(), "application/json") {
            return Err(Problem::MediaType("application/json"));
        }
        let bytes = Bytes::from_request(request, state).await?;
        parse(&bytes).map(Self)
    }
}

/// Whether the body announces that media type.
pub(super) fn has_type(headers: &HeaderMap, wanted: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(wanted))
}

/// One JSON value and nothing after it.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let inner = error.inner();
        if inner.is_data() {
            Problem::field(pointer(error.path()), code(&inner.to_string()), inner.to_string())
        } else {
            Problem::NotJson(inner.to_string())
        }
    })?;
    reader.end().map_err(|error| Problem::NotJson(error.to_string()))?;
    Ok(value)
}

/// The path as a JSON pointer (RFC 6901).
fn pointer(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        pointer.push('/');
        match segment {
            Segment::Seq { index } => pointer.push_str(&index.to_string()),
            Segment::Map { key } => pointer.push_str(&key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => pointer.push_str(variant),
            Segment::Unknown => pointer.push('?'),
        }
    }
    pointer
}

/// The kind of fault, by the words that serde uses for it.
fn code(message: &str) -> &'static str {
    const KINDS: [(&str, &str); 4] = [
        ("unknown field", "unknown_field"),
        ("missing field", "missing_field"),
        ("duplicate field", "duplicate_field"),
        ("unknown variant", "unknown_value"),
    ];
    KINDS.iter().find(|(words, _)| message.starts_with(words)).map_or("bad_value", |(_, code)| code)
}

/// The parts of the path.
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Path(value) = axum::extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// The query. Unknown parameters are refused by the types themselves.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Query(value) = axum::extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// The `Idempotency-Key` header: 1 to 255 visible ASCII characters. (draft-ietf-httpapi-idempotency-key-header-07,
/// but a bare text is taken as well as a quoted one.)
pub struct IdempotencyKey(pub String);

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        const NAME: &str = "Idempotency-Key";
        let mut values = parts.headers.get_all(NAME).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(Problem::Header(NAME, "needed exactly once: one fresh text for each lease you want"));
        };
        let text = value.to_str().unwrap_or_default();
        let key = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        if (1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(key.to_owned()))
        } else {
            Err(Problem::Header(NAME, "takes 1 to 255 visible ASCII characters without spaces"))
        }
    }
}
