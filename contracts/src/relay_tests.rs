use ethers_core::types::transaction::eip712::{Eip712 as _, TypedData};
use selion_api::Amount;
use selion_api::chain::ComponentKind;
use selion_api::unit::TimeMs;
use serde_json::json;

use super::*;
use crate::deploy::PoolAddresses;
use crate::rpc::Rpc;

const FORWARDER: Address = Address([7; 20]);

fn key(byte: u8) -> Signer {
    Signer::from_bytes(&[byte; 32]).expect("a key")
}

fn pool() -> Pool {
    let at = PoolAddresses {
        factory: Address::ZERO,
        controller: Address([1; 20]),
        vault: Address([2; 20]),
        court: Address([4; 20]),
        token: Address([3; 20]),
    };
    Pool { rpc: Rpc::new("http://127.0.0.1:1").expect("a URL"), chain_id: 31_337, at }
}

fn request() -> ForwardRequest {
    let call = pool().register_provider(Address([5; 20]), Amount(0));
    ForwardRequest {
        from: key(9).account(),
        to: call.to,
        gas: 200_000,
        nonce: 3,
        deadline_s: 1_900_000_000,
        data: call.data,
    }
}

#[test]
fn the_digest_is_the_one_that_any_wallet_computes_from_the_typed_data() {
    let request = request();
    let of = |kind: &str, name: &str| json!({ "name": name, "type": kind });
    let typed: TypedData = serde_json::from_value(json!({
        "types": {
            "EIP712Domain": [
                of("string", "name"), of("string", "version"),
                of("uint256", "chainId"), of("address", "verifyingContract"),
            ],
            "ForwardRequest": [
                of("address", "from"), of("address", "to"), of("uint256", "value"), of("uint256", "gas"),
                of("uint256", "nonce"), of("uint48", "deadline"), of("bytes", "data"),
            ],
        },
        "primaryType": "ForwardRequest",
        "domain": {
            "name": "Selion Forwarder", "version": "1", "chainId": 31_337,
            "verifyingContract": FORWARDER.to_string(),
        },
        "message": {
            "from": request.from.to_string(), "to": request.to.to_string(), "value": "0",
            "gas": request.gas.to_string(), "nonce": request.nonce.to_string(),
            "deadline": request.deadline_s.to_string(), "data": format!("0x{}", hex::encode(&request.data)),
        },
    }))
    .expect("typed data");
    assert_eq!(request.digest(31_337, FORWARDER).0, typed.encode_eip712().expect("a digest"));
}

#[test]
fn a_request_counts_for_its_signer_its_chain_its_forwarder_and_its_words_only() {
    let request = request();
    let signature = request.sign(&key(9), 1, FORWARDER).expect("signs");
    let by = |request: &ForwardRequest, chain, at| request.recover(&signature.0, chain, at);
    let owner = Some(key(9).account());
    assert_eq!(by(&request, 1, FORWARDER), owner);
    assert_ne!(by(&request, 2, FORWARDER), owner);
    assert_ne!(by(&request, 1, Address([8; 20])), owner);
    let others = [
        ForwardRequest { to: Address([2; 20]), ..request.clone() },
        ForwardRequest { gas: request.gas + 1, ..request.clone() },
        ForwardRequest { nonce: request.nonce + 1, ..request.clone() },
        ForwardRequest { deadline_s: request.deadline_s + 1, ..request.clone() },
        ForwardRequest { data: vec![1], ..request.clone() },
    ];
    for other in others {
        assert_ne!(by(&other, 1, FORWARDER), owner, "{other:?}");
    }
    assert_eq!(request.recover(&signature.0[..64], 1, FORWARDER), None);
}

#[test]
fn the_forwarders_call_carries_the_request_and_no_coin() {
    let request = request();
    let call = request.execute(FORWARDER, &[4; 65]);
    assert_eq!(call.to, FORWARDER);
    let told = f::ExecuteCall::decode(&call.data).expect("decodes").request;
    assert_eq!((told.from, told.to), (h160(request.from), h160(request.to)));
    assert_eq!((told.value, told.gas, told.deadline), (U256::zero(), U256::from(200_000), 1_900_000_000));
    assert_eq!((told.data.to_vec(), told.signature.to_vec()), (request.data.clone(), vec![4; 65]));
    assert!(request.as_told().ends_with(&request.from.0));
    assert_eq!(made_by(&call.data), Some(Call { to: request.to, data: request.as_told() }));
    assert_eq!(made_by(&request.data), None);
}

#[test]
fn a_call_is_named_by_its_contract_and_function() {
    let pool = pool();
    let read = |call: &Call| PoolCall::read(&pool.at, call.to, &call.data);
    let named = |call: Call| read(&call).map(|call| (call.contract, call.name)).expect("a call of the pool");
    let until = TimeMs(4_000_000_000_000);
    assert_eq!(named(pool.cash_out(Account([5; 20]))), (Contract::Vault, String::from("cashOut")));
    let listed = pool.register_component(ComponentKind::Gateway, "http://g", until);
    assert_eq!(named(listed.clone()), (Contract::Controller, String::from("registerComponent")));

    // A byte too many, a byte too few, dirt in an address, another contract's function, another pool's contract.
    let mut long = pool.cash_out(Account([5; 20]));
    long.data.push(0);
    let mut short = pool.cash_out(Account([5; 20]));
    short.data.pop();
    let mut dirty = pool.cash_out(Account([5; 20]));
    dirty.data[4] = 1;
    let mut padded = listed;
    padded.data.extend([0; 32]);
    for call in [long, short, dirty, padded] {
        assert!(matches!(read(&call), Err(NotACall::Arguments { .. })), "{call:?}");
    }
    let foreign = Call { to: pool.at.controller, ..pool.cash_out(Account([5; 20])) };
    assert!(matches!(read(&foreign), Err(NotACall::Unknown { contract: Contract::Controller, .. })));
    assert!(matches!(read(&Call { to: pool.at.vault, data: vec![1] }), Err(NotACall::Unknown { .. })));
    assert_eq!(named(pool.mint(Address([5; 20]), 1)), (Contract::Token, String::from("mint")));
    let elsewhere = Call { to: pool.at.court, ..pool.mint(Address([5; 20]), 1) };
    assert!(matches!(read(&elsewhere), Err(NotACall::Elsewhere { .. })));
}
