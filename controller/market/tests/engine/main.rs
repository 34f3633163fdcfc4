//! The placement engine through its public face: the index against judging everything, what is left against the fold
//! of what was taken, MIG against enumeration.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests: a failure here is what is being looked for"
)]

mod closed;
mod fleet;
mod gang;
mod index;
mod mig;
mod pool;
mod published;
mod sift;
