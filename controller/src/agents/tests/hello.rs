//! Each lie that a hello can tell.

use std::time::Duration;

use selion_api::agent::{Fence, Head, SignedHead, SignedHello, SignedWelcome, ToAgent, Welcome};
use selion_api::commit::signing_digest;
use selion_api::{Account, Hash32, NodeSpec, Reason, Signature};
use selion_contracts::signer::recover_text;
use selion_market::Input;
use selion_market::state::PoolTerms;

use super::super::core::Claim;
use super::super::counts::Bad;
use super::super::liveness::{SWEEP, Sweeper};
use super::agent::{Agent, CHALLENGE};
use super::fake::{AUTHORITY, Fake, OURS};
use super::key::Key;
use super::world::{POOL, World, grant, register, spec};

/// Nothing of the hello reached the log, and it was counted.
fn assert_not_entered(world: &World) {
    assert_eq!(world.core.count(|_| true), 0);
    assert_eq!(world.hub.bad(Bad::Hello), 1);
    assert_eq!(world.hub.live().links, 0);
}

#[tokio::test]
async fn an_honest_hello_is_entered_welcomed_and_told_what_to_hold() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(spec(world.key.node()));
    agent.say(&world.key, hello.clone()).await;
    let welcome = agent.next().await;
    let Some(ToAgent::Welcome { token, signed: SignedWelcome { welcome, signature }, .. }) = welcome else {
        panic!("{welcome:?}");
    };
    let (node, challenge) = (world.key.node(), CHALLENGE);
    assert_eq!(welcome, Welcome { node, challenge, fence: OURS, last_seq: 0 });
    let by = recover_text(&welcome.digest_to_sign(&POOL).0, &signature);
    assert_eq!((token.as_str(), by), ("token", Some(Account(Key::new(AUTHORITY).node().0))));
    // The log has all of it, as the node signed it.
    let signature = world.key.sign(&signing_digest(&POOL, "hello", &hello));
    let entered = Input::Linked(Box::new(SignedHello { hello, signature }));
    assert_eq!(*world.core.entered.lock().unwrap(), [entered]);
    assert_eq!(world.hub.live().links, 1);
}

#[tokio::test]
async fn a_hello_signed_by_another_key_is_refused() {
    let world = World::start().await;
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(spec(world.key.node()));
    agent.say(&Key::new(8), hello).await;
    let (reason, detail) = agent.refusal().await;
    assert_eq!(reason, Reason::BadRequest);
    assert!(detail.contains("node's own key"), "{detail}");
    assert_not_entered(&world);
}

#[tokio::test]
async fn a_node_that_nobody_registered_is_refused() {
    let world = World::start().await;
    let mut agent = Agent::connect(&world.url).await;
    let key = Key::new(8);
    let hello = agent.hello(spec(key.node()));
    agent.say(&key, hello).await;
    assert_eq!(agent.refusal().await.0, Reason::UnknownNode);
    assert_not_entered(&world);
}

#[tokio::test]
async fn a_node_of_another_provider_is_refused() {
    let world = World::start().await;
    let mut agent = Agent::connect(&world.url).await;
    let mut mine = spec(world.key.node());
    mine.provider = Account([1; 20]);
    let hello = agent.hello(mine);
    agent.say(&world.key, hello).await;
    assert_eq!(agent.refusal().await.0, Reason::UnknownNode);
    assert_not_entered(&world);
}

#[tokio::test]
async fn a_hello_for_an_older_challenge_is_refused() {
    let world = World::start().await;
    let old = Agent::connect(&world.url).await.nonce;
    let mut agent = Agent::connect(&world.url).await;
    let mut hello = agent.hello(spec(world.key.node()));
    hello.nonce = old;
    agent.say(&world.key, hello).await;
    let (reason, detail) = agent.refusal().await;
    assert_eq!(reason, Reason::BadRequest);
    assert!(detail.contains("challenge"), "{detail}");
    assert_not_entered(&world);
}

#[tokio::test]
async fn an_agent_of_another_version_is_told_to_update() {
    let world = World::start().await;
    let mut agent = Agent::connect(&world.url).await;
    let mut hello = agent.hello(spec(world.key.node()));
    hello.version += 1;
    agent.say(&world.key, hello).await;
    assert_eq!(agent.refusal().await.0, Reason::UnknownVersion);
    assert_not_entered(&world);
}

#[tokio::test]
async fn hardware_that_is_not_on_offer_is_refused() {
    let world = World::start().await;
    let mut agent = Agent::connect(&world.url).await;
    let mut more = spec(world.key.node());
    more.gpus[0].mem_bytes *= 2;
    let hello = agent.hello(more);
    agent.say(&world.key, hello).await;
    let (reason, detail) = agent.refusal().await;
    assert_eq!(reason, Reason::SpecMismatch);
    assert!(detail.contains("set the offer again"), "{detail}");
    assert_not_entered(&world);
}

