//! The agent: one loop that brings what the node holds to what it should hold.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use selion_api::agent::{Assignment, Desired, MemberEvent, Outputs, Peer, Phase, Report, Resume};
use selion_api::seal::Sealed;
use selion_api::slice::Sandbox;
use selion_api::{Account, NodeSpec, Reason, words};
use selion_contracts::{Rpc, Signer};
use selion_dataplane::Store;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::book::{Book, BookError};
use crate::boxes::{self, Taken};
use crate::cards::{self, Cards};
use crate::claim::Collector;
use crate::config::{Config, GpuSource};
use crate::disk;
use crate::error::AgentError;
use crate::event::Event;
use crate::features;
use crate::gpus::{Gpus, NvmlGpus, Simulated};
use crate::guard::Guard;
use crate::images::Images;
use crate::keys;
use crate::link::{Authority, Inbound, Link};
use crate::logs::Logs;
use crate::member::{self, Followed, Shared};
use crate::member_key::MemberKey;
use crate::money::keep_vouchers;
use crate::outputs::{self, Ended, Record, Shelf, Uploads};
use crate::reconcile::{Action, Held, Order, reconcile};
use crate::reporter::{Eviction, OnEvent, ReportError, Reporter};
use crate::runtime::keep::Lock;
use crate::runtime::{Bin, Groups, Outlook, ProcessRuntime, RootFs, Runtime, Walls, advice, probe, sandbox_name};
use crate::spec::{known_models, known_work, node_spec};
use crate::status::{self, Board, Desk, Diary};

/// How long a stopping agent waits for its last reports to be acknowledged.
const FAREWELL: Duration = Duration::from_secs(3);

/// An opened node: its state, GPUs and runtime, and what it says it is. `run`, `join` and `doctor` begin with one.
pub(crate) struct Node {
    pub(crate) book: Arc<Book>,
    pub(crate) gpus: Arc<Mutex<Box<dyn Gpus>>>,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// None without a sandbox: images cannot be laid out then.
    pub(crate) images: Option<Images>,
    pub(crate) spec: NodeSpec,
    pub(crate) cards: Cards,
    board: Arc<Board>,
}

impl Node {
    pub(crate) async fn open(config: &Config) -> Result<Self, AgentError> {
        check(config)?;
        let book = Arc::new(Book::open(&absolute(config)?)?);
        let node = keys::node_of(book.node_key());
        let mut gpus = open_gpus(&config.gpus, &node.0)?;
        let all = gpus.list()?;
        if all.is_empty() {
            return Err(AgentError::NoGpus);
        }
        known_models(&config.prices, &all)?;
        known_work(config, &all)?;
        let (open, _) = book.outbox().members();
        let before = cards::before(book.dir());
        let (facts, cards) = cards::settle(cards::choose(config, &all)?, &all, before.as_deref(), &open);
        let walls = walls(config, &book)?;
        let runtime = ProcessRuntime::new(walls.clone())?;
        // What an earlier life started may run on.
        let stay = boxes::pending(&book.leases());
        let images = open_images(config, &book, &stay).await?;
        // Where leases run in images, that is what has to work; where they may run among the machine's programs, that too.
        let mut roots: Vec<RootFs> = images.iter().map(Images::base_root).collect::<Result<_, _>>()?;
        if images.is_none() || config.machine_root {
            roots.push(RootFs::Machine);
        }
        // So that what runs is taken up at once, what was found before is not found out again in the same life of the machine.
        let mark = features::mark(config);
        let known = if stay.is_empty() { None } else { features::recall(book.dir(), &mark) };
        for root in roots.iter().filter(|_| known.is_none()) {
            probe(book.dir(), walls.clone(), root.clone()).await.map_err(|why| AgentError::Sandbox {
                sandbox: sandbox_name(config.sandbox),
                why,
                advice: advice(),
            })?;
        }
        let groups = Groups::open_but(&group_of(&node.0), &stay);
        let root = roots.first().unwrap_or(&RootFs::Machine);
        let features = match known {
            Some(features) => features,
            None => features::found(config, book.dir(), &walls, &groups, root).await,
        };
        features::remember(book.dir(), &mark, features);
        let spec = node_spec(config, node, provider(config, &book)?, &facts, config.sandbox)?;
        let spec = NodeSpec { features, ..spec };
        let board = Arc::new(Board::new(features));
        let runtime = runtime.within(groups).alone(Duration::from_millis(config.alone_ms));
        Ok(Self { book, gpus: Arc::new(Mutex::new(gpus)), runtime: Arc::new(runtime), images, spec, cards, board })
    }
}

