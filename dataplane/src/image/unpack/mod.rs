//! From a verified layer to a folder that overlayfs can lay over others.

mod decode;
mod layer;
mod members;
mod names;
mod owners;
mod pax;
mod sparse;
mod tree;

pub(super) use layer::{Order, Stoppable, Sums, Unpacked, unpack};
pub(super) use members::{Input, Kind, Members};
pub use owners::{IdRange, Owners};

/// The attribute that keeps a folder apart from those of its name below, in the form that every user may set. A mount has
/// to say `userxattr`.
pub(super) const OPAQUE: &str = "user.overlay.opaque";
/// Attributes that overlayfs reads: an image may not set them.
const OVERLAY: &[u8] = b"user.overlay.";

/// What becomes of device nodes and pipes in a layer. A box has its own devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// They are left out.
    #[default]
    Skip,
    /// The image is refused.
    Refuse,
}
