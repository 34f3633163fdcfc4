//! The off-chain controller: one sequencer over the log, and the edges around it.
//!
//! `sequencer` is the only writer of leases; `store` keeps log, rows and private matter; `project` folds State into
//! rows; `agents` holds the links; `mirror` follows the chain; `loops` signs, anchors and claims;
//! `relay` judges calls that the operator pays for; `http` answers.

pub mod agents;
mod app;
pub mod config;
pub mod http;
pub mod ipfs;
pub mod keys;
pub mod loops;
pub mod mirror;
pub mod pen;
pub mod project;
pub mod relay;
mod run;
pub mod sequencer;
pub mod store;
#[cfg(test)]
mod testing;

pub use app::{App, wall_clock};
pub use run::{RunError, run};
