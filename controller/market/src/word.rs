//! Whose word an input is, and what was signed of it. The market decides nothing by it: the controller's door and the
//! audit do.

use alloc::boxed::Box;

use selion_api::agent::SignedHello;
use selion_api::commit::{PoolId, signing_digest};
use selion_api::said::{Extend, Reclaim, Release, Said, SetPaused, Statement};
use selion_api::{Account, Hash32, NodeSpec, Signature};

use crate::input::Input;

/// What a party said in an input.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    /// What kind of word, for people.
    pub what: &'static str,
    /// Whose word: an account's, or a node's by its key.
    pub who: Account,
    /// `None` marks it as unsigned.
    pub signature: Option<&'a Signature>,
    input: &'a Input,
}

impl Word<'_> {
    /// The 32 bytes that are signed; `None` of what is said without a signature, and so without a time.
    #[must_use]
    pub fn digest(&self, pool: &PoolId) -> Option<Hash32> {
        match *self.input {
            Input::Request(ref asked) => Some(signing_digest(pool, "lease", &asked.request)),
            Input::Report(ref signed) => Some(signing_digest(pool, "report", &signed.report)),
            Input::Linked(ref signed) => Some(signing_digest(pool, "hello", &signed.hello)),
            Input::Release { renter, lease, said } => {
                said.map(|Said { said_ms, .. }| Release { renter, lease, said_ms }.digest(pool))
            }
            Input::Extend { renter, lease, for_ms, key, said } => {
                said.map(|Said { said_ms, .. }| Extend { renter, lease, for_ms, key, said_ms }.digest(pool))
            }
            Input::SetPaused { provider, node, paused, said } => {
                said.map(|Said { said_ms, .. }| SetPaused { provider, node, paused, said_ms }.digest(pool))
            }
            Input::Reclaim { provider, node, gpu, notice_ms, said } => {
                said.map(|Said { said_ms, .. }| Reclaim { provider, node, gpu, notice_ms, said_ms }.digest(pool))
            }
            _ => None,
        }
    }

    /// Whether an honest controller enters it once at most: a release, an extension, an owner's word, a hello. A request says by its
    /// idempotency key that it is one and the same, a report by its number; both change nothing when they come again.
    #[must_use]
    pub fn is_once(&self) -> bool {
        self.signature.is_some() && !matches!(self.input, Input::Request(_) | Input::Report(_))
    }
}

impl Input {
    /// What a party said in it; `None` where it is the controller's own, or the chain's.
    #[must_use]
    pub fn word(&self) -> Option<Word<'_>> {
        let (what, who, signature) = match self {
            Self::Request(asked) => ("request", asked.request.renter, asked.signature.as_ref()),
            Self::Report(signed) => ("report", Account(signed.report.node.0), Some(&signed.signature)),
            Self::Linked(signed) => ("hello", Account(signed.hello.spec.node.0), Some(&signed.signature)),
            Self::Release { renter, said, .. } => ("release", *renter, signature_of(said)),
            Self::Extend { renter, said, .. } => ("extension", *renter, signature_of(said)),
            Self::SetPaused { provider, paused: true, said, .. } => ("pause", *provider, signature_of(said)),
            Self::SetPaused { provider, said, .. } => ("resume", *provider, signature_of(said)),
            Self::Reclaim { provider, said, .. } => ("reclaim", *provider, signature_of(said)),
            _ => return None,
        };
        Some(Word { what, who, signature, input: self })
    }

    /// When a party said it by its own clock, if it signed for that.
    #[must_use]
    pub fn said(&self) -> Option<&Said> {
        match self {
            Self::Release { said, .. }
            | Self::Extend { said, .. }
            | Self::SetPaused { said, .. }
            | Self::Reclaim { said, .. } => said.as_ref(),
            _ => None,
        }
    }

    /// A link that is modelled: nobody signed its hello.
    #[must_use]
    pub fn modelled_link(spec: NodeSpec, last_seq: u64) -> Self {
        Self::Linked(Box::new(SignedHello::modelled(spec, last_seq)))
    }
}

fn signature_of(said: &Option<Said>) -> Option<&Signature> {
    said.as_ref().map(|said| &said.signature)
}
