//! Calls that change something, as calldata for [`Pool::send`] or an outbox. Who may make each, and what it refuses, is
//! in `solidity/src/interfaces`.

use ethers_core::abi::AbiEncode as _;
use ethers_core::types::U256;
use selion_api::agent::SignedVoucher;
use selion_api::chain::ComponentKind;
use selion_api::unit::TimeMs;
use selion_api::{Account, Address, Amount, Hash32, NodeId, Signature};

use crate::abi::{controller as c, token as t, vault as v};
use crate::node::{authority_binding_digest, node_binding_digest};
use crate::pool::Pool;
use crate::signer::{Signer, SignerError, compact};
use crate::voucher::{item, item2};
use crate::word::{h160, seconds32};

/// Calldata and whom it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The contract.
    pub to: Address,
    /// What it is told.
    pub data: Vec<u8>,
}

impl Pool {
    fn to_controller(&self, data: Vec<u8>) -> Call {
        Call { to: self.at.controller, data }
    }

    fn to_vault(&self, data: Vec<u8>) -> Call {
        Call { to: self.at.vault, data }
    }

    fn to_token(&self, data: Vec<u8>) -> Call {
        Call { to: self.at.token, data }
    }

    // -- the token

    /// Makes test tokens, in base units. Development chains only.
    #[must_use]
    pub fn mint(&self, to: Address, base_units: u128) -> Call {
        self.to_token(t::MintCall { to: h160(to), amount: base_units.into() }.encode())
    }

    /// Lets the vault take what its caller deposits, without end.
    #[must_use]
    pub fn approve_vault(&self) -> Call {
        self.to_token(t::ApproveCall { spender: h160(self.at.vault), value: U256::MAX }.encode())
    }

    /// Lets the controller take its caller's stake, without end.
    #[must_use]
    pub fn approve_controller(&self) -> Call {
        self.to_token(t::ApproveCall { spender: h160(self.at.controller), value: U256::MAX }.encode())
    }

    /// Lets the court take its caller's bond, without end.
    #[must_use]
    pub fn approve_court(&self) -> Call {
        self.to_token(t::ApproveCall { spender: h160(self.at.court), value: U256::MAX }.encode())
    }

    // -- the controller

    /// Registers, renews or (with a past time) ends the caller's component.
    #[must_use]
    pub fn register_component(&self, kind: ComponentKind, endpoint: &str, until: TimeMs) -> Call {
        let call = c::RegisterComponentCall { kind: kind as u8, endpoint: endpoint.to_owned(), until: until.0 / 1000 };
        self.to_controller(call.encode())
    }

    /// Joins as a provider with `stake` more, paid to `payout`.
    #[must_use]
    pub fn register_provider(&self, payout: Address, stake: Amount) -> Call {
        self.to_controller(c::RegisterProviderCall { payout: h160(payout), stake: stake.0 }.encode())
    }

    /// Starts to take stake back.
    #[must_use]
    pub fn unbond(&self, amount: Amount) -> Call {
        self.to_controller(c::UnbondCall { amount: amount.0 }.encode())
    }

    /// Pays the caller's unbonded stake to who is paid.
    #[must_use]
    pub fn withdraw_stake(&self) -> Call {
        self.to_controller(c::WithdrawStakeCall.encode())
    }

    /// Names another account to be paid for a provider; only who is paid now can.
    #[must_use]
    pub fn set_payout(&self, provider: Account, payout: Address) -> Call {
        self.to_controller(c::SetPayoutCall { provider: h160(provider), payout: h160(payout) }.encode())
    }

    /// The node key's consent to `provider`. `nonce` from [`Pool::node`].
    ///
    /// # Errors
    ///
    /// [`SignerError::Refused`].
    pub fn sign_node_binding(&self, node: &Signer, provider: Account, nonce: u32) -> Result<Signature, SignerError> {
        let id = NodeId(node.account().0);
        node.sign_digest(node_binding_digest(self.chain_id, self.at.controller, id, provider, nonce))
    }

    /// Binds a node to the caller with its key's consent.
    #[must_use]
    pub fn register_node(&self, node: NodeId, consent: &Signature) -> Call {
        let (r, vs) = compact(consent);
        self.to_controller(c::RegisterNodeCall { node: h160(node), r, vs }.encode())
    }

    /// Unbinds the caller's node.
    #[must_use]
    pub fn retire_node(&self, node: NodeId) -> Call {
        self.to_controller(c::RetireNodeCall { node: h160(node) }.encode())
    }

    /// Puts the caller's node on offer.
    #[must_use]
    pub fn set_offer(&self, node: NodeId, spec_hash: Hash32, classes: u8, spec_cid: &str) -> Call {
        let spec_cid = spec_cid.to_owned();
        self.to_controller(c::SetOfferCall { node: h160(node), spec_hash: spec_hash.0, classes, spec_cid }.encode())
    }

    /// Takes the caller's node off offer.
    #[must_use]
    pub fn close_offer(&self, node: NodeId) -> Call {
        self.to_controller(c::CloseOfferCall { node: h160(node) }.encode())
    }

    /// The new authority's consent to be `owner`'s in `epoch`, the one after the present.
    ///
    /// # Errors
    ///
    /// [`SignerError::Refused`].
    pub fn sign_authority_binding(
        &self,
        authority: &Signer,
        owner: Account,
        epoch: u32,
    ) -> Result<Signature, SignerError> {
        let digest = authority_binding_digest(self.chain_id, self.at.controller, authority.account(), owner, epoch);
        authority.sign_digest(digest)
    }

    /// Replaces the authority, with its key's consent.
    #[must_use]
    pub fn replace_authority(&self, authority: Account, consent: &Signature) -> Call {
        let (r, vs) = compact(consent);
        self.to_controller(c::ReplaceAuthorityCall { authority: h160(authority), r, vs }.encode())
    }

