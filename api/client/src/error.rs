//! What can go wrong between a program and a controller.

use selion_api::NodeId;
use selion_api::rest::Problem;

/// Why a call did not give what it should. Each tells what to do next.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The controller said no. Branch on `code`.
    #[error("{}: {} ({}); {}", .0.title, .0.detail, .0.code, .0.suggestion)]
    Problem(Box<Problem>),
    /// No answer came.
    #[error("{url} cannot be reached: {why}; {remedy}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// What happened.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An answer came that no controller gives.
    #[error("{url} does not answer as a Selion controller: {what}; check the URL, and that both releases match")]
    Protocol {
        /// What was asked.
        url: String,
        /// What was wrong with the answer.
        what: String,
    },
    /// The address of the controller is none.
    #[error("`{url}` is not the address of a controller: {why}; give http://HOST[:PORT] or https://HOST[:PORT]")]
    BadUrl {
        /// As given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A call that needs a login came before one.
    #[error("not logged in; log in with a wallet or set an API key first")]
    NoLogin,
    /// The promise that came with an answer does not hold.
    #[error(
        "the promise on the answer of {url} does not hold: {why}; what was asked may have happened all the same. Log in \
         again if the pool's authority has changed, and ask its operator if it has not"
    )]
    Promise {
        /// What was asked.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// Secrets are not sealed to this node.
    #[error("no secret was sealed to node {node}: {why}")]
    Sealing {
        /// Which.
        node: NodeId,
        /// Why.
        why: String,
    },
    /// The wallet could not sign.
    #[error("the wallet could not sign: {0}")]
    Wallet(String),
    /// A renewed session could not be kept for other processes: they will have to log in again.
    #[error("the renewed login could not be kept: {0}")]
    Kept(String),
    /// The system gave no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(String),
    /// A file to be uploaded could not be read.
    #[error("{path} cannot be read: {source}")]
    File {
        /// The file.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
}

impl ClientError {
    /// The problem's stable code, if the controller answered one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            _ => None,
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.retryable,
            Self::Unreachable { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn unreachable(url: &str, error: &reqwest::Error) -> Self {
        let remedy = if error.is_timeout() {
            "the controller is slow or the network drops packets: try again"
        } else if error.is_connect() {
            "check that the controller runs and that the address is right"
        } else {
            "the connection broke: try again"
        };
        // The innermost cause says most: `connection refused`.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        Self::Unreachable { url: url.to_owned(), why: cause.to_string(), remedy }
    }
}
