//! What a pool's contracts store, from their events alone. The interfaces promise that events and the times of their
//! blocks give every stored field; whoever holds this beside the contracts' answers sees whether they do.

use std::collections::BTreeMap;

use ethers_core::types::U256;
use selion_api::chain::ComponentKind;
use selion_api::unit::TimeMs;
use selion_api::{Account, Address, Amount, Hash32, NodeId};

use crate::abi::controller::ControllerAbiEvents as OfController;
use crate::abi::court::CourtAbiEvents as OfCourt;
use crate::abi::vault::VaultAbiEvents as OfVault;
use crate::deploy::PoolAddresses;
use crate::event::{EventError, Read, Spends, component_kind, renter_of, unknown};
use crate::read::{
    AccountRecord, BondRecord, EpochRecord, HeadRecord, KeyRecord, LicenceRecord, NodeRecord, OfferRecord,
    ProviderRecord, TotalsRecord,
};
use crate::rpc::Log;
use crate::voucher::{head_commitment, head_hash};
use crate::word::{account, address, lane64, ms};

/// Through when the present authority signs: the contracts' type(uint32).max.
const PRESENT_S: u64 = (1 << 32) - 1;
/// What a payee gets of what is forfeited: a tenth.
const REWARD: u64 = 10;

/// What a renter is thawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThawRecord {
    /// In all.
    pub amount: Amount,
    /// When it can be withdrawn.
    pub ready: TimeMs,
}

/// Every stored field of a pool's controller, vault and court. What was deleted stays here as what its reader answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Epoch, anchor, and when the authority was seen; `None` before the pool was opened.
    pub head: Option<HeadRecord>,
    /// Who signs vouchers of which epoch, and through when that counts.
    pub authorities: BTreeMap<u32, (Account, TimeMs)>,
    /// The present owner; zero before the pool was opened.
    pub owner: Account,
    /// Who may become the owner, and from when.
    pub announced: Option<(Account, TimeMs)>,
    /// Epochs that ended.
    pub ended: BTreeMap<u32, EpochRecord>,
    /// What of the fees of an epoch was not taken out.
    pub fees: BTreeMap<u32, Amount>,
    /// Who may take over, and who no more.
    pub standbys: BTreeMap<Account, bool>,
    /// Nodes by who ever bound them: whether the stake was lost for it.
    pub bindings: BTreeMap<(NodeId, Account), bool>,
    /// Providers.
    pub providers: BTreeMap<Account, ProviderRecord>,
    /// Nodes.
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    /// Offers; `None` if closed.
    pub offers: BTreeMap<NodeId, Option<OfferRecord>>,
    /// Endpoints of components, and through when they count.
    pub components: BTreeMap<(Account, ComponentKind), (String, TimeMs)>,
    /// Licences by issuer, holder and product.
    pub licences: BTreeMap<(Account, Account, Hash32), LicenceRecord>,
    /// Renters' accounts.
    pub accounts: BTreeMap<Account, AccountRecord>,
    /// What renters thaw.
    pub thawing: BTreeMap<Account, ThawRecord>,
    /// Delegated and former keys by renter.
    pub keys: BTreeMap<(Account, Address), KeyRecord>,
    /// What a provider claimed of a renter, and through which use.
    pub pairs: BTreeMap<(Account, Account), (Amount, TimeMs)>,
    /// Totals of providers.
    pub totals: BTreeMap<Account, TotalsRecord>,
    /// Bonds of owners, as they were stored: see [`BondRecord::at`].
    pub bonds: BTreeMap<Account, BondRecord>,
    /// Epochs whose authority contradicted itself.
    pub convicted: BTreeMap<u32, Amount>,
    /// What the court burnt.
    pub burnt: Amount,
    /// What the controller burnt of stakes.
    pub stakes_burnt: Amount,
    fee_bps: u64,
    spends: Spends,
    /// The whole commitment to the last head that was anchored.
    anchored: [u8; 32],
    disowned: bool,
}

