//! `selion up`: a whole pool on this machine, each part a process of its own.

mod child;
mod pool;
mod renter;
mod restarts;

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use selion_api::Address;
use selion_contracts::Rpc;
use selion_dataplane::{Kubo, KuboError};

use crate::dev::is_dev_chain;
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::{Output, line};
use crate::profile::{Home, make_private};
use crate::stop::Stops;
use child::{Child, Crew};

/// Simulated GPUs where there are no real ones.
const SIMULATED: [&str; 2] = ["H100 80GB", "RTX 4090 24GB"];

/// Starts a whole pool on this machine: a development chain, the contracts, a controller, one agent, and a renter's
/// profile with a deposit. Ctrl-C stops it; a second start goes on where it was.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where everything is kept
    #[arg(long, value_name = "DIR", default_value = "selion-data", env = "SELION_DATA")]
    data_dir: PathBuf,
    /// Address of the controller; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Address of the development chain; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8545", conflicts_with = "chain_rpc")]
    chain_listen: SocketAddr,
    /// JSON-RPC of a chain that runs already, instead of a development chain
    #[arg(long, value_name = "URL")]
    chain_rpc: Option<String>,
    /// ERC-20 of a new pool [default on development chains: a new test token]
    #[arg(long, value_name = "ADDRESS")]
    token: Option<Address>,
    /// RPC of a Kubo on this machine that asks for a password: @FILE with http://USER:PASSWORD@127.0.0.1:PORT in it
    #[arg(long, value_name = "@FILE")]
    kubo: Option<String>,
    /// Makes all datasets and outputs public through that Kubo
    #[arg(long, requires = "kubo")]
    kubo_publish: bool,
    /// Offers a simulated GPU of this model instead of real ones; may be repeated [default: "H100 80GB" and "RTX 4090
    /// 24GB" where NVML finds no GPU]
    #[arg(long, value_name = "MODEL")]
    simulate: Vec<String>,
}

/// Starts, watches, stops.
pub async fn main(out: Output, args: Args) -> Done {
    let mut stops = Stops::new()?;
    let dir = std::path::absolute(&args.data_dir).map_err(|error| Failure::file(&args.data_dir, &error))?;
    make_private(&dir)?;
    let _alone = lock(&dir)?;
    let mut crew = Crew::default();
    let up = tokio::select! {
        up = start(out, &args, &dir, &mut crew) => Some(up),
        () = stops.next() => None,
    };
    let ended = match up {
        None => Ok(()),
        Some(Err(failure)) => Err(failure),
        Some(Ok(up)) => {
            up.tell(out, &crew)?;
            tokio::select! {
                failure = keep_up(out, &mut crew) => failure,
                () = stops.next() => Ok(()),
            }
        }
    };
    out.note("stopping ...");
    let forced = tokio::select! {
        forced = crew.stop() => forced,
        // Dropping the crew kills what is left of it.
        () = stops.next() => return Err(Failure::remote(Exit::Interrupted.code())),
    };
    if !forced.is_empty() {
        out.note(format!("{} did not end in time and was killed; nothing acknowledged is lost", forced.join(", ")));
    }
    ended
}

/// Starts again what ends, until a part has died too often.
async fn keep_up(out: Output, crew: &mut Crew) -> Done {
    crew.listen_no_more();
    loop {
        let again = crew.restart_the_first_to_end().await?;
        if out.is_json() {
            out.json(&serde_json::json!({ "restarted": again }))?;
        } else {
            out.note(format!("{}\n{} runs again (pid {})", again.why, again.name, again.pid));
        }
    }
}

/// One `up` for one data directory.
fn lock(dir: &Path) -> Done<Flock<File>> {
    let path = dir.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| Failure::file(&path, &error))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
        let detail = format!("another `selion up` uses {}", dir.display());
        Failure::new(Exit::Conflict, "in_use", detail, "stop that one, or give another --data-dir (and --listen)")
    })
}

