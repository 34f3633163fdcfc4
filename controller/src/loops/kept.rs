//! At the start: what this process keeps beside the log and cannot fold from it, signed vouchers and the outbox, is
//! compared with the log, the keys and the chain. Somebody may have altered the file while no controller ran.

use std::collections::BTreeMap;

use selion_api::{Address, Amount};
use selion_contracts::Voucher;

use super::vouchers::{Office, Unfit};
use crate::store::outbox::{self, Kind};
use crate::store::signed_voucher::{self, Kept};
use crate::store::voucher::{self, VoucherRow};
use crate::store::{Store, head};

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Vouchers that cannot be what was kept and may be signed anew. They are removed: the voucher loop does the rest.
    pub removed: u32,
    /// Such vouchers that may not be signed now. They stay: an earlier delegate may have signed them.
    pub left: u32,
    /// The chain holds an anchor of this epoch, and the outbox knows of none.
    pub outbox_lost: bool,
}

/// The contracts of the pool, as far as they concern what was signed and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnChain {
    /// Chain.
    pub chain_id: u64,
    /// The vault that vouchers are for.
    pub vault: Address,
    /// Entries anchored; 0 if none were.
    pub anchored: u64,
}

/// Whether the voucher can be what was kept: our keys signed it as it stands, or keys of an earlier epoch did for no more
/// than was billed, and its marks can be true.
fn is_sound(kept: &Kept, billed: Amount, office: &Office, pool: &OnChain) -> bool {
    let said = Voucher::from(&kept.voucher);
    let owed = kept.claimed < said.cumulative;
    if kept.delivered > said.cumulative || kept.claimed > said.cumulative || owed != kept.unclaimed_since.is_some() {
        return false;
    }
    if said.epoch != office.fence.epoch {
        return said.epoch < office.fence.epoch && said.cumulative <= billed;
    }
    let by = |signature| said.recover(signature, pool.chain_id, pool.vault);
    by(&kept.voucher.renter_signature).is_some_and(|signer| signer.0 == office.delegate.0)
        && by(&kept.voucher.authority_signature) == Some(office.authority)
}

