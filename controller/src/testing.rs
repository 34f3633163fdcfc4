//! What tests of several rooms share: the embedded development chain, and a pool on it.

use std::path::Path;

use selion_api::{Account, Amount};
use selion_contracts::{Pool, Rpc, Signer};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::keys::Keys;
use crate::mirror::pool::{PoolFile, PoolOptions, create_pool};

/// One coin, in wei.
pub(crate) const ETHER: u128 = 1_000_000_000_000_000_000;

/// A development chain on a free port; its URL.
pub(crate) async fn chain(dir: &Path, stop: &CancellationToken) -> (String, JoinHandle<()>) {
    let config = selion_devchain::Config {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: dir.join("chain"),
        dev_methods: selion_devchain::DevMethods::All,
        ..selion_devchain::Config::default()
    };
    let (tell, told) = tokio::sync::oneshot::channel();
    let stop = stop.clone();
    let task = tokio::spawn(async move {
        let ready = move |address| tell.send(address).unwrap();
        selion_devchain::serve(config, stop, ready).await.unwrap();
    });
    (format!("http://{}", told.await.unwrap()), task)
}

/// The owner of pools for tests.
pub(crate) fn owner() -> Signer {
    Signer::from_bytes(&[77; 32]).unwrap()
}

/// A provider of a development pool, registered with its stake; the same one for the same number.
pub(crate) async fn provider(pool: &Pool, number: u8) -> Account {
    let owner = Signer::from_bytes(&[number; 32]).unwrap();
    pool.rpc.give_coins(owner.account(), ETHER).await.unwrap();
    let stake = Amount(1_000_000);
    for call in [
        pool.mint(owner.address(), stake.0.into()),
        pool.approve_controller(),
        pool.register_provider(owner.address(), stake),
    ] {
        pool.send(&owner, call).await.unwrap();
    }
    owner.account()
}

/// A pool for development, whose authority's keys are made in `data`.
pub(crate) async fn pool(url: &str, data: &Path) -> (Keys, PoolFile) {
    let (rpc, keys) = (Rpc::new(url).unwrap(), Keys::open(data, None).unwrap());
    let owner = owner();
    for who in [keys.authority(), owner.account()] {
        rpc.give_coins(who, ETHER).await.unwrap();
    }
    let options = PoolOptions::development(owner.account(), keys.authority());
    let file = create_pool(&rpc, &owner, &options).await.unwrap();
    (keys, file)
}
