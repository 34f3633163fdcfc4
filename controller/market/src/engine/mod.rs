//! The engine: where one request goes, at the size of a whole market.
//!
//! [`Fleet`] holds what is left on each node, learns the mix of requests, and chooses. [`Fleet::scan`] judges every
//! node and device and is the reference; [`Fleet::choose`] asks the [`Index`] and returns the same.

mod busy;
pub mod fgd;
pub mod fleet;
pub mod gang;
pub mod index;
pub mod mig;
pub mod nodes;
pub mod recent;
pub(crate) mod rule;
pub(crate) mod score;
pub mod sigmoid;
pub mod terms;
pub mod view;
pub mod weighting;

pub use fleet::{ClassId, Fleet};
pub use gang::Within;
pub use index::Index;
pub use nodes::{Choice, Misfit, NodeShape};
pub use view::{Shape, View, WHOLE, Want};
pub use weighting::Weighting;
