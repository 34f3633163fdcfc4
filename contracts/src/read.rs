//! What a pool's contracts say, at a block.

use ethers_core::abi::{AbiDecode, AbiEncode};
use ethers_core::types::{H160, U256};
use selion_api::chain::ComponentKind;
use selion_api::unit::TimeMs;
use selion_api::{Account, Address, Amount, Hash32, NodeId};

use crate::abi::{controller as c, court, token as t, vault as v};
use crate::deploy::PoolTerms;
use crate::pool::{Pool, PoolError};
use crate::rpc::BlockTag;
use crate::word::{account, address, h160, ms};

/// A provider as the controller stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderRecord {
    /// Who is paid.
    pub payout: Address,
    /// Stake that counts.
    pub stake: Amount,
    /// On its way back.
    pub unbonding: Amount,
    /// When that can be taken.
    pub ready: TimeMs,
}

/// A node as the controller stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    /// Its provider; `None` if it is retired or was never bound.
    pub provider: Option<Account>,
    /// How often it was bound.
    pub nonce: u32,
}

/// A node's offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferRecord {
    /// Hash of the spec.
    pub spec_hash: Hash32,
    /// Isolation classes offered, one bit each.
    pub classes: u8,
    /// Where the spec can be had; may be empty.
    pub spec_cid: String,
}

/// The last anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadRecord {
    /// The pool's present epoch.
    pub epoch: u32,
    /// Entries anchored; 0 if none were.
    pub size: u64,
    /// See [`head_commitment`](crate::voucher::head_commitment).
    pub commitment: [u8; 16],
    /// When the authority was heard of last.
    pub seen: TimeMs,
}

/// An epoch of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochRecord {
    /// Who owned the pool in it.
    pub owner: Account,
    /// Entries anchored at its end, or now.
    pub size: u64,
    /// The commitment to that head: its first 16 bytes, and the rest where a new owner accepted it; zeros: none counts.
    pub anchor: [u8; 32],
}

/// What an owner has at stake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BondRecord {
    /// At stake, and not on its way back.
    pub kept: Amount,
    /// On its way back, and at stake until it is taken.
    pub leaving: Amount,
    /// When that can be taken.
    pub ready: TimeMs,
}

impl BondRecord {
    /// The bond as of `now`: what was not taken within `unbond_delay_s` of its moment is kept again.
    #[must_use]
    pub fn at(self, now: TimeMs, unbond_delay_s: u32) -> Self {
        let lapses = self.ready.plus(u64::from(unbond_delay_s) * 1_000);
        let lapsed = self.leaving > Amount::ZERO && now > lapses;
        if lapsed { Self { kept: self.kept.saturating_add(self.leaving), ..Self::default() } } else { self }
    }
}

/// A licence as the controller stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LicenceRecord {
    /// Members at once; 0 if there is none.
    pub seats: u32,
    /// No member begins from then on.
    pub until: TimeMs,
}

/// A renter's account in the vault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountRecord {
    /// The own session key; zero if none.
    pub key: Address,
    /// Deposited and neither claimed nor withdrawn.
    pub balance: Amount,
    /// Through when the key may sign use.
    pub until: TimeMs,
}

/// A provider's totals, which never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalsRecord {
    /// Claimed for the provider, fee taken off.
    pub earned: Amount,
    /// The operator's part.
    pub fee: Amount,
    /// Earnings taken out.
    pub paid_out: Amount,
}

/// What a key other than the own one may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRecord {
    /// Left of a delegated key's cap.
    pub cap_left: Amount,
    /// Through when it may sign use.
    pub until: TimeMs,
    /// From when its vouchers count no more; `None` if it is not revoked.
    pub dead_from: Option<TimeMs>,
    /// True for a delegated key, false for a former own one.
    pub delegated: bool,
}

impl Pool {
    pub(crate) async fn ask<T: AbiDecode>(
        &self,
        to: Address,
        what: &'static str,
        call: Vec<u8>,
        block: BlockTag,
    ) -> Result<T, PoolError> {
        let answer = self.rpc.call(to, &call, block).await?;
        T::decode(answer).map_err(|_| PoolError::BadAnswer { contract: to, what })
    }

