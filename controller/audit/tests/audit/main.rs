//! Logs made by the market over scripted inputs, honest ones and ones with a lie in them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests: a failure here is what is being looked for")]

mod answers;
mod book;
mod chain;
mod copies;
mod feed;
mod lies;
mod one_bad;
mod rehearsal;
mod report;
mod rpcs;
