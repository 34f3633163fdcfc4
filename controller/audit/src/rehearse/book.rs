//! A controller in memory: it runs the market over inputs that real keys signed, and may be told to lie before it signs
//! its heads. What it lies about is sealed as an authority would seal it, so that every hash and signature fits.

use selion_api::agent::{Fence, Head, MemberEvent, Report, SignedHead, SignedHello, SignedReport};
use selion_api::chain::{Block, ChainEvent};
use selion_api::commit::{PoolId, canonical, sha256_of, signing_digest};
use selion_api::lease::{LeaseState, OnNodeLoss, Priority, Within};
use selion_api::rest::LoggedEntry;
use selion_api::said::{self, Said, Statement};
use selion_api::slice::{GpuSpec, MigProfile, MigTable, NodeSpec, Sandbox};
use selion_api::{
    Account, Address, Amount, GpuId, Hash32, LeaseId, LeaseRequest, MemberWant, NodeId, Rate, SliceWant, TimeMs,
};
use selion_contracts::Signer;
use selion_contracts::signer::SignerError;
use selion_log::{Entry, Tree, leaf_hash, root};
use selion_market::input::RULES;
use selion_market::{Answer, Effect, Input, Policy, RequestLease, Stamp, State, step};

use crate::entries::Log;

const HOUR_MS: u64 = 3_600_000;
const GIB: u64 = 1 << 30;
/// What each renter pays in: far more than the story costs.
const DEPOSIT: Amount = Amount(100_000_000);

/// Why there is no rehearsal.
#[derive(Debug, thiserror::Error)]
pub enum RehearseError {
    /// The log is not one of an honest controller.
    #[error("{0}: rehearse with a log that `selion audit` passes, or without --log")]
    Log(String),
    /// The pool is in a state in which nothing can be played.
    #[error("the story could not be played on this log: {0}; rehearse without --log")]
    Story(String),
    /// The chain of the rehearsal did not do what it should.
    #[error("the chain that lies are planted in did not play its part: {0}; try again")]
    Chain(String),
    /// A key did not sign.
    #[error(transparent)]
    Signer(#[from] SignerError),
}

/// Who plays.
#[derive(Clone, Debug)]
pub struct Cast {
    /// Signs the heads.
    pub authority: Signer,
    /// A node's key.
    pub node: Signer,
    /// Whose node it is.
    pub owner: Signer,
    /// Three renters.
    pub renters: [Signer; 3],
}

impl Cast {
    /// Keys that nobody else has.
    ///
    /// # Errors
    ///
    /// The system gives no random bytes.
    pub fn random() -> Result<Self, SignerError> {
        let renters = [Signer::random()?, Signer::random()?, Signer::random()?];
        let [authority, node, owner] = [Signer::random()?, Signer::random()?, Signer::random()?];
        Ok(Self { authority, node, owner, renters })
    }

    /// A slice that nobody else sells or asks for, so that leases of a copied log do not come between.
    fn profile(&self) -> String {
        let name = hex::encode(self.node.account().0);
        format!("1r.{}", name.get(..8).unwrap_or_default())
    }

