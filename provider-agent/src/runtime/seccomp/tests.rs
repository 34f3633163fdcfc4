//! Both renderings of the list, asked call by call: the filters on a machine of a few lines that runs what the kernel
//! would run, the profile by its own words.

use std::collections::BTreeSet;

use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction};
use proptest::prelude::*;
use seccompiler::{TargetArch, compile_from_json, sock_filter};
use serde_json::json;

use super::table::{ALLOWED, CONDITIONAL, REFUSED};
use super::{Arch, Filters, profile};

const BOTH: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];
const NO_SUCH_CALL: u32 = 5000;

type Args = [u64; 6];

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Allow,
    Errno(i32),
    Kill,
}

/// The kernel's number of an architecture.
fn audit(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => 0xc000_003e,
        Arch::Aarch64 => 0xc000_00b7,
    }
}

/// The number of a call, out of a filter that knows this one only: after the architecture and the load of the number.
fn number(call: &str, arch: Arch) -> Option<u32> {
    let target = if arch == Arch::X86_64 { TargetArch::x86_64 } else { TargetArch::aarch64 };
    let rule =
        json!({ "one": { "match_action": "allow", "mismatch_action": "trap", "filter": [{ "syscall": call }] } });
    let made = compile_from_json(rule.to_string().as_bytes(), target).ok()?;
    Some(made["one"][4].k)
}

/// What one filter says: classic BPF, as far as filters use it.
fn run(filter: &[sock_filter], number: u32, audit: u32, args: &Args) -> u32 {
    let mut data = vec![number, audit, 0, 0];
    data.extend(args.iter().flat_map(|arg| [*arg as u32, (*arg >> 32) as u32]));
    let (mut at, mut word) = (0, 0);
    loop {
        let step = &filter[at];
        at += 1;
        let skip = |yes: bool| usize::from(if yes { step.jt } else { step.jf });
        match step.code {
            0x20 => word = data[step.k as usize / 4],
            0x54 => word &= step.k,
            0x05 => at += step.k as usize,
            0x15 => at += skip(word == step.k),
            0x25 => at += skip(word > step.k),
            0x35 => at += skip(word >= step.k),
            0x06 => return step.k,
            code => panic!("instruction {code:#x}"),
        }
    }
}

/// What the kernel makes of both: from the newest on, the first of the strictest.
fn filtered(filters: &Filters, number: u32, audit: u32, args: &Args) -> Answer {
    let action = |said: u32| (said & 0xffff_0000).cast_signed();
    let mut all = libc::SECCOMP_RET_ALLOW;
    for filter in [&filters.knows, &filters.permits] {
        let said = run(filter, number, audit, args);
        if action(said) < action(all) {
            all = said;
        }
    }
    match all & 0xffff_0000 {
        libc::SECCOMP_RET_ALLOW => Answer::Allow,
        libc::SECCOMP_RET_ERRNO => Answer::Errno((all & 0xffff).cast_signed()),
        _ => Answer::Kill,
    }
}

/// What the profile says: the first rule that fits, else its default.
fn profiled(profile: &LinuxSeccomp, call: &str, args: &Args) -> Answer {
    for rule in profile.syscalls().iter().flatten().filter(|rule| rule.names().iter().any(|name| name == call)) {
        let fits = rule
            .args()
            .iter()
            .flatten()
            .all(|arg| args[arg.index()] & arg.value() == arg.value_two().unwrap_or_default());
        if fits {
            return match rule.action() {
                LinuxSeccompAction::ScmpActAllow => Answer::Allow,
                _ => Answer::Errno(rule.errno_ret().unwrap_or_default().cast_signed()),
            };
        }
    }
    Answer::Errno(profile.default_errno_ret().unwrap_or_default().cast_signed())
}

fn named(arch: Arch) -> Vec<&'static str> {
    let conditional = CONDITIONAL.of(arch).map(|conditional| conditional.call);
    ALLOWED.of(arch).chain(conditional).chain(REFUSED.of(arch)).collect()
}

fn asked(call: &str, args: Args) -> Answer {
    let filters = Filters::make(Arch::X86_64).unwrap();
    filtered(&filters, number(call, Arch::X86_64).unwrap(), audit(Arch::X86_64), &args)
}

