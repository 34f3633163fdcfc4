//! From a key pair to a token: a signed message opens a session, a session refreshes itself and makes API keys.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use selion_api::rest::{
    ApiKey, ApiKeyPage, LoginView, NewApiKey, NewNonce, Nonce, Refresh, Revoke, Revoked, Role, Scope, Session,
    SignedLogin, Token, Whoami,
};
use selion_api::{Account, Signature, TimeMs};

use super::device;
use crate::App;
use crate::http::Problem;
use crate::http::caller::{Caller, Operator, Renter, scheme};
use crate::http::input::{Json, Path, Query};
use crate::http::login_fault::LoginFault;
use crate::http::page::Page;
use crate::http::pass::{KeyText, Login, Pass, Scopes, hash, parse_key, secret_hash};
use crate::http::secrets::random;
use crate::http::siwe::{ForDevice, Proven, Site, SiweFault};
use crate::store::session::{NewSession, Refreshed};
use crate::store::{api_key, nonce as spent, session};

/// A session ends when it was not refreshed for so long, in milliseconds: 30 days.
const IDLE_MS: u64 = 30 * 24 * 3600 * 1000;
/// Longest name of a key, session or dataset, in characters.
pub(super) const MAX_NAME: usize = 100;

/// A nonce: good for one login within five minutes. With an account also the message to sign.
#[utoipa::path(post, path = "/v1/auth/nonce", operation_id = "create_nonce", tag = "auth", request_body = NewNonce,
    responses((status = 200, description = "Sign `message` with EIP-191", body = Nonce)))]
pub(in crate::http) async fn nonce(
    State(app): State<App>,
    Json(NewNonce { account, user_code }): Json<NewNonce>,
) -> Result<Answer<Nonce>, Problem> {
    let now = (app.clock)();
    let (nonce, expires_ms) = app.secrets.nonce(now).map_err(Problem::Internal)?;
    let message = match (account, user_code) {
        (None, None) => None,
        (None, Some(_)) => return Err(Problem::field("/account", "missing_field", "name the account that will sign")),
        (Some(account), user_code) => Some(message(&app, account, &nonce, now, expires_ms, user_code).await?),
    };
    Ok(Answer(Nonce { nonce, message, expires_ms }))
}

async fn message(
    app: &App,
    account: Account,
    nonce: &str,
    now: TimeMs,
    expires: TimeMs,
    user_code: Option<String>,
) -> Result<String, Problem> {
    let Some(code) = user_code else {
        return site(app).message(account, nonce, now, expires, None).map_err(Problem::Internal);
    };
    let user_code = device::typed(&code)?;
    let asked = device::waiting(app, &user_code).await?;
    let device = ForDevice { user_code: &user_code, name: &asked.name, from: &asked.origin };
    site(app).message(account, nonce, now, expires, Some(device)).map_err(Problem::Internal)
}

fn site(app: &App) -> Site<'_> {
    Site { origin: &app.origin, pool: &app.pool }
}

/// What a signed message proves here. Its nonce is spent: only a good signature spends one.
pub(super) async fn prove(app: &App, message: &str, signature: &Signature) -> Result<Proven, Problem> {
    let now = (app.clock)();
    let proven = site(app).check(message, signature, now).map_err(LoginFault::Message)?;
    let expires = app.secrets.nonce_expires(&proven.nonce).filter(|expires| *expires > now);
    let expires = expires.ok_or(LoginFault::BadNonce)?;
    if spent::spend(&app.store.writer, &proven.nonce, now, expires).await? {
        return Ok(proven);
    }
    Err(LoginFault::BadNonce.into())
}

/// Opens a session for the account that signed the message.
#[utoipa::path(post, path = "/v1/auth/siwe", operation_id = "log_in", tag = "auth", request_body = SignedLogin,
    responses((status = 200, description = "The session", body = Session)))]
pub(in crate::http) async fn siwe(
    State(app): State<App>,
    Json(body): Json<SignedLogin>,
) -> Result<Answer<Session>, Problem> {
    check_name(&body.name)?;
    let proven = prove(&app, &body.message, &body.signature).await?;
    if let Some(code) = proven.device {
        return Err(LoginFault::Message(SiweFault::ForeignResource(format!("urn:selion:device:{code}"))).into());
    }
    open_session(&app, proven.account, Scopes::ALL, &body.name).await.map(Answer)
}

/// Opens a session of `account`.
pub(super) async fn open_session(app: &App, account: Account, scopes: Scopes, name: &str) -> Result<Session, Problem> {
    let (now, refresh) = ((app.clock)(), secret()?);
    let expires = now.plus(IDLE_MS);
    let new = NewSession { account, scopes: &scopes.text(), name, refresh: hash(&refresh), expires };
    let (id, ended) = session::open(&app.store.writer, &new, now).await?;
    ended.into_iter().for_each(|id| app.logins.end(Login::Session(id), now));
    tracing::info!(%account, session = id, name, "a session was opened");
    session_view(app, account, id, scopes, &refresh, expires)
}

