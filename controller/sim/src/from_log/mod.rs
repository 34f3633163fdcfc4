//! A real pool's log, run again with something changed: what would have become of its leases.
//!
//! Everything in the log that comes from outside is entered again as it was: chain facts, requests, links and losses,
//! pauses. What agents did is modelled, because it follows from placements that may now be others: each lease takes
//! as long to prepare, to run and to stop as the log says it took. See [`NOTES`].

mod change;
mod changes;
mod compare;
mod history;
mod rerun;

pub use change::{Asked, Asks, Change, PolicyChange, PolicyField, Scale, policy};
pub use changes::NoSuch;
pub(crate) use changes::check;
pub use compare::{Comparison, Fate, Line, Totals, compare};
pub use history::{History, LogError};
pub use rerun::Rerun;
pub use selion_market::accounts::MAX_GROUP_DEPTH;

/// What to know before believing a comparison; printed with it.
pub const NOTES: [&str; 4] = [
    "agents are modelled: preparing, running and stopping take as long as the log says they took for that lease",
    "a lease whose own end the log does not show (it never started, was live at the end of the log, or ended by its \
     provider's fault) runs for all the time it asked for",
    "a renter who gave up waiting does so at the same time again, unless his lease has started by then",
    "claims and withdrawals on chain stand as they were, also where other amounts would now be owed",
];
