//! Tests that join the parts; nothing depends on this crate. Here is what they share: real processes of the real
//! binary, a renter, and a seal for logs that lie.

mod chain;
mod pool;
mod process;
mod renter;
pub mod seal;

pub use pool::{Controller, Pool};
pub use process::{Ended, PATIENCE, Part, binary, dead_port, run, until};
pub use renter::{Renter, kept, want};