    /// The node, with one GPU that is sold as one slice.
    #[must_use]
    pub fn spec(&self) -> NodeSpec {
        let profile = MigProfile {
            name: self.profile(),
            starts: vec![0],
            size: 8,
            compute_slices: 7,
            max_instances: 1,
            mem_bytes: 80 * GIB,
            rate: Rate(1_000_000),
        };
        NodeSpec {
            node: NodeId(self.node.account().0),
            provider: self.owner.account(),
            gpus: vec![GpuSpec {
                gpu: GpuId(sha256_of(&self.node.account()).0.first_chunk().copied().unwrap_or_default()),
                model: "Rehearsal 80GB".into(),
                mem_bytes: 80 * GIB,
                work_milli: 1_000,
                simulated: false,
                whole: None,
                mig: Some(MigTable { mem_slices: 8, compute_slices: 7, profiles: vec![profile] }),
                share: None,
            }],
            cpu_milli: 64_000,
            ram_bytes: 256 * GIB,
            address: "10.0.0.1".into(),
            port_base: 20_000,
            ports: 400,
            sandbox: Sandbox::Namespaces,
            features: selion_api::BoxFeatures::NONE,
            region: String::new(),
            rack: String::new(),
            disk_bytes: 0,
            net_mbps: 0,
        }
    }
}

/// One entry before it is sealed; a lie changes it here.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Where and when.
    pub stamp: Stamp,
    /// What happened.
    pub input: Input,
    /// What was decided.
    pub effects: Vec<Effect>,
    /// Digest of State after it, if a head is signed here.
    pub digest: Option<Hash32>,
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Book {
    /// After the last draft.
    pub state: State,
    /// Its log.
    pub drafts: Vec<Draft>,
    /// Who plays.
    pub cast: Cast,
    pool: PoolId,
    /// Its clock, in milliseconds.
    pub now: u64,
    fence: Fence,
    asked: u8,
}

impl Book {
    /// A log that was just opened.
    #[must_use]
    pub fn open(pool: PoolId, cast: Cast) -> Self {
        let mut book = Self::empty(pool, cast);
        book.enter(Input::Rules { version: RULES, digest: Hash32::ZERO });
        book.enter(Input::Opened { delegate: Address([0xdd; 20]), policy: Policy::default() });
        book
    }

    fn empty(pool: PoolId, cast: Cast) -> Self {
        let fence = Fence { epoch: 1, term: 1 };
        Self { state: State::new(), drafts: Vec::new(), cast, pool, now: 1_000_000, fence, asked: 0 }
    }

    /// A copy of a log in which the authority is the cast's; heads are signed where they were.
    ///
    /// # Errors
    ///
    /// [`RehearseError::Log`] if the rules give other effects than the log has.
    pub fn copy(log: &Log, pool: PoolId, cast: Cast) -> Result<Self, RehearseError> {
        let mut book = Self::empty(pool, cast);
        if let Some(fault) = &log.fault {
            return Err(RehearseError::Log(fault.detail.clone()));
        }
        for item in &log.items {
            let stamp = Stamp { seq: item.seq, at_ms: item.at(), fence: item.entry.fence };
            book.draft(stamp, book.with_own_authority(&item.input), item.head.is_some());
            let ours = book.drafts.last().into_iter().flat_map(|draft| &draft.effects).map(Effect::leaf);
            if !ours.eq(item.effects.iter().cloned()) {
                return Err(RehearseError::Log(format!("entry {} does not replay to its effects", item.seq)));
            }
        }
        if let Some(last) = log.items.last() {
            book.now = last.at().0 + 1_000;
            let epoch = book.state.pool.as_ref().map_or(1, |terms| terms.epoch);
            book.fence = last.entry.fence.max(Fence { epoch, ..last.entry.fence });
        }
        while book.state.more {
            book.enter(Input::Continue);
        }
        Ok(book)
    }

    fn with_own_authority(&self, input: &Input) -> Input {
        let mut input = input.clone();
        if let Input::Block(block) = &mut input {
            for event in &mut block.events {
                if let ChainEvent::PoolOpened { authority, .. } | ChainEvent::AuthorityChanged { authority, .. } = event
                {
                    *authority = self.cast.authority.account();
                }
            }
        }
        input
    }

    /// The same inputs once more after a change: another history, that is right in itself.
    #[must_use]
    pub fn again(&self, change: impl FnOnce(&mut Vec<(Stamp, Input)>)) -> Self {
        let mut inputs: Vec<(Stamp, Input)> =
            self.drafts.iter().map(|draft| (draft.stamp, draft.input.clone())).collect();
        change(&mut inputs);
        let mut book = Self::empty(self.pool, self.cast.clone());
        for (seq, (stamp, input)) in (0..).zip(inputs) {
            let signed = self.drafts.get(book.drafts.len()).is_none_or(|draft| draft.digest.is_some());
            book.draft(Stamp { seq, ..stamp }, input, signed);
        }
        book
    }

