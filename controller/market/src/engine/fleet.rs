//! A fleet: nodes, the classes of requests seen, the mix they make, and the choice of a place for one request.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::busy::Busy;
use super::gang::Gangs;
use super::index::Index;
use super::mig;
use super::nodes::{Choice, Misfit, NodeShape, Nodes};
use super::rule::Rule;
use super::score::Scorer;
use super::terms::Weights;
use super::view::{Shape, View, WHOLE, Want};
use super::weighting::Weighting;

/// An interned request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// Entries of all classes that the index keeps: about 24 bytes each.
const KEPT_ENTRIES: usize = 1 << 24;

/// Nodes, classes and what is learned of them.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub(super) nodes: Nodes,
    pub(super) wants: Vec<Want>,
    ids: BTreeMap<Want, ClassId>,
    arrivals: u64,
    seed: u64,
    weighting: Weighting,
    pub(super) busy: Busy,
    pub(super) rule: Rule,
    index: Index,
    pub(super) gangs: Gangs,
}

impl Fleet {
    /// Empty nodes by rank, with the two built-in MIG tables.
    #[must_use]
    pub fn new(weighting: Weighting, nodes: &[NodeShape]) -> Self {
        let nodes = Nodes::new(nodes, alloc::vec![mig::eight(), mig::four()]);
        let ranks = nodes.len();
        let limit = KEPT_ENTRIES.checked_div(ranks as usize).unwrap_or(1).clamp(16, 4096);
        Self {
            rule: Rule::new(weighting, &nodes),
            gangs: Gangs::new(&nodes),
            index: Index::new(ranks, limit),
            busy: Busy::new(nodes.ranked().map(|(_, node)| node.devices)),
            nodes,
            wants: Vec::new(),
            ids: BTreeMap::new(),
            arrivals: 0,
            seed: 0,
            weighting,
        }
    }

    /// An empty fleet that is scored by weights of one's own; it goes by the name of the market's.
    #[must_use]
    pub fn weighted(weights: Weights, nodes: &[NodeShape]) -> Self {
        let mut fleet = Self::new(Weighting::Market, nodes);
        fleet.rule = Rule::objective(weights, &fleet.nodes);
        fleet
    }

