//! What a node told, and where it differs from another, as far as both call the chain final.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use selion_api::Hash32;
use selion_api::chain::Block;
use selion_api::commit::sha256_of;
use selion_contracts::rpc::BlockTag;
use selion_contracts::{Pool, PoolError, RpcError};

use crate::chain::Facts;

/// A node and what it told.
pub(super) struct Witness {
    pub pool: Pool,
    pub facts: Facts,
    /// SHA-256 of the code of controller, vault, court and token.
    code: [Hash32; 4],
    /// Its blocks where another node's last final one is, and its own last one.
    hashes: BTreeMap<u64, Hash32>,
}

impl Witness {
    /// Asks for what is compared beside the events: code, and the hashes of the last final blocks of all.
    pub(super) async fn call(pool: Pool, facts: Facts, lasts: &BTreeSet<u64>) -> Result<Self, PoolError> {
        let mut code = [Hash32::ZERO; 4];
        for (hash, at) in code.iter_mut().zip([pool.at.controller, pool.at.vault, pool.at.court, pool.at.token]) {
            *hash = sha256_of(&pool.rpc.code(at).await?);
        }
        let mut hashes: BTreeMap<u64, Hash32> = facts.last_hash.map(|hash| (facts.last, hash)).into_iter().collect();
        for number in lasts.range(..facts.last) {
            match pool.rpc.header(BlockTag::Number(*number)).await {
                Ok(header) => drop(hashes.insert(*number, header.hash)),
                Err(RpcError::NoBlock { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { pool, facts, code, hashes })
    }
}

/// The most nodes of which no two tell different things; of equally many, those that tell nothing odd, and then those with
/// the first. A node that is far behind contradicts nobody: so each has to agree with all, and not with one of them. First
/// stand those from which on at least as many are behind as are ahead: neither one that keeps blocks back nor one that makes
/// some up decides alone how far the chain is.
pub(super) fn most(witnesses: &[Witness]) -> Vec<&Witness> {
    let groups = witnesses.iter().map(|one| {
        let mut others: Vec<&Witness> = witnesses.iter().filter(|other| !std::ptr::eq(*other, one)).collect();
        others.sort_by_key(|other| Reverse(other.facts.last));
        others.into_iter().fold(vec![one], |mut group, other| {
            if group.iter().all(|one| difference(other, one).is_none()) {
                group.push(other);
            }
            group
        })
    });
    let groups: Vec<Vec<&Witness>> = groups.collect();
    let worth = |group: &Vec<&Witness>| (group.len(), group.iter().all(|one| one.facts.fault.is_none()));
    let mut agreeing = groups.into_iter().rev().max_by_key(worth).unwrap_or_default();
    let mut lasts: Vec<u64> = agreeing.iter().map(|one| one.facts.last).collect();
    lasts.sort_unstable_by_key(|last| Reverse(*last));
    let middle = lasts.get(lasts.len().saturating_sub(1) / 2).copied();
    agreeing.sort_by_key(|one| Some(one.facts.last) != middle);
    agreeing
}

/// The first thing that one tells otherwise than another, up to the last block that both call final.
pub(super) fn difference(one: &Witness, other: &Witness) -> Option<String> {
    let (ours, theirs) = (&one.facts, &other.facts);
    if ours.fault != theirs.fault {
        return Some(match (&ours.fault, &theirs.fault) {
            (Some(fault), _) => format!("tells what no honest node does: {fault}"),
            (None, fault) => format!("does not tell that {}", fault.as_deref().unwrap_or_default()),
        });
    }
    let what = ["controller", "vault", "court", "token"].into_iter().zip(one.code.iter().zip(&other.code));
    if let Some((what, _)) = what.into_iter().find(|(_, (one, other))| one != other) {
        return Some(format!("has other code at the pool's {what}"));
    }
    let common = ours.last.min(theirs.last);
    let numbers = ours.blocks.range(..=common).chain(theirs.blocks.range(..=common)).map(|(number, _)| *number);
    if let Some(number) = numbers.filter(|number| ours.blocks.get(number) != theirs.blocks.get(number)).min() {
        return Some(unlike(number, ours.blocks.get(&number), theirs.blocks.get(&number)));
    }
    let numbers = ours.logs.range(..=common).chain(theirs.logs.range(..=common)).map(|(number, _)| *number);
    if let Some(number) = numbers.filter(|number| ours.logs.get(number) != theirs.logs.get(number)).min() {
        return Some(format!("tells other data in the logs of the pool in block {number}"));
    }
    let unlike = one.hashes.get(&common) != other.hashes.get(&common);
    unlike.then(|| format!("has another hash at block {common}, which both call final: it is on a fork"))
}

/// How two nodes' events of a block differ.
fn unlike(number: u64, one: Option<&Block>, other: Option<&Block>) -> String {
    if let (Some(block), Some(other)) = (one, other)
        && block.hash != other.hash
    {
        return format!("has hash {} at block {number}, not {}: it is on a fork", block.hash, other.hash);
    }
    let count = |block: Option<&Block>| block.map_or(0, |block| block.events.len());
    let (one, other) = (count(one), count(other));
    match one == other {
        true => format!("tells other events of the pool in block {number}: as many, with other contents"),
        false => format!("tells other events of the pool in block {number}: {one}, not {other}"),
    }
}