    /// Enters what happened now.
    pub fn enter(&mut self, input: Input) -> Answer {
        let stamp = Stamp { seq: self.drafts.len() as u64, at_ms: TimeMs(self.now), fence: self.fence };
        let answer = self.draft(stamp, input, true);
        if self.state.more {
            self.enter(Input::Continue);
        }
        answer
    }

    fn draft(&mut self, stamp: Stamp, input: Input, signed: bool) -> Answer {
        let outcome = step(&mut self.state, &stamp, &input);
        let digest = signed.then(|| self.state.digest());
        self.drafts.push(Draft { stamp, input, effects: outcome.effects, digest });
        outcome.answer
    }

    /// A final block with these events.
    pub fn block(&mut self, events: Vec<ChainEvent>) {
        let (number, parent) = self.state.block.map_or((1, Hash32::ZERO), |last| (last.number + 1, last.hash));
        self.enter(Input::Block(Block { number, hash: Hash32([1; 32]), parent, events }));
    }

    /// A node with one GPU joins, and three renters pay in and want it: the first has it for a while and is billed, then
    /// the second, and the third waits. Then its owner pauses the node, and thinks better of it.
    ///
    /// # Errors
    ///
    /// [`RehearseError`] if the pool takes no leases, or a key does not sign.
    pub fn story(&mut self) -> Result<[LeaseId; 3], RehearseError> {
        self.join(self.cast.spec())?;
        let slice = SliceWant::Mig { profile: self.cast.profile() };
        let want = MemberWant { cpu_milli: 500, ram_bytes: GIB, ..MemberWant::of(slice) };
        let [one, two, three] = self.cast.renters.clone();
        let [first, second, third] =
            [self.request(&one, &want)?, self.request(&two, &want)?, self.request(&three, &want)?];
        self.run(first)?;
        self.now += 90_000;
        self.report(first, MemberEvent::Metered, 90_000)?;
        self.now += 1_000;
        self.release(&one, first)?;
        self.report(first, MemberEvent::Stopped { outputs: None }, 90_500)?;
        self.expect(first, LeaseState::Ended)?;
        self.expect(second, LeaseState::Held)?;
        self.expect(third, LeaseState::Waiting)?;
        self.pause(true)?;
        self.now += 1_000;
        self.pause(false)?;
        Ok([first, second, third])
    }

    /// A renter gives a lease back, signed with his key.
    ///
    /// # Errors
    ///
    /// The key does not sign.
    pub fn release(&mut self, signer: &Signer, lease: LeaseId) -> Result<Answer, RehearseError> {
        let (renter, said_ms) = (signer.account(), TimeMs(self.now));
        let said = self.said(signer, &said::Release { renter, lease, said_ms }, said_ms)?;
        Ok(self.enter(Input::Release { renter, lease, said }))
    }

    /// A renter makes a lease last longer, signed with his key.
    ///
    /// # Errors
    ///
    /// The key does not sign.
    pub fn extend(&mut self, signer: &Signer, lease: LeaseId, for_ms: u64) -> Result<Answer, RehearseError> {
        let (renter, said_ms) = (signer.account(), TimeMs(self.now));
        let key = said::extension_key(renter, &self.drafts.len().to_string());
        let said = self.said(signer, &said::Extend { renter, lease, for_ms, key, said_ms }, said_ms)?;
        Ok(self.enter(Input::Extend { renter, lease, for_ms, key, said }))
    }

