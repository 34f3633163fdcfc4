//! Datasets: fetched block by block through the controller's gateway, verified, laid out read-only.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use selion_api::commit::Work;
use selion_dataplane::image::ImageLimits;
use selion_dataplane::{
    Cid, DagError, ExportRules, FetchError, Fetched, Fetcher, GatewayUrlError, HttpGateway, Limits, Source, Stop,
    Store, StoreError,
};

use crate::runtime::Rooms;

/// Folder below the data directory with what an earlier run left. No mount's name begins with a dot.
pub(crate) const RESUME_FOLDER: &str = ".resume";

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
    /// More than the lease's disk.
    #[error(
        "dataset {cid} does not fit: {left} of the {disk} bytes of the lease's disk are left for it; ask for more with --disk (disk_bytes)"
    )]
    OverDisk {
        /// Its CID.
        cid: Box<Cid>,
        /// What the datasets before it left.
        left: u64,
        /// Of so much.
        disk: u64,
    },
    /// The file system's.
    #[error("the data directory could not be made read-only: {0}")]
    ReadOnly(std::io::Error),
}

/// The CID that `text` is.
///
/// # Errors
///
/// [`StagingError::NotACid`].
pub fn parse(text: &str) -> Result<Cid, StagingError> {
    text.parse::<Cid>().map_err(|error| StagingError::NotACid { text: text.to_owned(), detail: error.to_string() })
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
        let cid = parse(text)?;
        let bad = |why| StagingError::BadMount { name: name.clone(), why };
        check_mount(name).map_err(bad)?;
        if !names.insert(name.as_str()) {
            return Err(bad("is given twice"));
        }
        checked.push((cid, name.as_str()));
    }
    Ok(checked)
}

/// Where data comes from and goes to.
pub struct Staging<'a> {
    /// The node's content store.
    pub store: &'a Store,
    /// Base URL of the controller.
    pub gateway: &'a str,
    /// Token for it.
    pub token: Option<&'a str>,
    /// Most bytes of files, all datasets together.
    pub disk_bytes: u64,
}

impl Staging<'_> {
    /// Brings every dataset of `work` to its folder below `rooms.data`, `resume` to [`RESUME_FOLDER`], and makes all of it
    /// read-only. `say` is told one line a dataset.
    ///
    /// # Errors
    ///
    /// [`StagingError`]; nothing unverified was laid out, and nothing of a dataset that has no room.
    pub async fn stage(
        &self,
        work: &Work,
        resume: Option<Cid>,
        rooms: &Rooms,
        say: impl Fn(String),
    ) -> Result<(), StagingError> {
        let resume = resume.map(|cid| (cid, RESUME_FOLDER));
        let mut left = self.disk_bytes;
        for (cid, name) in check(work)?.into_iter().chain(resume) {
            let (fetched, bytes) = self.bring(cid, &rooms.data.join(name), left).await?;
            left = left.saturating_sub(bytes);
            let what = if name == RESUME_FOLDER { "outputs to go on from" } else { "dataset" };
            say(format!(
                "{what} {name}: {cid} verified, {} blocks ({} fetched, {} bytes)",
                fetched.blocks, fetched.fetched_blocks, fetched.fetched_bytes
            ));
        }
        // What is in it was laid out so.
        std::fs::set_permissions(&rooms.data, Permissions::from_mode(0o555)).map_err(StagingError::ReadOnly)
    }

    /// Brings content that is no dataset to `dest`: an archive of at most as many bytes as an image may have.
    ///
    /// # Errors
    ///
    /// [`StagingError`].
    pub async fn archive(&self, cid: &Cid, dest: &Path) -> Result<(), StagingError> {
        self.bring(*cid, dest, ImageLimits::default().compressed_bytes).await.map(drop)
    }

    /// Fetches `cid` and lays it out at `dest`, if its files have at most `left` bytes; tells how many they have.
    async fn bring(&self, cid: Cid, dest: &Path, left: u64) -> Result<(Fetched, u64), StagingError> {
        let source: Arc<dyn Source> = Arc::new(HttpGateway::new(self.gateway, self.token)?);
        let (limits, disk) = (Limits::of_bytes(left), self.disk_bytes);
        // Blocks are counted once here and by path below: a small graph can be a large folder.
        let fetched = Fetcher::new(self.store.clone(), vec![source]).within(limits).fetch(&cid).await;
        let fetched = fetched.map_err(|source| match source {
            FetchError::Dag(DagError::TooLarge { .. }) => StagingError::OverDisk { cid: Box::new(cid), left, disk },
            source => StagingError::Fetch { cid: Box::new(cid), source: Box::new(source) },
        })?;
        let (store, dest, stop) = (self.store.clone(), dest.to_owned(), Stop::default());
        // A member that is stopped waits for no export.
        let guard = stop.on_drop();
        let rules = ExportRules { limits, read_only: true };
        let exported = blocking(move || store.export_by(&cid, dest, &rules, &stop)).await;
        drop(guard);
        let stat = exported.map_err(|source| match source {
            StoreError::Dag(DagError::TooLarge { .. }) => StagingError::OverDisk { cid: Box::new(cid), left, disk },
            source => StagingError::Export { cid: Box::new(cid), source: Box::new(source) },
        })?;
        Ok((fetched, stat.bytes))
    }
}

fn check_mount(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("is empty"),
        RESUME_FOLDER => Err("is where the outputs of an earlier run go"),
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
            network: selion_api::commit::Network::None,
            root: selion_api::commit::Root::Base,
            over: selion_api::commit::Overrides::default(),
            secrets: selion_api::commit::Expected::default(),
        };
        check(&work).map(|found| found.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_dataset_stays_in_its_own_folder() {
        for name in ["", ".", "..", "...", RESUME_FOLDER, "a/b", "/etc", "../x", "a\0b", "a\nb"] {
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
