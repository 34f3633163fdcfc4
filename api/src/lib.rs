//! The words on the wire: ids, units, slice geometry, requests, reasons, chain facts, agent messages.
//!
//! No server, no clock, no hash map, no float. Everything that is hashed, signed or replayed is encoded with
//! [borsh], which gives one value exactly one encoding; enum variants carry explicit numbers, so that a new
//! variant never renumbers an old one. JSON and OpenAPI come with the `wire` feature only.
#![cfg_attr(not(any(test, feature = "wire")), no_std)]
#![deny(clippy::float_arithmetic)]

extern crate alloc;

pub mod agent;
pub mod blocking;
pub mod chain;
pub mod commit;
pub mod id;
pub mod lease;
pub mod licence;
pub mod outputs;
pub mod reason;
#[cfg(feature = "wire")]
pub mod rest;
pub mod said;
pub mod seal;
pub mod slice;
pub mod unit;
pub mod usage;
pub mod words;

pub use id::{Account, Address, GpuId, Hash32, LeaseId, NodeId, Signature};
pub use lease::{LeaseRequest, MemberWant};
pub use licence::Licence;
pub use reason::{Party, Reason};
pub use slice::{BoxFeature, BoxFeatures, GpuSpec, IsolationClass, NodeSpec, SliceWant, Slot};
pub use unit::{Amount, Rate, TimeMs};
