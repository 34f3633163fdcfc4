//! Which cards an owner offers, and what he says of them.

use std::collections::BTreeMap;

use selion_agent::{Card, Cards};
use selion_api::Rate;
use serde_json::{Value, json};

use crate::unit;

/// Reads `MODEL=WORK`: the work in A100s of 80 GB with at most three digits after the point, as thousandths.
pub fn work(text: &str) -> Result<(String, u32), String> {
    let (model, work) = named(text, "MODEL=WORK, e.g. \"RTX A4000=0.25\"")?;
    let (whole, part) = work.split_once('.').unwrap_or((work, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let milli = || -> Option<u32> {
        if !digits(whole) || !digits(part) || part.len() > 3 {
            return None;
        }
        whole.parse::<u32>().ok()?.checked_mul(1_000)?.checked_add(format!("{part:0<3}").parse().ok()?)
    };
    let milli = milli().ok_or_else(|| format!("`{work}` is no work; write it as 0.25, with three digits at most"))?;
    Ok((model.to_owned(), milli))
}

/// Reads `MODEL=RATE`.
pub fn ask(text: &str) -> Result<(String, Rate), String> {
    let (model, rate) = named(text, "MODEL=RATE, e.g. \"RTX A4000=0.30\"")?;
    let rate = unit::rate(rate).map_err(|error| error.to_string())?;
    Ok((model.to_owned(), rate))
}

/// The last `=` divides: a model's name may have one.
fn named<'a>(text: &'a str, how: &str) -> Result<(&'a str, &'a str), String> {
    match text.rsplit_once('=') {
        Some((model, value)) if !model.is_empty() => Ok((model, value)),
        _ => Err(format!("write it as {how}")),
    }
}

/// As the settings have it; `None` if nothing was said.
pub fn table<T: serde::Serialize>(named: Vec<(String, T)>) -> Option<BTreeMap<String, T>> {
    (!named.is_empty()).then(|| named.into_iter().collect())
}

/// As the settings have them; `None` if nothing was said.
pub fn prices(per_work: Option<Rate>, asks: Vec<(String, Rate)>) -> Option<Value> {
    let mut prices = serde_json::Map::new();
    prices.extend(per_work.map(|rate| ("per_work".to_owned(), json!(rate))));
    prices.extend(table(asks).map(|whole| ("whole".to_owned(), json!(whole))));
    (!prices.is_empty()).then_some(Value::Object(prices))
}

/// What a start says of the cards: always what is offered, and the rest where there is some.
pub fn sentence(cards: &Cards) -> String {
    let list = |cards: &[Card]| cards.iter().map(one).collect::<Vec<_>>().join(", ");
    let mut said = format!("on offer: {}", list(&cards.offered));
    for (word, cards) in
        [("left out", &cards.left_out), ("new on offer", &cards.added), ("no more on offer", &cards.removed)]
    {
        if !cards.is_empty() {
            said.push_str(&format!("; {word}: {}", list(cards)));
        }
    }
    for draining in &cards.draining {
        let (card, member) = (&draining.card, draining.member);
        said.push_str(&format!(
            "; {} stays on offer, as {} member {} runs on it: the choice of cards counts from a start with nothing on it; \
             `selion node reclaim NODE --gpu {}` lets nothing new in until then",
            one(card),
            member.lease,
            member.member,
            card.gpu
        ));
    }
    said
}

fn one(card: &Card) -> String {
    format!("{} {} ({})", card.index, card.model, card.gpu)
}

#[cfg(test)]
mod tests {
    use selion_api::{GpuId, LeaseId};

    use super::*;

    #[test]
    fn work_is_read_in_a100s_and_asks_in_tokens() {
        assert_eq!(work("RTX A4000=0.25"), Ok(("RTX A4000".into(), 250)));
        assert_eq!(work("X=3"), Ok(("X".into(), 3_000)));
        assert_eq!(ask("A=B=0.30"), Ok(("A=B".into(), Rate(300_000))));
        for wrong in ["0.25", "=0.25", "X=", "X=.5", "X=0.0001", "X=-1", "X=1e3", "X=99999999999"] {
            assert!(work(wrong).is_err(), "{wrong}");
        }
        assert!(ask("X=cheap").is_err());
    }

    #[test]
    fn what_was_not_said_is_not_set() {
        assert_eq!(prices(None, Vec::new()), None);
        assert_eq!(prices(Some(Rate(5)), Vec::new()), Some(json!({ "per_work": "5" })));
        let both = prices(None, vec![("X".into(), Rate(7))]);
        assert_eq!(both, Some(json!({ "whole": { "X": "7" } })));
    }

    #[test]
    fn a_start_says_what_is_offered_what_changed_and_what_is_drained() {
        let card = |index: u8| Card { gpu: GpuId([index; 16]), index: index.into(), model: "T4 16GB".into() };
        let member =
            serde_json::from_value(json!({ "lease": LeaseId { seq: 7, index: 0 }, "attempt": 0, "member": 1 }));
        let draining = vec![selion_agent::Draining { card: card(0), member: member.unwrap() }];
        let offered = vec![card(0), card(1)];
        let said = sentence(&Cards { offered, added: vec![card(1)], draining, ..Cards::default() });
        assert!(said.starts_with("on offer: 0 T4 16GB (GPU-00000000"), "{said}");
        assert!(said.contains("; new on offer: 1 T4") && !said.contains("left out"), "{said}");
        assert!(said.contains("lease-7-0 member 1 runs on it") && said.contains("--gpu GPU-00000000"), "{said}");
    }
}
