//! A node that serves another chain, under the mirror.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod edge;

use edge::actors::Actors;
use edge::chain::Chain;
use edge::follow::Mirrored;
use edge::proxy::Lies;
use selion_api::Amount;
use selion_controller::mirror::{Log as _, MirrorError, SourceError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_chain_is_named_and_nothing_of_it_is_entered() {
    let (chain, other) = (Chain::embedded(31_337).await, Chain::embedded(31_338).await);
    let (actors, strangers) = (Actors::open(&chain).await, Actors::open(&other).await);
    let mut mirrored = Mirrored::open(&actors.pool, &chain, &other, 0, actors.delegate.address(), 1).await;
    mirrored.look(&actors.pool).await;
    mirrored.catch_up().await;
    let entered = mirrored.log.entered();

    // It is ahead, and has events of a pool that was made by the same steps.
    other.mine(3).await;
    strangers.pool.send(&strangers.renters[0], strangers.pool.deposit(Amount(7))).await.unwrap();
    for _ in 0..8 {
        let told = mirrored.pass(Lies { other: 100, ..Lies::default() }, u64::MAX, false).await;
        let Err(MirrorError::Source(named)) = told else { panic!("{told:?}") };
        assert_eq!(named, SourceError::OtherChain { want: 31_337, found: 31_338 });
    }
    assert_eq!(mirrored.log.entered(), entered);
    assert!(!mirrored.log.broken(), "another chain is no reorganisation");

    // With the right node again it goes on where it was.
    actors.pool.send(&actors.renters[0], actors.pool.deposit(Amount(7))).await.unwrap();
    mirrored.look(&actors.pool).await;
    mirrored.catch_up().await;
    mirrored.assert_equal(&actors.pool, false).await;
    assert_eq!(mirrored.log.entered().len(), entered.len() + 1);
}
