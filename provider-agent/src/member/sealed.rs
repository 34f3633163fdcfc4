//! The secrets of a member: waited for, opened, held against what the lease named.

use selion_api::Reason;
use selion_api::seal::{Addressee, REGISTRY, Sealed, Secret, open};
use selion_dataplane::image::Credentials;

use super::{Failure, Member};
use crate::keys;

impl Member {
    /// All secrets that the lease named, once they came and opened. What does not open is told and waited out: the client may
    /// seal anew.
    pub(super) async fn unsealed(&mut self) -> Result<Vec<Secret>, Failure> {
        let names = &self.assignment.work.secrets.names;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        if self.sealed.borrow().is_none() {
            self.say(format!("waits for its secrets ({})", names.join(", ")));
        }
        let within = self.shared.secrets_within;
        let mut sealed = self.sealed.clone();
        let coming = async {
            loop {
                let came = sealed.borrow_and_update().clone();
                match came.map(|came| self.try_open(&came)) {
                    Some(Ok(secrets)) => return Some(secrets),
                    Some(Err(why)) => self.say(format!("{why}; it waits for them to be sealed anew")),
                    None => {}
                }
                // A dropped sender is an order to stop, which ends the staging.
                if sealed.changed().await.is_err() {
                    return None;
                }
            }
        };
        match tokio::time::timeout(within, coming).await {
            Ok(Some(secrets)) => Ok(secrets),
            Ok(None) => {
                Err(Failure::new(Reason::RuntimeFailed, "it was stopped while it waited for its secrets".into()))
            }
            Err(_) => {
                let names = self.assignment.work.secrets.names.join(", ");
                let waited_s = within.as_secs();
                let why =
                    format!("its secrets ({names}) were not sealed to this node within {waited_s} s; nothing was run");
                Err(Failure::new(Reason::SecretsMissing, why))
            }
        }
    }

    fn try_open(&self, sealed: &Sealed) -> Result<Vec<Secret>, String> {
        let book = &self.shared.book;
        let key = book.seal_keys().find(&sealed.to);
        let key = key.ok_or("its secrets were sealed to a key that this node has no more")?;
        let pool = book.seen().pool.ok_or("its pool is not known yet, so its secrets do not open")?;
        let of = Addressee {
            pool,
            lease: self.assignment.lease,
            attempt: self.assignment.attempt,
            member: self.assignment.member,
            node: keys::node_of(book.node_key()),
        };
        let mut secrets = open(&key, &of, sealed).map_err(|error| format!("its secrets: {error}"))?;
        secrets.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let came: Vec<&str> = secrets.iter().map(|secret| secret.name.as_str()).collect();
        if came != self.assignment.work.secrets.names {
            return Err(format!("its secrets are others than the lease named: {} came", came.join(", ")));
        }
        Ok(secrets)
    }
}

/// What a registry is shown for the lease's image: `USER:PASSWORD`.
pub(super) fn credentials(secrets: &[Secret]) -> Result<Credentials, String> {
    let Some(secret) = secrets.iter().find(|secret| secret.name == REGISTRY) else {
        return Ok(Credentials::Anonymous);
    };
    let text = std::str::from_utf8(&secret.value).ok();
    let parts = text.and_then(|text| text.split_once(':')).filter(|(user, _)| !user.is_empty());
    let (user, password) = parts.ok_or_else(|| format!("secret `{REGISTRY}` is not USER:PASSWORD; nothing was run"))?;
    Ok(Credentials::Basic { user: user.to_owned(), password: password.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_a_user_and_a_password_that_may_hold_colons() {
        let of = |value: &[u8]| credentials(&[Secret { name: REGISTRY.into(), value: value.to_vec() }]);
        let Ok(Credentials::Basic { user, password }) = of(b"ann:a:b") else { panic!("no user and password") };
        assert_eq!((user.as_str(), password.as_str()), ("ann", "a:b"));
        for bad in [&b"ann"[..], b":x", b"", b"\xff:x"] {
            assert!(of(bad).unwrap_err().contains("USER:PASSWORD"));
        }
        assert!(matches!(credentials(&[]), Ok(Credentials::Anonymous)));
    }
}
