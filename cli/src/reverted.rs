//! What a contract's refusal means, in tokens and dates, and what to do about it.

use selion_api::TimeMs;

use crate::unit::{show_money, show_time};

/// A refusal in words: what was wrong, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Words {
    /// What was wrong.
    pub detail: String,
    /// What to do.
    pub suggestion: &'static str,
}

/// Name and values of an error as the bindings write it: `GrantFalls(capLeft: 12500000, until: 1797971343)`.
struct Said<'a> {
    name: &'a str,
    values: Vec<(&'a str, &'a str)>,
}

impl<'a> Said<'a> {
    fn read(reason: &'a str) -> Option<Self> {
        let (name, rest) = reason.split_once('(')?;
        let known = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let values = rest.strip_suffix(')')?.split(", ").filter_map(|pair| pair.split_once(": "));
        known.then(|| Self { name, values: values.collect() })
    }

    fn value(&self, name: &str) -> &'a str {
        self.values.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    fn number(&self, name: &str) -> u64 {
        self.value(name).parse().unwrap_or_default()
    }

    fn tokens(&self, name: &str) -> String {
        format!("{} tokens", show_money(self.number(name)))
    }

    fn date(&self, name: &str) -> String {
        show_time(TimeMs(self.number(name).saturating_mul(1_000)))
    }
}

/// The words for the contract's `reason`; `None` if it is not one of its named errors.
pub fn words(reason: &str) -> Option<Words> {
    let said = Said::read(reason)?;
    let (detail, suggestion) = match said.name {
        "GrantFalls" => (
            format!("the grant in force leaves {} until {}", said.tokens("capLeft"), said.date("until")),
            "a grant can only grow: give at least so much, for at least so long; `selion account show` has what is left",
        ),
        "UntilFalls" => (
            format!("the key in force may sign until {}", said.date("until")),
            "that time can only move on: give a later one",
        ),
        "BalanceTooLow" => (
            format!("{} are asked for, and the vault holds {}", said.tokens("asked"), said.tokens("balance")),
            "ask for less; `selion account show` has the amounts",
        ),
        "NotReady" if said.number("amount") == 0 => ("nothing is on its way out".to_owned(), "ask for it first"),
        "NotReady" => {
            (format!("{} come free at {}", said.tokens("amount"), said.date("readyAt")), "do it again after that time")
        }
        "NotStaked" => (
            format!(
                "the provider's stake is {}, the pool's least is {}",
                said.tokens("stake"),
                said.tokens("minStake")
            ),
            "`selion agent up` adds what is missing",
        ),
        "StakeTooLow" => (
            format!(
                "the stake would be {}, where at least {} are needed",
                said.tokens("stake"),
                said.tokens("minStake")
            ),
            "leave as much, or take all of it",
        ),
        "BondTooLow" => (
            format!("{} of the bond are asked for, and {} are free", said.tokens("asked"), said.tokens("free")),
            "ask for less",
        ),
        "OffersStand" => (
            format!("{} offers stand, and all of the stake cannot leave before they are closed", said.value("offers")),
            "run: selion agent close-offer",
        ),
        "NoOffer" => (format!("node {} is not on offer", said.value("node")), "there is nothing to close"),
        "NotNodeProvider" => (
            format!(
                "node {} is bound to {}, not to {}",
                said.value("node"),
                said.value("provider"),
                said.value("caller")
            ),
            "use that provider's key; the zero address is nobody",
        ),
        "NotPayout" => (
            format!("only {}, who is paid now, can name another account", said.value("payout")),
            "do it with that account's key: `selion agent set-payout --key-file`",
        ),
        "BadPayee" => (format!("{} is a contract of the pool", said.value("payee")), "name an account of yours"),
        "KeyInUse" => (
            format!("{} is your own key, or was revoked and is not dead yet", said.value("key")),
            "`selion account keys` says which, and until when",
        ),
        "NoSuchKey" => (
            format!("{} may not sign for the account, or is revoked already", said.value("key")),
            "`selion account keys` lists those that may",
        ),
        "KeyIsAuthority" => (
            format!("{} is the pool's authority: its one signature would count twice", said.value("key")),
            "name another key",
        ),
        "NothingDue" => ("nothing is due to the account".to_owned(), "wait until vouchers are claimed"),
        "Zero" => (format!("the {} must not be zero", said.value("what")), "give one above zero"),
        "NotAuthority" => (
            format!("only the pool's authority, {}, may do that", said.value("authority")),
            "use the key of the authority",
        ),
        "NotOwner" => {
            (format!("only {} may do that, not {}", said.value("owner"), said.value("caller")), "use the owner's key")
        }
        "NotStandby" => (
            format!("{} is no standby of this epoch's owner", said.value("caller")),
            "the owner names one with `selion authority standby`",
        ),
        "Condemned" => (
            format!(
                "node {} of {} signed two reports that contradict each other, and is out",
                said.value("node"),
                said.value("provider")
            ),
            "register another node, with a key of its own",
        ),
        "AlreadyBound" => (
            format!("node {} belongs to {} already", said.value("node"), said.value("provider")),
            "there is nothing to do",
        ),
        "SimulatedRefused" => ("this pool was made without simulated GPUs".to_owned(), "offer real ones"),
        "NotAnnounced" if said.number("readyAt") == 0 => (
            format!("nobody named {} as the next owner", said.value("caller")),
            "the owner does: selion authority announce",
        ),
        "NotAnnounced" => (
            format!("{} is named as the next owner, from {}", said.value("announced"), said.date("readyAt")),
            "accept with that account's key, after that time",
        ),
        "ERC20InsufficientBalance" => {
            (format!("{} has less of the pool's token than that", said.value("sender")), "send it the rest")
        }
        "TooEarly" => (format!("that is possible from {}", said.date("from")), "do it again after that time"),
        other => (plain(other, &said.values), "the message says what the contract holds against it"),
    };
    Some(Words { detail, suggestion })
}

