//! The loopback device of a new network namespace, which begins switched off.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Trouble;

/// Switches it on. Needs to be an administrator of the namespace.
pub(super) fn switch_on() -> Result<(), Trouble> {
    let failed = |what: &str| format!("{what} of the loopback device: {}", io::Error::last_os_error());
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(failed("socket"));
    }
    // SAFETY: opened just now, for us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: all zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    // SAFETY: the request lives through the call, which fills in its flags.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) } != 0 {
        return Err(failed("flags"));
    }
    // SAFETY: the flags were written by the call above.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | i16::try_from(libc::IFF_UP).unwrap_or(1);
    // SAFETY: the request lives through the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } != 0 {
        return Err(failed("start"));
    }
    Ok(())
}