#[test]
fn every_name_is_a_call_of_its_architecture_and_stands_in_one_place() {
    for arch in BOTH {
        let names = named(arch);
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{arch:?}: a name stands twice");
        let unknown: Vec<_> = names.iter().filter(|call| number(call, arch).is_none()).collect();
        assert!(unknown.is_empty(), "{arch:?}: {unknown:?}");
        assert!(Filters::make(arch).is_ok() && profile(arch).is_ok());
    }
}

#[test]
fn what_reaches_past_the_box_is_refused_on_both_architectures_whatever_its_arguments() {
    let attacks = "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd mount umount2 pivot_root chroot fsopen fsmount \
        fsconfig fspick move_mount open_tree mount_setattr setns unshare open_by_handle_at name_to_handle_at add_key \
        request_key keyctl bpf userfaultfd io_uring_setup io_uring_enter io_uring_register perf_event_open kexec_load \
        kexec_file_load init_module finit_module delete_module reboot swapon swapoff quotactl quotactl_fd acct \
        settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname syslog fanotify_init move_pages";
    for arch in BOTH {
        let (filters, profile) = (Filters::make(arch).unwrap(), profile(arch).unwrap());
        for call in attacks.split_whitespace() {
            for args in [[0; 6], [u64::MAX; 6], [1; 6]] {
                let answer = filtered(&filters, number(call, arch).unwrap(), audit(arch), &args);
                assert_eq!(answer, Answer::Errno(libc::EPERM), "{arch:?} {call}");
                assert_eq!(profiled(&profile, call, &args), answer, "{arch:?} {call}");
            }
        }
    }
}

#[test]
fn what_is_not_on_the_list_is_told_to_be_missing_so_that_libraries_fall_back() {
    for arch in BOTH {
        let (filters, profile) = (Filters::make(arch).unwrap(), profile(arch).unwrap());
        for call in ["clone3", "statmount", "listmount", "cachestat", "lsm_list_modules"] {
            let answer = filtered(&filters, number(call, arch).unwrap(), audit(arch), &[0; 6]);
            assert_eq!(answer, Answer::Errno(libc::ENOSYS), "{arch:?} {call}");
            assert_eq!(profiled(&profile, call, &[0; 6]), answer, "{arch:?} {call}");
        }
        assert_eq!(filtered(&filters, NO_SUCH_CALL, audit(arch), &[0; 6]), Answer::Errno(libc::ENOSYS));
    }
}

#[test]
fn calls_of_another_architecture_are_no_way_around_the_list() {
    let filters = Filters::make(Arch::X86_64).unwrap();
    let (i386, aarch64) = (0x4000_0003, audit(Arch::Aarch64));
    let read = number("read", Arch::X86_64).unwrap();
    for other in [i386, aarch64] {
        assert_eq!(filtered(&filters, read, other, &[0; 6]), Answer::Kill);
    }
    let x32 = 0x4000_0000;
    assert_eq!(filtered(&filters, read | x32, audit(Arch::X86_64), &[0; 6]), Answer::Errno(libc::ENOSYS));
    let profile = profile(Arch::X86_64).unwrap();
    assert_eq!(profile.architectures().as_ref().map(Vec::len), Some(1));
}

#[test]
fn threads_and_processes_are_made_and_namespaces_are_not() {
    let thread = 0x003d_0f00;
    let fork = (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD) as u64;
    for flags in [thread, fork, libc::CLONE_VFORK as u64] {
        assert_eq!(asked("clone", [flags, 0, 0, 0, 0, 0]), Answer::Allow);
        for namespace in [
            libc::CLONE_NEWNS,
            libc::CLONE_NEWCGROUP,
            libc::CLONE_NEWUTS,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
        ] {
            let flags = flags | namespace as u64;
            assert_eq!(asked("clone", [flags, 0, 0, 0, 0, 0]), Answer::Errno(libc::EPERM), "{namespace:#x}");
        }
    }
}

