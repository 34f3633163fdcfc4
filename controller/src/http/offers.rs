//! What of the fleet can be leased now, by geometry and the pool's terms.

use std::fmt;
use std::str::FromStr;

use selion_api::rest::Offer;
use selion_api::slice::{GpuSpec, IsolationClass, NodeSpec, SliceWant};
use selion_api::{GpuId, NodeId, Rate};
use selion_market::{State, fleet};

/// Where an offer stands in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    node: NodeId,
    gpu: GpuId,
    slice: String,
}

impl Place {
    pub fn of(offer: &Offer) -> Self {
        Self { node: offer.node, gpu: offer.gpu, slice: offer.slice.clone() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.node, self.gpu, self.slice)
    }
}

impl FromStr for Place {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '/');
        let mut part = || parts.next().ok_or(());
        Ok(Self {
            node: part()?.parse().map_err(|_| ())?,
            gpu: part()?.parse().map_err(|_| ())?,
            slice: part()?.to_owned(),
        })
    }
}

/// Every offer behind `after`, in order of node, GPU and slice.
pub(super) fn after<'s>(state: &'s State, after: Option<&'s Place>) -> impl Iterator<Item = Offer> + 's {
    let from = after.map_or(NodeId::ZERO, |place| place.node);
    state
        .nodes
        .range(from..)
        .filter(|(_, node)| fleet::blocked(state, node).is_none())
        .filter_map(|(id, node)| Some((*id, node.spec.as_ref()?)))
        .flat_map(|(id, spec)| of_node(state, id, spec))
        .filter(move |offer| after.is_none_or(|place| Place::of(offer) > *place))
}

fn of_node(state: &State, node: NodeId, spec: &NodeSpec) -> Vec<Offer> {
    let terms = state.pool.as_ref();
    let allowed = spec.gpus.iter().filter(|gpu| terms.is_some_and(|terms| fleet::class_allowed(terms, gpu)));
    let known = state.nodes.get(&node);
    let allowed = allowed.filter(|gpu| known.is_some_and(|node| node.taken_back(gpu.gpu).is_none()));
    let mut offers: Vec<Offer> = allowed.flat_map(|gpu| of_gpu(state, node, spec, gpu)).collect();
    offers.sort_by_key(Place::of);
    offers
}

fn of_gpu(state: &State, node: NodeId, spec: &NodeSpec, gpu: &GpuSpec) -> Vec<Offer> {
    let Some(free) = state.free(node, gpu.gpu) else { return Vec::new() };
    let offer = |slice: &str, class: Option<IsolationClass>, rate: Rate, mem_bytes: u64, available: u64| {
        let class = class.filter(|_| available > 0)?;
        Some(Offer {
            node,
            provider: spec.provider,
            gpu: gpu.gpu,
            model: gpu.model.clone(),
            slice: slice.to_owned(),
            class,
            rate,
            mem_bytes,
            available,
            region: spec.region.clone(),
        })
    };
    let whole = gpu
        .whole
        .and_then(|rate| offer("whole", gpu.class_of(&SliceWant::Whole), rate, gpu.mem_bytes, u64::from(free.idle)));
    let mig = gpu.mig.iter().flat_map(|table| &table.profiles).filter_map(|profile| {
        let room = free.mig.iter().find(|(name, _)| *name == profile.name).map_or(0, |(_, room)| *room);
        let class = gpu.class_of(&SliceWant::Mig { profile: profile.name.clone() });
        offer(&profile.name, class, profile.rate, profile.mem_bytes, room.into())
    });
    let share = gpu.share.as_ref().and_then(|share| {
        let room = if free.shares > 0 && free.mem_bytes > 0 { free.compute_permille } else { 0 };
        let class = gpu.class_of(&SliceWant::Share { compute_permille: 1, mem_bytes: 1 });
        offer("share", class, share.rate, free.mem_bytes, room.into())
    });
    whole.into_iter().chain(mig).chain(share).collect()
}
