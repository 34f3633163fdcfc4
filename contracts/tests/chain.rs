//! The contracts through the typed calls, on the embedded development chain and, where there is one, on Anvil.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Chain, fund, terms};
use selion_api::agent::SignedVoucher;
use selion_api::chain::{ChainEvent, ComponentKind};
use selion_api::unit::TimeMs;
use selion_api::{Address, Amount, Hash32, NodeId};
use selion_contracts::read::{KeyRecord, TotalsRecord};
use selion_contracts::voucher::{batch_digest, head_commitment};
use selion_contracts::{
    BlockTag, Bloom, Draft, Log, Pool, PoolError, PoolTerms, Receipt, RpcError, Signer, Voucher, tx,
};

const LATEST: BlockTag = BlockTag::Latest;
const UNTIL: TimeMs = TimeMs(4_000_000_000_000);
const SIMULATED: u8 = 1 << 5;

/// Sends and returns the facts that the transaction made.
async fn facts(pool: &Pool, signer: &Signer, call: selion_contracts::write::Call) -> Vec<ChainEvent> {
    let receipt: Receipt = pool.send(signer, call).await.expect("accepted");
    let by_block = pool.rpc.logs_of_block(receipt.block_hash, &pool.addresses()).await.expect("logs");
    let own: Vec<Log> = by_block.into_iter().filter(|log| log.tx == receipt.tx).collect();
    let facts = pool.decode_all(&own).expect("known events");
    assert_eq!(pool.decode_all(&receipt.logs).expect("known events"), facts, "receipt and logs agree");
    facts
}

fn voucher(renter: &Signer, provider: &Signer, cumulative: u64, epoch: u32) -> Voucher {
    Voucher {
        renter: renter.account(),
        provider: provider.account(),
        cumulative: Amount(cumulative),
        used_through: TimeMs(1_700_000_000_000),
        epoch,
        log_size: 9,
    }
}

fn sign(pool: &Pool, voucher: Voucher, key: &Signer, authority: &Signer) -> SignedVoucher {
    let by = |signer: &Signer| voucher.sign(signer, pool.chain_id, pool.at.vault).expect("signs");
    voucher.signed(by(key), by(authority))
}

