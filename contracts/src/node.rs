//! How keys agree to whose they are: a node's to its provider, an authority's to the pool's owner.

use ethers_core::abi::AbiEncode;
use ethers_core::utils::keccak256;
use selion_api::{Account, Address, Hash32, NodeId};

use crate::voucher::typed_digest;
use crate::word::h160;

const NODE_TYPE: &str = "NodeBinding(address node,address provider,uint32 nonce)";
const AUTHORITY_TYPE: &str = "AuthorityBinding(address authority,address owner,uint32 epoch)";
const CONTROLLER_NAME: &str = "Selion Controller";

/// What the node's key signs to join `provider` in the pool of this controller. `nonce`: how often the node was bound
/// before, as [`Pool::node`](crate::Pool::node) says, so that an old signature cannot take a node back.
#[must_use]
pub fn node_binding_digest(chain_id: u64, controller: Address, node: NodeId, provider: Account, nonce: u32) -> Hash32 {
    let fields = (keccak256(NODE_TYPE), h160(node), h160(provider), nonce);
    typed_digest(CONTROLLER_NAME, chain_id, controller, keccak256(fields.encode()))
}

/// What a new authority's key signs to be `owner`'s in `epoch`, the one that begins with it.
#[must_use]
pub fn authority_binding_digest(
    chain_id: u64,
    controller: Address,
    authority: Account,
    owner: Account,
    epoch: u32,
) -> Hash32 {
    let fields = (keccak256(AUTHORITY_TYPE), h160(authority), h160(owner), epoch);
    typed_digest(CONTROLLER_NAME, chain_id, controller, keccak256(fields.encode()))
}
