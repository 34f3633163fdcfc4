//! What if: the market's own engine on a virtual clock, on real traces and made ones.
//!
//! Every experiment drives [`selion_market::engine::Fleet`] or [`selion_market::step`], the code that the controller
//! runs. Floats occur here in statistics and in drawing chance, never in a decision. Equal seeds give equal answers,
//! apart from measured speed.

pub mod churn;
pub mod csv;
pub mod error;
pub mod from_log;
pub mod load;
pub mod mig;
pub mod openb;
pub mod parallel;
pub mod philly;
pub mod progress;
pub mod random;
pub mod stats;
pub mod trace;
pub mod why;
pub mod world;

pub use error::SimError;
pub use progress::{Progress, Silent};
pub use selion_market::engine::Weighting;
