//! Several nodes of the chain, asked the same: who of them says something else, or nothing. The audit goes on by those
//! that agree.

mod witness;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use selion_api::Address;
use selion_contracts::{Pool, PoolError, Rpc, RpcError};
use tokio::time::{Instant, timeout, timeout_at};

use super::Facts;
use crate::finding::{Check, Finding};
use crate::progress::Progress;
use witness::{Witness, difference, most};

const NAME: &str = "rpcs_agree";
/// How often the chain is read on because it moved on meanwhile.
const ATTEMPTS: u32 = 8;
/// How much longer than half of the nodes another one may take, and at least so many times the patience with one that is
/// behind.
const SLOWER: u32 = 10;
const LEAST: u32 = 40;

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
    /// All that were asked.
    nodes: Nodes,
    /// Those that agree, with what they told.
    agreeing: Vec<(Pool, Facts)>,
}

/// What the contracts answer, and by whom.
struct Answered {
    /// As they were compared.
    facts: Facts,
    checks: Vec<Check>,
    by: Pool,
    /// Nodes that answered otherwise than their events tell.
    liars: BTreeSet<String>,
}

/// The block from which on nodes are asked, and the time that they have to come to the block that others call final.
type Span = (Option<u64>, Duration);

/// Asks all nodes for the pool of this controller. The one that most tell of is gone on with; without a majority, the one
/// that the first tells of.
///
/// # Errors
///
/// That of the first node, if none tells of a pool.
pub(crate) async fn open(rpcs: &[Rpc], controller: Address, patience: Duration) -> Result<(Pool, Nodes), PoolError> {
    let opened = side_by_side(rpcs.iter().map(|rpc| Pool::open(rpc.clone(), controller)), patience).await;
    let place = |pool: &Pool| (pool.chain_id, pool.at);
    let told: Vec<&Pool> = opened.iter().flatten().flatten().collect();
    let votes = |one: &Pool| told.iter().filter(|other| place(other) == place(one)).count();
    let Some(pool) = told.iter().rev().max_by_key(|one| votes(one)).map(|pool| Pool::clone(pool)) else {
        let first = opened.into_iter().flatten().find_map(Result::err);
        return Err(first.unwrap_or(PoolError::NoPool { at: controller, chain_id: 0 }));
    };
    let mut nodes = Nodes { pools: Vec::new(), apart: Vec::new(), silent: Vec::new(), asked: rpcs.len() };
    for (rpc, opened) in rpcs.iter().zip(opened) {
        let node = rpc.node();
        match opened {
            Some(Ok(other)) if place(&other) == place(&pool) => nodes.pools.push(other),
            Some(Ok(other)) if other.chain_id != pool.chain_id => {
                nodes.apart.push(format!("{node} serves chain {}, not {}", other.chain_id, pool.chain_id));
            }
            Some(Ok(_)) => nodes.apart.push(format!("{node} names another vault, court or token of the pool")),
            Some(Err(error)) => nodes.silent.push(format!("{node} does not tell of the pool: {error}")),
            None => nodes.silent.push(format!("{node} does not tell of the pool: {TOO_SLOW}")),
        }
    }
    Ok((pool, nodes))
}

impl Nodes {
    /// Hears the pool's events from all, side by side, and what its contracts answer from one of those that most agree with.
    ///
    /// # Errors
    ///
    /// That of the first node, if none tells.
    pub(crate) async fn hear(mut self, (first, patience): Span, progress: &Progress) -> Result<Heard, PoolError> {
        let begun = Instant::now();
        let told = self.listen((first, patience), progress).await?;
        let witnesses = self.compare(told, 0, patience, progress).await?;
        let lenient = lenient(patience, begun.elapsed());
        let agreeing = most(&witnesses);
        let Answered { facts, checks, by, liars } = self.ask(&agreeing, lenient, progress).await?;
        let agreed = match self.asked {
            1 => Ok(format!("only {} was asked, and is believed: name another --rpc to compare", by.rpc.node())),
            _ => self.verdict(&witnesses, &agreeing, &liars),
        };
        let honest = agreeing.iter().filter(|one| !liars.contains(one.pool.rpc.node()));
        let agreeing = honest.map(|one| (one.pool.clone(), one.facts.clone())).collect();
        Ok(Heard { facts, checks, agreed: Check::of(NAME, agreed), nodes: self, agreeing })
    }

    fn is_silent(&mut self, pool: &Pool, why: impl std::fmt::Display) {
        self.silent.push(format!("{} does not tell what it was asked: {why}", pool.rpc.node()));
    }

