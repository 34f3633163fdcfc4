//! The pool's contracts, as the rest of the house sees them: typed calls, calldata, vouchers and events, over a small
//! JSON-RPC transport of our own.
//!
//! The bindings come from the committed ABI in `abi/`; `cargo build` needs no Solidity toolchain. ethers encodes,
//! decodes and signs; its types stay inside this crate. Two rules keep pools apart: every log query names its
//! addresses, and [`decode`] decodes no log of any other address.

mod abi;
pub mod audited;
mod bloom;
pub mod bounded;
pub mod code;
mod coins;
pub mod court;
pub mod deploy;
mod event;
pub mod header;
pub mod history;
mod named;
mod node;
pub mod opened;
pub mod permit;
pub mod pool;
pub mod read;
pub mod relay;
pub mod rpc;
pub mod signer;
pub mod stored;
mod transport;
pub mod tx;
pub mod voucher;
mod word;
pub mod write;

pub use bloom::Bloom;
pub use deploy::{PoolAddresses, PoolTerms};
pub use event::{EventError, decode};
pub use node::{authority_binding_digest, node_binding_digest};
pub use permit::Permit;
pub use pool::{Pool, PoolError};
pub use relay::{ForwardRequest, PoolCall};
pub use rpc::{BlockTag, Fees, Header, Log, Receipt, Rpc, RpcError};
pub use signer::{Signer, SignerError};
pub use stored::Stored;
pub use tx::{Draft, SignedTx, TxError, send};
pub use voucher::Voucher;
