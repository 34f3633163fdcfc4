//! The environment of a member, made from nothing.

use std::collections::BTreeMap;

use selion_api::agent::{Assignment, Resume};

use super::{Rooms, peers as peers_file};
use crate::gpus::{SliceHandle, slot_text};
use crate::staging::RESUME_FOLDER;

/// `PATH` of a member unless the renter sets one.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Beginnings of names that reach no command, whoever set them, the renter or an image: what steers the dynamic loader
/// (CVE-2025-23266 was an image's `LD_PRELOAD`) and what vendors' runtime hooks take as orders.
const STRIPPED: [&str; 2] = ["LD_", "NVIDIA_"];

/// Names and beginnings of names that are the agent's own to set: what states a limit or chooses a device.
const RESERVED: [&str; 4] = ["SELION_", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_", "GPU_DEVICE_ORDINAL"];

/// Takes out what reaches no command. Done last, where a box is put together, so that no source of variables is missed.
pub(super) fn strip(env: &mut Vec<(String, String)>) {
    env.retain(|(name, _)| !begins(name, &STRIPPED));
}

fn begins(name: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

/// The environment, and the renter's variables that were left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Sorted by name.
    pub vars: Vec<(String, String)>,
    /// Names that the renter may not set, or that no process can have.
    pub left_out: Vec<String>,
}

/// Builds it: an image's variables over the usual ones, the renter's over those, and the agent's own over all. Nothing of the
/// agent's own environment passes. `HOME` is the image's, where it has one.
#[must_use]
pub fn environment(
    assignment: &Assignment,
    slices: &[SliceHandle],
    rooms: &Rooms,
    image: &[(String, String)],
) -> Environment {
    let mut vars = BTreeMap::new();
    let mut left_out = Vec::new();
    vars.insert("PATH".to_owned(), PATH.to_owned());
    vars.insert("LANG".to_owned(), "C.UTF-8".to_owned());
    // Python keeps what it prints to a pipe back until 8 KiB are full: nobody would see it live.
    vars.insert("PYTHONUNBUFFERED".to_owned(), "1".to_owned());
    vars.insert("HOME".to_owned(), rooms.work.display().to_string());
    vars.extend(image.iter().filter(|(name, value)| may_be_set(name, value)).cloned());
    for (name, value) in &assignment.work.env {
        if may_set(name, value) {
            vars.insert(name.clone(), value.clone());
        } else {
            left_out.push(name.clone());
        }
    }
    let mut peers: Vec<_> = assignment.peers.iter().collect();
    peers.sort_by_key(|peer| peer.rank);
    let peers: Vec<&str> = peers.iter().map(|peer| peer.address.as_str()).collect();
    let all = |of: fn(&SliceHandle) -> String| {
        let each = slices.iter().map(of).filter(|one| !one.is_empty());
        each.collect::<Vec<_>>().join(",")
    };
    let own = [
        ("SELION_LEASE", assignment.lease.to_string()),
        ("SELION_ATTEMPT", assignment.attempt.to_string()),
        ("SELION_RANK", assignment.member.to_string()),
        ("SELION_WORLD_SIZE", peers.len().max(1).to_string()),
        ("SELION_PEERS", peers.join(",")),
        ("SELION_PEERS_FILE", peers_file::path(rooms).display().to_string()),
        ("SELION_PORT", assignment.port.to_string()),
        ("SELION_SLICE", slot_text(&assignment.slot)),
        ("SELION_GPU", all(|slice| slice.gpu.to_string())),
        ("SELION_DATA_DIR", rooms.data.display().to_string()),
        ("SELION_OUTPUT_DIR", rooms.output.display().to_string()),
        ("CUDA_VISIBLE_DEVICES", all(|slice| slice.visible.clone())),
    ];
    vars.extend(own.map(|(name, value)| (name.to_owned(), value)));
    // Only where there is something to go on from: a program may ask just that.
    if matches!(assignment.resume, Resume::From { .. }) {
        let dir = rooms.data.join(RESUME_FOLDER);
        vars.insert("SELION_RESUME_DIR".to_owned(), dir.display().to_string());
    }
    Environment { vars: vars.into_iter().collect(), left_out }
}

/// By a renter, who has a home already.
fn may_set(name: &str, value: &str) -> bool {
    name != "HOME" && may_be_set(name, value)
}

fn may_be_set(name: &str, value: &str) -> bool {
    let possible = !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
    possible && !begins(name, &STRIPPED) && !begins(name, &RESERVED)
}

#[cfg(test)]
mod tests {
    use selion_api::{GpuId, Slot};

    use super::*;
    use crate::testing::{assignment, slices};

    fn built(env: &[(&str, &str)]) -> Environment {
        let mut assignment = assignment(1);
        assignment.work.env = env.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        environment(&assignment, &slices(&assignment), &rooms(), &[])
    }

    fn rooms() -> Rooms {
        Rooms { base: "/b".into(), work: "/b/work".into(), data: "/b/data".into(), output: "/b/output".into() }
    }

    fn value(env: &Environment, name: &str) -> Option<String> {
        let found = env.vars.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    }

    #[test]
    fn a_limit_is_never_taken_from_the_renter() {
        let reserved = [
            ("SELION_SLICE", "whole"),
            ("SELION_ANYTHING", "1"),
            ("LD_PRELOAD", "/evil.so"),
            ("CUDA_VISIBLE_DEVICES", "0"),
            ("NVIDIA_VISIBLE_DEVICES", "all"),
            ("HOME", "/root"),
        ];
        let env = built(&reserved);
        assert_eq!(env.left_out, reserved.map(|(name, _)| name.to_owned()));
        assert_eq!(value(&env, "SELION_SLICE").as_deref(), Some("mig:1g.10gb@2"));
        assert_eq!(value(&env, "CUDA_VISIBLE_DEVICES").as_deref(), Some(""));
        assert_eq!(value(&env, "LD_PRELOAD"), None);
    }

    #[test]
    fn variables_that_no_process_can_have_are_left_out() {
        let env = built(&[("", "x"), ("A=B", "x"), ("C", "x\0y"), ("GOOD", "yes")]);
        assert_eq!(env.left_out, ["", "A=B", "C"]);
        assert_eq!(value(&env, "GOOD").as_deref(), Some("yes"));
    }

    #[test]
    fn nothing_of_the_agents_environment_passes() {
        let env = built(&[]);
        let names: Vec<&str> = env.vars.iter().map(|(name, _)| name.as_str()).collect();
        let ours = |name: &&str| {
            name.starts_with("SELION_")
                || ["PATH", "HOME", "LANG", "PYTHONUNBUFFERED", "CUDA_VISIBLE_DEVICES"].contains(name)
        };
        assert!(names.iter().all(ours), "{names:?}");
    }

    #[test]
    fn python_prints_at_once_unless_the_renter_says_otherwise() {
        assert_eq!(value(&built(&[]), "PYTHONUNBUFFERED").as_deref(), Some("1"));
        assert_eq!(value(&built(&[("PYTHONUNBUFFERED", "")]), "PYTHONUNBUFFERED").as_deref(), Some(""));
    }

    #[test]
    fn every_gpu_of_a_member_is_visible_in_order_and_simulated_ones_reach_no_real_one() {
        let mut assignment = assignment(1);
        (assignment.gpus, assignment.slot) = (vec![GpuId([2; 16]), GpuId([1; 16])], Slot::Whole);
        let mut slices = slices(&assignment);
        let [two, one] = [2, 1].map(|id| GpuId([id; 16]).to_string());
        let both = format!("{two},{one}");
        let env = environment(&assignment, &slices, &rooms(), &[]);
        assert_eq!(value(&env, "SELION_GPU"), Some(both.clone()));
        assert_eq!(value(&env, "SELION_SLICE").as_deref(), Some("whole"));
        assert_eq!(value(&env, "CUDA_VISIBLE_DEVICES").as_deref(), Some(""));
        slices.iter_mut().for_each(|slice| slice.visible = slice.gpu.to_string());
        let env = environment(&assignment, &slices, &rooms(), &[]);
        assert_eq!(value(&env, "CUDA_VISIBLE_DEVICES"), Some(both));
    }

    #[test]
    fn a_resume_folder_is_named_only_where_there_is_one() {
        let mut assignment = assignment(1);
        for (resume, dir) in [
            (Resume::Nothing, None),
            (Resume::Coming { attempt: 1 }, None),
            (Resume::From { attempt: 1, cid: "bafy".into() }, Some("/b/data/.resume")),
        ] {
            assignment.resume = resume;
            let env = environment(&assignment, &slices(&assignment), &rooms(), &[]);
            assert_eq!(value(&env, "SELION_RESUME_DIR").as_deref(), dir);
        }
    }

    #[test]
    fn peers_stand_in_order_of_rank() {
        let env = built(&[]);
        assert_eq!(value(&env, "SELION_PEERS").as_deref(), Some("a:1,b:2"));
        assert_eq!(value(&env, "SELION_WORLD_SIZE").as_deref(), Some("2"));
    }
}
