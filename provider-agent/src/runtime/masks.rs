//! What of `/proc` and `/sys` no box may look into, or write: one list for every runtime. A process namespace hides other
//! processes; these are the machine's own.

/// Covered with nothing. What a kernel does not have is passed over.
pub(super) const MASKED: [&str; 28] = [
    // Memory and addresses of the kernel.
    "/proc/iomem",
    "/proc/ioports",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/modules",
    "/proc/pagetypeinfo",
    "/proc/slabinfo",
    "/proc/vmallocinfo",
    // Keys, and words given to the kernel at its start, which may hold some.
    "/proc/cmdline",
    "/proc/key-users",
    "/proc/keys",
    // What other programs do, to the microsecond.
    "/proc/interrupts",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/proc/timer_stats",
    // Hardware and firmware that no lease has rented.
    "/proc/acpi",
    "/proc/asound",
    "/proc/mtrr",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/selinux",
];

/// Readable and not writable: settings of the machine.
pub(super) const READ_ONLY: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];
