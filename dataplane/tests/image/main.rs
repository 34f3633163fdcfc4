//! Images from outside: archives of every bad sort, registries that lie, and a real one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what a helper cannot do fails its test")]

mod archive;
mod built;
mod cache;
mod config;
mod formats;
mod hostile;
mod killed;
mod liar;
mod properties;
mod real;
mod registry;
