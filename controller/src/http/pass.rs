//! What a good token says, and which good tokens are over before their time.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use selion_api::rest::Scope;
use selion_api::{Account, Hash32, NodeId, TimeMs};
use sha2::{Digest, Sha256};
use sqlx::SqlitePool;

use super::caller::Caller;
use super::secrets::TOKEN_MS;
use crate::store::api_key::{self, LiveKey};
use crate::store::session::{self, Ended};

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u16);

impl Scopes {
    /// Everything: what a signature opens.
    pub const ALL: Self = Self((1 << Scope::ALL.len()) - 1);
    /// Everything but managing logins: what a device gets, and the most that an API key can have.
    pub const DELEGATED: Self = Self(Self::ALL.0 & !(1 << Scope::Login as u16));

    /// Whether `scope` is in it.
    #[must_use]
    pub const fn has(self, scope: Scope) -> bool {
        self.0 & 1 << scope as u16 != 0
    }

    /// Without `scope`.
    #[must_use]
    pub const fn without(self, scope: Scope) -> Self {
        Self(self.0 & !(1 << scope as u16))
    }

    /// In order.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }

    /// Codes with a blank between them, as in a token (RFC 8693 §4.2) and in the store.
    #[must_use]
    pub fn text(self) -> String {
        self.iter().map(Scope::code).collect::<Vec<_>>().join(" ")
    }

    /// What [`text`](Self::text) wrote; unknown words give nothing.
    #[must_use]
    pub fn read(text: &str) -> Self {
        text.split(' ').filter_map(Scope::of).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | 1 << scope as u16))
    }
}

/// What a token was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Login {
    /// A session, by its id.
    Session(u64),
    /// An API key, by its id.
    Key(u64),
    /// A node's link.
    Link,
}

/// What a good token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Who.
    pub caller: Caller,
    /// By what.
    pub login: Login,
    /// What for.
    pub scopes: Scopes,
    /// The account's epoch when it was made.
    pub epoch: u64,
}

impl Pass {
    /// A node's: blocks, and what every token opens.
    #[must_use]
    pub const fn node(node: NodeId) -> Self {
        Self { caller: Caller::Node(node), login: Login::Link, scopes: Scopes(0), epoch: 0 }
    }
}

/// What every API key begins with.
const KEY_PREFIX: &str = "sk_";
/// How long a key that was looked up is known without a look, in milliseconds: its expiry and its end are seen at once
/// all the same, so this bounds only how old `used_ms` is.
const KNOWN_MS: u64 = 60_000;
/// Keys that are known at a time.
const KNOWN: usize = 10_000;

/// Id and hash of an API key that somebody presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyText {
    /// Which.
    pub id: u64,
    /// SHA-256 of its secret.
    pub hash: Hash32,
}

/// Whether `text` means to be an API key.
#[must_use]
pub fn is_key(text: &str) -> bool {
    text.starts_with(KEY_PREFIX)
}

/// Reads the text of an API key.
#[must_use]
pub fn parse_key(text: &str) -> Option<KeyText> {
    let (id, secret) = text.strip_prefix(KEY_PREFIX)?.split_once('_')?;
    Some(KeyText { id: id.parse().ok()?, hash: secret_hash(secret, "")? })
}

/// What is kept of a secret.
#[must_use]
pub fn hash(secret: &[u8; 32]) -> Hash32 {
    Hash32(Sha256::digest(secret).into())
}

/// The hash of a secret in hex behind `prefix`.
#[must_use]
pub fn secret_hash(text: &str, prefix: &str) -> Option<Hash32> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text.strip_prefix(prefix)?, &mut bytes).ok()?;
    Some(hash(&bytes))
}

/// An API key that was looked up.
#[derive(Clone, Copy, Debug)]
struct KnownKey {
    account: Account,
    scopes: Scopes,
    expires: Option<TimeMs>,
    since: TimeMs,
}

impl KnownKey {
    fn lives(&self, now: TimeMs) -> bool {
        self.since.plus(KNOWN_MS) > now && self.expires.is_none_or(|at| at > now)
    }
}

/// Which tokens are over although their time is not, and which API keys were used just now: in memory, since every
/// request asks.
#[derive(Debug, Default)]
pub struct Logins {
    state: RwLock<State>,
    keys: RwLock<HashMap<KeyText, KnownKey>>,
}

#[derive(Debug, Default)]
struct State {
    epochs: HashMap<Account, u64>,
    /// Ended within the life of a token: older ones have no token left.
    ended: HashMap<Login, TimeMs>,
}

impl Logins {
    /// What the store knows at `now`.
    ///
    /// # Errors
    ///
    /// As the database.
    pub async fn load(db: &SqlitePool, now: TimeMs) -> sqlx::Result<Self> {
        let since = TimeMs(now.0.saturating_sub(TOKEN_MS));
        let sessions = session::ended_since(db, since).await?.into_iter();
        let keys = api_key::revoked_since(db, since).await?.into_iter();
        let ended = sessions
            .map(|(id, at)| (Login::Session(id), at))
            .chain(keys.map(|(id, at)| (Login::Key(id), at)))
            .collect();
        let epochs = session::epochs(db).await?.into_iter().collect();
        Ok(Self { state: RwLock::new(State { epochs, ended }), keys: RwLock::default() })
    }

    /// What a key is good for that was looked up within a minute.
    #[must_use]
    pub fn recall(&self, key: &KeyText, now: TimeMs) -> Option<Pass> {
        let known = self.keys.read().unwrap_or_else(PoisonError::into_inner).get(key).copied();
        known.filter(|known| known.lives(now)).map(|known| self.pass_of(key, &known))
    }