    /// Gives up what is anchored above `size`, and all that the caller has at stake; replaces the authority.
    #[must_use]
    pub fn disown_anchors(&self, size: u64, authority: Account, consent: &Signature) -> Call {
        let (r, vs) = compact(consent);
        self.to_controller(c::DisownAnchorsCall { size, authority: h160(authority), r, vs }.encode())
    }

    /// Lets an account accept the pool after the delay of the terms; zero takes that back.
    #[must_use]
    pub fn announce_owner(&self, next: Account) -> Call {
        self.to_controller(c::AnnounceOwnerCall { next: h160(next) }.encode())
    }

    /// Makes the caller the owner of the pool, whose log has this last anchor, with an authority of its own.
    #[must_use]
    pub fn accept_owner(
        &self,
        authority: Account,
        consent: &Signature,
        size: u64,
        root: Hash32,
        digest: Hash32,
    ) -> Call {
        let (r, vs) = compact(consent);
        let (root, digest) = (root.0, digest.0);
        self.to_controller(c::AcceptOwnerCall { authority: h160(authority), r, vs, size, root, digest }.encode())
    }

    /// Anchors a log head.
    #[must_use]
    pub fn anchor(&self, epoch: u32, size: u64, root: Hash32, digest: Hash32) -> Call {
        self.to_controller(c::AnchorCall { epoch, size, root: root.0, digest: digest.0 }.encode())
    }

    /// Lets an account take the authority over when it was silent for too long, or not any more.
    #[must_use]
    pub fn set_standby(&self, standby: Account, allowed: bool) -> Call {
        self.to_controller(c::SetStandbyCall { standby: h160(standby), allowed }.encode())
    }

    /// Says that the authority is there, as an anchor does.
    #[must_use]
    pub fn renew(&self) -> Call {
        self.to_controller(c::RenewCall.encode())
    }

    /// Takes the authority over as a standby.
    #[must_use]
    pub fn take_over(&self) -> Call {
        self.to_controller(c::TakeOverCall.encode())
    }

    /// Lets `holder` use `seats` of the caller's product at once; 0 withdraws the licence.
    #[must_use]
    pub fn set_licence(&self, holder: Account, product: Hash32, seats: u32, until: TimeMs) -> Call {
        let (product, until) = (product.0, until.0 / 1000);
        self.to_controller(c::SetLicenceCall { holder: h160(holder), product, seats, until }.encode())
    }

    // -- the vault: renters

    /// Adds to the caller's balance.
    #[must_use]
    pub fn deposit(&self, amount: Amount) -> Call {
        self.to_vault(v::DepositCall { amount: amount.0 }.encode())
    }

    /// Deposits (0 allowed) and sets the caller's own session key. `until` counts in whole seconds, rounded down.
    #[must_use]
    pub fn enter(&self, amount: Amount, key: Address, until: TimeMs) -> Call {
        self.to_vault(v::EnterCall { amount: amount.0, key: h160(key), until: seconds32(until) }.encode())
    }

    /// Lets a delegated key spend up to `cap`. `until` counts in whole seconds, rounded down.
    #[must_use]
    pub fn grant(&self, key: Address, cap: Amount, until: TimeMs) -> Call {
        self.to_vault(v::GrantCall { key: h160(key), cap: cap.0, until: seconds32(until) }.encode())
    }

    /// Ends a key of the caller.
    #[must_use]
    pub fn revoke(&self, key: Address) -> Call {
        self.to_vault(v::RevokeCall { key: h160(key) }.encode())
    }

    /// Asks for this much in all of the caller's balance.
    #[must_use]
    pub fn thaw(&self, amount: Amount) -> Call {
        self.to_vault(v::ThawCall { amount: amount.0 }.encode())
    }

    /// Takes what has thawed.
    #[must_use]
    pub fn withdraw(&self, to: Address) -> Call {
        self.to_vault(v::WithdrawCall { to: h160(to) }.encode())
    }

    // -- the vault: claims and earners

    /// Claims vouchers of any number of providers in one transaction. Bad and stale ones are skipped on chain.
    #[must_use]
    pub fn claim_many(&self, vouchers: &[SignedVoucher]) -> Call {
        let mut claims: Vec<v::ProviderItems> = Vec::new();
        for voucher in vouchers {
            let provider = h160(voucher.provider);
            match claims.iter_mut().find(|claim| claim.provider == provider) {
                Some(claim) => claim.items.push(item2(voucher)),
                None => claims.push(v::ProviderItems { provider, items: vec![item2(voucher)] }),
            }
        }
        self.to_vault(v::ClaimManyCall { claims }.encode())
    }

    /// Claims vouchers of one provider under one signature of the authority over
    /// [`batch_digest`](crate::voucher::batch_digest). A bad signature reverts the batch.
    #[must_use]
    pub fn claim_aggregated(
        &self,
        provider: Account,
        epoch: u32,
        authority: &Signature,
        vouchers: &[SignedVoucher],
    ) -> Call {
        let (ar, avs) = compact(authority);
        let items = vouchers.iter().map(item).collect();
        self.to_vault(v::ClaimAggregatedCall { provider: h160(provider), epoch, ar, avs, items }.encode())
    }

    /// Pays all unpaid earnings of a provider to who is paid for it.
    #[must_use]
    pub fn cash_out(&self, provider: Account) -> Call {
        self.to_vault(v::CashOutCall { provider: h160(provider) }.encode())
    }

    /// Takes the unpaid fees of an epoch.
    #[must_use]
    pub fn cash_out_fees(&self, epoch: u32, payee: Address) -> Call {
        self.to_vault(v::CashOutFeesCall { epoch, payee: h160(payee) }.encode())
    }
}
