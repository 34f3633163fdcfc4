//! One script of calls on the embedded development chain and on Anvil: equal gas, logs, statuses, refusals, nonces and
//! addresses, to the byte.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Chain, terms};
use selion_api::agent::{Fence, Head, SignedHead};
use selion_api::chain::ComponentKind;
use selion_api::commit::PoolId;
use selion_api::{Amount, Hash32, NodeId, TimeMs};
use selion_contracts::court::Stated;
use selion_contracts::deploy::{create_pool, deploy_factory, deploy_test_token};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Pool, Receipt, Signer, Voucher};

const UNTIL: TimeMs = TimeMs(4_000_000_000_000);
const SOON: TimeMs = TimeMs(2_500_100_000_000);

/// What must be equal of a transaction: all but hashes and heights, which follow from the time of the first block.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    gas: u64,
    success: bool,
    created: Option<selion_api::Address>,
    logs: Vec<(selion_api::Address, Vec<Hash32>, Vec<u8>, u64)>,
    nonce: u64,
}

struct Script<'a> {
    chain: &'a Chain,
    time_s: u64,
    said: Vec<(String, Result<Said, String>)>,
}

impl Script<'_> {
    async fn call(&mut self, name: &str, pool: &Pool, who: &Signer, call: Call) {
        // Equal times on both chains: some events tell when something is ready.
        self.time_s += 12;
        self.chain.next_time(self.time_s).await;
        let said = match pool.send(who, call).await {
            Ok(receipt) => Ok(self.said(who, &receipt).await),
            Err(error) => Err(error.to_string()),
        };
        self.said.push((name.into(), said));
    }

    async fn said(&self, who: &Signer, receipt: &Receipt) -> Said {
        let logs = receipt.logs.iter().map(|log| (log.address, log.topics.clone(), log.data.clone(), log.index));
        Said {
            gas: receipt.gas_used,
            success: receipt.success,
            created: receipt.created,
            logs: logs.collect(),
            nonce: self.chain.rpc.nonce(who.account(), BlockTag::Latest).await.unwrap(),
        }
    }
}

fn key(seed: u8) -> Signer {
    Signer::from_bytes(&[seed; 32]).unwrap()
}

