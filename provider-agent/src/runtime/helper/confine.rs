//! The last walls: no capability, no way to gain one, and no system call but those of the list. The kernel is asked
//! whether they stand, by the command's own process just before it becomes the command; it does not become it otherwise.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

use super::Trouble;
use crate::runtime::seccomp::{Arch, Filters};

/// Number of the highest capability that a kernel could have.
const CAPABILITIES: libc::c_ulong = 64;
/// Longest status of a process that is read, in bytes.
const LONGEST: u64 = 64 << 10;
/// What a confined process's status says.
const CONFINED: [(&str, &str); 7] = [
    ("CapInh", "0000000000000000"),
    ("CapPrm", "0000000000000000"),
    ("CapEff", "0000000000000000"),
    ("CapBnd", "0000000000000000"),
    ("CapAmb", "0000000000000000"),
    ("NoNewPrivs", "1"),
    ("Seccomp", "2"),
];

/// Sees to it that no program started from here on has a capability, whoever runs it. Needs the namespace's own root.
pub(super) fn bar_capabilities() -> Result<(), Trouble> {
    for capability in 0..CAPABILITIES {
        // SAFETY: no memory is passed.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            match Errno::last() {
                // Past the last that this kernel has.
                Errno::EINVAL => break,
                errno => return Err(format!("bar capability {capability}: {errno}")),
            }
        }
    }
    Ok(())
}

/// Gives up every capability of this process, and all system calls that are not on the list.
pub(super) fn confine() -> Result<(), Trouble> {
    give_up_capabilities()?;
    // The helper's memory stays closed to the command, which is of the same user and now has as many rights.
    nix::sys::prctl::set_dumpable(false).map_err(|errno| format!("close the helper's memory: {errno}"))?;
    let arch = Arch::own().ok_or("there is no list of system calls for this processor; x86-64 and aarch64 have one")?;
    Filters::make(arch)?.install()
}

fn give_up_capabilities() -> Result<(), Trouble> {
    #[repr(C)]
    struct Header {
        version: u32,
        process: libc::c_int,
    }
    // `_LINUX_CAPABILITY_VERSION_3`: two times effective, permitted, inheritable.
    let header = Header { version: 0x2008_0522, process: 0 };
    let none = [0_u32; 6];
    // SAFETY: header and sets live through the call and have the sizes of this version.
    if unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) } != 0 {
        return Err(format!("give up capabilities: {}", Errno::last()));
    }
    Ok(())
}

/// The machine's `/proc`, by which a process may read what the kernel says of it, whatever its own view holds.
#[derive(Debug)]
pub(super) struct Witness(OwnedFd);

impl Witness {
    /// Takes it, before the view is entered.
    pub(super) fn take() -> Result<Self, Trouble> {
        let how = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        open("/proc", how, Mode::empty()).map(Self).map_err(|errno| format!("/proc: {errno}"))
    }

    /// Fails, in words, unless this process is confined.
    pub(super) fn confirm(&self) -> Result<(), Trouble> {
        let said = |error: &dyn std::fmt::Display| format!("read /proc/self/status: {error}");
        let how = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = openat(&self.0, "self/status", how, Mode::empty()).map_err(|errno| said(&errno))?;
        let mut status = String::new();
        File::from(file).take(LONGEST).read_to_string(&mut status).map_err(|error| said(&error))?;
        judge(&status)
    }
}

/// Judges the text of `/proc/PID/status`. A line that is missing is not taken for a good one.
fn judge(status: &str) -> Result<(), Trouble> {
    for (name, wanted) in CONFINED {
        let said = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        if said != Some(wanted) {
            let said = said.unwrap_or("nothing");
            return Err(format!(
                "the kernel says {said} of {name} where the sandbox needs {wanted}; nothing was started"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Name:\tsh\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
        CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";

    #[test]
    fn a_process_is_confined_only_if_the_kernel_says_so_of_every_wall() {
        assert_eq!(judge(GOOD), Ok(()));
        for (name, bad) in [
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Seccomp:\t2", "Seccomp:\t1"),
            ("Seccomp:\t2", "Seccomp:\t"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("CapBnd:\t0000000000000000", "CapBnd:\t0000000000000400"),
            ("CapEff:\t0000000000000000", "CapEff:\t000001ffffffffff"),
            ("CapAmb:\t0000000000000000\n", ""),
            ("Seccomp:\t2\n", ""),
        ] {
            let why = judge(&GOOD.replace(name, bad)).unwrap_err();
            assert!(why.contains(name.split(':').next().unwrap()), "{why}");
        }
    }

    #[test]
    fn this_process_is_not_confined_and_is_told_so() {
        assert!(Witness::take().unwrap().confirm().is_err());
    }
}
