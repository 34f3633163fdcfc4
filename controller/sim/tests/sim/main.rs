//! The experiments, on made clusters with results by hand, and on the openb traces where they are there.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod churn;
mod data;
mod gates;
mod lists;
mod naive;
mod openb;
