//! The network of a box: words that agent and helper share.
//!
//! Every box has a network namespace of its own. One that reaches nothing has a loopback in it and no more. Another has a
//! second device, whose other end is a NAT in user space (`slirp4netns`) that the helper's keeper starts; rules of the
//! kernel's packet filter in the namespace say what passes. The namespace belongs to a user namespace that the command is
//! not in, so that nothing it could become, not even root of its box, may change the rules.

mod block;
mod control;
mod counts;
mod meeting;
mod rules;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use block::Block;
pub(super) use control::tell;
pub use counts::Traffic;
pub use meeting::meet;
pub(super) use rules::rules;

/// The block of a box's second device: one of those that are nobody's on the internet and rarely anybody's at home.
pub(super) const OWN: &str = "192.0.0.0/24";
/// The box's address in it.
pub(super) const GUEST: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 100);
/// The NAT's address in it. What the rules let pass to it goes to the machine's loopback: members of a gang whose nodes
/// meet there, and nobody else.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);
/// The second device.
pub(super) const DEVICE: &str = "tap0";
/// File of the socket at which a box's keeper is told changes, beside the rooms.
pub(super) const SOCKET: &str = "keeper";
/// File in which a helper leaves the counts of its box, beside the rooms.
pub(super) const COUNTS: &str = "traffic";

/// What a command reaches beyond its own loopback; nothing by default. Without a sandbox it says nothing: the machine's
/// network is the command's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// The public internet.
    pub internet: bool,
    /// The members of its gang.
    pub gang: Option<Gang>,
    /// Most megabits a second, each way; as the machine has it if `None`.
    pub mbps: Option<u32>,
}

/// The members of a gang by the addresses that a box has for them: see [`meet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// Where this member is reached by the others; at this port it listens.
    pub own: SocketAddrV4,
    /// All of them, this one included.
    pub peers: Vec<SocketAddrV4>,
}

impl Gang {
    /// Whether its nodes meet on the machine's loopback: all of them are this machine.
    pub(super) fn is_at_home(&self) -> bool {
        *self.own.ip() == GATEWAY
    }
}

/// What the owner says of every lease's network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlook {
    /// Servers that find names.
    pub resolvers: Vec<Ipv4Addr>,
    /// Networks that no lease reaches, beside what none reaches anyway.
    pub deny: Vec<Block>,
    /// Whether mail may be sent.
    pub smtp: bool,
}

/// What a helper is told of its box's network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Net {
    pub(super) internet: bool,
    pub(super) gang: Option<Gang>,
    pub(super) mbps: Option<u32>,
    pub(super) outlook: Outlook,
    /// Folder of [`SOCKET`] and [`COUNTS`]: the agent's own.
    pub(super) folder: PathBuf,
}

impl Net {
    /// `None` for a box that reaches nothing.
    pub(super) fn of(links: Links, outlook: &Outlook, folder: PathBuf) -> Option<Self> {
        let Links { internet, gang, mbps } = links;
        let reaches = internet || gang.is_some();
        reaches.then(|| Self { internet, gang, mbps, outlook: outlook.clone(), folder })
    }
}
