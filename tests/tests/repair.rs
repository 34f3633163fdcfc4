//! A gang loses an agent: its member runs again elsewhere while the other one runs on, and the bills say who ran when.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use selion_api::lease::{LeaseState, OnNodeLoss};
use selion_api::rest::{Lease, NewLease};
use selion_api::slice::SliceWant;
use selion_api::{Amount, NodeId, Reason};
use selion_audit::{LogSource, Options, audit};
use selion_client::{OfferQuery, PageQuery, fresh_key};
use selion_contracts::Signer;
use selion_tests::{PATIENCE, Part, Pool, Renter, kept, until, want};

const MS_PER_HOUR: u64 = 3_600_000;
const EVERYTHING: PageQuery = PageQuery { page_size: Some(500), page_token: None };
/// Names, and first ports of members.
const AGENTS: [(&str, &str); 3] = [("one", "21000"), ("two", "21200"), ("three", "21400")];

/// Runs until it reads that a peer was repaired, and keeps what it read.
const PROGRAM: &str = r#"set -eu
until grep -q ' 2$' "$SELION_PEERS_FILE"; do sleep 0.1; done
cp "$SELION_PEERS_FILE" "$SELION_OUTPUT_DIR/peers"
sleep 1"#;

#[tokio::test]
async fn a_member_of_a_killed_agent_runs_again_elsewhere_while_its_peer_runs_on() -> Result<()> {
    let pool = Pool::open().await?;
    let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
    let mut agents = Vec::new();
    for (name, port_base) in AGENTS {
        let mut args = pool.agent_args(&controller.url, &pool.path(name), "A100 80GB");
        // They stand on one machine, and their members listen there.
        args.extend(["--port-base", port_base].map(str::to_owned));
        let mut part = Part::start(pool.home(), name, args)?;
        while part.said("event").await? != "linked" {}
        let node = NodeId(Signer::open_or_create(&pool.path(name).join("node.key"))?.account().0);
        agents.push((node, part));
    }
    let renter = Renter::funded(&pool, &controller.url, "ada", Amount(10_000_000_000)).await?;
    let client = &renter.client;
    until("three offers", async || {
        let offers = client.offers(&OfferQuery::default()).await?.offers;
        let nodes: BTreeSet<NodeId> = offers.iter().map(|offer| offer.node).collect();
        Ok((nodes.len() == AGENTS.len()).then_some(()))
    })
    .await?;

    let one = want(SliceWant::Whole, &["sh", "-c", PROGRAM]);
    let mut request = NewLease {
        members: vec![one.members[0].clone(); 2],
        min_members: Some(1),
        on_node_loss: Some(OnNodeLoss::Repair),
        ..one
    };
    let asked = client.create_signed_lease(&renter.wallet, &pool.id(), &fresh_key()?, &mut request).await?;
    let before = client.wait(asked.id, LeaseState::Active, PATIENCE).await?;
    ensure!(before.members.len() == 2, "both have a place: {before:?}");
    // Both have run for a while, and their nodes have said so.
    let billed = |lease: &Lease| lease.members.iter().all(|member| member.billable_ms > 0);
    until("a reading of each meter", async || Ok(billed(&client.lease(asked.id).await?).then_some(()))).await?;

    let lost = before.members[1].node;
    let at = agents.iter().position(|(node, _)| *node == lost).context("the agent under member 1")?;
    let (_, mut killed) = agents.swap_remove(at);
    killed.kill().await?;
    let repaired = until("another place", async || {
        let lease = client.lease(asked.id).await?;
        ensure!(lease.state != LeaseState::Waiting, "it stopped as a whole: {lease:?}");
        Ok((lease.attempt == 2).then_some(lease))
    })
    .await?;
    assert_eq!(repaired.members[0].node, before.members[0].node);
    assert!(repaired.members[1].node != lost && repaired.members[1].node != before.members[0].node);

    client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
    let ended = until("the outputs of both", async || {
        let lease = client.lease(asked.id).await?;
        ensure!(lease.reason == Some(Reason::Completed), "{lease:?}");
        Ok((kept(&lease).len() == 2).then_some(lease))
    })
    .await?;
    assert_eq!(ended.members.iter().map(|member| member.attempt).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(ended.attempts.len(), 1, "one run of the gang: {:?}", ended.attempts);
    assert_eq!(kept(&ended).get(&0), kept(&ended).get(&1), "both read the same of their peers");

    let bills = client.bills(&EVERYTHING).await?.bills;
    let mut lines: Vec<_> = bills.iter().map(|bill| bill.line.clone()).collect();
    lines.sort_by_key(|line| (line.member, line.attempt));
    assert_eq!(lines.iter().map(|line| (line.member, line.attempt)).collect::<Vec<_>>(), [(0, 1), (1, 1), (1, 2)]);
    for line in &lines {
        assert!(line.billable_ms > 0, "each run ran: {line:?}");
        assert_eq!(line.amount.0, line.rate.0 * line.billable_ms / MS_PER_HOUR);
    }
    assert!(lines[0].billable_ms > lines[1].billable_ms && lines[0].billable_ms > lines[2].billable_ms, "{lines:?}");
    assert_eq!(ended.amount.0, lines.iter().map(|line| line.amount.0).sum::<u64>());
    let account = client.account().await?;
    assert_eq!(account.reserved, Amount::ZERO, "what was kept for the rest is given back");

    let log = LogSource::Url(controller.url.clone());
    let report = audit(&Options::new(pool.rpc.clone(), pool.id().controller, log)).await?;
    for check in &report.checks {
        assert!(check.ok, "{}: {}", check.name, check.detail);
    }
    Ok(())
}
