//! Vouchers: what both signers sign, and how a claim carries it.
//!
//! A voucher is the running total that one renter owes one provider. The renter's session key and the pool's authority
//! sign the same EIP-712 digest; anyone may then claim it.

use ethers_core::abi::AbiEncode;
use ethers_core::types::{H256, U256};
use ethers_core::utils::keccak256;
use selion_api::agent::SignedVoucher;
use selion_api::unit::TimeMs;
use selion_api::{Account, Address, Amount, Hash32, Signature};

use crate::abi::vault::{Item, Item2};
use crate::signer::{Signer, SignerError, compact, recover_digest};
use crate::word::{Bytes20, h160};

const DOMAIN_TYPE: &str = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
const VOUCHER_TYPE: &str =
    "Voucher(address renter,address provider,uint64 cumulative,uint64 usedThroughMs,uint32 epoch,uint64 logSize)";
const BATCH_TYPE: &str = "Batch(address provider,uint32 epoch,bytes32 vouchers)";
const VAULT_NAME: &str = "Selion Vault";

/// What both signers of a voucher agree to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voucher {
    /// Who pays.
    pub renter: Account,
    /// Who earns.
    pub provider: Account,
    /// Everything that the renter ever owed this provider.
    pub cumulative: Amount,
    /// Use up to here is covered.
    pub used_through: TimeMs,
    /// Epoch of the authority that countersigns.
    pub epoch: u32,
    /// Entries in the log that justify it.
    pub log_size: u64,
}

impl From<&SignedVoucher> for Voucher {
    fn from(signed: &SignedVoucher) -> Self {
        Self {
            renter: signed.renter,
            provider: signed.provider,
            cumulative: signed.cumulative,
            used_through: signed.used_through,
            epoch: signed.epoch,
            log_size: signed.log_size,
        }
    }
}

impl Voucher {
    /// The EIP-712 digest for this vault on this chain.
    #[must_use]
    pub fn digest(&self, chain_id: u64, vault: Address) -> Hash32 {
        let fields = (
            keccak256(VOUCHER_TYPE),
            h160(self.renter),
            h160(self.provider),
            self.cumulative.0,
            self.used_through.0,
            self.epoch,
            self.log_size,
        );
        typed_digest(VAULT_NAME, chain_id, vault, keccak256(fields.encode()))
    }

    /// Signs it, as session key or as authority.
    ///
    /// # Errors
    ///
    /// [`SignerError::Refused`].
    pub fn sign(&self, signer: &Signer, chain_id: u64, vault: Address) -> Result<Signature, SignerError> {
        signer.sign_digest(self.digest(chain_id, vault))
    }

    /// Who signed it; `None` if the signature is none.
    #[must_use]
    pub fn recover(&self, signature: &Signature, chain_id: u64, vault: Address) -> Option<Account> {
        recover_digest(self.digest(chain_id, vault), signature)
    }

    /// With both signatures.
    #[must_use]
    pub fn signed(self, renter_signature: Signature, authority_signature: Signature) -> SignedVoucher {
        SignedVoucher {
            renter: self.renter,
            provider: self.provider,
            cumulative: self.cumulative,
            used_through: self.used_through,
            epoch: self.epoch,
            log_size: self.log_size,
            renter_signature,
            authority_signature,
        }
    }

    /// renter(160) | cumulative(64) | epoch(32).
    fn a(&self) -> U256 {
        U256::from_big_endian(&self.renter.bytes()) << 96 | U256::from(self.cumulative.0) << 32 | U256::from(self.epoch)
    }

    /// usedThroughMs(64) | logSize(64).
    fn b(&self) -> U256 {
        U256::from(self.used_through.0) << 64 | U256::from(self.log_size)
    }
}

/// The digest that the authority of `epoch` signs over a whole batch (the cheaper second way to claim).
#[must_use]
pub fn batch_digest(chain_id: u64, vault: Address, provider: Account, epoch: u32, vouchers: &[Voucher]) -> Hash32 {
    let digests: Vec<u8> = vouchers.iter().flat_map(|voucher| voucher.digest(chain_id, vault).0).collect();
    let fields = (keccak256(BATCH_TYPE), h160(provider), epoch, keccak256(digests));
    typed_digest(VAULT_NAME, chain_id, vault, keccak256(fields.encode()))
}

