use super::*;
use crate::commit::PoolId;
use crate::id::{Address, LeaseId, NodeId};
use crate::seal::MAX_SECRETS;
use alloc::string::ToString;
use alloc::vec;

fn of() -> Addressee {
    Addressee {
        pool: PoolId { chain_id: 1, controller: Address([1; 20]) },
        lease: LeaseId { seq: 7, index: 0 },
        attempt: 2,
        member: 3,
        node: NodeId([4; 20]),
    }
}

fn secret(name: &str, value: &[u8]) -> Secret {
    Secret { name: name.to_string(), value: value.to_vec() }
}

fn some() -> Vec<Secret> {
    vec![secret("token", b"hunter2"), secret("empty", b""), secret("binary", &[0, 255, 10])]
}

#[test]
fn what_is_sealed_opens_for_its_member_and_is_the_same() {
    let key = PrivateKey::derive(&[5; 32]);
    let sealed = seal(&key.public(), &of(), &some()).unwrap();
    assert_eq!(open(&key, &of(), &sealed).unwrap(), some());
    let shown = alloc::format!("{:?} {key:?}", some());
    assert!(!shown.contains("hunter2") && shown.contains("token"), "{shown}");
    assert!(!sealed.ciphertext.windows(7).any(|part| part == b"hunter2"));
}

#[test]
fn it_opens_for_no_other_pool_lease_run_rank_or_node_and_with_no_other_key() {
    let key = PrivateKey::derive(&[5; 32]);
    let sealed = seal(&key.public(), &of(), &some()).unwrap();
    let others = [
        Addressee { pool: PoolId { chain_id: 2, ..of().pool }, ..of() },
        Addressee { pool: PoolId { controller: Address([9; 20]), ..of().pool }, ..of() },
        Addressee { lease: LeaseId { seq: 8, index: 0 }, ..of() },
        Addressee { lease: LeaseId { seq: 7, index: 1 }, ..of() },
        Addressee { attempt: 3, ..of() },
        Addressee { attempt: 1, ..of() },
        Addressee { member: 2, ..of() },
        Addressee { node: NodeId([9; 20]), ..of() },
    ];
    for other in others {
        assert_eq!(open(&key, &other, &sealed), Err(SealError::NotOurs), "{other:?}");
    }
    let other = PrivateKey::derive(&[6; 32]);
    assert_eq!(open(&other, &of(), &sealed), Err(SealError::NotOurs));
    // Nor if the ciphertext is said to be for that key.
    assert_eq!(open(&other, &of(), &Sealed { to: other.public(), ..sealed }), Err(SealError::NotOurs));
}

#[test]
fn every_altered_bit_and_every_cut_is_seen() {
    let key = PrivateKey::derive(&[5; 32]);
    let sealed = seal(&key.public(), &of(), &[secret("a", b"b")]).unwrap();
    for bit in 0..sealed.ciphertext.len() * 8 {
        let mut altered = sealed.clone();
        altered.ciphertext[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open(&key, &of(), &altered), Err(SealError::NotOurs), "bit {bit}");
    }
    // The highest bit of a point on the curve is not part of it (RFC 7748), but it is part of what the key is made of.
    for bit in 0..256 {
        let mut altered = sealed.clone();
        altered.enc.0[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open(&key, &of(), &altered), Err(SealError::NotOurs), "bit {bit} of the key");
    }
    for length in 0..sealed.ciphertext.len() {
        let cut = Sealed { ciphertext: sealed.ciphertext[..length].to_vec(), ..sealed.clone() };
        assert_eq!(open(&key, &of(), &cut), Err(SealError::NotOurs), "{length} bytes");
    }
    let long = Sealed { ciphertext: vec![0; MAX_SEALED + 1], ..sealed };
    assert_eq!(open(&key, &of(), &long), Err(SealError::NotOurs));
}

#[test]
fn what_opens_and_is_no_list_of_secrets_is_refused() {
    let key = PrivateKey::derive(&[5; 32]);
    let raw = |plain: &[u8]| {
        let point = Point::from_bytes(&key.public().0).unwrap();
        let (enc, ciphertext) = single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            &point,
            &info(&of()),
            plain,
            b"",
        )
        .unwrap();
        let mut sealed = Sealed { to: key.public(), enc: Hash32::ZERO, ciphertext };
        enc.write_exact(&mut sealed.enc.0);
        open(&key, &of(), &sealed)
    };
    assert_eq!(raw(b""), Err(SealError::Nonsense));
    assert_eq!(raw(&[255, 255, 255, 255]), Err(SealError::Nonsense));
    assert_eq!(raw(&canonical(&(some(), 1_u8))), Err(SealError::Nonsense));
    let path = raw(&canonical(&vec![secret("../x", b"y")]));
    assert!(matches!(path, Err(SealError::Name(why)) if why.contains("../x")));
    assert!(matches!(raw(&canonical(&vec![secret("a", b""); 2])), Err(SealError::Name(_))));
}

#[test]
fn secrets_are_few_and_small() {
    let key = PrivateKey::derive(&[5; 32]).public();
    let refused = |secrets: &[Secret]| seal(&key, &of(), secrets).map(drop).unwrap_err();
    assert!(matches!(refused(&[secret("a", &[0; MAX_SECRET + 1])]), SealError::TooLarge(_)));
    let large = |count: usize| (0..count).map(|at| secret(&at.to_string(), &[0; MAX_SECRET])).collect::<Vec<_>>();
    assert!(matches!(refused(&large(5)), SealError::TooLarge(_)));
    let most = seal(&key, &of(), &large(4)).unwrap();
    assert!(most.ciphertext.len() <= MAX_SEALED);
    let many: Vec<Secret> = (0..=MAX_SECRETS).map(|at| secret(&at.to_string(), b"")).collect();
    assert!(matches!(refused(&many), SealError::Name(_)));
    // Full names, the most of them, and the most bytes fit into what is taken.
    let full: Vec<Secret> =
        (0..MAX_SECRETS).map(|at| secret(&alloc::format!("{at:064}"), &[0; MAX_SECRETS_BYTES / MAX_SECRETS])).collect();
    assert!(seal(&key, &of(), &full).unwrap().ciphertext.len() <= MAX_SEALED);
}

#[test]
fn nobody_seals_to_a_point_of_small_order() {
    // Both give the same shared secret with every key: RFC 9180, section 7.1.4.
    for bad in [[0; 32], core::array::from_fn(|at| u8::from(at == 0))] {
        assert_eq!(seal(&Hash32(bad), &of(), &some()).map(drop), Err(SealError::BadKey(Hash32(bad))));
    }
}

#[test]
fn a_key_is_what_it_was_when_it_is_read_again() {
    let key = PrivateKey::derive(&[5; 32]);
    let again = PrivateKey::from_bytes(key.as_bytes()).unwrap();
    assert_eq!(again.public(), key.public());
    let sealed = seal(&key.public(), &of(), &some()).unwrap();
    assert_eq!(open(&again, &of(), &sealed).unwrap(), some());
}
