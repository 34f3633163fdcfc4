//! Every release of `core2` was yanked; with `std` it only re-exported these two modules.
pub use std::{error, io};