impl Stored {
    /// Takes the next log; nothing changes by one of another address. `at` is the time of its block.
    ///
    /// # Errors
    ///
    /// [`EventError`] if it is of this pool and cannot be read.
    pub fn take(&mut self, pool: &PoolAddresses, log: &Log, at: TimeMs) -> Result<(), EventError> {
        match Read::log(pool, log)? {
            Some(Read::Controller(event)) => self.controller(event, at).map_err(|why| unknown(log, why))?,
            Some(Read::Vault(event)) => self.vault(event),
            Some(Read::Court(event)) => self.court(event),
            None => {}
        }
        Ok(())
    }

    fn controller(&mut self, event: OfController, at: TimeMs) -> Result<(), String> {
        match event {
            OfController::PoolOpenedFilter(e) => {
                self.head = Some(HeadRecord { epoch: 1, size: 0, commitment: [0; 16], seen: at });
                self.authorities.insert(1, (account(e.config.authority), ms(PRESENT_S)));
                self.owner = account(e.config.owner);
                self.fee_bps = e.config.fee_bps.into();
            }
            OfController::AuthorityChangedFilter(e) => {
                let old = e.epoch.saturating_sub(1);
                self.end_epoch(old, account(e.owner));
                if let Some((_, until)) = self.authorities.get_mut(&old) {
                    *until = ms(e.old_valid_until);
                }
                self.authorities.insert(e.epoch, (account(e.authority), ms(PRESENT_S)));
                self.seen(e.epoch, at);
            }
            OfController::OwnerAnnouncedFilter(e) => {
                let next = account(e.next);
                self.announced = (next != Account([0; 20])).then(|| (next, ms(e.ready_at)));
            }
            OfController::AnchorsDisownedFilter(e) => {
                self.head = Some(HeadRecord { epoch: e.epoch, size: e.size, commitment: [0; 16], seen: at });
                self.disowned = true;
            }
            OfController::StakeForfeitedFilter(e) => {
                self.bindings.insert((NodeId(e.node.0), account(e.provider)), true);
                self.stakes_burnt = self.stakes_burnt.saturating_add(Amount(e.amount - e.amount / REWARD));
            }
            OfController::AnchoredFilter(e) => {
                let commitment = head_commitment(Hash32(e.root), Hash32(e.digest));
                self.anchored = head_hash(Hash32(e.root), Hash32(e.digest));
                self.head = Some(HeadRecord { epoch: e.epoch, size: e.size, commitment, seen: at });
            }
            OfController::RenewedFilter(e) => self.seen(e.epoch, at),
            OfController::StandbySetFilter(e) => {
                self.standbys.insert(account(e.standby), e.allowed);
            }
            OfController::ProviderRegisteredFilter(e) => {
                let entry = self.providers.entry(account(e.provider)).or_default();
                (entry.payout, entry.stake) = (address(e.payout), Amount(e.stake));
            }
            OfController::StakeChangedFilter(e) => {
                let entry = self.providers.entry(account(e.provider)).or_default();
                (entry.stake, entry.unbonding, entry.ready) = (Amount(e.stake), Amount(e.unbonding), ms(e.ready_at));
            }
            OfController::NodeRegisteredFilter(e) => {
                self.bindings.insert((NodeId(e.node.0), account(e.provider)), false);
                let bound = NodeRecord { provider: Some(account(e.provider)), nonce: e.nonce.saturating_add(1) };
                self.nodes.insert(NodeId(e.node.0), bound);
            }
            OfController::NodeRetiredFilter(e) => self.nodes.entry(NodeId(e.node.0)).or_default().provider = None,
            OfController::OfferSetFilter(e) => {
                let offer = OfferRecord { spec_hash: Hash32(e.spec_hash), classes: e.classes, spec_cid: e.spec_cid };
                self.offers.insert(NodeId(e.node.0), Some(offer));
            }
            OfController::OfferClosedFilter(e) => {
                self.offers.insert(NodeId(e.node.0), None);
            }
            OfController::ComponentRegisteredFilter(e) => {
                self.components.insert((account(e.owner), component_kind(e.kind)?), (e.endpoint, ms(e.until)));
            }
            OfController::LicenceSetFilter(e) => {
                let whose = (account(e.issuer), account(e.holder), Hash32(e.product));
                self.licences.insert(whose, LicenceRecord { seats: e.seats, until: ms(e.until) });
            }
        }
        Ok(())
    }

