//! The checks anyone can run, from the chain and the log alone: nobody needs to be trusted, neither the controller
//! nor this crate's author, whose market is replayed and whose decisions are judged by other code besides.
//!
//! [`check_log`] needs the published entries only and does no I/O; [`audit`] fetches them, adds the chain, and gives
//! one [`Report`].

mod bills;
pub mod breach;
mod cache;
mod chain;
mod claims;
mod decisions;
mod effects;
mod entries;
pub mod evidence;
mod finding;
mod grants;
mod heads;
mod pass;
mod progress;
mod promise;
mod proof;
pub mod rehearse;
mod replay;
mod report;
mod reported;
mod run;
mod signatures;
mod signed;
mod source;
mod spine;
mod tiles;

pub use entries::{Item, Log};
pub use evidence::read_reports;
pub use finding::{Check, Finding};
pub use heads::Anchor;
pub use progress::Progress;
pub use promise::{KeptPromise, read_promises};
pub use proof::{Proof, ProofError, Proven, ProvenEffect, ProvenEntry};
pub use report::{Conviction, NOT_PROVED, Report, Unsigned, VERSION};
pub use run::{AuditError, LogSource, Options, audit, check_file, check_from_anchor, check_log, check_tiles};
pub use signed::{ReportError, SignedReport};
pub use source::{SourceError, fetch};
pub use tiles::{Mirrored, TileSource, Tiles, TilesError, mirror, read_tiles};
