//! Whose word an agent keeps and obeys.

use selion_api::agent::{Head, Welcome};
use selion_contracts::Signer;

use super::*;

const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([7; 20]) };
const NODE: NodeId = NodeId([4; 20]);
const CHALLENGE: Hash32 = Hash32([8; 32]);

fn key(byte: u8) -> Signer {
    Signer::from_bytes(&[byte; 32]).unwrap()
}

fn sign(by: &Signer, digest: &Hash32) -> Signature {
    by.sign_text(&digest.0).unwrap()
}

fn welcome(by: &Signer, epoch: u32, challenge: Hash32) -> SignedWelcome {
    let welcome = Welcome { node: NODE, challenge, fence: Fence { epoch, term: 1 }, last_seq: 9 };
    SignedWelcome { signature: sign(by, &welcome.digest_to_sign(&POOL)), welcome }
}

fn desired(by: &Signer, node: NodeId, fence: Fence) -> SignedDesired {
    let desired = Desired { node, fence, generation: 1, assignments: Vec::new() };
    SignedDesired { signature: sign(by, &desired.digest_to_sign(&POOL)), desired }
}

fn head(by: &Signer, size: u64, epoch: u32) -> SignedHead {
    let fence = Fence { epoch, term: 1 };
    let head = Head { size, root: Hash32([1; 32]), digest: Hash32::ZERO, fence };
    SignedHead { head, signature: sign(by, &head.digest_to_sign(&POOL)) }
}

/// A chain that named the authority of epoch 1 and is silent from then on.
fn authority() -> (tempfile::TempDir, Book, Authority) {
    let dir = tempfile::tempdir().unwrap();
    let book = Book::open(dir.path()).unwrap();
    let authority = Authority::new("http://127.0.0.1:1".into());
    authority.facts().authorities.insert(1, key(5).account());
    authority.facts().settled = 1;
    (dir, book, authority)
}

#[tokio::test]
async fn only_heads_that_the_epochs_authority_signed_are_kept() {
    let (_dir, book, authority) = authority();
    authority.see(&book, POOL, head(&key(5), 3, 1)).unwrap();
    assert_eq!(book.seen().head.unwrap().head.size, 3);
    let refused = authority.see(&book, POOL, head(&key(6), 4, 1)).unwrap_err();
    assert!(matches!(refused, LinkError::NotSigned { fence: Fence { epoch: 1, .. }, .. }), "{refused}");
    // Nobody can be asked about epoch 2: the link goes on, and the head is not kept.
    authority.see(&book, POOL, head(&key(6), 5, 2)).unwrap();
    assert_eq!(book.seen().head.unwrap().head.size, 3);
}

#[tokio::test]
async fn a_welcome_counts_only_from_the_authority_and_for_the_very_hello() {
    let (_dir, book, authority) = authority();
    let asked = (NODE, CHALLENGE);
    for lie in [
        welcome(&key(6), 1, CHALLENGE),
        welcome(&key(5), 1, Hash32([9; 32])),
        SignedWelcome { signature: Signature::ZERO, ..welcome(&key(5), 1, CHALLENGE) },
    ] {
        let refused = authority.welcomed(&book, POOL, asked, &lie).await.unwrap_err();
        assert!(matches!(refused, LinkError::NotSigned { .. }), "{refused}");
        assert_eq!(book.seen(), crate::book::Marks::default(), "not even the pool is pinned");
    }
    authority.welcomed(&book, POOL, asked, &welcome(&key(5), 1, CHALLENGE)).await.unwrap();
    assert_eq!((book.seen().pool, book.seen().authority), (Some(POOL), Some((1, key(5).account()))));
}

#[tokio::test]
async fn a_desired_state_counts_only_from_the_authority_and_for_this_node() {
    let (_dir, book, authority) = authority();
    let highest = Fence { epoch: u32::MAX, term: u64::MAX };
    let ours = Fence { epoch: 1, term: 1 };
    for lie in [desired(&key(6), NODE, ours), desired(&key(5), NodeId([3; 20]), ours), desired(&key(5), NODE, highest)]
    {
        authority.desired(&book, POOL, NODE, lie).await.unwrap_err();
    }
    let mut changed = desired(&key(5), NODE, ours);
    changed.desired.generation += 1;
    authority.desired(&book, POOL, NODE, changed).await.unwrap_err();
    authority.desired(&book, POOL, NODE, desired(&key(5), NODE, ours)).await.unwrap();
}

#[tokio::test]
async fn an_authority_that_a_final_block_replaced_is_obeyed_no_more() {
    let (_dir, book, authority) = authority();
    authority.facts().settled = 2;
    let said = desired(&key(5), NODE, Fence { epoch: 1, term: 9 });
    let refused = authority.desired(&book, POOL, NODE, said).await.unwrap_err();
    assert!(matches!(refused, LinkError::Deposed { epoch: 1, now: 2 }), "{refused}");
}

#[tokio::test]
async fn an_agent_obeys_through_an_outage_of_the_chain_who_it_knew_and_nobody_else() {
    let (dir, book, authority) = authority();
    authority.welcomed(&book, POOL, (NODE, CHALLENGE), &welcome(&key(5), 1, CHALLENGE)).await.unwrap();
    drop(book);
    let (book, after) = (Book::open(dir.path()).unwrap(), Authority::new("http://127.0.0.1:1".into()));
    after.welcomed(&book, POOL, (NODE, CHALLENGE), &welcome(&key(5), 1, CHALLENGE)).await.unwrap();
    let refused = after.welcomed(&book, POOL, (NODE, CHALLENGE), &welcome(&key(6), 2, CHALLENGE)).await.unwrap_err();
    assert!(matches!(refused, LinkError::AuthorityUnknown { epoch: 2, .. }), "{refused}");
}