/// Everything a pool can do, and what it refuses.
async fn play(chain: &Chain) -> Vec<(String, Result<Said, String>)> {
    let (operator, owner, renter) = (key(1), key(2), key(3));
    let (node, session, delegate) = (key(4), key(5), key(6));
    for who in [&operator, &owner, &renter] {
        chain.rpc.give_coins(who.account(), 10u128.pow(20)).await.unwrap();
    }
    let mut script = Script { chain, time_s: 2_500_000_000, said: Vec::new() };
    chain.next_time(script.time_s).await;
    let token = deploy_test_token(&chain.rpc, &operator).await.unwrap();
    let factory = deploy_factory(&chain.rpc, &operator).await.unwrap();
    let at = create_pool(&chain.rpc, &operator, factory, &terms(&operator, token)).await.unwrap();
    script.said.push((format!("{token} {factory} {} {}", at.controller, at.vault), Err(String::new())));
    let pool = Pool::open(chain.rpc.clone(), at.controller).await.unwrap();
    let id = NodeId(node.account().0);
    for who in [&owner, &renter] {
        script.call("mint", &pool, who, pool.mint(who.address(), 1 << 50)).await;
        script.call("approve", &pool, who, pool.approve_vault()).await;
        script.call("approve", &pool, who, pool.approve_controller()).await;
    }
    script.call("too little stake", &pool, &owner, pool.register_provider(owner.address(), Amount(1))).await;
    script.call("provider", &pool, &owner, pool.register_provider(owner.address(), Amount(200_000_000))).await;
    let consent = pool.sign_node_binding(&node, owner.account(), 0).unwrap();
    script.call("another's node", &pool, &renter, pool.register_node(id, &consent)).await;
    script.call("node", &pool, &owner, pool.register_node(id, &consent)).await;
    script.call("offer", &pool, &owner, pool.set_offer(id, Hash32([5; 32]), 1 << 5, "bafy")).await;
    script.call("close", &pool, &owner, pool.close_offer(id)).await;
    let gateway = pool.register_component(ComponentKind::Gateway, "http://g", SOON);
    script.call("component", &pool, &owner, gateway).await;
    script.call("no member", &pool, &renter, pool.register_component(ComponentKind::Relay, "http://r", SOON)).await;
    script.call("enter", &pool, &renter, pool.enter(Amount(90_000), session.address(), UNTIL)).await;
    script.call("deposit", &pool, &renter, pool.deposit(Amount(9_000))).await;
    script.call("grant", &pool, &renter, pool.grant(delegate.address(), Amount(5_000), UNTIL)).await;
    for (cumulative, key) in [(400, &session), (700, &delegate), (700, &session), (9_000, &session)] {
        let voucher = Voucher {
            renter: renter.account(),
            provider: owner.account(),
            cumulative: Amount(cumulative),
            used_through: TimeMs(1_700_000_000_000),
            epoch: 1,
            log_size: 9,
        };
        let by = |signer: &Signer| voucher.sign(signer, pool.chain_id, pool.at.vault).unwrap();
        let both = voucher.signed(by(key), by(&operator));
        script.call("claim", &pool, &operator, pool.claim_many(&[both])).await;
    }
    script.call("thaw", &pool, &renter, pool.thaw(Amount(100))).await;
    script.call("thaw too much", &pool, &renter, pool.thaw(Amount(1 << 60))).await;
    script.call("withdraw", &pool, &renter, pool.withdraw(renter.address())).await;
    script.call("withdraw again", &pool, &renter, pool.withdraw(renter.address())).await;
    script.call("revoke", &pool, &renter, pool.revoke(delegate.address())).await;
    script.call("cash out", &pool, &owner, pool.cash_out(owner.account())).await;
    script.call("fees", &pool, &operator, pool.cash_out_fees(1, operator.address())).await;
    script.call("anchor", &pool, &operator, pool.anchor(1, 7, Hash32([1; 32]), Hash32([2; 32]))).await;
    script.call("anchor again", &pool, &operator, pool.anchor(1, 7, Hash32([1; 32]), Hash32([2; 32]))).await;
    script.call("retire", &pool, &owner, pool.retire_node(id)).await;
    script.call("unbond", &pool, &owner, pool.unbond(Amount(100_000_000))).await;
    script.call("stake back", &pool, &owner, pool.withdraw_stake()).await;
    let consent = pool.sign_authority_binding(&node, operator.account(), 2).unwrap();
    script.call("authority", &pool, &operator, pool.replace_authority(node.account(), &consent)).await;
    script.call("authority again", &pool, &operator, pool.replace_authority(node.account(), &consent)).await;
    script.call("approve", &pool, &owner, pool.approve_court()).await;
    script.call("bond", &pool, &owner, pool.put_bond(Amount(50_000_000))).await;
    script.call("announce", &pool, &operator, pool.announce_owner(owner.account())).await;
    let consent = pool.sign_authority_binding(&node, owner.account(), 3).unwrap();
    let accept = pool.accept_owner(node.account(), &consent, 7, Hash32([1; 32]), Hash32([2; 32]));
    script.call("accept", &pool, &owner, accept).await;
    let pool_id = PoolId { chain_id: pool.chain_id, controller: pool.at.controller };
    let head = |root: u8| {
        let (size, fence) = (9, Fence { epoch: 3, term: 1 });
        let head = Head { size, root: Hash32([root; 32]), digest: Hash32([7; 32]), fence };
        let signature = node.sign_text(&head.digest_to_sign(&pool_id).0).unwrap();
        Stated::Head(SignedHead { head, signature })
    };
    script.call("no fork", &pool, &renter, pool.prove_fork(&head(1), &head(1), None, renter.address())).await;
    script.call("fork", &pool, &renter, pool.prove_fork(&head(1), &head(2), None, renter.address())).await;
    script.call("fork again", &pool, &renter, pool.prove_fork(&head(1), &head(2), None, renter.address())).await;
    script.said
}

#[tokio::test]
async fn a_script_of_every_call_says_the_same_on_both_chains_to_the_byte() {
    let chains = Chain::each("a_script_of_every_call_says_the_same_on_both_chains_to_the_byte").await;
    let mut said = Vec::new();
    for chain in &chains {
        said.push(play(chain).await);
    }
    let refused = said[0].iter().filter(|(_, said)| said.is_err()).count();
    assert_eq!(refused, 1 + 9, "{:#?}", said[0]);
    let [first, others @ ..] = &said[..] else { unreachable!("there is always the embedded chain") };
    for other in others {
        for (ours, theirs) in first.iter().zip(other) {
            assert_eq!(ours, theirs);
        }
    }
}
