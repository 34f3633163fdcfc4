//! Logging in: by a wallet (EIP-4361), by the approval of a device, by an API key; and out again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ethers_signers::{LocalWallet, Signer};
use reqwest::{Method, Url};
use selion_api::rest::{
    ApiKey, Device, DeviceToken, DeviceView, NewApiKey, NewDevice, NewNonce, Nonce, Revoke, Revoked, Session,
    SignedLogin, UserCode,
};
use selion_api::{Account, Signature, TimeMs};

use crate::call::{As, TIMEOUT, is_loopback};
use crate::sign::account_of;
use crate::{Client, ClientError};

/// What a device that asks too often adds to its pace (RFC 8628 §3.5).
const SLOWER: Duration = Duration::from_secs(5);

/// Keeps a session where several processes share it: each refresh token counts once, so they take turns.
pub trait Keeper: Send + Sync {
    /// Waits until nobody else renews.
    ///
    /// # Errors
    ///
    /// A text for people, if the place cannot be used.
    fn turn(&self) -> Result<Box<dyn Turn>, String>;
}

/// The right to renew, until it is dropped.
pub trait Turn: Send {
    /// The session as it is kept now: another process may have renewed it.
    fn kept(&self) -> Option<Session>;
    /// Keeps the renewed one.
    ///
    /// # Errors
    ///
    /// A text for people.
    fn keep(&self, session: &Session) -> Result<(), String>;
}

/// Each method is the route of its name; all fail with [`ClientError`].
#[expect(clippy::missing_errors_doc, reason = "said once, above")]
impl Client {
    /// Opens a session for the wallet's account, called `name`, and uses it from now on.
    pub async fn login(&self, wallet: &LocalWallet, name: &str) -> Result<Session, ClientError> {
        let account = account_of(wallet);
        let ask = NewNonce { account: Some(account), user_code: None };
        let nonce: Nonce = self.post(As::Anyone, &["v1", "auth", "nonce"], &ask).await?;
        let message = nonce.message.clone().unwrap_or_default();
        if let Err(what) = is_login(&message, &self.base()?, account, &nonce.nonce) {
            return Err(ClientError::Protocol { url: self.base_url().to_owned(), what });
        }
        let signature = wallet.sign_message(&message).await.map_err(|error| ClientError::Wallet(error.to_string()))?;
        let body = SignedLogin { message, signature: Signature(signature.into()), name: name.to_owned() };
        let session: Session = self.post(As::Anyone, &["v1", "auth", "siwe"], &body).await?;
        self.set_session(&session);
        Ok(session)
    }

    fn base(&self) -> Result<Url, ClientError> {
        let bad = |why: String| ClientError::BadUrl { url: self.base_url().to_owned(), why };
        self.base_url().parse().map_err(|error| bad(format!("{error}")))
    }

    /// `POST /v1/auth/logout`: ends this session and forgets it.
    pub async fn logout(&self) -> Result<(), ClientError> {
        self.empty(Method::POST, &["v1", "auth", "logout"], &()).await?;
        self.forget_login();
        Ok(())
    }

    /// `POST /v1/auth/logout-all`: ends every session of the account, this one too.
    pub async fn logout_all(&self) -> Result<Revoked, ClientError> {
        let ended = self.post(As::Me, &["v1", "auth", "logout-all"], &()).await?;
        self.forget_login();
        Ok(ended)
    }

    /// `POST /v1/auth/device`: asks to be let in without a key.
    pub async fn start_device(&self, name: &str) -> Result<Device, ClientError> {
        self.post(As::Anyone, &["v1", "auth", "device"], &NewDevice { name: name.to_owned() }).await
    }

    /// `POST /v1/auth/device/token`, once. Uses the session from now on, if there is one.
    pub async fn device_session(&self, device: &Device) -> Result<Session, ClientError> {
        let body = DeviceToken { device_code: device.device_code.clone() };
        let session: Session = self.post(As::Anyone, &["v1", "auth", "device", "token"], &body).await?;
        self.set_session(&session);
        Ok(session)
    }

    /// The same, at the device's pace, until somebody decides or the codes lapse.
    pub async fn await_device(&self, device: &Device) -> Result<Session, ClientError> {
        let mut pace = Duration::from_secs(device.interval.max(1));
        loop {
            tokio::time::sleep(pace).await;
            match self.device_session(device).await {
                Err(error) if error.code() == Some("slow_down") => pace += SLOWER,
                Err(error) if error.code() == Some("authorization_pending") => {}
                other => return other,
            }
        }
    }

    /// `POST /v1/auth/device/look`.
    pub async fn look_at_device(&self, user_code: &str) -> Result<DeviceView, ClientError> {
        self.post(As::Anyone, &["v1", "auth", "device", "look"], &code(user_code)).await
    }

