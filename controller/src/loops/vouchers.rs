//! Signs what is due: by the delegate for the renter, by the authority for the pool, both over one digest.

use std::collections::BTreeMap;

use selion_api::agent::{Fence, SignedVoucher};
use selion_api::{Account, Address, Amount, TimeMs};
use selion_contracts::{Pool, Voucher};
use selion_market::{Overpromised, State};

use crate::keys::Keys;
use crate::store::voucher::VoucherRow;
use crate::store::{Store, signed_voucher, term, voucher};

/// Who signs, and under which fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Office {
    /// The fence that this process opened.
    pub fence: Fence,
    /// Its authority key.
    pub authority: Account,
    /// Its delegate key.
    pub delegate: Address,
}

/// Why a voucher that is due is not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Another controller took over, or authority passed.
    #[error("this controller's fence is not the one in force; the one that took over signs")]
    StaleFence,
    /// The log names another authority than our key.
    #[error("the pool's authority is {0}, not this controller's key")]
    NotAuthority(Account),
    /// The log names another delegate than our key.
    #[error("the pool's delegate is {0}, not this controller's key")]
    NotDelegate(Address),
    /// The row is of entries that this look at State does not have: they are being committed just now.
    #[error(
        "the row is of a log of {log_size} entries, which are not all there; restart the controller: rows are written again"
    )]
    Ahead {
        /// In the row.
        log_size: u64,
    },
    /// The row says more than the log: it was altered.
    #[error("the row asks for {asked}, the log billed {billed}; restart the controller: rows are written again")]
    AboveBill {
        /// In the row.
        asked: Amount,
        /// In State.
        billed: Amount,
    },
    /// The renter granted nothing to this delegate.
    #[error("the renter has no grant for the pool's delegate")]
    NoGrant,
    /// The grant ended before the use that is to be paid.
    #[error("the renter's grant ended at {until:?}, use goes to {used_through:?}; the renter must extend it")]
    GrantEnded {
        /// Its end.
        until: TimeMs,
        /// What the voucher would cover.
        used_through: TimeMs,
    },
    /// What the renter is billed for and nobody claimed is more than what of his deposit cannot leave.
    #[error(
        "{promised} is billed to the renter and not claimed, and the vault keeps {covered} for that; once the renter has paid \
         in what is missing it is signed"
    )]
    Uncovered {
        /// Billed and not claimed, to all providers.
        promised: Amount,
        /// What the vault keeps.
        covered: Amount,
    },
}

/// Decides whether `due` may be signed at `now`, by the committed State alone. `signed` is the highest total that was signed
/// for the pair so far: a total rises only while all promises of the renter are covered, and is signed again under a new
/// epoch whether they are or not.
///
/// # Errors
///
/// [`Unfit`].
pub fn judge(state: &State, office: &Office, due: &VoucherRow, signed: Amount, now: TimeMs) -> Result<Voucher, Unfit> {
    let pool = state.pool.as_ref().ok_or(Unfit::StaleFence)?;
    if state.fence != office.fence || pool.epoch != office.fence.epoch {
        return Err(Unfit::StaleFence);
    }
    if pool.authority != office.authority {
        return Err(Unfit::NotAuthority(pool.authority));
    }
    if state.delegate != office.delegate {
        return Err(Unfit::NotDelegate(state.delegate));
    }
    let billed = state.billed.get(&(due.renter, due.provider));
    let billed = billed.copied().unwrap_or_default();
    // A row is committed a moment before readers see the State that it is a fold of.
    if due.log_size > state.next_seq {
        return Err(Unfit::Ahead { log_size: due.log_size });
    }
    if due.cumulative > billed {
        return Err(Unfit::AboveBill { asked: due.cumulative, billed });
    }
    let grant = state.grants.get(&due.renter).ok_or(Unfit::NoGrant)?;
    // The contract compares the key's end with the use, not with the time of the claim.
    if grant.until < due.used_through {
        return Err(Unfit::GrantEnded { until: grant.until, used_through: due.used_through });
    }
    if due.cumulative > signed {
        let uncovered = |Overpromised { promised, covered }| Unfit::Uncovered { promised, covered };
        state.may_promise(due.renter, now).map_err(uncovered)?;
    }
    Ok(Voucher {
        renter: due.renter,
        provider: due.provider,
        cumulative: due.cumulative,
        used_through: due.used_through,
        epoch: pool.epoch,
        log_size: due.log_size,
    })
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Vouchers signed.
    pub signed: u32,
    /// Vouchers that are due and may not be signed.
    pub unfit: u32,
}

