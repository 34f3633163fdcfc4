//! Joins the parts of one controller and runs them until told to stop.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::stat::Mode;
use selion_api::commit::PoolId;
use selion_api::{Address, Amount, NodeId};
use selion_contracts::{BlockTag, PoolError, RpcError};
use selion_market::State;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::agents::{self, Claim, Core, Hub};
use crate::config::{BadConfig, Config};
use crate::http::origin::Origin;
use crate::http::pass::Logins;
use crate::http::said::Heard;
use crate::http::secrets::Secrets;
use crate::http::{self, Metrics};
use crate::ipfs::Ipfs;
use crate::keys::{self, KeyError, Keys};
use crate::loops::chain::AuthoritySender;
use crate::loops::claims::choice::Rules;
use crate::loops::vouchers::{self, Office};
use crate::loops::{self, Loops};
use crate::mark::{Mark, MarkError};
use crate::mirror::check::{CheckError, LocalLog, Terms, verify_chain, verify_log};
use crate::mirror::{self, Finality, Mirror, SourceError};
use crate::pen::Pen;
use crate::registry::Registries;
use crate::relay::{self, Relay};
use crate::sequencer::{self, Sequencer, StartError};
use crate::serve;
use crate::store::{Store, StoreError};
use crate::{App, wall_clock};

/// How long open answers may take to end once the controller is told to stop.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long agents have to say which head they were shown before anything is signed: their longest pause between two
/// tries, and a second to connect.
const HEARD_WITHIN: Duration = Duration::from_secs(3);
/// How often outputs whose time is over are looked for: they were kept for a month.
const LET_GO_EVERY: Duration = Duration::from_secs(3_600);