async fn open_images(config: &Config, book: &Book, stay: &[String]) -> Result<Option<Images>, AgentError> {
    if config.sandbox == Sandbox::None {
        return Ok(None);
    }
    let opened = Images::open(&book.images(), config.image_bytes, &config.registries, config.machine_root).await?;
    // Whose members they were lives no more.
    opened.forget_members_but(stay)?;
    Ok(Some(opened))
}

/// Name of the control group of a node's agent: two agents of one machine do not meet.
fn group_of(node: &[u8; 20]) -> String {
    node[..8].iter().fold("selion-".to_owned(), |name, byte| name + &format!("{byte:02x}"))
}

/// What stands between commands and this machine.
fn walls(config: &Config, book: &Book) -> Result<Walls, AgentError> {
    // An owner who shows a folder of his home has said so.
    let is_shown = |home: &PathBuf| config.show.iter().any(|shown| shown.starts_with(home));
    let home = std::env::home_dir().filter(|home| home.is_absolute() && !is_shown(home));
    Ok(Walls {
        sandbox: config.sandbox,
        helper: helper(config)?,
        grace: Duration::from_millis(config.stop_grace_ms),
        hidden: [book.dir().to_owned()].into_iter().chain(home).chain(config.hide.iter().cloned()).collect(),
        shown: config.show.clone(),
        outlook: Outlook { resolvers: config.resolvers.clone(), deny: config.deny.clone(), smtp: config.smtp },
    })
}

/// The binary that answers to the hidden subcommand.
fn helper(config: &Config) -> Result<PathBuf, AgentError> {
    let own = || {
        std::env::current_exe()
            .map_err(|source| AgentError::System { what: "find this program's own file".into(), source })
    };
    config.sandbox_helper.clone().map_or_else(own, Ok)
}

/// Opens the configured GPUs.
pub(crate) fn open_gpus(source: &GpuSource, node: &[u8]) -> Result<Box<dyn Gpus>, AgentError> {
    Ok(match source {
        GpuSource::Nvml => Box::new(NvmlGpus::open()?),
        GpuSource::Simulated { models } => Box::new(Simulated::new(models, node)?),
    })
}

/// The owner's account.
pub(crate) fn provider(config: &Config, book: &Book) -> Result<Account, AgentError> {
    match config.provider {
        Some(account) => Ok(account),
        None => Ok(provider_key(book)?.account()),
    }
}

/// File of the owner's key in the state directory.
pub(crate) const PROVIDER_KEY: &str = "provider.key";

/// The owner's key, where it is kept on this box.
pub(crate) fn provider_key(book: &Book) -> Result<Signer, BookError> {
    Ok(Signer::open_or_create(&book.dir().join(PROVIDER_KEY))?)
}

