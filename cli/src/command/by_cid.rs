//! A copy of the log on IPFS: in by its CID, from sources nobody trusts, and out to a Kubo.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use selion_dataplane::{AddRules, Cid, Fetcher, HttpGateway, Kubo, Source, Store};

use super::data::{Scratch, blocking};
use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::output::Output;

/// Where blocks may be had. No source is believed: every block is verified against its CID.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Sources {
    /// For a log by its CID: a trustless gateway that may have it; may be given several times
    #[arg(long = "gateway", value_name = "URL")]
    pub gateways: Vec<String>,
    /// For a log by its CID: the RPC of a Kubo on this machine
    #[arg(long, value_name = "URL")]
    pub kubo: Option<String>,
}

/// The CID that a place is, with or without `ipfs://`; `None` if it is another place.
pub fn cid_of(place: &str) -> Done<Option<Cid>> {
    match place.strip_prefix("ipfs://") {
        Some(rest) => rest.trim_end_matches('/').parse().map(Some).map_err(|error| {
            let why = format!("`{place}` names no CID: {error}");
            Failure::usage(why, "give ipfs://CID or a CID, as `selion audit tiles` says")
        }),
        None if Path::new(place).exists() => Ok(None),
        None => Ok(place.parse().ok()),
    }
}

/// A folder that was fetched, and goes when this does.
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// Blocks and folder.
    _scratch: Scratch,
}

/// Fetches the folder of a CID, to lie in `scratch` for a while. Its blocks stay in `cache`, if one is named, so that a
/// fetch goes on where it was.
pub async fn fetch(out: Output, cid: Cid, from: &Sources, cache: Option<&Path>, scratch: PathBuf) -> Done<Folder> {
    let mut sources: Vec<Arc<dyn Source>> = Vec::new();
    for url in &from.gateways {
        let gateway = HttpGateway::new(url, None).map_err(|error| Failure::usage(error, "give --gateway URL"))?;
        sources.push(Arc::new(gateway));
    }
    if let Some(url) = &from.kubo {
        sources.push(Arc::new(kubo(url)?));
    }
    if sources.is_empty() {
        let why = format!("{cid} is a CID, and nobody is named who may have it");
        return Err(Failure::usage(
            why,
            "add --gateway URL, of any trustless gateway, or --kubo http://127.0.0.1:5001",
        ));
    }
    let scratch = Scratch::new(scratch)?;
    let blocks = match cache {
        Some(dir) => dir.join(format!("{cid}.blocks")),
        None => scratch.0.join("blocks"),
    };
    let store = Store::open(&blocks)?;
    out.note(format!("fetching {cid} ..."));
    let fetched = Fetcher::new(store.clone(), sources).fetch(&cid).await.map_err(|error| {
        let suggestion = "name another --gateway; with --cache DIR it goes on where it was";
        Failure::new(Exit::Server, "log_unreadable", chain(&error), suggestion)
    })?;
    for bad in fetched.banned {
        out.note(format!("{} sent another block for {}: it was asked nothing more", bad.source, bad.cid));
    }
    let path = scratch.0.join("log");
    let to = path.clone();
    blocking(move || Ok(store.export(&cid, to)?)).await?;
    if !path.is_dir() {
        let why = format!("{cid} is a file, not the folder of a log");
        return Err(Failure::usage(why, "give the CID that `selion audit tiles` says"));
    }
    Ok(Folder { path, _scratch: scratch })
}

/// The CID of a folder; with a Kubo, it is pinned there too.
pub async fn publish(dir: &Path, to: Option<&str>) -> Done<Cid> {
    let kubo = to.map(kubo).transpose()?;
    // Blocks lie beside the folder, whatever it is called here: in it they would be part of it.
    let dir = dir.canonicalize().map_err(|error| Failure::file(dir, &error))?;
    let mut name = std::ffi::OsString::from(".");
    name.push(dir.file_name().unwrap_or_default());
    name.push(format!(".blocks-{}", std::process::id()));
    let scratch = Scratch::new(dir.with_file_name(name))?;
    let store = Store::open(&scratch.0)?;
    let adding = store.clone();
    let cid = blocking(move || Ok(adding.add(dir, &AddRules::names_and_bytes())?.cid)).await?;
    if let Some(kubo) = kubo {
        kubo.import(&store, &cid).await.map_err(|error| {
            Failure::new(Exit::Server, "kubo", chain(&error), "run it again: the copy is kept, and verified blocks too")
        })?;
    }
    Ok(cid)
}

