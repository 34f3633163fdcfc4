//! What no box is made of.

use std::path::{Component, Path};

use super::{BoxPlan, IdRange, Limits, Network, SpecError};

/// Longest name of a box, in bytes.
const LONGEST_NAME: usize = 64;
/// Places that the kernel or the box itself fills, so that nothing is shown over them.
const OWN: [&str; 2] = ["/proc", "/dev"];

pub(super) fn check(plan: &BoxPlan) -> Result<(), SpecError> {
    if plan.program.args.first().is_none_or(String::is_empty) {
        return Err(SpecError::NoProgram);
    }
    let name = &plan.hostname;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
        return Err(SpecError::BadHostname(name.clone()));
    }
    straight("the root", &plan.root)?;
    straight("the working directory", &plan.program.cwd)?;
    if let Network::Joined(path) = &plan.network {
        straight("the network's namespace", path)?;
    }
    paths(plan)?;
    limits(&plan.limits)?;
    ids("users", &plan.uids, &[plan.user.uid])?;
    ids("groups", &plan.gids, &[plan.user.groups.as_slice(), &[plan.user.gid]].concat())
}

/// Refuses a path that is not absolute, or that goes up.
fn straight(what: &'static str, path: &Path) -> Result<(), SpecError> {
    let plain = |part: Component| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) {
        let why = "is not absolute, or goes up by `..`; give the whole path";
        return Err(SpecError::BadPath { what, path: path.to_owned(), why });
    }
    Ok(())
}

fn paths(plan: &BoxPlan) -> Result<(), SpecError> {
    let bad = |what, path: &Path, why| Err(SpecError::BadPath { what, path: path.to_owned(), why });
    let mut targets: Vec<&Path> = Vec::new();
    let shown = plan.binds.iter().map(|bind| &bind.target).chain(plan.scratch.iter().map(|scratch| &scratch.target));
    for target in shown {
        straight("the place", target)?;
        if target.parent().is_none() || OWN.iter().any(|own| target.starts_with(own)) {
            return bad("the place", target, "is the box's own; choose another");
        }
        if targets.contains(&target.as_path()) {
            return bad("the place", target, "is taken twice; choose another for one of both");
        }
        targets.push(target);
    }
    for bind in &plan.binds {
        straight("the folder", &bind.source)?;
        // Facts of the hardware that was rented, at their own place and not to be changed; nothing else.
        let fact = !bind.writable && bind.source == bind.target && bind.target != Path::new("/sys");
        if bind.target.starts_with("/sys") && !fact {
            return bad("the place", &bind.target, "may only show the same of the machine, read-only");
        }
        if bind.source.parent().is_none() {
            return bad("the folder", &bind.source, "is the whole machine; name what is needed");
        }
    }
    if let Some(scratch) = plan.scratch.iter().find(|scratch| scratch.target.starts_with("/sys")) {
        return bad("the place", &scratch.target, "is the box's own; choose another");
    }
    for device in &plan.devices {
        straight("the device", &device.path)?;
        if !device.path.starts_with("/dev") || device.path == Path::new("/dev") {
            return bad("the device", &device.path, "is not below /dev");
        }
    }
    match &plan.cgroup {
        Some(group) if group.components().any(|part| part == Component::ParentDir) || group.as_os_str().is_empty() => {
            bad("the control group", group, "is empty, or goes up by `..`")
        }
        _ => Ok(()),
    }
}

fn limits(limits: &Limits) -> Result<(), SpecError> {
    let most = u64::from(u32::MAX);
    let counted = i64::MAX.cast_unsigned();
    for (what, value, most) in [
        ("processor time in thousandths", u64::from(limits.cpu_milli), most),
        ("memory in bytes", limits.memory_bytes, counted),
        ("processes", u64::from(limits.pids), most),
        ("open files", u64::from(limits.open_files), most),
        ("/dev/shm in bytes", limits.shm_bytes, counted),
    ] {
        if value == 0 || value > most {
            return Err(SpecError::BadLimit { what, value, least: 1, most });
        }
    }
    Ok(())
}

/// Refuses ranges that hold the machine's root, overlap, or do not hold everybody who is `needed` inside.
fn ids(kind: &'static str, ranges: &[IdRange], needed: &[u32]) -> Result<(), SpecError> {
    let bad = |why: String| Err(SpecError::BadIds { kind, why });
    let inside = |range: &IdRange| u64::from(range.inside)..u64::from(range.inside) + u64::from(range.size);
    let outside = |range: &IdRange| u64::from(range.outside)..u64::from(range.outside) + u64::from(range.size);
    for (index, range) in ranges.iter().enumerate() {
        let (within, without) = (inside(range), outside(range));
        if range.size == 0 || within.end > 1 << 32 || without.end > 1 << 32 {
            return bad(format!("{range:?} is empty or goes past the last id"));
        }
        if range.outside == 0 {
            return bad(format!("{range:?} holds the machine's root, which nobody in a box is"));
        }
        for other in &ranges[..index] {
            let meet =
                |one: &std::ops::Range<u64>, two: std::ops::Range<u64>| one.start < two.end && two.start < one.end;
            if meet(&within, inside(other)) || meet(&without, outside(other)) {
                return bad(format!("{range:?} and {other:?} overlap"));
            }
        }
    }
    match needed.iter().find(|id| !ranges.iter().any(|range| inside(range).contains(&u64::from(**id)))) {
        Some(id) => bad(format!("{id} is in none of the ranges, so nobody could run as it")),
        None => Ok(()),
    }
}
