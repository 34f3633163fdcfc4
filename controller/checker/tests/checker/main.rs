//! The second opinion agrees with the engine on every entry, and sees every kind of lie. The engine's own tests ask it
//! too: the pool in memory of `controller/market/tests` hands it every entry.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that fails says so by panicking"
)]

mod data;
mod extends;
mod free;
mod gangs;
mod grants;
mod groups;
#[path = "../../../market/tests/market/invariants.rs"]
mod invariants;
mod kept;
mod latency;
mod licences;
mod lives;
mod money;
#[allow(dead_code, reason = "shared with the engine's tests, which use more of it")]
#[path = "../../../market/tests/market/pool.rs"]
mod pool;
mod promises;
mod quotas;
mod random;
mod reclaims;
mod repairs;
mod several;
mod tape;
mod turns;