/// Why a controller could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A value in the configuration cannot be.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// The data directory cannot be used.
    #[error("data directory {path}: {source}; name one that this user may write with --data-dir")]
    DataDir {
        /// Folder.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// Another controller holds the data directory.
    #[error(
        "data directory {path} is in use by another controller (process {pid}); stop that one, or name another with \
         --data-dir"
    )]
    InUse {
        /// Folder.
        path: String,
        /// Process id as it stands in the lock file; empty if it cannot be read.
        pid: String,
    },
    /// A key file is wrong.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The log is not the one over which a head was signed, or nothing tells.
    #[error(transparent)]
    Mark(#[from] MarkError),
    /// Chain and configuration do not agree, or the log is not the one that was anchored.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// Registries of images cannot be asked.
    #[error("registries of images")]
    Registries(#[from] selion_dataplane::image::ImageError),
    /// The chain node fell silent between two questions.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log cannot be continued.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The content store cannot be used.
    #[error(transparent)]
    Content(#[from] selion_dataplane::StoreError),
    /// The Kubo named is none of this machine.
    #[error(transparent)]
    Kubo(#[from] selion_dataplane::KuboError),
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}: {source}; stop what uses it, or name another with --listen")]
    Listen {
        /// Address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// Another controller took over, or an agent proved that this log is not the one that was promised.
    #[error("this controller may not decide any more; the lines above say why")]
    Deposed,
}

/// Runs a controller until `stop`. `ready` is told the address once requests are answered.
///
/// # Errors
///
/// [`RunError`], each naming the remedy.
pub async fn run(
    config: Config,
    stop: CancellationToken,
    ready: impl FnOnce(SocketAddr) + Send,
) -> Result<(), RunError> {
    // Files that SQLite and others make later are this user's alone as well.
    nix::sys::stat::umask(Mode::from_bits_truncate(0o077));
    let policy = config.policy.policy()?;
    config.serving.check()?;
    let dir = config.data_dir.clone();
    let in_dir = |source| RunError::DataDir { path: dir.display().to_string(), source };
    make_private(&dir).map_err(in_dir)?;
    let _alone = lock(&dir)?;
    let keys = Arc::new(Keys::open(&dir, config.authority_key.as_deref())?);
    let terms = verify_chain(&config.chain_rpc, config.pool, None, keys.authority(), keys.delegate()).await?;
    let store = Store::open(&dir).await?;
    verify_log(&LocalLog::read(&store, &terms.anchor).await.map_err(StoreError::Sql)?, &terms.anchor)?;
    // Before the term is raised: a second controller that finds the port taken must not depose the first.
    let listener =
        TcpListener::bind(config.listen).await.map_err(|source| RunError::Listen { address: config.listen, source })?;
    let address = listener.local_addr().map_err(|source| RunError::Listen { address: config.listen, source })?;
    let secrets = Arc::new(Secrets::open(&dir, &terms.id)?);
    let origin = Arc::new(Origin::of(config.public_url.as_deref(), address)?);
    let logins = Arc::new(Logins::load(&store.readers, wall_clock()).await.map_err(StoreError::Sql)?);
    let content = selion_dataplane::Store::open(dir.join("content"))?;
    let ipfs = Ipfs::new(content.clone(), config.kubo.as_deref(), config.kubo_publish)?;
    let logs = agents::logs::Logs::open(&dir, agents::logs::Limits::default()).map_err(in_dir)?;

    let mark = Arc::new(Mark::open(&authority_path(&config), &dir.join("keys"), &terms.id)?);

    // The edges end first, the log last: it still takes what they had in hand.
    let (edges, core) = (stop.child_token(), CancellationToken::new());
    let parts = sequencer::Parts {
        store: store.clone(),
        pool: terms.id,
        epoch: terms.epoch,
        delegate: keys.delegate(),
        policy,
        sign: head_signer(keys.clone(), terms.id, mark.clone()),
        clock: wall_clock,
    };
    let (log, opening) = Sequencer::load(parts, core.clone()).await?;
    let links = agents::Parts {
        log: log.clone(),
        store: store.clone(),
        secrets: secrets.clone(),
        sign: Box::new(text_signer(keys.clone())),
        clock: wall_clock,
        content: content.clone(),
        ipfs: ipfs.clone(),
        on_claim: on_claim(core.clone()),
    };
    extends(&mark, terms.epoch, &log, &links).await?;
    let hub = Hub::new(Arc::new(links), terms.id, logs);
    hub.hold();
    let mirror = Mirror::new();
    let nudge = Arc::new(Notify::new());
    let relay = open_relay(&config, &terms, &store, &nudge).await?;
    let now = log.read(|state| state.now).max(wall_clock());
    let heard = Arc::new(Heard::load(&store.readers, &terms.id, now).await?);
    let registries = Registries::new(&config.registries)?;
    let app = App {
        registries,
        pool: terms.id,
        heard,
        names: Default::default(),
        terms: terms.fixed.shown(),
        authority: terms.authority,
        pen: Arc::new(Pen::new(terms.id, terms.authority, text_signer(keys.clone()))),
        delegate: keys.delegate(),
        store: store.clone(),
        log: log.clone(),
        content,
        ipfs: ipfs.clone(),
        hub: hub.clone(),
        mirror: mirror.clone(),
        relay,
        secrets,
        logins,
        origin,
        metrics: Arc::new(Metrics::default()),
        clock: wall_clock,
        config: Arc::new(config),
    };
    let limits = app.config.serving.clone();
    let mut serving = std::pin::pin!(serve::serve(listener, http::router(app.clone()), &limits, edges.clone()));
    // A head that an agent was shown may be one that this log lost: then nothing is signed that contradicts it.
    let heard = tokio::select! {
        silent = hub.heard(HEARD_WITHIN) => Some(silent),
        () = &mut serving => None,
        () = core.cancelled() => None,
        () = stop.cancelled() => None,
    };
    let Some(silent) = heard else {
        edges.cancel();
        store.close().await;
        return if core.is_cancelled() { Err(RunError::Deposed) } else { Ok(()) };
    };
    if !silent.is_empty() {
        tracing::warn!(nodes = silent.len(), "not every agent has said which head it was shown; going on without them");
    }
    let writer = opening.open().await?;
    check_kept(&store, &terms, &keys, &log).await?;
    let mut tasks = start_edges(&app, &terms, keys, (address, nudge), &edges).await?;
    tasks.spawn(watch_authority(log.clone(), core.clone(), edges.clone()));
    hub.open();
    tracing::info!(%address, pool = %terms.id.controller, fence = ?log.position().fence, "the controller is ready");
    ready(address);

    tokio::select! {
        () = &mut serving => {}
        () = core.cancelled() => {}
        // What is still open then are streams that nobody ended.
        () = stop.cancelled() => drop(tokio::time::timeout(FAREWELL, &mut serving).await),
    }
    let deposed = core.is_cancelled();
    edges.cancel();
    while tasks.join_next().await.is_some() {}
    core.cancel();
    if writer.await.is_err() {
        tracing::error!("the sequencer ended by a panic; what it had committed is on disk");
    }
    store.close().await;
    if deposed { Err(RunError::Deposed) } else { Ok(()) }
}

/// Where the authority's key lies.
fn authority_path(config: &Config) -> PathBuf {
    config.authority_key.clone().unwrap_or_else(|| config.data_dir.join("keys").join(keys::AUTHORITY))
}

/// Whether the log goes on from the highest head that this key signed.
async fn extends(mark: &Mark, epoch: u32, log: &Sequencer, links: &agents::Parts) -> Result<(), RunError> {
    let Some(head) = mark.highest(epoch) else { return Ok(()) };
    let ours = links.root_at(head.size).await.map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(mark.check(head, log.read(|state| state.next_seq), ours)?)
}

/// Looks at what is kept beside the log: vouchers and orders that somebody altered.
async fn check_kept(store: &Store, terms: &Terms, keys: &Keys, log: &Sequencer) -> Result<(), RunError> {
    let office = Office { fence: log.position().fence, authority: keys.authority(), delegate: keys.delegate() };
    let judge = |due: &_| log.read(|state| vouchers::judge(state, &office, due, Amount::ZERO, wall_clock()));
    let on_chain =
        loops::kept::OnChain { chain_id: terms.id.chain_id, vault: terms.pool.at.vault, anchored: terms.anchor.size };
    loops::kept::check(store, &office, &on_chain, judge).await.map_err(StoreError::Sql)?;
    Ok(())
}

/// The counter for calls that the operator pays for, as far as he wants it and the pool's contracts can.
async fn open_relay(config: &Config, terms: &Terms, store: &Store, nudge: &Arc<Notify>) -> Result<Relay, RunError> {
    let per_day = config.relay_per_day;
    if per_day == 0 {
        return Ok(Relay::off());
    }
    let pool = terms.pool.clone();
    let forwarder = match pool.forwarder(BlockTag::Latest).await {
        Ok(forwarder) => forwarder,
        Err(PoolError::Rpc(RpcError::Reverted { .. }) | PoolError::BadAnswer { .. }) => {
            let what = format!(
                "relay_per_day is {per_day}, but the contracts of pool {} trust no forwarder; leave it at 0 for this pool",
                terms.id.controller
            );
            return Err(BadConfig { what }.into());
        }
        Err(error) => return Err(SourceError::Node(error.to_string()).into()),
    };
    let payer = terms.authority;
    let rules = relay::Rules { at: pool.at, chain_id: pool.chain_id, forwarder, payer: Address(payer.0), per_day };
    let ground = Arc::new(relay::ground::OnChain { pool, forwarder, payer });
    Ok(Relay::new(rules, store.clone(), ground, nudge.clone()))
}

/// Content of outputs goes when its time is over.
async fn let_go_of_outputs(app: App, stop: CancellationToken) {
    let pass = || {
        let app = app.clone();
        async move { loops::outlived::pass(&app.store, &app.content, (app.clock)()).await }
    };
    loops::drive("outlived outputs", LET_GO_EVERY, Arc::default(), stop, pass).await;
}

/// Starts what follows the chain, watches the links and works by itself.
async fn start_edges(
    app: &App,
    terms: &Terms,
    keys: Arc<Keys>,
    (address, outbox): (SocketAddr, Arc<Notify>),
    stop: &CancellationToken,
) -> Result<tokio::task::JoinSet<()>, RunError> {
    let birth = mirror::chain::genesis(&terms.pool).await?;
    let finality = Finality::from_terms(terms.fixed.finality_depth);
    let poll = Duration::from_millis(app.config.poll_ms.max(1));
    let public_url = app.config.public_url.clone().unwrap_or_else(|| format!("http://{address}"));
    let parts = loops::Parts {
        store: app.store.clone(),
        log: app.log.clone(),
        sender: Arc::new(AuthoritySender::new(terms.pool.clone(), keys.authority_signer().clone())),
        keys,
        pool: terms.pool.clone(),
        mirror: app.mirror.clone(),
        fence: app.log.position().fence,
        anchor_ms: app.config.anchor_ms,
        claims: Rules { claim_min: Amount(app.config.claim_min), claim_ms: app.config.claim_ms },
        agents_back: agents_back(app),
        public_url: Some(public_url),
        outbox,
        clock: app.clock,
    };
    let Loops { mut signed, mut tasks, .. } = Loops::start(&parts, stop);
    tasks.spawn(let_go_of_outputs(app.clone(), stop.clone()));
    let (mirror, source, log) = (app.mirror.clone(), Arc::new(terms.pool.clone()), Arc::new(app.log.clone()));
    let (db, mirror_stop) = (app.store.writer.clone(), stop.clone());
    tasks.spawn(async move {
        if let Err(error) = mirror.run(source, log, db, finality, birth, poll, mirror_stop).await {
            tracing::error!(%error, "the chain is not followed any more; restart the controller");
        }
    });
    tasks.spawn(http::storage::collect(app.content.clone(), stop.clone()));
    let (hub, hub_stop) = (app.hub.clone(), stop.clone());
    tasks.spawn(async move { hub.run(hub_stop).await });
    let (hub, log) = (app.hub.clone(), app.log.clone());
    tasks.spawn(async move {
        while signed.changed().await.is_ok() {
            for provider in log.read(|state| state.providers.keys().copied().collect::<Vec<_>>()) {
                hub.vouchers_signed(provider);
            }
        }
    });
    Ok(tasks)
}

/// Nodes that do not come back are entered as lost soon after the start, so this comes true by itself.
fn agents_back(app: &App) -> Arc<dyn Fn() -> bool + Send + Sync> {
    let (hub, log) = (app.hub.clone(), app.log.clone());
    Arc::new(move || log.read(|state| are_back(state, |node| hub.is_linked(node))))
}

/// Whether every node that the log holds as linked has a link to this process: others do not stand for it.
fn are_back(state: &State, is_linked: impl Fn(NodeId) -> bool) -> bool {
    state.nodes.iter().all(|(id, node)| !node.linked || is_linked(*id))
}

/// Ends this controller once a final block says that authority has passed to another epoch.
async fn watch_authority(log: Sequencer, core: CancellationToken, stop: CancellationToken) {
    let mut batches = log.subscribe();
    loop {
        if let Some(epoch) = log.read(passed_on) {
            tracing::error!(epoch, "authority has passed on: the controller of the new epoch decides. Stopping");
            core.cancel();
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            batch = batches.recv() => if matches!(batch, Err(RecvError::Closed)) { return },
        }
    }
}

/// The epoch to which authority has passed, if it is above the one under which this log is continued.
fn passed_on(state: &State) -> Option<u32> {
    let epoch = state.pool.as_ref().map(|pool| pool.epoch);
    epoch.filter(|epoch| *epoch > state.fence.epoch)
}

fn head_signer(
    keys: Arc<Keys>,
    pool: PoolId,
    mark: Arc<Mark>,
) -> Arc<dyn Fn(&selion_api::agent::Head) -> selion_api::Signature + Send + Sync> {
    Arc::new(move |head| {
        if let Err(error) = mark.raise(head) {
            tracing::error!(%error, "the mark beside the authority's key cannot be written: it would not tell a restored backup");
        }
        keys.sign_head(head, &pool)
    })
}

fn text_signer(keys: Arc<Keys>) -> impl Fn(&[u8]) -> selion_api::Signature + Send + Sync {
    move |text| keys.sign_text(text)
}

/// An agent's word is noted; an agent's proof ends this controller.
fn on_claim(core: CancellationToken) -> Box<dyn Fn(Claim) + Send + Sync> {
    Box::new(move |claim| match claim {
        Claim::HigherFence { node, fence } => {
            tracing::warn!(%node, ?fence, "an agent says that it obeys a higher fence; its link was refused");
        }
        Claim::ForeignHead { node, head, ours } => {
            tracing::error!(
                %node, size = head.head.size, theirs = %head.head.root, ?ours,
                "an agent holds a head that this log does not extend: this is a restored backup, or two controllers \
                 signed. Stopping; restore the newer data directory"
            );
            core.cancel();
        }
    })
}

/// Makes the folder for this user alone; one that others may enter is closed to them, with all that lies in it.
fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    close(dir)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_symlink() {
            close(&entry.path())?;
        }
    }
    // A folder that cannot be written is found now, not at the first lease.
    let probe = dir.join(".writable");
    fs::write(&probe, b"")?;
    fs::remove_file(probe)
}

/// Keeps other controllers off the folder for as long as the file is held: a second one would raise the term and end the
/// first. The kernel gives the lock back however this process ends.
fn lock(dir: &Path) -> Result<File, RunError> {
    let path = || dir.display().to_string();
    let failed = |source| RunError::DataDir { path: path(), source };
    let name = dir.join("controller.lock");
    let mut file = File::options().create(true).truncate(false).read(true).write(true).open(&name).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let pid = fs::read_to_string(&name).unwrap_or_default().trim().to_owned();
            return Err(RunError::InUse { path: path(), pid });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}

/// Takes from everybody but its owner what they may do with `path`.
fn close(path: &Path) -> io::Result<()> {
    let mode = fs::symlink_metadata(path)?.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o700)).map_err(|error| {
        let what =
            format!("{} can be read by others (mode {mode:o}), and this user may not change that", path.display());
        io::Error::new(error.kind(), what)
    })
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
