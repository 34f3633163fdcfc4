//! Passes over a real store and outbox, without a chain: what is ordered, and what a restart forgets.

use selion_api::Address;
use selion_contracts::Rpc;
use selion_contracts::deploy::PoolAddresses;
use selion_market::state::{KeyGrant, PoolTerms};

use super::*;
use crate::store::outbox::{self, Outgoing, Status};

const HOUR: u64 = 3_600_000;
/// The operator of a dear chain claims once a month.
const RULES: Rules = Rules { claim_min: Amount(5_000_000), claim_ms: 30 * 24 * HOUR };
const PROVIDER: Account = Account([2; 20]);

fn renter(number: u16) -> Account {
    let [high, low] = number.to_be_bytes();
    let mut bytes = [1; 20];
    (bytes[18], bytes[19]) = (high, low);
    Account(bytes)
}

struct World {
    _dir: tempfile::TempDir,
    store: Store,
    keys: Keys,
    pool: Pool,
    state: State,
    claims: Claims,
    epoch: u32,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, keys) = (Store::open(dir.path()).await.unwrap(), Keys::open(dir.path(), None).unwrap());
        let [factory, controller, vault, court, token] = [3, 4, 5, 6, 7].map(|byte| Address([byte; 20]));
        let at = PoolAddresses { factory, controller, vault, court, token };
        let pool = Pool { rpc: Rpc::new("http://127.0.0.1:1").unwrap(), chain_id: 31_337, at };
        let mut state = State::new();
        state.pool = Some(terms(&keys, 1));
        Self { _dir: dir, store, keys, pool, state, claims: Claims::default(), epoch: 1 }
    }

    fn desk(&self) -> Desk {
        Desk::new(self.store.writer.clone(), Address(self.keys.authority().0), Arc::default())
    }

    /// The log bills the pair so much, and it is signed under the epoch of the keys.
    async fn signed(&mut self, renter: Account, cumulative: u64, at: u64) {
        let (cumulative, epoch) = (Amount(cumulative), self.epoch);
        let voucher = Voucher { renter, provider: PROVIDER, cumulative, used_through: TimeMs(0), epoch, log_size: 1 };
        let (one, other) = self.keys.sign_voucher(voucher.digest(self.pool.chain_id, self.pool.at.vault));
        signed_voucher::put(&self.store.writer, &voucher.signed(one, other), TimeMs(at)).await.unwrap();
        self.state.billed.insert((renter, PROVIDER), cumulative);
    }

    /// Two hundred renters who owe the provider more than any other.
    async fn two_hundred_others(&mut self) {
        for number in 0..200 {
            self.signed(renter(number), 9_000_000, 0).await;
        }
    }

    async fn pass(&mut self, told: Told, at: u64) -> Report {
        let (desk, when) = (self.desk(), When { rules: RULES, told, now: TimeMs(at) });
        let Self { store, keys, pool, state, claims, epoch, .. } = self;
        let (read, signing) = (|look: &mut dyn FnMut(&State)| look(state), Signing { keys, epoch: *epoch, pool });
        claims.pass(store, read, &desk, &signing, when).await.unwrap()
    }

    /// Another process, with what the store keeps.
    fn restart(&mut self) {
        self.claims = Claims::default();
    }

    async fn newest(&self) -> Outgoing {
        outbox::newest(&self.store.readers, 1).await.unwrap().remove(0)
    }

    /// The chain refuses the newest order.
    async fn fail(&self) {
        outbox::mark_failed(&self.store.writer, self.newest().await.seq, "out of gas").await.unwrap();
    }

    /// Whether the newest order claims this renter's voucher.
    async fn claims(&self, renter: Account) -> bool {
        let order = self.newest().await;
        order.status == Status::Queued && order.order.calldata.windows(20).any(|bytes| bytes == renter.0)
    }
}

fn terms(keys: &Keys, epoch: u32) -> PoolTerms {
    PoolTerms {
        token: Address([7; 20]),
        vault: Address([5; 20]),
        fee_bps: 200,
        allow_simulated: true,
        allow_unsandboxed: true,
        finality_depth: 0,
        min_stake: Amount(0),
        authority: keys.authority(),
        epoch,
        anchored: 0,
    }
}

fn told(renter: Account) -> Told {
    Told { all: false, renters: [renter].into() }
}

/// The renter has revoked the pool's key.
fn revoke(state: &mut State, renter: Account) {
    let grant = KeyGrant { cap: Amount(1_000_000), until: TimeMs(u64::MAX), revoked: true };
    state.grants.insert(renter, grant);
}

const OURS: u16 = 500;

#[tokio::test]
async fn a_revoked_keys_voucher_is_ordered_before_two_hundred_larger_ones_also_by_a_process_that_missed_the_news() {
    let mut world = World::new().await;
    world.two_hundred_others().await;
    world.signed(renter(OURS), 100_000, 1).await;
    revoke(&mut world.state, renter(OURS));
    // The first process is told and ends before it orders anything; the next one reads State.
    world.restart();
    assert_eq!(world.pass(Told::default(), 2).await, Report { orders: 1, claimed: 200, waits: false });
    assert!(world.claims(renter(OURS)).await);
}

#[tokio::test]
async fn a_claim_that_failed_is_ordered_again_within_the_hour_and_at_once_by_the_next_process() {
    let mut world = World::new().await;
    world.two_hundred_others().await;
    world.signed(renter(OURS), 100_000, 1).await;
    revoke(&mut world.state, renter(OURS));
    world.pass(told(renter(OURS)), 2).await;
    assert!(world.claims(renter(OURS)).await);
    world.fail().await;
    // The one that found no place is tried meanwhile; ours waits, and not longer than an hour.
    world.pass(Told::default(), 3).await;
    assert!(!world.claims(renter(OURS)).await);
    world.fail().await;
    world.pass(Told::default(), 2 + HOUR).await;
    assert!(world.claims(renter(OURS)).await);
    world.fail().await;
    world.restart();
    world.pass(Told::default(), 3 + HOUR).await;
    assert!(world.claims(renter(OURS)).await);
}