/// Compares signed vouchers of the epoch and the outbox with what they should be. `judge` says of the log's row whether
/// it may be signed now. Of vouchers of earlier epochs the keys are not known here, but what was billed is.
///
/// # Errors
///
/// When SQLite fails; what was removed until then is signed anew all the same.
pub async fn check(
    store: &Store,
    office: &Office,
    pool: &OnChain,
    judge: impl Fn(&VoucherRow) -> Result<Voucher, Unfit>,
) -> sqlx::Result<Found> {
    let mut found = Found::default();
    let due = voucher::due(&store.readers).await?;
    let due: BTreeMap<_, _> = due.into_iter().map(|row| ((row.renter, row.provider), row)).collect();
    for kept in signed_voucher::every(&store.readers).await? {
        let (renter, provider) = (kept.voucher.renter, kept.voucher.provider);
        // Without a row of the log nothing was ever billed between the two, and nothing was signed.
        let row = due.get(&(renter, provider));
        if is_sound(&kept, row.map(|row| row.cumulative).unwrap_or_default(), office, pool) {
            continue;
        }
        let unfit = row.and_then(|row| judge(row).err());
        if let Some(unfit) = unfit {
            found.left += 1;
            tracing::warn!(
                %renter, %provider, %unfit,
                "a signed voucher in the database was altered, or an earlier delegate signed it, and none can be signed in \
                 its place now"
            );
            continue;
        }
        signed_voucher::remove(&store.writer, renter, provider).await?;
        found.removed += 1;
        tracing::warn!(
            %renter, %provider,
            "a signed voucher in the database was altered; what the log billed is signed anew"
        );
    }
    let head = head::at(&store.readers, pool.anchored).await?;
    if head.is_some_and(|head| head.head.fence.epoch == office.fence.epoch) {
        let signer = Address(office.authority.0);
        found.outbox_lost = outbox::last(&store.readers, signer, Kind::Anchor).await?.is_none();
    }
    if found.outbox_lost {
        tracing::warn!(
            anchored = pool.anchored,
            "the outbox has lost rows: the chain holds an anchor that it does not know of. The chain says what was \
             done; what was ordered and not yet sent is ordered again"
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use selion_api::agent::{Fence, Head, SignedHead, SignedVoucher};
    use selion_api::{Account, Hash32, Signature, TimeMs};
    use selion_market::VoucherDue;

    use super::*;
    use crate::keys::Keys;

    const RENTER: Account = Account([1; 20]);
    const OTHER: Account = Account([7; 20]);
    const PROVIDER: Account = Account([2; 20]);
    const POOL: OnChain = OnChain { chain_id: 31_337, vault: Address([8; 20]), anchored: 20 };

    struct World {
        _dir: tempfile::TempDir,
        store: Store,
        keys: Keys,
        office: Office,
    }

    async fn world() -> World {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path(), None).unwrap();
        let office =
            Office { fence: Fence { epoch: 1, term: 1 }, authority: keys.authority(), delegate: keys.delegate() };
        let store = Store::open(dir.path()).await.unwrap();
        World { _dir: dir, store, keys, office }
    }

    impl World {
        /// Keeps a voucher of `cumulative` as the voucher loop would, after the log billed it.
        async fn bill(&self, renter: Account, cumulative: u64) {
            let voucher = unsigned(renter, cumulative);
            let (one, other) = self.keys.sign_voucher(voucher.digest(POOL.chain_id, POOL.vault));
            signed_voucher::put(&self.store.writer, &voucher.signed(one, other), TimeMs(5)).await.unwrap();
            let due =
                VoucherDue { renter, provider: PROVIDER, cumulative: Amount(cumulative), used_through: TimeMs(4) };
            let mut db = self.store.writer.acquire().await.unwrap();
            voucher::raise(&mut db, &due, 9).await.unwrap();
        }

        async fn check(&self, judge: impl Fn(&VoucherRow) -> Result<Voucher, Unfit>) -> Found {
            check(&self.store, &self.office, &POOL, judge).await.unwrap()
        }

        async fn kept(&self) -> Vec<SignedVoucher> {
            signed_voucher::every(&self.store.readers).await.unwrap().into_iter().map(|kept| kept.voucher).collect()
        }

        async fn alter(&self, lie: &'static str) {
            assert!(sqlx::query(lie).execute(&self.store.writer).await.unwrap().rows_affected() > 0, "{lie}");
        }
    }

    fn unsigned(renter: Account, cumulative: u64) -> Voucher {
        let cumulative = Amount(cumulative);
        Voucher { renter, provider: PROVIDER, cumulative, used_through: TimeMs(4), epoch: 1, log_size: 9 }
    }

    #[expect(clippy::unnecessary_wraps, reason = "stands for `vouchers::judge`")]
    fn fit(row: &VoucherRow) -> Result<Voucher, Unfit> {
        Ok(unsigned(row.renter, row.cumulative.0))
    }

    #[tokio::test]
    async fn vouchers_as_they_were_signed_stay() {
        let world = world().await;
        world.bill(RENTER, 100).await;
        let before = world.kept().await;
        assert_eq!(world.check(fit).await, Found::default());
        assert_eq!(world.kept().await, before);
    }

    #[tokio::test]
    async fn an_altered_voucher_goes_so_that_what_was_billed_is_signed_anew() {
        for lie in [
            "update signed_voucher set cumulative = x'0000000000000fff'",
            "update signed_voucher set used_through = 5000",
            "update signed_voucher set log_size = 10",
            "update signed_voucher set renter_signature = authority_signature",
            "update signed_voucher set authority_signature = zeroblob(65)",
            "update signed_voucher set delivered = x'ffffffffffffffff'",
            "update signed_voucher set claimed = x'00ffffffffffffff'",
            "update signed_voucher set unclaimed_since = null",
            "update signed_voucher set epoch = 9",
            "update signed_voucher set renter = x'0909090909090909090909090909090909090909'",
        ] {
            let world = world().await;
            world.bill(RENTER, 100).await;
            world.alter(lie).await;
            assert_eq!(world.check(fit).await, Found { removed: 1, ..Found::default() }, "{lie}");
            assert_eq!(world.kept().await, [], "{lie}");
        }
    }

    #[tokio::test]
    async fn one_that_may_not_be_signed_now_stays_and_so_does_one_of_an_earlier_epoch() {
        let world = world().await;
        world.bill(RENTER, 100).await;
        world.bill(OTHER, 7).await;
        world.alter("update signed_voucher set authority_signature = zeroblob(65)").await;
        world.alter("update signed_voucher set log_size = 10").await;
        let before = world.kept().await;
        assert_eq!(world.check(|_| Err(Unfit::NoGrant)).await, Found { left: 2, ..Found::default() });
        let later = Office { fence: Fence { epoch: 2, term: 1 }, ..world.office };
        assert_eq!(check(&world.store, &later, &POOL, fit).await.unwrap(), Found::default());
        assert_eq!(world.kept().await, before);
        let foreign = Signature([0; 65]);
        assert!(before.iter().all(|voucher| voucher.authority_signature == foreign));
    }

    #[tokio::test]
    async fn an_outbox_that_lost_the_anchor_of_the_chain_is_told() {
        let world = world().await;
        assert_eq!(world.check(fit).await, Found::default(), "another authority anchored that");
        let head = Head { size: 20, root: Hash32([1; 32]), digest: Hash32([2; 32]), fence: world.office.fence };
        let signed = SignedHead { head, signature: Signature([3; 65]) };
        head::insert(&mut world.store.writer.acquire().await.unwrap(), &signed).await.unwrap();
        assert_eq!(world.check(fit).await, Found { outbox_lost: true, ..Found::default() });
        let order =
            outbox::Order { kind: Kind::Anchor, subject: "20".into(), target: Address([2; 20]), calldata: vec![3] };
        let signer = Address(world.office.authority.0);
        outbox::push(&world.store.writer, signer, &order, TimeMs(1)).await.unwrap();
        assert_eq!(world.check(fit).await, Found::default());
    }
}
