//! The what-if tools against cases whose answers are known by hand.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

mod log;
mod made;
mod philly;
mod slices;
mod why;