#[tokio::test]
async fn a_registry_is_what_its_events_say() {
    for chain in Chain::every("a_registry_is_what_its_events_say").await {
        let (operator, owner, node, heir) =
            (chain.person().await, chain.person().await, Signer::random().unwrap(), chain.person().await);
        let pool = chain.pool(&operator, chain.ground(&operator).await).await;
        let id = NodeId(node.account().0);
        let provider = owner.account();
        assert_eq!(pool.terms(LATEST).await.unwrap(), terms(&operator, pool.at.token));

        // The pool's first fact is in the block that made it.
        let head = chain.rpc.header(LATEST).await.unwrap();
        let all = pool.decode_all(&chain.rpc.logs(0, head.number, &pool.addresses()).await.unwrap()).unwrap();
        assert!(matches!(
            &all[..],
            [ChainEvent::PoolOpened { fee_bps: 200, allow_simulated: true, finality_depth: 0, .. }]
        ));

        fund(&pool, &owner, 500_000_000).await;
        let joined = facts(&pool, &owner, pool.register_provider(owner.address(), Amount(300_000_000))).await;
        assert_eq!(
            joined,
            [ChainEvent::ProviderRegistered { provider, payout: owner.address(), stake: Amount(300_000_000) }]
        );
        let consent = pool.sign_node_binding(&node, provider, pool.node(id, LATEST).await.unwrap().nonce).unwrap();
        let bound = facts(&pool, &owner, pool.register_node(id, &consent)).await;
        assert_eq!(bound, [ChainEvent::NodeRegistered { node: id, provider }]);
        assert_eq!(pool.node(id, LATEST).await.unwrap().provider, Some(provider));
        let spec_hash = Hash32([5; 32]);
        let offered = facts(&pool, &owner, pool.set_offer(id, spec_hash, SIMULATED, "bafy")).await;
        assert_eq!(offered, [ChainEvent::OfferSet { node: id, spec_hash, classes: SIMULATED }]);
        assert_eq!(pool.offer(id, LATEST).await.unwrap().unwrap().spec_cid, "bafy");
        let retired = facts(&pool, &owner, pool.retire_node(id)).await;
        assert_eq!(retired, [ChainEvent::OfferClosed { node: id }, ChainEvent::NodeRetired { node: id }]);
        assert_eq!(pool.offer(id, LATEST).await.unwrap(), None);
        let left = facts(&pool, &owner, pool.unbond(Amount(200_000_000))).await;
        assert_eq!(left, [ChainEvent::StakeChanged { provider, stake: Amount(100_000_000) }]);
        facts(&pool, &owner, pool.withdraw_stake(owner.address())).await;
        let record = pool.provider(provider, LATEST).await.unwrap().unwrap();
        assert_eq!((record.stake, record.unbonding), (Amount(100_000_000), Amount(0)));
        assert_eq!(pool.token_balance(owner.address(), LATEST).await.unwrap(), 400_000_000);

        let kind = ComponentKind::Gateway;
        let listed = facts(&pool, &operator, pool.register_component(kind, "http://g", UNTIL)).await;
        let endpoint = String::from("http://g");
        assert_eq!(
            listed,
            [ChainEvent::ComponentRegistered { owner: operator.account(), kind, endpoint, until: UNTIL }]
        );
        let found = pool.component(operator.account(), kind, LATEST).await.unwrap();
        assert_eq!(found, Some((String::from("http://g"), UNTIL)));

        let (root, digest) = (Hash32([1; 32]), Hash32([2; 32]));
        let anchored = facts(&pool, &operator, pool.anchor(1, 77, root, digest)).await;
        assert_eq!(anchored, [ChainEvent::Anchored { epoch: 1, size: 77, root, digest }]);
        let head = pool.head(LATEST).await.unwrap();
        assert_eq!((head.epoch, head.size, head.commitment), (1, 77, head_commitment(root, digest)));
        let passed = facts(&pool, &operator, pool.pass_authority(heir.account())).await;
        assert_eq!(passed, [ChainEvent::AuthorityChanged { epoch: 2, authority: heir.account() }]);
        assert_eq!(pool.authority(LATEST).await.unwrap(), heir.account());
    }
}