fn kubo(url: &str) -> Done<Kubo> {
    Kubo::new(url)
        .map_err(|error| Failure::usage(error, "give the address of Kubo's RPC, such as http://127.0.0.1:5001"))
}

#[cfg(test)]
mod tests {
    use selion_dataplane::gateway;

    use super::*;
    use crate::output::Format;

    async fn gateway_of(store: Store) -> String {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, gateway::router(store)).await });
        url
    }

    /// A gateway that has something for every CID, and never what was asked for.
    async fn liar() -> String {
        let router = axum::Router::new().route("/ipfs/{cid}", axum::routing::get(|| async { "something else" }));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    /// A folder as a log is one, and a store that has it.
    fn folder() -> (tempfile::TempDir, PathBuf, Store, Cid) {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("copy");
        std::fs::create_dir_all(log.join("tile/0")).unwrap();
        std::fs::write(log.join("checkpoint"), "a note\n").unwrap();
        std::fs::write(log.join("tile/0/000"), [7; 8_192]).unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        let cid = store.add_path(&log).unwrap();
        (dir, log, store, cid)
    }

    async fn brought(cid: Cid, from: &Sources, cache: Option<&Path>) -> Result<Vec<u8>, String> {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().join("scratch");
        let fetched = fetch(Output::new(Format::Json), cid, from, cache, scratch.clone()).await;
        let read = fetched.map(|folder| std::fs::read(folder.path.join("tile/0/000")).unwrap());
        assert!(!scratch.exists(), "what was fetched is not left behind");
        read.map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn a_cid_is_told_from_other_places() {
        let cid = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";
        for place in [cid.to_owned(), format!("ipfs://{cid}"), format!("ipfs://{cid}/")] {
            assert_eq!(cid_of(&place).unwrap().unwrap().to_string(), cid, "{place}");
        }
        for place in ["http://127.0.0.1:8080", "log.jsonl", "/tmp", "bafy"] {
            assert_eq!(cid_of(place).unwrap(), None, "{place}");
        }
        assert!(format!("{:?}", cid_of("ipfs://nonsense").unwrap_err()).contains("nonsense"));
    }

    #[tokio::test]
    async fn a_copy_comes_by_its_cid_from_whoever_has_it_and_a_liar_changes_nothing() {
        let (dir, log, store, cid) = folder();
        assert_eq!(publish(&log, None).await.unwrap(), cid);
        assert_eq!(std::fs::read_dir(log.parent().unwrap()).unwrap().count(), 2, "no blocks are left beside the copy");
        let (liar, honest) = (liar().await, gateway_of(store).await);
        let both = Sources { gateways: vec![liar.clone(), honest], kubo: None };
        let cache = dir.path().join("cache");
        assert_eq!(brought(cid, &both, Some(&cache)).await.unwrap(), [7; 8_192]);
        // From here on nobody needs to have it.
        let alone = Sources { gateways: vec![liar], kubo: None };
        assert_eq!(brought(cid, &alone, Some(&cache)).await.unwrap(), [7; 8_192]);
        let error = brought(cid, &alone, None).await.unwrap_err();
        assert!(error.contains(&cid.to_string()) && error.contains(&alone.gateways[0]), "{error}");
        let error = brought(cid, &Sources::default(), None).await.unwrap_err();
        assert!(error.contains(&cid.to_string()), "{error}");
    }

    #[tokio::test]
    async fn a_real_kubo_takes_a_copy_and_gives_it_back_by_its_cid() {
        let Ok(url) = std::env::var("SELION_KUBO_API") else {
            println!("skipped: set SELION_KUBO_API (for example http://127.0.0.1:5001) to test against a real Kubo");
            return;
        };
        let (_dir, log, _, cid) = folder();
        assert_eq!(publish(&log, Some(&url)).await.unwrap(), cid);
        let from = Sources { gateways: Vec::new(), kubo: Some(url) };
        assert_eq!(brought(cid, &from, None).await.unwrap(), [7; 8_192]);
    }
}
