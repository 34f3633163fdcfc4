//! What a supervisor tells its helper, and what the helper answers. Both go over a socket that is the helper's standard
//! input: no argument and no variable of the helper is a renter's, so neither `ps` nor the loader sees any.

use std::path::PathBuf;

use selion_api::seal::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::runtime::ids::Ids;
use crate::runtime::network::Net;

/// What to run, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::runtime) struct Plan {
    /// Process id of the supervisor: a helper whose parent is another is on its own, and ends.
    pub(in crate::runtime) agent: i32,
    /// What the command sees; `None` runs it beside the owner's own programs.
    pub(in crate::runtime) view: Option<View>,
    /// Where the command starts, by the path that it sees.
    pub(in crate::runtime) cwd: PathBuf,
    /// Program and arguments.
    pub(in crate::runtime) command: Vec<String>,
    /// The whole environment.
    pub(in crate::runtime) env: Vec<(String, String)>,
    /// Open files that a process may have.
    pub(in crate::runtime) open_files: u32,
}

/// The files that a sandboxed command sees, as whom, and its network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::runtime) struct View {
    /// What everything else is put into.
    pub(in crate::runtime) root: Root,
    /// Users inside and outside.
    pub(in crate::runtime) ids: Ids,
    /// Its writable folder outside.
    pub(in crate::runtime) work: PathBuf,
    /// Its data outside.
    pub(in crate::runtime) data: PathBuf,
    /// Its output outside.
    pub(in crate::runtime) output: PathBuf,
    /// Folders that stay out of sight where a folder that is shown holds them.
    pub(in crate::runtime) hidden: Vec<PathBuf>,
    /// Folders that the owner shows beside the system's.
    pub(in crate::runtime) shown: Vec<PathBuf>,
    /// Device nodes.
    pub(in crate::runtime) devices: Vec<PathBuf>,
    /// What it reaches beyond a loopback of its own.
    pub(in crate::runtime) network: Option<Net>,
    /// Size of its `/dev/shm`.
    pub(in crate::runtime) shm_bytes: u64,
    /// What it finds in [`SECRETS`](crate::runtime::SECRETS).
    pub(in crate::runtime) secrets: Vec<SecretFile>,
}

/// A secret on its way into a box.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::runtime) struct SecretFile {
    /// Name of the file.
    pub(in crate::runtime) name: String,
    /// What is in it.
    pub(in crate::runtime) value: Vec<u8>,
}

impl SecretFile {
    /// As a plan carries it.
    pub(in crate::runtime) fn of(secret: &Secret) -> Self {
        Self { name: secret.name.clone(), value: secret.value.clone() }
    }
}

impl std::fmt::Debug for SecretFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretFile").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

/// A root file system.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::runtime) enum Root {
    /// The machine's programs and libraries, read-only.
    Machine,
    /// Layers of an image under one that is the command's own.
    Layers {
        /// Folders, the topmost first; each is read only.
        lower: Vec<PathBuf>,
        /// Folder for what the command writes, empty at first.
        upper: PathBuf,
        /// Folder for the kernel, of the same file system, empty.
        work: PathBuf,
    },
}

/// Why nothing runs. A helper whose command runs closes the socket without a word.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::runtime) enum Refusal {
    /// The command's program is not in its view.
    NoSuchProgram,
    /// It cannot be held to its limits.
    Limits(String),
    /// In words.
    Failed(String),
}

impl From<String> for Refusal {
    fn from(trouble: String) -> Self {
        Self::Failed(trouble)
    }
}