#[tokio::test]
async fn money_in_is_money_out() {
    for chain in Chain::every("money_in_is_money_out").await {
        let (operator, renter, owner) = (chain.person().await, chain.person().await, chain.person().await);
        let (session, delegate) = (Signer::random().unwrap(), Signer::random().unwrap());
        let pool = chain.pool(&operator, chain.ground(&operator).await).await;
        let (payer, provider) = (renter.account(), owner.account());
        fund(&pool, &renter, 1_000).await;

        let entered = facts(&pool, &renter, pool.enter(Amount(700), session.address(), UNTIL)).await;
        let key_set = ChainEvent::KeySet { renter: payer, key: session.address(), until: UNTIL };
        assert_eq!(entered, [ChainEvent::Deposited { renter: payer, amount: Amount(700) }, key_set]);
        let more = facts(&pool, &renter, pool.deposit(Amount(300))).await;
        assert_eq!(more, [ChainEvent::Deposited { renter: payer, amount: Amount(300) }]);
        let granted = facts(&pool, &renter, pool.grant(delegate.address(), Amount(50), UNTIL)).await;
        let grant =
            |cap| ChainEvent::KeyGranted { renter: payer, key: delegate.address(), cap: Amount(cap), until: UNTIL };
        assert_eq!(granted, [grant(50)]);

        // One good voucher, one without the authority, one by the delegated key: in one transaction, sent by anybody.
        let good = sign(&pool, voucher(&renter, &owner, 400, 1), &session, &operator);
        let alone = sign(&pool, voucher(&renter, &owner, 900, 1), &session, &session);
        let by_delegate = sign(&pool, voucher(&renter, &owner, 430, 1), &delegate, &operator);
        let claimed = facts(&pool, &operator, pool.claim_many(&[good.clone(), alone, by_delegate])).await;
        let claim = |cumulative, paid| ChainEvent::Claimed {
            provider,
            renter: payer,
            cumulative: Amount(cumulative),
            paid: Amount(paid),
        };
        assert_eq!(claimed, [grant(20), claim(400, 400), claim(430, 30)]);
        let left = pool.key(payer, delegate.address(), LATEST).await.unwrap();
        assert_eq!(left, Some(KeyRecord { cap_left: Amount(20), until: UNTIL, dead_from: None, delegated: true }));
        assert_eq!(pool.claimed(provider, payer, LATEST).await.unwrap(), (Amount(430), TimeMs(1_700_000_000_000)));

        // Under one signature of the authority; more than the balance is paid in part.
        let above = sign(&pool, voucher(&renter, &owner, 2_000, 1), &session, &operator);
        let digest = batch_digest(pool.chain_id, pool.at.vault, provider, 1, &[Voucher::from(&above)]);
        let together = operator.sign_digest(digest).unwrap();
        facts(&pool, &renter, pool.thaw(Amount(500))).await;
        let withdrawn = facts(&pool, &renter, pool.withdraw(renter.address())).await;
        assert_eq!(withdrawn, [ChainEvent::Withdrawn { renter: payer, amount: Amount(500) }]);
        let rest = facts(&pool, &operator, pool.claim_aggregated(provider, 1, &together, &[above])).await;
        assert_eq!(rest, [claim(500, 70)]);
        assert_eq!(facts(&pool, &operator, pool.claim_many(&[good])).await, [], "a stale voucher moves nothing");

        let cleared = facts(&pool, &renter, pool.revoke(session.address())).await;
        assert!(matches!(cleared[..], [ChainEvent::KeyRevoked { .. }, ChainEvent::KeySet { key: Address::ZERO, .. }]));
        let out = facts(&pool, &owner, pool.cash_out(owner.address())).await;
        assert_eq!(out, [ChainEvent::CashedOut { provider, amount: Amount(490) }]);
        let fees = facts(&pool, &operator, pool.cash_out_fees(operator.address(), &[provider])).await;
        assert_eq!(fees, [ChainEvent::FeesCashedOut { amount: Amount(10) }]);
        let (ten, all) = (Amount(10), Amount(490));
        assert_eq!(
            pool.totals(provider, LATEST).await.unwrap(),
            TotalsRecord { earned: all, fee: ten, paid_out: all, fee_out: ten }
        );
        assert_eq!(pool.account(payer, LATEST).await.unwrap().balance, Amount(0));
        assert_eq!(pool.token_balance(pool.at.vault, LATEST).await.unwrap(), 0, "nothing is left in the vault");
    }
}

#[tokio::test]
async fn many_headers_and_receipts_asked_for_at_once_are_those_asked_for_one_by_one() {
    for chain in Chain::every("many_headers_and_receipts_asked_for_at_once").await {
        let operator = chain.person().await;
        chain.pool(&operator, chain.ground(&operator).await).await;
        let head = chain.rpc.header(LATEST).await.unwrap().number;
        let headers = chain.rpc.headers(0, head).await.unwrap();
        assert_eq!(headers.len() as u64, head + 1);
        assert!(headers.windows(2).all(|pair| pair[1].parent == pair[0].hash));
        let hashes: Vec<Hash32> = headers.iter().map(|header| header.hash).collect();
        let receipts = chain.rpc.receipts_of_blocks(&hashes).await.unwrap();
        let mut held = 0;
        for (header, receipts) in headers.iter().zip(receipts) {
            assert_eq!(&chain.rpc.header(BlockTag::Number(header.number)).await.unwrap(), header);
            assert_eq!(chain.rpc.receipts_of_block(header.hash).await.unwrap(), receipts);
            // What a mirror judges receipts by: one for each transaction, and logs that fill the header's bloom.
            let receipts = receipts.unwrap();
            assert_eq!(receipts.len(), header.transactions);
            let logs: Vec<&Log> = receipts.iter().flat_map(|receipt| &receipt.logs).collect();
            assert!((0..).zip(&logs).all(|(place, log)| log.index == place));
            assert_eq!(Some(Bloom::of(logs.iter().copied())), header.bloom);
            held += logs.len();
        }
        assert!(held > 0, "the pool's making leaves logs");
        let error = chain.rpc.headers(head, head + 1).await.unwrap_err();
        assert!(matches!(error, RpcError::NoBlock { .. }), "{error}");
        assert_eq!(chain.rpc.receipts_of_blocks(&[Hash32([9; 32])]).await.unwrap(), [None]);
    }
}

