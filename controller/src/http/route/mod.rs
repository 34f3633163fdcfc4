//! The endpoints, one file per subject. Each parses, submits or reads, and answers.

pub(super) mod auth;
pub(super) mod datasets;
pub(super) mod device;
pub(super) mod gateway;
pub(super) mod images;
pub(super) mod leases;
pub(super) mod licences;
pub(super) mod log;
pub(super) mod money;
pub(super) mod nodes;
pub(super) mod outputs;
pub(super) mod pool;
pub(super) mod relay;
pub(super) mod secrets;
pub(super) mod streams;
pub(super) mod system;
pub(super) mod tiles;
pub(super) mod wait;