    /// What a key is good for that was looked up now.
    pub fn remember(&self, key: KeyText, live: &LiveKey, now: TimeMs) -> Pass {
        let (scopes, expires) = (Scopes::read(&live.scopes), live.expires);
        let known = KnownKey { account: live.account, scopes, expires, since: now };
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= KNOWN {
            keys.retain(|_, known| known.lives(now));
        }
        if keys.len() < KNOWN {
            keys.insert(key, known);
        }
        self.pass_of(&key, &known)
    }

    fn pass_of(&self, key: &KeyText, known: &KnownKey) -> Pass {
        let (login, epoch) = (Login::Key(key.id), self.epoch(known.account));
        Pass { caller: Caller::Renter(known.account), login, scopes: known.scopes, epoch }
    }

    /// The epoch that tokens of `account` are made with.
    #[must_use]
    pub fn epoch(&self, account: Account) -> u64 {
        self.state.read().unwrap_or_else(PoisonError::into_inner).epochs.get(&account).copied().unwrap_or_default()
    }

    /// Whether nothing ended the login of `pass`.
    #[must_use]
    pub fn admit(&self, pass: &Pass) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let epoch = match pass.caller {
            Caller::Renter(account) => state.epochs.get(&account).copied().unwrap_or_default(),
            Caller::Node(_) => 0,
        };
        pass.epoch == epoch && !state.ended.contains_key(&pass.login)
    }

    /// That login is over.
    pub fn end(&self, login: Login, now: TimeMs) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.ended.retain(|_, at| at.plus(TOKEN_MS) > now);
        state.ended.insert(login, now);
    }

    /// All of that account's are over, as the store has it.
    pub fn end_all(&self, account: Account, ended: &Ended, now: TimeMs) {
        // The logins too: a token that is being made at this moment would have the new epoch.
        ended.sessions.iter().for_each(|id| self.end(Login::Session(*id), now));
        ended.keys.iter().for_each(|id| self.end(Login::Key(*id), now));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let epoch = state.epochs.entry(account).or_default();
        *epoch = (*epoch).max(ended.epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Account = Account([1; 20]);
    const PASS: Pass = Pass { caller: Caller::Renter(ME), login: Login::Session(7), scopes: Scopes::ALL, epoch: 0 };

    #[test]
    fn scopes_read_back_and_a_delegate_never_manages_logins() {
        assert_eq!(Scopes::read(&Scopes::ALL.text()), Scopes::ALL);
        assert_eq!(Scopes::read("data:read nonsense lease:read").text(), "lease:read data:read");
        assert_eq!(Scopes::DELEGATED, Scopes::ALL.without(Scope::Login));
        assert!(!Scopes::DELEGATED.has(Scope::Login) && Scopes::DELEGATED.has(Scope::LeaseWrite));
        assert_eq!(Scopes::read(""), Scopes::default());
    }

    #[test]
    fn an_ended_login_and_a_lower_epoch_are_over_and_nothing_else() {
        let logins = Logins::default();
        let other = Pass { login: Login::Session(8), ..PASS };
        assert!(logins.admit(&PASS));
        logins.end(Login::Session(7), TimeMs(5));
        assert!(!logins.admit(&PASS) && logins.admit(&other));
        assert!(logins.admit(&Pass { login: Login::Key(7), ..PASS }), "a key of the same number is another login");
        logins.end_all(ME, &Ended { epoch: 1, sessions: vec![9], keys: vec![3] }, TimeMs(6));
        let raised = Pass { epoch: 1, ..other };
        assert!(!logins.admit(&other) && logins.admit(&raised));
        assert!(!logins.admit(&Pass { login: Login::Session(9), ..raised }), "made while all were ended");
        assert!(!logins.admit(&Pass { login: Login::Key(3), ..raised }));
        assert!(logins.admit(&Pass::node(NodeId([1; 20]))));
    }

    #[test]
    fn a_key_is_known_for_a_minute_unless_it_lapses_or_ends_before() {
        let logins = Logins::default();
        let key = parse_key(&format!("sk_7_{}", "ab".repeat(32))).unwrap();
        let live = LiveKey { account: ME, scopes: "lease:read".to_owned(), expires: Some(TimeMs(50_000)) };
        let pass = logins.remember(key, &live, TimeMs(0));
        assert_eq!((pass.login, pass.scopes.text().as_str()), (Login::Key(7), "lease:read"));
        assert_eq!(logins.recall(&key, TimeMs(49_999)), Some(pass));
        assert_eq!(logins.recall(&key, TimeMs(50_000)), None, "it lapsed");
        logins.remember(key, &LiveKey { expires: None, ..live }, TimeMs(0));
        assert_eq!(logins.recall(&key, TimeMs(60_000)), None, "the store is asked again");
        logins.end(Login::Key(7), TimeMs(1));
        assert!(!logins.admit(&logins.recall(&key, TimeMs(1)).unwrap()), "revoked");
        let other = parse_key(&format!("sk_7_{}", "ac".repeat(32))).unwrap();
        assert_eq!(logins.recall(&other, TimeMs(1)), None, "a known number is no known secret");
        for bad in ["sk_7", "sk_x_00", "sk_7_zz", "rt_7_00"] {
            assert_eq!(parse_key(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_ended_longer_ago_than_a_token_lives_is_forgotten() {
        let logins = Logins::default();
        logins.end(Login::Session(7), TimeMs(5));
        logins.end(Login::Session(8), TimeMs(5 + TOKEN_MS));
        assert_eq!(logins.state.read().unwrap().ended.len(), 1);
    }
}
