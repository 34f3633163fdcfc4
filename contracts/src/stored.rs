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
use crate::event::{EventError, Read, component_kind, unknown};
use crate::read::{
    AccountRecord, BondRecord, CaseRecord, HeadRecord, KeyRecord, LicenceRecord, NodeRecord, OfferRecord,
    ProviderRecord, TotalsRecord,
};
use crate::rpc::Log;
use crate::voucher::head_commitment;
use crate::word::{account, address, lane64, ms};

/// Through when the present authority signs: the contracts' type(uint40).max.
const PRESENT_S: u64 = (1 << 40) - 1;
/// States of a case.
const OPEN: u8 = 1;
const PUNISHED: u8 = 2;
const ACQUITTED: u8 = 3;

/// What a renter is thawing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThawRecord {
    /// In all.
    pub amount: Amount,
    /// When it can be withdrawn.
    pub ready: TimeMs,
    /// When the renter withdrew last; 0 if never.
    pub withdrawn: TimeMs,
}

/// Every stored field of a pool's controller, vault and court. What was deleted stays here as what its reader answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Epoch, anchor, and when the authority was seen; `None` before the pool was opened.
    pub head: Option<HeadRecord>,
    /// Who signs vouchers of which epoch, and through when that counts.
    pub authorities: BTreeMap<u32, (Account, TimeMs)>,
    /// Who may take over, and who no more.
    pub standbys: BTreeMap<Account, bool>,
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
    /// Bonds of authorities.
    pub bonds: BTreeMap<Account, BondRecord>,
    /// Cases.
    pub cases: BTreeMap<Hash32, CaseRecord>,
    /// What accounts may collect from the court.
    pub credits: BTreeMap<Account, Amount>,
    /// What the court burnt.
    pub burnt: Amount,
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
            Some(Read::Vault(event)) => self.vault(event, at),
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
            }
            OfController::AuthorityChangedFilter(e) => {
                if let Some((_, until)) = self.authorities.get_mut(&e.epoch.saturating_sub(1)) {
                    *until = ms(e.old_valid_until);
                }
                self.authorities.insert(e.epoch, (account(e.authority), ms(PRESENT_S)));
                self.seen(e.epoch, at);
            }
            OfController::AnchoredFilter(e) => {
                let commitment = head_commitment(Hash32(e.root), Hash32(e.digest));
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

    /// The authority of an epoch showed that it lives.
    fn seen(&mut self, epoch: u32, at: TimeMs) {
        if let Some(head) = &mut self.head {
            (head.epoch, head.seen) = (epoch, at);
        }
    }

    fn vault(&mut self, event: OfVault, at: TimeMs) {
        match event {
            OfVault::DepositedFilter(e) => self.pay_in(account(e.renter), Amount(e.amount)),
            OfVault::EnteredFilter(e) => {
                let renter = account(e.renter);
                self.pay_in(renter, Amount(e.amount));
                self.set_own(renter, address(e.key), ms(e.until.into()));
            }
            OfVault::KeyClearedFilter(e) => self.set_own(account(e.renter), Address::ZERO, TimeMs(0)),
            OfVault::KeyGrantedFilter(e) => {
                // By a renter, who cannot grant a revoked key, or by a claim, which changes the cap only.
                let key = self.keys.entry((account(e.renter), address(e.key))).or_default();
                (key.cap_left, key.until, key.delegated) = (Amount(e.cap), ms(e.until.into()), true);
            }
            OfVault::KeyRevokedFilter(e) => self.revoke(account(e.renter), address(e.key), ms(e.dead_from.into())),
            OfVault::ThawedFilter(e) => {
                let thaw = self.thawing.entry(account(e.renter)).or_default();
                (thaw.amount, thaw.ready) = (Amount(e.amount), ms(e.ready_at));
            }
            OfVault::WithdrawnFilter(e) => {
                let renter = account(e.renter);
                self.pay_out(renter, Amount(e.amount));
                self.thawing.insert(renter, ThawRecord { withdrawn: at, ..ThawRecord::default() });
            }
            OfVault::ClaimedFilter(e) => self.claimed(account(e.provider), e.totals, &e.rows),
            OfVault::CashedOutFilter(e) => {
                let totals = self.totals.entry(account(e.provider)).or_default();
                totals.paid_out = totals.paid_out.saturating_add(Amount(e.amount));
            }
            OfVault::FeesCashedOutFilter(e) => {
                let totals = self.totals.entry(account(e.provider)).or_default();
                totals.fee_out = totals.fee_out.saturating_add(Amount(e.amount));
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

    /// Two words a voucher: renter(160) | cumulative(64) | .. and claimed(64) | paid(64) | usedThroughMs(64) | ..
    fn claimed(&mut self, provider: Account, totals: U256, rows: &[U256]) {
        let [earned, fee, paid_out, fee_out] = [192, 128, 64, 0].map(|low| Amount(lane64(totals, low)));
        self.totals.insert(provider, TotalsRecord { earned, fee, paid_out, fee_out });
        for row in rows.chunks_exact(2) {
            let (voucher, paid) = (row[0], row[1]);
            let mut word = [0; 32];
            voucher.to_big_endian(&mut word);
            let mut renter = [0; 20];
            renter.copy_from_slice(&word[..20]);
            let (renter, claimed) = (Account(renter), lane64(paid, 192));
            self.pay_out(renter, Amount(lane64(paid, 128)));
            let pair = self.pairs.entry((provider, renter)).or_default();
            pair.0 = Amount(claimed);
            if claimed == lane64(voucher, 32) {
                pair.1 = TimeMs(lane64(paid, 64));
            }
        }
    }

    fn court(&mut self, event: OfCourt) {
        match event {
            OfCourt::BondChangedFilter(e) => {
                let held = self.bonds.entry(account(e.authority)).or_default();
                (held.bond, held.unbonding, held.ready) = (Amount(e.bond), Amount(e.unbonding), ms(e.ready_at));
            }
            OfCourt::AccusedFilter(e) => {
                let authority = account(e.authority);
                let case = CaseRecord { authority, by: ms(e.by), state: OPEN, ..CaseRecord::default() };
                self.cases.insert(Hash32(e.case), case);
                let held = self.bonds.entry(authority).or_default();
                held.open = held.open.saturating_add(1);
            }
            OfCourt::ChargedFilter(e) => {
                let case = self.cases.entry(Hash32(e.case)).or_default();
                (case.accuser, case.harmed, case.at_risk) = (account(e.accuser), account(e.harmed), e.at_risk);
                e.places.to_big_endian(&mut case.places);
            }
            OfCourt::AcquittedFilter(e) => self.close(Hash32(e.case), ACQUITTED, None),
            OfCourt::SlashedFilter(e) => {
                self.close(Hash32(e.case), PUNISHED, Some(account(e.authority)));
                self.burnt = self.burnt.saturating_add(Amount(e.burnt));
            }
            OfCourt::CreditedFilter(e) => {
                let credit = self.credits.entry(account(e.account)).or_default();
                *credit = credit.saturating_add(Amount(e.amount));
            }
            OfCourt::CollectedFilter(e) => {
                let credit = self.credits.entry(account(e.account)).or_default();
                *credit = credit.saturating_sub(Amount(e.amount));
            }
        }
    }

    /// A case ends, which was open unless it needed no answer. Who accused, who is harmed and of how much is forgotten.
    fn close(&mut self, id: Hash32, state: u8, authority: Option<Account>) {
        let case = self.cases.entry(id).or_default();
        let was_open = case.state == OPEN;
        let authority = authority.unwrap_or(case.authority);
        // Its places stay: nobody reads those of a closed case, and clearing them costs gas.
        *case = CaseRecord { authority, by: case.by, state, places: case.places, ..CaseRecord::default() };
        if was_open && let Some(held) = self.bonds.get_mut(&authority) {
            held.open = held.open.saturating_sub(1);
        }
    }
}
