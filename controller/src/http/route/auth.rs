//! From a key pair to a token: nonce, signature, API key, bearer token.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use selion_api::rest::{ApiKey, ApiKeyPage, NewApiKey, Nonce, Token, Whoami};
use selion_api::{Account, Hash32};
use sha2::{Digest, Sha256};

use crate::App;
use crate::http::Problem;
use crate::http::caller::{Caller, Renter, scheme};
use crate::http::input::{Json, Path, Query};
use crate::http::page::Page;
use crate::http::recover::signer_of;
use crate::http::secrets::random;
use crate::store::api_key;

/// Life of a nonce in milliseconds: five minutes.
const NONCE_MS: u64 = 5 * 60 * 1000;
/// Longest name of a key or dataset, in characters.
pub(super) const MAX_NAME: usize = 100;

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct NonceQuery {
    /// The account that will sign.
    account: Account,
}

/// A text to sign with the account's key: good once, for five minutes.
#[utoipa::path(post, path = "/v1/auth/nonce", tag = "auth", params(NonceQuery),
    responses((status = 200, description = "Sign `message` with EIP-191", body = Nonce)))]
pub(in crate::http) async fn nonce(
    State(app): State<App>,
    Query(query): Query<NonceQuery>,
) -> Result<Answer<Nonce>, Problem> {
    let nonce = Hash32(random().map_err(|error| Problem::Internal(error.to_string()))?);
    let now = (app.clock)();
    let expires_ms = now.plus(NONCE_MS);
    api_key::offer_nonce(&app.store.writer, &nonce, query.account, now, expires_ms).await?;
    let message = login_text(&app, query.account, &nonce);
    Ok(Answer(Nonce { nonce, message, expires_ms }))
}

/// The text that is signed. It names pool and account, so that it counts nowhere else.
fn login_text(app: &App, account: Account, nonce: &Hash32) -> String {
    format!(
        "Selion: make an API key for this account.\nPool: {}\nChain: {}\nAccount: {account}\nNonce: {nonce}",
        app.pool.controller, app.pool.chain_id
    )
}

/// Makes an API key for the account that signed the nonce's text. It is shown this once.
#[utoipa::path(post, path = "/v1/api-keys", tag = "auth", request_body = NewApiKey,
    responses((status = 201, description = "The key", body = ApiKey)))]
pub(in crate::http) async fn create_key(
    State(app): State<App>,
    Json(body): Json<NewApiKey>,
) -> Result<(StatusCode, Answer<ApiKey>), Problem> {
    check_name(&body.name)?;
    let now = (app.clock)();
    // Taken before it is checked: one nonce is one try.
    if !api_key::take_nonce(&app.store.writer, &body.nonce, body.account, now).await? {
        return Err(Problem::BadNonce);
    }
    let text = login_text(&app, body.account, &body.nonce);
    if signer_of(text.as_bytes(), &body.signature) != Some(body.account) {
        return Err(Problem::BadSignature("/signature"));
    }
    let secret = random().map_err(|error| Problem::Internal(error.to_string()))?;
    let id = api_key::add(&app.store.writer, body.account, &hash(&secret), &body.name, now).await?;
    Ok((StatusCode::CREATED, Answer(ApiKey { id, api_key: format!("sk_{id}_{}", hex::encode(secret)) })))
}

/// A name for people.
pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    if name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let detail = format!("a name has at most {MAX_NAME} characters and no control characters");
    Err(Problem::field("/name", "bad_value", detail))
}

fn hash(secret: &[u8; 32]) -> Hash32 {
    Hash32(Sha256::digest(secret).into())
}

/// Id and hash of an API key's text.
fn parse_key(text: &str) -> Option<(u64, Hash32)> {
    let (id, secret) = text.strip_prefix("sk_")?.split_once('_')?;
    let mut bytes = [0; 32];
    hex::decode_to_slice(secret, &mut bytes).ok()?;
    Some((id.parse().ok()?, hash(&bytes)))
}

/// A bearer token for an API key, good for 15 minutes.
#[utoipa::path(post, path = "/v1/auth/token", tag = "auth", security(("api_key" = [])),
    responses((status = 200, description = "The token", body = Token)))]
pub(in crate::http) async fn token(State(app): State<App>, headers: HeaderMap) -> Result<Answer<Token>, Problem> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = header.and_then(|text| scheme(text, "ApiKey")).and_then(parse_key);
    let (id, hash) = key.ok_or(Problem::BadApiKey)?;
    let account = api_key::account_of(&app.store.readers, id, &hash).await?.ok_or(Problem::BadApiKey)?;
    let (token, expires_ms) = app.secrets.issue(&Caller::Renter(account), (app.clock)()).map_err(Problem::Internal)?;
    Ok(Answer(Token { token, expires_ms }))
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct KeyQuery {
    /// Rows of the page, 1 to 500; 50 if absent.
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// The caller's live API keys, without their secrets.
#[utoipa::path(get, path = "/v1/api-keys", tag = "auth", params(KeyQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of keys", body = ApiKeyPage)))]
pub(in crate::http) async fn list_keys(
    State(app): State<App>,
    renter: Renter,
    Query(query): Query<KeyQuery>,
) -> Result<Answer<ApiKeyPage>, Problem> {
    let page = Page::<u64>::read("api-keys", query.page_size, query.page_token.as_deref())?;
    let mut api_keys = api_key::of_account(&app.store.readers, renter.account, page.fetch(), page.after).await?;
    let next_page_token = page.cut("api-keys", &mut api_keys, |key| key.id);
    Ok(Answer(ApiKeyPage { api_keys, next_page_token }))
}

/// Revokes one of the caller's API keys. Tokens made with it lapse by themselves within 15 minutes.
#[utoipa::path(delete, path = "/v1/api-keys/{id}", tag = "auth", security(("bearer" = [])),
    params(("id" = u64, Path, description = "Id of the key")),
    responses((status = 204, description = "Revoked")))]
pub(in crate::http) async fn revoke_key(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<u64>,
) -> Result<StatusCode, Problem> {
    if api_key::revoke(&app.store.writer, renter.account, id, (app.clock)()).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::NotFound("API key", id.to_string()))
    }
}

/// Whom the token stands for.
#[utoipa::path(get, path = "/v1/whoami", tag = "auth", security(("bearer" = [])),
    responses((status = 200, description = "The caller", body = Whoami)))]
pub(in crate::http) async fn whoami(caller: Caller) -> Answer<Whoami> {
    Answer(match caller {
        Caller::Renter(account) => Whoami::Renter { account },
        Caller::Node(node) => Whoami::Node { node },
    })
}
