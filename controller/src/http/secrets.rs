//! The two secrets of the surface, kept in files that only the controller's user may read: the key of bearer tokens
//! and the pool's tag key.

use std::path::Path;

use hmac::{Hmac, Mac};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use selion_api::commit::PoolId;
use selion_api::{Account, Hash32, NodeId, TimeMs};
use sha2::Sha256;

use super::caller::Caller;
use crate::keys::{KeyError, random_secret};

/// Life of a bearer token in milliseconds: 15 minutes.
pub const TOKEN_MS: u64 = 15 * 60 * 1000;
/// Who issues.
const ISSUER: &str = "selion-controller";
const TOKEN_FILE: &str = "keys/token";
const TAG_FILE: &str = "keys/dataset-tag";

/// Why a secret could not be read or made.
pub type SecretError = KeyError;

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// It was good and is over.
    Expired,
    /// It was not made by this pool's controller.
    Forged,
}

/// Signs and checks bearer tokens, and names datasets by keyed tags.
pub struct Secrets {
    sign: EncodingKey,
    check: DecodingKey,
    rules: Validation,
    audience: String,
    tag_key: [u8; 32],
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    /// Account or node.
    sub: String,
    kind: Kind,
    /// Seconds since 1970, as JWT wants them.
    iat: u64,
    exp: u64,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Renter,
    Node,
}

impl Secrets {
    /// Reads the secrets below `data_dir`, making those that are not there. Tokens count for `pool` alone.
    ///
    /// # Errors
    ///
    /// [`SecretError`], naming the file and the remedy.
    pub fn open(data_dir: &Path, pool: &PoolId) -> Result<Self, SecretError> {
        let token_key = random_secret(&data_dir.join(TOKEN_FILE))?;
        let tag_key = random_secret(&data_dir.join(TAG_FILE))?;
        let audience = format!("{}:{}", pool.chain_id, pool.controller);
        let mut rules = Validation::new(Algorithm::HS256);
        rules.set_audience(&[&audience]);
        rules.set_issuer(&[ISSUER]);
        rules.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        // Expiry is judged by the controller's clock, below.
        rules.validate_exp = false;
        Ok(Self {
            sign: EncodingKey::from_secret(&token_key),
            check: DecodingKey::from_secret(&token_key),
            rules,
            audience,
            tag_key,
        })
    }

    /// A bearer token for `caller`, good for [`TOKEN_MS`] from `now`, and when it lapses.
    ///
    /// # Errors
    ///
    /// The text of the token library, if it could not sign.
    pub fn issue(&self, caller: &Caller, now: TimeMs) -> Result<(String, TimeMs), String> {
        let (kind, sub) = match caller {
            Caller::Renter(account) => (Kind::Renter, account.to_string()),
            Caller::Node(node) => (Kind::Node, node.to_string()),
        };
        let iat = now.0 / 1000;
        let exp = iat + TOKEN_MS / 1000;
        let claims = Claims { iss: ISSUER.to_owned(), aud: self.audience.clone(), sub, kind, iat, exp };
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.sign)
            .map_err(|error| error.to_string())?;
        Ok((token, TimeMs(exp * 1000)))
    }

    /// A bearer token for `node`'s agent: it opens the content gateway and nothing else.
    ///
    /// # Errors
    ///
    /// As [`issue`](Self::issue).
    pub fn node_token(&self, node: NodeId, now: TimeMs) -> Result<String, String> {
        self.issue(&Caller::Node(node), now).map(|(token, _)| token)
    }

    /// Who presents `token`.
    ///
    /// # Errors
    ///
    /// [`TokenFault`]: another key, algorithm, pool or issuer is a forgery.
    pub fn verify(&self, token: &str, now: TimeMs) -> Result<Caller, TokenFault> {
        let claims =
            jsonwebtoken::decode::<Claims>(token, &self.check, &self.rules).map_err(|_| TokenFault::Forged)?.claims;
        if claims.exp.saturating_mul(1000) <= now.0 {
            return Err(TokenFault::Expired);
        }
        let caller = match claims.kind {
            Kind::Renter => claims.sub.parse().map(Caller::Renter),
            Kind::Node => claims.sub.parse().map(Caller::Node),
        };
        caller.map_err(|_| TokenFault::Forged)
    }

    /// The tag that stands for a dataset in the public log: HMAC-SHA256 of the CID's text under the pool's tag key.
    /// Equal datasets have equal tags within a pool; without the key a tag tells nothing.
    #[must_use]
    pub fn dataset_tag(&self, cid: &str) -> Hash32 {
        self.hmac(&[cid.as_bytes()])
    }

    /// The salt of a request that brought none: equal requests under one `Idempotency-Key` stay equal.
    #[must_use]
    pub fn salt(&self, account: Account, idempotency_key: &str) -> Hash32 {
        // No CID begins with a zero byte, so a salt is never a tag.
        self.hmac(&[b"\0salt", &account.0, idempotency_key.as_bytes()])
    }

    fn hmac(&self, parts: &[&[u8]]) -> Hash32 {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.tag_key).expect("any length");
        for part in parts {
            mac.update(part);
        }
        Hash32(mac.finalize().into_bytes().into())
    }
}

/// 32 random bytes.
///
/// # Errors
///
/// If the system gives none.
pub fn random() -> Result<[u8; 32], getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use selion_api::Address;

    use super::*;

    const POOL: PoolId = PoolId { chain_id: 1, controller: Address([7; 20]) };
    const RENTER: Caller = Caller::Renter(Account([1; 20]));

    #[test]
    fn a_token_is_good_until_it_expires_and_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (token, until) = Secrets::open(dir.path(), &POOL).unwrap().issue(&RENTER, TimeMs(5_000)).unwrap();
        let again = Secrets::open(dir.path(), &POOL).unwrap();
        assert_eq!(until, TimeMs(5_000 + TOKEN_MS));
        assert_eq!(again.verify(&token, TimeMs(until.0 - 1)), Ok(RENTER));
        assert_eq!(again.verify(&token, until), Err(TokenFault::Expired));
    }

    #[test]
    fn a_token_of_another_key_pool_or_algorithm_is_a_forgery() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ours = Secrets::open(here.path(), &POOL).unwrap();
        let other_key = Secrets::open(there.path(), &POOL).unwrap();
        let other_pool = Secrets::open(here.path(), &PoolId { chain_id: 2, ..POOL }).unwrap();
        for forger in [&other_key, &other_pool] {
            let (token, _) = forger.issue(&RENTER, TimeMs(0)).unwrap();
            assert_eq!(ours.verify(&token, TimeMs(0)), Err(TokenFault::Forged));
        }
        // {"alg":"none"} with the claims of a good token.
        let (good, _) = ours.issue(&RENTER, TimeMs(0)).unwrap();
        let claims = good.split('.').nth(1).unwrap();
        let none = format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{claims}.");
        assert_eq!(ours.verify(&none, TimeMs(0)), Err(TokenFault::Forged));
        assert_eq!(ours.verify("", TimeMs(0)), Err(TokenFault::Forged));
    }

    #[test]
    fn tags_are_equal_within_a_pool_and_differ_between_pools() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ours, theirs) = (Secrets::open(here.path(), &POOL).unwrap(), Secrets::open(there.path(), &POOL).unwrap());
        assert_eq!(ours.dataset_tag("bafy"), ours.dataset_tag("bafy"));
        assert_ne!(ours.dataset_tag("bafy"), theirs.dataset_tag("bafy"));
        assert_ne!(ours.salt(Account([1; 20]), "a"), ours.salt(Account([1; 20]), "b"));
    }
}
