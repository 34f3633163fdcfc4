//! One file a noun. Each holds its arguments and what they do; rules live elsewhere.

pub mod account;
pub mod agent;
pub mod ask;
pub mod audit;
pub mod chain;
pub mod controller;
pub mod data;
pub mod demo;
pub mod lease;
pub mod lease_view;
pub mod login;
pub mod node;
pub mod offers;
pub mod pool;
pub mod quote_view;
pub mod registry;
pub mod run;
pub mod shares;
pub mod simulate;
pub mod simulate_churn;
pub mod simulate_load;
pub mod simulate_log;
pub mod simulate_mig;
pub mod simulate_openb;
pub mod simulate_philly;
pub mod why;
