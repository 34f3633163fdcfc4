//! The process of a box, and the spaces that it is in.

use std::collections::HashSet;

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxCapabilitiesBuilder, LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceBuilder,
    LinuxNamespaceType, PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process, ProcessBuilder, UserBuilder,
};

use super::{BoxPlan, IdRange, Limits, Network};

/// Where memory runs out, the kernel takes boxes first.
const OOM_FIRST: i32 = 1000;

pub(super) fn process(plan: &BoxPlan) -> Result<Process, OciSpecError> {
    let none = || HashSet::new();
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(none())
        .effective(none())
        .inheritable(none())
        .permitted(none())
        .ambient(none())
        .build()?;
    let user = UserBuilder::default()
        .uid(plan.user.uid)
        .gid(plan.user.gid)
        .umask(0o022_u32)
        .additional_gids(plan.user.groups.clone())
        .build()?;
    ProcessBuilder::default()
        .terminal(false)
        .user(user)
        .args(plan.program.args.clone())
        .env(plan.program.env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
        .cwd(&plan.program.cwd)
        .capabilities(capabilities)
        .rlimits(rlimits(&plan.limits)?)
        .no_new_privileges(true)
        .oom_score_adj(OOM_FIRST)
        .build()
}

/// Limits of each process, beside those of the control group.
fn rlimits(limits: &Limits) -> Result<Vec<PosixRlimit>, OciSpecError> {
    [
        (PosixRlimitType::RlimitNofile, limits.open_files),
        (PosixRlimitType::RlimitNproc, limits.pids),
        (PosixRlimitType::RlimitCore, 0),
    ]
    .into_iter()
    .map(|(kind, most)| PosixRlimitBuilder::default().typ(kind).soft(u64::from(most)).hard(u64::from(most)).build())
    .collect()
}

pub(super) fn namespaces(network: &Network) -> Result<Vec<LinuxNamespace>, OciSpecError> {
    let own = |kind| LinuxNamespaceBuilder::default().typ(kind).build();
    let mut all = [
        LinuxNamespaceType::User,
        LinuxNamespaceType::Mount,
        LinuxNamespaceType::Pid,
        LinuxNamespaceType::Ipc,
        LinuxNamespaceType::Uts,
        LinuxNamespaceType::Cgroup,
    ]
    .into_iter()
    .map(own)
    .collect::<Result<Vec<_>, _>>()?;
    match network {
        Network::Own => all.push(own(LinuxNamespaceType::Network)?),
        Network::Joined(path) => {
            all.push(LinuxNamespaceBuilder::default().typ(LinuxNamespaceType::Network).path(path).build()?);
        }
        Network::Machine => {}
    }
    Ok(all)
}

pub(super) fn mappings(ranges: &[IdRange]) -> Result<Vec<LinuxIdMapping>, OciSpecError> {
    let told = |range: &IdRange| {
        let mapping = LinuxIdMappingBuilder::default().container_id(range.inside).host_id(range.outside);
        mapping.size(range.size).build()
    };
    ranges.iter().map(told).collect()
}
