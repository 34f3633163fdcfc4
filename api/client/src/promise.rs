//! Promises: what the authority signs of every input that a caller entered. Kept, they prove a log wrong that leaves the
//! input out.

use std::sync::PoisonError;

use ethers_core::types::{RecoveryMessage, Signature as EthersSignature};
use reqwest::Response;
use selion_api::agent::SignedPromise;
use selion_api::commit::PoolId;
use selion_api::rest::PROMISE_HEADER;
use selion_api::{Account, Signature};

use crate::{Client, ClientError};

/// Half the order of secp256k1: a contract takes no signature with a higher s, so it would prove nothing there.
const MAX_S: [u8; 32] = [
    0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x5d, 0x57, 0x6e,
    0x73, 0x57, 0xa4, 0x50, 0x1d, 0xdf, 0xe9, 0x2f, 0x46, 0x68, 0x1b, 0x20, 0xa0,
];

/// Who has to promise, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// The pool.
    pub pool: PoolId,
    /// Its authority, best as the chain says.
    pub authority: Account,
    /// The caller.
    pub account: Account,
}

impl Trust {
    /// The promise in a header's text.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(&self, text: &str) -> Result<SignedPromise, String> {
        let bytes = hex::decode(text).map_err(|_| "it is no hex".to_owned())?;
        let signed: SignedPromise =
            borsh::from_slice(&bytes).map_err(|error| format!("it does not decode: {error}"))?;
        let account = signed.promise.account;
        if account != self.account {
            return Err(format!("it is made to {account}, the caller is {}", self.account));
        }
        let signer = signer(&signed.promise.digest_to_sign(&self.pool).0, &signed.signature);
        if signer != Some(self.authority) {
            let signer = signer.map_or_else(|| "nobody".to_owned(), |signer| signer.to_string());
            return Err(format!("it is signed by {signer}, the pool's authority is {}", self.authority));
        }
        Ok(signed)
    }
}

pub(crate) fn signer(text: &[u8], signature: &Signature) -> Option<Account> {
    let parsed = EthersSignature::try_from(&signature.0[..]).ok()?;
    if signature.0[32..64] > MAX_S[..] || !matches!(parsed.v, 27 | 28) {
        return None;
    }
    parsed.recover(RecoveryMessage::Data(text.to_vec())).ok().map(|address| Account(address.0))
}

impl Client {
    /// From now on every promise that comes with an answer is checked, and kept for [`Client::take_promises`].
    pub fn expect_promises(&self, trust: Trust) {
        self.promises().trust = Some(trust);
    }

    /// The promises that came since the last call.
    #[must_use]
    pub fn take_promises(&self) -> Vec<SignedPromise> {
        std::mem::take(&mut self.promises().kept)
    }

    fn promises(&self) -> std::sync::MutexGuard<'_, Promises> {
        self.promised().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks and keeps the promise on an answer. `seq` is the entry that the answer itself names.
    pub(crate) fn keep_promise(&self, headers: &Headers, seq: Option<u64>) -> Result<(), ClientError> {
        let mut promises = self.promises();
        let (Some(trust), Some(text)) = (promises.trust, &headers.promise) else { return Ok(()) };
        let broken = |why: String| ClientError::Promise { url: headers.url.clone(), why };
        let signed = trust.read(text).map_err(broken)?;
        if let Some(seq) = seq.filter(|seq| *seq != signed.promise.seq) {
            return Err(broken(format!("it is about entry {}, the answer about entry {seq}", signed.promise.seq)));
        }
        if !promises.kept.contains(&signed) {
            promises.kept.push(signed);
        }
        Ok(())
    }
}

/// What is expected and what came.
#[derive(Default)]
pub(crate) struct Promises {
    trust: Option<Trust>,
    kept: Vec<SignedPromise>,
}

/// What is looked at of an answer after its body was read.
pub(crate) struct Headers {
    url: String,
    promise: Option<String>,
}

impl Headers {
    pub(crate) fn of(response: &Response) -> Self {
        let promise = response.headers().get(PROMISE_HEADER).and_then(|value| value.to_str().ok());
        Self { url: response.url().to_string(), promise: promise.map(ToOwned::to_owned) }
    }
}

#[cfg(test)]
mod tests {
    use ethers_signers::{LocalWallet, Signer};
    use selion_api::agent::{Fence, Promise};
    use selion_api::{Address, Hash32};

    use super::*;
    use crate::account_of;

    const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([1; 20]) };
    const ME: Account = Account([9; 20]);

    fn wallet(byte: u8) -> LocalWallet {
        LocalWallet::from_bytes(&[byte; 32]).unwrap()
    }

    async fn promise(by: &LocalWallet, to: Account) -> SignedPromise {
        let promise = Promise { account: to, seq: 7, leaf: Hash32([3; 32]), fence: Fence { epoch: 1, term: 1 } };
        let signature = by.sign_message(promise.digest_to_sign(&POOL).0).await.unwrap();
        SignedPromise { promise, signature: Signature(signature.into()) }
    }

    fn text(signed: &SignedPromise) -> String {
        hex::encode(selion_api::commit::canonical(signed))
    }

    fn client() -> (Client, Trust) {
        let client = Client::new("http://127.0.0.1:9").unwrap();
        let trust = Trust { pool: POOL, authority: account_of(&wallet(5)), account: ME };
        client.expect_promises(trust);
        (client, trust)
    }

    fn headers(promise: Option<String>) -> Headers {
        Headers { url: "http://pool/".to_owned(), promise }
    }

    #[tokio::test]
    async fn a_promise_of_the_authority_is_kept_once_and_given_once() {
        let (client, _) = client();
        let signed = promise(&wallet(5), ME).await;
        client.keep_promise(&headers(Some(text(&signed))), Some(7)).unwrap();
        client.keep_promise(&headers(Some(text(&signed))), None).unwrap();
        client.keep_promise(&headers(None), Some(7)).unwrap();
        assert_eq!(client.take_promises(), [signed]);
        assert_eq!(client.take_promises(), []);
    }

    #[tokio::test]
    async fn a_promise_of_another_to_another_altered_or_about_another_entry_is_refused() {
        let (client, trust) = client();
        let good = promise(&wallet(5), ME).await;
        let mut altered = good;
        altered.promise.seq = 8;
        let mut twin = good;
        twin.signature.0[64] ^= 7;
        for (one, word) in [
            (promise(&wallet(6), ME).await, "the pool's authority is"),
            (promise(&wallet(5), Account([8; 20])).await, "the caller is"),
            (altered, "signed by"),
            (twin, "signed by"),
        ] {
            let why = trust.read(&text(&one)).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        assert!(trust.read("zz").is_err() && trust.read("00").is_err());
        let error = client.keep_promise(&headers(Some(text(&good))), Some(8)).unwrap_err().to_string();
        assert!(error.contains("entry 7") && error.contains("entry 8"), "{error}");
        assert_eq!(client.take_promises(), []);
    }
}
