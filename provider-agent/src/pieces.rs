//! The pieces of a machine that a node is made of: which are missing, what that takes from the offer, and the command that
//! brings them.

use std::fs;
use std::io;
use std::path::Path;

use selion_api::slice::{BoxFeature, BoxFeatures};

use crate::config::{Config, GpuSource};
use crate::doctor::Check;
use crate::gpus::NvmlGpus;

/// Where programs of the system's are.
const PLACES: [&str; 5] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/bin"];
/// What a lease's network takes with it where it cannot be had.
const NETWORK: &str = "features internet, gang and net: only leases that need no network come";
/// What real cards stand for in an offer.
const WHOLE: &str = "isolation class whole: no lease gets a real card";

/// A family of distributions, by its package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Debian,
    Fedora,
    Other,
}

impl Family {
    /// This machine's.
    pub(crate) fn here() -> Self {
        Self::of(&fs::read_to_string("/etc/os-release").unwrap_or_default())
    }

    /// By the text of `/etc/os-release`.
    fn of(text: &str) -> Self {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let ids = [value("ID"), value("ID_LIKE")].into_iter().flatten();
        let ids: Vec<&str> = ids.flat_map(|ids| ids.trim_matches('"').split(' ')).collect();
        if ids.iter().any(|id| ["debian", "ubuntu"].contains(id)) {
            Self::Debian
        } else if ids.iter().any(|id| ["fedora", "rhel", "centos"].contains(id)) {
            Self::Fedora
        } else {
            Self::Other
        }
    }

    /// The command that installs a package which each family calls by its own name.
    pub(crate) fn install(self, debian: &str, fedora: &str) -> String {
        match self {
            Self::Debian => format!("apt install {debian}"),
            Self::Fedora => format!("dnf install {fedora}"),
            Self::Other => format!("install {debian} (Debian) or {fedora} (Fedora)"),
        }
    }
}

/// Everything that can be seen without a trial.
pub(crate) fn pieces(config: &Config) -> Vec<Check> {
    let family = Family::here();
    let mut checks = vec![driver(config, family)];
    if config.gpus == GpuSource::Nvml {
        checks.extend(nvml(Path::new("/dev/nvidia-uvm")));
    }
    checks.push(program("slirp4netns", &family.install("slirp4netns", "slirp4netns")));
    checks.push(program("nft", &family.install("nftables", "nftables")));
    checks.push(tun(Path::new("/dev/net/tun")));
    checks
}

fn driver(config: &Config, family: Family) -> Check {
    const NAME: &str = "driver";
    match NvmlGpus::open().and_then(|nvml| nvml.driver_version()) {
        Ok(version) => Check::good(NAME, format!("NVIDIA driver {version}")),
        // Simulated GPUs need none.
        Err(error) if config.gpus != GpuSource::Nvml => {
            Check::good(NAME, format!("not needed for simulated GPUs: {error}"))
        }
        Err(error) => {
            let remedy = format!(
                "{}, then restart the machine; or offer simulated GPUs (--simulate \"H100 80GB\")",
                family.install("nvidia-driver", "akmod-nvidia xorg-x11-drv-nvidia-cuda")
            );
            Check::bad(NAME, error.to_string(), remedy).costing(WHOLE)
        }
    }
}

/// What a driver that works may lack still.
fn nvml(uvm: &Path) -> Vec<Check> {
    let Ok(nvml) = NvmlGpus::open() else { return Vec::new() };
    let mut checks = vec![node_of_cuda(uvm)];
    for index in nvml.cut().unwrap_or_default() {
        let found = format!("card {index} is in MIG mode, and this version leases real cards whole only");
        let remedy = format!("nvidia-smi -i {index} -mig 0");
        checks.push(Check::bad("mig", found, remedy).costing(format!("card {index}: it is not offered at all")));
    }
    checks
}

/// Without it CUDA finds no card, and an ordinary user cannot make it.
fn node_of_cuda(uvm: &Path) -> Check {
    const NAME: &str = "nvidia_uvm";
    if uvm.exists() {
        return Check::good(NAME, format!("{} is there", uvm.display()));
    }
    Check::bad(NAME, format!("there is no {}", uvm.display()), "nvidia-modprobe -u -c 0").costing(WHOLE)
}

fn program(name: &'static str, remedy: &str) -> Check {
    match PLACES.iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file()) {
        Some(path) => Check::good(name, path.display().to_string()),
        None => Check::bad(name, format!("`{name}` is not installed"), remedy).costing(NETWORK),
    }
}

