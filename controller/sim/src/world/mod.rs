//! A pool in memory on a virtual clock. Renters and chain facts come from the caller, agents are modelled, and only
//! [`step`] changes the State.

mod agents;
mod entered;
mod fleet;
mod opinion;
mod story;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use selion_api::agent::Fence;
use selion_api::chain::{Block, ChainEvent};
use selion_api::lease::Refusal;
use selion_api::slice::NodeSpec;
use selion_api::{Account, Address, Amount, Hash32, LeaseId, LeaseRequest, NodeId, TimeMs};
use selion_market::input::RULES;
use selion_market::{Answer, Effect, Input, Outcome, Policy, RequestLease, Stamp, State, step};

pub use agents::{Ends, Work};
pub use entered::{Entered, Keep};
pub use fleet::{Fleet, HOUR, START, account, node_id};
pub use opinion::Checked;
pub use story::{Flow, Place, Story};

use agents::{Due, Run};
use opinion::Opinion;

/// The key that the pool's controller holds; it signs nothing here.
pub const DELEGATE: Address = Address([0xdd; 20]);

/// How long a deadline rests that a tick did nothing about: a second in milliseconds.
const IDLE_MS: u64 = 1_000;

/// A pool whose clock is turned by hand.
#[derive(Clone, Debug)]
pub struct World {
    state: State,
    now: TimeMs,
    fence: Fence,
    /// What agents and renters do next, in order of time and of when it was planned.
    agenda: BTreeMap<(TimeMs, u64), Due>,
    planned: u64,
    runs: BTreeMap<LeaseId, Run>,
    /// Leases whose state changed and whose agents have not acted on it yet.
    moved: VecDeque<LeaseId>,
    stories: BTreeMap<LeaseId, Story>,
    watch: story::Watch,
    /// A deadline that stays due although it was asked about is not asked about before then.
    idle_until: TimeMs,
    /// Every entry, where asked for.
    log: Option<Vec<Entered>>,
    /// The second opinion, where asked for.
    opinion: Option<Opinion>,
}

impl World {
    /// An open pool under `policy`, without nodes or money, at [`START`]. It may have any number of leases.
    #[must_use]
    pub fn open(policy: Policy) -> Self {
        Self::keeping(policy, Keep::default())
    }

    /// As [`World::open`], and keeps that as well.
    #[must_use]
    pub fn keeping(policy: Policy, keep: Keep) -> Self {
        let mut world = Self { log: keep.log.then(Vec::new), ..Self::blank(keep.opinion) };
        world.now = START;
        world.fence = Fence { epoch: 1, term: 1 };
        world.enter(Input::Rules { version: RULES, digest: Hash32::ZERO });
        world.enter(Input::Opened { delegate: DELEGATE, policy: policy.unlimited() });
        world.block(vec![fleet::pool_opened()]);
        world
    }

    /// Before the first entry, with or without a second opinion on those to come.
    #[must_use]
    pub fn blank(opinion: bool) -> Self {
        Self { opinion: opinion.then(Opinion::default), ..Self::resume(State::new(), TimeMs(0)) }
    }

    /// A pool that stands at `state` at `now`. What its agents do next with live leases is the caller's to say: see
    /// [`World::adopt`].
    #[must_use]
    pub fn resume(state: State, now: TimeMs) -> Self {
        Self {
            fence: state.fence,
            state,
            now,
            agenda: BTreeMap::new(),
            planned: 0,
            runs: BTreeMap::new(),
            moved: VecDeque::new(),
            stories: BTreeMap::new(),
            watch: story::Watch::default(),
            idle_until: TimeMs(0),
            log: None,
            opinion: None,
        }
    }

    /// What the second opinion said so far, if this world has one.
    #[must_use]
    pub fn checked(&self) -> Option<&Checked> {
        self.opinion.as_ref().map(|opinion| &opinion.checked)
    }

    /// The entries, of a world that keeps them.
    #[must_use]
    pub fn log(&self) -> &[Entered] {
        self.log.as_deref().unwrap_or_default()
    }

