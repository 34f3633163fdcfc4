//! How much a box sent and received: the kernel's own count at its second device.

use serde::{Deserialize, Serialize};

use super::DEVICE;

/// Bytes through a box's device to everything outside of it, headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes that its commands sent.
    pub sent: u64,
    /// Bytes that they received.
    pub received: u64,
}

impl Traffic {
    /// Reads the text of a `/proc/PID/net/dev`. `None` where the device is not in it.
    pub(in crate::runtime) fn read(text: &str) -> Option<Self> {
        let counts = text.lines().find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'))?;
        // Eight numbers of what came, then eight of what went.
        let mut numbers = counts.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
        let received = numbers.next()??;
        let sent = numbers.nth(7)??;
        Some(Self { sent, received })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_those_of_the_device_that_leads_out() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets\n    lo:     186       4    0    0    0     0 \
            0         0      186       4    0    0    0     0       0          0\n  tap0:     247       4    0    0    0     0 \
            0         0      267       5    0    0    0     0       0          0\n";
        assert_eq!(Traffic::read(text), Some(Traffic { sent: 267, received: 247 }));
        assert_eq!(Traffic::read("    lo: 1 2 3\n"), None);
        assert_eq!(Traffic::read("tap0: 1 2 3\n"), None);
    }
}