fn tun(device: &Path) -> Check {
    const NAME: &str = "tun";
    match fs::File::options().read(true).write(true).open(device) {
        Ok(_) => return Check::good(NAME, format!("{} is there", device.display())),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let found = format!("{} is not this user's to open", device.display());
            return Check::bad(NAME, found, format!("chmod 0666 {}, its usual mode", device.display()))
                .costing(NETWORK);
        }
        // A device that is there and has no driver behind it fails too.
        Err(_) => {}
    }
    let remedy = "modprobe tun && echo tun > /etc/modules-load.d/tun.conf; in a container give it /dev/net/tun";
    Check::bad(NAME, format!("there is no {} that works", device.display()), remedy).costing(NETWORK)
}

/// What a trial found of the network that leases get.
pub(crate) fn network(features: BoxFeatures) -> Check {
    const NAME: &str = "network";
    match (features.has(BoxFeature::Gang), features.has(BoxFeature::Internet)) {
        (true, true) => Check::good(NAME, "leases reach the internet and their gangs, and nothing of this machine"),
        (true, false) => Check::good(NAME, "leases reach their gangs; you give them no internet"),
        (false, _) => Check::bad(
            NAME,
            "leases get no network here",
            "bring what `slirp4netns`, `nft` and `tun` say; else `selion -v agent up` says what does not work",
        )
        .costing(NETWORK),
    }
}

/// What a trial found of the limits that hold.
pub(crate) fn limits(features: BoxFeatures) -> Check {
    const NAME: &str = "limits";
    let all = [BoxFeature::Cpu, BoxFeature::Memory, BoxFeature::Pids, BoxFeature::Disk];
    let codes = |has: bool| {
        let some = all.into_iter().filter(|feature| features.has(*feature) == has);
        some.map(BoxFeature::code).collect::<Vec<_>>().join(", ")
    };
    let missing = codes(false);
    if missing.is_empty() {
        return Check::good(NAME, format!("leases are held to their {}", codes(true)));
    }
    let remedy = "selion agent install, which runs the agent in a unit with control groups of its own (Delegate=yes); \
                  or run it as root";
    Check::bad(NAME, format!("no control group holds leases to their {missing}"), remedy).costing(format!(
        "features {missing}: leases that ask for them go elsewhere, and one lease can starve the others"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_piece_says_what_it_costs_and_the_command_that_mends_it() {
        let none = Path::new("/no/such/device");
        let missing = [
            (program("no-such-program", "apt install x"), "internet, gang and net", "apt install x"),
            (tun(none), "internet, gang and net", "modprobe tun"),
            (node_of_cuda(none), "class whole", "nvidia-modprobe"),
            (network(BoxFeatures::NONE), "internet, gang and net", "slirp4netns"),
            (limits(BoxFeatures::NONE.with(BoxFeature::Disk)), "features cpu, memory, pids", "selion agent install"),
        ];
        for (check, costs, remedy) in missing {
            assert!(!check.ok && check.costs.as_ref().unwrap().contains(costs), "{check:?}");
            assert!(check.remedy.as_ref().unwrap().contains(remedy), "{check:?}");
        }
    }

    #[test]
    fn what_is_there_costs_nothing() {
        let all = BoxFeatures::from_iter(BoxFeature::ALL);
        let held = "leases are held to their cpu, memory, pids, disk";
        for check in [program("sh", ""), tun(Path::new("/dev/null")), network(all), limits(all)] {
            assert!(check.ok && check.costs.is_none() && check.remedy.is_none(), "{check:?}");
        }
        assert_eq!(limits(all).detail, held);
    }

    #[test]
    fn packages_are_named_as_the_machines_own_distribution_names_them() {
        let families = [
            ("ID=debian\n", Family::Debian),
            ("NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n", Family::Debian),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", Family::Fedora),
            ("ID=fedora\n", Family::Fedora),
            ("ID=arch\n", Family::Other),
            ("", Family::Other),
        ];
        families.iter().for_each(|(text, family)| assert_eq!(Family::of(text), *family, "{text}"));
        assert_eq!(Family::Debian.install("a", "b"), "apt install a");
        assert_eq!(Family::Fedora.install("a", "b"), "dnf install b");
        assert_eq!(Family::Other.install("a", "b"), "install a (Debian) or b (Fedora)");
    }
}
