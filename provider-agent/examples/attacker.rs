//! A command of a bad renter, for this crate's tests: makes system calls that no box allows, and some that every box
//! needs, and tells what the kernel said to each: `attack NAME ERRNO` or `need NAME ERRNO`, with 0 for success.
//!
//! The arguments are such that a kernel without a filter would do the call, or say something else than `EPERM` wherever it
//! lets users as ordinary as this one come that far. None of them harms the machine.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use libc::{c_long, c_ulong};

/// What a call said: 0, or the error's number.
fn said(result: c_long) -> i32 {
    if result < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        // SAFETY: pointers among the arguments are null or lead to what lives through the call.
        said(unsafe { libc::syscall($number $(, $argument)*) })
    };
}

fn main() {
    for (name, answer) in attacks() {
        println!("attack {name} {answer}");
    }
    for (name, answer) in needs() {
        println!("need {name} {answer}");
    }
}

fn attacks() -> Vec<(&'static str, i32)> {
    let mut all = kernel();
    all.extend(machine());
    all.extend(sockets());
    all.extend(arguments());
    all.extend(views());
    // Last: a process that is traced stops at its next signal.
    all.extend(others());
    all
}

/// Other processes.
fn others() -> Vec<(&'static str, i32)> {
    let own = std::process::id();
    let mut byte = 0_u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    vec![
        ("kcmp", call!(libc::SYS_kcmp, own, own, 0, 0, 0)),
        ("pidfd_getfd", call!(libc::SYS_pidfd_getfd, -1, 0, 0)),
        ("process_vm_readv", call!(libc::SYS_process_vm_readv, own, &raw const part, 1, &raw const part, 1, 0)),
        ("process_vm_writev", call!(libc::SYS_process_vm_writev, own, &raw const part, 1, &raw const part, 1, 0)),
        ("move_pages", call!(libc::SYS_move_pages, own, 0, null::<u8>(), null::<u8>(), null::<u8>(), 0)),
        ("ptrace", call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, i32::MAX, 0, 0)),
    ]
}

/// Mounts and namespaces.
fn views() -> Vec<(&'static str, i32)> {
    let (root, tmp, tmpfs) = (c"/".as_ptr(), c"/tmp".as_ptr(), c"tmpfs".as_ptr());
    let mut handle = [0_u32; 40];
    handle[0] = 128;
    let mut mount = 0_i32;
    vec![
        ("unshare", call!(libc::SYS_unshare, 0)),
        ("unshare-user", call!(libc::SYS_unshare, libc::CLONE_NEWUSER)),
        ("setns", call!(libc::SYS_setns, -1, 0)),
        ("clone-user", clone(libc::CLONE_NEWUSER)),
        ("clone-mounts", clone(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)),
        ("clone-network", clone(libc::CLONE_NEWNET)),
        ("clone3", call!(libc::SYS_clone3, null::<u8>(), 0)),
        ("mount", call!(libc::SYS_mount, tmpfs, tmp, tmpfs, 0, null::<u8>())),
        ("umount2", call!(libc::SYS_umount2, tmp, libc::MNT_DETACH)),
        ("pivot_root", call!(libc::SYS_pivot_root, tmp, tmp)),
        ("chroot", call!(libc::SYS_chroot, root)),
        ("fsopen", call!(libc::SYS_fsopen, tmpfs, 0)),
        ("fsconfig", call!(libc::SYS_fsconfig, -1, 0, null::<u8>(), null::<u8>(), 0)),
        ("fsmount", call!(libc::SYS_fsmount, -1, 0, 0)),
        ("fspick", call!(libc::SYS_fspick, -1, tmp, 0)),
        ("move_mount", call!(libc::SYS_move_mount, -1, root, -1, tmp, 0)),
        ("open_tree", call!(libc::SYS_open_tree, libc::AT_FDCWD, root, 0)),
        ("mount_setattr", call!(libc::SYS_mount_setattr, -1, root, 0, null::<u8>(), 0)),
        ("name_to_handle_at", {
            call!(libc::SYS_name_to_handle_at, libc::AT_FDCWD, root, handle.as_mut_ptr(), &raw mut mount, 0)
        }),
        ("open_by_handle_at", call!(libc::SYS_open_by_handle_at, -1, handle.as_ptr(), 0)),
    ]
}

