//! Datasets: fetched block by block through the controller's gateway, verified, laid out read-only.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use selion_api::commit::Work;
use selion_dataplane::{Cid, FetchError, GatewayUrlError, HttpGateway, Source, Store, StoreError, fetch};

use crate::runtime::Rooms;

/// Why a dataset is not there.
#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    /// The text is no CID.
    #[error("dataset `{text}` is not a CID ({detail})")]
    NotACid {
        /// As given.
        text: String,
        /// What is wrong.
        detail: String,
    },
    /// The folder name cannot be used.
    #[error("dataset folder `{name}` {why}; use a plain name such as `train`")]
    BadMount {
        /// As given.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The gateway's address cannot be used.
    #[error(transparent)]
    Gateway(#[from] GatewayUrlError),
    /// It could not be fetched, or did not match.
    #[error("dataset {cid} could not be fetched")]
    Fetch {
        /// Its CID.
        cid: Box<Cid>,
        /// Names the block and the source.
        #[source]
        source: Box<FetchError>,
    },
    /// It could not be laid out.
    #[error("dataset {cid} could not be laid out")]
    Export {
        /// Its CID.
        cid: Box<Cid>,
        /// Why.
        #[source]
        source: Box<StoreError>,
    },
    /// The file system's.
    #[error("the data directory could not be made read-only: {0}")]
    ReadOnly(std::io::Error),
}

/// Checks every dataset's name and CID without touching anything.
///
/// # Errors
///
/// [`StagingError::NotACid`]; [`StagingError::BadMount`].
pub fn check(work: &Work) -> Result<Vec<(Cid, &str)>, StagingError> {
    let mut names = BTreeSet::new();
    let mut checked = Vec::new();
    for (text, name) in &work.datasets {
        let cid = text
            .parse::<Cid>()
            .map_err(|error| StagingError::NotACid { text: text.clone(), detail: error.to_string() })?;
        let bad = |why| StagingError::BadMount { name: name.clone(), why };
        check_mount(name).map_err(bad)?;
        if !names.insert(name.as_str()) {
            return Err(bad("is given twice"));
        }
        checked.push((cid, name.as_str()));
    }
    Ok(checked)
}

/// Brings every dataset of `work` to its folder below `rooms.data` and makes all of it read-only. `say` is told one
/// line a dataset.
///
/// # Errors
///
/// [`StagingError`]; nothing unverified was laid out.
pub async fn stage(
    work: &Work,
    rooms: &Rooms,
    store: &Store,
    gateway: &str,
    token: Option<&str>,
    say: impl Fn(String),
) -> Result<(), StagingError> {
    for (cid, name) in check(work)? {
        let source: Arc<dyn Source> = Arc::new(HttpGateway::new(gateway, token)?);
        let fetched = fetch(store, &cid, vec![source])
            .await
            .map_err(|source| StagingError::Fetch { cid: Box::new(cid), source: Box::new(source) })?;
        let (exporter, dest) = (store.clone(), rooms.data.join(name));
        blocking(move || exporter.export(&cid, dest))
            .await
            .map_err(|source| StagingError::Export { cid: Box::new(cid), source: Box::new(source) })?;
        say(format!(
            "dataset {name}: {cid} verified, {} blocks ({} fetched, {} bytes)",
            fetched.blocks, fetched.fetched_blocks, fetched.fetched_bytes
        ));
    }
    let data = rooms.data.clone();
    blocking(move || crate::runtime::make_read_only(Path::new(&data))).await.map_err(StagingError::ReadOnly)
}

fn check_mount(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("is empty"),
        _ if name.len() > 255 => Err("is longer than 255 bytes"),
        _ if name.bytes().all(|byte| byte == b'.') => Err("is dots only"),
        _ if name.contains(['/', '\0', '\n']) => Err("has a slash, a zero byte or a line end"),
        _ => Ok(()),
    }
}

/// Runs work on files off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Blocking work is never aborted once it runs, and the runtime is up while we wait.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CID: &str = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";

    fn checked(datasets: &[(&str, &str)]) -> Result<usize, String> {
        let work = Work {
            command: vec!["true".into()],
            env: Vec::new(),
            datasets: datasets.iter().map(|(cid, name)| ((*cid).into(), (*name).into())).collect(),
            network: false,
        };
        check(&work).map(|found| found.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_dataset_stays_in_its_own_folder() {
        for name in ["", ".", "..", "...", "a/b", "/etc", "../x", "a\0b", "a\nb"] {
            assert!(checked(&[(CID, name)]).is_err(), "{name:?}");
        }
        assert_eq!(checked(&[(CID, "train"), (CID, ".hidden"), (CID, "a b")]), Ok(3));
    }

    #[test]
    fn two_datasets_cannot_have_one_folder() {
        assert!(checked(&[(CID, "a"), (CID, "a")]).unwrap_err().contains("given twice"));
    }

    #[test]
    fn what_is_no_cid_is_named() {
        assert!(checked(&[("Qm-nonsense", "a")]).unwrap_err().contains("`Qm-nonsense`"));
    }
}
