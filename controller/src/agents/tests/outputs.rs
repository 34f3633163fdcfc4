//! What nodes say of outputs is taken from who held the member, and in no other words than its report.

use selion_api::agent::{MemberEvent, Outputs, ToAgent, ToController};
use selion_api::commit::salted;
use selion_api::outputs::OutputState;

use super::super::counts::Bad;
use super::agent::{Agent, report, settle, signed};
use super::world::{LEASE, SALT, World, grant};

const CID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

fn exited(world: &World, seq: u64, cid: &str) -> ToController {
    let event = MemberEvent::Exited { code: 0, outputs: Some(salted(&SALT, cid.as_bytes())) };
    signed(&world.key, report(&world.key, seq, event))
}

fn left(state: OutputState, cid: &str) -> Outputs {
    let cid = Some(cid.to_owned());
    Outputs {
        lease: LEASE,
        attempt: 1,
        member: 0,
        state,
        cid,
        bytes: 3,
        files: 1,
        skipped: 0,
        named: Vec::new(),
        why: None,
    }
}

/// The state of what the controller has down, told and answered.
async fn say_of_outputs(agent: &mut Agent, said: Outputs) {
    let Outputs { lease, attempt, member, state, .. } = said;
    agent.send(&ToController::Outputs(said)).await;
    let mut heard = agent.next().await;
    while matches!(heard, Some(ToAgent::Desired(_))) {
        heard = agent.next().await;
    }
    assert_eq!(heard, Some(ToAgent::OutputsHeard { lease, attempt, member, state }));
}

fn down(world: &World) -> Vec<(u32, OutputState, Option<String>)> {
    let rows = world.core.outputs.lock().unwrap();
    rows.values().map(|told| (told.outputs.attempt, told.outputs.state, told.outputs.cid.clone())).collect()
}

#[tokio::test]
async fn outputs_are_taken_from_the_node_that_holds_the_member_in_either_order() {
    for outputs_first in [true, false] {
        let world = World::start().await;
        grant(&world.core, world.key.node());
        let mut agent = Agent::link(&world).await;
        if outputs_first {
            say_of_outputs(&mut agent, left(OutputState::Kept, CID)).await;
            agent.send(&exited(&world, 1, CID)).await;
        } else {
            agent.send(&exited(&world, 1, CID)).await;
            assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 1 }));
            say_of_outputs(&mut agent, left(OutputState::Kept, CID)).await;
        }
        settle(&mut agent, &world, 2).await;
        assert_eq!(down(&world), [(1, OutputState::Kept, Some(CID.to_owned()))]);
    }
}

#[tokio::test]
async fn outputs_that_the_nodes_report_does_not_commit_to_are_not_kept_in_either_order() {
    for outputs_first in [true, false] {
        let world = World::start().await;
        grant(&world.core, world.key.node());
        let mut agent = Agent::link(&world).await;
        let other = left(OutputState::Kept, "bafkreiother");
        if outputs_first {
            say_of_outputs(&mut agent, other).await;
            agent.send(&exited(&world, 1, CID)).await;
        } else {
            agent.send(&exited(&world, 1, CID)).await;
            assert_eq!(agent.next().await, Some(ToAgent::Ack { seq: 1 }));
            say_of_outputs(&mut agent, other).await;
        }
        settle(&mut agent, &world, 2).await;
        assert_eq!(down(&world), []);
        assert_eq!(world.hub.bad(Bad::ForeignOutputs), 1);
    }
}

#[tokio::test]
async fn an_upload_goes_on_after_the_lease_is_elsewhere_and_from_nobody_else() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    say_of_outputs(&mut agent, left(OutputState::Uploading, CID)).await;
    // The lease runs again on another node.
    {
        let mut state = world.core.state.lock().unwrap();
        let member = &mut state.leases.get_mut(&LEASE).unwrap().members[0];
        (member.attempt, member.node) = (2, selion_api::NodeId([9; 20]));
        state.nodes.get_mut(&world.key.node()).unwrap().held.clear();
    }
    say_of_outputs(&mut agent, left(OutputState::Kept, CID)).await;
    assert_eq!(down(&world), [(1, OutputState::Kept, Some(CID.to_owned()))]);
    // It never had this run.
    say_of_outputs(&mut agent, Outputs { attempt: 2, ..left(OutputState::Kept, CID) }).await;
    assert_eq!(down(&world).len(), 1);
    assert_eq!(world.hub.bad(Bad::ForeignOutputs), 1);
}

#[tokio::test]
async fn what_is_said_of_outputs_is_bounded_and_printable_or_not_taken() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    for bad in [
        left(OutputState::Kept, &"x".repeat(300)),
        left(OutputState::Kept, "\u{1b}[2J"),
        Outputs { skipped: 1, ..left(OutputState::Kept, CID) },
    ] {
        say_of_outputs(&mut agent, bad).await;
    }
    assert_eq!(down(&world), []);
    assert_eq!(world.hub.bad(Bad::ForeignOutputs), 3);
}
