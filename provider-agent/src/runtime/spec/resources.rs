//! How much a box may use, and which devices.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxCpuBuilder, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType,
    LinuxMemoryBuilder, LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder,
};

use super::{BoxPlan, Device, Limits};

/// Time in which a quota of the processor is counted, in microseconds.
const PERIOD: u64 = 100_000;
/// The same for a share so small that a quota in the above would be below the kernel's least.
const LONG_PERIOD: u64 = 1_000_000;
/// The kernel's least quota, in microseconds.
const LEAST_QUOTA: u64 = 1_000;
/// Every character device that a box may open, by major and minor number: null, zero, full, random, urandom.
const PLAIN: [(u32, u32); 5] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9)];

/// Quota and period of a share of the processors, in microseconds.
pub(in crate::runtime) fn quota(cpu_milli: u32) -> (i64, u64) {
    let of = |period: u64| u64::from(cpu_milli) * period / 1_000;
    let period = if of(PERIOD) < LEAST_QUOTA { LONG_PERIOD } else { PERIOD };
    (of(period).cast_signed(), period)
}

pub(super) fn resources(plan: &BoxPlan) -> Result<LinuxResources, OciSpecError> {
    let mut rules = vec![LinuxDeviceCgroupBuilder::default().allow(false).access("rwm").build()?];
    for (major, minor) in PLAIN {
        rules.push(may_open(major, minor)?);
    }
    for device in &plan.devices {
        rules.push(may_open(device.major, device.minor)?);
    }
    let Limits { cpu_milli, memory_bytes, pids, .. } = plan.limits;
    let (quota, period) = quota(cpu_milli);
    // Checked to be within what a signed number tells.
    let memory = memory_bytes.cast_signed();
    let mut resources = LinuxResourcesBuilder::default().devices(rules).build()?;
    if plan.cgroup.is_some() {
        resources
            .set_cpu(Some(LinuxCpuBuilder::default().quota(quota).period(period).build()?))
            // Memory and swap together are no more than memory: no swap.
            .set_memory(Some(LinuxMemoryBuilder::default().limit(memory).swap(memory).build()?))
            .set_pids(Some(LinuxPidsBuilder::default().limit(i64::from(pids)).build()?));
    }
    Ok(resources)
}

fn may_open(major: u32, minor: u32) -> Result<LinuxDeviceCgroup, OciSpecError> {
    LinuxDeviceCgroupBuilder::default()
        .allow(true)
        .typ(LinuxDeviceType::C)
        .major(i64::from(major))
        .minor(i64::from(minor))
        .access("rw")
        .build()
}

pub(super) fn nodes(devices: &[Device]) -> Result<Vec<LinuxDevice>, OciSpecError> {
    let node = |device: &Device| {
        LinuxDeviceBuilder::default()
            .path(&device.path)
            .typ(LinuxDeviceType::C)
            .major(i64::from(device.major))
            .minor(i64::from(device.minor))
            .file_mode(0o666_u32)
            .build()
    };
    devices.iter().map(node).collect()
}
