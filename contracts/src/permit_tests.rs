use ethers_core::types::transaction::eip712::{Eip712 as _, TypedData};
use serde_json::json;

use super::*;
use crate::signer::MAX_S;

const TOKEN: Address = Address([3; 20]);
const SPENDER: Address = Address([1; 20]);

fn key(byte: u8) -> Signer {
    Signer::from_bytes(&[byte; 32]).expect("a key")
}

fn permit() -> Permit {
    Permit::endless(key(9).account(), SPENDER, 3, 1_900_000_000)
}

#[test]
fn the_digest_is_the_one_that_any_wallet_computes_from_the_typed_data() {
    let permit = permit();
    let of = |kind: &str, name: &str| json!({ "name": name, "type": kind });
    let typed: TypedData = serde_json::from_value(json!({
        "types": {
            "EIP712Domain": [
                of("string", "name"), of("string", "version"),
                of("uint256", "chainId"), of("address", "verifyingContract"),
            ],
            "Permit": [
                of("address", "owner"), of("address", "spender"), of("uint256", "value"),
                of("uint256", "nonce"), of("uint256", "deadline"),
            ],
        },
        "primaryType": "Permit",
        "domain": {
            "name": "A Token", "version": "1", "chainId": 31_337, "verifyingContract": TOKEN.to_string(),
        },
        "message": {
            "owner": permit.owner.to_string(), "spender": permit.spender.to_string(),
            "value": U256::MAX.to_string(), "nonce": "3", "deadline": "1900000000",
        },
    }))
    .expect("typed data");
    let domain = typed.domain.separator();
    assert_eq!(permit.digest(Hash32(domain)).0, typed.encode_eip712().expect("a digest"));
}

#[test]
fn a_permit_counts_for_its_owner_its_domain_and_its_words_only() {
    let (permit, domain) = (permit(), Hash32([5; 32]));
    let signature = permit.sign(&key(9), domain).expect("signs");
    assert!(permit.is_signed(&signature, domain));
    assert!(!permit.is_signed(&signature, Hash32([6; 32])));
    assert!(!permit.is_signed(&permit.sign(&key(8), domain).expect("signs"), domain));
    let others = [
        Permit { owner: key(8).account(), ..permit.clone() },
        Permit { spender: Address([2; 20]), ..permit.clone() },
        Permit { nonce: 4, ..permit.clone() },
        Permit { deadline_s: permit.deadline_s + 1, ..permit.clone() },
        Permit { value: U256::one(), ..permit.clone() },
    ];
    for other in others {
        assert!(!other.is_signed(&signature, domain), "{other:?}");
    }
}

#[test]
fn the_malleable_twin_of_a_signature_is_none() {
    let (permit, domain) = (permit(), Hash32([5; 32]));
    let mut twin = permit.sign(&key(9), domain).expect("signs");
    // The order of secp256k1 is twice the highest low s, and one.
    let order: U256 = U256::from_big_endian(&MAX_S) * 2 + 1;
    let s: U256 = order - U256::from_big_endian(&twin.0[32..64]);
    s.to_big_endian(&mut twin.0[32..64]);
    twin.0[64] = 27 + 28 - twin.0[64];
    assert!(!permit.is_signed(&twin, domain));
}

#[test]
fn the_tokens_call_is_read_as_it_is_written_and_nothing_else_is() {
    let permit = permit();
    let signature = permit.sign(&key(9), Hash32([5; 32])).expect("signs");
    let call = permit.call(TOKEN, &signature);
    assert_eq!(call.to, TOKEN);
    assert_eq!(Permit::read(&call.data, 3), Some((permit, signature)));
    assert_eq!(Permit::read(&call.data[..call.data.len() - 1], 3), None);
    assert_eq!(Permit::read(&[1, 2, 3, 4], 3), None);
    let mut far = call.data;
    far[4 + 3 * 32] = 1; // a deadline beyond 64 bits
    assert_eq!(Permit::read(&far, 3), None);
}
