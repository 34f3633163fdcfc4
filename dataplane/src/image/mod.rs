//! Container images: fetched, verified, unpacked once, kept.
//!
//! - [`Registry::resolve`] asks once what a [`Reference`] stands for; [`ImageCache::pull`] gets that, whatever the tag says
//!   by then. [`ImageCache::load`] does the same from an OCI image layout or from what `docker save` wrote.
//! - [`Image`] holds an image in the cache: its [`ImageConfig`], its layers as folders for overlayfs, its users.
//!   [`Image::start`] says what is executed, with a lease's [`Overrides`].
//! - [`ImageCache::pin`] keeps one over a restart; everything else goes when room is needed, the least used first.
//!
//! Invariants: nothing is read as a document, unpacked or shown that was not verified by digest and size; no path of a
//! layer is followed out of it; a layer that is visible is whole. `docs/adr/0033-images.md` says why it is as it is.
//!
//! A mount of the layers has to say `userxattr` ([`MOUNT_OPTIONS`]), as root too.

mod cache;
mod compose;
mod config;
mod digest;
mod error;
mod held;
mod limits;
mod local;
mod make;
mod manifest;
mod platform;
mod pull;
mod reference;
mod registry;
mod start;
mod unpack;
mod user;
mod view;

pub use cache::{CacheRules, CacheStat, ImageCache, ImagePin, ImageStat};
pub use config::{ImageConfig, Port, Protocol};
pub use digest::Digest;
pub use error::{Fault, ImageError, RegistryError};
pub use held::{Image, MOUNT_OPTIONS};
pub use limits::ImageLimits;
pub use make::{Ingredient, Recipe};
pub use platform::Platform;
pub use pull::{OnProgress, PullProgress, PullRules};
pub use reference::{Pinned, Reference};
pub use registry::{Credentials, Registry, RegistryRules};
pub use start::{Overrides, Start};
pub use unpack::{Devices, IdRange, Owners};
pub use user::User;

/// Most characters of a stranger's words that an error repeats.
const MOST_SHOWN: usize = 200;

/// A stranger's words for an error: short, and nothing that moves a terminal.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST_SHOWN)]);
    let mut shown: String = text.chars().map(|one| if one.is_control() { '?' } else { one }).take(MOST_SHOWN).collect();
    if bytes.len() > shown.len() && text.chars().count() > MOST_SHOWN {
        shown.push('…');
    }
    shown
}
