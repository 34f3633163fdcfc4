//! The provider agent: one loop over traits.
//!
//! [`run`] opens one outbound link to the controller, receives the node's *desired state*, and brings the node there:
//! [`gpus`] makes slices, `staging` brings verified data, [`runtime`] runs commands apart from the machine, `meter`
//! counts, and signed reports go to the [`book`]'s outbox before they go anywhere else.
//!
//! Invariants: nothing is stated that is not on disk; a lower fence is never obeyed; no member runs in a weaker
//! sandbox than the node's spec says; a member that may have run once is not run again; nobody runs on unpaid beyond the
//! owner's cap.

mod agent;
pub mod book;
mod boxes;
mod bundle;
mod cards;
mod claim;
mod config;
mod controller;
mod courier;
mod disk;
mod doctor;
mod earnings;
mod error;
mod event;
mod features;
pub mod gpus;
mod guard;
mod holdings;
pub mod images;
pub mod install;
mod join;
mod keys;
mod link;
mod logs;
mod member;
mod member_key;
mod meter;
mod money;
mod outputs;
mod owner;
mod pieces;
mod reconcile;
mod reporter;
pub mod runtime;
mod scrub;
mod spec;
mod staging;
pub mod status;
mod succeed;
#[cfg(test)]
mod testing;
mod unsigned;
mod vault;

pub use agent::run;
pub use boxes::may_run;
pub use bundle::{Bundle, BundleError, bundle};
pub use cards::{Card, Cards, Draining};
pub use claim::{ClaimReport, claim, claim_all};
pub use config::{Claiming, Config, GpuSource, Prices, Registries};
pub use courier::{Courier, CourierError};
pub use doctor::{Check, doctor};
pub use earnings::{CashedOut, cash_out};
pub use error::{AgentError, chain};
pub use event::Event;
pub use holdings::{Act, Held, Holdings, Obstacle};
pub use join::{JoinError, Joined, Prospect, Standing, join, look};
pub use link::LinkError;
pub use member_key::MemberKey;
pub use meter::Meter;
pub use owner::{Owner, OwnerError};
pub use runtime::{SANDBOX_COMMAND, sandbox_main};
pub use succeed::{SucceedError, succeed};
