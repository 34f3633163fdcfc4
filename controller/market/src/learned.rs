//! What the pool has learned of what is asked of it: the one part of the score that hangs on the past, so it is part of
//! the State. Whatever else scores go by is worked out from it and from the nodes: see [`crate::scoring`].

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::lease::Within;
use selion_api::slice::{GpuSpec, NodeSpec, WHOLE_PERMILLE};
use selion_api::{LeaseRequest, MemberWant, SliceWant};

use crate::engine::terms::draws::SEQUENCES;
use crate::engine::terms::epochs::Epochs;
use crate::engine::terms::pace::Pace;
use crate::engine::terms::prices::Prices;
use crate::engine::terms::stock::Stock;
use crate::engine::terms::sums::Sums;
use crate::engine::terms::{Capacity, Horizon, Mix, Tick};
use crate::engine::view::{Shape, View, WHOLE, Want};
use crate::geometry::Use;
use crate::place::Placed;
use crate::scoring::{Scoring, left_of};
use crate::state::State;

/// Models that have a number of their own; all further ones share this one.
const MODELS: usize = 63;
/// MIG profiles that have a number of their own; all further ones share this one.
const PROFILES: usize = 255;
/// The share that counts as having come once before anything is known, in permille of a GPU.
const QUARTER: u16 = WHOLE / 4;

/// What was learned so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Learned {
    /// GPU models by number, in the order in which nodes that take leases first had them.
    pub models: Vec<String>,
    /// MIG profiles by number, in the order in which they were first asked for.
    pub profiles: Vec<String>,
    /// How often each want came.
    pub mix: Mix,
    /// The mix at the last epoch: placements are scored by this one.
    pub epoch: Mix,
    /// What slots and models cost since the last refresh.
    pub prices: Prices,
    /// How fast requests come, and how long they ask for.
    pub pace: Pace,
    epochs: Epochs,
}

/// The number of a name: its place, or the last number for all that found no place.
fn number(names: &[String], name: &str, most: usize) -> u8 {
    let at = names.iter().position(|known| known == name).unwrap_or(most);
    u8::try_from(at).unwrap_or(u8::MAX)
}

fn intern(names: &mut Vec<String>, name: &str, most: usize) -> u8 {
    if names.len() < most && !names.iter().any(|known| known == name) {
        names.push(name.into());
    }
    number(names, name, most)
}

/// A mix with what counts as having come once before anything is known: a whole GPU, and a quarter of one. What MIG
/// profiles have of it depends on the table: see [`crate::scoring`].
pub(crate) fn with_prior(mix: &Mix) -> Mix {
    let mut mix = mix.clone();
    for shape in [Shape::Whole(1), Shape::Share(QUARTER)] {
        mix.arrive(&want_of(&MemberWant::of(SliceWant::Whole), shape, u64::MAX));
    }
    mix
}

fn want_of(want: &MemberWant, shape: Shape, models: u64) -> Want {
    Want { shape, cpu: want.cpu_milli, ram: mib(want.ram_bytes.saturating_add(MIB - 1)), models }
}

const MIB: u64 = 1 << 20;

/// Whole MiB in so many bytes.
pub(crate) fn mib(bytes: u64) -> u32 {
    u32::try_from(bytes / MIB).unwrap_or(u32::MAX)
}

/// The part of a GPU that a share takes, in permille: the larger of compute and memory, rounded up.
pub(crate) fn share_milli(gpu: &GpuSpec, compute_permille: u16, mem_bytes: u64) -> u16 {
    let mem = (u128::from(mem_bytes) * u128::from(WHOLE_PERMILLE)).div_ceil(u128::from(gpu.mem_bytes.max(1)));
    u16::try_from(mem).unwrap_or(WHOLE).max(compute_permille).clamp(1, WHOLE)
}

impl Learned {
    /// The number of a GPU model, below 64.
    #[must_use]
    pub fn model(&self, name: &str) -> u8 {
        number(&self.models, name, MODELS)
    }

    fn models_of(&self, want: &MemberWant) -> u64 {
        if want.models.is_empty() {
            return u64::MAX;
        }
        want.models.iter().fold(0, |set, name| set | 1_u64 << (self.model(name) & 63))
    }

    /// A node takes leases: its models get their numbers.
    pub(crate) fn meet(&mut self, spec: &NodeSpec) {
        for gpu in &spec.gpus {
            intern(&mut self.models, &gpu.model, MODELS);
        }
    }

    /// The want of one member whose place would be on `gpu`.
    fn want(&mut self, want: &MemberWant, gpu: &GpuSpec) -> Want {
        let shape = match &want.slice {
            SliceWant::Whole => Shape::Whole(u8::try_from(want.gpus).unwrap_or(u8::MAX)),
            SliceWant::Mig { profile } => {
                Shape::Mig { table: 0, profile: intern(&mut self.profiles, profile, PROFILES) }
            }
            SliceWant::Share { compute_permille, mem_bytes } => {
                Shape::Share(share_milli(gpu, *compute_permille, *mem_bytes))
            }
        };
        want_of(want, shape, self.models_of(want))
    }
}

