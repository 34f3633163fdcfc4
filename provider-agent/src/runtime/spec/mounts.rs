//! What is mounted in a box, in order.

use std::path::Path;

use oci_spec::OciSpecError;
use oci_spec::runtime::{Mount, MountBuilder};

use super::BoxPlan;

/// Bytes of a box's `/dev`: nodes and links.
const DEV_BYTES: u64 = 64 << 10;
/// Bytes of a box's `/sys`: the folders in which something is shown.
const SYS_BYTES: u64 = 64 << 10;

/// The kernel's own, then scratch, then what the agent shows.
///
/// `/sys` is empty but for what is shown of it. There is no terminal: neither `/dev/pts` nor a console.
pub(super) fn mounts(plan: &BoxPlan) -> Result<Vec<Mount>, OciSpecError> {
    let memory = |target: &Path, bytes: u64, mode: &str, more: &[&str]| {
        let mut options = vec![format!("size={bytes}"), format!("mode={mode}"), "nosuid".into(), "nodev".into()];
        options.extend(more.iter().map(|option| (*option).to_owned()));
        mount(target, "tmpfs", Path::new("tmpfs"), options)
    };
    let kernel = |target: &str, kind: &str| {
        let options = ["nosuid", "noexec", "nodev"].map(str::to_owned).to_vec();
        mount(Path::new(target), kind, Path::new(kind), options)
    };
    let dev = ["nosuid", "noexec", "strictatime", "mode=755"].map(str::to_owned);
    let dev = [dev.to_vec(), vec![format!("size={DEV_BYTES}")]].concat();
    let mut all = vec![
        kernel("/proc", "proc")?,
        mount(Path::new("/dev"), "tmpfs", Path::new("tmpfs"), dev)?,
        memory(Path::new("/dev/shm"), plan.limits.shm_bytes, "1777", &["noexec"])?,
        kernel("/dev/mqueue", "mqueue")?,
        memory(Path::new("/sys"), SYS_BYTES, "755", &["noexec", "ro"])?,
    ];
    for scratch in &plan.scratch {
        all.push(memory(&scratch.target, scratch.bytes, "1777", &[])?);
    }
    for bind in &plan.binds {
        let access = if bind.writable { "rw" } else { "ro" };
        let options = ["rbind", "rprivate", access, "nosuid", "nodev"].map(str::to_owned).to_vec();
        all.push(mount(&bind.target, "bind", &bind.source, options)?);
    }
    Ok(all)
}

fn mount(target: &Path, kind: &str, source: &Path, options: Vec<String>) -> Result<Mount, OciSpecError> {
    MountBuilder::default().destination(target).typ(kind).source(source).options(options).build()
}