fn check(config: &Config) -> Result<(), AgentError> {
    let fault = |text: &str| Err(AgentError::Config(text.into()));
    if let Some(server) = config.resolvers.iter().find(|server| server.is_loopback() || server.is_unspecified()) {
        return fault(&format!("resolvers names {server}, this machine's own loopback, which no lease reaches"));
    }
    if config.meter_ms == 0 {
        return fault("meter_ms is 0; use 1000 to 60000");
    }
    if config.unsigned_cap_ms == 0 || config.vault_ms == 0 {
        return fault("unsigned_cap_ms and vault_ms are milliseconds above 0; use 900000 and 60000");
    }
    if config.ports == 0 || config.port_base.checked_add(config.ports - 1).is_none() {
        return fault("port_base and ports name no range of ports up to 65535");
    }
    if !words::is_host(&config.address) {
        return fault(
            "address is no host name and no IP; give the one at which other nodes reach this one, without a port",
        );
    }
    // The chain's URL may stand in a file: what counts is where it leads. One that is none is told where it is used.
    let chain = Rpc::new(&config.chain_rpc).map_or_else(|_| config.chain_rpc.clone(), |rpc| rpc.node().to_owned());
    for (what, url) in [("controller", &config.controller), ("chain node", &chain)] {
        if selion_client::is_exposed(url) && !config.insecure {
            return fault(&format!(
                "the {what} at {url} is reached without TLS beyond this machine: whoever is on the way could give this \
                 node orders; use an https:// address (docs/operator.md says how to set one up), or --insecure"
            ));
        }
    }
    for (what, name) in [("region", &config.region), ("rack", &config.rack)] {
        if !words::is_name(name) {
            return fault(&format!("{what} is no name; use at most 64 printable ASCII characters"));
        }
    }
    Ok(())
}

fn absolute(config: &Config) -> Result<PathBuf, AgentError> {
    std::path::absolute(&config.state_dir).map_err(|source| AgentError::System {
        what: format!("find state directory {}", config.state_dir.display()),
        source,
    })
}

/// Runs the agent until `stop` is cancelled, then stops every member, reports and returns. Nothing is deregistered.
/// `on_event` is told what happens; it must not block.
///
/// # Errors
///
/// [`AgentError`] if the agent cannot start, or can state nothing more (a full disk).
pub async fn run(
    config: Config,
    stop: CancellationToken,
    on_event: impl Fn(Event) + Send + Sync + 'static,
) -> Result<(), AgentError> {
    let node = Node::open(&config).await?;
    cards::keep(node.book.dir(), &node.cards)?;
    let on_event = noted(&node.board, Diary::at(node.book.dir()), on_event);
    on_event(Event::Up {
        node: node.spec.node,
        provider: node.spec.provider,
        sandbox: node.spec.sandbox,
        gpus: node.spec.gpus.len(),
    });
    on_event(Event::Cards(node.cards.clone()));
    let (inbound_in, inbound) = mpsc::channel(64);
    let (outbound_in, outbound) = mpsc::channel(64);
    let (voucher_in, vouchers) = mpsc::channel(64);
    let (token_in, token) = watch::channel(None);
    let logs = node.book.logs();
    let logs = Logs::open(&logs)
        .map_err(|source| AgentError::System { what: format!("open the logs at {}", logs.display()), source })?;
    let unlink = CancellationToken::new();
    let life = crate::link::random().map_err(|error| AgentError::System {
        what: "get random bytes".into(),
        source: std::io::Error::other(error),
    })?;
    let link = Link {
        url: config.controller.clone(),
        pool: config.pool,
        authority: Authority::new(config.chain_rpc.clone()),
        spec: node.spec.clone(),
        life,
        book: Arc::clone(&node.book),
        logs: logs.clone(),
        token: token_in,
        inbound: inbound_in,
        outbound,
        on_event: Arc::clone(&on_event),
        stop: unlink.clone(),
    };
    let halt = CancellationToken::new();
    let parts = outputs::Parts {
        shelf: Shelf::at(node.book.outputs()),
        store: Store::open(node.book.content())?,
        gateway: config.controller.clone(),
        token: token.clone(),
        logs,
        told: outbound_in.clone(),
    };
    let uploads = Uploads::new(parts, halt.clone());
    let survey = boxes::survey(node.runtime.as_ref(), &node.book.leases(), &node.book.outbox().members().0).await;
    let runs: Vec<MemberKey> = survey.taken.iter().map(|taken| MemberKey::of(&taken.assignment)).collect();
    // Before the rooms of an earlier life are cleared.
    let left = uploads.recover(&runs).await;
    let mut agent = Agent::new(&config, &node, token, voucher_in, uploads, Arc::clone(&on_event), &runs)?;
    agent.take_up(survey.taken);
    agent.close_interrupted(left, survey.gone).await?;
    let guard = Arc::clone(&agent.shared.guard);
    let mut keepers = JoinSet::new();
    keepers.spawn(Arc::clone(&guard).watch());
    if let Some(collector) = Collector::new(&config, Arc::clone(&node.book)) {
        keepers.spawn(collector.run());
    }
    let listener = status::listen(node.book.dir());
    let listener =
        listener.map_err(|source| AgentError::System { what: "open the socket of its status".into(), source })?;
    keepers.spawn(desk(&config, &node, Arc::clone(&guard)).serve(listener));
    keepers.spawn(keep_vouchers(
        vouchers,
        Arc::clone(&node.book),
        config.chain_rpc.clone(),
        node.spec.provider,
        guard,
        outbound_in,
        Arc::clone(&on_event),
    ));
    let link = link.start().map_err(|source| AgentError::System { what: "start the link's thread".into(), source })?;
    let ran = agent.serve(inbound, &stop).await;
    on_event(Event::Stopping);
    let ended = agent.end().await;
    // What is not sent yet is sent by the next life.
    halt.cancel();
    if ran.is_ok() && ended.is_ok() {
        // Unacknowledged reports are sent at the next start.
        let _ = tokio::time::timeout(FAREWELL, node.book.outbox().settled()).await;
    }
    unlink.cancel();
    keepers.abort_all();
    let unlinked = crate::staging::blocking(move || link.join()).await;
    ran.and(ended)?;
    unlinked.map_err(|_| AgentError::Fault("link"))
}

