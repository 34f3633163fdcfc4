//! The fill-out value of a node, remembered within an epoch.

use alloc::sync::Arc;

use super::futures::Futures;
use super::memo::{Key, Memo, rounded};
use super::mix::Mix;
use super::stock::Stock;

/// How much GPU is expected to stay unused on a node that is filled to the end.
#[derive(Clone, Debug)]
pub struct Fill {
    futures: Arc<Futures>,
    memo: Option<Memo>, // none: the value is never asked for
}

impl Fill {
    /// Values for about `nodes` nodes, or none at all.
    #[must_use]
    pub fn new(wanted: bool, nodes: usize) -> Self {
        Self { futures: Arc::default(), memo: wanted.then(|| Memo::new(nodes.saturating_mul(32))) }
    }

    /// The same values, with a memory of its own for about `places` of them.
    #[must_use]
    pub fn sharing(&self, places: usize) -> Self {
        Self { futures: self.futures.clone(), memo: self.memo.as_ref().map(|_| Memo::new(places)) }
    }

    /// True if values are asked for.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.memo.is_some()
    }

    /// Begins an epoch with `mix`, CPU-only wants at `host` of [`super::draws::ALL`].
    pub fn learn(&mut self, mix: &Mix, host: u32) {
        if let Some(memo) = &mut self.memo {
            self.futures = Arc::new(Futures::of(mix, host));
            memo.forget();
        }
    }

    /// Milli expected to stay unused on `stock`, summed over all futures: CPU rounded down to a core and memory to
    /// 8 GiB. 0 where values are not asked for.
    pub fn lost(&mut self, stock: &Stock) -> u32 {
        let Some(memo) = &mut self.memo else { return 0 };
        let (stock, rest) = self.futures.touched(stock);
        let lost = match Key::of(&stock) {
            Some(key) => memo.get(key, || self.futures.left(&rounded(&stock))),
            None => self.futures.left(&rounded(&stock)),
        };
        lost.wrapping_add(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::draws::ALL;
    use super::*;
    use crate::engine::view::{Shape, View, Want};

    #[test]
    fn a_remembered_value_is_the_computed_one_and_a_new_epoch_forgets_it() {
        let want = |milli| Want { shape: Shape::Share(milli), cpu: 1000, ram: 0, models: u64::MAX };
        let stock = Stock::of(&View { model: 0, cpu: 9999, ram: 9999, left: &[1000, 450] });
        let mut fill = Fill::new(true, 1);
        fill.learn(&Mix::oracle(&[(want(400), 1)]), ALL);
        assert_eq!((fill.lost(&stock), fill.lost(&stock)), (250 * 16, 250 * 16));
        fill.learn(&Mix::oracle(&[(want(500), 1)]), ALL);
        assert_eq!(fill.lost(&stock), 450 * 16);
        assert_eq!(Fill::new(false, 1).lost(&stock), 0);
    }
}