/// `KeyInUse` and its values as words: `key in use (key 0x..)`.
fn plain(name: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.push(letter.to_ascii_lowercase());
    }
    let values: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if values.is_empty() { text } else { format!("{text} ({})", values.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contracts_refusal_is_told_in_tokens_and_dates() {
        let falls = words("GrantFalls(capLeft: 12500000, until: 1797971343)").unwrap();
        assert_eq!(falls.detail, "the grant in force leaves 12.50 tokens until 2026-12-22 20:29:03Z");
        let low = words("BalanceTooLow(asked: 99999999000000, balance: 1000797120)").unwrap();
        assert_eq!(low.detail, "99999999.00 tokens are asked for, and the vault holds 1000.79712 tokens");
        let staked = words("NotStaked(provider: 0x01, stake: 0, minStake: 2500000)").unwrap();
        assert!(staked.detail.contains("is 0.00 tokens, the pool's least is 2.50 tokens"), "{}", staked.detail);
        assert_eq!(words("NotReady(amount: 0, readyAt: 0)").unwrap().detail, "nothing is on its way out");
        let poor = words("ERC20InsufficientBalance(sender: 0x01, balance: 0, needed: 99999999000000)").unwrap();
        assert_eq!(poor.detail, "0x01 has less of the pool's token than that");
        let stranger = words("NotAnnounced(caller: 0x01, announced: 0x00, readyAt: 0)").unwrap();
        assert_eq!(stranger.detail, "nobody named 0x01 as the next owner");
    }

    #[test]
    fn an_error_without_words_of_its_own_is_taken_apart_and_a_text_stays_as_it_is() {
        assert_eq!(words("NotCourt(caller: 0x07)").unwrap().detail, "not court (caller 0x07)");
        assert_eq!(words("ERC20: transfer amount exceeds balance"), None);
        assert_eq!(words("panic 0x11 (0x11 is an arithmetic overflow)"), None);
    }
}
