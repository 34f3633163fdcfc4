//! The link: one outbound WebSocket, opened again for ever, on a thread of its own so that no work can delay a
//! heartbeat.

mod authority;
mod session;

use std::sync::Arc;
use std::time::Duration;

use selion_api::agent::{Desired, Fence, SignedVoucher, ToController};
use selion_api::outputs::OutputState;
use selion_api::seal::Sealed;
use selion_api::{Address, Hash32, NodeSpec, Reason};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use authority::Authority;
pub use authority::Unknown;

use crate::book::{Book, BookError};
use crate::error::chain;
use crate::event::Event;
use crate::logs::Logs;
use crate::member_key::MemberKey;
use crate::reporter::OnEvent;

/// First and longest pause between two tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A link that lived this long was a good one: the next pause is short again.
const GOOD: Duration = Duration::from_secs(5);

/// What the link brings to the agent.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// What the node should hold; signature and fence were checked.
    Desired(Desired),
    /// Money; not checked yet.
    Voucher(SignedVoucher),
    /// The controller has down what was said of a member's outputs.
    OutputsHeard(MemberKey, OutputState),
    /// What was sealed for a member; nothing of it is believed before it opens.
    Secrets(MemberKey, Sealed),
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The controller's URL cannot be used.
    #[error("controller URL `{url}` must begin with http:// or https://")]
    BadUrl {
        /// As configured.
        url: String,
    },
    /// No connection.
    #[error("cannot reach the controller at {url}; check that it runs and that --controller is right")]
    Connect {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: Box<tokio_tungstenite::tungstenite::Error>,
    },
    /// The connection broke.
    #[error("the link broke")]
    Broken(#[source] Box<tokio_tungstenite::tungstenite::Error>),
    /// The other side closed it.
    #[error("the controller closed the link")]
    Closed,
    /// Nothing came for too long.
    #[error("the controller did not {what} within {} s", after.as_secs())]
    Silent {
        /// What it should have done.
        what: &'static str,
        /// For how long.
        after: Duration,
    },
    /// The other side speaks another version.
    #[error(
        "the controller speaks version {theirs} of the link, this agent version {ours}; update the older of the two"
    )]
    Version {
        /// The controller's.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// Another pool than the configured one.
    #[error("the controller speaks for pool {theirs}, this agent is set to {ours}; correct --pool or --controller")]
    WrongPool {
        /// The controller's contract.
        theirs: Address,
        /// As configured.
        ours: Address,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes for the hello: {0}")]
    NoRandom(String),
    /// A message that makes no sense here.
    #[error("the controller sent {0}; is it a Selion controller of this version?")]
    Nonsense(String),
    /// The controller will not have this node.
    #[error("the controller refused this node ({reason}): {detail}")]
    Refused {
        /// Its reason.
        reason: Reason,
        /// What to do.
        detail: String,
    },
    /// What came is not the authority's.
    #[error(
        "the controller sent {what} for epoch {} term {} that the pool's authority did not sign; nothing of it was kept. \
         Check --controller, --pool and --chain-rpc", fence.epoch, fence.term
    )]
    NotSigned {
        /// What came.
        what: &'static str,
        /// The fence it names.
        fence: Fence,
    },
    /// Nobody can say whose word counts.
    #[error(
        "it is not known who is the pool's authority in epoch {epoch}, so nothing is obeyed; check --chain-rpc and --pool"
    )]
    AuthorityUnknown {
        /// The epoch that the controller names.
        epoch: u32,
        /// Why.
        #[source]
        source: Box<Unknown>,
    },
    /// Authority has passed on.
    #[error(
        "the controller decides for epoch {epoch}, but authority has passed to epoch {now} on chain; use the new --controller"
    )]
    Deposed {
        /// The controller's.
        epoch: u32,
        /// In force in the newest final block.
        now: u32,
    },
    /// What it said contradicts what this node saw, or our own state failed.
    #[error(transparent)]
    Book(#[from] BookError),
    /// The hello could not be signed.
    #[error("the hello could not be signed")]
    Sign(#[from] selion_contracts::SignerError),
}

/// One agent's link.
pub(crate) struct Link {
    pub(crate) url: String,
    pub(crate) pool: Option<Address>,
    pub(crate) authority: Authority,
    pub(crate) spec: NodeSpec,
    /// [`Hello::life`](selion_api::agent::Hello::life) of this process.
    pub(crate) life: Hash32,
    pub(crate) book: Arc<Book>,
    pub(crate) logs: Logs,
    pub(crate) token: watch::Sender<Option<String>>,
    pub(crate) inbound: mpsc::Sender<Inbound>,
    pub(crate) outbound: mpsc::Receiver<ToController>,
    pub(crate) on_event: OnEvent,
    pub(crate) stop: CancellationToken,
}

/// 32 bytes that nobody can guess.
pub(crate) fn random() -> Result<Hash32, getrandom::Error> {
    let mut bytes = Hash32::ZERO;
    getrandom::fill(&mut bytes.0)?;
    Ok(bytes)
}

impl Link {
    /// Starts it on a thread of its own, which ends when `stop` is cancelled.
    pub(crate) fn start(mut self) -> std::io::Result<std::thread::JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let body = move || runtime.block_on(self.keep());
        std::thread::Builder::new().name("selion-link".into()).spawn(body)
    }

    async fn keep(&mut self) {
        let stop = self.stop.clone();
        let mut pause = PAUSE.0;
        loop {
            let began = Instant::now();
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = session::hold(self) => ended,
            };
            if began.elapsed() >= GOOD {
                pause = PAUSE.0;
            }
            let Err(error) = ended else { return };
            let why = chain(&error);
            tracing::warn!(why, "link down; trying again");
            if let LinkError::Refused { reason, detail } = error {
                pause = PAUSE.1;
                (self.on_event)(Event::Refused { reason, detail });
            }
            (self.on_event)(Event::LinkLost { why });
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(jittered(pause)) => {}
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// Between half of `pause` and all of it, so that a thousand agents do not come back in step.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 2];
    // Without randomness the full pause is as good as any.
    let part = getrandom::fill(&mut random).map_or(u16::MAX, |()| u16::from_le_bytes(random));
    pause / 2 + pause / 2 * u32::from(part) / u32::from(u16::MAX)
}

/// The WebSocket's address for a controller at `base`.
pub(crate) fn link_url(base: &str) -> Result<String, LinkError> {
    let base = base.trim_end_matches('/');
    let bad = || LinkError::BadUrl { url: base.into() };
    let (scheme, rest) = base.split_once("://").ok_or_else(bad)?;
    match scheme {
        "http" => Ok(format!("ws://{rest}/v1/link")),
        "https" => Ok(format!("wss://{rest}/v1/link")),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_follows_the_controllers_scheme() {
        assert_eq!(link_url("http://a:1/").unwrap(), "ws://a:1/v1/link");
        assert_eq!(link_url("https://a/x").unwrap(), "wss://a/x/v1/link");
        assert!(link_url("a:1").is_err());
        assert!(link_url("ftp://a").is_err());
    }

    #[test]
    fn a_pause_is_jittered_within_its_half() {
        for _ in 0..100 {
            let pause = jittered(Duration::from_secs(1));
            assert!((Duration::from_millis(500)..=Duration::from_secs(1)).contains(&pause));
        }
    }
}