/// Remembers what was said already.
#[derive(Default)]
pub struct Vouchers {
    said: BTreeMap<(Account, Account), Unfit>,
}

impl Vouchers {
    /// Signs every voucher that is due. `read` gives the committed State to a closure.
    ///
    /// # Errors
    ///
    /// When SQLite fails; what was signed before is kept.
    pub async fn pass(
        &mut self,
        store: &Store,
        read: impl Fn(&mut dyn FnMut(&State)),
        office: &Office,
        keys: &Keys,
        pool: &Pool,
        now: TimeMs,
    ) -> sqlx::Result<Report> {
        let mut report = Report::default();
        let kept: BTreeMap<_, _> = signed_voucher::every(&store.readers)
            .await?
            .into_iter()
            .map(|kept| {
                let voucher = kept.voucher;
                ((voucher.renter, voucher.provider), (voucher.cumulative, voucher.epoch))
            })
            .collect();
        for due in voucher::due(&store.readers).await? {
            let pair = (due.renter, due.provider);
            let have = kept.get(&pair).copied().unwrap_or_default();
            if (due.cumulative, office.fence.epoch) <= have || due.cumulative == Amount::ZERO {
                continue;
            }
            let mut judged = Err(Unfit::StaleFence);
            read(&mut |state| judged = judge(state, office, &due, have.0, now));
            match judged {
                Ok(unsigned) => {
                    if !in_force(store, office.fence).await? {
                        return Ok(report);
                    }
                    let signed = sign(unsigned, keys, pool);
                    let new = signed_voucher::put(&store.writer, &signed, now).await?;
                    report.signed += u32::from(new);
                    self.said.remove(&pair);
                }
                Err(unfit) => {
                    report.unfit += 1;
                    let again = self.said.insert(pair, unfit) == Some(unfit);
                    // What is being committed is there with the next pass; only a row that stays ahead was altered.
                    if again == matches!(unfit, Unfit::Ahead { .. }) {
                        tracing::warn!(renter = %due.renter, provider = %due.provider, %unfit, "a voucher is due and not signed");
                    }
                }
            }
        }
        Ok(report)
    }
}

/// Whether the fence is still the one in the store: another process may have taken over.
pub(super) async fn in_force(store: &Store, fence: Fence) -> sqlx::Result<bool> {
    let mut db = store.readers.acquire().await?;
    term::holds(&mut db, fence).await
}