    /// The events that each node tells, in the order of the nodes. Who is much slower than half of them is not waited for.
    async fn listen(&mut self, (first, patience): Span, progress: &Progress) -> Result<Vec<(Pool, Facts)>, PoolError> {
        let pools = std::mem::take(&mut self.pools);
        let read = pools.iter().map(|pool| Facts::read(pool, first, progress));
        let told = side_by_side(read, patience).await;
        let (mut heard, mut failure) = (Vec::with_capacity(pools.len()), None);
        for (pool, read) in pools.into_iter().zip(told) {
            match read {
                Some(Ok(facts)) => heard.push((pool, facts)),
                Some(Err(error)) => {
                    self.is_silent(&pool, &error);
                    failure.get_or_insert(error);
                }
                None => self.is_silent(&pool, TOO_SLOW),
            }
        }
        match failure {
            Some(error) if heard.is_empty() => Err(error),
            _ => Ok(heard),
        }
    }

    /// Waits for those that are behind the others or block `least`, and asks each for the blocks at which it is compared with the
    /// others.
    async fn compare(
        &mut self,
        told: Vec<(Pool, Facts)>,
        least: u64,
        patience: Duration,
        progress: &Progress,
    ) -> Result<Vec<Witness>, PoolError> {
        let target = told.iter().map(|(_, facts)| facts.last).max().unwrap_or(0).max(least);
        let slow = lenient(patience, Duration::ZERO);
        let caught_up = told.into_iter().map(async |(pool, mut facts)| {
            let caught_up = timeout(slow, facts.catch_up(&pool, target, patience, progress)).await;
            (pool, facts, caught_up)
        });
        let mut told = Vec::new();
        let mut failure = None;
        for (pool, facts, caught_up) in join_all(caught_up).await {
            match caught_up {
                Ok(Ok(())) => told.push((pool, facts)),
                Ok(Err(error)) => {
                    self.is_silent(&pool, &error);
                    failure.get_or_insert(error);
                }
                Err(_) => self.is_silent(&pool, TOO_SLOW),
            }
        }
        let lasts: BTreeSet<u64> = told.iter().map(|(_, facts)| facts.last).collect();
        let called = told.into_iter().map(async |(pool, facts)| {
            let called = timeout(slow, Witness::call(pool.clone(), facts, &lasts)).await;
            (pool, called)
        });
        let mut witnesses = Vec::new();
        for (pool, called) in join_all(called).await {
            match called {
                Ok(Ok(witness)) => witnesses.push(witness),
                Ok(Err(error)) => {
                    self.is_silent(&pool, &error);
                    failure.get_or_insert(error);
                }
                Err(_) => self.is_silent(&pool, TOO_SLOW),
            }
        }
        match failure {
            Some(error) if witnesses.is_empty() => Err(error),
            _ => Ok(witnesses),
        }
    }

    /// What the contracts answer, by the first of the nodes whose answers are what its events tell; if there is none, by the
    /// first. Who answered otherwise is named, beside one that did not.
    async fn ask(
        &mut self,
        agreeing: &[&Witness],
        lenient: Duration,
        progress: &Progress,
    ) -> Result<Answered, PoolError> {
        let (mut unlike, mut failure) = (Vec::<Answered>::new(), None);
        for (at, one) in agreeing.iter().enumerate() {
            let checked = checked(one, progress);
            let checked = match at + 1 == agreeing.len() {
                true => checked.await,
                false => match timeout(lenient, checked).await {
                    Ok(checked) => checked,
                    Err(_) => {
                        self.is_silent(&one.pool, TOO_SLOW);
                        continue;
                    }
                },
            };
            match checked {
                Ok(checks) => {
                    let facts = one.facts.clone();
                    let answered = Answered { facts, checks, by: one.pool.clone(), liars: BTreeSet::new() };
                    if answered.checks.iter().all(|check| check.ok) {
                        return Ok(Answered { liars: self.answer_otherwise(&unlike), ..answered });
                    }
                    unlike.push(answered);
                }
                Err(error) => {
                    self.is_silent(&one.pool, &error);
                    failure.get_or_insert(error);
                }
            }
        }
        let none = || failure.unwrap_or(PoolError::NoPool { at: Address::ZERO, chain_id: 0 });
        unlike.into_iter().next().ok_or_else(none)
    }

    /// Names the nodes whose contracts answer otherwise than their events tell, where another node's do not.
    fn answer_otherwise(&mut self, unlike: &[Answered]) -> BTreeSet<String> {
        for Answered { by, checks, .. } in unlike {
            let wrong = checks.iter().find(|check| !check.ok);
            let (name, detail) = wrong.map_or(("", ""), |check| (check.name.as_str(), check.detail.as_str()));
            let node = by.rpc.node();
            self.apart.push(format!("{node} answers otherwise than its events tell ({name}: {detail})"));
        }
        unlike.iter().map(|one| one.by.rpc.node().to_owned()).collect()
    }

