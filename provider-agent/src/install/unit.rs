//! The text of the unit.
//!
//! A box is made of user, mount and process namespaces, control groups, devices and a file system for processes. A unit may
//! harden everything that is not one of these. Left out are, each for what it would break:
//!
//! - `ProtectKernelTunables`, `ProtectKernelLogs`, `ProtectProc`, `ProcSubset`: they cover parts of `/proc`, and the kernel
//!   gives a user namespace no fresh one then, so that no box starts.
//! - `ProtectControlGroups`: leases are held to their limits by groups that the agent makes.
//! - `RestrictNamespaces`, `PrivateUsers`: boxes are namespaces, of ids that a unit's own user namespace would not have.
//! - `PrivateDevices`, `DevicePolicy`, and `ProtectClock`, which closes the list of devices: cards are leased. A box has the
//!   nodes of its own card and no other.
//! - `ProtectHostname`: a box has a name of its own.
//! - `MemoryDenyWriteExecute`: what compiles while it runs, as CUDA and most frameworks, dies.
//! - `RestrictSUIDSGID`: a lease that is root in its box installs packages, which set such bits. They give nothing there.
//! - `PrivateNetwork`, `IPAddressDeny`: the agent links to its controller.

use std::fmt::Write;
use std::path::Path;

use super::{InstallError, Scope};

/// What a unit is made of.
pub(super) struct Unit<'a> {
    pub(super) program: &'a Path,
    pub(super) settings: &'a Path,
    pub(super) state: &'a Path,
    /// What has to be readable beside the system's.
    pub(super) needed: Vec<&'a Path>,
    pub(super) scope: Scope,
    pub(super) user: Option<&'a str>,
    /// Whether the driver has to be up.
    pub(super) real_gpus: bool,
}

/// What an agent that is root has no use for. It keeps what namespaces, ids, groups and nodes take.
const DROPPED: &str = "~CAP_AUDIT_CONTROL CAP_AUDIT_READ CAP_AUDIT_WRITE CAP_BLOCK_SUSPEND CAP_BPF CAP_IPC_OWNER CAP_LEASE \
                       CAP_LINUX_IMMUTABLE CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_PERFMON CAP_SYSLOG CAP_SYS_BOOT CAP_SYS_MODULE \
                       CAP_SYS_PACCT CAP_SYS_RAWIO CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_WAKE_ALARM";
/// Homes, and where sessions keep their own.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];
/// What a unit with a `/tmp` of its own would not see.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

impl Unit<'_> {
    /// The whole text.
    ///
    /// # Errors
    ///
    /// [`InstallError::Path`].
    pub(super) fn text(&self) -> Result<String, InstallError> {
        let mut text = String::from(
            "# Made by `selion agent install`, which makes it anew with --replace. The settings are in the file after --config.\n",
        );
        let mut section = |name: &str, lines: Vec<String>| {
            let _ = write!(text, "\n[{name}]\n");
            lines.iter().for_each(|line| text.extend([line.as_str(), "\n"]));
        };
        section("Unit", self.unit());
        let mut service = self.service()?;
        service.extend(self.walls());
        if self.scope == Scope::System {
            service.extend(self.walls_of_root()?);
        }
        section("Service", service);
        let target = if self.scope == Scope::System { "multi-user.target" } else { "default.target" };
        section("Install", vec![format!("WantedBy={target}")]);
        Ok(text)
    }

    fn unit(&self) -> Vec<String> {
        let mut lines = vec!["Description=Selion provider agent".to_owned()];
        if self.scope == Scope::System {
            lines.extend(["Wants=network-online.target", "After=network-online.target"].map(str::to_owned));
        }
        // It may come back as often as it takes: a pool that is away for a day is no reason to give up.
        lines.push("StartLimitIntervalSec=0".into());
        lines
    }

    fn service(&self) -> Result<Vec<String>, InstallError> {
        let mut lines = vec!["Type=exec".to_owned()];
        lines.extend(self.user.map(|user| format!("User={user}")));
        if self.real_gpus && self.scope == Scope::System {
            // The driver's nodes, which the agent's user cannot make. By root, and no matter if it is not there.
            lines.push("ExecStartPre=-+/usr/bin/nvidia-modprobe -u -c 0".into());
        }
        lines.push(format!("ExecStart={} agent up --yes --config {}", word(self.program)?, word(self.settings)?));
        let rest = [
            "Restart=always",
            "RestartSec=5",
            // A setting that is wrong is wrong again.
            "RestartPreventExitStatus=2",
            // The agent ends what it runs; what is to outlive it is not the unit's to end.
            "KillMode=process",
            "TimeoutStopSec=90",
            // Control groups for leases.
            "Delegate=yes",
            // A lease that runs out of memory is no reason to stop the agent.
            "OOMPolicy=continue",
            // A lease may have 8192 processes, and 65536 files in each.
            "TasksMax=infinity",
            "LimitNOFILE=524288",
        ];
        lines.extend(rest.map(str::to_owned));
        Ok(lines)
    }

    /// Walls that any manager can put up: they are the process's own.
    fn walls(&self) -> Vec<String> {
        let lines = [
            // What the agent makes for a lease is read by the lease's own ids. Keys have modes of their own, in a folder of
            // mode 0700.
            "UMask=0022",
            // Nothing that the agent runs is meant to gain by being run. In its namespaces it has what it needs from the start.
            "NoNewPrivileges=yes",
            // The boxes' own filter refuses the rest of both.
            "LockPersonality=yes",
            "SystemCallArchitectures=native",
            // Neither the agent nor a lease may starve the machine.
            "RestrictRealtime=yes",
            // The link, sockets of the machine, and the routes that a box's network follows.
            "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
            // What neither makes a box nor is let into one.
            "SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap",
            "SystemCallErrorNumber=EPERM",
            "KeyringMode=private",
        ];
        lines.map(str::to_owned).to_vec()
    }

    /// Walls of mounts and capabilities: a user's own manager would need a user namespace for them, in which no box starts.
    fn walls_of_root(&self) -> Result<Vec<String>, InstallError> {
        let is_in = |places: &[&str]| {
            let mut paths = self.needed.iter().chain([&self.state]);
            paths.any(|path| places.iter().any(|place| path.starts_with(place)))
        };
        // An ordinary user's agent has no capability to lose; its boxes have their own namespace's.
        let capabilities = if self.user.is_some_and(|user| user != "root") { "" } else { DROPPED };
        let mut lines = vec![
            format!("CapabilityBoundingSet={capabilities}"),
            // The agent writes to its state directory and nowhere else.
            "ProtectSystem=strict".into(),
            format!("ReadWritePaths={}", word(self.state)?),
            // Homes are hidden, where nothing that the agent needs is in one.
            format!("ProtectHome={}", if is_in(&HOMES) { "read-only" } else { "yes" }),
            // Modules are loaded by the kernel itself, which no unit keeps from it.
            "ProtectKernelModules=yes".into(),
        ];
        if !is_in(&TEMPORARY) {
            lines.push("PrivateTmp=yes".into());
        }
        Ok(lines)
    }
}

/// A path as one word of a unit: quoted, and with no specifier or variable in it.
fn word(path: &Path) -> Result<String, InstallError> {
    let refuse = |why| InstallError::Path { path: path.to_owned(), why };
    let text = path.to_str().ok_or_else(|| refuse("it is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(refuse("it has a control character"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,".contains(c);
    if text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    Ok(format!("\"{escaped}\""))
}