    /// The pool's fixed terms.
    ///
    /// # Errors
    ///
    /// Any [`PoolError`]; so for every method here.
    pub async fn terms(&self, block: BlockTag) -> Result<PoolTerms, PoolError> {
        let (config,): (c::PoolConfig,) = self.ask(self.at.controller, "config", c::ConfigCall.encode(), block).await?;
        Ok(config.into())
    }

    /// The pool's vault.
    pub async fn vault(&self, block: BlockTag) -> Result<Address, PoolError> {
        self.ask(self.at.controller, "vault", c::VaultCall.encode(), block).await.map(address)
    }

    /// The pool's court.
    pub async fn court(&self, block: BlockTag) -> Result<Address, PoolError> {
        self.ask(self.at.controller, "court", c::CourtCall.encode(), block).await.map(address)
    }

    /// The present owner.
    pub async fn owner(&self, block: BlockTag) -> Result<Account, PoolError> {
        self.ask(self.at.controller, "owner", c::OwnerCall.encode(), block).await.map(account)
    }

    /// Who may become the owner, and from when; `None` if nobody may.
    pub async fn announced(&self, block: BlockTag) -> Result<Option<(Account, TimeMs)>, PoolError> {
        let (next, ready): (H160, u64) =
            self.ask(self.at.controller, "announced", c::AnnouncedCall.encode(), block).await?;
        Ok((next != H160::zero()).then(|| (account(next), ms(ready))))
    }

    /// Owner and anchor of an epoch; zeros if it never was.
    pub async fn epoch_of(&self, epoch: u32, block: BlockTag) -> Result<EpochRecord, PoolError> {
        let call = c::EpochOfCall { epoch }.encode();
        let (held,): (c::Epoch,) = self.ask(self.at.controller, "epochOf", call, block).await?;
        Ok(EpochRecord { owner: account(held.owner), size: held.size, anchor: held.anchor })
    }

    /// What an owner has at stake in the court.
    pub async fn bond(&self, owner: Account, block: BlockTag) -> Result<BondRecord, PoolError> {
        let call = court::BondOfCall { owner: h160(owner) }.encode();
        let (held,): (court::Bond,) = self.ask(self.at.court, "bondOf", call, block).await?;
        Ok(BondRecord { kept: Amount(held.kept), leaving: Amount(held.leaving), ready: ms(held.ready_at) })
    }

    /// What stands behind the statements of an epoch.
    pub async fn at_stake(&self, epoch: u32, block: BlockTag) -> Result<Amount, PoolError> {
        self.ask(self.at.court, "atStake", court::AtStakeCall { epoch }.encode(), block).await.map(Amount)
    }

    /// Whether an epoch's authority was shown to contradict itself.
    pub async fn is_convicted(&self, epoch: u32, block: BlockTag) -> Result<bool, PoolError> {
        self.ask(self.at.court, "convicted", court::ConvictedCall(epoch).encode(), block).await
    }

    /// Whether a node ever was a provider's, and whether that provider lost its stake for what the node's key signed.
    pub async fn binding(&self, node: NodeId, provider: Account, block: BlockTag) -> Result<(bool, bool), PoolError> {
        let call = c::BindingOfCall { node: h160(node), provider: h160(provider) }.encode();
        self.ask(self.at.controller, "bindingOf", call, block).await
    }

    /// How many offers a provider has.
    pub async fn offers_of(&self, provider: Account, block: BlockTag) -> Result<u32, PoolError> {
        let call = c::OffersOfCall { provider: h160(provider) }.encode();
        self.ask(self.at.controller, "offersOf", call, block).await
    }

    /// What of forfeited stakes was burnt so far.
    pub async fn stakes_burnt(&self, block: BlockTag) -> Result<Amount, PoolError> {
        self.ask(self.at.controller, "burnt", c::BurntCall.encode(), block).await.map(Amount)
    }

    /// The unpaid fees of an epoch.
    pub async fn fees_of(&self, epoch: u32, block: BlockTag) -> Result<Amount, PoolError> {
        self.ask(self.at.vault, "feesOf", v::FeesOfCall { epoch }.encode(), block).await.map(Amount)
    }

    /// Token base units in one unit of the pool.
    pub async fn scale(&self, block: BlockTag) -> Result<u128, PoolError> {
        let wide: U256 = self.ask(self.at.vault, "scale", v::ScaleCall.encode(), block).await?;
        Ok(u128::try_from(wide).unwrap_or(u128::MAX))
    }

