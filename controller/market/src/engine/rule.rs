//! What each weighting learns: of requests as they come, and of nodes as they change.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::fgd::Frag;
use super::nodes::Nodes;
use super::sigmoid::Sigmoid;
use super::terms::epochs::Epochs;
use super::terms::grain::MILLI;
use super::terms::{Mix, Terms, Tick, Weights, mig};
use super::view::Want;
use super::weighting::Weighting;

/// Parts of a milli in which the two halves of a MIG gradient are added.
pub(crate) const PARTS: i64 = 1_000;

/// A weighting with what it has learned.
#[derive(Clone, Debug)]
pub(super) enum Rule {
    Terms(Box<Objective>),
    Fgd(Box<Gradient>),
    BestFit,
    /// The draw of this arrival.
    Random(u64),
}

/// The terms of the market's objective.
#[derive(Clone, Debug)]
pub(super) struct Objective {
    pub terms: Terms,
    pub mig: Vec<mig::Table>,
}

/// The published gradient.
#[derive(Clone, Debug)]
pub(super) struct Gradient {
    mix: Mix,
    known: bool,
    epochs: Epochs,
    pub frag: Frag,
    /// What each node can host now.
    hosted: Vec<i64>,
    pub mig: Vec<mig::Table>,
    /// The score of a gradient in parts.
    pub sigmoid: Sigmoid,
}

/// What the mix makes of each MIG table.
fn mig_tables(mix: &Mix, nodes: &Nodes) -> Vec<mig::Table> {
    (0_u8..).zip(nodes.tables()).map(|(number, layout)| mig::Table::of(layout, number, mix)).collect()
}

/// A weighted sum in parts of a milli, 0 where nothing was learned.
pub(crate) fn parts(sum: i128, weight: i64) -> i64 {
    let exact = sum.saturating_mul(PARTS.into()).checked_div_euclid(weight.into()).unwrap_or(0);
    i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX })
}

/// The published score of a MIG instance: what its table gains, in grains of one of so many slices, and the gradient in
/// parts of opening its GPU. `sigmoid` is that of one in [`PARTS`].
pub(crate) fn mig_score(sigmoid: &Sigmoid, worth: i64, slices: u8, opening: i64) -> i32 {
    let inside = worth / (MILLI / PARTS) / i64::from(slices.max(1));
    sigmoid.score(inside.saturating_add(opening))
}

impl Gradient {
    fn new(nodes: &Nodes) -> Self {
        let mut new = Self {
            mix: Mix::default(),
            known: false,
            epochs: Epochs::default(),
            frag: Frag::default(),
            hosted: Vec::new(),
            mig: Vec::new(),
            sigmoid: Sigmoid::new(PARTS.cast_unsigned()),
        };
        new.learn(nodes);
        new
    }

    fn learn(&mut self, nodes: &Nodes) {
        self.mix.fade();
        let present = nodes.ranked().fold(0, |all, (_, node)| all | 1_u64 << (node.model & 63));
        self.frag = Frag::new(self.mix.kinds(), present);
        self.mig = mig_tables(&self.mix, nodes);
        let hosted = |(rank, node)| self.frag.hosted(node, nodes.left(rank, node));
        self.hosted = nodes.ranked().map(hosted).collect();
    }

    /// What the node can host now.
    pub fn hosted(&self, rank: u32) -> i64 {
        self.hosted.get(rank as usize).copied().unwrap_or(0)
    }
}

impl Rule {
    /// With nothing learned.
    pub fn new(weighting: Weighting, nodes: &Nodes) -> Self {
        match weighting {
            Weighting::Market | Weighting::Fill => Self::objective(weighting.weights(), nodes),
            Weighting::Fgd => Self::Fgd(Box::new(Gradient::new(nodes))),
            Weighting::BestFit => Self::BestFit,
            Weighting::Random => Self::Random(0),
        }
    }

    /// The terms with weights of one's own.
    pub fn objective(weights: Weights, nodes: &Nodes) -> Self {
        let mut terms = Terms::new(weights, nodes.len() as usize);
        for rank in 0..nodes.len() {
            terms.touch(rank, nodes.view(rank).as_ref());
        }
        let mig = mig_tables(terms.mix(), nodes);
        Self::Terms(Box::new(Objective { terms, mig }))
    }

    /// Learns one arrival, and says what is void after it.
    pub fn arrive(&mut self, want: &Want, nodes: &Nodes) -> Tick {
        match self {
            Self::Terms(rule) => {
                let tick = rule.terms.arrive(want);
                for rank in rule.terms.sweep() {
                    rule.terms.touch(rank, nodes.view(rank).as_ref());
                }
                if tick.epoch {
                    rule.mig = mig_tables(rule.terms.mix(), nodes);
                }
                tick
            }
            Self::Fgd(rule) if !rule.known => {
                rule.mix.arrive(want);
                let tick = rule.epochs.arrive(nodes.len() as usize);
                if tick.epoch {
                    rule.learn(nodes);
                }
                tick
            }
            Self::Fgd(_) | Self::BestFit | Self::Random(_) => Tick::default(),
        }
    }

    /// True if the ends of leases can matter to it.
    pub fn minds_ends(&self) -> bool {
        matches!(self, Self::Terms(_))
    }

    /// Takes a known mix, for good.
    pub fn oracle(&mut self, mix: &[(Want, u64)], nodes: &Nodes) {
        match self {
            Self::Terms(rule) => {
                rule.terms.set_oracle(mix);
                rule.mig = mig_tables(rule.terms.mix(), nodes);
            }
            Self::Fgd(rule) => {
                rule.known = true;
                rule.mix = Mix::oracle(mix);
                rule.learn(nodes);
            }
            Self::BestFit | Self::Random(_) => {}
        }
    }

    /// The node of that rank changed.
    pub fn touch(&mut self, nodes: &Nodes, rank: u32) {
        match self {
            Self::Terms(rule) => rule.terms.touch(rank, nodes.view(rank).as_ref()),
            Self::Fgd(rule) => {
                if let (Some(node), Some(hosted)) = (nodes.node(rank), rule.hosted.get_mut(rank as usize)) {
                    *hosted = rule.frag.hosted(node, nodes.left(rank, node));
                }
            }
            Self::BestFit | Self::Random(_) => {}
        }
    }
}
