//! The checks anyone can run, from the chain and the log alone: nobody needs to be trusted, neither the controller
//! nor this crate's author, whose market is replayed and whose decisions are judged by other code besides.
//!
//! [`check_log`] needs the published entries only and does no I/O; [`audit`] fetches them, adds the chain, and gives
//! one [`Report`].

mod bills;
mod chain;
mod claims;
mod decisions;
mod effects;
mod entries;
mod finding;
mod grants;
mod heads;
mod proof;
pub mod rehearse;
mod replay;
mod report;
mod run;
mod signatures;
mod source;

pub use entries::{Item, Log};
pub use finding::{Check, Finding};
pub use heads::Anchor;
pub use proof::{Proof, ProofError, Proven, ProvenEffect, ProvenEntry};
pub use report::{NOT_PROVED, Report, Unsigned};
pub use run::{AuditError, LogSource, Options, audit, check_log};
pub use source::{SourceError, fetch};
