//! Signing in with an Ethereum account (EIP-4361): the message that is offered, and what a signed one must say.
//!
//! The grammar is the library's; what a message has to be *about* is decided here.

use std::fmt::Display;
use std::str::FromStr;

use selion_api::commit::PoolId;
use selion_api::{Account, Signature, TimeMs};
use signinwithethereum::{Message, Version};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::origin::Origin;
use super::recover::signer_of;

/// Longest message in bytes. Ours have about 500.
const MAX_BYTES: usize = 4096;
/// By so much a wallet's clock may be ahead of ours, in milliseconds.
const SKEW_MS: u64 = 60_000;
/// What stands before the user code of a device that a message approves.
const DEVICE: &str = "urn:selion:device:";

/// Why a signed message lets nobody in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiweFault {
    /// It is not an EIP-4361 message, or not in its one spelling.
    #[error("the message is not EIP-4361: {0}")]
    Malformed(String),
    /// It was made for another site.
    #[error("the message is for `{found}`, and this controller is `{ours}`")]
    ForeignDomain {
        /// The site.
        found: String,
        /// Ours.
        ours: String,
    },
    /// It is for another chain.
    #[error("the message is for chain {found}, and this pool is on chain {ours}")]
    ForeignChain {
        /// The chain.
        found: u64,
        /// Ours.
        ours: u64,
    },
    /// It is about something that this login is not.
    #[error("the message names the resource `{0}`, which is not this login")]
    ForeignResource(String),
    /// It names no device, and one was to be approved.
    #[error("the message names no device")]
    NoDevice,
    /// Its time is over.
    #[error("the message was good until {0}")]
    Expired(String),
    /// Its time has not come.
    #[error("the message is good from {0} on")]
    TooEarly(String),
    /// The account that it names did not sign it.
    #[error("the signature is not {0}'s over these bytes")]
    Forged(Account),
}

/// What a good message proves. The nonce is still to be spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// Who signed.
    pub account: Account,
    /// Its nonce.
    pub nonce: String,
    /// The device that it approves, by its user code.
    pub device: Option<String>,
}

/// The login that messages are made for.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// This controller.
    pub origin: &'a Origin,
    /// This pool.
    pub pool: &'a PoolId,
}

/// A device whose approval is asked.
#[derive(Clone, Copy, Debug)]
pub struct ForDevice<'a> {
    /// Its user code, eight letters.
    pub user_code: &'a str,
    /// What it calls itself.
    pub name: &'a str,
    /// The address that it asked from.
    pub from: &'a str,
}