    /// Sets what chance starts from, for the weighting that needs it.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self.draw();
        self
    }

    /// The weighting in force.
    #[must_use]
    pub fn weighting(&self) -> Weighting {
        self.weighting
    }

    /// The class of a request. Equal requests have one class; a share of a whole device is a whole device, a share or
    /// a number of 0 is none.
    pub fn intern(&mut self, want: Want) -> ClassId {
        let shape = match want.shape {
            Shape::Share(WHOLE) => Shape::Whole(1),
            Shape::Share(0) | Shape::Whole(0) => Shape::None,
            shape => shape,
        };
        let want = Want { shape, ..want };
        let next = ClassId(u32::try_from(self.wants.len()).unwrap_or(u32::MAX));
        *self.ids.entry(want).or_insert_with(|| {
            self.wants.push(want);
            next
        })
    }

    /// The request of a class.
    #[must_use]
    pub fn want(&self, class: ClassId) -> Option<&Want> {
        self.wants.get(class.0 as usize)
    }

    /// The nodes as they are.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// What is left on a node.
    #[must_use]
    pub fn view(&self, rank: u32) -> Option<View<'_>> {
        self.nodes.view(rank)
    }

    /// Gives the whole mix beforehand, as the published experiment has it. It is not learned from then on.
    pub fn oracle(&mut self, mix: &[(ClassId, u64)]) {
        let mix: Vec<(Want, u64)> = mix.iter().filter_map(|(id, count)| Some((*self.want(*id)?, *count))).collect();
        self.rule.oracle(&mix, &self.nodes);
        self.index.forget();
        self.gangs.forget();
    }

    /// It is `now`, in ms. Needed where leases have ends; the clock never goes back.
    pub fn at(&mut self, now: u64) {
        self.busy.at(now);
    }

    /// A request of that class came: to be called once for each, before it is placed or refused.
    pub fn arrive(&mut self, class: ClassId) {
        self.arrivals = self.arrivals.saturating_add(1);
        self.draw();
        let Some(want) = self.want(class).copied() else { return };
        self.busy.arrive();
        let tick = self.rule.arrive(&want, &self.nodes);
        if tick.epoch {
            self.index.forget();
            self.gangs.forget();
        }
        if tick.prices {
            self.gangs.reprice();
            if let (Rule::Terms(rule), Some(horizon)) = (&mut self.rule, self.busy.horizon()) {
                rule.terms.set_horizon(horizon);
            }
        }
    }

    fn draw(&mut self) {
        if let Rule::Random(draw) = &mut self.rule {
            *draw = splitmix64(self.seed.wrapping_add(self.arrivals));
        }
    }

    pub(super) fn touch(&mut self, rank: u32) {
        self.rule.touch(&self.nodes, rank);
        self.index.touch(rank);
        self.gangs.touch(rank);
    }

    /// The best place for a request of that class that ends at `end`, in ms; `None` if it fits nowhere. Nothing is
    /// taken yet. The same as [`Fleet::scan`].
    pub fn choose(&mut self, class: ClassId, end: Option<u64>) -> Option<Choice> {
        let want = *self.want(class)?;
        let mut scorer = Scorer::new(&self.nodes, &self.wants, &self.busy, &mut self.rule).until(end, &want);
        let rank = if let Rule::Random(draw) = scorer.rule {
            let draw = *draw & u64::from(u32::MAX);
            let nth = draw.checked_rem(self.index.count(class.0, &mut scorer) as u64)?;
            self.index.nth(class.0, usize::try_from(nth).ok()?, &mut scorer)?
        } else if scorer.end.is_some() {
            let charge = |scorer: &Scorer<'_>, rank, entry| scorer.charge(&want, rank, entry);
            self.index.best_charged(class.0, &mut scorer, charge)?.rank
        } else {
            self.index.best(class.0, &mut scorer)?.rank
        };
        scorer.on_node(&want, rank).map(|(_, choice)| choice)
    }

    /// The best place on one node, as [`Fleet::choose`] would choose it were there no other.
    pub fn choose_on(&mut self, class: ClassId, rank: u32, end: Option<u64>) -> Option<Choice> {
        let want = *self.want(class)?;
        let mut scorer = Scorer::new(&self.nodes, &self.wants, &self.busy, &mut self.rule).until(end, &want);
        scorer.on_node(&want, rank).map(|(_, choice)| choice)
    }

    /// Closes a node, so that it takes nothing new, or opens it: for a pause, or for one that has it booked.
    pub fn close(&mut self, rank: u32, closed: bool) {
        self.nodes.close(rank, closed);
        self.touch(rank);
    }

    /// What [`Fleet::choose`] must return, found by judging every node and device.
    pub fn scan(&mut self, class: ClassId, end: Option<u64>) -> Option<Choice> {
        let want = *self.want(class)?;
        let mut scorer = Scorer::new(&self.nodes, &self.wants, &self.busy, &mut self.rule).until(end, &want);
        let able: Vec<_> = (0..self.nodes.len()).filter_map(|rank| scorer.on_node(&want, rank)).collect();
        if let Rule::Random(draw) = scorer.rule {
            let nth = (*draw & u64::from(u32::MAX)).checked_rem(able.len() as u64)?;
            return able.get(usize::try_from(nth).ok()?).map(|(_, choice)| *choice);
        }
        able.into_iter().reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, choice)| choice)
    }

    /// Takes a place until `end`, in ms.
    ///
    /// # Errors
    ///
    /// [`Misfit`] if it is not free; nothing is changed then.
    pub fn take(&mut self, class: ClassId, choice: &Choice, end: Option<u64>) -> Result<(), Misfit> {
        let want = *self.want(class).ok_or(Misfit::NoClass(class.0))?;
        self.nodes.take(&want, choice)?;
        if let Some(end) = end.filter(|_| self.rule.minds_ends()) {
            self.busy.take(choice, end, self.nodes.slices(&want, choice));
        }
        self.touch(choice.node);
        Ok(())
    }

    /// Gives a place back; `end` as it was taken.
    ///
    /// # Errors
    ///
    /// [`Misfit`] if it was not taken; nothing is changed then.
    pub fn release(&mut self, class: ClassId, choice: &Choice, end: Option<u64>) -> Result<(), Misfit> {
        let want = *self.want(class).ok_or(Misfit::NoClass(class.0))?;
        self.nodes.release(&want, choice)?;
        if let Some(end) = end.filter(|_| self.rule.minds_ends()) {
            self.busy.release(choice, end, self.nodes.slices(&want, choice));
        }
        self.touch(choice.node);
        Ok(())
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
pub(crate) fn splitmix64(state: u64) -> u64 {
    let mut word = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
