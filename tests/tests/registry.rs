//! J4: what is registered on chain is found at the controller.

use std::time::Instant;

use anyhow::{Context, Result};
use selion_api::chain::ComponentKind;
use selion_api::{Amount, TimeMs};
use selion_contracts::{BlockTag, Receipt, Signer};
use selion_tests::{Controller, Pool, until};

const STAKE: u64 = 1_000_000;
const COINS: u128 = 1_000_000_000_000_000_000;

/// The endpoint of `of`'s gateway in the first answer that is not older than this block.
async fn found(controller: &Controller, of: &Signer, since: &Receipt) -> Result<Option<String>> {
    until("the block of the registration", async || {
        let registry = controller.client.registry().await?;
        if registry.block_number < since.block_number {
            return Ok(None);
        }
        let mut entries = registry.components.into_iter();
        let entry = entries.find(|entry| entry.owner == of.account() && entry.kind == ComponentKind::Gateway);
        Ok(Some(entry.map(|entry| entry.endpoint)))
    })
    .await
}

#[tokio::test]
async fn j4_a_registration_is_found_with_its_block_and_gone_when_its_owner_ends_it() -> Result<()> {
    let pool = Pool::open().await?;
    let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
    let (contracts, owner) = (&pool.contracts, Signer::random()?);
    contracts.rpc.give_coins(owner.account(), COINS).await?;
    let calls = [
        contracts.mint(owner.address(), STAKE.into()),
        contracts.approve_controller(),
        contracts.register_provider(owner.address(), Amount(STAKE)),
    ];
    for call in calls {
        contracts.send(&owner, call).await?;
    }
    let register = async |endpoint: &str, until| {
        let call = contracts.register_component(ComponentKind::Gateway, endpoint, until);
        contracts.send(&owner, call).await.context(endpoint.to_owned())
    };

    let soon = contracts.rpc.header(BlockTag::Latest).await?.time_s + 3_600;
    // In the very block that holds it, not in one after that.
    for endpoint in ["http://here.example", "http://there.example"] {
        let block = register(endpoint, TimeMs(soon * 1_000)).await?;
        let mined = Instant::now();
        assert_eq!(found(&controller, &owner, &block).await?.as_deref(), Some(endpoint));
        eprintln!("found {} ms after its block", mined.elapsed().as_millis());
    }
    let block = register("http://there.example", TimeMs(1_000)).await?;
    assert_eq!(found(&controller, &owner, &block).await?, None);
    Ok(())
}
