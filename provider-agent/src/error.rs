//! What can stop the agent.

use crate::book::BookError;
use crate::gpus::GpuError;
use crate::runtime::RuntimeError;

/// Why the agent does not run (any more).
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Config(String),
    /// Its own state.
    #[error(transparent)]
    Book(#[from] BookError),
    /// Its GPUs.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// There is nothing to offer.
    #[error(
        "no GPU to offer: NVML lists none that can be leased whole; take a card out of MIG mode, or offer simulated GPUs"
    )]
    NoGpus,
    /// Its runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The sandbox that it should have. There is no weaker one to fall back to.
    #[error("the {sandbox} sandbox does not work here: {why}. {advice}")]
    Sandbox {
        /// Which.
        sandbox: &'static str,
        /// What the trial command met.
        why: String,
        /// What the owner can do.
        advice: String,
    },
    /// Its images.
    #[error("container images")]
    Images(#[from] crate::images::ImagesError),
    /// Its content store.
    #[error("content store")]
    Content(#[from] selion_dataplane::StoreError),
    /// The system.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A panic in one of its parts.
    #[error("the agent's {0} ended by a fault of its own; restart the agent and report this")]
    Fault(&'static str),
}

/// An error with its sources, in one line.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
