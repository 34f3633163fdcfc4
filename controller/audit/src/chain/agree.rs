//! Several nodes of the chain, asked the same: who of them says something else.

use std::collections::BTreeMap;
use std::time::Duration;

use selion_api::Hash32;
use selion_api::chain::Block;
use selion_api::commit::sha256_of;
use selion_contracts::rpc::BlockTag;
use selion_contracts::{Pool, PoolError, Rpc, RpcError};
use tokio::time::Instant;

use super::Facts;
use crate::finding::{Check, Finding};

const ASK_AGAIN: Duration = Duration::from_millis(250);

/// What a node says of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    chain_id: u64,
    /// SHA-256 of the code of controller, vault, court and token.
    code: [Hash32; 4],
    /// The newest block that all call final.
    last: Option<Hash32>,
    blocks: BTreeMap<u64, Block>,
    logs: BTreeMap<u64, Hash32>,
}

/// A node that was asked.
struct Witness {
    rpc: Rpc,
    pool: Option<Pool>,
    chain_id: u64,
    facts: Facts,
}

/// That all nodes serve one chain, and on it the same events and code, up to the last block that all call final. A node
/// has `patience` to come to the block that the first one calls final.
///
/// # Errors
///
/// A node does not answer.
pub(crate) async fn check(
    pool: &Pool,
    facts: &Facts,
    rpcs: &[Rpc],
    (first, patience): (Option<u64>, Duration),
) -> Result<Check, PoolError> {
    const NAME: &str = "rpcs_agree";
    if rpcs.len() < 2 {
        let said = format!("only {} was asked, and is believed: name another --rpc to compare", pool.rpc.node());
        return Ok(Check::of(NAME, Ok::<_, Finding>(said)));
    }
    let mut witnesses = vec![Witness::of(pool, facts)];
    for rpc in rpcs.iter().skip(1) {
        witnesses.push(Witness::ask(rpc, pool, facts.last, (first, patience)).await?);
    }
    let common = witnesses.iter().filter(|one| one.pool.is_some()).map(|one| one.facts.last).min().unwrap_or(0);
    let mut said = Vec::with_capacity(witnesses.len());
    for witness in &witnesses {
        said.push((witness.rpc.node().to_owned(), witness.say(pool, common).await?));
    }
    let behind = witnesses.iter().filter(|one| one.pool.is_some() && one.facts.last < facts.last);
    let behind: Vec<String> =
        behind.map(|one| format!("{} is at block {} of {}", one.rpc.node(), one.facts.last, facts.last)).collect();
    Ok(Check::of(NAME, compare(&said, common, &behind)))
}

impl Witness {
    fn of(pool: &Pool, facts: &Facts) -> Self {
        Self { rpc: pool.rpc.clone(), pool: Some(pool.clone()), chain_id: pool.chain_id, facts: facts.clone() }
    }

    async fn ask(
        rpc: &Rpc,
        first: &Pool,
        last: u64,
        (from, patience): (Option<u64>, Duration),
    ) -> Result<Self, PoolError> {
        let chain_id = rpc.chain_id().await?;
        let pool = Pool { rpc: rpc.clone(), ..first.clone() };
        let none = Facts::told(BTreeMap::new());
        if chain_id != first.chain_id || rpc.code(first.at.controller).await?.is_empty() {
            return Ok(Self { rpc: rpc.clone(), pool: None, chain_id, facts: none });
        }
        let until = Instant::now() + patience;
        loop {
            let facts = Facts::read(&pool, from).await?;
            if facts.last >= last || Instant::now() >= until {
                return Ok(Self { rpc: rpc.clone(), pool: Some(pool), chain_id, facts });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    async fn say(&self, first: &Pool, common: u64) -> Result<Said, PoolError> {
        let mut code = [Hash32::ZERO; 4];
        for (hash, at) in code.iter_mut().zip([first.at.controller, first.at.vault, first.at.court, first.at.token]) {
            *hash = sha256_of(&self.rpc.code(at).await?);
        }
        let last = match (&self.pool, self.facts.last == common) {
            (None, _) => None,
            (Some(_), true) => self.facts.last_hash,
            (Some(_), false) => match self.rpc.header(BlockTag::Number(common)).await {
                Ok(header) => Some(header.hash),
                Err(RpcError::NoBlock { .. }) => None,
                Err(error) => return Err(error.into()),
            },
        };
        let blocks = self.facts.blocks.range(..=common).map(|(number, block)| (*number, block.clone())).collect();
        let logs = self.facts.logs.range(..=common).map(|(number, hash)| (*number, *hash)).collect();
        Ok(Said { chain_id: self.chain_id, code, last, blocks, logs })
    }
}

/// What most say is what the others differ from; without a majority nobody can be told apart.
fn compare(said: &[(String, Said)], common: u64, behind: &[String]) -> Result<String, Finding> {
    let votes = |one: &Said| said.iter().filter(|(_, other)| other == one).count();
    let Some((node, most)) = said.iter().rev().max_by_key(|(_, one)| votes(one)) else {
        return Ok("no node was asked".into());
    };
    let others: Vec<String> = said
        .iter()
        .filter(|(_, one)| one != most)
        .map(|(other, one)| format!("{other} {}", difference(one, most)))
        .collect();
    if others.is_empty() {
        let behind = if behind.is_empty() { String::new() } else { format!("; {}", behind.join(", ")) };
        let blocks = most.blocks.len();
        let count = said.len();
        return Ok(format!(
            "{count} nodes tell the same chain, code and {blocks} blocks with events, up to block {common}{behind}"
        ));
    }
    let whom = match 2 * votes(most) > said.len() {
        true => format!("unlike {} of {} nodes", votes(most), said.len()),
        false => format!("unlike {node}, and no majority tells who is right"),
    };
    Err(Finding::plain(format!("{}: {whom}", others.join("; "))))
}

/// The first thing that one says otherwise.
fn difference(one: &Said, most: &Said) -> String {
    if one.chain_id != most.chain_id {
        return format!("serves chain {}, not {}", one.chain_id, most.chain_id);
    }
    let what = ["controller", "vault", "court", "token"].into_iter().zip(one.code.iter().zip(&most.code));
    if let Some((what, _)) = what.into_iter().find(|(_, (one, other))| one != other) {
        return format!("has other code at the pool's {what}");
    }
    let numbers = one.blocks.keys().chain(most.blocks.keys());
    let differs = |number: &&u64| one.blocks.get(number) != most.blocks.get(number);
    let Some(number) = numbers.filter(differs).min() else {
        let mut numbers = one.logs.keys().chain(most.logs.keys());
        return match numbers.find(|number| one.logs.get(number) != most.logs.get(number)) {
            Some(number) => format!("tells other data in the logs of the pool in block {number}"),
            None => "has another hash at the last block that all call final: it is on a fork".into(),
        };
    };
    match (one.blocks.get(number), most.blocks.get(number)) {
        (Some(block), Some(other)) if block.hash != other.hash => {
            format!("has hash {} at block {number}, not {}: it is on a fork", block.hash, other.hash)
        }
        (block, other) => {
            let count = |block: Option<&Block>| block.map_or(0, |block| block.events.len());
            let (one, most) = (count(block), count(other));
            if one == most {
                return format!("tells other events of the pool in block {number}: as many, with other contents");
            }
            format!("tells other events of the pool in block {number}: {one}, not {most}")
        }
    }
}