/// Whole GPUs that have to stand in one node are one want of several.
fn together(wants: &mut Vec<Want>) {
    let count_of = |want: &Want| match want.shape {
        Shape::Whole(count) => count,
        _ => 0,
    };
    let whole = |want: &&Want| count_of(want) > 0;
    let Some(first) = wants.iter().find(whole).copied() else {
        return;
    };
    let (mut all, mut count) = (Want { cpu: 0, ram: 0, ..first }, 0_u8);
    for want in wants.iter().filter(whole) {
        all.cpu = all.cpu.saturating_add(want.cpu);
        all.ram = all.ram.saturating_add(want.ram);
        all.models &= want.models;
        count = count.saturating_add(count_of(want));
    }
    wants.retain(|want| count_of(want) == 0);
    wants.push(Want { shape: Shape::Whole(count), ..all });
}

impl State {
    /// Learns the members of a request that could be met and paid. `places` are those in an empty fleet. To be called
    /// once a request, before it is placed or refused for want of room.
    pub(crate) fn learn(&mut self, request: &LeaseRequest, places: &[Placed]) {
        let mut wants = Vec::new();
        for place in places {
            let spec = self.nodes.get(&place.node).and_then(|node| node.spec.as_ref());
            let gpu = spec.and_then(|spec| spec.gpus.iter().find(|gpu| Some(gpu.gpu) == place.gpu()));
            if let (Some(gpu), Some(want)) = (gpu, request.members.get(usize::from(place.rank))) {
                wants.push(self.learned.want(want, gpu));
            }
        }
        if request.within == Within::Node {
            together(&mut wants);
        }
        let (mut due, nodes) = (Tick::default(), self.nodes.len());
        for want in &wants {
            let learned = &mut self.learned;
            learned.mix.arrive(want);
            learned.pace.arrive(self.now.0, Some(request.duration_ms));
            let tick = learned.epochs.arrive(nodes);
            due = Tick { epoch: due.epoch || tick.epoch, prices: due.prices || tick.prices };
        }
        if due.epoch {
            self.learned.mix.fade();
            self.learned.epoch = self.learned.mix.clone();
            self.scoring = Scoring::of(self);
            self.finder.forget();
        }
        if due.prices {
            self.reprice();
        }
    }

    /// Works out what slots and models cost now.
    pub(crate) fn reprice(&mut self) {
        let mut weights = self.policy.weighting.weights();
        if let (Horizon::Arrivals(ahead), Some(arrivals)) = (&mut weights.horizon, self.learned.pace.horizon()) {
            *ahead = arrivals;
        }
        let mut sums = self.sums();
        if weights.capacity == Capacity::Fillable {
            self.fillable(&mut sums);
        }
        self.learned.prices = Prices::of(&weights, &with_prior(&self.learned.mix), &sums);
        self.finder.reprice();
    }

    /// What of each model can still be filled, as the tables expect it.
    fn fillable(&self, sums: &mut Sums) {
        let Some(tables) = self.scoring.tables() else {
            return;
        };
        let mut fill = tables.fill.sharing(512);
        for node in self.nodes.values().filter(|node| node.blocked.is_none()) {
            let Some(spec) = &node.spec else {
                continue;
            };
            let mut lefts: BTreeMap<u8, Vec<u16>> = BTreeMap::new();
            for gpu in &spec.gpus {
                let mut used = Use::Idle;
                node.held
                    .values()
                    .filter(|held| held.gpus.contains(&gpu.gpu))
                    .for_each(|held| used.take(gpu, &held.slot));
                lefts.entry(self.learned.model(&gpu.model)).or_default().push(left_of(gpu, &used));
            }
            let [mut cpu, mut ram, ..] = spec.beside();
            for held in node.held.values() {
                let [taken_cpu, taken_ram, ..] = held.beside;
                (cpu, ram) = (cpu.saturating_sub(taken_cpu), ram.saturating_sub(taken_ram));
            }
            let (cpu, ram) = (u32::try_from(cpu).unwrap_or(u32::MAX), mib(ram));
            for (model, left) in &lefts {
                let stock = Stock::of(&View { model: *model, cpu, ram, left });
                let all = stock.total().saturating_mul(SEQUENCES as u32);
                if let Some(sum) = sums.fillable.get_mut(usize::from(*model)) {
                    *sum = sum.saturating_add(all.saturating_sub(fill.lost(&stock)).into());
                }
            }
        }
    }

    /// What the market's prices look at: the GPUs of each model, and the slots of 2, 4 and 8 idle ones of a node.
    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for node in self.nodes.values().filter(|node| node.blocked.is_none()) {
            let Some(spec) = &node.spec else {
                continue;
            };
            let (mut idle, mut last) = ([0_u32; MODELS + 1], ("", 0));
            for gpu in &spec.gpus {
                if gpu.model != last.0 {
                    last = (&gpu.model, usize::from(self.learned.model(&gpu.model)));
                }
                let model = last.1;
                if let Some(capacity) = sums.capacity.get_mut(model) {
                    *capacity = capacity.saturating_add(WHOLE.into());
                }
                let free =
                    left_of(gpu, &Use::Idle) == WHOLE && node.held.values().all(|held| !held.gpus.contains(&gpu.gpu));
                if let Some(idle) = idle.get_mut(model).filter(|_| free) {
                    *idle = idle.saturating_add(1);
                }
            }
            for (size, slots) in (1_u32..).zip(&mut sums.slots) {
                let here = idle.iter().fold(0_u64, |sum, idle| sum.saturating_add(u64::from(idle >> size)));
                *slots = slots.saturating_add(here);
            }
        }
        sums
    }
}
