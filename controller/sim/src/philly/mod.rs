//! `selion simulate philly`: the gangs of a trace, run by the market on a fleet of equal nodes.

mod fair;
mod report;
mod run;
mod trace;

pub use report::{ClassReport, Report, Worst};
pub use run::{Setup, run};
pub use trace::{Job, jobs};
