//! Logging in: nonce, signature, API key.

use std::time::{SystemTime, UNIX_EPOCH};

use ethers_signers::{LocalWallet, Signer};
use selion_api::rest::{ApiKey, NewApiKey, Nonce};
use selion_api::{Signature, TimeMs};

use crate::call::{As, read};
use crate::sign::account_of;
use crate::{Client, ClientError};

impl Client {
    /// Makes an API key called `name` for the wallet's account, and uses it from now on.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn login(&self, wallet: &LocalWallet, name: &str) -> Result<ApiKey, ClientError> {
        let account = account_of(wallet);
        let make = || {
            self.request(reqwest::Method::POST, &["v1", "auth", "nonce"])
                .query(&[("account", account.to_string())])
                .timeout(crate::call::TIMEOUT)
        };
        let nonce: Nonce = read(self.ask(As::Anyone, make).await?).await?;
        // Only a text that names this account's login is signed, never something else in its place.
        let expected = [account.to_string(), nonce.nonce.to_string()];
        if !nonce.message.starts_with("Selion: ") || expected.iter().any(|part| !nonce.message.contains(part)) {
            let what = "its login text does not name the account and the nonce, so it was not signed".to_owned();
            return Err(ClientError::Protocol { url: self.base_url().to_owned(), what });
        }
        let signature =
            wallet.sign_message(&nonce.message).await.map_err(|error| ClientError::Wallet(error.to_string()))?;
        let body =
            NewApiKey { account, nonce: nonce.nonce, signature: Signature(signature.into()), name: name.to_owned() };
        let key: ApiKey = self.post(As::Anyone, &["v1", "api-keys"], &body).await?;
        self.set_api_key(&key.api_key);
        self.forget_token().await;
        Ok(key)
    }
}

/// Milliseconds since 1970 by this machine's clock. A token is also renewed when the controller says that it lapsed.
pub(crate) fn now() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
