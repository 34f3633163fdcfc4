//! `selion simulate philly`: the gangs of a trace, run by the market on a fleet of equal nodes.

mod fair;
mod report;
mod run;
mod trace;
mod tree;

pub use report::{ClassReport, Report, Worst};
pub use run::{Setup, run};
pub use trace::{Job, jobs};
pub use tree::{GroupReport, check, put_under, quotas};
