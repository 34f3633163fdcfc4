//! Several nodes of the chain, asked the same: who of them says something else, or nothing. The audit goes on by those
//! that agree.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use selion_api::chain::Block;
use selion_api::commit::sha256_of;
use selion_api::{Address, Hash32};
use selion_contracts::rpc::BlockTag;
use selion_contracts::{Pool, PoolError, Rpc, RpcError};
use tokio::time::Instant;

use super::Facts;
use crate::finding::{Check, Finding};
use crate::progress::Progress;

const NAME: &str = "rpcs_agree";
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How often the chain is read again because it moved on meanwhile.
const ATTEMPTS: u32 = 8;

/// What a node says of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    /// The first thing that no honest node tells.
    fault: Option<String>,
    /// SHA-256 of the code of controller, vault, court and token.
    code: [Hash32; 4],
    /// The newest block that all call final.
    last: Option<Hash32>,
    blocks: BTreeMap<u64, Block>,
    logs: BTreeMap<u64, Hash32>,
}

/// Nodes that were asked for a pool.
pub(crate) struct Nodes {
    /// Of those that most agree with on where the pool is.
    pools: Vec<Pool>,
    /// What others said instead, by node.
    apart: Vec<String>,
    /// Who said nothing, and why.
    silent: Vec<String>,
    /// All that were asked.
    asked: usize,
}

/// What the nodes tell that agree.
pub(crate) struct Heard {
    /// By one of them.
    pub facts: Facts,
    /// Of what the contracts answer, by the same one.
    pub checks: Vec<Check>,
    /// Who said otherwise, or nothing.
    pub agreed: Check,
}

/// A node and what it told.
struct Witness {
    pool: Pool,
    facts: Facts,
    said: Said,
}

/// The block from which on nodes are asked, and the time that they have to come to the block that the first calls final.
type Span = (Option<u64>, Duration);

/// Asks all nodes for the pool of this controller. The one that most tell of is gone on with; without a majority, the one
/// that the first tells of.
///
/// # Errors
///
/// That of the first node, if none tells of a pool.
pub(crate) async fn open(rpcs: &[Rpc], controller: Address) -> Result<(Pool, Nodes), PoolError> {
    let opened = join_all(rpcs.iter().map(|rpc| Pool::open(rpc.clone(), controller))).await;
    let place = |pool: &Pool| (pool.chain_id, pool.at);
    let told: Vec<&Pool> = opened.iter().flatten().collect();
    let votes = |one: &Pool| told.iter().filter(|other| place(other) == place(one)).count();
    let Some(pool) = told.iter().rev().max_by_key(|one| votes(one)).map(|pool| Pool::clone(pool)) else {
        let first = opened.into_iter().find_map(Result::err);
        return Err(first.unwrap_or(PoolError::NoPool { at: controller, chain_id: 0 }));
    };
    let mut nodes = Nodes { pools: Vec::new(), apart: Vec::new(), silent: Vec::new(), asked: rpcs.len() };
    for (rpc, opened) in rpcs.iter().zip(opened) {
        let node = rpc.node();
        match opened {
            Ok(other) if place(&other) == place(&pool) => nodes.pools.push(other),
            Ok(other) if other.chain_id != pool.chain_id => {
                nodes.apart.push(format!("{node} serves chain {}, not {}", other.chain_id, pool.chain_id));
            }
            Ok(_) => nodes.apart.push(format!("{node} names another vault, court or token of the pool")),
            Err(error) => nodes.silent.push(format!("{node} does not tell of the pool: {error}")),
        }
    }
    Ok((pool, nodes))
}

impl Nodes {
    /// Hears the pool's events from all, and what its contracts answer from the first of those that most agree with.
    ///
    /// # Errors
    ///
    /// That of the first node, if none tells.
    pub(crate) async fn hear(mut self, (first, patience): Span, progress: &Progress) -> Result<Heard, PoolError> {
        let (mut told, mut failure) = (None, None);
        while told.is_none() && !self.pools.is_empty() {
            let pool = self.pools.remove(0);
            match read(&pool, first, progress).await {
                Ok(read) => told = Some((pool, read)),
                Err(error) => {
                    self.is_silent(&pool, &error);
                    failure.get_or_insert(error);
                }
            }
        }
        let Some((pool, (facts, checks))) = told else {
            return Err(failure.unwrap_or(PoolError::NoPool { at: Address::ZERO, chain_id: 0 }));
        };
        if self.asked == 1 {
            let said = format!("only {} was asked, and is believed: name another --rpc to compare", pool.rpc.node());
            return Ok(Heard { facts, checks, agreed: Check::of(NAME, Ok::<_, Finding>(said)) });
        }
        let node = pool.rpc.node().to_owned();
        let (witnesses, common) = self.gather((pool, facts.clone()), (first, patience), progress).await;
        let Some(most) = most(&witnesses) else {
            let agreed = Check::of(NAME, Err::<String, _>(Finding::plain(self.silent.join("; "))));
            return Ok(Heard { facts, checks, agreed });
        };
        let verdict = self.verdict(&witnesses, most, common);
        // The first has told everything already. Where most contradict it, the next one is asked for the same.
        let mut heard = None;
        for one in witnesses.iter().filter(|one| one.said == most.said) {
            if one.pool.rpc.node() == node {
                break;
            }
            match read(&one.pool, first, progress).await {
                Ok(read) => {
                    heard = Some(read);
                    break;
                }
                Err(error) => self.is_silent(&one.pool, &error),
            }
        }
        let (facts, checks) = heard.unwrap_or((facts, checks));
        Ok(Heard { facts, checks, agreed: Check::of(NAME, verdict) })
    }

