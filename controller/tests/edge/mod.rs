//! What the tests of the edge to the chain share: chains, a node that lies, people who use a pool, and books of our own.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests; each file uses its part")]

pub mod actors;
pub mod books;
pub mod chain;
pub mod follow;
pub mod proxy;

/// Chance from a seed (splitmix64): one seed is one run.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `many`.
    pub fn below(&mut self, many: u64) -> u64 {
        self.roll() % many
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// Steps of a run: `SELION_FUZZ_STEPS`, or `default`.
pub fn steps(default: u64) -> u64 {
    number("SELION_FUZZ_STEPS").unwrap_or(default)
}

/// The first seed: `SELION_FUZZ_SEED`, or 1. A failure prints the seed that it happened under.
pub fn seed() -> u64 {
    number("SELION_FUZZ_SEED").unwrap_or(1)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}