fn session_view(
    app: &App,
    account: Account,
    id: u64,
    scopes: Scopes,
    refresh: &[u8; 32],
    refresh_expires_ms: TimeMs,
) -> Result<Session, Problem> {
    let epoch = app.logins.epoch(account);
    let pass = Pass { caller: Caller::Renter(account), login: Login::Session(id), scopes, epoch };
    let (token, expires_ms) = app.secrets.issue(&pass, (app.clock)(), None).map_err(Problem::Internal)?;
    let refresh_token = format!("rt_{}", hex::encode(refresh));
    Ok(Session { account, token, expires_ms, refresh_token, refresh_expires_ms })
}

/// The next pair of tokens of a session. A refresh token that comes a second time ends it.
#[utoipa::path(post, path = "/v1/auth/refresh", operation_id = "refresh_session", tag = "auth", request_body = Refresh,
    responses((status = 200, description = "The next pair", body = Session)))]
pub(in crate::http) async fn refresh(
    State(app): State<App>,
    Json(Refresh { refresh_token }): Json<Refresh>,
) -> Result<Answer<Session>, Problem> {
    let old = secret_hash(&refresh_token, "rt_").ok_or(LoginFault::BadRefresh)?;
    let (now, next) = ((app.clock)(), secret()?);
    let expires = now.plus(IDLE_MS);
    match session::refresh(&app.store.writer, &old, &hash(&next), now, expires).await? {
        Refreshed::Rotated { session, account, scopes } => {
            session_view(&app, account, session, Scopes::read(&scopes), &next, expires).map(Answer)
        }
        Refreshed::Reused { session, account } => {
            app.logins.end(Login::Session(session), now);
            tracing::warn!(%account, session, "a refresh token was used twice: somebody else has it; the session ended");
            Err(LoginFault::Reused.into())
        }
        Refreshed::Unknown => Err(LoginFault::BadRefresh.into()),
    }
}

/// Ends the session that the token is of.
#[utoipa::path(post, path = "/v1/auth/logout", operation_id = "log_out", tag = "auth", security(("bearer" = [])),
    responses((status = 204, description = "Ended, its tokens too")))]
pub(in crate::http) async fn logout(State(app): State<App>, pass: Pass) -> Result<StatusCode, Problem> {
    let Login::Session(id) = pass.login else {
        return Err(Problem::WrongCaller("the token of a session, not of an API key"));
    };
    let now = (app.clock)();
    session::end(&app.store.writer, id, now).await?;
    app.logins.end(pass.login, now);
    Ok(StatusCode::NO_CONTENT)
}

/// Ends every session of the caller's account, and every token made so far. API keys stay.
#[utoipa::path(post, path = "/v1/auth/logout-all", operation_id = "log_out_everywhere", tag = "auth", security(("bearer" = [])),
    responses((status = 200, description = "What was ended", body = Revoked)))]
pub(in crate::http) async fn logout_all(State(app): State<App>, renter: Renter) -> Result<Answer<Revoked>, Problem> {
    end_all(&app, renter.account, false).await
}

/// Ends every session and API key of an account. Its leases run on.
#[utoipa::path(post, path = "/v1/operator/revoke", operation_id = "revoke_account", tag = "operator", request_body = Revoke, security(("bearer" = [])),
    responses((status = 200, description = "What was ended", body = Revoked)))]
pub(in crate::http) async fn revoke_all(
    State(app): State<App>,
    operator: Operator,
    Json(Revoke { account }): Json<Revoke>,
) -> Result<Answer<Revoked>, Problem> {
    tracing::warn!(operator = %operator.account, %account, "an operator ends the logins of an account");
    end_all(&app, account, true).await
}

async fn end_all(app: &App, account: Account, keys: bool) -> Result<Answer<Revoked>, Problem> {
    let now = (app.clock)();
    let ended = session::end_all(&app.store.writer, account, keys, now).await?;
    app.logins.end_all(account, &ended, now);
    Ok(Answer(Revoked { sessions: ended.sessions.len() as u64, api_keys: ended.keys.len() as u64 }))
}

/// Makes an API key for the caller's account. It is shown this once.
#[utoipa::path(post, path = "/v1/api-keys", operation_id = "create_api_key", tag = "auth", request_body = NewApiKey, security(("bearer" = [])),
    responses((status = 201, description = "The key", body = ApiKey)))]
