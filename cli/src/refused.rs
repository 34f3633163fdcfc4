//! What the pool's contracts refuse, in words and in tokens.

use selion_api::TimeMs;

use crate::unit::{show_money, show_time};

/// What was refused, and what to do, of a contract's reason such as `BalanceTooLow(asked: 9, balance: 7)`; `None` for one
/// that is no renter's and no owner's.
pub fn in_words(reason: &str) -> Option<(String, &'static str)> {
    let (name, rest) = reason.split_once('(')?;
    let values = rest.strip_suffix(')')?;
    let value = |wanted: &str| {
        let mut pairs = values.split(", ").filter_map(|pair| pair.split_once(": "));
        pairs.find(|(name, _)| *name == wanted).and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let tokens = |name| value(name).map(show_money);
    let time = |name| value(name).map(|seconds| show_time(TimeMs(seconds.saturating_mul(1_000))));
    Some(match name {
        "GrantFalls" => (
            format!(
                "the grant in force is larger: {} tokens are left of it, until {}; a grant can grow, not shrink",
                tokens("capLeft")?,
                time("until")?
            ),
            "grant at least what is left, or let it run out first",
        ),
        "UntilFalls" => (
            format!(
                "the grant in force lasts longer, until {}; a grant's end can move back, not forth",
                time("until")?
            ),
            "name a later end, or let it run out first",
        ),
        "BalanceTooLow" => (
            format!("{} tokens were asked for, and the deposit has {}", tokens("asked")?, tokens("balance")?),
            "ask for less; `selion account show` tells what there is",
        ),
        "NotReady" => (
            format!("{} tokens are on their way back and can be had from {} on", tokens("amount")?, time("readyAt")?),
            "wait until then and run it again",
        ),
        "NotStaked" => (
            format!("a stake of {} tokens is needed, and there are {}", tokens("minStake")?, tokens("stake")?),
            "stake as much: `selion agent up --stake AMOUNT`",
        ),
        "StakeTooLow" => (
            format!(
                "a stake is none or at least {} tokens, and {} would be left",
                tokens("minStake")?,
                tokens("stake")?
            ),
            "leave that much, or take it out whole",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_in_tokens_and_dates() {
        let told = |reason| in_words(reason).map(|(what, _)| what);
        assert_eq!(
            told("GrantFalls(capLeft: 12500000, until: 1797971343)").as_deref(),
            Some(
                "the grant in force is larger: 12.50 tokens are left of it, until 2026-12-22 20:29:03Z; a grant can \
                 grow, not shrink"
            )
        );
        assert_eq!(
            told("BalanceTooLow(asked: 99999999000000, balance: 1000797120)").as_deref(),
            Some("99999999.00 tokens were asked for, and the deposit has 1000.79712")
        );
        for other in ["BadBatchSignature(epoch: 1, recovered: 0x00)", "BalanceTooLow(asked: x)", "reverted", ""] {
            assert_eq!(told(other), None, "{other}");
        }
    }
}