/// What is running.
struct Up {
    dir: PathBuf,
    /// Where the chain is, without the secret of a private one.
    chain: String,
    /// What keeps leases apart.
    sandbox: String,
    /// The same for commands: a URL, or the file that holds it.
    chain_rpc: String,
    controller: String,
    home: Home,
    pool: Address,
    chain_id: u64,
    slice: &'static str,
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}

/// Beside the controller's keys nothing of a stranger runs unguarded.
fn no_sandbox() -> Failure {
    let detail = "the agent has no sandbox, and a leased command could read the keys of this pool";
    let suggestion = "take `none` out of SELION_AGENT_SANDBOX; `selion agent doctor` says whether the sandbox works";
    Failure::new(Exit::Failure, "no_sandbox", detail, suggestion)
}

/// Refuses a Kubo that leased commands beside it could use.
async fn guard_kubo(url: &str) -> Done {
    let failed = |error: KuboError| Failure::new(Exit::Failure, "kubo", error, "see what the message names");
    let kubo = Kubo::new(url).map_err(failed)?;
    if !kubo.answers_strangers().await.map_err(failed)? {
        return Ok(());
    }
    let detail =
        "this Kubo answers whoever asks, and leased commands run beside it: they could read, remove and stop all";
    let suggestion = "run: ipfs config --json API.Authorizations '{\"selion\": {\"AuthSecret\": \
                      \"basic:selion:PASSWORD\", \"AllowedPaths\": [\"/api/v0\"]}}', start it again, and give --kubo @FILE \
                      with http://selion:PASSWORD@127.0.0.1:5001 in the file (chmod 600)";
    Err(Failure::new(Exit::Failure, "open_kubo", detail, suggestion))
}

async fn start(out: Output, args: &Args, dir: &Path, crew: &mut Crew) -> Done<Up> {
    if let Some(url) = &args.kubo {
        guard_kubo(url).await?;
    }
    let (chain, chain_rpc) = match &args.chain_rpc {
        Some(url) => (Rpc::new(url)?.node().to_owned(), url.clone()),
        None => {
            out.note("starting the chain ...");
            start_chain(args.chain_listen, dir, crew).await?
        }
    };
    let simulate = gpus(&args.simulate);
    let pool = pool::open_or_create(out, dir, &chain_rpc, args.token, !simulate.is_empty()).await?;
    let at = pool.at.controller.to_string();

    out.note("starting the controller ...");
    let listen = args.listen.to_string();
    let mut line = words(["controller", "--listen", &listen, "--chain-rpc", &chain_rpc, "--pool", &at, "--data-dir"]);
    line.extend([dir.join("controller").into(), "--authority-key".into(), pool::authority_key(dir).into()]);
    line.extend(args.kubo.iter().flat_map(|url| words(["--kubo", url])));
    line.extend(args.kubo_publish.then(|| OsString::from("--kubo-publish")));
    let controller = crew.add(Child::start("controller", dir, line)?);
    let controller = format!("http://{}", controller.ready().await?);

    out.note("starting the agent ...");
    let mut line = words(["agent", "up", "--controller", &controller, "--chain-rpc", &chain_rpc, "--pool", &at]);
    line.extend([OsString::from("--state-dir"), dir.join("agent").into()]);
    // All keys of the pool are below one folder, which no lease sees wherever it lies.
    line.extend([OsString::from("--hide"), dir.into()]);
    // It is the owner's own pool, and what is installed here saves him an image for a first try.
    line.extend(words(["--machine-root"]));
    line.extend(simulate.iter().flat_map(|model| words(["--simulate", model])));
    if is_dev_chain(pool.chain_id) {
        line.extend(words(["--dev-fund"]));
    }
    let agent = crew.add(Child::start("agent", dir, line)?);
    let sandbox =
        agent.says(|line| (line["event"] == "up").then(|| line["sandbox"].as_str().map(str::to_owned))?).await?;
    if sandbox == "none" {
        return Err(no_sandbox());
    }
    agent.says(|line| (line["event"] == "linked").then_some(())).await?;

    let home = renter::home(dir)?;
    let session = renter::log_in(dir, &home, &controller, &chain_rpc, &pool).await?;
    renter::fund(out, &session, &pool, crew).await?;
    renter::wait_for_node(&session, crew).await?;
    let slice = if simulate.iter().any(|model| model == "H100 80GB") { "1g.10gb" } else { "whole" };
    Ok(Up {
        dir: dir.to_owned(),
        chain,
        sandbox,
        chain_rpc,
        controller,
        home,
        pool: pool.at.controller,
        chain_id: pool.chain_id,
        slice,
    })
}

