//! The list of system calls: what a box may ask of the kernel, by what is allowed. One list for every runtime.
//!
//! A call is in one of four places. *Allowed*: with any arguments. *Conditional*: allowed where the low 32 bits of its
//! arguments pass; all the arguments that are looked at are 32 bits wide in the kernel. *Refused*: `EPERM`. *Absent*:
//! every call that is not named here, `ENOSYS`, so that a C library falls back to the older call that it knows.
//!
//! A group has one comment: why it is where it is. Absent on purpose, beside what is newer than the list: `clone3`,
//! whose flags lie behind a pointer that no filter follows, so that libraries take `clone`; `statmount`, `listmount` and
//! `lsm_*`, which tell about the machine; `cachestat`, which tells what other leases read of a layer that is shared.

/// Part of a condition: one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    /// Which argument, from 0.
    pub(crate) argument: u8,
    /// What its low 32 bits have to be.
    pub(crate) is: Is,
}

/// What 32 bits have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Is {
    /// Under this mask, this value.
    Masked(u32, u32),
    /// None of these.
    Not(&'static [u32]),
}

/// A call that is allowed if all tests of one of the rows pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditional {
    /// The call.
    pub(crate) call: &'static str,
    /// The rows.
    pub(crate) rows: &'static [&'static [Test]],
}

/// As [`Calls`], with conditions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditionals {
    /// On x86-64 and aarch64.
    pub(crate) both: &'static [Conditional],
    /// Older spellings that only x86-64 has.
    pub(crate) x86_64: &'static [Conditional],
}

impl Conditionals {
    /// Those that an architecture has.
    pub(crate) fn of(&self, arch: Arch) -> impl Iterator<Item = &'static Conditional> + use<> {
        let old: &[Conditional] = if arch == Arch::X86_64 { self.x86_64 } else { &[] };
        self.both.iter().chain(old)
    }
}

/// Calls of one list: those that both architectures have, and those that only x86-64 has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    /// On x86-64 and aarch64.
    pub(crate) both: &'static [&'static [&'static str]],
    /// Older spellings that only x86-64 has.
    pub(crate) x86_64: &'static [&'static str],
}

impl Calls {
    /// The names that an architecture has.
    pub(crate) fn of(&self, arch: Arch) -> impl Iterator<Item = &'static str> + use<> {
        let old = if arch == Arch::X86_64 { self.x86_64 } else { &[] };
        self.both.iter().copied().flatten().chain(old).copied()
    }
}

/// A processor architecture that boxes run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    /// 64-bit x86. Its 32-bit and x32 calls are not taken.
    X86_64,
    /// 64-bit Arm. Its 32-bit calls are not taken.
    Aarch64,
}

impl Arch {
    /// Of this program; `None` where there is no list for it.
    pub(crate) fn own() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }
}

