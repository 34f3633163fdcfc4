//! The box in the words of an OCI runtime: from what a lease is to have, its [`Spec`] (`config.json`). Nothing is read and
//! nothing is tried here. What would weaken a box is an error and never a weaker box.
//!
//! Every box has namespaces of its own for users, mounts, processes, IPC, names and control groups, no capability, no
//! new privileges, no terminal, no hook and the filter of `seccomp`. None of that is in [`BoxPlan`]: it cannot be asked
//! away.

mod check;
mod inside;
mod mounts;
mod program;
mod resources;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use oci_spec::OciSpecError;
use oci_spec::runtime::{Linux, LinuxBuilder, RootBuilder, Spec, SpecBuilder};

use super::masks::{MASKED, READ_ONLY};
use super::seccomp::{Arch, profile};

pub(super) use resources::quota;

pub use program::{Defaults, Program, Request};

/// The version of the runtime specification whose words are used.
const VERSION: &str = "1.0.2";

/// What a lease is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxPlan {
    /// Folder that holds the root file system: an image's layers under a writable one, or a base root.
    pub root: PathBuf,
    /// Whether the root may be written to; else only what is in `binds` and `scratch`.
    pub root_writable: bool,
    /// What runs.
    pub program: Program,
    /// As whom, by the ids inside.
    pub user: User,
    /// The box's own name, of letters, digits, `-` and `.`; at most 64 bytes.
    pub hostname: String,
    /// Files and folders of the machine that are shown.
    pub binds: Vec<Bind>,
    /// Folders in memory that begin empty and end with the box.
    pub scratch: Vec<Scratch>,
    /// Device nodes of the machine beside null, zero, full, random and urandom.
    pub devices: Vec<Device>,
    /// How much it may use.
    pub limits: Limits,
    /// Which network it has.
    pub network: Network,
    /// Users inside and outside.
    pub uids: Vec<IdRange>,
    /// Groups inside and outside.
    pub gids: Vec<IdRange>,
    /// Control group; `None` where the agent may make none, so that nothing bounds CPU, memory and processes together.
    pub cgroup: Option<PathBuf>,
}

/// Ids that a program runs under, as they are inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// Something of the machine's files at a place inside. No program gains rights through it and no device in it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// Outside.
    pub source: PathBuf,
    /// Inside.
    pub target: PathBuf,
    /// Whether it may be written to.
    pub writable: bool,
}

/// A folder in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// Inside.
    pub target: PathBuf,
    /// How much it takes, in bytes.
    pub bytes: u64,
}

/// A character device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Outside and inside, below `/dev`.
    pub path: PathBuf,
    /// Number of its driver.
    pub major: u32,
    /// Its number with the driver.
    pub minor: u32,
}

/// How much a box may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processor time, in thousandths of a core.
    pub cpu_milli: u32,
    /// Memory, in bytes. There is no swap beside it.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Open files of one process.
    pub open_files: u32,
    /// Of `/dev/shm`, in bytes. Counts as memory too.
    pub shm_bytes: u64,
}

/// Which network a box has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// A loopback of its own.
    Own,
    /// The namespace at this path, which the agent made.
    Joined(PathBuf),
    /// The machine's.
    Machine,
}

/// Ids that are the same people inside and outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id inside.
    pub inside: u32,
    /// First id outside; never the machine's root.
    pub outside: u32,
    /// How many.
    pub size: u32,
}

/// Why there is no box of a plan.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Nothing to run.
    #[error("neither the lease nor its image names a program; give a command")]
    NoProgram,
    /// A word that no process can be given.
    #[error("{what} {value:?} holds a zero byte or is no name; leave it out")]
    BadWord {
        /// An argument, or a variable's name or value.
        what: &'static str,
        /// Which.
        value: String,
    },
    /// A path that is not what it has to be.
    #[error("{what} {} {why}", path.display())]
    BadPath {
        /// Of what.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name of a machine.
    #[error("a box cannot be called {0:?}; use at most 64 letters, digits, `-` and `.`")]
    BadHostname(String),
    /// A limit of nothing, or beyond what a kernel can count.
    #[error("the limit of {what} is {value}; give one from {least} to {most}")]
    BadLimit {
        /// Of what.
        what: &'static str,
        /// As given.
        value: u64,
        /// Least that can be had.
        least: u64,
        /// Most that can be told.
        most: u64,
    },
    /// Ids that are the machine's root, overlap or are nobody's.
    #[error("the {kind} inside cannot be mapped: {why}")]
    BadIds {
        /// Users or groups.
        kind: &'static str,
        /// What is wrong.
        why: String,
    },
    /// No list of system calls for this processor.
    #[error("there is no list of system calls for this processor; x86-64 and aarch64 have one")]
    NoFilter,
    /// The builders of the words.
    #[error("put the box into words")]
    Words(#[from] OciSpecError),
}

/// The box of a plan, for an OCI runtime on this machine's processor.
///
/// # Errors
///
/// [`SpecError`]: what in the plan has no box.
pub fn spec(plan: &BoxPlan) -> Result<Spec, SpecError> {
    spec_for(plan, Arch::own().ok_or(SpecError::NoFilter)?)
}

fn spec_for(plan: &BoxPlan, arch: Arch) -> Result<Spec, SpecError> {
    check::check(plan)?;
    let root = RootBuilder::default().path(&plan.root).readonly(!plan.root_writable).build()?;
    let mut spec = SpecBuilder::default()
        .version(VERSION)
        .root(root)
        .process(inside::process(plan)?)
        .hostname(&plan.hostname)
        .mounts(mounts::mounts(plan)?)
        .linux(linux(plan, arch)?)
        .build()?;
    spec.set_hooks(None).set_annotations(None);
    Ok(spec)
}

fn linux(plan: &BoxPlan, arch: Arch) -> Result<Linux, SpecError> {
    let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let mut linux = LinuxBuilder::default()
        .uid_mappings(inside::mappings(&plan.uids)?)
        .gid_mappings(inside::mappings(&plan.gids)?)
        .namespaces(inside::namespaces(&plan.network)?)
        .devices(resources::nodes(&plan.devices)?)
        .resources(resources::resources(plan)?)
        .seccomp(profile(arch)?)
        .rootfs_propagation("private")
        .masked_paths(owned(&MASKED))
        .readonly_paths(owned(&READ_ONLY))
        .build()?;
    linux.set_cgroups_path(plan.cgroup.clone());
    Ok(linux)
}
