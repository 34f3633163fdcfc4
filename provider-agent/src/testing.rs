//! Values for tests of this crate.

use selion_api::agent::{Assignment, Peer, Phase};
use selion_api::commit::{Overrides, Root, Work};
use selion_api::{GpuId, Hash32, LeaseId, Slot};

use crate::gpus::SliceHandle;

/// An assignment of lease `seq`, whose commitment holds.
pub(crate) fn assignment(seq: u64) -> Assignment {
    let work = Work {
        command: vec!["true".into()],
        env: Vec::new(),
        datasets: Vec::new(),
        network: selion_api::commit::Network::None,
        root: Root::Base,
        over: Overrides::default(),
        secrets: selion_api::commit::Expected::default(),
    };
    let salt = Hash32([seq as u8; 32]);
    Assignment {
        lease: LeaseId { seq, index: 0 },
        attempt: 0,
        member: 0,
        phase: Phase::Prepare,
        gpus: vec![GpuId([1; 16])],
        slot: Slot::Mig { profile: "1g.10gb".into(), start: 2, size: 1 },
        cpu_milli: 500,
        ram_bytes: 1 << 20,
        disk_bytes: 1 << 20,
        net_mbps: 0,
        port: 20_000,
        peers: vec![
            Peer { rank: 1, address: "b:2".into(), attempt: 0 },
            Peer { rank: 0, address: "a:1".into(), attempt: 0 },
        ],
        commitment: work.commitment(&salt),
        work,
        salt,
        max_run_ms: 60_000,
        resume: selion_api::agent::Resume::Nothing,
        renter: selion_api::Account([7; 20]),
        delegate: selion_api::Address([8; 20]),
        rate: selion_api::Rate(0),
        billed: selion_api::Amount::ZERO,
    }
}

/// The slices of `assignment`.
pub(crate) fn slices(assignment: &Assignment) -> Vec<SliceHandle> {
    let slice = |(gpu, number): (&GpuId, u64)| SliceHandle {
        gpu: *gpu,
        slot: assignment.slot.clone(),
        number,
        visible: String::new(),
        devices: Vec::new(),
    };
    assignment.gpus.iter().zip(0..).map(slice).collect()
}
