//! What an auditor signs: the result of an audit as EIP-712 typed data, which any wallet and any contract can check.

use ethers_core::abi::AbiEncode;
use ethers_core::types::{H256, U256};
use ethers_core::utils::keccak256;
use selion_api::commit::PoolId;
use selion_api::{Account, Hash32, Signature};

use crate::signer::recover_digest;
use crate::word::h160;

const DOMAIN_TYPE: &str = "EIP712Domain(string name,string version)";
const REPORT_TYPE: &str = "Report(uint256 chainId,address pool,uint64 block,bytes32 blockHash,uint64 entries,bytes32 root,bool ok,bytes32 checks,string version)";

/// The result of an audit, as it is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// The pool.
    pub pool: PoolId,
    /// The final block up to which the chain was read; 0 if it was not.
    pub block: u64,
    /// Its hash; zero if the chain was not read.
    pub block_hash: Hash32,
    /// Entries in the log.
    pub entries: u64,
    /// Root over them.
    pub root: Hash32,
    /// Whether every check held.
    pub ok: bool,
    /// Names everything that was found: see [`text_hash`].
    pub checks: Hash32,
    /// Release of the auditor.
    pub version: String,
}

/// keccak256 of a text.
#[must_use]
pub fn text_hash(text: &str) -> Hash32 {
    Hash32(keccak256(text))
}

impl Audited {
    /// The EIP-712 digest. The domain is the same for every pool: pool and chain are fields.
    #[must_use]
    pub fn digest(&self) -> Hash32 {
        let domain = (keccak256(DOMAIN_TYPE), keccak256("Selion Audit"), keccak256("1"));
        let place = (keccak256(REPORT_TYPE), U256::from(self.pool.chain_id), h160(self.pool.controller));
        let log = (self.block, H256(self.block_hash.0), self.entries, H256(self.root.0));
        let found = (self.ok, H256(self.checks.0), keccak256(&self.version));
        let fields = [place.encode(), log.encode(), found.encode()].concat();
        let mut bytes = vec![0x19, 0x01];
        bytes.extend(keccak256(domain.encode()));
        bytes.extend(keccak256(fields));
        Hash32(keccak256(bytes))
    }

    /// Who signed it; `None` if the signature is none.
    #[must_use]
    pub fn recover(&self, signature: &Signature) -> Option<Account> {
        recover_digest(self.digest(), signature)
    }
}

#[cfg(test)]
mod tests {
    use ethers_core::types::transaction::eip712::{Eip712 as _, TypedData};
    use selion_api::Address;
    use serde_json::json;

    use super::*;

    fn audited() -> Audited {
        Audited {
            pool: PoolId { chain_id: 31_337, controller: Address([0xab; 20]) },
            block: 77,
            block_hash: Hash32([1; 32]),
            entries: 1_234_567,
            root: Hash32([2; 32]),
            ok: true,
            checks: Hash32([3; 32]),
            version: "0.1.0".into(),
        }
    }

    /// The same data in the JSON that wallets are given, hashed by ethers.
    fn by_ethers(audited: &Audited) -> Hash32 {
        let field = |name: &str, kind: &str| json!({ "name": name, "type": kind });
        let data = json!({
            "types": {
                "EIP712Domain": [field("name", "string"), field("version", "string")],
                "Report": [
                    field("chainId", "uint256"), field("pool", "address"), field("block", "uint64"),
                    field("blockHash", "bytes32"), field("entries", "uint64"), field("root", "bytes32"),
                    field("ok", "bool"), field("checks", "bytes32"), field("version", "string"),
                ],
            },
            "primaryType": "Report",
            "domain": { "name": "Selion Audit", "version": "1" },
            "message": {
                "chainId": audited.pool.chain_id, "pool": audited.pool.controller.to_string(),
                "block": audited.block, "blockHash": audited.block_hash.to_string(),
                "entries": audited.entries, "root": audited.root.to_string(), "ok": audited.ok,
                "checks": audited.checks.to_string(), "version": audited.version,
            },
        });
        let typed: TypedData = serde_json::from_value(data).expect("typed data");
        Hash32(typed.encode_eip712().expect("a digest"))
    }

    #[test]
    fn the_digest_is_the_one_that_a_wallet_computes() {
        let mut one = audited();
        assert_eq!(one.digest(), by_ethers(&one));
        (one.ok, one.version, one.block) =
            (false, "a longer name of a release than fits one word of 32 bytes".into(), 0);
        assert_eq!(one.digest(), by_ethers(&one));
    }

    #[test]
    fn another_value_in_any_field_is_another_digest() {
        let digest = audited().digest();
        let changes: [fn(&mut Audited); 9] = [
            |one| one.pool.chain_id += 1,
            |one| one.pool.controller.0[0] ^= 1,
            |one| one.block += 1,
            |one| one.block_hash.0[0] ^= 1,
            |one| one.entries += 1,
            |one| one.root.0[0] ^= 1,
            |one| one.ok = false,
            |one| one.checks.0[0] ^= 1,
            |one| one.version.push('0'),
        ];
        for (at, change) in changes.iter().enumerate() {
            let mut other = audited();
            change(&mut other);
            assert_ne!(other.digest(), digest, "field {at}");
        }
    }
}
