//! A second opinion on every decision of the market, from the published entries alone.
//!
//! [`Checker::check`] takes an entry's stamp, input and effects, keeps its own books of fleet, leases and money, and
//! tells what does not hold. It shares the words of the market (inputs and effects) and none of its code: no `step`,
//! no placement, no geometry, no order. So a fault in the engine that a replay would only repeat is still seen.
//!
//! What it decides is whether a decision was *allowed*; whether it was the *best* one is the engine's affair. Where the
//! answer hangs on a search of the engine's it says nothing: whether a gang of different members fits (only what each kind
//! needs alone is looked at), who of a group can get something now (a least and a most of its share are worked out),
//! which gang could have stayed. Past use it does not reckon; quotas are judged beside it.
#![no_std]
#![deny(clippy::float_arithmetic)]

extern crate alloc;

mod bundle;
mod check;
mod effects;
mod fair;
mod finding;
mod fit;
mod fleet;
mod leases;
mod licences;
mod limits;
mod line;
mod money;
mod quota;
mod uses;

pub use check::Checker;
pub use finding::{Finding, Rule};
