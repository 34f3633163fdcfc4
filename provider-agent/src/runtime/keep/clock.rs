//! A clock that no process's end stops: milliseconds since the machine started, sleep included, and the name of that start.

use std::io;

/// Milliseconds since the machine started.
#[must_use]
pub(crate) fn now_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000) + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// The name of this life of the machine.
///
/// # Errors
///
/// The file system's.
pub(crate) fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
