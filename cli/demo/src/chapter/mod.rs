//! The story: one file for each of its parts, and here their order.

mod chain;
mod data;
mod fleet;
mod gang;
mod image;
mod kubo;
mod lease;
mod loss;
mod money;
mod proof;
mod queue;
mod restart;
mod settle;

use std::collections::BTreeMap;

use selion_api::LeaseId;
use selion_api::rest::NodeView;

pub(crate) use chain::Chain;

use crate::map;
use crate::renter::Renter;
use crate::stage::{Stage, Stopped};
use crate::story::{Left, Transaction};
use fleet::Machine;

/// Who and what has appeared so far.
#[derive(Default)]
struct Cast {
    chain: Option<Chain>,
    controller: String,
    renters: Vec<Renter>,
    machines: Vec<Machine>,
}

/// Tells it from the beginning. The first step that does not hold ends it; what can still be collected is.
///
/// # Errors
///
/// [`Stopped`] if a step did not hold.
pub(crate) async fn tell(stage: &mut Stage) -> Result<(), Stopped> {
    let mut cast = Cast::default();
    let told = acts(stage, &mut cast).await;
    collect(stage, &cast).await;
    told
}

async fn acts(stage: &mut Stage, cast: &mut Cast) -> Result<(), Stopped> {
    let chain = stage.step("contracts", "contracts deployed on a chain", chain::deploy).await?;
    cast.chain = Some(chain.clone());
    let url = stage
        .step("controller", "a controller serves the pool", async |stage| fleet::controller(stage, &chain).await)
        .await?;
    cast.controller.clone_from(&url);
    let renters =
        stage.step("renters", "three renters log in", async |stage| money::log_in(stage, &chain, &url).await).await?;
    cast.renters = renters.to_vec();
    let [ada, ben, cleo] = &renters;
    let machines =
        stage.step("providers", "providers registered with stake, nodes and offers on chain", async |stage| {
            fleet::providers(stage, &chain, &url, ada).await
        });
    let machines = machines.await?;
    cast.machines.clone_from(&machines);
    stage
        .step("deposits", "the renters' deposits are in the vault", async |_| money::deposit(&chain, &renters).await)
        .await?;

    let data =
        stage.step("dataset", "a dataset is added by its CID", async |stage| data::add(stage, ada).await).await?;
    stage
        .step("mig_lease", "a MIG slice runs an image, made here, on the verified data", async |stage| {
            lease::run_on_data(stage, ada, &data).await
        })
        .await?;
    let gang = stage.step("gang", "a gang of three runs on several nodes", async |_| gang::start(ben).await).await?;
    let in_the_way = stage
        .step("waiting", "a third request waits, with position and reason", async |_| queue::wait(ada, cleo).await);
    let waits = in_the_way.await?;
    show_map(stage, cast).await;
    let counter =
        stage.step("placed", "room frees, and it is placed", async |_| queue::place(ada, cleo, waits).await).await?;
    stage
        .step("refused", "a fourth is refused for its price, with the nearest miss", async |_| queue::refuse(ben).await)
        .await?;

    let parted =
        stage.step("agent_killed", "an agent is killed: its node is lost, its gang ends as a whole", async |stage| {
            loss::kill(stage, ada, ben, gang, &machines).await
        });
    let parted = parted.await?;
    show_map(stage, cast).await;
    let gang = stage.step("gang_again", "the agent is back, and the gang runs again", async |stage| {
        loss::back(stage, ben, parted).await
    });
    let gang = gang.await?;
    stage
        .step("controller_killed", "the controller is killed and restarted: leases keep running", async |stage| {
            restart::kill(stage, &url, ben, &gang, cleo, &counter).await
        })
        .await?;
    drop((gang, counter));

    let debts = stage
        .step("settled", "all leases end, bills equal vouchers", async |_| settle::release(&renters).await)
        .await?;
    stage
        .step("claimed", "vouchers are claimed on chain, in batches by provider", async |_| {
            settle::claim(&chain, &renters, &debts).await
        })
        .await?;
    stage
        .step("refunded", "paid + refunded = deposited", async |_| settle::refund(&chain, &renters, &debts).await)
        .await?;
    let report = stage.step("audit", "the audit passes, from the chain and the log alone", async |stage| {
        proof::audit(stage, &chain, &url, ada).await
    });
    stage.story.audit = report.await?;
    stage
        .step("altered", "one entry of a copy is altered, and the audit names it", async |stage| {
            proof::alter(stage, &chain, ada).await
        })
        .await
}

async fn show_map(stage: &Stage, cast: &Cast) {
    let Some(renter) = cast.renters.first() else { return };
    let Ok(mut nodes) = renter.nodes().await else { return };
    let order = |node: &NodeView| cast.machines.iter().position(|machine| machine.node == node.node);
    nodes.sort_by_key(order);
    let mut names: BTreeMap<LeaseId, String> = BTreeMap::new();
    for renter in &cast.renters {
        for lease in renter.leases().await.unwrap_or_default() {
            names.insert(lease.id, format!("{}'s, {}", renter.name, crate::renter::tell(&lease)));
        }
    }
    stage.screen.show(&map::draw(&nodes, &names, stage.screen.is_live()));
}

/// Leases, bills and transactions as they are at the end. What cannot be had any more is left out: the step that did not
/// hold says why.
async fn collect(stage: &mut Stage, cast: &Cast) {
    for renter in &cast.renters {
        stage.story.leases.extend(renter.leases().await.unwrap_or_default());
        stage.story.bills.extend(renter.bills().await.unwrap_or_default());
    }
    stage.story.leases.sort_by_key(|lease| lease.id);
    stage.story.bills.sort_by_key(|bill| (bill.entry, bill.line.member));
    let Some(chain) = &cast.chain else { return };
    for deed in chain.deeds().await.unwrap_or_default() {
        let name = |event| format!("{event:?}").split([' ', '{']).next().unwrap_or_default().to_owned();
        let events = deed.events.iter().map(name).collect();
        let (block_number, block_hash) = (deed.block_number, deed.block_hash);
        stage.story.transactions.push(Transaction { hash: deed.tx, block_number, block_hash, events });
    }
    if stage.options.keep {
        stage.story.pool = Some(left(stage, cast, chain));
    }
}

fn left(stage: &Stage, cast: &Cast, chain: &Chain) -> Left {
    Left {
        controller: cast.controller.clone(),
        chain_rpc: chain.rpc_url.clone(),
        chain_id: chain.pool.chain_id,
        pool: chain.pool.at.controller,
        vault: chain.pool.at.vault,
        token: chain.pool.at.token,
        pids: stage.crew.pids(),
        dir: stage.path(""),
        exe: stage.crew.exe().to_owned(),
        commands: stage.crew.commands(),
        keys: cast.renters.iter().map(|renter| (renter.name.to_owned(), renter.key_file.clone())).collect(),
        nodes: cast.machines.iter().map(|machine| (machine.name.clone(), machine.node)).collect(),
    }
}
