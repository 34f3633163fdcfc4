//! Content by CID: a store that verifies, a fetch that trusts no source, a gateway that asks for no trust. Images.
//!
//! - [`Store`]: blocks on disk; files and folders in ([`Store::add_path`]) and out ([`Store::export`]).
//! - [`Fetcher`]: a whole DAG from [`Source`]s: [`HttpGateway`], another [`Store`], [`Kubo`].
//! - [`gateway::router`]: the store over HTTP, block by block. [`push()`]: a DAG to such a gateway or to Kubo.
//! - [`dag`]: the pure part: CIDs, nodes, limits.
//! - [`image`]: container images, from a registry or a file, unpacked once and kept.
//!
//! The store is synchronous; in async code call it in `spawn_blocking`. Everything else here is async.
//! Relay, tunnels and the overlay network are not part of this crate yet.
//!
//! Invariant: no byte is served, exported or counted as fetched that was not verified against its CID.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let store = selion_dataplane::Store::open(dir.path().join("store"))?;
//! let cid = store.add_bytes(b"hello world")?;
//! assert_eq!(cid.to_string(), "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e");
//! store.export(&cid, dir.path().join("hello.txt"))?;
//! # Ok(())
//! # }
//! ```

pub mod beneath;
pub mod dag;
pub mod gateway;
pub mod image;
pub mod read;

mod car;
mod fetch;
mod http;
mod kubo;
mod push;
mod source;
mod store;

pub use cid::Cid;
pub use dag::{DagError, Limits};
pub use fetch::{BadBlock, FetchError, Fetched, Fetcher, Progress, fetch};
pub use http::{GatewayUrlError, HttpGateway, RAW_BLOCK};
pub use kubo::{Kubo, KuboError};
pub use push::{PushError, Pushed, Sink, push};
pub use source::{Source, SourceError};
pub use store::{
    AddRules, Added, Collected, ExportRules, Faults, Links, Pin, Skipped, Stat, Stop, StopOnDrop, Store, StoreError,
    Usage,
};
