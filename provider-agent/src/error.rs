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
    /// Cards of which neither our table nor the owner says how fast they are.
    #[error("{}", unknown_work(models))]
    UnknownWork {
        /// Their models.
        models: Vec<String>,
    },
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

/// What to say of cards that nobody knows.
fn unknown_work(models: &[String]) -> String {
    let named: Vec<String> = models.iter().map(|model| format!("{model:?}")).collect();
    let first = models.first().map_or("MODEL", String::as_str);
    format!(
        "it is not known what work {} does, and no other card's figures are taken for it: say how it compares to an A100 80GB \
         (dense BF16 of the data sheet over 312 TFLOPS, or what you measured), e.g. --work \"{first}=0.25\", or \
         work = {{ {first:?} = 250 }} in the file. Its ask is that times --price, or what --ask \"{first}=RATE\" says; \
         --except leaves the card out",
        named.join(", ")
    )
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