/// A chain of our own: private, so that nothing else on this machine, and no leased command, can use it. Its secret is on no
/// command line and in no log: the parts read it from its file. Its address, and the word for `--chain-rpc`.
async fn start_chain(listen: SocketAddr, dir: &Path, crew: &mut Crew) -> Done<(String, String)> {
    let at = dir.join("chain");
    let mut line =
        words(["chain", "--listen", &listen.to_string(), "--private", "--dev-methods", "coins", "--data-dir"]);
    line.push(at.clone().into());
    let chain = crew.add(Child::start("chain", dir, line)?);
    let address = chain.ready().await?;
    let url = at.join("url");
    let file = url
        .to_str()
        .ok_or_else(|| Failure::usage(format!("{} is not UTF-8", url.display()), "give a --data-dir in UTF-8"))?;
    Ok((format!("http://{address}"), format!("@{file}")))
}

/// Models to simulate; none where NVML finds a GPU.
fn gpus(asked: &[String]) -> Vec<String> {
    use selion_agent::gpus::{Gpus, NvmlGpus};
    if !asked.is_empty() {
        return asked.to_vec();
    }
    let real = NvmlGpus::open().and_then(|mut gpus| gpus.list()).is_ok_and(|gpus| !gpus.is_empty());
    if real { Vec::new() } else { SIMULATED.map(str::to_owned).to_vec() }
}

impl Up {
    fn tell(&self, out: Output, crew: &Crew) -> Done {
        let Self { dir, chain, sandbox, chain_rpc, controller, home, pool, chain_id, slice } = self;
        if out.is_json() {
            let pids: serde_json::Map<_, _> =
                crew.identities().into_iter().map(|(name, pid)| (name.to_owned(), pid.into())).collect();
            return out.json(&serde_json::json!({ "ready": {
                "controller": controller,
                "chain": chain,
                "sandbox": sandbox,
                "chain_rpc": chain_rpc,
                "chain_id": chain_id,
                "pool": pool,
                "data_dir": dir,
                "profile": home.dir(),
                "pids": pids,
            } }));
        }
        let me = program();
        let pids: Vec<String> = crew.identities().iter().map(|(name, pid)| format!("{name} {pid}")).collect();
        let usual = Home::find().is_ok_and(|usual| usual == *home);
        let export = if usual { String::new() } else { format!("  export SELION_HOME={}\n", home.dir().display()) };
        let deposit = if is_dev_chain(*chain_id) {
            String::new()
        } else {
            format!("  {me} account deposit 10.00 && {me} account grant 10.00\n")
        };
        line(&format!(
            "\nThe pool is up.\n  controller  {controller}\n  chain       {chain} (id {chain_id}), pool {pool}\n  sandbox     {sandbox}\n  processes   {}\n  \
             logs, keys  {}\n\nType next, in another terminal:\n{export}{deposit}  {me} offers\n  \
             {me} run --slice {slice} -- sh -c 'echo hello from a slice'\n  \
             {me} audit --rpc {chain_rpc} --pool {pool} --log {controller}\n\nCtrl-C stops the pool; the same command \
             starts it again where it was.",
            pids.join(", "),
            dir.display(),
        ))
    }
}

/// How this program is called: by name if the shell finds it so, else by path.
fn program() -> String {
    const NAME: &str = "selion";
    let Ok(exe) = std::env::current_exe() else { return NAME.to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(NAME)).find(|file| file.is_file());
    let same = found.and_then(|file| file.canonicalize().ok()).is_some_and(|file| file == exe);
    if same { NAME.to_owned() } else { exe.display().to_string() }
}