/// Tells `on_event`, the agent's board and its diary.
fn noted(board: &Arc<Board>, diary: Diary, on_event: impl Fn(Event) + Send + Sync + 'static) -> OnEvent {
    let board = Arc::clone(board);
    Arc::new(move |event| {
        board.hear(&event);
        diary.note(&event);
        on_event(event);
    })
}

/// Where its status is asked for.
fn desk(config: &Config, node: &Node, guard: Arc<Guard>) -> Desk {
    Desk {
        board: Arc::clone(&node.board),
        book: Arc::clone(&node.book),
        gpus: Arc::clone(&node.gpus),
        guard,
        spec: node.spec.clone(),
        cards: node.cards.clone(),
        controller: config.controller.clone(),
        chain_rpc: config.chain_rpc.clone(),
        pool: tokio::sync::OnceCell::new(),
    }
}

/// What a member's task is told while it lives.
struct Told {
    order: watch::Sender<Order>,
    peers: watch::Sender<Vec<Peer>>,
    resume: watch::Sender<Resume>,
    /// How long it may run, in milliseconds.
    time: watch::Sender<u64>,
    sealed: watch::Sender<Option<Sealed>>,
}

struct Agent {
    shared: Arc<Shared>,
    book: Arc<Book>,
    vouchers: mpsc::Sender<selion_api::agent::SignedVoucher>,
    desired: Option<Desired>,
    held: BTreeMap<MemberKey, Held>,
    told: BTreeMap<MemberKey, Told>,
    /// What was sealed for members that are to be prepared, as it came last.
    sealed: BTreeMap<MemberKey, Sealed>,
    members: JoinSet<(MemberKey, Result<(), ReportError>)>,
}

impl Agent {
    fn new(
        config: &Config,
        node: &Node,
        token: watch::Receiver<Option<String>>,
        vouchers: mpsc::Sender<selion_api::agent::SignedVoucher>,
        uploads: Uploads,
        on_event: OnEvent,
        runs: &[MemberKey],
    ) -> Result<Self, AgentError> {
        let book = Arc::clone(&node.book);
        let leases = book.leases();
        let bin = clear(&leases, &book.dir().join(BIN), runs)?;
        let shared = Shared {
            gpus: Arc::clone(&node.gpus),
            runtime: Arc::clone(&node.runtime),
            images: node.images.clone(),
            store: Store::open(book.content())?,
            reporter: Reporter::new(Arc::clone(&book), node.spec.provider, on_event),
            logs: uploads.logs(),
            told: uploads.told(),
            uploads,
            guard: Arc::new(Guard::open(config, Arc::clone(&book), node.spec.provider)?),
            gateway: config.controller.clone(),
            token,
            leases,
            bin,
            features: node.spec.features,
            book: Arc::clone(&book),
            secrets_within: Duration::from_millis(config.secrets_ms),
            meter: Duration::from_millis(config.meter_ms),
            board: Arc::clone(&node.board),
        };
        Ok(Self {
            shared: Arc::new(shared),
            book,
            vouchers,
            desired: None,
            held: BTreeMap::new(),
            told: BTreeMap::new(),
            sealed: BTreeMap::new(),
            members: JoinSet::new(),
        })
    }