#[tokio::test]
async fn two_pools_on_one_chain_never_mix() {
    for chain in Chain::every("two_pools_on_one_chain_never_mix").await {
        let (operator, renter) = (chain.person().await, chain.person().await);
        let ground = chain.ground(&operator).await;
        let (one, other) = (chain.pool(&operator, ground).await, chain.pool(&operator, ground).await);
        assert_ne!(one.at.controller, other.at.controller);
        let root = Hash32([1; 32]);
        one.send(&operator, one.anchor(1, 1, root, root)).await.unwrap();
        other.send(&operator, other.anchor(1, 2, root, root)).await.unwrap();
        other.send(&renter, other.thaw(Amount(0))).await.unwrap();

        let head = chain.rpc.header(LATEST).await.unwrap().number;
        let both = [one.addresses(), other.addresses()].concat();
        let logs = chain.rpc.logs(0, head, &both).await.unwrap();
        let sizes = |pool: &Pool| -> Vec<u64> {
            let size = |event: &ChainEvent| {
                if let ChainEvent::Anchored { size, .. } = event { Some(*size) } else { None }
            };
            pool.decode_all(&logs).unwrap().iter().filter_map(size).collect()
        };
        assert_eq!((sizes(&one), sizes(&other)), (vec![1], vec![2]), "a log of the other pool gives no fact");
        let scoped = chain.rpc.logs(0, head, &one.addresses()).await.unwrap();
        assert!(scoped.iter().all(|log| one.addresses().contains(&log.address)));
        assert_eq!(scoped.len() + chain.rpc.logs(0, head, &other.addresses()).await.unwrap().len(), logs.len());
        assert_eq!(chain.rpc.logs(0, head, &[]).await.unwrap(), [], "no address is not every address");
        assert_eq!(one.events_of_block(chain.rpc.header(LATEST).await.unwrap().hash).await.unwrap(), []);

        // A voucher of one vault is nothing in the other.
        let session = Signer::random().unwrap();
        for pool in [&one, &other] {
            fund(pool, &renter, 100).await;
            pool.send(&renter, pool.enter(Amount(100), session.address(), UNTIL)).await.unwrap();
        }
        let signed = sign(&one, voucher(&renter, &operator, 60, 1), &session, &operator);
        other.send(&operator, other.claim_many(std::slice::from_ref(&signed))).await.unwrap();
        assert_eq!(other.account(renter.account(), LATEST).await.unwrap().balance, Amount(100));
        one.send(&operator, one.claim_many(&[signed])).await.unwrap();
        assert_eq!(one.account(renter.account(), LATEST).await.unwrap().balance, Amount(40));
    }
}

#[tokio::test]
async fn refusals_are_named_before_anything_is_sent() {
    for chain in Chain::every("refusals_are_named_before_anything_is_sent").await {
        let (operator, stranger) = (chain.person().await, chain.person().await);
        let ground = chain.ground(&operator).await;
        let pool = chain.pool(&operator, ground).await;
        let nonce = chain.rpc.nonce(stranger.account(), LATEST).await.unwrap();
        let error = pool.send(&stranger, pool.anchor(1, 1, Hash32::ZERO, Hash32::ZERO)).await.unwrap_err().to_string();
        assert!(error.contains("NotAuthority") && error.contains(&stranger.account().to_string()), "{error}");
        assert_eq!(chain.rpc.nonce(stranger.account(), LATEST).await.unwrap(), nonce, "nothing was sent");

        let penniless = Signer::random().unwrap();
        let error = pool.send(&penniless, pool.thaw(Amount(0))).await.unwrap_err().to_string();
        assert!(error.contains("gas"), "{error}");
        let error = Pool::open(chain.rpc.clone(), Address([9; 20])).await.unwrap_err();
        assert!(matches!(error, PoolError::NoPool { .. }), "{error}");
        let error = Pool::open(chain.rpc.clone(), ground.0).await.unwrap_err();
        assert!(matches!(error, PoolError::NoPool { .. }), "a token is no controller: {error}");
        let error = chain.rpc.header(BlockTag::Number(1 << 40)).await.unwrap_err();
        assert!(matches!(error, RpcError::NoBlock { .. }), "{error}");
    }
}