    /// What the court burnt of bonds so far.
    pub async fn burnt(&self, block: BlockTag) -> Result<Amount, PoolError> {
        self.ask(self.at.court, "burnt", court::BurntCall.encode(), block).await.map(Amount)
    }

    /// Who may bring requests that others signed.
    pub async fn forwarder(&self, block: BlockTag) -> Result<Address, PoolError> {
        self.ask(self.at.controller, "trustedForwarder", c::TrustedForwarderCall.encode(), block).await.map(address)
    }

    /// Whether an account may take the authority over.
    pub async fn is_standby(&self, account: Account, block: BlockTag) -> Result<bool, PoolError> {
        let call = c::IsStandbyCall { who: h160(account) }.encode();
        self.ask(self.at.controller, "isStandby", call, block).await
    }

    /// What an issuer lets a holder use at once of a product.
    pub async fn licence(
        &self,
        issuer: Account,
        holder: Account,
        product: Hash32,
        block: BlockTag,
    ) -> Result<LicenceRecord, PoolError> {
        let call = c::LicenceOfCall { issuer: h160(issuer), holder: h160(holder), product: product.0 }.encode();
        let (seats, until): (u32, u64) = self.ask(self.at.controller, "licenceOf", call, block).await?;
        Ok(LicenceRecord { seats, until: ms(until) })
    }

    /// Who signs vouchers of an epoch, and through when that counts.
    pub async fn authority_of(&self, epoch: u32, block: BlockTag) -> Result<(Account, TimeMs), PoolError> {
        let call = v::AuthorityOfCall { epoch }.encode();
        let (signer, until): (H160, u32) = self.ask(self.at.vault, "authorityOf", call, block).await?;
        Ok((account(signer), ms(until.into())))
    }

    /// The present authority.
    pub async fn authority(&self, block: BlockTag) -> Result<Account, PoolError> {
        self.ask(self.at.controller, "authority", c::AuthorityCall.encode(), block).await.map(account)
    }

    /// The last anchor and the present epoch.
    pub async fn head(&self, block: BlockTag) -> Result<HeadRecord, PoolError> {
        let (epoch, size, commitment, seen): (u32, u64, u128, u64) =
            self.ask(self.at.controller, "head", c::HeadCall.encode(), block).await?;
        Ok(HeadRecord { epoch, size, commitment: commitment.to_be_bytes(), seen: ms(seen) })
    }

    /// Where a component is and until when; `None` if it has expired or never was.
    pub async fn component(
        &self,
        owner: Account,
        kind: ComponentKind,
        block: BlockTag,
    ) -> Result<Option<(String, TimeMs)>, PoolError> {
        let held = self.component_as_stored(owner, kind, block).await?;
        Ok(Some(held).filter(|(endpoint, _)| !endpoint.is_empty()))
    }

    /// A component's endpoint, which is empty once it has expired, and its end, which stays.
    pub async fn component_as_stored(
        &self,
        owner: Account,
        kind: ComponentKind,
        block: BlockTag,
    ) -> Result<(String, TimeMs), PoolError> {
        let call = c::ComponentCall { who: h160(owner), kind: kind as u8 }.encode();
        let (endpoint, until): (String, u64) = self.ask(self.at.controller, "component", call, block).await?;
        Ok((endpoint, ms(until)))
    }

    /// A provider; `None` if unknown.
    pub async fn provider(&self, owner: Account, block: BlockTag) -> Result<Option<ProviderRecord>, PoolError> {
        let call = c::ProviderCall { who: h160(owner) }.encode();
        let (payout, stake, unbonding, ready): (H160, u64, u64, u64) =
            self.ask(self.at.controller, "provider", call, block).await?;
        let record = ProviderRecord {
            payout: address(payout),
            stake: Amount(stake),
            unbonding: Amount(unbonding),
            ready: ms(ready),
        };
        Ok((payout != H160::zero()).then_some(record))
    }

    /// A node's owner and how often it was bound.
    pub async fn node(&self, node: NodeId, block: BlockTag) -> Result<NodeRecord, PoolError> {
        let call = c::NodeOfCall { node: h160(node) }.encode();
        let (owner, nonce): (H160, u32) = self.ask(self.at.controller, "nodeOf", call, block).await?;
        Ok(NodeRecord { provider: (owner != H160::zero()).then(|| account(owner)), nonce })
    }