/// A child in new namespaces, which ends at once.
fn clone(namespaces: i32) -> i32 {
    let flags = namespaces | libc::SIGCHLD;
    // SAFETY: without a stack of its own the child goes on here, as after a fork, and only ends.
    let child =
        unsafe { libc::syscall(libc::SYS_clone, flags, null::<u8>(), null::<u8>(), null::<u8>(), null::<u8>()) };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    said(child)
}

/// Interfaces to the kernel's inside.
fn kernel() -> Vec<(&'static str, i32)> {
    let mut parameters = [0_u8; 120];
    let attributes = [0_u8; 128];
    let (kind, name) = (c"user".as_ptr(), c"selion".as_ptr());
    let page = [0_u8; 1];
    let part = libc::iovec { iov_base: page.as_ptr().cast_mut().cast(), iov_len: 1 };
    vec![
        ("bpf", call!(libc::SYS_bpf, 0, attributes.as_ptr(), 128)),
        ("io_uring_setup", call!(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr())),
        ("io_uring_enter", call!(libc::SYS_io_uring_enter, -1, 0, 0, 0, null::<u8>(), 0)),
        ("io_uring_register", call!(libc::SYS_io_uring_register, -1, 0, null::<u8>(), 0)),
        ("perf_event_open", call!(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0)),
        ("userfaultfd", call!(libc::SYS_userfaultfd, 1)),
        ("keyctl", call!(libc::SYS_keyctl, 0, -3, 0)),
        ("add_key", call!(libc::SYS_add_key, kind, name, name, 6, -2)),
        ("request_key", call!(libc::SYS_request_key, kind, name, null::<u8>(), 0)),
        ("memfd_secret", call!(libc::SYS_memfd_secret, 0)),
        ("vmsplice", call!(libc::SYS_vmsplice, -1, &raw const part, 1, 0)),
        ("cachestat", call!(451, -1, null::<u8>(), null::<u8>(), 0)),
        ("a call of the future", call!(5000)),
    ]
}

/// The machine as a whole.
fn machine() -> Vec<(&'static str, i32)> {
    let none = null::<u8>();
    let mut clock = [0_u8; 256];
    let all = vec![
        ("acct", call!(libc::SYS_acct, c"/nonexistent".as_ptr())),
        ("adjtimex", call!(libc::SYS_adjtimex, clock.as_mut_ptr())),
        ("clock_adjtime", call!(libc::SYS_clock_adjtime, -1, clock.as_mut_ptr())),
        ("clock_settime", call!(libc::SYS_clock_settime, -1, none)),
        ("settimeofday", call!(libc::SYS_settimeofday, none, none)),
        ("delete_module", call!(libc::SYS_delete_module, none, 0)),
        ("finit_module", call!(libc::SYS_finit_module, -1, none, 0)),
        ("init_module", call!(libc::SYS_init_module, none, 0, none)),
        ("kexec_load", call!(libc::SYS_kexec_load, 0, -1, none, -1)),
        ("kexec_file_load", call!(libc::SYS_kexec_file_load, -1, -1, 0, none, -1)),
        ("quotactl", call!(libc::SYS_quotactl, -1, none, 0, none)),
        ("reboot", call!(libc::SYS_reboot, 0, 0, 0, none)),
        ("sethostname", call!(libc::SYS_sethostname, none, -1)),
        ("setdomainname", call!(libc::SYS_setdomainname, none, -1)),
        ("swapon", call!(libc::SYS_swapon, c"/nonexistent".as_ptr(), 0)),
        ("swapoff", call!(libc::SYS_swapoff, c"/nonexistent".as_ptr())),
        ("syslog", call!(libc::SYS_syslog, 10, none, 0)),
        ("fanotify_init", call!(libc::SYS_fanotify_init, 0, 0)),
    ];
    #[cfg(target_arch = "x86_64")]
    let all = [
        all,
        vec![
            ("iopl", call!(libc::SYS_iopl, 0)),
            ("ioperm", call!(libc::SYS_ioperm, 0, 1, 0)),
            ("modify_ldt", call!(libc::SYS_modify_ldt, 0, none, 0)),
        ],
    ]
    .concat();
    all
}

