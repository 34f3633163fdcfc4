//! The links with a scripted agent on a real socket: with a controller that commits when it is told to, and with the
//! real sequencer and store.

mod agent;
mod fake;
mod hello;
mod key;
mod liveness;
mod outputs;
mod real;
mod secrets;
mod session;
mod usage;
mod world;