#[tokio::test]
async fn dust_of_a_revoked_key_is_ordered_within_an_hour() {
    let mut world = World::new().await;
    world.signed(renter(OURS), 1, 0).await;
    revoke(&mut world.state, renter(OURS));
    assert_eq!(world.pass(Told::default(), HOUR - 1).await.orders, 0);
    assert_eq!(world.pass(Told::default(), HOUR).await.orders, 1);
}

#[tokio::test]
async fn vouchers_of_an_epoch_that_is_over_are_ordered_under_the_next_ones_signature_before_two_hundred_others() {
    let mut world = World::new().await;
    world.signed(renter(OURS), 100_000, 0).await;
    // An heir with keys of its own, who cannot sign anew what the old delegate signed.
    let heir = tempfile::tempdir().unwrap();
    (world.keys, world.epoch) = (Keys::open(heir.path(), None).unwrap(), 2);
    world.state.pool = Some(terms(&world.keys, 2));
    world.two_hundred_others().await;
    world.restart();
    world.pass(Told::default(), 1).await;
    assert!(world.claims(renter(OURS)).await);
    world.fail().await;
    world.restart();
    world.pass(Told::default(), 2).await;
    assert!(world.claims(renter(OURS)).await);
    // A total above what was billed is somebody's alteration, whatever epoch it names.
    world.fail().await;
    world.state.billed.insert((renter(OURS), PROVIDER), Amount(99_999));
    world.restart();
    world.pass(Told::default(), 3).await;
    assert!(!world.claims(renter(OURS)).await);
}

#[tokio::test]
async fn all_in_a_hurry_come_to_their_turn_though_two_hundred_of_them_are_never_paid() {
    let mut world = World::new().await;
    world.two_hundred_others().await;
    world.signed(renter(OURS), 1, 1).await;
    let report = world.pass(Told { all: true, ..Told::default() }, 2).await;
    assert_eq!(report, Report { orders: 1, claimed: 200, waits: true });
    assert!(!world.claims(renter(OURS)).await);
    assert!(world.pass(Told::default(), 3).await.waits, "one claim for a provider is on its way at a time");
    world.fail().await;
    assert_eq!(world.pass(Told::default(), 4).await, Report { orders: 1, claimed: 1, waits: false });
    assert!(world.claims(renter(OURS)).await);
}

#[tokio::test]
async fn a_promise_whose_money_left_is_still_claimed_when_there_is_money_again() {
    let mut world = World::new().await;
    world.signed(renter(OURS), 6_000_000, 0).await;
    // Billed, and nothing of it lies in a pocket: the renter withdrew before anybody claimed. Nothing was claimed.
    assert_eq!(world.pass(Told::default(), 1).await.orders, 1);
    world.fail().await;
    let kept = signed_voucher::every(&world.store.readers).await.unwrap().remove(0);
    assert_eq!((kept.claimed, kept.unclaimed_since), (Amount(0), Some(TimeMs(0))));
    // What the chain paid is written down, and no more.
    world.state.claimed.insert((renter(OURS), PROVIDER), Amount(1_000_000));
    assert_eq!(world.pass(told(renter(OURS)), 2).await.orders, 1);
    world.fail().await;
    world.state.claimed.insert((renter(OURS), PROVIDER), Amount(6_000_000));
    assert_eq!(world.pass(told(renter(OURS)), 3).await, Report::default());
}

#[tokio::test]
async fn who_thaws_again_and_again_has_his_dust_claimed_no_more_than_once_an_hour() {
    let mut world = World::new().await;
    let (minute, mut orders) = (60_000, 0);
    for at in (0..120).map(|number| number * minute) {
        // He uses one unit more, and thaws another sum. What is ordered is paid.
        let total = at / minute + 1;
        world.signed(renter(OURS), total, at).await;
        world.state.books.entry(renter(OURS)).or_default().thawing = Amount(total);
        if world.pass(told(renter(OURS)), at).await.orders > 0 {
            orders += 1;
            world.fail().await;
            world.state.claimed.insert((renter(OURS), PROVIDER), Amount(total));
        }
    }
    assert!((1..=3).contains(&orders), "{orders} claims of a unit or so in two hours");
    // What is worth its gas is claimed at each of them.
    for at in [121, 122] {
        world.signed(renter(OURS), at * 1_000_000, at * minute).await;
        assert_eq!(world.pass(told(renter(OURS)), at * minute).await.orders, 1);
        world.fail().await;
        world.state.claimed.insert((renter(OURS), PROVIDER), Amount(at * 1_000_000));
    }
}

#[tokio::test]
async fn a_lease_that_runs_on_while_its_claims_become_final_is_not_claimed_for_every_unit_once_it_is_old() {
    let mut world = World::new().await;
    let (minute, month) = (60_000, RULES.claim_ms);
    world.signed(renter(OURS), 1, 0).await;
    let mut orders = 0;
    for at in (0..1_000).map(|number| month + number * minute) {
        // A unit more is signed before the claim of the one before is final.
        world.signed(renter(OURS), at / minute, at).await;
        if world.pass(Told::default(), at).await.orders > 0 {
            orders += 1;
            world.fail().await;
            world.state.claimed.insert((renter(OURS), PROVIDER), Amount(at / minute));
        }
    }
    assert_eq!(orders, 1, "what is younger than a month and dust waits");
}
