//! The links to the agents: who is on them, whether they are alive, what they should hold, what they report.
//!
//! A link is judged once, at its hello ([`hello`]); from then on the agent is read at a bounded pace ([`pace`]), and its
//! reports of what the node holds enter the log and are acknowledged after the commit, in order ([`reports`]). The desired state is read from committed State and sent whole
//! ([`desired`]). A node that falls silent is entered as lost, once an outage ([`liveness`]). Log lines are kept
//! beside the log ([`logs`]), what members left only from the node that held them ([`outputs`]); what members use is kept in
//! memory ([`usage`]).
//!
//! Nothing here decides anything: the rest of the controller is behind [`Core`].

mod core;
mod counts;
mod desired;
mod distance;
mod hello;
mod hub;
mod link;
mod liveness;
pub mod logs;
mod outputs;
mod pace;
mod parts;
mod registry;
mod reports;
mod roll;
mod sealed;
#[cfg(test)]
mod tests;
mod usage;
mod wire;

pub use self::core::{Claim, Core, CoreError, GatewayToken};
pub use counts::{Bad, Counts, Live};
pub use hub::Hub;
pub use parts::Parts;