    /// Goes on with members that an earlier life started.
    fn take_up(&mut self, taken: Vec<Taken>) {
        for taken in taken {
            self.shared.guard.resume(&taken.assignment);
            let run_ms = taken.running.run_ms().unwrap_or(taken.assignment.max_run_ms);
            let (key, followed) = self.follow(&taken.assignment, Order::Start, run_ms);
            let shared = Arc::clone(&self.shared);
            self.members.spawn(async move { (key, member::go_on(shared, taken, followed).await) });
        }
    }

    /// States the end of every other member that the agent's own end interrupted, at the latest when the meter was last read.
    /// Where an earlier life saw the end of the command, that is stated; `left` is what was found of outputs, `gone` of boxes.
    async fn close_interrupted(
        &mut self,
        mut left: Left,
        gone: Vec<(MemberKey, String, Option<Lock>)>,
    ) -> Result<(), AgentError> {
        let (mut open, ended) = self.book.outbox().members();
        open.retain(|report| !self.told.contains_key(&MemberKey::of_report(report)));
        for report in &open {
            let key = MemberKey::of_report(report);
            let (end, outputs) = match left.remove(&key) {
                Some((record, progress)) => (last_report(report, &record), Some(progress.borrow().clone())),
                None => (failed(report), None),
            };
            if matches!(end.event, MemberEvent::Failed { .. }) {
                let why = gone.iter().find(|(of, ..)| *of == key).map(|(_, why, _)| why.as_str());
                let why = why.unwrap_or("nothing of it is left");
                self.shared.logs.note(key, format!("the agent was restarted; the member did not outlive it: {why}"));
                self.shared.logs.close(key);
            }
            self.shared.reporter.make(end, outputs).await.map_err(statement)?;
        }
        self.shared.guard.interrupted();
        for report in open {
            let key = MemberKey::of_report(&report);
            self.held.insert(key, over(report.gpus, report.slot));
        }
        for key in ended {
            self.held.entry(key).or_insert_with(|| over(Vec::new(), selion_api::Slot::Whole));
        }
        Ok(())
    }

