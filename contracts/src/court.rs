//! The pool's court: bonds, and what shows that somebody contradicted himself. Why nobody who is honest can, is in
//! `solidity/src/interfaces/ICourt.sol`.

use std::collections::BTreeMap;

use ethers_core::abi::AbiEncode as _;
use selion_api::agent::{Promise, SignedHead, SignedPromise, SignedReport};
use selion_api::chain::ChainEvent;
use selion_api::commit::canonical;
use selion_api::{Address, Amount, Hash32};

use crate::abi::court;
use crate::pool::{Pool, PoolError};
use crate::rpc::BlockTag;
use crate::signer::compact;
use crate::word::h160;
use crate::write::Call;

/// A head that an authority stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    /// It signed it.
    Head(SignedHead),
    /// It is the last one that it anchored, or took over, in this epoch.
    Anchor {
        /// The epoch.
        epoch: u32,
        /// Entries covered.
        size: u64,
        /// Root over them.
        root: Hash32,
        /// Digest of State after them.
        digest: Hash32,
    },
}

impl Stated {
    /// The epoch, the size, the root and the digest of State.
    #[must_use]
    pub fn says(&self) -> (u32, u64, Hash32, Hash32) {
        match self {
            Self::Head(SignedHead { head, .. }) => (head.fence.epoch, head.size, head.root, head.digest),
            Self::Anchor { epoch, size, root, digest } => (*epoch, *size, *root, *digest),
        }
    }

    fn abi(&self) -> court::SignedHead {
        let (epoch, size, root, digest) = self.says();
        let (term, (r, vs)) = match self {
            Self::Head(signed) => (signed.head.fence.term, compact(&signed.signature)),
            Self::Anchor { .. } => (0, ([0; 32], [0; 32])),
        };
        court::SignedHead { size, root: root.0, digest: digest.0, epoch, term, r, vs }
    }
}

/// A leaf in a tree: its RFC 6962 hash and its RFC 9162 path to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafIn<'a> {
    /// The leaf's hash.
    pub leaf: Hash32,
    /// Its path.
    pub path: &'a [Hash32],
}

impl Pool {
    fn to_court(&self, data: Vec<u8>) -> Call {
        Call { to: self.at.court, data }
    }

    /// The last anchor of each epoch that made or took over one, in order, as the court takes it.
    ///
    /// # Errors
    ///
    /// Any [`PoolError`].
    pub async fn last_anchors(&self) -> Result<Vec<Stated>, PoolError> {
        let last = self.rpc.header(BlockTag::Latest).await?.number;
        let logs = self.rpc.logs(0, last, &[self.at.controller]).await?;
        let mut anchors = BTreeMap::new();
        for event in self.decode_all(&logs)? {
            match event {
                ChainEvent::Anchored { epoch, size, root, digest } => {
                    anchors.insert(epoch, Stated::Anchor { epoch, size, root, digest });
                }
                ChainEvent::AnchorsDisowned { epoch, .. } => {
                    anchors.remove(&epoch);
                }
                // What an epoch takes over is its anchor until it makes one.
                ChainEvent::AuthorityChanged { epoch, .. } => {
                    if let Some(anchor) = anchors.get(&epoch.saturating_sub(1)).copied() {
                        let (_, size, root, digest) = Stated::says(&anchor);
                        anchors.insert(epoch, Stated::Anchor { epoch, size, root, digest });
                    }
                }
                _ => {}
            }
        }
        Ok(anchors.into_values().collect())
    }

    /// Puts the caller's money at stake for what is signed while it is the owner.
    #[must_use]
    pub fn put_bond(&self, amount: Amount) -> Call {
        self.to_court(court::BondCall { amount: amount.0 }.encode())
    }

    /// Asks for a part of the caller's bond back.
    #[must_use]
    pub fn unbond_bond(&self, amount: Amount) -> Call {
        self.to_court(court::UnbondCall { amount: amount.0 }.encode())
    }

    /// Takes what is leaving of the caller's bond.
    #[must_use]
    pub fn withdraw_bond(&self, to: Address) -> Call {
        self.to_court(court::WithdrawBondCall { to: h160(to) }.encode())
    }

    /// Shows that two heads cannot both be true: of one size, or with these leaves at `index`. `other` may be of the epoch
    /// after that of `one`, if `one` is an anchor.
    #[must_use]
    pub fn prove_fork(
        &self,
        one: &Stated,
        other: &Stated,
        leaves: Option<(u64, LeafIn<'_>, LeafIn<'_>)>,
        payee: Address,
    ) -> Call {
        let nothing = LeafIn { leaf: Hash32::ZERO, path: &[] };
        let (index, of_one, of_other) = leaves.unwrap_or((0, nothing, nothing));
        let leaves = court::Leaves {
            index,
            leaf_of_one: of_one.leaf.0,
            path_in_one: abi_path(of_one.path),
            leaf_of_other: of_other.leaf.0,
            path_in_other: abi_path(of_other.path),
        };
        let call = court::ProveForkCall { one: one.abi(), other: other.abi(), leaves, payee: h160(payee) };
        self.to_court(call.encode())
    }

    /// Shows that a promised entry is another one in a head.
    #[must_use]
    pub fn prove_broken_promise(
        &self,
        promise: &SignedPromise,
        head: &Stated,
        there: LeafIn<'_>,
        payee: Address,
    ) -> Call {
        let (r, vs) = compact(&promise.signature);
        let Promise { account, seq, leaf: promised, fence } = promise.promise;
        let promised = court::SignedPromise {
            account: h160(account),
            seq,
            leaf: promised.0,
            epoch: fence.epoch,
            term: fence.term,
            r,
            vs,
        };
        let call = court::ProveBrokenPromiseCall {
            promised,
            head: head.abi(),
            leaf: there.leaf.0,
            path: abi_path(there.path),
            payee: h160(payee),
        };
        self.to_court(call.encode())
    }

    /// Shows that a node signed two reports under one number that are not the same.
    #[must_use]
    pub fn prove_two_reports(&self, one: &SignedReport, other: &SignedReport, payee: Address) -> Call {
        let call = court::ProveTwoReportsCall { one: abi_report(one), other: abi_report(other), payee: h160(payee) };
        self.to_court(call.encode())
    }
}

fn abi_path(path: &[Hash32]) -> Vec<[u8; 32]> {
    path.iter().map(|hash| hash.0).collect()
}

fn abi_report(signed: &SignedReport) -> court::SignedReport {
    let (r, vs) = compact(&signed.signature);
    court::SignedReport { report: canonical(&signed.report).into(), r, vs }
}
