//! Anchors the newest signed head on chain, if there is something new in the log.

use selion_api::TimeMs;
use selion_api::chain::ChainEvent;
use selion_contracts::Pool;
use selion_market::{Input, State};

use super::outbox::Desk;
use super::vouchers::{Office, in_force};
use crate::sequencer::Step;
use crate::store::outbox::{Kind, Order};
use crate::store::{Store, head};

/// Whether an entry is worth an anchor. The entry that tells of our own anchor is not: an idle pool would anchor for
/// ever.
#[must_use]
pub fn is_news(step: &Step) -> bool {
    match &step.input {
        Input::Block(block) => !block.events.iter().all(|event| matches!(event, ChainEvent::Anchored { .. })),
        Input::Tick | Input::Continue => !step.outcome.effects.is_empty(),
        // How far a node is concerns nobody's money; the next anchor covers it.
        Input::Measured { .. } => false,
        _ => true,
    }
}

/// Why an anchor that waits unsigned is not needed any more.
#[must_use]
pub fn superseded(state: &State, order: &Order) -> Option<&'static str> {
    let size: u64 = order.subject.parse().ok()?;
    let anchored = state.pool.as_ref()?.anchored;
    (anchored >= size).then_some("a head of this size or larger is anchored already")
}

/// Orders an anchor of the newest head, unless the first `want` entries are anchored or on their way. Returns its size.
///
/// # Errors
///
/// When SQLite fails.
pub async fn pass(
    store: &Store,
    anchored: u64,
    want: u64,
    office: &Office,
    desk: &Desk,
    pool: &Pool,
    now: TimeMs,
) -> sqlx::Result<Option<u64>> {
    let Some(newest) = head::newest(&store.readers).await? else {
        return Ok(None);
    };
    let newest = newest.head;
    let on_its_way = desk.pending(Kind::Anchor).await?;
    let on_its_way = on_its_way.and_then(|row| row.order.subject.parse().ok());
    let covered = anchored.max(on_its_way.unwrap_or(0));
    if covered >= want.min(newest.size)
        || newest.fence.epoch != office.fence.epoch
        || !in_force(store, office.fence).await?
    {
        return Ok(None);
    }
    let call = pool.anchor(newest.fence.epoch, newest.size, newest.root, newest.digest);
    let order = Order { kind: Kind::Anchor, subject: newest.size.to_string(), target: call.to, calldata: call.data };
    desk.order(&order, now).await?;
    Ok(Some(newest.size))
}