/// The EIP-712 digest of a struct hash under one of the pool's domains.
pub(crate) fn typed_digest(name: &str, chain_id: u64, contract: Address, struct_hash: [u8; 32]) -> Hash32 {
    let domain = (keccak256(DOMAIN_TYPE), keccak256(name), keccak256("1"), U256::from(chain_id), h160(contract));
    typed_under(keccak256(domain.encode()), struct_hash)
}

/// The same under any domain, given by its separator.
pub(crate) fn typed_under(domain: [u8; 32], struct_hash: [u8; 32]) -> Hash32 {
    let mut bytes = vec![0x19, 0x01];
    bytes.extend(domain);
    bytes.extend(struct_hash);
    Hash32(keccak256(bytes))
}

/// A claim's item with both signatures.
pub(crate) fn item2(signed: &SignedVoucher) -> Item2 {
    let voucher = Voucher::from(signed);
    let (r, vs) = compact(&signed.renter_signature);
    let (ar, avs) = compact(&signed.authority_signature);
    Item2 { a: voucher.a(), b: voucher.b(), r, vs, ar, avs }
}

/// A claim's item for a batch that the authority signs as a whole.
pub(crate) fn item(signed: &SignedVoucher) -> Item {
    let voucher = Voucher::from(signed);
    let (r, vs) = compact(&signed.renter_signature);
    Item { a: voucher.a(), b: voucher.b(), r, vs }
}

/// The first 128 bits of keccak256(root, digest), as the controller keeps them of the last anchor.
#[must_use]
pub fn head_commitment(root: Hash32, digest: Hash32) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&head_hash(root, digest)[..16]);
    first
}

/// keccak256(root, digest): what is kept of an anchor that a new owner accepted.
#[must_use]
pub fn head_hash(root: Hash32, digest: Hash32) -> [u8; 32] {
    keccak256((H256(root.0), H256(digest.0)).encode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// The file that the Solidity tests check too.
    fn vector() -> (Value, Voucher, u64, Address) {
        let json: Value = serde_json::from_str(include_str!("../solidity/test/vectors/voucher.json")).expect("JSON");
        let text = |name: &str| json[name].as_str().expect(name).to_owned();
        let number = |name: &str| json[name].as_u64().expect(name);
        let voucher = Voucher {
            renter: text("renter").parse().expect("renter"),
            provider: text("provider").parse().expect("provider"),
            cumulative: Amount(number("cumulative")),
            used_through: TimeMs(number("used_through_ms")),
            epoch: u32::try_from(number("epoch")).expect("epoch"),
            log_size: number("log_size"),
        };
        let (chain_id, vault) = (number("chain_id"), text("vault").parse().expect("vault"));
        (json, voucher, chain_id, vault)
    }

    #[test]
    fn the_digest_and_its_compact_signature_are_those_that_the_vault_computes() {
        let (json, voucher, chain_id, vault) = vector();
        let digest = voucher.digest(chain_id, vault);
        assert_eq!(digest.to_string(), json["digest"].as_str().expect("digest"));
        let mut key = [0; 32];
        key[31] = 0xaa;
        let signer = Signer::from_bytes(&key).expect("key");
        let signature = voucher.sign(&signer, chain_id, vault).expect("signs");
        let (r, vs) = compact(&signature);
        assert_eq!(Hash32(r).to_string(), json["r"].as_str().expect("r"));
        assert_eq!(Hash32(vs).to_string(), json["vs"].as_str().expect("vs"));
        assert_eq!(voucher.recover(&signature, chain_id, vault), Some(signer.account()));
    }

    #[test]
    fn another_chain_vault_or_amount_is_another_digest() {
        let (_, voucher, chain_id, vault) = vector();
        let digest = voucher.digest(chain_id, vault);
        assert_ne!(voucher.digest(chain_id + 1, vault), digest);
        assert_ne!(voucher.digest(chain_id, Address([1; 20])), digest);
        assert_ne!(Voucher { cumulative: Amount(voucher.cumulative.0 + 1), ..voucher }.digest(chain_id, vault), digest);
    }
}