    /// The node's owner pauses it, or resumes it, signed with his key.
    fn pause(&mut self, paused: bool) -> Result<Answer, RehearseError> {
        let (spec, owner, said_ms) = (self.cast.spec(), self.cast.owner.clone(), TimeMs(self.now));
        let (provider, node) = (spec.provider, spec.node);
        let said = self.said(&owner, &said::SetPaused { provider, node, paused, said_ms }, said_ms)?;
        Ok(self.enter(Input::SetPaused { provider, node, paused, said }))
    }

    fn said(&self, signer: &Signer, word: &impl Statement, said_ms: TimeMs) -> Result<Option<Said>, SignerError> {
        let signature = signer.sign_text(&word.digest(&self.pool).0)?;
        Ok(Some(Said { said_ms, signature }))
    }

    /// What the node's agent says until the lease's one member runs.
    ///
    /// # Errors
    ///
    /// [`RehearseError`] if the lease does not become active.
    pub fn run(&mut self, id: LeaseId) -> Result<(), RehearseError> {
        for event in [MemberEvent::Accepted, MemberEvent::Ready, MemberEvent::Running] {
            self.report(id, event, 0)?;
        }
        self.expect(id, LeaseState::Active)
    }

    /// That a lease is in that state.
    ///
    /// # Errors
    ///
    /// [`RehearseError::Story`] if it is not.
    pub fn expect(&self, id: LeaseId, state: LeaseState) -> Result<(), RehearseError> {
        let lease = self.state.leases.get(&id);
        if lease.is_some_and(|lease| lease.state == state) {
            return Ok(());
        }
        let found = lease.map(|lease| (lease.state.code(), lease.reason));
        Err(RehearseError::Story(format!("{id} should be {} and is {found:?}", state.code())))
    }

    /// The pool opens, if it is not open yet; the cast's node joins, and the renters pay in.
    ///
    /// # Errors
    ///
    /// The node's key does not sign.
    pub fn join(&mut self, spec: NodeSpec) -> Result<(), RehearseError> {
        if self.state.pool.is_none() {
            let authority = self.cast.authority.account();
            self.block(vec![ChainEvent::PoolOpened {
                token: Address([1; 20]),
                vault: Address([2; 20]),
                owner: Account([4; 20]),
                authority,
                fee_bps: 200,
                allow_simulated: true,
                allow_unsandboxed: true,
                finality_depth: 0,
                min_stake: Amount(0),
            }]);
        }
        let stake = self.state.pool.as_ref().map_or(Amount(0), |terms| terms.min_stake);
        self.block(vec![
            ChainEvent::ProviderRegistered { provider: spec.provider, payout: Address([9; 20]), stake },
            ChainEvent::NodeRegistered { node: spec.node, provider: spec.provider },
            ChainEvent::OfferSet { node: spec.node, spec_hash: spec.hash(), classes: spec.classes() },
        ]);
        let mut signed = SignedHello::modelled(spec, 0);
        // What an agent draws for its own.
        signed.hello.challenge = sha256_of(&(self.cast.node.account(), self.now));
        signed.signature = self.cast.node.sign_text(&signing_digest(&self.pool, "hello", &signed.hello).0)?;
        self.enter(Input::Linked(Box::new(signed)));
        let until = TimeMs(self.now + 1_000 * HOUR_MS);
        let accounts: Vec<Account> = self.cast.renters.iter().map(Signer::account).collect();
        for renter in accounts {
            let key = self.state.delegate;
            self.block(vec![
                ChainEvent::Deposited { renter, amount: DEPOSIT },
                ChainEvent::KeyGranted { renter, key, cap: DEPOSIT, until },
            ]);
        }
        Ok(())
    }

