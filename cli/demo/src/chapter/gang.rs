//! A gang: three members over several nodes, all or nothing.

use std::collections::BTreeSet;

use selion_api::lease::LeaseState;
use selion_api::rest::{LogLine, Network, PlainRoot};
use selion_api::{BoxFeature, LeaseId, NodeId};
use serde_json::{Value, json};

use super::fleet::{A100, H100, RTX};
use crate::fault::{Expecting, Told, expect};
use crate::program::{apart, meet};
use crate::renter::{PATIENCE, Renter, member, mig, request, share};
use crate::tail::Tail;

/// Members of the gang.
const MEMBERS: usize = 3;

/// A gang and its lines.
pub(super) struct Gang {
    pub id: LeaseId,
    pub tail: Tail,
}

/// Leases a gang, and waits until its members know each other.
pub(super) async fn start(renter: &Renter) -> Told<(Value, Gang)> {
    let members = vec![member(mig("2g.20gb"), H100), member(mig("2g.20gb"), A100), member(share(200, 4), RTX)];
    let mut wanted = request(members, meet());
    wanted.min_nodes = 2;
    // It meets its peers by a language that the small base has not, and these machines show theirs.
    wanted.root = PlainRoot::Machine;
    // Where the machine has no `slirp4netns` or `nft`, members run and do not meet.
    let nodes = renter.nodes().await?;
    let meet = nodes.iter().all(|node| node.features.has(BoxFeature::Gang));
    if !meet {
        wanted.network = Some(Network::Apart);
        wanted.command = apart();
    }
    let asked = renter.ask(wanted).await.expecting("a gang to be leased")?;
    let gang = Gang { id: asked.id, tail: Tail::follow(&renter.client, asked.id) };
    let evidence = met(renter, &gang, 1).await?;
    Ok((evidence, gang))
}

/// Run `attempt` is active, and every member said who it is and met the others.
pub(super) async fn met(renter: &Renter, gang: &Gang, attempt: u32) -> Told<Value> {
    let active = renter.event(gang.id, LeaseState::Active, attempt).await?;
    let lease = renter.client.lease(gang.id).await?;
    let nodes: BTreeSet<NodeId> = lease.members.iter().map(|member| member.node).collect();
    expect(
        lease.members.len() == MEMBERS && nodes.len() >= 2,
        "three members on at least two nodes",
        format!("{:?}", lease.members),
    )?;
    let said = |heard: &LogLine, rank: usize, what: &str| {
        heard.attempt == attempt && usize::from(heard.member) == rank && heard.text.starts_with(what)
    };
    let all = |lines: &[LogLine], what: &str| {
        (0..MEMBERS).all(|rank| lines.iter().any(|heard| said(heard, rank, &what.replace('N', &rank.to_string()))))
    };
    let with_peers = |lines: &[LogLine]| all(lines, "rank N of 3, peers ").then_some(());
    gang.tail.find(PATIENCE, "a line of each member with its rank and peers", with_peers).await?;
    let or_no_tool = |lines: &[LogLine]| {
        let none = lines.iter().any(|heard| heard.text.starts_with("peers not called: "));
        (all(lines, "rank N met everybody") || none).then_some(!none)
    };
    let connected = gang.tail.find(PATIENCE, "each member to reach the others over TCP", or_no_tool).await?;
    let lines: Vec<String> =
        gang.tail.lines().into_iter().filter(|heard| heard.attempt == attempt).map(|heard| heard.text).collect();
    let places = lease.members.iter().map(|member| {
        json!({ "rank": member.rank, "node": member.node, "gpus": member.gpus, "slot": member.slot, "address": member.address })
    });
    Ok(json!({
        "lease": gang.id,
        "attempt": attempt,
        "active_entry": active.entry,
        "nodes": nodes.len(),
        "members": places.collect::<Vec<_>>(),
        "peers_connected": connected,
        "lines": lines,
    }))
}
