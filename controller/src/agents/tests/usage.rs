//! Readings of what members use are taken from who holds them.

use selion_api::agent::ToController;
use selion_api::usage::{Usage, Used};

use super::agent::{Agent, settle};
use super::world::{LEASE, World, grant};

#[tokio::test]
async fn what_a_member_uses_is_taken_of_its_present_run_from_the_node_that_holds_it() {
    let world = World::start().await;
    grant(&world.core, world.key.node());
    let mut agent = Agent::link(&world).await;
    let used = |cpu_ms| Used { cpu_ms: Some(cpu_ms), memory_peak_bytes: Some(7), ..Used::default() };
    let told =
        |attempt, member, cpu_ms| ToController::Usage(Usage { lease: LEASE, attempt, member, used: used(cpu_ms) });
    for (attempt, member, cpu_ms) in [(1, 0, 10), (1, 0, 20), (2, 0, 30), (1, 1, 40)] {
        agent.send(&told(attempt, member, cpu_ms)).await;
    }
    settle(&mut agent, &world, 1).await;
    assert_eq!(world.hub.usage(LEASE, 1, 0), Some(used(20)), "the last one");
    assert_eq!((world.hub.usage(LEASE, 2, 0), world.hub.usage(LEASE, 1, 1)), (None, None), "of no such run or member");
    for member in &mut world.core.state.lock().unwrap().leases.get_mut(&LEASE).unwrap().members {
        member.node = selion_api::NodeId([9; 20]);
    }
    agent.send(&told(1, 0, 50)).await;
    settle(&mut agent, &world, 2).await;
    assert_eq!(world.hub.usage(LEASE, 1, 0), Some(used(20)), "another node holds it now");
}
