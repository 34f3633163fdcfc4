//! `selion data`: content by CID, in and out.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use selion_api::rest::{Dataset, NewDataset};
use selion_client::{Client, PageQuery};
use selion_dataplane::{
    AddRules, Added, Cid, Faults, Fetcher, HttpGateway, Sink, Source, SourceError, Store, StoreError, push,
};

use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::output::{Output, printable};
use crate::profile::{Home, make_private};
use crate::session::Session;
use crate::unit::{show_size, show_time};

/// Brings data to the pool, and results back; every block is verified on both sides.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Adds a file or folder, or content that the pool has already, and shows its CID
    Add {
        /// File or folder: names, bytes, permissions, symbolic links and empty folders are kept, times are not
        #[arg(required_unless_present = "cid", conflicts_with = "cid")]
        path: Option<PathBuf>,
        /// Content that the pool has already, such as an output: nothing is sent
        #[arg(long)]
        cid: Option<String>,
        /// A name for people [default: the file's name]
        #[arg(long)]
        name: Option<String>,
        /// Leaves out pipes, sockets, devices and what else cannot be kept, each with a line; without it nothing is
        /// added where there are any
        #[arg(long, conflicts_with = "cid")]
        skip_special: bool,
    },
    /// The datasets of the account
    List,
    /// Takes a dataset from the account; leases that run keep what they have of it
    Rm {
        /// What
        cid: String,
    },
    /// Writes the file or folder of a CID
    Get {
        /// What
        cid: String,
        /// Where; must not exist
        dest: PathBuf,
    },
}

/// Runs the sub-command.
pub async fn main(out: Output, command: Command) -> Done {
    let session = Session::open()?;
    match command {
        Command::Add { path: Some(path), name, skip_special, .. } => {
            add(out, &session, &path, name, skip_special).await
        }
        Command::Add { cid, name, .. } => register(out, &session, cid.unwrap_or_default(), name).await,
        Command::List => list(out, &session).await,
        Command::Rm { cid } => remove(out, &session, &cid).await,
        Command::Get { cid, dest } => get(out, &session, &cid, &dest).await,
    }
}

async fn add(out: Output, session: &Session, path: &Path, name: Option<String>, skip_special: bool) -> Done {
    if let Err(error) = std::fs::metadata(path) {
        return Err(Failure::file(path, &error));
    }
    let name = name.or_else(|| path.file_name().map(|name| name.to_string_lossy().into_owned())).unwrap_or_default();
    let scratch = Scratch::new(Home::scratch("adding"))?;
    let store = Store::open(&scratch.0)?;
    let added = read(&store, path, skip_special).await?;
    for skipped in &added.skipped {
        out.note(format!("left out: {}", printable(&skipped.to_string())));
    }
    if added.skipped_total > added.skipped.len() as u64 {
        out.note(format!("left out: {} entries in all", added.skipped_total));
    }
    let cid = added.cid;
    out.note(format!("{cid}: sending what the pool does not have yet ..."));
    let gateway = Gateway { bar: counter("sent"), ..Gateway::new(session.client.clone()) };
    let sent = push(&store, &cid, &gateway).await.map_err(|error| {
        let suggestion = "add it again: blocks that are there are not sent twice";
        Failure::new(Exit::Server, "push", chain(&error), suggestion)
    })?;
    gateway.bar.finish_and_clear();
    let dataset = session.client.add_dataset(&NewDataset { cid: cid.to_string(), name }).await?;
    out.show(&dataset, |dataset| {
        format!(
            "{}\n{} in {} blocks, {} of them sent now\nnext: selion run --slice 1g.10gb --data {}:data -- sh -c 'ls -R $SELION_DATA_DIR'",
            dataset.cid,
            show_size(dataset.bytes),
            dataset.blocks,
            sent.sent_blocks,
            dataset.cid
        )
    })
}

/// Turns the tree at `path` into blocks of `store`. The path itself may be a link: whoever typed it named the place.
async fn read(store: &Store, path: &Path, skip_special: bool) -> Done<Added> {
    let faults = if skip_special { Faults::Skip } else { Faults::Refuse };
    let rules = AddRules { faults, ..AddRules::strict() };
    let from = path.canonicalize().map_err(|error| Failure::file(path, &error))?;
    let (adding, bar) = (store.clone(), counter("read"));
    blocking(move || {
        let watch = &mut |now: &Added| {
            bar.set_position(now.bytes);
            bar.set_message(format!("in {} files", now.files));
        };
        let added = adding.add_watched(from, &rules, watch);
        bar.finish_and_clear();
        added.map_err(|error| match &error {
            StoreError::NotAddable { faults, .. } => {
                let lines: Vec<String> =
                    faults.iter().map(|fault| printable(&fault.to_string()).into_owned()).collect();
                let why = format!("what cannot be kept as data is in the way:\n{}", lines.join("\n"));
                Failure::usage(why, "remove it, or leave it out with --skip-special")
            }
            _ => error.into(),
        })
    })
    .await
}

/// Makes a dataset of what the pool's content store has already.
async fn register(out: Output, session: &Session, cid: String, name: Option<String>) -> Done {
    let name = name.unwrap_or_default();
    let dataset = session.client.add_dataset(&NewDataset { cid, name }).await?;
    out.show(&dataset, |dataset| {
        format!("{}\n{} in {} blocks, nothing sent", dataset.cid, show_size(dataset.bytes), dataset.blocks)
    })
}

async fn remove(out: Output, session: &Session, cid: &str) -> Done {
    session.client.remove_dataset(cid).await?;
    out.show(&serde_json::json!({ "removed": cid }), |_| format!("{cid} is no dataset of the account any more"))
}