    async fn serve(
        &mut self,
        mut inbound: mpsc::Receiver<Inbound>,
        stop: &CancellationToken,
    ) -> Result<(), AgentError> {
        let mut looks = tokio::time::interval(disk::EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                _ = looks.tick() => self.watch_disk().await,
                message = inbound.recv() => match message {
                    Some(Inbound::Desired(desired)) => self.take(desired).await?,
                    Some(Inbound::OutputsHeard(key, state)) => self.shared.uploads.heard(key, state),
                    Some(Inbound::Secrets(key, sealed)) => self.take_secrets(key, sealed),
                    Some(Inbound::Voucher(voucher)) => {
                        if self.vouchers.try_send(voucher).is_err() {
                            tracing::warn!("too many vouchers wait for the chain; the controller will send this one again");
                        }
                    }
                    None => return Err(AgentError::Fault("link")),
                },
                Some(ended) = self.members.join_next() => {
                    self.note(ended)?;
                    self.pass().await?;
                }
            }
        }
    }

    /// Ends the member that has filled the disk, if one has. One at a time: its end makes room.
    async fn watch_disk(&mut self) {
        let leases = self.shared.leases.clone();
        let running: Vec<MemberKey> = self.told.keys().copied().collect();
        let found = crate::staging::blocking(move || {
            let room = disk::Room::at(&leases)?;
            let largest = if room.is_short() { disk::largest(&leases, &running, room) } else { None };
            Ok::<_, std::io::Error>((room, largest))
        });
        match found.await {
            Ok((room, None)) if room.is_ample() => {
                let book = Arc::clone(&self.book);
                crate::staging::blocking(move || book.refill()).await;
            }
            Ok((_, Some((key, bytes)))) if self.shared.reporter.evict(key, Eviction::FullDisk) => {
                let line = format!(
                    "the node's disk is full, and this member has written most of it ({} MiB): it is ended",
                    bytes >> 20
                );
                tracing::warn!(member = %key, bytes, "a member has filled the disk; it is ended");
                self.shared.logs.note(key, line);
                self.order(key, Order::Stop);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "how full the disk is cannot be read"),
        }
    }

    /// A new desired state, if it is not older than the one we follow.
    async fn take(&mut self, desired: Desired) -> Result<(), AgentError> {
        let age = |desired: &Desired| (desired.fence, desired.generation);
        if self.desired.as_ref().is_some_and(|now| age(&desired) < age(now)) {
            tracing::info!(generation = desired.generation, "an older desired state is ignored");
            return Ok(());
        }
        let is_to_come = |key: &MemberKey| {
            let of = |assignment: &&_| MemberKey::of(assignment) == *key;
            desired.assignments.iter().find(of).is_some_and(|assignment| assignment.phase == Phase::Prepare)
        };
        self.sealed.retain(|key, _| is_to_come(key));
        self.desired = Some(desired);
        self.pass().await
    }

    /// Keeps what was sealed for a member that is to be prepared, until it starts, and hands it over.
    fn take_secrets(&mut self, key: MemberKey, sealed: Sealed) {
        let mut desired = self.desired.iter().flat_map(|desired| &desired.assignments);
        if !desired.any(|assignment| MemberKey::of(assignment) == key && assignment.phase == Phase::Prepare) {
            return;
        }
        if let Some(told) = self.told.get(&key) {
            told.sealed.send_replace(Some(sealed.clone()));
        }
        self.sealed.insert(key, sealed);
    }

    /// One pass of the loop.
    async fn pass(&mut self) -> Result<(), AgentError> {
        let Some(desired) = &self.desired else { return Ok(()) };
        for action in reconcile(&desired.assignments, &self.held) {
            match action {
                Action::Stop(key) => self.order(key, Order::Stop),
                Action::Start(key) => self.order(key, Order::Start),
                Action::Forget(key) => {
                    self.held.remove(&key);
                    self.told.remove(&key);
                }
                Action::Prepare(assignment) => self.prepare(*assignment),
                Action::Refuse(assignment) => {
                    let key = MemberKey::of(&assignment);
                    let line = "told to run what was never prepared here; it might run twice, so it does not run";
                    self.shared.logs.note(key, line.into());
                    self.shared.logs.close(key);
                    self.held.insert(key, over(assignment.gpus.clone(), assignment.slot.clone()));
                    let event = MemberEvent::Failed { reason: Reason::RuntimeFailed };
                    self.shared.reporter.report(&assignment, event, 0, None).await.map_err(statement)?;
                }
            }
        }
        self.tell_members();
        Ok(())
    }

    /// Tells members where the others of their gangs are now, how long they may run, and whether there is what they wait for.
    fn tell_members(&self) {
        for assignment in self.desired.iter().flat_map(|desired| &desired.assignments) {
            if let Some(told) = self.told.get(&MemberKey::of(assignment)) {
                told.peers.send_if_modified(|peers| {
                    let changed = *peers != assignment.peers;
                    peers.clone_from(&assignment.peers);
                    changed
                });
                told.resume.send_replace(assignment.resume.clone());
                told.time
                    .send_if_modified(|time| core::mem::replace(time, assignment.max_run_ms) != assignment.max_run_ms);
            }
        }
    }

    fn order(&mut self, key: MemberKey, order: Order) {
        if let Some(held) = self.held.get_mut(&key) {
            held.order = order;
        }
        if let Some(told) = self.told.get(&key) {
            told.order.send_replace(order);
        }
    }

    fn prepare(&mut self, assignment: Assignment) {
        let (key, followed) = self.follow(&assignment, Order::Prepare, assignment.max_run_ms);
        let shared = Arc::clone(&self.shared);
        self.members.spawn(async move { (key, member::drive(shared, assignment, followed).await) });
    }

    /// Holds a member from now on; what it follows.
    fn follow(&mut self, assignment: &Assignment, at: Order, run_ms: u64) -> (MemberKey, Followed) {
        let key = MemberKey::of(assignment);
        let (order, orders) = watch::channel(at);
        let (peers_in, peers) = watch::channel(assignment.peers.clone());
        let (resume_in, resume) = watch::channel(assignment.resume.clone());
        let (time_in, time) = watch::channel(run_ms);
        let (sealed_in, sealed) = watch::channel(self.sealed.get(&key).cloned());
        let (gpus, slot) = (assignment.gpus.clone(), assignment.slot.clone());
        self.held.insert(key, Held { order: at, ended: false, gpus, slot });
        self.told.insert(key, Told { order, peers: peers_in, resume: resume_in, time: time_in, sealed: sealed_in });
        (key, Followed { orders, peers, resume, time, sealed })
    }

    fn note(
        &mut self,
        ended: Result<(MemberKey, Result<(), ReportError>), tokio::task::JoinError>,
    ) -> Result<(), AgentError> {
        let (key, lived) = ended.map_err(|error| {
            tracing::error!(%error, "a member's task failed");
            AgentError::Fault("member")
        })?;
        lived.map_err(statement)?;
        if let Some(held) = self.held.get_mut(&key) {
            held.ended = true;
        }
        self.told.remove(&key);
        Ok(())
    }

    /// Stops every member and waits for their last reports.
    async fn end(&mut self) -> Result<(), AgentError> {
        let keys: Vec<MemberKey> = self.told.keys().copied().collect();
        keys.into_iter().for_each(|key| self.order(key, Order::Stop));
        let mut result = Ok(());
        while let Some(ended) = self.members.join_next().await {
            result = result.and(self.note(ended));
        }
        result
    }
}