    /// A node's offer; `None` if there is none.
    pub async fn offer(&self, node: NodeId, block: BlockTag) -> Result<Option<OfferRecord>, PoolError> {
        let call = c::OfferOfCall { node: h160(node) }.encode();
        let (spec_hash, classes, spec_cid): ([u8; 32], u8, String) =
            self.ask(self.at.controller, "offerOf", call, block).await?;
        // Nothing of a closed offer is left: any other word of it is no answer of this contract, and is not passed over.
        let closed = spec_hash == [0; 32] && classes == 0 && spec_cid.is_empty();
        Ok((!closed).then_some(OfferRecord { spec_hash: Hash32(spec_hash), classes, spec_cid }))
    }

    /// A renter's account in the vault.
    pub async fn account(&self, renter: Account, block: BlockTag) -> Result<AccountRecord, PoolError> {
        let call = v::AccountCall { renter: h160(renter) }.encode();
        let (key, balance, until): (H160, u64, u32) = self.ask(self.at.vault, "account", call, block).await?;
        Ok(AccountRecord { key: address(key), balance: Amount(balance), until: ms(until.into()) })
    }

    /// What a renter is thawing, and when it can be withdrawn.
    pub async fn thawing(&self, renter: Account, block: BlockTag) -> Result<(Amount, TimeMs), PoolError> {
        let call = v::ThawingCall { renter: h160(renter) }.encode();
        let (amount, ready): (u64, u64) = self.ask(self.at.vault, "thawing", call, block).await?;
        Ok((Amount(amount), ms(ready)))
    }

    /// What a provider has claimed of a renter in all, and through which use.
    pub async fn claimed(
        &self,
        provider: Account,
        renter: Account,
        block: BlockTag,
    ) -> Result<(Amount, TimeMs), PoolError> {
        let call = v::PairCall { provider: h160(provider), renter: h160(renter) }.encode();
        let (claimed, used): (u64, u64) = self.ask(self.at.vault, "pair", call, block).await?;
        Ok((Amount(claimed), TimeMs(used)))
    }

    /// A provider's totals.
    pub async fn totals(&self, provider: Account, block: BlockTag) -> Result<TotalsRecord, PoolError> {
        let call = v::TotalsCall { provider: h160(provider) }.encode();
        let (earned, fee, paid_out): (u64, u64, u64) = self.ask(self.at.vault, "totals", call, block).await?;
        Ok(TotalsRecord { earned: Amount(earned), fee: Amount(fee), paid_out: Amount(paid_out) })
    }

    /// A delegated or retired key; `None` if the renter has no such key (the own key is in [`account`](Self::account)).
    pub async fn key(&self, renter: Account, key: Address, block: BlockTag) -> Result<Option<KeyRecord>, PoolError> {
        let call = v::KeyOfCall { renter: h160(renter), key: h160(key) }.encode();
        let (cap, until, dead_from, kind): (u64, u32, u32, u8) = self.ask(self.at.vault, "keyOf", call, block).await?;
        let record = KeyRecord {
            cap_left: Amount(cap),
            until: ms(until.into()),
            dead_from: (dead_from != 0).then(|| ms(dead_from.into())),
            delegated: kind == 1,
        };
        Ok((kind != 0).then_some(record))
    }

    /// Token base units of `owner` that `spender` may take.
    pub async fn allowance(&self, owner: Address, spender: Address, block: BlockTag) -> Result<u128, PoolError> {
        let call = t::AllowanceCall { owner: h160(owner), spender: h160(spender) }.encode();
        let wide: U256 = self.ask(self.at.token, "allowance", call, block).await?;
        Ok(u128::try_from(wide).unwrap_or(u128::MAX))
    }

    /// Token base units of an address.
    pub async fn token_balance(&self, of: Address, block: BlockTag) -> Result<u128, PoolError> {
        let call = t::BalanceOfCall { account: h160(of) }.encode();
        let wide: U256 = self.ask(self.at.token, "balanceOf", call, block).await?;
        Ok(u128::try_from(wide).unwrap_or(u128::MAX))
    }
}
