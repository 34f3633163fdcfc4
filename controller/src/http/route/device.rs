//! Letting in a machine that has no key: it shows a code, and whoever has the account approves it (RFC 8628).

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use selion_api::Account;
use selion_api::rest::{Device, DeviceToken, DeviceView, NewDevice, Session, SignedLogin, UserCode};

use super::auth::{open_session, prove, secret};
use crate::App;
use crate::http::Problem;
use crate::http::caller::{Peer, Renter};
use crate::http::input::Json;
use crate::http::login_fault::LoginFault;
use crate::http::pass::{Scopes, hash, secret_hash};
use crate::http::siwe::SiweFault;
use crate::network::Network;
use crate::store::device::{self, Added};

/// Life of the codes in milliseconds: ten minutes.
const CODE_MS: u64 = 10 * 60 * 1000;
/// Least milliseconds between two questions of a device.
const PACE_MS: u64 = 5_000;
/// Letters of a user code: no vowels, so no words; nothing that looks like something else.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
/// So many codes are tried, should one be taken.
const TRIES: u8 = 3;
/// Only our own script runs, and only this controller is spoken to.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// A machine without a key asks to be let in.
#[utoipa::path(post, path = "/v1/auth/device", operation_id = "start_device", tag = "auth", request_body = NewDevice,
    responses((status = 200, description = "Show `user_code`, and ask with `device_code`", body = Device)))]
pub(in crate::http) async fn ask(
    State(app): State<App>,
    Peer(peer): Peer,
    Json(NewDevice { name }): Json<NewDevice>,
) -> Result<Answer<Device>, Problem> {
    // It stands in a message that a wallet shows: visible ASCII and blanks, and no quote to close the name with.
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'\'';
    if !(1..=64).contains(&name.len()) || !name.bytes().all(plain) {
        return Err(Problem::field("/name", "bad_value", "a name has 1 to 64 visible ASCII characters, without `'`"));
    }
    let origin = peer.map_or_else(|| "an unknown address".to_owned(), |ip| ip.to_string());
    let network = peer.map(|ip| Network::of(ip).to_string()).unwrap_or_default();
    let now = (app.clock)();
    let device_code = secret()?;
    for _ in 0..TRIES {
        let user_code = fresh_code()?;
        let new = device::NewDevice {
            hash: hash(&device_code),
            user_code: &user_code,
            name: &name,
            origin: &origin,
            network: &network,
            expires: now.plus(CODE_MS),
            pace_ms: PACE_MS,
        };
        match device::add(&app.store.writer, &new, now).await? {
            Added::Taken => {}
            Added::NetworkFull => return Err(Problem::TooManyOpen),
            Added::Full => return Err(Problem::Overloaded),
            Added::Waits => {
                let (page, user_code) = (format!("{}/device", app.origin.url()), shown(&user_code));
                return Ok(Answer(Device {
                    device_code: format!("dc_{}", hex::encode(device_code)),
                    verification_uri_complete: format!("{page}#{user_code}"),
                    verification_uri: page,
                    user_code,
                    expires_in: CODE_MS / 1000,
                    interval: PACE_MS / 1000,
                }));
            }
        }
    }
    Err(Problem::Overloaded)
}

fn fresh_code() -> Result<String, Problem> {
    // Bytes of 240 and more would make the first letters likelier; there are plenty of others.
    let letter = |byte: &u8| (*byte < 240).then(|| char::from(LETTERS[usize::from(byte % 20)]));
    let code: String = secret()?.iter().filter_map(letter).take(8).collect();
    if code.len() == 8 { Ok(code) } else { Err(Problem::Overloaded) }
}

fn shown(code: &str) -> String {
    let (head, tail) = code.split_at(4);
    format!("{head}-{tail}")
}

/// The code as it is kept, of what somebody typed.
pub(super) fn typed(code: &str) -> Result<String, Problem> {
    let letters: String = code.chars().filter(|letter| !matches!(letter, '-' | ' ')).collect();
    let letters = letters.to_ascii_uppercase();
    let good = letters.len() == 8 && letters.bytes().all(|letter| LETTERS.contains(&letter));
    if good { Ok(letters) } else { Err(LoginFault::NoDevice.into()) }
}

/// The device of a code, while nobody decided on it.
pub(super) async fn waiting(app: &App, code: &str) -> Result<device::Waiting, Problem> {
    let found = device::waiting(&app.store.readers, code, (app.clock)()).await?;
    found.ok_or_else(|| LoginFault::NoDevice.into())
}

/// A device asks whether it was approved. Until then: `authorization_pending` or `slow_down`.
#[utoipa::path(post, path = "/v1/auth/device/token", operation_id = "poll_device", tag = "auth", request_body = DeviceToken,
    responses((status = 200, description = "Approved: its session", body = Session)))]
