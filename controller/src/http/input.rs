//! Reading a request: bodies, paths and queries whose every fault is a problem with its place.

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;
use serde_path_to_error::Segment;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::{IntoParams, ToSchema};

use super::{Problem, schema};

/// A JSON body, of the form that the description gives.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned + ToSchema, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !has_type(request.headers(), "application/json") {
            return Err(Problem::MediaType("application/json"));
        }
        let bytes = Bytes::from_request(request, state).await?;
        parse(&bytes).map(Self)
    }
}

/// The same where all may be left out: no body at all, or `null`, says nothing.
pub struct MaybeJson<T>(pub T);

impl<T: DeserializeOwned + ToSchema + Default, S: Send + Sync> FromRequest<S> for MaybeJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let is_json = has_type(request.headers(), "application/json");
        let bytes = Bytes::from_request(request, state).await?;
        match bytes.trim_ascii() {
            b"" => Ok(Self(T::default())),
            _ if !is_json => Err(Problem::MediaType("application/json")),
            b"null" => Ok(Self(T::default())),
            _ => parse(&bytes).map(Self),
        }
    }
}

/// Whether the body announces that media type.
pub(super) fn has_type(headers: &HeaderMap, wanted: &str) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(wanted))
}

/// One JSON value and nothing after it, of the form that the description gives: every fault of it is told.
pub(super) fn parse<T: DeserializeOwned + ToSchema>(bytes: &[u8]) -> Result<T, Problem> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| Problem::NotJson(plain_json(&error)))?;
    let faults = schema::faults(&T::name(), &value);
    if !faults.is_empty() {
        return Err(Problem::Fields(faults));
    }
    // From the bytes again: a value has lost which of its members came twice.
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let inner = error.inner();
        if inner.is_data() {
            let (text, code) = (inner.to_string(), code(&inner.to_string()));
            Problem::field(pointer(error.path()), code, plain(&text))
        } else {
            Problem::NotJson(inner.to_string())
        }
    })?;
    reader.end().map_err(|error| Problem::NotJson(error.to_string()))?;
    Ok(value)
}

/// What serde says, without where: the pointer says that.
fn plain(text: &str) -> String {
    let text = text.rsplit_once(" at line ").map_or(text, |(text, _)| text);
    text.replace("duplicate field", "twice the field").replace("missing field", "without the field")
}

/// Why a text is not JSON, and where.
fn plain_json(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => "the text ends before the value does".to_owned(),
        _ => error.to_string(),
    }
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
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(value)| Self(value)).map_err(|rejection| Problem::Path(bad_part(&rejection)))
    }
}

/// Which part of a path is wrong, and what it should be.
fn bad_part(rejection: &PathRejection) -> String {
    use axum::extract::path::ErrorKind as E;
    let PathRejection::FailedToDeserializePathParams(failed) = rejection else {
        return "the path has another number of parts".to_owned();
    };
    match failed.kind() {
        E::ParseErrorAtKey { key, value, .. } => format!("`{value}` is not a whole number, as `{key}` is"),
        E::DeserializeError { message, .. } | E::Message(message) => message.clone(),
        E::InvalidUtf8InPathParam { key } => format!("`{key}` is not UTF-8"),
        _ => "a part is not of the right form".to_owned(),
    }
}

/// The query. Every fault of it is told, unknown parameters by their names.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + IntoParams, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Query(given) =
            axum::extract::Query::<Vec<(String, String)>>::from_request_parts(parts, state).await?;
        let faults = query_faults(&T::into_params(|| Some(ParameterIn::Query)), &given);
        if !faults.is_empty() {
            return Err(Problem::Query(faults.join("; ")));
        }
        let axum::extract::Query(value) = axum::extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

fn query_faults(known: &[Parameter], given: &[(String, String)]) -> Vec<String> {
    let names = known.iter().map(|parameter| parameter.name.as_str()).collect::<Vec<_>>();
    let mut faults = Vec::new();
    for (at, (name, value)) in given.iter().enumerate().take(2 * names.len() + 1) {
        let Some(parameter) = known.iter().find(|parameter| parameter.name == *name) else {
            faults.push(match names.as_slice() {
                [] => format!("there is no parameter `{name}` here, nor any other"),
                _ => format!("there is no parameter `{name}` here; known are {}", names.join(", ")),
            });
            continue;
        };
        if given[..at].iter().any(|(before, _)| before == name) {
            faults.push(format!("`{name}` is given twice"));
            continue;
        }
        let schema = serde_json::to_value(&parameter.schema).unwrap_or_default();
        faults.extend(schema::parameter_fault(&schema, value).map(|fault| format!("`{name}`: {fault}")));
    }
    let missing = known.iter().filter(|parameter| parameter.required == Required::True);
    let missing = missing.filter(|parameter| given.iter().all(|(name, _)| *name != parameter.name));
    faults.extend(missing.map(|parameter| format!("`{}` is missing", parameter.name)));
    faults
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
