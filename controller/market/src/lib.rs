//! The market: who gets what, and what it costs. One pure, total, deterministic function over one State.
//!
//! [`step()`] sees no clock, file, network, thread, float or hash map: time arrives in the [`Stamp`], the world as
//! [`State`], chance not at all. The controller, the audit and the simulator run this same crate.
#![no_std]
#![deny(clippy::float_arithmetic)]

extern crate alloc;

pub mod accounts;
pub mod admit;
mod baseline;
mod bench;
mod blocking;
pub mod booking;
mod busy;
mod chain;
pub mod desired;
pub mod dry_run;
pub mod effect;
pub mod engine;
mod estimate;
pub mod explain;
pub mod extend;
pub mod fair;
pub mod finder;
pub mod fleet;
mod free_use;
mod gang;
pub mod geometry;
pub mod input;
pub mod learned;
pub mod lease;
pub mod ledger;
pub mod licence;
mod link;
pub use link::INTERRUPTED_MS;
mod look;
mod money;
mod order;
mod pass;
mod place;
mod preempt;
mod promise;
pub use promise::Overpromised;
mod quota;
mod reclaim;
mod repair;
mod request;
pub mod scoring;
mod several;
pub mod shares;
pub mod staged;
pub mod state;
mod step;
mod surcharge;
mod survey;
pub mod tally;
mod ways;
mod word;

pub use accounts::{Group, Seat};
pub use admit::Admission;
pub use dry_run::{DryRun, dry_run};
pub use effect::{Answer, Effect, Grant, Outcome, Touched, VoucherDue};
pub use input::{Input, Policy, RequestLease, Stamp};
pub use ledger::{Ledger, Pocket, Transfer};
pub use state::{Lease, Member, Node, State};
pub use step::step;
pub use word::Word;