async fn list(out: Output, session: &Session) -> Done {
    let mut datasets: Vec<Dataset> = Vec::new();
    let mut page = PageQuery { page_size: Some(500), page_token: None };
    loop {
        let answer = session.client.datasets(&page).await?;
        datasets.extend(answer.datasets);
        match answer.next_page_token {
            Some(token) => page.page_token = Some(token),
            None => break,
        }
    }
    out.show(&serde_json::json!({ "datasets": datasets }), |_| {
        let rows = datasets
            .iter()
            .map(|data| [data.cid.clone(), show_size(data.bytes), data.name.clone(), show_time(data.added_ms)]);
        out.table(["CID", "SIZE", "NAME", "ADDED"], rows.collect(), "no datasets yet; `selion data add PATH` adds one")
    })
}

async fn get(out: Output, session: &Session, cid: &str, dest: &Path) -> Done {
    let root: Cid = cid.parse().map_err(|error| {
        Failure::usage(
            format!("`{cid}` is not a CID: {error}"),
            "copy it from `selion data list` or `selion lease show`",
        )
    })?;
    if dest.symlink_metadata().is_ok() {
        return Err(Failure::usage(format!("{} exists already", dest.display()), "remove it or name another place"));
    }
    // Beside the destination, and named by the CID: a fetch that broke off goes on where it was.
    let folder = dest.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let blocks = folder.join(format!(".{root}.blocks"));
    let store = Store::open(&blocks)?;
    let bar = progress();
    let shown = bar.clone();
    let sources: Vec<Arc<dyn Source>> = vec![Arc::new(Gateway::new(session.client.clone()))];
    let fetcher = Fetcher::new(store.clone(), sources).on_progress(move |now| {
        shown.set_length(now.known_bytes);
        shown.set_position(now.done_bytes);
    });
    let fetched = fetcher.fetch(&root).await.map_err(|error| {
        if store.usage().is_ok_and(|usage| usage.blocks == 0) {
            drop(Scratch(blocks.clone())); // nothing to go on from
        }
        let suggestion = "run it again: verified blocks are kept; `selion data list` shows what the pool has of yours";
        Failure::new(Exit::NotFound, "fetch", chain(&error), suggestion)
    })?;
    bar.finish_and_clear();
    let to = dest.to_owned();
    blocking(move || Ok(store.export(&root, to)?)).await?;
    drop(Scratch(blocks));
    let result =
        serde_json::json!({ "cid": cid, "dest": dest, "blocks": fetched.blocks, "bytes": fetched.fetched_bytes });
    out.show(&result, |_| {
        format!(
            "{} written, {} in {} blocks, each verified",
            dest.display(),
            show_size(fetched.fetched_bytes),
            fetched.blocks
        )
    })
}

/// A bar on stderr; none where stderr is no terminal.
fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec}") {
        bar.set_style(style);
    }
    bar
}

/// What was done so far, on stderr; nothing where stderr is no terminal.
fn counter(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template(&format!("{{bytes}} {what} {{msg}} {{bytes_per_sec}}")) {
        bar.set_style(style);
    }
    bar
}

/// A folder that goes when we are done with it.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Made, for this user alone.
    pub fn new(dir: PathBuf) -> Done<Self> {
        make_private(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is in nobody's way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs work on files or hashes off the async threads.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Done<T> + Send + 'static) -> Done<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        Failure::new(Exit::Failure, "internal", format!("a part of this program failed: {error}"), "report this")
    })?
}

/// The controller's gateway, with a token that is fresh at every block: a long transfer outlives one.
struct Gateway {
    client: Client,
    bar: ProgressBar,
    open: Mutex<Option<(String, HttpGateway)>>,
}

impl Gateway {
    fn new(client: Client) -> Self {
        Self { client, bar: ProgressBar::hidden(), open: Mutex::default() }
    }

    async fn fresh(&self) -> Result<HttpGateway, SourceError> {
        let token = self.client.bearer().await.map_err(|error| SourceError::Failed(chain(&error)))?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, gateway)) = open.as_ref().filter(|(known, _)| *known == token) {
            return Ok(gateway.clone());
        }
        let gateway = HttpGateway::new(self.client.base_url(), Some(&token));
        let gateway = gateway.map_err(|error| SourceError::Failed(chain(&error)))?;
        *open = Some((token, gateway.clone()));
        Ok(gateway)
    }
}

#[async_trait]
impl Source for Gateway {
    fn name(&self) -> String {
        self.client.base_url().to_owned()
    }

    async fn block(&self, cid: &Cid) -> Result<Bytes, SourceError> {
        self.fresh().await?.block(cid).await
    }

    async fn blocks(&self, cids: &[Cid]) -> Result<Vec<(Cid, Bytes)>, SourceError> {
        self.fresh().await?.blocks(cids).await
    }
}

#[async_trait]
impl Sink for Gateway {
    fn name(&self) -> String {
        self.client.base_url().to_owned()
    }

    async fn has(&self, cid: &Cid) -> Result<bool, SourceError> {
        Sink::has(&self.fresh().await?, cid).await
    }

    async fn put(&self, cid: &Cid, bytes: Bytes) -> Result<(), SourceError> {
        let length = bytes.len() as u64;
        Sink::put(&self.fresh().await?, cid, bytes).await?;
        self.bar.inc(length);
        Ok(())
    }

    async fn absent(&self, cids: &[Cid]) -> Result<Vec<Cid>, SourceError> {
        Sink::absent(&self.fresh().await?, cids).await
    }

    async fn put_many(&self, blocks: Vec<(Cid, Bytes)>) -> Result<(), SourceError> {
        let length = blocks.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        Sink::put_many(&self.fresh().await?, blocks).await?;
        self.bar.inc(length);
        Ok(())
    }
}