#[tokio::test]
async fn a_node_whose_offer_is_not_final_is_told_to_wait() {
    let world = World::start().await;
    let node = world.key.node();
    let set = |core: &Fake| core.state.lock().unwrap().nodes.get_mut(&node).unwrap().offer = None;
    set(&world.core);
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(spec(node));
    agent.say(&world.key, hello).await;
    assert_eq!(agent.refusal().await.0, Reason::ChainUnconfirmed);
    assert_not_entered(&world);
}

#[tokio::test]
async fn a_node_that_holds_a_lease_may_come_back_after_its_offer_was_closed() {
    let world = World::start().await;
    let node = world.key.node();
    grant(&world.core, node);
    {
        let mut state = world.core.state.lock().unwrap();
        let known = state.nodes.get_mut(&node).unwrap();
        known.offer = None;
        known.spec = Some(spec(node));
    }
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(spec(node));
    agent.say(&world.key, hello).await;
    assert!(matches!(agent.next().await, Some(ToAgent::Welcome { .. })));
}

#[tokio::test]
async fn an_agent_that_obeyed_a_higher_fence_is_refused_and_the_controller_is_told() {
    let world = World::start().await;
    let mut agent = Agent::connect(&world.url).await;
    let mut hello = agent.hello(spec(world.key.node()));
    hello.fence = Fence { term: OURS.term + 1, ..OURS };
    agent.say(&world.key, hello.clone()).await;
    assert_eq!(agent.refusal().await.0, Reason::StaleFence);
    assert_not_entered(&world);
    let claim = Claim::HigherFence { node: world.key.node(), fence: hello.fence };
    assert_eq!(*world.core.claims.lock().unwrap(), [claim]);
}

/// The pool's authority, for heads that count as proof.
fn crown(world: &World, authority: &Key) {
    let account = Account(authority.node().0);
    world.core.state.lock().unwrap().pool = Some(PoolTerms {
        token: Default::default(),
        vault: Default::default(),
        fee_bps: 0,
        allow_simulated: true,
        allow_unsandboxed: true,
        finality_depth: 0,
        min_stake: selion_api::Amount(0),
        authority: account,
        epoch: OURS.epoch,
        anchored: 0,
    });
}

fn head(size: u64, root: u8, key: &Key) -> SignedHead {
    let head = Head { size, root: Hash32([root; 32]), digest: Hash32::ZERO, fence: OURS };
    SignedHead { head, signature: key.sign(&head.digest_to_sign(&POOL)) }
}

async fn hello_with(world: &World, head: SignedHead) -> Agent {
    let mut agent = Agent::connect(&world.url).await;
    let mut hello = agent.hello(spec(world.key.node()));
    hello.head = Some(head);
    agent.say(&world.key, hello).await;
    agent
}

#[tokio::test]
async fn an_agent_that_saw_a_head_of_our_log_is_welcome() {
    let world = World::start().await;
    world.core.roots.lock().unwrap().insert(10, Hash32([1; 32]));
    let mut agent = hello_with(&world, head(10, 1, &Key::new(1))).await;
    assert!(matches!(agent.next().await, Some(ToAgent::Welcome { .. })));
}

#[tokio::test]
async fn a_signed_head_of_a_longer_log_proves_a_restored_backup() {
    let world = World::start().await;
    let authority = Key::new(1);
    crown(&world, &authority);
    let shown = head(10, 1, &authority);
    let mut agent = hello_with(&world, shown).await;
    let (reason, detail) = agent.refusal().await;
    assert_eq!(reason, Reason::StaleFence);
    assert!(detail.contains("restored backup"), "{detail}");
    assert_not_entered(&world);
    let claim = Claim::ForeignHead { node: world.key.node(), head: shown, ours: None };
    assert_eq!(*world.core.claims.lock().unwrap(), [claim]);
}

#[tokio::test]
async fn what_was_signed_in_an_earlier_epoch_beyond_its_anchor_does_not_bind() {
    let world = World::start().await;
    let mut shown = head(10, 1, &Key::new(1));
    shown.head.fence.epoch = OURS.epoch - 1;
    let mut agent = hello_with(&world, shown).await;
    assert!(matches!(agent.next().await, Some(ToAgent::Welcome { .. })));
}

