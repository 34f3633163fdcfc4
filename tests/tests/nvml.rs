//! J13: what the controller knows of a node's GPUs is what NVML told its agent.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::{Context, Result};
use selion_client::PageQuery;
use selion_tests::{Part, Pool, Renter, until};

/// The folder with our stand-in for the driver's library, under the name that is looked for.
fn driver(pool: &Pool) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let built = here.parent().and_then(|deps| deps.parent()).context("a target folder")?.join("examples/libnvml.so");
    let folder = pool.path("driver");
    std::fs::create_dir(&folder)?;
    let built = built.canonicalize().with_context(|| format!("{}: `cargo test` builds it", built.display()))?;
    symlink(built, folder.join("libnvidia-ml.so.1"))?;
    Ok(folder)
}

#[tokio::test]
async fn j13_a_node_is_known_by_what_nvml_says_of_its_cards() -> Result<()> {
    let pool = Pool::open().await?;
    let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
    let mut args = pool.agent_args(&controller.url, &pool.path("agent"), "");
    let simulate = args.iter().position(|arg| arg == "--simulate").context("a flag")?;
    args.drain(simulate..simulate + 2);
    let library = [("LD_LIBRARY_PATH", driver(&pool)?)];
    let mut agent = Part::start_with(pool.home(), "agent", args, library)?;
    while agent.said("event").await? != "linked" {}

    let renter = Renter::login(&pool, &controller.url, "ada").await?;
    let node =
        until("the node", async || Ok(renter.client.nodes(&PageQuery::default()).await?.nodes.into_iter().next()))
            .await?;
    let gpus: Vec<_> = node.gpus.iter().map(|gpu| &gpu.spec).collect();
    let facts: Vec<_> = gpus.iter().map(|gpu| (gpu.gpu.to_string(), gpu.model.as_str(), gpu.mem_bytes)).collect();
    // The third card is cut by MIG, which this version does not lease.
    let expected = [
        ("GPU-6f2a1c9e-0b57-4d1e-9c3a-51d0e8b7a001".to_owned(), "H100 80GB HBM3", 85_520_809_984),
        ("GPU-6f2a1c9e-0b57-4d1e-9c3a-51d0e8b7a002".to_owned(), "A100-SXM4-40GB", 42_949_672_960),
    ];
    assert_eq!(facts, expected);
    assert!(gpus.iter().all(|gpu| !gpu.simulated && gpu.whole.is_some()), "{gpus:?}");
    Ok(())
}
