//! The off-chain controller: one sequencer over the log, and the edges around it.
//!
//! `sequencer` is the only writer of leases; `store` keeps log, rows and private matter; `project` folds State into
//! rows; `agents` holds the links; `mirror` follows the chain; `loops` signs, anchors and claims;
//! `relay` judges calls that the operator pays for; `serve` holds the connections and `http` answers.

pub mod agents;
mod app;
pub mod config;
mod held;
pub mod http;
pub mod ipfs;
pub mod keys;
pub mod loops;
pub mod mark;
pub mod mirror;
mod network;
pub mod pen;
pub mod project;
mod registry;
pub mod relay;
mod run;
pub mod sequencer;
mod serve;
pub mod store;
#[cfg(test)]
mod testing;

pub use app::{App, wall_clock};
pub use run::{RunError, run};