#[tokio::test]
async fn a_signed_head_with_another_root_proves_a_fork() {
    let world = World::start().await;
    let authority = Key::new(1);
    crown(&world, &authority);
    world.core.roots.lock().unwrap().insert(10, Hash32([2; 32]));
    let mut agent = hello_with(&world, head(10, 1, &authority)).await;
    let (_, detail) = agent.refusal().await;
    assert!(detail.contains("fork"), "{detail}");
    assert_eq!(world.core.claims.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_head_that_the_authority_never_signed_stops_only_its_agent() {
    let world = World::start().await;
    crown(&world, &Key::new(1));
    let mut agent = hello_with(&world, head(10, 1, &Key::new(2))).await;
    assert_eq!(agent.refusal().await.0, Reason::StaleFence);
    assert!(world.core.claims.lock().unwrap().is_empty());
}

#[tokio::test]
async fn while_agents_are_heard_nothing_is_entered_or_signed_and_then_they_are_welcomed() {
    let world = World::start().await;
    let node = world.key.node();
    world.core.state.lock().unwrap().nodes.get_mut(&node).unwrap().linked = true;
    world.hub.hold();
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(spec(node));
    agent.say(&world.key, hello).await;
    assert_eq!(world.hub.heard(Duration::from_secs(30)).await, []);
    assert_eq!((world.core.count(|_| true), world.core.signed()), (0, 0));
    world.hub.open();
    assert!(matches!(agent.next().await, Some(ToAgent::Welcome { .. })));
    assert_eq!(world.core.count(|it| matches!(it, Input::Linked { .. })), 1);
}

#[tokio::test]
async fn a_restored_backup_is_told_by_an_agent_that_it_does_not_know_before_it_signs() {
    let world = World::start().await;
    let authority = Key::new(1);
    crown(&world, &authority);
    world.core.state.lock().unwrap().nodes.clear();
    world.hub.hold();
    let shown = head(10, 1, &authority);
    let mut agent = hello_with(&world, shown).await;
    assert_eq!(agent.refusal().await.0, Reason::StaleFence);
    let claim = Claim::ForeignHead { node: world.key.node(), head: shown, ours: None };
    assert_eq!(*world.core.claims.lock().unwrap(), [claim]);
    assert_eq!((world.core.count(|_| true), world.core.signed()), (0, 0));
}

#[tokio::test]
async fn a_spec_beyond_the_limits_is_refused_before_the_chain_is_looked_at() {
    let world = World::start().await;
    let mut agent = Agent::connect(&world.url).await;
    let mut wide = spec(world.key.node());
    wide.gpus = vec![wide.gpus[0].clone(); 2];
    register(&world.core, &wide);
    let hello = agent.hello(wide);
    agent.say(&world.key, hello).await;
    let (reason, detail) = agent.refusal().await;
    assert_eq!(reason, Reason::BadRequest);
    assert!(detail.contains("one GPU twice"), "{detail}");
    assert_not_entered(&world);
}

#[tokio::test]
async fn words_that_would_forge_a_peers_file_or_a_terminal_are_refused_with_the_remedy() {
    let line = |spec: &mut NodeSpec| spec.address = "203.0.113.9:1 1\n0 attacker.example".into();
    let title = |spec: &mut NodeSpec| spec.region = "\u{1b}]0;owned\u{7}".into();
    for (change, remedy) in [(&line as &dyn Fn(&mut NodeSpec), "--address HOST"), (&title, "printable")] {
        let world = World::start().await;
        let mut lie = spec(world.key.node());
        change(&mut lie);
        register(&world.core, &lie);
        let mut agent = Agent::connect(&world.url).await;
        let hello = agent.hello(lie);
        agent.say(&world.key, hello).await;
        let (reason, detail) = agent.refusal().await;
        assert_eq!(reason, Reason::BadRequest);
        assert!(detail.contains(remedy), "{detail}");
        assert_not_entered(&world);
    }
}

#[tokio::test]
async fn an_unsigned_hello_is_refused() {
    let world = World::start().await;
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(spec(world.key.node()));
    let said = SignedHello { hello, signature: Signature::ZERO };
    agent.send(&selion_api::agent::ToController::Hello(Box::new(said))).await;
    assert!(agent.refusal().await.1.contains("not signed"));
    assert_not_entered(&world);
}

#[tokio::test]
async fn j12_a_node_that_registers_again_has_its_new_hardware_a_stranger_changes_nothing_and_a_silent_node_expires() {
    let world = World::start().await;
    let node = world.key.node();
    let known = || world.core.state.lock().unwrap().nodes.clone();
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(spec(node));
    agent.say(&world.key, hello).await;
    assert!(matches!(agent.next().await, Some(ToAgent::Welcome { .. })));
    assert_eq!(known()[&node].spec, Some(spec(node)));
    drop(agent);

    // The owner put another card in and set the offer again.
    let mut changed = spec(node);
    (changed.gpus[0].model, changed.gpus[0].mem_bytes) = ("H200 141GB".into(), 141 << 30);
    world.core.state.lock().unwrap().nodes.get_mut(&node).unwrap().offer = Some(changed.hash());
    let mut agent = Agent::connect(&world.url).await;
    let hello = agent.hello(changed.clone());
    agent.say(&world.key, hello).await;
    assert!(matches!(agent.next().await, Some(ToAgent::Welcome { .. })));
    assert_eq!(known()[&node].spec, Some(changed));

    let (before, stranger) = (known(), Key::new(8));
    let mut other = Agent::connect(&world.url).await;
    let hello = other.hello(spec(stranger.node()));
    other.say(&stranger, hello).await;
    assert_eq!(other.refusal().await.0, Reason::UnknownNode);
    assert_eq!(known(), before, "nothing is known of a node that the chain does not have");

    // Nothing is heard of it from here on: `now` is handed in, so this takes no time.
    let mut now = tokio::time::Instant::now();
    let mut sweeper = Sweeper::new(now);
    for _ in 0..40 {
        now += SWEEP;
        sweeper.sweep(world.hub.inner(), now).await;
    }
    assert!(!known()[&node].linked);
}