    /// An epoch ended, and `owner` has the next one. As `Controller._begin` keeps it.
    fn end_epoch(&mut self, epoch: u32, owner: Account) {
        let Some(head) = self.head else { return };
        let accepted = owner != self.owner;
        let mut ended = self.epoch_of(epoch).unwrap_or_default();
        if accepted {
            ended.anchor = if head.commitment == [0; 16] { [0; 32] } else { self.anchored };
            self.announced = None;
            self.standbys.values_mut().for_each(|allowed| *allowed = false);
        }
        if core::mem::take(&mut self.disowned) {
            ended.anchor = [0; 32];
        }
        self.ended.insert(epoch, ended);
        self.owner = owner;
    }

    /// How many offers a provider has.
    #[must_use]
    pub fn offers_of(&self, provider: Account) -> u32 {
        let of = |node| self.nodes.get(node).is_some_and(|node| node.provider == Some(provider));
        let count = self.offers.iter().filter(|(node, offer)| offer.is_some() && of(node)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Owner and anchor of an epoch; `None` before the pool was opened.
    #[must_use]
    pub fn epoch_of(&self, epoch: u32) -> Option<EpochRecord> {
        let head = self.head?;
        if epoch != head.epoch {
            return Some(self.ended.get(&epoch).copied().unwrap_or_default());
        }
        let before = self.ended.get(&epoch.saturating_sub(1)).copied().unwrap_or_default();
        let mut anchor = [0; 32];
        anchor[..16].copy_from_slice(&head.commitment);
        // What was taken over is kept as it was.
        let anchor = if head.size == before.size { before.anchor } else { anchor };
        Some(EpochRecord { owner: self.owner, size: head.size, anchor })
    }

    /// The authority of an epoch showed that it lives.
    fn seen(&mut self, epoch: u32, at: TimeMs) {
        if let Some(head) = &mut self.head {
            (head.epoch, head.seen) = (epoch, at);
        }
    }

    fn vault(&mut self, event: OfVault) {
        match event {
            OfVault::DepositedFilter(e) => self.pay_in(account(e.renter), Amount(e.amount)),
            OfVault::EnteredFilter(e) => {
                let renter = account(e.renter);
                self.pay_in(renter, Amount(e.amount));
                self.set_own(renter, address(e.key), ms(e.until.into()));
            }
            OfVault::KeyClearedFilter(e) => self.set_own(account(e.renter), Address::ZERO, TimeMs(0)),
            OfVault::KeyGrantedFilter(e) => {
                // A dead key that is granted anew lives again.
                let key =
                    KeyRecord { cap_left: Amount(e.cap), until: ms(e.until.into()), dead_from: None, delegated: true };
                self.keys.insert((account(e.renter), address(e.key)), key);
            }
            OfVault::KeyRevokedFilter(e) => self.revoke(account(e.renter), address(e.key), ms(e.dead_from.into())),
            OfVault::ThawedFilter(e) => {
                let thaw = self.thawing.entry(account(e.renter)).or_default();
                (thaw.amount, thaw.ready) = (Amount(e.amount), ms(e.ready_at));
            }
            OfVault::WithdrawnFilter(e) => {
                let renter = account(e.renter);
                self.pay_out(renter, Amount(e.amount));
                self.thawing.insert(renter, ThawRecord::default());
            }
            OfVault::ClaimedFilter(e) => self.claimed(account(e.provider), e.totals, &e.rows),
            OfVault::CashedOutFilter(e) => {
                let totals = self.totals.entry(account(e.provider)).or_default();
                totals.paid_out = totals.paid_out.saturating_add(Amount(e.amount));
            }
            OfVault::SpentFilter(e) => self.spends.note(address(e.key), e.first, e.count),
            OfVault::FeesCashedOutFilter(e) => {
                let fees = self.fees.entry(e.epoch).or_default();
                *fees = fees.saturating_sub(Amount(e.amount));
            }
        }
    }

    fn pay_in(&mut self, renter: Account, amount: Amount) {
        let held = self.accounts.entry(renter).or_default();
        held.balance = held.balance.saturating_add(amount);
    }

    fn pay_out(&mut self, renter: Account, amount: Amount) {
        let held = self.accounts.entry(renter).or_default();
        held.balance = held.balance.saturating_sub(amount);
    }

    fn set_own(&mut self, renter: Account, key: Address, until: TimeMs) {
        let held = self.accounts.entry(renter).or_default();
        (held.key, held.until) = (key, until);
    }

    /// The own key becomes a former one, which is told before what comes in its place; a delegated one stays delegated.
    fn revoke(&mut self, renter: Account, key: Address, dead_from: TimeMs) {
        let own = self.accounts.get(&renter).filter(|held| held.key == key).map(|held| held.until);
        let known = self.keys.entry((renter, key)).or_default();
        known.dead_from = Some(dead_from);
        if let Some(until) = own {
            *known = KeyRecord { until: known.until.max(until), delegated: false, cap_left: Amount(0), ..*known };
        }
    }

    /// Two words a voucher: renter(160) | cumulative(64) | epoch(32) and claimed(64) | paid(64) | usedThroughMs(64) | ..
    fn claimed(&mut self, provider: Account, totals: U256, rows: &[U256]) {
        let [earned, fee, paid_out] = [192, 128, 64].map(|low| Amount(lane64(totals, low)));
        self.totals.insert(provider, TotalsRecord { earned, fee, paid_out });
        let keys = self.spends.take(rows.len() / 2);
        for (row, key) in rows.chunks_exact(2).zip(keys) {
            let (voucher, moved) = (row[0], row[1]);
            let (renter, epoch) = (renter_of(voucher), voucher.low_u32());
            let (claimed, paid) = (lane64(moved, 192), lane64(moved, 128));
            self.pay_out(renter, Amount(paid));
            if let Some(known) = key.and_then(|key| self.keys.get_mut(&(renter, key))) {
                known.cap_left = known.cap_left.saturating_sub(Amount(paid));
            }
            let fees = self.fees.entry(epoch).or_default();
            let fee = fee_of(claimed, self.fee_bps).saturating_sub(fee_of(claimed.saturating_sub(paid), self.fee_bps));
            *fees = fees.saturating_add(Amount(fee));
            let pair = self.pairs.entry((provider, renter)).or_default();
            pair.0 = Amount(claimed);
            if claimed == lane64(voucher, 32) {
                pair.1 = TimeMs(lane64(moved, 64));
            }
        }
    }

    fn court(&mut self, event: OfCourt) {
        match event {
            OfCourt::BondChangedFilter(e) => {
                let bond = BondRecord { kept: Amount(e.kept), leaving: Amount(e.leaving), ready: ms(e.ready_at) };
                self.bonds.insert(account(e.owner), bond);
            }
            OfCourt::ConvictedFilter(e) => {
                self.convicted.insert(e.epoch, Amount(e.amount));
                self.burnt = self.burnt.saturating_add(Amount(e.amount - e.amount / REWARD));
            }
            OfCourt::ForfeitedFilter(e) => self.burnt = self.burnt.saturating_add(Amount(e.amount)),
        }
    }
}

/// The operator's part of a pair's total, rounded down.
fn fee_of(claimed: u64, fee_bps: u64) -> u64 {
    let part = u128::from(claimed) * u128::from(fee_bps) / 10_000;
    u64::try_from(part).unwrap_or(u64::MAX)
}