impl Site<'_> {
    fn pool_resource(&self) -> String {
        format!("urn:selion:pool:{}:{}", self.pool.chain_id, self.pool.controller)
    }

    /// The message for `account` to sign, good from `now` to `expires`.
    ///
    /// # Errors
    ///
    /// A text, if a part of it is none that EIP-4361 takes; the configuration should not let it come so far.
    pub fn message(
        &self,
        account: Account,
        nonce: &str,
        now: TimeMs,
        expires: TimeMs,
        device: Option<ForDevice<'_>>,
    ) -> Result<String, String> {
        let (statement, named) = match device {
            None => ("Log in to this Selion pool.".to_owned(), None),
            Some(ForDevice { user_code, name, from }) => {
                let text = format!("Let the device '{name}' at {from} act for this account in this Selion pool.");
                (text, Some(format!("{DEVICE}{user_code}")))
            }
        };
        let resources = std::iter::once(self.pool_resource()).chain(named);
        let message = Message {
            scheme: None,
            domain: self.origin.authority().clone(),
            address: account.0,
            address_raw: None,
            statement: Some(statement),
            uri: parsed(self.origin.url())?,
            version: Version::V1,
            chain_id: self.pool.chain_id,
            nonce: nonce.to_owned(),
            issued_at: date(now)?.into(),
            expiration_time: Some(date(expires)?.into()),
            not_before: None,
            request_id: None,
            resources: resources.map(|text| parsed(&text)).collect::<Result<_, _>>()?,
            warnings: Vec::new(),
        };
        Ok(message.to_string())
    }

    /// What `text`, signed with `signature`, proves at `now`.
    ///
    /// # Errors
    ///
    /// [`SiweFault`]: the first thing that is wrong.
    pub fn check(&self, text: &str, signature: &Signature, now: TimeMs) -> Result<Proven, SiweFault> {
        let message = read(text)?;
        self.check_site(&message)?;
        check_time(&message, now)?;
        let device = self.check_resources(&message)?;
        let account = Account(message.address);
        if signer_of(text.as_bytes(), signature) != Some(account) {
            return Err(SiweFault::Forged(account));
        }
        Ok(Proven { account, nonce: message.nonce, device })
    }

    fn check_site(&self, message: &Message) -> Result<(), SiweFault> {
        let foreign = |found: String| SiweFault::ForeignDomain { found, ours: self.origin.url().to_owned() };
        if !self.origin.is(&message.domain) {
            return Err(foreign(message.domain.to_string()));
        }
        let scheme = self.origin.url().split(':').next();
        if message.scheme.is_some() && message.scheme.as_deref() != scheme {
            return Err(foreign(format!("{}://{}", message.scheme.as_deref().unwrap_or_default(), message.domain)));
        }
        if !self.origin.has(message.uri.as_str()) {
            return Err(foreign(message.uri.to_string()));
        }
        if message.chain_id != self.pool.chain_id {
            return Err(SiweFault::ForeignChain { found: message.chain_id, ours: self.pool.chain_id });
        }
        Ok(())
    }

    /// The device that the resources name. What else they name must be this pool: a text that says more than we read
    /// is not ours to take for a login.
    fn check_resources(&self, message: &Message) -> Result<Option<String>, SiweFault> {
        let mut device = None;
        for resource in &message.resources {
            let text = resource.as_str();
            match text.strip_prefix(DEVICE) {
                Some(code) if device.is_none() => device = Some(code.to_owned()),
                None if text == self.pool_resource() => {}
                _ => return Err(SiweFault::ForeignResource(text.to_owned())),
            }
        }
        Ok(device)
    }
}

/// The message, if this is its one spelling.
pub(super) fn read(text: &str) -> Result<Message, SiweFault> {
    if text.len() > MAX_BYTES {
        return Err(SiweFault::Malformed(format!("it has {} bytes, at most {MAX_BYTES} are read", text.len())));
    }
    let message: Message =
        text.parse().map_err(|error: signinwithethereum::ParseError| SiweFault::Malformed(error.to_string()))?;
    // A list of no resources may be named; nothing else has two spellings.
    if message.to_string() != text.strip_suffix("\nResources:").unwrap_or(text) {
        return Err(SiweFault::Malformed("it says what it says in another form than the standard's".to_owned()));
    }
    Ok(message)
}

fn check_time(message: &Message, now: TimeMs) -> Result<(), SiweFault> {
    let at = |ms: u64| i128::from(ms) * 1_000_000;
    let nanos = |time: &signinwithethereum::TimeStamp| time.as_ref().unix_timestamp_nanos();
    if let Some(until) = message.expiration_time.as_ref().filter(|until| nanos(until) <= at(now.0)) {
        return Err(SiweFault::Expired(until.to_string()));
    }
    if let Some(from) = message.not_before.as_ref().filter(|from| nanos(from) > at(now.0)) {
        return Err(SiweFault::TooEarly(from.to_string()));
    }
    if nanos(&message.issued_at) > at(now.0.saturating_add(SKEW_MS)) {
        return Err(SiweFault::TooEarly(message.issued_at.to_string()));
    }
    Ok(())
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn date(time: TimeMs) -> Result<OffsetDateTime, String> {
    let nanos = i128::from(time.0) * 1_000_000;
    let date = OffsetDateTime::from_unix_timestamp_nanos(nanos).map_err(|error| error.to_string())?;
    // A date that the grammar cannot write is none.
    date.format(&Rfc3339).map(|_| date).map_err(|error| error.to_string())
}