#[test]
fn sockets_are_of_the_box_and_of_the_internets_common_protocols() {
    let socket = |family: i32, protocol: i32| asked("socket", [family as u64, 1, protocol as u64, 0, 0, 0]);
    for (family, protocol) in [
        (libc::AF_UNIX, 0),
        (libc::AF_INET, 0),
        (libc::AF_INET, libc::IPPROTO_TCP),
        (libc::AF_INET6, libc::IPPROTO_UDP),
        (libc::AF_INET6, libc::IPPROTO_ICMPV6),
        (libc::AF_NETLINK, libc::NETLINK_ROUTE),
    ] {
        assert_eq!(socket(family, protocol), Answer::Allow, "{family} {protocol}");
    }
    for (family, protocol) in [
        (libc::AF_ALG, 0),
        (libc::AF_VSOCK, 0),
        (libc::AF_PACKET, 0),
        (libc::AF_KEY, 0),
        (libc::AF_BLUETOOTH, 0),
        (libc::AF_NETLINK, libc::NETLINK_NETFILTER),
        (libc::AF_NETLINK, libc::NETLINK_AUDIT),
        (libc::AF_INET, libc::IPPROTO_SCTP),
        (libc::AF_INET, libc::IPPROTO_RAW),
        (libc::AF_INET, libc::IPPROTO_MPTCP),
    ] {
        assert_eq!(socket(family, protocol), Answer::Errno(libc::EPERM), "{family} {protocol}");
    }
    assert_eq!(asked("socketpair", [libc::AF_UNIX as u64, 1, 0, 0, 0, 0]), Answer::Allow);
    assert_eq!(asked("socketpair", [libc::AF_TIPC as u64, 1, 0, 0, 0, 0]), Answer::Errno(libc::EPERM));
}

#[test]
fn nothing_is_typed_into_a_terminal_whatever_stands_above_the_32_bits_that_the_kernel_reads() {
    for above in [0, 1 << 32, u64::MAX << 32] {
        for request in [libc::TIOCSTI, libc::TIOCLINUX] {
            assert_eq!(asked("ioctl", [0, request | above, 0, 0, 0, 0]), Answer::Errno(libc::EPERM));
        }
        for request in [libc::FIONREAD, libc::TCGETS, libc::TIOCSTI - 1, libc::TIOCLINUX + 1, 0xc020_462a] {
            assert_eq!(asked("ioctl", [0, request | above, 0, 0, 0, 0]), Answer::Allow, "{request:#x}");
        }
    }
}

#[test]
fn a_personality_that_switches_address_randomisation_off_is_refused_and_a_device_node_is() {
    for (persona, answer) in [(0, true), (0xffff_ffff, true), (0x8, true), (0x4_0000, false), (0x40_0000, false)] {
        let answer = if answer { Answer::Allow } else { Answer::Errno(libc::EPERM) };
        assert_eq!(asked("personality", [persona, 0, 0, 0, 0, 0]), answer, "{persona:#x}");
    }
    for (kind, allowed) in [
        (libc::S_IFIFO, true),
        (libc::S_IFREG, true),
        (libc::S_IFSOCK, true),
        (libc::S_IFCHR, false),
        (libc::S_IFBLK, false),
    ] {
        let answer = || if allowed { Answer::Allow } else { Answer::Errno(libc::EPERM) };
        assert_eq!(asked("mknod", [0, u64::from(kind | 0o644), 0, 0, 0, 0]), answer());
        assert_eq!(asked("mknodat", [0, 0, u64::from(kind | 0o644), 0, 0, 0]), answer());
    }
}

/// Values at which a condition may turn, with anything above the 32 bits.
fn argument() -> impl Strategy<Value = u64> {
    let word = prop_oneof![
        0_u32..64,
        0x5400_u32..0x5430,
        any::<u32>(),
        Just(u32::MAX),
        (0_u32..32).prop_map(|bit| 1 << bit),
        (0_u32..32).prop_map(|bit| libc::TIOCSTI as u32 ^ (1 << bit)),
    ];
    (word, prop_oneof![Just(0), Just(u32::MAX), any::<u32>()])
        .prop_map(|(low, high)| u64::from(high) << 32 | u64::from(low))
}

proptest! {
    #[test]
    fn both_renderings_let_the_same_calls_pass(args in proptest::array::uniform6(argument()), pick in any::<prop::sample::Index>()) {
        for arch in BOTH {
            let (filters, profile) = (Filters::make(arch).unwrap(), profile(arch).unwrap());
            let conditional: Vec<_> = CONDITIONAL.of(arch).map(|conditional| conditional.call).collect();
            for call in [*pick.get(&conditional), *pick.get(&named(arch))] {
                let by_filter = filtered(&filters, number(call, arch).unwrap(), audit(arch), &args);
                let by_profile = profiled(&profile, call, &args);
                prop_assert_eq!(by_filter == Answer::Allow, by_profile == Answer::Allow, "{:?} {} {:x?}", arch, call, args);
            }
        }
    }
}