pub(crate) const ALLOWED: Calls = Calls {
    both: &[
        // Files by descriptor. What can be opened is bounded by the box's own mounts, how much by its limits.
        &[
            "close",
            "close_range",
            "copy_file_range",
            "dup",
            "dup3",
            "fadvise64",
            "fallocate",
            "fchdir",
            "fchmod",
            "fchown",
            "fcntl",
            "fdatasync",
            "fgetxattr",
            "flistxattr",
            "flock",
            "fremovexattr",
            "fsetxattr",
            "fstat",
            "fstatfs",
            "fsync",
            "ftruncate",
            "getdents64",
            "lseek",
            "pipe2",
            "pread64",
            "preadv",
            "preadv2",
            "pwrite64",
            "pwritev",
            "pwritev2",
            "read",
            "readahead",
            "readv",
            "sendfile",
            "splice",
            "sync_file_range",
            "syncfs",
            "tee",
            "write",
            "writev",
        ],
        // Files by path. The kernel checks users and modes, and a mount's own flags.
        &[
            "chdir",
            "faccessat",
            "faccessat2",
            "fchmodat",
            "fchmodat2",
            "fchownat",
            "getcwd",
            "getxattr",
            "lgetxattr",
            "linkat",
            "listxattr",
            "llistxattr",
            "lremovexattr",
            "lsetxattr",
            "mkdirat",
            "newfstatat",
            "openat",
            "openat2",
            "readlinkat",
            "removexattr",
            "renameat",
            "renameat2",
            "setxattr",
            "statfs",
            "statx",
            "symlinkat",
            "sync",
            "truncate",
            "umask",
            "unlinkat",
            "utimensat",
        ],
        // Waiting for files, and notice of their changes.
        &[
            "epoll_create1",
            "epoll_ctl",
            "epoll_pwait",
            "epoll_pwait2",
            "eventfd2",
            "inotify_add_watch",
            "inotify_init1",
            "inotify_rm_watch",
            "ppoll",
            "pselect6",
            "signalfd4",
            "timerfd_create",
            "timerfd_gettime",
            "timerfd_settime",
        ],
        // Asynchronous reads and writes of the older kind, which storage libraries of training frameworks use.
        &["io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit"],
        // Memory of the caller's own, counted by its memory limit. Protection keys and sealing only take rights away.
        &[
            "brk",
            "madvise",
            "map_shadow_stack",
            "membarrier",
            "memfd_create",
            "mincore",
            "mlock",
            "mlock2",
            "mlockall",
            "mmap",
            "mprotect",
            "mremap",
            "mseal",
            "msync",
            "munlock",
            "munlockall",
            "munmap",
            "pkey_alloc",
            "pkey_free",
            "pkey_mprotect",
        ],
        // On which memory node the caller's own pages lie. CUDA and NUMA libraries set it, and the kernel bounds it by the
        // control group. Moving pages that are there, also other processes', is refused below.
        &["get_mempolicy", "mbind", "set_mempolicy", "set_mempolicy_home_node"],
        // Processes of the box, which has a process namespace of its own. `clone` is conditional.
        &[
            "execve",
            "execveat",
            "exit",
            "exit_group",
            "getpgid",
            "getpid",
            "getppid",
            "getsid",
            "gettid",
            "kill",
            "pidfd_open",
            "pidfd_send_signal",
            "rt_sigaction",
            "rt_sigpending",
            "rt_sigprocmask",
            "rt_sigqueueinfo",
            "rt_sigreturn",
            "rt_sigsuspend",
            "rt_sigtimedwait",
            "rt_tgsigqueueinfo",
            "set_tid_address",
            "setpgid",
            "setsid",
            "sigaltstack",
            "tgkill",
            "tkill",
            "wait4",
            "waitid",
        ],
        // Threads and locks.
        &[
            "futex",
            "futex_requeue",
            "futex_wait",
            "futex_waitv",
            "futex_wake",
            "get_robust_list",
            "getcpu",
            "restart_syscall",
            "rseq",
            "set_robust_list",
        ],
        // Scheduling of the caller's own threads. Real-time classes need a right or a limit that no box has.
        &[
            "getpriority",
            "ioprio_get",
            "ioprio_set",
            "sched_get_priority_max",
            "sched_get_priority_min",
            "sched_getaffinity",
            "sched_getattr",
            "sched_getparam",
            "sched_getscheduler",
            "sched_rr_get_interval",
            "sched_setaffinity",
            "sched_setattr",
            "sched_setparam",
            "sched_setscheduler",
            "sched_yield",
            "setpriority",
        ],
        // Users, groups and limits. Without capabilities they change nothing but what the caller could become anyway;
        // package managers and shells call them and go on when the kernel says no.
        &[
            "capget",
            "capset",
            "getegid",
            "geteuid",
            "getgid",
            "getgroups",
            "getresgid",
            "getresuid",
            "getrlimit",
            "getrusage",
            "getuid",
            "prlimit64",
            "setfsgid",
            "setfsuid",
            "setgid",
            "setgroups",
            "setregid",
            "setresgid",
            "setresuid",
            "setreuid",
            "setrlimit",
            "setuid",
        ],
        // Further walls around the caller: filters and rules that only add to ours, and what a process says of itself.
        &["landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "prctl", "seccomp"],
        // Clocks and timers, to read and to wait.
        &[
            "clock_getres",
            "clock_gettime",
            "clock_nanosleep",
            "getitimer",
            "gettimeofday",
            "nanosleep",
            "setitimer",
            "timer_create",
            "timer_delete",
            "timer_getoverrun",
            "timer_gettime",
            "timer_settime",
            "times",
        ],
        // The machine's name and size, and chance.
        &["getrandom", "sysinfo", "uname"],
        // Sockets that are open. `socket` and `socketpair` are conditional.
        &[
            "accept",
            "accept4",
            "bind",
            "connect",
            "getpeername",
            "getsockname",
            "getsockopt",
            "listen",
            "recvfrom",
            "recvmmsg",
            "recvmsg",
            "sendmmsg",
            "sendmsg",
            "sendto",
            "setsockopt",
            "shutdown",
        ],
        // Queues, semaphores and shared memory, in a namespace of the box's own.
        &[
            "mq_getsetattr",
            "mq_notify",
            "mq_open",
            "mq_timedreceive",
            "mq_timedsend",
            "mq_unlink",
            "msgctl",
            "msgget",
            "msgrcv",
            "msgsnd",
            "semctl",
            "semget",
            "semop",
            "semtimedop",
            "shmat",
            "shmctl",
            "shmdt",
            "shmget",
        ],
    ],
    x86_64: &[
        // The same as above in the spelling of older programs; `arch_prctl` sets where a thread's own variables lie, and
        // `uretprobe` is how the kernel comes back from a probe that the owner set.
        "access",
        "alarm",
        "arch_prctl",
        "chmod",
        "chown",
        "creat",
        "dup2",
        "epoll_create",
        "epoll_wait",
        "eventfd",
        "fork",
        "futimesat",
        "getdents",
        "getpgrp",
        "inotify_init",
        "lchown",
        "link",
        "lstat",
        "mkdir",
        "open",
        "pause",
        "pipe",
        "poll",
        "readlink",
        "rename",
        "rmdir",
        "select",
        "signalfd",
        "stat",
        "symlink",
        "time",
        "unlink",
        "uretprobe",
        "utime",
        "utimes",
        "vfork",
    ],
};

/// Namespaces of a `clone`. `CLONE_NEWTIME` is none of its flags.
const NEW_NAMESPACE: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// This value in all 32 bits.
const fn word(argument: u8, value: u32) -> Test {
    Test { argument, is: Is::Masked(u32::MAX, value) }
}

const fn family(value: i32) -> Test {
    word(0, value as u32)
}

const fn protocol(value: i32) -> Test {
    word(2, value as u32)
}

/// The kind of file that a node would be.
const fn node(argument: u8, kind: u32) -> Test {
    Test { argument, is: Is::Masked(libc::S_IFMT, kind) }
}

pub(crate) const CONDITIONAL: Conditionals = Conditionals {
    both: &[
        // New processes and threads, without namespaces: in a user namespace of its own a program has every capability
        // over what it makes, which is where most ways out of a sandbox began.
        Conditional { call: "clone", rows: &[&[Test { argument: 0, is: Is::Masked(NEW_NAMESPACE, 0) }]] },
        // Sockets of the box, of the internet's common protocols, and the questions about routes by which programs list
        // interfaces. Other families and protocols (AF_ALG, AF_VSOCK, AF_PACKET, SCTP, DCCP) load seldom used code of the
        // kernel on demand.
        Conditional {
            call: "socket",
            rows: &[
                &[family(libc::AF_UNIX)],
                &[family(libc::AF_INET), protocol(0)],
                &[family(libc::AF_INET), protocol(libc::IPPROTO_ICMP)],
                &[family(libc::AF_INET), protocol(libc::IPPROTO_TCP)],
                &[family(libc::AF_INET), protocol(libc::IPPROTO_UDP)],
                &[family(libc::AF_INET6), protocol(0)],
                &[family(libc::AF_INET6), protocol(libc::IPPROTO_TCP)],
                &[family(libc::AF_INET6), protocol(libc::IPPROTO_UDP)],
                &[family(libc::AF_INET6), protocol(libc::IPPROTO_ICMPV6)],
                &[family(libc::AF_NETLINK), protocol(libc::NETLINK_ROUTE)],
            ],
        },
        Conditional { call: "socketpair", rows: &[&[family(libc::AF_UNIX)]] },
        // Everything that a device driver offers, but for typing into a terminal and pasting into a console.
        Conditional {
            call: "ioctl",
            rows: &[&[Test { argument: 1, is: Is::Not(&[libc::TIOCSTI as u32, libc::TIOCLINUX as u32]) }]],
        },
        // To ask for one's own, and the two that change what `uname` says. Others switch address randomisation off.
        Conditional {
            call: "personality",
            rows: &[&[word(0, 0)], &[word(0, 0x8)], &[word(0, 0x2_0000)], &[word(0, 0x2_0008)], &[word(0, u32::MAX)]],
        },
        // Files, pipes and sockets with a name; no device nodes.
        Conditional {
            call: "mknodat",
            rows: &[&[node(2, 0)], &[node(2, libc::S_IFREG)], &[node(2, libc::S_IFIFO)], &[node(2, libc::S_IFSOCK)]],
        },
    ],
    x86_64: &[Conditional {
        call: "mknod",
        rows: &[&[node(1, 0)], &[node(1, libc::S_IFREG)], &[node(1, libc::S_IFIFO)], &[node(1, libc::S_IFSOCK)]],
    }],
};

pub(crate) const REFUSED: Calls = Calls {
    both: &[
        // Other processes' memory, files and state, also those of the box: a way around every filter of the other, and
        // where the kernel's checks were wrong most often. So no debugger works in a box.
        &[
            "kcmp",
            "pidfd_getfd",
            "process_madvise",
            "process_mrelease",
            "process_vm_readv",
            "process_vm_writev",
            "ptrace",
        ],
        // Mounts, roots and namespaces: the box's view is made before the command runs and stays as it is.
        &[
            "chroot",
            "fsconfig",
            "fsmount",
            "fsopen",
            "fspick",
            "mount",
            "mount_setattr",
            "move_mount",
            "open_tree",
            "pivot_root",
            "setns",
            "umount2",
            "unshare",
        ],
        // Files by a handle that knows no mounts: a way out of any view.
        &["name_to_handle_at", "open_by_handle_at"],
        // Keys are of the whole kernel and know no namespace of the box's.
        &["add_key", "keyctl", "request_key"],
        // Programs for the kernel, and interfaces of it that bugs are found in year after year.
        &["bpf", "io_uring_enter", "io_uring_register", "io_uring_setup", "perf_event_open", "userfaultfd", "vmsplice"],
        // Memory that not even the kernel may map, pages moved between nodes, and a call that only emulates another.
        &["memfd_secret", "migrate_pages", "move_pages", "remap_file_pages"],
        // The machine: its kernel, modules, power, swap, accounts, quotas, log and terminals.
        &[
            "acct",
            "delete_module",
            "finit_module",
            "init_module",
            "kexec_file_load",
            "kexec_load",
            "quotactl",
            "quotactl_fd",
            "reboot",
            "swapoff",
            "swapon",
            "syslog",
            "vhangup",
        ],
        // The machine's clock and names.
        &["adjtimex", "clock_adjtime", "clock_settime", "setdomainname", "sethostname", "settimeofday"],
        // Watching all of a file system.
        &["fanotify_init", "fanotify_mark"],
    ],
    // Ports of the processor, segments of 16-bit programs, and interfaces that nothing uses any more.
    x86_64: &["ioperm", "iopl", "modify_ldt", "sysfs", "uselib", "ustat"],
};
