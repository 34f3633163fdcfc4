//! What placements are scored with: tables made of the learned mix and of the MIG tables on offer. They stand beside the
//! State, like the [`Finder`](crate::finder): never written, and made anew at any time.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use selion_api::slice::{GpuSpec, MigTable, NodeSpec};

use crate::baseline::Published;
use crate::engine::Weighting;
use crate::engine::terms::draws;
use crate::engine::terms::fill::Fill;
use crate::engine::terms::frag::Frag;
use crate::engine::terms::grain::MILLI;
use crate::engine::terms::mig::{Layout, Profile, SLICES, Table};
use crate::engine::terms::mix::ARRIVAL;
use crate::engine::terms::stock::gpu_milli;
use crate::engine::terms::{Mix, Weights};
use crate::engine::view::{Shape, WHOLE, Want};
use crate::geometry::Use;
use crate::learned::{Learned, with_prior};
use crate::state::State;

/// Tables of one epoch. Equal to any other, and shared by copies.
#[derive(Clone, Default)]
pub struct Scoring {
    tables: Option<Arc<Tables>>,
    migs: Vec<Arc<Mig>>,
}

/// The tables of shares and whole GPUs.
pub(crate) struct Tables {
    pub frag: Frag,
    pub fill: Fill,
    /// Of the weighting `fgd` alone.
    pub published: Option<Published>,
}

/// One geometry of MIG under the mix.
pub(crate) struct Mig {
    geometry: MigTable,
    /// None if it has more slices than a mask has bits.
    table: Option<Table>,
    /// What the mix would put on such a GPU as MIG, in grains: its part of what is asked for, of a whole GPU.
    pub part: i64,
}

impl Scoring {
    /// Works out all tables.
    pub(crate) fn of(state: &State) -> Self {
        let mix = with_prior(&state.learned.epoch);
        let weighting = state.policy.weighting;
        let mut fill = Fill::new(weighting.weights().fill > 0, 0);
        fill.learn(&mix, draws::ALL); // every want has a GPU
        let published = (weighting == Weighting::Fgd).then(|| Published::of(&mix));
        let tables = Tables { frag: Frag::of(&mix), fill, published };
        let mut scoring = Self { tables: Some(Arc::new(tables)), migs: Vec::new() };
        let open = state.nodes.values().filter(|node| node.blocked.is_none());
        for spec in open.filter_map(|node| node.spec.as_ref()) {
            scoring.meet(spec, &state.learned);
        }
        scoring
    }

    /// The tables, if they were worked out.
    pub(crate) fn tables(&self) -> Option<&Tables> {
        self.tables.as_deref()
    }

    /// Works out the geometries of a node that are not known yet.
    pub(crate) fn meet(&mut self, spec: &NodeSpec, learned: &Learned) {
        for table in spec.gpus.iter().filter_map(|gpu| gpu.mig.as_ref()) {
            if self.tables.is_some() && !self.migs.iter().any(|mig| alike(&mig.geometry, table)) {
                self.migs.push(Arc::new(Mig::of(table, learned, &with_prior(&learned.epoch))));
            }
        }
    }

    /// A geometry under the mix.
    pub(crate) fn mig(&self, table: &MigTable, learned: &Learned) -> Arc<Mig> {
        let known = self.migs.iter().find(|mig| alike(&mig.geometry, table)).cloned();
        known.unwrap_or_else(|| Arc::new(Mig::of(table, learned, &with_prior(&learned.epoch))))
    }
}

/// True if the same instances can stand at the same places; asks do not matter.
fn alike(one: &MigTable, two: &MigTable) -> bool {
    one.mem_slices == two.mem_slices
        && one.profiles.len() == two.profiles.len()
        && one.profiles.iter().zip(&two.profiles).all(|(one, two)| {
            (one.size, &one.starts) == (two.size, &two.starts) && one.name == two.name //
        })
}

