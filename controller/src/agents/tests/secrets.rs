//! Secrets on their way to a node.

use selion_api::agent::{ToAgent, ToController};
use selion_api::commit::Expected;
use selion_api::seal::{Addressee, PrivateKey, SealKey, Sealed, Secret, SignedSealKey, open, seal};
use selion_api::{Hash32, Reason, TimeMs};

use super::agent::Agent;
use super::key::Key;
use super::world::{LEASE, POOL, SALT, World, grant, work};
use crate::store::secret::Run;

/// A lease that names one secret.
fn grant_with_secret(world: &World, pool_may_keep: bool) {
    grant(&world.core, world.key.node());
    let mut work = work();
    work.secrets = Expected { names: vec!["token".into()], pool_may_keep };
    let commitment = work.commitment(&SALT);
    world.core.state.lock().unwrap().leases.get_mut(&LEASE).unwrap().request.work = commitment;
    world.core.works.lock().unwrap().insert(commitment, (SALT, work));
}

fn of(world: &World) -> Addressee {
    Addressee { pool: POOL, lease: LEASE, attempt: 1, member: 0, node: world.key.node() }
}

fn run(world: &World) -> Run {
    Run { lease: LEASE, attempt: 1, member: 0, node: world.key.node() }
}

fn stated(world: &World, by: &Key, key: Hash32) -> ToController {
    let key = SealKey { node: world.key.node(), key, made_ms: TimeMs(1) };
    ToController::SealKey(SignedSealKey { signature: by.sign(&key.digest_to_sign(&POOL)), key })
}

async fn sealed(agent: &mut Agent) -> Sealed {
    match agent.next().await {
        Some(ToAgent::Secrets { lease: LEASE, attempt: 1, member: 0, sealed }) => sealed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_a_client_sealed_is_passed_on_as_it_is_once_and_again_to_the_next_link() {
    let world = World::start().await;
    grant_with_secret(&world, false);
    let mut agent = Agent::link(&world).await;
    let given = Sealed { to: Hash32([1; 32]), enc: Hash32([2; 32]), ciphertext: vec![3; 40] };
    world.core.sealed.lock().unwrap().push((run(&world), given.clone()));
    // Of another run: nobody is sent it.
    let other = Run { attempt: 2, ..run(&world) };
    world.core.sealed.lock().unwrap().push((other, Sealed { to: Hash32([9; 32]), ..given.clone() }));
    world.hub.secrets_came(LEASE);
    assert_eq!(sealed(&mut agent).await, given);
    // The next word is the desired state, without the same secrets after it.
    world.hub.secrets_came(LEASE);
    world.core.touch(world.key.node());
    assert!(matches!(agent.next().await, Some(ToAgent::Desired(_))));
    let anew = Sealed { ciphertext: vec![4; 40], ..given };
    world.core.sealed.lock().unwrap().push((run(&world), anew.clone()));
    world.hub.secrets_came(LEASE);
    assert_eq!(sealed(&mut agent).await, anew);
    let mut next = Agent::link(&world).await;
    assert_eq!(sealed(&mut next).await, anew);
}

#[tokio::test]
async fn what_the_pool_may_keep_it_seals_itself_to_the_key_that_the_node_states() {
    let world = World::start().await;
    grant_with_secret(&world, true);
    let secrets = vec![Secret { name: "token".into(), value: b"hunter2".to_vec() }];
    world.core.kept.lock().unwrap().insert(LEASE, secrets.clone());
    let mut agent = Agent::link(&world).await;
    for seed in [5, 6] {
        let key = PrivateKey::derive(&[seed; 32]);
        agent.send(&stated(&world, &world.key, key.public())).await;
        assert_eq!(open(&key, &of(&world), &sealed(&mut agent).await).unwrap(), secrets);
    }
    assert_eq!(world.hub.seal_key(world.key.node()).unwrap().key.key, PrivateKey::derive(&[6; 32]).public());
}

#[tokio::test]
async fn what_was_kept_is_not_used_where_the_lease_does_not_say_so() {
    let world = World::start().await;
    grant_with_secret(&world, false);
    world.core.kept.lock().unwrap().insert(LEASE, vec![Secret { name: "token".into(), value: Vec::new() }]);
    let mut agent = Agent::link(&world).await;
    agent.send(&stated(&world, &world.key, PrivateKey::derive(&[5; 32]).public())).await;
    world.hub.secrets_came(LEASE);
    world.core.touch(world.key.node());
    assert!(matches!(agent.next().await, Some(ToAgent::Desired(_))));
}

#[tokio::test]
async fn a_key_that_the_node_did_not_sign_ends_the_link() {
    let world = World::start().await;
    let mut agent = Agent::link(&world).await;
    agent.send(&stated(&world, &Key::new(8), Hash32([1; 32]))).await;
    let (reason, detail) = agent.refusal().await;
    assert!(detail.contains("sealing key"), "{reason} {detail}");
    assert_ne!(reason, Reason::NodeLost);
    assert!(world.hub.seal_key(world.key.node()).is_none());
}

#[tokio::test]
async fn the_most_that_may_be_sealed_fits_a_message() {
    let secrets: Vec<Secret> =
        (0..4).map(|at| Secret { name: at.to_string(), value: vec![0; selion_api::seal::MAX_SECRET] }).collect();
    let world = World::start().await;
    let sealed = seal(&PrivateKey::derive(&[5; 32]).public(), &of(&world), &secrets).unwrap();
    let message = ToAgent::Secrets { lease: LEASE, attempt: 1, member: 0, sealed };
    assert!(selion_api::commit::canonical(&message).len() < selion_api::agent::MAX_MESSAGE);
}
