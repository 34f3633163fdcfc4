//! Random calls, reorganisations, crashes and lies of the node: after each step the rows, the log, State and the
//! contracts say the same at the same block hash. `SELION_FUZZ_STEPS` for more, `SELION_FUZZ_SEED` for another run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod edge;

use edge::actors::Actors;
use edge::chain::Chain;
use edge::follow::Mirrored;
use edge::proxy::Lies;
use edge::{Dice, seed, steps};

/// Steps with one chain: its reorganisations replay it, so it is not to grow for ever.
const STEPS_A_CHAIN: u64 = 250;

#[derive(Debug, Default)]
struct Tally {
    calls: u64,
    refused: u64,
    reorgs: u64,
    passes: u64,
    failed: u64,
    checks: u64,
}

struct World {
    chain: Chain,
    actors: Actors,
    mirrored: Mirrored,
    depth: u64,
    dice: Dice,
    slept: u64,
    tally: Tally,
}

impl World {
    async fn open(chain: Chain, other: &Chain, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let depth = [0, 2, 5][usize::try_from(dice.below(3)).unwrap()];
        let actors = Actors::open(&chain).await;
        let delegate = actors.delegate.address();
        let mut mirrored = Mirrored::open(&actors.pool, &chain, other, depth, delegate, dice.roll()).await;
        mirrored.look(&actors.pool).await;
        Self { chain, actors, mirrored, depth, dice, slept: 0, tally: Tally::default() }
    }

    async fn step(&mut self) {
        match self.dice.below(100) {
            0..50 => match self.actors.act(&mut self.dice).await {
                true => self.tally.calls += 1,
                false => self.tally.refused += 1,
            },
            50..58 => self.chain.mine(1 + self.dice.below(3)).await,
            // What is final never leaves: only as much goes as may.
            58..70 if self.depth > 0 && self.chain.obeys() => {
                self.tally.reorgs += 1;
                let gone = 1 + self.dice.below(self.depth);
                self.chain.reorg(gone).await;
                // Sometimes what comes instead is longer, sometimes it has calls of its own.
                if self.dice.chance(50) {
                    self.actors.act(&mut self.dice).await;
                }
            }
            // A mirror that slept through many blocks reads them by ranges, and it wakes among lies. Thousands of them are
            // more than one range.
            70..73 if self.slept < 6 && self.chain.obeys() => self.sleep().await,
            _ => self.pass_among_lies().await,
        }
        match self.dice.below(100) {
            0..50 => self.check().await,
            // What is new is first seen among lies.
            50..70 => self.pass_among_lies().await,
            _ => {}
        }
    }

    async fn sleep(&mut self) {
        self.slept += 1;
        for _ in 0..4 {
            let empty = if self.slept == 1 { 1_200 } else { 150 };
            self.chain.mine(1 + self.dice.below(empty)).await;
            for _ in 0..self.dice.below(6) {
                self.actors.act(&mut self.dice).await;
            }
        }
        self.pass_among_lies().await;
    }

    async fn pass_among_lies(&mut self) {
        let dice = &mut self.dice;
        let mut some = |most: u64| if dice.chance(40) { dice.below(most) } else { 0 };
        let lies = Lies {
            silence: some(10),
            nonsense: some(20),
            stale: some(40),
            dropped: some(100),
            doubled: some(100),
            other: some(15),
        };
        for _ in 0..=self.dice.below(3) {
            let polls = if self.dice.chance(40) { 1 + self.dice.below(120) } else { u64::MAX };
            let reopen = self.dice.chance(30);
            self.tally.passes += 1;
            self.tally.failed += u64::from(self.mirrored.pass(lies, polls, reopen).await.is_err());
        }
    }

    async fn check(&mut self) {
        self.mirrored.look(&self.actors.pool).await;
        self.mirrored.catch_up().await;
        self.mirrored.assert_equal(&self.actors.pool, self.chain.keeps_states()).await;
        self.tally.checks += 1;
    }
}

/// Tells the seed when a run ends by a panic.
struct Named(u64, &'static str);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was seed {} on {}: SELION_FUZZ_SEED={}", self.0, self.1, self.0);
        }
    }
}

/// Runs `steps` steps on chains that `open` makes.
async fn run(name: &'static str, steps: u64, mut open: impl AsyncFnMut() -> Chain) {
    let (mut left, mut seed) = (steps, seed());
    let other = Chain::embedded(4_711).await;
    other.mine(40).await;
    while left > 0 {
        let named = Named(seed, name);
        let mut world = World::open(open().await, &other, seed).await;
        let now = left.min(STEPS_A_CHAIN);
        for _ in 0..now {
            world.step().await;
        }
        world.check().await;
        println!("seed {seed} on {name}: {now} steps, depth {}, {:?}", world.depth, world.tally);
        println!("  lies {:?}", world.mirrored.proxy.counts());
        drop(named);
        (left, seed) = (left - now, seed + 1);
    }
}

/// J3: the mirror equals the chain after reorganisations, restarts and missed events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j3_the_mirror_is_the_chain_after_every_step_on_the_development_chain() {
    run("the development chain", steps(300), async || Chain::embedded(31_337).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_leaves_out_far_behind_the_head_is_missed() {
    let (chain, other) = (Chain::embedded(31_337).await, Chain::embedded(4_711).await);
    let mut world = World::open(chain, &other, 7).await;
    world.check().await;
    for _ in 0..30 {
        world.actors.act(&mut world.dice).await;
        world.chain.mine(20).await;
    }
    for _ in 0..4 {
        let lies = Lies { dropped: 100, ..Lies::default() };
        let error = world.mirrored.pass(lies, u64::MAX, false).await.unwrap_err().to_string();
        assert!(error.contains("left logs or transactions out of the receipts"), "{error}");
    }
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j3_the_mirror_is_the_chain_after_every_step_on_anvil() {
    let Some(first) = Chain::anvil("j3_the_mirror_is_the_chain_after_every_step_on_anvil") else {
        return;
    };
    let mut first = Some(first);
    run("Anvil", steps(60).min(500), async || match first.take() {
        Some(chain) => chain,
        None => Chain::anvil("another").unwrap(),
    })
    .await;
}

// geth has no reorganisations at will, and its finality lags: the pool goes by depth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j3_the_mirror_is_the_chain_after_every_step_on_geth() {
    let mut first = Chain::geth("j3_the_mirror_is_the_chain_after_every_step_on_geth");
    if first.is_none() {
        return;
    }
    run("geth", steps(60).min(200), async || match first.take() {
        Some(chain) => chain,
        None => Chain::geth("another").unwrap(),
    })
    .await;
}