    /// `POST /v1/auth/device/approve`.
    pub async fn approve_device(&self, user_code: &str) -> Result<(), ClientError> {
        self.empty(Method::POST, &["v1", "auth", "device", "approve"], &code(user_code)).await
    }

    /// `POST /v1/auth/device/deny`.
    pub async fn deny_device(&self, user_code: &str) -> Result<(), ClientError> {
        self.empty(Method::POST, &["v1", "auth", "device", "deny"], &code(user_code)).await
    }

    /// `POST /v1/api-keys`. The key is shown this once.
    pub async fn create_api_key(&self, key: &NewApiKey) -> Result<ApiKey, ClientError> {
        self.post(As::Me, &["v1", "api-keys"], key).await
    }

    /// `POST /v1/operator/revoke`, as an operator of the pool.
    pub async fn revoke_account(&self, account: Account) -> Result<Revoked, ClientError> {
        self.post(As::Me, &["v1", "operator", "revoke"], &Revoke { account }).await
    }

    async fn empty(&self, method: Method, path: &[&str], body: &impl serde::Serialize) -> Result<(), ClientError> {
        let make = || self.request(method.clone(), path).json(body).timeout(TIMEOUT);
        self.ask(As::Me, make).await.map(drop)
    }
}

fn code(user_code: &str) -> UserCode {
    UserCode { user_code: user_code.to_owned() }
}

/// Whether `message` logs `account` in at `base` and does nothing else: only such a text is signed.
fn is_login(message: &str, base: &Url, account: Account, nonce: &str) -> Result<(), String> {
    let mut lines = message.lines();
    let site = lines.next().and_then(|line| line.strip_suffix(" wants you to sign in with your Ethereum account:"));
    let site = site.ok_or("its login text is not EIP-4361, so it was not signed")?;
    let at: Option<Url> = format!("{}://{site}", base.scheme()).parse().ok();
    let here = at.as_ref().is_some_and(|at| at.authority() == base.authority() || is_loopback(at) && is_loopback(base));
    if !here {
        let ours = base.authority();
        return Err(format!(
            "its login text is for `{site}`, but it was reached as `{ours}`, so it was not signed; use the pool's own \
             address, or let its operator set public_url"
        ));
    }
    let whose = lines.next().is_some_and(|line| line.eq_ignore_ascii_case(&account.to_string()));
    let fresh = lines.clone().any(|line| line.strip_prefix("Nonce: ") == Some(nonce));
    let more = lines.any(|line| line.starts_with("- urn:selion:device:"));
    if !whose || !fresh || more {
        return Err("its login text does not log this account in with the nonce, so it was not signed".to_owned());
    }
    Ok(())
}

/// Milliseconds since 1970 by this machine's clock. A token is also renewed when the controller says that it lapsed.
pub(crate) fn now() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Account = Account([0xab; 20]);

    fn message(site: &str, account: &str, nonce: &str, last: &str) -> String {
        format!(
            "{site} wants you to sign in with your Ethereum account:\n{account}\n\nLog in.\n\nURI: http://{site}\n\
             Nonce: {nonce}\nResources:\n- {last}"
        )
    }

    fn signs(base: &str, message: &str) -> Result<(), String> {
        is_login(message, &base.parse().unwrap(), ME, "n0nce123")
    }

    #[test]
    fn only_a_login_of_this_account_at_this_site_is_signed() {
        let me = format!("0x{}", "AB".repeat(20));
        let pool = "urn:selion:pool:1:0x00";
        let good = message("pool.example", &me, "n0nce123", pool);
        assert_eq!(signs("https://pool.example/", &good), Ok(()));
        let told = signs("https://other.example/", &good).unwrap_err();
        assert!(
            told.contains("`pool.example`") && told.contains("`other.example`") && told.contains("public_url"),
            "{told}"
        );
        assert!(signs("https://pool.example:8443/", &good).is_err(), "another port is another site");
        let local = message("127.0.0.1:7070", &me, "n0nce123", pool);
        assert_eq!(signs("http://localhost:9000/", &local), Ok(()), "a tunnel on this machine");
        for bad in [
            message("pool.example", &format!("0x{}", "ac".repeat(20)), "n0nce123", pool),
            message("pool.example", &me, "n0nce124", pool),
            message("pool.example", &me, "n0nce123", "urn:selion:device:BCDFGHJK"),
            "Selion: make an API key for this account.".to_owned(),
            String::new(),
        ] {
            assert!(signs("https://pool.example/", &bad).unwrap_err().contains("not signed"), "{bad}");
        }
    }
}