    /// The market's State.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> TimeMs {
        self.now
    }

    /// What became of each lease that was seen here.
    #[must_use]
    pub fn stories(&self) -> &BTreeMap<LeaseId, Story> {
        &self.stories
    }

    /// Member milliseconds held so far, up to the last entry: with whole GPUs only, GPU milliseconds.
    #[must_use]
    pub fn held_ms(&self) -> u128 {
        self.watch.held_ms()
    }

    /// Every change of what renters hold and wait for, in order.
    #[must_use]
    pub fn flow(&self) -> &[Flow] {
        &self.watch.flow
    }

    /// What was billed for members on each node.
    #[must_use]
    pub fn income(&self) -> &BTreeMap<NodeId, Amount> {
        &self.watch.income
    }

    /// When something happens next by itself: a deadline of the market, or a plan of agents and renters.
    #[must_use]
    pub fn next_at(&self) -> Option<TimeMs> {
        let planned = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let deadline = self.state.next_deadline().map(|due| due.max(self.idle_until));
        [planned, deadline].into_iter().flatten().min()
    }

    /// Lets everything happen that is due by `until`, then stands there.
    pub fn run_until(&mut self, until: TimeMs) {
        self.settle();
        while let Some(at) = self.next_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            let planned = self.agenda.first_key_value().map(|(key, _)| *key);
            match planned.filter(|(at, _)| *at <= self.now) {
                // A deadline that is due as well fires in the step that this causes.
                Some(key) => self.act(key),
                None => {
                    let idle = self.enter(Input::Tick).effects.is_empty();
                    if idle && self.state.next_deadline().is_some_and(|due| due <= self.now) {
                        // Nothing comes of asking again at once.
                        self.idle_until = self.now.plus(IDLE_MS);
                    }
                }
            }
            self.settle();
        }
        self.now = self.now.max(until);
    }

    /// Lets everything happen until nothing is planned any more, or `until` has come.
    pub fn run_out(&mut self, until: TimeMs) {
        while let Some(at) = self.next_at().filter(|at| *at <= until) {
            self.run_until(at);
        }
    }

    /// Enters an input now; agents act on what it decided before anything else happens.
    pub fn submit(&mut self, input: Input) -> Answer {
        let answer = self.enter(input).answer;
        self.settle();
        answer
    }

    /// Enters an input just as it stands in a log. Agents are not modelled: what they said comes as inputs as well.
    pub fn replay(&mut self, stamp: &Stamp, input: &Input) -> Outcome {
        self.now = stamp.at_ms;
        let outcome = self.step(stamp, input);
        self.fence = self.state.fence;
        self.note(&outcome);
        self.moved.clear();
        outcome
    }

    /// From here on, inputs come under this fence.
    pub fn under(&mut self, fence: Fence) {
        self.fence = fence;
    }

    /// A renter asks for a lease that will do `work`.
    ///
    /// # Errors
    ///
    /// [`Refusal`] of the market.
    pub fn request(&mut self, request: LeaseRequest, work: Work) -> Result<LeaseId, Refusal> {
        let answer = self.enter(Input::Request(RequestLease { request, signature: None })).answer;
        let answer = match answer {
            Answer::Created(id) => {
                self.adopt(id, work);
                Ok(id)
            }
            Answer::Repeated(id) => Ok(id),
            Answer::Refused(refusal) => Err(refusal),
            Answer::Done => Err(Refusal::plain(selion_api::Reason::BadRequest)),
        };
        self.settle();
        answer
    }

    /// Enters a block with these events.
    pub fn block(&mut self, events: Vec<ChainEvent>) {
        let number = self.state.block.map_or(1, |last| last.number.saturating_add(1));
        self.submit(Input::Block(Block { number, hash: Hash32::ZERO, parent: Hash32::ZERO, events }));
    }

    /// Registers, offers and links the nodes of a fleet.
    pub fn add_fleet(&mut self, fleet: &Fleet) {
        self.add_nodes(fleet.specs());
    }

    /// Registers, offers and links these nodes.
    pub fn add_nodes(&mut self, specs: Vec<NodeSpec>) {
        self.block(specs.iter().flat_map(fleet::registered).collect());
        for spec in specs {
            self.submit(Input::modelled_link(spec, 0));
        }
    }

    /// Gives each renter so much money that he never lacks any.
    pub fn fund(&mut self, renters: &BTreeSet<Account>) {
        let each = u64::MAX / 4 / (renters.len() as u64).max(1);
        self.block(renters.iter().flat_map(|renter| fleet::funded(*renter, each)).collect());
    }

    /// One step, with all that it left for [`Input::Continue`]. The answer and effects are those of the input itself.
    fn enter(&mut self, input: Input) -> Outcome {
        let outcome = self.enter_one(&input);
        let mut more = outcome.more;
        while more {
            more = self.enter_one(&Input::Continue).more;
        }
        outcome
    }

    fn enter_one(&mut self, input: &Input) -> Outcome {
        let stamp = Stamp { seq: self.state.next_seq, at_ms: self.now, fence: self.fence };
        let outcome = self.step(&stamp, input);
        self.fence = self.fence.max(self.state.fence);
        self.note(&outcome);
        if let Some(log) = &mut self.log {
            let effects = outcome.effects.iter().map(Effect::leaf).collect();
            log.push(Entered { stamp, input: input.clone(), effects });
        }
        outcome
    }

    fn step(&mut self, stamp: &Stamp, input: &Input) -> Outcome {
        let outcome = step(&mut self.state, stamp, input);
        if let Some(opinion) = &mut self.opinion {
            opinion.hear(stamp, input, &outcome.effects);
        }
        outcome
    }

    /// Agents act until nobody has anything to do now.
    fn settle(&mut self) {
        while let Some(id) = self.moved.pop_front() {
            self.react(id);
        }
    }
}