fn sign(voucher: Voucher, keys: &Keys, pool: &Pool) -> SignedVoucher {
    let digest = voucher.digest(pool.chain_id, pool.at.vault);
    let (renter_signature, authority_signature) = keys.sign_voucher(digest);
    voucher.signed(renter_signature, authority_signature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use selion_market::state::{Books, KeyGrant, PoolTerms};

    const RENTER: Account = Account([1; 20]);
    const PROVIDER: Account = Account([2; 20]);
    const NOW: TimeMs = TimeMs(0);

    fn office() -> Office {
        Office { fence: Fence { epoch: 3, term: 7 }, authority: Account([5; 20]), delegate: Address([6; 20]) }
    }

    fn world() -> State {
        let mut state = State::new();
        state.next_seq = 40;
        state.fence = office().fence;
        state.delegate = office().delegate;
        state.pool = Some(PoolTerms {
            token: Address([7; 20]),
            vault: Address([8; 20]),
            fee_bps: 0,
            allow_simulated: true,
            allow_unsandboxed: true,
            finality_depth: 0,
            min_stake: Amount(0),
            authority: office().authority,
            epoch: 3,
            anchored: 0,
        });
        state.billed.insert((RENTER, PROVIDER), Amount(100));
        let grant = KeyGrant { cap: Amount(1_000), until: TimeMs(5_000), revoked: false };
        state.grants.insert(RENTER, grant);
        state.books.insert(RENTER, Books { deposited: Amount(120), ..Books::default() });
        state
    }

    fn due(cumulative: u64, used_through: u64) -> VoucherRow {
        VoucherRow {
            renter: RENTER,
            provider: PROVIDER,
            cumulative: Amount(cumulative),
            used_through: TimeMs(used_through),
            log_size: 40,
        }
    }

    #[test]
    fn what_is_billed_and_granted_is_signed_under_the_pools_epoch() {
        let unsigned = judge(&world(), &office(), &due(100, 5_000), Amount::ZERO, NOW).unwrap();
        assert_eq!(unsigned.epoch, 3);
        assert_eq!(unsigned.cumulative, Amount(100));
    }

    #[test]
    fn a_unit_above_the_bill_is_not_signed() {
        assert!(matches!(judge(&world(), &office(), &due(101, 1), Amount::ZERO, NOW), Err(Unfit::AboveBill { .. })));
    }

    #[test]
    fn a_row_of_an_entry_that_readers_do_not_see_yet_is_no_altered_row() {
        let ahead = VoucherRow { log_size: 41, ..due(120, 1) };
        assert_eq!(judge(&world(), &office(), &ahead, Amount::ZERO, NOW), Err(Unfit::Ahead { log_size: 41 }));
        let mut seen = world();
        seen.next_seq = 41;
        seen.billed.insert((RENTER, PROVIDER), Amount(120));
        assert!(judge(&seen, &office(), &ahead, Amount::ZERO, NOW).is_ok());
    }

    #[test]
    fn nothing_is_signed_under_an_old_fence_or_with_a_foreign_key() {
        let mut old = office();
        old.fence.term = 6;
        assert_eq!(judge(&world(), &old, &due(1, 1), Amount::ZERO, NOW), Err(Unfit::StaleFence));
        let mut passed = world();
        if let Some(pool) = &mut passed.pool {
            pool.epoch = 4;
        }
        assert_eq!(judge(&passed, &office(), &due(1, 1), Amount::ZERO, NOW), Err(Unfit::StaleFence));
        let mut foreign = office();
        foreign.delegate = Address([9; 20]);
        assert!(matches!(judge(&world(), &foreign, &due(1, 1), Amount::ZERO, NOW), Err(Unfit::NotDelegate(_))));
    }

    #[test]
    fn use_after_the_grants_end_is_not_signed_but_use_before_it_is() {
        let mut state = world();
        state.now = TimeMs(9_000);
        assert!(judge(&state, &office(), &due(1, 5_000), Amount::ZERO, NOW).is_ok());
        assert!(matches!(judge(&state, &office(), &due(1, 5_001), Amount::ZERO, NOW), Err(Unfit::GrantEnded { .. })));
        state.grants.clear();
        assert_eq!(judge(&state, &office(), &due(1, 1), Amount::ZERO, NOW), Err(Unfit::NoGrant));
    }

    #[test]
    fn no_total_rises_while_a_renters_promises_are_more_than_the_vault_keeps_for_him() {
        let mut state = world();
        state.now = TimeMs(9_000);
        let mut books = |change: &dyn Fn(&mut Books)| {
            change(state.books.entry(RENTER).or_default());
            judge(&state, &office(), &due(100, 5_000), Amount(60), NOW)
        };
        assert!(
            books(&|books| (books.thawing, books.ready) = (Amount(120), TimeMs(9_001))).is_ok(),
            "it can be claimed until then"
        );
        assert!(books(&|books| books.ready = TimeMs(9_000)).is_err(), "all of it may leave");
        assert!(books(&|books| books.thawing = Amount(20)).is_ok());
        let short = books(&|books| books.withdrawn = Amount(30));
        assert_eq!(short, Err(Unfit::Uncovered { promised: Amount(100), covered: Amount(70) }));
        // What was signed before is signed again, as under a new epoch.
        assert!(judge(&state, &office(), &due(100, 5_000), Amount(100), NOW).is_ok());
        // What a claim took off the promise and off the deposit counts no more.
        state.claimed.insert((RENTER, PROVIDER), Amount(60));
        state.books.insert(RENTER, Books { deposited: Amount(120), claimed: Amount(60), ..Books::default() });
        assert!(judge(&state, &office(), &due(100, 5_000), Amount(60), NOW).is_ok());
        // Nothing came into the log since, and by the clock all may leave.
        let thaws = Books { deposited: Amount(160), thawing: Amount(160), ready: TimeMs(9_500), ..Books::default() };
        state.books.insert(RENTER, thaws);
        let at = |now| judge(&state, &office(), &due(100, 5_000), Amount(60), TimeMs(now));
        assert!(at(9_499).is_ok() && at(9_500).is_err());
    }
}