/// What was found of outputs at the start: each member's record, and what follows.
type Left = BTreeMap<MemberKey, (Record, watch::Receiver<Outputs>)>;

/// Not an exit of the command: the provider's side failed it, whatever it was doing.
fn failed(report: &Report) -> Report {
    Report { event: MemberEvent::Failed { reason: Reason::RuntimeFailed }, ..report.clone() }
}

/// The end that an earlier life saw and had no time to state.
fn last_report(report: &Report, record: &Record) -> Report {
    match record.ended {
        Some(ended @ Ended { metered_ms, .. }) => {
            let event = outputs::event(&ended, &record.salt, record.said.as_ref());
            Report { event, metered_ms, ..report.clone() }
        }
        None => failed(report),
    }
}

fn over(gpus: Vec<selion_api::GpuId>, slot: selion_api::Slot) -> Held {
    Held { order: Order::Stop, ended: true, gpus, slot }
}

fn statement(error: ReportError) -> AgentError {
    match error {
        ReportError::Outbox(error) => AgentError::Book(error.into()),
        ReportError::NoPool => AgentError::Fault("link (it passed an assignment before a pool was known)"),
    }
}

/// Throws away what members of an earlier life left behind, but those that run on; the bin into which it went. What stays is
/// nobody's: no member is run twice.
fn clear(leases: &Path, bin: &Path, runs: &[MemberKey]) -> Result<Bin, AgentError> {
    let failed = |source| AgentError::System { what: format!("clear {}", leases.display()), source };
    let bin = Bin::open(bin).map_err(failed)?;
    let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
    for entry in std::fs::read_dir(leases).map_err(failed)?.flatten() {
        if entry.file_name().to_str().is_some_and(|name| runs.iter().any(|runs| runs == name)) {
            continue;
        }
        if let Err(error) = bin.take(&entry.path()) {
            tracing::warn!(path = %entry.path().display(), %error, "a lease's folder cannot be moved; it stays");
        }
    }
    Ok(bin)
}

/// The folder of the state directory in which old rooms wait for their removal.
const BIN: &str = "over";

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
