//! Before a controller signs anything, it hears from the agents which heads they were shown: one that runs on a restored
//! backup finds out by them, and has signed nothing that contradicts what was signed before
//! (`docs/adr/0035-no-number-twice.md`).

use std::collections::BTreeSet;
use std::time::Duration;

use selion_api::NodeId;
use tokio::sync::watch;
use tokio::time::timeout;

/// Who has spoken. Links wait at it until it is over.
#[derive(Debug)]
pub(super) struct Roll {
    is_over: watch::Sender<bool>,
    heard: watch::Sender<BTreeSet<NodeId>>,
}

impl Roll {
    /// One that nobody waits at.
    pub(super) fn over() -> Self {
        Self { is_over: watch::channel(true).0, heard: watch::channel(BTreeSet::new()).0 }
    }

    /// From here on links wait.
    pub(super) fn begin(&self) {
        self.is_over.send_replace(false);
    }

    /// Whether links wait.
    pub(super) fn is_called(&self) -> bool {
        !*self.is_over.borrow()
    }

    /// Resolves when all of `nodes` have spoken, or after `patience`: to those that have not.
    pub(super) async fn call(&self, nodes: &[NodeId], patience: Duration) -> Vec<NodeId> {
        let mut heard = self.heard.subscribe();
        // The sender lives as long as self.
        drop(timeout(patience, heard.wait_for(|heard| nodes.iter().all(|node| heard.contains(node)))).await);
        let heard = self.heard.borrow();
        nodes.iter().copied().filter(|node| !heard.contains(node)).collect()
    }

    /// Whoever waits goes on.
    pub(super) fn end(&self) {
        self.is_over.send_replace(true);
        self.heard.send_replace(BTreeSet::new());
    }

    /// The agent of `node`, which is registered, was shown nothing that our log does not have. Resolves once the roll is
    /// over.
    pub(super) async fn answer(&self, node: NodeId) {
        let mut is_over = self.is_over.subscribe();
        if *is_over.borrow_and_update() {
            return;
        }
        self.heard.send_if_modified(|heard| heard.insert(node));
        drop(is_over.wait_for(|is_over| *is_over).await);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId([number; 20])
    }

    #[tokio::test]
    async fn a_roll_ends_with_the_last_that_is_called_and_each_waits_until_then() {
        let roll = Arc::new(Roll::over());
        roll.begin();
        let calling = tokio::spawn({
            let roll = Arc::clone(&roll);
            async move { roll.call(&[node(1), node(2)], Duration::MAX).await }
        });
        let mut first = Box::pin(roll.answer(node(1)));
        assert!(first.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
        assert!(!calling.is_finished());
        let mut second = Box::pin(roll.answer(node(2)));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(calling.await.unwrap(), []);
        roll.end();
        first.await;
        second.await;
        roll.answer(node(3)).await;
    }

    #[tokio::test]
    async fn who_does_not_come_is_waited_for_so_long_and_named() {
        let roll = Roll::over();
        roll.begin();
        assert!(roll.answer(node(1)).now_or_never().is_none());
        assert_eq!(roll.call(&[node(1), node(2)], Duration::from_millis(20)).await, [node(2)]);
        assert_eq!(roll.call(&[], Duration::MAX).await, []);
    }
}
