//! The pool's authority, as far as an agent's tests need one: a key, and a chain that named it in an earlier life.

use std::path::Path;

use selion_api::agent::{Assignment, Desired, Fence, Hello, SignedDesired, SignedWelcome, ToAgent, Welcome};
use selion_api::commit::PoolId;
use selion_api::{Address, Hash32, NodeId, Signature};
use selion_contracts::Signer;

pub(crate) const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([7; 20]) };
pub(crate) const FENCE: Fence = Fence { epoch: 1, term: 5 };

/// The authority of the epoch in [`FENCE`].
pub(crate) fn authority() -> Signer {
    Signer::from_bytes(&[5; 32]).unwrap()
}

/// Makes `state` that of an agent whose chain said who the authority is, and is silent since.
pub(crate) fn knows_the_authority(state: &Path) {
    let marks = state.join("marks.json");
    if !marks.exists() {
        std::fs::create_dir_all(state).unwrap();
        let text = serde_json::json!({
            "pool": POOL,
            "fence": Fence::default(),
            "head": null,
            "authority": [FENCE.epoch, authority().account()],
        });
        std::fs::write(marks, text.to_string()).unwrap();
    }
}

/// The welcome to `hello`, signed by `by`.
pub(crate) fn welcome(by: &Signer, hello: &Hello, last_seq: u64) -> ToAgent {
    let welcome = Welcome { node: hello.spec.node, challenge: hello.challenge, fence: FENCE, last_seq };
    let signature = sign(by, &welcome.digest_to_sign(&POOL));
    ToAgent::Welcome { token: "token".into(), signed: SignedWelcome { welcome, signature }, head: None }
}

/// A desired state, signed by `by`.
pub(crate) fn desired(by: &Signer, node: NodeId, fence: Fence, generation: u64, of: Vec<Assignment>) -> ToAgent {
    let desired = Desired { node, fence, generation, assignments: of };
    let signature = sign(by, &desired.digest_to_sign(&POOL));
    ToAgent::Desired(SignedDesired { desired, signature })
}

fn sign(by: &Signer, digest: &Hash32) -> Signature {
    by.sign_text(&digest.0).unwrap()
}