impl Mig {
    /// What `mix` makes of it, each of its profiles counted once more than it came.
    fn of(geometry: &MigTable, learned: &Learned, mix: &Mix) -> Self {
        let mut counts: Vec<u64> = geometry.profiles.iter().map(|_| ARRIVAL).collect();
        let mut other = 0_u128;
        for (want, count) in mix.kinds() {
            if let Shape::Mig { profile, .. } = want.shape {
                let name = learned.profiles.get(usize::from(profile));
                let at = geometry.profiles.iter().position(|profile| Some(&profile.name) == name);
                if let Some(sum) = at.and_then(|at| counts.get_mut(at)) {
                    *sum = sum.saturating_add(*count);
                }
            }
            other += u128::from(*count) * u128::from(gpu_milli(want));
        }
        let slices = u128::from(geometry.mem_slices.max(1));
        let mig = geometry.profiles.iter().zip(&counts).fold(0_u128, |sum, (profile, count)| {
            sum + u128::from(*count) * u128::from(WHOLE) * u128::from(profile.size) / slices
        });
        let whole = u128::from(WHOLE) * MILLI.unsigned_abs() as u128;
        let part = (mig * whole).checked_div(mig + other).unwrap_or(0);
        let table = (geometry.mem_slices <= SLICES).then(|| table_of(geometry, &counts));
        Self { geometry: geometry.clone(), table, part: i64::try_from(part).unwrap_or(0) }
    }

    /// What a GPU gains by an instance beside `mask`, in grains of a slice; `None` if its masks are too wide.
    pub fn worth(&self, weights: &Weights, before: u32, after: u32) -> Option<i64> {
        let (before, after) = (u8::try_from(before).ok()?, u8::try_from(after).ok()?);
        Some(self.table.as_ref()?.worth(weights, before, after))
    }
}

fn table_of(geometry: &MigTable, counts: &[u64]) -> Table {
    let bits = |starts: &[u8]| {
        starts.iter().filter(|start| **start < SLICES).fold(0_u8, |bits, start| bits | 1_u8 << (start & 7)) //
    };
    let profile =
        |profile: &selion_api::slice::MigProfile| Profile { size: profile.size, starts: bits(&profile.starts) };
    let layout = Layout { slices: geometry.mem_slices, profiles: geometry.profiles.iter().map(profile).collect() };
    let want = |profile| Want { shape: Shape::Mig { table: 0, profile }, cpu: 0, ram: 0, models: u64::MAX };
    let mix: Vec<(Want, u64)> = (0_u8..).zip(counts).map(|(profile, count)| (want(profile), *count)).collect();
    Table::of(&layout, 0, &Mix::oracle(&mix))
}

/// What is left of a GPU for shares and as a whole, in permille: the lesser of compute and memory.
pub(crate) fn left_of(gpu: &GpuSpec, used: &Use<'_>) -> u16 {
    match used {
        Use::Idle if gpu.whole.is_some() || gpu.share.is_some() => WHOLE,
        Use::Idle | Use::Whole | Use::Mig(_) => 0,
        Use::Shares { compute_permille, mem_bytes, count } => {
            let more = gpu.share.as_ref().is_some_and(|terms| *count < u32::from(terms.max_shares));
            let compute = u32::from(WHOLE).saturating_sub(*compute_permille);
            let mem = u128::from(gpu.mem_bytes.saturating_sub(*mem_bytes)) * u128::from(WHOLE);
            let mem = mem.checked_div(gpu.mem_bytes.into()).unwrap_or(0);
            let left = u16::try_from(mem.min(compute.into())).unwrap_or(WHOLE);
            if more { left.min(WHOLE) } else { 0 }
        }
    }
}

impl State {
    /// Works out the tables if there are none: after a snapshot was read.
    pub(crate) fn prepare(&mut self) {
        if self.scoring.tables.is_none() {
            self.scoring = Scoring::of(self);
        }
    }

    /// The weighting is another one: every score and price is void.
    pub(crate) fn reweigh(&mut self) {
        self.scoring = Scoring::of(self);
        self.finder.forget();
        self.reprice();
    }

    /// A node takes leases.
    pub(crate) fn meet(&mut self, id: selion_api::NodeId) {
        if let Some(spec) = self.nodes.get(&id).and_then(|node| node.spec.as_ref()) {
            self.learned.meet(spec);
            self.scoring.meet(spec, &self.learned);
        }
    }
}

impl PartialEq for Scoring {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Scoring {}

impl fmt::Debug for Scoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoring").field("migs", &self.migs.len()).finish_non_exhaustive()
    }
}