    /// A renter asks for one member for an hour, signed with his key.
    ///
    /// # Errors
    ///
    /// [`RehearseError`] if he is refused, or the key does not sign.
    pub fn request(&mut self, signer: &Signer, want: &MemberWant) -> Result<LeaseId, RehearseError> {
        self.asked += 1;
        let request = LeaseRequest {
            renter: signer.account(),
            idem: sha256_of(&(signer.account(), self.asked)),
            members: vec![want.clone()],
            min_members: 1,
            min_nodes: 1,
            within: Within::Pool,
            max_latency_us: None,
            regions: Vec::new(),
            max_rate: None,
            classes: 0b11_1111,
            needs: selion_api::BoxFeatures::NONE,
            duration_ms: HOUR_MS,
            wait_ms: 10 * HOUR_MS,
            on_node_loss: OnNodeLoss::End,
            priority: Priority::Standard,
            licence: None,
            work: Hash32([7; 32]),
            datasets: Vec::new(),
            near_data: false,
        };
        let digest = signing_digest(&self.pool, "lease", &request);
        let signature = Some(signer.sign_text(&digest.0)?);
        match self.enter(Input::Request(RequestLease { request, signature })) {
            Answer::Created(lease) => Ok(lease),
            other => Err(RehearseError::Story(format!("a request was answered with {other:?}"))),
        }
    }

    /// What the node's agent says of the lease's one member.
    ///
    /// # Errors
    ///
    /// [`RehearseError`] if the lease has no member, or the key does not sign.
    pub fn report(&mut self, id: LeaseId, event: MemberEvent, metered_ms: u64) -> Result<(), RehearseError> {
        let lease = self.state.leases.get(&id);
        let Some((lease, member)) = lease.and_then(|lease| Some((lease, lease.members.first()?))) else {
            return Err(RehearseError::Story(format!("{id} was not granted")));
        };
        let report = Report {
            node: member.node,
            provider: member.provider,
            seq: self.state.nodes.get(&member.node).map_or(0, |node| node.last_seq) + 1,
            fence: self.fence,
            lease: id,
            attempt: lease.attempt,
            member: 0,
            gpus: member.gpus.clone(),
            slot: member.slot.clone(),
            event,
            metered_ms,
        };
        let signed = sign(&self.pool, &self.cast.node, report)?;
        self.enter(Input::Report(signed));
        Ok(())
    }

    /// The number of the first entry with an effect that `which` is true for, and the effect's place.
    #[must_use]
    pub fn find(&self, which: impl Fn(&Effect) -> bool) -> Option<(usize, usize)> {
        self.drafts.iter().enumerate().find_map(|(entry, draft)| Some((entry, draft.effects.iter().position(&which)?)))
    }

    /// Publishes: every hash and every head fits what the drafts say.
    ///
    /// # Errors
    ///
    /// The authority's key does not sign.
    pub fn seal(&self) -> Result<Vec<LoggedEntry>, SignerError> {
        let mut tree = Tree::default();
        let mut log = Vec::with_capacity(self.drafts.len());
        for draft in &self.drafts {
            let leaves: Vec<Vec<u8>> = draft.effects.iter().map(Effect::leaf).collect();
            let hashes: Vec<Hash32> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
            let Stamp { seq, at_ms, fence } = draft.stamp;
            let input = canonical(&draft.input);
            let entry = Entry { rules: RULES, seq, fence, at_ms, input, effects_root: root(&hashes) };
            tree.push(entry.leaf());
            let head = |digest| {
                let head = Head { size: seq + 1, root: tree.root(), digest, fence };
                let signature = self.cast.authority.sign_text(&head.digest_to_sign(&self.pool).0)?;
                Ok::<_, SignerError>(SignedHead { head, signature })
            };
            log.push(LoggedEntry {
                seq,
                entry: hex::encode(entry.bytes()),
                effects: leaves.iter().map(hex::encode).collect(),
                head: draft.digest.map(head).transpose()?,
            });
        }
        Ok(log)
    }
}

/// A report, signed with that key.
///
/// # Errors
///
/// The key does not sign.
pub fn sign(pool: &PoolId, key: &Signer, report: Report) -> Result<SignedReport, SignerError> {
    let digest = signing_digest(pool, "report", &report);
    Ok(SignedReport { signature: key.sign_text(&digest.0)?, report })
}
