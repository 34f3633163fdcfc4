//! Made-up fleets, requests and operations.

use proptest::prelude::*;
use selion_market::engine::{Choice, ClassId, Fleet, Misfit, NodeShape, Shape, Want, Weighting};

pub fn node() -> impl Strategy<Value = NodeShape> {
    let gpus = prop_oneof![Just(0_u8), Just(1), Just(2), Just(4), Just(8), Just(8), Just(11)];
    let table = prop::option::of(0_u8..3); // no table has number 2
    (0_u8..3, 1_u32..30, 1_u32..30, gpus, table, 0_u32..3).prop_map(|(model, cpu, ram, gpus, table, domain)| {
        NodeShape { model, cpu: cpu * 4_000, ram: ram * 16_384, gpus, table, domain }
    })
}

pub fn want() -> impl Strategy<Value = Want> {
    let shape = prop_oneof![
        2 => Just(Shape::None),
        6 => prop_oneof![Just(50_u16), Just(250), Just(500), Just(810), 1_u16..1000].prop_map(Shape::Share),
        4 => (1_u8..9).prop_map(Shape::Whole),
        3 => (0_u8..3, 0_u8..7).prop_map(|(table, profile)| Shape::Mig { table, profile }),
    ];
    let models = prop_oneof![3 => Just(u64::MAX), 1 => 1_u64..8];
    (shape, 0_u32..8, 0_u32..8, models).prop_map(|(shape, cpu, ram, models)| Want {
        shape,
        cpu: cpu * 2_000,
        ram: ram * 8_192,
        models,
    })
}

#[derive(Clone, Debug)]
pub enum Step {
    /// So many requests of a class come; the last is placed if it fits, until so long from now.
    Arrive { want: usize, times: u16, life: Option<u64> },
    /// The lease of that number, in order of start, ends.
    Release { lease: usize },
    /// Time passes.
    Wait { ms: u64 },
    /// The mix is given.
    Oracle,
}

pub fn step() -> impl Strategy<Value = Step> {
    let times = prop_oneof![20 => Just(1_u16), 1 => Just(70), 1 => Just(600)];
    prop_oneof![
        30 => (0_usize..64, times, prop::option::of(0_u64..5_000))
            .prop_map(|(want, times, life)| Step::Arrive { want, times, life }),
        12 => (0_usize..64).prop_map(|lease| Step::Release { lease }),
        4 => (0_u64..2_000).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Oracle),
    ]
}

pub fn weighting() -> impl Strategy<Value = Weighting> {
    prop::sample::select(Weighting::ALL.to_vec())
}

/// A lease as the test keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    pub class: ClassId,
    pub want: Want,
    pub choice: Choice,
    pub end: Option<u64>,
}

/// A fleet with the leases on it.
pub struct Pool {
    pub fleet: Fleet,
    pub classes: Vec<(ClassId, Want)>,
    pub live: Vec<Live>,
    pub now: u64,
    /// What was chosen, in order.
    pub chosen: Vec<Option<Choice>>,
}

impl Pool {
    pub fn new(weighting: Weighting, nodes: &[NodeShape], wants: &[Want]) -> Self {
        let mut fleet = Fleet::new(weighting, nodes).with_seed(7);
        let classes = wants.iter().map(|want| fleet.intern(*want)).collect::<Vec<_>>();
        let classes = classes.into_iter().map(|class| (class, *fleet.want(class).unwrap())).collect();
        Self { fleet, classes, live: Vec::new(), now: 0, chosen: Vec::new() }
    }

    /// Does a step, with `each` called on the fleet before every placement.
    pub fn step(&mut self, step: &Step, mut each: impl FnMut(&mut Fleet, ClassId, Option<u64>)) {
        match step {
            Step::Arrive { want, times, life } => {
                let (class, want) = self.classes[want % self.classes.len()];
                let end = life.map(|life| self.now + life);
                (0..*times).for_each(|_| self.fleet.arrive(class));
                each(&mut self.fleet, class, end);
                let choice = self.fleet.choose(class, end);
                self.chosen.push(choice);
                if let Some(choice) = choice {
                    assert_eq!(self.fleet.take(class, &choice, end), Ok(()));
                    self.live.push(Live { class, want, choice, end });
                }
            }
            Step::Release { lease } => {
                if !self.live.is_empty() {
                    let Live { class, choice, end, .. } = self.live.remove(lease % self.live.len());
                    assert_eq!(self.fleet.release(class, &choice, end), Ok(()));
                }
            }
            Step::Wait { ms } => {
                self.now += ms;
                self.fleet.at(self.now);
            }
            Step::Oracle => {
                let mix: Vec<_> = (1_u64..).zip(&self.classes).map(|(count, (class, _))| (*class, count)).collect();
                self.fleet.oracle(&mix);
            }
        }
    }
}

#[test]
fn a_place_that_is_not_free_or_not_taken_is_refused_and_nothing_changes() {
    let mut fleet = Fleet::new(Weighting::Fgd, &[NodeShape::new(0, 8_000, 1_000, 2)]);
    let half = fleet.intern(Want { shape: Shape::Share(500), cpu: 1_000, ram: 10, models: u64::MAX });
    let choice = Choice { node: 0, devices: 0b10, start: 0 };
    assert_eq!(fleet.release(half, &choice, None), Err(Misfit::NotTaken(choice)));
    assert_eq!((fleet.take(half, &choice, None), fleet.take(half, &choice, None)), (Ok(()), Ok(())));
    assert_eq!(fleet.take(half, &choice, None), Err(Misfit::NoRoom(choice)));
    let both = Choice { devices: 0b01 | 0b10, ..choice };
    assert_eq!(fleet.take(half, &both, None), Err(Misfit::NoRoom(both)), "a share is on one device");
    let far = Choice { devices: 1 << 40, ..choice };
    assert_eq!(fleet.take(half, &far, None), Err(Misfit::NoRoom(far)));
    let nowhere = Choice { node: 1, ..choice };
    assert_eq!(fleet.take(half, &nowhere, None), Err(Misfit::NoRoom(nowhere)));
    assert_eq!(fleet.take(ClassId(9), &choice, None), Err(Misfit::NoClass(9)));
    assert_eq!(fleet.view(0).unwrap().left, [1000, 0]);
    assert_eq!(fleet.view(0).unwrap().cpu, 6_000);
}