    fn is_silent(&mut self, pool: &Pool, error: &PoolError) {
        self.silent.push(format!("{} does not tell what it was asked: {error}", pool.rpc.node()));
    }

    /// What all others tell, beside the one that told first; and the newest block that all call final.
    async fn gather(&mut self, one: (Pool, Facts), span: Span, progress: &Progress) -> (Vec<Witness>, u64) {
        let target = one.1.last;
        let others = std::mem::take(&mut self.pools);
        let heard = join_all(others.iter().map(|other| catch_up(other, target, span, progress))).await;
        let mut told = vec![one];
        for (other, heard) in others.into_iter().zip(heard) {
            match heard {
                Ok(facts) => told.push((other, facts)),
                Err(error) => self.is_silent(&other, &error),
            }
        }
        let common = told.iter().map(|(_, facts)| facts.last).min().unwrap_or(0);
        let said = join_all(told.iter().map(|(pool, facts)| say(pool, facts, common))).await;
        let mut witnesses = Vec::with_capacity(told.len());
        for ((pool, facts), said) in told.into_iter().zip(said) {
            match said {
                Ok(said) => witnesses.push(Witness { pool, facts, said }),
                Err(error) => self.is_silent(&pool, &error),
            }
        }
        (witnesses, common)
    }

    /// That all say the same, or who does not.
    fn verdict(&self, witnesses: &[Witness], most: &Witness, common: u64) -> Result<String, Finding> {
        let node = |one: &Witness| one.pool.rpc.node().to_owned();
        let (alike, unlike): (Vec<&Witness>, Vec<&Witness>) = witnesses.iter().partition(|one| one.said == most.said);
        let differ = unlike.iter().map(|one| format!("{} {}", node(one), difference(&one.said, &most.said)));
        let apart: Vec<String> = self.apart.iter().cloned().chain(differ).collect();
        let (count, blocks) = (alike.len(), most.said.blocks.len());
        let same = format!("tell the same chain, code and {blocks} blocks with events, up to block {common}");
        let whom = match 2 * count > self.asked {
            true => format!("unlike {count} of {} nodes", self.asked),
            false => format!("unlike {}, and no majority tells who is right", node(most)),
        };
        let silent = self.silent.join("; ");
        match (apart.is_empty(), silent.is_empty()) {
            (true, true) => {
                let last = witnesses.iter().map(|one| one.facts.last).max().unwrap_or(common);
                let behind = witnesses.iter().filter(|one| one.facts.last < last);
                let behind = behind.map(|one| format!("; {} is at block {} of {last}", node(one), one.facts.last));
                Ok(format!("{count} nodes {same}{}", behind.collect::<String>()))
            }
            (true, false) => Err(Finding::plain(format!("{silent}; the other {count} {same}"))),
            (false, true) => Err(Finding::plain(format!("{}: {whom}", apart.join("; ")))),
            (false, false) => Err(Finding::plain(format!("{}: {whom}; {silent}", apart.join("; ")))),
        }
    }
}

/// The pool's events, and the checks of what its contracts answer.
async fn read(pool: &Pool, first: Option<u64>, progress: &Progress) -> Result<(Facts, Vec<Check>), PoolError> {
    let mut attempt = 1;
    loop {
        let facts = Facts::read(pool, first, progress).await?;
        match super::check(pool, &facts).await {
            Ok(checks) => return Ok((facts, checks)),
            // A node without old state may only be asked about its head, and a block came meanwhile.
            Err(PoolError::Rpc(RpcError::Refused { .. })) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The pool's events, when the node has come to that block or had its time.
async fn catch_up(pool: &Pool, target: u64, (first, patience): Span, progress: &Progress) -> Result<Facts, PoolError> {
    let depth = pool.terms(BlockTag::Latest).await?.finality_depth;
    let until = Instant::now() + patience;
    while pool.final_header(depth).await?.map_or(0, |header| header.number) < target && Instant::now() < until {
        tokio::time::sleep(ASK_AGAIN).await;
    }
    Facts::read(pool, first, progress).await
}

async fn say(pool: &Pool, facts: &Facts, common: u64) -> Result<Said, PoolError> {
    let mut code = [Hash32::ZERO; 4];
    for (hash, at) in code.iter_mut().zip([pool.at.controller, pool.at.vault, pool.at.court, pool.at.token]) {
        *hash = sha256_of(&pool.rpc.code(at).await?);
    }
    let last = match facts.last == common {
        true => facts.last_hash,
        false => match pool.rpc.header(BlockTag::Number(common)).await {
            Ok(header) => Some(header.hash),
            Err(RpcError::NoBlock { .. }) => None,
            Err(error) => return Err(error.into()),
        },
    };
    let blocks = facts.blocks.range(..=common).map(|(number, block)| (*number, block.clone())).collect();
    let logs = facts.logs.range(..=common).map(|(number, hash)| (*number, *hash)).collect();
    Ok(Said { fault: facts.fault.clone(), code, last, blocks, logs })
}

/// The one that most agree with. Of several, one that tells nothing odd, and of those the first.
fn most(witnesses: &[Witness]) -> Option<&Witness> {
    let votes = |one: &Witness| witnesses.iter().filter(|other| other.said == one.said).count();
    witnesses.iter().rev().max_by_key(|one| (votes(one), one.said.fault.is_none()))
}

/// The first thing that one says otherwise.
fn difference(one: &Said, most: &Said) -> String {
    if let Some(fault) = &one.fault {
        return format!("tells what no honest node does: {fault}");
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