/// Families and protocols whose code the kernel would load.
fn sockets() -> Vec<(&'static str, i32)> {
    let socket = |family: i32, kind: i32, protocol: i32| call!(libc::SYS_socket, family, kind, protocol);
    let mut pair = [0_i32; 2];
    vec![
        ("socket-alg", socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)),
        ("socket-vsock", socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
        ("socket-packet", socket(libc::AF_PACKET, libc::SOCK_RAW, 0)),
        ("socket-tipc", socket(libc::AF_TIPC, libc::SOCK_STREAM, 0)),
        ("socket-audit", socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT)),
        ("socket-netfilter", socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER)),
        ("socket-sctp", socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)),
        ("socket-raw", socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW)),
        ("socketpair-tipc", call!(libc::SYS_socketpair, libc::AF_TIPC, 1, 0, pair.as_mut_ptr())),
    ]
}

/// Calls whose arguments decide.
fn arguments() -> Vec<(&'static str, i32)> {
    let key = b'x';
    let above: c_ulong = 1 << 32;
    let device = libc::S_IFCHR | 0o600;
    let path: &CStr = c"node";
    vec![
        ("ioctl-tiocsti", call!(libc::SYS_ioctl, 1, libc::TIOCSTI, &raw const key)),
        ("ioctl-tiocsti-with-more-bits", call!(libc::SYS_ioctl, 1, libc::TIOCSTI | above, &raw const key)),
        ("ioctl-tioclinux", call!(libc::SYS_ioctl, 1, libc::TIOCLINUX, &raw const key)),
        ("personality", call!(libc::SYS_personality, libc::ADDR_NO_RANDOMIZE)),
        ("mknodat", call!(libc::SYS_mknodat, libc::AT_FDCWD, path.as_ptr(), device, 0x103)),
    ]
}

/// What languages and frameworks cannot do without.
fn needs() -> Vec<(&'static str, i32)> {
    let mut words = [0_u64; 32];
    let mut pair = [0_i32; 2];
    let how = [0_u64; 3];
    let threads = std::thread::spawn(|| std::thread::current().id()).join().is_ok();
    let fifo = c"fifo".as_ptr();
    vec![
        ("threads", i32::from(!threads)),
        ("memfd_create", call!(libc::SYS_memfd_create, c"shared".as_ptr(), 0)),
        ("membarrier", call!(libc::SYS_membarrier, 0, 0, 0)),
        ("get_mempolicy", call!(libc::SYS_get_mempolicy, null_mut::<u8>(), null_mut::<u8>(), 0, null::<u8>(), 0)),
        ("set_mempolicy", call!(libc::SYS_set_mempolicy, 0, null::<u8>(), 0)),
        ("sched_getaffinity", call!(libc::SYS_sched_getaffinity, 0, 256, words.as_mut_ptr())),
        ("statx", call!(libc::SYS_statx, libc::AT_FDCWD, c"/".as_ptr(), 0, 0, words.as_mut_ptr())),
        ("openat2", call!(libc::SYS_openat2, libc::AT_FDCWD, c"/".as_ptr(), how.as_ptr(), 24)),
        ("close_range", call!(libc::SYS_close_range, 900, 1000, 0)),
        ("epoll_create1", call!(libc::SYS_epoll_create1, 0)),
        ("eventfd2", call!(libc::SYS_eventfd2, 0, 0)),
        ("inotify_init1", call!(libc::SYS_inotify_init1, 0)),
        ("pidfd_open", call!(libc::SYS_pidfd_open, std::process::id(), 0)),
        ("mlock", call!(libc::SYS_mlock, words.as_ptr(), 8)),
        ("shmget", call!(libc::SYS_shmget, 0, 4096, 0o600)),
        ("prctl", call!(libc::SYS_prctl, libc::PR_SET_NAME, c"named".as_ptr(), 0, 0, 0)),
        ("getrandom", call!(libc::SYS_getrandom, words.as_mut_ptr(), 8, 0)),
        ("personality", call!(libc::SYS_personality, u32::MAX)),
        ("socketpair", call!(libc::SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr())),
        ("socket-tcp", call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0)),
        ("socket-udp6", call!(libc::SYS_socket, libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP)),
        ("socket-route", call!(libc::SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)),
        ("ioctl-fionread", call!(libc::SYS_ioctl, pair[0], libc::FIONREAD, words.as_mut_ptr())),
        ("mknodat-fifo", call!(libc::SYS_mknodat, libc::AT_FDCWD, fifo, libc::S_IFIFO | 0o600, 0)),
    ]
}