pub(in crate::http) async fn create_key(
    State(app): State<App>,
    renter: Renter,
    Json(body): Json<NewApiKey>,
) -> Result<(StatusCode, Answer<ApiKey>), Problem> {
    check_name(&body.name)?;
    let now = (app.clock)();
    if body.scopes.is_empty() || body.scopes.contains(&Scope::Login) {
        let detail = format!("a key has at least one scope, of {}", Scopes::DELEGATED.text());
        return Err(Problem::field("/scopes", "bad_value", detail));
    }
    if body.expires_ms.is_some_and(|at| at <= now) {
        return Err(Problem::field("/expires_ms", "bad_value", "a key ends in the future, or never"));
    }
    let (secret, scopes) = (secret()?, body.scopes.into_iter().collect::<Scopes>().text());
    let (account, expires) = (renter.account, body.expires_ms);
    let new = api_key::NewKey { account, hash: hash(&secret), name: &body.name, scopes: &scopes, expires };
    let id = api_key::add(&app.store.writer, &new, now).await?.ok_or(LoginFault::TooManyKeys)?;
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

/// 32 random bytes that somebody is to keep.
pub(super) fn secret() -> Result<[u8; 32], Problem> {
    random().map_err(|error| Problem::Internal(error.to_string()))
}

/// A bearer token for an API key: good for ten minutes, and for what the key is. Who does not want to renew tokens
/// sends `Authorization: Bearer sk_...` with every request instead.
#[utoipa::path(post, path = "/v1/auth/token", operation_id = "create_token", tag = "auth", security(("api_key" = [])),
    responses((status = 200, description = "The token", body = Token)))]
pub(in crate::http) async fn token(State(app): State<App>, headers: HeaderMap) -> Result<Answer<Token>, Problem> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = header.and_then(|text| scheme(text, "ApiKey")).and_then(parse_key);
    let KeyText { id, hash } = key.ok_or(Problem::BadApiKey)?;
    let now = (app.clock)();
    let key = api_key::take(&app.store.writer, id, &hash, now).await?.ok_or(Problem::BadApiKey)?;
    let pass = Pass {
        caller: Caller::Renter(key.account),
        login: Login::Key(id),
        scopes: Scopes::read(&key.scopes),
        epoch: app.logins.epoch(key.account),
    };
    let (token, expires_ms) = app.secrets.issue(&pass, now, key.expires).map_err(Problem::Internal)?;
    Ok(Answer(Token { token, expires_ms }))
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct KeyQuery {
    /// Rows of the page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// The caller's live API keys, without their secrets.
#[utoipa::path(get, path = "/v1/api-keys", operation_id = "list_api_keys", tag = "auth", params(KeyQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of keys", body = ApiKeyPage)))]
pub(in crate::http) async fn list_keys(
    State(app): State<App>,
    renter: Renter,
    Query(query): Query<KeyQuery>,
) -> Result<Answer<ApiKeyPage>, Problem> {
    let page = Page::<u64>::read("api-keys", query.page_size, query.page_token.as_deref())?;
    let (db, now) = (&app.store.readers, (app.clock)());
    let mut api_keys = api_key::of_account(db, renter.account, page.fetch(), page.after, now).await?;
    let next_page_token = page.cut("api-keys", &mut api_keys, |key| key.id);
    Ok(Answer(ApiKeyPage { api_keys, next_page_token }))
}

/// Revokes one of the caller's API keys, and with it every token that was made of it.
#[utoipa::path(delete, path = "/v1/api-keys/{id}", operation_id = "revoke_api_key", tag = "auth", security(("bearer" = [])),
    params(("id" = u64, Path, description = "Id of the key")),
    responses((status = 204, description = "Revoked")))]
pub(in crate::http) async fn revoke_key(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<u64>,
) -> Result<StatusCode, Problem> {
    let now = (app.clock)();
    if api_key::revoke(&app.store.writer, renter.account, id, now).await? {
        app.logins.end(Login::Key(id), now);
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::NotFound("API key", id.to_string()))
    }
}

/// Whom the token stands for.
#[utoipa::path(get, path = "/v1/whoami", operation_id = "whoami", tag = "auth", security(("bearer" = [])),
    responses((status = 200, description = "The caller", body = Whoami)))]
pub(in crate::http) async fn whoami(State(app): State<App>, pass: Pass) -> Answer<Whoami> {
    let account = match pass.caller {
        Caller::Renter(account) => account,
        Caller::Node(node) => return Answer(Whoami::Node { node }),
    };
    let login = match pass.login {
        Login::Key(id) => LoginView::ApiKey { id },
        Login::Session(id) => LoginView::Session { id },
        Login::Link => LoginView::Session { id: 0 },
    };
    let provider = app.log.read(|state| state.providers.contains_key(&account));
    let roles = [(true, Role::Renter), (provider, Role::Provider), (app.is_operator(account), Role::Operator)];
    let roles = roles.into_iter().filter(|(is, _)| *is).map(|(_, role)| role).collect();
    Answer(Whoami::Renter { account, roles, scopes: pass.scopes.iter().collect(), login })
}
