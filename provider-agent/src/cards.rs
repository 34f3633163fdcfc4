//! Which of the machine's cards are offered, by the owner's choice.
//!
//! A choice counts from a start on. A card on which a lease runs is not cut out of the offer under it: the choice of the
//! life before stays until an agent starts with no lease on what is taken away.

use std::path::Path;

use selion_api::GpuId;
use selion_api::agent::Report;
use serde::{Deserialize, Serialize};

use crate::book::{self, BookError};
use crate::config::Config;
use crate::error::AgentError;
use crate::gpus::GpuFacts;
use crate::member_key::MemberKey;

/// File of the state directory with the cards that the last life offered.
const FILE: &str = "cards.json";

/// One card, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// UUID.
    pub gpu: GpuId,
    /// Its place among all of the machine, as `nvidia-smi` counts.
    pub index: u32,
    /// Model name.
    pub model: String,
}

impl Card {
    fn of(facts: &GpuFacts) -> Self {
        Self { gpu: facts.gpu, index: facts.index, model: facts.model.clone() }
    }
}

/// What is offered, and what became of the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cards {
    /// On offer.
    pub offered: Vec<Card>,
    /// Here, and left out by the owner.
    pub left_out: Vec<Card>,
    /// On offer, and not in the life before.
    pub added: Vec<Card>,
    /// On offer in the life before, and no more.
    pub removed: Vec<Card>,
    /// To be left out, and on offer still: a lease runs on each.
    pub draining: Vec<Draining>,
}

/// A card that is left out once nothing runs on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// Which.
    pub card: Card,
    /// Who is on it.
    pub member: MemberKey,
}

/// The owner's choice among `all`.
///
/// # Errors
///
/// [`AgentError::Config`], if a name is no card's, with those there are; or if no card is left.
pub(crate) fn choose(config: &Config, all: &[GpuFacts]) -> Result<Vec<GpuFacts>, AgentError> {
    for (setting, names) in [("cards", &config.cards), ("except", &config.except)] {
        if let Some(name) = names.iter().find(|name| !all.iter().any(|facts| is_named(facts, name))) {
            let said = format!("{setting} names {name:?}, which is no card here; there are {}", listed(all));
            return Err(AgentError::Config(said));
        }
    }
    let is_in = |names: &[String], facts: &GpuFacts| names.iter().any(|name| is_named(facts, name));
    let is_chosen =
        |facts: &&GpuFacts| (config.cards.is_empty() || is_in(&config.cards, facts)) && !is_in(&config.except, facts);
    let chosen: Vec<GpuFacts> = all.iter().filter(is_chosen).cloned().collect();
    if chosen.is_empty() {
        let said = format!("cards and except leave no card to offer of {}", listed(all));
        return Err(AgentError::Config(said));
    }
    Ok(chosen)
}

fn is_named(facts: &GpuFacts, name: &str) -> bool {
    name.parse::<u32>().map_or_else(|_| name.parse() == Ok(facts.gpu), |index| index == facts.index)
}

fn listed(all: &[GpuFacts]) -> String {
    let one = |facts: &GpuFacts| format!("{} {} ({})", facts.index, facts.gpu, facts.model);
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What is offered in this life, by the owner's choice, by what the life before offered and by what runs: `open` are the
/// latest reports of members that are not over.
pub(crate) fn settle(
    chosen: Vec<GpuFacts>,
    all: &[GpuFacts],
    before: Option<&[Card]>,
    open: &[Report],
) -> (Vec<GpuFacts>, Cards) {
    let was = |facts: &GpuFacts| before.is_some_and(|before| before.iter().any(|card| card.gpu == facts.gpu));
    let is_in = |list: &[GpuFacts], gpu: GpuId| list.iter().any(|facts| facts.gpu == gpu);
    let on = |gpu: GpuId| open.iter().find(|report| report.gpus.contains(&gpu)).map(MemberKey::of_report);
    let taken = all.iter().filter(|facts| was(facts) && !is_in(&chosen, facts.gpu));
    let draining: Vec<Draining> =
        taken.filter_map(|facts| Some(Draining { card: Card::of(facts), member: on(facts.gpu)? })).collect();
    let offered = if draining.is_empty() { chosen } else { all.iter().filter(|facts| was(facts)).cloned().collect() };
    let cards = |keep: &dyn Fn(&GpuFacts) -> bool| all.iter().filter(|facts| keep(facts)).map(Card::of).collect();
    let told = Cards {
        offered: offered.iter().map(Card::of).collect(),
        left_out: cards(&|facts| !is_in(&offered, facts.gpu)),
        added: cards(&|facts| before.is_some() && !was(facts) && is_in(&offered, facts.gpu)),
        removed: before.into_iter().flatten().filter(|card| !is_in(&offered, card.gpu)).cloned().collect(),
        draining,
    };
    (offered, told)
}

/// What the life before offered; `None` if there was none.
pub(crate) fn before(dir: &Path) -> Option<Vec<Card>> {
    // One that cannot be read says nothing: it only tells what has changed.
    serde_json::from_slice(&std::fs::read(dir.join(FILE)).ok()?).ok()
}

/// Keeps what this life offers.
///
/// # Errors
///
/// [`BookError`].
pub(crate) fn keep(dir: &Path, cards: &Cards) -> Result<(), BookError> {
    book::replace(&dir.join(FILE), serde_json::json!(cards.offered).to_string().as_bytes())
}

#[cfg(test)]
#[path = "cards_tests.rs"]
mod tests;