#[tokio::test]
async fn an_outbox_knows_the_hash_before_it_sends_and_may_send_twice() {
    for chain in Chain::every("an_outbox_knows_the_hash_before_it_sends_and_may_send_twice").await {
        let operator = chain.person().await;
        let pool = chain.pool(&operator, chain.ground(&operator).await).await;
        let draft: Draft = pool.draft(&operator, pool.anchor(1, 1, Hash32::ZERO, Hash32::ZERO)).await.unwrap();
        let signed = draft.sign(&operator).unwrap();
        assert_eq!(draft.sign(&operator).unwrap(), signed, "equal drafts give equal bytes");
        assert_eq!(chain.rpc.receipt(signed.hash).await.unwrap(), None);
        assert_eq!(chain.rpc.send_raw(&signed.raw).await.unwrap(), signed.hash);
        let receipt = tx::wait(&chain.rpc, signed.hash, tx::PATIENCE).await.unwrap();
        let _again = chain.rpc.send_raw(&signed.raw).await; // accepted or refused, but never done twice
        assert_eq!(chain.rpc.receipt(signed.hash).await.unwrap(), Some(receipt));
        assert_eq!(chain.rpc.nonce(operator.account(), LATEST).await.unwrap(), draft.nonce + 1);
        assert_eq!(pool.final_header(0).await.unwrap(), Some(chain.rpc.header(LATEST).await.unwrap()));
        assert_eq!(pool.final_header(1 << 30).await.unwrap(), None);
        assert!(pool.final_header(PoolTerms::FINALIZED_TAG).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_batch_of_25_costs_no_more_gas_a_voucher_than_promised() {
    for chain in Chain::every("a_batch_of_25_costs_no_more_gas_a_voucher_than_promised").await {
        let (operator, owner) = (chain.person().await, chain.person().await);
        let pool = chain.pool(&operator, chain.ground(&operator).await).await;
        let mut renters = Vec::new();
        for _ in 0..26 {
            let (renter, session) = (chain.person().await, Signer::random().unwrap());
            fund(&pool, &renter, 1_000_000_000).await;
            pool.send(&renter, pool.enter(Amount(1_000_000_000), session.address(), UNTIL)).await.unwrap();
            renters.push((renter, session));
        }
        let batch = |cumulative: u64, of: std::ops::Range<usize>| -> Vec<SignedVoucher> {
            renters[of].iter().map(|(r, key)| sign(&pool, voucher(r, &owner, cumulative, 1), key, &operator)).collect()
        };
        pool.send(&operator, pool.claim_many(&batch(1_000_000, 25..26))).await.unwrap(); // the provider is known
        let mut each = Vec::new();
        for cumulative in [1_000_000, 2_000_000] {
            let receipt = pool.send(&operator, pool.claim_many(&batch(cumulative, 0..25))).await.unwrap();
            assert_eq!(pool.decode_all(&receipt.logs).unwrap().len(), 25, "every voucher was paid");
            each.push(receipt.gas_used / 25);
        }
        println!("claim of 25 by receipts: first {} each, again {} each", each[0], each[1]);
        if chain.runs_drafts() {
            println!("not held against the promise: this chain runs rules that are in force nowhere");
            continue;
        }
        assert!(each[0] <= 41_000 && each[1] <= 24_000, "{each:?}");
    }
}
