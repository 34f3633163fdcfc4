//! The terms of the objective: what a placement is worth, in integers that no machine rounds differently.
//!
//! A placement's score is `floor(x / bucket) - round(price / bucket)`, the highest wins. x is what the node gains: the
//! drop of its expected final leftover ([`futures`]), the drop of its fragmentation ([`frag`]), less what is left open
//! on it (packing). It depends on the node's own state and the epoch only. The [`prices`] of slots and models depend
//! on the fleet and on the placement's [`Group`] only. So an index keeps buckets by node and adds prices by group.

mod device;
pub mod draws;
pub mod ends;
pub mod epochs;
pub mod fill;
mod filling;
pub mod frag;
pub mod futures;
pub mod grain;
mod group;
mod judge;
mod ladder;
mod ln;
mod memo;
pub mod mig;
pub mod mix;
mod most;
pub mod pace;
pub mod prices;
pub mod stock;
pub mod sums;
mod weights;

use core::ops::Range;

pub use epochs::Tick;
pub use group::Group;
pub use judge::{Candidate, Verdict};
pub use mix::Mix;
pub use weights::{Capacity, Horizon, Weights};

use self::epochs::Epochs;
use self::fill::Fill;
use self::frag::Frag;
use self::prices::Prices;
use self::stock::Stock;
use self::sums::Sums;
use super::view::{View, Want};

/// All terms of one fleet.
#[derive(Clone, Debug)]
pub struct Terms {
    weights: Weights,
    epochs: Epochs,
    mix: Mix,
    frag: Frag,
    fill: Fill,
    sums: Sums,
    prices: Prices,
    nodes: usize, // one more than the highest rank seen
    swept: u32,
}

impl Terms {
    /// The terms of an empty fleet of about `nodes` nodes (a hint for memory only), with nothing learned.
    #[must_use]
    pub fn new(weights: Weights, nodes: usize) -> Self {
        Self {
            weights,
            epochs: Epochs::default(),
            mix: Mix::default(),
            frag: Frag::default(),
            fill: Fill::new(weights.fill > 0, nodes),
            sums: Sums::default(),
            prices: Prices::default(),
            nodes: 0,
            swept: 0,
        }
    }

    /// The weights.
    #[must_use]
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The prices of the moment.
    #[must_use]
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// The learned mix.
    #[must_use]
    pub fn mix(&self) -> &Mix {
        &self.mix
    }

    /// The gradient's tables of this epoch.
    #[must_use]
    pub fn frag(&self) -> &Frag {
        &self.frag
    }

    /// Looks `arrivals` ahead with the slot price from its next refresh on: a quarter of the arrivals of a mean life.
    /// Without effect where the horizon is [`Horizon::UntilFull`].
    pub fn set_horizon(&mut self, arrivals: u32) {
        if let Horizon::Arrivals(ahead) = &mut self.weights.horizon {
            *ahead = arrivals.max(1);
        }
    }

    /// Takes a known mix for the learned one, for good, and begins an epoch. Every score is void.
    pub fn set_oracle(&mut self, known: &[(Want, u64)]) {
        self.mix = Mix::oracle(known);
        self.begin_epoch();
        self.refresh();
    }

    /// Learns one arrival, placed or refused, before it is placed, and says what is void after it.
    pub fn arrive(&mut self, want: &Want) -> Tick {
        self.mix.arrive(want);
        let tick = self.epochs.arrive(self.nodes);
        if tick.epoch {
            self.begin_epoch();
        }
        if tick.prices {
            self.refresh();
        }
        tick
    }

    /// Node `rank` is now as `view` shows, or gone. To be called at every change of a node, and for what [`Self::sweep`]
    /// says.
    pub fn touch(&mut self, rank: u32, view: Option<&View<'_>>) {
        self.nodes = self.nodes.max((rank as usize).saturating_add(1));
        let Some(view) = view else { return self.sums.set(rank, None) };
        let stock = Stock::of(view);
        let lost = self.fill.lost(&stock);
        self.sums.set(rank, Some((&stock, view.left.len(), lost)));
    }

    /// The ranks whose part of the sums is oldest: to be touched now, once per arrival. All are touched once a period,
    /// so that no arrival pays for a scan.
    pub fn sweep(&mut self) -> Range<u32> {
        let nodes = u32::try_from(self.nodes).unwrap_or(u32::MAX);
        if !self.fill.wanted() {
            return 0..0;
        }
        let share = (self.nodes as u64).div_ceil(epochs::period(self.nodes));
        let first = if self.swept < nodes { self.swept } else { 0 };
        let end = first.saturating_add(u32::try_from(share).unwrap_or(u32::MAX)).min(nodes);
        self.swept = end;
        first..end
    }

    fn begin_epoch(&mut self) {
        self.mix.fade();
        if self.weights.frag > 0 {
            self.frag = Frag::of(&self.mix);
        }
        if self.fill.wanted() {
            let host = self.host_weight();
            self.fill.learn(&self.mix, host);
        }
    }

    fn refresh(&mut self) {
        self.prices = Prices::of(&self.weights, &self.mix, &self.sums);
    }

    /// Weight of CPU-only wants in the futures: min(1, tightness^8), where tightness is the CPU that the fillable GPU
    /// would need at the mix's CPU per GPU, over the CPU left. Plentiful CPU: they go where they do no harm and are not
    /// counted; scarce CPU: they are.
    fn host_weight(&self) -> u32 {
        let (mut cpu, mut gpu) = (0_u128, 0_u128);
        for (want, count) in self.mix.kinds() {
            cpu += u128::from(*count) * u128::from(want.cpu);
            gpu += u128::from(*count) * u128::from(stock::gpu_milli(want));
        }
        let need = cpu.saturating_mul(u128::from(self.sums.all_fillable()));
        let have = gpu.saturating_mul(u128::from(self.sums.cpu));
        let one = u128::from(draws::ALL);
        let ratio = need.saturating_mul(one).checked_div(have).map_or(one, |ratio| ratio.min(one));
        u32::try_from(prices::power(u64::try_from(ratio).unwrap_or(0), 3)).unwrap_or(draws::ALL)
    }
}

#[cfg(test)]
#[path = "terms_tests.rs"]
mod tests;