    /// That all say the same, or who does not.
    fn verdict(
        &self,
        witnesses: &[Witness],
        agreeing: &[&Witness],
        liars: &BTreeSet<String>,
    ) -> Result<String, Finding> {
        let node = |one: &Witness| one.pool.rpc.node().to_owned();
        let differ = |one: &Witness| agreeing.iter().find_map(|other| difference(one, other));
        let differ = witnesses.iter().filter_map(|one| Some(format!("{} {}", node(one), differ(one)?)));
        let apart: Vec<String> = self.apart.iter().cloned().chain(differ).collect();
        let agreeing: Vec<&Witness> =
            agreeing.iter().copied().filter(|one| !liars.contains(one.pool.rpc.node())).collect();
        let common = agreeing.iter().map(|one| one.facts.last).min().unwrap_or(0);
        let count = agreeing.len();
        let blocks = agreeing.first().map_or(0, |one| one.facts.blocks.range(..=common).count());
        let same = format!("tell the same chain, code and {blocks} blocks with events, up to block {common}");
        let whom = match (2 * count > self.asked, agreeing.first()) {
            (true, _) | (_, None) => format!("unlike {count} of {} nodes", self.asked),
            (false, Some(first)) => format!("unlike {}, and no majority tells who is right", node(first)),
        };
        let silent = self.silent.join("; ");
        match (apart.is_empty(), silent.is_empty()) {
            (true, true) => {
                let last = agreeing.iter().map(|one| one.facts.last).max().unwrap_or(common);
                let behind = agreeing.iter().filter(|one| one.facts.last < last);
                let behind = behind.map(|one| format!("; {} is at block {} of {last}", node(one), one.facts.last));
                Ok(format!("{count} nodes {same}{}", behind.collect::<String>()))
            }
            (true, false) => Err(Finding::plain(format!("{silent}; the other {count} {same}"))),
            (false, true) => Err(Finding::plain(format!("{}: {whom}", apart.join("; ")))),
            (false, false) => Err(Finding::plain(format!("{}: {whom}; {silent}", apart.join("; ")))),
        }
    }
}

impl Heard {
    /// Reads on to block `newest`, by all that agreed: what came since they were compared, no one of them tells alone.
    ///
    /// # Errors
    ///
    /// That of the first node, if none tells.
    pub(crate) async fn read_on(
        &mut self,
        newest: u64,
        patience: Duration,
        progress: &Progress,
    ) -> Result<(), PoolError> {
        if self.facts.last >= newest {
            return Ok(());
        }
        let told = self.agreeing.clone();
        let witnesses = self.nodes.compare(told, newest, patience, progress).await?;
        let agreeing = most(&witnesses);
        if let Some(first) = agreeing.first() {
            self.facts = first.facts.clone();
        }
        if self.nodes.asked > 1
            && let Err(odd) = self.nodes.verdict(&witnesses, &agreeing, &BTreeSet::new())
        {
            self.agreed = Check::of(NAME, Err::<String, _>(odd));
        }
        Ok(())
    }
}

const TOO_SLOW: &str = "it takes many times as long as the others";

/// What each of several nodes tells, in their order. Once half of them have told, who takes many times as long is not
/// waited for.
async fn side_by_side<T>(
    asked: impl ExactSizeIterator<Item = impl Future<Output = Result<T, PoolError>>>,
    patience: Duration,
) -> Vec<Option<Result<T, PoolError>>> {
    let (begun, count) = (Instant::now(), asked.len());
    let mut told: Vec<Option<Result<T, PoolError>>> = std::iter::repeat_with(|| None).take(count).collect();
    let mut open: FuturesUnordered<_> = asked.enumerate().map(|(at, one)| async move { (at, one.await) }).collect();
    let mut until = None;
    while !open.is_empty() {
        let next = match until {
            None => open.next().await,
            Some(until) => timeout_at(until, open.next()).await.ok().flatten(),
        };
        let Some((at, one)) = next else { break };
        if let Some(place) = told.get_mut(at) {
            *place = Some(one);
        }
        let done = told.iter().flatten().filter(|one| one.is_ok()).count();
        if until.is_none() && 2 * done >= count {
            until = Some(Instant::now() + lenient(patience, begun.elapsed()));
        }
    }
    told
}

/// How long those that are slower than half may go on, which took so long.
fn lenient(patience: Duration, half: Duration) -> Duration {
    patience.saturating_mul(LEAST).max(half.saturating_mul(SLOWER))
}

/// The checks of what the pool's contracts answer at the newest final block. What the node tells of blocks that come meanwhile
/// serves its answers only: nobody compared it.
async fn checked(one: &Witness, progress: &Progress) -> Result<Vec<Check>, PoolError> {
    let (mut facts, mut attempt) = (one.facts.clone(), 1);
    loop {
        match super::check(&one.pool, &facts).await {
            Ok(checks) => return Ok(checks),
            // A node without old state may only be asked about its head, and a block came meanwhile.
            Err(PoolError::Rpc(RpcError::Refused { .. })) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
        facts.read_on(&one.pool, progress).await?;
    }
}
