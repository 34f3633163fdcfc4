//! The two secrets of the surface, kept in files that only the controller's user may read: the key of bearer tokens
//! and the pool's tag key.

use std::path::Path;

use hmac::{Hmac, Mac};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use selion_api::commit::PoolId;
use selion_api::{Account, Hash32, NodeId, TimeMs};
use sha2::{Digest, Sha256};

use super::caller::Caller;
use super::pass::{Login, Pass, Scopes};
use crate::keys::{KeyError, random_secret};

/// Life of an access token in milliseconds: 10 minutes.
pub const TOKEN_MS: u64 = 10 * 60 * 1000;
/// Life of a nonce in milliseconds: five minutes.
pub const NONCE_MS: u64 = 5 * 60 * 1000;
/// Who issues.
const ISSUER: &str = "selion-controller";
const TOKEN_FILE: &str = "keys/token";
const TAG_FILE: &str = "keys/dataset-tag";
/// Bytes of a nonce before its proof: when it lapses, and sixteen random ones.
const NONCE_BODY: usize = 8 + 16;

/// Why a secret could not be read or made.
pub type SecretError = KeyError;

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// It was good and is over.
    Expired,
    /// It was not made by this pool's controller.
    Forged,
    /// Its login was ended.
    Revoked,
}

/// Signs and checks bearer tokens, and names datasets by keyed tags.
pub struct Secrets {
    sign: EncodingKey,
    check: DecodingKey,
    rules: Validation,
    audience: String,
    token_key: [u8; 32],
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
    /// Names this token and no other.
    jti: String,
    /// Codes with a blank between them.
    scope: String,
    /// The account's epoch.
    epoch: u64,
    /// The session that it is of, or else the API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<u64>,
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
            token_key,
            tag_key,
        })
    }

    /// A bearer token for `pass`, good for [`TOKEN_MS`] from `now` or up to `until`, and when it lapses.
    ///
    /// # Errors
    ///
    /// The text of the token library or of the system, if it could not be made.
    pub fn issue(&self, pass: &Pass, now: TimeMs, until: Option<TimeMs>) -> Result<(String, TimeMs), String> {
        let (kind, sub) = match pass.caller {
            Caller::Renter(account) => (Kind::Renter, account.to_string()),
            Caller::Node(node) => (Kind::Node, node.to_string()),
        };
        let (session, key) = match pass.login {
            Login::Session(id) => (Some(id), None),
            Login::Key(id) => (None, Some(id)),
            Login::Link => (None, None),
        };
        let iat = now.0 / 1000;
        let exp = until.map_or(u64::MAX, |until| until.0 / 1000).min(iat + TOKEN_MS / 1000);
        let jti = hex::encode(&random().map_err(|error| error.to_string())?[..16]);
        let (iss, aud) = (ISSUER.to_owned(), self.audience.clone());
        let (scope, epoch) = (pass.scopes.text(), pass.epoch);
        let claims = Claims { iss, aud, sub, kind, iat, exp, jti, scope, epoch, session, key };
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.sign)
            .map_err(|error| error.to_string())?;
        Ok((token, TimeMs(exp * 1000)))
    }

    /// A bearer token for `node`'s agent: it opens the content gateway and what every token opens.
    ///
    /// # Errors
    ///
    /// As [`issue`](Self::issue).
    pub fn node_token(&self, node: NodeId, now: TimeMs) -> Result<String, String> {
        self.issue(&Pass::node(node), now, None).map(|(token, _)| token)
    }

    /// What `token` says. Whether its login was ended is for [`Logins`](super::pass::Logins) to say.
    ///
    /// # Errors
    ///
    /// [`TokenFault`]: another key, algorithm, pool or issuer is a forgery.
    pub fn verify(&self, token: &str, now: TimeMs) -> Result<Pass, TokenFault> {
        let claims =
            jsonwebtoken::decode::<Claims>(token, &self.check, &self.rules).map_err(|_| TokenFault::Forged)?.claims;
        if claims.exp.saturating_mul(1000) <= now.0 {
            return Err(TokenFault::Expired);
        }
        let caller = match claims.kind {
            Kind::Renter => claims.sub.parse().map(Caller::Renter),
            Kind::Node => claims.sub.parse().map(Caller::Node),
        };
        let login = match (claims.session, claims.key) {
            (Some(id), None) => Login::Session(id),
            (None, Some(id)) => Login::Key(id),
            (None, None) => Login::Link,
            (Some(_), Some(_)) => return Err(TokenFault::Forged),
        };
        let caller = caller.map_err(|_| TokenFault::Forged)?;
        Ok(Pass { caller, login, scopes: Scopes::read(&claims.scope), epoch: claims.epoch })
    }

    /// A nonce, and when it lapses. It carries its own proof, so that nothing is kept for whoever only asks.
    ///
    /// # Errors
    ///
    /// The text of the system, if it gives no random bytes.
    pub fn nonce(&self, now: TimeMs) -> Result<(String, TimeMs), String> {
        let expires = now.plus(NONCE_MS);
        let mut bytes = [0; NONCE_BODY];
        bytes[..8].copy_from_slice(&expires.0.to_be_bytes());
        bytes[8..].copy_from_slice(&random().map_err(|error| error.to_string())?[..16]);
        let proof = self.nonce_proof(&bytes);
        Ok((hex::encode(bytes) + &hex::encode(&proof.0[..16]), expires))
    }

    /// When `nonce` lapses, if it is one of ours.
    #[must_use]
    pub fn nonce_expires(&self, nonce: &str) -> Option<TimeMs> {
        let mut bytes = [0; NONCE_BODY + 16];
        hex::decode_to_slice(nonce, &mut bytes).ok()?;
        // One nonce has one spelling: it is spent by its text.
        if hex::encode(bytes) != nonce {
            return None;
        }
        let (body, proof) = bytes.split_at(NONCE_BODY);
        // Compared by digest, so that the time it takes tells nothing of the bytes.
        let same = Sha256::digest(proof) == Sha256::digest(&self.nonce_proof(body).0[..16]);
        let expires = body.first_chunk().map(|expires| TimeMs(u64::from_be_bytes(*expires)));
        expires.filter(|_| same)
    }

    fn nonce_proof(&self, body: &[u8]) -> Hash32 {
        hmac(&self.token_key, &[b"\0nonce", body])
    }

    /// The tag that stands for an account's dataset in the public log: HMAC-SHA256 of account and CID under the pool's
    /// tag key. Equal datasets of one account have equal tags; nobody finds another account's dataset by bringing the
    /// same bytes, and without the key a tag tells nothing.
    #[must_use]
    pub fn dataset_tag(&self, account: Account, cid: &str) -> Hash32 {
        hmac(&self.tag_key, &[b"\0data", &account.0, cid.as_bytes()])
    }

    /// The salt of a request that brought none: equal requests under one `Idempotency-Key` stay equal.
    #[must_use]
    pub fn salt(&self, account: Account, idempotency_key: &str) -> Hash32 {
        // The two begin with different words, so a salt is never a tag.
        hmac(&self.tag_key, &[b"\0salt", &account.0, idempotency_key.as_bytes()])
    }
}

fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> Hash32 {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    for part in parts {
        mac.update(part);
    }
    Hash32(mac.finalize().into_bytes().into())
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
    const RENTER: Pass = Pass {
        caller: Caller::Renter(Account([1; 20])),
        login: Login::Session(3),
        scopes: Scopes::DELEGATED,
        epoch: 2,
    };

    #[test]
    fn a_token_is_good_until_it_expires_and_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (token, until) = Secrets::open(dir.path(), &POOL).unwrap().issue(&RENTER, TimeMs(5_000), None).unwrap();
        let again = Secrets::open(dir.path(), &POOL).unwrap();
        assert_eq!(until, TimeMs(5_000 + TOKEN_MS));
        assert_eq!(again.verify(&token, TimeMs(until.0 - 1)), Ok(RENTER));
        assert_eq!(again.verify(&token, until), Err(TokenFault::Expired));
        let key = Pass { login: Login::Key(9), ..RENTER };
        let (short, until) = again.issue(&key, TimeMs(5_000), Some(TimeMs(7_500))).unwrap();
        assert_eq!(until, TimeMs(7_000));
        assert_eq!(again.verify(&short, TimeMs(6_999)), Ok(key));
        assert_eq!(
            again.verify(&again.node_token(NodeId([4; 20]), TimeMs(0)).unwrap(), TimeMs(0)),
            Ok(Pass::node(NodeId([4; 20])))
        );
    }

    #[test]
    fn a_nonce_is_known_by_its_own_proof_and_has_one_spelling() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ours, theirs) = (Secrets::open(here.path(), &POOL).unwrap(), Secrets::open(there.path(), &POOL).unwrap());
        let (nonce, expires) = ours.nonce(TimeMs(7)).unwrap();
        assert!(nonce.len() >= 8 && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric()), "EIP-4361 {nonce}");
        assert_eq!((ours.nonce_expires(&nonce), expires), (Some(expires), TimeMs(7 + NONCE_MS)));
        assert_ne!(ours.nonce(TimeMs(7)).unwrap().0, nonce);
        assert_eq!(theirs.nonce_expires(&nonce), None);
        let later = format!("ff{}", &nonce[2..]);
        for other in [nonce.to_uppercase(), later, nonce[2..].to_owned(), "12345678".to_owned(), String::new()] {
            assert_eq!(ours.nonce_expires(&other), None, "{other}");
        }
    }

    #[test]
    fn a_token_of_another_key_pool_or_algorithm_is_a_forgery() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ours = Secrets::open(here.path(), &POOL).unwrap();
        let other_key = Secrets::open(there.path(), &POOL).unwrap();
        let other_pool = Secrets::open(here.path(), &PoolId { chain_id: 2, ..POOL }).unwrap();
        for forger in [&other_key, &other_pool] {
            let (token, _) = forger.issue(&RENTER, TimeMs(0), None).unwrap();
            assert_eq!(ours.verify(&token, TimeMs(0)), Err(TokenFault::Forged));
        }
        // {"alg":"none"} with the claims of a good token.
        let (good, _) = ours.issue(&RENTER, TimeMs(0), None).unwrap();
        let claims = good.split('.').nth(1).unwrap();
        let none = format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{claims}.");
        assert_eq!(ours.verify(&none, TimeMs(0)), Err(TokenFault::Forged));
        assert_eq!(ours.verify("", TimeMs(0)), Err(TokenFault::Forged));
    }

    #[test]
    fn tags_are_equal_within_an_account_and_differ_between_accounts_and_pools() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ours, theirs) = (Secrets::open(here.path(), &POOL).unwrap(), Secrets::open(there.path(), &POOL).unwrap());
        let (me, other) = (Account([1; 20]), Account([2; 20]));
        assert_eq!(ours.dataset_tag(me, "bafy"), ours.dataset_tag(me, "bafy"));
        assert_ne!(ours.dataset_tag(me, "bafy"), ours.dataset_tag(other, "bafy"), "the tag is no oracle");
        assert_ne!(ours.dataset_tag(me, "bafy"), theirs.dataset_tag(me, "bafy"));
        assert_ne!(ours.salt(Account([1; 20]), "a"), ours.salt(Account([1; 20]), "b"));
    }
}
