//! `selion why`: what held a lease up at some time, and what would have happened had it asked otherwise. Both by
//! replay of the log.

mod answer;
mod ask;

pub use answer::{Answer, Blocker, Phase, WhatIf};
pub use ask::{If, WhyError, what_if, why};
