//! The crate from outside: files and sockets are real, sources lie.

#![expect(clippy::unwrap_used, reason = "what a helper cannot do fails its test")]

mod crash;
mod dag;
mod fetch;
mod gateway;
mod hostile;
mod keep;
mod kubo;
mod read;
mod store;
mod support;
mod swap;
