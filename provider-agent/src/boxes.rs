//! What the agent wrote down of a member before it started it, so that its next life takes it up or ends it.
//!
//! The words of the work (command, environment) are left out: what runs does not need them again, and they may be secret.

use std::path::{Path, PathBuf};

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::agent::{Assignment, Report};

use crate::book::{BookError, LEASES, replace};
use crate::config::Config;
use crate::member_key::MemberKey;
use crate::runtime::keep::Lock;
use crate::runtime::{Found, Running, Runtime};

/// File in the lease's folder.
const FILE: &str = "member";

/// A member that is about to be started, or was.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
struct Entry {
    assignment: Assignment,
}

/// A member that an earlier life started, and that is known how it is.
pub(crate) struct Taken {
    pub(crate) assignment: Assignment,
    pub(crate) running: Box<dyn Running>,
    /// The last report of it.
    pub(crate) last: Report,
}

/// What an earlier life left.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) taken: Vec<Taken>,
    /// Members of which nothing is left, why, and what keeps them from being started.
    pub(crate) gone: Vec<(MemberKey, String, Option<Lock>)>,
}

/// Writes down that the member of `assignment` is about to be started in the folder `base`.
///
/// # Errors
///
/// [`BookError::Io`].
pub(crate) fn note(base: &Path, assignment: &Assignment) -> Result<(), BookError> {
    let mut assignment = assignment.clone();
    (assignment.work.command, assignment.work.env) = (Vec::new(), Vec::new());
    let path = base.join(FILE);
    let bytes = borsh::to_vec(&Entry { assignment });
    replace(&path, &bytes.map_err(|source| BookError::Io { path: path.clone(), source })?)
}

fn read(base: &Path) -> Option<Assignment> {
    let entry: Entry = borsh::from_slice(&std::fs::read(base.join(FILE)).ok()?).ok()?;
    Some(entry.assignment)
}

/// Whether commands that an earlier agent of this configuration started may run: they are to be taken up before anything else.
#[must_use]
pub fn may_run(config: &Config) -> bool {
    !pending(&config.state_dir.join(LEASES)).is_empty()
}

/// Names of the folders below `leases` whose members may run.
pub(crate) fn pending(leases: &Path) -> Vec<String> {
    let has_entry = |folder: &PathBuf| folder.join(FILE).exists();
    let named = |folder: PathBuf| Some(folder.file_name()?.to_str()?.to_owned());
    folders(leases).into_iter().filter(has_entry).filter_map(named).collect()
}

fn folders(leases: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(leases).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Takes up what runs below `leases` and is known, by the last reports of the `open` members; ends whatever else runs there.
pub(crate) async fn survey(runtime: &dyn Runtime, leases: &Path, open: &[Report]) -> Survey {
    let mut survey = Survey::default();
    for folder in folders(leases) {
        let key = folder.file_name().and_then(|name| MemberKey::parse(name.to_str()?));
        let known = read(&folder).filter(|assignment| key == Some(MemberKey::of(assignment)));
        let last = open.iter().find(|report| key == Some(MemberKey::of_report(report)));
        match (runtime.adopt(&folder).await, known, last) {
            (Found::There(running), Some(assignment), Some(last)) => {
                survey.taken.push(Taken { assignment, running, last: last.clone() });
            }
            (Found::There(mut running), ..) => {
                tracing::warn!(folder = %folder.display(), "a command runs of which nothing is known; it is ended");
                if let Err(error) = running.kill().await {
                    tracing::warn!(folder = %folder.display(), %error, "its end is not known");
                }
            }
            (Found::Gone { lock, why }, known, _) => {
                let why = if known.is_some() { why } else { "it had not begun to run".to_owned() };
                survey.gone.extend(key.map(|key| (key, why, lock)));
            }
        }
    }
    survey
}
