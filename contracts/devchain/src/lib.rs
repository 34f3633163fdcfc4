//! An embedded EVM chain for development and the quick start. **Never for real value**: one process
//! orders everything, nothing secures the history, and with [`DevMethods`] anybody who reaches the port makes coins.
//! Whoever reaches the port can also mint the test token. A private chain is reached by those who know its secret path.
//!
//! One transaction is one block, mined at once, under Cancun rules. Every accepted transaction is on disk
//! before it is answered; a restart replays the journal and arrives at the same head hash.
//!
//! What it does not do, each with a clear error instead of a wrong answer: the state of blocks before the
//! head, a queue of transactions with future nonces, blob and 7702 transactions, state overrides, tracing,
//! and proofs (`stateRoot` is a running digest of the state changes, not a Merkle root).
//!
//! The alloy types that revm brings stay inside this crate.

mod block;
mod chain;
mod construct;
mod door;
mod error;
mod evm;
mod fees;
mod filter;
mod frame;
mod http;
mod journal;
mod node;
mod record;
mod rpc;
mod serve;
mod tx;
mod ws;

pub use construct::{Coded, ConstructError, construct};
pub use door::DevMethods;
pub use error::{Error, JournalError};
pub use serve::{Config, DEFAULT_CHAIN_ID, serve};
