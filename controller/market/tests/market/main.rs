//! The market as a whole: inputs in, effects out, through the public face only.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests: a failure here is what is being looked for"
)]

mod blocking;
mod boxes;
mod data;
mod extend;
mod fair;
mod filling;
mod free;
mod gangs;
mod geometry;
mod golden;
mod groups;
mod hierarchy;
mod honest;
mod invariants;
mod latency;
mod leases;
mod licences;
mod links;
mod money;
mod naive;
mod order;
mod placing;
mod pool;
mod preemption;
mod promises;
mod properties;
mod quota;
mod quote;
mod reclaim;
mod repair;
mod score;
mod several;
mod surcharge;
mod waiting;
mod weightings;