pub(in crate::http) async fn token(
    State(app): State<App>,
    Json(DeviceToken { device_code }): Json<DeviceToken>,
) -> Result<Answer<Session>, Problem> {
    let hash = secret_hash(&device_code, "dc_").ok_or(LoginFault::NoDevice)?;
    match device::poll(&app.store.writer, &hash, (app.clock)()).await? {
        device::Poll::Approved { account, name } => {
            open_session(&app, account, Scopes::DELEGATED, &name).await.map(Answer)
        }
        device::Poll::Pending => Err(LoginFault::Pending.into()),
        device::Poll::SlowDown => Err(LoginFault::SlowDown.into()),
        device::Poll::Denied => Err(LoginFault::Denied.into()),
        device::Poll::Expired => Err(LoginFault::Lapsed.into()),
        device::Poll::Unknown => Err(LoginFault::NoDevice.into()),
    }
}

/// Who waits behind a code.
#[utoipa::path(post, path = "/v1/auth/device/look", operation_id = "look_at_device", tag = "auth", request_body = UserCode,
    responses((status = 200, description = "The device", body = DeviceView)))]
pub(in crate::http) async fn look(
    State(app): State<App>,
    Json(UserCode { user_code }): Json<UserCode>,
) -> Result<Answer<DeviceView>, Problem> {
    let code = typed(&user_code)?;
    let device::Waiting { name, origin, asked, expires } = waiting(&app, &code).await?;
    let scopes = Scopes::DELEGATED.iter().collect();
    Ok(Answer(DeviceView { user_code: shown(&code), name, from: origin, asked_ms: asked, expires_ms: expires, scopes }))
}

/// Lets a device in for the caller's account. It may do everything but manage logins.
#[utoipa::path(post, path = "/v1/auth/device/approve", operation_id = "approve_device", tag = "auth", request_body = UserCode, security(("bearer" = [])),
    responses((status = 204, description = "The device gets its session when it asks next")))]
pub(in crate::http) async fn approve(
    State(app): State<App>,
    renter: Renter,
    Json(UserCode { user_code }): Json<UserCode>,
) -> Result<StatusCode, Problem> {
    decide(&app, &typed(&user_code)?, Some(renter.account)).await
}

/// Refuses a device.
#[utoipa::path(post, path = "/v1/auth/device/deny", operation_id = "deny_device", tag = "auth", request_body = UserCode, security(("bearer" = [])),
    responses((status = 204, description = "The device is told when it asks next")))]
pub(in crate::http) async fn deny(
    State(app): State<App>,
    _: Renter,
    Json(UserCode { user_code }): Json<UserCode>,
) -> Result<StatusCode, Problem> {
    decide(&app, &typed(&user_code)?, None).await
}

/// Lets a device in by a wallet's signature over a message that names its code.
#[utoipa::path(post, path = "/v1/auth/device/siwe", operation_id = "approve_device_signed", tag = "auth", request_body = SignedLogin,
    responses((status = 204, description = "The device gets its session when it asks next")))]
pub(in crate::http) async fn approve_signed(
    State(app): State<App>,
    Json(body): Json<SignedLogin>,
) -> Result<StatusCode, Problem> {
    let proven = prove(&app, &body.message, &body.signature).await?;
    let code = proven.device.ok_or(LoginFault::Message(SiweFault::NoDevice))?;
    decide(&app, &typed(&code)?, Some(proven.account)).await
}

async fn decide(app: &App, code: &str, account: Option<Account>) -> Result<StatusCode, Problem> {
    if device::decide(&app.store.writer, code, account, (app.clock)()).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(LoginFault::NoDevice.into())
}

/// The page on which a browser's wallet approves a device. Nothing on it comes from elsewhere.
#[utoipa::path(get, path = "/device", operation_id = "get_device_page", tag = "auth",
    responses((status = 200, description = "A page", body = String, content_type = "text/html")))]
pub(in crate::http) async fn page() -> Response {
    fixed("text/html; charset=utf-8", include_str!("../device.html"))
}

/// The script of that page.
#[utoipa::path(get, path = "/device.js", operation_id = "get_device_script", tag = "auth",
    responses((status = 200, description = "A script", body = String, content_type = "text/javascript")))]
pub(in crate::http) async fn script() -> Response {
    fixed("text/javascript; charset=utf-8", include_str!("../device.js"))
}

fn fixed(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_eight_letters_and_read_as_people_type_it() {
        let code = fresh_code().unwrap();
        assert_eq!(typed(&shown(&code)).unwrap(), code);
        assert_eq!(typed("bcdf ghjk").unwrap(), "BCDFGHJK");
        for bad in ["", "BCDF-GHJ", "BCDF-GHJA", "BCDF-GHJKL", "BCDF-GHJ\u{e9}"] {
            assert!(matches!(typed(bad), Err(Problem::Login(LoginFault::NoDevice))), "{bad}");
        }
        assert_ne!(fresh_code().unwrap(), code);
    }
}
